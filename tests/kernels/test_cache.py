"""Where compiled kernels are kept, who is trusted, and what happens to files that are damaged."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from umpteen.kernels import cache
from umpteen.kernels.cache import Places

ROOT = Path(__file__).parents[2]
Private = Callable[[Path], Path | None]

# Calls one kernel that calls another; says which were compiled and where they would be kept.
SCRIPT = """
import json, logging, os, sys
from pathlib import Path
import numpy as np
from umpteen.kernels import cache
from umpteen.kernels.compiling import on_compile
if sys.argv[1] == "read-only":  # as for somebody else than the administrator, who may write anywhere
    access, site = os.access, Path(sys.argv[2])
    os.access = lambda path, *rest: site not in (Path(path), *Path(path).parents) and access(path, *rest)
compiled, notes = [], []
handler = logging.Handler()
handler.emit = lambda record: notes.append(record.getMessage())
logging.getLogger("umpteen.kernels").addHandler(handler)
logging.getLogger("umpteen.kernels").setLevel(logging.INFO)
with on_compile(lambda kernel, seconds: compiled.append(kernel) if seconds is None else None):
    from umpteen.kernels.rank import count_above
    truth, ranked, hits = np.array([0, 2]), np.array([[1, 0]], np.int32), np.zeros(2, np.int64)
    count_above(truth, np.array([0, 1], np.int32), ranked, np.ones((1, 2), np.float32), 0.5, hits, hits.copy())
    value = int(hits.sum())
read, write = cache.places()
print(json.dumps({"value": value, "compiled": compiled, "notes": notes, "read": [str(p) for p in read],
                  "write": str(write) if write else None}))
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A copy of the package that is nobody's cache yet."""
    root = tmp_path / "site"
    for part in ("__init__.py", "errors.py", "kernels", "config"):
        source, target = ROOT / "umpteen" / part, root / "umpteen" / part
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    return root


def call(site: Path, *, read_only: bool = False, **environment: str) -> dict:
    """Call the kernels in a new process of that installation."""
    clean = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "read-only" if read_only else "", str(site)],
        env=clean | {"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"} | environment,
        capture_output=True, text=True, timeout=120, cwd=site,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def beside(site: Path) -> list[Path]:
    return sorted((site / "umpteen" / "kernels" / "__pycache__").glob("*.nbi"))


def test_compiled_kernels_lie_beside_the_source_and_are_used_again(installed: Path) -> None:
    first = call(installed)
    assert "rank.count_above" in first["compiled"]
    assert any(note.startswith("compiled rank.count_above in ") for note in first["notes"])
    assert beside(installed)
    again = call(installed)
    assert again["compiled"] == []
    assert again["value"] == first["value"]


def test_the_folder_of_the_user_comes_first(installed: Path, tmp_path: Path) -> None:
    given = tmp_path / "given"
    assert call(installed, NUMBA_CACHE_DIR=str(given))["compiled"]
    assert list(given.rglob("*.nbi"))
    assert not beside(installed)
    assert call(installed, NUMBA_CACHE_DIR=str(given))["compiled"] == []


