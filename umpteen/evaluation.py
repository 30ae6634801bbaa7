"""Evaluate a model on a dataset: metrics, prediction time, and the share of labels not seen in training."""

import os
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from umpteen.data import Dataset, read
from umpteen.engine import Progress, silent
from umpteen.errors import BadInput
from umpteen.metrics import Metrics, depth, inverse_propensity_of_counts

_BLOCK = 4096  # rows predicted at a time


class Evaluation(NamedTuple):
    """Result of ``evaluate_model``.

    ``metrics`` are percentages by name, ``seconds`` is the time of prediction. ``unseen_labels`` is the percentage of
    the true labels that no training row had. ``shortlist_recall`` is, for a network with several levels, the percentage
    of true nodes that each level below the first scores; empty for other models.
    """

    metrics: dict[str, float]
    n_rows: int
    seconds: float
    unseen_labels: float
    shortlist_recall: list[float]


def evaluate_model(
    model: Any,
    dataset: Dataset,
    ks: Sequence[int] = (1, 3, 5),
    *,
    propensity: tuple[float, float] | None = None,
    threshold: float | None = None,
    threads: int | None = None,
    progress: Progress = silent,
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
        Adds micro-F1 and macro-F1 of the labels that score at least this much.
    threads
        Threads to use, instead of the model's.
    progress
        Called as ``progress(stage, done, total)``.

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
    X = _inputs(model, dataset)
    Y = dataset.align(model.labels_).Y
    weights = None if propensity is None else label_weights(model, Y.shape[1], *propensity)
    metrics = Metrics(ks, inverse_propensity=weights, threshold=threshold)
    seconds = _add_blocks(metrics, model, X, Y, depth(ks, threshold, len(model.labels_)), threads, progress)
    recall = []
    if hasattr(model, "shortlist_recall"):
        recall = model.shortlist_recall(X, Y[:, : len(model.labels_)], threads=threads, progress=progress)
    return Evaluation(metrics.result(), len(dataset), seconds, unseen_labels(model, Y), recall)


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
    targets = model.targets_
    if targets.counts is None:
        raise BadInput("the model was saved without counts of its labels, which propensities need; train it again")
    counts = np.zeros(n_labels, np.int64)
    counts[: len(targets.counts)] = targets.counts
    return inverse_propensity_of_counts(counts, targets.n_rows, A, B)


def unseen_labels(model: Any, Y: sp.csr_matrix) -> float:
    """Return the percentage of the labels in Y that no training row had.

    The first columns of Y are those of the model. In a model without counts all labels count as seen.
    """
    seen = np.zeros(Y.shape[1], bool)
    counts = model.targets_.counts
    seen[: len(model.labels_)] = True if counts is None else counts > 0
    return 100.0 * float(np.mean(~seen[Y.indices])) if Y.nnz else 0.0


def _inputs(model: Any, dataset: Dataset) -> Any:
    """Return the texts or the feature rows of a dataset, according to the model."""
    name = dataset.name or "the dataset"
    X = dataset.texts if model.takes_texts else dataset.X
    if X is None:
        expected, found = ("texts", "feature rows") if model.takes_texts else ("feature rows", "texts")
        raise BadInput(f"the model was trained on {expected}, but {name} holds {found}; pass data of its kind")
    if dataset.Y is None or len(dataset) == 0:
        raise BadInput(f"{name} has no labelled rows to evaluate on")
    return X


def _add_blocks(
    metrics: Metrics, model: Any, X: Any, Y: sp.csr_matrix, k: int, threads: int | None, progress: Progress
) -> float:
    """Predict block by block and add each to the metrics; return the seconds spent on prediction."""
    n_rows, seconds = Y.shape[0], 0.0
    model.topk(X[:2], k, threads=threads)  # loading compiled kernels is not timed
    progress("predict", 0, n_rows)
    for start in range(0, n_rows, _BLOCK):
        stop = min(start + _BLOCK, n_rows)
        begun = time.perf_counter()
        top = model.topk(X[start:stop], k, threads=threads)
        seconds += time.perf_counter() - begun
        metrics.add(top, Y[start:stop])
        progress("predict", stop, n_rows)
    return seconds
