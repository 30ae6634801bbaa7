"""Datasets check themselves and can be cut."""

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.data import Dataset, Labels, load_demo
from umpteen.errors import BadInput


def small(n=10):
    ones = sp.csr_matrix(np.eye(n))
    return Dataset([f"t{i}" for i in range(n)], ones, ones.copy(), name="small")


def test_texts_have_an_order():
    for texts in ({"a": 1}, {"a"}):
        with pytest.raises(BadInput, match=r"texts must be a list in the order of the rows, but is a (dict|set)"):
            Dataset(texts)


def test_take_keeps_rows_together():
    part = small().take([7, 2])
    assert part.texts == ["t7", "t2"]
    assert part.X.indices.tolist() == part.Y.indices.tolist() == [7, 2]
    assert len(part.labels) == 10
    assert small().take(slice(3)).texts == ["t0", "t1", "t2"]
    assert small().take(np.arange(10) > 8).texts == ["t9"]
    assert len(small().take([])) == 0


def test_split_is_a_partition_and_repeats():
    rest, held = small().split(0.3, seed=5)
    assert len(held) == 3
    assert sorted(rest.texts + held.texts) == small().texts
    assert held.texts == small().split(0.3, seed=5)[1].texts
    assert held.texts != small().split(0.3, seed=6)[1].texts
    assert len(small(2).split(0.01)[1]) == 1


@pytest.mark.parametrize("rows", [[10], [-1], [[0]], [0.5], "abc", [[0], [1, 2]], np.ones(3, dtype=bool)])
def test_bad_rows(rows):
    with pytest.raises(BadInput, match="rows must"):
        small().take(rows)


def test_bad_split():
    with pytest.raises(BadInput, match="between 0 and 1"):
        small().split(1.5)
    with pytest.raises(BadInput, match="cannot be split"):
        small(1).split(0.5)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, "texts or X"),
        ({"texts": "one"}, r"pass \[text\]"),
        ({"X": np.eye(5), "Y": np.eye(3)}, "Y has 3 rows but X has 5; pass one label row per text"),
        ({"texts": ["a"], "Y": np.eye(3)}, "Y has 3 rows but texts has 1"),
        ({"texts": ["a"], "X": np.eye(3)}, "X has 3 rows but texts has 1"),
        ({"X": np.eye(2), "Y": np.eye(2), "labels": Labels(["a"])}, "2 columns but there are 1 labels"),
        ({"X": [[np.nan]]}, "NaN"),
    ],
)
def test_parts_must_agree(parts, message):
    with pytest.raises(BadInput, match=message):
        Dataset(**parts)


def test_repr_says_what_is_inside():
    assert repr(small()) == "Dataset(small: 10 rows, texts, 10 features, 10 labels)"


def test_demo_data():
    train, test = load_demo(), load_demo("test")
    assert len(train) > len(test) > 0
    assert train.labels == test.labels
    assert train.name == "demo"


def test_columns_are_moved_to_those_of_a_vocabulary():
    Y = sp.csr_matrix(np.array([[1, 0, 1, 0], [0, 1, 0, 1]], np.float32))
    theirs = Dataset(X=sp.csr_matrix(np.ones((2, 1))), Y=Y, labels=Labels(["b", "new", "a", "cee"], [*"bnac"]))
    moved = theirs.align(Labels(["a", "b", "cee"]))
    assert moved.labels.keys() == ["a", "b", "cee", "n"]
    assert moved.Y.toarray().tolist() == [[1, 1, 0, 0], [0, 0, 1, 1]]
    numbered = Dataset(X=theirs.X, Y=Y).align(Labels(["a", "b"]))
    assert numbered.Y.toarray().tolist() == Y.toarray().tolist()
    assert Dataset(X=theirs.X, Y=Y).align(Labels.numbered(6)).Y.shape == (2, 6)


def test_columns_that_begin_with_a_vocabulary_stay():
    data = Dataset(["x"], Y=sp.csr_matrix(np.ones((1, 3), np.float32)), labels=Labels(["a", "b", "c"]))
    assert data.align(Labels(["a", "b"])) is data


def test_inputs_are_rows_if_there_are_any():
    rows = sp.csr_matrix(np.ones((1, 2), np.float32))
    assert Dataset(["x"]).inputs == ["x"]
    assert Dataset(["x"], X=rows).inputs.shape == (1, 2)
