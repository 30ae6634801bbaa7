"""Metrics of single texts, by hand, and their mean against the metrics of all texts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rankings import made
from umpteen.evaluation import TextResults, text_metrics
from umpteen.metrics import evaluate
from umpteen.shortlist import TopK


def test_by_hand() -> None:
    top = TopK([[0, 1, 2], [3, -1, -1]], [[0.9, 0.8, 0.1], [0.9, 0.0, 0.0]])
    got = text_metrics(top, [[1, 0, 1, 0], [0, 0, 0, 0]], ks=(1, 3))
    assert got["P@3"] == pytest.approx([200 / 3, 0])
    assert got["R@1"] == pytest.approx([50, 0])
    assert got["F1@3"] == pytest.approx([100 * 4 / 5, 0])
    assert got["RP@3"] == pytest.approx([100, 0])
    assert got["MRR"] == pytest.approx([100, 0])


@settings(deadline=None)  # the first call loads compiled kernels
@given(st.integers(0, 2**32 - 1), st.integers(1, 7))
def test_their_mean_is_the_metric(seed: int, k: int) -> None:
    top, Y = made(seed)
    if k > top.k:
        top = TopK(np.pad(top.labels, ((0, 0), (0, 2)), constant_values=-1), np.pad(top.scores, ((0, 0), (0, 2))))
    expected = evaluate(top, Y, (1, k))
    for name, values in text_metrics(top, Y, (1, k)).items():
        assert values.mean() == pytest.approx(expected[name]), name


def test_results_of_blocks_are_numbered_on() -> None:
    top, Y = made(seed=3)
    whole, parts = TextResults(), TextResults()
    whole.add(top, Y)
    for rows in (slice(0, 7), slice(7, 20)):
        parts.add(top[rows], Y[rows])
    rows = list(whole.rows())
    assert list(parts.rows()) == rows
    assert [row["row"] for row in rows] == list(range(20))
    assert [row["n_labels"] for row in rows] == Y.sum(axis=1).tolist()
    for i, row in enumerate(rows):
        best = [label for label in top.labels[i] if label >= 0]
        assert [row[f"hits@{k}"] for k in (1, 3, 5)] == [sum(Y[i, label] for label in best[:k]) for k in (1, 3, 5)]
        assert row["label"] == (str(best[0]) if best else None)
    assert list(rows[0])[-5:] == ["P@5", "R@5", "F1@5", "label", "score"]
