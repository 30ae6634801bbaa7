"""The door for matrices: what passes, what is refused, and that the user's arrays stay untouched."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from umpteen.data import sparse
from umpteen.data.sparse import as_csr, check_rows_match, normalize_rows, stored, triplet
from umpteen.errors import BadInput, UmpteenError

DENSE = np.array([[0, 2, 0], [0.5, 0, -1], [0, 0, 0]], dtype=np.float32)


def raw(data, indices, indptr, shape):
    """A CSR whose arrays scipy has not looked at."""
    matrix = sp.csr_matrix(shape, dtype=np.float32)
    matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
    return matrix


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "lil", "dok", "dia"])
@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csr_array])
def test_every_sparse_format(form, kind):
    result = as_csr(kind(DENSE).asformat(form))
    assert isinstance(result, sp.csr_matrix)
    assert result.dtype == np.float32
    assert result.indices.dtype == np.int32
    np.testing.assert_array_equal(result.toarray(), DENSE)


@pytest.mark.parametrize("form", [DENSE, DENSE.tolist(), DENSE.astype(object), np.asfortranarray(DENSE)])
def test_dense_forms(form):
    np.testing.assert_array_equal(as_csr(form).toarray(), DENSE)


def test_canonical_input_is_not_copied():
    X = sp.csr_matrix(DENSE)
    result = as_csr(X)
    assert np.shares_memory(result.data, X.data)
    assert np.shares_memory(result.indices, X.indices)
    indptr, indices, data = triplet(result)
    assert (indptr.dtype, indices.dtype, data.dtype) == (np.int64, np.int32, np.float32)
    assert np.shares_memory(data, X.data)


def test_unsorted_duplicates_are_summed_in_a_copy():
    data, indices = np.array([1.0, 2.0, 4.0]), np.array([2, 0, 2])
    X = sp.csr_matrix((data, indices, np.array([0, 3])), shape=(1, 3))
    X.has_sorted_indices = True  # a lie that must not be believed
    result = as_csr(X)
    assert result.toarray().tolist() == [[2, 0, 5]]
    assert result.indices.tolist() == [0, 2]
    assert X.data.tolist() == [1, 2, 4]
    assert X.indices.tolist() == [2, 0, 2]


@pytest.mark.parametrize("dtype", [bool, np.int8])
def test_duplicates_of_narrow_types_do_not_overflow(dtype):
    data = np.array([100, 100]).astype(dtype)
    X = sp.coo_matrix((data, ([0, 0], [1, 1])), shape=(1, 2))
    assert as_csr(X).toarray()[0, 1] == 2 * float(data[0])


def test_int64_indices_and_over_allocated_arrays():
    X = raw(np.array([1.0, 2.0, 9.0]), np.array([0, 1, 7], dtype=np.int64), np.array([0, 1, 2]), (2, 2))
    assert as_csr(X).toarray().tolist() == [[1, 0], [0, 2]]


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "inf"), (1e39, "inf")])
def test_numbers_that_are_none_are_named(value, word):
    X = np.zeros((3, 5))
    X[2, 4] = value
    with pytest.raises(BadInput, match=f"{word}.*row 2, column 4"):
        as_csr(X)
    assert as_csr(X, finite=False).nnz == 1


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ones(4), "two dimensions.*Reshape your data"),
        (np.ones((2, 2, 2)), "two dimensions"),
        (3.0, "two dimensions"),
        ([[1, 2], [3]], "rows of equal length"),
        ([["a", "b"]], "must hold numbers"),
        ([[{}, 1]], "must hold numbers"),
        (np.ones((1, 1), dtype=complex), "Complex data not supported"),
        (sp.csr_matrix(np.ones((1, 1), dtype=complex)), "Complex data not supported"),
        (sp.coo_array(np.ones(3)), "two dimensions"),
        (sp.csr_matrix((1, 2**40)), "32-bit"),
    ],
)
def test_refused(X, message):
    with pytest.raises(BadInput, match=message):
        as_csr(X)


def test_columns_that_no_memory_holds_are_refused(monkeypatch):
    monkeypatch.setattr(sparse, "machine_memory", lambda: 1e9)
    sparse.check_width(15_000_000, "labels")
    with pytest.raises(BadInput, match=r"there are 16,000,000 labels, which alone take 1 GB .* where there are 1\.0"):
        sparse.check_width(16_000_000, "labels")
    with pytest.raises(BadInput, match=r"there are 10,000,000 features.* where there are 0\.5; .*from 0 without gaps"):
        sparse.check_width(10_000_000, "features", 5e8)


def test_wrong_width_says_both_numbers():
    with pytest.raises(BadInput, match="X has 5 features, but the model was trained with 7"):
        as_csr(np.ones((2, 5)), n_features=7)


@pytest.mark.parametrize(
    ("data", "indices", "indptr"),
    [
        ([1.0], [5], [0, 1, 1]),
        ([1.0], [-1], [0, 1, 1]),
        ([1.0, 1.0], [0, 1], [0, 2, 1]),
        ([1.0], [0], [0, 1, 9]),
        ([1.0], [0], [1, 1, 1]),
        ([1.0], [0], [0, 1]),
        ([1.0], [0, 1], [0, 1, 2]),
        ([1.0], [0.0], [0, 1, 1]),
        ([[1.0]], [0], [0, 1, 1]),
    ],
)
def test_malformed_triplets(data, indices, indptr):
    with pytest.raises(BadInput, match=r"X is not a well-formed csr matrix: .*; rebuild it"):
        as_csr(raw(np.array(data), np.array(indices), np.array(indptr), (2, 3)))


def test_malformed_other_formats():
    csc = sp.csc_matrix(DENSE)
    csc.indices = csc.indices + 7
    coo = sp.coo_matrix(DENSE)
    coo.coords[0][:] = 99
    bsr = sp.bsr_matrix(DENSE)
    bsr.indices = bsr.indices + 7
    for matrix in (csc, coo, bsr):
        with pytest.raises(BadInput):
            as_csr(matrix)


small = st.integers(-3, 9)


@settings(max_examples=150, deadline=None)
@given(
    data=hnp.arrays(st.sampled_from([np.float32, np.float64, np.int8, bool]), st.integers(0, 6)),
    indices=hnp.arrays(st.sampled_from([np.int32, np.int64]), st.integers(0, 6), elements=small),
    indptr=hnp.arrays(st.sampled_from([np.int32, np.int64]), st.integers(0, 5), elements=small),
    shape=st.tuples(st.integers(0, 4), st.integers(0, 6)),
    form=st.sampled_from(["csr", "csc"]),
)
def test_any_triplet_is_clean_or_refused(data, indices, indptr, shape, form):
    matrix = {"csr": sp.csr_matrix, "csc": sp.csc_matrix}[form](shape, dtype=np.float32)
    matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
    before = data.copy(), indices.copy(), indptr.copy()
    try:
        result = as_csr(matrix)
    except UmpteenError:
        result = None
    for ours, theirs in zip((data, indices, indptr), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    if result is not None:
        starts, columns, values = triplet(result)
        assert result.shape == shape
        assert starts[0] == 0
        assert starts[-1] == len(columns) == len(values)
        assert np.isfinite(values).all()
        for row in range(shape[0]):
            inside = columns[starts[row] : starts[row + 1]]
            assert np.all(np.diff(inside) > 0)
            assert np.all((inside >= 0) & (inside < shape[1]))


@settings(max_examples=60, deadline=None)
@given(hnp.arrays(np.float32, (5, 4), elements=st.floats(-(2.0**99), 2.0**99, width=32) | st.just(0.0)))
def test_normalized_rows_have_length_one(dense):
    X = sp.csr_matrix(dense)
    before = X.data.copy()
    result = normalize_rows(X)
    lengths = np.linalg.norm(result.toarray().astype(np.float64), axis=1)
    np.testing.assert_allclose(lengths, (np.abs(dense).max(axis=1) > 0).astype(float), atol=1e-5)
    assert np.shares_memory(result.indices, X.indices) or X.nnz == 0
    np.testing.assert_array_equal(X.data, before)


def test_normalize_does_not_depend_on_threads():
    X = sp.random(2_000, 30, density=0.3, format="csr", dtype=np.float32, random_state=1)
    np.testing.assert_array_equal(normalize_rows(X, threads=3).data, normalize_rows(X).data)


def test_rows_of_length_one_are_not_copied():
    X = normalize_rows(sp.random(300, 30, density=0.3, format="csr", dtype=np.float32, random_state=1))
    assert normalize_rows(X) is X


def test_row_counts_must_agree():
    check_rows_match(["a", "b"], sp.csr_matrix((2, 3)))
    with pytest.raises(BadInput, match="Y has 3 rows but X has 5; pass one label row per text"):
        check_rows_match(sp.csr_matrix((5, 1)), sp.csr_matrix((3, 1)))


def test_a_table_is_stored_without_its_zeros_and_stays_as_it_is():
    table = np.array([[0.5, 0.0, 1.0], [0.0, 0.0, 0.0], [2.0, 3.0, 4.0]], np.float32)
    before = table.copy()
    csr = stored(table)
    assert csr.nnz == 5
    np.testing.assert_array_equal(csr.toarray(), before)
    np.testing.assert_array_equal(table, before)
    assert stored(np.empty((2, 0), np.float32)).shape == (2, 0)
