"""Clustering kernels against their plain twins."""

from __future__ import annotations

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests import reference
from umpteen.data.rows import Rows
from umpteen.data.sparse import normalize_rows
from umpteen.kernels import cluster
from umpteen.kernels.lanes import LANES


@numba.njit
def first_pair(seed, n):
    """Draw the two members that the kernel starts from."""
    np.random.seed(seed)
    a = np.random.randint(n)
    b = np.random.randint(n - 1)
    return a, b + 1 if b >= a else b


def triplet_of(X: np.ndarray) -> tuple[np.ndarray, ...]:
    return Rows.of(sp.csr_matrix(X)).triplet


def unit_rows(n: int, n_features: int, density: float, seed: int) -> np.ndarray:
    """Draw rows of length one; some are empty when the density is low."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_features)) * (rng.random((n, n_features)) < density)
    return normalize_rows(sp.csr_matrix(X.astype(np.float32))).toarray()


def run_sum_rows(X: sp.csr_matrix, groups: list[list[int]], keep: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the groups' vectors, dense, and how many entries of each were written."""
    member_ptr = np.cumsum([0] + [len(group) for group in groups]).astype(np.int64)
    members = np.array([row for group in groups for row in group], np.int32)
    scratch = np.zeros(X.shape[1], np.float32)
    room = np.arange(len(groups) + 1, dtype=np.int64) * X.shape[1]
    indices, data = np.empty(room[-1], np.int32), np.empty(room[-1], np.float32)
    written = cluster.sum_rows(member_ptr, members, *Rows.of(X).triplet, keep, scratch, room[:-1].copy(), indices, data)
    assert not scratch.any()
    out = np.zeros((len(groups), X.shape[1]))
    for g, count in enumerate(written):
        here = slice(room[g], room[g] + count)
        assert len(set(indices[here].tolist())) == count
        out[g, indices[here]] = data[here]
    return out, written


groups_of_rows = st.lists(st.lists(st.integers(0, 5), max_size=8), min_size=1, max_size=4)


# Small whole numbers: sums are exact, ties are common, and sums that cancel to zero occur.
@settings(max_examples=150, deadline=None)
@given(groups_of_rows, st.integers(1, 8), st.integers(0, 9), st.booleans(), st.integers(0, 10_000))
def test_sum_rows_equals_its_twin(groups, n_features, keep, signed, seed):
    X = np.random.default_rng(seed).integers(-2 if signed else 0, 3, (6, n_features)).astype(np.float32)
    out, written = run_sum_rows(sp.csr_matrix(X), groups, keep)
    expected = np.stack([reference.sum_rows(X, group, keep) for group in groups])
    np.testing.assert_allclose(out, expected, atol=1e-6)
    np.testing.assert_array_equal(written, np.count_nonzero(expected, axis=1))


def test_sum_rows_keeps_the_largest_even_if_ties_come_first():
    out, _ = run_sum_rows(sp.csr_matrix(np.array([[1, 1, 2]], np.float32)), [[0]], 2)
    np.testing.assert_allclose(out, np.array([[1, 0, 2]]) / np.sqrt(5), atol=1e-6)


def test_sum_rows_lists_a_feature_once_however_often_its_sum_is_zero():
    X = sp.csr_matrix(np.array([[1, 1], [-1, 0]], np.float32))
    out, written = run_sum_rows(X, [[0, 1] * 50, [0, 1, 0]], 0)
    np.testing.assert_allclose(out, [[0, 1], [1 / np.sqrt(5), 2 / np.sqrt(5)]], atol=1e-6)
    assert written.tolist() == [1, 2]


def test_sum_rows_ignores_stored_zeros():
    X = sp.csr_matrix((np.array([0, 3], np.float32), [0, 1], [0, 2]), shape=(1, 2))
    out, written = run_sum_rows(X, [[0] * 20], 0)
    assert out.tolist() == [[0, 1]]
    assert written.tolist() == [1]


def run_halve(
    X: np.ndarray,
    members: np.ndarray,
    n_left: int,
    *,
    seed: int = 0,
    max_iter: int = 30,
    tolerance: float = 0,
    n_sample: int = 1_000,
) -> np.ndarray:
    """Return the reordered members."""
    ordered, sums = members.astype(np.int32), np.zeros((X.shape[1], 2), np.float32)
    cluster.halve(*triplet_of(X), ordered, n_left, seed, max_iter, tolerance, n_sample, sums)
    assert not sums.any()
    return ordered


