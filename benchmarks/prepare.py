"""Make the matrices every peer is fed: once per dataset, uncompressed npz, rows of length one.

Labels of text datasets that occur neither in the train nor in the test rows used are left out; matrices keep
the columns they declare. Knows nothing about peers.
"""

from __future__ import annotations

import json
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.plan import TFIDF, DatasetPlan
from umpteen.config import TfidfConfig
from umpteen.data import read
from umpteen.data.tfidf import Tfidf

PARTS = ("X.trn", "Y.trn", "X.tst", "Y.tst")


def prepare(plan: DatasetPlan, data: Path, work: Path, threads: int) -> dict[str, Any]:
    """Make the matrices of a dataset unless they are there, and return what is known about them."""
    about = work / plan.name / "about.json"
    if about.exists():
        known = json.loads(about.read_text())
        if known["plan"] == _plan(plan):
            return known
    source = data / plan.folder
    if not source.is_dir():
        raise SystemExit(f"{plan.name} needs {plan.folder} in the data folder; name that with --data")
    begin = time.perf_counter()
    matrices = _matrices(plan, source, threads)
    about.parent.mkdir(parents=True, exist_ok=True)
    for leftover in about.parent.glob("train.*"):  # text files made from older matrices
        leftover.unlink()
    for part, matrix in matrices.items():
        sparse.save_npz(about.parent / f"{part}.npz", matrix, compressed=False)
    known = {"plan": _plan(plan), "seconds": time.perf_counter() - begin, **_describe(matrices)}
    about.write_text(json.dumps(known, indent=1))  # last: its presence says that the rest is complete
    return known


def load(folder: Path, part: str) -> sparse.csr_matrix:
    """Read one of the matrices."""
    return sparse.csr_matrix(sparse.load_npz(folder / f"{part}.npz"))


def _matrices(plan: DatasetPlan, source: Path, threads: int) -> dict[str, sparse.csr_matrix]:
    train = read(source, "train", n_rows=plan.train_rows)
    test = read(source, "test", labels=train.labels, n_rows=plan.test_rows)
    if train.texts is None:
        X_train, X_test, Y_train, Y_test = train.X, test.X, train.Y, test.Y
    else:
        tfidf = Tfidf(TfidfConfig(**TFIDF), threads=threads)
        X_train, X_test = tfidf.fit_transform(train.texts), tfidf.transform(test.texts)
        Y_train, Y_test = keep_used_labels(train.Y, test.Y)
    made = {"X.trn": scale_rows(X_train), "Y.trn": Y_train, "X.tst": scale_rows(X_test), "Y.tst": Y_test}
    return {part: plain(matrix) for part, matrix in made.items()}


def keep_used_labels(Y_train: sparse.csr_matrix, Y_test: sparse.csr_matrix) -> tuple[Any, Any]:
    """Drop the columns that no row of either matrix uses."""
    n_labels = max(Y_train.shape[1], Y_test.shape[1])
    used = np.zeros(n_labels, bool)
    used[Y_train.indices] = used[Y_test.indices] = True
    places = np.cumsum(used, dtype=np.int32) - 1
    return tuple(
        sparse.csr_matrix((Y.data, places[Y.indices], Y.indptr), (Y.shape[0], int(used.sum())))
        for Y in (Y_train, Y_test)
    )


def scale_rows(X: sparse.csr_matrix) -> sparse.csr_matrix:
    """Scale rows to length one; empty rows stay empty."""
    lengths = np.sqrt(np.asarray(X.multiply(X).sum(axis=1), np.float64).ravel())
    lengths[lengths == 0] = 1.0
    data = X.data / np.repeat(lengths, np.diff(X.indptr))
    return sparse.csr_matrix((data.astype(np.float32), X.indices, X.indptr), X.shape)


def plain(matrix: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return it as all peers take it: float32, int32 indices, sorted rows."""
    made = sparse.csr_matrix(
        (matrix.data.astype(np.float32), matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)),
        matrix.shape,
    )
    made.sort_indices()
    return made


def _plan(plan: DatasetPlan) -> dict[str, Any]:
    return {"rows": [plan.train_rows, plan.test_rows], "tfidf": TFIDF, "folder": plan.folder}


def _describe(matrices: dict[str, sparse.csr_matrix]) -> dict[str, Any]:
    X, Y = matrices["X.trn"], matrices["Y.trn"]
    checksum = 0
    for matrix in matrices.values():
        for array in (matrix.data, matrix.indices, matrix.indptr):
            checksum = zlib.crc32(np.ascontiguousarray(array).view(np.uint8), checksum)
    return {
        "n_train": X.shape[0],
        "n_test": matrices["X.tst"].shape[0],
        "n_features": X.shape[1],
        "n_labels": Y.shape[1],
        "features_per_row": X.nnz / X.shape[0],
        "labels_per_row": Y.nnz / Y.shape[0],
        "checksum": f"{checksum:08x}",
    }
