"""Combine the scores of a linear ranker and of a network's classifiers: a logistic model of their margins.

A ranker by words and a network make different errors, and their scores have different scales. The logistic model has
four parameters: the weights of the two margins, the weight of the logarithm of how many training texts have the label,
and a bias. They are fitted on texts that neither of the two was trained on, because on training texts both are better
than they will ever be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from umpteen.calibration import logistic_regression, sigmoid
from umpteen.metrics import evaluate
from umpteen.models.ensemble_rules import tiers
from umpteen.shortlist import TopK

Weights = tuple[float, ...]  # of the ranker's margin, the classifiers' margin, perhaps the frequency; and the bias

USUAL: Weights = (1.5, 1.0, 0.0)  # where there are no texts to fit on; fits are about as far from it as from each other
RANKER: Weights = (1.0, 0.0, 0.0)  # ranks as the ranker alone does
_TINY = 1e-45  # about the smallest float32
_FARTHEST = 1e-7  # from 0 and 1 at which log-odds are cut off: what float32 distinguishes near 1


@dataclass(frozen=True)
class Scorer:
    """A model that scores labels of some texts.

    Parameters
    ----------
    topk
        Returns its best labels; None if it proposes no candidates and only scores those of others.
    score
        Returns its scores of the stored entries of a matrix (texts, labels), in their order.
    post
        The function that turned its margins into scores: ``l3-hinge`` or similar, ``sigmoid`` or ``identity``.
    """

    topk: Callable[[int], TopK] | None
    score: Callable[[sp.csr_matrix], np.ndarray]
    post: str

    def margins(self, pairs: sp.csr_matrix) -> np.ndarray:
        """Return the scores of some labels on the scale of margins."""
        return to_margins(self.score(pairs), self.post)


def to_margins(scores: np.ndarray, post: str) -> np.ndarray:
    """Undo the function that turned margins into scores, as far as possible.

    A product of hinge scores along a path becomes the margin that a single one would need for the same score, minus 1.

    Examples
    --------
    >>> to_margins(np.exp([-8.0, 0.0]), "l3-hinge").round(6).tolist()
    [-2.0, 0.0]
    >>> to_margins(np.array([0.5]), "sigmoid").tolist()
    [0.0]
    """
    scores = scores.astype(np.float64)
    if post == "identity":
        return scores
    if post == "sigmoid":
        odds = np.clip(scores, _FARTHEST, 1.0 - _FARTHEST)
        return np.log(odds) - np.log1p(-odds)
    exponent = int(post[1])  # l1-hinge, l2-hinge, …
    return -(np.maximum(-np.log(np.maximum(scores, _TINY)), 0.0) ** (1.0 / exponent)) + 0.0


def frequency(counts: np.ndarray) -> Scorer:
    """Return the logarithm of how often labels occur in training as a scorer, which proposes no labels.

    Examples
    --------
    >>> frequency(np.array([0, 9])).margins(sp.csr_matrix([[1.0, 1.0]])).round(2).tolist()
    [0.0, 2.3]
    """
    logarithms = np.log1p(counts)
    return Scorer(None, lambda pairs: logarithms[pairs.indices], "identity")


def fuse(scorers: Sequence[Scorer], weights: Weights, k: int, n_labels: int) -> TopK:
    """Return the k labels with the highest probability; candidates are the best labels of each scorer."""
    wanted = tiers(k, n_labels)
    tops, top = [scorer.topk(wanted[-1].depth) for scorer in scorers if scorer.topk], None
    for tier in wanted:
        pairs = _candidates([part.first(tier.depth) for part in tops], n_labels)
        pairs.data = probabilities(scorers, pairs, weights)
        found = TopK.from_csr(pairs, tier.places)
        top = found if top is None else top.continued(found)
    return top


def probabilities(scorers: Sequence[Scorer], pairs: sp.csr_matrix, weights: Weights) -> np.ndarray:
    """Return the probabilities of the stored entries of ``pairs``, in their order."""
    return sigmoid(log_odds(scorers, pairs, weights)).astype(np.float32)


def log_odds(scorers: Sequence[Scorer], pairs: sp.csr_matrix, weights: Weights) -> np.ndarray:
    """Return the log-odds of the stored entries of ``pairs``: the weighted sum of margins, and the bias."""
    *of_margins, bias = weights
    return sum(weight * scorer.margins(pairs) for weight, scorer in zip(of_margins, scorers, strict=True)) + bias


def fit(scorers: Sequence[Scorer], Y: sp.csr_matrix) -> Weights | None:
    """Fit the weights on texts with labels ``Y``; None if the others do not improve on the first scorer.

    Weights of scorers that propose labels are at least 0. What is compared is the mean of the precisions at 1, 3 and 5.
    """
    tops, pairs, margins = propose(scorers, Y.shape[1])
    rows = np.repeat(np.arange(pairs.shape[0]), np.diff(pairs.indptr))
    is_true = np.asarray(Y[rows, pairs.indices] > 0).ravel()
    X = np.stack([*margins, np.ones(len(rows))], axis=1)
    weights = _non_negative(X, is_true.astype(np.float64), len(tops))
    pairs.data = sigmoid(X @ weights).astype(np.float32)
    fused = TopK.from_csr(pairs, min(max(_DEPTHS), Y.shape[1]))
    if _precision(fused, Y) <= _precision(tops[0], Y):
        return None
    return tuple(float(f"{weight:.4g}") for weight in weights)


def propose(scorers: Sequence[Scorer], n_labels: int) -> tuple[list[TopK], sp.csr_matrix, list[np.ndarray]]:
    """Return what the weights are fitted on: the best labels of each scorer, all of them, and their margins."""
    depth = tiers(max(_DEPTHS), n_labels)[-1].depth
    tops = [scorer.topk(depth) for scorer in scorers if scorer.topk]
    pairs = _candidates(tops, n_labels)
    return tops, pairs, [scorer.margins(pairs) for scorer in scorers]


_DEPTHS = (1, 3, 5)


def _precision(top: TopK, Y: sp.csr_matrix) -> float:
    metrics = evaluate(top, Y, ks=_DEPTHS)
    return sum(metrics[f"P@{depth}"] for depth in _DEPTHS)


def _candidates(tops: Sequence[TopK], n_labels: int) -> sp.csr_matrix:
    """Return all labels that are in any of these rankings, as a sorted matrix (texts, labels) of ones."""
    labels = np.sort(np.concatenate([top.labels for top in tops], axis=1), axis=1)  # (texts, candidates)
    is_new = labels >= 0
    is_new[:, 1:] &= labels[:, 1:] != labels[:, :-1]
    ptr = np.concatenate([[0], np.cumsum(is_new.sum(axis=1))])
    return sp.csr_matrix((np.ones(ptr[-1], np.float32), labels[is_new], ptr), shape=(len(labels), n_labels))


def _non_negative(X: np.ndarray, y: np.ndarray, n_first: int) -> np.ndarray:
    """Return the coefficients of a logistic regression, of which the first ones are at least 0."""
    free = np.ones(X.shape[1], bool)
    w = np.zeros(X.shape[1])
    for _ in range(n_first + 1):
        w[free] = logistic_regression(X[:, free], y)
        negative = (w < 0) & free
        negative[n_first:] = False
        if not negative.any():
            break
        free &= ~negative
        w[negative] = 0.0
    return w
