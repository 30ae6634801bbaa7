"""Batch kernels against their plain twins, and the batch path against the row path."""

from __future__ import annotations

from itertools import pairwise
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
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
from hypothesis import given, settings
from hypothesis import strategies as st

from umpteen.data.rows import Rows
from umpteen.kernels import batch, reference
from umpteen.kernels.lanes import LANES

precisions = st.sampled_from(["float32", "float16", "int8"])
seeds = st.integers(0, 10_000)
NO_TABLE = np.zeros(1, np.float32)


def dyadic(rng: np.random.Generator, shape: tuple[int, ...], density: float = 0.5) -> np.ndarray:
    """Draw multiples of 1/4: sums are exact, ties are common."""
    return (rng.integers(-4, 5, shape) / 4 * (rng.random(shape) < density)).astype(np.float32)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 8), st.integers(1, 10), st.integers(0, 40), seeds)
def test_compact_and_chunk_margins_equal_dense_products(n_queries, n_features, width, seed):
    rng = np.random.default_rng(seed)
    X = dyadic(rng, (8, n_features))
    queries = rng.permutation(8)[:n_queries].astype(np.int32)
    features = np.flatnonzero(rng.random(n_features) < 0.6).astype(np.int32)
    W, bias = dyadic(rng, (len(features), width)), dyadic(rng, (width,))
    total = int(np.count_nonzero(X[queries])) + 1
    ids, kept, ptr = np.empty(total, np.int32), np.empty(total, np.float32), np.zeros(n_queries + 1, np.int64)
    local = np.zeros(n_features, np.int32)
    n_kept = batch.compact(*Rows.of(sp.csr_matrix(X)).triplet, queries, features, local, ids, kept, ptr)
    assert not local.any()
    restricted = sp.csr_matrix((kept[:n_kept], ids[:n_kept], ptr), shape=(n_queries, max(1, len(features))))
    np.testing.assert_array_equal(restricted.toarray()[:, : len(features)], X[queries][:, features])

    n_groups = -(-width // LANES)
    groups = [np.nonzero(W[:, g * LANES : (g + 1) * LANES]) for g in range(n_groups)]
    entry_ptr = np.cumsum([3] + [len(rows) for rows, _ in groups])  # entries of other chunks come before
    rows, lanes = (np.concatenate([np.zeros(3, int), *(group[i] for group in groups)]) for i in range(2))
    codes = np.concatenate([np.full(3, 99.0), *(W[r, g * LANES + b] for g, (r, b) in enumerate(groups))])
    weights, margins = np.zeros((n_features, LANES), np.float32), np.full((n_queries, width), 77, np.float32)
    codes = codes.astype(np.float32)
    batch.chunk_margins(
        ptr, ids, kept, entry_ptr, rows.astype(np.int32), lanes.astype(np.uint8), codes, NO_TABLE,
        bias, weights, margins,
    )  # fmt: skip
    assert not weights.any()
    np.testing.assert_array_equal(margins, X[queries][:, features] @ W + bias)


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 5), st.integers(0, 30), st.integers(1, 8), st.sampled_from(range(len(KINDS))),
    st.sampled_from([0.0, 0.5, 1.0]), seeds,
)  # fmt: skip
def test_best_of_chunk_equals_its_twin(n_queries, width, room, kind, share, seed):
    rng = np.random.default_rng(seed)
    margins, parents = dyadic(rng, (n_queries, width), 1.0), rng.random(n_queries).astype(np.float32)
    first_node, allowed_at = 4, 3
    allowed = (rng.random(allowed_at + first_node + width) < share).astype(np.uint8)
    ids, scores = np.empty((n_queries, room), np.int32), np.empty((n_queries, room), np.float32)
    flags = allowed if share < 1 else np.empty(0, np.uint8)
    batch.best_of_chunk(margins, parents, first_node, flags, allowed_at, kind, ids, scores)
    factor = parents[:, None] if KINDS[kind] != "identity" else 1
    every = reference.post(margins.astype(np.float64), KINDS[kind]) * factor
    may = allowed[allowed_at + first_node :] if share < 1 else np.ones(width)
    for q in range(n_queries):
        best = reference.take_down(every[q], np.array([0, width]), np.array([0]), room, may)
        assert ids[q, : len(best)].tolist() == (first_node + best).tolist()
        assert (ids[q, len(best) :] == -1).all()
        np.testing.assert_allclose(scores[q, : len(best)], every[q, best], rtol=1e-4, atol=1e-37)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10), st.integers(1, 5), st.integers(1, 6), seeds)
