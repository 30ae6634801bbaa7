"""Feature rows in files: matrices whose arrays are mapped, and rows of them that are copied some at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import scipy.sparse as sp

from umpteen.data.sparse import has_unit_rows, pointers, unit_rows, wrap
from umpteen.store import Checkpoint
from umpteen.store.parts import join_parts
from umpteen.store.tensors import Pieces

MATRIX = "matrix"  # name of the stage of feature rows as they were read

Arrays = Mapping[str, np.ndarray]

_ENTRIES_AT_ONCE = 1 << 22  # of the rows that are in memory


class StoredRows:
    """Some rows of a matrix, which are copied when they are used, some at a time.

    Parameters
    ----------
    matrix
        A canonical matrix, perhaps of mapped arrays.
    rows
        Numbers of the rows; all by default.

    Examples
    --------
    >>> some = StoredRows(sp.csr_matrix(np.eye(3, dtype=np.float32))).take(np.array([2, 0]))
    >>> some.shape, some.csr().indices.tolist()
    ((2, 3), [2, 0])
    """

    def __init__(self, matrix: sp.csr_matrix, rows: np.ndarray | None = None):
        self.matrix, self.rows = matrix, rows

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of features."""
        return (self.matrix.shape[0] if self.rows is None else len(self.rows)), self.matrix.shape[1]

    def take(self, rows: np.ndarray) -> StoredRows:
        """Return some of these rows."""
        return StoredRows(self.matrix, rows if self.rows is None else self.rows[rows])

    def csr(self) -> sp.csr_matrix:
        """Return the rows in memory; all rows of the matrix are the matrix."""
        return self.matrix if self.rows is None else self.matrix[self.rows]

    def blocks(self) -> Iterator[sp.csr_matrix]:
        """Yield the rows, some at a time."""
        ptr = self._pointers()
        n_rows, n_blocks = len(ptr) - 1, max(1, int(ptr[-1]) // _ENTRIES_AT_ONCE)
        cuts = np.unique(np.searchsorted(ptr, np.linspace(0, ptr[-1], n_blocks + 1)[1:-1]))
        for first, last in zip([0, *cuts.tolist()], [*cuts.tolist(), n_rows], strict=True):
            yield self.matrix[first:last] if self.rows is None else self.matrix[self.rows[first:last]]

    def write(self, checkpoint: Checkpoint, stage: str, threads: int, *, normalize: bool) -> None:
        """Write the rows to a stage, as ``linear.stored_arrays`` maps them; with ``normalize``, of unit length."""
        if checkpoint.has(stage):
            return
        ptr, scales = self._pointers(), normalize and not all(has_unit_rows(block, threads) for block in self.blocks())
        data = (unit_rows(block, threads) if scales else block.data for block in self.blocks())
        arrays = {
            "indptr": Pieces(ptr.dtype, ptr.shape, [ptr]),
            "indices": Pieces(np.dtype(np.int32), (int(ptr[-1]),), (block.indices for block in self.blocks())),
            "data": Pieces(np.dtype(np.float32), (int(ptr[-1]),), data),
            "dense": Pieces(np.dtype(np.float32), (1, 0), [np.zeros((1, 0), np.float32)]),
            "n_sparse": Pieces(np.dtype(np.int64), (1,), [np.array([self.shape[1]])]),
        }
        checkpoint.save_pieces(stage, arrays)

    def _pointers(self) -> np.ndarray:
        if self.rows is None:
            return self.matrix.indptr.astype(np.int64)
        return pointers(np.diff(self.matrix.indptr)[self.rows])


def write_matrix(checkpoint: Checkpoint, blocks: Iterable[sp.csr_matrix]) -> Arrays:
    """Write the rows of consecutive blocks to a stage, unless they are there already; return its arrays, mapped."""
    if not checkpoint.has(MATRIX):
        parts = []
        for number, block in enumerate(blocks):
            parts.append(f"{MATRIX}-part-{number}")
            checkpoint.save(parts[-1], _arrays(block))
        if parts:
            join_parts(checkpoint, MATRIX, parts, pointers=["indptr"])
        else:
            checkpoint.save(MATRIX, _arrays(sp.csr_matrix((0, 0), dtype=np.float32)))
    return checkpoint.load(MATRIX)


def first_rows(arrays: Arrays, n_rows: int, n_columns: int | None) -> sp.csr_matrix:
    """Return the first rows of such a matrix; without ``n_columns``, it is as wide as these need."""
    ptr = arrays["indptr"][: n_rows + 1]
    last = int(ptr[-1])
    indices = arrays["indices"][:last]
    if n_columns is None:
        n_columns = int(indices.max(initial=-1)) + 1
    return wrap(arrays["data"][:last], indices, ptr, (n_rows, n_columns))


def _arrays(block: sp.csr_matrix) -> dict[str, np.ndarray]:
    return {"indptr": block.indptr.astype(np.int64), "indices": block.indices, "data": block.data}
