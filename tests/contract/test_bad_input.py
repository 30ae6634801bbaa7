"""Every mistake gets a sentence with the rule, the value and the remedy, and changes nothing."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import umpteen
from umpteen import LabelTree, XRLinear, XRTransformer, store
from umpteen.errors import BadConfig, BadInput, BadModelFile, NotFitted
from umpteen.models import RECIPES, Model, create

from .conftest import FLAT, LINEAR, N_LABELS, Made, params

Fitted = Callable[[str], Model]
TEXTS, LISTS = ["red apple", "green pear", "red cherry"], [["red"], ["green"], ["red"]]


def with_value(value: float) -> np.ndarray:
    X = np.eye(3)
    X[1, 2] = value
    return X


@pytest.mark.parametrize(
    ("X", "Y", "message"),
    [
        (TEXTS, LISTS[:2], "Y has 2 rows but X has 3; pass one label row per text"),
        (np.eye(3), LISTS[:2], "Y has 2 rows but X has 3; pass one label row per text"),
        (iter(TEXTS), LISTS[:2], "Y has 2 rows but X has 3; pass one label row per text"),
        (TEXTS, None, "target y is None; pass a list of labels per row"),
        (TEXTS, "red", "labels must be one list per row or a matrix, but are a str"),
        (TEXTS, [["red"], [None], []], "a label must be text or a whole number, but row 1 has None"),
        (TEXTS, [["red"], None, []], r"labels of row 1 must be a list, but are None; pass \[\] for none"),
        (TEXTS, [["red"], "green", []], "labels of row 1 must be a list, but are 'green'"),
        (TEXTS, [[], [], []], "no row has a label.*check that labels were read"),
        (TEXTS, np.zeros((3, 4)), "no row has a label"),
        (TEXTS, -np.eye(3), r"Y holds -1 at row 0, column 0; use 0 for no and 1 for yes"),
        (TEXTS, with_value(np.nan), "Y holds NaN at row 1, column 2; remove or replace it"),
        (TEXTS, [0.5, 1.5, 2.0], "Unknown label type: continuous. Labels must be text or whole numbers"),
        (TEXTS, np.array([0.0, np.nan, 1.0]), "y contains NaN or infinity; remove those rows"),
        (TEXTS, np.array(["a", None, "b"], object), "but row 1 has None"),
        (TEXTS, np.array([1, 2, 3], "M8[s]"), "text or whole numbers, but are datetime64.*convert them"),
        (TEXTS, dict.fromkeys("abc"), "Y must hold labels in the order of the rows, but is a dict; pass a list"),
        (TEXTS, {"red", "green", "blue"}, "Y must hold labels in the order of the rows, but is a set; pass a list"),
        (TEXTS, np.zeros((3, 2, 2)), r"Y must have one or two dimensions, but has shape \(3, 2, 2\); pass"),
        (TEXTS, np.array(3), r"Y must have one or two dimensions, but has shape \(\)"),
        (TEXTS, [[0, 1], [1, 0], [0, 1]], r"pairs of 0 and 1.* pass np.array\(Y\) for a matrix"),
        (TEXTS, ["a", None, "b"], "a label must be text or a whole number, but row 1 has None"),
        (TEXTS, np.ma.array(np.eye(3), mask=np.eye(3)), r"Y has masked entries.* pass Y.filled\(0\)"),
        (np.ma.array(np.eye(3), mask=np.eye(3)), LISTS, r"X has masked entries.* pass X.filled\(0\)"),
        ([float("nan"), "red", "green"], LISTS, "text 0 is float"),
        (dict.fromkeys(TEXTS), LISTS, "X must hold texts in the order of the rows, but is a dict; pass a list"),
        (set(TEXTS), LISTS, "X must hold texts in the order of the rows, but is a set; pass a list"),
        ("red apple", LISTS, r"a single text was passed; wrap it: \[text\]"),
        (7, LISTS, "X must be a list of texts or a matrix, but is a int"),
        (["red", None, "green"], LISTS, "text 1 is NoneType"),
        ([None, "red", "green"], LISTS, "text 0 is NoneType"),
        ([b"red", b"green", b"blue"], LISTS, "text 0 is bytes"),
        ([], [], "X has 0 samples; pass at least one row"),
        (np.zeros((0, 3)), np.zeros((0, 2)), "X has 0 samples"),
        (np.zeros((3, 0)), LISTS, r"X has 0 feature\(s\)"),
        (np.arange(3.0), LISTS, "X must have two dimensions.*Reshape your data"),
        (with_value(np.nan), LISTS, "X holds NaN at row 1, column 2; remove or replace it"),
        (with_value(np.inf), LISTS, "X holds infinity.*at row 1, column 2; remove or replace it"),
        (with_value(1e60), LISTS, "X holds infinity.*too large for float32"),
        (sp.csr_matrix(with_value(np.nan)), LISTS, "X holds NaN at row 1, column 2"),
        (np.eye(3) * 1j, LISTS, "Complex data not supported"),
        ([[1, 2], [3], [4, 5]], LISTS, "X must be a matrix of numbers with rows of equal length"),
        (np.array([["a", "b"]] * 3), LISTS, "X must hold numbers.*pass texts as a list of str"),
    ],
)  # fmt: skip
def test_data_that_cannot_be_trained_on(X: Any, Y: Any, message: str) -> None:
    model = XRLinear(threads=1)
    with pytest.raises(BadInput, match=message):
        model.fit(X, Y)
    assert not hasattr(model, "heads_")


@pytest.mark.parametrize(
    ("X", "Y", "message"),
    [
        (TEXTS, LISTS[:2], "Y has 2 rows but X has 3; pass one label row per text"),
        (TEXTS, None, "target y is None; pass a list of labels per row"),
        (TEXTS, [[], [], []], "no row has a label.*check that labels were read"),
        ("red apple", LISTS, r"a single text was passed; wrap it: \[text\]"),
        (["red", None, "green"], LISTS, "text 1 is NoneType"),
        ([None, "red", "green"], LISTS, "text 0 is NoneType"),
        ([b"red", b"green", b"blue"], LISTS, "text 0 is bytes"),
        ([], [], "X has 0 samples; pass at least one row"),
        (np.eye(3), LISTS, "reads texts; pass a list of str, or use xr-linear for feature rows"),
        (sp.csr_matrix(np.eye(3)), LISTS, "reads texts"),
        ([[1, 2], [3, 4], [4, 5]], LISTS, "reads texts"),
    ],
)
@pytest.mark.parametrize("recipe", ["xr-transformer", "lightxml"])
def test_texts_that_cannot_be_trained_on(
    small: Callable[..., Model], encoder_folder: Path, recipe: str, X: Any, Y: Any, message: str
) -> None:
    model = small(recipe)
    with pytest.raises(BadInput, match=message):
        model.fit(X, Y)
    assert not hasattr(model, "heads_")


def test_texts_without_words_are_refused_where_words_are_used(
    small: Callable[..., Model], encoder_folder: Path
) -> None:
    with pytest.raises(BadInput, match="no word n-gram in any of 3 texts; pass texts with words"):
        small("xr-transformer").fit(["", "!", "?"], LISTS)
    assert small("lightxml").fit(["", "!", "?"], LISTS).topk(["!"], 2).k == 2


def never(stage: str, done: int, total: int) -> None:
    """Stand in for progress where nothing may have begun."""
    raise AssertionError(f"{stage} has begun")


@pytest.mark.parametrize(
    ("more", "settings", "message"),
    [
        ({"tree": LabelTree.flat(5)}, {}, "the tree has 5 labels but Y has 40 columns"),
        ({}, {"tree.kind": "given"}, "tree.kind is 'given' but no tree was passed"),
    ],
)
def test_a_tree_that_cannot_be_had_is_refused_before_anything_is_read(
    small: Callable[..., Model], recipe: str, more: dict[str, Any], settings: dict[str, Any], message: str
) -> None:
    if recipe == "full" and "tree" in more:
        message = "full scores every label and has no use for a tree"
    with pytest.raises((BadInput, BadConfig), match=message):
        small(recipe, **settings).fit(TEXTS, np.eye(3, 40), progress=never, **more)


@pytest.mark.parametrize("recipe", params(name for name in RECIPES if name in LINEAR or name not in FLAT))
def test_names_that_labels_do_not_have_are_missed_before_anything_is_read(
    small: Callable[..., Model], recipe: str
) -> None:
    with pytest.raises(BadConfig, match=r"tree\.vectors needs texts and label names"):
        small(recipe, **{"tree.vectors": "names"}).fit(TEXTS, np.eye(3, 40), progress=never)


def test_a_tree_with_a_huge_group_is_refused_where_all_of_it_would_be_scored(small: Callable[..., Model]) -> None:
    pytest.importorskip("torch")
    n_labels = 100_000
    tree = LabelTree.from_parents(np.maximum(np.arange(n_labels) - (n_labels - 10), 0))
    Y = sp.csr_matrix((np.ones(3), ([0, 1, 2], [0, 1, 2])), shape=(3, n_labels))
    with pytest.raises(
        BadConfig, match=r"the tree has a group of 99,991, so that with network.beam 4 a text .* 399,964 nodes"
    ):
        small("cascadexml").fit(TEXTS, Y, tree=tree, progress=never)


@pytest.mark.parametrize(
    ("recipe", "settings", "message"),
    [
        ("xr-transformer", {"encoder.max_length": 100_000}, "encoder.max_length is 100000, but .* reads at most"),
        ("cascadexml", {"encoder.max_length": 100_000}, "encoder.max_length is 100000, but .* reads at most"),
        ("cascadexml", {"network.pooling": "cls@99"}, "network.pooling names layer 99, but the encoder has 2 layers"),
    ],
)
def test_what_an_encoder_cannot_do_is_told_before_anything_is_read(
    small: Callable[..., Model], recipe: str, settings: dict[str, Any], message: str
) -> None:
    pytest.importorskip("torch")
    with pytest.raises(BadConfig, match=message):
        small(recipe, **settings).fit(TEXTS, np.eye(3, 40), progress=never)


def test_a_broken_sparse_matrix_is_refused() -> None:
    X = sp.csr_matrix(np.eye(3))
    X.indices[1] = 99
    with pytest.raises(BadInput, match="X is not a well-formed csr matrix"):
        XRLinear(threads=1).fit(X, LISTS)


@pytest.mark.parametrize("what", ["features", "labels"])
def test_columns_that_no_memory_holds_are_refused(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr("umpteen.data.sparse.machine_memory", lambda: 1e10)
    wide = sp.csr_matrix((np.ones(3), ([0, 1, 2], [0, 1, 2**31 - 2])), shape=(3, 2**31 - 1))
    X, Y = (wide, LISTS) if what == "features" else (TEXTS, wide)
    message = f"there are 2,147,483,647 {what}, which alone take 137 GB of memory where there are 10.0; is a number"
    with pytest.raises(BadInput, match=message):
        XRLinear(threads=1).fit(X, Y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"label_names": ["red", "green", "blue"]},
            r"Y has 2 columns but there are 3 names; name each column",
        ),
        ({"label_names": ["red", "red"]}, "'red' occurs twice"),
        ({"label_names": {"red", "green"}}, "labels must be a list, whose order is that of the columns"),
        ({"label_names": {"red": 1, "green": 0}}, "labels must be a list, whose order is that of the columns"),
        (
            {"tree": LabelTree.flat(5)},
            "the tree has 5 labels but Y has 2 columns; pass a tree over the columns",
        ),
    ],
)
def test_names_and_trees_must_fit_the_columns(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        XRLinear(threads=1).fit(TEXTS, np.array([[1, 0], [0, 1], [1, 0]]), **settings)


def test_a_label_outside_the_given_vocabulary_is_named() -> None:
    with pytest.raises(BadInput, match="'green', none of the 2 known ones; did you mean 'greem'"):
        XRLinear(threads=1).fit(TEXTS, LISTS, label_names=["greem", "red"])


# Settings


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: create("xr-linea"), "recipe must be one of xr-linear.*did you mean 'xr-linear'"),
        (lambda: create("xr-linear", {"tree.branchin": 4}), "branchin'; did you mean '.*branching'"),
        (lambda: create("plt", {"linear": {"lose": "x"}}), "'lose'; did you mean 'loss'"),
        (lambda: create("plt", {"linear.loss": "hinge"}), "one of squared-hinge, logistic, but is 'hinge'"),
        (lambda: create("plt", {"trees": 0}), "trees must be at least 1, but is 0"),
        (lambda: create("plt", {"seed": 1.5}), "seed must be a whole number, but is 1.5"),
        (lambda: create("plt", {"seed": 10**30}), "seed must be at most 4611686018427387904, but is 1000000"),
        (lambda: XRLinear(seed=10**400).fit(TEXTS, LISTS), "seed must be a number, but is 1000000"),
        (lambda: XRLinear(seed=-1).fit(TEXTS, LISTS), "seed must be at least 0, but is -1"),
        (lambda: XRLinear(threads=-7).fit(TEXTS, LISTS), "threads must be at least 0, but is -7"),
        (lambda: XRLinear(threads="two").fit(TEXTS, LISTS), "threads must be a number, but is 'two'"),
        (lambda: XRLinear(tree={"branching": 1}).fit(TEXTS, LISTS), "branching must be at least 2, but is 1"),
        (lambda: XRLinear(tree={"branchin": 4}).fit(TEXTS, LISTS), "'branchin'; did you mean 'branching'"),
        (lambda: XRLinear(tree=16).fit(TEXTS, LISTS), "tree must be a TreeConfig or a dict, but is 16"),
        (lambda: XRLinear().set_params(tree__branchin=4), "branchin'; did you mean '.*branching'"),
        (lambda: XRLinear().set_params(treee__branching=4), "'treee__branching'; did you mean 'tree'"),
        (lambda: XRLinear().set_params(seed__x=4), "setting 'seed' has no parts"),
        (lambda: XRLinear(tree={"kind": "given", "leaf_size": 1}).fit(TEXTS, LISTS), "no tree was passed"),
        (lambda: XRLinear(tree={"vectors": "names"}).fit(np.eye(3), LISTS), "needs texts and label names"),
        (lambda: create("xr-linear", {"encoder.name": "minilm"}), "no setting 'encoder.name'; those that have"),
        (lambda: create("dismec", {"training.epochs": 2}), "those that have are xr-transformer, x-transformer, "),
        (lambda: create("full", {"network.pooling": "cls@"}), "network.pooling must be poolings separated by commas"),
        (lambda: create("lightxml", {"network.pooling": "cls, max"}), "network.pooling must be poolings separated"),
        (lambda: create("xr-transformer", {"encoder.nam": "x"}), "'nam'; did you mean 'name'"),
        (lambda: create("xr-transformer", {"encoder": 5}), "encoder must be a EncoderConfig or a dict, but is 5"),
        (lambda: create("xr-transformer", {"encoder.device": "gpu"}), "device must be auto, cpu, cuda, mps, or a GPU"),
        (lambda: create("xr-transformer", {"features": "words"}), "features must be one of auto, both, encoder, tfidf"),
        (lambda: create("xr-transformer", {"head_weight": 2}), "head_weight must be at most 1.0, but is 2"),
        (lambda: create("xr-transformer", {"fusion": (1.0,)}), "fusion must be three or four numbers or empty"),
        (
            lambda: create("xr-transformer", {"network.levels": "64,8"}),
            "must grow from coarse to fine, each to at least twice the one above, but are 64, 8",
        ),
        (lambda: XRTransformer(encoder="x").set_params(encoder__token=4), "token'; did you mean '.*tokens'"),
    ],
)  # fmt: skip
def test_wrong_settings(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        make()


def test_a_refused_parameter_changes_nothing() -> None:
    model = XRLinear(tree={"branching": 4})
    with pytest.raises(BadConfig, match="branchin"):
        model.set_params(tree__branchin=8)
    assert model.get_params(deep=False) == XRLinear(tree={"branching": 4}).get_params(deep=False)
    with pytest.raises(BadConfig, match="branchin"):
        model.set_params(seed=3, tree__branchin=8)
    assert model.seed == 0
    model.fit(TEXTS, LISTS)
    with pytest.raises(BadConfig, match="beam must be at least 1"):
        model.set_params(search={"beam": 0})
    assert (model.search, model.config_.search.beam) == (None, 10)


# Prediction


@pytest.mark.parametrize(
    "ask",
    [
        lambda model: model.topk(TEXTS),
        lambda model: model.predict(TEXTS),
        lambda model: model.decision_function(TEXTS),
        lambda model: model.score(TEXTS, LISTS),
        lambda model: model.evaluate(TEXTS, LISTS),
        lambda model: model.score_labels(TEXTS, np.eye(3)),
        lambda model: model.save("nowhere"),
        lambda model: model.describe(),
        lambda model: model.labels_,
        lambda model: model.classes_,
    ],
)
def test_nothing_works_before_fit(recipe: str, ask: Callable[[Model], Any]) -> None:
    with pytest.raises(NotFitted, match=f"this {RECIPES[recipe].__name__} is not fitted yet; call fit first"):
        ask(RECIPES[recipe]())
    assert not Path("nowhere").exists()


@pytest.mark.parametrize("k", [0, -1, 1.5, "3", None, True])
def test_k_must_be_a_whole_number(recipe: str, fitted: Fitted, k: Any) -> None:
    with pytest.raises(BadInput, match="k must be a whole number of at least 1, but is"):
        fitted(recipe).topk(TEXTS, k)


def test_numbers_that_fit_no_array_are_refused() -> None:
    model = XRLinear(threads=1).fit(TEXTS, LISTS)
    with pytest.raises(BadInput, match="k must be at most 2147483647, but is 1000"):
        model.topk(TEXTS, 10**30)
    with pytest.raises(BadInput, match="beam must be at most 2147483647, but is 1000"):
        model.topk(TEXTS, 1, beam=10**30)
    with pytest.raises(BadInput, match=r"allowed has the column 10{30}; they range from 0 to 1"):
        model.topk(TEXTS, 1, allowed=[10**30])


@pytest.mark.parametrize("search", [{"beam": 2**62}, {"upper_beam": 1e300}, {"beams": (2**62,)}])
def test_a_setting_of_a_huge_beam_keeps_all_nodes(search: dict[str, Any]) -> None:
    model = XRLinear(threads=1, search=search).fit(TEXTS, LISTS)
    assert model.topk(TEXTS, 2).labels.tolist() == XRLinear(threads=1).fit(TEXTS, LISTS).topk(TEXTS, 2).labels.tolist()


@pytest.mark.parametrize("beam", [0, -1, 1.5, True])
def test_beam_must_be_a_whole_number(recipe: str, fitted: Fitted, beam: Any) -> None:
    with pytest.raises(BadInput, match="beam must be a whole number of at least 1, but is"):
        fitted(recipe).topk(TEXTS, 1, beam=beam)


@pytest.mark.parametrize("threads", ["2", -7, 1.5, True])
def test_threads_must_be_a_whole_number(threads: Any) -> None:
    model = XRLinear(threads="1").fit(TEXTS, LISTS)
    assert model.topk(TEXTS, 1).k == 1
    for ask in (
        lambda: model.topk(TEXTS, 1, threads=threads),
        lambda: model.score_labels(TEXTS, [[1, 1]] * 3, threads=threads),
    ):
        with pytest.raises(BadInput, match="threads must be a whole number, 0 for all cores, but is"):
            ask()


def test_rows_of_another_width_are_refused(linear_recipe: str, small: Callable[..., Model]) -> None:
    model = small(linear_recipe).fit(np.eye(3), LISTS)
    name = type(model).__name__
    message = f"X has 4 features, but {name} is expecting 3 features as input; prepare the rows as for training"
    for X in (np.ones((2, 4)), sp.csr_matrix(np.ones((1, 4)))):
        with pytest.raises(BadInput, match=message):
            model.topk(X)


def test_values_that_are_not_numbers_are_refused(linear_recipe: str, small: Callable[..., Model]) -> None:
    model = small(linear_recipe).fit(np.eye(3), LISTS)
    for value, word in ((np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")):
        with pytest.raises(BadInput, match=f"X holds {word}.* at row 1, column 2; remove or replace it"):
            model.topk(with_value(value))


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("data", [1.0, np.nan], "X holds NaN at row 0, column 2"),
        ("data", [np.inf, 1.0], "X holds infinity.* at row 0, column 0"),
        ("indices", [0, 7], "X is not a well-formed csr matrix"),
        ("indices", [-1, 2], "X is not a well-formed csr matrix"),
        ("indptr", [0, 3], "X is not a well-formed csr matrix"),
    ],
)
def test_a_broken_single_row_is_refused(part: str, value: list[float], message: str) -> None:
    model = XRLinear(threads=1).fit(np.eye(3), LISTS)
    X = sp.csr_matrix(np.array([[1.0, 0.0, 1.0]]))
    getattr(X, part)[:] = value
    with pytest.raises(BadInput, match=message):
        model.topk(X)


def test_an_unsorted_single_row_is_sorted() -> None:
    model = XRLinear(threads=1).fit(np.eye(3), LISTS)
    X = sp.csr_matrix((np.array([1.0, 2.0, 3.0]), np.array([2, 0, 0]), np.array([0, 3])), shape=(1, 3))
    np.testing.assert_array_equal(model.topk(X).scores, model.topk(np.array([[5.0, 0.0, 1.0]])).scores)


def test_texts_for_a_model_of_rows_and_the_reverse(linear_recipe: str, small: Callable[..., Model]) -> None:
    of_rows = small(linear_recipe).fit(np.eye(3), LISTS)
    with pytest.raises(BadInput, match="trained on feature rows and cannot read texts; pass a matrix"):
        of_rows.topk(TEXTS)
    of_texts = small(linear_recipe).fit(TEXTS, LISTS)
    with pytest.raises(BadInput, match="trained on texts; pass a list of str"):
        of_texts.topk([[0.0, 1.0]])
    with pytest.raises(BadInput, match=f"X has 3 features, but .* expecting {of_texts.n_features_in_} features"):
        of_texts.topk(np.eye(3))
    with pytest.raises(BadInput, match=r"a single text was passed; wrap it: \[text\]"):
        of_texts.topk("red apple")
    with pytest.raises(BadInput, match="text 1 is int"):
        of_texts.topk(["red", 3])
    with pytest.raises(BadInput, match="is NoneType"):
        of_texts.topk([None, "red"])


def test_a_model_with_an_encoder_takes_texts_only(fitted: Fitted) -> None:
    model = fitted("xr-transformer")
    for X in (np.eye(3), sp.csr_matrix((1, model.n_features_in_), dtype=np.float32), [[0.0, 1.0]]):
        with pytest.raises(BadInput, match="this model reads texts; pass a list of str"):
            model.topk(X)
    with pytest.raises(BadInput, match=r"a single text was passed; wrap it: \[text\]"):
        model.topk("red apple")
    with pytest.raises(BadInput, match="text 1 is int"):
        model.topk(["red", 3])
    with pytest.raises(BadInput, match="text 0 is NoneType"):
        model.topk([None, "red"])


def test_truth_that_does_not_match(recipe: str, fitted: Fitted, made: Made) -> None:
    model = fitted(recipe)
    with pytest.raises(BadInput, match="Y has 2 rows but X has 3"):
        model.evaluate(made.texts[:3], made.lists[:2])
    with pytest.raises(BadInput, match="Y has 2 rows but X has 3"):
        model.score(made.texts[:3], made.lists[:2])
    with pytest.raises(BadInput, match="Y has 2 columns but the model has 60 labels; pass one column per label"):
        model.evaluate(made.texts[:3], np.ones((3, 2)))


def test_pairs_of_0_and_1_are_read_as_fit_read_them() -> None:
    model = XRLinear(threads=1).fit(TEXTS, [[0, 1], [1], [2]])
    assert model.evaluate(TEXTS[:1], [[0, 1]], ks=(2,))["R@2"] == 100
    matrix = [[1, 0], [0, 1], [1, 0]]
    of_matrix = XRLinear(threads=1).fit(TEXTS, np.array(matrix))
    for ask in (of_matrix.evaluate, of_matrix.score, of_matrix.estimate):
        with pytest.raises(BadInput, match="pairs of 0 and 1"):
            ask(TEXTS, matrix)


def test_lists_that_are_a_matrix_in_fit_are_one_in_evaluate() -> None:
    matrix = [[1, 0, 0], [0, 1, 0], [1, 0, 1]]
    model = XRLinear(threads=1).fit(TEXTS, matrix)
    assert model.evaluate(TEXTS, matrix) == model.evaluate(TEXTS, np.array(matrix))


@pytest.mark.parametrize("X", [{"red": 1}, {"red"}, frozenset(["red"])])
def test_texts_without_an_order_are_refused(recipe: str, fitted: Fitted, X: Any) -> None:
    with pytest.raises(BadInput, match=r"X must hold texts in the order of the rows, but is a (dict|set); pass a list"):
        fitted(recipe).topk(X)


@pytest.mark.parametrize("ks", [(), [], 5, "1", (0,), (1.5,)])
def test_depths_must_be_a_list_of_whole_numbers(ks: Any) -> None:
    model = XRLinear(threads=1).fit(TEXTS, LISTS)
    with pytest.raises(BadInput, match=r"ks must|k must be a whole number of at least 1"):
        model.evaluate(TEXTS, LISTS, ks=ks)


@pytest.mark.parametrize("threshold", [float("nan"), float("inf"), "high"])
def test_a_threshold_must_be_a_number(threshold: Any) -> None:
    model = XRLinear(threads=1).fit(TEXTS, LISTS)
    with pytest.raises(BadInput, match="threshold must be a number, but is"):
        model.evaluate(TEXTS, LISTS, threshold=threshold)
    with pytest.raises(BadConfig, match=r"threshold must be a number, but is"):
        XRLinear(search={"threshold": threshold}).fit(TEXTS, LISTS)


def test_pairs_that_do_not_match(recipe: str, fitted: Fitted, made: Made) -> None:
    model = fitted(recipe)
    with pytest.raises(BadInput, match="pairs has 5 columns but the model has 60 labels; pass one column per"):
        model.score_labels(made.texts[:3], np.ones((3, 5)))
    with pytest.raises(BadInput, match="pairs has 2 rows but X has 3"):
        model.score_labels(made.texts[:3], np.ones((2, N_LABELS)))


# The disk


def test_a_model_of_another_recipe_says_how_to_open_it(fitted: Fitted, tmp_path: Path) -> None:
    fitted("parabel").save(tmp_path / "m")
    with pytest.raises(BadModelFile, match=r"holds a parabel model; open it with umpteen\.load"):
        XRLinear.load(tmp_path / "m")


def _change(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(format=99), "written by a newer umpteen .*upgrade with pip"),
        (lambda c: c.update(recipe="xr-quantum"), "unknown recipe 'xr-quantum'; upgrade umpteen to open it"),
        (lambda c: c["settings"].update(novelty=1), "not a whole umpteen model .*'novelty'"),
        (lambda c: c["settings"]["tree"].update(branching=0), "branching must be at least 2"),
        (lambda c: c["meta"].pop("n_features"), "not a whole umpteen model .*'n_features'.*save it again"),
        (lambda c: c["meta"].update(n_features="many"), "not a whole umpteen model"),
        (lambda c: c["meta"].update(n_features=3), "its tf-idf has .* terms where 3 were saved"),
        (lambda c: c["meta"].update(n_labels=3), "it names 60 labels where 3 were saved"),
        (lambda c: c["meta"].update(trees=2), "has no arrays 'tree-1'"),
        (lambda c: c["meta"].update(trees=0), "do not fit its 60 labels"),
        (lambda c: c["meta"].update(targets={"kin": "lists"}), "not a whole umpteen model"),
        (lambda c: c["meta"]["data"].update(separator="a\nb"), "a label separator is one to 8 characters"),
        (lambda c: c["meta"]["data"].update(separator=5), "a label separator is one to 8 characters"),
        (lambda c: c.pop("meta"), "'meta' is missing"),
    ],
)
def test_a_foreign_or_damaged_config_is_refused(
    fitted: Fitted, tmp_path: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    fitted("xr-linear").save(tmp_path / "m")
    _change(tmp_path / "m", change)
    with pytest.raises(BadModelFile, match=message):
        umpteen.load(tmp_path / "m")


@pytest.mark.parametrize("stem", ["tree-0", "tfidf", "labels"])
def test_a_truncated_file_is_named(fitted: Fitted, tmp_path: Path, stem: str) -> None:
    fitted("xr-linear").save(tmp_path / "m")
    victim = next((tmp_path / "m").glob(f"{stem}-*"))
    victim.write_bytes(victim.read_bytes()[:-5])
    for mmap in (True, False):
        with pytest.raises(BadModelFile, match=f"{victim.name}.*truncated or damaged.*save the model again"):
            umpteen.load(tmp_path / "m", mmap=mmap)


@pytest.mark.parametrize("pattern", ["head-*", "encoder-*/model.safetensors", "encoder-*/tokenizer.json"])
def test_a_truncated_file_of_an_encoder_is_named(fitted: Fitted, tmp_path: Path, pattern: str) -> None:
    fitted("xr-transformer").save(tmp_path / "m")
    victim = next((tmp_path / "m").glob(pattern))
    victim.write_bytes(victim.read_bytes()[:-5])
    with pytest.raises(BadModelFile, match=f"{victim.name}.*truncated or damaged.*save the model again"):
        umpteen.load(tmp_path / "m")


def test_what_is_verified_can_be_chosen(fitted: Fitted, tmp_path: Path) -> None:
    fitted("xr-linear").save(tmp_path / "m")
    victim = next((tmp_path / "m").glob("tree-0-*"))
    sound = victim.read_bytes()
    for verify in ("none", "arrays", "full"):
        umpteen.load(tmp_path / "m", verify=verify)
    victim.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))  # one bit
    umpteen.load(tmp_path / "m", verify="none")
    with pytest.raises(BadModelFile, match="its content has changed since it was saved"):
        umpteen.load(tmp_path / "m", verify="full")
    victim.write_bytes(sound)
    arrays = store.load_tensors(victim, mmap=False)
    arrays["local"][0] = 255  # a node beyond those of its level
    store.save_tensors(victim, arrays)
    for opened in (umpteen.load, XRLinear.load):
        opened(tmp_path / "m", verify="none")
        with pytest.raises(BadModelFile, match="the weights of tree 0 are damaged: 'local' names nodes beyond"):
            opened(tmp_path / "m")
    with pytest.raises(BadInput, match="verify must be one of none, arrays, full, but is 'ful'; did you mean 'full'"):
        umpteen.load(tmp_path / "m", verify="ful")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadModelFile, match="does not exist; check the path"):
        umpteen.load(tmp_path / "no such model")
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadModelFile, match="is a file, not a folder"):
        umpteen.load(tmp_path / "file")
    with pytest.raises(BadModelFile, match="no umpteen model"):
        umpteen.load(tmp_path)


def test_a_foreign_folder_is_not_written_to(fitted: Fitted, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match="holds no umpteen model, so it is left alone"):
        fitted("xr-linear").save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_full_disk_keeps_the_old_model(
    fitted: Fitted, made: Made, tmp_path: Path, files: Callable[[Path], dict[str, bytes]], monkeypatch: Any
) -> None:
    fitted("xr-linear").save(tmp_path / "m")
    before = files(tmp_path / "m")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(store.SaveFailed, match="No space left on device; what was there before is unchanged"):
        fitted("parabel").save(tmp_path / "m")
    monkeypatch.undo()
    assert files(tmp_path / "m") == before
    assert umpteen.load(tmp_path / "m").topk(made.texts[:1], 1).names


def test_a_model_outlives_its_folder(recipe: str, fitted: Fitted, made: Made, tmp_path: Path) -> None:
    fitted(recipe).save(tmp_path / "m")
    opened = umpteen.load(tmp_path / "m", mmap=False)
    shutil.rmtree(tmp_path / "m")
    assert opened.topk(made.texts[:1], 1).names == fitted(recipe).topk(made.texts[:1], 1).names
