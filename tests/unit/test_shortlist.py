"""TopK: shapes, padding, names, and the way to CSR and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.sparse import csr_matrix

from tests import reference
from umpteen.errors import BadInput
from umpteen.shortlist import TopK

# Few distinct values, so that ties, zeros and negative zeros are common.
SCORES = st.sampled_from([-2.5, -1.0, -0.0, 0.0, 0.25, 0.5, 0.5000001, 1.0, 3e38])


@st.composite
def score_matrices(draw: st.DrawFn) -> csr_matrix:
    """Draw CSR matrices, stored zeros included."""
    shape = (draw(st.integers(0, 6)), draw(st.integers(1, 40)))
    stored = draw(arrays.arrays(bool, shape))
    values = draw(arrays.arrays(np.float32, shape, elements=SCORES, fill=SCORES))
    rows, columns = np.nonzero(stored)
    return csr_matrix((values[rows, columns], (rows, columns)), shape=shape)


@pytest.fixture
def top() -> TopK:
    return TopK([[2, 0], [1, -1], [-1, -1], [0, 1]], [[0.9, 0.4], [0.7, 0], [0, 0], [0.5, 0.5]], ["art", "law", "tax"])


def test_arrays_have_the_promised_types(top: TopK) -> None:
    assert top.labels.dtype == np.int32
    assert top.scores.dtype == np.float32
    assert (len(top), top.k) == (4, 2)


def test_arrays_of_the_right_type_are_not_copied() -> None:
    labels, scores = np.zeros((3, 2), np.int32), np.zeros((3, 2), np.float32)
    top = TopK(labels, scores)
    assert top.labels is labels
    assert top.scores is scores


def test_rows_come_without_padding(top: TopK) -> None:
    rows = [(labels.tolist(), scores.tolist()) for labels, scores in top]
    assert rows == [
        ([2, 0], pytest.approx([0.9, 0.4])),
        ([1], pytest.approx([0.7])),
        ([], []),
        ([0, 1], [0.5, 0.5]),
    ]
    assert top[-1][0].tolist() == [0, 1]
    with pytest.raises(IndexError):
        top[4]


def test_names_leave_padding_out(top: TopK) -> None:
    assert top.names == [["tax", "art"], ["law"], [], ["art", "law"]]


def test_names_need_names() -> None:
    with pytest.raises(BadInput, match="pass label_names"):
        TopK([[0]], [[1.0]]).names  # noqa: B018


@pytest.mark.parametrize("rows", [slice(1, 3), [1, 2], np.array([False, True, True, False])])
def test_several_rows_stay_a_topk(top: TopK, rows: object) -> None:
    part = top[rows]
    assert isinstance(part, TopK)
    assert part.names == [["law"], []]


def test_repr_shows_the_first_rows(top: TopK) -> None:
    assert repr(top) == "TopK(4 texts, k=2)\n  0: tax 0.9, art 0.4\n  1: law 0.7\n  2: nothing\n  ..."
    assert repr(TopK([[7]], [[0.5]])) == "TopK(1 text, k=1)\n  0: 7 0.5"
    assert repr(TopK.from_csr(np.zeros((0, 3)))) == "TopK(0 texts, k=1)"


@pytest.mark.parametrize(("labels", "scores"), [([1, 2], [0.1, 0.2]), ([[1, 2]], [[0.1]]), ([[1]], [[0.1], [0.2]])])
def test_shapes_that_disagree_are_refused(labels: list, scores: list) -> None:
    with pytest.raises(BadInput, match="one shape"):
        TopK(labels, scores)


def test_to_csr_refuses_too_few_labels(top: TopK) -> None:
    with pytest.raises(BadInput, match="label 2 is predicted and n_labels is 2"):
        top.to_csr(2)


def test_to_csr_keeps_a_predicted_zero() -> None:
    matrix = TopK([[1, 0, -1]], [[0.5, 0.0, 0.0]]).to_csr(4)
    assert matrix.nnz == 2
    assert matrix.has_canonical_format
    assert matrix.dtype == np.float32


@given(score_matrices(), st.integers(1, 50))
def test_from_csr_equals_its_reference(matrix: csr_matrix, k: int) -> None:
    labels, scores = reference.keep_top(matrix.indptr, matrix.indices, matrix.data, k)
    top = TopK.from_csr(matrix, k)
    np.testing.assert_array_equal(top.labels, labels)
    np.testing.assert_array_equal(top.scores, scores)


def test_from_csr_keeps_the_best_of_long_rows() -> None:
    scores = np.random.default_rng(0).standard_normal((5, 3000)).astype(np.float32)
    top = TopK.from_csr(scores, 7)
    np.testing.assert_array_equal(top.labels, np.argsort(-scores, axis=1)[:, :7])


@given(score_matrices())
def test_csr_round_trip(matrix: csr_matrix) -> None:
    again = TopK.from_csr(matrix).to_csr(matrix.shape[1])
    assert again.nnz == matrix.nnz
    np.testing.assert_array_equal(again.toarray(), matrix.toarray())


def test_from_csr_sorts_and_adds_up_what_is_stored_twice() -> None:
    matrix = csr_matrix((np.array([0.3, 0.5, 0.4]), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3))
    top = TopK.from_csr(matrix)
    assert top.labels.tolist() == [[2, 0]]
    assert matrix.nnz == 3  # the caller's matrix is left alone


def test_from_csr_takes_int64_indices() -> None:
    matrix = csr_matrix(np.eye(3))
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
    assert TopK.from_csr(matrix, 1).labels.ravel().tolist() == [0, 1, 2]


def test_from_csr_refuses_nan_words_and_bad_k() -> None:
    with pytest.raises(BadInput, match="NaN"):
        TopK.from_csr([[np.nan, 1.0]], 1)
    with pytest.raises(BadInput, match="the score matrix must hold numbers"):
        TopK.from_csr([["a", "b"]], 1)
    for k in (0, -1, 1.5, True):
        with pytest.raises(BadInput, match="whole number of at least 1"):
            TopK.from_csr(np.eye(2), k)  # type: ignore[arg-type]


def test_from_csr_refuses_a_broken_matrix() -> None:
    matrix = csr_matrix(np.eye(3))
    matrix.indices[1] = 7
    with pytest.raises(BadInput, match="the score matrix is not a well-formed csr matrix"):
        TopK.from_csr(matrix)
