"""Layouts of weights: nothing is lost or moved to another label on the way."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import reference
from umpteen.kernels import layout
from umpteen.kernels.lanes import LANES

NOTHING = np.empty(0, np.int32)


@st.composite
def weights(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Draw dense weights (features, nodes), all different, and the slices of their parents, some empty."""
    n_features, n_nodes, n_parents = (draw(st.integers(1, top)) for top in (8, 40, 5))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    W = np.arange(1, n_features * n_nodes + 1, dtype=np.float32).reshape(n_features, n_nodes)
    W *= rng.random(W.shape) < draw(st.sampled_from([0.0, 0.3, 1.0]))
    cuts = np.sort(rng.integers(0, n_nodes + 1, n_parents - 1))
    return W, np.concatenate([[0], cuts, [n_nodes]]).astype(np.int32)


def sort_by_feature(
    features: np.ndarray, nodes: np.ndarray, values: np.ndarray, n_features: int, first: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Count, then sort, the entries of a range of features."""
    counts = np.zeros(n_features, np.int64)
    layout.count_by_feature(features, first, counts)
    ptr = np.concatenate([[0], np.cumsum(counts)])
    out_nodes, out_values = np.empty(ptr[-1], nodes.dtype), np.empty(ptr[-1], values.dtype)
    layout.sort_by_feature(features, nodes, values, first, ptr[:-1].copy(), out_nodes, out_values)
    return ptr, out_nodes, out_values


def by_feature(W: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    nodes, features = np.nonzero(W.T)
    return sort_by_feature(features.astype(np.int32), nodes.astype(np.int32), W[features, nodes], len(W))


def runs_of(
    ptr: np.ndarray, nodes: np.ndarray, starts: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Call twice, as the head does: to count, then to fill."""
    parents = np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts))
    run_ptr = np.empty(len(ptr), np.int64)
    n_runs = layout.split_runs(ptr, nodes, parents, starts, run_ptr, NOTHING, NOTHING, NOTHING)
    chunk, last, local = (
        np.empty(n_runs, np.int32),
        np.empty(n_runs, np.int32),
        np.empty(len(nodes), np.int32),
    )
    if n_runs:
        assert layout.split_runs(ptr, nodes, parents, starts, run_ptr, chunk, last, local) == n_runs
    return run_ptr, chunk, last, local


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=30), st.integers(0, 6), st.integers(0, 8))
def test_sort_by_feature_equals_its_twin(features, first, n_features):
    features = np.array(features, np.int32)
    nodes = np.arange(len(features), dtype=np.int32)  # shows whether the sort is stable
    values = nodes.astype(np.float32) / 2
    found = sort_by_feature(features, nodes, values, n_features, first)
    expected = reference.sort_by_feature(features, nodes, values, n_features, first)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@settings(max_examples=60, deadline=None)
@given(weights())
def test_split_runs_equals_its_twin(drawn):
    W, starts = drawn
    ptr, nodes, _ = by_feature(W)
    run_ptr, chunk, last, local = runs_of(ptr, nodes, starts)
    found, at = [], 0
    for f in range(len(W)):
        runs = []
        for r in range(run_ptr[f], run_ptr[f + 1]):
            runs.append((int(chunk[r]), local[at : at + last[r] + 1].tolist()))
            at += last[r] + 1
        found.append(runs)
    assert found == reference.split_runs(ptr, nodes, starts)


@settings(max_examples=60, deadline=None)
@given(weights())
def test_by_chunk_holds_the_same_weights(drawn):
    W, starts = drawn
    ptr, nodes, values = by_feature(W)
    runs = (ptr, *runs_of(ptr, nodes, starts))
    n_chunks, n_groups = len(starts) - 1, -(-int(np.diff(starts).max()) // LANES)
    n_features, n_entries = np.zeros(n_chunks, np.int64), np.zeros(n_chunks * n_groups, np.int64)
    nothing = np.empty(0, np.int32)
    layout.by_chunk(*runs, values, n_groups, n_features, n_entries, nothing, nothing, np.empty(0, np.float32))
    blocks = [W[:, a:b] for a, b in pairwise(starts)]
    assert n_features.tolist() == [int((block != 0).any(axis=1).sum()) for block in blocks]
    assert n_entries.tolist() == [
        np.count_nonzero(block[:, g * LANES : (g + 1) * LANES]) for block in blocks for g in range(n_groups)
    ]

    feature_ptr, entry_ptr = (np.concatenate([[0], np.cumsum(n)]) for n in (n_features, n_entries))
    features, n = np.empty(feature_ptr[-1], np.int32), entry_ptr[-1]
    cells, out = np.empty(n, np.int32), np.empty(n, np.float32)
    layout.by_chunk(*runs, values, n_groups, feature_ptr[:-1].copy(), entry_ptr[:-1].copy(), features, cells, out)
    for c, block in enumerate(blocks):
        mine = features[feature_ptr[c] : feature_ptr[c + 1]]
        assert mine.tolist() == np.flatnonzero(block.any(axis=1)).tolist()
        found = np.zeros((len(mine), n_groups * LANES), np.float32)
        for g in range(n_groups):
            here = slice(entry_ptr[c * n_groups + g], entry_ptr[c * n_groups + g + 1])
            found[cells[here] // LANES, g * LANES + cells[here] % LANES] = out[here]
        np.testing.assert_array_equal(found[:, : block.shape[1]], block[mine])


@settings(max_examples=60, deadline=None)
@given(weights())
def test_run_offsets_point_at_the_first_posting_of_each_chunk(drawn):
    W, starts = drawn
    ptr, nodes, _ = by_feature(W)
    run_ptr, chunk, last, _ = runs_of(ptr, nodes, starts)
    offsets = np.full((len(W), len(starts)), 9999, np.uint16)
    assert layout.run_offsets(ptr, run_ptr, chunk, last, offsets)
    for f, row in enumerate(W):
        before = [np.count_nonzero(row[:start]) for start in starts]
        assert offsets[f].tolist() == before


def test_run_offsets_refuses_more_postings_than_it_can_count():
    ptr, run_ptr = np.array([0, 1 << 16], np.int64), np.array([0, 1], np.int64)
    runs = (np.zeros(1, np.int32), np.array([(1 << 16) - 1], np.int32))
    assert not layout.run_offsets(ptr, run_ptr, *runs, np.zeros((1, 2), np.uint16))
    assert layout.run_offsets(ptr - [0, 1], run_ptr, runs[0], runs[1] - np.int32(1), np.zeros((1, 2), np.uint16))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.floats(-100, 100, width=32), max_size=20),
    st.sampled_from([0.01, 0.3, 61.0]),
    st.sampled_from([1.0, 16.7, 1e9]),  # the last is what weights of a single magnitude get
)
def test_encode_log_takes_the_nearest_code(values, low, per_step):
    values = np.array([*values, low, -low], np.float32)
    codes = np.empty(len(values), np.uint8)
    layout.encode_log(values, np.float32(low), np.float32(per_step), codes)
    np.testing.assert_array_equal(codes >= 128, values < 0)
    exact = reference.encode_log(values, float(np.float32(low)), per_step)
    rounding = 4e-7 * per_step  # of the quotient, in steps
    assert (np.abs(codes - exact) <= 0.501 + rounding).all()
