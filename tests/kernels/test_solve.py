"""Training kernels against their plain twins."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests import reference
from umpteen.data.rows import Rows
from umpteen.kernels import solve
from umpteen.kernels.lanes import LANES

NOTHING = np.zeros((1, 0), np.float32)


class Case(NamedTuple):
    """Rows of a chunk and their targets, dense."""

    X: np.ndarray  # (all rows, features)
    rows: np.ndarray
    costs: np.ndarray  # (all rows, lanes): cost of a positive, 0 where the row is negative
    negative_cost: float
    bias: float
    seed: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw small chunks: empty rows, features of one row, lanes without positives and duplicates occur."""
    n_all, n_features = draw(st.integers(1, 24)), draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    density = draw(st.sampled_from([0.1, 0.3, 0.8]))
    X = rng.integers(-4, 5, (n_all, n_features)) / 4 * (rng.random((n_all, n_features)) < density)
    rows = np.flatnonzero(rng.random(n_all) < draw(st.sampled_from([0.5, 1.0]))).astype(np.int32)
    n_lanes = draw(st.sampled_from([1, 3, LANES]))
    costs = rng.choice([0.0, 0.0, 0.5, 1.0, 4.0], (n_all, n_lanes)).astype(np.float32)
    negative_cost, bias = draw(st.sampled_from([0.25, 1.0])), draw(st.sampled_from([0.0, 1.0, 2.0]))
    return Case(X.astype(np.float32), rows, costs, negative_cost, bias, draw(st.integers(0, 99)))


def dense_of(ptr: np.ndarray, ids: np.ndarray, values: np.ndarray, width: int) -> np.ndarray:
    return sp.csr_matrix((values, ids, ptr), shape=(len(ptr) - 1, width)).toarray()


class Solved(NamedTuple):
    """What the kernel left behind, and the weights over all features."""

    weights: np.ndarray  # (features, lanes)
    bias_weights: np.ndarray
    n_steps: int
    state: tuple[np.ndarray, ...]  # table, bias weights, dual variables


