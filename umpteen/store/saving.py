"""Save a model folder atomically.

A save lists in a journal the files that it will write and those that the new model does not need, writes the new files
beside the old ones, flushes them to disk, replaces ``config.json``, and then removes the listed files that
``config.json`` does not name. If it is killed, the old model or the new one is complete, and the next save cleans up
by the journal. During a save both models are on the disk.
"""

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from umpteen import __version__
from umpteen.errors import BadInput, BadModelFile
from umpteen.store.atomic import Buffer, atomic_write, explained, locked, sync_folder
from umpteen.store.folder import FORMAT, MOST_CONFIG, named, open_file
from umpteen.store.journal import temporary_for
from umpteen.store.labels import format_labels
from umpteen.store.names import check_name, is_linked
from umpteen.store.places import check_output, journal_of
from umpteen.store.table import CONFIG, LABELS, digest_of, holds_arrays, stored_names
from umpteen.store.tensors import ARRAYS, encode, total

_RESERVED = ("format", "umpteen", "files")

Content = bytes | Sequence[Buffer]  # of a file, in one or several parts


def write(
    path: str | os.PathLike[str],
    *,
    config: Mapping[str, Any],
    arrays: Mapping[str, Mapping[str, np.ndarray]],
    labels: Sequence[str] | None = None,
    extra: Mapping[str, Content] | None = None,
) -> None:
    """Save a model folder, replacing any model in it atomically.

    Parameters
    ----------
    path : the folder; it is created, with its parents, if necessary.
    config : ``recipe``, ``settings`` and ``meta``: plain JSON values. ``format``, ``umpteen`` (the version)
        and ``files`` are added.
    arrays : arrays by name, by file name without extension.
    labels : label names in column order.
    extra : other files by name. Files named ``folder/file`` keep their names in a folder of their own.

    Raises
    ------
    BadInput : the folder holds something other than an umpteen model, or the config is not plain JSON.
    SaveFailed : the disk is full or read-only; the old model, if any, is unchanged.

    Examples
    --------
    >>> import tempfile
    >>> from umpteen.store import read
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = f"{folder}/model"
    ...     write(model, config={"recipe": "toy"}, arrays={"weights": {"w": np.ones(2)}}, labels=["a"])
    ...     stored = read(model)
    ...     stored.config["recipe"], stored.labels, stored.arrays("weights")["w"].tolist()
    ('toy', ['a'], [1.0, 1.0])
    """
    folder = Path(path)
    files = files_of(config=config, arrays=arrays, labels=labels, extra=extra)
    check_output(folder)
    with explained(folder):
        is_new = _claim(folder)
        try:
            with locked(folder):
                check_output(folder)  # again, now that no other process can write
                _replace(folder, files)
        finally:
            if is_new:
                with suppress(OSError):
                    folder.rmdir()  # only if nothing was written


def files_of(
    *,
    config: Mapping[str, Any],
    arrays: Mapping[str, Mapping[str, np.ndarray]],
    labels: Sequence[str] | None = None,
    extra: Mapping[str, Content] | None = None,
) -> dict[str, list[Buffer]]:
    """Return the files that ``write`` writes, by their names on disk: a model folder to be saved inside another."""
    files = _collect(arrays, labels, extra or {})
    names = stored_names(files)
    text = _document(config, {name: {"file": names[name], "bytes": total(files[name])} for name in files})
    return {names[name]: parts for name, parts in files.items()} | {CONFIG: [text.encode()]}


def _collect(
    arrays: Mapping[str, Mapping[str, np.ndarray]], labels: Sequence[str] | None, extra: Mapping[str, Content]
) -> dict[str, list[Buffer]]:
    """Return all files by their plain names, as lists of parts."""
    files: dict[str, list[Buffer]] = {f"{stem}{ARRAYS}": encode(tensors) for stem, tensors in arrays.items()}
    if labels is not None:
        files[LABELS] = [format_labels(labels)]
    for name, content in extra.items():
        if name in files or name == CONFIG or holds_arrays(name):
            raise BadInput(f"an extra file cannot be called '{name}', the model needs that name; rename it")
        files[name] = [content] if isinstance(content, bytes) else list(content)
    for name in files:
        check_name(name)
    return files


def _document(config: Mapping[str, Any], files: Mapping[str, Any]) -> str:
    """Return the text of config.json."""
    taken = [key for key in _RESERVED if key in config]
    if taken:
        raise BadInput(f"the config must not hold {', '.join(taken)}: the store adds them; remove them")
    document = {"format": FORMAT, "umpteen": __version__, "recipe": "", "settings": {}, "meta": {}, **config}
    try:
        text = json.dumps({**document, "files": files}, indent=2, ensure_ascii=True, allow_nan=False) + "\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"the config must be plain JSON: {error}; convert arrays and numbers first") from None
    if len(text) > MOST_CONFIG:
        raise BadInput(f"the config may take {MOST_CONFIG:,} bytes, but takes {len(text):,}; save some of it as arrays")
    return text


def _claim(folder: Path) -> bool:
    """Create the folder if it does not exist; return whether it was created."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        if folder.is_dir():
            return False
        raise
    return True


def _replace(folder: Path, files: dict[str, list[Buffer]]) -> None:
    """Write the new files beside the old ones, then config.json, then remove the old files."""
    document = files.pop(CONFIG)
    journal, token, old = journal_of(folder), secrets.token_hex(8), named(folder)
    missing = {name: parts for name, parts in files.items() if not _holds(folder, name, parts)}
    _refuse_in_the_way(folder, missing, {*old, *journal.names()})
    temporaries = {name: temporary_for(name, token, number) for number, name in enumerate([*missing, CONFIG])}
    try:
        journal.add([*temporaries.values(), *missing, *(name for name in old if name not in files)])
        for name, parts in missing.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            atomic_write(folder / name, parts, folder / temporaries[name])
        for below in {parent for name in files for parent in (folder / name).parents}:
            if folder in below.parents:
                sync_folder(below)
        sync_folder(folder)
        atomic_write(folder / CONFIG, document, folder / temporaries[CONFIG])
    finally:
        with suppress(OSError, BadModelFile):  # if config.json cannot be read, no file is removed
            journal.settle(keep=named(folder))


def _holds(folder: Path, name: str, parts: Sequence[Buffer]) -> bool:
    """Return whether the file exists with this content: some systems cannot replace a memory-mapped file."""
    try:
        return digest_of([open_file(folder, name, total(parts), mmap=True).data]) == digest_of(parts)
    except (FileNotFoundError, NotADirectoryError, BadModelFile):
        return False


def _refuse_in_the_way(folder: Path, names: Mapping[str, Any], ours: set[str]) -> None:
    """Refuse to replace files that no save has written, and to write into a linked folder."""
    for name in names:
        if is_linked(folder, name):
            raise BadInput(f"'{(folder / name).parent}' is a link, behind which no model is saved; remove it")
        if name not in ours and os.path.lexists(folder / name):
            raise BadInput(f"'{folder / name}' is in the way and was not written by umpteen; move it elsewhere")
