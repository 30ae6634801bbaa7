"""The label vocabulary: names and keys of the columns of Y.

A label has an id (its column), a name for people, and a key, which data files use: a URI, a code, or the name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import scipy.sparse as sp

from umpteen.data.label_rows import LabelRows, as_names
from umpteen.data.sparse import pointers, wrap
from umpteen.errors import BadInput, nearest

_SEVERAL = -2  # in place of an id: several labels share the name


class Labels:
    """The label vocabulary: id to name and key, and back.

    Parameters
    ----------
    names
        One name per label, in the order of their ids.
    keys
        One URI or code per label, unique; the names by default.

    Attributes
    ----------
    separator
        Separator of labels in the table they were read from, ``";"`` or ``" "``, with which other files are read;
        None if unknown.

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
        self._names: list[str] | None = as_names(names)
        self._keys: list[str] | None = None if keys is None else as_names(keys)
        self._n = len(self._names)
        self._index: dict[str, int] | None = None
        self._by_name: dict[str, int] | None = None
        self.separator: str | None = None
        if self._keys is not None and len(self._keys) != self._n:
            raise BadInput(f"there are {self._n} names but {len(self._keys)} keys; pass one key per name")
        self._lookup()

    @classmethod
    def numbered(cls, n_labels: int) -> Labels:
        """Return labels that are named by their column number, without storing the names."""
        labels = cls([])
        labels._names, labels._n, labels._index = None, int(n_labels), None
        return labels

    @classmethod
    def from_lists(cls, rows: Iterable[Any], names: Mapping[str, str] | None = None) -> tuple[Labels, sp.csr_matrix]:
        """Build the vocabulary that occurs in rows of labels, and encode them.

        Ids follow the sorted order of the labels (by value if all are integers), so they depend neither on the order
        of the rows nor on that of a set. ``names`` maps keys to names.

        Examples
        --------
        >>> labels, Y = Labels.from_lists([["tin", "ore"], ["ore"]])
        >>> labels.names(), Y.indices.tolist()
        (['ore', 'tin'], [0, 1, 0])
        """
        found = LabelRows.of(rows)
        keys = _in_order(set(found.distinct))
        labels = cls([names.get(key, key) for key in keys], keys) if names else cls(keys)
        return labels, _to_csr(labels._ids(found.distinct), found, len(labels))

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
        """Whether labels are named by their column number."""
        return self._names is None

    def names(self, ids: Iterable[int] | None = None) -> list[str]:
        """Return the names of these ids, or all names in the order of the ids."""
        return self._take(self._names, ids)

    def keys(self, ids: Iterable[int] | None = None) -> list[str]:
        """Return the keys of these ids, or all keys; the names if there are no other keys."""
        return self._take(self._names if self._keys is None else self._keys, ids)

    def copy(self) -> Labels:
        """Return a copy, which can be extended without changing this vocabulary."""
        if self.is_numbered:
            return Labels.numbered(len(self))
        labels = Labels(self.names(), None if self._keys is None else self._keys)
        labels.separator = self.separator
        return labels

    def add(self, labels: Iterable[str]) -> None:
        """Append labels that are not in the vocabulary; the ids of the others do not change."""
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
        """Return a vocabulary of at least this many labels; further columns are named by their number."""
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
            One list, tuple or set of labels per row, each a key or an unambiguous name, as text or integer.
            A flat list has one label per row. Duplicates within a row count once.
        unknown
            Treatment of labels outside the vocabulary: ``"error"``, ``"ignore"``, or ``"add"`` them to this
            vocabulary.
        """
        if unknown not in ("error", "ignore", "add"):
            raise BadInput(f"unknown must be error, ignore or add, but is {unknown!r}")
        found = LabelRows.of(rows)
        ids = self._ids(found.distinct)
        missing = np.flatnonzero(ids < 0)
        if len(missing) and unknown == "error":
            label = found.distinct[missing[0]]  # the first one, because they are in the order of the rows
            hint = nearest(label, self.keys(range(min(len(self), 10_000))))
            row = found.row_of(missing[0])
            raise BadInput(f"row {row} has the label {label!r}, none of the {len(self)} known ones{hint}")
        if len(missing) and unknown == "add":
            self.add(_in_order({found.distinct[i] for i in missing}))
            ids = self._ids(found.distinct)
        return _to_csr(ids, found, len(self))

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
        """Return the ids of labels, by key or else by name; -1 for unknown labels."""
        if self.is_numbered:
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
        """Return the column of a number without leading zeros, or -1."""
        is_number = label.isascii() and label.isdigit() and len(label) < 11 and str(int(label)) == label
        return int(label) if is_number and int(label) < self._n else -1

    def _take(self, values: list[str] | None, ids: Iterable[int] | None) -> list[str]:
        if ids is None:
            return list(values) if values is not None else list(map(str, range(self._n)))
        ids = [int(i) for i in ids]
        if ids and not (min(ids) >= 0 and max(ids) < self._n):
            raise BadInput(f"label ids must be between 0 and {self._n - 1}, but range from {min(ids)} to {max(ids)}")
        return [values[i] for i in ids] if values is not None else list(map(str, ids))


def _in_order(labels: Iterable[str]) -> list[str]:
    """Sort labels, by value if all are integers."""
    labels = list(labels)
    if all(label.isascii() and label.isdigit() and len(label) < 19 for label in labels):
        return sorted(labels, key=lambda label: (int(label), label))
    return sorted(labels)


def _unambiguous(names: list[str]) -> dict[str, int]:
    index: dict[str, int] = {}
    for i, name in enumerate(names):
        index[name] = _SEVERAL if name in index else i
    return index


def _to_csr(of_distinct: np.ndarray, rows: LabelRows, n_labels: int) -> sp.csr_matrix:
    """Return the binary matrix, by the ids of distinct labels; unknown ones (-1) are omitted, duplicates count once."""
    ids, lengths = of_distinct.astype(np.int32)[rows.places], rows.lengths
    known = ids >= 0
    if not known.all():
        rows = np.repeat(np.arange(len(lengths)), lengths)
        lengths = np.bincount(rows[known], minlength=len(lengths))
        ids = ids[known]
    Y = wrap(np.ones(len(ids), dtype=np.float32), ids, pointers(lengths), (len(lengths), n_labels))
    Y.sum_duplicates()
    Y.data[:] = 1.0
    return Y
