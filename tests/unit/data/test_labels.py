"""The vocabulary, and targets in every form."""

import subprocess
import sys
from itertools import chain

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from umpteen.data.labels import Labels
from umpteen.data.targets import read_targets
from umpteen.errors import BadInput


def test_from_lists_sorts_and_encodes():
    labels, Y = Labels.from_lists([["tin", "ore"], [], {"ore"}, ("ore", "ore")])
    assert labels.names() == ["ore", "tin"]
    assert Y.toarray().tolist() == [[1, 1], [0, 0], [1, 0], [1, 0]]


def test_whole_numbers_sort_by_value():
    labels, Y = Labels.from_lists([[10, 9], [np.int64(2), "9"]])
    assert labels.names() == ["2", "9", "10"]
    assert Y.toarray().tolist() == [[0, 1, 1], [1, 1, 0]]


def test_ids_do_not_depend_on_hashing():
    program = "from umpteen.data import Labels; print(Labels.from_lists([set('qwertyuiop')])[0].names())"
    runs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1


def test_unknown_labels():
    labels = Labels(["editing", "viewing"])
    with pytest.raises(BadInput, match=r"row 1 has the label 'edting'.*did you mean 'editing'"):
        labels.encode([["viewing"], ["edting"]])
    assert labels.encode([["x", "viewing"], ["y"]], unknown="ignore").toarray().tolist() == [[0, 1], [0, 0]]
    assert len(labels) == 2
    Y = labels.encode([["z", "editing"], ["a"]], unknown="add")
    assert labels.names() == ["editing", "viewing", "a", "z"]
    assert Y.toarray().tolist() == [[1, 0, 0, 1], [0, 0, 1, 0]]
    with pytest.raises(BadInput, match="unknown must be"):
        labels.encode([], unknown="drop")


def test_keys_and_names():
    labels = Labels(["cat", "dog", "dog"], keys=["u:1", "u:2", "u:3"])
    assert labels.keys([2, 0]) == ["u:3", "u:1"]
    assert labels.names([2, 0]) == ["dog", "cat"]
    assert labels.encode([["u:2"], ["cat"]]).indices.tolist() == [1, 0]
    with pytest.raises(BadInput, match="'dog' is the name of several labels; use their keys"):
        labels.encode([["dog"]])
    labels.encode([["u:9"]], unknown="add")
    assert (labels.keys()[3], labels.names()[3]) == ("u:9", "u:9")


def test_copy_grows_alone():
    for labels in (Labels(["a"]), Labels(["a"], keys=["k"]), Labels.numbered(1)):
        grown = labels.copy()
        assert grown == labels
        grown.add(["b"])
        assert (len(labels), len(grown)) == (1, 2)
        assert grown != labels


def test_numbered():
    labels = Labels.numbered(3_000_000)
    assert labels.is_numbered
    assert labels.names([2_999_999]) == ["2999999"]
    assert Labels.numbered(3).encode([["2"], [0]]).toarray().tolist() == [[0, 0, 1], [1, 0, 0]]
    assert len(Labels.numbered(3).widen(5)) == 5
    assert Labels(["a", "b"]).widen(4).names() == ["a", "b", "2", "3"]
    with pytest.raises(BadInput, match="name each column"):
        Labels(["3", "b"]).widen(4)


@pytest.mark.parametrize(
    ("names", "keys", "message"),
    [
        (["a", "a"], None, "'a' occurs twice"),
        (["a", "b"], ["k", "k"], "'k' occurs twice"),
        (["a"], ["k", "l"], "1 names but 2 keys"),
        (["a", ""], None, "row 1 has ''"),
        (["a", None], None, "row 1 has None"),
        ("abc", None, "must be a list"),
    ],
)
def test_bad_vocabularies(names, keys, message):
    with pytest.raises(BadInput, match=message):
        Labels(names, keys)


def test_ids_out_of_range():
    with pytest.raises(BadInput, match="between 0 and 1"):
        Labels(["a", "b"]).names([-1])


def as_targets(form: object, names: object = None) -> tuple[sp.csr_matrix, Labels]:
    Y, targets = read_targets(form, names)
    return Y, targets.labels


@pytest.mark.parametrize(
    "form",
    [
        [["b"], ["a", "c"], []],
        [("b",), {"a", "c"}, set()],
        [np.array(["b"]), np.array(["a", "c"]), []],
    ],
)
def test_targets_as_names(form):
    Y, labels = as_targets(form)
    assert labels.names() == ["a", "b", "c"]
    assert Y.toarray().tolist() == [[0, 1, 0], [1, 0, 1], [0, 0, 0]]


DENSE = [[0, 1, 0], [1, 0, 1], [0, 0, 0]]


