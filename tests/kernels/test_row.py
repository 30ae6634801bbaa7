"""The check of a single query against its plain twin."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import reference
from umpteen.kernels import row

values = st.floats(-(2.0**100), 2.0**100, width=32) | st.sampled_from([0.0, np.nan, np.inf, -np.inf])
entries = st.lists(st.tuples(st.integers(-1, 8), values), max_size=6)


@settings(max_examples=200, deadline=None)
@given(entries, st.booleans(), st.booleans())
def test_check_row_equals_its_twin(drawn, in_order, normalize):
    if in_order:  # most drawn rows are not
        drawn = sorted({index: value for index, value in drawn if index >= 0}.items())
    indices = np.array([index for index, _ in drawn], np.int32)
    data = np.array([value for _, value in drawn], np.float32)
    out = np.empty(len(data), np.float32)
    good = row.check_row(indices, data, 7, normalize, out)
    expected = reference.check_row(indices, data, 7, normalize)
    assert good == (expected is not None)
    if good:
        np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-38)
