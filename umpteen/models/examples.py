"""Training texts that a model keeps, so that an explanation can show the nearest ones (``store.examples``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from umpteen.data.finite import is_finite
from umpteen.data.targets import is_texts
from umpteen.errors import BadInput, BadModelFile

_ARRAYS = {"indptr": ("i8", 1), "labels": ("i4", 1), "embeddings": ("f2", 2)}  # type and number of dimensions


class Neighbour(NamedTuple):
    """A kept text that is near to another one."""

    row: int
    similarity: float


@dataclass(frozen=True, eq=False)
class Examples:
    """Texts, their labels, and their vectors.

    Parameters
    ----------
    texts
        As they were given to ``fit``.
    labels
        (texts, labels).
    vectors
        Of length one: embeddings, or tf-idf rows. The latter are not saved, because they can be computed.
    """

    texts: list[str]
    labels: sp.csr_matrix
    vectors: Any = None

    @classmethod
    def of(cls, X: Any, Y: sp.csr_matrix, n: int) -> Examples | None:
        """Take n rows at equal distances; None if there are no texts or none are wanted."""
        if not n or not is_texts(X):
            return None
        rows = np.unique(np.linspace(0, Y.shape[0] - 1, n).astype(np.int64))
        return cls([str(X[row]) for row in rows.tolist()], Y[rows])

    def with_vectors(self, vectors: Any) -> Examples:
        """Return the same texts with their vectors; embeddings are rounded as they will be saved."""
        if isinstance(vectors, np.ndarray):
            vectors = vectors.astype(np.float16).astype(np.float32)
        return replace(self, vectors=vectors)

    def nearest(self, query: Any, n: int) -> list[Neighbour]:
        """Return the n texts whose vectors are most similar to that of a query (1, d)."""
        if query.shape[1] != self.vectors.shape[1]:
            raise BadModelFile(
                f"the kept texts have vectors of {self.vectors.shape[1]} numbers, but the model returns "
                f"{query.shape[1]}; save the model again"
            )
        product = self.vectors @ query.T
        similar = np.asarray(product.todense() if sp.issparse(product) else product).ravel()
        best = np.argsort(-similar, kind="stable")[:n]
        return [Neighbour(int(row), float(similar[row])) for row in best]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays to be stored; texts are stored apart."""
        arrays = {"indptr": self.labels.indptr.astype(np.int64), "labels": self.labels.indices.astype(np.int32)}
        has_embeddings = isinstance(self.vectors, np.ndarray)
        return arrays | ({"embeddings": self.vectors.astype(np.float16)} if has_embeddings else {})

    @classmethod
    def from_arrays(cls, texts: list[str], arrays: Mapping[str, np.ndarray], n_labels: int) -> Examples:
        """Undo ``arrays``; refuse arrays that do not fit the texts and the labels."""
        for name, array in arrays.items():
            kind, n_dimensions = _ARRAYS[name]
            if array.dtype != np.dtype(kind) or array.ndim != n_dimensions:
                raise BadInput(f"'{name}' of its examples is not {n_dimensions}-d {np.dtype(kind)}")
        indptr, labels, embeddings = arrays["indptr"], arrays["labels"], arrays.get("embeddings")
        is_pointer = len(indptr) == len(texts) + 1 and indptr[0] == 0 and indptr[-1] == len(labels)
        if not is_pointer or (indptr[1:] < indptr[:-1]).any():
            raise BadInput(f"the labels of its examples are not those of {len(texts)} texts")
        if labels.min(initial=0) < 0 or labels.max(initial=0) >= n_labels:
            raise BadInput(f"its examples have labels beyond the {n_labels} of the model")
        if embeddings is not None and (len(embeddings) != len(texts) or not is_finite(embeddings)):
            raise BadInput(f"the embeddings of its examples are not finite numbers for {len(texts)} texts")
        ones = np.ones(len(labels), np.float32)
        Y = sp.csr_matrix((ones, labels, indptr), shape=(len(texts), n_labels))
        return cls(texts, Y, None if embeddings is None else embeddings.astype(np.float32))
