"""The way of a label through a tree: exact contributions, and the level at which it is lost."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.small_trees import N_FEATURES, random_head
from umpteen.config import SearchConfig
from umpteen.data.rows import Rows
from umpteen.linear import DenseHead, Level, LinearTree
from umpteen.linear.trace import node_weights, trace_label
from umpteen.tree import LabelTree
from umpteen.tree.trace import Place


def random_tree(rng: np.random.Generator, n_labels: int, n_middle: int) -> LabelTree:
    """Return a tree of three levels; a middle node may have no labels."""
    middle = rng.integers(0, n_middle, n_labels)
    middle[0] = n_middle - 1
    above = rng.integers(0, 3, n_middle)
    above[0] = 2
    return LabelTree.from_parents(middle, above)


@pytest.mark.parametrize("weights", ["int8", "float16", "float32"])
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n_middle=st.sampled_from([4, 300]),  # the second is stored in runs
    post=st.sampled_from(["l3-hinge", "sigmoid", "identity"]),
    n_dense=st.sampled_from([0, 4]),
)
def test_contributions_and_bias_add_up_to_the_margin(
    weights: str, seed: int, n_middle: int, post: str, n_dense: int
) -> None:
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, 400, n_middle)
    head = random_head(rng, tree, weights, SearchConfig(post=post, beam=3))
    x = (rng.normal(size=N_FEATURES) * (rng.random(N_FEATURES) < 0.7)).astype(np.float32)[None]
    dense = x[:, N_FEATURES - n_dense :] if n_dense else None
    rows, label = Rows.of(sp.csr_matrix(x[:, : N_FEATURES - n_dense]), dense), int(rng.integers(400))
    trace = trace_label(head, rows, label, 5)
    assert [node.node for node in trace.nodes] == [int(tree.node_of(level)[label]) for level in range(3)]
    for node in trace.nodes:
        assert node.bias + node.weights.astype(np.float64) @ trace.values == pytest.approx(node.margin, abs=1e-4)
    pair = sp.csr_matrix(([1.0], ([0], [label])), shape=(1, 400))
    score = head.score_labels(rows, pair).data[0]
    assert trace.nodes[-1].score == pytest.approx(score, rel=1e-5, abs=1e-30)
    if post != "identity":
        assert np.prod([node.factor for node in trace.nodes]) == pytest.approx(score, rel=1e-4, abs=1e-30)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), n_middle=st.sampled_from([4, 300]), post=st.sampled_from(["l3-hinge", "sigmoid"]))
def test_places_are_those_of_the_search(seed: int, n_middle: int, post: str) -> None:
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, 400, n_middle)
    head = random_head(rng, tree, "float32", SearchConfig(post=post, beam=3))
    rows = Rows.of(sp.csr_matrix(rng.normal(size=(1, N_FEATURES)).astype(np.float32)))
    k = min(5, head.reach())
    top = head.topk(rows, k)
    for place, position in enumerate(top.labels[0]):
        last = trace_label(head, rows, int(tree.order[position]), k).nodes[-1].place
        assert last is not None
        assert last.rank == place + 1
        assert last.is_kept
        assert last.last_kept_score == pytest.approx(top.scores[0, -1], rel=1e-5)
    suggested = {int(tree.order[position]) for position in top.labels[0]}
    other = next(label for label in rng.permutation(400) if label not in suggested)
    places = [node.place for node in trace_label(head, rows, int(other), k).nodes]
    assert not all(place is not None and place.is_kept for place in places)


def test_a_lost_label_names_the_level_and_the_scores_there() -> None:
    """Two of three nodes are kept; the label under the third one would have the best score of all at its level."""
    tree = LabelTree.from_groups([[0, 1], [2, 3], [4, 5]])
    none = np.empty(0, np.int32)
    no_weights = (none, none, np.empty(0, np.float32))
    margins = np.array([0.9, 0.5, 0.2], np.float32)
    leaves = np.array([0.0, 0.1, 0.2, 0.3, 1.0, 0.4], np.float32)
    head = LinearTree.pack([Level(*no_weights, margins), Level(*no_weights, leaves)], tree, 3, SearchConfig(beam=2))
    rows = Rows.of(sp.csr_matrix((1, 3), dtype=np.float32))
    first, last = trace_label(head, rows, 4, 2).nodes
    scores = np.exp(-((1 - margins) ** 3))
    assert first.place == Place(3, pytest.approx(scores[2]), 2, pytest.approx(scores[1]))
    assert not first.place.is_kept
    assert last.place is None
    assert (last.margin, last.factor) == (1.0, 1.0)
    reached = trace_label(head, rows, 1, 2).nodes
    assert [node.place.rank for node in reached] == [1, 3]
    assert not reached[-1].place.is_kept


def test_weights_of_a_node_are_zero_for_features_without_one() -> None:
    tree = LabelTree.flat(2)
    level = Level(np.array([1]), np.array([1]), np.array([0.5], np.float32), np.zeros(2, np.float32))
    head = LinearTree.pack([level], tree, 3, SearchConfig())
    assert node_weights(head, 0, 1, np.array([0, 1, 2])).tolist() == [0.0, 0.5, 0.0]
    assert node_weights(head, 0, 0, np.array([0, 1, 2])).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("post", ["l2-hinge", "sigmoid"])
def test_classifiers_of_an_encoder(post: str) -> None:
    rng = np.random.default_rng(0)
    head = DenseHead.rounded(rng.normal(size=(7, 4)).astype(np.float32), rng.normal(size=7).astype(np.float32), post)
    e = rng.normal(size=(1, 4)).astype(np.float32)
    top = head.topk(e, 7)
    for place, (label, score) in enumerate(zip(*top[0], strict=True)):
        margin, found = head.trace(e, int(label), 3)
        assert margin == pytest.approx(float(e[0] @ head.weight[label] + head.bias[label]), abs=1e-5)
        assert found == Place(place + 1, pytest.approx(score, abs=1e-6), 3, pytest.approx(top.scores[0, 2], abs=1e-6))
