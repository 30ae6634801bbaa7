"""Selection: the value at a given rank, in linear time and without sorting.

numba's own ``np.partition`` and ``argsort`` compile for seconds at every cold start; this is one short loop.
"""

from __future__ import annotations

import numpy as np

from umpteen.kernels.jit import inner


@inner
def nth_largest(values, n, rank):
    """Return the value at ``rank`` (from 0) of the first ``n`` in descending order; they are reordered.

    Hoare's selection with the middle one as pivot. Values must not be NaN.
    """
    low, high = np.int64(0), n - 1
    while low < high:
        pivot = values[(low + high) >> 1]
        i, j = low, high
        while i <= j:
            while values[i] > pivot:
                i += 1
            while values[j] < pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if rank <= j:
            high = j
        elif rank >= i:
            low = i
        else:
            break
    return values[rank]
