"""Metrics against napkinXC's stored values, against their plain twins, and by hand."""

from __future__ import annotations

import json
import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.sparse import csr_matrix

from tests import reference
from umpteen.errors import BadInput
from umpteen.kernels import rank
from umpteen.metrics import (
    N_BINS,
    PROPENSITY,
    Metrics,
    evaluate,
    expected_calibration_error,
    find_hits,
    inverse_propensity,
    reliability,
)  # fmt: skip
from umpteen.shortlist import TopK

ROOT = Path(__file__).parent.parent.parent
CASES = json.loads((ROOT / "tests" / "data" / "napkinxc_metrics.json").read_text())
DEPTHS = (1, 2, 3, 4, 5)


def one_hot(rows: list[list[int]], n_labels: int) -> csr_matrix:
    matrix = np.zeros((len(rows), n_labels))
    for i, row in enumerate(rows):
        matrix[i, row] = 1
    return csr_matrix(matrix)


def padded(case: dict[str, Any]) -> TopK:
    width = max(map(len, case["labels"]))
    labels = [row + [-1] * (width - len(row)) for row in case["labels"]]
    scores = [row + [0.0] * (width - len(row)) for row in case["scores"]]
    return TopK(labels, scores)


def our_values(case: dict[str, Any], predicted: Any = None) -> dict[str, float]:
    weights = inverse_propensity(one_hot(case["train"], case["n_labels"]), case["A"], case["B"])
    return evaluate(
        padded(case) if predicted is None else predicted,
        one_hot(case["truth"], case["n_labels"]),
        DEPTHS,
        inverse_propensity=weights,
        threshold=case["threshold"],
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_equals_the_stored_values_of_napkinxc(case: dict[str, Any]) -> None:
    ours = our_values(case)
    assert {name: ours[name] for name in case["values"]} == pytest.approx(case["values"], rel=1e-12)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_score_matrix_gives_the_same_values(case: dict[str, Any]) -> None:
    assert our_values(case, padded(case).to_csr(case["n_labels"])) == pytest.approx(our_values(case))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_propensities_equal_the_stored_ones_of_napkinxc(case: dict[str, Any]) -> None:
    weights = inverse_propensity(one_hot(case["train"], case["n_labels"]), case["A"], case["B"])
    np.testing.assert_allclose(weights, case["inverse_propensity"], rtol=1e-12)


@st.composite
def rankings(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]:
    """Draw dense truth, rankings without repeats, their scores, weights (or none) and a depth."""
    n, n_labels, width = draw(st.integers(0, 6)), draw(st.integers(1, 12)), draw(st.integers(1, 14))
    truth = draw(arrays.arrays(bool, (n, n_labels)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    labels = np.full((n, width), -1, np.int32)
    for row in labels:
        length = int(rng.integers(0, min(width, n_labels) + 1))
        row[:length] = rng.permutation(n_labels)[:length]
    scores = -np.sort(-rng.random((n, width)).astype(np.float32).round(1), axis=1)
    weights = 1.0 + rng.random(n_labels) if draw(st.booleans()) else np.zeros(0)
    return truth, labels, scores, weights, draw(st.integers(1, 14))


@given(rankings())
def test_kernels_equal_their_references(
    drawn: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int],
) -> None:
    truth, labels, scores, weights, depth = drawn
    Y = csr_matrix(truth)
    indptr, n_labels = Y.indptr.astype(np.int64), truth.shape[1]
    sums = np.zeros((rank.N_SUMS, depth))
    first_hit = np.full(n_labels, np.iinfo(np.int32).max, np.int32)
    counts = np.zeros((3, n_labels), np.int64)
    rank.rank_sums(indptr, Y.indices, labels, weights, sums, first_hit, counts[0])
    rank.count_above(indptr, Y.indices, labels, scores, np.float32(0.5), counts[1], counts[2])
    expected_sums, expected_first = reference.rank_sums(truth, labels, weights, depth)
    np.testing.assert_allclose(sums, expected_sums, atol=1e-12)
    np.testing.assert_array_equal(first_hit, expected_first)
    np.testing.assert_array_equal(counts[0], truth.sum(axis=0))
    np.testing.assert_array_equal(counts[1:], reference.count_above(truth, labels, scores, np.float32(0.5)))


@given(arrays.arrays(np.int32, st.tuples(st.integers(0, 4), st.integers(1, 5)), elements=st.integers(-1, 6)),
       st.integers(1, 6))  # fmt: skip
def test_a_row_that_repeats_a_label_is_refused(labels: np.ndarray, depth: int) -> None:
    depth = min(depth, labels.shape[1])
    row = reference.first_repeat(labels, depth)
    with nullcontext() if row < 0 else pytest.raises(BadInput, match=f"row {row} of the predictions repeats one"):
        Metrics((depth,)).add(TopK(labels, np.zeros(labels.shape)), np.zeros((len(labels), 7)))


def test_by_hand() -> None:
    top = TopK([[0, 1, 2], [3, 0, 1]], [[0.9, 0.8, 0.1], [0.9, 0.6, 0.3]])
    Y = [[1, 0, 1, 0, 0], [0, 1, 0, 0, 0]]
    got = evaluate(top, Y, ks=(1, 3), inverse_propensity=np.array([1.0, 2.0, 3.0, 9.0, 9.0]), threshold=0.3)
    log3 = math.log2(3)
    assert got == pytest.approx({
        "P@1": 50, "P@3": 50,
        "R@1": 25, "R@3": 100,
        "F1@1": 100 * (2 / 3 + 0) / 2, "F1@3": 100 * (4 / 5 + 2 / 4) / 2,
        "RP@1": 50, "RP@3": 100,
        "nDCG@1": 50, "nDCG@3": 50 * (1.5 / (1 + 1 / log3) + 0.5),
        "PSP@1": 100 * 1 / (3 + 2), "PSP@3": 100 * (1 + 3 + 2) / (4 + 2),
        "PSnDCG@1": 20,
        "PSnDCG@3": 100 * (2.5 / (1 + 1 / log3) + 1) / ((3 + 1 / log3) / (1 + 1 / log3) + 2),
        "coverage@1": 100 / 3, "coverage@3": 100,
        "MRR": 100 * (1 + 1 / 3) / 2,
        "micro-F1": 100 * 2 * 2 / (5 + 3),
        "macro-F1": 100 * (2 / 3 + 2 / 3 + 0 + 0 + 0) / 5,
    })  # fmt: skip


def test_a_perfect_ranking_reaches_100() -> None:
    rng = np.random.default_rng(0)
    Y = csr_matrix(rng.random((50, 30)) < 0.2)
    Y = Y[np.diff(Y.indptr) > 0]
    weights = inverse_propensity(Y)
    got = evaluate(Y.multiply(weights), Y, (1, 5), inverse_propensity=weights, threshold=0.1)
    for name in ("P@1", "RP@1", "RP@5", "nDCG@5", "PSP@1", "PSP@5", "PSnDCG@5", "MRR", "micro-F1"):
        assert got[name] == pytest.approx(100), name


def test_values_are_plain_floats_in_a_steady_order() -> None:
    got = evaluate(TopK([[0]], [[1.0]]), [[1, 0]], (1,), threshold=0.5)
    assert list(got) == ["P@1", "R@1", "F1@1", "RP@1", "nDCG@1", "coverage@1", "MRR", "micro-F1", "macro-F1"]
    assert all(type(value) is float for value in got.values())
    assert json.loads(json.dumps(got)) == got


def test_blocks_give_what_the_whole_gives() -> None:
    case = CASES[1]
    top, Y = padded(case), one_hot(case["truth"], case["n_labels"])
    weights = np.asarray(case["inverse_propensity"])
    metrics = Metrics(DEPTHS, inverse_propensity=weights, threshold=0.4)
    for rows in (slice(0, 7), slice(7, 7), slice(7, 30), slice(30, 40)):
        metrics.add(top[rows], Y[rows])
    assert metrics.n_rows == 40
    assert metrics.result() == pytest.approx(our_values(case))


def test_texts_without_labels_count_as_wrong() -> None:
    top = TopK([[0], [0]], [[1.0], [1.0]])
    got = evaluate(top, [[1, 0], [0, 0]], (1,), inverse_propensity=np.ones(2))
    assert (got["P@1"], got["R@1"], got["nDCG@1"], got["MRR"]) == (50, 50, 50, 50)
    assert (got["PSP@1"], got["coverage@1"]) == (100, 100)  # measured against what could be found


def test_no_true_label_at_all_gives_zeros() -> None:
    got = evaluate(TopK([[0]], [[1.0]]), np.zeros((1, 3)), (1,), inverse_propensity=np.ones(3), threshold=2.0)
    assert set(got.values()) == {0.0}


def test_stored_zeros_and_repeats_in_Y_do_not_count() -> None:
    Y = csr_matrix((np.array([1.0, 0.0, 1.0]), np.array([2, 1, 2]), np.array([0, 3])), shape=(1, 3))
    got = evaluate(TopK([[2, 1]], [[0.5, 0.4]]), Y, (1, 2))
    assert (got["P@2"], got["R@1"]) == (50, 100)
    assert Y.nnz == 3  # the caller's matrix is left alone


def test_a_threshold_includes_the_score_equal_to_it() -> None:
    assert evaluate(TopK([[0]], [[0.1]]), [[1]], (1,), threshold=0.1)["micro-F1"] == 100


def test_k_may_exceed_the_number_of_labels() -> None:
    assert evaluate(TopK([[1, 0]], [[0.5, 0.4]]), [[1, 1]], (5,))["P@5"] == pytest.approx(40)


def test_too_few_predictions_are_refused() -> None:
    top = TopK([[0, 1, 2]], [[0.3, 0.2, 0.1]])
    with pytest.raises(BadInput, match=r"P@5 needs 5 predictions a row but TopK holds 3; call topk\(k=5\)"):
        evaluate(top, np.ones((1, 9)))


@pytest.mark.parametrize(
    ("labels", "Y", "message"),
    [
        ([[0], [1]], np.ones((3, 2)), "Y has 3 rows but 2 were predicted"),
        ([[2]], np.ones((1, 2)), "0 to 1"),
        ([[-2]], np.ones((1, 2)), "-2 is predicted"),
        ([[1, 1]], np.ones((1, 2)), "row 0 of the predictions repeats one"),
        ([[0]], [["a"]], "Y must hold numbers"),
    ],
)
def test_bad_blocks_are_refused_and_change_nothing(labels: list, Y: Any, message: str) -> None:
    metrics = Metrics((1, 2))
    metrics.add(TopK([[0, 1]], [[0.5, 0.4]]), [[1, 0]])
    before = metrics.result()
    with pytest.raises(BadInput, match=message):
        metrics.add(TopK(labels, np.zeros_like(labels, dtype=float)), Y)
    assert metrics.result() == before


def test_blocks_must_agree_on_the_labels() -> None:
    metrics = Metrics((1,))
    metrics.add(TopK([[0]], [[1.0]]), [[1, 0]])
    with pytest.raises(BadInput, match="3 columns after 2"):
        metrics.add(TopK([[0]], [[1.0]]), [[1, 0, 0]])


@pytest.mark.parametrize("weights", [np.ones(3), np.ones((2, 2)), np.array([1.0, np.nan]), np.array([-1.0, 1.0])])
def test_bad_weights_are_refused(weights: np.ndarray) -> None:
    with pytest.raises(BadInput, match="inverse_propensity"):
        evaluate(TopK([[0]], [[1.0]]), [[1, 0]], (1,), inverse_propensity=weights)


@pytest.mark.parametrize("ks", [(), (0,), (1, 2.5)])
def test_bad_depths_are_refused(ks: tuple) -> None:
    with pytest.raises(BadInput, match="at least"):
        Metrics(ks)


def test_nothing_added_is_refused() -> None:
    with pytest.raises(BadInput, match="no rows were added"):
        Metrics().result()


def test_propensity_needs_rows_and_a_sound_B() -> None:
    with pytest.raises(BadInput, match="no rows"):
        inverse_propensity(np.zeros((0, 3)))
    with pytest.raises(BadInput, match=r"B at least 0, but they are 0.55 and -1.0"):
        inverse_propensity(np.ones((2, 3)), B=-1.0)


def test_rare_labels_weigh_more_whatever_the_dataset() -> None:
    Y = np.zeros((100, 3))
    Y[:, 0], Y[:10, 1] = 1, 1
    for A, B in PROPENSITY.values():
        weights = inverse_propensity(Y, A, B)
        assert 1 < weights[0] < weights[1] < weights[2]


def test_so_few_texts_say_nothing_about_what_is_missing():
    assert inverse_propensity([[1, 0]]).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("constants", [(np.nan, 1.5), (0.5, np.nan), (np.inf, 1.0), (0.5, -1.0)])
def test_constants_of_propensity_are_numbers(constants):
    with pytest.raises(BadInput, match="A and B must be numbers and B at least 0"):
        inverse_propensity(np.eye(3), *constants)


# F1@k


def test_f1_of_a_list_that_ends_early_counts_the_labels_in_it() -> None:
    top = TopK([[0, -1, -1], [1, 2, 0]], [[0.9, 0.0, 0.0], [0.9, 0.8, 0.7]])
    got = evaluate(top, [[1, 1, 0], [0, 0, 0]], (1, 3))
    assert got["F1@1"] == pytest.approx(100 * (2 / 3) / 2)
    assert got["F1@3"] == pytest.approx(100 * (2 * 1 / (1 + 2)) / 2)  # one label predicted, two true; then none true


@settings(deadline=None)  # the first call imports scikit-learn
@given(rankings())
def test_f1_equals_that_of_scikit_learn(
    drawn: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int],
) -> None:
    """Annif's F1@5 is ``f1_score(y_true, best_5 > 0, average="samples")``."""
    f1_score = pytest.importorskip("sklearn.metrics").f1_score
    truth, labels, scores, _, depth = drawn
    depth = min(depth, labels.shape[1])
    if len(truth) == 0 or truth.shape[1] < 2:
        return
    best = np.zeros(truth.shape, bool)
    for row, predicted in zip(best, labels[:, :depth], strict=True):
        row[predicted[predicted >= 0]] = True
    expected = 100 * f1_score(truth, best, average="samples", zero_division=0)
    assert evaluate(TopK(labels, scores), truth, (depth,))[f"F1@{depth}"] == pytest.approx(expected)


# Calibration


class Calibrated(TopK):
    """Predictions with probabilities."""

    def __init__(self, labels: Any, probabilities: Any):
        super().__init__(labels, probabilities)
        self.probabilities = np.asarray(probabilities)


def test_ece_by_hand() -> None:
    probabilities = [[0.95, 0.32], [0.97, 0.31], [1.0, np.nan]]
    hits = [[True, False], [False, True], [True, False]]
    table = reliability(probabilities, hits)
    assert len(table.count) == 20
    filled = np.flatnonzero(table.count)
    assert filled.tolist() == [6, 19]
    assert table.low[filled] == pytest.approx([0.3, 0.95])
    assert table.high[filled] == pytest.approx([0.35, 1.0])
    assert table.probability[filled] == pytest.approx([0.315, 2.92 / 3])
    assert table.frequency[filled] == pytest.approx([0.5, 2 / 3])
    assert table.count[filled].tolist() == [2, 3]
    expected = (2 * (0.5 - 0.315) + 3 * (2.92 / 3 - 2 / 3)) / 5
    assert expected_calibration_error(probabilities, hits) == pytest.approx(expected)


@given(arrays.arrays(np.float64, st.tuples(st.integers(0, 8), st.integers(1, 4)), elements=st.floats(0, 1)),
       st.integers(1, 30), st.integers(0, 2**32 - 1))  # fmt: skip
def test_ece_equals_a_plain_loop(probabilities: np.ndarray, n_bins: int, seed: int) -> None:
    hits = np.random.default_rng(seed).random(probabilities.shape) < 0.5
    members: list[list[tuple[float, bool]]] = [[] for _ in range(n_bins)]
    for p, hit in zip(probabilities.ravel(), hits.ravel(), strict=True):
        members[min(int(p * n_bins), n_bins - 1)].append((p, hit))
    gaps = [abs(sum(p for p, _ in some) - sum(hit for _, hit in some)) for some in members]
    expected = sum(gaps) / max(1, hits.size)
    assert expected_calibration_error(probabilities, hits, n_bins) == pytest.approx(expected)


@given(rankings())
def test_hits_equal_a_plain_loop(drawn: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]) -> None:
    truth, labels, *_ = drawn
    expected = [[label >= 0 and truth[i, label] for label in row] for i, row in enumerate(labels)]
    np.testing.assert_array_equal(find_hits(labels, truth), np.array(expected, bool).reshape(labels.shape))


