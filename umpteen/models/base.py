"""What every recipe can do: fit, topk, predict, score, save, load.

A recipe is a class with a name, a paper and a preset (its differences from the default settings). This file
wires the rooms together: features, tree, head, store. It knows no algorithm of its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from umpteen import store
from umpteen.config import (
    LinearConfig, ModelConfig, SearchConfig, StoreConfig, TfidfConfig, TreeConfig, difference, from_dict, to_dict,
    update,
)  # fmt: skip
from umpteen.data.labels import Labels, as_targets
from umpteen.data.rows import Rows
from umpteen.data.sparse import as_csr, check_rows_match, normalize_rows
from umpteen.engine import Progress, n_threads, silent
from umpteen.errors import BadConfig, BadInput, BadModelFile, NotFitted
from umpteen.features.tfidf import Tfidf
from umpteen.heads import LinearTree, train
from umpteen.metrics import evaluate
from umpteen.models import sklearn
from umpteen.models.ensemble_rules import merge
from umpteen.models.estimate import Estimate
from umpteen.shortlist import TopK, check_k
from umpteen.tree import LabelTree, both, build, pifa

_SEED_STEP = 7_919  # seeds of the trees of one model lie this far apart


class Model(sklearn.Contract):
    """Base of the linear recipes.

    Parameters
    ----------
    tree, linear, search, tfidf, store
        Settings by noun: a dict with what differs from the recipe's preset, or a whole settings object.
        ``umpteen settings`` lists them all.
    trees, ensemble, normalize
        Number of trees, how their scores are merged, and whether feature rows are scaled to length one.
    seed
        Same seed, same model.
    threads
        Threads to use; 0 means all cores.

    Examples
    --------
    >>> from umpteen import XRLinear
    >>> model = XRLinear(seed=1).fit(["red apple", "green pear", "red cherry"], [["red"], ["green"], ["red"]])
    >>> model.topk(["a red plum"], k=1).names
    [['red']]
    """

    recipe: ClassVar[str] = "linear"
    paper: ClassVar[str] = ""
    preset: ClassVar[Mapping[str, Any]] = {}

    def __init__(
        self,
        *,
        tree: TreeConfig | Mapping[str, Any] | None = None,
        linear: LinearConfig | Mapping[str, Any] | None = None,
        search: SearchConfig | Mapping[str, Any] | None = None,
        tfidf: TfidfConfig | Mapping[str, Any] | None = None,
        store: StoreConfig | Mapping[str, Any] | None = None,
        trees: int | None = None,
        ensemble: str | None = None,
        normalize: bool | None = None,
        seed: int = 0,
        threads: int = 0,
    ):
        self.tree, self.linear, self.search, self.tfidf, self.store = tree, linear, search, tfidf, store
        self.trees, self.ensemble, self.normalize = trees, ensemble, normalize
        self.seed, self.threads = seed, threads

    @classmethod
    def defaults(cls) -> ModelConfig:
        """The recipe's settings before anything is changed."""
        return update(ModelConfig(recipe=cls.recipe), cls.preset)

    @property
    def config(self) -> ModelConfig:
        """The settings in force: defaults, preset, then what was passed."""
        given = {name: value for name in sklearn.SETTINGS if (value := getattr(self, name)) is not None}
        return update(self.defaults(), given)

    # Training

    def fit(
        self,
        X: Any,
        Y: Any,
        *,
        tree: LabelTree | None = None,
        label_names: Labels | list[str] | None = None,
        progress: Progress = silent,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Train.

        Parameters
        ----------
        X
            Texts (a list of str), or feature rows (any scipy sparse matrix, or a dense array).
        Y
            A list of labels per row, or a matrix with one column per label.
        tree
            Your own hierarchy; the recipe clusters the labels without one.
        label_names
            Names of Y's columns.
        progress
            Called as ``progress(stage, done, total)``.
        checkpoint
            A folder for finished stages: the same call after an interruption goes on where it stopped.
        """
        config = self.config
        threads = n_threads(config.threads)
        self.y_kind_ = sklearn.kind_of(Y)
        targets, labels = as_targets(sklearn.as_names(Y, self.y_kind_), label_names)
        features = self._fit_features(X, config, progress)
        check_rows_match(features, targets)
        _check_trainable(features, targets)
        self.labels_, self.n_features_in_ = labels, features.shape[1]
        self.classes_ = sklearn.classes_of(Y, self.y_kind_, labels)
        saved = None
        if checkpoint is not None:
            key = store.fingerprint(
                to_dict(config), features.indptr, features.indices, features.data, targets.indptr, targets.indices
            )
            saved = store.Checkpoint(checkpoint, key)
        self.heads_ = [
            self._fit_tree(features, targets, tree, number, config, threads, progress, saved)
            for number in range(config.trees)
        ]
        if saved is not None:
            saved.clear()
        return self

    def _fit_tree(
        self,
        features: sp.csr_matrix,
        targets: sp.csr_matrix,
        given: LabelTree | None,
        number: int,
        config: ModelConfig,
        threads: int,
        progress: Progress,
        saved: store.Checkpoint | None,
    ) -> LinearTree:
        seed = config.seed + _SEED_STEP * number
        stages = None if saved is None else store.Checkpoint(os.path.join(saved.folder, f"tree-{number}"), saved.key)
        named = (lambda stage, done, total: progress(f"tree {number + 1}: {stage}", done, total)) if config.trees > 1 else progress
        tree = given or self._build_tree(features, targets, config, seed, threads, named)
        if tree.n_labels != targets.shape[1]:
            raise BadInput(f"the tree has {tree.n_labels} labels but Y has {targets.shape[1]} columns; they must agree")
        rows = Rows.of(features)
        levels = train(
            rows, targets, tree, config.linear, config.search,
            seed=seed, threads=threads, progress=named, checkpoint=stages,
        )  # fmt: skip
        head = LinearTree.pack(levels, tree, rows.n_features, config.search, weights=config.store.weights)
        return head

    def _build_tree(
        self, features: sp.csr_matrix, targets: sp.csr_matrix, config: ModelConfig, seed: int, threads: int,
        progress: Progress,
    ) -> LabelTree:  # fmt: skip
        if config.tree.kind == "none":
            return LabelTree.flat(targets.shape[1])
        vectors = None
        if config.tree.vectors in ("pifa", "both"):
            vectors = pifa(features, targets, keep=config.tree.max_features, threads=threads)
        if config.tree.vectors in ("names", "both"):
            by_name = self._name_vectors()
            vectors = by_name if vectors is None else both(vectors, by_name)
        return build(vectors, config.tree, seed=seed, threads=threads, progress=progress)

    def _name_vectors(self) -> sp.csr_matrix:
        if self.tfidf_ is None or self.labels_.is_numbered:
            raise BadConfig("tree.vectors needs texts and label names; use pifa, or fit on texts with named labels")
        return self.tfidf_.transform(self.labels_.names())

    def _fit_features(self, X: Any, config: ModelConfig, progress: Progress) -> sp.csr_matrix:
        if sklearn.is_texts(X):
            self.tfidf_: Tfidf | None = Tfidf(config.tfidf, threads=config.threads)
            return self.tfidf_.fit_transform(X, progress=progress)
        self.tfidf_ = None
        features = as_csr(X)
        return normalize_rows(features) if config.normalize else features

    # Prediction

    def topk(
        self, X: Any, k: int = 10, *, beam: int | None = None, allowed: Any = None, threads: int | None = None
    ) -> TopK:
        """Return the k best labels of each row.

        Parameters
        ----------
        X
            Texts or feature rows, as in ``fit``.
        k
            How many labels; with fewer labels than that, rows end in −1.
        beam
            Nodes kept per level, instead of ``search.beam``; wider is slower and more exact.
        allowed
            The only labels that may be predicted, by name, key or column number.
        threads
            Threads to use, instead of the model's.
        """
        self._check_fitted()
        check_k(k)
        if beam is not None and beam < 1:
            raise BadInput(f"beam must be at least 1, but is {beam}")
        rows = self._rows(X)
        workers = n_threads(self.config.threads if threads is None else threads)
        wanted = None if allowed is None else self._label_ids(allowed)
        tops = [self._topk_of(head, rows, k, beam, wanted, workers) for head in self.heads_]
        names = self.labels_names_
        if len(tops) == 1:
            return TopK(tops[0].labels, tops[0].scores, names)
        merged = merge(tops, self.config.ensemble, k)
        return TopK(merged.labels, merged.scores, names)

    def _topk_of(
        self, head: LinearTree, rows: Rows, k: int, beam: int | None, wanted: np.ndarray | None, threads: int
    ) -> TopK:
        flags = None if wanted is None else head.tree.allowed_nodes(wanted)
        top = head.topk(rows, min(k, head.tree.n_labels), beam=beam, allowed=flags, threads=threads)
        labels = np.where(top.labels >= 0, head.tree.order[top.labels], -1)
        missing = k - top.k
        if missing:
            labels = np.pad(labels, ((0, 0), (0, missing)), constant_values=-1)
            return TopK(labels, np.pad(top.scores, ((0, 0), (0, missing))))
        return TopK(labels, top.scores)

    def score_labels(self, X: Any, pairs: Any, *, threads: int | None = None) -> sp.csr_matrix:
        """Score selected labels: ``pairs`` is a sparse matrix whose entries say which labels of which rows.

        The result has the same pattern; the scores of several trees are averaged.
        """
        self._check_fitted()
        rows = self._rows(X)
        wanted = as_csr(pairs, "pairs", n_features=len(self.labels_))
        check_rows_match(rows.indptr[1:], wanted, "X", "pairs")
        workers = n_threads(self.config.threads if threads is None else threads)
        parts = [head.score_labels(rows, wanted, threads=workers) for head in self.heads_]
        scores = parts[0]
        scores.data = np.mean([part.data for part in parts], axis=0, dtype=np.float32)
        return scores

    def predict(self, X: Any) -> Any:
        """Return the labels whose score reaches ``search.threshold``, in the form Y had in ``fit``.

        A model fitted on one label per row predicts the best one.
        """
        self._check_fitted()
        if self.y_kind_ == "single":
            return self.classes_[self.topk(X, 1).labels[:, 0]]
        top = self.topk(X, min(len(self.labels_), 100))
        return sklearn.above(top, self.config.search.threshold, self.y_kind_, self.labels_)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores of all labels as a dense array: for few labels only, as scikit-learn's tools want it."""
        self._check_fitted()
        n_labels = len(self.labels_)
        top = self.topk(X, n_labels, beam=n_labels)
        return np.asarray(top.to_csr(n_labels).todense())

    def score(self, X: Any, Y: Any) -> float:
        """Return the share of rows whose best label is right (P@1 / 100; accuracy for one label per row)."""
        self._check_fitted()
        if self.y_kind_ == "single":
            return float(np.mean(self.predict(X) == np.asarray(Y)))
        return self.evaluate(X, Y, ks=(1,))["P@1"] / 100.0

    def evaluate(
        self, X: Any, Y: Any, ks: tuple[int, ...] = (1, 3, 5), *,
        inverse_propensity: np.ndarray | None = None, threshold: float | None = None,
    ) -> dict[str, float]:  # fmt: skip
        """Return P@k, nDCG@k and the other figures of ``umpteen.metrics`` as percentages."""
        top = self.topk(X, max(ks))
        targets = self._targets(Y)
        return evaluate(top, targets, ks=ks, inverse_propensity=inverse_propensity, threshold=threshold)

    def estimate(self, X: Any, Y: Any) -> Estimate:
        """Say what training would take: memory and time, before it starts."""
        config = self.config
        return Estimate.of(X, as_targets(sklearn.as_names(Y, sklearn.kind_of(Y)))[0], config)

    # Storage

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a folder, atomically; an older model there is replaced."""
        self._check_fitted()
        arrays = {f"tree-{i}": _head_arrays(head) for i, head in enumerate(self.heads_)}
        if self.tfidf_ is not None:
            arrays["tfidf"] = self.tfidf_.arrays()
        labels, extra = None, {}
        if not self.labels_.is_numbered:
            labels = self.labels_.names()
            if self.labels_.keys() != labels:
                extra["keys.txt"] = store.format_labels(self.labels_.keys())
        config = self.config
        store.write(
            path,
            config={
                "recipe": self.recipe,
                "settings": to_dict(config),
                "meta": {
                    "n_labels": len(self.labels_),
                    "n_features": self.n_features_in_,
                    "trees": len(self.heads_),
                    "y_kind": self.y_kind_,
                    "classes": sklearn.classes_to_json(self.classes_),
                },
            },
            arrays=arrays,
            labels=labels,
            extra=extra,
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, mmap: bool = True) -> Self:
        """Open a saved model; with ``mmap`` weights stay on disk until they are used."""
        stored = store.read(path, mmap=mmap)
        if stored.config.get("recipe") != cls.recipe:
            raise BadModelFile(f"'{path}' holds a {stored.config.get('recipe')} model; open it with umpteen.load")
        return cls._from_stored(stored)

    @classmethod
    def _from_stored(cls, stored: store.Stored) -> Self:
        try:
            config = from_dict(ModelConfig, stored.config["settings"])
            meta = stored.config["meta"]
            model = cls(**{name: getattr(config, name) for name in sklearn.SETTINGS})
            model.n_features_in_, model.y_kind_ = int(meta["n_features"]), meta["y_kind"]
            model.heads_ = [
                _head_from(stored.arrays(f"tree-{i}"), model.n_features_in_, config) for i in range(int(meta["trees"]))
            ]
            model.tfidf_ = None
            if "tfidf" in stored.stems:
                model.tfidf_ = Tfidf.from_arrays(config.tfidf, stored.arrays("tfidf"), threads=config.threads)
            model.labels_ = _labels_from(stored, int(meta["n_labels"]))
            model.classes_ = sklearn.classes_from_json(meta["classes"])
        except (KeyError, TypeError, BadConfig, BadInput, IndexError) as error:
            raise BadModelFile(f"'{stored.path}' is not a complete umpteen model ({error}); save it again") from error
        model.size_on_disk_ = stored.size
        return model

    def describe(self) -> dict[str, Any]:
        """Summarise the model in plain values."""
        self._check_fitted()
        head = self.heads_[0]
        return {
            "recipe": self.recipe,
            "paper": self.paper,
            "settings": difference(self.config, ModelConfig(recipe=self.recipe)),
            "labels": len(self.labels_),
            "features": self.n_features_in_,
            "input": "texts" if self.tfidf_ is not None else "feature rows",
            "trees": len(self.heads_),
            "levels": list(head.tree.sizes),
            "weights": sum(head.n_weights for head in self.heads_),
            "bytes": sum(array.nbytes for head in self.heads_ for array in head.arrays.values()),
        }

    # Inputs

    @property
    def labels_names_(self) -> list[str] | None:
        """Names of the labels, or None if they are numbers."""
        if self.labels_.is_numbered:
            return None
        if not hasattr(self, "_names"):
            self._names = self.labels_.names()
        return self._names

    def _rows(self, X: Any) -> Rows:
        if sklearn.is_texts(X):
            if self.tfidf_ is None:
                raise BadInput("this model was trained on feature rows, so it cannot read texts; pass a matrix")
            if len(X) == 1:
                indices, values = self.tfidf_.transform_one(X[0])
                return Rows(np.array([0, len(indices)]), indices, values, self.n_features_in_, _NO_DENSE)
            return Rows.of(self.tfidf_.transform(X))
        if self.tfidf_ is not None and not sp.issparse(X) and not isinstance(X, np.ndarray):
            raise BadInput("this model was trained on texts; pass a list of str")
        features = as_csr(X)
        sklearn.check_n_features(self, features.shape[1])
        if self.tfidf_ is None and self.config.normalize:
            features = normalize_rows(features)
        return Rows.of(features)

    def _targets(self, Y: Any) -> sp.csr_matrix:
        """Encode true labels; ones the model does not know get columns of their own, so that they count."""
        if sp.issparse(Y) or isinstance(Y, np.ndarray):
            return as_targets(Y)[0]
        return self.labels_.copy().encode(Y, unknown="add")

    def _label_ids(self, labels: Any) -> np.ndarray:
        """Column numbers of the labels named in ``allowed``."""
        items = list(labels)
        if not items:
            raise BadInput("allowed is empty, so nothing could be predicted; name at least one label")
        if all(isinstance(item, (int, np.integer)) for item in items):
            ids = np.array(items, np.int64)
            if ids.min() < 0 or ids.max() >= len(self.labels_):
                raise BadInput(f"allowed label numbers must lie in 0..{len(self.labels_) - 1}, but reach {ids.max()}")
            return ids
        return self.labels_.encode([items]).indices

    def _check_fitted(self) -> None:
        if not hasattr(self, "heads_"):
            raise NotFitted(f"this {type(self).__name__} is not fitted yet; call fit first")


_NO_DENSE = np.zeros((1, 0), np.float32)


def _check_trainable(features: sp.csr_matrix, targets: sp.csr_matrix) -> None:
    if features.shape[0] == 0:
        raise BadInput("there is nothing to train on: X has 0 samples; pass at least one row")
    if features.shape[1] == 0:
        raise BadInput(f"X has 0 feature(s) (shape={features.shape}) while a minimum of 1 is required.")
    if targets.shape[1] == 0 or targets.nnz == 0:
        raise BadInput("no row has a label, so there is nothing to learn; check that labels were read")


def _head_arrays(head: LinearTree) -> dict[str, np.ndarray]:
    starts = {f"starts-{level}": start for level, start in enumerate(head.tree.starts)}
    return {**head.arrays, **starts, "order": head.tree.order}


def _head_from(arrays: Mapping[str, np.ndarray], n_features: int, config: ModelConfig) -> LinearTree:
    n_levels = sum(name.startswith("starts-") for name in arrays)
    tree = LabelTree(np.asarray(arrays["order"]), tuple(np.asarray(arrays[f"starts-{i}"]) for i in range(n_levels)))
    return LinearTree({name: arrays[name] for name in LinearTree.KERNEL}, tree, n_features, config.search)


def _labels_from(stored: store.Stored, n_labels: int) -> Labels:
    if stored.labels is None:
        return Labels.numbered(n_labels)
    keys = None
    if "keys.txt" in stored.extra:
        keys = store.parse_labels(stored.content("keys.txt"), stored.path)
    return Labels(stored.labels, keys)
