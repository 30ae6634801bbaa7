"""Bound the resident memory of mapped files.

Pages of a mapped file that were read stay resident until the system needs the memory, which looks as if a process used
all of it and may end it where memory is limited. ``resident_limit`` gives pages back when they are more than allowed;
they are still in the page cache of the system, and are mapped again when they are used.
"""

import mmap
import os
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

_INTERVAL = 0.02  # seconds between two looks at the resident memory
_STATM = Path("/proc/self/statm")
_maps: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()
_limited = threading.Lock()  # held while there is a limit


def mapped(array: np.memmap) -> np.ndarray:
    """Remember a map, and return a plain view of it: the subclass slows down indexing."""
    _maps.add(array._mmap)  # type: ignore[attr-defined]
    return np.asarray(array)


def is_mapped(array: np.ndarray) -> bool:
    """Return whether an array is a part of a mapped file.

    Examples
    --------
    >>> is_mapped(np.zeros(3))
    False
    """
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, mmap.mmap)


@contextmanager
def resident_limit(n_bytes: float | None) -> Iterator[None]:
    """Keep the resident pages of mapped files below about ``n_bytes`` within the block, where the system can.

    Pages of libraries, which are mapped too, do not count. None sets no limit; within a block that has one, another
    block changes nothing.
    """
    if n_bytes is None or not hasattr(mmap, "MADV_DONTNEED") or not _STATM.exists() or not _limited.acquire(False):
        yield
        return
    stop = threading.Event()
    watcher = threading.Thread(target=_watch, args=(n_bytes + _file_bytes(), stop), name="umpteen-maps", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()
        _limited.release()


def _watch(limit: float, stop: threading.Event) -> None:
    while not stop.wait(_INTERVAL):
        if _file_bytes() > limit:
            release()


def release() -> None:
    """Give back the pages of all mapped files. Changes of writable maps are not lost: the system writes them."""
    for one in list(_maps):
        try:
            one.madvise(mmap.MADV_DONTNEED)
        except (ValueError, OSError):  # closed meanwhile
            continue


def _file_bytes() -> int:
    """Return the resident bytes of this process that belong to files."""
    return int(_STATM.read_bytes().split()[2]) * mmap.PAGESIZE if sys.platform == "linux" else 0


def reserve(file: int, size: int) -> None:
    """Give an open file its size, and its place on the disk: a full disk is noticed here and not in a mapped page."""
    if hasattr(os, "posix_fallocate") and size:
        os.posix_fallocate(file, 0, size)
    else:
        os.truncate(file, size)
