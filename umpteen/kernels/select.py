"""Selection of the value at a given rank. ``np.partition`` would take numba seconds to compile."""

import numpy as np

from umpteen.kernels.jit import inner


@inner
def nth_largest(values, n, rank):
    """Return the value at ``rank`` (from 0) of the first ``n`` values in descending order, and reorder them.

    Hoare's selection with the middle value as pivot. Values must not be NaN.
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
