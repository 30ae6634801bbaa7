"""Would the ranker train faster on a GPU? ``python -m benchmarks.gpu_ranker FOLDER``.

Trains the same one-versus-all scorers on tf-idf rows with a dense block beside them, by the dual kernel on all cores
and by Newton's method on the GPU, and prints the seconds and how far apart the two objectives are.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch

import umpteen
from umpteen.config import LinearConfig, SearchConfig, TfidfConfig
from umpteen.data.rows import Rows
from umpteen.data.tfidf import Tfidf
from umpteen.linear.fit import train
from umpteen.neural import newton
from umpteen.tree import LabelTree

_DIM, _WEIGHT = 384, 0.4  # of the dense block
_LABELS_AT_ONCE = 256


class MixedRows:
    """Rows with a sparse and a dense block on a device, multiplied like a matrix."""

    def __init__(self, sparse: torch.Tensor, flipped: torch.Tensor, dense: torch.Tensor):
        self.sparse, self.flipped, self.dense = sparse, flipped, dense
        self.shape, self.dtype = (sparse.shape[0], sparse.shape[1] + dense.shape[1]), dense.dtype

    @classmethod
    def of(cls, X: sp.csr_matrix, dense: np.ndarray, device: str) -> MixedRows:
        """Move both blocks to a device; a constant column is put beside them."""
        ones = np.ones((len(dense), 1), np.float32)
        return cls(_csr(X, device), _csr(X.T.tocsr(), device), torch.from_numpy(np.hstack([dense, ones])).to(device))

    def new_zeros(self, *shape: int) -> torch.Tensor:
        """Return zeros on the device."""
        return self.dense.new_zeros(*shape)

    def __matmul__(self, W: torch.Tensor) -> torch.Tensor:
        n = self.sparse.shape[1]
        return self.sparse @ W[:n] + self.dense @ W[n:]

    @property
    def T(self) -> Flipped:
        """The same with rows and columns swapped."""
        return Flipped(self)


class Flipped:
    """``MixedRows`` with rows and columns swapped."""

    def __init__(self, rows: MixedRows):
        self.rows = rows

    def __matmul__(self, V: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.rows.flipped @ V, self.rows.dense.T @ V])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure both on one dataset."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("folder", type=Path)
    parser.add_argument("--labels", type=int, default=1_024)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args(arguments)
    data = umpteen.read(options.folder, "train", n_rows=options.rows)
    X = Tfidf(TfidfConfig()).fit_transform(data.texts)
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(X.shape[0], _DIM)).astype(np.float32)
    dense *= _WEIGHT / np.linalg.norm(dense, axis=1, keepdims=True)
    Y = data.Y[:, rng.permutation(data.Y.shape[1])[: options.labels]].tocsr()
    print(f"{X.shape[0]:,} rows, {X.shape[1]:,} terms, {X.nnz:,} stored, {Y.shape[1]:,} labels", flush=True)
    objectives = {}
    rows = MixedRows.of(X, dense, options.device)
    for eps in (0.1, 0.03):
        begun = time.perf_counter()
        W = on_cpu(X, dense, Y, eps)
        seconds = time.perf_counter() - begun
        objectives[f"dual kernel, eps {eps}, {os.cpu_count()} cores"] = seconds, objective(rows, Y, W)
    for tolerance in (0.3, 0.1, 0.03):
        begun = time.perf_counter()
        W = on_gpu(rows, Y, tolerance)
        seconds = time.perf_counter() - begun
        objectives[f"Newton, tolerance {tolerance}, {options.device}"] = seconds, objective(rows, Y, W)
    best = np.min([found for _, found in objectives.values()], axis=0)
    for name, (seconds, found) in objectives.items():
        print(f"{name:40} {seconds:7.1f} s; above the best objective: mean {np.mean(found / best - 1):.2%}", flush=True)


def on_cpu(X: sp.csr_matrix, dense: np.ndarray, Y: sp.csr_matrix, eps: float) -> np.ndarray:
    """Train by the dual kernel; return weights (features + 1, labels)."""
    config = LinearConfig(eps=eps, max_iter=40, threshold=0.0)
    tree = LabelTree.flat(Y.shape[1])
    level = train(Rows.of(X, dense), Y, tree, config, SearchConfig(), threads=os.cpu_count() or 1)[-1]
    W = np.zeros((X.shape[1] + dense.shape[1] + 1, Y.shape[1]), np.float32)
    W[level.features, level.nodes] = level.values
    W[-1] = level.bias
    return W


def on_gpu(rows: MixedRows, Y: sp.csr_matrix, tolerance: float) -> np.ndarray:
    """Train by Newton's method, some labels at a time."""
    parts = []
    for first in range(0, Y.shape[1], _LABELS_AT_ONCE):
        positive = _positive(rows, Y, first)
        W = newton.solve(rows, positive, torch.ones_like(positive, dtype=rows.dtype), tolerance=tolerance)
        parts.append(W.cpu().numpy())
    return np.hstack(parts)


def objective(rows: MixedRows, Y: sp.csr_matrix, W: np.ndarray) -> np.ndarray:
    """Return what is minimised, per label."""
    parts = []
    for first in range(0, Y.shape[1], _LABELS_AT_ONCE):
        positive = _positive(rows, Y, first)
        some = torch.from_numpy(np.ascontiguousarray(W[:, first : first + _LABELS_AT_ONCE])).to(rows.dense.device)
        parts.append(newton.objective(rows, positive, torch.ones_like(positive, dtype=rows.dtype), some).cpu().numpy())
    return np.concatenate(parts)


def _positive(rows: MixedRows, Y: sp.csr_matrix, first: int) -> torch.Tensor:
    return torch.from_numpy(Y[:, first : first + _LABELS_AT_ONCE].toarray() > 0).to(rows.dense.device)


def _csr(X: sp.csr_matrix, device: str) -> torch.Tensor:
    X.sort_indices()
    parts = (X.indptr.astype(np.int32), X.indices.astype(np.int32), X.data.astype(np.float32))
    return torch.sparse_csr_tensor(*(torch.from_numpy(part) for part in parts), size=X.shape).to(device)


if __name__ == "__main__":
    main()
