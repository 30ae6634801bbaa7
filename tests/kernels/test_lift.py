"""Targets of nodes by column against their definition."""

import numpy as np
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import reference
from umpteen.kernels import lift
from umpteen.tree import LabelTree, lifted_columns, mask_columns, relevance


@st.composite
def targets(draw):
    n_rows, n_labels, n_nodes, k = (draw(st.integers(low, high)) for low, high in ((1, 12), (1, 15), (1, 6), (0, 3)))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    Y = (rng.random((n_rows, n_labels)) < draw(st.sampled_from([0.0, 0.2, 0.7]))) * rng.integers(
        1, 4, (n_rows, n_labels)
    )
    return (
        Y.astype(np.float32),
        rng.integers(0, n_nodes, n_labels).astype(np.int32),
        rng.integers(-1, n_nodes, (n_rows, k)).astype(np.int32),
        n_nodes,
    )


@settings(max_examples=100, deadline=None)
@given(targets(), st.booleans())
def test_rows_by_node_equal_their_twin(drawn, has_true):
    Y, node_of, predicted, n_nodes = drawn
    expected = reference.rows_by_node(Y, node_of, predicted, n_nodes, has_true=has_true)
    csr = sp.csr_matrix(Y)
    indptr, indices, data = csr.indptr.astype(np.int64), csr.indices.astype(np.int32), csr.data
    ptr = np.zeros(n_nodes + 1, np.int64)
    lift.count_rows(indptr, indices, node_of, predicted, has_true, ptr, np.zeros(n_nodes, np.int32))
    np.cumsum(ptr, out=ptr)
    assert np.diff(ptr).tolist() == [len(rows) for rows in expected]
    rows, sums = np.full(ptr[-1], -1, np.int32), np.zeros(ptr[-1], np.float32)
    seen = np.zeros(n_nodes, np.int32)
    lift.fill_rows(indptr, indices, data, node_of, predicted, has_true, ptr[:-1].copy(), seen, rows, sums)
    for node, wanted in enumerate(expected):
        mine = slice(ptr[node], ptr[node + 1])
        assert rows[mine].tolist() == list(wanted)
        if not predicted.shape[1]:  # predicted nodes have no sum
            np.testing.assert_allclose(sums[mine], list(wanted.values()))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1000))
def test_columns_of_a_level_equal_lifted_rows(seed):
    rng = np.random.default_rng(seed)
    Y = sp.random(20, 30, 0.15, format="csr", dtype=np.float32, random_state=rng)
    tree = LabelTree.from_parents(rng.integers(0, 6, 30), rng.integers(0, 2, 6))
    for level in range(tree.n_levels):
        expected = {
            "none": tree.lift(Y, level),
            "induce": relevance(tree, Y, level, normalize=False),
            "induce-l1": relevance(tree, Y, level, normalize=True),
        }
        for kind, matrix in expected.items():
            found = lifted_columns(tree, Y, level, relevance=kind).between(0, tree.sizes[level])
            np.testing.assert_allclose(found.toarray(), matrix.toarray(), rtol=1e-5)
        mask = mask_columns(tree, Y, level, None)
        assert mask.nnz == expected["none"].nnz
