"""Rows of labels as numbers of distinct labels."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umpteen.data.label_rows import LabelRows
from umpteen.data.labels import Labels
from umpteen.errors import BadInput

some_rows = st.lists(st.lists(st.one_of(st.sampled_from("abc"), st.integers(0, 3)), max_size=4), max_size=20)


def lists(rows: LabelRows) -> list[list[str]]:
    """Return the rows as lists of labels."""
    ends = np.cumsum(rows.lengths)
    parts = (rows.places[end - n : end] for n, end in zip(rows.lengths, ends, strict=True))
    return [[rows.distinct[place] for place in part] for part in parts]


@given(some_rows, st.integers(1, 7))
def test_rows_are_the_same_however_many_are_taken_at_a_time(given_rows: list[list[object]], at_once: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("umpteen.data.label_rows._AT_ONCE", at_once)
        found = LabelRows.read(iter(given_rows))
    expected = [[str(label) for label in row] for row in given_rows]
    assert lists(found) == expected
    assert lists(LabelRows.of(given_rows)) == expected or not given_rows
    assert len(set(found.distinct)) == len(found.distinct)


@given(some_rows)
def test_a_vocabulary_encodes_rows_that_were_read_as_it_encodes_lists(given_rows: list[list[object]]) -> None:
    labels, Y = Labels.from_lists(given_rows)
    of_read, Y_of_read = Labels.from_lists(LabelRows.read(given_rows))
    assert of_read.names() == labels.names()
    np.testing.assert_array_equal(Y_of_read.toarray(), Y.toarray())
    np.testing.assert_array_equal(labels.encode(LabelRows.read(given_rows)).toarray(), Y.toarray())


def test_a_label_that_is_none_is_refused_with_the_number_of_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("umpteen.data.label_rows._AT_ONCE", 2)
    with pytest.raises(BadInput, match="row 4 has None"):
        LabelRows.read([["a"], [], ["b"], ["a"], ["b", None]])
    with pytest.raises(BadInput, match=r"labels of row 3 must be a list, but are 1\.5"):
        LabelRows.read([["a"], [], ["b"], 1.5])


def test_the_first_row_with_an_unknown_label_is_named() -> None:
    labels = Labels(["a", "b"])
    with pytest.raises(BadInput, match="row 2 has the label 'c', none of the 2 known ones"):
        labels.encode([["a"], [], ["b", "c"], ["c", "d"]])


def test_lists_of_strings_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("umpteen.data.label_rows._AT_ONCE", 1_000)
    names = [f"label {number}" for number in range(100)]
    rows = ([f"label {(row + i) % 100}" for i in range(5)] for row in range(50_000))  # new strings for every row
    tracemalloc.start()
    try:
        found = LabelRows.read(rows)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sorted(found.distinct) == sorted(names)
    assert peak < 5_000_000  # as lists, 20 million
