"""Selection against a full sort."""

from __future__ import annotations

import numpy as np
from compiled import compiled
from hypothesis import given, settings
from hypothesis import strategies as st

from umpteen.kernels import select

nth_largest = compiled(select.nth_largest)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(-5, 5) | st.floats(-1024, 1024, width=32), min_size=1, max_size=60), st.data())
def test_nth_largest_is_the_value_at_that_rank_of_a_sort(values, data):
    rank = data.draw(st.integers(0, len(values) - 1))
    spare = data.draw(st.integers(0, 3))  # entries behind the first n take no part
    array = np.array([*values, *[1e38] * spare], np.float32)
    assert nth_largest(array, len(values), rank) == np.sort(np.array(values, np.float32))[::-1][rank]
    assert sorted(array[: len(values)]) == sorted(np.array(values, np.float32))
