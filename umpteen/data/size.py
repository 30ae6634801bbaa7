"""How much there is to learn from: rows, labels, and what texts will become, guessed from their lengths."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from umpteen.config import TfidfConfig
from umpteen.data.stored_texts import StoredTexts
from umpteen.data.targets import is_texts

_CHARACTERS_PER_TOKEN = 4.5  # of English in a vocabulary of 30 000
_CHARACTERS_PER_TERM = 8.6  # of a short text, for each length of n-grams; long texts repeat their terms
_MOST_TERMS = 700.0  # of a very long text, likewise
_NEW = 0.25  # share of the terms of a text that no other text has
_NONZERO_BYTES = 16.0  # of tf-idf: in blocks of texts, and put together
_TEXT_BYTES = 60.0  # of a str beside its characters
_FEATURES = 25.0  # times the square root of the nonzeros: 200 000 features of 64 million nonzeros
_ZIPF, _ZIPF_OFFSET = 0.8, 5.0  # exponent of label frequencies, and offset of the rank of a label
_ENTRIES = 1_000_000  # labels that are told apart where data is planned; each may stand for several


class DataSize(NamedTuple):
    """The size of training data; ``n_features`` and ``n_nonzeros`` are those of tf-idf where texts are given.

    Data that is only planned may have so many labels or texts that each entry stands for several of them.
    """

    n_rows: int
    n_features: int
    n_nonzeros: int
    label_counts: np.ndarray  # rows of each label
    lengths: np.ndarray  # characters of each text; empty for feature rows
    labels_each: float = 1.0  # labels that an entry of ``label_counts`` stands for
    texts_each: float = 1.0  # texts that an entry of ``lengths`` stands for

    @classmethod
    def of(cls, X: Any, Y: sp.csr_matrix, config: TfidfConfig) -> DataSize:
        """Measure feature rows, or guess from texts."""
        counts = Y.getnnz(axis=0)
        if is_texts(X):
            lengths = X.lengths if isinstance(X, StoredTexts) else np.array([len(t) for t in X if isinstance(t, str)])
            mean = float(lengths.mean()) if len(lengths) else 0.0
            return cls(Y.shape[0], *_terms(mean, len(lengths), config), counts, lengths)
        rows = X if sp.issparse(X) else np.atleast_2d(np.asarray(X))
        n_nonzeros = rows.nnz if sp.issparse(rows) else np.count_nonzero(rows)
        return cls(Y.shape[0], int(rows.shape[1]), int(n_nonzeros), counts, np.empty(0))

    @classmethod
    def planned(cls, n_rows: int, n_labels: int, labels_per_row: float, per_row: float) -> DataSize:
        """Return the size of feature rows that are not there: Zipf's law gives the rows of a label.

        Examples
        --------
        >>> size = DataSize.planned(100_000, 10_000, labels_per_row=4.0, per_row=64.0)
        >>> size.n_labels, size.n_positives, size.n_features
        (10000, 400000, 63245)
        """
        counts, each = _zipf(n_labels, n_rows * labels_per_row)
        n_nonzeros = int(n_rows * per_row)
        return cls(n_rows, int(_FEATURES * n_nonzeros**0.5), n_nonzeros, counts, np.empty(0), each)

    @classmethod
    def planned_texts(
        cls, n_rows: int, n_labels: int, labels_per_row: float, characters: float, config: TfidfConfig
    ) -> DataSize:
        """Return the size of texts that are not there, of so many characters each."""
        counts, each = _zipf(n_labels, n_rows * labels_per_row)
        return cls(
            n_rows, *_terms(characters, n_rows, config), counts, np.array([characters]), each, texts_each=float(n_rows)
        )  # fmt: skip

    def scaled(self, n_labels: int | None = None, n_rows: int | None = None, most_features: int = 0) -> DataSize:
        """Return the size of data of the same kind with another number of labels or rows.

        Features and labels per row stay the same, and so does the curve of label frequencies: a label at the same
        relative rank has the same multiple of the mean. The number of features grows as the square root of the number
        of rows, up to ``most_features`` unless that is 0.

        Examples
        --------
        >>> size = DataSize(100, 50, 1_000, np.array([60, 30, 10]), np.empty(0)).scaled(6, 400)
        >>> size.n_labels, size.n_positives, size.n_features, size.per_row
        (6, 400, 100, 10.0)
        """
        more = (n_rows or self.n_rows) / max(self.n_rows, 1)
        n_labels = n_labels or self.n_labels
        n_entries = min(n_labels, _ENTRIES)
        places = np.arange(n_entries) * len(self.label_counts) // max(n_entries, 1)
        counts = np.sort(self.label_counts)[::-1][places].astype(np.float64)
        each = n_labels / max(n_entries, 1)
        counts *= self.n_positives * more / max(float(counts.sum()) * each, 1e-9)
        n_features = int(self.n_features * more**0.5)
        return self._replace(
            n_rows=round(self.n_rows * more), n_features=min(n_features, most_features or n_features),
            n_nonzeros=int(self.n_nonzeros * more), label_counts=counts, labels_each=each,
            texts_each=self.texts_each * more,
        )  # fmt: skip

    @property
    def n_labels(self) -> int:
        """Columns of Y, used or not."""
        return round(len(self.label_counts) * self.labels_each)

    @property
    def n_seen(self) -> float:
        """Labels that some row has; of data that is planned, the expected number."""
        counts = self.label_counts
        return self.labels_each * float(
            np.count_nonzero(counts) if counts.dtype.kind != "f" else -np.expm1(-counts).sum()
        )

    @property
    def n_positives(self) -> int:
        """Entries of Y."""
        return round(float(self.label_counts.sum()) * self.labels_each)

    @property
    def n_characters(self) -> float:
        """Characters of all texts."""
        return float(self.lengths.sum()) * self.texts_each

    @property
    def labels_per_row(self) -> float:
        """Labels of a row on average, at least one."""
        return max(1.0, self.n_positives / max(self.n_rows, 1))

    @property
    def per_row(self) -> float:
        """Nonzeros of a row on average."""
        return self.n_nonzeros / max(self.n_rows, 1)

    @property
    def input_bytes(self) -> float:
        """Bytes of what is trained on: texts or feature rows, and their labels."""
        inputs = self.n_characters + _TEXT_BYTES * self.n_rows if len(self.lengths) else 8.0 * self.n_nonzeros
        return inputs + 8.0 * self.n_positives + 16.0 * self.n_rows

    @property
    def tfidf_bytes(self) -> float:
        """Bytes of the tf-idf rows of texts."""
        return _NONZERO_BYTES * self.n_nonzeros if len(self.lengths) else 0.0

    def count_entries(self, most: int) -> float:
        """Return the entries of the vectors of all labels, ``most`` of each at most; 0 sets no bound."""
        return float(np.minimum(self.label_counts * self.per_row, most or np.inf).sum()) * self.labels_each

    def token_counts(self, most: int) -> np.ndarray:
        """Guess how many tokens each entry of ``lengths`` has, ``most`` of which are read."""
        return np.minimum(np.ceil(self.lengths / _CHARACTERS_PER_TOKEN), most)


def _terms(characters: float, n_texts: int, config: TfidfConfig) -> tuple[int, int]:
    """Guess the features and nonzeros of tf-idf from the mean length of texts."""
    n_lengths = config.ngram_max - config.ngram_min + 1
    n_nonzeros = int(n_lengths * characters / (_CHARACTERS_PER_TERM + characters / _MOST_TERMS) * n_texts)
    return min(config.max_features or n_nonzeros, max(int(_NEW * n_nonzeros), 1)), n_nonzeros


def _zipf(n_labels: int, n_positives: float) -> tuple[np.ndarray, float]:
    """Return the rows of labels by rank, and how many labels each entry stands for."""
    n_entries = min(n_labels, _ENTRIES)
    each = n_labels / max(n_entries, 1)
    shares = (np.arange(n_entries) * each + _ZIPF_OFFSET) ** -_ZIPF
    return shares * (n_positives / each / shares.sum()), each
