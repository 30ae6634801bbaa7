"""Sparse rows on a device, from which dense blocks are made for a batch."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch


class DeviceRows:
    """A CSR matrix whose rows are wanted dense, a few at a time."""

    def __init__(self, matrix: sp.csr_matrix, device: torch.device):
        self.counts, self.width, self.device = np.diff(matrix.indptr), matrix.shape[1], device
        self.ptr = torch.from_numpy(matrix.indptr.astype(np.int64)).to(device)
        self.columns = torch.from_numpy(matrix.indices.astype(np.int64)).to(device)
        self.values = torch.from_numpy(matrix.data.astype(np.float32)).to(device)

    def flags(self, rows: np.ndarray) -> torch.Tensor:
        """Return where some rows have entries (rows, columns), bool."""
        out = torch.zeros(len(rows), self.width, device=self.device, dtype=torch.bool)
        row, place = self._entries(rows)
        out[row, self.columns[place]] = True
        return out

    def dense(self, rows: np.ndarray) -> torch.Tensor:
        """Return some rows (rows, columns), float32."""
        out = torch.zeros(len(rows), self.width, device=self.device)
        row, place = self._entries(rows)
        out[row, self.columns[place]] = self.values[place]
        return out

    def _entries(self, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Return for every entry of some rows the number of its row there, and its place."""
        total = int(self.counts[rows].sum())  # known here, so that the device need not be waited for
        chosen = torch.from_numpy(rows).to(self.device)
        first = self.ptr[chosen]
        counts = self.ptr[chosen + 1] - first
        row = torch.repeat_interleave(torch.arange(len(rows), device=self.device), counts, output_size=total)
        return row, torch.arange(total, device=self.device) - (counts.cumsum(0) - counts)[row] + first[row]
