"""Classifiers of the labels that were trained together with an encoder, kept for prediction.

They see the embedding of a text and nothing else. Plain numpy: their product with an embedding takes less time than the
encoder needs for a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from umpteen.shortlist import TopK
from umpteen.tree.trace import Place

_AT_A_TIME = 16_000_000  # maximum number of scores in memory


class Projection(NamedTuple):
    """Centre embeddings and multiply them by a matrix; the result is scaled to length one."""

    mean: np.ndarray  # (d,) float32
    matrix: np.ndarray  # (d, d) float32

    def __call__(self, E: np.ndarray) -> np.ndarray:
        """Project embeddings (texts, d)."""
        E = (E - self.mean) @ self.matrix
        return E / np.maximum(np.linalg.norm(E, axis=1, keepdims=True), 1e-12)


@dataclass(frozen=True)
class DenseHead:
    """One classifier per label over embeddings of length one, which may be projected first."""

    weight: np.ndarray  # (labels, d) float32
    bias: np.ndarray  # (labels,) float32
    post: str  # function that turns a margin into a score: l2-hinge or sigmoid
    projection: Projection | None = None

    @classmethod
    def rounded(
        cls, weight: np.ndarray, bias: np.ndarray, post: str, projection: Projection | None = None
    ) -> DenseHead:
        """Round weights as they will be stored, so that a model predicts the same before and after saving."""
        return cls(weight.astype(np.float16).astype(np.float32), bias, post, projection)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], post: str) -> DenseHead:
        """Undo ``arrays``."""
        projection = None
        if "mean" in arrays:
            projection = Projection(np.array(arrays["mean"]), np.array(arrays["matrix"]))
        return cls(arrays["weight"].astype(np.float32), np.array(arrays["bias"]), post, projection)

    def topk(self, E: np.ndarray, k: int, allowed: np.ndarray | None = None) -> TopK:
        """Return the k best labels of each embedding, of the ``allowed`` label numbers if given."""
        weight, bias = (self.weight, self.bias) if allowed is None else (self.weight[allowed], self.bias[allowed])
        k = min(k, len(bias))
        labels, scores = np.empty((len(E), k), np.int32), np.empty((len(E), k), np.float32)
        step = max(1, _AT_A_TIME // max(len(bias), 1))
        E = self._projected(E)
        for first in range(0, len(E), step):
            margins = E[first : first + step] @ weight.T + bias  # (rows, labels)
            best = np.argpartition(-margins, k - 1, axis=1)[:, :k]
            values = np.take_along_axis(margins, best, axis=1)
            order = np.lexsort((best, -values), axis=1)
            labels[first : first + step] = np.take_along_axis(best, order, axis=1)
            scores[first : first + step] = self._scores(np.take_along_axis(values, order, axis=1))
        return TopK(labels if allowed is None else np.asarray(allowed, np.int32)[labels], scores)

    def score_labels(self, E: np.ndarray, pairs: sp.csr_matrix) -> np.ndarray:
        """Score the stored entries of ``pairs``, in their order."""
        rows, E = np.repeat(np.arange(pairs.shape[0]), np.diff(pairs.indptr)), self._projected(E)
        out, step = np.empty(pairs.nnz, np.float32), max(1, _AT_A_TIME // self.weight.shape[1])
        for first in range(0, pairs.nnz, step):
            some = slice(first, first + step)
            labels = pairs.indices[some]
            margins = np.einsum("ij,ij->i", E[rows[some]], self.weight[labels]) + self.bias[labels]
            out[some] = self._scores(margins)
        return out

    def trace(self, e: np.ndarray, label: int, k: int) -> tuple[float, Place]:
        """Return the margin of a label for one embedding (1, d), and where it ranks if k labels are wanted."""
        margins = (self._projected(e) @ self.weight.T + self.bias)[0]
        place = Place.of(np.arange(len(margins)), margins, label, k)
        score, last = self._scores(np.array([place.score, place.last_kept_score]))
        return place.score, place._replace(score=float(score), last_kept_score=float(last))

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays to be stored; half precision is plenty."""
        arrays = {"weight": self.weight.astype(np.float16), "bias": self.bias}
        return arrays if self.projection is None else arrays | self.projection._asdict()

    def _projected(self, E: np.ndarray) -> np.ndarray:
        return E if self.projection is None else self.projection(E)

    def _scores(self, margins: np.ndarray) -> np.ndarray:
        if self.post == "sigmoid":
            return 0.5 + 0.5 * np.tanh(0.5 * margins)
        return np.exp(-np.square(np.maximum(0.0, 1.0 - margins)))
