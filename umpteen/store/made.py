"""Folders that are created for files of a journal, and removed after them."""

import os
from contextlib import suppress
from pathlib import Path

MANY_TRIES = 100
_MADE = ".umpteen-made"


def make_folder(folder: Path, *, parents: bool = False) -> None:
    """Create a folder, unless it exists, and mark it as created by umpteen."""
    try:
        folder.mkdir(parents=parents)
    except FileExistsError:
        return
    with suppress(OSError):
        (folder / _MADE).touch(exist_ok=False)


def remove_made(folder: Path) -> None:
    """Remove a folder that :func:`make_folder` created, if it is empty otherwise; its lock must be held."""
    for _ in range(MANY_TRIES):
        if os.listdir(folder) != [_MADE]:
            return
        os.unlink(folder / _MADE)
        try:
            folder.rmdir()
            return
        except OSError:  # another run has begun to use it, and needs the mark to remove it
            (folder / _MADE).touch()