def test_pairs_by_chunk_equals_its_twin(n_rows, width, n_chunks, seed):
    rng = np.random.default_rng(seed)
    beam = np.full((n_rows, width), -1, np.int32)
    for row in beam:
        chosen = rng.permutation(n_chunks)[: rng.integers(0, width + 1)]
        row[: len(chosen)] = chosen
    chunk_ptr = np.zeros(n_chunks + 1, np.int64)
    rows, places = np.empty(n_rows * width, np.int32), np.empty(n_rows * width, np.int32)
    batch.pairs_by_chunk(beam, chunk_ptr, rows, places)
    found = [list(zip(rows[a:b].tolist(), places[a:b].tolist(), strict=True)) for a, b in pairwise(chunk_ptr)]
    assert found == reference.pairs_by_chunk(beam, n_chunks)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 5), st.integers(1, 8), seeds)
def test_merge_pairs_keeps_the_best_of_old_and_new(n_rows, width, best, room, seed):
    rng = np.random.default_rng(seed)
    n_pairs = n_rows * width
    pair_ids, pair_scores = np.full((n_pairs, best), -1, np.int32), np.zeros((n_pairs, best), np.float32)
    for p in range(n_pairs):  # any children, best first
        n = rng.integers(0, best + 1)
        pair_ids[p, :n] = 100 + p * best + np.arange(n)
        pair_scores[p, :n] = np.sort(rng.integers(0, 5, n))[::-1]
    place = rng.permutation(n_pairs).reshape(n_rows, width)
    beam = np.where(np.arange(width) < rng.integers(0, width + 1, (n_rows, 1)), 0, -1).astype(np.int32)
    ids, scores = np.full((n_rows, room), -1, np.int32), np.zeros((n_rows, room), np.float32)
    n_old = rng.integers(0, room + 1, n_rows)
    for i in range(n_rows):
        ids[i, : n_old[i]] = np.arange(n_old[i])
        scores[i, : n_old[i]] = np.sort(rng.integers(0, 5, n_old[i]))[::-1]
    expected = []
    for i in range(n_rows):
        offered = list(zip(ids[i, : n_old[i]].tolist(), scores[i].tolist(), strict=False))
        for p in place[i, beam[i] >= 0]:
            offered += [
                pair for pair in zip(pair_ids[p].tolist(), pair_scores[p].tolist(), strict=True) if pair[0] >= 0
            ]
        expected.append(sorted(offered, key=lambda pair: -pair[1])[:room])
    batch.merge_pairs(beam, place, pair_ids, pair_scores, 0, n_rows, ids, scores)
    for i, row in enumerate(expected):
        assert list(zip(ids[i].tolist(), scores[i].tolist(), strict=True))[: len(row)] == row
        assert (ids[i, len(row) :] == -1).all()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    tree_sizes, seeds, st.sampled_from(POSTS), precisions, st.integers(1, 7), st.integers(1, 9),
    st.sampled_from([0.3, 1.0]),
)  # fmt: skip
def test_a_level_by_chunks_equals_its_twin_and_the_level_by_rows(sizes, seed, posts, precision, width, keep, share):
    forest = make_forest(sizes, seed, posts=posts, whole=False, precision=precision)
    flags, allowed = allowed_masks(forest.tree, share, seed)
    level = int(np.random.default_rng(seed).integers(len(sizes)))
    beam = draw_beam(forest, level, width, seed)
    expected, expected_scores = expected_level(forest, level, beam, keep, allowed)
    given = (forest.rows.triplet, level, beam, keep, flags, 1)
    for method in (forest.head._level_by_chunks, forest.head._level_by_rows):
        found = method(*given)
        assert_ranked(found.labels, found.scores, expected_scores, expected, forest.scores()[level])


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("posts", [("l3-hinge", "same"), ("sigmoid", "identity")])
@pytest.mark.parametrize("sizes", [(50,), (6, 60), (3, 12, 90)])
def test_a_batch_finds_what_single_queries_find(sizes, posts, precision, threads):
    forest = make_forest(sizes, 1, n_rows=100, n_features=40, posts=posts, whole=False, precision=precision)
    with mock.patch.object(forest.head, "_prefers_chunks", return_value=True):
        by_chunks = forest.head.topk(forest.rows, 7, beam=4, threads=threads)
    with mock.patch.object(forest.head, "_prefers_chunks", return_value=False):
        by_rows = forest.head.topk(forest.rows, 7, beam=4, threads=threads)
    one_by_one = [
        forest.head.topk(Rows.of(sp.csr_matrix(forest.X[i : i + 1])), 7, beam=4) for i in range(len(forest.X))
    ]
    for found in (by_chunks, by_rows):
        np.testing.assert_allclose(
            found.scores, np.concatenate([one.scores for one in one_by_one]), rtol=1e-4, atol=1e-6
        )
        np.testing.assert_array_equal(found.labels, np.concatenate([one.labels for one in one_by_one]))
