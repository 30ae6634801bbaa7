"""Label trees with names: numbers of labels and texts, order of children, names by terms or words, paths of texts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import umpteen
from tests.small_trees import LABELS, N_FEATURES, TEXTS, random_head
from umpteen.config import SearchConfig
from umpteen.data.labels import Labels
from umpteen.data.rows import Rows
from umpteen.data.targets import Targets
from umpteen.linear import LinearTree
from umpteen.linear.trace import largest_weights, node_weights, trace_beam
from umpteen.models.tree_view import ROOT, TreeView, text_paths, tree_views, why_no_tree
from umpteen.tree import LabelTree


@pytest.fixture(scope="module")
def model() -> Any:
    return umpteen.XRLinear(seed=1, threads=1, tree={"leaf_size": 2, "branching": 2}).fit(TEXTS, LABELS)


def random_view(seed: int, names: list[str] | None = None, *, has_counts: bool = True) -> TreeView:
    """Return a tree of three levels; a middle node may have no labels."""
    rng = np.random.default_rng(seed)
    middle, above = rng.integers(0, 9, 60), rng.integers(0, 3, 9)
    middle[0], above[0] = 8, 2
    tree = LabelTree.from_parents(middle, above)
    counts = rng.integers(0, 50, 60).astype(np.int32) if has_counts else None
    labels = Labels.numbered(60) if names is None else Labels(names)
    return TreeView("the tree", tree, Targets(labels, "lists", counts=counts))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), has_counts=st.booleans())
def test_numbers_add_up_and_children_are_in_order(seed: int, has_counts: bool) -> None:
    view = random_view(seed, has_counts=has_counts)
    assert view.node(*ROOT).n_labels == 60
    for level in range(view.tree.n_levels):
        for node in range(view.tree.sizes[level - 1] if level else 1):
            here, children = view.node(level, node), view.children(level, node)
            assert here.n_children == len(children)
            assert here.n_labels == sum(child.n_labels for child in children)
            sizes = [child.n_labels if child.n_texts is None else child.n_texts for child in children]
            assert sizes == sorted(sizes, reverse=True)
            assert (here.n_texts is None) != has_counts
            assert here.n_texts is None or here.n_texts == sum(sizes)
            assert view.sizes_below(level, node, 4) == [(c.node, s) for c, s in zip(children, sizes, strict=True)][:4]
            for child in children:
                assert view.ancestors(child.level, child.node)[-1] == here
                assert (child.key is not None) == (child.level == view.tree.n_levels)


def test_children_are_paged() -> None:
    view = random_view(3)
    everything = view.children(0, 0)
    assert [*view.children(0, 0, 0, 2), *view.children(0, 0, 2, 2)] == everything[:4]
    assert view.children(0, 0, 99, 2) == []
    label = view.node(3, 5)
    assert (label.n_labels, label.n_children, view.children(3, 5), view.sizes_below(3, 5, 9)) == (1, 0, [], [])


def test_a_node_that_is_not_there_is_refused() -> None:
    view = random_view(3)
    with pytest.raises(umpteen.errors.BadInput, match="level must be between 0 and 3, but is 4"):
        view.node(4, 0)
    with pytest.raises(umpteen.errors.BadInput, match="level 1 has nodes 0 to 2, but node 3"):
        view.children(1, 3)
    with pytest.raises(umpteen.errors.BadInput, match="level 0 has nodes 0 to 0"):
        view.ancestors(0, -1)


def test_words_that_are_frequent_below_a_node_only_are_its_name() -> None:
    names = [f"kind of fruit: {name}" for name in ("apple", "apples red", "plum")]
    names += [f"kind of vehicle: {name}" for name in ("car", "bike", "2025")]
    tree = LabelTree.from_groups([[0, 1, 2], [3, 4, 5]])
    counts = np.array([9, 9, 2, 9, 1, 100], np.int32)
    view = TreeView("the tree", tree, Targets(Labels(names), "lists", counts=counts))
    first, second = view.node(1, 0).name, view.node(1, 1).name
    assert first.split(", ")[:2] == ["fruit", "apple"]
    assert second.split(", ")[:2] == ["vehicle", "car"]
    assert not {"kind", "of", "2025"} & {*first.split(", "), *second.split(", ")}
    assert view.examples(1, 1, 2) == ["kind of vehicle: 2025", "kind of vehicle: car"]


def test_labels_without_words_are_named_themselves() -> None:
    assert random_view(1).node(1, 0).name.startswith("labels ")
    names = [f"{number}!" for number in range(60)]
    assert random_view(1, names).node(1, 0).name.count("!") == 3


def test_long_names_are_shortened_in_groups_only() -> None:
    view = random_view(1, ["x" * 5000 + str(number) for number in range(60)])
    assert len(view.node(1, 0).name) < 150
    assert len(view.node(3, 0).name) > 5000


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n_middle=st.sampled_from([4, 300]),  # the second is stored in runs
    weights=st.sampled_from(["int8", "float16", "float32"]),
    n_terms=st.sampled_from([5, N_FEATURES]),
    at_once=st.sampled_from([1, 7, 1 << 20]),
)
def test_largest_weights_are_those_of_the_nodes(
    seed: int, n_middle: int, weights: str, n_terms: int, at_once: int
) -> None:
    rng = np.random.default_rng(seed)
    middle = rng.integers(0, n_middle, 400)
    middle[0] = n_middle - 1
    tree = LabelTree.from_parents(middle, rng.permutation(np.arange(n_middle) % 3))
    head = random_head(rng, tree, weights, SearchConfig(beam=3))
    every = np.arange(n_terms)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("umpteen.linear.trace._AT_ONCE", at_once)
        check_largest_weights(head, rng, every)


def check_largest_weights(head: LinearTree, rng: np.random.Generator, every: np.ndarray) -> None:
    tree = head.tree
    for level in range(tree.n_levels):
        parent = int(rng.integers(len(tree.starts[level]) - 1))
        first, last = tree.starts[level][parent : parent + 2]
        found = largest_weights(head, level, parent, 3, len(every))
        assert len(found) == last - first
        for node, features in zip(range(first, last), found, strict=True):
            of_node = node_weights(head, level, node, every)
            assert (of_node[features] > 0).all()
            assert of_node[features].tolist() == sorted(of_node[of_node > 0].tolist(), reverse=True)[:3]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), n_middle=st.sampled_from([4, 300]))
def test_kept_nodes_are_those_of_the_search(seed: int, n_middle: int) -> None:
    rng = np.random.default_rng(seed)
    middle = rng.integers(0, n_middle, 400)
    middle[0] = n_middle - 1
    tree = LabelTree.from_parents(middle, rng.permutation(np.arange(n_middle) % 3))
    head = random_head(rng, tree, "float32", SearchConfig(beam=3))
    rows = Rows.of(sp.csr_matrix(rng.normal(size=(1, N_FEATURES)).astype(np.float32)))
    k = min(5, head.reach())
    levels, top = trace_beam(head, rows, k), head.topk(rows, k)
    assert [len(level.nodes) for level in levels] == [*head.beams(None, k)[:-1], k]
    assert levels[-1].nodes.tolist() == top.labels[0].tolist()
    assert levels[-1].scores == pytest.approx(top.scores[0], rel=1e-5)
    assert levels[0].n_scored == tree.sizes[0]
    for level, (above, below) in enumerate(pairwise(levels), start=1):
        parents = tree.parents[level][below.nodes]
        assert set(parents.tolist()) <= set(above.nodes.tolist())


def test_nodes_of_texts_are_named_by_terms(model: Any) -> None:
    (view,) = tree_views(model)
    found = {child.name: child for child in view.children(*ROOT)}
    terms = {term for name in found for term in name.split(", ")}
    known = {model.tfidf_.term(column) for column in range(model.tfidf_.n_features)}
    assert terms <= known
    assert terms & {"apple", "plum"}
    assert terms & {"car", "bike"}


def test_a_text_comes_to_its_label(model: Any) -> None:
    (path,) = text_paths(model, "a fast car", k=2)
    last = path.levels[-1]
    top = model.topk(["a fast car"], k=2)
    assert [one.node.name for one in last.kept] == top.names[0]
    assert [one.score for one in last.kept] == pytest.approx(top.scores[0].tolist(), rel=1e-5)
    assert (last.n_kept, [level.level for level in path.levels]) == (2, [1, 2, *range(3, len(path.levels) + 1)])
    assert path.levels[0].n_scored == 2
    with pytest.raises(umpteen.errors.BadInput, match="a path is that of one text"):
        text_paths(model, ["two", "texts"])


def test_several_trees_and_ensembles_have_a_view_each() -> None:
    tree = {"leaf_size": 2, "branching": 2}
    parabel = umpteen.Parabel(threads=1, tree=tree, trees=2).fit(TEXTS, LABELS)
    assert [view.part for view in tree_views(parabel)] == ["tree 1", "tree 2"]
    assert [path.part for path in text_paths(parabel, "plum")] == ["tree 1", "tree 2"]
    flat = umpteen.DiSMEC(threads=1).fit(TEXTS, LABELS)
    assert tree_views(flat) == text_paths(flat, "plum") == []
    assert why_no_tree(flat) == "This dismec model scores each of its 7 labels directly and has no label tree."
    both = umpteen.Ensemble([flat, parabel])
    assert [view.part for view in tree_views(both)] == ["model 2: tree 1", "model 2: tree 2"]
    assert [path.part for path in text_paths(both, "plum")] == ["model 2: tree 1", "model 2: tree 2"]


def test_feature_rows_are_named_by_labels() -> None:
    X = umpteen.Tfidf().fit_transform(TEXTS)
    model = umpteen.XRLinear(threads=1, tree={"leaf_size": 2, "branching": 2}).fit(X, LABELS)
    (view,) = tree_views(model)
    words = {word for child in view.children(*ROOT) for word in child.name.split(", ")}
    assert words <= {label for row in LABELS for label in row}
    assert len(text_paths(model, X[0])) == 1
