"""The label tree: construction, numbering, lifting labels to nodes (eqs. 5 and 6)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from umpteen.errors import BadInput
from umpteen.tree import LabelTree, both, pifa, relevance


def csr(rows: list[list[float]]) -> sp.csr_matrix:
    return sp.csr_matrix(np.array(rows, np.float32))


@st.composite
def trees(draw: st.DrawFn) -> tuple[LabelTree, list[np.ndarray]]:
    """Draw a hierarchy as parent arrays, labels first, and the tree made of it."""
    sizes = draw(st.lists(st.integers(1, 8), min_size=1, max_size=3))  # bottom up, above the labels
    sizes = [draw(st.integers(1, 15)), *sizes]
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    parents = [rng.integers(0, up, down) for down, up in pairwise(sizes)]
    return LabelTree.from_parents(*parents), parents


@st.composite
def trees_with_targets(draw: st.DrawFn) -> tuple[LabelTree, np.ndarray]:
    tree, _ = draw(trees())
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    n_rows = draw(st.integers(0, 5))
    Y = rng.integers(1, 4, (n_rows, tree.n_labels)) * (rng.random((n_rows, tree.n_labels)) < 0.3)
    return tree, Y.astype(np.float32)


def dense_indexing(tree: LabelTree, level: int) -> np.ndarray:
    """Return the paper's C of a level: (nodes of the level, nodes of the level above)."""
    C = np.zeros((tree.sizes[level], tree.sizes[level - 1]))
    C[np.arange(tree.sizes[level]), tree.parents[level]] = 1
    return C


def test_flat_puts_every_label_under_the_root():
    tree = LabelTree.flat(4)
    assert (tree.n_labels, tree.n_levels, tree.sizes) == (4, 1, (4,))
    assert tree.order.tolist() == tree.position.tolist() == tree.node_of(0).tolist() == [0, 1, 2, 3]
    assert tree.parents[0].tolist() == [0, 0, 0, 0]


def test_from_groups_numbers_labels_group_by_group():
    tree = LabelTree.from_groups([[4, 0], [], [2, 1, 3]])
    assert tree.sizes == (3, 5)
    assert tree.order.tolist() == [4, 0, 2, 1, 3]
    assert tree.parents[1].tolist() == [0, 0, 2, 2, 2]
    assert tree.position.tolist() == [1, 3, 2, 4, 0]
    assert tree.node_of(0).tolist() == [0, 2, 2, 2, 0]
    assert tree.node_of(1).tolist() == tree.position.tolist()


def test_from_parents_by_hand():
    # Six labels under four nodes, which lie under two: node 1 and 3 under 0, node 0 and 2 under 1.
    tree = LabelTree.from_parents(np.array([2, 0, 1, 1, 3, 0]), np.array([1, 0, 1, 0]))
    assert tree.sizes == (2, 4, 6)
    # The second level reads 1, 3, 0, 2; the labels follow: 2 3 | 4 | 1 5 | 0.
    assert tree.order.tolist() == [2, 3, 4, 1, 5, 0]
    assert tree.node_of(0).tolist() == [1, 1, 0, 0, 0, 1]


@settings(max_examples=100, deadline=None)
@given(trees())
def test_from_parents_keeps_who_is_under_whom(drawn):
    tree, parents = drawn
    assert tree.n_levels == len(parents) + 1
    assert sorted(tree.order) == list(range(len(parents[0])))
    group = np.arange(len(parents[0]))
    for step, parent in enumerate(parents):
        group = parent[group]
        mine = tree.node_of(tree.n_levels - 2 - step)
        # The numbering is the tree's own, the grouping of labels is the caller's.
        same = group[:, None] == group[None, :]
        np.testing.assert_array_equal(mine[:, None] == mine[None, :], same)


@settings(max_examples=50, deadline=None)
@given(trees())
def test_children_of_a_parent_are_contiguous(drawn):
    tree, _ = drawn
    for level, start in enumerate(tree.starts):
        for parent in range(len(start) - 1):
            children = np.flatnonzero(tree.parents[level] == parent)
            assert children.tolist() == list(range(start[parent], start[parent + 1]))


def test_lift_and_relevance_by_hand():
    tree = LabelTree.from_parents(np.array([0, 1, 0, 2, 1]), np.array([0, 0, 1]))
    Y = csr([[1, 0, 1, 0, 0], [0, 1, 1, 1, 1], [0, 0, 0, 0, 0]])
    assert tree.order.tolist() == [0, 2, 1, 4, 3]
    assert tree.lift(Y, 1).toarray().tolist() == [[1, 0, 0], [1, 1, 1], [0, 0, 0]]
    assert tree.lift(Y, 0).toarray().tolist() == [[1, 0], [1, 1], [0, 0]]
    assert tree.lift(Y, 1, binary=False).toarray().tolist() == [[2, 0, 0], [1, 2, 1], [0, 0, 0]]
    assert tree.lift(Y, 0, binary=False).toarray().tolist() == [[2, 0], [3, 1], [0, 0]]
    shares = relevance(tree, Y, 0, normalize=True)
    assert shares.toarray().tolist() == [[1, 0], [0.75, 0.25], [0, 0]]
    assert relevance(tree, Y, 0, normalize=False).toarray().tolist() == [[2, 0], [3, 1], [0, 0]]


