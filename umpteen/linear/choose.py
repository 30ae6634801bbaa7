"""Choose settings by the data: negatives (``linear.negatives = auto``) and C (``linear.cost = 0``).

A label is scored for the rows whose beam contains its parent, so these are the rows to train it on: ``tfn+man``. This
improves the ranking if rows have labels under several parents or if labels can be predicted well. Otherwise many rows
under a wrongly predicted parent look like rows that have its labels, and ``tfn`` is better and faster.

A sample of the labels is trained on a part of the rows. C minimises the loss on the others, which also shows how well
labels can be predicted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from umpteen.config import LinearConfig, SearchConfig
from umpteen.data.rows import Rows
from umpteen.engine import Pool, run
from umpteen.kernels import LANES
from umpteen.linear.chunk import Group, Job, Problem, SharedChunks, chunks_of, train_chunk
from umpteen.store.parts import blocks
from umpteen.tree import Columns, LabelTree, count_entries, lifted_columns, mask_columns

MANY_PARENTS = 2.5  # average number of true parents of a row from which on tfn+man is used
PREDICTED_OF_MANY = 2.5  # predicted parents per true parent then; more take longer and do not change the result
WELL_PREDICTED = 0.3  # share of the held-out loss that features must explain for tfn+man with fewer true parents
PREDICTED_OF_FEW = 1.5  # predicted parents per true parent then
COSTS = (0.25, 0.5, 1.0)  # values that are compared; the first only if the second is better than the last
_HELD_OUT = 0.2  # fraction of the rows of a chunk
_ENOUGH, _TOO_FEW = 1000, 100  # held-out positives
_SHARE = 0.03  # maximum fraction of the work of the last level, for each cost
_LITTLE_WORK = 500_000  # feature visits that are always allowed: a few hundredths of a second
_LEAST_GROUPS = 4  # minimum number of groups of labels
_SCORED_AT_ONCE = 1_024  # held-out rows

Measure = Callable[[Problem, Sequence[Job], Sequence[float]], np.ndarray]
_Split = tuple[np.ndarray, np.ndarray]  # rows to train on, and those held out


def settle(
    rows: Rows,
    Y: sp.csr_matrix,
    tree: LabelTree,
    linear: LinearConfig,
    search: SearchConfig,
    *,
    seed: int = 0,
    threads: int = 1,
    last_level: Callable[[], tuple[Columns, Columns | None]] | None = None,
    measure: Measure | None = None,
) -> LinearConfig:
    """Return the settings with ``negatives``, ``negatives_beam`` and ``cost`` chosen, where they are automatic.

    ``last_level`` returns targets and true parents of the labels by column, if they need not be computed here, and
    ``measure`` does what :func:`held_out_losses` does, if not here.
    """
    per_row = _parents_per_row(Y, tree) if linear.negatives == "auto" else 0.0
    explained = 0.0
    if not linear.cost or 0.0 < per_row < MANY_PARENTS:
        times = PREDICTED_OF_MANY if "man" in linear.negatives or per_row >= MANY_PARENTS else 1.0
        targets, mask = (last_level or partial(_last_level, Y, tree, linear))()
        problem = Problem(rows, targets, mask, tree.starts[-1], linear, seed)
        trial = partial(measure or partial(held_out_losses, threads=threads), problem, _sample(problem, times))
        cost, explained = _cost(linear.cost, trial)
        linear = replace(linear, cost=cost)
    if linear.negatives == "auto":
        negatives, beam = negatives_for(per_row, search.beam, explained)
        linear = replace(linear, negatives=negatives, negatives_beam=linear.negatives_beam or beam)
    return replace(linear, negatives_beam=linear.negatives_beam or search.beam)


def _last_level(Y: sp.csr_matrix, tree: LabelTree, linear: LinearConfig) -> tuple[Columns, Columns | None]:
    """Return the targets of the labels, and which rows have which of their parents."""
    last = tree.n_levels - 1
    mask = mask_columns(tree, Y, last - 1, None) if last else None
    return lifted_columns(tree, Y, last, relevance=linear.relevance), mask


def _parents_per_row(Y: sp.csr_matrix, tree: LabelTree) -> float:
    if tree.n_levels < 2:
        return 0.0
    return count_entries(tree, Y, tree.n_levels - 2) / max(1, np.count_nonzero(np.diff(Y.indptr)))


def negatives_for(parents_per_row: float, beam: int, explained: float = 0.0) -> tuple[str, int]:
    """Return ``linear.negatives`` and the number of predicted parents.

    Rows have labels under ``parents_per_row`` parents on average, the search keeps ``beam`` nodes, and features explain
    the share ``explained`` of the held-out loss.

    Examples
    --------
    >>> negatives_for(3.2, 10), negatives_for(1.9, 10, 0.5), negatives_for(1.9, 10, 0.1)
    (('tfn+man', 8), ('tfn+man', 3), ('tfn', 3))
    """
    are_many = parents_per_row >= MANY_PARENTS
    n_predicted = math.ceil((PREDICTED_OF_MANY if are_many else PREDICTED_OF_FEW) * parents_per_row)
    return "tfn+man" if are_many or explained >= WELL_PREDICTED else "tfn", min(beam, n_predicted)


def held_out_losses(problem: Problem, jobs: Sequence[Job], costs: Sequence[float], *, threads: int = 1) -> np.ndarray:
    """Train groups of labels on a part of the rows of their parents (``jobs``), with each of the costs.

    Return (groups, costs + 1): the loss on the held-out rows for each cost, then that of the best constant margins.
    """
    rows, config = problem.rows, problem.config
    of_all = None  # or one split for the groups that have all rows, so that these are copied once
    if problem.mask is None:
        of_all = _split(np.arange(len(rows), dtype=np.int32), problem.seed)
    groups = [_HeldOut.of(problem, job, of_all) for job in jobs]
    tasks = [(i, j) for i, held in enumerate(groups) if held is not None for j in range(len(costs))]
    chunks = SharedChunks(rows, [groups[i].job for i, _ in tasks])
    scratch = Pool(lambda: (np.zeros(rows.n_sparse, np.int32), np.zeros(len(rows), np.int32)))
    losses = np.zeros((len(jobs), len(costs) + 1))

    def task(n: int) -> None:
        i, j = tasks[n]
        held, tried = groups[i], replace(problem, config=replace(config, cost=costs[j]))
        with scratch.borrow() as (local, where), chunks.borrow(held.job, local) as chunk:
            (group,) = train_chunk(tried, held.job, chunk, where)
            losses[i, j] = loss_of(config, _margins(rows, held.rows, group, local), held.targets)

    order = np.argsort([-groups[i].job.cost for i, _ in tasks], kind="stable").tolist()
    run(task, len(tasks), threads=threads, order=order)
    for i, held in enumerate(groups):
        if held is not None:
            losses[i, -1] = loss_of(config, best_constants(config, held.targets), held.targets)
    return losses


class _HeldOut(NamedTuple):
    """A group of labels with its training rows, and its held-out rows with their targets (rows, labels)."""

    job: Job
    rows: np.ndarray
    targets: np.ndarray

    @classmethod
    def of(cls, problem: Problem, job: Job, of_all: _Split | None) -> _HeldOut | None:
        """Split the rows of a group; None if there are no training rows or no held-out positives."""
        others, rows = of_all or _split(job.rows, problem.seed, job.first)
        positives = problem.targets.between(job.first, job.last)[rows]
        if not len(others) or not positives.nnz:
            return None
        return cls(replace(job, rows=others), rows, positives.toarray())


def _split(rows: np.ndarray, *seed: int) -> _Split:
    """Hold out some rows."""
    is_held_out = np.random.default_rng(seed).random(len(rows)) < _HELD_OUT
    return rows[~is_held_out], rows[is_held_out]


def _cost(given: float, trial: Callable[[Sequence[float]], np.ndarray]) -> tuple[float, float]:
    """Return C, given or with the lowest held-out loss, and the share of the loss that features explain."""
    *losses, of_constants = trial([given] if given else COSTS[1:]).sum(axis=0).tolist()
    if len(losses) > 1 and losses[0] < losses[1]:
        losses.insert(0, float(trial(COSTS[:1])[:, 0].sum()))
    explained = 1.0 - min(losses) / of_constants if of_constants else 0.0
    return given or lowest(losses), explained


def _sample(problem: Problem, times: float) -> list[Job]:
    """Draw groups of labels with enough positives, but at most a small share of the work of training.

    The work of training is ``times`` that of the rows here.
    """
    jobs = [
        Job(low, min(low + LANES, last), some, work, 0)
        for first, last, some, _, work in chunks_of(problem)
        for low in range(first, last, LANES)
    ]
    if not jobs:
        return []
    order = np.random.default_rng(problem.seed).permutation(len(jobs))
    indptr = problem.targets.indptr
    n_positives = np.cumsum([indptr[jobs[i].last] - indptr[jobs[i].first] for i in order])
    if _HELD_OUT * n_positives[-1] < _TOO_FEW:
        return []
    work = np.cumsum([jobs[i].cost for i in order])
    is_enough = (_HELD_OUT * n_positives >= _ENOUGH) | (work >= max(_SHARE * times * work[-1], _LITTLE_WORK))
    n_groups = 1 + int(np.argmax(is_enough)) if is_enough.any() else len(jobs)
    return [jobs[i] for i in order[: max(n_groups, _LEAST_GROUPS)]]


def _margins(rows: Rows, some: np.ndarray, group: Group, local: np.ndarray) -> np.ndarray:
    """Return the margins of some rows for the labels of a group."""
    is_sparse = group.features < rows.n_sparse
    local[group.features[is_sparse]] = 1
    features = np.flatnonzero(local)
    local[features] = np.arange(1, len(features) + 1)
    weights = np.zeros((len(features) + 1, len(group.bias)), np.float32)
    weights[local[group.features[is_sparse]], group.lanes[is_sparse]] = group.values[is_sparse]
    margins = np.empty((len(some), len(group.bias)), np.float32)
    for first, last in blocks(len(some), _SCORED_AT_ONCE):
        X = rows.sparse_rows(some[first:last])
        renumbered = sp.csr_matrix((X.data, local[X.indices], X.indptr), shape=(X.shape[0], len(weights)))
        margins[first:last] = renumbered @ weights
    local[features] = 0
    margins += group.bias
    return margins + rows.dense[some] @ _dense_weights(rows, group) if rows.n_dense else margins


def _dense_weights(rows: Rows, group: Group) -> np.ndarray:
    is_dense = group.features >= rows.n_sparse
    weights = np.zeros((rows.n_dense, len(group.bias)), np.float32)
    weights[group.features[is_dense] - rows.n_sparse, group.lanes[is_dense]] = group.values[is_dense]
    return weights


def loss_of(config: LinearConfig, margins: np.ndarray, targets: np.ndarray) -> float:
    """Return the training loss without the norm of the weights."""
    signed = np.where(targets > 0, margins, -margins).astype(np.float64)
    each = np.logaddexp(0.0, -signed) if config.loss == "logistic" else np.maximum(0.0, 1.0 - signed) ** 2
    return float((each * _weights(config, targets)).sum())


def best_constants(config: LinearConfig, targets: np.ndarray) -> np.ndarray:
    """Return the constant margin with the lowest loss, for each label."""
    weights = _weights(config, targets)
    positive, negative = (np.maximum((weights * sign).sum(axis=0), 1e-9) for sign in (targets > 0, targets <= 0))
    if config.loss == "logistic":
        return np.log(positive / negative)
    return (positive - negative) / (positive + negative)


def _weights(config: LinearConfig, targets: np.ndarray) -> np.ndarray:
    return np.where(targets > 0, config.cost_positive * targets, config.cost_negative)


def lowest(losses: Sequence[float]) -> float:
    """Return the minimum of a parabola through the losses of all ``COSTS``; the last if it is better than the middle.

    Examples
    --------
    >>> lowest([3.0, 2.0, 3.0]), lowest([3.0, 2.0, 2.5]), lowest([2.0, 1.5])
    (0.5, 0.56, 1.0)
    """
    if losses[-1] <= losses[-2]:
        return COSTS[-1]
    first, middle, last = losses
    bend = first - 2.0 * middle + last
    if bend <= 0:
        return COSTS[int(np.argmin(losses))]
    place = max(0.5 * (first - last) / bend, -1.0)  # base-2 logarithm of the ratio to the middle
    return round(COSTS[1] * 2.0**place, 2)
