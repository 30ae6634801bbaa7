"""The folder of the parts of an output: what a run finds there, and what it leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from umpteen.errors import BadInput
from umpteen.store import OutputParts, SaveFailed

PART = "part-000000000000-3-0123456789abcdef.jsonl"
RUN = "run-0123456789abcdef.json"


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_run_finds_finished_parts_and_nothing_else(output: Path) -> None:
    first = OutputParts(output)
    scratch, temporary = first.scratch(0, ".json"), first.temporary(1)
    with first.held():
        first.reserve([PART, RUN, scratch, temporary])
        for name in (PART, RUN, scratch, temporary):
            first.write(name, b"content")
        assert first.has(PART)
    second = OutputParts(output)
    assert second.scratch(0, ".json") != scratch
    with second.held():
        assert second.has(PART)
        left = {name for name in names(second.folder) if not name.startswith(".umpteen")}
        assert left == {PART}


def test_the_end_removes_all_parts_of_all_runs(output: Path) -> None:
    output.write_text("old")
    other = "part-000000000000-9-fedcba9876543210.jsonl"
    for name in (PART, other):
        parts = OutputParts(output)
        with parts.held():
            parts.reserve([name])
            parts.write(name, b"content")
    parts = OutputParts(output)
    with parts.held():
        assert parts.has(other)
        assert output.read_text() == "old"
        parts.finish([b"ne", b"w"])
    assert output.read_text() == "new"
    assert names(output.parent) == {"out.jsonl"}


def test_a_part_that_comes_late_is_removed_too(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of a killed run may write its last part while the next run ends."""
    parts = OutputParts(output)
    with parts.held():
        parts.reserve([PART])
        settle = parts._journal.settle

        def settle_and_write() -> None:
            settle()
            if not late:
                late.append(PART)
                (parts.folder / PART).write_bytes(b"late")

        late: list[str] = []
        monkeypatch.setattr(parts._journal, "settle", settle_and_write)
        parts.finish([b"new"])
    assert late
    assert names(output.parent) == {"out.jsonl"}


def test_files_that_are_not_reserved_are_strangers(output: Path) -> None:
    parts = OutputParts(output)
    parts.folder.mkdir()
    (parts.folder / PART).write_text("mine")
    with parts.held():
        assert not parts.has(PART)
        with pytest.raises(BadInput, match="was not written by umpteen; move it elsewhere"):
            parts.reserve([RUN, PART])
        assert not parts.has(RUN)
        parts.finish([b"new"])
    assert (parts.folder / PART).read_text() == "mine"
    assert names(parts.folder) == {PART}


def test_a_journal_cannot_name_files_elsewhere(output: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    parts = OutputParts(output)
    with parts.held():
        parts.reserve([PART])
    journal = parts.folder / ".umpteen-parts"
    journal.write_text(journal.read_text() + '"../mine.txt"\n"rows-1-0123456789abcdef.json/../../mine.txt"\n')
    with OutputParts(output).held():
        pass
    again = OutputParts(output)
    with again.held():
        again.finish([b"new"])
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_an_output_that_fails_leaves_the_old_one(output: Path) -> None:
    output.write_text("old")

    def content() -> object:
        yield b"new"
        raise OSError(28, "No space left on device")

    parts = OutputParts(output)
    with parts.held():
        parts.reserve([PART])
        parts.write(PART, b"content")
        with pytest.raises(SaveFailed, match="No space left"):
            parts.finish(content())  # type: ignore[arg-type]
        assert parts.has(PART)
    assert output.read_text() == "old"


def test_one_run_at_a_time(output: Path) -> None:
    pytest.importorskip("fcntl")
    with (
        OutputParts(output).held(),
        pytest.raises(BadInput, match="another run is writing"),
        OutputParts(output).held(),
    ):
        pass
    with OutputParts(output).held():
        pass
