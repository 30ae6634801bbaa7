"""Linear classifiers on dense rows, many labels at a time, on any device torch knows.

Solves what ``kernels.solve`` solves, ½‖w‖² + Σ c·max(0, 1 − y·w·x)² per label, but in the primal: truncated Newton
steps whose work is two matrix products per conjugate-gradient turn, shared by all labels. That suits a GPU and
dense rows; the dual kernel suits a CPU and sparse ones. Both end at the same minimum.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle

import umpteen.engine.openmp  # noqa: F401  before torch

# isort: split
import numpy as np
import scipy.sparse as sp
import torch

from umpteen.config import LABELS_SOLVED_AT_ONCE
from umpteen.engine import Progress, silent
from umpteen.neural.distributed import ranks

_MOST_TURNS = 16  # conjugate-gradient turns per Newton step
_HALVINGS = 16  # steps tried along a direction: 1, 1/2, 1/4, …; few labels need more than three


def solve(
    X: torch.Tensor,
    positive: torch.Tensor,
    cost: torch.Tensor,
    *,
    start: torch.Tensor | None = None,
    tolerance: float = 1e-2,
    max_iter: int = 40,
) -> torch.Tensor:
    """Train one classifier per column of ``positive`` over all rows of ``X``.

    Parameters
    ----------
    X
        Rows (n, d); append a constant column for a bias.
    positive
        Which rows carry which label (n, labels), bool.
    cost
        Weight of each row's loss for each label (n, labels); zero leaves the row out.
    start
        Weights (d, labels) to begin with; zero without.
    tolerance
        Stop when every gradient is at most this share of the gradient at zero, times the share of the rarer side: what
        the few positives of a label ask for is small beside the thousands that ask for a lower bias.

    Returns
    -------
    Weights (d, labels).
    """
    sign = torch.where(positive, 1.0, -1.0).to(X.dtype)  # (n, L)
    W = X.new_zeros(X.shape[1], positive.shape[1]) if start is None else start.clone()  # (d, L)
    S = X @ W  # (n, L)
    goal = tolerance * _rarer_share(positive, cost) * 2.0 * (X.T @ (cost * sign)).norm(dim=0)  # (L,)
    found, left = W.clone(), torch.arange(W.shape[1], device=W.device)  # labels that are not done yet
    for _ in range(max_iter):
        active = cost * (sign * S < 1.0)  # (n, L)
        gradient = W + 2.0 * (X.T @ (active * (S - sign)))  # (d, L)
        is_open = gradient.norm(dim=0) > goal
        found[:, left] = W
        if not bool(is_open.any()):
            return found
        left, goal = left[is_open], goal[is_open]
        W, S, sign, cost, active, gradient = (part[:, is_open] for part in (W, S, sign, cost, active, gradient))
        with _rough_products():  # a direction need not be exact, the gradient that decides when to stop is
            direction = _conjugate_gradients(X, active, -gradient)
        step, S = _line_search(W, direction, S, X @ direction, sign, cost, gradient)
        W = W + step * direction
    found[:, left] = W
    return found


def _rarer_share(positive: torch.Tensor, cost: torch.Tensor) -> torch.Tensor:
    """Return the share (labels,) of positives or of negatives among the rows that count, whichever is smaller."""
    n = (cost > 0).sum(dim=0).clamp(min=1)
    n_positive = (positive & (cost > 0)).sum(dim=0)
    return torch.minimum(n_positive, n - n_positive).clamp(min=1) / n


def solve_level(
    X: torch.Tensor,
    R: sp.csr_matrix,
    alive: sp.csr_matrix | None,
    starts: np.ndarray,
    *,
    cost: float = 1.0,
    alpha: float = 1.0,
    progress: Progress = silent,
) -> torch.Tensor:
    """Train the classifiers of one level of a tree on dense rows, chunk by chunk.

    Parameters
    ----------
    X
        Rows (n, d).
    R
        Relevance of the level's nodes (n, nodes): the weight of a positive; the others weigh ``alpha``.
    alive
        Parents (n, nodes above) whose children a row trains; None is all.
    starts
        First child of each parent, and one past the last.

    Returns
    -------
    Weights (d + 1, nodes), biases last. A node without rows keeps zero weights and the bias −1. Several ranks solve
    some of the blocks each, and all get the weights of all.
    """
    X = torch.cat([X, X.new_ones(len(X), 1)], dim=1)  # (n, d + 1)
    W, of_ranks = X.new_zeros(X.shape[1], R.shape[1]), cycle(range(ranks().size))
    W[-1] = -float(ranks().is_main)  # once in the sum over ranks
    columns, parents = R.tocsc(), None if alive is None else alive.tocsc()
    n_chunks, stage = len(starts) - 1, f"first weights of {R.shape[1]:,} nodes"
    for parent in range(n_chunks):
        progress(stage, parent, n_chunks)
        rows = None if parents is None else parents.indices[parents.indptr[parent] : parents.indptr[parent + 1]]
        if rows is not None and not len(rows):
            continue
        some = X if rows is None else X[torch.from_numpy(rows.astype(np.int64)).to(X.device)]
        for first in range(int(starts[parent]), int(starts[parent + 1]), LABELS_SOLVED_AT_ONCE):
            last = min(first + LABELS_SOLVED_AT_ONCE, int(starts[parent + 1]))
            if next(of_ranks) != ranks().rank:
                W[:, first:last] = 0.0
                continue
            weight = _block(columns, first, last, rows, X)  # (rows, labels)
            positive = weight > 0
            W[:, first:last] = solve(some, positive, cost * torch.where(positive, weight, alpha))
    progress(stage, n_chunks, n_chunks)
    return ranks().sum_(W)


def _block(columns: sp.csc_matrix, first: int, last: int, rows: np.ndarray | None, like: torch.Tensor) -> torch.Tensor:
    """Cut a dense block out of a column matrix; only what it stores travels to the device."""
    block = columns[:, first:last]
    stored = sp.coo_matrix(block if rows is None else block.tocsr()[rows])
    at = (torch.from_numpy(part.astype(np.int64)).to(like.device) for part in (stored.row, stored.col))
    return like.new_zeros(*stored.shape).index_put_(tuple(at), torch.from_numpy(stored.data).to(like))


def objective(X: torch.Tensor, positive: torch.Tensor, cost: torch.Tensor, W: torch.Tensor) -> torch.Tensor:
    """Return what ``solve`` minimises, per label."""
    sign = torch.where(positive, 1.0, -1.0).to(X.dtype)
    return _objective(W, X @ W, sign, cost)


def _objective(W: torch.Tensor, S: torch.Tensor, sign: torch.Tensor, cost: torch.Tensor) -> torch.Tensor:
    return 0.5 * (W * W).sum(dim=0) + (cost * (1.0 - sign * S).clamp(min=0.0).square()).sum(dim=0)


def _conjugate_gradients(X: torch.Tensor, active: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Solve (I + 2 Xᵀ diag(active) X) v = right for all labels, roughly: a tenth of the residual is left."""
    v, residual = torch.zeros_like(right), right.clone()  # (d, L)
    towards, size = residual.clone(), residual.square().sum(dim=0)  # (L,)
    goal = 0.01 * size
    for _ in range(_MOST_TURNS):
        curved = towards + 2.0 * (X.T @ (active * (X @ towards)))  # (d, L)
        alpha = size / (towards * curved).sum(dim=0).clamp(min=1e-30)
        v += alpha * towards
        residual -= alpha * curved
        smaller = residual.square().sum(dim=0)
        if bool((smaller <= goal).all()):
            break
        towards = residual + (smaller / size.clamp(min=1e-30)) * towards
        size = smaller
    return v


@contextmanager
def _rough_products() -> Iterator[None]:
    """Let a GPU multiply float32 matrices by its matrix units, which round the factors to 11 bits."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _line_search(
    W: torch.Tensor, direction: torch.Tensor, S: torch.Tensor, D: torch.Tensor,
    sign: torch.Tensor, cost: torch.Tensor, gradient: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Return the first step of 1, 1/2, … that goes down enough, per label, and the scores after it."""
    before, slope = _objective(W, S, sign, cost), (gradient * direction).sum(dim=0)  # (L,)
    step = torch.ones_like(before)
    for _ in range(_HALVINGS):
        after = _objective(W + step * direction, S + step * D, sign, cost)
        low_enough = after <= before + 1e-4 * step * slope
        if bool(low_enough.all()):
            break
        step = torch.where(low_enough, step, 0.5 * step)
    else:
        step = torch.where(low_enough, step, torch.zeros_like(step))
    return step, S + step * D
