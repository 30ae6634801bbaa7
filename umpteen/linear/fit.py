"""Train the linear classifiers of a tree, level by level, chunk by chunk.

A chunk is a parent and its children. The children are trained together over the rows that the mask of the
level above lets through: rows that carry the parent (tfn), rows for which the parent is predicted (man), or
both (eqs. 7–8). Chunks are independent, so they run on threads; a memory bound limits how many at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from umpteen.config import LinearConfig, SearchConfig
from umpteen.data.rows import Rows
from umpteen.engine import Pool, Progress, run, silent
from umpteen.errors import BadConfig
from umpteen.kernels import LANES
from umpteen.linear.choose import settle
from umpteen.linear.chunk import Group, Job, Problem, SharedChunks, by_column, families, targets_of, train_chunk
from umpteen.linear.pack import Level
from umpteen.linear.search import LinearTree
from umpteen.linear.size import are_few, job_bytes
from umpteen.store import Checkpoint
from umpteen.tree import LabelTree

_INNER_EPS = 0.3  # inner nodes are trained more exactly: they are few, and their mistakes lose all labels below
_NEVER = {"squared-hinge": -3.5, "logistic": -20.0}  # margin of a node that no row carries: it ranks last


def train(
    rows: Rows,
    Y: sp.csr_matrix,
    tree: LabelTree,
    config: LinearConfig,
    search: SearchConfig,
    *,
    seed: int = 0,
    threads: int = 1,
    progress: Progress = silent,
    checkpoint: Checkpoint | None = None,
) -> list[Level]:
    """Train every level of a tree; finished levels are taken from the checkpoint."""
    config = settle(rows, Y, tree, config, search, seed=seed, threads=threads)
    levels: list[Level] = []
    for wave in _waves(tree, config, resumable=checkpoint is not None):
        stage = f"level {wave[-1] + 1} of {tree.n_levels}" if len(wave) == 1 else f"{len(wave)} levels"
        name = f"level-{wave[0]}"
        if checkpoint is not None and checkpoint.has(name):
            levels.append(Level(**checkpoint.load(name, mmap=False)))
            continue
        problems = [
            Problem(
                rows,
                targets_of(tree, Y, number, config),
                mask_of(rows, tree, Y, number, levels, config, search, threads),
                tree.starts[number],
                config if number == tree.n_levels - 1 else replace(config, eps=config.eps * _INNER_EPS),
                seed,
            )
            for number in wave
        ]
        levels += train_levels(problems, threads=threads, stage=stage, progress=progress)
        if checkpoint is not None:
            checkpoint.save(name, levels[-1].arrays())
    return levels


def _waves(tree: LabelTree, config: LinearConfig, *, resumable: bool) -> list[list[int]]:
    """Group levels that can be trained together: all but those whose mask needs the level above.

    Together they keep every thread busy, although the top levels have few chunks. A run that shall be resumed
    finishes level by level instead.
    """
    waves: list[list[int]] = []
    for level in range(tree.n_levels):
        if waves and not resumable and not _predicts(tree, level, config):
            waves[-1].append(level)
        else:
            waves.append([level])
    return waves


def train_levels(
    problems: list[Problem], *, threads: int = 1, stage: str = "", progress: Progress = silent
) -> list[Level]:
    """Train all chunks of some levels over the same rows."""
    jobs = [(number, job) for number, problem in enumerate(problems) for job in _jobs(problem, threads)]
    rows, config = problems[0].rows, problems[0].config
    budget = Budget(config.memory_gb * 1e9)
    shape = (rows.n_sparse, len(rows))
    scratch = Pool(lambda: tuple(np.zeros(size, np.int32) for size in shape))  # kernels leave them zeroed
    chunks = SharedChunks(rows, [job for _, job in jobs])
    costs = [job.cost for _, job in jobs]
    order = np.argsort([-cost for cost in costs], kind="stable").tolist()

    def task(i: int) -> list[Group]:
        number, job = jobs[i]
        with budget.hold(job.bytes), scratch.borrow() as (local, where), chunks.borrow(job, local) as chunk:
            return train_chunk(problems[number], job, chunk, where)

    parts = run(task, len(jobs), threads=threads, order=order, weights=costs, stage=stage, progress=progress)
    done: list[list[Group]] = [[] for _ in problems]
    for (number, _), groups in zip(jobs, parts, strict=True):
        done[number] += groups
    return [_gathered(problem, groups) for problem, groups in zip(problems, done, strict=True)]


def _gathered(problem: Problem, groups: list[Group]) -> Level:
    """Put a level together from its groups; of a node that no row carries nothing is known."""
    never = _NEVER[problem.config.loss]
    bias = np.full(int(problem.starts[-1]), never, np.float32)
    for group in groups:
        bias[group.first : group.first + len(group.bias)] = group.bias
    nodes = np.repeat(np.array([group.first for group in groups], np.int32), [len(group.lanes) for group in groups])
    nodes += _drained(groups, "lanes", np.uint8)
    level = Level(_drained(groups, "features", np.int32), nodes, _drained(groups, "values", np.float32), bias)
    is_carried = np.diff(problem.targets.indptr) > 0
    if is_carried.all() or not problem.config.bias:
        return level
    bias[~is_carried] = never
    kept = is_carried[level.nodes]
    return Level(level.features[kept], level.nodes[kept], level.values[kept], bias)


def _jobs(problem: Problem, threads: int) -> list[Job]:
    """Cut a level into jobs: one per chunk, or one per sixteen children where chunks are few."""
    rows, is_split = problem.rows, are_few(len(problem.starts) - 1, threads)
    jobs = []
    for first, last, chunk, n, work in families(problem):
        if n == 0:
            continue
        step = LANES if is_split else last - first
        for low in range(first, last, step):
            high = min(low + step, last)
            cost = (work + n) * -(-(high - low) // LANES)
            held = job_bytes(rows.n_sparse, rows.n_dense, n, work, copied=chunk is not None)
            jobs.append(Job(low, high, chunk, cost, int(held)))
    return _fit_memory(jobs, problem)


def _fit_memory(jobs: list[Job], problem: Problem) -> list[Job]:
    """Refuse a bound that the largest single job breaks: no schedule can keep it."""
    bound = problem.config.memory_gb * 1e9
    most = max((job.bytes for job in jobs), default=0)
    if bound and most > bound:
        raise BadConfig(
            f"linear.memory_gb is {problem.config.memory_gb:g} but the largest chunk needs {most / 1e9:.3g}; raise it, "
            "or lower tree.leaf_size or tfidf.max_features"
        )
    return jobs


def _drained(groups: list[Group], name: str, kind: type) -> np.ndarray:
    """Join an array of all groups and let theirs go: at no time is more than one of the arrays held twice."""
    joined = np.concatenate([np.empty(0, kind), *(getattr(group, name) for group in groups)])
    for group in groups:
        setattr(group, name, np.empty(0, kind))
    return joined


def mask_of(
    rows: Rows,
    tree: LabelTree,
    Y: sp.csr_matrix,
    level: int,
    levels: list[Level],
    config: LinearConfig,
    search: SearchConfig,
    threads: int,
) -> sp.csc_matrix | None:
    """Return which rows train the children of which parents (eqs. 7–8)."""
    if level == 0:
        return None
    lifted = tree.lift(Y, level - 1)
    if not _predicts(tree, level, config):
        return by_column(lifted)
    matcher = LinearTree.pack(levels, tree, rows.n_features, search, threads=threads)
    beam = matcher.topk(rows, config.negatives_beam, threads=threads)
    predicted = beam.to_csr(tree.sizes[level - 1])
    predicted.data[:] = 1.0  # a score may be zero, or cancel a one in the sum below
    if config.negatives == "man":
        return by_column(predicted)
    return by_column(lifted + predicted)


def _predicts(tree: LabelTree, level: int, config: LinearConfig) -> bool:
    """Say whether a level's mask holds predictions of the level above."""
    is_asked = config.negatives_at == "all" or level == tree.n_levels - 1
    return level > 0 and is_asked and "man" in config.negatives


class Budget:
    """Let tasks in while they fit in memory together; a single one always fits."""

    def __init__(self, limit: float):
        self.limit, self.used, self.changed = limit, 0.0, threading.Condition()

    @contextmanager
    def hold(self, size: int) -> Iterator[None]:
        """Wait until so many bytes are free, and hold them within."""
        if not self.limit:
            yield
            return
        with self.changed:
            self.changed.wait_for(lambda: self.used == 0 or self.used + size <= self.limit)
            self.used += size
        try:
            yield
        finally:
            with self.changed:
                self.used -= size
                self.changed.notify_all()
