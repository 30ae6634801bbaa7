"""Label vectors from the texts of a label, from its name, or both."""

import numpy as np
import scipy.sparse as sp

from umpteen.data.sparse import pointers, stored, triplet
from umpteen.engine import run
from umpteen.errors import BadInput
from umpteen.kernels import lazy

_BLOCKS = 16  # more than threads, for blocks take different times


def pifa(X: sp.csr_matrix, Y: sp.csr_matrix, *, keep: int = 0, threads: int = 1) -> sp.csr_matrix:
    """Return the normalised sum of the rows of each label (eq. 4): positive-instance feature aggregation.

    If ``keep`` is not 0, only the ``keep`` largest entries of each label are kept. The vector of a frequent label has
    nearly all features; the small ones cost time and change the tree little.
    """
    labels = Y.T.tocsr()
    member_ptr, members = labels.indptr.astype(np.int64), labels.indices.astype(np.int32)
    indptr, indices, data = sum_members(triplet(X), X.shape[1], member_ptr, members, keep=keep, threads=threads)
    return sp.csr_matrix((data, indices, indptr), shape=(Y.shape[1], X.shape[1]))


def sum_members(
    rows: tuple[np.ndarray, np.ndarray, np.ndarray],
    n_features: int,
    member_ptr: np.ndarray,
    members: np.ndarray,
    *,
    keep: int = 0,
    threads: int = 1,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the normalised sums of groups of sparse rows, as the three arrays of a CSR matrix.

    Group g has the rows ``members[member_ptr[g]:member_ptr[g + 1]]``.
    """
    indptr, row_indices, row_data = rows
    work = pointers(np.diff(indptr)[members])[member_ptr]
    most = np.minimum(np.diff(work), min(keep, n_features) if keep else n_features)
    start = pointers(most)
    indices, data = np.empty(start[-1], np.int32), np.empty(start[-1], np.float32)
    cuts = np.searchsorted(work, np.linspace(0, work[-1], _BLOCKS + 1))
    cuts[0], cuts[-1] = 0, len(member_ptr) - 1

    def task(block: int) -> np.ndarray:
        low, high = cuts[block], cuts[block + 1]
        return lazy.cluster.sum_rows(
            member_ptr[low : high + 1], members, indptr, row_indices, row_data, keep,
            np.zeros(n_features, np.float32), start[low : high + 1], indices, data,
        )  # fmt: skip

    written = np.concatenate(run(task, _BLOCKS, threads=threads))
    ptr = pointers(written)
    if ptr[-1] != start[-1]:
        source = np.arange(ptr[-1]) + np.repeat(start[:-1] - ptr[:-1], written)
        indices, data = indices[source], data[source]
    return ptr, indices, data


def pifa_dense(E: np.ndarray, Y: sp.csr_matrix) -> sp.csr_matrix:
    """Return the normalised sum of the dense rows of each label."""
    sums = (Y.T.tocsr() @ E).astype(np.float32)  # (labels, d)
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    sums /= np.where(lengths > 0, lengths, 1.0)
    return stored(sums)


def both(by_texts: sp.csr_matrix, by_name: sp.csr_matrix) -> sp.csr_matrix:
    """Concatenate two kinds of label vectors with equal weight."""
    if by_texts.shape[0] != by_name.shape[0]:
        raise BadInput(f"there are {by_texts.shape[0]} labels but {by_name.shape[0]} label names; pass one each")
    return sp.csr_matrix(sp.hstack([by_texts, by_name]) * np.float32(np.sqrt(0.5)), dtype=np.float32)
