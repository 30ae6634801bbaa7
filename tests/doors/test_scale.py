"""The benchmark of scale: rows of known structure, a perfect model of them, and the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks import jobs, scale, scale_data, scale_page
from benchmarks.scale_data import LABEL_FEATURES, Structure
from benchmarks.scale_oracle import Oracle, perfect
from umpteen.models import create


def test_the_same_seed_gives_the_same_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        scale_data.make(tmp_path / name, 1_000, 300, n_test=50, seed=3)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    scale_data.make(tmp_path / "c", 1_000, 300, n_test=50, seed=4)
    assert (tmp_path / "a/X.trn.indices.npy").read_bytes() != (tmp_path / "c/X.trn.indices.npy").read_bytes()


def test_rows_are_written_in_blocks_and_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale_data, "_BLOCK", 64)
    scale_data.make(tmp_path, 1_000, 300, n_test=50)
    X, Y = scale_data.load(tmp_path, "X.trn"), scale_data.load(tmp_path, "Y.trn")
    assert (X.shape[0], Y.shape) == (300, (300, 1_000))
    X.check_format()
    assert X.has_sorted_indices
    assert np.diff(Y.indptr).min() >= 1
    monkeypatch.setattr(scale_data, "write", None)  # would fail if it were called
    scale_data.make(tmp_path, 1_000, 300, n_test=50)


def test_labels_of_a_topic_share_no_feature() -> None:
    structure = Structure(5_000)
    labels = structure.labels_of(np.arange(structure.n_topics))
    assert all(len(set(row)) == 50 for row in labels)
    np.testing.assert_array_equal(np.bincount(labels.ravel(), minlength=5_000), 2)  # each belongs to two topics
    features = structure.features_of_labels(labels.ravel()).reshape(len(labels), -1)
    assert all(len(set(row)) == 50 * LABEL_FEATURES for row in features)
    assert features.max() < structure.n_features
    assert sorted(structure.number_of(np.arange(5_000))) == list(range(5_000))


@pytest.mark.parametrize("n_labels", [0, 150, 1_010])
def test_other_numbers_of_labels_are_refused(n_labels: int) -> None:
    with pytest.raises(ValueError, match="multiple of 50"):
        Structure(n_labels)


def made(n_labels: int, n_rows: int, tmp_path: Path) -> tuple[Structure, sp.csr_matrix, sp.csr_matrix]:
    structure = Structure(n_labels)
    scale_data.write(structure, n_rows, tmp_path, "one", 0)
    (tmp_path / "about.json").write_text(json.dumps({"n_labels": n_labels, "n_features": structure.n_features}))
    return structure, scale_data.load(tmp_path, "X.one"), scale_data.load(tmp_path, "Y.one")


def test_the_perfect_model_knows_how_often_it_is_right(tmp_path: Path) -> None:
    """Its probabilities are exact, so their mean over many rows is the precision."""
    structure, X, Y = made(1_000, 1_500, tmp_path)
    top = Oracle(structure).topk(X, 5)
    hits = np.array([[label in Y[row].indices for label in labels] for row, labels in enumerate(top.labels)])
    error = np.sqrt((top.scores * (1 - top.scores)).sum()) / top.scores.size
    assert abs(hits.mean() - top.scores.mean()) < 4 * error
    assert (np.diff(top.scores, axis=1) <= 0).all()


def test_probabilities_are_those_of_bayes_rule() -> None:
    """Of rows with one topic that all features point at, by hand: the labels are independent given the topic."""
    structure = Structure(200)
    oracle = Oracle(structure)
    topic = np.array([3])
    labels, prior = structure.labels_of(topic)[0], structure.label_probability(topic)[0]
    seen = structure.features_of_labels(labels[:1])[0]
    features = np.sort(np.concatenate([structure.features_of_topics(topic)[0], seen]))
    X = sp.csr_matrix(
        (np.ones(len(features), np.float32), (np.zeros(len(features), int), features)), (1, structure.n_features)
    )
    top = oracle.topk(X, 1)
    q = structure.mentioned
    p = 1 - (1 - scale_data.OF_LABEL) * (1 - q)
    odds = prior[0] / (1 - prior[0]) * (p / q) ** LABEL_FEATURES
    assert top.labels[0, 0] == structure.number_of(labels[:1])[0]
    assert top.scores[0, 0] == pytest.approx(odds / (1 + odds), abs=1e-3)


def test_a_model_learns_the_structure_and_stays_below_the_perfect_one(tmp_path: Path) -> None:
    structure, X, Y = made(1_000, 6_000, tmp_path)
    counts = np.bincount(Y[:5_000].indices, minlength=1_000)
    model = create("xr-linear", {"threads": 1, "seed": 0}).fit(X[:5_000], Y[:5_000])
    found = model.evaluate(X[5_000:], Y[5_000:], ks=(1,))["P@1"]
    best = perfect(structure, X[5_000:], Y[5_000:], counts)
    assert 60 < found < best.precision["P@1"] + 1
    assert best.of_seen["P@1"] <= best.precision["P@1"] + 0.5
    none = perfect(structure, X[5_000:5_010], Y[5_000:5_010], np.zeros(1_000))
    assert none.of_seen["P@1"] == 0


def test_runs_are_measured_once_and_written_to_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[list[str]] = []
    call = jobs.call
    monkeypatch.setattr(
        jobs, "call", lambda command, *rest: (calls.append(command), call([*command, "--sample", "50"], *rest))[1]
    )
    make = scale_data.make
    monkeypatch.setattr(scale_data, "make", lambda *size: make(*size, n_test=200))
    words = ["--labels", "1K", "--rows", "2K", "--work", str(tmp_path / "work"), "--out", str(tmp_path / "docs")]
    assert scale.main(words) == 0
    assert [command[2] for command in calls] == ["fit", "use"]
    (row,) = json.loads((tmp_path / "docs/scale.json").read_text()).values()
    assert row["n_labels"] == 1_000
    assert row["peak_mb"] > row["fit_memory_mb"] > 0
    assert {"open_s", "docs_per_s", "p50_ms", "model_mb", "P@1", "oracle", "oracle_of_seen"} <= set(row)
    assert not any((tmp_path / "work").iterdir())
    assert scale.main(words) == 0
    assert len(calls) == 2
    page = (tmp_path / "docs/scale.md").read_text()
    assert "| 1K | 2K | in memory |" in page
    assert (tmp_path / "docs/img/scale.svg").exists()
    assert "P@1" in capsys.readouterr().out


def run_of(n_labels: int, n_rows: int, **changes: Any) -> dict[str, Any]:
    return {
        "n_labels": n_labels,
        "n_rows": n_rows,
        "name": "in memory",
        "fit_s": n_rows / 1e5,
        "p50_ms": 0.1,
        **changes,
    }


def test_slopes_are_exponents() -> None:
    rows = [run_of(labels, rows) for labels in (10_000, 100_000) for rows in (200_000, 600_000, 2_000_000)]
    for one in scale_page.series(rows, scale_page.FIGURES[0], "n_rows", "n_labels"):
        assert one.slope == pytest.approx(1.0)
        assert one.title in ("10K labels", "100K labels")
    assert scale_page.series(rows, scale_page.FIGURES[0], "n_labels", "n_rows") == []  # two points are no series


def test_bars_compare_with_what_is_required() -> None:
    wide = {"beams": {"50": {"P@1": 77.0, "docs_per_s": 4_000.0}}}
    figures = {**wide, "peak_mb": 6_000.0, "docs_per_s": 9_000.0, "P@1": 75.0, "model_mb": 700.0, "open_s": 0.4}
    million = run_of(1_000_000, 2_000_000, **figures)
    rows = [million, run_of(100_000, 200_000, **{**figures, "P@1": 76.5})]
    verdicts = {line[0]: line[-1] for line in scale_page.bars(rows)}
    assert verdicts["1M labels, 2M rows: peak memory, GB"] == "pass"
    assert verdicts["1M labels: P@1 less that of 100K labels"] == "fail"
    assert verdicts["the same, both with beam 50"] == "pass"
    assert verdicts["1M labels with beam 50: texts/s on 2 cores"] == "fail"
    ten = run_of(10_000_000, 2_000_000, **{**figures, "model_mb": 4_100.0})
    verdicts = {line[0]: line[-1] for line in scale_page.bars([ten])}
    assert verdicts["10M labels, 2M rows: peak memory, GB"] == verdicts["10M labels: opens in s"] == "pass"
    assert verdicts["10M labels: model, GB"] == "fail"


def test_latency_may_grow_by_as_much_for_every_tenfold_number_of_labels() -> None:
    def verdict(*p50: float) -> str:
        rows = [run_of(n, 600_000, p50_ms=ms) for n, ms in zip((10_000, 100_000, 1_000_000), p50, strict=True)]
        added, ratio = scale_page.bars(rows)
        assert added[0].startswith("p50 at 600K rows: µs added")
        assert ratio[0].startswith("p50 at 600K rows: 1M labels / 10K labels")
        return f"{added[-1]} {ratio[-1]}"

    assert verdict(0.020, 0.050, 0.080) == "pass fail"
    assert verdict(0.020, 0.050, 0.081) == "fail fail"
    assert verdict(0.020, 0.025, 0.029) == "pass pass"


def test_sizes_in_words() -> None:
    assert [scale.count(text) for text in ("10M", "600k", "2_000", "1.5M")] == [10_000_000, 600_000, 2_000, 1_500_000]
    assert [scale_page.short(n) for n in (10_000_000, 600_000, 1_500_000)] == ["10M", "600K", "1.5M"]
