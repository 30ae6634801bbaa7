"""Point-wise losses over the nodes that a text is trained on (eq. 9)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional as F


def squared_hinge(scores: torch.Tensor, positive: torch.Tensor) -> torch.Tensor:
    """max(0, 1 − y·s)²."""
    return (1.0 - _signed(scores, positive)).clamp(min=0.0).square()


def hinge(scores: torch.Tensor, positive: torch.Tensor) -> torch.Tensor:
    """max(0, 1 − y·s)."""
    return (1.0 - _signed(scores, positive)).clamp(min=0.0)


def bce(scores: torch.Tensor, positive: torch.Tensor) -> torch.Tensor:
    """−log of the probability that a logistic classifier gives to the truth."""
    return F.softplus(-_signed(scores, positive))


LOSSES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "squared-hinge": squared_hinge,
    "hinge": hinge,
    "bce": bce,
}


def weighted(
    loss: str, scores: torch.Tensor, relevance: torch.Tensor, alive: torch.Tensor | None, alpha: float
) -> torch.Tensor:
    """Sum the loss of each text over its nodes, weighted by relevance, and α where there is none.

    All three are (texts, nodes); ``alive`` says which nodes are trained on, all without it. Returns (texts,).
    """
    positive = relevance > 0
    cost = torch.where(positive, relevance, alpha)
    if alive is not None:
        cost = cost * alive
    return (cost * LOSSES[loss](scores, positive)).sum(dim=1)


def _signed(scores: torch.Tensor, positive: torch.Tensor) -> torch.Tensor:
    return torch.where(positive, scores, -scores)
