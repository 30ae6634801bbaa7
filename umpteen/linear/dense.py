"""Classifiers of the labels that were fine-tuned with an encoder; their scores are merged with those of the ranker.

Plain numpy is fast enough, for the encoder takes most of the time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from umpteen.shortlist import TopK

_AT_A_TIME = 16_000_000  # maximum number of scores in memory


@dataclass(frozen=True)
class DenseHead:
    """One classifier per label for embeddings of unit length."""

    weight: np.ndarray  # (labels, d) float32
    bias: np.ndarray  # (labels,) float32
    post: str  # function from margins to scores: l2-hinge or sigmoid

    @classmethod
    def rounded(cls, weight: np.ndarray, bias: np.ndarray, post: str) -> DenseHead:
        """Return a head with weights rounded to the stored precision."""
        return cls(weight.astype(np.float16).astype(np.float32), bias, post)

    def topk(self, E: np.ndarray, k: int, allowed: np.ndarray | None = None) -> TopK:
        """Return the k best labels of each embedding, of the ``allowed`` label numbers if given."""
        weight, bias = (self.weight, self.bias) if allowed is None else (self.weight[allowed], self.bias[allowed])
        k = min(k, len(bias))
        labels, scores = np.empty((len(E), k), np.int32), np.empty((len(E), k), np.float32)
        step = max(1, _AT_A_TIME // max(len(bias), 1))
        for first in range(0, len(E), step):
            margins = E[first : first + step] @ weight.T + bias  # (rows, labels)
            best = np.argpartition(-margins, k - 1, axis=1)[:, :k]
            values = np.take_along_axis(margins, best, axis=1)
            order = np.lexsort((best, -values), axis=1)
            labels[first : first + step] = np.take_along_axis(best, order, axis=1)
            scores[first : first + step] = self._scores(np.take_along_axis(values, order, axis=1))
        return TopK(labels if allowed is None else np.asarray(allowed, np.int32)[labels], scores)

    def score_labels(self, E: np.ndarray, pairs: sp.csr_matrix) -> np.ndarray:
        """Return the scores of the stored entries of ``pairs`` (rows, labels)."""
        rows = np.repeat(np.arange(pairs.shape[0]), np.diff(pairs.indptr))
        out, step = np.empty(pairs.nnz, np.float32), max(1, _AT_A_TIME // self.weight.shape[1])
        for first in range(0, pairs.nnz, step):
            some = slice(first, first + step)
            labels = pairs.indices[some]
            margins = np.einsum("ij,ij->i", E[rows[some]], self.weight[labels]) + self.bias[labels]
            out[some] = self._scores(margins)
        return out

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays to be stored, with weights in half precision."""
        return {"weight": self.weight.astype(np.float16), "bias": self.bias}

    def _scores(self, margins: np.ndarray) -> np.ndarray:
        if self.post == "sigmoid":
            return 0.5 + 0.5 * np.tanh(0.5 * margins)
        return np.exp(-np.square(np.maximum(0.0, 1.0 - margins)))
