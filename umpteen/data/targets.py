"""Inputs and targets as users pass them: texts or feature rows, and labels as lists, matrices or one per row.

``read_targets`` turns labels into a matrix and remembers their form, so that ``predict`` answers in the form
that ``fit`` was given. Knows nothing about models, trees or files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from umpteen.data.labels import Labels, as_targets, is_indicator, refuse_ambiguous
from umpteen.data.sparse import refuse_masked
from umpteen.errors import BadInput, nearest

_SCALARS = (str, bytes, int, float, np.generic)


def readable(X: Any) -> Any:
    """Hold an iterator in a list: it can be read only once."""
    return list(X) if isinstance(X, Iterator) else X


def is_texts(X: Any) -> bool:
    """Tell a list of texts from a matrix; a bare str is refused."""
    if isinstance(X, (str, bytes)):
        raise BadInput("texts must be a list, but a single text was passed; wrap it: [text]")
    _refuse_unordered(X, "X", "texts")
    if sp.issparse(X) or (isinstance(X, np.ndarray) and X.dtype.kind in "biuf"):
        return False
    array = _array(X)
    if array is not None:
        return array.ndim == 1 and any(isinstance(value, (str, bytes)) for value in array)
    if not isinstance(X, Iterable):
        raise BadInput(f"X must be a list of texts or a matrix, but is a {type(X).__name__}")
    first = next(iter(X), "")
    if not isinstance(first, Iterable):  # None or NaN in a list of texts is named by its row later
        return any(isinstance(value, str) for value in X)
    return isinstance(first, (str, bytes))


@dataclass(frozen=True)
class Targets:
    """The labels of a model, and the form in which they came.

    ``kind`` is ``lists`` (of labels per row), ``dense`` or ``sparse`` (a matrix with a column per label), or
    ``single`` (one label per row); ``dtype`` is the type of single labels. ``counts`` says how many of the ``n_rows``
    rows of training have each label; None for a model of an umpteen that did not keep it.
    """

    labels: Labels
    kind: str
    dtype: str = ""
    n_rows: int = 0
    counts: np.ndarray | None = field(default=None, compare=False, repr=False)

    @cached_property
    def names(self) -> list[str] | None:
        """Name of each label, or None if labels are numbers."""
        return None if self.labels.is_numbered else self.labels.names()

    @cached_property
    def classes(self) -> np.ndarray:
        """The labels by column, as scikit-learn wants them: single labels have the type they came in."""
        if self.names is None:
            return np.arange(len(self.labels))
        kind = np.dtype(self.dtype).kind if self.dtype else "O"
        if kind == "b":
            return np.array([name == "True" for name in self.names])
        return np.array(self.names, dtype=object if kind == "O" else str).astype(self.dtype or object)

    def encode(self, Y: Any) -> sp.csr_matrix:
        """Turn true labels into a matrix; unknown ones get columns of their own, so that they count.

        Pairs of 0 and 1 are labels if ``fit`` was given lists, and could be either if not.
        """
        Y = readable(Y)
        kind = _kind(Y)
        if kind == "lists":
            if self.kind != "lists":
                refuse_ambiguous(Y)
            return self.labels.copy().encode(Y, unknown="add")
        if kind == "single":
            return self.labels.copy().encode([_name(value) for value in _single(Y)], unknown="add")
        targets = as_targets(np.asarray(Y) if kind == "dense" else Y)[0]
        if targets.shape[1] < len(self.labels):
            raise BadInput(
                f"Y has {targets.shape[1]} columns but the model has {len(self.labels)} labels; "
                "pass one column per label, in the order of training"
            )
        return targets

    def decode(self, labels: np.ndarray, scores: np.ndarray, threshold: float) -> Any:
        """Return the ranked labels that reach the threshold, in the form of Y; for single labels, the best one."""
        if self.kind == "single":
            return self.classes[labels[:, 0]]
        keep = (labels >= 0) & (scores >= threshold)
        if self.kind == "lists":
            names = self.names or self.labels.names()
            return [[names[i] for i in row[kept]] for row, kept in zip(labels, keep, strict=True)]
        rows, places = np.nonzero(keep)
        shape = (len(labels), len(self.labels))
        found = sp.csr_matrix((np.ones(len(rows), np.int64), (rows, labels[rows, places])), shape=shape)
        return found.toarray() if self.kind == "dense" else found

    def ids(self, labels: Any, what: str = "allowed") -> np.ndarray:
        """Return the columns of labels given by name, key or column number."""
        if isinstance(labels, (str, bytes)) or not isinstance(labels, Iterable):
            raise BadInput(f"{what} must be a list of labels, but is {labels!r:.80}; wrap it: [label]")
        items = list(labels)
        if not items:
            raise BadInput(f"{what} is empty, so nothing could be predicted; name at least one label")
        if any(isinstance(item, (bool, np.bool_)) for item in items):
            raise BadInput(f"{what} must hold names or columns, not booleans; pass np.flatnonzero(mask)")
        if all(isinstance(item, (int, np.integer)) for item in items):
            wrong = next((item for item in items if not 0 <= item < len(self.labels)), None)
            if wrong is not None:
                raise BadInput(f"{what} has the column {wrong}; they range from 0 to {len(self.labels) - 1}")
            return np.array(items, np.int64)
        found = self.labels.encode([[item] for item in items], unknown="ignore")
        unknown = np.flatnonzero(np.diff(found.indptr) == 0)
        if len(unknown):
            label = str(items[unknown[0]])
            hint = nearest(label, self.labels.names(range(min(len(self.labels), 10_000))))
            raise BadInput(f"{what} has the label {label!r}, none of the {len(self.labels)} known ones{hint}")
        return found.indices


def read_targets(Y: Any, label_names: Labels | Iterable[str] | None = None) -> tuple[sp.csr_matrix, Targets]:
    """Turn labels in any form into a matrix, and remember the form.

    Examples
    --------
    >>> Y, targets = read_targets([["tin", "ore"], ["ore"]])
    >>> Y.toarray().tolist(), targets.kind, targets.names
    ([[1.0, 1.0], [1.0, 0.0]], 'lists', ['ore', 'tin'])
    >>> read_targets([7, 3, 7])[1].classes.tolist()
    [3, 7]
    """
    if Y is None:
        raise BadInput("fit requires y to be passed, but the target y is None; pass a list of labels per row")
    Y = readable(Y)
    kind = _kind(Y)
    if kind == "single" and label_names is None:
        return _read_single(Y)
    if kind == "dense" or kind == "single":
        Y = np.asarray(Y) if kind == "dense" else [_name(value) for value in _single(Y)]
    matrix, labels = as_targets(Y, label_names)
    return matrix, Targets(labels, kind, "O" if kind == "single" else "", *_counted(matrix))


def _counted(matrix: sp.csr_matrix) -> tuple[int, np.ndarray]:
    """Return the number of rows, and of those with each label."""
    counts = np.zeros(matrix.shape[1], np.int32)
    np.add.at(counts, matrix.indices, 1)  # unlike bincount, no second array of 64 bits a label
    return matrix.shape[0], counts


def _array(values: Any) -> np.ndarray | None:
    """Return the array that this is or stands for (a pandas table or column), or None for plain lists."""
    return np.asarray(values) if isinstance(values, np.ndarray) or hasattr(values, "__array__") else None


def _refuse_unordered(values: Any, name: str, what: str) -> None:
    """Refuse a dict, whose keys would be read, and a set, which has no order."""
    if isinstance(values, (Mapping, set, frozenset)) and not sp.issparse(values):  # scipy's dok is a dict, too
        kind = "dict" if isinstance(values, Mapping) else "set"
        raise BadInput(f"{name} must hold {what} in the order of the rows, but is a {kind}; pass a list")


def _kind(Y: Any) -> str:
    _refuse_unordered(Y, "Y", "labels")
    refuse_masked(Y, "Y")
    if sp.issparse(Y):
        return "sparse"
    array = _array(Y)
    if array is not None and array.ndim not in (1, 2):
        raise BadInput(
            f"Y must have one or two dimensions, but has shape {array.shape}; "
            "pass one label per row, or a matrix with one column per label"
        )
    if array is None:
        if isinstance(Y, (str, bytes)) or not isinstance(Y, Iterable):
            return "lists"  # which will be refused
        kinds = [isinstance(row, (*_SCALARS, type(None))) for row in Y]
        if all(kinds) and any(row is not None for row in Y):  # None in a list of labels is named by its row later
            return "single"
        return "dense" if is_indicator(Y) else "lists"
    if array.dtype.kind in "UST" and array.ndim == 2:
        return "lists"
    if array.ndim == 2:
        return "single" if _is_column_of_classes(array) else "dense"
    is_rows = array.dtype == object and len(array) and not isinstance(array[0], (*_SCALARS, type(None)))
    return "lists" if is_rows else "single"


def _is_column_of_classes(array: np.ndarray) -> bool:
    """Recognise a column such as 3, 1, 2: it cannot say yes and no to one label."""
    is_column = array.shape[1] == 1 and array.dtype.kind in "iuf"
    return is_column and bool(((array != 0) & (array != 1)).any() and (array == np.rint(array)).all())


def _read_single(Y: Any) -> tuple[sp.csr_matrix, Targets]:
    values = _single(Y)
    classes, column = np.unique(values, return_inverse=True)
    n_rows = len(values)
    matrix = sp.csr_matrix(
        (np.ones(n_rows, np.float32), column.ravel().astype(np.int32), np.arange(n_rows + 1)),
        shape=(n_rows, len(classes)),
    )
    labels = Labels([_name(value) for value in classes])
    return matrix, Targets(labels, "single", values.dtype.str, *_counted(matrix))


def _single(Y: Any) -> np.ndarray:
    """Check a column of labels: text or whole numbers."""
    values = np.asarray(Y)
    values = values.ravel() if values.ndim == 2 else values
    if values.dtype.kind == "f":
        if not np.isfinite(values).all():
            raise BadInput("Input y contains NaN or infinity; remove those rows")
        if (values != np.rint(values)).any():
            raise BadInput("Unknown label type: continuous. Labels must be text or whole numbers")
    elif values.dtype.kind == "c":
        raise BadInput(f"Complex data not supported: labels are {values.dtype}; pass text or whole numbers")
    elif values.dtype.kind not in "biuUO":
        raise BadInput(f"labels must be text or whole numbers, but are {values.dtype}; convert them")
    elif values.dtype == object:
        for row, value in enumerate(values):
            if not isinstance(value, (str, int, np.integer)):
                raise BadInput(f"a label must be text or a whole number, but row {row} has {value!r:.80}")
        if not all(isinstance(value, str) for value in values):
            numbers = [value for value in values if not isinstance(value, str)]
            values = values.astype(int if len(numbers) == len(values) else str)
    return values


def _name(value: Any) -> str:
    return str(int(value)) if isinstance(value, (float, np.floating)) else str(value)
