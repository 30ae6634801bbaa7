"""Scores of gathered candidates, their loss, and a step of the rows that were touched: arrays in, arrays out.

A table of millions of label vectors is touched in a few thousand rows by a batch. So neither a gradient nor an
optimiser's state as large as the table exists: the gradient of a row is added up, shortened if it or one lately was
long, and stepped along at once. On a GPU with Triton one pass over the gathered rows does what torch does in
five (``sparse_table_triton``); what is here runs anywhere and says what the result is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F

MEMORY = 0.98  # fraction that is left of a row's largest squared gradient after a step
TINY = 1e-12


class Scored(NamedTuple):
    """What a pass over candidates gives."""

    scores: torch.Tensor  # (texts, candidates)
    residual: torch.Tensor  # (texts, candidates): derivative of the loss by the score, zero where there is none
    grad_e: torch.Tensor  # (texts, d): gradient of the loss by the text's vector
    loss: torch.Tensor  # (texts,): summed over the candidates


def score(
    e: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, nodes: torch.Tensor, right: torch.Tensor,
    exists: torch.Tensor,
) -> Scored:  # fmt: skip
    """Score candidates by the logistic loss, with its gradients.

    Parameters
    ----------
    e
        Vectors of texts (texts, d).
    weight, bias
        The table (nodes, d), (nodes,).
    nodes, right, exists
        The candidates of each text, which are true, and which places hold one (texts, candidates).
    """
    rows = F.embedding(nodes, weight)  # (texts, candidates, d)
    scores = torch.bmm(rows, e[:, :, None])[:, :, 0] + bias[nodes]
    y = right.to(e.dtype)
    residual = torch.where(exists, scores.sigmoid() - y, 0.0)
    loss = torch.where(exists, F.softplus(scores) - y * scores, 0.0).sum(dim=1)
    return Scored(scores, residual, torch.bmm(residual[:, None, :], rows)[:, 0], loss)


def step(
    weight: torch.Tensor, bias: torch.Tensor, state: torch.Tensor, nodes: torch.Tensor, residual: torch.Tensor,
    exists: torch.Tensor, e: torch.Tensor, rate: torch.Tensor, decay: float,
) -> None:  # fmt: skip
    """Step the rows of the candidates, in place.

    A row moves by its gradient, in units of the mean square of the texts' vectors: a text that is all wrong about a
    node moves it by ``rate``, and one that is almost right hardly. Where many texts agree and the sum is longer than
    that of one, the unit is its own mean square, of which ``state`` (nodes,) remembers the largest for a while. An
    optimiser with a memory of means would amplify the tiny gradients of a thousand texts that do not have a rare label.
    ``decay`` shrinks touched rows by that fraction of ``rate``.
    """
    touched, place = nodes[exists].unique(return_inverse=True)
    text = torch.arange(len(e), device=e.device)[:, None].expand_as(nodes)[exists]
    residuals = torch.sparse_coo_tensor(
        torch.stack([place, text]), residual[exists], (len(touched), len(e)), check_invariants=False
    )
    gradient = torch.sparse.mm(residuals, e)  # (touched, d)
    square = gradient.square().mean(dim=1)
    longest = torch.maximum(MEMORY * state[touched], square)
    state[touched] = longest
    length = rate / (torch.maximum(longest, unit(e)) + TINY).sqrt()  # (touched,)
    weight[touched] = weight[touched] * (1.0 - rate * decay) - length[:, None] * gradient
    bias[touched] -= length * torch.zeros_like(square).index_add_(0, place, residual[exists])


def unit(e: torch.Tensor) -> torch.Tensor:
    """Return the mean square of the numbers of some vectors."""
    return e.square().mean()


class _Known(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, e: torch.Tensor, loss: torch.Tensor, grad_e: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(grad_e)
        return loss.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:  # type: ignore[override]
        (grad_e,) = context.saved_tensors
        return gradient * grad_e, None, None


def with_gradient(e: torch.Tensor, loss: torch.Tensor, grad_e: torch.Tensor) -> torch.Tensor:
    """Return a loss whose gradient by ``e`` is known already."""
    return _Known.apply(e, loss, grad_e)


def fastest(device: torch.device) -> tuple[Callable[..., Scored], Callable[..., None]]:
    """Return ``score`` and ``step`` as they are fastest on a device."""
    module = _triton() if device.type == "cuda" else None
    return (score, step) if module is None else (module.score, module.step)


@cache
def _triton() -> Any:
    try:
        from umpteen.neural import sparse_table_triton
    except ImportError:
        return None
    return sparse_table_triton
