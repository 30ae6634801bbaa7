"""``Dataset``: texts or feature rows, targets and the vocabulary, checked when it is created."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from umpteen.data.columns import readable
from umpteen.data.labels import Labels
from umpteen.data.sparse import as_csr, check_rows_match, n_rows_of, wrap
from umpteen.errors import BadInput


@dataclass
class Dataset:
    """Rows to train or evaluate a model on.

    Parameters
    ----------
    texts
        One text per row, or None.
    X
        One feature row per text, or None.
    Y
        One target row per text, one column per label; None if unknown.
    labels
        Names of the columns of Y; column numbers by default.
    name
        Name in messages and tables.

    Examples
    --------
    >>> labels, Y = Labels.from_lists([["fruit"], ["tool"], ["fruit"]])
    >>> data = Dataset(["apple", "hammer", "pear"], Y=Y, labels=labels)
    >>> len(data), data.take([2, 0]).texts
    (3, ['pear', 'apple'])
    """

    texts: Sequence[str] | None = None
    X: sp.csr_matrix | None = None
    Y: sp.csr_matrix | None = None
    labels: Labels = field(default_factory=lambda: Labels.numbered(0))
    name: str = ""

    def __post_init__(self) -> None:
        if self.texts is None and self.X is None:
            raise BadInput("a dataset needs texts or X; both are missing")
        if isinstance(self.texts, (str, bytes)):
            raise BadInput("texts must be a list of texts, but is one text; pass [text]")
        if isinstance(self.texts, (Mapping, set, frozenset)):
            raise BadInput(f"texts must be a list in the order of the rows, but is a {type(self.texts).__name__}")
        self.texts = readable(self.texts)
        if self.X is not None:
            self.X = as_csr(self.X, name="X")
            if self.texts is not None:
                check_rows_match(self.texts, self.X, x_name="texts", y_name="X")
        if self.Y is not None:
            self._check_targets()

    def _check_targets(self) -> None:
        self.Y = as_csr(self.Y, name="Y")
        if self.X is not None:
            check_rows_match(self.X, self.Y)
        else:
            check_rows_match(self.texts, self.Y, x_name="texts")
        if len(self.labels) == 0:
            self.labels = Labels.numbered(self.Y.shape[1])
        if len(self.labels) != self.Y.shape[1]:
            n_columns, n_labels = self.Y.shape[1], len(self.labels)
            raise BadInput(f"Y has {n_columns} columns but there are {n_labels} labels; name each column")

    def __len__(self) -> int:
        return n_rows_of(self.X if self.texts is None else self.texts)

    def __repr__(self) -> str:
        parts = [f"{len(self):,} rows", "texts" if self.texts is not None else "no texts"]
        if self.X is not None:
            parts.append(f"{self.X.shape[1]:,} features")
        parts.append(f"{len(self.labels):,} labels")
        return f"Dataset({self.name + ': ' if self.name else ''}{', '.join(parts)})"

    def take(self, rows: Any) -> Dataset:
        """Return the given rows (numbers, a mask or a slice) with the same vocabulary."""
        rows = _row_numbers(rows, len(self))
        return Dataset(
            texts=None if self.texts is None else [self.texts[i] for i in rows],
            X=None if self.X is None else self.X[rows],
            Y=None if self.Y is None else self.Y[rows],
            labels=self.labels,
            name=self.name,
        )

    def split(self, share: float, seed: int = 0) -> tuple[Dataset, Dataset]:
        """Hold out a random fraction of the rows; return ``(rest, held out)``, each in the original order."""
        if not 0 < share < 1:
            raise BadInput(f"share must be between 0 and 1, but is {share!r}")
        if len(self) < 2:
            raise BadInput(f"a dataset of {len(self)} rows cannot be split; two are needed")
        if not isinstance(seed, (int, np.integer)) or seed < 0:
            raise BadInput(f"seed must be a whole number of at least 0, but is {seed!r}")
        n_held = min(max(round(len(self) * share), 1), len(self) - 1)
        held = np.zeros(len(self), dtype=bool)
        held[np.random.default_rng(seed).choice(len(self), n_held, replace=False)] = True
        return self.take(~held), self.take(held)

    @property
    def inputs(self) -> Any:
        """Input of a model: feature rows if there are any, else texts."""
        return self.texts if self.X is None else self.X

    def align(self, labels: Labels) -> Dataset:
        """Return the dataset with the columns of Y in the order of ``labels``, and labels unknown there at the end.

        Labels are matched by key, else by name; columns without names by their number.

        Examples
        --------
        >>> labels, Y = Labels.from_lists([["fruit"], ["tool"]])
        >>> data = Dataset(["apple", "hammer"], Y=Y, labels=labels).align(Labels(["tool", "animal"]))
        >>> data.labels.names(), data.Y.indices.tolist()
        (['tool', 'animal', 'fruit'], [2, 0])
        """
        if len(self.labels) >= len(labels) and self.labels.keys(range(len(labels))) == labels.keys():
            return self
        vocabulary, place = _places(self.labels, labels)
        shape = (self.Y.shape[0], len(vocabulary))
        moved = wrap(self.Y.data.copy(), place[self.Y.indices].astype(np.int32), self.Y.indptr, shape)
        moved.has_sorted_indices = False
        moved.sum_duplicates()
        return Dataset(self.texts, self.X, moved, vocabulary, self.name)


def _places(own: Labels, labels: Labels) -> tuple[Labels, np.ndarray]:
    """Return ``labels`` extended by the unknown labels of ``own``, and the column of each label of ``own`` in it."""
    if own.is_numbered or labels.is_numbered:
        n_labels = max(len(own), len(labels))
        return labels.widen(n_labels), np.arange(n_labels)
    vocabulary = labels.copy()
    both = zip(own.keys(), own.names(), strict=True)
    known = [[name if key not in labels and name in labels else key] for key, name in both]
    return vocabulary, vocabulary.encode(known, unknown="add").indices


def _row_numbers(rows: Any, n_rows: int) -> np.ndarray:
    if isinstance(rows, slice):
        return np.arange(n_rows)[rows]
    try:
        numbers = np.asarray(rows)
    except ValueError as error:
        raise BadInput(f"rows must be a list of row numbers: {error}") from error
    if numbers.dtype == bool and numbers.shape == (n_rows,):
        return np.flatnonzero(numbers)
    if numbers.ndim != 1 or (len(numbers) and numbers.dtype.kind not in "iu"):
        raise BadInput(f"rows must be row numbers or a mask of {n_rows} entries, but are {rows!r:.80}")
    numbers = numbers.astype(np.int64)
    if len(numbers) and not (numbers.min() >= 0 and numbers.max() < n_rows):
        low, high = numbers.min(), numbers.max()
        raise BadInput(f"rows must be between 0 and {n_rows - 1}, but range from {low} to {high}")
    return numbers
