"""What is left to the data: which rows train the labels (``linear.negatives = auto``), and C (``linear.cost = 0``).

A label is scored for the rows whose beam holds its parent, so these are the rows to train it on: ``tfn+man``. That pays
where rows carry labels under several parents, which have to be ranked against each other. Where they carry labels under
one or two, most rows that a predicted parent adds are easy negatives, which make training longer and on short texts
the ranking worse; ``tfn`` is taken there.

C is the one with the lowest loss on held-out rows, for a sample of the labels: labels that users assign freely want a
small one, labels that follow from the words of a text a large one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from umpteen.config import LinearConfig, SearchConfig
from umpteen.data.rows import Rows
from umpteen.engine import Pool, run
from umpteen.kernels import LANES, lazy
from umpteen.linear.chunk import Chunk, Group, Job, Problem, by_column, families, targets_of, train_chunk
from umpteen.tree import LabelTree

LEAST_PARENTS = 2.5  # under which rows carry labels, on average, for tfn+man to be taken
PREDICTED_PARENTS = 2.5  # for each of those: more do not change the result, and training takes longer
COSTS = (0.25, 0.5, 1.0)  # that are compared
_HELD_OUT = 0.2  # share of a chunk's rows
_ENOUGH, _TOO_FEW = 1000, 100  # held-out rows that carry labels, counted once for each label
_SHARE = 0.03  # of the work of the last level that is done at most, for each cost
_LITTLE_WORK = 500_000  # feature visits that are done in any case: a few hundredths of a second
_LEAST_GROUPS = 4  # of labels that are compared: their noise differs


def settle(
    rows: Rows,
    Y: sp.csr_matrix,
    tree: LabelTree,
    linear: LinearConfig,
    search: SearchConfig,
    *,
    seed: int = 0,
    threads: int = 1,
) -> LinearConfig:
    """Return the settings with the choices made that were left to the data."""
    if linear.negatives == "auto":
        linear = replace(linear, **_negatives(Y, tree, linear, search))
    if not linear.cost:
        linear = replace(linear, cost=_cost(rows, Y, tree, linear, seed, threads))
    return replace(linear, negatives_beam=linear.negatives_beam or search.beam)


def _negatives(Y: sp.csr_matrix, tree: LabelTree, linear: LinearConfig, search: SearchConfig) -> dict[str, Any]:
    if tree.n_levels < 2:
        return {"negatives": "tfn"}
    parents = tree.lift(Y, tree.n_levels - 2)
    per_row = parents.nnz / max(1, np.count_nonzero(np.diff(parents.indptr)))
    negatives, beam = negatives_for(per_row, search.beam)
    return {"negatives": negatives, "negatives_beam": linear.negatives_beam or beam}


def negatives_for(parents_per_row: float, beam: int) -> tuple[str, int]:
    """Return which rows train the labels and with how many predicted parents.

    Rows carry labels under ``parents_per_row`` parents on average; the search keeps ``beam``.

    Examples
    --------
    >>> negatives_for(3.2, 10), negatives_for(2.1, 10)
    (('tfn+man', 8), ('tfn', 6))
    """
    n_predicted = min(beam, math.ceil(PREDICTED_PARENTS * parents_per_row))
    return "tfn+man" if parents_per_row >= LEAST_PARENTS else "tfn", n_predicted


def _cost(rows: Rows, Y: sp.csr_matrix, tree: LabelTree, linear: LinearConfig, seed: int, threads: int) -> float:
    """Choose C on held-out rows: those of a label's parent, which are the rows to train it on by ``tfn``."""
    last = tree.n_levels - 1
    mask = by_column(tree.lift(Y, last - 1)) if last else None
    problem = Problem(rows, targets_of(tree, Y, last, linear), mask, tree.starts[last], linear, seed)
    trials = [replace(problem, config=replace(linear, cost=cost)) for cost in COSTS]
    jobs = _sample(problem, PREDICTED_PARENTS if "man" in linear.negatives else 1.0)
    scratch = Pool(lambda: (np.zeros(rows.n_sparse, np.int32), np.zeros(len(rows), np.int32)))

    X = rows.sparse

    def task(i: int) -> float:
        with scratch.borrow() as (local, where):
            return _held_out_loss(trials[i % len(trials)], jobs[i // len(trials)], X, local, where)

    losses = run(task, len(jobs) * len(trials), threads=1 if linear.memory_gb else threads)
    return lowest(np.reshape(losses, (-1, len(trials))).sum(axis=0)) if losses else COSTS[-1]


def _sample(problem: Problem, times: float) -> list[Job]:
    """Draw groups of labels: few where labels have many rows, and a small share of the work of training otherwise.

    All the work is ``times`` that of the rows here.
    """
    every = np.arange(len(problem.rows), dtype=np.int32)
    jobs = [
        Job(low, min(low + LANES, last), every if some is None else some, work, 0)
        for first, last, some, _, work in families(problem)
        for low in range(first, last, LANES)
    ]
    if not jobs:
        return []
    order = np.random.default_rng(problem.seed).permutation(len(jobs))
    carried = problem.targets.indptr
    n_carried = np.cumsum([carried[jobs[i].last] - carried[jobs[i].first] for i in order])
    if _HELD_OUT * n_carried[-1] < _TOO_FEW:
        return []
    work = np.cumsum([jobs[i].cost for i in order])
    is_enough = (_HELD_OUT * n_carried >= _ENOUGH) | (work >= max(_SHARE * times * work[-1], _LITTLE_WORK))
    n_groups = 1 + int(np.argmax(is_enough)) if is_enough.any() else len(jobs)
    return [jobs[i] for i in order[: max(n_groups, _LEAST_GROUPS)]]


def _held_out_loss(problem: Problem, job: Job, X: sp.csr_matrix, local: np.ndarray, where: np.ndarray) -> float:
    """Train a group of labels on most of its rows; return the loss on the others."""
    rows, rng = problem.rows, np.random.default_rng([problem.seed, job.first])
    is_held_out = rng.random(len(job.rows)) < _HELD_OUT
    held_out, others = job.rows[is_held_out], job.rows[~is_held_out]
    targets = _dense_targets(problem, job, held_out, where)
    if not len(others) or not targets.any():
        return 0.0
    (group,) = train_chunk(problem, job, Chunk.copied(rows, others, local), where)
    margins = _margins(X[held_out], group, local)
    if rows.n_dense:
        margins += rows.dense[held_out] @ _dense_weights(rows, group)
    return _loss(problem.config, margins, targets)


def _dense_targets(problem: Problem, job: Job, some: np.ndarray, where: np.ndarray) -> np.ndarray:
    columns = problem.targets
    ptr, lanes, values = lazy.solve.positives(
        columns.indptr, columns.indices, columns.data, job.first, job.last, some, where
    )
    targets = np.zeros((len(some), job.last - job.first), np.float32)
    targets[np.repeat(np.arange(len(some)), np.diff(ptr)), lanes] = values
    return targets


def _margins(X: sp.csr_matrix, group: Group, local: np.ndarray) -> np.ndarray:
    """Return the margins of rows for a group's labels; only the features that have weights count."""
    is_sparse = group.features < X.shape[1]
    features, place = np.unique(group.features[is_sparse], return_inverse=True)
    weights = np.zeros((len(features) + 1, len(group.bias)), np.float32)
    weights[place + 1, group.lanes[is_sparse]] = group.values[is_sparse]
    local[features] = np.arange(1, len(features) + 1)
    renumbered = sp.csr_matrix((X.data, local[X.indices], X.indptr), shape=(X.shape[0], len(weights)))
    local[features] = 0
    return renumbered @ weights + group.bias


def _dense_weights(rows: Rows, group: Group) -> np.ndarray:
    is_dense = group.features >= rows.n_sparse
    weights = np.zeros((rows.n_dense, len(group.bias)), np.float32)
    weights[group.features[is_dense] - rows.n_sparse, group.lanes[is_dense]] = group.values[is_dense]
    return weights


def _loss(config: LinearConfig, margins: np.ndarray, targets: np.ndarray) -> float:
    """Return the loss that training lowers, without the norm of the weights."""
    signed = np.where(targets > 0, margins, -margins).astype(np.float64)
    each = np.logaddexp(0.0, -signed) if config.loss == "logistic" else np.maximum(0.0, 1.0 - signed) ** 2
    return float((each * np.where(targets > 0, config.cost_positive * targets, config.cost_negative)).sum())


def lowest(losses: np.ndarray) -> float:
    """Return the cost between the first and the last of ``COSTS`` where a parabola through the losses is lowest.

    Examples
    --------
    >>> lowest(np.array([3.0, 2.0, 3.0])), lowest(np.array([3.0, 2.0, 1.5])), lowest(np.array([3.0, 2.0, 2.0]))
    (0.5, 1.0, 0.71)
    """
    first, middle, last = losses
    bend = first - 2.0 * middle + last
    if bend <= 0:
        return COSTS[int(np.argmin(losses))]
    place = min(max(0.5 * (first - last) / bend, -1.0), 1.0)  # in octaves from the middle
    return round(float(COSTS[1] * 2.0**place), 2)
