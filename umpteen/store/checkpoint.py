"""Checkpoints: finished stages of a training run, from which it can be resumed.

    stages/tree-0/tree-<mark>.safetensors         a stage; the mark is a digest of everything that it depends on
    stages/tree-0/.umpteen-stages-<mark>          journal of the files that a run has written there
    stages/.umpteen-made                          the folder was created for stages

Runs with other data or settings have other marks, so they may share a folder: each reads, replaces and removes only the
files in its own journal, which one process uses at a time. A folder is removed if it was created for stages and is
empty otherwise.
"""

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp
from typing import Any

import numpy as np

from umpteen.engine import Engine, LocalEngine, Memory
from umpteen.errors import BadInput, BadModelFile
from umpteen.store.atomic import atomic_write, explained, hold, locked, release, replace
from umpteen.store.journal import Journal, is_temporary, temporary_for
from umpteen.store.made import MANY_TRIES, make_folder, remove_made
from umpteen.store.names import is_plain, open_inside
from umpteen.store.tensors import (
    ARRAYS,
    Allocate,
    Layout,
    Pieces,
    Tensors,
    allocate,
    allocate_in,
    contents,
    decode,
    encode,
    encode_pieces,
    raw_bytes,
    save_tensors,
)

_STAGE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_JOURNAL = ".umpteen-stages-{}"
NO_BOUND = Memory(0)
_MOST_ATTEMPTS = 8  # of processes at writing one stage


