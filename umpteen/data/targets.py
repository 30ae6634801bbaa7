"""Inputs and targets in the forms that ``fit`` takes: texts or feature rows; labels as lists, matrices or one per row.

``predict`` returns labels in the form of the targets that ``fit`` was given.
"""

import numbers
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from umpteen.data.columns import class_names, readable_targets
from umpteen.data.labels import Labels
from umpteen.data.sparse import as_csr, check_width, refuse_masked
from umpteen.data.stored_rows import StoredRows
from umpteen.errors import BadInput, nearest

_SCALARS = (str, bytes, int, float, np.generic)


def is_texts(X: Any) -> bool:
    """Return whether X is a list of texts and not a matrix; a single str is refused."""
    if isinstance(X, (str, bytes)):
        raise BadInput("texts must be a list, but a single text was passed; wrap it: [text]")
    _refuse_unordered(X, "X", "texts")
    if sp.issparse(X) or isinstance(X, StoredRows) or (isinstance(X, np.ndarray) and X.dtype.kind in "biuf"):
        return False
    array = _array(X)
    if array is not None:
        return array.ndim == 1 and any(isinstance(value, (str, bytes)) for value in array)
    if not isinstance(X, Iterable):
        raise BadInput(f"X must be a list of texts or a matrix, but is a {type(X).__name__}")
    first = next(iter(X), "")
    if not isinstance(first, Iterable):  # None or NaN in a list of texts is refused later, with its row
        return any(isinstance(value, str) for value in X)
    return isinstance(first, (str, bytes))


@dataclass(frozen=True)
class Targets:
    """The labels of a model, and the form in which they were given.

    ``kind`` is ``lists`` (of labels per row), ``dense`` or ``sparse`` (a matrix with a column per label), or
    ``single`` (one label per row); ``dtype`` is the type of single labels. ``counts`` is the number of training rows
    with each label, of ``n_rows`` in all; None for models of versions that did not save it.
    """

    labels: Labels
    kind: str
    dtype: str = ""
    n_rows: int = 0
    counts: np.ndarray | None = field(default=None, compare=False, repr=False)

    @cached_property
    def names(self) -> list[str] | None:
        """Name of each label, or None if labels are column numbers."""
        return None if self.labels.is_numbered else self.labels.names()

    @cached_property
    def classes(self) -> np.ndarray:
        """The ``classes_`` of scikit-learn: labels by column; single labels have their original type."""
        if self.names is None:
            return np.arange(len(self.labels))
        kind = np.dtype(self.dtype).kind if self.dtype else "O"
        if kind == "b":
            return np.array([name == "True" for name in self.names])
        return np.array(self.names, dtype=object if kind == "O" else str).astype(self.dtype or object)

    def encode(self, Y: Any) -> sp.csr_matrix:
        """Convert true labels to a matrix; unknown labels get further columns, so that they count as missed.

        Pairs of 0 and 1 are labels if ``fit`` was given lists, and are refused otherwise.
        """
        Y = readable_targets(Y)
        kind = _kind(Y)
        if kind in ("lists", "single"):
            rows = _rows(Y, kind)
            if self.kind != "lists":
                _refuse_ambiguous(rows)
            return self.labels.copy().encode(rows, unknown="add")
        targets = _read_matrix(Y)
        if targets.shape[1] < len(self.labels):
            raise BadInput(
                f"Y has {targets.shape[1]} columns but the model has {len(self.labels)} labels; "
                "pass one column per label, in the order of training"
            )
        return targets

    def decode(self, labels: np.ndarray, scores: np.ndarray, threshold: float) -> Any:
        """Return the ranked labels that reach the threshold, in the form of Y; of single labels the first."""
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
            raise BadInput(f"{what} names {label!r}, which is none of the {len(self.labels)} known labels{hint}")
        return found.indices


