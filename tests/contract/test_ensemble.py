"""Ensembles of any fitted models, and the trees inside one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from umpteen import Ensemble, XRLinear
from umpteen.errors import BadConfig, BadInput, NotFitted
from umpteen.models import Model
from umpteen.models.ensemble_rules import RULES

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
    figures = alone.evaluate(held_out.texts, held_out.lists, threshold=0.3)
    assert figures == model.evaluate(held_out.texts, held_out.lists, threshold=0.3)


def test_labels_above_a_threshold_do_not_depend_on_the_depths_of_other_figures(fitted: Fitted, held_out: Made) -> None:
    model = fitted("xr-linear")
    found = [model.evaluate(held_out.texts, held_out.lists, ks=ks, threshold=0.05) for ks in ((1,), (1, 5), (1, 30))]
    assert len({figures["micro-F1"] for figures in found}) == 1


def test_allowed_holds_for_all(fitted: Fitted, held_out: Made) -> None:
    ensemble = Ensemble([fitted("xr-linear"), fitted("parabel")])
    top = ensemble.topk(held_out.texts, 3, allowed=["label 03", "label 40"], threads=2)
    assert set(top.labels.ravel().tolist()) == {3, 40, -1}


def test_mistakes_are_told_when_the_ensemble_is_made(fitted: Fitted) -> None:
    model = fitted("xr-linear")
    with pytest.raises(BadInput, match="at least one model; pass a list of fitted models"):
        Ensemble([])
    with pytest.raises(NotFitted, match="this XRLinear is not fitted yet; call fit first"):
        Ensemble([model, XRLinear()])
    with pytest.raises(BadConfig, match="did you mean 'average'"):
        Ensemble([model], rule="averge")
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
