"""Stages of a long training run, kept so that it can go on where it stopped.

Knows stages by name; what they hold, and which comes first, is the recipe's business.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from umpteen.errors import BadInput, BadModelFile
from umpteen.store.atomic import TEMPORARY, explained, locked, remove
from umpteen.store.names import open_inside
from umpteen.store.tensors import ARRAYS, Tensors, contents, decode, raw_bytes, save_tensors

_STAGE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class Checkpoint:
    """A folder of finished stages, each a set of arrays.

    Parameters
    ----------
    folder : where the stages lie; it is created by the first ``save``.
    key : what the stages depend on, as ``fingerprint(settings, data)`` gives it. Stages saved under
        another key count as absent.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoint = Checkpoint(folder, key=fingerprint({"branching": 16}))
    ...     checkpoint.save("tree", {"parents": np.zeros(4, np.int32)})
    ...     checkpoint.has("tree"), Checkpoint(folder, key=fingerprint({"branching": 8})).has("tree")
    (True, False)
    """

    def __init__(self, folder: str | os.PathLike[str], key: str = "") -> None:
        self.folder = Path(folder)
        self.key = key

    def has(self, stage: str) -> bool:
        """Say whether the stage was finished under this key and can be read."""
        try:
            self.load(stage)
        except BadModelFile:
            return False
        return True

    def load(self, stage: str, *, mmap: bool = True) -> Tensors:
        """Return a stage's arrays, mapped (read-only) or in memory."""
        path = self._path(stage)
        try:
            with open_inside(self.folder, path.name) as file:
                arrays, metadata = decode(contents(file, mmap=mmap), path)
        except FileNotFoundError:
            raise BadModelFile(f"'{self.folder}' has no stage '{stage}'; run that stage first") from None
        except OSError as error:
            raise BadModelFile(f"'{path}' cannot be read: {error}; check its permissions") from error
        if metadata.get("key") != self.key:
            raise BadModelFile(f"'{path}' was saved with other settings or data; run the stage again")
        return arrays

    def save(self, stage: str, arrays: dict[str, np.ndarray]) -> None:
        """Keep a stage, whole or not at all; what a killed run left behind is removed."""
        path = self._path(stage)
        with explained(path):
            self.folder.mkdir(parents=True, exist_ok=True)
            with locked(self.folder):
                self._sweep()
                save_tensors(path, arrays, {"key": self.key})

    def drop(self, stage: str) -> None:
        """Remove a stage that is not needed any more, if it is there."""
        remove(self._path(stage))

    def clear(self) -> None:
        """Remove every stage, of any key, and the folder if nothing else is in it."""
        if not self.folder.is_dir():
            return
        with locked(self.folder):
            self._sweep()
            for path in self.folder.glob(f"*{ARRAYS}"):
                remove(path)
        with suppress(OSError):
            self.folder.rmdir()

    def _path(self, stage: str) -> Path:
        if not _STAGE.fullmatch(stage):
            raise BadInput(f"a stage is named by letters, digits, '_', '-' and '.', but is {stage!r}; rename it")
        return self.folder / f"{stage}{ARRAYS}"

    def _sweep(self) -> None:
        for path in self.folder.glob(f"{TEMPORARY}*{ARRAYS}"):
            remove(path)


def fingerprint(*parts: Any) -> str:
    """Return a short digest of settings and data: arrays, texts, bytes, or plain JSON values.

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
            body = _json(part)
            head = f"json {len(body)}"
        digest.update(f"{head}\n".encode())
        digest.update(body)
    return digest.hexdigest()[:32]


def _json(part: Any) -> bytes:
    try:
        return json.dumps(part, sort_keys=True).encode()
    except (TypeError, ValueError) as error:
        raise BadInput(f"a fingerprint takes arrays, bytes or plain JSON: {error}; convert it first") from None
