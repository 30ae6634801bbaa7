"""The two vector loops against plain products."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from umpteen.heads import fit
from umpteen.kernels import lanes, reference
from umpteen.kernels.lanes import LANES

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
