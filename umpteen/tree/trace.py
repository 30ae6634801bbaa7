"""What a beam search did: the nodes it kept, and where the ancestors of one label rank among them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Kept(NamedTuple):
    """The nodes of a level that a beam search kept, the best first; at the last level, the labels it returns."""

    nodes: np.ndarray  # at the last level, positions of labels
    scores: np.ndarray
    n_scored: int  # nodes of the level that were scored

    @classmethod
    def best(cls, nodes: np.ndarray, scores: np.ndarray, n_kept: int) -> Kept:
        """Keep the best of the nodes that are scored; nodes with the same score rank in the order given."""
        order = np.argsort(-scores, kind="stable")[:n_kept]
        return cls(nodes[order], scores[order], len(nodes))


class Place(NamedTuple):
    """Where a node ranks among the nodes that are scored at its level."""

    rank: int  # the best node has rank 1
    score: float
    n_kept: int  # nodes of this level that the search keeps
    last_kept_score: float  # the lowest score among them

    @property
    def is_kept(self) -> bool:
        """Whether the search goes on below this node; at the last level, whether the label is among the results."""
        return self.rank <= self.n_kept

    @classmethod
    def of(cls, nodes: np.ndarray, scores: np.ndarray, node: int, n_kept: int) -> Place:
        """Rank a node among all nodes that are scored; nodes with the same score rank in the order given."""
        order = np.argsort(-scores, kind="stable")
        rank = int(np.flatnonzero(nodes[order] == node)[0]) + 1
        n_kept = min(n_kept, len(nodes))
        return cls(rank, float(scores[order[rank - 1]]), n_kept, float(scores[order[n_kept - 1]]))
