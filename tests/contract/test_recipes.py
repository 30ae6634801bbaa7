"""What every recipe promises: it learns, answers the same however it is asked, and survives the disk."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import umpteen
from umpteen import LabelTree
from umpteen.models import RECIPES, Model
from umpteen.shortlist import TopK

from .conftest import FLAT, LINEAR, N_LABELS, N_TOPICS, NETS, RANKED, SMALL, Made, make, params

Fitted = Callable[[str], Model]
Small = Callable[..., Model]
Files = Callable[[Path], dict[str, bytes]]
Inputs = Callable[[str], Any]

FLOOR = {"xr-linear": 95.0, "parabel": 95.0, "bonsai": 95.0, "plt": 95.0, "dismec": 95.0, "xr-transformer": 95.0}
FLOOR |= {"x-transformer": 95.0, "cascadexml-dismec": 95.0}
FLOOR |= {"lightxml": 90.0, "cascadexml": 90.0, "full": 90.0}  # these see no words, only what the encoder makes of them
FLOOR |= {"attentionxml": 85.0, "xml-cnn": 60.0}  # and these only vectors of words
FLOOR |= {"extremetext": 90.0}


def same(one: TopK, two: TopK) -> None:
    """Check that two answers are equal to the last bit; on a GPU sums have no fixed order, so but for rounding."""
    if find_spec("torch") and import_module("torch").cuda.is_available():
        alike(one, two)
        return
    np.testing.assert_array_equal(one.labels, two.labels)
    np.testing.assert_array_equal(one.scores, two.scores)


def alike(one: TopK, two: TopK) -> None:
    """Check that two answers agree but for rounding, however equal scores are ordered."""
    np.testing.assert_allclose(one.scores, two.scores, rtol=1e-4, atol=1e-6)
    for labels, others, scores in zip(one.labels, two.labels, one.scores, strict=True):
        clear = scores > scores[-1] * 1.001 + 1e-6  # at the edge either of two equal labels may be kept
        assert set(labels[clear]) == set(others[clear])


# Learning


def test_every_recipe_has_a_floor() -> None:
    assert set(FLOOR) == set(RECIPES)


def test_learns_what_the_keywords_say(recipe: str, fitted: Fitted, held_out: Made) -> None:
    figures = fitted(recipe).evaluate(held_out.texts, held_out.lists, ks=(1, 3))
    assert figures["P@1"] > FLOOR[recipe]
    assert figures["R@3"] > min(90.0, FLOOR[recipe])


def test_predict_answers_in_the_form_of_fit(recipe: str, small: Small, inputs: Inputs, made: Made) -> None:
    as_lists = small(recipe).fit(made.texts, made.lists).predict(made.texts)
    assert np.mean([set(a) == set(b) for a, b in zip(as_lists, made.lists, strict=True)]) > 0.6
    X = inputs(recipe)
    as_sparse = small(recipe).fit(X, made.Y).predict(X)
    assert sp.issparse(as_sparse)
    assert as_sparse.shape == made.Y.shape
    as_dense = small(recipe).fit(X, made.Y.toarray()).predict(X)
    assert isinstance(as_dense, np.ndarray)
    np.testing.assert_array_equal(as_dense, as_sparse.toarray())
    assert [sorted(row) for row in as_lists] == [
        [made.labels.names()[i] for i in np.flatnonzero(row)] for row in as_dense
    ]


@pytest.mark.parametrize("dtype", [str, object, np.int64, np.float64])
def test_one_label_per_row(recipe: str, small: Small, tmp_path: Path, dtype: Any) -> None:
    texts = ["red apple", "green pear", "red cherry", "green lime"] * 3
    values = ["10", "20", "10", "20"] * 3
    y = np.array(values).astype(float).astype(dtype) if dtype in (np.int64, np.float64) else np.array(values, dtype)
    model = small(recipe).fit(texts, y)
    for now in (model, _reopened(model, tmp_path)):
        predicted = now.predict(texts)
        assert predicted.dtype == y.dtype
        np.testing.assert_array_equal(predicted, y)
        np.testing.assert_array_equal(now.classes_, np.unique(y))
        assert now.topk(texts[:1], 1).names == [["10"]]
        assert now.score(texts, y) == 1.0


def test_true_or_false_per_row(small: Small, tmp_path: Path) -> None:
    texts = ["spam offer", "dear friend"] * 4
    model = _reopened(small("dismec").fit(texts, [True, False] * 4), tmp_path)
    assert model.predict(texts).tolist() == [True, False] * 4


# The same question in other forms


def test_texts_and_their_rows_give_the_same(linear_recipe: str, fitted: Fitted, held_out: Made) -> None:
    model = fitted(linear_recipe)
    same(model.topk(held_out.texts, 5), model.topk(model.tfidf_.transform(held_out.texts), 5))


def test_training_on_texts_or_their_rows_is_the_same(
    linear_recipe: str, fitted: Fitted, small: Small, made: Made, held_out: Made
) -> None:
    by_texts = fitted(linear_recipe)
    X = by_texts.tfidf_.transform(made.texts)
    by_rows = small(linear_recipe, normalize=False).fit(X, made.lists)
    same(by_texts.topk(held_out.texts, 5), by_rows.topk(by_texts.tfidf_.transform(held_out.texts), 5))


def test_lists_and_matrices_of_labels_train_the_same(recipe: str, brief: Small, inputs: Inputs, made: Made) -> None:
    X = inputs(recipe)
    one = brief(recipe).fit(X, made.lists)
    forms = [made.Y, made.Y.tocsc(), made.Y.toarray(), [set(row) for row in made.lists], iter(made.lists)]
    for form in forms:
        same(one.topk(X, 5), brief(recipe).fit(X, form).topk(X, 5))


def test_texts_in_any_container(recipe: str, fitted: Fitted, small: Small, made: Made) -> None:
    model, texts = fitted(recipe), made.texts[:20]
    for form in (tuple(texts), np.array(texts), np.array(texts, object), iter(texts)):
        same(model.topk(texts, 3), model.topk(form, 3))
    same(model.topk(texts, 3), small(recipe).fit(iter(made.texts), made.lists).topk(texts, 3))


def test_a_single_query_is_a_row_of_the_batch(recipe: str, fitted: Fitted, held_out: Made) -> None:
    model = fitted(recipe)
    batch = model.topk(held_out.texts, 5)
    for i in range(0, len(held_out), 10):
        alike(model.topk(held_out.texts[i : i + 1], 5), batch[i : i + 1])


def test_a_single_row_takes_the_same_values_as_a_batch(small: Small, rows: sp.csr_matrix, made: Made) -> None:
    for normalize in (True, False):
        model = small("xr-linear", normalize=normalize).fit(rows, made.Y)
        for X in (rows[::20] * 3.0, rows[::20].astype(np.float64)):  # few enough to be searched row by row
            batch = model.topk(X, 5)
            for i in range(X.shape[0]):
                one = model.topk(X[i], 5)
                np.testing.assert_array_equal(one.labels, batch.labels[i : i + 1])
                np.testing.assert_array_equal(one.scores, batch.scores[i : i + 1])


def test_duplicate_rows_get_the_same_answer(recipe: str, fitted: Fitted, held_out: Made) -> None:
    top = fitted(recipe).topk([held_out.texts[0]] * 200, 5)
    assert (top.labels == top.labels[0]).all()
    np.testing.assert_allclose(top.scores, np.tile(top.scores[0], (200, 1)), rtol=0 if recipe in LINEAR else 1e-5)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_do_not_change_the_answer(recipe: str, fitted: Fitted, held_out: Made, threads: int) -> None:
    model = fitted(recipe)
    same(model.topk(held_out.texts, 5, threads=2), model.topk(held_out.texts, 5, threads=threads))


def test_a_smaller_k_is_the_start_of_a_larger_one(recipe: str, fitted: Fitted, held_out: Made) -> None:
    model = fitted(recipe)
    five = model.topk(held_out.texts, 5)
    one = model.topk(held_out.texts, 1)
    alike(one, TopK(five.labels[:, :1], five.scores[:, :1]))


def test_unsorted_and_wide_indices_change_nothing(
    linear_recipe: str, small: Small, rows: sp.csr_matrix, made: Made
) -> None:
    expected = small(linear_recipe).fit(rows, made.Y)
    shuffled = _shuffled(rows)
    before = [part.copy() for part in (shuffled.data, shuffled.indices, shuffled.indptr)]
    model = small(linear_recipe).fit(shuffled, made.Y)
    same(expected.topk(rows, 5), model.topk(shuffled, 5))
    for part, earlier in zip((shuffled.data, shuffled.indices, shuffled.indptr), before, strict=True):
        np.testing.assert_array_equal(part, earlier)
        assert part.dtype == earlier.dtype
    assert not shuffled.has_sorted_indices


def test_the_length_of_a_row_does_not_matter(linear_recipe: str, small: Small, rows: sp.csr_matrix, made: Made) -> None:
    model = small(linear_recipe).fit(rows, made.Y)
    alike(model.topk(rows, 3), model.topk(rows * 7.0, 3))
    raw = small(linear_recipe, normalize=False).fit(rows, made.Y)
    assert not np.array_equal(raw.topk(rows, 3).scores, raw.topk(rows * 7.0, 3).scores)


# Odd but legal


def test_an_empty_text_is_answered_from_the_biases(linear_recipe: str, fitted: Fitted, made: Made) -> None:
    model = fitted(linear_recipe)
    top = model.topk(["", "words that nobody has seen", made.texts[0]], 5)
    assert (top.labels >= 0).all()
    np.testing.assert_array_equal(top.labels[0], top.labels[1])
    empty = sp.csr_matrix((1, model.n_features_in_), dtype=np.float32)
    same(model.topk(empty, 5), top[:1])
    same(model.topk([""], 5), top[:1])


def test_an_empty_text_is_answered_with_an_encoder_too(small: Small, fitted: Fitted, made: Made) -> None:
    model = fitted("xr-transformer")
    top = model.topk(["", "   ", made.texts[0]], 5)
    assert (top.labels >= 0).all()
    assert np.isfinite(top.scores).all()
    np.testing.assert_array_equal(top.labels[0], top.labels[1])
    alike(model.topk([""], 5), top[:1])


def test_rows_without_features_or_labels_can_be_trained_on(recipe: str, small: Small, made: Made) -> None:
    model = small(recipe).fit([*made.texts, "", "nothing known"], [*made.lists, ["label 00"], []])
    assert model.topk(made.texts[5:6], 1).names == [made.lists[5]]


def test_no_rows_give_no_answers(recipe: str, fitted: Fitted) -> None:
    top = fitted(recipe).topk([], 3)
    assert top.labels.shape == top.scores.shape == (0, 3)
    assert fitted(recipe).predict([]) == []


def test_labels_without_a_training_row_rank_last(recipe: str, small: Small, inputs: Inputs, made: Made) -> None:
    X = inputs(recipe)
    wider = sp.csr_matrix((made.Y.data, made.Y.indices, made.Y.indptr), shape=(len(made), N_LABELS + 5))
    model = small(recipe).fit(X, wider)
    top = model.topk(X, 5)
    assert (top.labels < N_LABELS).all()
    everything = model.topk(X[:10], N_LABELS + 5, beam=N_LABELS)
    assert (np.sort(everything.labels, axis=1) == np.arange(N_LABELS + 5)).all()


def test_true_labels_that_training_never_saw_count_as_missed(recipe: str, fitted: Fitted, made: Made) -> None:
    model = fitted(recipe)
    some = [["never seen"] for _ in made.texts[:10]]
    assert model.evaluate(made.texts[:10], some)["P@1"] == 0.0
    known = model.evaluate(made.texts[:10], made.lists[:10], ks=(5,))
    more = model.evaluate(made.texts[:10], [[*row, "never seen"] for row in made.lists[:10]], ks=(5,))
    assert more["P@5"] == known["P@5"]
    assert more["R@5"] < known["R@5"]


def test_a_label_twice_in_a_row_counts_once(recipe: str, fitted: Fitted, small: Small, made: Made) -> None:
    twice = small(recipe).fit(made.texts, [row + row for row in made.lists])
    same(fitted(recipe).topk(made.texts, 5), twice.topk(made.texts, 5))


def test_a_single_label(recipe: str, small: Small) -> None:
    model = small(recipe).fit(["a text", "another text", "third text"], [["only"], ["only"], []])
    top = model.topk(["some text"], 3)
    assert top.labels.tolist() == [[0, -1, -1]]
    assert top.names == [["only"]]


def test_a_single_row(recipe: str, small: Small) -> None:
    model = small(recipe).fit(["just one text"], [["alpha", "beta"]])
    assert sorted(model.topk(["just one"], 2).names[0]) == ["alpha", "beta"]


def test_k_beyond_the_labels_is_padded(recipe: str, fitted: Fitted, made: Made) -> None:
    top = fitted(recipe).topk(made.texts[:4], N_LABELS + 7, beam=N_LABELS)
    assert (top.labels[:, N_LABELS:] == -1).all()
    assert (top.scores[:, N_LABELS:] == 0).all()
    assert (np.sort(top.labels[:, :N_LABELS], axis=1) == np.arange(N_LABELS)).all()
    assert [len(row) for row in top.names] == [N_LABELS] * 4


def test_fitting_again_forgets_the_old_labels(recipe: str, small: Small) -> None:
    model = small(recipe).fit(["red apple", "green pear"], [["red"], ["green"]])
    assert model.topk(["red"], 1).names == [["red"]]
    model.fit(["rot Apfel", "grün Birne"], [["rot"], ["grün"]])
    assert model.topk(["rot"], 1).names == [["rot"]]
    assert sorted(model.classes_) == ["grün", "rot"]


# The disk


@pytest.mark.parametrize("mmap", [True, False])
def test_a_saved_model_answers_the_same(
    recipe: str, fitted: Fitted, held_out: Made, tmp_path: Path, mmap: bool
) -> None:
    model = fitted(recipe)
    opened = _reopened(model, tmp_path, mmap=mmap)
    assert type(opened) is type(model)
    same(model.topk(held_out.texts, 5), opened.topk(held_out.texts, 5))
    same(model.topk(held_out.texts[:1], 5), opened.topk(held_out.texts[:1], 5))
    assert opened.topk(held_out.texts, 3).names == model.topk(held_out.texts, 3).names
    assert opened.predict(held_out.texts) == model.predict(held_out.texts)
    assert opened.describe() == model.describe()
    same(
        type(model).load(tmp_path / "model", mmap=mmap).topk(held_out.texts, 5),
        opened.topk(held_out.texts, 5),
    )


@pytest.mark.parametrize(("weights", "bits"), [("float32", 32), ("float16", 16), ("int8", 8)])
@pytest.mark.parametrize("recipe", params(RANKED))
def test_every_precision_survives_the_disk(
    recipe: str, brief: Small, made: Made, tmp_path: Path, weights: str, bits: int
) -> None:
    model = brief(recipe, **{"store.weights": weights}).fit(made.texts, made.lists)
    opened = _reopened(model, tmp_path)
    assert {8 * head.arrays["codes"].itemsize for head in opened.heads_} == {bits}
    same(model.topk(made.texts, 5), opened.topk(made.texts, 5))
    assert opened.evaluate(made.texts, made.lists)["P@1"] > FLOOR[recipe]


def test_a_saved_model_saves_the_same_bytes(recipe: str, fitted: Fitted, tmp_path: Path, files: Files) -> None:
    opened = _reopened(fitted(recipe), tmp_path)
    opened.save(tmp_path / "again")
    assert files(tmp_path / "again") == files(tmp_path / "model")


def test_same_seed_same_bytes_on_any_threads(
    recipe: str, brief: Small, made: Made, tmp_path: Path, files_but_history: Files
) -> None:
    more = 3 if recipe in LINEAR else 1  # torch adds up in another order on more threads
    for name, settings in {"a": {}, "b": {}, "c": {"threads": more}, "d": {"seed": 1}}.items():
        brief(recipe, **settings).fit(made.texts, made.lists).save(tmp_path / name)
    assert files_but_history(tmp_path / "a") == files_but_history(tmp_path / "b")
    assert files_but_history(tmp_path / "a") == files_but_history(tmp_path / "c")
    assert files_but_history(tmp_path / "a") != files_but_history(tmp_path / "d")


def test_names_and_keys_survive_the_disk(recipe: str, small: Small, tmp_path: Path) -> None:
    labels = umpteen.data.labels.Labels(["cat\nfish", "dög"], keys=["http://x/1", "http://x/2"])
    model = small(recipe).fit(["meow", "woof"], [["http://x/1"], ["dög"]], label_names=labels)
    opened = _reopened(model, tmp_path)
    assert opened.labels_ == labels
    assert opened.topk(["woof"], 1).names == [["dög"]]


def test_a_model_of_numbered_columns_has_no_names(recipe: str, small: Small, made: Made, tmp_path: Path) -> None:
    model = _reopened(small(recipe).fit(made.texts, made.Y), tmp_path)
    assert model.labels_.is_numbered
    with pytest.raises(umpteen.errors.BadInput, match="label_names"):
        _ = model.topk(made.texts[:1], 1).names


# A given tree


def test_a_given_tree_is_used(recipe: str, small: Small, made: Made, held_out: Made, tmp_path: Path) -> None:
    tree = LabelTree.from_groups([list(range(i, i + 10)) for i in range(0, N_LABELS, 10)])
    if recipe == "full":
        with pytest.raises(umpteen.errors.BadConfig, match="full scores every label and has no use for a tree"):
            small(recipe).fit(made.texts, made.Y, tree=tree)
        return
    model = small(recipe, **{"tree.kind": "given"}).fit(made.texts, made.Y, tree=tree)
    assert model.describe()["levels"] == [6, N_LABELS]
    floor = {"attentionxml": 40.0, "xml-cnn": 40.0}.get(recipe, 60.0) if recipe in NETS else FLOOR[recipe]
    assert model.evaluate(held_out.texts, held_out.Y)["P@1"] > floor
    same(model.topk(held_out.texts, 5), _reopened(model, tmp_path).topk(held_out.texts, 5))


@pytest.mark.parametrize("recipe", params(name for name in RECIPES if name not in FLAT))
def test_label_names_can_shape_the_tree(recipe: str, small: Small, made: Made) -> None:
    names = [f"topic{label % N_TOPICS} key{label}x0" for label in range(N_LABELS)]  # words of texts, another topic
    orders = []
    for vectors in ("pifa", "names", "both"):
        model = small(recipe, **{"tree.vectors": vectors}).fit(made.texts, made.Y, label_names=names)
        assert model.evaluate(made.texts, made.Y)["P@1"] > FLOOR[recipe]
        tree = model.neural_.net.tree if recipe in NETS else model.heads_[0].tree
        orders.append(tree.order.tolist())
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_describe_says_what_differs(recipe: str, fitted: Fitted) -> None:
    facts = fitted(recipe).describe()
    assert facts["recipe"] == recipe
    assert facts["labels"] == N_LABELS
    assert facts["settings"]["tree.leaf_size"] == SMALL["tree.leaf_size"]
    assert facts["levels"][-1] == N_LABELS
    assert (len(facts["levels"]) > 1) == (recipe not in FLAT)
    assert facts["weights"] > 0


def test_made_data_is_what_it_says() -> None:
    data = make(100, seed=0)
    assert all(
        f"key{int(name[-2:])}x" in text for text, row in zip(data.texts, data.lists, strict=True) for name in row
    )


def _reopened(model: Model, folder: Path, mmap: bool = True) -> Model:
    model.save(folder / "model")
    return umpteen.load(folder / "model", mmap=mmap)


def _shuffled(X: sp.csr_matrix) -> sp.csr_matrix:
    """Reverse the entries of each row and make all indices 64-bit."""
    order = np.concatenate([np.arange(X.indptr[i], X.indptr[i + 1])[::-1] for i in range(X.shape[0])])
    shuffled = sp.csr_matrix(X.shape, dtype=np.float32)
    shuffled.data, shuffled.indices = X.data[order], X.indices[order].astype(np.int64)
    shuffled.indptr = X.indptr.astype(np.int64)
    shuffled.has_sorted_indices = False
    return shuffled
