"""Initialise classifiers as linear discriminants (LDA): whitened means of the texts of each node.

From a random start, a label that two texts carry would need many epochs before it is told apart. So the vectors of the
texts are centred and whitened, and each node starts at the shrunken mean of its own texts: the linear discriminants
(Fisher 1936) of all nodes, for two passes over the texts and one eigendecomposition of a small matrix.
"""

from __future__ import annotations

import torch

_RIDGE = 0.3  # of the mean variance, added to that of every direction: few texts say little about the small ones
_LEAST = 1e-3  # of the mean square, likewise: bounds the scale of an encoder whose vectors are all equal
_TINY = 1e-12
_SHRINK = 2.0  # pseudo-count: average texts that each node is given beside its own
_SHARE = 0.3  # scale of a discriminant: it assumes independent directions, which they are not


class Whitening(torch.nn.Module):
    """Centre and whiten the vectors of texts; the directions of the largest variance come first."""

    def __init__(self, width: int):
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("matrix", torch.eye(width))

    def forward(self, e: torch.Tensor) -> torch.Tensor:
        """Return whitened vectors (texts, d)."""
        return (e.float() - self.mean) @ self.matrix

    @torch.no_grad()
    def fit(self, covariance: Covariance) -> None:
        """Take the mean and the whitening matrix from the covariance of some texts."""
        mean, covariances = covariance.measured()
        found = torch.linalg.eigh(covariances.cpu())  # small, and not every device can
        variances, directions = (part.to(mean.device) for part in found)
        square = mean.square().mean() + variances.mean()
        ridge = _RIDGE * variances.mean() + _LEAST * square + _TINY
        self.mean.copy_(mean)
        self.matrix.copy_((directions / (variances.clamp(min=0.0) + ridge).sqrt()).flip(1))


class Covariance:
    """The covariance of the vectors of texts, accumulated over batches."""

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
    """Turn the sums of whitened vectors of each node's texts (nodes, d) into weights, in place.

    Returns what is to be added to a bias of prior log-odds (nodes,).
    """
    sums /= (counts + _SHRINK)[:, None]
    offset = -0.5 * _SHARE * torch.linalg.vector_norm(sums, dim=1).square()
    sums *= _SHARE
    return offset
