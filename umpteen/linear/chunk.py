"""Train a chunk, the children of one parent: rows in the layout of the solver, and the weights."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from umpteen.config import LinearConfig
from umpteen.data.rows import Rows
from umpteen.kernels import LANES, lazy
from umpteen.tree import Columns


@dataclass(frozen=True)
class Problem:
    """The training of one level."""

    rows: Rows
    targets: Columns  # (rows, nodes), values are relevance
    mask: Columns | None  # (rows, parents): rows that train the children of a parent; None: all rows
    starts: np.ndarray
    config: LinearConfig
    seed: int
    nodes: tuple[int, int] | None = None  # those to train, first and one past the last; None: all

    @property
    def ends(self) -> tuple[int, int]:
        """The first of the nodes to train, and one past the last."""
        return self.nodes or (0, int(self.starts[-1]))


def chunks_of(problem: Problem) -> Iterator[tuple[int, int, np.ndarray | None, int, int]]:
    """Yield for each parent: its children first..last, their training rows (None: all), and two counts.

    These are the number of the rows and the number of their features. Children that are not to be trained are left out.
    """
    rows, starts, mask, (low, high) = problem.rows, problem.starts, problem.mask, problem.ends
    nonzeros = np.diff(rows.indptr)
    for parent in range(int(np.searchsorted(starts, low, side="right")) - 1, len(starts) - 1):
        first, last = max(int(starts[parent]), low), min(int(starts[parent + 1]), high)
        if first >= high:
            return
        if first >= last:
            continue
        if mask is None:
            yield first, last, None, len(rows), len(rows.indices)
        else:
            some = mask.rows_of(parent)
            yield first, last, some, len(some), int(nonzeros[some].sum())


@dataclass(frozen=True)
class Job:
    """Children first..last of a parent to be trained on some rows."""

    first: int
    last: int
    rows: np.ndarray | None  # None: all rows, used in place
    cost: int
    bytes: int


@dataclass
class Group:
    """The weights of up to LANES trained nodes; lane i is node ``first + i``."""

    first: int
    bias: np.ndarray
    features: np.ndarray
    lanes: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class Chunk:
    """The rows of a chunk in the layout of the solver; ``sums`` and ``length`` are for the warm start."""

    rows: np.ndarray
    sparse: tuple[np.ndarray, np.ndarray, np.ndarray]
    square: np.ndarray
    private: np.ndarray
    alone: tuple[np.ndarray, ...]
    features: np.ndarray
    sums: np.ndarray
    length: float

    @classmethod
    def whole(cls, rows: Rows) -> Chunk:
        """Return a chunk of all rows, without copying them."""
        ptr, _, values = rows.triplet
        square, private = np.empty(len(rows), np.float32), np.zeros(len(rows), np.float32)
        lazy.solve.row_squares(ptr, values, rows.dense, square)
        alone = (np.zeros(len(rows) + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))
        every = np.arange(len(rows), dtype=np.int32)
        return cls._of(rows, every, rows.triplet, square, private, alone, np.arange(rows.n_sparse, dtype=np.int32))

    @classmethod
    def copied(cls, rows: Rows, some: np.ndarray, local: np.ndarray) -> Chunk:
        """Return a chunk of copies of some rows, with renumbered features; features of a single row are separate."""
        ptr, ids, values, features, square, private, *alone = lazy.solve.gather(some, *rows.triplet, local)
        if rows.n_dense:
            square += rows.dense_squares[some]
        return cls._of(rows, some, (ptr, ids, values), square, private, tuple(alone), features)

    @classmethod
    def _of(
        cls,
        rows: Rows,
        some: np.ndarray,
        sparse: tuple[np.ndarray, np.ndarray, np.ndarray],
        square: np.ndarray,
        private: np.ndarray,
        alone: tuple[np.ndarray, ...],
        features: np.ndarray,
    ) -> Chunk:
        if rows.n_dense:
            features = np.concatenate([features, np.arange(rows.n_sparse, rows.n_features, dtype=np.int32)])
        sums = np.zeros(len(features), np.float32)
        length = lazy.solve.sum_features(*sparse, private, rows.dense, some, sums)
        return cls(some, sparse, square, private, alone, features, sums, length)


class SharedChunks:
    """The rows of each parent, copied once for all its jobs and freed after the last of them."""

    def __init__(self, rows: Rows, jobs: list[Job]):
        self.rows, self.lock = rows, threading.Lock()
        self.n_left = Counter(id(job.rows) for job in jobs)
        self.copies: dict[int, Future[Chunk]] = {}

    @contextmanager
    def borrow(self, job: Job, local: np.ndarray) -> Iterator[Chunk]:
        """Yield the rows of a job; ``local`` is scratch, a zeroed int32 per feature, and is left zeroed."""
        key = id(job.rows)
        with self.lock:
            is_first = key not in self.copies
            copy = self.copies.setdefault(key, Future())
        if is_first:
            try:
                rows = self.rows
                copy.set_result(Chunk.whole(rows) if job.rows is None else Chunk.copied(rows, job.rows, local))
            except BaseException as error:
                copy.set_exception(error)
        try:
            yield copy.result()
        finally:
            with self.lock:
                self.n_left[key] -= 1
                if not self.n_left[key]:
                    del self.copies[key]


def train_chunk(problem: Problem, job: Job, chunk: Chunk, where: np.ndarray) -> list[Group]:
    """Train the nodes of a job; ``where`` is scratch, a zeroed int32 per row of the data, and is left zeroed."""
    kernel, rows, config = lazy.solve, problem.rows, problem.config
    dense_ids = np.arange(rows.n_dense, dtype=np.int32)
    targets = problem.targets
    logistic, negative_cost = config.loss == "logistic", np.float32(config.cost * config.cost_negative)
    has_start = not logistic and negative_cost > 0
    shapes = (len(chunk.features), LANES), LANES, (len(chunk.rows), LANES)
    weights, bias_weights, beta = (np.empty(shape, np.float32) for shape in shapes)
    groups = []
    for first in range(job.first, job.last, LANES):
        last = min(first + LANES, job.last)
        positive_ptr, lanes, relevances = kernel.positives(
            targets.indptr, targets.indices, targets.data, first, last, chunk.rows, where
        )
        if has_start:
            kernel.start(
                *chunk.sparse, rows.dense, dense_ids, chunk.rows, positive_ptr, lanes, last - first, negative_cost,
                np.float32(config.bias), chunk.sums, chunk.length, weights, bias_weights, beta,
            )  # fmt: skip
        else:
            for array in (weights, bias_weights, beta):
                array.fill(0.0)
        kernel.solve(
            *chunk.sparse, chunk.square, chunk.private, rows.dense, dense_ids, chunk.rows,
            positive_ptr, lanes, relevances * np.float32(config.cost * config.cost_positive),
            last - first, negative_cost, np.float32(config.bias), logistic,
            np.float32(config.eps), config.max_iter, problem.seed + first,
            weights, bias_weights, beta,
        )  # fmt: skip
        found = kernel.extract(chunk.features, weights, beta, *chunk.alone, last - first, config.threshold)
        groups.append(Group(first, bias_weights[: last - first] * config.bias, *found))
    return groups
