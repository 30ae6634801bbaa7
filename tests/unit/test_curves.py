"""The precision-recall curve over thresholds, and plots."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rankings import made
from umpteen.errors import BadInput, MissingExtra
from umpteen.evaluation import ThresholdCurve, draw_precision_recall, draw_reliability, precision_recall
from umpteen.metrics import evaluate, reliability


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=20), st.integers(0, 3))
def test_the_curve_equals_a_plain_loop(predictions: list[tuple[int, bool]], n_missed: int) -> None:
    scores, hits = [score for score, _ in predictions], [hit for _, hit in predictions]
    n_true = sum(hits) + n_missed
    curve = precision_recall(scores, hits, n_true)
    assert curve.thresholds.tolist() == sorted(set(scores), reverse=True)
    for threshold, precision, recall in zip(*curve, strict=True):
        chosen = [hit for score, hit in predictions if score >= threshold]
        assert precision == pytest.approx(100 * sum(chosen) / len(chosen))
        assert recall == pytest.approx(100 * sum(chosen) / max(1, n_true))


def test_the_curve_goes_through_micro_f1() -> None:
    top, Y = made(seed=2)
    collected = ThresholdCurve()
    for rows in (slice(0, 9), slice(9, 20)):
        collected.add(top[rows], Y[rows])
    curve = collected.result()
    threshold = 0.5
    at = int(np.flatnonzero(curve.thresholds >= threshold)[-1])
    p, r = curve.precision[at], curve.recall[at]
    assert 2 * p * r / (p + r) == pytest.approx(evaluate(top, Y, threshold=threshold)["micro-F1"])


def test_nothing_added_is_refused() -> None:
    with pytest.raises(BadInput, match="no rows were added"):
        ThresholdCurve().result()


@pytest.mark.parametrize(("ending", "first"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_plots_are_drawn(ending: str, first: bytes, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"plot{ending}"
    draw_precision_recall({"all": precision_recall([0.9, 0.5], [True, False], 2)}, path)
    assert path.read_bytes().startswith(first)
    rng = np.random.default_rng(0)
    draw_precision_recall({"long": precision_recall(rng.random(50_000), rng.random(50_000) < 0.5, 50_000)}, path)
    assert len(path.read_bytes()) < 200_000  # points that cannot be seen are left out
    before = path.read_bytes()
    draw_reliability({"the best 5": reliability([[0.9, 0.2]], [[True, False]])}, path)
    assert path.read_bytes().startswith(first)
    assert path.read_bytes() != before
    with pytest.raises(BadInput, match=r"written as .png or .svg, but the file is"):
        draw_reliability({}, tmp_path / "plot.gif")
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_plots_need_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    message = r"drawing a plot needs the package 'matplotlib': pip install 'umpteen\[plot\]'"
    with pytest.raises(MissingExtra, match=message):
        draw_precision_recall({}, tmp_path / "plot.png")
