"""Whether arrays of any size hold numbers that can be added up. Reads each number once and copies none."""

from __future__ import annotations

import numpy as np

_LARGEST = 1e18  # squares and sums of so large numbers still fit in single precision
_AT_ONCE = 1 << 18  # numbers looked at a time: they stay in the processor's cache
_HALF_INFINITY = 0x7C00  # bits of infinity in half precision, and above it those of NaN


def is_finite(array: np.ndarray) -> bool:
    """Say whether a float array is free of NaN, infinity and numbers so large that sums of them would not be finite.

    Examples
    --------
    >>> is_finite(np.ones(3, np.float32)), is_finite(np.array([1, np.nan])), is_finite(np.array([1e30]))
    (True, False, False)
    """
    flat = np.ascontiguousarray(array).reshape(-1)
    blocks = (flat[first : first + _AT_ONCE] for first in range(0, flat.size, _AT_ONCE))
    if array.dtype == np.float16:  # compared as whole numbers, which processors do faster
        return all((block.view(np.uint16) & 0x7FFF).max() < _HALF_INFINITY for block in blocks)
    return all(block.min() >= -_LARGEST and block.max() <= _LARGEST for block in blocks)  # NaN compares to nothing
