"""The folder of the finished parts of a file that is being written, ``OUT.parts`` beside ``OUT``.

    part-<first row>-<rows>-<mark>.jsonl          a finished part; the mark is a digest of everything that it depends on
    rows-<number>-<token>.json                    the rows of a part that is not finished; the token is that of the run
    run-<mark>.json                               what all parts have in common
    .umpteen-parts                                journal of these files

One run at a time holds the lock of the folder. Only files in the journal are read, replaced or removed.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from umpteen.errors import BadInput
from umpteen.store.atomic import Buffer, atomic_write, explained, locked
from umpteen.store.journal import Journal, is_temporary, temporary_for
from umpteen.store.made import MANY_TRIES, make_folder, remove_made
from umpteen.store.names import remove_inside

_JOURNAL = ".umpteen-parts"
_OURS = re.compile(r"(?:part-\d{12,19}-\d+|rows-\d+|run)-[0-9a-f]{16}\.[a-z.]+")
_SCRATCH = ("rows-", "run-")


class OutputParts:
    """The finished parts of one output, from which a run that was killed is resumed.

    Parameters
    ----------
    output : the file that is made from the parts.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     parts = OutputParts(Path(folder, "out.jsonl"))
    ...     with parts.held():
    ...         parts.reserve(["run-0123456789abcdef.json"])
    ...         parts.write("run-0123456789abcdef.json", b"{}")
    ...         parts.finish([b"done"])
    ...     sorted(path.name for path in Path(folder).iterdir())
    ['out.jsonl']
    """

    def __init__(self, output: Path) -> None:
        self.output, self.folder = output, output.with_name(f"{output.name}.parts")
        self._journal = Journal(self.folder, _JOURNAL, _is_ours)
        self._token = secrets.token_hex(8)
        self._known: set[str] = set()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Create the folder if necessary and hold its lock; remove what a killed run left unfinished."""
        for _ in range(MANY_TRIES):
            with ExitStack() as lock:
                if not self._is_locked(lock):  # the run that held it has removed the folder
                    continue
                self._known = set(self._journal.names())
                for name in self._known:
                    if is_temporary(name) or name.startswith(_SCRATCH):
                        remove_inside(self.folder, name)
                yield
                return
        raise BadInput(f"'{self.folder}' is removed again and again; choose another output")

    def _is_locked(self, lock: ExitStack) -> bool:
        with explained(self.folder):
            if os.path.lexists(self.folder) and not self.folder.is_dir():
                raise BadInput(f"'{self.folder}' is in the way: parts of the output are kept there; move it elsewhere")
            make_folder(self.folder)
        try:
            return lock.enter_context(locked(self.folder, wait=False))
        except BlockingIOError:
            raise BadInput(
                f"another run is writing '{self.output}' and keeps its parts in '{self.folder}'; wait until it ends"
            ) from None

    def has(self, name: str) -> bool:
        """Return whether a run has written this file."""
        return name in self._known and (self.folder / name).is_file()

    def scratch(self, number: int, suffix: str) -> str:
        """Return the name of a file that only this run uses, to be reserved."""
        return f"rows-{number}-{self._token}{suffix}"

    def temporary(self, number: int) -> str:
        """Return a temporary name of this run, to be reserved."""
        return temporary_for("", self._token, number)

    def reserve(self, names: Iterable[str]) -> None:
        """Note in the journal that these files are going to be written; files of others are not replaced."""
        names = [name for name in names if name not in self._known]
        for name in names:
            if os.path.lexists(self.folder / name):
                raise BadInput(
                    f"'{self.folder / name}' is in the way and was not written by umpteen; move it elsewhere"
                )
        with explained(self.folder):
            self._journal.add(names)
        self._known.update(names)

    def write(self, name: str, content: bytes) -> None:
        """Write a file that was reserved. It need not survive a crash of the system, which ends the run as well."""
        with explained(self.folder / name):
            (self.folder / name).write_bytes(content)

    def finish(self, content: Iterable[Buffer]) -> None:
        """Write the output atomically, and remove the parts, and the folder if it was created for them."""
        temporary = self.temporary(0)
        self.reserve([temporary])
        atomic_write(self.output, content, self.folder / temporary)
        self._clear()

    def _clear(self) -> None:
        for _ in range(MANY_TRIES):
            self._journal.settle()
            for name in self._known.intersection(os.listdir(self.folder)):
                remove_inside(self.folder, name)  # a process of a killed run may have finished its last part just now
            if not self._known.intersection(os.listdir(self.folder)):
                break
        with explained(self.folder):
            remove_made(self.folder)


def _is_ours(name: str) -> bool:
    return is_temporary(name) or _OURS.fullmatch(name) is not None