@settings(max_examples=100, deadline=None)
@given(trees_with_targets())
def test_lift_equals_the_paper_level_by_level(drawn):
    tree, Y = drawn
    matrix = sp.csr_matrix(Y)
    binary, counts = (Y > 0)[:, tree.order].astype(float), Y[:, tree.order].astype(float)
    for level in range(tree.n_levels - 1, -1, -1):
        lifted = tree.lift(matrix, level)
        np.testing.assert_array_equal(lifted.toarray(), binary)
        assert lifted.nnz == np.count_nonzero(binary)
        np.testing.assert_array_equal(tree.lift(matrix, level, binary=False).toarray(), counts)
        if level:
            C = dense_indexing(tree, level)
            binary, counts = (binary @ C > 0).astype(float), counts @ C
    np.testing.assert_array_equal(matrix.toarray(), Y)  # the caller's matrix is untouched


@settings(max_examples=50, deadline=None)
@given(trees_with_targets())
def test_normalised_relevance_rows_sum_to_one(drawn):
    tree, Y = drawn
    for level in range(tree.n_levels):
        sums = relevance(tree, sp.csr_matrix(Y), level, normalize=True).toarray().sum(axis=1)
        np.testing.assert_allclose(sums, Y.any(axis=1), rtol=1e-5)


@settings(max_examples=50, deadline=None)
@given(trees(), st.sampled_from([0.0, 0.3, 1.0]), st.booleans())
def test_allowed_nodes_are_the_ancestors_of_allowed_labels(drawn, share, as_mask):
    tree, _ = drawn
    mask = np.random.default_rng(0).random(tree.n_labels) < share
    flags = tree.allowed_nodes(mask if as_mask else np.flatnonzero(mask))
    expected = [np.isin(np.arange(n), tree.node_of(level)[mask]) for level, n in enumerate(tree.sizes)]
    np.testing.assert_array_equal(flags, np.concatenate(expected))
    assert flags.dtype == np.uint8


@pytest.mark.parametrize(
    ("order", "starts", "message"),
    [
        ([0, 0], [[0, 2]], "exactly once"),
        ([0, 2], [[0, 2]], "exactly once"),
        ([0, -1], [[0, 2]], "exactly once"),
        ([2, 2, 0], [[0, 3]], "exactly once"),
        ([0, 1], [[0, 3]], "last level of the tree has 3 nodes but there are 2 labels"),
        ([0, 1], [], "last level of the tree has 1 nodes but there are 2 labels"),
        ([0, 1], [[1, 2]], "level 0 of the tree must have one slice of children for each of its 1 parents"),
        ([0, 1], [[0, 2], [0, 2]], "level 1 of the tree must have one slice of children for each of its 2"),
        ([0, 1], [[0, 2], [0, 2, 1]], "level 1 of the tree"),
    ],
)
def test_a_broken_tree_is_refused(order, starts, message):
    with pytest.raises(BadInput, match=message):
        LabelTree(np.array(order, np.int32), tuple(np.array(start, np.int32) for start in starts))


def test_groups_and_parents_that_make_no_tree_are_refused():
    with pytest.raises(BadInput, match="exactly once"):
        LabelTree.from_groups([[0, 1], [1]])
    with pytest.raises(BadInput, match="at least one label"):
        LabelTree.from_groups([])
    with pytest.raises(BadInput, match=r"parents must be in 0\.\.1, but are in 0\.\.2"):
        LabelTree.from_parents(np.array([0, 2]), np.array([0, 0]))
    with pytest.raises(BadInput, match=r"but are in -1\.\.0"):
        LabelTree.from_parents(np.array([0, -1]))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 12), st.integers(1, 40), st.integers(0, 6), st.integers(1, 3), st.integers(0, 1000))
def test_pifa_sums_the_texts_of_each_label(n_rows, n_labels, keep, threads, seed):
    rng = np.random.default_rng(seed)
    X = (rng.random((n_rows, 9)) * (rng.random((n_rows, 9)) < 0.4)).astype(np.float32)
    Y = (rng.random((n_rows, n_labels)) < 0.2).astype(np.float32)
    found = pifa(sp.csr_matrix(X), sp.csr_matrix(Y), keep=keep, threads=threads)
    assert found.shape == (n_labels, 9)
    sums = Y.T @ X
    if keep:
        smallest = np.sort(sums, axis=1)[:, ::-1][:, :keep][:, -1:]
        sums = np.where(sums >= smallest, sums, 0)
    length = np.linalg.norm(sums, axis=1, keepdims=True)
    np.testing.assert_allclose(found.toarray(), sums / np.where(length > 0, length, 1), atol=1e-5)


def test_both_gives_each_half_of_the_length():
    texts, names = csr([[1, 0], [0, 1]]), csr([[0, 1, 0], [0, 0, 1]])
    joined = both(texts, names)
    assert joined.shape == (2, 5)
    assert joined.dtype == np.float32
    np.testing.assert_allclose(joined.multiply(joined).sum(axis=1), [[1], [1]], rtol=1e-6)
    np.testing.assert_allclose(joined.toarray()[0], np.array([1, 0, 0, 1, 0]) * np.sqrt(0.5), rtol=1e-6)
    with pytest.raises(BadInput, match="there are 2 labels but 1 label names"):
        both(texts, csr([[0, 1, 0]]))
