"""Journal of files that are about to be written. Only files that a journal lists are ever removed.

    {"umpteen": "..."}          header
    "weights-<digest>.safetensors"
    ".tmp-<token>-0"

The journal is flushed to disk before the files are written. Lines are only appended, so a crash can truncate only the
last one, whose file has not been written yet.
"""

import json
import os
import re
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from umpteen.errors import BadInput, BadModelFile
from umpteen.store.atomic import TEMPORARY, sync_folder
from umpteen.store.names import read_inside, remove_inside

_FIRST = b'{"umpteen": "files that umpteen writes here; those that are not needed any more are removed"}\n'
_TEMPORARY = re.compile(rf"{re.escape(TEMPORARY)}[0-9a-f]{{16}}-\d+")
_MOST = 64 * 2**20  # maximum size in bytes
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class Journal:
    """The journal of one writer in a folder.

    Parameters
    ----------
    folder : folder of the files.
    name : file name of the journal.
    is_ours : whether this writer uses such a name; other names in the journal are ignored.
    """

    def __init__(self, folder: Path, name: str, is_ours: Callable[[str], bool]) -> None:
        self.folder, self.name, self._is_ours = folder, name, is_ours

    def names(self) -> list[str]:
        """Return the names in the journal; none if it does not exist."""
        lines = self._content().split(b"\n")[1:]
        return list(dict.fromkeys(name for line in lines if self._is_ours(name := _parse(line))))

    def add(self, names: Iterable[str]) -> None:
        """Append names and flush the journal to disk; afterwards the files may be written."""
        known = set(self.names())
        lines = "".join(f"{json.dumps(name)}\n" for name in names if name not in known)
        if not lines:
            return
        is_begun = bool(self._content())
        flags = _APPEND if is_begun else _APPEND | os.O_TRUNC
        with os.fdopen(os.open(self.folder / self.name, flags, 0o666), "ab") as file:
            file.write((b"\n" if is_begun else _FIRST) + lines.encode())  # the last line may be truncated
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self.folder)

    def settle(self, keep: Collection[str] = ()) -> None:
        """Remove all listed files but those to keep, then the journal, unless a file could not be removed."""
        if self._remove(name for name in self.names() if name not in keep):
            sync_folder(self.folder)
            with suppress(OSError):
                os.unlink(self.folder / self.name)

    def sweep(self) -> None:
        """Remove the temporary files in the journal; the folder must be locked."""
        self._remove(name for name in self.names() if is_temporary(name))

    def remove(self, names: Collection[str]) -> None:
        """Remove those of some files that are in the journal."""
        self._remove(name for name in self.names() if name in names)

    def _remove(self, names: Iterable[str]) -> bool:
        """Remove files; return whether none of them exists any more."""
        try:
            present = set(os.listdir(self.folder))  # most do not exist, and each removal takes several system calls
        except FileNotFoundError:
            return True
        return all([remove_inside(self.folder, name) for name in names if "/" in name or name in present])

    def _content(self) -> bytes:
        """Return the content; empty if the journal does not exist or its header is truncated."""
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
    """Return a temporary name in the folder of a file; the token identifies the writer."""
    return f"{name[: name.rfind('/') + 1]}{TEMPORARY}{token}-{number}"


def is_temporary(name: str) -> bool:
    """Return whether ``temporary_for`` returns such names.

    Examples
    --------
    >>> is_temporary(temporary_for("encoder/config.json", "0123456789abcdef")), is_temporary(".tmp-12-a.txt")
    (True, False)
    """
    return _TEMPORARY.fullmatch(name[name.rfind("/") + 1 :]) is not None


@lru_cache(maxsize=1 << 14)  # the same lines are read again and again
def _parse(line: bytes) -> str:
    """Return the name in a line; '' if it is truncated."""
    try:
        name = json.loads(line)
    except (ValueError, RecursionError):
        return ""
    return name if isinstance(name, str) else ""
