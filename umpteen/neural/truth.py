"""The true nodes of texts on a device, kept sparse: memory grows with the labels of texts, not with all labels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch


class Truth(NamedTuple):
    """The nodes of some texts (texts, most), ascending, filled up with ``n_nodes``; and their values, filled with 0."""

    nodes: torch.Tensor
    values: torch.Tensor
    n_nodes: int

    def contains(self, candidates: torch.Tensor) -> torch.Tensor:
        """Return which candidates (texts, candidates) are nodes of their text, bool."""
        at = torch.searchsorted(self.nodes, candidates.contiguous()).clamp(max=self.nodes.shape[1] - 1)
        return self.nodes.gather(1, at) == candidates

    def dense(self, first: int = 0, last: int | None = None) -> torch.Tensor:
        """Return the values of the nodes first..last (texts, last − first), float32, 0 for others."""
        width = (self.n_nodes if last is None else last) - first
        place = self.nodes - first
        place = torch.where((place >= 0) & (place < width), place, width)
        out = torch.zeros(len(self.nodes), width + 1, device=self.nodes.device)
        return out.scatter_(1, place, self.values)[:, :width]

    def sum_of(self, scores: torch.Tensor, first: int = 0) -> torch.Tensor:
        """Return the sum of the scores (texts, some nodes from ``first`` on) of the true nodes among these."""
        if not scores.shape[1]:  # there are fewer nodes than ranks
            return scores.sum()
        place = self.nodes - first
        is_there = (place >= 0) & (place < scores.shape[1]) & (self.nodes < self.n_nodes)
        return (scores.gather(1, torch.where(is_there, place, 0)) * is_there).sum()


class TruthTable:
    """The nodes of all texts; ``of`` returns those of a batch, in tensors whose width is the same for every batch."""

    def __init__(self, matrix: sp.csr_matrix, device: torch.device):
        matrix = matrix.sorted_indices()
        counts = np.diff(matrix.indptr)
        self.n_entries, self.n_nodes, self.most = matrix.nnz, matrix.shape[1], max(int(counts.max(initial=0)), 1)
        self.ptr = torch.from_numpy(matrix.indptr.astype(np.int64)).to(device)
        # one entry more than there are, for places behind the last
        self.nodes = torch.from_numpy(np.append(matrix.indices, 0).astype(np.int64)).to(device)
        self.values = torch.from_numpy(np.append(matrix.data, 0).astype(np.float32)).to(device)

    def of(self, rows: np.ndarray) -> Truth:
        """Return the nodes of some texts."""
        chosen = torch.from_numpy(rows.astype(np.int64)).to(self.ptr.device)
        at = self.ptr[chosen, None] + torch.arange(self.most, device=self.ptr.device)  # (texts, most)
        is_entry = at < self.ptr[chosen + 1, None]
        at = torch.where(is_entry, at, self.n_entries)
        nodes = torch.where(is_entry, self.nodes[at], self.n_nodes)
        return Truth(nodes, torch.where(is_entry, self.values[at], 0.0), self.n_nodes)
