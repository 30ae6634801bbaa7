"""The two vector loops against plain products."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import reference
from umpteen.kernels import batch, lanes
from umpteen.kernels.lanes import LANES
from umpteen.linear import fit

spans = st.tuples(st.integers(0, 3), st.integers(0, 21))  # every remainder of the unrolled loop


@numba.njit
def run_dot(table, indices, values, start, stop, out):
    lanes.dot(table, indices, values, start, stop, out)


@numba.njit
def run_dot_twice(table, indices, values, stop, outs):
    for i in range(len(outs)):
        lanes.dot(table, indices, values, 0, stop, outs[i])


@numba.njit
def run_axpy(table, indices, values, start, stop, step):
    lanes.axpy(table, indices, values, start, stop, step)


@numba.njit
def run_compare(values, bound):
    return lanes.reaching(values, bound), lanes.above(values, bound)


@numba.njit
def run_bits(bits):
    return lanes.count_bits(bits), lanes.lowest_bit(bits)


@numba.njit
def run_rank(values, candidates, ids, scores):
    return batch.rank_lanes(values, candidates, 100, ids, scores)


def make(span: tuple[int, int], seed: int) -> tuple[np.ndarray, ...]:
    """Draw multiples of 1/4, whose sums are exact in float32, with features that repeat."""
    rng = np.random.default_rng(seed)
    start, stop = span[0], span[0] + span[1]
    table = (rng.integers(-8, 9, (7, LANES)) / 4).astype(np.float32)
    indices = rng.integers(0, 7, stop + 2).astype(np.int32)
    values = (rng.integers(-8, 9, stop + 2) / 4).astype(np.float32)
    return start, stop, table, indices, values, (rng.integers(-8, 9, LANES) / 4).astype(np.float32)


def test_heads_count_lanes_as_kernels_do():
    assert fit.LANES == LANES


@settings(max_examples=100, deadline=None)
@given(spans, st.integers(0, 1000))
def test_dot_equals_its_twin(span, seed):
    start, stop, table, indices, values, out = make(span, seed)
    expected = reference.dot(table, indices, values, start, stop, out)
    run_dot(table, indices, values, start, stop, out)
    np.testing.assert_array_equal(out, expected)


@settings(max_examples=20, deadline=None)
@given(spans, st.integers(0, 1000))
def test_dot_starts_afresh_in_every_turn_of_a_loop(span, seed):
    _, stop, table, indices, values, _ = make(span, seed)
    outs = np.zeros((3, LANES), np.float32)
    run_dot_twice(table, indices, values, stop, outs)
    expected = reference.dot(table, indices, values, 0, stop, np.zeros(LANES))
    np.testing.assert_array_equal(outs, np.tile(expected, (3, 1)))


@settings(max_examples=100, deadline=None)
@given(spans, st.integers(0, 1000))
def test_axpy_equals_its_twin(span, seed):
    start, stop, table, indices, values, step = make(span, seed)
    expected = reference.axpy(table, indices, values, start, stop, step)
    run_axpy(table, indices, values, start, stop, step)
    np.testing.assert_array_equal(table, expected)


@pytest.mark.parametrize("offset", [1, 2, 3])
def test_rows_may_start_anywhere_in_memory(offset):
    start, stop, table, indices, values, out = make((0, 9), offset)
    shifted = np.zeros(table.size + offset, np.float32)[offset:].reshape(table.shape)
    shifted[:] = table
    expected = reference.dot(table, indices, values, start, stop, out)
    run_dot(shifted, indices, values, start, stop, out)
    np.testing.assert_array_equal(out, expected)


few_values = st.lists(st.sampled_from([-np.inf, -1.0, 0.0, 0.25, 2.0]), min_size=LANES, max_size=LANES)


@settings(max_examples=60, deadline=None)
@given(few_values, st.sampled_from([-np.inf, -1.0, 0.0, 0.1, 2.0, np.inf]))
def test_comparisons_are_bits(values, bound):
    values = np.array(values, np.float32)
    expected = [sum(1 << b for b in np.flatnonzero(found)) for found in (values >= bound, values > bound)]
    assert list(run_compare(values, np.float32(bound))) == expected


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 2**LANES - 1))
def test_bits_are_counted_and_found(bits):
    written = bin(bits)[2:]
    assert run_bits(bits) == (written.count("1"), len(written) - 1 - written.rindex("1"))


@settings(max_examples=60, deadline=None)
@given(few_values, st.integers(1, 2**LANES - 1), st.integers(1, LANES + 2))
def test_lanes_are_ranked_by_value_and_then_by_place(values, candidates, room):
    values = np.array(values, np.float32)
    ids, scores = np.full(room, -1, np.int32), np.zeros(room, np.float32)
    n = run_rank(values, candidates, ids, scores)
    order = sorted((b for b in range(LANES) if candidates >> b & 1), key=lambda b: -values[b])[:room]
    assert n == len(order)
    assert ids[:n].tolist() == [100 + b for b in order]
    assert scores[:n].tolist() == values[order].tolist()
