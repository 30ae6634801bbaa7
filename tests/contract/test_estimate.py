"""Estimates before training: positive, growing with the work, and cheap."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.data import load_demo
from umpteen.errors import BadInput
from umpteen.models import create
from umpteen.models.estimate import Estimate

from .conftest import Made


def estimate(recipe: str, X: Any, Y: Any, **settings: Any) -> Estimate:
    return create(recipe, {"threads": 1, **settings}).estimate(X, Y)


def test_positive_and_in_words(recipe: str, made: Made, rows: sp.csr_matrix) -> None:
    for X in (made.texts, rows, rows.toarray(), rows.toarray().tolist(), iter(made.texts)):
        found = estimate(recipe, X, made.lists)
        assert all(value > 0 for value in asdict(found).values())
        assert (found.n_rows, found.n_labels) == made.Y.shape
        assert f"{len(made):,} rows" in str(found)
        assert "MB of memory" in str(found)


def test_rows_are_counted_exactly(recipe: str, made: Made, rows: sp.csr_matrix) -> None:
    for X in (rows, rows.toarray()):
        found = estimate(recipe, X, made.Y)
        assert (found.n_features, found.n_nonzeros) == (rows.shape[1], rows.nnz)


def test_texts_are_guessed_well(recipe: str) -> None:
    train = load_demo()
    found = estimate(recipe, train.texts, train.Y)
    assert 100_000 <= found.n_features <= 200_000  # it is 200 000
    assert 0.5 < found.n_nonzeros / 1_398_000 < 2  # by count


def test_more_rows_take_more(recipe: str, made: Made, rows: sp.csr_matrix) -> None:
    for X, tripled in ((rows, sp.vstack([rows] * 3)), (made.texts, made.texts * 3)):
        less, more = estimate(recipe, X, made.Y), estimate(recipe, tripled, sp.vstack([made.Y] * 3))
        assert more.seconds > 2 * less.seconds
        assert more.memory_mb > less.memory_mb


def test_more_trees_take_more_and_threads_less(recipe: str, made: Made, rows: sp.csr_matrix) -> None:
    base = estimate(recipe, rows, made.Y, trees=1)
    assert estimate(recipe, rows, made.Y, trees=4).seconds > 3 * base.seconds
    assert estimate(recipe, rows, made.Y, trees=1, threads=4).seconds < base.seconds


def test_long_runs_are_told_in_minutes() -> None:
    assert "about 10 min and 2,000 MB" in str(Estimate(1, 1, 1, 1, memory_mb=2_000, seconds=600))


def test_wrong_data_is_refused_here_too(made: Made) -> None:
    with pytest.raises(BadInput, match="Y has 2 rows but X has 3"):
        estimate("plt", made.texts[:3], made.lists[:2])
    with pytest.raises(BadInput, match="wrap it"):
        estimate("plt", "a text", [["a"]])
    assert estimate("plt", np.zeros((0, 3)), np.zeros((0, 2))).seconds == 0
