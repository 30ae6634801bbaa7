"""Train the trees of a ranker one after the other, in memory or with arrays in files; and what recipes share.

With a checkpoint, arrays are in files (``linear.stored``), under a key of everything they depend on, so that those of
other data or settings are ignored. Knows the order of the work, not how a level is trained.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from umpteen import __version__
from umpteen.config import LinearConfig, ModelConfig, NeuralConfig, to_dict
from umpteen.data.rows import Rows
from umpteen.engine import Callback, Progress, ignore, n_threads, silent, with_prefix
from umpteen.linear import LinearTree, settle, train
from umpteen.linear.stored import Store, StoredTree
from umpteen.linear.stored_arrays import TARGETS, VECTORS, place_rows, save_matrix
from umpteen.models.runs import TREES
from umpteen.store import Checkpoint, Run, fingerprint
from umpteen.tree import LabelTree, both, build, network_levels, pifa, pifa_dense, shape

_SEED_STEP = 7_919  # seeds of the trees of one model lie this far apart
_ELSEWHERE = ("threads", "encoder", "network", "training")  # settings that the trees of a ranker do not read


@dataclass(frozen=True)
class Training:
    """What the trees of one model are trained on, and how."""

    rows: Rows
    targets: sp.csr_matrix
    config: ModelConfig
    given: LabelTree | None = None
    name_vectors: sp.csr_matrix | None = None
    progress: Progress = silent
    checkpoint: Run | None = None
    record: Callback = ignore

    def heads(self) -> tuple[list[LinearTree], LinearConfig]:
        """Train every tree; return them, and the settings with all choices that were left to the data."""
        train_one = self._in_memory if self.checkpoint is None else self._in_files(self.checkpoint)
        linear, heads = self.config.linear, []
        for number in range(self.config.trees):
            head, linear = train_one(number, linear)
            heads.append(head)
        return heads, linear

    def _in_memory(self, number: int, linear: LinearConfig) -> tuple[LinearTree, LinearConfig]:
        config, rows, threads = self.config, self.rows, n_threads(self.config.threads)
        seed, progress = self._seed(number), self._named(number)
        tree = self.given if self.given is not None else self._build(seed, progress)
        linear = settle(rows, self.targets, tree, linear, config.search, seed=seed, threads=threads)
        levels = train(
            rows, self.targets, tree, linear, config.search,
            seed=seed, threads=threads, progress=progress, record=self._recorded(number),
        )  # fmt: skip
        weights = config.store.weights
        return LinearTree.pack(levels, tree, rows.n_features, config.search, weights=weights, threads=threads), linear

    def _in_files(self, run: Run) -> Callable[[int, LinearConfig], tuple[LinearTree, LinearConfig]]:
        """Return what trains one tree with arrays in files, which are kept until the model is saved."""
        stages, config = run.part(TREES, self.key), self.config
        store = Store(stages, place_rows(stages, self.rows), run.engine, run.memory, n_threads(config.threads))
        save_matrix(stages, TARGETS, self.targets)
        if self.given is None and not self._by_rows and not stages.has(VECTORS):
            save_matrix(stages, VECTORS, label_vectors(self.rows, self.targets, config, self.name_vectors))

        def train_one(number: int, linear: LinearConfig) -> tuple[LinearTree, LinearConfig]:
            own = replace(store, progress=self._named(number), record=self._recorded(number))
            work = StoredTree(own, f"tree-{number}", config.search, self._seed(number))
            tree = work.tree(config.tree, self.given)
            linear = work.settle(tree, linear)
            return work.pack(tree, work.train(tree, linear), config.store.weights), linear

        return train_one

    def _seed(self, number: int) -> int:
        return self.config.seed + _SEED_STEP * number

    @property
    def _by_rows(self) -> bool:
        """Whether label vectors are sums of sparse rows, or there are none."""
        is_flat = not shape(self.targets.shape[1], self.config.tree)
        return is_flat or (self.config.tree.vectors == "pifa" and not self.rows.n_dense)

    def _build(self, seed: int, progress: Progress) -> LabelTree:
        config, n_labels = self.config.tree, self.targets.shape[1]
        if not shape(n_labels, config):
            return LabelTree.flat(n_labels)
        vectors = label_vectors(self.rows, self.targets, self.config, self.name_vectors)
        return build(vectors, config, seed=seed, threads=n_threads(self.config.threads), progress=progress)

    def _named(self, number: int) -> Progress:
        if self.config.trees == 1:
            return self.progress
        return lambda stage, done, total: self.progress(f"tree {number + 1}: {stage}", done, total)

    def _recorded(self, number: int) -> Callback:
        return self.record if self.config.trees == 1 else with_prefix(self.record, f"tree {number + 1}: ")

    @cached_property
    def key(self) -> str:
        """A digest of all that decides the result: not of the number of threads, nor of how the rows were learned.

        Every byte counts; a processor with SHA instructions digests more than a gigabyte a second, which is
        little beside training.
        """
        settings = {key: value for key, value in to_dict(self.config).items() if key not in _ELSEWHERE}
        matrices = [self.targets, *([] if self.name_vectors is None else [self.name_vectors])]
        parts = [part for matrix in matrices for part in (matrix.indptr, matrix.indices, matrix.data)]
        parts += [*self.rows.triplet, self.rows.dense]
        shapes = [self.rows.n_sparse, *(list(matrix.shape) for matrix in matrices)]
        tree = {} if self.given is None else self.given.arrays()
        return fingerprint(__version__, settings, shapes, list(tree), *parts, *tree.values())


def _by_texts(rows: Rows, targets: sp.csr_matrix, keep: int, threads: int) -> sp.csr_matrix:
    """Return what labels look like by their texts: tf-idf and embedding with equal weight if there are both."""
    by_words = pifa(rows.sparse, targets, keep=keep, threads=threads)
    return both(by_words, pifa_dense(rows.dense, targets)) if rows.n_dense else by_words


def with_init(config: NeuralConfig, targets: sp.csr_matrix) -> NeuralConfig:
    """Replace ``training.init`` = auto by what suits the labels (texts, labels)."""
    n_labels = max(np.count_nonzero(targets.getnnz(axis=0)), 1)
    return config.with_init(targets.nnz / n_labels)


def uses_words(config: NeuralConfig, n_labels: int) -> bool:
    """Return whether a network needs tf-idf rows: for a ranker, or to cluster the labels of its levels."""
    return config.ranker or len(network_levels(n_labels, config.network)) > 1


def label_vectors(
    rows: Rows, targets: sp.csr_matrix, config: ModelConfig, name_vectors: sp.csr_matrix | None
) -> sp.csr_matrix:
    """Return the vectors by which labels are clustered: from their texts, their names, or both."""
    if config.tree.vectors == "names":
        return name_vectors
    by_texts = _by_texts(rows, targets, config.tree.max_features, n_threads(config.threads))
    return by_texts if name_vectors is None else both(by_texts, name_vectors)


def clustered(vectors: sp.csr_matrix, sizes: Sequence[int], config: ModelConfig, progress: Progress) -> LabelTree:
    """Cluster label vectors into about as many nodes at each level as ``sizes`` says; the labels come last."""
    above = [size for size in sizes if size < vectors.shape[0]]
    counts = tuple(-(-size // before) for before, size in zip([1, *above], above, strict=False))
    halving, threads = replace(config.tree, kind="halving"), n_threads(config.threads)
    return build(vectors, halving, seed=config.seed, threads=threads, progress=progress, counts=counts)


def kept_tree(stages: Checkpoint | None, make: Callable[[], LabelTree]) -> LabelTree:
    """Return the tree that a checkpoint has; where it has none, make it and keep it there."""
    if stages is not None and stages.has("tree"):
        return LabelTree.from_arrays(stages.load("tree", mmap=False))
    tree = make()
    if stages is not None:
        stages.save("tree", tree.arrays())
    return tree
