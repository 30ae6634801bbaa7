"""The logistic model that combines two scorers: against brute force, scikit-learn, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from umpteen.models.fusion import Scorer, fit, frequency, fuse, probabilities, to_margins
from umpteen.shortlist import TopK


def scorer(scores: np.ndarray, post: str = "identity") -> Scorer:
    """Return a scorer that knows the scores (texts, labels) of every label."""
    scores = scores.astype(np.float32)

    def of_pairs(pairs: sp.csr_matrix) -> np.ndarray:
        rows = np.repeat(np.arange(pairs.shape[0]), np.diff(pairs.indptr))
        return scores[rows, pairs.indices]

    return Scorer(lambda k: TopK.from_csr(scores, k), of_pairs, post)


@pytest.mark.parametrize("exponent", [1, 2, 3, 4])
def test_a_hinge_score_becomes_its_margin(exponent: int) -> None:
    margins = np.array([-2.0, -0.5, 0.3, 0.9, 1.0, 7.0])
    scores = np.exp(-(np.maximum(0.0, 1.0 - margins) ** exponent))
    np.testing.assert_allclose(to_margins(scores, f"l{exponent}-hinge"), np.minimum(margins, 1.0) - 1.0, atol=1e-9)


def test_a_probability_becomes_its_log_odds_and_no_infinity() -> None:
    found = to_margins(np.array([0.0, 0.25, 0.5, 1.0]), "sigmoid")
    np.testing.assert_allclose(found[1:3], [-np.log(3.0), 0.0], atol=1e-12)
    assert np.isfinite(found).all()
    assert np.isfinite(to_margins(np.array([0.0, 1.0]), "l3-hinge")).all()


@settings(deadline=None)
@given(st.integers(0, 1_000), st.integers(1, 9), st.integers(3, 40))
def test_the_best_labels_are_those_with_the_highest_probability(seed: int, k: int, n_labels: int) -> None:
    """With so few labels each scorer proposes all of them, so the result is that of brute force."""
    rng = np.random.default_rng(seed)
    one, two = rng.normal(size=(2, 5, n_labels))
    weights = (float(rng.uniform(0, 3)), float(rng.uniform(0, 3)), float(rng.normal()))
    expected = 1 / (1 + np.exp(-(weights[0] * one + weights[1] * two + weights[2])))
    top = fuse((scorer(one), scorer(two)), weights, k, n_labels)
    best = -np.sort(-expected, axis=1)[:, :k]
    np.testing.assert_allclose(top.scores[:, : best.shape[1]], best, rtol=1e-5)
    found = np.take_along_axis(expected, np.maximum(top.labels[:, : best.shape[1]], 0), axis=1)
    np.testing.assert_allclose(found, best, rtol=1e-5)


def test_a_label_that_one_scorer_does_not_propose_is_scored_by_both() -> None:
    """Of 200 labels each proposes 50; label 199 is the last of the first scorer and the best of the second."""
    one, two = np.tile(np.linspace(1.0, 0.0, 200), (3, 1)), np.tile(np.linspace(0.0, 1.0, 200), (3, 1))
    top = fuse((scorer(one), scorer(two)), (1.0, 3.0, 0.0), 1, 200)
    np.testing.assert_array_equal(top.labels, [[199]] * 3)
    np.testing.assert_allclose(top.scores, 1 / (1 + np.exp(-3.0)), rtol=1e-6)


def test_chosen_labels_can_be_scored() -> None:
    one, two = np.array([[0.5, -1.0]]), np.array([[2.0, 1.0]])
    pairs = sp.csr_matrix(np.array([[0.0, 1.0]], np.float32))
    found = probabilities((scorer(one), scorer(two)), pairs, (2.0, 1.0, 0.5))
    np.testing.assert_allclose(found, [1 / (1 + np.exp(0.5))], rtol=1e-6)


def drawn(weights: tuple[float, float, float], n_texts: int = 400) -> tuple[np.ndarray, np.ndarray, sp.csr_matrix]:
    """Draw two margins for each of 12 labels, and labels whose log-odds are their weighted sum."""
    rng = np.random.default_rng(1)
    one, two = rng.normal(size=(2, n_texts, 12))
    odds = weights[0] * one + weights[1] * two + weights[2]
    Y = rng.random(odds.shape) < 1 / (1 + np.exp(-odds))
    return one, two, sp.csr_matrix(Y.astype(np.float32))


def test_the_fit_is_that_of_logistic_regression() -> None:
    from sklearn.linear_model import LogisticRegression

    one, two, Y = drawn((1.5, 0.7, -1.0))
    found = fit((scorer(one), scorer(two)), Y)
    X = np.stack([one.ravel(), two.ravel()], axis=1).astype(np.float32)
    theirs = LogisticRegression(C=1e3, tol=1e-8).fit(X, Y.toarray().ravel() > 0)
    np.testing.assert_allclose(found, [*theirs.coef_[0], theirs.intercept_[0]], rtol=2e-3)
    np.testing.assert_allclose(found, (1.5, 0.7, -1.0), atol=0.15)


def test_a_scorer_that_adds_nothing_is_not_combined() -> None:
    one, two, Y = drawn((2.0, 0.0, -1.0))
    assert fit((scorer(one), scorer(np.zeros_like(two))), Y) is None


def test_a_weight_is_never_negative() -> None:
    one, two, Y = drawn((0.5, 2.0, -1.0))
    ranker, classifiers, _ = fit((scorer(-one), scorer(two)), Y)
    assert ranker == 0.0
    assert classifiers == pytest.approx(2.0, abs=0.3)


def test_the_frequency_of_a_label_is_weighed_too_and_may_count_against_it() -> None:
    """Both margins are too high for the frequent half of the labels, by what the fitted weight takes off again."""
    one, two, Y = drawn((1.5, 0.7, -1.0), n_texts=2_000)
    counts = np.array([0, 99] * 6)
    too_high = np.log1p(counts) / 3.0
    *weights, of_frequency, bias = fit((scorer(one + too_high), scorer(two), frequency(counts)), Y)
    np.testing.assert_allclose(weights, (1.5, 0.7), atol=0.1)
    assert of_frequency == pytest.approx(-0.5, abs=0.05)
    assert bias == pytest.approx(-1.0, abs=0.1)


def test_the_frequency_proposes_no_labels() -> None:
    one, two = np.tile(np.arange(200.0)[::-1], (2, 1)), np.tile(np.arange(200.0)[::-1], (2, 1))
    counts = np.arange(200)  # the most frequent labels are the last ones of both scorers
    top = fuse((scorer(one), scorer(two), frequency(counts)), (0.0, 0.0, 1.0, 0.0), 1, 200)
    np.testing.assert_array_equal(top.labels, [[49]] * 2)  # the most frequent of the fifty that both propose