def test_metrics_of_blocks_with_probabilities_have_ece() -> None:
    rng = np.random.default_rng(0)
    labels = np.array([rng.permutation(9)[:5] for _ in range(30)])
    labels[3:6, 4] = -1
    probabilities, Y = -np.sort(-rng.random((30, 5)), axis=1), rng.random((30, 9)) < 0.4
    metrics = Metrics((1, 5))
    for rows in (slice(0, 4), slice(4, 30)):
        metrics.add(Calibrated(labels[rows], probabilities[rows]), Y[rows])
    got = metrics.result()
    known, hits = np.where(labels >= 0, probabilities, np.nan), find_hits(labels, Y)
    assert got["ECE@1"] == pytest.approx(expected_calibration_error(known[:, :1], hits[:, :1]))
    assert got["ECE@5"] == pytest.approx(expected_calibration_error(known, hits))
    assert 0 < got["ECE@5"] < 1
    assert metrics.reliability(5).count.sum() == 147
    assert len(metrics.reliability(5).count) == N_BINS


def test_a_block_without_probabilities_leaves_no_ece() -> None:
    metrics = Metrics((1,))
    metrics.add(Calibrated([[0]], [[0.5]]), [[1, 0]])
    metrics.add(TopK([[0]], [[0.5]]), [[1, 0]])
    assert "ECE@1" not in metrics.result()
    with pytest.raises(BadInput, match="needs probabilities, but the predictions have scores only"):
        metrics.reliability(1)


@pytest.mark.parametrize(
    ("probabilities", "message"),
    [([[0.5, 0.5]], r"have shapes \(1, 2\) and \(1, 1\)"), ([[1.5]], "between 0 and 1, but range from 1.5 to 1.5")],
)
def test_what_is_no_probability_is_refused(probabilities: list, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        expected_calibration_error(probabilities, [[True]])
