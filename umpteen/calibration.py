"""Probabilities from scores: a monotone map and a threshold, fitted on texts that a model was not trained on.

The map is a logistic regression on a cubic polynomial of the score, made non-decreasing: Platt scaling with a bend. A
few hundred texts are enough for its four parameters, and it changes no ranking.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from umpteen.errors import BadInput
from umpteen.metrics import find_hits
from umpteen.shortlist import TopK
from umpteen.thresholds import LabelThresholds, Pairs, best_threshold, label_thresholds, last_of_equal

DEPTH = 5  # labels of a text that the map is fitted on: those that are shown or predicted
_KNOTS = 64
_MOST_KNOTS = 1_000  # that a stored map may have
_FARTHEST = 1e-7  # from 0 and 1 at which log-odds are cut off
_TINY = 1e-45  # about the smallest float32
_RIDGE = 1e-3
_STEPS, _LONGEST_STEP, _TOLERANCE = 50, 2.0, 1e-8  # of Newton's method


@dataclass(frozen=True)
class Calibration:
    """A monotone map from scores to probabilities, and when a label is predicted.

    Parameters
    ----------
    scores, probabilities
        Points of the map, both non-decreasing; it is linear between them and constant outside.
    threshold
        The probability from which on a label is predicted.
    limit
        The most labels that are predicted for a text; None is no limit.
    labels
        Thresholds of labels that have their own, if any.

    Examples
    --------
    >>> calibration = Calibration(np.array([0.0, 1.0]), np.array([0.25, 0.75]), threshold=0.3)
    >>> calibration(np.array([-1.0, 0.5, 2.0])).tolist()
    [0.25, 0.5, 0.75]
    >>> calibration.score_at(0.5)
    0.5
    """

    scores: np.ndarray
    probabilities: np.ndarray
    threshold: float = 0.5
    limit: int | None = None
    labels: LabelThresholds | None = None

    @classmethod
    def fit(cls, top: TopK, Y: sp.csr_matrix) -> Calibration:
        """Fit the map on the first labels of rankings of texts with the labels ``Y``, and the threshold on all.

        The threshold is the one with the highest micro-F1; labels have their own where that helps.
        """
        near = top.first(DEPTH)
        is_label = near.labels >= 0
        calibration = cls(*_fit_map(near.scores[is_label], find_hits(near.labels, Y)[is_label]))
        return _with_best_f1(calibration, top, Y, None)

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """Return the probabilities of scores, float32."""
        return np.interp(scores, self.scores, self.probabilities).astype(np.float32)

    def score_at(self, probability: float) -> float:
        """Return the lowest score with at least this probability; infinity if there is none."""
        return float(self.scores_at(np.array([probability]))[0])

    def scores_at(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the lowest score with at least each of these probabilities; infinity if there is none.

        Examples
        --------
        >>> Calibration(np.array([0.0, 1.0]), np.array([0.25, 0.75])).scores_at(np.array([0.25, 0.5, 0.8])).tolist()
        [-inf, 0.5, inf]
        """
        at = np.searchsorted(self.probabilities, probabilities, side="left")  # the first point with this probability
        last = len(self.scores) - 1
        low, high = np.clip(at - 1, 0, last), np.clip(at, 0, last)
        p, rise = self.probabilities[low], self.probabilities[high] - self.probabilities[low]
        share = np.divide(probabilities - p, rise, out=np.zeros(len(at)), where=rise > 0)
        between = self.scores[low] + (self.scores[high] - self.scores[low]) * share
        return np.where(at == 0, -np.inf, np.where(at > last, np.inf, between))

    def with_decision(self, threshold: float, limit: int | None, labels: LabelThresholds | None = None) -> Calibration:
        """Return the same map with other thresholds and another limit."""
        return Calibration(self.scores, self.probabilities, float(threshold), limit, labels)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a JSON file; thresholds of labels are kept as arrays beside it."""
        knots = {"scores": self.scores.tolist(), "probabilities": self.probabilities.tolist()}
        return knots | {"threshold": self.threshold, "limit": self.limit}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Calibration:
        """Undo ``to_dict``; raise BadInput for values that are no monotone map."""
        if not isinstance(values, Mapping):
            raise BadInput(f"a calibration must be a table, but is a {type(values).__name__}")
        knots = [_numbers(values, name) for name in ("scores", "probabilities")]
        if len(knots[0]) != len(knots[1]):
            raise BadInput(f"a calibration has {len(knots[0])} scores but {len(knots[1])} probabilities")
        if (knots[1] < 0).any() or (knots[1] > 1).any():
            raise BadInput("the probabilities of a calibration must lie between 0 and 1")
        threshold, limit = values.get("threshold"), values.get("limit")
        if not _is_number(threshold) or not 0 <= threshold <= 1:
            raise BadInput(f"the threshold of a calibration must lie between 0 and 1, but is {str(threshold)[:40]}")
        if limit is not None and (type(limit) is not int or not 1 <= limit < 2**31):
            raise BadInput(f"the limit of a calibration must be a whole number of at least 1, but is {str(limit)[:40]}")
        return cls(*knots, float(threshold), limit)


def tune(calibration: Calibration, top: TopK, Y: sp.csr_matrix, goal: str) -> Calibration:
    """Return the calibration with the threshold, or the limit, that suits a goal best on texts with labels ``Y``.

    Parameters
    ----------
    top
        Rankings of these texts, deep enough to hold all labels that could be predicted.
    goal
        ``f1`` (micro-F1), ``f1@K`` (the same with at most K labels per text), ``precision=P`` (the lowest threshold
        with at least this precision), ``recall=R`` (the highest threshold with at least this recall), or ``labels=N``
        (N labels per text on average). The first two also choose thresholds of single labels where these help.
    """
    name, _, value = goal.partition("=")
    limit = _limit_of(name)
    shallow = top if limit is None else top.first(limit)
    if name == "f1" or limit is not None:
        return _with_best_f1(calibration, shallow, Y, limit)
    _, _, p, is_true = _pairs(calibration, top, Y)
    order = np.argsort(-p, kind="stable")
    found, ends = np.cumsum(is_true[order]), last_of_equal(p[order])
    if name == "precision":
        reached = ends[found[ends] / (ends + 1.0) >= _fraction(goal, value)]
        chosen, most = reached[-1:], f"the highest precision is {_most_precise(found, ends):.3f}"
    elif name == "recall":
        n_true = max(int(Y.nnz), 1)
        chosen = ends[found[ends] / n_true >= _fraction(goal, value)][:1]
        most = f"the highest recall, of all ranked labels, is {found[-1:].sum() / n_true:.3f}"
    elif name == "labels":
        wanted, per_text = _positive(goal, value), (ends + 1.0) / max(len(top), 1)
        chosen = ends[[np.argmin(np.abs(per_text - wanted))]] if wanted <= per_text.max(initial=0.0) else ends[:0]
        most = f"at most {per_text.max(initial=0.0):.0f} labels per text are ranked"
    else:
        raise BadInput(f"the goal must be f1, f1@K, precision=P, recall=R or labels=N, but is {goal!r:.80}")
    if not len(chosen):
        raise BadInput(f"no threshold reaches {goal}; {most}")
    return calibration.with_decision(float(p[order[chosen[0]]]), None)


def _with_best_f1(calibration: Calibration, top: TopK, Y: sp.csr_matrix, limit: int | None) -> Calibration:
    """Return the calibration with the thresholds that have the highest micro-F1."""
    pairs, n_true = _pairs(calibration, top, Y), np.diff(Y.indptr)
    threshold = best_threshold(pairs.p, pairs.is_true, int(n_true.sum()))
    return calibration.with_decision(threshold, limit, label_thresholds(pairs, threshold, n_true))


def _pairs(calibration: Calibration, top: TopK, Y: sp.csr_matrix) -> Pairs:
    """Return the probabilities of all ranked labels, and which are right."""
    is_label = top.labels >= 0
    p, is_true = calibration(top.scores[is_label]).astype(np.float64), find_hits(top.labels, Y)[is_label]
    return Pairs(np.nonzero(is_label)[0], top.labels[is_label], p, is_true)


def _fit_map(scores: np.ndarray, is_true: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return points of a non-decreasing function from scores to probabilities.

    It is a logistic regression on a cubic polynomial of the scores, on the scale on which that is most likely. Below
    the lowest score it falls to a probability of 0 at a score of 0, unless there are negative scores: labels far down a
    ranking have lower scores than those that it is fitted on.
    """
    if not len(scores) or is_true.all() or not is_true.any():
        share = float(is_true.mean()) if len(scores) else 0.0
        return np.array([0.0]), np.array([share])
    scores, y = scores.astype(np.float64), is_true.astype(np.float64)
    points = np.unique(np.quantile(scores, np.linspace(0.0, 1.0, _KNOTS)))
    fits = []
    for scale in SCALES:
        x, at = scale(scores), scale(points)
        mean, deviation = x.mean(), max(x.std(), 1e-12)
        X, grid = _cubic((x - mean) / deviation), _cubic((at - mean) / deviation)
        w = logistic_regression(X, y)
        margin = np.where(y > 0, X @ w, -(X @ w))
        fits.append((-np.logaddexp(0.0, -margin).sum(), sigmoid(grid @ w)))
    p = np.maximum.accumulate(max(fits, key=lambda fit: fit[0])[1])
    if points[0] > 0:
        points, p = np.append(0.0, points), np.append(0.0, p)
    return points, p


