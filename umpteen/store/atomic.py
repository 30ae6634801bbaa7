"""Files that appear whole or not at all: temporary name, fsync, rename.

Knows nothing about what is in them.
"""

from __future__ import annotations

import os
import secrets
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
def atomic_path(path: str | os.PathLike[str], temporary: Path | None = None) -> Iterator[Path]:
    """Yield a temporary name to write to; when the block ends well, it becomes ``path``.

    The temporary file lies in the same folder and has the same ending, so writers that look at the
    ending work, unless another name is given. If the block fails, the temporary file is removed and ``path``
    keeps what it had.

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
    if temporary is None:
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


def atomic_write(
    path: str | os.PathLike[str], content: str | Buffer | Iterable[Buffer], temporary: Path | None = None
) -> None:
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
    with explained(path), atomic_path(path, temporary) as written, open(written, "xb") as file:
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
def locked(folder: Path) -> Iterator[bool]:
    """Hold the folder's lock, which dies with the process: one writer at a time; say whether the folder is still there.

    Where folders cannot be locked (Windows, some network file systems) writers are not kept apart.
    """
    if fcntl is None:
        yield folder.is_dir()
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        yield False
        return
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield _is_at(descriptor, folder)
    finally:
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    """Say whether an open file or folder still has this path."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
