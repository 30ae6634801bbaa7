"""scikit-learn's own checks, and its tools at work on our models."""

from __future__ import annotations

import json
import pickle
import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multioutput import ClassifierChain
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from umpteen import XRLinear, XRTransformer, load
from umpteen.config import EncoderConfig, TreeConfig
from umpteen.errors import BadConfig, BadModelFile, NotFitted
from umpteen.models import RECIPES, Model

from .conftest import FLAT, LEARN, LINEAR, SMALL, Made

# No check is expected to fail; one that is would be listed here by name, with its reason.
EXPECTED_FAILURES: dict[str, str] = {}


with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message=".*does not inherit from")  # the contract is met by duck typing
    all_checks = parametrize_with_checks(
        [RECIPES[recipe](threads=1) for recipe in LINEAR], expected_failed_checks=lambda _: EXPECTED_FAILURES
    )


@all_checks
def test_scikit_learns_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


# Parameters


def test_clone_keeps_the_parameters_and_forgets_the_training(
    recipe: str, small: Callable[..., Model], made: Made
) -> None:
    given = {"tree": {"leaf_size": 8}, "seed": 3}
    if recipe not in LINEAR:
        given["encoder"] = small(recipe).encoder
        given |= {"training": {"epochs": 0.5}}
    model = RECIPES[recipe](**given).fit(made.texts, made.lists)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy.config == model.config
    assert not hasattr(copy, "heads_")


def test_parameters_by_noun_and_by_part() -> None:
    model = XRLinear(tree={"branching": 8})
    assert model.get_params(deep=False)["tree"] == {"branching": 8}
    assert model.get_params()["tree__branching"] == 8
    assert model.get_params()["linear__cost"] == 0.0
    model.set_params(tree__leaf_size=4, seed=2, linear__cost=0.5)
    assert (model.config.tree.branching, model.config.tree.leaf_size) == (8, 4)
    assert (model.config.seed, model.config.linear.cost) == (2, 0.5)
    model.set_params(tree__depth=2, tree=TreeConfig(branching=3))  # the noun first, whatever the order
    assert (model.config.tree.branching, model.config.tree.depth) == (3, 2)
    assert model.set_params() is model
    with pytest.raises(BadConfig, match="depth must be at least 0, but is -1"):
        model.set_params(tree__depth=-1)


def test_what_only_prediction_reads_holds_at_once(recipe: str, brief: Any, made: Made, tmp_path: Path) -> None:
    model = brief(recipe).fit(made.texts, made.lists)
    before, settled = model.predict(made.texts), model.config_
    model.set_params(search__threshold=0.0)
    assert all(len(labels) >= len(fewer) for labels, fewer in zip(model.predict(made.texts), before, strict=True))
    assert model.config_ == replace(settled, search=replace(settled.search, threshold=0.0))
    assert model.set_params(search__threshold=None).predict(made.texts) == before
    model.set_params(search__threshold=2.0)
    assert not any(model.predict(made.texts))
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert (again.config_.search, again.config_.tree) == (model.config_.search, settled.tree)
    assert again.set_params(search__threshold=None).predict(made.texts) == before


def test_what_needs_training_is_refused_by_name(recipe: str, fitted: Callable[[str], Model], made: Made) -> None:
    model = fitted(recipe)
    before, expected = model.get_params(), model.predict(made.texts)
    changes = {
        "seed": 7,
        "tree__max_iter": 3,
        "linear__cost": 9.0,
        "calibration__rows": 10,
        "store__weights": "float16",
    }
    for key, value in changes.items():
        with pytest.raises(BadConfig, match=f"{key.replace('__', '.')} cannot be changed to .* needs training"):
            model.set_params(search__beam=3, **{key: value})
    assert model.get_params() == before  # nothing is changed if one is refused
    assert model.predict(made.texts) == expected
    model.set_params(**{key: before[key] for key in changes})  # as they are
    copy = clone(model).set_params(**changes)
    assert copy.config.linear.cost == 9.0


def test_where_an_encoder_runs_needs_no_training(small: Callable[..., Model], made: Made) -> None:
    for recipe in ("xr-transformer", "cascadexml"):
        model = small(recipe).fit(made.texts, made.lists)
        expected = model.topk(made.texts, 3).labels
        model.set_params(encoder__device="cpu", encoder__batch_tokens=64, encoder__precision="float32")
        assert model.config_.encoder.batch_tokens == 64
        np.testing.assert_array_equal(model.topk(made.texts, 3).labels, expected)
        with pytest.raises(BadConfig, match=r"encoder\.max_length cannot be changed"):
            model.set_params(encoder__max_length=9)
    usual = model.config.network.beam
    model.set_params(network__beam=(1,))
    assert (model.topk(made.texts, 3).labels != expected).any()
    model.set_params(network__beam=usual)
    np.testing.assert_array_equal(model.topk(made.texts, 3).labels, expected)


