"""Check that arrays are finite, without copies."""

import numpy as np

_LARGEST = 1e18  # squares and sums of larger numbers may overflow single precision
_AT_ONCE = 1 << 18  # numbers per block, which fits in the cache of the processor
_HALF_INFINITY = 0x7C00  # bits of infinity in half precision; those of NaN are above


def is_finite(array: np.ndarray) -> bool:
    """Return whether a float array is free of NaN, infinity and numbers above 1e18, whose squares may overflow.

    Examples
    --------
    >>> is_finite(np.ones(3, np.float32)), is_finite(np.array([1, np.nan])), is_finite(np.array([1e30]))
    (True, False, False)
    """
    flat = np.ascontiguousarray(array).reshape(-1)
    blocks = (flat[first : first + _AT_ONCE] for first in range(0, flat.size, _AT_ONCE))
    if array.dtype == np.float16:  # comparing integers is faster
        return all((block.view(np.uint16) & 0x7FFF).max() < _HALF_INFINITY for block in blocks)
    return all(block.min() >= -_LARGEST and block.max() <= _LARGEST for block in blocks)  # False for NaN
