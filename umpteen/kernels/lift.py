"""Targets of the nodes of a level, by node: which rows have a label below a node (eqs. 5–8)."""

import numpy as np

from umpteen.kernels.jit import jit


@jit
def count_rows(indptr, indices, node_of, predicted, has_true, ptr, seen):
    """Add the number of rows of each node to ``ptr[node + 1]``.

    A row has the nodes of its labels, if ``has_true``, and those in its line of ``predicted`` (rows, k), where −1 is no
    node; each node counts once. ``seen`` is one zeroed int32 per node.
    """
    for row in range(len(indptr) - 1):
        mark = np.int32(row + 1)
        if has_true:
            for k in range(indptr[row], indptr[row + 1]):
                node = node_of[indices[k]]
                if seen[node] != mark:
                    seen[node] = mark
                    ptr[node + 1] += 1
        for k in range(predicted.shape[1]):
            node = predicted[row, k]
            if node >= 0 and seen[node] != mark:
                seen[node] = mark
                ptr[node + 1] += 1


@jit
def fill_rows(indptr, indices, data, node_of, predicted, has_true, at, seen, rows, sums):
    """Write the rows of each node from ``at[node]`` on, which is advanced: ascending, as ``count_rows`` counts them.

    ``sums`` gets the sum of the values of the row's labels below the node; if it is empty, nothing is summed. ``seen``
    is one zeroed int32 per node.
    """
    has_sums = len(sums) > 0
    for row in range(len(indptr) - 1):
        mark = np.int32(row + 1)
        if has_true:
            for k in range(indptr[row], indptr[row + 1]):
                node = node_of[indices[k]]
                if seen[node] != mark:
                    seen[node] = mark
                    rows[at[node]] = row
                    if has_sums:
                        sums[at[node]] = 0.0
                    at[node] += 1
                if has_sums:
                    sums[at[node] - 1] += data[k]
        for k in range(predicted.shape[1]):
            node = predicted[row, k]
            if node >= 0 and seen[node] != mark:
                seen[node] = mark
                rows[at[node]] = row
                at[node] += 1
