"""Train the linear classifiers of a tree.

The children of a parent, a chunk, are trained together on the rows that have the parent (tfn), the rows for which the
parent is predicted (man), or both (eqs. 7–8). Chunks are independent and run on threads, within a bound of memory.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from umpteen.config import LinearConfig, SearchConfig
from umpteen.data.rows import Rows
from umpteen.engine import Callback, Pool, Progress, ignore, run, silent
from umpteen.errors import BadConfig
from umpteen.kernels import LANES
from umpteen.linear.choose import settle
from umpteen.linear.chunk import Group, Job, Problem, SharedChunks, chunks_of, train_chunk
from umpteen.linear.pack import Level
from umpteen.linear.search import LinearTree
from umpteen.linear.size import are_few, job_bytes
from umpteen.tree import Columns, LabelTree, lifted_columns, mask_columns

_INNER_EPS = 0.3  # factor of eps above the labels: these nodes are few, and errors affect all labels below
_NEVER = {"squared-hinge": -3.5, "logistic": -20.0}  # margin of a node without positive rows, which ranks last


def train(
    rows: Rows,
    Y: sp.csr_matrix,
    tree: LabelTree,
    config: LinearConfig,
    search: SearchConfig,
    *,
    seed: int = 0,
    threads: int = 1,
    memory: float = 0.0,
    progress: Progress = silent,
    record: Callback = ignore,
) -> list[Level]:
    """Train all levels of a tree in memory; the solver may use so many bytes of it, 0 sets no bound.

    Nodes and seconds of each level, or of levels that are trained together, are recorded.
    """
    config = settle(rows, Y, tree, config, search, seed=seed, threads=threads)
    levels: list[Level] = []
    for wave in _waves(tree, config):
        stage = level_name(wave[-1], tree) if len(wave) == 1 else f"{len(wave)} levels"
        begun, nodes = time.perf_counter(), sum(tree.sizes[number] for number in wave)
        problems = [
            Problem(
                rows,
                lifted_columns(tree, Y, number, relevance=config.relevance),
                mask_of(rows, tree, Y, number, levels, config, search, threads),
                tree.starts[number],
                config_of(number, tree, config),
                seed,
            )
            for number in wave
        ]
        levels += train_levels(problems, threads=threads, memory=memory, stage=stage, progress=progress)
        record({"stage": stage, "nodes": nodes, "seconds": round(time.perf_counter() - begun, 3)})
    return levels


def level_name(number: int, tree: LabelTree) -> str:
    """Return what progress and records call the training of a level."""
    return f"level {number + 1} of {tree.n_levels}"


def config_of(number: int, tree: LabelTree, config: LinearConfig) -> LinearConfig:
    """Return the settings of a level: those above the labels converge further."""
    return config if number == tree.n_levels - 1 else replace(config, eps=config.eps * _INNER_EPS)


def _waves(tree: LabelTree, config: LinearConfig) -> list[list[int]]:
    """Group levels that can be trained together: all but those whose mask needs predictions of the level above.

    Together they keep all threads busy, although the top levels have few chunks.
    """
    waves: list[list[int]] = []
    for level in range(tree.n_levels):
        if waves and not uses_predictions(tree, level, config):
            waves[-1].append(level)
        else:
            waves.append([level])
    return waves


def train_levels(
    problems: list[Problem], *, threads: int = 1, memory: float = 0.0, stage: str = "", progress: Progress = silent
) -> list[Level]:
    """Train all chunks of some levels on the same rows, within so many bytes of memory; 0 sets no bound."""
    jobs = [(number, job) for number, problem in enumerate(problems) for job in _jobs(problem, threads, memory)]
    rows, budget = problems[0].rows, Budget(memory)
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
    """Concatenate the groups of a level; nodes without positive rows have no weights and the lowest bias."""
    never, (low, high) = _NEVER[problem.config.loss], problem.ends
    bias = np.full(high - low, never, np.float32)
    for group in groups:
        bias[group.first - low : group.first - low + len(group.bias)] = group.bias
    nodes = np.repeat(np.array([group.first for group in groups], np.int32), [len(group.lanes) for group in groups])
    nodes += _drained(groups, "lanes", np.uint8)
    level = Level(_drained(groups, "features", np.int32), nodes, _drained(groups, "values", np.float32), bias)
    has_positives = np.diff(problem.targets.indptr[low : high + 1]) > 0
    if has_positives.all() or not problem.config.bias:
        return level
    bias[~has_positives] = never
    kept = has_positives[level.nodes - low]
    return Level(level.features[kept], level.nodes[kept], level.values[kept], bias)


def _jobs(problem: Problem, threads: int, memory: float) -> list[Job]:
    """Split a level into jobs: one per chunk, or one per sixteen children if there are few chunks."""
    rows, is_split = problem.rows, are_few(len(problem.starts) - 1, threads)
    jobs = []
    for first, last, chunk, n, work in chunks_of(problem):
        if n == 0:
            continue
        step = LANES if is_split else last - first
        for low in range(first, last, step):
            high = min(low + step, last)
            cost = (work + n) * -(-(high - low) // LANES)
            held = job_bytes(rows.n_sparse, rows.n_dense, n, work, copied=chunk is not None)
            jobs.append(Job(low, high, chunk, cost, int(held)))
    most = max((job.bytes for job in jobs), default=0)
    if memory and most > memory:
        raise BadConfig(
            f"the solver may use {memory / 1e6:,.0f} MB but its largest chunk needs {most / 1e6:,.0f} MB; allow more "
            "memory, or lower tree.leaf_size or tfidf.max_features"
        )
    return jobs


def _drained(groups: list[Group], name: str, kind: type) -> np.ndarray:
    """Concatenate an array of all groups and free theirs, so that at most one array is in memory twice."""
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
) -> Columns | None:
    """Return the mask (rows, parents) of the rows that train the children of each parent (eqs. 7–8)."""
    if level == 0:
        return None
    if not uses_predictions(tree, level, config):
        return mask_columns(tree, Y, level - 1, None)
    matcher = LinearTree.pack(levels, tree, rows.n_features, search, threads=threads)
    predicted = matcher.topk(rows, config.negatives_beam, threads=threads).labels
    return mask_columns(tree, Y, level - 1, predicted, has_true=config.negatives != "man")


def uses_predictions(tree: LabelTree, level: int, config: LinearConfig) -> bool:
    """Return whether the mask of a level contains predictions of the level above."""
    is_selected = config.negatives_at == "all" or level == tree.n_levels - 1
    return level > 0 and is_selected and "man" in config.negatives


class Budget:
    """Bound the total memory of the running tasks; a single task may exceed it."""

    def __init__(self, limit: float):
        self.limit, self.used, self.changed = limit, 0.0, threading.Condition()

    @contextmanager
    def hold(self, size: int) -> Iterator[None]:
        """Wait until ``size`` bytes are free, and reserve them within the block."""
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