@pytest.mark.parametrize("n_sample", [2, 5, 20])
def test_halve_ranks_all_members_by_the_centres_of_a_sample(n_sample):
    rng = np.random.default_rng(n_sample)
    X = np.repeat(np.eye(2, 6, dtype=np.float32), 30, axis=0) + rng.random((60, 6), np.float32) * 0.05
    members = rng.permutation(60)
    for seed in range(5):
        ordered = run_halve(X, members, 30, seed=seed, n_sample=n_sample)
        assert sorted(ordered) == list(range(60))
        sides = {frozenset(ordered[:30] // 30), frozenset(ordered[30:] // 30)}
        assert sides == {frozenset({0}), frozenset({1})} or n_sample == 2  # two members may lie on one side


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(1, 25), st.integers(1, 30), st.sampled_from([0.1, 0.5, 1.0]), st.integers(0, 50), st.data())
def test_halve_permutes_repeatably_and_cuts_where_told(n, n_features, density, seed, data):
    X = unit_rows(30, n_features, density, seed)
    members = np.random.default_rng(seed).permutation(30)[:n]
    n_left = data.draw(st.integers(0, n))
    ordered = run_halve(X, members, n_left, seed=seed)
    assert sorted(ordered) == sorted(members)
    np.testing.assert_array_equal(ordered, run_halve(X, members, n_left, seed=seed))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(2, 30), st.integers(3, 30), st.integers(0, 1000), st.data())
def test_halve_equals_its_twin(n, n_features, seed, data):
    X = unit_rows(n, n_features, 0.7, seed)
    assume(X.any(axis=1).all())
    n_left = data.draw(st.integers(1, n - 1))
    max_iter = data.draw(st.sampled_from([1, 2, 30]))
    ordered = run_halve(X, np.arange(n), n_left, seed=seed, max_iter=max_iter)
    left = reference.halve(X, n_left, first_pair(seed, n), max_iter)
    assert sorted(ordered[:n_left]) == np.flatnonzero(left).tolist()


@pytest.mark.parametrize("seed", range(5))
def test_halve_separates_two_obvious_clusters(seed):
    rng = np.random.default_rng(seed)
    X = np.zeros((40, 8), np.float32)
    is_first = rng.permutation(np.repeat([True, False], 20))
    X[is_first, :4] = rng.random((20, 4)) + 0.5
    X[~is_first, 4:] = rng.random((20, 4)) + 0.5
    ordered = run_halve(normalize_rows(sp.csr_matrix(X)).toarray(), np.arange(40), 20, seed=seed)
    assert len(set(is_first[ordered[:20]])) == 1


def test_halve_depends_on_its_seed():
    X = unit_rows(40, 20, 0.5, 0)
    halves = {tuple(sorted(run_halve(X, np.arange(40), 20, seed=seed, max_iter=1)[:20])) for seed in range(8)}
    assert len(halves) > 1


def test_halve_takes_rows_without_features():
    ordered = run_halve(np.zeros((7, 3), np.float32), np.arange(7), 3)
    assert sorted(ordered) == list(range(7))


def centres_of(centres: np.ndarray, n_features: int) -> np.ndarray:
    """Lay (k, features) out in groups of lanes."""
    k = len(centres)
    padded = np.zeros((-(-k // LANES) * LANES, n_features), np.float32)
    padded[:k] = centres
    return np.ascontiguousarray(padded.reshape(-1, LANES, n_features).transpose(0, 2, 1))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 20), st.integers(1, 40), st.integers(1, 10), st.integers(0, 1000))
def test_assign_and_add_members_equal_their_twins(n, k, n_features, seed):
    rng = np.random.default_rng(seed)
    X = rng.integers(-2, 3, (25, n_features)).astype(np.float32)
    members = rng.permutation(25)[:n].astype(np.int32)
    centres = rng.integers(-2, 3, (k, n_features)).astype(np.float32)
    scores = np.empty((n, k), np.float32)
    cluster.assign(*triplet_of(X), members, centres_of(centres, n_features), scores)
    np.testing.assert_array_equal(scores, X[members] @ centres.T)
    chosen = rng.integers(0, k, n)
    sums = centres_of(np.zeros((k, n_features)), n_features)
    cluster.add_members(*triplet_of(X), members, chosen, sums)
    expected = reference.add_members(X[members], chosen, k)
    np.testing.assert_array_equal(sums, centres_of(expected, n_features))


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 30), st.integers(1, 8), st.booleans(), st.integers(0, 1000))
def test_fill_equals_its_twin_and_keeps_the_capacity(n, k, balanced, seed):
    scores = np.random.default_rng(seed).integers(-3, 4, (n, k)).astype(np.float32)  # many ties
    capacity = -(-n // k) if balanced else n
    chosen = np.full(n, -1)
    cluster.fill(scores, capacity, chosen)
    np.testing.assert_array_equal(chosen, reference.fill(scores, capacity))
    assert np.bincount(chosen, minlength=k).max() <= capacity
    if not balanced:
        np.testing.assert_array_equal(scores[np.arange(n), chosen], scores.max(axis=1))