def test_weights_of_classifiers_need_no_training(small: Callable[..., Model], made: Made) -> None:
    model = small("xr-transformer").fit(made.texts, made.lists)
    fused = model.topk(made.texts, 3).scores
    alone = model.set_params(head_weight=1.0).topk(made.texts, 3).scores
    assert (alone != fused).any()
    np.testing.assert_array_equal(model.set_params(head_weight=None).topk(made.texts, 3).scores, fused)
    model.set_params(fusion=(1.0, 0.0, 0.0))
    assert (model.topk(made.texts, 3).scores != fused).any()
    with pytest.raises(BadConfig, match="fusion cannot be changed"):
        model.set_params(fusion=())


def test_a_saved_model_remembers_what_was_left_open(made: Made, tmp_path: Path) -> None:
    model = XRLinear(threads=1, linear={"eps": 0.2}).fit(made.texts, made.lists)
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert (again.config.linear.negatives, again.config.linear.cost) == ("auto", 0.0)
    assert again.config_ == replace(model.config_, threads=0)
    assert again.describe()["chosen"] == model.describe()["chosen"]
    assert {"linear.cost", "linear.negatives"} <= set(model.describe()["chosen"])
    assert "linear.eps" not in model.describe()["chosen"]
    path = tmp_path / "m" / "config.json"
    for given, message in (([], "must be a table"), ({"tree.nonsense": 1}, "unknown setting"), ({"seed": "x"}, "seed")):
        config = json.loads(path.read_text())
        config["meta"]["given"] = given
        path.write_text(json.dumps(config))
        with pytest.raises(BadModelFile, match=message):
            load(tmp_path / "m")


def test_a_fitted_tree_is_searched_as_the_parameters_say(linear_recipe: str, small: Any, made: Made) -> None:
    usual = {"linear.negatives": "tfn"}  # of others, training looks at the scores
    model = small(linear_recipe, **usual).fit(made.texts, made.lists)
    narrow, wide = model.topk(made.texts, 3, beam=1), model.topk(made.texts, 3)
    assert linear_recipe in FLAT or (narrow.scores != wide.scores).any()
    model.set_params(search__beam=1)
    np.testing.assert_array_equal(model.topk(made.texts, 3).scores, narrow.scores)
    model.set_params(search__beam=10)
    np.testing.assert_array_equal(model.topk(made.texts, 3).scores, wide.scores)
    model.set_params(search__post="sigmoid", search__leaf_post="same")
    other = small(linear_recipe, **usual, **{"search.post": "sigmoid", "search.leaf_post": "same"})
    other.fit(made.texts, made.lists)
    np.testing.assert_array_equal(model.topk(made.texts, 3).scores, other.topk(made.texts, 3).scores)
    if len(model.heads_) > 1:
        by_rank = model.set_params(ensemble="rank-average").topk(made.texts, 3)
        assert (by_rank.scores > 1).any()


def test_parameters_of_an_encoder() -> None:
    model = XRTransformer(encoder="some/model", training={"learning_rate": 1e-5})
    assert model.get_params(deep=False)["encoder"] == "some/model"
    assert model.get_params()["encoder__name"] == "some/model"
    assert model.get_params()["training__learning_rate"] == 1e-5
    model.set_params(encoder__max_length=64, training__batch_size=8, head_weight=0.5, features="encoder")
    assert (model.config.encoder.name, model.config.encoder.max_length) == ("some/model", 64)
    assert (model.config.training.learning_rate, model.config.training.batch_size) == (1e-5, 8)
    assert (model.config.head_weight, model.config.features) == (0.5, "encoder")
    copy = clone(model)
    assert copy.config == model.config
    model.set_params(encoder__max_length=32, encoder=EncoderConfig(name="other/model"))  # the noun first
    assert (model.config.encoder.name, model.config.encoder.max_length) == ("other/model", 32)
    assert repr(XRTransformer(encoder="x", trees=2)) == "XRTransformer(trees=2, encoder='x')"
    assert not model.__sklearn_tags__().input_tags.two_d_array
    assert model.__sklearn_tags__().input_tags.string


def test_the_constructor_copies_nothing() -> None:
    settings = {"branching": 8}
    model = XRLinear(tree=settings)
    assert model.tree is settings
    model.set_params(tree__leaf_size=4)
    assert settings == {"branching": 8}


def test_repr_shows_what_was_passed() -> None:
    assert repr(XRLinear()) == "XRLinear()"
    assert repr(XRLinear(tree={"branching": 8}, seed=1)) == "XRLinear(tree={'branching': 8}, seed=1)"


def test_it_is_a_classifier() -> None:
    assert is_classifier(XRLinear())
    with pytest.raises(NotFittedError) as caught:
        XRLinear().predict(["a"])
    assert isinstance(caught.value, NotFitted)


# Tools


