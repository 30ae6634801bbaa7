"""What every recipe can do: fit, topk, predict, score, save, load.

A recipe is a class with a name, a paper and a preset (its differences from the default settings). This file
connects features, trees and the store, and has no algorithm of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from umpteen import store
from umpteen.config import ModelConfig, difference, update
from umpteen.data.columns import readable
from umpteen.data.labels import Labels
from umpteen.data.rows import Rows
from umpteen.data.sparse import as_csr, check_rows_match, normalize_rows
from umpteen.data.targets import is_texts, read_targets
from umpteen.data.tfidf import Tfidf
from umpteen.engine import Callback, Engine, History, Progress, Record, check_callbacks, n_threads, silent
from umpteen.errors import BadInput
from umpteen.kernels import ahead
from umpteen.linear import LinearTree
from umpteen.linear.trace import trace_beam
from umpteen.models import folder
from umpteen.models.ahead import PREDICT
from umpteen.models.ensemble_rules import tiers
from umpteen.models.estimate import Estimate
from umpteen.models.examples import Examples
from umpteen.models.explain import MARGINS, FeatureNames, Findings, explain, explain_trees
from umpteen.models.explanation import Explanation
from umpteen.models.predictor import Predictor
from umpteen.models.ranker import Training
from umpteen.models.sklearn import Contract
from umpteen.models.training_inputs import Inputs, begun, check_names, fit_rows, name_vectors
from umpteen.models.tree_search import score_by_trees, search_tree, search_trees
from umpteen.shortlist import TopK, check_count, check_k
from umpteen.tree import LabelTree, check_given
from umpteen.tree.trace import Kept


class Model(Contract, Predictor):
    """Base of the recipes.

    Parameters
    ----------
    tree, linear, search, tfidf, store
        Settings by group: a dict with what differs from the recipe's preset, or a whole settings object.
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
    config_class: ClassVar[type[ModelConfig]] = ModelConfig
    seed: int
    threads: int
    history_: list[Record]

    @classmethod
    def defaults(cls) -> ModelConfig:
        """The recipe's settings before anything is changed."""
        return update(cls.config_class(recipe=cls.recipe), cls.preset)

    @classmethod
    def from_config(cls, config: ModelConfig) -> Self:
        """Make an untrained model from whole settings."""
        return cls(**{name: getattr(config, name) for name in cls._parameters()})

    @property
    def config(self) -> ModelConfig:
        """The settings that ``fit`` would use: defaults, preset, then what was passed.

        ``config_`` holds those of the last ``fit``, with changes since then that prediction alone reads.
        """
        given = {name: value for name in self._parameters() if (value := getattr(self, name)) is not None}
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
        callbacks: Iterable[Callback] = (),
        memory: str | int | None = None,
        engine: str | Engine | None = None,
    ) -> Self:
        """Train.

        A model keeps what it had until the new training is complete.

        Parameters
        ----------
        X
            Texts (a list of str), or feature rows (any scipy sparse matrix, or a dense array).
        Y
            A list of labels per row, a matrix with one column per label, or one label per row.
        tree
            Your own hierarchy; the recipe clusters the labels without one.
        label_names
            Names of Y's columns, or the labels that lists may hold.
        progress
            Called as ``progress(stage, done, total)``.
        checkpoint
            A folder for finished stages: the same call after an interruption goes on where it stopped. The
            stages are kept until ``save`` has written the model. Trainings may share it.
        callbacks
            Functions that are called with every record of the training, a dict: loss and learning rate about every 50
            steps, precisions on held-out texts after every epoch, nodes and seconds of every level of linear
            classifiers. ``history_`` has all records afterwards. After an interruption, callbacks get the records of
            what was finished before again.
        memory
            A bound of the resident memory, such as ``"8GB"``: rows, targets and weights are then in files of the
            checkpoint, or of a temporary folder. The model is the same.
        engine
            What runs the tasks of the linear classifiers: ``"local"`` (this process), ``"processes"``, or an engine.
        """
        calls, given = check_callbacks(callbacks), {"checkpoint": checkpoint, "memory": memory, "engine": engine}
        with begun([self.config], X, Y, label_names, self._n_held_out, **given) as data:
            self._learn(data, tree, progress, calls)
        self._calibrate_on(data.held_out)
        self._checkpoint = data.run
        return self

    def _n_held_out(self, matrix: sp.csr_matrix) -> int:
        """Return how many training rows are held out to calibrate the model."""
        return self.config.calibration.count(matrix.shape[0])

    def _learn(self, data: Inputs, tree: LabelTree | None, progress: Progress, callbacks: Sequence[Callback]) -> None:
        """Train, and become the trained model."""
        history = History(callbacks)
        parts = self._trained(data, tree, progress, history)
        if parts is not None:
            self._take(parts._replace(history=history.records))
            self._keep_examples(data.X, data.Y)

    def _trained(
        self, data: Inputs, tree: LabelTree | None, progress: Progress, record: Callback
    ) -> folder.Parts | None:
        """Train and return the parts of the model; None where another process has them."""
        config = self.config
        check_given(config.tree, tree, data.Y.shape[1])
        check_names(data.targets, config, has_words=is_texts(data.X))
        tfidf, rows = fit_rows(data.X, data.Y, config, progress, data.run)
        by_name = name_vectors(tfidf, data.targets, config)
        heads, linear = Training(rows, data.Y, config, tree, by_name, progress, data.run, record).heads()
        return folder.Parts(replace(config, linear=linear), data.targets, tfidf, rows.n_features, heads, None)

    def estimate(self, X: Any, Y: Any) -> Estimate:
        """Say what training would take: memory and time, before it starts."""
        return Estimate.of(readable(X), read_targets(Y)[0], self.config)

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
            Nodes kept above the labels, instead of ``search.beam``; wider is slower and more exact.
        allowed
            The only labels that may be predicted, by name, key or column number.
        threads
            Threads to use, instead of the model's.
        """
        self._check_fitted()
        check_k(k)
        if beam is not None:
            check_count(beam, "beam")
        workers, wanted = self._workers(threads), None
        rows = self._rows(X, workers)
        if allowed is not None:
            wanted = np.unique(self.targets_.ids(allowed))
        top = self._ranked(rows, k, beam, wanted, workers)
        top.label_names = self.targets_.names
        return self._with_probabilities(top)

    @property
    def takes_texts(self) -> bool:
        """Whether the model was trained on texts; otherwise it takes feature rows."""
        self._check_fitted()
        return self.tfidf_ is not None

    @property
    def _given_threshold(self) -> float | None:
        return self.config_.search.threshold

    def _ranked(self, rows: Rows, k: int, beam: int | None, wanted: np.ndarray | None, threads: int) -> TopK:
        """Search the trees and merge what they find."""
        return search_trees(self.heads_, rows, k, self.config_.ensemble, threads, beam, wanted)

    def _proposals(
        self, rows: Rows, depth: int, beam: int | None, wanted: np.ndarray | None, threads: int
    ) -> list[TopK]:
        """Let every tree propose so many labels."""
        return [search_tree(head, rows, depth, beam, wanted, threads) for head in self.heads_]

    def score_labels(self, X: Any, pairs: Any, *, threads: int | None = None) -> sp.csr_matrix:
        """Score selected labels: ``pairs`` is a sparse matrix whose entries say which labels of which rows.

        The result has the same pattern; the scores of several trees are averaged.
        """
        self._check_fitted()
        workers = self._workers(threads)
        rows, wanted = self._rows(X, workers), as_csr(pairs, "pairs")
        if wanted.shape[1] != len(self.labels_):
            raise BadInput(
                f"pairs has {wanted.shape[1]} columns but the model has {len(self.labels_)} labels; "
                "pass one column per label"
            )
        check_rows_match(rows, wanted, "X", "pairs")
        return self._scored(rows, wanted, workers)

    def _scored(self, rows: Rows, wanted: sp.csr_matrix, threads: int) -> sp.csr_matrix:
        return score_by_trees(self.heads_, rows, wanted, threads)

    def explain(
        self, text: Any, label: Any = None, k: int = 5, *, max_words: int = 200, threads: int | None = None
    ) -> Explanation:
        """Say why a label has its score for a text; see ``Predictor.explain``."""
        self._check_fitted()
        return explain(self, text, label, k, max_words, threads)

    @property
    def _word_scale(self) -> str:
        """What contributions of words are: parts of margins, or differences of what ``_measured`` returns."""
        return MARGINS

    def _findings(self, rows: Rows, label: int, k: int, threads: int) -> Findings:
        """Explain a label of one row by the parts of the model."""
        return explain_trees(self.heads_, rows, label, self._depth(k), FeatureNames(self.tfidf_, rows.n_sparse))

    def _label_trees(self) -> list[LabelTree]:
        """Return the label trees, those of a ranker first and that of a network last."""
        return [head.tree for head in self.heads_]

    def _kept_nodes(self, rows: Any, k: int, threads: int) -> list[list[Kept]]:
        """Return for each of these trees what the search for k labels of one row keeps at each level."""
        return [trace_beam(head, rows, self._depth(k)) for head in self.heads_]

    def _measured(self, rows: Any, wanted: sp.csr_matrix, threads: int) -> np.ndarray:
        """Return the scores, or their log-odds, of the stored entries of ``wanted``, in their order."""
        return self._scored(rows, wanted, threads).data

    def _depth(self, k: int) -> int:
        """Return how many labels a tree proposes if k are wanted."""
        return k if len(self.heads_) == 1 else tiers(k, len(self.labels_))[-1].depth

    # Storage

    def export(self, path: str | os.PathLike[str], *, to: str = "onnx", int8: bool = False) -> None:
        """Export the encoder; recipes without one have nothing to export."""
        check_export(to)
        self._export_encoder(int8=int8)
        self._write(path)

    def _export_encoder(self, *, int8: bool) -> None:
        raise BadInput(f"{self.recipe} has no encoder, so there is nothing to export; its prediction is fast as it is")

    def _run_on(self, backend: str) -> None:
        """Let the encoder run on another backend, if there is an encoder."""

    def _write(self, path: str | os.PathLike[str]) -> None:
        store.write(path, **self._contents())

    def _contents(self) -> dict[str, Any]:
        """Return what ``store.write`` takes."""
        self._check_fitted()
        state = (
            self.config_, self.targets_, self.tfidf_, self.n_features_in_, self.heads_, self.neural_, self.calibration_,
            self.examples_, self.history_,
        )  # fmt: skip
        contents = folder.contents(folder.Parts(*state))
        given = difference(self.config, self.config_)  # what was left open, such as linear.negatives = auto
        contents["config"]["meta"]["given"] = {key: given[key] for key in self._chosen()}
        return contents

    def _chosen(self) -> dict[str, Any]:
        """Return the settings that ``fit`` chose from the data, by dotted key."""
        return {key: value for key, value in difference(self.config_, self.config).items() if key != "threads"}

    @classmethod
    def _from_stored(cls, stored: store.Stored, verify: str = "arrays") -> Self:
        ahead.plan(PREDICT, str(stored.path.absolute()))
        parts = folder.read(stored, cls.config_class, verify=verify)
        model = cls.from_config(folder.read_given(stored, parts.config))
        model._take(parts)
        return model

    @classmethod
    def _open(cls, folder: Path, **options: Any) -> Self:
        """Open a folder: of this recipe, or of any recipe if the class is none."""
        if cls is not Model:
            return super()._open(folder, **options)
        from umpteen.models import load

        return load(folder, **options)  # type: ignore[return-value]

    def describe(self) -> dict[str, Any]:
        """Summarise the model in plain values."""
        self._check_fitted()
        chosen, idle = self._chosen(), self.config_.unused
        settings = {
            key: value
            for key, value in difference(self.config_, self.defaults()).items()
            if key != "threads" and not (key in chosen and key in idle)  # threads are a property of the machine
        }
        return {
            "recipe": self.recipe,
            "paper": self.paper,
            "settings": settings,
            "chosen": {key: value for key, value in chosen.items() if key not in idle},
            "labels": len(self.labels_),
            "features": self.n_features_in_,
            "input": "texts" if self.takes_texts else "feature rows",
            "trees": len(self.heads_),
            "levels": list(self.heads_[0].tree.sizes) if self.heads_ else [],
            "weights": sum(head.n_weights for head in self.heads_),
            "bytes": sum(array.nbytes for head in self.heads_ for array in head.arrays.values()),
            **self._decision(),
        }

    # Fitted state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take up a pickled or copied model as a saved one: kernels are compiled for read-only arrays."""
        self.__dict__.update(state)
        if self.__sklearn_is_fitted__():
            self.heads_ = [LinearTree(h.arrays, h.tree, h.n_features, h.search) for h in self.heads_]
            if self.tfidf_ is not None:
                self.tfidf_ = Tfidf.from_arrays(self.tfidf_.config, self.tfidf_.arrays())

    def _take_up(self, changed: Mapping[str, Any]) -> None:
        """Predict with settings that were changed."""
        self.config_ = update(self.config_, changed)
        search = self.config_.search
        if any(key.startswith("search.") and key != "search.threshold" for key in changed):
            self.heads_ = [LinearTree(h.arrays, h.tree, h.n_features, search) for h in self.heads_]

    def _take(self, parts: folder.Parts) -> None:
        """Become the model that consists of these parts, all at once."""
        (
            self.config_, self.targets_, self.tfidf_, self.n_features_in_, self.heads_, self.neural_, self.calibration_,
            self.examples_, history,
        ) = parts  # fmt: skip
        self.history_ = list(history)

    def _keep_examples(self, X: Any, matrix: sp.csr_matrix) -> None:
        """Keep as many of the training texts as the settings want."""
        examples = Examples.of(X, matrix, self.config_.store.examples)
        self.examples_ = None if examples is None else examples.with_vectors(self._vectors(examples.texts))

    def _vectors(self, texts: list[str]) -> Any:
        """Return vectors of length one (texts, d) by which texts are compared: tf-idf rows, or embeddings."""
        return self.tfidf_.transform(texts)

    @property
    def labels_(self) -> Labels:
        """The label vocabulary: column number to name and key, and back."""
        self._check_fitted()
        return self.targets_.labels

    @property
    def classes_(self) -> np.ndarray:
        """The labels by column, as scikit-learn wants them."""
        self._check_fitted()
        return self.targets_.classes

    def _workers(self, threads: int | None) -> int:
        if threads is None:
            threads = self.config.threads if isinstance(self.threads, str) else self.threads or 0
        if not isinstance(threads, (int, np.integer)) or isinstance(threads, bool) or threads < 0:
            raise BadInput(f"threads must be a whole number, 0 for all cores, but is {threads!r}")
        return n_threads(int(threads))

    def _rows(self, X: Any, threads: int) -> Rows:
        normalize = self.tfidf_ is None and self.config_.normalize
        if (row := Rows.of_one(X, self.n_features_in_, normalize=normalize)) is not None:
            return row
        X = readable(X)
        if is_texts(X):
            if self.tfidf_ is None:
                raise BadInput("this model was trained on feature rows and cannot read texts; pass a matrix")
            if len(X) == 1:
                indices, values = self.tfidf_.transform_one(next(iter(X)))
                return Rows.single(indices, values, self.n_features_in_)
            return Rows.of(self.tfidf_.transform(X, threads=threads))
        if self.tfidf_ is not None and not hasattr(X, "shape"):
            raise BadInput("this model was trained on texts; pass a list of str, or rows of its tf-idf")
        features = as_csr(X)
        self._check_n_features(features.shape[1], self.n_features_in_)
        return Rows.of(normalize_rows(features, threads) if normalize else features)


def check_export(to: str) -> None:
    """Refuse formats that encoders cannot be exported to."""
    if to != "onnx":
        raise BadInput(f"an encoder can be exported to onnx, but not to {to!r:.80}")
