"""The best labels of each text, as two arrays: what every model returns and every metric reads.

Knows nothing about models, texts or trees; label names are carried along when there are any.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

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
        What the label numbers mean, for ``names``.

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

    __slots__ = ("label_names", "labels", "scores")

    def __init__(self, labels: Any, scores: Any, label_names: Sequence[str] | None = None):
        self.labels: np.ndarray = np.ascontiguousarray(labels, dtype=np.int32)  # (n, k)
        self.scores: np.ndarray = np.ascontiguousarray(scores, dtype=np.float32)  # (n, k)
        self.label_names = label_names
        if self.labels.ndim != 2 or self.labels.shape != self.scores.shape:
            raise BadInput(
                "labels and scores must be two tables of one shape (texts, k), "
                f"but have shapes {self.labels.shape} and {self.scores.shape}"
            )

    @classmethod
    def from_csr(cls, matrix: Any, k: int | None = None, label_names: Sequence[str] | None = None) -> TopK:
        """Take the k largest stored values of each row; equal ones are ordered by label number.

        Parameters
        ----------
        matrix
            Scores (n, n_labels), sparse or dense. What a sparse matrix does not store is not predicted;
            what it stores is, even a score of zero or below.
        k
            How many to keep; by default as many as the fullest row has.
        label_names
            Names to carry along.

        Examples
        --------
        >>> TopK.from_csr([[0.1, 0.0, 0.7], [0.0, 0.2, 0.0]], k=2).labels.tolist()
        [[2, 0], [1, -1]]
        """
        csr = canonical(matrix, "the score matrix")
        if np.isnan(csr.data).any():
            raise BadInput("scores must be numbers, but the score matrix holds NaN; remove those entries")
        if k is None:
            k = max(1, int(np.diff(csr.indptr).max(initial=0)))
        check_k(k)
        labels = np.empty((csr.shape[0], k), np.int32)
        scores = np.empty((csr.shape[0], k), np.float32)
        # + 0.0 turns -0.0 into 0.0: the kernel orders scores by their bits.
        data = csr.data.astype(np.float32) + np.float32(0.0)
        keep_top(
            csr.indptr.astype(np.int64), csr.indices.astype(np.int32, copy=False), data.view(np.int32),
            labels, scores.view(np.int32),
        )  # fmt: skip
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
        indptr = np.zeros(len(self) + 1, np.int64)
        np.cumsum(filled.sum(axis=1), out=indptr[1:])
        matrix = csr_matrix((self.scores[filled], self.labels[filled], indptr), shape=(len(self), n_labels))
        matrix.sort_indices()
        return matrix

    def first(self, k: int) -> TopK:
        """Return the first k labels of each text, all if there are no more."""
        return self if self.k <= k else TopK(self.labels[:, :k], self.scores[:, :k], self.label_names)

    def continued(self, more: TopK) -> TopK:
        """Return as many labels as ``more`` holds: these, then those of ``more`` that are not among them.

        A label that is added scores no more than those before it.

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
        """Return how many labels a row can hold."""
        return self.labels.shape[1]

    @property
    def names(self) -> list[list[str]]:
        """Return the labels of each text by name, best first, without padding."""
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
        """Return one text's ``(labels, scores)`` without padding, or a TopK of several texts."""
        if isinstance(rows, (int, np.integer)):
            filled = self.labels[rows] >= 0
            return self.labels[rows][filled], self.scores[rows][filled]
        return TopK(self.labels[rows], self.scores[rows], self.label_names)

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


def canonical(matrix: Any, what: str) -> csr_matrix:
    """Return a table as CSR with sorted rows and no entry twice; the caller's matrix is left as it is."""
    try:
        csr = csr_matrix(matrix)
    except (TypeError, ValueError) as cause:
        kind = type(matrix).__name__
        raise BadInput(f"{what} must be a sparse or dense table of numbers, but is a {kind}") from cause
    try:
        csr.check_format(full_check=True)  # kernels do not check bounds
    except ValueError as cause:
        raise BadInput(f"{what} is not a valid sparse matrix ({cause}); build it again") from cause
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    return csr


def check_k(k: int) -> None:
    """Refuse a k that is not a whole number of at least 1."""
    check_count(k, "k")


def check_count(number: Any, name: str) -> None:
    """Refuse what is no whole number of at least 1, or does not fit in 32 bits."""
    if not isinstance(number, (int, np.integer)) or isinstance(number, bool) or number < 1:
        raise BadInput(f"{name} must be a whole number of at least 1, but is {number!r}")
    if number > _MOST:
        raise BadInput(f"{name} must be at most {_MOST}, but is {number}")
