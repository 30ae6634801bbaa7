"""Scale sparse rows to unit length, and check a single row."""

import numpy as np

from umpteen.kernels.jit import inner, jit


@inner
def _scale(total):
    """Return the factor that scales a row of this squared length to unit length; 1 if it is zero or (nearly) one."""
    if total <= 0.0:
        return 1.0
    scale = 1.0 / np.sqrt(total)
    return scale if abs(scale - 1.0) > 1e-6 else 1.0


@jit
def check_row(indices, data, n_features, normalize, out):
    """Copy a row, with ``normalize`` scaled to unit length; return False unless it is sorted, in range and finite."""
    before = -1
    total = 0.0
    for k in range(len(indices)):
        if indices[k] <= before or indices[k] >= n_features or not np.isfinite(data[k]):
            return False
        before = indices[k]
        total += np.float64(data[k]) * np.float64(data[k])
    scale = _scale(total) if normalize else 1.0
    for k in range(len(indices)):
        out[k] = data[k] * scale
    return True


@jit
def scales(indptr, data, first, last, out):
    """Compute the factors that scale rows first..last to unit length; return whether all are 1.

    Squares of float32 can overflow float32, so sums are in double precision.
    """
    are_unit = True
    for row in range(first, last):
        total = 0.0
        for k in range(indptr[row], indptr[row + 1]):
            total += np.float64(data[k]) * np.float64(data[k])
        out[row] = _scale(total)
        are_unit = are_unit and out[row] == 1.0
    return are_unit


@jit
def scale_rows(indptr, data, by, first, last, out):
    """Multiply the values of rows first..last by the factors ``by``."""
    for row in range(first, last):
        for k in range(indptr[row], indptr[row + 1]):
            out[k] = data[k] * by[row]
