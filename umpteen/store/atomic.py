"""Files that appear whole or not at all: temporary name, fsync, rename.

Knows nothing about what is in them.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from umpteen.errors import UmpteenError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

Buffer = bytes | bytearray | memoryview

TEMPORARY = ".tmp-"
_STALE_AFTER = 3600.0  # seconds without a write before a temporary file counts as left by a killed run


class SaveFailed(UmpteenError, OSError):
    """Files that could not be written; what was there before is still there."""


@contextmanager
def explained(target: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an operating-system error into a sentence that says what is lost: nothing."""
    try:
        yield
    except SaveFailed:
        raise
    except OSError as error:
        failure = SaveFailed(
            f"could not write '{target}': {error.strerror or error}; what was there before is unchanged, "
            "so free some space or choose a folder you may write to, and save again"
        )
        failure.errno = error.errno
        raise failure from error


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary name to write to; when the block ends well, it becomes ``path``.

    The temporary file lies in the same folder and has the same ending, so writers that look at the
    ending work. If the block fails, the temporary file is removed and ``path`` keeps what it had.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_path(f"{folder}/numbers.npy") as temporary:
    ...         np.save(temporary, np.arange(3))
    ...     np.load(f"{folder}/numbers.npy")
    array([0, 1, 2])
    """
    path = Path(path)
    _remove_stale(path)
    temporary = path.with_name(f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(4)}-{path.name}")
    try:
        yield temporary
        with explained(path):
            _sync_file(temporary)
            os.replace(temporary, path)
            sync_folder(path.parent)
    finally:
        with suppress(OSError):
            os.unlink(temporary)


def atomic_write(path: str | os.PathLike[str], content: str | Buffer | Iterable[Buffer]) -> None:
    """Write text (as UTF-8), bytes or a series of them to ``path``, whole or not at all.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     atomic_write(f"{folder}/note.txt", "done")
    ...     pathlib.Path(f"{folder}/note.txt").read_text()
    'done'
    """
    if isinstance(content, str):
        content = content.encode()
    parts = [content] if isinstance(content, Buffer) else content
    with explained(path), atomic_path(path) as temporary, open(temporary, "xb") as file:
        for part in parts:
            file.write(part)


def sync_folder(folder: Path) -> None:
    """Make the folder's list of names durable; systems that cannot are left alone."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which dies with the process: one writer at a time.

    Where folders cannot be locked (Windows, some network file systems) writers are not kept apart.
    """
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Remove a file or folder if that is possible now; a later save tries again."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_stale(path: Path) -> None:
    """Remove temporary files of this name that nobody has written to for an hour."""
    oldest = time.time() - _STALE_AFTER
    with suppress(OSError):
        for entry in os.scandir(path.parent):
            if entry.name.startswith(TEMPORARY) and entry.name.endswith(f"-{path.name}"):
                with suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_mtime < oldest:
                        os.unlink(entry)
