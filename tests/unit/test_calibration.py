"""Probabilities and thresholds: known maps, goals worked by hand, and stored values that are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from umpteen.calibration import Calibration, best_threshold, logistic_regression, tune
from umpteen.errors import BadInput
from umpteen.shortlist import TopK


def drawn(n_texts: int, probability: Any, seed: int = 0) -> tuple[TopK, sp.csr_matrix]:
    """Draw five scores per text, and labels that are right with a probability that depends on the score."""
    rng = np.random.default_rng(seed)
    scores = -np.sort(-rng.random((n_texts, 5)).astype(np.float32), axis=1)
    labels = np.tile(np.arange(5), (n_texts, 1))
    Y = sp.csr_matrix((rng.random(scores.shape) < probability(scores)).astype(np.float32))
    return TopK(labels, scores), Y


@pytest.mark.parametrize(
    "probability",
    [lambda s: s, lambda s: s**2, lambda s: 0.2 + 0.5 * s, lambda s: 1 / (1 + np.exp(4 - 9 * s))],
    ids=["identity", "square", "linear", "logistic"],
)
def test_the_map_finds_the_probability_behind_scores(probability: Any) -> None:
    calibration = Calibration.fit(*drawn(4_000, probability))
    scores = np.linspace(0.05, 0.95, 10)
    np.testing.assert_allclose(calibration(scores), probability(scores), atol=0.04)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 1e-30, 0.5, 1.0]))
def test_the_map_never_falls_and_stays_within_zero_and_one(seed: int, extreme: float) -> None:
    top, Y = drawn(60, lambda s: 0.5 * np.ones_like(s), seed)
    top.scores[::3] = extreme
    calibration = Calibration.fit(top, Y)
    found = calibration(np.sort(np.append(np.random.default_rng(seed).normal(size=50), [0.0, 1.0])))
    assert (np.diff(found) >= 0).all()
    assert ((found >= 0) & (found <= 1)).all()
    assert 0 <= calibration.threshold <= 1


@pytest.mark.parametrize("right", [0.0, 1.0])
def test_labels_that_are_all_right_or_all_wrong_are_no_problem(right: float) -> None:
    calibration = Calibration.fit(*drawn(20, lambda s: right * np.ones_like(s)))
    np.testing.assert_allclose(calibration(np.array([0.1, 0.9])), right)


def test_scores_below_all_that_were_seen_are_less_probable() -> None:
    top, Y = drawn(2_000, lambda s: s)
    top.scores[:] = 0.5 + 0.5 * top.scores
    found = Calibration.fit(top, Y)(np.array([0.0, 0.1, 0.25, 0.5, 0.75]))
    assert found[0] == 0
    assert (np.diff(found) > 0).all()
    negative = Calibration.fit(TopK(top.labels, top.scores - 1.0), Y)  # nothing is known of their lowest score
    assert negative(np.array([-9.0])) == negative(np.array([negative.scores[0]]))


def test_padding_is_no_prediction() -> None:
    top, Y = drawn(500, lambda s: s)
    padded = TopK(np.pad(top.labels, ((0, 0), (0, 3)), constant_values=-1), np.pad(top.scores, ((0, 0), (0, 3))))
    assert Calibration.fit(padded, Y).to_dict() == Calibration.fit(top, Y).to_dict()


@given(st.integers(0, 1_000), st.integers(1, 40))
def test_the_threshold_has_the_highest_f1(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    p, is_true = rng.integers(0, 6, n) / 5, rng.random(n) < 0.5
    n_true = int(is_true.sum()) + int(rng.integers(0, 4))

    def f1(threshold: float) -> float:
        chosen = p >= threshold
        return 2 * is_true[chosen].sum() / (chosen.sum() + max(n_true, 1))

    assert f1(best_threshold(p, is_true, n_true)) == pytest.approx(max(f1(t) for t in p))


def test_a_probability_leads_back_to_its_score() -> None:
    calibration = Calibration.fit(*drawn(2_000, lambda s: s**2))
    for p in (0.1, 0.3, 0.7):
        score = calibration.score_at(p)
        assert float(calibration(np.array([score]))[0]) == pytest.approx(p, abs=1e-6)
    assert calibration.score_at(1.1) == float("inf")
    assert calibration.score_at(0.0) == float("-inf")


# Goals: two texts with three labels each, right are .9, .7 and .4; one label more was to be found


TOP = TopK([[0, 1, 2], [0, 1, 2]], [[0.9, 0.8, 0.4], [0.7, 0.3, 0.2]])
TRUE = sp.csr_matrix(np.array([[1, 0, 1, 1], [1, 0, 0, 0]], np.float32))
AS_IS = Calibration(np.array([0.0, 1.0]), np.array([0.0, 1.0]))


@pytest.mark.parametrize(
    ("goal", "threshold", "limit"),
    [
        ("f1", 0.4, None),  # 3 of 4 right, 4 to find: 6 / 8
        ("f1@1", 0.7, 1),  # .9 and .7
        ("precision=1", 0.9, None),
        ("precision=0.6", 0.3, None),  # 3 of 5
        ("recall=0.5", 0.7, None),  # 2 of 4
        ("recall=0.75", 0.4, None),  # 3 of 4
        ("labels=1", 0.8, None),
        ("labels=2.5", 0.3, None),
    ],
)
def test_goals(goal: str, threshold: float, limit: int | None) -> None:
    found = tune(AS_IS, TOP, TRUE, goal)
    assert (found.threshold, found.limit) == (pytest.approx(threshold), limit)


@pytest.mark.parametrize(
    ("goal", "message"),
    [
        ("accuracy", "goal must be f1, f1@K"),
        ("precision=1.5", "fraction of at most 1"),
        ("precision", "number above 0"),
        ("recall=nan", "number above 0"),
        ("labels=0", "number above 0"),
        ("f1@x", "whole number of at least 1"),
        ("f1@0", "whole number of at least 1"),
    ],
)
def test_goals_that_make_no_sense_are_refused(goal: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        tune(AS_IS, TOP, TRUE, goal)


@pytest.mark.parametrize(
    ("goal", "message"),
    [
        ("recall=1", r"no threshold reaches recall=1; the highest recall, of all ranked labels, is 0\.750"),
        ("labels=4", "no threshold reaches labels=4; at most 3 labels per text are ranked"),
    ],
)
def test_goals_beyond_the_ranked_labels_are_refused(goal: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        tune(AS_IS, TOP, TRUE, goal)


def test_a_precision_that_no_threshold_has_is_refused() -> None:
    wrong = sp.csr_matrix(np.array([[0, 1, 0, 0], [0, 0, 0, 0]], np.float32))
    with pytest.raises(BadInput, match=r"no threshold reaches precision=0\.9; the highest precision is 0\.500"):
        tune(AS_IS, TOP, wrong, "precision=0.9")


# Storage


def test_a_calibration_survives_json() -> None:
    import json

    before = Calibration.fit(*drawn(300, lambda s: s)).with_decision(0.4, 7)
    after = Calibration.from_dict(json.loads(json.dumps(before.to_dict())))
    assert after.to_dict() == before.to_dict()


GOOD = AS_IS.to_dict()


@pytest.mark.parametrize(
    "damaged",
    [
        [],
        {**GOOD, "scores": [0.0]},
        {**GOOD, "scores": [1.0, 0.0]},
        {**GOOD, "scores": [0.0, float("nan")]},
        {**GOOD, "scores": "01"},
        {**GOOD, "scores": [0.0, True]},
        {**GOOD, "scores": [0.0] * 5_000, "probabilities": [0.0] * 5_000},
        {**GOOD, "probabilities": [0.0, 1.5]},
        {**GOOD, "probabilities": []},
        {**GOOD, "threshold": None},
        {**GOOD, "threshold": 2},
        {**GOOD, "limit": 0},
        {**GOOD, "limit": 2**40},
        {**GOOD, "limit": 1.5},
    ],
)
def test_damaged_calibrations_are_refused(damaged: Any) -> None:
    with pytest.raises(BadInput, match="calibration"):
        Calibration.from_dict(damaged)


def test_logistic_regression_is_that_of_scikit_learn() -> None:
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(500, 2)), np.ones(500)])
    y = (rng.random(500) < 1 / (1 + np.exp(-X @ [1.0, -2.0, 0.5]))).astype(float)
    theirs = LogisticRegression(C=1e3, fit_intercept=False, tol=1e-10).fit(X, y).coef_[0]
    np.testing.assert_allclose(logistic_regression(X, y), theirs, rtol=1e-3)
