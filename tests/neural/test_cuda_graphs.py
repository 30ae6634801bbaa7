"""What can be tested of CUDA graphs without a GPU; ``test_gpu.py`` records and replays."""

from __future__ import annotations

import gc

import pytest

from umpteen.neural.cuda_graphs import _without_garbage_collection


def fail_without_garbage_collection() -> None:
    with _without_garbage_collection():
        assert not gc.isenabled()
        raise ValueError("a step that fails")


@pytest.mark.parametrize("is_enabled", [True, False])
def test_garbage_is_not_collected_while_a_step_is_recorded(is_enabled: bool) -> None:
    was_enabled = gc.isenabled()
    try:
        (gc.enable if is_enabled else gc.disable)()
        with pytest.raises(ValueError, match="a step that fails"):
            fail_without_garbage_collection()
        assert gc.isenabled() == is_enabled
    finally:
        (gc.enable if was_enabled else gc.disable)()
