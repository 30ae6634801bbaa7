"""Check arrays that came from a file before other kernels, which check nothing, walk them."""

from __future__ import annotations

from umpteen.kernels.jit import jit


@jit
def check_runs(ptr, run_ptr, run_chunk, run_last, local, starts, first, last):
    """Return the first of the features first..last whose runs are not what the search expects, or -1.

    A feature's runs name ascending chunks, those of ``starts``, and share out its postings, from ``ptr[f]`` to
    ``ptr[f + 1]``, without rest; the postings of a run name ascending children of its chunk. Both pointers must have
    been checked before: ascending, and within their arrays.
    """
    n_chunks = len(starts) - 1
    for f in range(first, last):
        at, end = ptr[f], ptr[f + 1]
        before = -1
        for r in range(run_ptr[f], run_ptr[f + 1]):
            chunk = int(run_chunk[r])
            length = int(run_last[r]) + 1
            if chunk <= before or chunk >= n_chunks or length > end - at:
                return f
            before = chunk
            descends = False
            for k in range(at + 1, at + length):
                descends |= local[k] <= local[k - 1]
            at += length
            if descends or local[at - 1] >= starts[chunk + 1] - starts[chunk]:
                return f
        if at != end:
            return f
    return -1