class Checkpoint:
    """A folder of finished stages, each a set of arrays.

    Parameters
    ----------
    folder : folder of the stages; created by the first ``save``.
    key : ``fingerprint(settings, data)`` of everything the stages depend on. Stages saved under another key are
        ignored.
    root : a folder above it that is created and removed with it.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoint = Checkpoint(folder, key=fingerprint({"branching": 16}))
    ...     checkpoint.save("tree", {"parents": np.zeros(4, np.int32)})
    ...     checkpoint.has("tree"), Checkpoint(folder, key=fingerprint({"branching": 8})).has("tree")
    (True, False)
    """

    def __init__(self, folder: str | os.PathLike[str], key: str = "", root: Path | None = None) -> None:
        self.folder, self.key = Path(folder), key
        self._places = [self.folder] if root is None else [root, self.folder]
        self._mark = fingerprint(key)[:16]
        self._token = secrets.token_hex(8)

    @property
    def place(self) -> dict[str, str]:
        """Arguments of the same checkpoint in another process."""
        return {"folder": str(self.folder.absolute()), "key": self.key}

    def has(self, stage: str) -> bool:
        """Return whether the stage was saved under this key and can be read."""
        try:
            self.load(stage)
        except BadModelFile:
            return False
        return True

    def load(self, stage: str, *, mmap: bool = True) -> Tensors:
        """Return the arrays of a stage, memory-mapped or in memory.

        Mapped arrays are writable, which does not change the file: kernels of a training would be compiled a second
        time for read-only arrays.
        """
        path = self.folder / self._file(stage)
        try:
            with open_inside(self.folder, path.name) as file:
                arrays, metadata = decode(contents(file, mmap=mmap, writable=True), path)
        except (FileNotFoundError, NotADirectoryError):
            raise BadModelFile(f"'{self.folder}' has no stage '{stage}'; run that stage first") from None
        except OSError as error:
            raise BadModelFile(f"'{path}' cannot be read: {error}; check its permissions") from error
        if metadata.get("key") != self.key:
            raise BadModelFile(f"'{path}' was saved with other settings or data; run the stage again")
        return arrays

    def save(self, stage: str, arrays: dict[str, np.ndarray]) -> None:
        """Save a stage atomically, and remove temporary files of a run that was killed."""
        path = self.folder / self._file(stage)
        with explained(path), self._made():
            atomic_write(path, encode(arrays, {"key": self.key}), self._announce(path))

    def save_pieces(self, stage: str, pieces: Mapping[str, Pieces]) -> None:
        """Save a stage whose arrays are never in memory as a whole; other runs may use the folder meanwhile."""
        path = self.folder / self._file(stage)
        with explained(path), self._made():
            temporary = self._announce(path)
        atomic_write(path, encode_pieces(pieces, {"key": self.key}), temporary)

    def _announce(self, path: Path) -> Path:
        """Enter a file into the journal, and remove temporary files of killed runs; return its temporary name."""
        journal, temporary = self._journal, temporary_for("", self._token)
        if os.path.lexists(path) and path.name not in journal.names():
            raise BadInput(f"'{path}' is in the way and was not written by this training; move it elsewhere")
        self._enter([temporary, path.name])
        return self.folder / temporary

    def _enter(self, names: Sequence[str]) -> None:
        """Enter files into the journal, and remove temporary files of killed runs; the folder must be locked."""
        hold(self.folder / self._journal.name, self.folder)
        self._journal.sweep()
        self._journal.add(names)
        hold(self.folder / self._journal.name, self.folder)  # it may be new

    @contextmanager
    def writing(self, stage: str) -> Iterator[Allocate]:
        """Yield a function that allocates the arrays of a stage in its file; they are saved when the block ends.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     checkpoint = Checkpoint(folder)
        ...     with checkpoint.writing("rows") as allocate:
        ...         allocate({"data": (np.float32, (2,))})["data"][:] = 1.0
        ...     checkpoint.load("rows")["data"].tolist()
        [1.0, 1.0]
        """
        name, temporary = self._file(stage), self.folder / temporary_for("", self._token)
        with explained(self.folder / name):
            with self._made():
                self._enter([temporary.name, name])
            try:
                yield lambda layout: allocate(temporary, layout, {"key": self.key})
                replace(temporary, self.folder / name)
            finally:
                with suppress(OSError):
                    os.unlink(temporary)

    def scratch(self, layout: Layout) -> Tensors:
        """Allocate arrays in a file of the folder that has no name, and ends with the process or with the arrays."""
        with explained(self.folder), self._made(), TemporaryFile(dir=self.folder) as file:
            return allocate_in(file, layout)

    def reserve(self, stages: Sequence[str]) -> list[str]:
        """Prepare for stages that other processes will :meth:`write`; return a token for each.

        The journal then lists all their files, so that other processes need not change it, and those of processes that
        were killed before are removed.
        """
        tokens = [secrets.token_hex(8) for _ in stages]
        with explained(self.folder), self._made():
            names = [self._file(stage) for stage in stages]
            self._enter([*names, *(temporary for token in tokens for temporary in _attempts(token))])
        return tokens

    def write(self, stage: str, arrays: dict[str, np.ndarray], token: str) -> None:
        """Save a stage that was reserved, atomically; several processes may do it at the same time."""
        path = self.folder / self._file(stage)
        for temporary in _attempts(token):
            with suppress(FileExistsError):  # of an attempt that was killed, or goes on somewhere
                save_tensors(path, arrays, {"key": self.key}, self.folder / temporary)
                return
        raise BadInput(f"'{path}' was not written by any of {_MOST_ATTEMPTS} processes that tried to; run it again")

    def sweep(self) -> None:
        """Remove temporary files of processes that were killed."""
        with locked(self.folder) as is_held:
            if is_held:
                self._journal.sweep()

    def drop(self, *stages: str) -> None:
        """Remove stages, as far as they exist."""
        self._journal.remove({self._file(stage) for stage in stages})

    def clear(self) -> None:
        """Remove the stages that were saved under this key, and the folders created for them, if empty."""
        with locked(self.folder) as is_held:
            if is_held:
                self._journal.settle()
        self.release()
        for folder in reversed(self._places):
            with suppress(OSError), locked(folder) as is_held:
                if is_held:
                    remove_made(folder)

    def release(self) -> None:
        """Let other processes use the stages."""
        release(self.folder / self._journal.name)

    @property
    def _journal(self) -> Journal:
        return Journal(self.folder, _JOURNAL.format(self._mark), self._is_ours)

    def _is_ours(self, name: str) -> bool:
        return "/" not in name and (is_temporary(name) or (is_plain(name) and name.endswith(f"-{self._mark}{ARRAYS}")))

    def _file(self, stage: str) -> str:
        if not _STAGE.fullmatch(stage):
            raise BadInput(f"a stage is named by letters, digits, '_', '-' and '.', but is {stage!r}; rename it")
        return f"{stage}-{self._mark}{ARRAYS}"

    @contextmanager
    def _made(self) -> Iterator[None]:
        """Create the folder if necessary and hold its lock; try again if another run removes it meanwhile."""
        for _ in range(MANY_TRIES):
            try:
                for number, folder in enumerate(self._places):
                    make_folder(folder, parents=number == 0)
            except FileNotFoundError:  # the folder above was removed again
                continue
            with ExitStack() as lock:
                if lock.enter_context(locked(self.folder)):
                    yield
                    return
        raise FileNotFoundError(errno.ENOENT, "it is removed again and again", str(self.folder))


