"""Thresholds with the highest micro-F1: one for all labels, and one for each label with enough examples.

A label gets a threshold of its own only if that is expected to help: the gain on the given texts must exceed what
chance alone would give, and cross-validation must show that the thresholds of all labels together help on other texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from umpteen.errors import BadInput

FEWEST_EXAMPLES = 10  # right answers among the ranked labels, from which on a label may have its own threshold
_FOLDS = 5
_SEED = 0  # of the division into folds


class Pairs(NamedTuple):
    """Ranked labels of texts, an entry each: text, label, probability, whether it is right."""

    texts: np.ndarray
    labels: np.ndarray
    p: np.ndarray
    is_true: np.ndarray

    def take(self, which: np.ndarray) -> Pairs:
        """Return some of the entries."""
        return Pairs(*(values[which] for values in self))


class LabelThresholds(NamedTuple):
    """Labels with a threshold of their own, ascending, and the probabilities from which on they are predicted."""

    labels: np.ndarray
    probabilities: np.ndarray

    def of(self, labels: np.ndarray, default: float | np.ndarray, values: np.ndarray | None = None) -> np.ndarray:
        """Return the threshold of each label, ``default`` for labels without one.

        ``values`` are returned in place of the probabilities, if given.

        Examples
        --------
        >>> thresholds = LabelThresholds(np.array([2, 5]), np.array([0.25, 0.5]))
        >>> thresholds.of(np.array([[5, 3], [2, -1]]), 0.4).tolist()
        [[0.5, 0.4], [0.25, 0.4]]
        """
        place = np.minimum(np.searchsorted(self.labels, labels), len(self.labels) - 1)
        own = self.probabilities if values is None else values
        return np.where(self.labels[place] == labels, own[place], default)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of a model folder."""
        return {"labels": self.labels.astype(np.int32), "probabilities": self.probabilities.astype(np.float64)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], n_labels: int) -> LabelThresholds:
        """Undo ``arrays``; raise BadInput unless they are probabilities of different labels in ascending order."""
        labels, p = arrays["labels"], arrays["probabilities"]
        if labels.dtype != np.int32 or p.dtype != np.float64 or labels.ndim != 1 or labels.shape != p.shape:
            raise BadInput("thresholds of labels must be as many probabilities as labels")
        if not len(labels) or labels[0] < 0 or labels[-1] >= n_labels or (np.diff(labels) <= 0).any():
            raise BadInput(f"thresholds must be those of different labels, 0 to {n_labels - 1}, in ascending order")
        if not ((p >= 0) & (p <= 1)).all():
            raise BadInput("thresholds of labels must lie between 0 and 1")
        return cls(labels, p)


def best_threshold(p: np.ndarray, is_true: np.ndarray, n_true: int) -> float:
    """Return the probability with the highest micro-F1 of all labels that reach it; ``n_true`` are to be found."""
    if not len(p):
        return 0.5
    order = np.argsort(-p, kind="stable")
    ends = last_of_equal(p[order])
    f1 = 2.0 * np.cumsum(is_true[order])[ends] / (ends + 1.0 + max(n_true, 1))
    return float(p[order[ends[np.argmax(f1)]]])


def last_of_equal(descending: np.ndarray) -> np.ndarray:
    """Return the last place of each run of equal values: a threshold cannot separate them."""
    return np.flatnonzero(np.append(descending[1:] != descending[:-1], True))


def label_thresholds(pairs: Pairs, threshold: float, n_true: np.ndarray) -> LabelThresholds | None:
    """Return thresholds for labels with enough examples; None if they do not help on other texts.

    Whether they help is found by cross-validation: the mean difference of micro-F1 must exceed its standard error.

    Parameters
    ----------
    pairs
        Ranked labels of texts.
    threshold
        The threshold of all other labels.
    n_true
        Number of labels of each text, ranked or not.
    """
    found = _by_label(pairs, threshold, int(n_true.sum()))
    if found is None or len(n_true) < _FOLDS:
        return None
    folds = np.random.default_rng(_SEED).permutation(len(n_true)) % _FOLDS
    gains = [_gain(pairs, folds[pairs.texts] == fold, n_true, folds == fold) for fold in range(_FOLDS)]
    helps = np.mean(gains) > np.std(gains, ddof=1) / np.sqrt(_FOLDS)
    return found if helps else None


