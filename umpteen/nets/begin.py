"""Where scorers begin: at what the texts of their nodes have in common.

From nothing, a label that two texts carry would have to be met many times before it is told apart. But texts of one
node lie together, as far as the encoder knows them. So vectors are brought around zero and made as long in one
direction as in another, and each node begins at the mean of its own texts there: these are the linear discriminants
(Fisher 1936) of all nodes, for two passes over the texts and one small matrix to decompose.
"""

from __future__ import annotations

import torch

_RIDGE = 0.3  # of the mean variance, added to that of every direction: few texts say little about the small ones
_LEAST = 1e-3  # of the mean square, likewise: an encoder that tells no text from another is not blown up
_TINY = 1e-12
_SHRINK = 2.0  # texts that a node is taken to have beside its own, which say nothing
_SHARE = 0.3  # of a discriminant: directions are not independent, as it takes them to be


class Standard(torch.nn.Module):
    """Vectors of texts brought around zero and turned, the directions in which they differ most first."""

    def __init__(self, width: int):
        super().__init__()
        self.register_buffer("centre", torch.zeros(width))
        self.register_buffer("turn", torch.eye(width))

    def forward(self, e: torch.Tensor) -> torch.Tensor:
        """Return the vectors (texts, d) as they are compared."""
        return (e.float() - self.centre) @ self.turn

    @torch.no_grad()
    def settle(self, spread: Spread) -> None:
        """Take centre and directions from some texts."""
        centre, covariance = spread.measured()
        found = torch.linalg.eigh(covariance.cpu())  # small, and not every device can
        variances, directions = (part.to(centre.device) for part in found)
        square = centre.square().mean() + variances.mean()
        ridge = _RIDGE * variances.mean() + _LEAST * square + _TINY
        self.centre.copy_(centre)
        self.turn.copy_((directions / (variances.clamp(min=0.0) + ridge).sqrt()).flip(1))


class Spread:
    """How vectors of texts differ, added up batch by batch."""

    def __init__(self, width: int, device: torch.device):
        self.n, self.total, self.outer = 0, torch.zeros(width, device=device), torch.zeros(width, width, device=device)

    def add(self, e: torch.Tensor) -> None:
        """Add vectors (texts, d)."""
        self.n += len(e)
        self.total += e.sum(dim=0)
        self.outer += e.T @ e

    def measured(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean (d,) and covariance (d, d)."""
        mean = self.total / max(self.n, 1)
        return mean, self.outer / max(self.n, 1) - torch.outer(mean, mean)


def discriminants(sums: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Turn the sums of standard vectors of each node's texts (nodes, d) into weights, in place.

    Returns what is to be added to a bias of prior log-odds (nodes,).
    """
    sums /= (counts + _SHRINK)[:, None]
    offset = -0.5 * _SHARE * torch.linalg.vector_norm(sums, dim=1).square()
    sums *= _SHARE
    return offset
