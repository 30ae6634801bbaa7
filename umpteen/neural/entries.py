"""Which nodes of a text are right, without a table of all texts and all nodes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import torch


class Entries:
    """The stored entries of a sparse matrix on a device, to ask which places of some rows are among them."""

    def __init__(self, matrix: sp.csr_matrix, device: torch.device):
        rows = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))
        places = np.sort(rows * matrix.shape[1] + matrix.indices)
        self.width, self.places = matrix.shape[1], torch.from_numpy(places).to(device)

    def __len__(self) -> int:
        return len(self.places)

    def of(self, rows: np.ndarray) -> Callable[[torch.Tensor], torch.Tensor]:
        """Return what says which of some columns (rows, candidates) are entries of these rows."""
        first = torch.from_numpy(rows * self.width).to(self.places.device)[:, None]

        def among(columns: torch.Tensor) -> torch.Tensor:
            wanted = first + columns
            at = torch.searchsorted(self.places, wanted).clamp(max=max(len(self.places) - 1, 0))
            return self.places[at] == wanted

        return among