def test_a_read_only_installation_uses_what_was_built_in_and_adds_to_the_users_folder(
    installed: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    call(installed)
    baked = call(installed, read_only=True, HOME=str(home))
    assert baked["compiled"] == []
    before = beside(installed)
    for file in before:
        if "count_above" in file.name:
            file.unlink()
    call(installed, read_only=True, HOME=str(home))
    assert len(beside(installed)) < len(before)
    own = list((home / ".cache" / "umpteen").rglob("*.nbi"))
    assert [file.name.split("-")[0] for file in own] == ["rank.count_above"]
    assert call(installed, read_only=True, HOME=str(home))["compiled"] == []


def test_touched_sources_are_still_current_and_an_edit_of_a_helper_is_not(installed: Path) -> None:
    call(installed)
    for source in (installed / "umpteen" / "kernels").glob("*.py"):
        os.utime(source, (1, 1))
    assert call(installed)["compiled"] == []
    with open(installed / "umpteen" / "kernels" / "lanes.py", "a") as file:
        file.write("# another version\n")
    assert call(installed)["compiled"]


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners")
def test_without_a_folder_of_its_own_a_read_only_installation_compiles_in_memory(
    installed: Path, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    before = set(Path("/tmp").glob("umpteen*"))
    found = call(installed, read_only=True, HOME="/nonexistent/home", XDG_CACHE_HOME=str(shared))
    assert found["write"] is None
    assert found["compiled"]
    assert not list(shared.rglob("*.nbi"))
    assert set(Path("/tmp").glob("umpteen*")) == before
    assert not beside(installed)


@pytest.mark.parametrize("damage", [b"", b"garbage", "cut", "flipped", "pickle"])
def test_a_damaged_file_is_compiled_again(installed: Path, damage: bytes | str) -> None:
    value = call(installed)["value"]
    for file in beside(installed):
        content = file.read_bytes()
        if damage == "cut":
            content = content[:-100]
        elif damage == "flipped":
            content = content[:5000] + bytes([content[5000] ^ 255]) + content[5001:]
        elif damage == "pickle":  # what numba's own cache would have run
            content = b"cos\nsystem\n(S'echo run'\ntR."
        else:
            content = damage
        file.write_bytes(content)
    again = call(installed)
    assert again["compiled"]
    assert again["value"] == value
    assert any("damaged" in note for note in again["notes"])
    assert call(installed)["compiled"] == []


def test_a_payload_that_numba_cannot_use_is_compiled_again(installed: Path) -> None:
    import hashlib
    import pickle

    call(installed)
    for file in beside(installed):
        body = pickle.dumps(("of", "another", "kind"))
        file.write_bytes(file.read_bytes()[:32] + hashlib.sha256(body).digest() + body)
    again = call(installed)
    assert again["compiled"]
    assert any("cannot be used" in note for note in again["notes"])


# Which folders are private


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Choose places anew, as if the installation were read-only."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    access, inside = os.access, Path(cache.__file__).parent

    def not_inside(path: str | Path, *rest: Any, **more: Any) -> bool:
        return inside not in (Path(path), Path(path).parent) and access(path, *rest, **more)

    monkeypatch.setattr(os, "access", not_inside)
    cache.places.cache_clear()
    yield monkeypatch
    cache.places.cache_clear()


@pytest.fixture
def private(fresh: pytest.MonkeyPatch) -> Private:
    """Return where kernels are written if a folder is the user's cache folder."""

    def chosen(home: Path) -> Path | None:
        fresh.setenv("XDG_CACHE_HOME", str(home))
        cache.places.cache_clear()
        return cache.places().write

    return chosen


def folders_of(home: Path) -> dict[str, Path]:
    """Return the folders that others must not be able to write to."""
    own = home / "umpteen"
    return {"home": home, "umpteen": own, "kernels": own / f"kernels-{cache.stamp()[:16]}"}


posix = pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners")


@posix
def test_a_private_folder_is_made_for_the_user_alone(private: Private, tmp_path: Path) -> None:
    home = tmp_path / "home" / ".cache"
    folder = private(home)
    assert folder == folders_of(home.resolve())["kernels"]
    for place in folders_of(home).values():
        assert place.stat().st_mode & 0o777 == 0o700
    assert private(home) == folder


@posix
@pytest.mark.parametrize("loose", ["home", "umpteen", "kernels"])
@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_folder_that_others_can_write_is_not_used(
    private: Private, tmp_path: Path, loose: str, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "home"
    assert private(home) is not None
    folders_of(home)[loose].chmod(mode)
    with caplog.at_level(logging.INFO, "umpteen.kernels"):
        assert private(home) is None
    assert "can be written by others" in caplog.text


@posix
@pytest.mark.skipif(hasattr(os, "getuid") and os.getuid() != 0, reason="only the administrator can give files away")
@pytest.mark.parametrize("of_another", ["home", "umpteen", "kernels"])
def test_a_folder_of_another_user_is_not_used(private: Private, tmp_path: Path, of_another: str) -> None:
    home = tmp_path / "home"
    assert private(home) is not None
    os.chown(folders_of(home)[of_another], 4242, 4242)
    assert private(home) is None


@posix
@pytest.mark.parametrize("part", ["umpteen", "kernels"])
def test_a_link_in_the_place_of_a_folder_is_not_used(private: Private, tmp_path: Path, part: str) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    assert private(home) is not None
    link = folders_of(home)[part]
    shutil.rmtree(link)
    link.symlink_to(elsewhere, target_is_directory=True)
    assert private(home) is None


@posix
def test_the_shared_temporary_folder_is_never_chosen(fresh: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    fresh.setenv("TMPDIR", str(shared))
    fresh.setenv("HOME", "/nonexistent/home")
    fresh.setenv("XDG_CACHE_HOME", "relative/path")
    assert cache.places().write is None
    assert not list(shared.iterdir())


def test_without_source_files_nothing_is_kept(fresh: pytest.MonkeyPatch) -> None:
    fresh.setattr(cache, "stamp", lambda: None)
    assert cache.places() == Places((), None)
