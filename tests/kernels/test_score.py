"""Search kernels against one plain beam search over dense weights."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from compiled import compiled
from forest import (
    KINDS,
    POSTS,
    allowed_masks,
    assert_ranked,
    draw_beam,
    expected_level,
    make_forest,
    tree_sizes,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests import reference
from umpteen.kernels import score
from umpteen.linear import search

post, least_margin, offer, accumulator_size = map(
    compiled, (score.post, score.least_margin, score.offer, score.accumulator_size)
)

precisions = st.sampled_from(["float32", "float16", "int8"])
seeds = st.integers(0, 10_000)


def test_post_processors_are_named_in_one_order():
    assert KINDS == score.POSTS
    assert search.POSTS == score.POSTS


@settings(max_examples=100, deadline=None)
@given(st.floats(-4, 4, width=32), st.sampled_from(KINDS))
def test_post_equals_its_twin(margin, kind):
    found = post(np.float32(margin), KINDS.index(kind))
    np.testing.assert_allclose(found, reference.post(np.float64(margin), kind), rtol=1e-4, atol=1e-37)


# A cut may be generous but must not lose a child: rounding aside, none below it reaches the score.
@settings(max_examples=500, deadline=None)
@given(st.floats(0, 1, width=32), st.floats(0, 1, width=32), st.floats(0, 20, width=32), st.sampled_from(KINDS))
def test_least_margin_never_cuts_a_child_that_would_be_kept(worst, parent_score, below, kind):
    number = KINDS.index(kind)
    cut = least_margin(np.float32(worst), np.float32(parent_score), number)
    assume(cut > -np.inf)  # which cuts nothing
    highest = np.float32(min(cut, 20))  # no child is kept where the cut is infinite
    margin = np.nextafter(highest - np.float32(below), np.float32(-np.inf))
    child = post(margin, number) * np.float32(1 if kind == "identity" else parent_score)
    assert child <= worst * (1 + 3e-7)


@settings(max_examples=100, deadline=None)
@given(st.floats(-2, 0.875, width=32), st.floats(0.125, 1, width=32), st.sampled_from(KINDS))
def test_least_margin_lies_just_below_the_margin_that_reaches_the_score(margin, parent_score, kind):
    number = KINDS.index(kind)
    reached = post(np.float32(margin), number) * np.float32(1 if kind == "identity" else parent_score)
    cut = least_margin(reached, np.float32(parent_score), number)
    assert margin - 0.02 <= cut <= margin


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 4), max_size=20), st.integers(1, 6))
def test_offer_keeps_the_best_and_prefers_the_earlier_of_equals(offered, room):
    ids, scores, size = np.full(room, -1, np.int32), np.zeros(room, np.float32), 0
    for node, value in enumerate(offered):
        size = offer(np.float32(value), node, ids, scores, size, room)
    order = np.argsort(-np.array(offered, np.float32), kind="stable")[:room]
    assert size == len(order)
    assert ids[:size].tolist() == order.tolist()
    assert scores[:size].tolist() == [offered[node] for node in order]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    tree_sizes, seeds, st.sampled_from(POSTS), st.booleans(), precisions, st.integers(1, 12),
    st.integers(1, 50), st.sampled_from([0.0, 0.3, 1.0]), st.booleans(), st.booleans(),
)  # fmt: skip
def test_search_equals_its_twin(sizes, seed, posts, whole, precision, beam, k, share, with_offsets, with_top):
    forest = make_forest(sizes, seed, posts=posts, whole=whole, precision=precision)
    flags, allowed = allowed_masks(forest.tree, share, seed)
    beams = np.random.default_rng(seed).integers(1, beam + 1, len(sizes))
    labels, scores = (np.empty((len(forest.X), k), kind) for kind in (np.int32, np.float32))
    score.search(
        *forest.rows.triplet, 0, len(forest.X), *forest.head.packed, *forest.offsets(with_offsets),
        forest.top(with_top), beams, forest.head.posts, flags, labels, scores,
    )  # fmt: skip
    every = forest.scores()
    expected, expected_scores = reference.search(every, list(forest.tree.starts), beams.tolist(), k, allowed)
    assert_ranked(labels, scores, expected_scores, expected, every[-1])


# Runs are found for sixteen features at a time, and skipped sixteen at a time.
@settings(max_examples=40, deadline=None, derandomize=True)
@given(seeds, st.integers(30, 60), precisions, st.integers(1, 60), st.sampled_from([0.3, 1.0]), st.integers(15, 50))
def test_search_of_many_features_and_parents_equals_its_twin(seed, n_parents, precision, beam, given_, n_features):
    options = {"n_features": n_features, "given": given_, "whole": False, "precision": precision}
    forest = make_forest((n_parents, 4 * n_parents), seed, posts=("sigmoid", "same"), **options)  # without ties
    flags, allowed = allowed_masks(forest.tree, 1.0, seed)
    beams = np.array([beam, beam])
    labels, scores = (np.empty((len(forest.X), 9), kind) for kind in (np.int32, np.float32))
    score.search(
        *forest.rows.triplet, 0, len(forest.X), *forest.head.packed, *forest.offsets(False), forest.top(False), beams,
        forest.head.posts, flags, labels, scores,
    )  # fmt: skip
    every = forest.scores()
    expected, expected_scores = reference.search(every, list(forest.tree.starts), beams.tolist(), 9, allowed)
    assert_ranked(labels, scores, expected_scores, expected, every[-1])


def test_search_writes_only_the_rows_it_is_given():
    forest = make_forest((3, 12), 0)
    labels, scores = np.full((6, 2), 77, np.int32), np.full((6, 2), 7, np.float32)
    score.search(
        *forest.rows.triplet, 2, 4, *forest.head.packed, *forest.offsets(False), forest.top(True), np.array([3, 3]),
        forest.head.posts, np.empty(0, np.uint8), labels, scores,
    )  # fmt: skip
    assert (labels[[0, 1, 4, 5]] == 77).all()
    assert (labels[2:4] < 12).all()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    tree_sizes, seeds, st.sampled_from(POSTS), st.booleans(), precisions, st.integers(1, 5),
    st.integers(1, 9), st.sampled_from([0.3, 1.0]), st.booleans(),
)  # fmt: skip
def test_search_level_equals_its_twin(sizes, seed, posts, whole, precision, width, keep, share, with_offsets):
    forest = make_forest(sizes, seed, posts=posts, whole=whole, precision=precision)
    flags, allowed = allowed_masks(forest.tree, share, seed)
    rng, every = np.random.default_rng(seed), forest.scores()
    level = int(rng.integers(len(sizes)))
    n, beam, offsets = len(forest.X), draw_beam(forest, level, width, seed), forest.offsets(with_offsets)
    labels, scores = np.empty((n, keep), np.int32), np.empty((n, keep), np.float32)
    score.search_level(
        *forest.rows.triplet, 0, n, level, *forest.head.packed,
        offsets[0] if level == offsets[1] else offsets[0][:0], forest.head.posts[level], flags,
        beam.labels, beam.scores, labels, scores,
    )  # fmt: skip
    expected, expected_scores = expected_level(forest, level, beam, keep, allowed)
    assert_ranked(labels, scores, expected_scores, expected, every[level])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(tree_sizes, seeds, st.sampled_from(POSTS), st.booleans(), precisions, st.sampled_from([0.0, 0.2, 1.0]))
def test_score_pairs_equals_its_twin(sizes, seed, posts, whole, precision, density):
    forest = make_forest(sizes, seed, posts=posts, whole=whole, precision=precision)
    rng, n_labels = np.random.default_rng(seed), forest.tree.n_labels
    wanted = rng.random((len(forest.X), n_labels)) < density
    found = forest.head.score_labels(forest.rows, sp.csr_matrix(wanted.astype(np.float32)))
    stored = found.copy()
    stored.data[:] = 1
    np.testing.assert_array_equal(stored.toarray() > 0, wanted)
    expected = forest.scores()[-1][:, forest.tree.position]  # from positions to labels
    np.testing.assert_allclose(found.toarray()[wanted], expected[wanted], rtol=1e-4, atol=1e-6)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(tree_sizes, seeds, st.booleans(), st.integers(1, 40), st.integers(1, 3))
def test_every_row_gets_k_labels_however_narrow_the_beam(sizes, seed, whole, k, beam):
    forest = make_forest(sizes, seed, whole=whole)
    k = min(k, forest.tree.n_labels)
    labels = forest.head.topk(forest.rows, k, beam=beam).labels
    assert (labels >= 0).all()
    assert all(len(set(row)) == k for row in labels.tolist())


@pytest.mark.parametrize("whole", [True, False])
def test_a_query_without_features_is_scored_by_the_biases(whole):
    forest = make_forest((4, 30), 5, whole=whole)
    top = forest.head.topk(forest.rows, 3, beam=4)
    factors = [reference.post(bias.astype(np.float64), "l3-hinge") for bias in forest.bias]
    expected = np.sort(factors[1] * factors[0][forest.tree.parents[1]])[::-1][:3]
    np.testing.assert_allclose(top.scores[0], expected, rtol=1e-4)


def test_accumulator_holds_the_widest_level():
    forest = make_forest((4, 30), 5, whole=False)
    widest = np.diff(forest.tree.starts[1]).max()
    assert accumulator_size(forest.head.arrays["meta"], np.array([3, 3])) == max(4, 3 * widest)
    forest = make_forest((4, 30), 5, whole=True)
    assert accumulator_size(forest.head.arrays["meta"], np.array([3, 3])) == 30
