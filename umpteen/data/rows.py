"""Feature rows as kernel arguments: a sparse block and an optional dense block.

Dense columns are not stored in the sparse matrix because that would waste memory and time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from umpteen.data.sparse import pointers, slice_blocks, triplet, wrap
from umpteen.errors import BadInput
from umpteen.kernels import lazy
from umpteen.store.tensors import Allocate, in_memory

_NO_DENSE = np.zeros((1, 0), np.float32)
_COPIED_AT_ONCE = 16_384  # rows


@dataclass(frozen=True)
class Rows:
    """Checked rows: ``indptr`` int64, ``indices`` int32, ``data`` float32, ``dense`` (rows, d) float32.

    ``source`` is the checkpoint that they are mapped from, if they are in a file.
    """

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray
    n_sparse: int
    dense: np.ndarray
    source: Mapping[str, str] | None = None

    @classmethod
    def of(cls, X: sp.csr_matrix, dense: np.ndarray | None = None) -> Rows:
        """Wrap a checked CSR matrix and an optional dense block with as many rows."""
        if dense is not None and len(dense) != X.shape[0]:
            raise BadInput(f"the dense block has {len(dense)} rows but the sparse one has {X.shape[0]}")
        block = _NO_DENSE if dense is None else np.ascontiguousarray(dense, np.float32)
        return cls(*triplet(X), X.shape[1], block)

    @classmethod
    def mixed(cls, X: sp.csr_matrix, dense: np.ndarray, weight: float, allocate: Allocate = in_memory) -> Rows:
        """Combine sparse and dense rows of unit length; dense rows become ``weight`` times as long as sparse rows.

        The longer block has unit length: longer rows would have the effect of a larger cost. ``allocate`` makes the
        dense block.
        """
        scale = np.float32(max(weight, 1.0))
        if scale > 1:
            X = sp.csr_matrix((X.data / scale, X.indices, X.indptr), shape=X.shape)
        scaled = allocate({"dense": (np.float32, dense.shape)})["dense"]
        np.multiply(dense, np.float32(weight) / scale, out=scaled)
        return cls.of(X, scaled)

    @classmethod
    def single(cls, indices: np.ndarray, values: np.ndarray, n_features: int) -> Rows:
        """Wrap one checked sparse row."""
        return cls(np.array((0, len(indices))), indices, values, n_features, _NO_DENSE)

    @classmethod
    def of_one(cls, X: Any, n_features: int, *, normalize: bool) -> Rows | None:
        """Wrap a single canonical CSR row, in microseconds; None if it has to be checked by ``as_csr``."""
        if getattr(X, "format", "") != "csr" or X.shape != (1, n_features):
            return None
        indices, data = X.indices, X.data
        if indices.dtype != np.int32 or data.dtype != np.float32 or not len(indices) == len(data) == X.indptr[1]:
            return None
        values = np.empty(len(data), np.float32)
        if not lazy.row.check_row(indices, data, n_features, normalize, values):
            return None
        return cls.single(indices, values, n_features)

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def take(self, rows: np.ndarray, allocate: Allocate = in_memory) -> Rows:
        """Return a copy of the rows with these numbers; ``allocate`` makes its arrays."""
        dense = take_rows(self.dense, rows, allocate) if self.n_dense else None
        return Rows.of(self.sparse_rows(rows, allocate), dense)

    def sparse_rows(self, rows: np.ndarray, allocate: Allocate = in_memory) -> sp.csr_matrix:
        """Return a copy of the sparse block of the rows with these numbers; the others are not read."""
        lengths = np.diff(self.indptr)[rows]
        ptr = pointers(lengths)
        n = (int(ptr[-1]),)
        arrays = allocate({"indices": (np.int32, n), "data": (np.float32, n)})
        for to, places in slice_blocks(self.indptr[:-1][rows], lengths, _COPIED_AT_ONCE):
            arrays["indices"][to], arrays["data"][to] = self.indices[places], self.data[places]
        return wrap(arrays["data"], arrays["indices"], ptr, (len(lengths), self.n_sparse))

    def between(self, first: int, last: int) -> Rows:
        """Return consecutive rows; only their pointers are copied."""
        low, high = self.indptr[first], self.indptr[last]
        dense = self.dense[first:last] if self.n_dense else self.dense
        return Rows(
            self.indptr[first : last + 1] - low, self.indices[low:high], self.data[low:high], self.n_sparse, dense
        )

    @property
    def n_features(self) -> int:
        """Number of columns, sparse and dense."""
        return self.n_sparse + self.n_dense

    @property
    def n_dense(self) -> int:
        """Number of dense columns."""
        return self.dense.shape[1]

    @property
    def sparse(self) -> sp.csr_matrix:
        """The sparse block as a matrix."""
        return wrap(self.data, self.indices, self.indptr, (len(self), self.n_sparse))

    @cached_property
    def dense_squares(self) -> np.ndarray:
        """Squared length of each dense row."""
        return np.einsum("ij,ij->i", self.dense, self.dense)

    @property
    def triplet(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The sparse block for a kernel."""
        return self.indptr, self.indices, self.data


def take_rows(dense: np.ndarray, rows: np.ndarray, allocate: Allocate = in_memory) -> np.ndarray:
    """Return a copy of the rows of an array with these numbers.

    Examples
    --------
    >>> take_rows(np.eye(3), np.array([2, 0])).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    taken = allocate({"dense": (dense.dtype.type, (len(rows), *dense.shape[1:]))})["dense"]
    return np.take(dense, rows, axis=0, out=taken, mode="clip")  # other modes copy twice
