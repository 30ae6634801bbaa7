"""``TopK``, the best labels of each text: the result of every model and the input of every metric."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from umpteen.data.sparse import as_csr, pointers, triplet
from umpteen.errors import BadInput
from umpteen.kernels.rank import keep_top, merge_rows

_ROWS_SHOWN = 3
_MOST = np.iinfo(np.int32).max


class TopK:
    """The k best labels of each text, best first.

    Parameters
    ----------
    labels
        (n, k) label numbers, the columns of Y. A text with fewer than k labels ends in -1.
    scores
        (n, k) scores, descending; 0 where the label is -1.
    label_names
        Name of each label number, for ``names``.

    Attributes
    ----------
    probabilities
        (n, k) probabilities if the model is calibrated, otherwise None.

    Examples
    --------
    >>> top = TopK([[2, 0], [1, -1]], [[0.9, 0.4], [0.7, 0.0]], label_names=["art", "law", "tax"])
    >>> top.names
    [['tax', 'art'], ['law']]
    >>> for labels, scores in top:
    ...     print(labels, scores)
    [2 0] [0.9 0.4]
    [1] [0.7]
    >>> top[:1].labels.tolist()
    [[2, 0]]
    """

    __slots__ = ("label_names", "labels", "probabilities", "scores")

    def __init__(self, labels: Any, scores: Any, label_names: Sequence[str] | None = None):
        self.labels: np.ndarray = np.ascontiguousarray(labels, dtype=np.int32)  # (n, k)
        self.scores: np.ndarray = np.ascontiguousarray(scores, dtype=np.float32)  # (n, k)
        self.label_names = label_names
        self.probabilities: np.ndarray | None = None  # (n, k), from a calibrated model
        if self.labels.ndim != 2 or self.labels.shape != self.scores.shape:
            raise BadInput(
                "labels and scores must be two tables of one shape (texts, k), "
                f"but have shapes {self.labels.shape} and {self.scores.shape}"
            )

    @classmethod
    def from_csr(cls, matrix: Any, k: int | None = None, label_names: Sequence[str] | None = None) -> TopK:
        """Return the k largest stored values of each row; ties are ordered by label number.

        Parameters
        ----------
        matrix
            Scores (n, n_labels), sparse or dense. Of a sparse matrix all stored values are predictions, zero and
            negative ones too.
        k
            Number of labels per row; by default the largest number of stored values in a row.
        label_names
            Name of each label number.

        Examples
        --------
        >>> TopK.from_csr([[0.1, 0.0, 0.7], [0.0, 0.2, 0.0]], k=2).labels.tolist()
        [[2, 0], [1, -1]]
        """
        csr = as_csr(matrix, "the score matrix", finite=False)
        if np.isnan(csr.data).any():
            raise BadInput("scores must be numbers, but the score matrix holds NaN; remove those entries")
        if k is None:
            k = max(1, int(np.diff(csr.indptr).max(initial=0)))
        check_k(k)
        labels = np.empty((csr.shape[0], k), np.int32)
        scores = np.empty((csr.shape[0], k), np.float32)
        indptr, indices, data = triplet(csr)
        data = data + np.float32(0.0)  # turns -0.0 into 0.0: the kernel orders scores by their bits
        keep_top(indptr, indices, data.view(np.int32), labels, scores.view(np.int32))
        return cls(labels, scores, label_names)

    def to_csr(self, n_labels: int) -> csr_matrix:
        """Return the scores as a matrix (n, n_labels) with sorted rows; padding is left out.

        Examples
        --------
        >>> TopK([[2, 0], [1, -1]], [[0.75, 0.5], [0.25, 0.0]]).to_csr(3).toarray().tolist()
        [[0.5, 0.0, 0.75], [0.0, 0.25, 0.0]]
        """
        largest = int(self.labels.max(initial=-1))
        if largest >= n_labels:
            raise BadInput(
                f"n_labels must exceed every label number, but label {largest} is predicted and n_labels is "
                f"{n_labels}; pass the number of columns of Y"
            )
        filled = self.labels >= 0
        indptr = pointers(filled.sum(axis=1))
        matrix = csr_matrix((self.scores[filled], self.labels[filled], indptr), shape=(len(self), n_labels))
        matrix.sort_indices()
        return matrix

    def first(self, k: int) -> TopK:
        """Return the first k labels of each text."""
        return self if self.k <= k else self._part((slice(None), slice(k)))

    def continued(self, more: TopK) -> TopK:
        """Append the labels of ``more`` that are not among these, up to the number of labels in ``more``.

        The score of an added label is at most that of the label before it.

        Examples
        --------
        >>> top = TopK([[4, 2]], [[0.75, 0.5]]).continued(TopK([[2, 7, 4]], [[0.8, 0.7, 0.6]]))
        >>> top.labels.tolist(), top.scores.tolist()
        ([[4, 2, 7]], [[0.75, 0.5, 0.5]])
        """
        width = self.k + more.k
        order = np.tile(np.arange(width, 0, -1, dtype=np.float32), (len(self), 1))
        labels, kept = np.empty((len(self), more.k), np.int32), np.empty((len(self), more.k), np.float32)
        both = np.concatenate([self.labels, more.labels], axis=1)
        merge_rows(both, order, labels, kept.view(np.int32), True, 1.0)
        places = np.minimum(width - kept.astype(np.int64), width - 1)
        scores = np.take_along_axis(np.concatenate([self.scores, more.scores], axis=1), places, axis=1)
        scores = np.where(labels >= 0, np.minimum.accumulate(scores, axis=1), np.float32(0))
        return TopK(labels, scores, self.label_names)

    @property
    def k(self) -> int:
        """Number of labels per text."""
        return self.labels.shape[1]

    @property
    def names(self) -> list[list[str]]:
        """Names of the labels of each text, best first, without padding."""
        names = self.label_names
        if names is None:
            raise BadInput("these predictions carry no label names; pass label_names= or read .labels")
        return [[names[label] for label in row if label >= 0] for row in self.labels.tolist()]

    def __len__(self) -> int:
        return self.labels.shape[0]

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for i in range(len(self)):
            yield self[i]

    def __getitem__(self, rows: Any) -> Any:
        """Return ``(labels, scores)`` of one text without padding, or a TopK of several texts."""
        if isinstance(rows, (int, np.integer)):
            filled = self.labels[rows] >= 0
            return self.labels[rows][filled], self.scores[rows][filled]
        return self._part(rows)

    def _part(self, where: Any) -> TopK:
        """Return the entries at an index of both tables."""
        part = TopK(self.labels[where], self.scores[where], self.label_names)
        part.probabilities = None if self.probabilities is None else self.probabilities[where]
        return part

    def __repr__(self) -> str:
        lines = [f"TopK({len(self)} {'text' if len(self) == 1 else 'texts'}, k={self.k})"]
        for i in range(min(len(self), _ROWS_SHOWN)):
            row = [f"{self._name(label)} {score:.3g}" for label, score in zip(*self[i], strict=True)]
            lines.append(f"  {i}: {', '.join(row) or 'nothing'}")
        if len(self) > _ROWS_SHOWN:
            lines.append("  ...")
        return "\n".join(lines)

    def _name(self, label: int) -> str:
        return str(label) if self.label_names is None else self.label_names[label]


def check_k(k: int) -> None:
    """Raise BadInput unless k is a positive integer."""
    check_count(k, "k")


def check_count(number: Any, name: str) -> None:
    """Raise BadInput unless the number is a positive integer that fits in 32 bits."""
    if not isinstance(number, (int, np.integer)) or isinstance(number, bool) or number < 1:
        raise BadInput(f"{name} must be a whole number of at least 1, but is {number!r}")
    if number > _MOST:
        raise BadInput(f"{name} must be at most {_MOST}, but is {number}")
