"""Evaluate a model on a dataset: metrics, prediction time, and the share of labels not seen in training."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from umpteen.data import Dataset, read
from umpteen.engine import Progress, silent
from umpteen.errors import BadInput
from umpteen.metrics import Metrics, Reliability, depth, inverse_propensity_of_counts
from umpteen.shortlist import TopK

BLOCK = 4096  # rows predicted at a time
_LARGEST = float(np.finfo(np.float32).max)


class Evaluation(NamedTuple):
    """Result of ``evaluate_model``.

    ``metrics`` are percentages by name, ``seconds`` is the time of prediction. ``unseen_labels`` is the percentage of
    the true labels that no training row had. ``shortlist_recall`` is, for a network with several levels, the percentage
    of true nodes that each level below the first scores; empty for other models. ``threshold`` is the score at which F1
    is measured; labels with thresholds of their own, and a limit of labels per text, count as in ``predict`` unless a
    threshold was given. ``reliability`` compares the probabilities of the first labels with frequencies; None without
    probabilities.
    """

    metrics: dict[str, float]
    n_rows: int
    seconds: float
    unseen_labels: float
    shortlist_recall: list[float]
    threshold: float
    reliability: Reliability | None = None


class Collector(Protocol):
    """Whatever is computed from predictions block by block, in the order of the rows."""

    depth: int  # number of labels per text that it needs

    def add(self, top: TopK, Y: sp.csr_matrix) -> None:
        """Add a block of predictions and its true labels."""


def evaluate_model(
    model: Any,
    dataset: Dataset,
    ks: Sequence[int] = (1, 3, 5),
    *,
    propensity: tuple[float, float] | None = None,
    threshold: float | None = None,
    collectors: Sequence[Collector] = (),
    threads: int | None = None,
    progress: Progress = silent,
    predict: Callable[[Any, int], Iterator[TopK]] | None = None,
) -> Evaluation:
    """Predict the rows of a dataset block by block and compare with its labels, as ``umpteen evaluate`` does.

    Labels of the dataset are matched with those of the model by key, else by name. Labels unknown to the model count as
    misses.

    Parameters
    ----------
    model
        A fitted model or ensemble.
    dataset
        Rows of the kind that the model was trained on, with their labels.
    ks
        Depths of the metrics @k.
    propensity
        Constants A and B, see ``umpteen.metrics.PROPENSITY``; adds PSP@k and PSnDCG@k by the label counts of the rows
        that the model was trained on.
    threshold
        micro-F1 and macro-F1 are those of the labels that score at least this much, among the 100 best of a text; by
        default those of the labels that the model's ``predict`` returns.
    collectors
        Objects that are given the predictions and true labels too, such as ``TextResults``, ``BreakdownMetrics`` and
        ``ThresholdCurve``.
    threads
        Threads to use, instead of the model's.
    progress
        Called as ``progress(stage, done, total)``.
    predict
        Called with all rows and a number of labels; yields the predictions of each 4,096 rows, instead of the model.

    Examples
    --------
    >>> from umpteen import Dataset, XRLinear
    >>> from umpteen.data import Labels
    >>> model = XRLinear().fit(["red apple", "green pear"], [["red"], ["green"]])
    >>> labels, Y = Labels.from_lists([["red"], ["blue"]])
    >>> found = evaluate_model(model, Dataset(["a red plum", "a blue plum"], Y=Y, labels=labels), ks=(1,))
    >>> found.metrics["P@1"], found.unseen_labels
    (50.0, 50.0)
    """
    X = labelled_inputs(model, dataset)
    Y = dataset.align(model.labels_).Y
    weights = None if propensity is None else label_weights(model, Y.shape[1], *propensity)
    decision = model.decision() if threshold is None else None
    threshold = finite(model.threshold_) if threshold is None else threshold
    metrics = Metrics(ks, inverse_propensity=weights, threshold=threshold)
    predict = predict or partial(_predict_blocks, model, threads, progress)
    seconds = _add_blocks(metrics, collectors, decision, model, X, Y, threads, predict)
    recall = []
    if hasattr(model, "shortlist_recall"):
        recall = model.shortlist_recall(X, Y[:, : len(model.labels_)], threads=threads, progress=progress)
    figures = metrics.result()
    table = metrics.reliability(max(metrics.ks)) if metrics.has_probabilities else None
    return Evaluation(figures, len(dataset), seconds, unseen_labels(model, Y), recall, threshold, table)


def finite(score: float) -> float:
    """Return a score that can be written as a number, where all labels or none reach the threshold."""
    return min(max(score, -_LARGEST), _LARGEST)


def read_for(model: Any, path: str | os.PathLike[str], split: str = "test", **columns: Any) -> Dataset:
    """Read a split for a model: feature rows of its width, or texts with labels separated as in its training data.

    Takes the columns and the separator of labels in tables like :func:`umpteen.read`.
    """
    if model.takes_texts:
        return read(path, split, labels=model.labels_, **columns)
    return read(path, split, n_features=model.n_features_in_, **columns)


def label_weights(model: Any, n_labels: int, A: float = 0.55, B: float = 1.5) -> np.ndarray:
    """Return the inverse propensities of labels from their counts in the training data of the model.

    Columns beyond those of the model are labels without training rows.
    """
    known = training_counts(model, "propensities")
    counts = np.zeros(n_labels, np.int64)
    counts[: len(known)] = known
    return inverse_propensity_of_counts(counts, model.targets_.n_rows, A, B)


def training_counts(model: Any, purpose: str = "groups of labels") -> np.ndarray:
    """Return how many training rows have each label; raise BadInput if the model does not know."""
    counts = model.targets_.counts
    if counts is None:
        raise BadInput(f"the model was saved without counts of its labels, which {purpose} need; train it again")
    return counts


def unseen_labels(model: Any, Y: sp.csr_matrix) -> float:
    """Return the percentage of the labels in Y that no training row had.

    The first columns of Y are those of the model. In a model without counts all labels count as seen.
    """
    seen = np.zeros(Y.shape[1], bool)
    counts = model.targets_.counts
    seen[: len(model.labels_)] = True if counts is None else counts > 0
    return 100.0 * float(np.mean(~seen[Y.indices])) if Y.nnz else 0.0


def labelled_inputs(model: Any, dataset: Dataset) -> Any:
    """Return the texts or the feature rows of a dataset, according to the model."""
    name = dataset.name or "the dataset"
    X = dataset.texts if model.takes_texts else dataset.X
    if X is None:
        expected, found = ("texts", "feature rows") if model.takes_texts else ("feature rows", "texts")
        raise BadInput(f"the model was trained on {expected}, but {name} holds {found}; pass data of its kind")
    if dataset.Y is None or len(dataset) == 0:
        raise BadInput(f"{name} has no labelled rows to evaluate on")
    return X


def predict_all(model: Any, X: Any, k: int, threads: int | None = None, progress: Progress = silent) -> TopK:
    """Return the k best labels of all rows, predicted block by block."""
    tops = list(_predict_blocks(model, threads, progress, X, k))
    labels, scores = ([getattr(top, name) for top in tops] for name in ("labels", "scores"))
    return TopK(np.concatenate(labels), np.concatenate(scores), tops[0].label_names)


def _add_blocks(
    metrics: Metrics, collectors: Sequence[Collector], decision: Any, model: Any, X: Any, Y: sp.csr_matrix,
    threads: int | None, predict: Callable[[Any, int], Iterator[TopK]],
) -> float:  # fmt: skip
    """Predict block by block and add each to the metrics; return the seconds spent on prediction."""
    n_rows, seconds = Y.shape[0], 0.0
    k = max(*metrics.ks, *(collector.depth for collector in collectors), 1)
    model.topk(X[:2], k, threads=threads)  # loading compiled kernels is not timed
    tops = predict(X, k)
    for start in range(0, n_rows, BLOCK):
        rows = slice(start, min(start + BLOCK, n_rows))
        begun = time.perf_counter()
        top = next(tops)
        seconds += time.perf_counter() - begun
        _add_block(metrics, decision, top, Y[rows], lambda some, n: model.topk(some, n, threads=threads), X[rows])
        for collector in collectors:
            collector.add(top, Y[rows])
    return seconds


def _predict_blocks(model: Any, threads: int | None, progress: Progress, X: Any, k: int) -> Iterator[TopK]:
    n_rows = X.shape[0] if sp.issparse(X) else len(X)
    progress("predict", 0, n_rows)
    for start in range(0, n_rows, BLOCK):
        top = model.topk(X[start : start + BLOCK], k, threads=threads)
        progress("predict", min(start + BLOCK, n_rows), n_rows)
        yield top


def _add_block(
    metrics: Metrics, decision: Any, top: TopK, Y: sp.csr_matrix, topk: Callable[[Any, int], TopK], X: Any
) -> None:
    """Add a block; texts whose last label reaches a threshold are predicted again, with more labels."""
    deepest, lowest = depth(metrics.ks, metrics.threshold, Y.shape[1]), metrics.threshold
    if decision is not None:
        deepest, lowest = min(deepest, max(decision.depth, *metrics.ks)), decision.lowest

    def add(some: TopK, truth: sp.csr_matrix) -> None:
        metrics.add(some, truth, None if decision is None else decision.chosen(some))

    is_cut = (top.labels[:, -1] >= 0) & (top.scores[:, -1] >= np.float32(lowest))
    if top.k >= deepest or not is_cut.any():
        add(top, Y)
        return
    add(top[~is_cut], Y[~is_cut])
    rows = np.flatnonzero(is_cut)
    add(topk(X[rows] if sp.issparse(X) else [X[row] for row in rows], deepest), Y[rows])
