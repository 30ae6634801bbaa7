"""Model folders from strangers, and files of the user's: nothing leaves a folder, nothing else is removed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from umpteen import store
from umpteen.config import EncoderConfig
from umpteen.errors import BadInput, BadModelFile
from umpteen.models.folder import SavedEncoder
from umpteen.store import names

ROOT = Path(store.__file__).parents[2]
needs_links = pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")


def save(path: Path, value: float = 1.0) -> None:
    extra = {"note.bin": bytes([int(value)]) * 9, "encoder/config.json": b"{}", "encoder/deep/w.bin": b"w"}
    arrays = {"weights": {"data": np.full(10, value)}}
    store.write(path, config={"meta": {"value": value}}, arrays=arrays, labels=["a"], extra=extra)


def value_of(path: Path) -> float:
    stored = store.read(path)
    stored.verify()
    return stored.config["meta"]["value"]


def listing(path: Path) -> list[str]:
    return sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if not file.is_dir())


def change_table(path: Path, change: Any) -> None:
    document = json.loads((path / "config.json").read_text())
    change(document["files"])
    (path / "config.json").write_text(json.dumps(document))


# --- names ---

HOSTILE = [
    "/etc/passwd", "//any/path", "..", "../up", "a/../../up", "a//b", "a/", "/a", "", ".", "./a", ".hidden", "a/.b",
    "a\\b", "c:a", "c:/a", "\\\\host\\share", "a\0b", "a\nb", "a\n", "CON", "nul", "nul.txt", "aux/b", "com1.bin",
    "lpt9", "end.", "end./a", "a b", "~", "é", "a" * 256, "file:stream",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_names_that_could_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    assert not names.is_plain(name)
    with pytest.raises(BadInput, match="rename it"):
        store.write(tmp_path / "new", config={}, arrays={}, extra={name: b""})
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", [*HOSTILE, "encoder//etc/x", "encoder/../../x", "encoder/"])
def test_keys_of_the_table_are_checked(tmp_path: Path, name: str) -> None:
    save(tmp_path / "model")
    change_table(tmp_path / "model", lambda table: table.update({name: table["encoder/config.json"]}))
    with pytest.raises(BadModelFile, match=r"its entry for the file .* is not valid"):
        store.read(tmp_path / "model")


@pytest.mark.parametrize(
    ("name", "file"),
    [
        *(("x", hostile) for hostile in HOSTILE),
        ("x", "config.json"),
        ("x", "x"),
        ("x", "x-0123456789abcdef\n"),
        ("x", "y-0123456789abcdef"),
        ("x.bin", "note-{note}.bin"),
        ("encoder/other", "encoder-{encoder}/config.json"),
        ("encoder/other", "encoder-0123456789abcdef/other"),
        ("other/config.json", "encoder-{encoder}/config.json"),
        ("encoder/deep", "encoder-{encoder}-0123456789abcdef"),
    ],
)
def test_values_of_the_table_are_what_a_save_would_give(tmp_path: Path, name: str, file: str) -> None:
    save(tmp_path / "model")
    digest_of = {path.name.partition("-")[0]: path.stem.partition("-")[2] for path in (tmp_path / "model").iterdir()}
    file = file.format(**{stem: digest_of[stem] for stem in ("note", "encoder")})
    change_table(tmp_path / "model", lambda table: table.update({name: {"file": file, "bytes": 2}}))
    with pytest.raises(BadModelFile, match="where no save puts it"):
        store.read(tmp_path / "model")


def test_an_encoder_is_never_written_outside_its_folder(tmp_path: Path) -> None:
    target = tmp_path / "stolen"
    saved = SavedEncoder(EncoderConfig(), content={f"/{target}": np.frombuffer(b"bytes", np.uint8)})
    pytest.importorskip("transformers")
    with pytest.raises(BadInput, match="rename it"):
        saved.get()
    assert not target.exists()


# --- what lies behind a name ---


@needs_links
@pytest.mark.parametrize("pattern", ["config.json", "weights-*", "labels-*", "encoder-*/config.json", "encoder-*/deep"])
@pytest.mark.parametrize("mmap", [True, False])
def test_links_that_leave_the_folder_are_refused(tmp_path: Path, pattern: str, mmap: bool) -> None:
    save(tmp_path / "model")
    path = next((tmp_path / "model").glob(pattern))
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadModelFile, match="is a link that leaves the folder; put the file itself there"):
        store.read(tmp_path / "model", mmap=mmap)


@needs_links
def test_links_inside_the_folder_and_to_it_are_followed(tmp_path: Path) -> None:
    save(tmp_path / "model")
    path = next((tmp_path / "model").glob("weights-*"))
    path.rename(tmp_path / "model" / "kept")
    path.symlink_to("kept")
    (tmp_path / "link").symlink_to("model")
    assert value_of(tmp_path / "link") == 1.0


@needs_links
def test_a_link_in_the_encoders_folder_is_refused_though_no_table_names_it(tmp_path: Path) -> None:
    save(tmp_path / "model")
    (tmp_path / "secret").write_text("x")
    next((tmp_path / "model").glob("encoder-*")).joinpath("tokenizer.json").symlink_to(tmp_path / "secret")
    with pytest.raises(BadModelFile, match=r"tokenizer\.json' is a link that leaves the folder"):
        store.read(tmp_path / "model").folder("encoder")


@needs_links
def test_a_file_that_becomes_a_link_after_it_was_checked_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exchange a folder for a link between the look at it and the opening."""
    save(tmp_path / "model")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{}")
    encoder, real = next((tmp_path / "model").glob("encoder-*")), names.lies_in

    def exchange(path: str, folder: str) -> bool:
        if path.endswith("config.json") and encoder.name in path and not encoder.is_symlink():
            encoder.rename(tmp_path / "old")
            encoder.symlink_to(tmp_path / "other")
        return real(path, folder)

    monkeypatch.setattr(names, "lies_in", exchange)
    with pytest.raises(BadModelFile):
        store.read(tmp_path / "model")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
@pytest.mark.parametrize("pattern", ["config.json", "weights-*", "labels-*", "encoder-*/config.json"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path, pattern: str) -> None:
    save(tmp_path / "model")
    path = next((tmp_path / "model").glob(pattern))
    path.unlink()
    os.mkfifo(path)
    code = f"import umpteen; umpteen.load({str(tmp_path / 'model')!r})"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert "must be a regular file, but is something else" in done.stderr


def test_a_folder_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model" / "config.json").mkdir(parents=True)
    with pytest.raises(BadModelFile, match="must be a regular file"):
        store.read(tmp_path / "model")


def test_a_config_without_end_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with open(tmp_path / "model" / "config.json", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(BadModelFile, match="may have 67,108,864 bytes at most, but has more"):
        store.read(tmp_path / "model")


@pytest.mark.parametrize("mmap", [True, False])
def test_sizes_are_compared_before_a_file_is_read(tmp_path: Path, mmap: bool) -> None:
    save(tmp_path / "model")
    path = next((tmp_path / "model").glob("weights-*"))
    os.truncate(path, 1 << 40)
    with pytest.raises(BadModelFile, match="it has 1099511627776 bytes where"):
        store.read(tmp_path / "model", mmap=mmap)