def _cubic(x: np.ndarray) -> np.ndarray:
    return np.stack([x, x**2, x**3, np.ones_like(x)], axis=1)


def _log_odds(scores: np.ndarray) -> np.ndarray:
    p = np.clip(scores, _FARTHEST, 1.0 - _FARTHEST)
    return np.log(p) - np.log1p(-p)


def _hinge_margin(scores: np.ndarray) -> np.ndarray:
    """Undo exp(−max(0, 1 − m)³), but for a constant."""
    return -np.cbrt(np.maximum(-np.log(np.maximum(scores, _TINY)), 0.0))


SCALES = (_log_odds, _hinge_margin, lambda scores: scores)  # of scores that are probabilities, hinge scores, or others


def logistic_regression(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the coefficients (columns,) of a logistic regression by Newton's method, with a slight ridge penalty."""
    w, ridge = np.zeros(X.shape[1]), _RIDGE * np.eye(X.shape[1])
    for _ in range(_STEPS):
        p = sigmoid(X @ w)
        gradient = X.T @ (p - y) + ridge @ w
        step = np.linalg.solve((X.T * (p * (1.0 - p))) @ X + ridge, gradient)
        size = np.abs(step).max(initial=0.0)
        w -= step * min(1.0, _LONGEST_STEP / max(size, _TINY))
        if size < _TOLERANCE:
            break
    return w


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(−x)) without overflow."""
    return 0.5 + 0.5 * np.tanh(0.5 * x)


def _numbers(values: Mapping[str, Any], name: str) -> np.ndarray:
    """Return a list of finite, non-decreasing numbers."""
    found = values.get(name)
    if not isinstance(found, list) or not 1 <= len(found) <= _MOST_KNOTS or not all(map(_is_number, found)):
        raise BadInput(f"the {name} of a calibration must be a list of up to {_MOST_KNOTS} numbers")
    numbers = np.array(found, np.float64)
    if not np.isfinite(numbers).all() or (np.diff(numbers) < 0).any():
        raise BadInput(f"the {name} of a calibration must be finite and must not fall")
    return numbers


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _limit_of(name: str) -> int | None:
    """Return K of f1@K."""
    kind, _, depth = name.partition("@")
    if kind != "f1" or not depth:
        return None
    if not depth.isdecimal() or not int(depth):
        raise BadInput(f"f1@K needs a whole number of at least 1, but got {name!r:.80}")
    return int(depth)


def _fraction(goal: str, value: str) -> float:
    found = _positive(goal, value)
    if found > 1:
        raise BadInput(f"{goal!r:.80} must name a fraction of at most 1, such as 0.9")
    return found


def _positive(goal: str, value: str) -> float:
    try:
        found = float(value)
    except ValueError:
        found = float("nan")
    if not found > 0 or found == float("inf"):
        raise BadInput(f"{goal!r:.80} must name a number above 0, such as precision=0.9 or labels=5")
    return found


def _most_precise(found: np.ndarray, ends: np.ndarray) -> float:
    return float((found[ends] / (ends + 1.0)).max(initial=0.0))
