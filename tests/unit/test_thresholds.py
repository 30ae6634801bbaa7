"""Thresholds of single labels: found where labels differ, not used where they do not, refused if damaged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from umpteen.calibration import Calibration, tune
from umpteen.errors import BadInput
from umpteen.models.decision import Decision
from umpteen.shortlist import TopK
from umpteen.thresholds import LabelThresholds, Pairs, _by_label, _micro_f1

AS_IS = Calibration(np.array([0.0, 1.0]), np.array([0.0, 1.0]))


def drawn(n_texts: int, shift: np.ndarray, seed: int = 0) -> tuple[TopK, sp.csr_matrix]:
    """Draw scores of all labels of texts; a label is right with the probability of its score plus its shift."""
    rng = np.random.default_rng(seed)
    scores = rng.random((n_texts, len(shift)))
    Y = sp.csr_matrix((rng.random(scores.shape) < np.clip(scores**2 + shift, 0, 1)).astype(np.float32))
    order = np.argsort(-scores, axis=1)
    return TopK(order, np.take_along_axis(scores, order, axis=1)), Y


def f1(decision: Decision, top: TopK, Y: sp.csr_matrix) -> float:
    chosen = decision.chosen(top)
    right = np.asarray(Y[np.repeat(np.arange(len(top)), top.k), top.labels.ravel()]).reshape(top.labels.shape) > 0
    return 2 * (chosen & right).sum() / (chosen.sum() + Y.nnz)


def test_labels_that_differ_get_thresholds_that_help_on_other_texts() -> None:
    shift = np.array([0.5, 0.5, 0.0, 0.0, -0.4, -0.4])
    found = tune(AS_IS, *drawn(600, shift), "f1")
    assert found.labels is not None
    own = dict(zip(found.labels.labels.tolist(), found.labels.probabilities.tolist(), strict=True))
    assert max(own[0], own[1]) < found.threshold < min(own[4], own[5])
    other, Y = drawn(600, shift, seed=1)
    common = Decision(100, found.score_at(found.threshold))
    assert f1(Decision.stored(found, 100), other, Y) > f1(common, other, Y) + 0.02


@pytest.mark.parametrize("seed", range(8))
def test_labels_that_do_not_differ_share_one_threshold(seed: int) -> None:
    found = tune(AS_IS, *drawn(300, np.zeros(12), seed), "f1")
    other, Y = drawn(2_000, np.zeros(12), seed + 100)
    common = Decision(100, found.score_at(found.threshold))
    assert f1(Decision.stored(found, 100), other, Y) > f1(common, other, Y) - 0.005


def test_labels_with_few_examples_have_no_threshold_of_their_own() -> None:
    shift = np.array([0.5, 0.0, -0.5])
    top, Y = drawn(600, shift)
    rare = Y.tolil()
    rare[9:, 0] = 0
    found = tune(AS_IS, top, rare.tocsr(), "f1")
    assert found.labels is None or 0 not in found.labels.labels


def test_other_goals_have_one_threshold() -> None:
    top, Y = drawn(600, np.array([0.5, 0.0, -0.5]))
    with_own = tune(AS_IS, top, Y, "f1@2")
    assert with_own.labels is not None
    assert with_own.limit == 2
    assert tune(with_own, top, Y, "precision=0.6").labels is None


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 100_000), st.integers(1, 4), st.integers(20, 120))
def test_own_thresholds_never_lower_f1_where_they_are_chosen(seed: int, n_labels: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    p = rng.integers(0, 9, n) / 8
    pairs = Pairs(np.arange(n), rng.integers(0, n_labels, n), p, rng.random(n) < 0.7)
    n_true = int(pairs.is_true.sum()) + int(rng.integers(0, 5))
    threshold = float(rng.choice(p))
    found = _by_label(pairs, threshold, n_true)
    if found is not None:
        before = _micro_f1(pairs, p >= threshold, n_true)
        assert _micro_f1(pairs, p >= found.of(pairs.labels, threshold), n_true) > before


# Storage

GOOD: dict[str, Any] = {"labels": np.array([1, 4], np.int32), "probabilities": np.array([0.2, 1.0])}


def test_thresholds_survive_storage() -> None:
    found = LabelThresholds.from_arrays(GOOD, 5)
    assert {name: array.tolist() for name, array in found.arrays().items()} == {
        "labels": [1, 4], "probabilities": [0.2, 1.0],
    }  # fmt: skip


@pytest.mark.parametrize(
    "damaged",
    [
        {"labels": np.array([1, 5], np.int32)},
        {"labels": np.array([-1, 4], np.int32)},
        {"labels": np.array([4, 1], np.int32)},
        {"labels": np.array([4, 4], np.int32)},
        {"labels": np.array([1], np.int32)},
        {"labels": np.array([1, 4], np.int64)},
        {"labels": np.zeros(0, np.int32), "probabilities": np.zeros(0)},
        {"labels": np.array([[1, 4]], np.int32), "probabilities": np.array([[0.2, 1.0]])},
        {"probabilities": np.array([0.2, 1.5])},
        {"probabilities": np.array([np.nan, 0.5])},
        {"probabilities": np.array([0.2, 0.5], np.float32)},
    ],
)
def test_damaged_thresholds_are_refused(damaged: dict[str, np.ndarray]) -> None:
    with pytest.raises(BadInput, match="thresholds"):
        LabelThresholds.from_arrays(GOOD | damaged, 5)