class Run:
    """The checkpoints of one training run, one for each of its parts, and what runs its tasks.

    Parameters
    ----------
    folder : parent of the folders of the parts; by default a temporary folder, which :meth:`clear` removes.
    engine : runs the tasks; by default this process.
    memory : bound of the resident memory.
    in_files : whether texts and their features are in files, too.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        engine: Engine | None = None,
        memory: Memory = NO_BOUND,
        *,
        in_files: bool = False,
    ) -> None:
        self._temporary = mkdtemp(prefix="umpteen-") if folder is None else None
        self.folder = Path(folder or self._temporary or "").absolute()  # the working directory may change
        self.engine, self.memory, self.in_files = engine or LocalEngine(), memory, in_files
        self._parts: list[Checkpoint] = []
        if self._temporary:
            self._end = weakref.finalize(self, shutil.rmtree, self._temporary, ignore_errors=True)

    def part(self, name: str, key: str) -> Checkpoint:
        """Return the checkpoint of a part; the key is a fingerprint of everything it depends on."""
        self._parts.append(Checkpoint(self.folder / name, key, self.folder))
        return self._parts[-1]

    @property
    def is_begun(self) -> bool:
        """Whether any run has saved stages in the folder."""
        return any(self.folder.glob(f"*/{_JOURNAL.format('*')}"))

    def release(self) -> None:
        """Let another process continue this run, which has failed or was interrupted."""
        for part in self._parts:
            part.release()

    def clear(self) -> None:
        """Remove the stages of this run."""
        for part in self._parts:
            part.clear()
        if self._temporary:
            self._end()


def _attempts(token: str) -> list[str]:
    """Return the temporary names of the processes that try to write a stage, one after the other."""
    return [temporary_for("", token, number) for number in range(_MOST_ATTEMPTS)]


def fingerprint(*parts: Any) -> str:
    """Return a digest of settings and data: arrays, bytes, or plain JSON values.

    Examples
    --------
    >>> fingerprint({"branching": 16}, ["a text"]) == fingerprint({"branching": 16}, ["another"])
    False
    """
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray) and part.dtype != object:
            head, body = f"array {part.dtype.str} {part.shape}", raw_bytes(part)
        elif isinstance(part, bytes):
            head, body = f"bytes {len(part)}", part
        else:
            try:
                body = json.dumps(part, sort_keys=True).encode()
            except (TypeError, ValueError) as error:
                raise BadInput(f"a fingerprint takes arrays, bytes or plain JSON: {error}; convert it first") from None
            head = f"json {len(body)}"
        digest.update(f"{head}\n".encode())
        digest.update(body)
    return digest.hexdigest()[:32]
