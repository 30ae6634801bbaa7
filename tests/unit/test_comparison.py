"""Two rankings of the same texts: differences and their intervals."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rankings import made
from umpteen.errors import BadInput
from umpteen.evaluation import compare_rankings, comparison, text_metrics
from umpteen.metrics import evaluate
from umpteen.shortlist import TopK


def test_metrics_are_those_of_evaluate() -> None:
    (a, Y), (b, _) = made(seed=0), made(seed=1)
    found = compare_rankings(a, b, Y)
    of_a, of_b = evaluate(a, Y), evaluate(b, Y)
    assert {"P@1", "R@5", "F1@5", "nDCG@3", "MRR"} <= set(found.metrics)
    for name, one in found.metrics.items():
        assert (one.a, one.b) == pytest.approx((of_a[name], of_b[name]))
        assert one.difference == pytest.approx(one.b - one.a)
        assert one.low <= one.difference <= one.high


def test_the_bootstrap_equals_a_plain_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    (a, Y), (b, _) = made(seed=0), made(seed=1)
    gaps = text_metrics(b, Y)["P@5"] - text_metrics(a, Y)["P@5"]
    rng = np.random.default_rng(7)
    means = [gaps[rng.integers(0, 20, 20)].mean() for _ in range(100)]
    one = compare_rankings(a, b, Y, n_resamples=100, seed=7).metrics["P@5"]
    assert (one.low, one.high) == pytest.approx(tuple(np.percentile(means, [2.5, 97.5])))
    monkeypatch.setattr(comparison, "_CELLS", 60)  # three resamples at a time
    assert compare_rankings(a, b, Y, n_resamples=100, seed=7).metrics["P@5"] == pytest.approx(one)


def test_significance() -> None:
    Y = np.eye(4)[np.arange(40) % 4]
    right = TopK(np.argmax(Y, axis=1)[:, None], np.ones((40, 1)))
    wrong = TopK((np.argmax(Y, axis=1)[:, None] + 1) % 4, np.ones((40, 1)))
    same = compare_rankings(right, right, Y, (1,)).metrics["P@1"]
    assert (same.difference, same.low, same.high, same.is_significant) == (0, 0, 0, False)
    worse = compare_rankings(right, wrong, Y, (1,)).metrics["P@1"]
    assert (worse.difference, worse.is_significant) == (-100, True)
    labels = right.labels.copy()
    labels[0] = (labels[0] + 1) % 4  # one text of forty: some resamples have none of it
    assert not compare_rankings(right, TopK(labels, right.scores), Y, (1,)).metrics["P@1"].is_significant


def test_texts_that_differ_most_come_first() -> None:
    Y = np.ones((30, 2))
    a = TopK(np.tile([0, 1], (30, 1)), np.ones((30, 2)))
    labels = a.labels.copy()
    labels[5, 1], labels[8], labels[11:25, 1] = -1, -1, -1
    found = compare_rankings(a, TopK(labels, np.ones((30, 2))), Y, (1, 2))
    assert len(found.texts) == 10
    assert found.texts[:3] == [(8, 100, 0), (5, 100, 50), (11, 100, 50)]
    assert (found.k, found.n_rows) == (2, 30)
    assert compare_rankings(a, a, Y, (1, 2)).texts == []


def test_true_labels_may_have_other_columns_for_each() -> None:
    Y, moved = np.array([[1, 0, 0], [0, 1, 0]]), np.array([[0, 0, 1], [0, 1, 0]])
    a, b = TopK([[0], [0]], [[1.0], [1.0]]), TopK([[2], [1]], [[1.0], [1.0]])
    found = compare_rankings(a, b, Y, (1,), Y_b=moved)
    assert (found.metrics["P@1"].a, found.metrics["P@1"].b) == (50, 100)


def test_rankings_of_other_texts_are_refused() -> None:
    top = TopK([[0]], [[1.0]])
    with pytest.raises(BadInput, match="both rankings must be of the same texts, at least one, but have 1 and 2"):
        compare_rankings(top, TopK([[0], [0]], [[1.0], [1.0]]), [[1]], (1,), Y_b=[[1], [1]])
    with pytest.raises(BadInput, match="n_resamples must be a whole number"):
        compare_rankings(top, top, [[1]], (1,), n_resamples=0)
