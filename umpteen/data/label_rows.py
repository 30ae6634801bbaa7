"""Rows of labels as numbers of distinct labels: four bytes a label, where lists of strings take hundreds a row."""

from __future__ import annotations

import numbers
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, count
from typing import Any

import numpy as np

from umpteen.errors import BadInput

Prepare = Callable[[list[Any]], list[Any]]

_AT_ONCE = 65_536  # rows that are lists of strings at a time


class LabelRows:
    """The labels of rows.

    Parameters
    ----------
    distinct
        The labels that occur, each once.
    places
        For each label of each row, one row after the other, its place in ``distinct``.
    lengths
        How many labels each row has.

    Examples
    --------
    >>> rows = LabelRows.of([["red", "fruit"], [], ["red"]])
    >>> rows.distinct, rows.places.tolist(), rows.lengths.tolist()
    (['red', 'fruit'], [0, 1, 0], [2, 0, 1])
    """

    def __init__(self, distinct: list[str], places: np.ndarray, lengths: np.ndarray):
        self.distinct, self.places, self.lengths = distinct, places, lengths

    @classmethod
    def of(cls, rows: Any, first: int = 0) -> LabelRows:
        """Take one list, tuple or set of labels per row, or one label per row; labels are text or whole numbers.

        ``first`` is the number of the first row, for messages.
        """
        if isinstance(rows, LabelRows):
            return rows
        flat, lengths = _flat(rows, first)
        index = dict(zip(dict.fromkeys(flat), count()))
        places = np.fromiter(map(index.__getitem__, flat), dtype=np.int32, count=len(flat))
        return cls(list(index), places, lengths)

    @classmethod
    def read(cls, rows: Iterable[Any], prepare: Prepare = list) -> LabelRows:
        """Take rows as they come, some at a time; ``prepare`` is called with these before they are taken."""
        builder = LabelRowsBuilder(prepare)
        for row in rows:
            builder.append(row)
        return builder.rows()

    def __len__(self) -> int:
        return len(self.lengths)

    def renamed(self, labels: list[str]) -> LabelRows:
        """Return the same rows with other labels in place of ``distinct``; some of them may be equal."""
        return LabelRows(labels, self.places, self.lengths)

    def row_of(self, place: int) -> int:
        """Return the first row that has a label, by its place in ``distinct``."""
        at = int(np.argmax(self.places == place))
        return int(np.searchsorted(np.cumsum(self.lengths), at, side="right"))


class LabelRowsBuilder:
    """Takes rows one by one; few of them are lists of strings at a time.

    ``prepare`` turns what comes into what ``LabelRows.of`` takes.
    """

    def __init__(self, prepare: Prepare = list):
        self.prepare, self._waiting, self._n_rows = prepare, [], 0
        self._index: dict[str, int] = {}
        self._places, self._lengths = array("i"), array("q")

    def append(self, row: Any) -> None:
        """Add a row."""
        self._waiting.append(row)
        if len(self._waiting) == _AT_ONCE:
            self._take()

    def rows(self) -> LabelRows:
        """Return all rows."""
        self._take()
        places, lengths = np.frombuffer(self._places, np.int32), np.frombuffer(self._lengths, np.int64)
        return LabelRows(list(self._index), places, lengths)

    def _take(self) -> None:
        part = LabelRows.of(self.prepare(self._waiting), self._n_rows)
        self._n_rows += len(part)
        self._waiting = []
        for label in part.distinct:
            self._index.setdefault(label, len(self._index))
        own = np.fromiter(map(self._index.__getitem__, part.distinct), np.int32, len(part.distinct))
        self._places.frombytes(own[part.places].tobytes())
        self._lengths.frombytes(part.lengths.tobytes())


def as_names(labels: Iterable[Any], lengths: np.ndarray | None = None, first: int = 0) -> list[str]:
    """Return labels as strings; ``lengths`` and ``first`` of their rows are for the error message."""
    if isinstance(labels, (str, bytes, Mapping, set, frozenset)) or not isinstance(labels, Iterable):
        raise BadInput(f"labels must be a list, whose order is that of the columns, but are {labels!r:.80}")
    flat = list(labels)
    kinds = set(map(type, flat))
    if kinds <= {str, int} and "" not in set(flat):
        return flat if int not in kinds else list(map(str, flat))
    for i, label in enumerate(flat):
        is_integer = isinstance(label, numbers.Integral) and not isinstance(label, (bool, np.bool_))
        if not (is_integer or (isinstance(label, str) and label)):
            row = i if lengths is None else int(np.searchsorted(np.cumsum(lengths), i, side="right"))
            raise BadInput(f"a label must be text or a whole number, but row {first + row} has {label!r:.80}")
    return [str(label) for label in flat]


def _flat(rows: Any, first: int) -> tuple[Sequence[str], np.ndarray]:
    """Return the labels of all rows as one list of strings, and the length of each row."""
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise BadInput(f"labels must be one list per row, but are a {type(rows).__name__}")
    rows = rows if isinstance(rows, list) else list(rows)
    kinds = set(map(type, rows))
    if kinds and all(issubclass(kind, (str, numbers.Integral)) for kind in kinds):
        return as_names(rows, first=first), np.ones(len(rows), dtype=np.int64)
    if not kinds <= {list, tuple, set, frozenset}:
        rows = [_as_row(row, number) for number, row in enumerate(rows, first)]
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    return as_names(chain.from_iterable(rows), lengths, first), lengths


def _as_row(row: Any, number: int) -> Sequence[Any]:
    is_list = isinstance(row, Iterable) and not isinstance(row, (str, bytes, Mapping))
    if not is_list or getattr(row, "ndim", 1) != 1:
        raise BadInput(f"labels of row {number} must be a list, but are {row!r:.80}; pass [] for none")
    return row.tolist() if isinstance(row, np.ndarray) else list(row)
