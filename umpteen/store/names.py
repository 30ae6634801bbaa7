"""Names of files inside an untrusted folder: which are allowed, and how such a file is opened.

Only regular files inside the folder are opened; links that lead out of it are refused. The folder itself may be a link.
"""

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
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)  # Windows devices
_LONGEST = 255  # characters of a path component on common file systems
_READ_AT_ONCE = 1 << 16  # bytes

_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_READ = os.O_RDONLY | _NO_LINK | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # do not block on pipes
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0)
_BY_PART = os.open in os.supports_dir_fd and bool(_NO_LINK)


def is_plain(name: str) -> bool:
    """Return whether a name stays inside its folder and refers to the same file on every system.

    Examples
    --------
    >>> [is_plain(name) for name in ("encoder/config.json", "../up", "/etc/passwd", "a//b", "c:d", "nul.txt", "end.")]
    [True, False, False, False, False, False, False]
    """
    if not _NAME.fullmatch(name):
        return False
    return all(len(part) <= _LONGEST and not _DEVICE.fullmatch(part) for part in name.split("/"))


def check_name(name: str) -> str:
    """Return the name; raise BadInput unless it is plain."""
    if not is_plain(name):
        raise BadInput(
            f"a file's name has letters, digits, '_', '-', '.', and '/' after a folder, but is {name!r}; rename it"
        )
    return name


def open_inside(folder: Path, name: str) -> BinaryIO:
    """Open a regular file of a folder by its plain name.

    Raises FileNotFoundError if it does not exist, and BadModelFile if it is not a regular file inside the folder.
    """
    path, root = folder / name, os.path.realpath(folder)
    real = os.path.realpath(path)
    if not is_below(real, root):
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
    """Return the content of a file of a folder; files of more than ``most`` bytes are refused."""
    content = bytearray()
    with open_inside(folder, name) as file:  # in blocks: a single read would allocate as much as it may return
        while len(content) <= most and (block := file.read(_READ_AT_ONCE)):
            content += block
    if len(content) > most:
        raise BadModelFile(f"'{folder / name}' may have {most:,} bytes at most, but has more; copy or save it again")
    return bytes(content)


def check_tree(folder: Path) -> None:
    """Refuse a folder that contains anything but folders and regular files inside it."""
    for place, folders, files in os.walk(folder):
        linked = [name for name in folders if os.path.islink(os.path.join(place, name))]
        for name in (*linked, *files):
            open_inside(folder, Path(place, name).relative_to(folder).as_posix()).close()


def remove_inside(folder: Path, name: str) -> bool:
    """Remove a file of a folder, and the folders above it that become empty; return whether it no longer exists.

    Files in a linked folder, and folders of that name, are not removed.
    """
    path, above = folder / name, PurePosixPath(name).parents
    if is_linked(folder, name) or (path.is_dir() and not path.is_symlink()):
        return True
    with suppress(OSError):
        path.unlink()
    for parent in list(above)[:-1]:
        with suppress(OSError):
            (folder / parent).rmdir()
    return not os.path.lexists(path)


def is_linked(folder: Path, name: str) -> bool:
    """Return whether a folder between ``folder`` and the file is a link."""
    parts = name.split("/")[:-1]
    return os.path.realpath(folder.joinpath(*parts)) != os.path.join(os.path.realpath(folder), *parts)


def is_below(path: str, folder: str) -> bool:
    """Return whether a path is below a folder; both are resolved."""
    return Path(folder) in Path(path).parents


def _open_by_part(root: str, parts: tuple[str, ...]) -> int | None:
    """Open a file component by component, so that no folder can be replaced by a link meanwhile."""
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
    """Return a descriptor of a regular file, or None for anything else; checked before and after opening."""
    if not stat.S_ISREG(os.stat(path, dir_fd=folder, follow_symlinks=False).st_mode):  # devices are not even opened
        return None
    descriptor = os.open(path, _READ, dir_fd=folder)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None
