"""The Newton solver: its minimum is the dual kernel's, on a level of a tree as on one set of rows."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from umpteen.config import LinearConfig
from umpteen.data.rows import Rows
from umpteen.linear.fit import Problem, train_levels
from umpteen.neural import newton


def problem(n: int, d: int, n_labels: int, seed: int) -> tuple[np.ndarray, sp.csr_matrix]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    scores = X @ rng.normal(size=(d, n_labels)) + 0.3 * rng.normal(size=(n, n_labels))
    return X, sp.csr_matrix((scores > 0.8).astype(np.float32))


def dual(X: np.ndarray, Y: sp.csr_matrix, starts: np.ndarray, mask: sp.csr_matrix | None, cost: float) -> np.ndarray:
    """Solve the same level by the dual kernel; return weights (d + 1, nodes)."""
    config = LinearConfig(cost=cost, eps=1e-4, max_iter=2000, threshold=0.0)
    rows = Rows.of(sp.csr_matrix(X))
    targets = Y.tocsc()
    targets.indices, targets.indptr = targets.indices.astype(np.int32), targets.indptr.astype(np.int64)
    columns = None if mask is None else mask.tocsc()
    if columns is not None:
        columns.indices, columns.indptr = columns.indices.astype(np.int32), columns.indptr.astype(np.int64)
    level = train_levels([Problem(rows, targets, columns, starts.astype(np.int32), config, 0)])[0]
    W = np.zeros((X.shape[1] + 1, Y.shape[1]), np.float32)
    W[level.features, level.nodes] = level.values
    W[-1] = level.bias
    return W


def objective(X: np.ndarray, Y: sp.csr_matrix, W: np.ndarray, cost: float) -> np.ndarray:
    with_bias = torch.from_numpy(np.hstack([X, np.ones((len(X), 1), np.float32)]))
    positive = torch.from_numpy(Y.toarray() > 0)
    return newton.objective(with_bias, positive, torch.full(positive.shape, cost), torch.from_numpy(W)).numpy()


@pytest.mark.parametrize("cost", [0.1, 1.0, 10.0])
def test_both_solvers_end_at_the_same_objective(cost: float) -> None:
    X, Y = problem(300, 20, 24, seed=1)
    starts = np.array([0, 24])
    ours = newton.solve_level(torch.from_numpy(X), Y, None, starts, cost=cost).numpy()
    theirs = dual(X, Y, starts, None, cost)
    np.testing.assert_allclose(objective(X, Y, ours, cost), objective(X, Y, theirs, cost), rtol=0.01)


def test_a_label_of_few_rows_is_solved_too() -> None:
    """Two thousand negatives pull at the bias; what one positive asks for is small beside that, but it is the label."""
    rng = np.random.default_rng(3)
    X, _ = problem(2_000, 30, 1, seed=3)
    Y = sp.lil_matrix((len(X), 6), dtype=np.float32)
    for label in range(6):
        Y[rng.choice(len(X), 1 + label // 2, replace=False), label] = 1.0
    Y, starts = Y.tocsr(), np.array([0, 6])
    ours = newton.solve_level(torch.from_numpy(X), Y, None, starts).numpy()
    theirs = dual(X, Y, starts, None, 1.0)
    np.testing.assert_allclose(objective(X, Y, ours, 1.0), objective(X, Y, theirs, 1.0), rtol=0.01)


def test_with_hardly_any_regularisation_newton_is_the_more_exact_one() -> None:
    X, Y = problem(300, 20, 24, seed=1)
    starts = np.array([0, 24])
    ours = newton.solve_level(torch.from_numpy(X), Y, None, starts, cost=300.0).numpy()
    assert (objective(X, Y, ours, 300.0) <= 1.001 * objective(X, Y, dual(X, Y, starts, None, 300.0), 300.0)).all()


def test_a_level_is_solved_chunk_by_chunk_on_the_rows_of_each_parent() -> None:
    X, Y = problem(200, 12, 10, seed=2)
    starts = np.array([0, 4, 10])
    alive = sp.csr_matrix((np.random.default_rng(3).random((200, 2)) < 0.5).astype(np.float32))
    W = newton.solve_level(torch.from_numpy(X), Y, alive, starts, cost=2.0).numpy()
    for parent in range(2):
        rows = np.flatnonzero(alive.toarray()[:, parent])
        some = slice(starts[parent], starts[parent + 1])
        alone = newton.solve_level(
            torch.from_numpy(X[rows]), Y[rows][:, some], None, np.array([0, some.stop - some.start]), cost=2.0
        )
        np.testing.assert_allclose(W[:, some], alone.numpy(), atol=1e-4)


def test_a_parent_without_rows_leaves_its_children_silent() -> None:
    X, Y = problem(50, 6, 4, seed=4)
    alive = sp.csr_matrix(np.tile(np.array([[1.0, 0.0]], np.float32), (50, 1)))
    W = newton.solve_level(torch.from_numpy(X), Y, alive, np.array([0, 2, 4])).numpy()
    assert (W[:-1, 2:] == 0).all()
    assert (W[-1, 2:] == -1).all()


def test_relevance_weighs_positives_and_alpha_the_others() -> None:
    X, Y = problem(120, 8, 5, seed=5)
    R = Y.copy()
    R.data[:] = np.random.default_rng(6).uniform(0.2, 3.0, R.nnz)
    W = newton.solve_level(torch.from_numpy(X), R, None, np.array([0, 5]), alpha=0.3)
    with_bias = torch.from_numpy(np.hstack([X, np.ones((len(X), 1), np.float32)]))
    weight = torch.from_numpy(R.toarray())
    cost = torch.where(weight > 0, weight, 0.3)
    gradient = W.clone().requires_grad_()
    newton.objective(with_bias, weight > 0, cost, gradient).sum().backward()
    at_zero = torch.zeros_like(W).requires_grad_()
    newton.objective(with_bias, weight > 0, cost, at_zero).sum().backward()
    assert (gradient.grad.norm(dim=0) <= 0.011 * at_zero.grad.norm(dim=0)).all()


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 6), st.floats(0.01, 100.0), st.integers(0, 10**6))
@example(5, 5, 5, 51.0, 683304)  # needs a step shorter than 1/32
@example(38, 1, 2, 48.92, 4)  # begins where the gradient almost vanishes
def test_the_gradient_vanishes_on_any_problem(n: int, d: int, n_labels: int, cost: float, seed: int) -> None:
    X, Y = problem(n, d, n_labels, seed)
    rows, positive = torch.from_numpy(X), torch.from_numpy(Y.toarray() > 0)
    costs = torch.full(positive.shape, cost)
    W = newton.solve(rows, positive, costs, max_iter=100).requires_grad_()
    newton.objective(rows, positive, costs, W).sum().backward()
    zero = torch.zeros_like(W).requires_grad_()
    newton.objective(rows, positive, costs, zero).sum().backward()
    rounding = 1e-4 + 1e-6 * cost * n  # of a sum over rows whose parts cancel out
    assert (W.grad.norm(dim=0) <= 0.011 * zero.grad.norm(dim=0) + rounding).all()
