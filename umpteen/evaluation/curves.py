"""Precision-recall curve over thresholds, and plots of it and of reliability tables.

The plots need matplotlib, which is imported on use.
"""

import importlib
import io
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from umpteen.errors import BadInput, MissingExtra
from umpteen.metrics import ABOVE_THRESHOLD, Reliability, find_hits, true_labels
from umpteen.shortlist import TopK
from umpteen.store import atomic_write

FORMATS = (".png", ".svg")
_INCHES = 5.0
_POINTS = 2_000  # of a curve: more cannot be seen and make .svg files large


class PrecisionRecall(NamedTuple):
    """Micro-averaged precision and recall in per cent of the labels that score at least each threshold, descending."""

    thresholds: np.ndarray
    precision: np.ndarray
    recall: np.ndarray


def precision_recall(scores: Any, hits: Any, n_true: int) -> PrecisionRecall:
    """Return precision and recall at every score that occurs.

    Parameters
    ----------
    scores, hits
        Score of each prediction, and whether it is true.
    n_true
        Number of true labels of all texts, predicted or not.

    Examples
    --------
    >>> curve = precision_recall([0.9, 0.5, 0.5, 0.1], [True, True, False, False], n_true=4)
    >>> curve.thresholds.tolist(), curve.precision.round(1).tolist(), curve.recall.tolist()
    ([0.9, 0.5, 0.1], [100.0, 66.7, 50.0], [25.0, 50.0, 50.0])
    """
    scores, hits = np.asarray(scores), np.asarray(hits, dtype=bool)
    order = np.argsort(-scores, kind="stable")
    descending, found = scores[order], np.cumsum(hits[order])
    last = np.flatnonzero(np.append(descending[1:] != descending[:-1], True)[: len(scores)])  # of equal scores
    return PrecisionRecall(descending[last], 100.0 * found[last] / (last + 1), 100.0 * found[last] / max(1, n_true))


class ThresholdCurve:
    """Collect a precision-recall curve of the best labels of all texts, for ``evaluate_model(collectors=[...])``.

    Parameters
    ----------
    depth
        Number of labels per text.
    """

    def __init__(self, depth: int = ABOVE_THRESHOLD):
        self.depth = depth
        self._scores: list[np.ndarray] = []
        self._hits: list[np.ndarray] = []
        self._n_true = 0

    def add(self, top: TopK, Y: Any) -> None:
        """Add a block of predictions and its true labels."""
        truth, top = true_labels(Y, "Y"), top.first(self.depth)
        is_label = top.labels >= 0
        self._scores.append(top.scores[is_label])
        self._hits.append(find_hits(top.labels, truth)[is_label])
        self._n_true += truth.nnz

    def result(self) -> PrecisionRecall:
        """Return the curve of all blocks added so far."""
        if not self._scores:
            raise BadInput("there is nothing to draw: no rows were added; add at least one")
        return precision_recall(np.concatenate(self._scores), np.concatenate(self._hits), self._n_true)


def draw_reliability(tables: dict[str, Reliability], path: str | os.PathLike[str]) -> None:
    """Draw observed frequency against mean probability, a line per table by name, as .png or .svg."""
    figure, axes = _axes("probability", "observed frequency")
    axes.plot([0, 1], [0, 1], color="0.7", linestyle="--", label="perfect")
    for name, table in tables.items():
        filled = table.count > 0
        axes.plot(table.probability[filled], table.frequency[filled], marker="o", label=name)
    _save(figure, axes, path, limit=1.0)


def draw_precision_recall(curves: dict[str, PrecisionRecall], path: str | os.PathLike[str]) -> None:
    """Draw precision against recall over all thresholds, a line per curve by name, as .png or .svg."""
    figure, axes = _axes("recall (%)", "precision (%)")
    for name, curve in curves.items():
        shown = np.unique(np.linspace(0, len(curve.recall) - 1, _POINTS).astype(int)) if len(curve.recall) else []
        axes.plot(curve.recall[shown], curve.precision[shown], label=name)
    _save(figure, axes, path, limit=100.0)


def import_matplotlib() -> Any:
    """Return the module ``matplotlib.figure``; raise MissingExtra unless it is installed."""
    try:
        return importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise MissingExtra("matplotlib", "plot", "drawing a plot") from error


def _axes(x: str, y: str) -> tuple[Any, Any]:
    figure = import_matplotlib().Figure(figsize=(_INCHES, _INCHES), layout="constrained")
    axes = figure.add_subplot(xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    return figure, axes


def _save(figure: Any, axes: Any, path: str | os.PathLike[str], limit: float) -> None:
    axes.set(xlim=(0, limit), ylim=(0, limit * 1.02))
    axes.legend()
    ending = Path(path).suffix.lower()
    if ending not in FORMATS:
        raise BadInput(f"a plot is written as {' or '.join(FORMATS)}, but the file is '{path}'; change its ending")
    content = io.BytesIO()
    figure.savefig(content, format=ending[1:], dpi=150)
    atomic_write(path, content.getvalue())