def read_targets(Y: Any, label_names: Labels | Iterable[str] | None = None) -> tuple[sp.csr_matrix, Targets]:
    """Convert labels in any form to a matrix, and remember the form.

    Parameters
    ----------
    Y
        - a scipy sparse matrix or a two-dimensional array: one column per label, positive values are weights;
        - one list, tuple, set or array of labels per row, as text or integers;
        - a list or one-dimensional array of text or integers: one label per row.

        Lists of equal length that hold only 0 and 1 and repeat one of them within a row are rows of a matrix. Pairs
        without duplicates, ``[[0, 1], [1, 0]]``, could be either and are refused, unless ``label_names`` has the labels
        0 and 1.
    label_names
        The vocabulary: names of the columns of a matrix, or the labels that rows may hold. By default the classes of a
        column of ``datasets`` that has numbers of classes (``ClassLabel``), whose keys are these numbers.

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
    if label_names is None and (names := class_names(Y)):
        label_names = Labels(names, range(len(names)))
    Y = readable_targets(Y)
    kind = _kind(Y)
    labels = label_names if label_names is None or isinstance(label_names, Labels) else Labels(label_names)
    if kind == "single" and labels is None:
        return _read_single(Y)
    if kind in ("dense", "sparse"):
        matrix = _read_matrix(Y)
        check_width(matrix.shape[1], "labels")
        labels = Labels.numbered(matrix.shape[1]) if labels is None else labels
        if len(labels) != matrix.shape[1]:
            raise BadInput(f"Y has {matrix.shape[1]} columns but there are {len(labels)} names; name each column")
        return matrix, Targets(labels, kind, "", *_counted(matrix))
    rows = _rows(Y, kind)
    if labels is None or not ("0" in labels and "1" in labels):
        _refuse_ambiguous(rows)
    if labels is None:
        labels, matrix = Labels.from_lists(rows)
    else:
        matrix = labels.encode(rows)
    return matrix, Targets(labels, kind, "O" if kind == "single" else "", *_counted(matrix))


def _rows(Y: Any, kind: str) -> Any:
    """Return labels of the kind ``lists`` or ``single`` in a form that ``Labels.encode`` takes."""
    if kind == "single":
        return [_name(value) for value in _single(Y)]
    array = _array(Y)
    return Y if array is None else array.tolist()


def _counted(matrix: sp.csr_matrix) -> tuple[int, np.ndarray]:
    """Return the number of rows, and the number of rows with each label."""
    counts = np.zeros(matrix.shape[1], np.int32)
    np.add.at(counts, matrix.indices, 1)  # bincount would need 64 bits per label
    return matrix.shape[0], counts


def _array(values: Any) -> np.ndarray | None:
    """Return an array, or a pandas object as an array; None for lists."""
    return np.asarray(values) if isinstance(values, np.ndarray) or hasattr(values, "__array__") else None


def _refuse_unordered(values: Any, name: str, what: str) -> None:
    """Refuse a dict, whose keys would be read, and a set, which has no order."""
    if isinstance(values, (Mapping, set, frozenset)) and not sp.issparse(values):  # dok_matrix is a dict
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
            raise BadInput(f"labels must be one list per row or a matrix, but are a {type(Y).__name__}")
        kinds = [isinstance(row, (*_SCALARS, type(None))) for row in Y]
        if all(kinds) and any(row is not None for row in Y):  # None is refused later, with its row
            return "single"
        return "dense" if _is_indicator(Y) else "lists"
    if array.dtype.kind in "UST" and array.ndim == 2:
        return "lists"
    if array.ndim == 2:
        return "single" if _is_column_of_classes(array) else "dense"
    is_rows = array.dtype == object and len(array) and not isinstance(array[0], (*_SCALARS, type(None)))
    return "lists" if is_rows else "single"


def _is_indicator(rows: Iterable[Any]) -> bool:
    """Return whether rows such as ``[0, 1, 0]`` are a matrix: as lists of labels they would have duplicates."""
    return _are_zeros_and_ones(rows) and any(len({int(value) for value in row}) < len(row) for row in rows)


def _refuse_ambiguous(rows: Iterable[Any]) -> None:
    """Refuse pairs of 0 and 1, which could be lists of labels or rows of an indicator matrix."""
    if _are_zeros_and_ones(rows) and not _is_indicator(rows):
        raise BadInput(
            "Y holds nothing but pairs of 0 and 1, which could be labels called 0 and 1 or rows of a matrix; "
            "pass np.array(Y) for a matrix, or text such as '0' and '1' for labels"
        )


def _are_zeros_and_ones(rows: Iterable[Any]) -> bool:
    """Return whether rows consist of 0 and 1 only and have the same length of two or more."""
    lengths = set()
    for row in rows:
        if not isinstance(row, (list, tuple, np.ndarray)) or len(row) < 2:
            return False
        lengths.add(len(row))
        if len(lengths) > 1 or not all(isinstance(value, numbers.Real) and value in (0, 1) for value in row):
            return False
    return bool(lengths)


def _read_matrix(Y: Any) -> sp.csr_matrix:
    """Return an indicator matrix, whose values are weights, without stored zeros; negative values are refused."""
    Y = as_csr(Y, name="Y")
    if len(Y.data) and Y.data.min() < 0:
        at = int(np.argmin(Y.data))
        row = int(np.searchsorted(Y.indptr, at, side="right")) - 1
        column = Y.indices[at]
        raise BadInput(f"Y holds {Y.data[at]:g} at row {row}, column {column}; use 0 for no and 1 for yes")
    if len(Y.data) and Y.data.min() == 0:
        Y = Y.copy()
        Y.eliminate_zeros()
    return Y


def _is_column_of_classes(array: np.ndarray) -> bool:
    """Return whether a matrix is a column of classes such as 3, 1, 2 and not an indicator of one label."""
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
    """Return single labels, text or integers, as a checked one-dimensional array."""
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
