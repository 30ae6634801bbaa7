"""Atomic writes (temporary name, fsync, rename) and locks of folders."""

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from umpteen.errors import BadInput, UmpteenError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

Buffer = bytes | bytearray | memoryview

TEMPORARY = ".tmp-"


class SaveFailed(UmpteenError, OSError):
    """Files could not be written; the previous ones are unchanged."""


@contextmanager
def explained(target: str | os.PathLike[str], *, unless: type[OSError] = SaveFailed) -> Iterator[None]:
    """Turn an OSError into SaveFailed, whose message names the target and the remedy, unless it is of one kind."""
    try:
        yield
    except (SaveFailed, unless):
        raise
    except OSError as error:
        failure = SaveFailed(
            f"could not write '{target}': {error.strerror or error}; what was there before is unchanged, "
            "so free some space or choose a folder you may write to, and save again"
        )
        failure.errno = error.errno
        raise failure from error


def atomic_write(
    path: str | os.PathLike[str], content: str | Buffer | Iterable[Buffer], temporary: Path | None = None
) -> None:
    """Write text (as UTF-8), bytes or a series of them to ``path`` atomically.

    If writing fails, the temporary file is removed and ``path`` is unchanged. The name of the temporary file can be
    given; FileExistsError is raised if there is a file of that name.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     atomic_write(f"{folder}/note.txt", "done")
    ...     pathlib.Path(f"{folder}/note.txt").read_text()
    'done'
    """
    path = Path(path)
    if temporary is None:
        temporary = path.with_name(f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(4)}-{path.name}")
    if isinstance(content, str):
        content = content.encode()
    with explained(path, unless=FileExistsError):  # a file of that name is not ours to replace or to remove
        file = open(temporary, "xb")  # noqa: SIM115  closed below
    try:
        with explained(path):
            with file:
                for part in [content] if isinstance(content, Buffer) else content:
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            sync_folder(path.parent)
    finally:
        with suppress(OSError):
            os.unlink(temporary)


def replace(temporary: Path, path: Path) -> None:
    """Flush a complete temporary file to disk and give it its name."""
    with open(temporary, "rb+") as file:
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to disk, where the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def locked(folder: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold an exclusive lock on a folder, which ends with the process; yield whether the folder still exists.

    Without ``wait``, BlockingIOError is raised if another process holds the lock. Folders that cannot be locked
    (Windows, some network file systems) are used without a lock.
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
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            pass
        yield _is_at(descriptor, folder)
    finally:
        os.close(descriptor)


_HELD: dict[Path, int] = {}  # descriptors of the files that this process holds


def hold(path: Path, folder: Path) -> None:
    """Keep a file for this process until it ends or calls ``release``; BadInput if another process has it.

    A file that does not exist is not held. ``folder`` is named in the message.
    """
    path = path.absolute()
    if fcntl is None or (path in _HELD and _is_at(_HELD[path], path)):
        return
    release(path)
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise BadInput(
            f"another process runs the same training with its stages in '{folder}'; wait until it ends, or choose "
            "another folder"
        ) from None
    except OSError:  # a file system without locks
        os.close(descriptor)
        return
    _HELD[path] = descriptor


def release(path: Path) -> None:
    """Give back a file that this process holds."""
    descriptor = _HELD.pop(path.absolute(), None)
    if descriptor is not None:
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    """Return whether an open file or folder still has this path."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
