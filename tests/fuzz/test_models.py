"""A few of the damaged models that ``python -m tests.fuzz.models`` makes by the thousand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .models import fuzz

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="waits for a child by select")


def test_damaged_models_answer_or_are_refused(tmp_path: Path) -> None:
    result = fuzz(150, seed=20, folder=tmp_path / "seeds")
    assert result.failures == []
    assert result.ended.total() == 150
    assert min(result.ended["answered"], result.ended["refused"]) > 10
