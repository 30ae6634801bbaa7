"""Ensembles of any models, and the trees inside one: prediction. Training and storage are in test_ensemble_training."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen import Ensemble, XRLinear
from umpteen.errors import BadConfig, BadInput, NotFitted
from umpteen.models import Model, create
from umpteen.models.ensemble_rules import RULES
from umpteen.shortlist import TopK

from .conftest import LINEAR, N_LABELS, Made

Fitted = Callable[[str], Model]


@pytest.mark.parametrize("rule", RULES)
def test_all_recipes_vote(fitted: Fitted, held_out: Made, rule: str) -> None:
    ensemble = Ensemble([fitted(recipe) for recipe in LINEAR], rule=rule)
    assert ensemble.evaluate(held_out.texts, held_out.lists)["P@1"] > 95
    top = ensemble.topk(iter(held_out.texts), 3)
    assert top.labels.shape == (len(held_out), 3)
    assert top.names[0]


@pytest.mark.parametrize("rule", RULES)
def test_encoders_and_seeds_vote_with_linear_models(
    fitted: Fitted, small: Callable[..., Model], made: Made, held_out: Made, rule: str
) -> None:
    first = fitted("xr-transformer")
    other = small("xr-transformer", seed=5, **{"encoder.pooling": "cls"}).fit(made.texts, made.lists)
    ensemble = Ensemble([first, other, fitted("xr-linear")], rule=rule)
    assert ensemble.evaluate(held_out.texts, held_out.lists)["P@1"] > 95
    assert set(ensemble.topk(held_out.texts, 2, allowed=[3, 40]).labels.ravel().tolist()) == {3, 40}


def test_one_model_alone_is_itself(recipe: str, fitted: Fitted, held_out: Made) -> None:
    model = fitted(recipe)
    np.testing.assert_array_equal(
        Ensemble([model]).topk(held_out.texts, 5).labels, model.topk(held_out.texts, 5).labels
    )


def test_weights_decide(fitted: Fitted, held_out: Made) -> None:
    models = [fitted("xr-linear"), fitted("plt")]
    only_first = Ensemble(models, weights=[1, 0]).topk(held_out.texts, 1)
    np.testing.assert_array_equal(only_first.labels, models[0].topk(held_out.texts, 1).labels)


def test_an_ensemble_answers_as_a_model_does(fitted: Fitted, held_out: Made) -> None:
    model = fitted("xr-linear")
    alone = Ensemble([model])
    assert alone.predict(held_out.texts) == model.predict(held_out.texts)
    assert alone.score(held_out.texts, held_out.lists) == model.score(held_out.texts, held_out.lists)
    figures, expected = (one.evaluate(held_out.texts, held_out.lists, threshold=0.3) for one in (alone, model))
    assert figures == {key: value for key, value in expected.items() if not key.startswith("ECE")}  # not calibrated
    assert figures != expected


def test_labels_above_a_threshold_do_not_depend_on_the_depths_of_other_figures(fitted: Fitted, held_out: Made) -> None:
    model = fitted("xr-linear")
    found = [model.evaluate(held_out.texts, held_out.lists, ks=ks, threshold=0.05) for ks in ((1,), (1, 5), (1, 30))]
    assert len({figures["micro-F1"] for figures in found}) == 1
    assert found[0]["micro-F1"] > 0


def test_allowed_holds_for_all(fitted: Fitted, held_out: Made) -> None:
    ensemble = Ensemble([fitted("xr-linear"), fitted("parabel")])
    top = ensemble.topk(held_out.texts, 3, allowed=["label 03", "label 40"], threads=2)
    assert set(top.labels.ravel().tolist()) == {3, 40, -1}


def test_mistakes_are_told_when_the_ensemble_is_made(fitted: Fitted) -> None:
    model = fitted("xr-linear")
    with pytest.raises(BadInput, match="at least one model; pass a list of models"):
        Ensemble([])
    with pytest.raises(BadInput, match=r"made of models of a recipe, but model 1 is Ensemble\(\[XRLinear"):
        Ensemble([model, Ensemble([XRLinear()])])
    with pytest.raises(NotFitted, match="has models that are not fitted yet; call fit first"):
        Ensemble([model, XRLinear()]).topk(["a"], 1)
    with pytest.raises(BadConfig, match="did you mean 'average'"):
        Ensemble([model], rule="averge")
    with pytest.raises(BadInput, match=r"needs a list of models, but got a XRLinear; wrap it: \[model\]"):
        Ensemble(model)
    with pytest.raises(BadConfig, match="weights must be one number per model, but are"):
        Ensemble([model, model], weights=["a", "b"])
    with pytest.raises(BadConfig, match="one weight per model"):
        Ensemble([model, model], weights=[1])
    other = XRLinear(threads=1).fit(["red apple", "green pear"], [["x"], ["y"]])
    with pytest.raises(BadInput, match=f"model 1 has 2 labels that differ from the {N_LABELS} of model 0; train"):
        Ensemble([model, other])
    with pytest.raises(BadInput, match="k must be a whole number"):
        Ensemble([model]).topk(["a"], 0)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("recipe", "floor"), [("parabel", 95), ("xr-transformer", 90)])
def test_trees_of_one_model_vote_by_the_rule(
    recipe: str, floor: float, small: Callable[..., Model], made: Made, held_out: Made, rule: str
) -> None:
    model = small(recipe, ensemble=rule, trees=3).fit(made.texts, made.lists)
    assert len(model.heads_) == 3
    assert model.evaluate(held_out.texts, held_out.lists)["P@1"] > floor


# The first labels are the same whatever k is


def assert_prefixes(topk: Callable[[int], TopK], deepest: int) -> None:
    whole = topk(deepest)
    assert all((np.diff(scores) <= 0).all() for _, scores in whole)
    for k in range(1, deepest):
        top = topk(k)
        np.testing.assert_array_equal(top.labels, whole.labels[:, :k])
        np.testing.assert_array_equal(top.scores, whole.scores[:, :k])


@pytest.fixture(scope="module")
def many() -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Rows and 700 labels that have little to do with each other, so that trees and models disagree."""
    rng = np.random.default_rng(0)
    X = sp.random(400, 300, 0.05, random_state=0, format="csr", dtype=np.float32)
    rows, labels = np.repeat(np.arange(400), 5), rng.integers(0, 700, 2000)
    Y = sp.csr_matrix((np.ones(2000, np.float32), (rows, labels)), shape=(400, 700))
    Y.data[:] = 1
    return X, Y


