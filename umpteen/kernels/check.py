"""Check arrays from an untrusted file before they are used by other kernels, which do not check bounds."""

from umpteen.kernels.jit import jit


@jit
def check_runs(ptr, run_ptr, run_chunk, run_last, local, starts, first, last):
    """Return the first of the features first..last with invalid runs, or -1.

    The runs of a feature must have ascending chunks and cover its postings, from ``ptr[f]`` to ``ptr[f + 1]``; the
    postings of a run must be ascending children of its chunk. The pointers must have been checked before.
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
