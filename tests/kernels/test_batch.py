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

from tests import reference
from umpteen.data.rows import Rows
from umpteen.kernels import batch
from umpteen.kernels.lanes import LANES

precisions = st.sampled_from(["float32", "float16", "int8"])
seeds = st.integers(0, 10_000)
NO_TABLE = np.zeros(1, np.float32)


def dyadic(rng: np.random.Generator, shape: tuple[int, ...], density: float = 0.5) -> np.ndarray:
    """Draw multiples of 1/4: sums are exact, ties are common."""
    return (rng.integers(-4, 5, shape) / 4 * (rng.random(shape) < density)).astype(np.float32)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=4), st.integers(1, 8), st.sampled_from(range(len(KINDS))),
    st.sampled_from([0.0, 0.5, 1.0]), st.booleans(), seeds,
)  # fmt: skip
def test_score_chunks_equals_its_twin(widths, room, kind, share, has_floor, seed):
    rng = np.random.default_rng(seed)
    n_rows, n_features, n_beam, node_at = 8, 10, 2, 3
    X, starts = dyadic(rng, (n_rows, n_features)), np.cumsum([0, *widths]).astype(np.int32)
    W, bias = dyadic(rng, (n_features, starts[-1])), dyadic(rng, (node_at + starts[-1],))
    allowed = (rng.random(node_at + starts[-1]) < share).astype(np.uint8)
    flags = allowed if share < 1 else np.empty(0, np.uint8)
    parents = np.stack([rng.permutation(max(2, len(widths)))[:n_beam] for _ in range(n_rows)]).astype(np.int32)
    parents[(parents >= len(widths)) | (rng.random(parents.shape) < 0.2)] = -1
    parent_scores = rng.random(parents.shape).astype(np.float32)
    worst = np.where(rng.random(n_rows) < 0.5 * has_floor, rng.random(n_rows), -np.inf).astype(np.float32)

    pairs = [(chunk, row, j) for chunk in range(len(widths)) for row, j in np.argwhere(parents == chunk)]
    chunk_ptr = np.searchsorted([chunk for chunk, _, _ in pairs], np.arange(len(widths) + 1))
    rows_of, beams_of = (np.array([pair[i] for pair in pairs], np.int32) for i in (1, 2))
    features, entries = chunked(W, starts)
    weights = np.zeros((n_features, LANES), np.float32)
    ids, scores = np.empty((len(pairs), room), np.int32), np.empty((len(pairs), room), np.float32)
    cut = int(rng.integers(0, len(pairs) + 1))  # tasks may cut a chunk's pairs in two
    for first, last in ((0, cut), (cut, len(pairs))):
        batch.score_chunks(
            *Rows.of(sp.csr_matrix(X)).triplet, first, last, chunk_ptr, rows_of, beams_of, parent_scores, worst,
            n_features, *features, *entries, NO_TABLE, starts, bias, node_at, flags, kind, weights, ids, scores,
        )  # fmt: skip
    assert not weights.any()
    for p, (chunk, row, j) in enumerate(pairs):
        mine = slice(starts[chunk], starts[chunk + 1])
        margins = X[row].astype(np.float64) @ W[:, mine] + bias[node_at:][mine]
        every = reference.post(margins, KINDS[kind]) * (1 if KINDS[kind] == "identity" else parent_scores[row, j])
        may = allowed[node_at:][mine] if share < 1 else np.ones(widths[chunk])
        # siblings rank by margin, which also decides between equal scores
        best = reference.take_down(margins, np.array([0, widths[chunk]]), np.array([0]), room, may)
        n_better = int((every[best] > worst[row] + 1e-4).sum())  # others may be left out
        assert ids[p, :n_better].tolist() == (starts[chunk] + best[:n_better]).tolist()
        found = ids[p][ids[p] >= 0] - starts[chunk]
        np.testing.assert_allclose(scores[p, : len(found)], every[found], rtol=1e-4, atol=1e-37)
        if worst[row] == -np.inf:
            assert len(found) == len(best)


def chunked(W: np.ndarray, starts: np.ndarray) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """Lay weights out chunk by chunk: (pointer, features) and (pointer by group, cells, codes)."""
    n_groups = -(-int(np.diff(starts).max()) // LANES)
    features = [np.flatnonzero(W[:, low:high].any(axis=1)) for low, high in pairwise(starts)]
    groups = []
    for (low, high), mine in zip(pairwise(starts), features, strict=True):
        for g in range(n_groups):
            part = W[mine, low:high][:, g * LANES : (g + 1) * LANES]
            rows, lanes = np.nonzero(part)
            groups.append((rows * LANES + lanes, part[rows, lanes]))
    ends = np.cumsum([0, *(len(cells) for cells, _ in groups)])
    entry_ptr = ends[np.arange(len(features))[:, None] * n_groups + np.arange(n_groups + 1)]
    kinds = (np.int32, np.float32)
    entries = [np.concatenate([group[i] for group in groups]).astype(kind) for i, kind in enumerate(kinds)]
    feature_ptr = np.cumsum([0, *map(len, features)])
    return (feature_ptr, np.concatenate(features).astype(np.int32)), (entry_ptr, *entries)


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
    for method in (forest.head.level_by_chunks, forest.head.level_by_rows):
        found = method(*given)
        assert_ranked(found.labels, found.scores, expected_scores, expected, forest.scores()[level])


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("posts", [("l3-hinge", "same"), ("sigmoid", "identity")])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("sizes", [(50,), (600,), (6, 60), (3, 12, 90)])
def test_a_batch_finds_what_single_queries_find(sizes, whole, posts, precision, threads):
    forest = make_forest(sizes, 1, n_rows=100, n_features=40, posts=posts, whole=whole, precision=precision)
    with mock.patch.object(forest.head, "prefers_chunks", return_value=True):
        by_chunks = forest.head.topk(forest.rows, 7, beam=4, threads=threads)
    with mock.patch.object(forest.head, "prefers_chunks", return_value=False):
        by_rows = forest.head.topk(forest.rows, 7, beam=4, threads=threads)
    one_by_one = [
        forest.head.topk(Rows.of(sp.csr_matrix(forest.X[i : i + 1])), 7, beam=4) for i in range(len(forest.X))
    ]
    for found in (by_chunks, by_rows):
        np.testing.assert_allclose(
            found.scores, np.concatenate([one.scores for one in one_by_one]), rtol=1e-4, atol=1e-6
        )
        np.testing.assert_array_equal(found.labels, np.concatenate([one.labels for one in one_by_one]))
