"""What scores the nodes of one level: a vector and a bias for each, against the vector or the states of a text."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from umpteen.neural.lda_init import Whitening
from umpteen.neural.readers import States
from umpteen.neural.sparse_table import fastest, with_gradient

_RAREST = 1e-6  # least share of the texts that a node is taken to have


class Scorer(torch.nn.Module):
    """The nodes of one level.

    Parameters
    ----------
    width
        Length of a text's vector.
    n_nodes
        Nodes of the level.
    dropout
        Share of a text's vector that is dropped in training.
    bottleneck
        Length to which a text's vector is brought first; 0 leaves it as it is.
    is_standard
        Whether texts' vectors are made standard before all else.
    """

    def __init__(
        self, width: int, n_nodes: int, *, dropout: float = 0.0, bottleneck: int = 0, is_standard: bool = False
    ):
        super().__init__()
        self.dropout = dropout
        self.standard = Whitening(width) if is_standard else None
        self.narrow = torch.nn.Linear(width, bottleneck) if bottleneck else None
        if self.standard is not None and self.narrow is not None:  # the directions that differ most
            torch.nn.init.eye_(self.narrow.weight)
            torch.nn.init.zeros_(self.narrow.bias)
        self.weight = torch.nn.Parameter(torch.empty(n_nodes, bottleneck or width))
        self.bias = torch.nn.Parameter(torch.zeros(n_nodes))
        torch.nn.init.xavier_uniform_(self.weight)

    def prepare(self, e: torch.Tensor) -> torch.Tensor:
        """Return the vectors (texts, d) that nodes are compared with."""
        e = e if self.standard is None else self.standard(e)
        e = F.dropout(e, self.dropout, self.training)
        return e if self.narrow is None else self.narrow(e)

    def all(self, e: torch.Tensor) -> torch.Tensor:
        """Score every node (texts, nodes)."""
        return F.linear(self.prepare(e), self.weight, self.bias)

    def some(self, e: torch.Tensor, nodes: torch.Tensor) -> torch.Tensor:
        """Score some nodes of each text: ``nodes`` and the result are (texts, candidates)."""
        e = self.prepare(e)
        weight = F.embedding(nodes, self.weight)  # (texts, candidates, d)
        return torch.bmm(weight.to(e.dtype), e[:, :, None])[:, :, 0] + self.bias[nodes]

    @property
    def width(self) -> int:
        """How many numbers are gathered for a candidate."""
        return self.weight.shape[1]


class Table(Scorer):
    """Nodes that are stepped where a batch touches them, with one number of state each.

    No gradient and no optimiser's state as large as the table exists. ``rate`` and ``decay`` are what an optimiser
    would be told, the other parameters those of ``Scorer``.
    """

    def __init__(self, width: int, n_nodes: int, *, rate: float, decay: float, **more: Any):
        super().__init__(width, n_nodes, **more)
        for name in ("weight", "bias"):
            tensor = getattr(self, name).detach()
            delattr(self, name)
            self.register_buffer(name, tensor)
        self.full_rate, self.decay = rate, decay
        self.register_buffer("state", torch.zeros(n_nodes))
        self.register_buffer("rate", torch.tensor(rate), persistent=False)
        self.waiting: list[tuple[torch.Tensor, ...]] = []  # what texts that still step nodes have to say

    def pace(self, factor: float) -> None:
        """Learn at this share of the rate."""
        self.rate.fill_(factor * self.full_rate)

    def learned(
        self, e: torch.Tensor, nodes: torch.Tensor, right: torch.Tensor, exists: torch.Tensor, *, is_whole: bool = True
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the scores of some nodes, and the summed loss, which carries the gradient of ``e``.

        A whole batch steps the nodes; after the last part of one, ``step_waiting`` does.
        """
        e = self.prepare(e).float()
        score, _ = fastest(e.device)
        with torch.no_grad(), torch.autocast(e.device.type, enabled=False):
            found = score(e, self.weight, self.bias, nodes, right, exists)
            self.waiting.append((nodes, found.gap, exists, e.detach()))
            if is_whole:
                self.step_waiting()
        return found.scores, with_gradient(e, found.loss.sum(), found.grad_e)

    @torch.no_grad()
    def step_waiting(self) -> None:
        """Step the nodes that the texts since the last step have met."""
        nodes, gap, exists, e = (
            parts[0] if len(parts) == 1 else torch.cat(parts) for parts in zip(*self.waiting, strict=True)
        )
        self.waiting.clear()
        _, step = fastest(e.device)
        step(self.weight, self.bias, self.state, nodes, gap, exists, e, self.rate, self.decay)


class Attention(torch.nn.Module):
    """Nodes that each attend to the tokens of a text in a way of their own, and share what follows (AttentionXML).

    Parameters
    ----------
    width
        Length of a token's state.
    n_nodes
        Nodes of the level.
    hidden
        Width of the layer that all nodes share.
    """

    def __init__(self, width: int, n_nodes: int, *, hidden: int):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(n_nodes, width))
        self.bias = torch.nn.Parameter(torch.zeros(n_nodes))
        self.shared = torch.nn.Sequential(
            torch.nn.Linear(width, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 1, bias=False)
        )
        torch.nn.init.xavier_uniform_(self.weight)

    def all(self, seen: States) -> torch.Tensor:
        """Score every node (texts, nodes)."""
        return self._answered(seen, self.weight.expand(len(seen.states), -1, -1)) + self.bias

    def some(self, seen: States, nodes: torch.Tensor) -> torch.Tensor:
        """Score some nodes of each text: ``nodes`` and the result are (texts, candidates)."""
        return self._answered(seen, F.embedding(nodes, self.weight)) + self.bias[nodes]

    def _answered(self, seen: States, asked: torch.Tensor) -> torch.Tensor:
        """Turn the vectors of nodes (texts, candidates, d) into scores."""
        logits = torch.bmm(asked.to(seen.states.dtype), seen.states.transpose(1, 2))  # (texts, candidates, length)
        shares = logits.masked_fill(~seen.mask[:, None, :], -1e4).softmax(dim=2).to(seen.states.dtype)
        return self.shared(torch.bmm(shares, seen.states))[:, :, 0]

    @property
    def width(self) -> int:
        """How many numbers are gathered for a candidate."""
        return 2 * self.weight.shape[1]


def log_odds(share: torch.Tensor) -> torch.Tensor:
    """Return the margin at which a logistic scorer says that a share of the texts is right."""
    share = share.clamp(_RAREST, 1.0 - _RAREST)
    return share.log() - (1.0 - share).log()


def inherit(scorer: torch.nn.Module, above: torch.nn.Module) -> None:
    """Let a level start with what it shares with the one above: all but what belongs to a node."""
    own = {"weight", "bias"}
    shared = {name: tensor for name, tensor in above.state_dict().items() if name not in own}
    fitting = {name: tensor for name, tensor in scorer.state_dict().items() if name not in own}
    if {name: tensor.shape for name, tensor in shared.items()} == {name: t.shape for name, t in fitting.items()}:
        scorer.load_state_dict(shared, strict=False)
