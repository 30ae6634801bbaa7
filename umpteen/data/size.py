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


class DataSize(NamedTuple):
    """The size of training data; ``n_features`` and ``n_nonzeros`` are those of tf-idf where texts are given."""

    n_rows: int
    n_features: int
    n_nonzeros: int
    label_counts: np.ndarray  # rows of each label
    lengths: np.ndarray  # characters of each text; empty for feature rows

    @classmethod
    def of(cls, X: Any, Y: sp.csr_matrix, config: TfidfConfig) -> DataSize:
        """Measure feature rows, or guess from texts."""
        counts = Y.getnnz(axis=0)
        if is_texts(X):
            lengths = X.lengths if isinstance(X, StoredTexts) else np.array([len(t) for t in X if isinstance(t, str)])
            mean = float(lengths.mean()) if len(lengths) else 0.0
            n_terms = (config.ngram_max - config.ngram_min + 1) * mean / (_CHARACTERS_PER_TERM + mean / _MOST_TERMS)
            n_nonzeros = int(n_terms * len(lengths))
            n_features = min(config.max_features or n_nonzeros, max(int(_NEW * n_nonzeros), 1))
            return cls(Y.shape[0], n_features, n_nonzeros, counts, lengths)
        rows = X if sp.issparse(X) else np.atleast_2d(np.asarray(X))
        n_nonzeros = rows.nnz if sp.issparse(rows) else np.count_nonzero(rows)
        return cls(Y.shape[0], int(rows.shape[1]), int(n_nonzeros), counts, np.empty(0))

    @property
    def n_labels(self) -> int:
        """Columns of Y, used or not."""
        return len(self.label_counts)

    @property
    def n_positives(self) -> int:
        """Entries of Y."""
        return int(self.label_counts.sum())

    @property
    def labels_per_row(self) -> float:
        """Labels of a row on average, at least one."""
        return max(1.0, self.n_positives / max(self.n_rows, 1))

    @property
    def per_row(self) -> float:
        """Nonzeros of a row on average."""
        return self.n_nonzeros / max(self.n_rows, 1)

    @property
    def tfidf_bytes(self) -> float:
        """Bytes of the tf-idf rows of texts."""
        return _NONZERO_BYTES * self.n_nonzeros if len(self.lengths) else 0.0

    def count_entries(self, most: int) -> float:
        """Return the entries of the vectors of all labels, ``most`` of each at most; 0 sets no bound."""
        return float(np.minimum(self.label_counts * self.per_row, most or np.inf).sum())

    def token_counts(self, most: int) -> np.ndarray:
        """Guess how many tokens each text has, ``most`` of which are read."""
        return np.minimum(np.ceil(self.lengths / _CHARACTERS_PER_TOKEN), most)