@pytest.mark.parametrize("rule", RULES)
def test_the_first_labels_of_trees_and_ensembles_do_not_depend_on_k(
    many: tuple[sp.csr_matrix, sp.csr_matrix], rule: str
) -> None:
    X, Y = many
    members = (("plt", 0), ("plt", 1), ("xr-linear", 2))
    models = [create(name, {"seed": seed, "threads": 1}).fit(X, Y) for name, seed in members]
    ensemble = Ensemble(models, rule=rule, weights=None if rule == "round-robin" else [1, 2, 1])
    assert_prefixes(lambda k: ensemble.topk(X[:70], k), 60)
    voting = create("parabel", {"ensemble": rule, "tree.leaf_size": 100, "threads": 1}).fit(X, Y)
    assert_prefixes(lambda k: voting.topk(X[:70], k), 60)


def test_the_best_label_is_the_one_that_is_asked_for_alone(many: tuple[sp.csr_matrix, sp.csr_matrix]) -> None:
    X, Y = many
    ensemble = Ensemble([create("plt", {"seed": seed, "threads": 1}).fit(X, Y) for seed in range(3)])
    best = ensemble.topk(X, 1).labels[:, 0]
    for k in (5, 26, 120, 400):
        np.testing.assert_array_equal(ensemble.topk(X, k).labels[:, 0], best)


@pytest.mark.parametrize("recipe", ["xr-transformer", "cascadexml-dismec"])
def test_rankers_and_their_encoders_agree_at_any_depth(recipe: str, fitted: Fitted, held_out: Made) -> None:
    pytest.importorskip("torch")
    assert_prefixes(lambda k: fitted(recipe).topk(held_out.texts[:9], k), 30)
