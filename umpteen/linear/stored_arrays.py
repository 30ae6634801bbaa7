"""Feature rows and matrices as stages of a checkpoint: they are mapped, so that tasks read only what they need."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import scipy.sparse as sp

from umpteen.data.rows import Rows
from umpteen.data.sparse import wrap
from umpteen.store import Checkpoint
from umpteen.tree import Columns

ROWS, TARGETS, MEMBERS, VECTORS = "rows", "targets", "members", "vectors"


def place_rows(checkpoint: Checkpoint, rows: Rows) -> Rows:
    """Return feature rows that are mapped from a file: from that where they are, else from a new stage."""
    if rows.source is not None:
        return rows
    if not checkpoint.has(ROWS):
        arrays = {"indptr": rows.indptr, "indices": rows.indices, "data": rows.data, "dense": rows.dense}
        checkpoint.save(ROWS, arrays | {"n_sparse": np.array([rows.n_sparse])})
    return load_rows(checkpoint.place)


def load_rows(place: Mapping[str, str]) -> Rows:
    """Return the feature rows of a checkpoint, mapped."""
    arrays = Checkpoint(**place).load(ROWS)
    return Rows(arrays["indptr"], arrays["indices"], arrays["data"], int(arrays["n_sparse"][0]), arrays["dense"], place)


def save_matrix(checkpoint: Checkpoint, stage: str, matrix: sp.csr_matrix) -> None:
    """Save a sparse matrix as a stage, if it is not saved yet."""
    if not checkpoint.has(stage):
        shape_ = np.array(matrix.shape, np.int64)
        arrays = {"indptr": matrix.indptr.astype(np.int64), "indices": matrix.indices.astype(np.int32)}
        checkpoint.save(stage, arrays | {"data": matrix.data.astype(np.float32), "shape": shape_})


def load_matrix(checkpoint: Checkpoint, stage: str) -> sp.csr_matrix:
    """Return a sparse matrix of a checkpoint, mapped."""
    arrays = checkpoint.load(stage)
    return wrap(arrays["data"], arrays["indices"], arrays["indptr"], tuple(arrays["shape"].tolist()))


def load_columns(checkpoint: Checkpoint, stage: str, n_rows: int) -> Columns:
    """Return columns of a checkpoint, mapped."""
    arrays = checkpoint.load(stage)
    return Columns(arrays["indptr"], arrays["indices"], arrays.get("data", np.empty(0, np.float32)), n_rows)
