"""Targets of the nodes of a level by column: for each node, the rows that have a label below it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from umpteen.kernels import lazy
from umpteen.store.tensors import Allocate, in_memory
from umpteen.tree.tree import LabelTree


@dataclass(frozen=True)
class Columns:
    """A sparse matrix by column, with the types that kernels take: int64, int32, float32; rows are ascending."""

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray
    n_rows: int

    @classmethod
    def of(cls, matrix: sp.spmatrix) -> Columns:
        """Convert any sparse matrix."""
        csc = sp.csc_matrix(matrix)
        csc.sort_indices()
        kinds = (np.int64, np.int32, np.float32)
        parts = (csc.indptr, csc.indices, csc.data)
        return cls(*(part.astype(kind, copy=False) for part, kind in zip(parts, kinds, strict=True)), csc.shape[0])

    @property
    def nnz(self) -> int:
        """Number of entries."""
        return len(self.indices)

    def rows_of(self, column: int) -> np.ndarray:
        """Return the rows of a column."""
        return self.indices[self.indptr[column] : self.indptr[column + 1]]

    def between(self, first: int, last: int) -> sp.csr_matrix:
        """Return a copy of consecutive columns as a scipy matrix."""
        low, high = self.indptr[first], self.indptr[last]
        parts = (self.data[low:high], self.indices[low:high], self.indptr[first : last + 1] - low)
        return sp.csc_matrix(parts, shape=(self.n_rows, last - first)).tocsr()


def lifted_columns(
    tree: LabelTree,
    Y: sp.csr_matrix,
    level: int,
    *,
    relevance: str = "none",
    allocate: Allocate = in_memory,
) -> Columns:
    """Return the targets (rows, nodes) of a level by column.

    Values are 1 (eq. 5), or with ``relevance`` the sum of the values of the row's labels below the node (``induce``,
    eq. 6), divided by the sum over the row (``induce-l1``).

    Examples
    --------
    >>> Y = sp.csr_matrix(np.array([[1, 0, 1, 0, 0], [0, 1, 1, 0, 0]], np.float32))
    >>> found = lifted_columns(LabelTree.from_groups([[0, 2], [1, 3, 4]]), Y, 0)
    >>> found.rows_of(0).tolist(), found.rows_of(1).tolist()
    ([0, 1], [1])
    """
    found = _columns(Y, tree.node_of(level), tree.sizes[level], None, True, relevance != "none", allocate)
    if relevance == "induce-l1":
        totals = np.asarray(Y.sum(axis=1), np.float32).ravel()
        _divide(found.data, np.where(totals > 0, totals, np.float32(1.0)), found.indices)
    return found


def mask_columns(
    tree: LabelTree,
    Y: sp.csr_matrix,
    level: int,
    predicted: np.ndarray | None,
    *,
    has_true: bool = True,
    allocate: Allocate = in_memory,
) -> Columns:
    """Return which rows have which nodes of a level, by column: true nodes, ``predicted`` ones (rows, k), or both.

    There are no values.
    """
    return _columns(Y, tree.node_of(level), tree.sizes[level], predicted, has_true, None, allocate)


def count_entries(tree: LabelTree, Y: sp.csr_matrix, level: int) -> int:
    """Return the number of entries of ``lifted_columns``, without making them.

    Examples
    --------
    >>> Y = sp.csr_matrix(np.array([[1, 0, 1, 0, 0], [0, 1, 1, 0, 0]], np.float32))
    >>> count_entries(LabelTree.from_groups([[0, 2], [1, 3, 4]]), Y, 0)
    3
    """
    ptr, nodes = np.zeros(tree.sizes[level] + 1, np.int64), np.empty((Y.shape[0], 0), np.int32)
    _count(Y, tree.node_of(level), nodes, True, ptr)
    return int(ptr.sum())


def _count(Y: sp.csr_matrix, node_of: np.ndarray, predicted: np.ndarray, has_true: bool, ptr: np.ndarray) -> None:
    indptr, indices = Y.indptr.astype(np.int64, copy=False), Y.indices.astype(np.int32, copy=False)
    seen = np.zeros(len(ptr) - 1, np.int32)
    lazy.lift.count_rows(indptr, indices, node_of.astype(np.int32, copy=False), predicted, has_true, ptr, seen)


def _columns(
    Y: sp.csr_matrix, node_of: np.ndarray, n_nodes: int, predicted: np.ndarray | None, has_true: bool,
    has_sums: bool | None, allocate: Allocate,
) -> Columns:  # fmt: skip
    """Sort rows by node; ``has_sums`` is None if no values are needed."""
    indptr = Y.indptr.astype(np.int64, copy=False)
    nodes = np.empty((Y.shape[0], 0), np.int32) if predicted is None else np.ascontiguousarray(predicted, np.int32)
    node_of, indices = node_of.astype(np.int32, copy=False), Y.indices.astype(np.int32, copy=False)
    ptr = np.zeros(n_nodes + 1, np.int64)
    _count(Y, node_of, nodes, has_true, ptr)
    np.cumsum(ptr, out=ptr)
    n = int(ptr[-1])
    layout = {"indptr": (np.int64, (n_nodes + 1,)), "indices": (np.int32, (n,))}
    arrays = allocate(layout if has_sums is None else layout | {"data": (np.float32, (n,))})
    data = arrays.get("data", np.empty(0, np.float32))
    arrays["indptr"][:] = ptr
    sums = data if has_sums else np.empty(0, np.float32)
    values = Y.data.astype(np.float32, copy=False)
    at, seen = ptr[:-1].copy(), np.zeros(n_nodes, np.int32)
    lazy.lift.fill_rows(indptr, indices, values, node_of, nodes, has_true, at, seen, arrays["indices"], sums)
    if has_sums is False:
        data[:] = 1.0
    return Columns(arrays["indptr"], arrays["indices"], data, Y.shape[0])


def _divide(values: np.ndarray, totals: np.ndarray, rows: np.ndarray, block: int = 1 << 20) -> None:
    """Divide values by the total of their row, some at a time."""
    for first in range(0, len(values), block):
        some = slice(first, first + block)
        values[some] /= totals[rows[some]]
