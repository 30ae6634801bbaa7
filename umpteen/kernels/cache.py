"""Cache of compiled kernels.

Compiled code is executed, so it is read from two kinds of folders only: the one beside the source, whose writers could
change the source as well, and one that only the user can write to.

A file holds one kernel for one signature: a digest of the source, a digest of the content, and the content. If a digest
does not match, the kernel is compiled again and the file is replaced.
"""

import functools
import hashlib
import logging
import os
import stat
import sys
import uuid
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

ENDING = ".nbi"
_DIGEST = hashlib.sha256().digest_size
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH

_log = logging.getLogger("umpteen.kernels")


class Places(NamedTuple):
    """Folders that compiled kernels are read from, in this order, and the folder that they are written to, if any."""

    read: tuple[Path, ...]
    write: Path | None


@functools.cache
def places() -> Places:
    """Choose the folders, once per process.

    ``NUMBA_CACHE_DIR`` if it is set, else the folder beside the source. If that is read-only, kernels in it are used,
    and new ones are written to the cache folder of the user, if that is private.
    """
    version = stamp()
    if version is None:
        return Places((), None)
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        folder = Path(given, "umpteen", f"kernels-{version[:16]}")
        return Places((folder,), folder)
    beside = Path(__file__).parent / "__pycache__"
    if _can_write(beside):
        return Places((beside,), beside)
    own = _private_folder(_cache_home(), f"kernels-{version[:16]}")
    if own is None:
        return Places((beside,), None)
    return Places((beside, own), own)


@functools.cache
def stamp() -> str | None:
    """Return a digest of the source of all kernels, for they call each other; None if it cannot be read.

    Modification times are not used because building an image or installing a wheel may change them.
    """
    digest = hashlib.sha256()
    try:
        sources = sorted(Path(__file__).parent.glob("*.py"))
        for source in sources:
            content = source.read_bytes()
            digest.update(f"{source.name} {len(content)}\n".encode())
            digest.update(content)
    except OSError:
        return None
    return digest.hexdigest() if sources else None


def load(kernel: str, key: str) -> bytes | None:
    """Return the compiled kernel with this key, or None if it is missing, stale or damaged."""
    for folder in places().read:
        path = _path(folder, kernel, key)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            _log.info("the compiled kernel '%s' cannot be read: %s", path, error)
            continue
        origin, digest, body = content[:_DIGEST], content[_DIGEST : 2 * _DIGEST], content[2 * _DIGEST :]
        if len(origin) == _DIGEST and origin != _origin(key):
            continue  # from another version
        if digest == hashlib.sha256(body).digest():
            return body
        _log.info("the compiled kernel '%s' is damaged and is compiled again", path)
    return None


def save(kernel: str, key: str, body: bytes) -> None:
    """Save a compiled kernel, if there is a folder for it; a full or read-only disk is not an error."""
    folder = places().write
    if folder is None:
        return
    path = _path(folder, kernel, key)
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:16]}.tmp")
    try:
        _make(folder)
        with open(temporary, "xb") as file:  # mode by the umask: other users may run what an image was built with
            file.write(_origin(key) + hashlib.sha256(body).digest() + body)
        os.replace(temporary, path)
    except OSError as error:
        _log.info("the compiled kernel '%s' cannot be kept: %s", path, error)
        with suppress(OSError):
            temporary.unlink()


def _path(folder: Path, kernel: str, key: str) -> Path:
    """Return the path of a file, which does not depend on the version: new versions replace old ones."""
    digest = hashlib.sha256(f"{sys.implementation.cache_tag} {key}".encode()).hexdigest()
    return folder / f"{kernel}-{digest[:16]}{ENDING}"


def _origin(key: str) -> bytes:
    """Return a digest of everything that a compiled kernel depends on."""
    return hashlib.sha256(f"{stamp()} {sys.implementation.cache_tag} {key}".encode()).digest()


def _can_write(folder: Path) -> bool:
    """Return whether files can be created in a folder, which need not exist yet."""
    return os.access(folder if folder.is_dir() else folder.parent, os.W_OK | os.X_OK)


def _make(folder: Path, mode: int = 0o777) -> None:
    """Create a folder and its missing parents, all with this mode."""
    for missing in (*(parent for parent in reversed(folder.parents) if not parent.exists()), folder):
        with suppress(FileExistsError):
            missing.mkdir(mode)


def _cache_home() -> Path | None:
    """Return the cache folder of the user, or None."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    return home if home.is_absolute() else None


def _private_folder(home: Path | None, name: str) -> Path | None:
    """Return ``home/umpteen/name``, created if necessary, if only the user and the administrator can write to it.

    All folders above it are checked, from the root down, so that no other user can replace one of them afterwards.
    """
    if home is None:
        return None
    try:
        _make(home, 0o700)
        folder = home.resolve(strict=True)
        problem = next(filter(None, (_loose(place) for place in (*reversed(folder.parents), folder))), "")
        for part in ("umpteen", name):
            if not problem:
                folder = folder / part
                _make(folder, 0o700)
                problem = _loose(folder, is_own=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links
        problem = str(error)
    if problem:
        _log.info("compiled kernels are not kept: %s; set NUMBA_CACHE_DIR to a folder of your own", problem)
        return None
    return folder if _can_write(folder) else None


def _loose(folder: Path, *, is_own: bool = False) -> str:
    """Return the reason why others could change the content of a folder; an empty string if they cannot.

    Unless ``is_own``, the folder may belong to the administrator, and others may write to it if it has the sticky bit,
    like the temporary folder.
    """
    if not hasattr(os, "getuid"):  # Windows: the profile of a user is private
        return ""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return f"'{folder}' is no folder"
    if found.st_uid != os.getuid() and (is_own or found.st_uid != 0):
        return f"'{folder}' belongs to user {found.st_uid}"
    if found.st_mode & _OTHERS_WRITE and (is_own or not found.st_mode & stat.S_ISVTX):
        return f"'{folder}' can be written by others (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""
