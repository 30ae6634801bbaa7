"""Building trees from label vectors."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from umpteen.config import TreeConfig
from umpteen.errors import BadConfig
from umpteen.tree import LabelTree, build, grow, grow_top, pifa, shape

BALANCED = ("halving", "kmeans", "random")
KINDS = (*BALANCED, "unbalanced")


def vectors_of(n_labels: int, seed: int = 0, n_features: int = 30) -> sp.csr_matrix:
    """Draw label vectors of length one; about one label in eight has none."""
    rng = np.random.default_rng(seed)
    X = rng.random((n_labels, n_features)) * (rng.random((n_labels, n_features)) < 0.3)
    X[rng.random(n_labels) < 0.12] = 0
    length = np.linalg.norm(X, axis=1, keepdims=True)
    return sp.csr_matrix((X / np.where(length > 0, length, 1)).astype(np.float32))


def groups_of(tree: LabelTree, level: int) -> set[frozenset[int]]:
    node = tree.node_of(level)
    return {frozenset(np.flatnonzero(node == one).tolist()) for one in np.unique(node)}


def same_tree(one: LabelTree, two: LabelTree) -> bool:
    return np.array_equal(one.order, two.order) and all(map(np.array_equal, one.starts, two.starts))


def test_shape_by_hand():
    assert shape(96, TreeConfig(leaf_size=96)) == ()
    assert shape(97, TreeConfig(leaf_size=96)) == (2,)
    assert shape(1000, TreeConfig(kind="none")) == ()
    assert shape(1000, TreeConfig(leaf_size=10, branching=10)) == (10, 10)
    assert shape(1001, TreeConfig(leaf_size=10, branching=10)) == (5, 5, 5)
    assert shape(1000, TreeConfig(leaf_size=10, branching=10, depth=1)) == (100,)
    assert shape(1000, TreeConfig(kind="unbalanced", leaf_size=10, branching=7, depth=2)) == (7, 7)
    assert shape(0, TreeConfig()) == ()


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 10**7), st.integers(2, 200), st.integers(1, 500), st.integers(0, 5))
def test_shape_makes_leaves_that_fit_and_respects_branching(n_labels, branching, leaf_size, depth):
    counts = shape(n_labels, TreeConfig(branching=branching, leaf_size=leaf_size, depth=depth))
    assert np.prod(counts, dtype=float) * leaf_size >= n_labels
    if counts and depth:
        assert len(counts) == depth
    if not depth:
        assert all(2 <= count <= branching for count in counts)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    n_labels=st.integers(1, 90), branching=st.integers(2, 20), leaf_size=st.integers(1, 12),
    depth=st.integers(0, 3), seed=st.integers(0, 99),
)  # fmt: skip
def test_every_kind_makes_a_tree_of_the_right_shape(kind, n_labels, branching, leaf_size, depth, seed):
    config = TreeConfig(kind=kind, branching=branching, leaf_size=leaf_size, depth=depth)
    tree = build(vectors_of(n_labels, seed), config, seed=seed)
    counts = shape(n_labels, config)
    assert tree.n_labels == n_labels
    assert tree.n_levels == len(counts) + 1
    for start, count in zip(tree.starts, counts, strict=False):
        assert np.diff(start).max() <= count
    assert all(np.diff(start).min() >= 1 for start in tree.starts)  # no empty nodes
    if kind in BALANCED:
        assert not counts or np.diff(tree.starts[-1]).max() <= leaf_size
    if kind in ("halving", "random") and counts:
        sizes = np.diff(tree.starts[-1])
        assert sizes.max() - sizes.min() <= len(counts)  # even parts of even parts


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_decides_and_threads_do_not(kind):
    config = TreeConfig(kind=kind, branching=4, leaf_size=6)
    vectors = vectors_of(200)
    tree = build(vectors, config, seed=1)
    assert same_tree(tree, build(vectors, config, seed=1))
    for threads in (2, 5):
        assert same_tree(tree, build(vectors, config, seed=1, threads=threads))
    assert not same_tree(tree, build(vectors, config, seed=2))


@pytest.mark.parametrize("kind", ["halving", "kmeans"])
def test_balanced_kinds_find_known_topics(kind, tiny):
    vectors = pifa(tiny.X, tiny.Y)
    config = TreeConfig(kind=kind, branching=6, leaf_size=10)
    found = max(len(groups_of(build(vectors, config, seed=seed), 0) & groups_of(tiny.tree, 0)) for seed in range(4))
    assert found >= 4  # of 6


def test_random_ignores_the_vectors():
    config = TreeConfig(kind="random", branching=4, leaf_size=6)
    assert same_tree(build(vectors_of(50, 0), config, seed=3), build(vectors_of(50, 1), config, seed=3))


def test_unbalanced_lets_a_cluster_grow():
    vectors = sp.csr_matrix(np.repeat(np.eye(2, dtype=np.float32), [55, 5], axis=0))
    tree = build(vectors, TreeConfig(kind="unbalanced", branching=2, leaf_size=30), seed=0)
    assert max(np.diff(tree.starts[1])) > 30


@pytest.mark.parametrize("kind", KINDS)
def test_labels_without_any_vector_are_placed(kind):
    tree = build(sp.csr_matrix((40, 7), dtype=np.float32), TreeConfig(kind=kind, branching=4, leaf_size=5))
    assert sorted(tree.order) == list(range(40))


@pytest.mark.parametrize("kind", [*KINDS, "none"])
@pytest.mark.parametrize("n_labels", [1, 2, 3])
def test_fewer_labels_than_branches(kind, n_labels):
    tree = build(vectors_of(n_labels), TreeConfig(kind=kind, branching=64, leaf_size=1))
    assert tree.n_labels == n_labels
    assert tree.n_levels == (1 if kind == "none" or n_labels == 1 else 2)


@pytest.mark.parametrize("kind", KINDS)
def test_a_tree_deeper_than_needed_has_chains(kind):
    tree = build(vectors_of(3), TreeConfig(kind=kind, branching=2, leaf_size=1, depth=4))
    assert tree.n_levels == 5
    assert tree.sizes[-1] == 3
    assert sorted(tree.order) == [0, 1, 2]


@pytest.mark.parametrize("kind", ["halving", "kmeans"])
def test_vectors_may_be_double_precision(kind):
    vectors, config = vectors_of(60), TreeConfig(kind=kind, branching=4, leaf_size=6)
    assert same_tree(build(vectors, config), build(vectors.astype(np.float64), config))


def test_given_without_a_tree_says_what_to_pass():
    with pytest.raises(BadConfig, match=r"'given' but no tree was passed.*LabelTree.from_parents"):
        build(vectors_of(5), TreeConfig(kind="given"))


def test_progress_names_every_level():
    stages: dict[str, list[int]] = {}
    build(
        vectors_of(80), TreeConfig(branching=4, leaf_size=6),
        progress=lambda stage, done, total: stages.setdefault(stage, []).append(done - total),
    )  # fmt: skip
    assert list(stages) == ["tree level 1", "tree level 2"]
    assert all(seen[-1] == 0 for seen in stages.values())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_slices", [1, 2, 3, 7, 20, 1000])
def test_slices_that_are_grown_alone_give_the_tree_of_all_labels(kind, n_slices):
    vectors, config = vectors_of(200), TreeConfig(kind=kind, branching=6, leaf_size=4)
    counts, order = shape(200, config), np.arange(200, dtype=np.int32)
    levels, slices = grow_top(order, vectors, config, counts, n_slices, seed=3)
    expected = build(vectors, config, seed=3)
    if n_slices < expected.sizes[-2]:
        assert n_slices <= len(slices) < n_slices * (2 if kind == "halving" else 6)
    sizes = []
    for first, of_nodes in slices:
        part = order[first : first + of_nodes.sum()]
        grown = grow(part, vectors, config, counts[len(levels) :], sizes=of_nodes, seed=3 + first)
        sizes += grown[-1]
    np.testing.assert_array_equal(order, expected.order)
    np.testing.assert_array_equal(np.concatenate(sizes), np.diff(expected.starts[-1]))
