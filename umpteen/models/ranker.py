"""Train the trees of a ranker one after the other, keeping finished stages on disk if asked; and what recipes share.

The stages of a tree are the tree itself and each of its levels. They lie in a folder of their own under the
checkpoint and carry a key of everything they depend on, so the stages of other data or settings are ignored.
Knows the order of the work, not how a level is trained.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from umpteen import __version__
from umpteen.config import LinearConfig, ModelConfig, NeuralConfig, to_dict
from umpteen.data.rows import Rows
from umpteen.engine import Callback, Progress, ignore, n_threads, silent, with_prefix
from umpteen.engine.ranks import present
from umpteen.linear import LinearTree, settle, train
from umpteen.store import Checkpoint, Run, check_checkpoint, check_output, fingerprint
from umpteen.tree import FEW_LABELS, LabelTree, both, build, network_levels, pifa, pifa_dense

_SEED_STEP = 7_919  # seeds of the trees of one model lie this far apart
FINETUNING = "finetuning"  # folder of the stages of an encoder
_TREE = "tree-{}"  # folder of a tree's stages
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
        linear, heads = self.config.linear, []
        for number in range(self.config.trees):
            head, linear = self._head(number, linear)
            heads.append(head)
        return heads, linear

    def _head(self, number: int, linear: LinearConfig) -> tuple[LinearTree, LinearConfig]:
        config, rows, threads = self.config, self.rows, n_threads(self.config.threads)
        seed = config.seed + _SEED_STEP * number
        stages, progress = self._stages(number), self._named(number)
        tree = self.given if self.given is not None else kept_tree(stages, lambda: self._build(seed, progress))
        linear = settle(rows, self.targets, tree, linear, config.search, seed=seed, threads=threads)
        levels = train(
            rows, self.targets, tree, linear, config.search,
            seed=seed, threads=threads, progress=progress, checkpoint=stages, record=self._recorded(number),
        )  # fmt: skip
        weights = config.store.weights
        return LinearTree.pack(levels, tree, rows.n_features, config.search, weights=weights, threads=threads), linear

    def _build(self, seed: int, progress: Progress) -> LabelTree:
        config, n_labels = self.config.tree, self.targets.shape[1]
        if config.kind == "none" or (config.kind == "auto" and n_labels <= FEW_LABELS):
            return LabelTree.flat(n_labels)
        vectors = label_vectors(self.rows, self.targets, self.config, self.name_vectors)
        return build(vectors, config, seed=seed, threads=n_threads(self.config.threads), progress=progress)

    def _named(self, number: int) -> Progress:
        if self.config.trees == 1:
            return self.progress
        return lambda stage, done, total: self.progress(f"tree {number + 1}: {stage}", done, total)

    def _recorded(self, number: int) -> Callback:
        return self.record if self.config.trees == 1 else with_prefix(self.record, f"tree {number + 1}: ")

    def _stages(self, number: int) -> Checkpoint | None:
        if self.checkpoint is None:
            return None
        return self.checkpoint.part(_TREE.format(number), self.key)

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
        tree = {} if self.given is None else tree_arrays(self.given)
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


def check_places(
    configs: Iterable[ModelConfig],
    checkpoint: str | os.PathLike[str] | None,
    output: str | os.PathLike[str] | None = None,
) -> None:
    """Refuse folders that cannot take the stages of a training or its model, before time is spent on it."""
    if output is not None:
        check_output(output)
    if checkpoint is not None:
        check_checkpoint(checkpoint, {part for config in configs for part in _parts(config)}, output)


def _parts(config: ModelConfig) -> list[str]:
    """Return the folders of the stages of a training."""
    trees = [_TREE.format(number) for number in range(config.trees)]
    return [*trees, FINETUNING] if isinstance(config, NeuralConfig) else trees


def begin_run(configs: Iterable[ModelConfig], checkpoint: str | os.PathLike[str]) -> Run:
    """Return the checkpoint of a training of one or several models, in a folder that can take its stages."""
    if present().is_main:
        check_places(configs, checkpoint)
    return Run(checkpoint)


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
        return tree_from(stages.load("tree", mmap=False))
    tree = make()
    if stages is not None:
        stages.save("tree", tree_arrays(tree))
    return tree


def tree_arrays(tree: LabelTree) -> dict[str, np.ndarray]:
    """Return a tree as arrays to be stored."""
    return {"order": tree.order, **{f"starts-{level}": start for level, start in enumerate(tree.starts)}}


def tree_from(arrays: Mapping[str, np.ndarray]) -> LabelTree:
    """Undo ``tree_arrays``; other arrays are left alone."""
    n_levels = sum(name.startswith("starts-") for name in arrays)
    return LabelTree(arrays["order"], tuple(arrays[f"starts-{level}"] for level in range(n_levels)))