@pytest.mark.parametrize(
    "form",
    [
        np.array(DENSE),
        np.array(DENSE, dtype=bool),
        sp.csr_matrix(DENSE),
        sp.csc_array(DENSE),
        DENSE,
        [tuple(row) for row in DENSE],
        [np.array(row) for row in DENSE],
    ],
)
def test_targets_as_matrix(form):
    Y, labels = as_targets(form)
    assert labels.names() == ["0", "1", "2"]
    assert Y.toarray().tolist() == DENSE
    assert as_targets(form, names=["x", "y", "z"])[1].names() == ["x", "y", "z"]


@pytest.mark.parametrize(
    "form",
    [
        [[0, 1], [1, 0]],
        [(1, 0), (1, 0)],
        [np.array([0, 1]), np.array([1, 0])],
        [[True, False], [False, True]],
    ],
)
def test_pairs_of_0_and_1_could_be_labels_or_a_matrix(form):
    message = r"pairs of 0 and 1, which could be labels .* or rows of a matrix; pass np.array\(Y\) .* or text"
    with pytest.raises(BadInput, match=message):
        as_targets(form)
    with pytest.raises(BadInput, match=message):
        as_targets(form, names=["x", "y"])
    assert as_targets(np.array(form))[1].is_numbered


@pytest.mark.parametrize(
    "form", [[[0, 1], [1]], [[0], [1]], [{0, 1}, {1, 0}], [[0, 1], [1, 2]], [["0", "1"], ["1", "0"]]]
)
def test_lists_that_cannot_be_a_matrix_are_labels(form):
    _, labels = as_targets(form)
    assert labels.names()[:2] == ["0", "1"]


def test_millions_of_numbered_labels_are_looked_up_without_a_text_each():
    labels = Labels.numbered(2_000_000_000)
    found = labels.encode([[5, "1999999999"], ["2000000000", "-1", "07", "²", "x"]], unknown="ignore")
    assert found.indices.tolist() == [5, 1_999_999_999]
    assert 5 in labels
    assert "05" not in labels
    assert labels == Labels.numbered(2_000_000_000)
    assert labels != Labels.numbered(3)


def test_a_vocabulary_with_labels_called_0_and_1_decides():
    Y, _ = as_targets([[0, 1], [1, 0]], names=["1", "0"])
    assert Y.toarray().tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize("form", [["b", "a", "b"], np.array(["b", "a", "b"]), [2, 1, 2], np.array([2.0, 1, 2])])
def test_one_label_per_row(form):
    Y, _ = as_targets(form)
    assert Y.toarray().tolist() == [[0, 1], [1, 0], [0, 1]]


def test_weights_are_kept_and_zeros_are_no_labels():
    given_Y = sp.csr_matrix((np.array([0.5, 0.0]), [0, 1], [0, 2]), shape=(1, 2))
    Y, _ = as_targets(given_Y)
    assert Y.data.tolist() == [0.5]
    assert given_Y.nnz == 2


def test_targets_in_a_given_vocabulary():
    labels = Labels(["z", "a"])
    Y, same = as_targets([["a"]], names=labels)
    assert same is labels
    assert Y.toarray().tolist() == [[0, 1]]
    with pytest.raises(BadInput, match="'q'"):
        as_targets([["q"]], names=labels)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (np.array([[0.0, -1.0]]), "-1 at row 0, column 1"),
        (np.array([[np.nan, 1.0]]), "NaN at row 0, column 0"),
        ("abc", "one list per row"),
        ({"a": 1}, "in the order of the rows, but is a dict"),
        (None, "pass a list of labels per row"),
        ([["a"], "b"], "row 1 must be a list"),
        ([["a"], None], "row 1 must be a list"),
        ([["a"], [None]], "row 1 has None"),
        ([["a"], [float("nan")]], "row 1 has nan"),
        ([["a"], [True]], "row 1 has True"),
        ([["a"], [""]], "row 1 has ''"),
        ([1.5, 2.0], "text or whole numbers"),
        ([[["a"]]], "text or a whole number"),
    ],
)
def test_bad_targets(form, message):
    with pytest.raises(BadInput, match=message):
        as_targets(form)


def test_names_must_fit_the_columns():
    with pytest.raises(BadInput, match="3 columns but there are 2 names"):
        as_targets(np.eye(3), names=["a", "b"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.text(min_size=1, max_size=3) | st.integers(0, 30), max_size=5), min_size=1, max_size=8))
def test_encoding_is_the_set_of_each_row(rows):
    is_rectangle = len({len(row) for row in rows}) == 1 and len(rows[0]) > 1
    assume(not (is_rectangle and {0, 1}.issuperset(chain(*rows))))  # which could be an indicator matrix
    Y, labels = as_targets(rows)
    assert Y.shape == (len(rows), len(labels))
    for i, row in enumerate(rows):
        assert set(labels.names(Y[i].indices)) == {str(label) for label in row}
