"""Build a label tree by clustering label vectors, level by level.

Strategies: `halving` (balanced 2-means, repeated), `kmeans` (balanced k-way), `unbalanced` (plain k-way) and `random`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from umpteen.config import NetworkConfig, TreeConfig
from umpteen.data.sparse import pointers, triplet
from umpteen.engine import Pool, Progress, run, silent
from umpteen.errors import BadConfig, BadInput
from umpteen.kernels import LANES, lazy
from umpteen.tree.tree import LabelTree

_SAMPLE = 8_192  # labels that determine the two centres of a halving
_VECTOR_BYTES = 24  # of an entry of a label vector: the entry, its new position, and a copy
_LABEL_BYTES = 50  # of a label in a tree and the matrices that go with it
FEW_LABELS = 5_000  # up to which the kind auto is one versus all

# splitter(members, count, salt): reorder members into ``count`` parts and return their sizes; ``salt`` is for the seed.
Splitter = Callable[[np.ndarray, int, int], np.ndarray]
# runner(task, n): call task(0), …, task(n - 1) and return the results.
Runner = Callable[[Callable[[int], np.ndarray | None], int], list[Any]]


def shape(n_labels: int, config: TreeConfig) -> tuple[int, ...]:
    """Return the number of children of a node at each level above the labels; () is one versus all.

    Examples
    --------
    >>> shape(4_193, TreeConfig(branching=128, leaf_size=96))
    (44,)
    >>> shape(22_514, TreeConfig(branching=128, leaf_size=96))
    (16, 15)
    """
    n_groups = math.ceil(n_labels / config.leaf_size)
    if config.kind == "none" or (config.kind == "auto" and n_labels <= FEW_LABELS) or n_groups <= 1:
        return ()
    depth = config.depth or max(1, math.ceil(math.log(n_groups) / math.log(config.branching) - 1e-9))
    if config.kind == "unbalanced" and config.depth:
        return (config.branching,) * depth
    counts = []
    for level in range(depth, 0, -1):
        counts.append(max(2, math.ceil(n_groups ** (1 / level) - 1e-9)))
        n_groups = math.ceil(n_groups / counts[-1])
    return tuple(counts)


def resolutions(n_labels: int, config: NetworkConfig) -> tuple[int, ...]:
    """Return the number of nodes of each resolution, coarse to fine; the last are the labels, if not too many.

    Examples
    --------
    >>> resolutions(4_193, NetworkConfig(branching=64))
    (65, 4193)
    >>> resolutions(670_091, NetworkConfig(branching=32))
    (32, 1024, 32768)
    >>> resolutions(4_193, NetworkConfig(labels_per_cluster=16, branching=1_024))
    (263,)
    """
    finest = min(-(-n_labels // config.labels_per_cluster), config.max_nodes)
    if config.levels:
        above = tuple(size for size in config.levels if size < n_labels)
        return (*above, n_labels) if n_labels <= config.max_nodes else above
    depth = max(1, math.ceil(math.log(finest) / math.log(config.branching) - 0.25))
    return tuple(math.ceil(finest ** ((level + 1) / depth) - 1e-6) for level in range(depth))


def network_levels(n_labels: int, config: NetworkConfig) -> tuple[int, ...]:
    """Return the number of nodes of each level of a network, coarse to fine; the last are the labels.

    Examples
    --------
    >>> network_levels(30_938, NetworkConfig(depth=3))
    (512, 4096, 30938)
    >>> network_levels(670_091, NetworkConfig(depth=4))
    (1024, 8192, 65536, 670091)
    >>> network_levels(4_271, NetworkConfig(depth=2, few_labels=30_000))
    (4271,)
    """
    if config.head == "full" or (not config.levels and n_labels <= config.few_labels):
        return (n_labels,)
    if config.levels:
        return (*(size for size in config.levels if 2 * size <= n_labels), n_labels)
    depth = config.depth or max(1, math.ceil(math.log(max(n_labels, 2)) / math.log(config.branching) - 0.25))
    exact = (n_labels / config.branching**above for above in range(depth - 1, 0, -1))
    sizes = dict.fromkeys(2 ** round(math.log2(size)) for size in exact if size > 2)
    return (*(size for size in sizes if size < n_labels), n_labels)


def cluster_bytes(n_kept: float, n_features: int, n_labels: int, config: TreeConfig, threads: int) -> float:
    """Return what clustering holds: ``n_kept`` entries of label vectors, the tree, and what k-means compares."""
    k = config.branching if config.kind in ("kmeans", "unbalanced") else 2
    return _VECTOR_BYTES * n_kept + n_labels * (_LABEL_BYTES + 4 * k) + threads * n_features * 4 * k


def check_given(config: TreeConfig, given: LabelTree | None, n_labels: int) -> None:
    """Refuse a tree with another number of labels, and tree.kind 'given' without a tree."""
    if given is None and config.kind == "given":
        raise BadConfig("tree.kind is 'given' but no tree was passed; call fit(X, Y, tree=LabelTree.from_parents(…))")
    if given is not None and given.n_labels != n_labels:
        raise BadInput(
            f"the tree has {given.n_labels} labels but Y has {n_labels} columns; pass a tree over the columns of Y"
        )


def build(
    vectors: sp.csr_matrix,
    config: TreeConfig,
    *,
    seed: int = 0,
    threads: int = 1,
    progress: Progress = silent,
    counts: tuple[int, ...] | None = None,
) -> LabelTree:
    """Cluster label vectors (rows of unit length) into a tree.

    ``counts`` is the number of children of a node at each level above the labels, by default that of the settings.

    Examples
    --------
    >>> vectors = sp.csr_matrix(np.repeat(np.eye(4, dtype=np.float32), 3, axis=0))
    >>> tree = build(vectors, TreeConfig(kind="halving", branching=4, leaf_size=3), seed=1)
    >>> tree.sizes
    (4, 12)
    """
    n_labels = vectors.shape[0]
    check_given(config, None, n_labels)
    counts = shape(n_labels, config) if counts is None else counts
    order = np.arange(n_labels, dtype=np.int32)
    levels = grow(order, vectors, config, counts, seed=seed, threads=threads, progress=progress)
    return LabelTree(order, starts_of(levels, n_labels))


class Slice(NamedTuple):
    """A range of the order of the labels, which consecutive nodes of one level are to divide."""

    first: int
    sizes: np.ndarray  # labels of each node


def grow(
    order: np.ndarray,
    vectors: sp.csr_matrix,
    config: TreeConfig,
    counts: Sequence[int],
    *,
    sizes: np.ndarray | None = None,
    seed: int = 0,
    threads: int = 1,
    progress: Progress = silent,
) -> list[list[np.ndarray]]:
    """Cluster the labels in ``order``, which is reordered; return the sizes of the children of each node by level.

    With ``sizes`` the labels are those of a slice that :func:`grow_top` returned, which is the first level. A slice
    that begins at position p of the whole order is divided as there if it is grown alone with ``seed`` + p.
    """
    growing = _Growing(order, vectors, config, seed, threads, progress)
    return growing.grow(counts, sizes=sizes)[0]


def grow_top(
    order: np.ndarray,
    vectors: sp.csr_matrix,
    config: TreeConfig,
    counts: Sequence[int],
    n_slices: int,
    *,
    seed: int = 0,
    threads: int = 1,
    progress: Progress = silent,
) -> tuple[list[list[np.ndarray]], list[Slice]]:
    """Begin as :func:`grow` does, until at least ``n_slices`` slices can be grown by themselves, and return these too.

    The slices are at the last of the levels that are returned.
    """
    growing = _Growing(order, vectors, config, seed, threads, progress)
    return growing.grow(counts, n_slices=n_slices)


def starts_of(levels: Sequence[Sequence[np.ndarray]], n_labels: int) -> tuple[np.ndarray, ...]:
    """Return where the children of each node start, by level, from what ``grow`` returns."""
    starts = [pointers([len(sizes) for sizes in level]).astype(np.int32) for level in levels]
    last = np.concatenate(levels[-1]) if levels else [n_labels]
    return (*starts, pointers(last).astype(np.int32))


@dataclass
class _Growing:
    """The order of the labels while they are clustered."""

    order: np.ndarray
    vectors: sp.csr_matrix
    config: TreeConfig
    seed: int
    threads: int
    progress: Progress

    def __post_init__(self) -> None:
        self._halving = _Halving(self.vectors, self.config, self.seed)

    def grow(
        self, counts: Sequence[int], *, sizes: np.ndarray | None = None, n_slices: float = math.inf
    ) -> tuple[list[list[np.ndarray]], list[Slice]]:
        """Divide all labels, or a slice of them, level by level, until there are so many slices."""
        levels = [] if sizes is None else [[sizes]]
        slices = [Slice(0, np.array([len(self.order)]) if sizes is None else sizes)]
        for level, count in enumerate((*counts, 0)):
            slices = self._halve(slices, n_slices, self._runner(level))
            if not count or len(slices) >= n_slices:
                break
            parts, slices = self._divide(slices, count, self._runner(level + 1))
            levels.append(parts)
        return levels, slices

    def _runner(self, level: int) -> Runner:
        return partial(run, threads=self.threads, stage=f"tree level {level}", progress=self.progress)

    def _divide(self, nodes: list[Slice], count: int, runner: Runner) -> tuple[list[np.ndarray], list[Slice]]:
        """Return the sizes of the children of each node, and slices of them: halving comes later."""
        if self.config.kind in ("halving", "auto"):
            parts = [_even(int(sizes[0]), min(count, max(int(sizes[0]), 1))) for _, sizes in nodes]
            parts = [part[part > 0] for part in parts]
            return parts, [Slice(node.first, part) for node, part in zip(nodes, parts, strict=True) if len(part)]
        bounds = [node.first for node in nodes] + [len(self.order)]
        parts = _split_all(self.order, bounds, count, _splitter(self.vectors, self.config, self.seed), runner)
        parts = [part[part > 0] for part in parts]
        sizes = np.concatenate(parts)
        return parts, [Slice(int(first), np.array([n])) for first, n in zip(pointers(sizes), sizes, strict=False)]

    def _halve(self, slices: list[Slice], n_slices: float, runner: Runner) -> list[Slice]:
        """Halve slices until each is one node, or until there are so many; those of one round are independent."""
        while len(slices) < n_slices and (wide := [each for each in slices if len(each.sizes) > 1]):
            runner(lambda i, wide=wide: self._halving(self.order, *wide[i]), len(wide))
            slices = [part for each in slices for part in _halves(*each)]
        return slices


def _split_all(
    order: np.ndarray, bounds: Sequence[int], count: int, splitter: Splitter, runner: Runner
) -> list[np.ndarray]:
    """Split every node; return the sizes of the parts of each."""

    def task(i: int) -> np.ndarray:
        members = order[bounds[i] : bounds[i + 1]]
        if len(members) <= 1:
            return np.array([len(members)])
        return splitter(members, min(count, len(members)), int(bounds[i]))

    return runner(task, len(bounds) - 1)


def _halves(first: int, sizes: np.ndarray) -> list[Slice]:
    middle = len(sizes) // 2
    if not middle:
        return [Slice(first, sizes)]
    return [Slice(first, sizes[:middle]), Slice(first + int(sizes[:middle].sum()), sizes[middle:])]


def _splitter(vectors: sp.csr_matrix, config: TreeConfig, seed: int) -> Splitter:
    if config.kind != "random":
        return _KMeans(vectors, config, seed, balanced=config.kind == "kmeans")

    def split(members: np.ndarray, count: int, salt: int) -> np.ndarray:
        np.random.default_rng(seed + salt).shuffle(members)
        return _even(len(members), count)

    return split


def _even(n: int, count: int) -> np.ndarray:
    """Return the sizes of ``count`` parts of n that differ by at most one."""
    return np.diff(np.arange(count + 1) * n // count)


class _Halving:
    """Balanced 2-means of one slice of labels."""

    def __init__(self, vectors: sp.csr_matrix, config: TreeConfig, seed: int):
        self.triplet, self.config, self.seed = triplet(vectors), config, seed
        self.scratch = Pool(lambda: np.zeros((vectors.shape[1], 2), np.float32))  # kernels leave it zeroed

    def __call__(self, order: np.ndarray, low: int, sizes: np.ndarray) -> None:
        members, n_left = order[low : low + int(sizes.sum())], int(sizes[: len(sizes) // 2].sum())
        with self.scratch.borrow() as sums:
            lazy.cluster.halve(
                *self.triplet, members, n_left, self.seed + low, self.config.max_iter, self.config.tolerance,
                _SAMPLE, sums,
            )  # fmt: skip


class _KMeans:
    """Spherical k-means; with ``balanced`` the sizes of clusters are bounded."""

    def __init__(self, vectors: sp.csr_matrix, config: TreeConfig, seed: int, *, balanced: bool):
        self.triplet, self.n_features, self.config = triplet(vectors), vectors.shape[1], config
        self.seed, self.balanced = seed, balanced

    def __call__(self, members: np.ndarray, count: int, salt: int) -> np.ndarray:
        kernel = lazy.cluster
        n_groups = -(-count // LANES)
        centres = np.zeros((n_groups, self.n_features, LANES), np.float32)
        capacity = -(-len(members) // count) if self.balanced else len(members)
        rng = np.random.default_rng(self.seed + salt)
        first = rng.choice(len(members), count, replace=False)
        kernel.add_members(*self.triplet, members[first], np.arange(count), centres)
        cluster = np.empty(len(members), np.int64)
        scores = np.empty((len(members), count), np.float32)
        before = -np.inf
        for _ in range(self.config.max_iter):
            kernel.assign(*self.triplet, members, centres, scores)
            kernel.fill(scores, capacity, cluster)
            quality = float(scores[np.arange(len(members)), cluster].sum())
            if quality <= before * (1 + self.config.tolerance):
                break
            before = quality
            centres[:] = 0.0
            kernel.add_members(*self.triplet, members, cluster, centres)
            length = np.sqrt((centres**2).sum(axis=1, keepdims=True))
            centres /= np.where(length > 0, length, 1.0)
        members[:] = members[np.argsort(cluster, kind="stable")]
        return np.bincount(cluster, minlength=count)
