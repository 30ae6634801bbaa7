"""The five ways to merge rankings, against PECOS's results, against plain definitions, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests import reference
from umpteen.errors import BadConfig, BadInput
from umpteen.kernels import rank
from umpteen.models.ensemble_rules import RULES, merge
from umpteen.shortlist import TopK

# Scores of three models for three texts and eight labels; zero means not predicted.
# fmt: off
PARTS = [
    [[0, 0, -0.05, 1.29, 0, 0, 1.05, 0.75], [0, 0, 0, 0.44, 0.11, 0, 0, 1.09],
     [0.61, 0, 1.49, 0, 0.74, 0, 0, 1.09]],
    [[0, 0, -0.43, 0.53, -0.41, 0, 0, 0], [0, -0.48, 0, -0.12, 0, 0, 0, 0.49],
     [0, 0, 0, 0.04, -0.19, 0, 1.26, 0]],
    [[0, -0.32, 1.24, 0.58, 0.52, 0, 0, 0], [-0.2, 0, 0, 1.13, 0, 0, 0, 0.15],
     [0, 0, 0.38, 0, -0.2, -0.02, 0.85, 0]],
]

# What PECOS 1.2.8's CsrEnsembler makes of them: (label, score), best first, per text.
PECOS = {
    "average": [
        [(3, 0.8), (6, 0.35), (2, 0.253333), (7, 0.25), (4, 0.036667), (1, -0.106667)],
        [(7, 0.576667), (3, 0.483333), (4, 0.036667), (0, -0.066667), (1, -0.16)],
        [(6, 0.703333), (2, 0.623333), (7, 0.363333), (0, 0.203333), (4, 0.116667), (3, 0.013333),
         (5, -0.006667)],
    ],
    "rank-average": [
        [(3, 3.666667), (2, 2.333333), (4, 1.666667), (6, 1.0), (7, 0.666667), (1, 0.333333)],
        [(7, 3.666667), (3, 3.333333), (0, 0.666667), (1, 0.666667), (4, 0.666667)],
        [(6, 2.666667), (2, 2.333333), (4, 1.666667), (3, 1.0), (7, 1.0), (5, 0.666667), (0, 0.333333)],
    ],
    "sigmoid-average": [
        [(3, 0.684899), (2, 0.552398), (4, 0.34202), (6, 0.246925), (7, 0.226393), (1, 0.140225)],
        [(7, 0.635306), (3, 0.611378), (4, 0.175824), (0, 0.150055), (1, 0.127417)],
        [(4, 0.526601), (6, 0.493198), (2, 0.469984), (7, 0.249461), (0, 0.21598), (3, 0.17), (5, 0.165)],
    ],
    "softmax-average": [
        [(3, 0.392459), (2, 0.255711), (4, 0.146711), (6, 0.099653), (7, 0.073825), (1, 0.031641)],
        [(7, 0.425367), (3, 0.389205), (4, 0.065936), (1, 0.06573), (0, 0.053762)],
        [(6, 0.357137), (2, 0.217365), (4, 0.161405), (7, 0.087368), (3, 0.064329), (5, 0.058336),
         (0, 0.054062)],
    ],
    "round-robin": [
        [(3, 1.583333), (2, 1.416667), (6, 1.25), (4, 1.166667), (7, 0.916667), (1, 0.416667)],
        [(7, 1.583333), (3, 1.416667), (4, 0.916667), (1, 0.833333), (0, 0.75)],
        [(2, 1.583333), (6, 1.5), (7, 1.25), (3, 1.166667), (4, 0.916667), (5, 0.75), (0, 0.583333)],
    ],
}
# fmt: on


@pytest.mark.parametrize("rule", RULES)
def test_equals_pecos(rule: str) -> None:
    for (labels, scores), row in zip(merge(PARTS, rule, k=8), PECOS[rule], strict=True):
        assert labels.tolist() == [label for label, _ in row]
        np.testing.assert_allclose(scores, [score for _, score in row], atol=2e-6)


def plain_values(rule: str, scores: np.ndarray, part: int, n_parts: int, longest: int) -> np.ndarray:
    """Value one model's labels (its scores, descending) as the rule's definition says."""
    places = longest - np.arange(len(scores))
    return {
        "average": scores,
        "rank-average": places,
        "sigmoid-average": 1 / (1 + np.exp(-scores)),
        "softmax-average": np.exp(scores) / np.exp(scores).sum() if len(scores) else scores,
        "round-robin": places + (n_parts - part) / (n_parts + 1),
    }[rule]


def plain_merge(tops: list[TopK], rule: str, weights: list[float], n_labels: int) -> np.ndarray:
    """Merge into a dense table (n, n_labels) with NaN where no model predicts."""
    merged = np.full((len(tops[0]), n_labels), np.nan)
    longest = max(top.k for top in tops)
    for part, top in enumerate(tops):
        for i, (labels, scores) in enumerate(top):
            values = weights[part] * plain_values(rule, scores.astype(float), part, len(tops), longest)
            known = np.nan_to_num(merged[i, labels])
            merged[i, labels] = np.maximum(known, values) if rule == "round-robin" else known + values
    return merged / sum(weights)


@st.composite
def predictions(draw: st.DrawFn) -> list[TopK]:
    n, rng = draw(st.integers(0, 4)), np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    tops = []
    for _ in range(draw(st.integers(1, 4))):
        width = draw(st.integers(1, 8))
        labels = np.full((n, width), -1, np.int32)
        scores = np.zeros((n, width), np.float32)
        for row, values in zip(labels, scores, strict=True):
            length = int(rng.integers(0, width + 1))
            row[:length] = rng.permutation(10)[:length]
            values[:length] = -np.sort(-rng.standard_normal(length))
        tops.append(TopK(labels, scores))
    return tops


@given(predictions(), st.sampled_from(sorted(RULES)), st.booleans())
def test_equals_the_definition(tops: list[TopK], rule: str, weighted: bool) -> None:
    weights = [float(i + 1) for i in range(len(tops))] if weighted and rule != "round-robin" else None
    merged = merge(tops, rule, k=10, weights=weights)
    expected = plain_merge(tops, rule, weights or [1.0] * len(tops), 10)
    got = np.full(expected.shape, np.nan)
    for i, (labels, scores) in enumerate(merged):
        got[i, labels] = scores
        assert (np.diff(scores) <= 0).all()
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@given(
    arrays.arrays(np.int32, (3, 9), elements=st.integers(-1, 5)),
    arrays.arrays(np.float32, (3, 9), elements=st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0])),
    st.integers(1, 10),
    st.booleans(),
)
def test_kernel_equals_its_reference(labels: np.ndarray, values: np.ndarray, k: int, take_largest: bool) -> None:
    out_labels, out_scores = np.empty((3, k), np.int32), np.empty((3, k), np.float32)
    rank.merge_rows(labels, values, out_labels, out_scores.view(np.int32), take_largest, 0.5)
    expected_labels, expected_scores = reference.merge_rows(labels, values, k, take_largest, 0.5)
    np.testing.assert_array_equal(out_labels, expected_labels)
    np.testing.assert_array_equal(out_scores, expected_scores)


def test_models_take_turns() -> None:
    one, two, three = TopK([[0, 1]], [[9.0, 8.0]]), TopK([[2, 0]], [[0.2, 0.1]]), TopK([[2, 3]], [[5.0, 4.0]])
    assert merge([one, two, three], "round-robin", k=4).labels.tolist() == [[0, 2, 1, 3]]


def test_weights_decide() -> None:
    one, two = TopK([[0]], [[1.0]]), TopK([[1]], [[1.0]])
    assert merge([one, two], "average").labels.tolist() == [[0]]
    heavier = merge([one, two], "average", weights=[1, 3])
    assert heavier.labels.tolist() == [[1]]
    assert heavier.scores.tolist() == [[0.75]]
    assert merge([one, two], weights=[1, 0], k=2).scores.tolist() == [[1.0, 0.0]]


def test_one_model_stays_itself() -> None:
    top = TopK([[4, 2, -1], [-1, -1, -1]], [[0.5, -0.5, 0], [0, 0, 0]], label_names=list("abcde"))
    merged = merge([top], "average")
    np.testing.assert_array_equal(merged.labels, top.labels)
    np.testing.assert_array_equal(merged.scores, top.scores)
    assert merged.names == [["e", "c"], []]


@pytest.mark.parametrize("rule", RULES)
def test_a_row_does_not_depend_on_its_neighbours(rule: str) -> None:
    tops = [TopK.from_csr(np.asarray(part), 5) for part in PARTS]
    whole = merge(tops, rule)
    for i in range(3):
        alone = merge([top[i : i + 1] for top in tops], rule)
        np.testing.assert_array_equal(alone.labels, whole[i : i + 1].labels)
        np.testing.assert_array_equal(alone.scores, whole[i : i + 1].scores)


def test_large_scores_do_not_overflow() -> None:
    top = TopK([[0, 1]], [[1e30, -1e30]])
    with np.errstate(all="raise", under="ignore"):
        assert merge([top], "sigmoid-average").scores.tolist() == [[1.0, 0.0]]
        assert merge([top], "softmax-average").scores.tolist() == [[1.0, 0.0]]


def test_mistakes_are_named() -> None:
    top = TopK([[0]], [[1.0]])
    with pytest.raises(BadConfig, match="did you mean 'rank-average'"):
        merge([top], "rank-avrage")
    with pytest.raises(BadInput, match="at least one model"):
        merge([])
    with pytest.raises(BadInput, match=r"same texts, but they predict \[1, 2\] rows"):
        merge([top, TopK([[0], [1]], [[1.0], [1.0]])])
    with pytest.raises(BadInput, match="whole number of at least 1"):
        merge([top], k=0)
    with pytest.raises(BadConfig, match=r"one weight per model \(1\)"):
        merge([top], weights=[1, 2])
    with pytest.raises(BadConfig, match="not all 0"):
        merge([top, top], weights=[0, 0])
    with pytest.raises(BadConfig, match="no weights"):
        merge([top], "round-robin", weights=[1])