def test_a_pipeline_from_texts(made: Made, held_out: Made) -> None:
    pipeline = make_pipeline(TfidfVectorizer(), XRLinear(tree={"leaf_size": 8}, threads=1))
    pipeline.fit(made.texts, made.Y)
    assert pipeline.score(held_out.texts, held_out.Y) > 0.95
    assert pipeline.predict(held_out.texts).shape == held_out.Y.shape
    other = clone(pipeline).set_params(xrlinear__tree__branching=4)
    assert other.named_steps["xrlinear"].config.tree.branching == 4


def test_a_grid_search_over_nested_settings(made: Made) -> None:
    pipeline = make_pipeline(TfidfVectorizer(), XRLinear(tree={"leaf_size": 8}, threads=1))
    grid = {"xrlinear__tree__branching": [2, 8], "xrlinear__linear__cost": [1e-4, 1.0]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(made.texts, made.Y)
    assert search.best_params_["xrlinear__linear__cost"] == 1.0
    assert search.best_score_ > 0.8
    by_model = GridSearchCV(XRLinear(threads=1), {"tree__branching": [2, 4]}, cv=2, error_score="raise")
    assert by_model.fit(np.array(made.texts), made.Y).best_score_ > 0.8


def test_cross_validation(linear_recipe: str, rows: sp.csr_matrix, made: Made) -> None:
    model = RECIPES[linear_recipe](tree={"leaf_size": 8}, threads=1)
    scores = cross_val_score(model, rows, made.Y.toarray(), cv=2, error_score="raise")
    assert scores.min() > 0.75


def test_a_search_over_settings_of_an_encoder(small: Callable[..., Model], made: Made) -> None:
    grid = {"encoder__pooling": ["mean", "cls"], "head_weight": [0.0, 0.3]}
    search = GridSearchCV(small("xr-transformer"), grid, cv=2, error_score="raise")
    assert search.fit(made.texts[:200], made.Y.toarray()[:200]).best_score_ > 0.5


def test_cross_validation_by_another_figure(made: Made) -> None:
    model = XRLinear(search={"threshold": 0.03}, threads=1)
    scores = cross_val_score(model, made.texts, made.Y.toarray(), cv=2, scoring="f1_micro", error_score="raise")
    assert scores.min() > 0.5


def test_cross_validation_in_processes(made: Made) -> None:
    model = XRLinear(tree={"leaf_size": 8}, threads=1)
    scores = cross_val_score(model, made.texts, made.Y.toarray(), cv=2, n_jobs=2, error_score="raise")
    assert scores.min() > 0.8


def test_decision_function_agrees_with_predict(
    recipe: str, small: Callable[..., Model], inputs: Callable[[str], Any], made: Made
) -> None:
    def fresh() -> Model:
        return RECIPES[recipe](threads=1) if recipe in LINEAR else small(recipe, **{"tree.kind": "auto"})

    X = inputs(recipe)
    model = fresh().fit(X, made.Y.toarray()).set_params(search__threshold=0.9)
    np.testing.assert_array_equal(model.decision_function(X) >= 0, model.predict(X) == 1)
    y = np.asarray(made.Y.argmax(axis=1)).ravel() // 10
    single = fresh().fit(X, y)
    np.testing.assert_array_equal(single.classes_[single.decision_function(X).argmax(axis=1)], single.predict(X))
    two = fresh().fit(X, y > 2)
    np.testing.assert_array_equal(two.decision_function(X) > 0, two.predict(X))


def test_a_model_inside_another(rows: sp.csr_matrix, made: Made) -> None:
    Y = made.Y.toarray()[:, :3].astype(int)
    assert ClassifierChain(XRLinear(threads=1)).fit(rows, Y).predict(rows).shape == Y.shape


def test_a_model_that_an_engine_trained_can_be_pickled_before_it_is_saved(made: Made, tmp_path: Path) -> None:
    model = XRLinear(**{"tree": {"leaf_size": 8}}).fit(made.texts, made.Y, engine="local", checkpoint=tmp_path / "work")
    copies = [pickle.loads(pickle.dumps(model)), deepcopy(model)]
    copies[0].save(tmp_path / "copy")
    assert any((tmp_path / "work").iterdir())  # the stages are those of the model that was fitted
    model.save(tmp_path / "model")
    for other in copies:
        np.testing.assert_array_equal(other.topk(made.texts, 3).scores, model.topk(made.texts, 3).scores)


def test_a_fitted_model_can_be_pickled(recipe: str, fitted: Callable[[str], Model], made: Made) -> None:
    model = fitted(recipe)
    model.score_labels(made.texts, made.Y)  # a model keeps what this works out
    expected = model.topk(made.texts, 3).scores
    for copy in (pickle.loads(pickle.dumps(model)), deepcopy(model)):
        np.testing.assert_array_equal(copy.topk(made.texts, 3).scores, expected)
        np.testing.assert_array_equal(deepcopy(copy).topk(made.texts, 3).scores, expected)  # a copy of a copy


def test_small_settings_are_settings() -> None:
    assert set(SMALL) <= {key.replace("__", ".") for key in XRLinear().get_params()}
    assert set(LEARN) <= {key.replace("__", ".") for key in XRTransformer().get_params()}
