"""Names of files inside a folder: which are allowed, and how such a file is opened.

A folder may come from anybody, so its names and what lies behind them are not trusted: a file is opened only if it is
a regular one that lies inside the folder, whatever links say. The folder itself may be reached by a link.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from umpteen.errors import BadInput, BadModelFile

_PART = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_-])?"
_NAME = re.compile(rf"{_PART}(?:/{_PART})*")
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)  # of Windows, with any ending
_LONGEST = 255  # characters of a part, on common file systems

_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_READ = os.O_RDONLY | _NO_LINK | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # a pipe is not waited for
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0)
_BY_PART = os.open in os.supports_dir_fd and bool(_NO_LINK)


def is_plain(name: str) -> bool:
    """Say whether a name stays inside its folder and means the same file on every system.

    Examples
    --------
    >>> [is_plain(name) for name in ("encoder/config.json", "../up", "/etc/passwd", "a//b", "c:d", "nul.txt", "end.")]
    [True, False, False, False, False, False, False]
    """
    if not _NAME.fullmatch(name):
        return False
    return all(len(part) <= _LONGEST and not _DEVICE.fullmatch(part) for part in name.split("/"))


def check_name(name: str) -> str:
    """Return a name that is plain, and refuse others."""
    if not is_plain(name):
        raise BadInput(
            f"a file's name has letters, digits, '_', '-', '.', and '/' after a folder, but is {name!r}; rename it"
        )
    return name


def open_inside(folder: Path, name: str) -> BinaryIO:
    """Open a regular file of a folder by its plain name.

    Raises FileNotFoundError if it is not there, and BadModelFile if it is something else or lies elsewhere.
    """
    path, root = folder / name, os.path.realpath(folder)
    real = os.path.realpath(path)
    if not lies_in(real, root):
        raise BadModelFile(f"'{path}' is a link that leaves the folder; put the file itself there")
    try:
        descriptor = _open_by_part(root, Path(real).relative_to(root).parts) if _BY_PART else _open_regular(real)
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise BadModelFile(f"'{path}' is a link that cannot be followed; put the file itself there") from None
        raise
    if descriptor is None:
        raise BadModelFile(f"'{path}' must be a regular file, but is something else; copy or save it again")
    return os.fdopen(descriptor, "rb")


def read_inside(folder: Path, name: str, most: int) -> bytes:
    """Return the content of a file of a folder; one of more than ``most`` bytes is refused unread."""
    with open_inside(folder, name) as file:
        content = file.read(most + 1) if os.fstat(file.fileno()).st_size <= most else None
    if content is None or len(content) > most:
        raise BadModelFile(f"'{folder / name}' may have {most:,} bytes at most, but has more; copy or save it again")
    return content


def check_tree(folder: Path) -> None:
    """Refuse a folder in which anything is neither a folder nor a regular file inside it."""
    for place, folders, files in os.walk(folder):
        linked = [name for name in folders if os.path.islink(os.path.join(place, name))]
        for name in (*linked, *files):
            open_inside(folder, Path(place, name).relative_to(folder).as_posix()).close()


def remove_inside(folder: Path, name: str) -> bool:
    """Remove a file of a folder, and the folders above it that are empty then; return whether it is gone.

    What lies behind a linked folder, and folders of that name, are left alone.
    """
    path, above = folder / name, PurePosixPath(name).parents
    if is_linked(folder, name) or (path.is_dir() and not path.is_symlink()):
        return True  # no file of ours
    with suppress(OSError):
        path.unlink()
    for parent in list(above)[:-1]:
        with suppress(OSError):
            (folder / parent).rmdir()
    return not os.path.lexists(path)


def is_linked(folder: Path, name: str) -> bool:
    """Say whether a folder on the way to a file is reached by a link."""
    parts = name.split("/")[:-1]
    return os.path.realpath(folder.joinpath(*parts)) != os.path.join(os.path.realpath(folder), *parts)


def lies_in(path: str, folder: str) -> bool:
    """Say whether a path lies below a folder; both are resolved."""
    return Path(folder) in Path(path).parents


def _open_by_part(root: str, parts: tuple[str, ...]) -> int | None:
    """Open a file part by part, so that no folder can be exchanged for a link on the way."""
    at = os.open(root, _FOLDER)
    try:
        for part in parts[:-1]:
            below = os.open(part, _FOLDER | _NO_LINK, dir_fd=at)
            os.close(at)
            at = below
        return _open_regular(parts[-1], at)
    finally:
        os.close(at)


def _open_regular(path: str, folder: int | None = None) -> int | None:
    """Return a descriptor of a regular file, None for what is none; it is looked at before and after."""
    if not stat.S_ISREG(os.stat(path, dir_fd=folder, follow_symlinks=False).st_mode):  # opening a device may do things
        return None
    descriptor = os.open(path, _READ, dir_fd=folder)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None