def run_start(case: Case, n_dense: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return weights over all features, bias weights and dual variables where the solver is to begin, and sums."""
    n_lanes, n_sparse = case.costs.shape[1], case.X.shape[1] - n_dense
    block = np.ascontiguousarray(case.X[:, n_sparse:]) if n_dense else NOTHING
    triplet = Rows.of(sp.csr_matrix(case.X[:, :n_sparse])).triplet
    ptr, ids, values, features, _, private, *_ = solve.gather(case.rows, *triplet, np.zeros(n_sparse, np.int32))
    features = np.concatenate([features, np.arange(n_sparse, case.X.shape[1], dtype=np.int32)])
    sums = np.zeros(len(features), np.float32)
    squared_length = solve.sum_features(ptr, ids, values, private, block, case.rows, sums)
    total = case.X[case.rows].sum(axis=0)
    np.testing.assert_allclose(sums, total[features], atol=1e-6)
    np.testing.assert_allclose(squared_length, total @ total, rtol=1e-5, atol=1e-6)
    is_positive = sp.csr_matrix(case.costs[case.rows])
    weights, bias_weights = np.full((len(features), LANES), 7, np.float32), np.full(LANES, 7, np.float32)
    beta = np.full((len(case.rows), LANES), 7, np.float32)
    solve.start(
        ptr, ids, values, block, np.arange(n_dense, dtype=np.int32), case.rows,
        is_positive.indptr.astype(np.int64), is_positive.indices, n_lanes, np.float32(case.negative_cost),
        np.float32(case.bias), sums, squared_length, weights, bias_weights, beta,
    )  # fmt: skip
    return weights, bias_weights, beta, features


def run_solve(
    case: Case,
    *,
    n_dense: int = 0,
    logistic: bool = False,
    eps: float = 1e-4,
    max_iter: int = 5000,
    state: tuple[np.ndarray, ...] | None = None,
) -> Solved:
    """Call the kernel as the head does; the last ``n_dense`` features are passed as a dense block."""
    n_lanes, n_sparse = case.costs.shape[1], case.X.shape[1] - n_dense
    block = np.ascontiguousarray(case.X[:, n_sparse:]) if n_dense else NOTHING
    triplet = Rows.of(sp.csr_matrix(case.X[:, :n_sparse])).triplet
    local = np.zeros(n_sparse, np.int32)
    ptr, ids, values, features, square, private, *alone = solve.gather(case.rows, *triplet, local)
    square += (case.X[case.rows, n_sparse:] ** 2).sum(axis=1)
    features = np.concatenate([features, np.arange(n_sparse, case.X.shape[1], dtype=np.int32)])
    targets = sp.csc_matrix(case.costs)
    positives = solve.positives(
        targets.indptr.astype(np.int64), targets.indices, targets.data, 0, n_lanes, case.rows,
        np.zeros(len(case.X), np.int32),
    )  # fmt: skip
    if state is None:
        state = (
            np.zeros((len(features), LANES), np.float32), np.zeros(LANES, np.float32),
            np.zeros((len(case.rows), LANES), np.float32),
        )  # fmt: skip
    n_steps = solve.solve(
        ptr, ids, values, square, private, block, np.arange(n_dense, dtype=np.int32), case.rows, *positives,
        n_lanes, np.float32(case.negative_cost), np.float32(case.bias), logistic, np.float32(eps), max_iter,
        case.seed, *state,
    )  # fmt: skip
    found = solve.extract(features, state[0], state[2], *alone, n_lanes, 0.0)
    weights = sp.coo_matrix((found[2], (found[0], found[1])), shape=(case.X.shape[1], n_lanes)).toarray()
    return Solved(weights, state[1], n_steps, state)


def dense_problem(case: Case, lane: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return one lane's rows with their constant feature, signs and costs."""
    X = np.column_stack([case.X[case.rows], np.full(len(case.rows), case.bias)]).astype(np.float64)
    costs = case.costs[case.rows, lane].astype(np.float64)
    return X, np.where(costs > 0, 1.0, -1.0), np.where(costs > 0, costs, case.negative_cost)


def assert_solves(case: Case, solved: Solved, logistic: bool = False) -> None:
    for lane in range(case.costs.shape[1]):
        problem = dense_problem(case, lane)
        best = reference.solve(*problem, logistic)
        mine = np.append(solved.weights[:, lane], solved.bias_weights[lane]).astype(np.float64)
        least = reference.objective(best, *problem, logistic)
        assert reference.objective(mine, *problem, logistic) <= least * 1.001 + 1e-5
        np.testing.assert_allclose(mine, best, atol=0.02)


def test_the_twin_finds_the_optimum_of_a_problem_solved_by_hand():
    # ½w² + (1 − 2w)² is least at w = 4/9.
    one = np.array([[2.0]])
    np.testing.assert_allclose(reference.solve(one, np.ones(1), np.ones(1), False), [4 / 9])
    # ½w² + ln(1 + exp(w)) is least where w = −σ(w).
    weight = reference.solve(np.ones((1, 1)), -np.ones(1), np.ones(1), True)
    np.testing.assert_allclose(weight, -1 / (1 + np.exp(-weight)), atol=1e-8)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_gather_equals_its_twin(case):
    triplet = Rows.of(sp.csr_matrix(case.X)).triplet
    local = np.zeros(case.X.shape[1], np.int32)
    ptr, ids, values, features, square, private, *alone = solve.gather(case.rows, *triplet, local)
    expected_features, shared, single = reference.gather(case.X, case.rows)
    np.testing.assert_array_equal(features, expected_features)
    np.testing.assert_array_equal(dense_of(ptr, ids, values, len(features)), shared)
    np.testing.assert_array_equal(dense_of(*alone, case.X.shape[1]), single)
    np.testing.assert_array_equal(square, (case.X[case.rows] ** 2).sum(axis=1))
    np.testing.assert_array_equal(private, (single**2).sum(axis=1))
    assert not local.any()


@settings(max_examples=60, deadline=None)
@given(cases(), st.data())
def test_positives_equal_their_twin(case, data):
    n_nodes = case.costs.shape[1]
    first = data.draw(st.integers(0, n_nodes))
    last = data.draw(st.integers(first, n_nodes))
    targets = sp.csc_matrix(case.costs)
    where = np.zeros(len(case.X), np.int32)
    ptr, lane, values = solve.positives(
        targets.indptr.astype(np.int64), targets.indices, targets.data, first, last, case.rows, where
    )
    np.testing.assert_array_equal(dense_of(ptr, lane, values, last - first), case.costs[case.rows, first:last])
    assert not where.any()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(cases(), st.booleans())
def test_solve_reaches_the_optimum_of_its_twin(case, logistic):
    assert_solves(case, run_solve(case, logistic=logistic), logistic)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(cases(), st.booleans(), st.data())
def test_dense_columns_equal_the_same_columns_sparse(case, logistic, data):
    n_dense = data.draw(st.integers(1, case.X.shape[1]))
    assert_solves(case, run_solve(case, n_dense=n_dense, logistic=logistic), logistic)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(cases(), st.data())
def test_start_equals_its_twin_and_leads_to_the_optimum(case, data):
    assume(len(case.rows) > 0)
    n_dense = data.draw(st.integers(0, case.X.shape[1]))
    weights, bias_weights, beta, features = run_start(case, n_dense)
    n_lanes = case.costs.shape[1]
    X = dense_problem(case, 0)[0]
    expected = reference.start(X, case.costs[case.rows] > 0, case.negative_cost)
    np.testing.assert_allclose(beta[:, :n_lanes], expected, rtol=1e-5)
    sums = X.T @ expected  # weights agree with the dual variables
    np.testing.assert_allclose(weights[:, :n_lanes], sums[features], atol=1e-5)
    np.testing.assert_allclose(bias_weights[:n_lanes], sums[-1], atol=1e-5)
    assert not weights[:, n_lanes:].any()
    assert not bias_weights[n_lanes:].any()
    assert not beta[:, n_lanes:].any()
    assert_solves(case, run_solve(case, n_dense=n_dense, state=(weights, bias_weights, beta)))


def test_start_is_the_best_common_value_of_a_label_without_positives():
    case = example(n_lanes=1)._replace(costs=np.zeros((40, 1), np.float32))
    X, signs, costs = dense_problem(case, 0)
    common = -run_start(case)[2][0, 0]

    def dual(value: float) -> float:
        alpha = np.full(len(X), value)
        return 0.5 * np.sum((X.T @ (signs * alpha)) ** 2) - alpha.sum() + np.sum(alpha**2 / (4 * costs))

    assert dual(common) < dual(common * 1.01)
    assert dual(common) < dual(common * 0.99)


@pytest.mark.parametrize("logistic", [False, True])
def test_unused_lanes_stay_zero(logistic):
    case = example(n_lanes=3)
    table, bias_weights, beta = run_solve(case, logistic=logistic).state
    assert table[:, :3].any()
    assert beta[:, :3].any()
    assert not table[:, 3:].any()
    assert not bias_weights[3:].any()
    assert not beta[:, 3:].any()


def example(n_rows: int = 40, n_features: int = 12, n_lanes: int = 5, **changes: Any) -> Case:
    rng = np.random.default_rng(3)
    X = (rng.normal(size=(n_rows, n_features)) * (rng.random((n_rows, n_features)) < 0.4)).astype(np.float32)
    costs = (rng.random((n_rows, n_lanes)) < 0.3).astype(np.float32)
    return Case(X, np.arange(n_rows, dtype=np.int32), costs, 1.0, 1.0, 0)._replace(**changes)


def test_weights_are_the_sum_of_dual_variables_times_rows():
    case = example()
    solved = run_solve(case, max_iter=3)
    beta = solved.state[2][:, :5]
    np.testing.assert_allclose(solved.weights, case.X.T @ beta, atol=1e-4)
    np.testing.assert_allclose(solved.bias_weights[:5], beta.sum(axis=0) * case.bias, atol=1e-4)


@pytest.mark.parametrize("logistic", [False, True])
def test_warm_start_goes_on_to_the_same_optimum(logistic):
    case = example()
    begun = run_solve(case, logistic=logistic, max_iter=2)
    problem = dense_problem(case, 0)
    least = reference.objective(reference.solve(*problem, logistic), *problem, logistic)
    early = np.append(begun.weights[:, 0], begun.bias_weights[0])
    assert reference.objective(early, *problem, logistic) > least * 1.001  # two sweeps are not enough
    assert_solves(case, run_solve(case, logistic=logistic, state=begun.state), logistic)


@pytest.mark.parametrize("logistic", [False, True])
def test_starting_at_the_optimum_takes_one_sweep(logistic):
    case = example()
    done = run_solve(case, logistic=logistic)
    before = done.state[0].copy()
    again = run_solve(case, logistic=logistic, eps=0.05, state=done.state)
    assert again.n_steps == len(case.rows)
    np.testing.assert_allclose(again.state[0], before, atol=0.01)


def test_a_coarser_eps_stops_earlier_and_max_iter_bounds_the_sweeps():
    case = example()
    assert run_solve(case, max_iter=1).n_steps == len(case.rows)
    assert run_solve(case, eps=0.5).n_steps < run_solve(case, eps=1e-3).n_steps


@pytest.mark.parametrize("logistic", [False, True])
def test_a_row_of_cost_zero_counts_for_nothing(logistic):
    case = example(n_lanes=1)
    positive = case.costs[:, 0] > 0
    only_positive = case._replace(rows=np.flatnonzero(positive).astype(np.int32))
    without = run_solve(case._replace(negative_cost=0.0), logistic=logistic)
    alone = run_solve(only_positive, logistic=logistic)
    assert np.isfinite(without.weights).all()
    np.testing.assert_allclose(without.weights, alone.weights, atol=0.02)


def test_without_bias_the_constant_feature_has_no_weight():
    solved = run_solve(example(bias=0.0))
    assert not solved.bias_weights.any()
    assert solved.weights.any()


def test_same_seed_same_bits_and_any_seed_same_optimum():
    case = example()
    first, second = (run_solve(case, max_iter=2).weights for _ in range(2))
    other = run_solve(case._replace(seed=1), max_iter=2).weights
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()
    assert_solves(case, run_solve(case._replace(seed=1)))


@settings(max_examples=60, deadline=None)
@given(cases(), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.integers(0, 1000))
def test_extract_equals_its_twin(case, threshold, seed):
    rng = np.random.default_rng(seed)
    n_lanes = case.costs.shape[1]
    triplet = Rows.of(sp.csr_matrix(case.X)).triplet
    *_, features, _, _, ptr, alone, values = solve.gather(case.rows, *triplet, np.zeros(case.X.shape[1], np.int32))
    weights = (rng.integers(-4, 5, (len(features), LANES)) / 4).astype(np.float32)
    weights[:, n_lanes:] = 0  # the solver leaves unused lanes alone
    beta = (rng.integers(-2, 3, (len(case.rows), LANES)) / 2).astype(np.float32)
    found = solve.extract(features, weights, beta, ptr, alone, values, n_lanes, threshold)
    expected = reference.extract(features, weights, beta, dense_of(ptr, alone, values, case.X.shape[1]), threshold)[
        :, :n_lanes
    ]
    dense = sp.coo_matrix((found[2], (found[0], found[1])), shape=expected.shape)
    np.testing.assert_array_equal(dense.toarray(), expected)
    assert dense.nnz == np.count_nonzero(expected)  # neither zeros nor duplicates are stored


@settings(max_examples=30, deadline=None)
@given(cases(), st.booleans())
def test_row_squares_are_squared_lengths(case, with_dense):
    indptr, _, data = Rows.of(sp.csr_matrix(case.X)).triplet
    block = case.X if with_dense else NOTHING
    out = np.empty(len(case.X), np.float32)
    solve.row_squares(indptr, data, block, out)
    np.testing.assert_array_equal(out, (case.X**2).sum(axis=1) * (2 if with_dense else 1))
