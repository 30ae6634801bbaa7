"""Check one sparse row in one pass: what a single query can afford."""

from __future__ import annotations

import numpy as np

from umpteen.kernels.jit import jit


@jit
def check_row(indices, data, n_features, normalize, out):
    """Copy a row, scaled to length one if asked; return False if it is not sorted, in range and finite."""
    before = -1
    total = 0.0
    for k in range(len(indices)):
        if indices[k] <= before or indices[k] >= n_features or not np.isfinite(data[k]):
            return False
        before = indices[k]
        total += np.float64(data[k]) * np.float64(data[k])
    scale = 1.0 / np.sqrt(total) if normalize and total > 0.0 else 1.0
    for k in range(len(indices)):
        out[k] = data[k] * scale
    return True
