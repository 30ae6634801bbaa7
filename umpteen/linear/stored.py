"""Train the linear classifiers of trees with all large arrays in files.

Rows, targets, label vectors, masks and weights are stages of a checkpoint. The work is done by tasks (``stored_tasks``)
that read them by memory mapping and write parts, which are joined. So training needs little memory, can be resumed
after any part, and runs on threads, in processes or on a cluster. The result is that of ``fit.train``, byte for byte.

    rows, targets          the data: CSR matrices
    members, vectors       rows of each label; label vectors (eq. 4)
    tree-0-top             the labels in slices, as far as they were divided before tasks cluster them
    tree-0                 the first tree
    tree-0-targets-1       targets of its second level, by node
    tree-0-mask-1          rows that train the children of each parent there
    tree-0-level-1         weights
    tree-0-packed          weights of all levels, packed for the search
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from umpteen.config import LinearConfig, SearchConfig, TreeConfig, to_dict
from umpteen.data.rows import Rows
from umpteen.data.sparse import pointers
from umpteen.engine import Callback, Engine, LocalEngine, Memory, Progress, ignore, silent
from umpteen.kernels import LANES
from umpteen.linear.choose import settle
from umpteen.linear.chunk import Job, Problem, chunks_of
from umpteen.linear.fit import config_of, level_name, uses_predictions
from umpteen.linear.pack import Coder, Level, Packed, count_weights, join_packed
from umpteen.linear.search import LinearTree, row_blocks
from umpteen.linear.stored_arrays import MEMBERS, TARGETS, VECTORS, load_columns, load_matrix
from umpteen.linear.stored_tasks import grow_slice, pack_range, predict_parents, sum_labels, train_nodes, try_costs
from umpteen.store import Checkpoint
from umpteen.store.parts import Part, blocks, join_parts, make_parts
from umpteen.tree import Columns, LabelTree, grow, grow_top, lifted_columns, mask_columns, shape, starts_of

_PART_WORK = 3e8  # visits of features by one task: a few seconds
_LEAST_WORK = 1e7  # visits below which work is not divided further
_PARTS_A_WORKER = 8  # into which work is divided if it is between these
_KEPT = 3.0  # weights of a node for each row that has it, times the threshold, at most
_WEIGHT_BYTES = 25  # of a trained weight until its part is written
_ENTRY_BYTES = 8  # of an entry of a label vector
_PACKING_BYTES = 20  # of a weight that is packed
_LEAST_WEIGHTS = 1 << 20  # of a task that packs them
_SLICES_A_WORKER = 4  # into which the labels are divided before tasks cluster them


@dataclass(frozen=True)
class Store:
    """Where the arrays of a training are, and what runs its tasks."""

    checkpoint: Checkpoint
    rows: Rows  # mapped
    engine: Engine
    memory: Memory
    threads: int
    progress: Progress = silent
    record: Callback = ignore

    @property
    def of_task(self) -> Memory:
        """Memory of one task."""
        return self.memory.shared_by(self.engine.n_workers)

    def part_work(self, work: np.ndarray) -> float:
        """Return how much of some work one task should do."""
        wanted = float(work.sum()) / (_PARTS_A_WORKER * max(1, self.engine.n_workers))
        return max(min(_PART_WORK, wanted), _LEAST_WORK)

    def make(self, function: Any, parts: Sequence[Part], stage: str, progress: Progress, **common: Any) -> list[str]:
        """Run the tasks of parts that are missing."""
        common |= {"memory": self.of_task.total, "rows": dict(self.rows.source)}
        return make_parts(self.checkpoint, self.engine, function, parts, common=common, stage=stage, progress=progress)


@dataclass(frozen=True)
class StoredTree:
    """One tree of a training with arrays in files.

    ``name`` begins the names of its stages.
    """

    store: Store
    name: str
    search: SearchConfig
    seed: int

    @property
    def _stages(self) -> Checkpoint:
        return self.store.checkpoint

    @property
    def rows(self) -> Rows:
        """The feature rows, mapped."""
        return self.store.rows

    @cached_property
    def Y(self) -> sp.csr_matrix:
        """The targets, mapped."""
        return load_matrix(self._stages, TARGETS)

    # Clustering

    def tree(self, config: TreeConfig, given: LabelTree | None) -> LabelTree:
        """Return the tree, given or clustered."""
        if not self._stages.has(self.name):
            tree = given if given is not None else self._clustered(config)
            self._stages.save(self.name, tree.arrays())
        return LabelTree.from_arrays(self._stages.load(self.name))

    def _clustered(self, config: TreeConfig) -> LabelTree:
        n_labels = self.Y.shape[1]
        counts = shape(n_labels, config)
        if not counts:
            return LabelTree.flat(n_labels)
        if not self._stages.has(VECTORS):
            self._sum_vectors(config.max_features)
        if not isinstance(self.store.engine, LocalEngine):
            return self._by_slices(counts, config)
        order, vectors = np.arange(n_labels, dtype=np.int32), load_matrix(self._stages, VECTORS)
        return LabelTree(order, starts_of(grow(order, vectors, config, counts, **self._options), n_labels))

    @property
    def _options(self) -> dict[str, Any]:
        return {"seed": self.seed, "threads": self.store.threads, "progress": self.store.progress}

    def _sum_vectors(self, keep: int) -> None:
        """Make the label vectors, a range of labels after the other."""
        stages, n_labels = self._stages, self.Y.shape[1]
        if not stages.has(MEMBERS):
            with stages.writing(MEMBERS) as allocate:
                mask_columns(LabelTree.flat(n_labels), self.Y, 0, None, allocate=allocate)
        members = load_columns(stages, MEMBERS, len(self.rows))
        work = _sums_by_column(np.diff(self.rows.indptr), members)
        kept = np.minimum(work, keep or work)
        cuts = cut((work, self.store.part_work(work)), (kept * _ENTRY_BYTES, self.store.of_task.part))
        names = self.store.make(
            sum_labels, _ranges(VECTORS, cuts, work), "label vectors", self.store.progress, keep=keep
        )
        shape_ = np.array([n_labels, self.rows.n_sparse], np.int64)
        join_parts(stages, VECTORS, names, pointers=["indptr"], extra={"shape": shape_})

    def _by_slices(self, counts: tuple[int, ...], config: TreeConfig) -> LabelTree:
        """Divide the labels until there are enough slices, which are grown as tasks, and put these together."""
        top = self.name + "-top"
        if not self._stages.has(top):
            self._grow_top(top, counts, config)
        arrays = self._stages.load(top)
        starts = [arrays[f"starts-{level}"] for level in range(int(arrays["n_levels"][0]))]
        ends = np.append(arrays["firsts"], len(arrays["order"]))
        names = self.store.make(
            grow_slice, _ranges(f"{self.name}-below", ends, np.diff(ends)), "sub-trees", self.store.progress,
            top=top, counts=list(counts[len(starts) :]), config=to_dict(config), seed=self.seed,
        )  # fmt: skip
        found = [self._stages.load(name) for name in names]

        def joined(name: str) -> np.ndarray:
            return np.concatenate([arrays[name] for arrays in found])

        below = [pointers(joined(f"n-{level}")) for level in range(1, len(counts) - len(starts) + 1)]
        levels = (*starts, *below, pointers(joined("sizes")))
        return LabelTree(joined("order"), tuple(level.astype(np.int32, copy=False) for level in levels))

    def _grow_top(self, stage: str, counts: tuple[int, ...], config: TreeConfig) -> None:
        order, vectors = np.arange(self.Y.shape[1], dtype=np.int32), load_matrix(self._stages, VECTORS)
        n_slices = _SLICES_A_WORKER * max(1, self.store.engine.n_workers)
        levels, slices = grow_top(order, vectors, config, counts, n_slices, **self._options)
        starts = starts_of(levels, len(order))[:-1]
        firsts, sizes = zip(*slices, strict=True)
        arrays = {"order": order, "n_levels": np.array([len(starts)]), "firsts": np.array(firsts)}
        arrays |= {"sizes": np.concatenate(sizes), "cuts": np.cumsum([len(each) for each in sizes])[:-1]}
        self._stages.save(stage, arrays | {f"starts-{level}": ptr for level, ptr in enumerate(starts)})

    # Training

    def settle(self, tree: LabelTree, linear: LinearConfig) -> LinearConfig:
        """Choose the settings that are left to the data."""
        last = tree.n_levels - 1

        def last_level() -> tuple[Columns, Columns | None]:
            targets = self._targets(tree, last, linear.relevance)
            return targets, self._true_mask(tree, last) if last else None

        def measure(problem: Problem, jobs: Sequence[Job], costs: Sequence[float]) -> np.ndarray:
            parts = [
                Part(f"{self.name}-trial-{len(costs)}-{job.first}", {"first": job.first, "last": job.last}, job.cost)
                for job in jobs
            ]
            names = self.store.make(
                try_costs, parts, "choose settings", self.store.progress,
                tree=self.name, level=last, config=to_dict(linear), costs=list(costs), seed=self.seed,
            )  # fmt: skip
            losses = [self._stages.load(name)["losses"] for name in names]
            return np.concatenate([*losses, np.zeros((0, len(costs) + 1))])

        return settle(
            self.rows, self.Y, tree, linear, self.search, seed=self.seed, last_level=last_level, measure=measure
        )

    def train(self, tree: LabelTree, linear: LinearConfig) -> list[Level]:
        """Train all levels; what was finished before is not trained again."""
        levels: list[Level] = []
        for number in range(tree.n_levels):
            stage, begun = f"{self.name}-level-{number}", time.perf_counter()
            if not self._stages.has(stage):
                self._train_level(tree, number, levels, linear, stage)
            arrays = dict(self._stages.load(stage))
            if not self._stages.has(f"{stage}-time"):
                seconds = np.array([round(time.perf_counter() - begun, 3)])
                self._stages.save(f"{stage}-time", {"seconds": seconds})
            seconds = float(self._stages.load(f"{stage}-time")["seconds"][0])
            self.store.record({"stage": level_name(number, tree), "nodes": tree.sizes[number], "seconds": seconds})
            levels.append(Level(**arrays))
        return levels

    def _train_level(self, tree: LabelTree, number: int, levels: list[Level], linear: LinearConfig, stage: str) -> None:
        targets, mask = self._targets(tree, number, linear.relevance), self._mask(tree, number, levels, linear)
        config = config_of(number, tree, linear)
        problem = Problem(self.rows, targets, mask, tree.starts[number], config, self.seed)
        parts = _ranges(f"{stage}-part", *_node_cuts(problem, self.store))
        names = self.store.make(
            train_nodes, parts, level_name(number, tree), self.store.progress,
            tree=self.name, level=number, config=to_dict(config), seed=self.seed,
        )  # fmt: skip
        join_parts(self._stages, stage, names)

    def _targets(self, tree: LabelTree, level: int, relevance: str) -> Columns:
        stage = f"{self.name}-targets-{level}"
        if not self._stages.has(stage):
            with self._stages.writing(stage) as allocate:
                lifted_columns(tree, self.Y, level, relevance=relevance, allocate=allocate)
        return load_columns(self._stages, stage, len(self.rows))

    def _true_mask(self, tree: LabelTree, level: int) -> Columns:
        """Return which rows have which true parents of a level."""
        stage = f"{self.name}-parents-{level}"
        if not self._stages.has(stage):
            with self._stages.writing(stage) as allocate:
                mask_columns(tree, self.Y, level - 1, None, allocate=allocate)
        return load_columns(self._stages, stage, len(self.rows))

    def _mask(self, tree: LabelTree, level: int, levels: list[Level], linear: LinearConfig) -> Columns | None:
        """Return the rows that train the children of each parent (eqs. 7–8)."""
        stage = f"{self.name}-mask-{level}"
        if level == 0:
            return None
        if not self._stages.has(stage):
            predicted = None
            if uses_predictions(tree, level, linear):
                predicted = self._predicted(tree, level, levels, linear)
            has_true = predicted is None or linear.negatives != "man"
            with self._stages.writing(stage) as allocate:
                mask_columns(tree, self.Y, level - 1, predicted, has_true=has_true, allocate=allocate)
            self._stages.drop(f"{self.name}-predicted-{level}")
        return load_columns(self._stages, stage, len(self.rows))

    def _predicted(self, tree: LabelTree, level: int, levels: list[Level], linear: LinearConfig) -> np.ndarray:
        stage, matcher = f"{self.name}-predicted-{level}", f"{self.name}-matcher-{level}"
        if not self._stages.has(stage):
            if not self._stages.has(matcher):
                self._pack(matcher, tree, levels, "float32")
            cuts = np.array([0, *(last for _, last in row_blocks(len(self.rows)))])
            names = self.store.make(
                predict_parents, _ranges(stage, cuts, np.diff(cuts)), f"parents of {level_name(level, tree)}",
                self.store.progress, tree=self.name, matcher=matcher, beam=linear.negatives_beam,
                search=to_dict(self.search),
            )  # fmt: skip
            join_parts(self._stages, stage, names)
        return self._stages.load(stage)["labels"]

    def pack(self, tree: LabelTree, levels: list[Level], weights: str) -> LinearTree:
        """Return the trained tree, packed for the search."""
        stage = f"{self.name}-packed"
        if not self._stages.has(stage):
            self._pack(stage, tree, levels, weights)
        return LinearTree(self._stages.load(stage), tree, self.rows.n_features, self.search)

    def _pack(self, stage: str, tree: LabelTree, levels: list[Level], weights: str) -> None:
        """Pack ranges of the features of each level as tasks, and put them together."""
        coder = Coder.of([level.values for level in levels], weights)
        parts = [self._packed_parts(f"{stage}-{number}", number, level) for number, level in enumerate(levels)]
        every = [part for of_level in parts for part in of_level]
        self.store.make(pack_range, every, "pack weights", self.store.progress, tree=self.name, coder=asdict(coder))
        found = [[Packed(**self._stages.load(part.name)) for part in of_level] for of_level in parts]
        with self._stages.writing(stage) as allocate:
            join_packed(found, [level.bias for level in levels], tree, coder, allocate)
        self._stages.drop(*(part.name for part in every))

    def _packed_parts(self, name: str, number: int, level: Level) -> list[Part]:
        """Divide the features of a level."""
        counts = count_weights(level, 0, self.rows.n_features)
        most = max(float(counts.sum()) / (2 * max(1, self.store.engine.n_workers)), _LEAST_WEIGHTS)
        cuts = cut((counts, most), (counts * _PACKING_BYTES, self.store.of_task.part))
        return _ranges(name, cuts, counts, level=number)


def cut(*limits: tuple[np.ndarray, float]) -> np.ndarray:
    """Divide things into ranges: return the first of each range, and the end.

    Each limit is what the things take and how much a range may take of it. A thing that takes more is alone.

    Examples
    --------
    >>> cut((np.array([1, 1, 5, 1, 1, 1]), 3.0)).tolist()
    [0, 2, 3, 6]
    """
    n = len(limits[0][0])
    sums = [(np.concatenate([[0.0], np.cumsum(amounts, dtype=np.float64)]), most) for amounts, most in limits]
    cuts = [0]
    while cuts[-1] < n:
        at = cuts[-1]
        ends = [int(np.searchsorted(total, total[at] + most, side="right")) - 1 for total, most in sums]
        cuts.append(min(n, max(at + 1, min(ends))))
    return np.array(cuts)


def _ranges(name: str, cuts: np.ndarray, work: np.ndarray, **arguments: Any) -> list[Part]:
    """Return a part for each range; ``work`` is that of each thing or that of each range."""
    ends = list(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True))
    costs = work if len(work) == len(ends) else [work[first:last].sum() for first, last in ends]
    return [
        Part(f"{name}-{first}-{last}", {"first": first, "last": last, **arguments}, max(int(cost), 1))
        for (first, last), cost in zip(ends, costs, strict=True)
    ]


def _node_cuts(problem: Problem, store: Store) -> tuple[np.ndarray, np.ndarray]:
    """Divide the nodes of a level into ranges; return the first node of each, and the end, with the work of each.

    Children of one parent are trained on the same rows, which are gathered once for each range that has any of them. So
    they are in one range, unless that would be too much work or memory.
    """
    parents = []
    per_row = min(len(problem.rows.indices) / max(len(problem.rows), 1), _KEPT / max(problem.config.threshold, 1e-9))
    per_row += problem.rows.n_dense
    targets = problem.targets.indptr
    for first, last, _, n, visited in chunks_of(problem):
        groups = np.arange(first, last, LANES)
        kept = (targets[np.minimum(groups + LANES, last)] - targets[groups]) * per_row * _WEIGHT_BYTES
        parents.append((groups, np.full(len(groups), visited + n, np.float64), kept))
    most, memory = store.part_work(np.array([work.sum() for _, work, _ in parents])), store.of_task.part
    units = [
        (groups[:1], work.sum(keepdims=True), kept.sum(keepdims=True))
        if work.sum() <= most and kept.sum() <= memory
        else (groups, work, kept)
        for groups, work, kept in parents
    ]
    firsts, work, kept = (np.concatenate(arrays) for arrays in zip(*units, strict=True))
    cuts = cut((work, most), (kept, memory))
    nodes = np.append(firsts, problem.ends[1])[cuts]
    nodes[0] = 0
    return nodes, np.diff(np.concatenate([[0.0], np.cumsum(work)])[cuts])


def _sums_by_column(lengths: np.ndarray, columns: Columns, block: int = 1 << 22) -> np.ndarray:
    """Return the sum of the lengths of the rows of each column, with little memory."""
    sums = np.zeros(len(columns.indptr) - 1, np.int64)
    for first, last in blocks(columns.nnz, block):
        low = int(np.searchsorted(columns.indptr, first, side="right")) - 1
        high = int(np.searchsorted(columns.indptr, last, side="left"))
        ends = np.clip(columns.indptr[low : high + 1], first, last) - first
        sums[low:high] += np.diff(pointers(lengths[columns.indices[first:last]])[ends])
    return sums
