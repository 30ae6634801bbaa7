"""Narrowed, widened and selected searches: `allowed=`, `beam=`, `score_labels`."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen import LabelTree
from umpteen.data.labels import Labels
from umpteen.errors import BadInput
from umpteen.models import Model

from .conftest import LINEAR, N_LABELS, NETS, Made

Fitted = Callable[[str], Model]
WHOLE = {"beam": N_LABELS}  # so wide that nothing is left out


def all_scores(model: Model, texts: list[str]) -> np.ndarray:
    """Score every label of every text by exhaustive search."""
    return model.topk(texts, N_LABELS, **WHOLE).to_csr(N_LABELS).toarray()


# score_labels


def test_selected_labels_score_as_in_topk(recipe: str, fitted: Fitted, held_out: Made) -> None:
    model = fitted(recipe)
    top = model.topk(held_out.texts, N_LABELS, **WHOLE)
    scored = model.score_labels(held_out.texts, np.ones((len(held_out), N_LABELS)))
    np.testing.assert_allclose(scored.toarray(), top.to_csr(N_LABELS).toarray(), rtol=1e-4, atol=1e-6)


def test_selected_scores_keep_the_pattern(recipe: str, fitted: Fitted, held_out: Made) -> None:
    scored = fitted(recipe).score_labels(held_out.texts, held_out.Y)
    np.testing.assert_array_equal(scored.indptr, held_out.Y.indptr)
    np.testing.assert_array_equal(scored.indices, held_out.Y.indices)
    assert scored.dtype == np.float32
    one = fitted(recipe).score_labels(held_out.texts[:1], held_out.Y[:1])
    np.testing.assert_allclose(one.toarray(), scored[:1].toarray(), rtol=1e-5)


def test_rows_may_select_nothing(recipe: str, fitted: Fitted, held_out: Made) -> None:
    nothing = sp.csr_matrix((2, N_LABELS), dtype=np.float32)
    assert fitted(recipe).score_labels(held_out.texts[:2], nothing).nnz == 0


# beam


def test_a_wider_beam_is_at_least_as_good(recipe: str, fitted: Fitted, held_out: Made) -> None:
    model = fitted(recipe)
    figures = [_precision(model, held_out, beam) for beam in (1, 4, N_LABELS)]
    slack = 2.0 / len(held_out) if recipe in NETS else 0.0  # more candidates may bring a wrong one that scores high
    assert all(wide >= narrow - slack for narrow, wide in itertools.pairwise(figures))


def test_no_beam_finds_more_than_exhaustive_search(fitted: Fitted, held_out: Made) -> None:
    for recipe in ("xr-linear", "plt"):  # one tree: the best score is a maximum, not an average
        model = fitted(recipe)
        best = all_scores(model, held_out.texts).max(axis=1)
        for beam in (1, 2, 8):
            assert (model.topk(held_out.texts, 1, beam=beam).scores[:, 0] <= best * 1.0001).all()


def test_a_narrow_beam_still_finds_k_labels(recipe: str, fitted: Fitted, held_out: Made) -> None:
    top = fitted(recipe).topk(held_out.texts, 20, beam=1)
    assert (top.labels >= 0).all()
    assert all(len(set(row)) == 20 for row in top.labels.tolist())


@pytest.mark.parametrize("beam", [1, 3, None])
def test_the_first_labels_do_not_depend_on_how_many_are_asked_for(
    recipe: str, fitted: Fitted, held_out: Made, beam: int | None
) -> None:
    model, texts = fitted(recipe), held_out.texts[:20]
    whole = model.topk(texts, N_LABELS, beam=beam)
    assert all((np.diff(scores) <= 0).all() for _, scores in whole)
    for k in (1, 2, 3, 5, 8, 9, 17, 25, 26, 40, 59):
        np.testing.assert_array_equal(model.topk(texts, k, beam=beam).labels, whole.labels[:, :k])


def test_the_first_allowed_labels_do_not_depend_on_how_many_are_asked_for(
    recipe: str, fitted: Fitted, held_out: Made
) -> None:
    model, allowed = fitted(recipe), list(range(0, N_LABELS, 2))
    whole = model.topk(held_out.texts[:20], 40, beam=2, allowed=allowed)
    assert (whole.labels[:, :30] >= 0).all()
    for k in (1, 2, 3, 7, 29, 31):
        top = model.topk(held_out.texts[:20], k, beam=2, allowed=allowed)
        np.testing.assert_array_equal(top.labels, whole.labels[:, :k])


# allowed


@pytest.mark.parametrize("n_allowed", [1, 7, 40, N_LABELS])
def test_allowed_equals_exhaustive_search_among_them(
    recipe: str, fitted: Fitted, held_out: Made, n_allowed: int
) -> None:
    model = fitted(recipe)
    allowed = np.random.default_rng(n_allowed).choice(N_LABELS, n_allowed, replace=False)
    k = min(5, n_allowed)
    top = model.topk(held_out.texts, k, allowed=allowed, **WHOLE)
    assert np.isin(top.labels, allowed).all()
    expected = -np.sort(-all_scores(model, held_out.texts)[:, allowed], axis=1)[:, :k]
    np.testing.assert_allclose(top.scores, expected, rtol=1e-4, atol=1e-6)


def test_all_labels_allowed_are_none_excluded(recipe: str, fitted: Fitted, held_out: Made) -> None:
    model = copy.deepcopy(fitted(recipe))
    if model.config.trees > 1:
        pytest.skip("trees vote with labels further down, too, and a search goes down another way to these")
    if recipe in LINEAR:
        model.set_params(search__beams=(2, 1))
    free, allowed = (model.topk(held_out.texts, 1, allowed=labels) for labels in (None, np.arange(N_LABELS)))
    np.testing.assert_array_equal(allowed.labels, free.labels)
    np.testing.assert_array_equal(allowed.scores, free.scores)


def test_allowed_labels_are_found_with_the_usual_beam(recipe: str, fitted: Fitted, held_out: Made) -> None:
    model, allowed = fitted(recipe), [3, 17, 42, 59]
    top = model.topk(held_out.texts, 4, allowed=allowed)
    assert (np.sort(top.labels, axis=1) == allowed).all()
    assert (np.sort(model.topk(held_out.texts[:1], 4, allowed=allowed).labels) == allowed).all()


def test_many_allowed_labels_are_all_found(recipe: str, fitted: Fitted, held_out: Made) -> None:
    allowed = np.arange(0, N_LABELS, 2)
    top = fitted(recipe).topk(held_out.texts, len(allowed), allowed=allowed, beam=1)
    assert (np.sort(top.labels, axis=1) == allowed).all()


def test_fewer_allowed_than_k_are_padded(recipe: str, fitted: Fitted, held_out: Made) -> None:
    top = fitted(recipe).topk(held_out.texts, 5, allowed=[8, 9])
    assert (np.sort(top.labels[:, :2], axis=1) == [8, 9]).all()
    assert (top.labels[:, 2:] == -1).all()
    assert (top.scores[:, 2:] == 0).all()


def test_allowed_by_name_key_or_column(recipe: str, small: Callable[..., Model], made: Made) -> None:
    keys = [f"http://example.org/{i}" for i in range(N_LABELS)]
    labels = Labels(made.labels.names(), keys)
    model = small(recipe).fit(made.texts, made.Y, label_names=labels)
    expected = model.topk(made.texts, 2, allowed=[4, 5]).labels
    forms: list[Any] = [
        ["label 04", "label 05"], [keys[4], keys[5]], ["label 04", keys[5]],
        np.array([5, 4]), {4, 5}, (4, 5, 4), iter([4, 5]),
    ]  # fmt: skip
    for form in forms:
        np.testing.assert_array_equal(model.topk(made.texts, 2, allowed=form).labels, expected)


@pytest.mark.parametrize(
    ("allowed", "message"),
    [
        (["label 04", "lable 05"], r"'lable 05', which is none of the 60 known labels; did you mean 'label 05'\?"),
        ([], "allowed is empty.*name at least one"),
        ([0, 60], "the column 60; they range from 0 to 59"),
        ([-1], "the column -1"),
        ("label 04", r"must be a list of labels, but is 'label 04'; wrap it: \[label\]"),
        (4, "must be a list of labels"),
        (np.ones(N_LABELS, bool), "not booleans; pass np.flatnonzero"),
    ],
)
def test_wrong_allowed_is_explained(recipe: str, fitted: Fitted, made: Made, allowed: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        fitted(recipe).topk(made.texts[:2], 3, allowed=allowed)


def test_allowed_in_a_deep_tree(small: Callable[..., Model], made: Made) -> None:
    groups = np.arange(N_LABELS) // 3
    tree = LabelTree.from_parents(groups, np.arange(20) // 4)
    model = small("xr-linear").fit(made.texts, made.Y, tree=tree)
    assert model.describe()["levels"] == [5, 20, 60]
    top = model.topk(made.texts, 3, allowed=[0, 29, 58])
    assert (np.sort(top.labels, axis=1) == [0, 29, 58]).all()


def _precision(model: Model, data: Made, beam: int) -> float:
    top = model.topk(data.texts, 1, beam=beam)
    return float(np.mean(np.asarray(data.Y[np.arange(len(data)), top.labels[:, 0]])))
