"""What scores the nodes of one level: a vector and a bias for each, against the vector of a text."""

from __future__ import annotations

import torch
from torch.nn import functional as F


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
    """

    def __init__(self, width: int, n_nodes: int, *, dropout: float = 0.0, bottleneck: int = 0):
        super().__init__()
        self.dropout = dropout
        self.narrow = torch.nn.Linear(width, bottleneck) if bottleneck else None
        self.weight = torch.nn.Parameter(torch.empty(n_nodes, bottleneck or width))
        self.bias = torch.nn.Parameter(torch.zeros(n_nodes))
        torch.nn.init.xavier_uniform_(self.weight)

    def prepare(self, e: torch.Tensor) -> torch.Tensor:
        """Return the vectors (texts, d) that nodes are compared with."""
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
