"""A list of files that is made durable before the files are written: what it names is ours to remove.

    {"umpteen": "..."}          says what the file is
    "weights-<digest>.safetensors"
    ".tmp-<token>-0"

Lines are added at the end and never changed. A crash can cut the last one only, and the file of a line that was cut
was not written yet. Nothing is ever removed because of its name alone.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path

from umpteen.errors import BadInput, BadModelFile
from umpteen.store.atomic import TEMPORARY, sync_folder
from umpteen.store.names import read_inside, remove_inside

_FIRST = b'{"umpteen": "files that umpteen writes here; those that are not needed any more are removed"}\n'
_TEMPORARY = re.compile(rf"{re.escape(TEMPORARY)}[0-9a-f]{{16}}-\d+")
_MOST = 64 * 2**20  # bytes
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class Journal:
    """The list of one writer in a folder.

    Parameters
    ----------
    folder : where the files lie.
    name : of the list itself.
    is_ours : says whether this writer gives such names; others are not believed, whoever listed them.
    """

    def __init__(self, folder: Path, name: str, is_ours: Callable[[str], bool]) -> None:
        self.folder, self.name, self._is_ours = folder, name, is_ours

    def names(self) -> list[str]:
        """Return the names in the list; there are none if it is not there."""
        lines = self._content().split(b"\n")[1:]
        return list(dict.fromkeys(name for line in lines if self._is_ours(name := _parse(line))))

    def add(self, names: Iterable[str]) -> None:
        """List more names, durably; the files may be written after that."""
        known = set(self.names())
        lines = "".join(f"{json.dumps(name)}\n" for name in names if name not in known)
        if not lines:
            return
        is_begun = bool(self._content())
        flags = _APPEND if is_begun else _APPEND | os.O_TRUNC
        with os.fdopen(os.open(self.folder / self.name, flags, 0o666), "ab") as file:
            file.write((b"\n" if is_begun else _FIRST) + lines.encode())  # the last line may have been cut
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self.folder)

    def settle(self, keep: Collection[str] = ()) -> None:
        """Remove all files in the list but those to keep, then the list; a file that is in use leaves it for later."""
        gone = [remove_inside(self.folder, name) for name in self.names() if name not in keep]
        if all(gone):
            sync_folder(self.folder)
            with suppress(OSError):
                os.unlink(self.folder / self.name)

    def sweep(self) -> None:
        """Remove the temporary files in the list: nobody else writes while the folder is locked."""
        for name in self.names():
            if is_temporary(name):
                remove_inside(self.folder, name)

    def _content(self) -> bytes:
        """Return what was written whole; '' if the list was not even begun."""
        try:
            content = read_inside(self.folder, self.name, _MOST)
        except FileNotFoundError:
            return b""
        except BadModelFile as error:
            raise BadInput(str(error)) from None
        if content.startswith(_FIRST):
            return content
        if _FIRST.startswith(content):
            return b""
        raise BadInput(f"'{self.folder / self.name}' was not written by umpteen, which needs that name; move it away")


def temporary_for(name: str, token: str, number: int = 0) -> str:
    """Return a temporary name in the folder of a file; the token is the writer's own."""
    return f"{name[: name.rfind('/') + 1]}{TEMPORARY}{token}-{number}"


def is_temporary(name: str) -> bool:
    """Say whether ``temporary_for`` gives such a name.

    Examples
    --------
    >>> is_temporary(temporary_for("encoder/config.json", "0123456789abcdef")), is_temporary(".tmp-12-a.txt")
    (True, False)
    """
    return _TEMPORARY.fullmatch(name[name.rfind("/") + 1 :]) is not None


def _parse(line: bytes) -> str:
    """Return the name in a line, '' if it was cut."""
    try:
        name = json.loads(line)
    except (ValueError, RecursionError):
        return ""
    return name if isinstance(name, str) else ""
