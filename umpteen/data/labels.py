"""Labels: the vocabulary that gives every column of Y its name, and targets in any form people have them.

A label has an id (its column), a name (what people read) and a key (what data files call it: a URI, a code,
or simply the name). Knows nothing about files, texts or models.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat
from typing import Any

import numpy as np
import scipy.sparse as sp

from umpteen.data.sparse import as_csr, wrap
from umpteen.errors import BadInput, nearest

_SEVERAL = -2  # stands for the labels that share a name


class Labels:
    """The label vocabulary: id to name and key, and back.

    Parameters
    ----------
    names
        One name per label, in the order of their ids.
    keys
        One URI or code per label, unique; the names where there are none.

    Attributes
    ----------
    separator
        What separates labels in the table they were read from, ``";"`` or ``" "``; None if no table said so. Other
        files are read with the same.

    Examples
    --------
    >>> labels = Labels(["cat", "dog"])
    >>> labels.encode([["dog"], [], ["cat", "dog"]]).toarray()
    array([[0., 1.],
           [0., 0.],
           [1., 1.]], dtype=float32)
    >>> labels.names([1])
    ['dog']
    """

    def __init__(self, names: Iterable[str | int], keys: Iterable[str | int] | None = None):
        self._names: list[str] | None = _as_names(names)
        self._keys: list[str] | None = None if keys is None else _as_names(keys)
        self._n = len(self._names)
        self._index: dict[str, int] | None = None
        self._by_name: dict[str, int] | None = None
        self.separator: str | None = None
        if self._keys is not None and len(self._keys) != self._n:
            raise BadInput(f"there are {self._n} names but {len(self._keys)} keys; pass one key per name")
        self._lookup()

    @classmethod
    def numbered(cls, n_labels: int) -> Labels:
        """Make labels that have no names but their column number; takes no memory."""
        labels = cls([])
        labels._names, labels._n, labels._index = None, int(n_labels), None
        return labels

    @classmethod
    def from_lists(cls, rows: Iterable[Any], names: Mapping[str, str] | None = None) -> tuple[Labels, sp.csr_matrix]:
        """Build the vocabulary that occurs in rows of labels, and encode them.

        Ids follow the sorted order of the labels (by value if all are whole numbers), so they depend neither
        on the order of the rows nor on that of a set. ``names`` maps labels, which then are keys, to names.

        Examples
        --------
        >>> labels, Y = Labels.from_lists([["tin", "ore"], ["ore"]])
        >>> labels.names(), Y.indices.tolist()
        (['ore', 'tin'], [0, 1, 0])
        """
        flat, lengths = _flatten(rows)
        keys = _in_order(set(flat))
        labels = cls([names.get(key, key) for key in keys], keys) if names else cls(keys)
        return labels, _to_csr(labels._ids(flat), lengths, len(labels))

    def __len__(self) -> int:
        return self._n

    def __contains__(self, label: object) -> bool:
        return (self._number(str(label)) >= 0) if self.is_numbered else str(label) in self._lookup()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Labels):
            return NotImplemented
        if self.is_numbered and other.is_numbered:
            return len(self) == len(other)
        return len(self) == len(other) and self.keys() == other.keys() and self.names() == other.names()

    __hash__ = None  # type: ignore[assignment]  # a vocabulary can grow

    def __repr__(self) -> str:
        shown = ", ".join(repr(name) for name in self.names(range(min(3, len(self)))))
        return f"Labels({len(self)}: {shown}{', …' if len(self) > 3 else ''})"

    @property
    def is_numbered(self) -> bool:
        """True if the labels have no names but their column number."""
        return self._names is None

    def names(self, ids: Iterable[int] | None = None) -> list[str]:
        """Return the names of these ids, or all names in the order of their ids."""
        return self._take(self._names, ids)

    def keys(self, ids: Iterable[int] | None = None) -> list[str]:
        """Return the URIs or codes of these ids, or all; the names if the labels have no other keys."""
        return self._take(self._names if self._keys is None else self._keys, ids)

    def copy(self) -> Labels:
        """Return a vocabulary that can grow without changing this one."""
        if self.is_numbered:
            return Labels.numbered(len(self))
        labels = Labels(self.names(), None if self._keys is None else self._keys)
        labels.separator = self.separator
        return labels

    def add(self, labels: Iterable[str]) -> None:
        """Append labels that are not known yet; ids given out before stay as they are."""
        index = self._lookup()
        new = [key for key in dict.fromkeys(labels) if key not in index]
        if not new:
            return
        if self._names is None:
            self._names = self.names()
        if self._keys is not None:
            self._keys += new
        self._names += new
        for key in new:
            index[key] = len(index)
        self._n, self._by_name = len(self._names), None

    def widen(self, n_labels: int) -> Labels:
        """Return a vocabulary with at least this many labels: further columns are named by their number."""
        if n_labels <= len(self):
            return self
        if self.is_numbered:
            return Labels.numbered(n_labels)
        wider = self.copy()
        wider.add(str(column) for column in range(len(self), n_labels))
        if len(wider) != n_labels:
            raise BadInput(f"Y has {n_labels} columns but there are {len(self)} names; name each column")
        return wider

    def encode(self, rows: Iterable[Any], unknown: str = "error") -> sp.csr_matrix:
        """Turn rows of labels into a matrix with one column per label.

        Parameters
        ----------
        rows
            One list, tuple or set of labels per row, each a key or an unambiguous name, as text or a whole
            number. A list of single labels is one label per row. Duplicates within a row count once.
        unknown
            What to do about labels outside the vocabulary: ``"error"``, ``"ignore"`` them, or ``"add"``
            them at its end (this vocabulary grows).
        """
        if unknown not in ("error", "ignore", "add"):
            raise BadInput(f"unknown must be error, ignore or add, but is {unknown!r}")
        flat, lengths = _flatten(rows)
        ids = self._ids(flat)
        missing = np.flatnonzero(ids < 0)
        if len(missing) and unknown == "error":
            label = flat[missing[0]]
            row = int(np.searchsorted(np.cumsum(lengths), missing[0], side="right"))
            hint = nearest(label, self.keys(range(min(len(self), 10_000))))
            raise BadInput(f"row {row} has the label {label!r}, none of the {len(self)} known ones{hint}")
        if len(missing) and unknown == "add":
            self.add(_in_order({flat[i] for i in missing}))
            ids = self._ids(flat)
        return _to_csr(ids, lengths, len(self))

    def _lookup(self) -> dict[str, int]:
        if self._index is None:
            keys = self.keys()
            self._index = dict(zip(keys, range(len(keys)), strict=True))
            if len(self._index) != len(keys):
                seen: set[str] = set()
                twice = next(key for key in keys if key in seen or seen.add(key))
                raise BadInput(f"the label {twice!r} occurs twice in the vocabulary; labels must be unique")
        return self._index

    def _ids(self, flat: Sequence[str]) -> np.ndarray:
        """Look labels up by key, those not found by name; -1 stands for unknown ones."""
        if self.is_numbered:  # millions of columns need no text each
            return np.fromiter(map(self._number, flat), dtype=np.int64, count=len(flat))
        ids = np.fromiter(map(self._lookup().get, flat, repeat(-1)), dtype=np.int64, count=len(flat))
        if self._keys is not None:
            if self._by_name is None:
                self._by_name = _unambiguous(self.names())
            for i in np.flatnonzero(ids < 0):
                ids[i] = self._by_name.get(flat[i], -1)
                if ids[i] == _SEVERAL:
                    raise BadInput(f"{flat[i]!r} is the name of several labels; use their keys")
        return ids

    def _number(self, label: str) -> int:
        """Return the column that a number without leading zeros names, or -1."""
        is_number = label.isascii() and label.isdigit() and len(label) < 11 and str(int(label)) == label
        return int(label) if is_number and int(label) < self._n else -1

    def _take(self, values: list[str] | None, ids: Iterable[int] | None) -> list[str]:
        if ids is None:
            return list(values) if values is not None else list(map(str, range(self._n)))
        wanted = [int(i) for i in ids]
        if wanted and not (min(wanted) >= 0 and max(wanted) < self._n):
            low, high = min(wanted), max(wanted)
            raise BadInput(f"label ids must lie between 0 and {self._n - 1}, but range from {low} to {high}")
        return [values[i] for i in wanted] if values is not None else list(map(str, wanted))


def as_targets(targets: Any, names: Labels | Sequence[str] | None = None) -> tuple[sp.csr_matrix, Labels]:
    """Turn targets in any form into a matrix and its vocabulary.

    Parameters
    ----------
    targets
        - a scipy sparse matrix or a two-dimensional array: one column per label, zero means no, any positive
          number is kept as a weight;
        - one list, tuple, set or array of labels per row, as text or whole numbers: these are names;
        - a list or one-dimensional array of text or whole numbers: one label per row.

        Lists of equal length that hold nothing but 0 and 1 and repeat one of them within a row cannot be labels
        and are rows of a matrix. Pairs that repeat nothing, ``[[0, 1], [1, 0]]``, could be either and are refused,
        unless ``names`` has the labels 0 and 1.
    names
        The vocabulary: names of the columns of a matrix, or the labels that rows may hold.

    Examples
    --------
    >>> Y, labels = as_targets([["b", "a"], ["c"], []])
    >>> Y.shape, labels.names()
    ((3, 3), ['a', 'b', 'c'])
    """
    labels = names if names is None or isinstance(names, Labels) else Labels(names)
    if not sp.issparse(targets) and not _is_matrix(targets):
        rows = _as_rows(targets)
        if not is_indicator(rows):
            if labels is None or not ("0" in labels and "1" in labels):
                refuse_ambiguous(rows)
            if labels is not None:
                return labels.encode(rows), labels
            labels, Y = Labels.from_lists(rows)
            return Y, labels
        targets = np.asarray([np.asarray(row) for row in rows])
    Y = _check_weights(as_csr(targets, name="Y"))
    if labels is None:
        labels = Labels.numbered(Y.shape[1])
    if len(labels) != Y.shape[1]:
        raise BadInput(f"Y has {Y.shape[1]} columns but there are {len(labels)} names; name each column")
    return Y, labels


def _is_matrix(targets: Any) -> bool:
    """Tell a matrix of numbers from rows of labels; the dtype of an array of text says the latter."""
    shape, dtype = getattr(targets, "shape", None), getattr(targets, "dtype", None)
    if shape is None or len(shape) != 2:
        return False
    return dtype is None or getattr(dtype, "kind", "O") not in "UST"


def _as_rows(targets: Any) -> list[Any]:
    if isinstance(targets, (str, bytes, Mapping)) or not isinstance(targets, Iterable):
        raise BadInput(f"labels must be one list per row or a matrix, but are a {type(targets).__name__}")
    rows = list(targets.tolist() if isinstance(targets, np.ndarray) and targets.ndim > 0 else targets)
    return [int(row) if isinstance(row, float) and row.is_integer() else row for row in rows]


def is_indicator(rows: Iterable[Any]) -> bool:
    """Recognise rows such as ``[0, 1, 0]``: as labels they would repeat themselves."""
    return _are_zeros_and_ones(rows) and any(len({int(value) for value in row}) < len(row) for row in rows)


def refuse_ambiguous(rows: Iterable[Any]) -> None:
    """Refuse pairs of 0 and 1: they could be lists of labels or rows of an indicator matrix.

    Rows of one entry are labels: a matrix with a single column would have a single label.
    """
    if _are_zeros_and_ones(rows) and not is_indicator(rows):
        raise BadInput(
            "Y holds nothing but pairs of 0 and 1, which could be labels called 0 and 1 or rows of a matrix; "
            "pass np.array(Y) for a matrix, or text such as '0' and '1' for labels"
        )


def _are_zeros_and_ones(rows: Iterable[Any]) -> bool:
    """Tell whether all rows have one length, two or more, and hold nothing else."""
    lengths = set()
    for row in rows:
        if not isinstance(row, (list, tuple, np.ndarray)) or len(row) < 2:
            return False
        lengths.add(len(row))
        if len(lengths) > 1 or not all(isinstance(value, numbers.Real) and value in (0, 1) for value in row):
            return False
    return bool(lengths)


def _check_weights(Y: sp.csr_matrix) -> sp.csr_matrix:
    """Refuse negative targets and drop stored zeros, which are no labels."""
    if len(Y.data) and Y.data.min() < 0:
        at = int(np.argmin(Y.data))
        row = int(np.searchsorted(Y.indptr, at, side="right")) - 1
        column = Y.indices[at]
        raise BadInput(f"Y holds {Y.data[at]:g} at row {row}, column {column}; use 0 for no and 1 for yes")
    if len(Y.data) and Y.data.min() == 0:
        Y = Y.copy()
        Y.eliminate_zeros()
    return Y


def _flatten(rows: Iterable[Any]) -> tuple[list[str], np.ndarray]:
    """Join all rows into one list of text, and return how long each was."""
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise BadInput(f"labels must be one list per row, but are a {type(rows).__name__}")
    rows = rows if isinstance(rows, list) else list(rows)
    kinds = set(map(type, rows))
    if kinds and all(issubclass(kind, (str, numbers.Integral)) for kind in kinds):
        return _as_names(rows), np.ones(len(rows), dtype=np.int64)
    if not kinds <= {list, tuple, set, frozenset}:
        rows = [_as_row(row, number) for number, row in enumerate(rows)]
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    return _as_names(chain.from_iterable(rows), lengths), lengths


def _as_row(row: Any, number: int) -> Sequence[Any]:
    is_list = isinstance(row, Iterable) and not isinstance(row, (str, bytes, Mapping))
    if not is_list or getattr(row, "ndim", 1) != 1:
        raise BadInput(f"labels of row {number} must be a list, but are {row!r:.80}; pass [] for none")
    return row.tolist() if isinstance(row, np.ndarray) else list(row)


def _as_names(labels: Iterable[Any], lengths: np.ndarray | None = None) -> list[str]:
    """Turn labels into text; ``lengths`` of the rows they came from let a message say which row was wrong."""
    if isinstance(labels, (str, bytes, Mapping, set, frozenset)) or not isinstance(labels, Iterable):
        raise BadInput(f"labels must be a list, whose order is that of the columns, but are {labels!r:.80}")
    flat = list(labels)
    kinds = set(map(type, flat))
    if kinds <= {str, int} and "" not in set(flat):
        return flat if int not in kinds else list(map(str, flat))
    for i, label in enumerate(flat):
        whole = isinstance(label, numbers.Integral) and not isinstance(label, (bool, np.bool_))
        if not (whole or (isinstance(label, str) and label)):
            row = i if lengths is None else int(np.searchsorted(np.cumsum(lengths), i, side="right"))
            raise BadInput(f"a label must be text or a whole number, but row {row} has {label!r:.80}")
    return [str(label) for label in flat]


def _in_order(labels: Iterable[str]) -> list[str]:
    """Sort labels, by value if all are plain whole numbers."""
    labels = list(labels)
    if all(label.isascii() and label.isdigit() and len(label) < 19 for label in labels):
        return sorted(labels, key=lambda label: (int(label), label))
    return sorted(labels)


def _unambiguous(names: list[str]) -> dict[str, int]:
    index: dict[str, int] = {}
    for i, name in enumerate(names):
        index[name] = _SEVERAL if name in index else i
    return index


def _to_csr(ids: np.ndarray, lengths: np.ndarray, n_labels: int) -> sp.csr_matrix:
    """Build the binary matrix; unknown labels (-1) are left out, duplicates count once."""
    known = ids >= 0
    if not known.all():
        rows = np.repeat(np.arange(len(lengths)), lengths)
        lengths = np.bincount(rows[known], minlength=len(lengths))
        ids = ids[known]
    indptr = np.concatenate(([0], np.cumsum(lengths)))
    Y = wrap(np.ones(len(ids), dtype=np.float32), ids.astype(np.int32), indptr, (len(lengths), n_labels))
    Y.sum_duplicates()
    Y.data[:] = 1.0
    return Y
