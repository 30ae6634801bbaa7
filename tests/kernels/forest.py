"""Random trees of linear scorers, kept dense for the twins and packed for the kernels."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple
from unittest import mock

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

from tests import reference
from umpteen.config import SearchConfig
from umpteen.data.rows import Rows
from umpteen.kernels import LANES, score
from umpteen.linear import Level, LinearTree, pack
from umpteen.shortlist import TopK
from umpteen.tree import LabelTree

KINDS = ("identity", "l1-hinge", "l2-hinge", "l3-hinge", "l4-hinge", "sigmoid")
# A product of margins means nothing, so raw scores are for the last level, or for all.
POSTS = [(kind, "same") for kind in KINDS] + [("l3-hinge", "identity"), ("sigmoid", "l1-hinge")]


class Forest(NamedTuple):
    """A tree with dense weights (features, nodes) by level, queries, and the packed head."""

    tree: LabelTree
    weights: list[np.ndarray]
    bias: list[np.ndarray]
    X: np.ndarray
    head: LinearTree

    @property
    def rows(self) -> Rows:
        return Rows.of(sp.csr_matrix(self.X))

    @property
    def kinds(self) -> list[str]:
        return [KINDS[kind] for kind in self.head.posts]

    def offsets(self, used: bool) -> tuple[np.ndarray, int]:
        """Return where the weights of each feature begin for each parent at the last level in runs, or none."""
        in_runs = np.flatnonzero(self.head.arrays["meta"][:, score.WHOLE] == 0)
        if not used or not len(in_runs):
            return np.empty((0, 0), np.uint16), -1
        level = int(in_runs[-1])
        before = [np.count_nonzero(self.weights[level][:, :start], axis=1) for start in self.tree.starts[level]]
        return np.stack(before, axis=1).astype(np.uint16), level

    def top(self, used: bool) -> np.ndarray:
        """Return the first level's weights in lanes, or none."""
        if not used:
            return np.empty((0, 0, LANES), np.float32)
        n_features, n_nodes = self.weights[0].shape
        padded = np.pad(self.weights[0], ((0, 0), (0, -n_nodes % LANES)))
        return np.ascontiguousarray(padded.reshape(n_features, -1, LANES).transpose(1, 0, 2))

    def scores(self) -> list[np.ndarray]:
        """Return the twin's score of every node."""
        return reference.node_scores(self.X, self.weights, self.bias, list(self.tree.starts), self.kinds)


def level_of(W: np.ndarray, bias: np.ndarray) -> Level:
    """List the weights node by node, as training does chunk by chunk."""
    nodes, features = np.nonzero(W.T)
    return Level(features.astype(np.int32), nodes.astype(np.int32), W[features, nodes], bias)


def encode(values: np.ndarray, precision: str) -> tuple[np.ndarray, np.ndarray]:
    """Return codes and their table."""
    coder = pack.Coder.of([values], precision)
    return coder.encode(values), coder.table


def decoded(weights: list[np.ndarray], precision: str) -> list[np.ndarray]:
    """Return the weights as they are after being stored."""
    codes, table = encode(np.concatenate([W[W != 0] for W in weights]), precision)
    values = codes if precision == "float32" else table[codes]
    out = [W.copy() for W in weights]
    at = 0
    for W in out:
        used = W != 0
        W[used] = values[at : at + used.sum()]
        at += used.sum()
    return out


def make_forest(
    sizes: tuple[int, ...], seed: int, *, n_rows: int = 6, n_features: int = 12, density: float = 0.5,
    given: float = 0.4, posts: tuple[str, str] = ("l3-hinge", "same"), whole: bool = True, precision: str = "float32",
) -> Forest:  # fmt: skip
    """Draw a tree (some parents may have no children), weights and queries with some of the features (one is empty)."""
    rng = np.random.default_rng(seed)
    above = [rng.integers(0, up, down) for up, down in pairwise(sizes)]
    tree = LabelTree.from_parents(*above[::-1]) if above else LabelTree.flat(sizes[0])
    weights = [
        (rng.normal(0, 0.6, (n_features, n)) * (rng.random((n_features, n)) < density)).astype(np.float32)
        for n in tree.sizes
    ]
    bias = [rng.normal(0, 0.3, n).astype(np.float32) for n in tree.sizes]
    X = (rng.random((n_rows, n_features)) * (rng.random((n_rows, n_features)) < given)).astype(np.float32)
    X[:1] = 0
    search = SearchConfig(post=posts[0], leaf_post=posts[1])
    with mock.patch.object(pack, "WHOLE_BELOW", 10**9 if whole else 0):
        levels = [level_of(W, b) for W, b in zip(weights, bias, strict=True)]
        head = LinearTree.pack(levels, tree, n_features, search, weights=precision)
    return Forest(tree, decoded(weights, precision), bias, X, head)


def allowed_masks(tree: LabelTree, share: float, seed: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Draw which labels are allowed; return flags for kernels (empty allows all) and by level for twins."""
    if share >= 1:
        return np.empty(0, np.uint8), [np.ones(n, np.uint8) for n in tree.sizes]
    labels = np.flatnonzero(np.random.default_rng(seed).random(tree.n_labels) < share)
    flags = tree.allowed_nodes(labels)
    return flags, np.split(flags, np.cumsum(tree.sizes)[:-1])


def assert_ranked(
    labels: np.ndarray,
    scores: np.ndarray,
    expected_scores: np.ndarray,
    expected: np.ndarray,
    all_scores: np.ndarray,
) -> None:
    """Check a ranking: right scores in the right order, each the score of its label; near ties may swap."""
    np.testing.assert_array_equal(labels >= 0, expected >= 0)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-4, atol=1e-6)
    for i, row in enumerate(labels):
        found = row[row >= 0]
        assert len(set(found.tolist())) == len(found)
        np.testing.assert_allclose(scores[i, : len(found)], all_scores[i, found], rtol=1e-4, atol=1e-6)
    assert not scores[labels < 0].any()


def draw_beam(forest: Forest, level: int, width: int, seed: int) -> TopK:
    """Draw parents of a level for every row, best first, fewer than the width or none for some rows."""
    rng, n, n_parents = np.random.default_rng(seed), len(forest.X), len(forest.tree.starts[level]) - 1
    above = forest.scores()[level - 1] if level else np.ones((n, 1))
    beam, scores = np.full((n, width), -1, np.int32), np.zeros((n, width), np.float32)
    for i in range(n):
        parents = rng.permutation(n_parents)[: rng.integers(0, width + 1)]
        parents = parents[np.argsort(-above[i, parents], kind="stable")]
        beam[i, : len(parents)], scores[i, : len(parents)] = parents, above[i, parents]
    return TopK(beam, scores)


def expected_level(
    forest: Forest, level: int, beam: TopK, keep: int, allowed: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Take a beam one level down by the twin; return nodes and scores."""
    n, every = len(forest.X), forest.scores()[level]
    labels, scores = np.full((n, keep), -1), np.zeros((n, keep))
    for i, parents in enumerate(beam.labels):
        start = forest.tree.starts[level]
        best = reference.take_down(every[i], start, parents[parents >= 0], keep, allowed[level])
        labels[i, : len(best)], scores[i, : len(best)] = best, every[i, best]
    return labels, scores


tree_sizes = st.sampled_from([(1,), (5,), (40,), (2, 9), (6, 5), (3, 40), (2, 5, 30), (4, 20, 18), (2, 3, 7, 21)])
