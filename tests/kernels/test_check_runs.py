"""The check of arrays that came from a file, against its twin."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import reference
from umpteen.kernels import check


@st.composite
def runs(draw: st.DrawFn) -> dict[str, np.ndarray]:
    """Draw postings in runs as they are packed."""
    widths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    ptr, run_ptr, chunks, lasts, local = [0], [0], [], [], []
    for _ in range(draw(st.integers(1, 6))):
        for chunk in sorted(draw(st.sets(st.integers(0, len(widths) - 1)))):
            children = sorted(draw(st.sets(st.integers(0, widths[chunk] - 1), min_size=1)))
            chunks.append(chunk)
            lasts.append(len(children) - 1)
            local += children
        ptr.append(len(local))
        run_ptr.append(len(chunks))
    return {
        "ptr": np.array(ptr, np.int32), "run_ptr": np.array(run_ptr, np.int32), "run_chunk": np.array(chunks, np.uint8),
        "run_last": np.array(lasts, np.uint8), "local": np.array(local, np.uint8),
        "starts": np.concatenate([[0], np.cumsum(widths)]).astype(np.int32),
    }  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(runs(), st.data())
def test_check_runs_finds_what_its_twin_finds(arrays: dict[str, np.ndarray], data: st.DataObject) -> None:
    n = len(arrays["ptr"]) - 1
    assert check.check_runs(*arrays.values(), 0, n) == reference.check_runs(*arrays.values(), 0, n) == -1
    name = data.draw(st.sampled_from(["run_chunk", "run_last", "local"]))
    if len(arrays[name]):
        at = data.draw(st.integers(0, len(arrays[name]) - 1))
        arrays[name][at] = data.draw(st.integers(0, 7) | st.just(255))
    first = data.draw(st.integers(0, n))
    found = check.check_runs(*arrays.values(), first, n)
    assert found == reference.check_runs(*arrays.values(), first, n)