def _gain(pairs: Pairs, is_out: np.ndarray, n_true: np.ndarray, texts_out: np.ndarray) -> float:
    """Return by how much thresholds by label raise micro-F1 on the texts of a fold, chosen on those of the others."""
    kept, out = pairs.take(~is_out), pairs.take(is_out)
    n_kept, n_out = int(n_true[~texts_out].sum()), int(n_true[texts_out].sum())
    threshold = best_threshold(kept.p, kept.is_true, n_kept)
    found = _by_label(kept, threshold, n_kept)
    if found is None:
        return 0.0
    by_label = out.p >= found.of(out.labels, threshold)
    return _micro_f1(out, by_label, n_out) - _micro_f1(out, out.p >= threshold, n_out)


def _micro_f1(pairs: Pairs, is_chosen: np.ndarray, n_true: int) -> float:
    return 2.0 * float(pairs.is_true[is_chosen].sum()) / max(int(is_chosen.sum()) + n_true, 1)


def _by_label(pairs: Pairs, threshold: float, n_true: int) -> LabelThresholds | None:
    """Return the thresholds of labels that gain more by their own than by the common one."""
    value = _micro_f1(pairs, pairs.p >= threshold, n_true)
    n_right = np.bincount(pairs.labels[pairs.is_true], minlength=int(pairs.labels.max(initial=-1)) + 1)
    pairs = pairs.take(n_right[pairs.labels] >= FEWEST_EXAMPLES)
    if not len(pairs.labels):
        return None
    _, labels, p, is_true = pairs.take(np.lexsort((-pairs.p, pairs.labels)))
    starts = np.flatnonzero(np.append(True, labels[1:] != labels[:-1]))
    ends = np.append(starts[1:], len(labels))
    n_common = np.add.reduceat((p >= threshold).astype(np.int64), starts)
    places, helps = _best_cuts(p, 2.0 * is_true - value, starts, ends, n_common)
    if not helps.any():
        return None
    return LabelThresholds(labels[starts[helps]].astype(np.int32), _between(p, places[helps], ends[helps]))


def _best_cuts(
    p: np.ndarray, worth: np.ndarray, starts: np.ndarray, ends: np.ndarray, n_common: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the last answer that each label should give, and whether that is better than its first ``n_common``.

    Micro-F1 is 2 tp / (predicted + true). If it has the value F, another right answer is worth 2 − F and another wrong
    one −F; where the sum over the answers between two thresholds is above 0, micro-F1 rises. The sum has a standard
    deviation of about the square root of their number even if a label is like all others, so this much is subtracted.

    Parameters
    ----------
    p, worth
        Probability and worth of all answers, those of a label together, the most probable ones first.
    starts, ends
        Where the answers of each label start and end.
    n_common
        How many answers of each label the common threshold gives.
    """
    every, sums = np.arange(len(p)), np.append(0.0, np.cumsum(worth))
    group = np.repeat(np.arange(len(starts)), ends - starts)
    moved = np.abs(every + 1 - (starts + n_common)[group])
    gains = sums[1:] - sums[(starts + n_common)[group]] - np.sqrt(moved)
    is_last = np.append((p[1:] != p[:-1]) | (group[1:] != group[:-1]), True)  # a threshold cannot separate equal ones
    gains = np.where(is_last, gains, -np.inf)
    best = np.maximum.reduceat(gains, starts)
    places = np.minimum.reduceat(np.where(gains == best[group], every, len(p)), starts)
    return places, best > 0.0


def _between(p: np.ndarray, places: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return thresholds halfway between the probability at each place and the next one of the label, if any."""
    following = np.minimum(places + 1, ends - 1)
    return (p[places] + p[following]) / 2.0
