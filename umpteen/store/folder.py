"""A model on disk: a folder with ``config.json`` and the files it names.

    config.json                        format, version, recipe, settings, meta, and the table of files
    weights-<digest>.safetensors       arrays
    labels-<digest>.txt                one name a line, escaped
    encoder-<digest>/...               a folder of files that keep their names

Every file but ``config.json`` carries a digest of its content in its name, so a new version never touches an
old one. A save writes the new files, makes them durable, replaces ``config.json`` in one step and only then
removes what it no longer names: killed at any moment, it leaves the old model or the new one. While it
runs, both lie on the disk.

Knows nothing about what the arrays mean.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from umpteen import __version__
from umpteen.errors import BadInput, BadModelFile, nearest
from umpteen.store.atomic import TEMPORARY, Buffer, atomic_write, explained, locked, remove, sync_folder
from umpteen.store.labels import format_labels, parse_labels
from umpteen.store.names import check_name, check_tree, is_plain, open_inside, read_inside
from umpteen.store.tensors import ARRAYS, Tensors, contents, damaged, decode, encode, parse_json, total

FORMAT = 1  # raise it when an older umpteen could misread a new folder, and add the step to UPGRADES

# UPGRADES[n] turns a config of format n into one of format n + 1.
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}

CONFIG = "config.json"
LABELS = "labels.txt"

_OURS = re.compile(r".+-[0-9a-f]{16}(\.[^-]*)?")
_DIGEST = re.compile(r"-[0-9a-f]{16}\Z")
_RESERVED = ("format", "umpteen", "files")
_MANY_READS = 20
_MOST_CONFIG = 64 * 2**20  # bytes of config.json: a table of files and settings takes a few thousand


def write(
    path: str | os.PathLike[str],
    *,
    config: Mapping[str, Any],
    arrays: Mapping[str, Mapping[str, np.ndarray]],
    labels: Sequence[str] | None = None,
    extra: Mapping[str, bytes] | None = None,
) -> None:
    """Save a model folder, replacing the model that is there, if any, in one step.

    Parameters
    ----------
    path : the folder; it is created, with its parents, if it is not there.
    config : ``recipe``, ``settings`` and ``meta``: plain JSON values. ``format``, ``umpteen`` (the version)
        and ``files`` are added.
    arrays : for each file, by its name without ending, its arrays by name.
    labels : label names, in column order.
    extra : other files by name. Files named ``folder/file`` keep their names in a folder of their own.

    Raises
    ------
    BadInput : the folder holds something that is not an umpteen model, or the config is not plain JSON.
    SaveFailed : the disk is full or read-only; the old model, if any, is unchanged.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = f"{folder}/model"
    ...     write(model, config={"recipe": "toy"}, arrays={"weights": {"w": np.ones(2)}}, labels=["a"])
    ...     stored = read(model)
    ...     stored.config["recipe"], stored.labels, stored.arrays("weights")["w"].tolist()
    ('toy', ['a'], [1.0, 1.0])
    """
    folder = Path(path)
    files = _collect(arrays, labels, extra or {})
    names = _stored_names(files)
    text = _document(config, {name: {"file": names[name], "bytes": total(files[name])} for name in files})
    with explained(folder):
        is_new = _claim(folder)
        try:
            with locked(folder):
                _refuse_foreign(folder)
                _replace(folder, {names[name]: parts for name, parts in files.items()}, text)
        finally:
            if is_new:
                with suppress(OSError):
                    folder.rmdir()  # only if nothing was written


def read(path: str | os.PathLike[str], *, mmap: bool = True) -> Stored:
    """Open a model folder.

    With ``mmap`` the arrays are read-only views of the files, so opening is instant and processes share the
    memory; without, they are read into memory. Everything but the content of the arrays is checked.

    Raises
    ------
    BadModelFile : the folder is missing, foreign, damaged, or written by a newer umpteen.
    """
    folder = Path(path)
    before = None
    for _ in range(_MANY_READS):
        content = _config_bytes(folder)
        try:
            return Stored(folder, content, mmap=mmap)
        except FileNotFoundError as error:
            # Either a save replaced the model while it was being opened, or the file is really gone.
            if content == before:
                missing = os.path.relpath(str(error.filename), folder)
                raise BadModelFile(f"model '{folder}' lacks '{missing}'; copy or save it again") from None
            before = content
        except OSError as error:
            raise BadModelFile(f"model '{folder}' cannot be read: {error}; check its permissions") from error
    raise BadModelFile(f"model '{folder}' is being replaced again and again; try again later")


def is_model(path: str | os.PathLike[str]) -> bool:
    """Say whether the folder holds an umpteen model, of any format."""
    try:
        _check_config(parse_json(_config_bytes(Path(path)), path), Path(path))
    except BadModelFile:
        return False
    return True


class Stored:
    """An open model folder: one version of it, whatever is saved there later.

    Attributes
    ----------
    path : the folder.
    config : ``recipe``, ``settings``, ``meta``, ``format`` and ``umpteen``, in this version's format.
    """

    def __init__(self, folder: Path, content: bytes, *, mmap: bool) -> None:
        self.path = folder
        self.config = _upgrade(_check_config(parse_json(content, folder / CONFIG), folder), folder)
        self._files = _check_files(self.config.pop("files"), folder)
        self._raw = {
            name: _open(folder, file, size, mmap=mmap or "/" in name) for name, (file, size) in self._files.items()
        }
        self._tensors = {
            name.removesuffix(ARRAYS): decode(raw, folder / self._files[name][0])[0]
            for name, raw in self._raw.items()
            if _holds_arrays(name)
        }

    def arrays(self, stem: str) -> Tensors:
        """Return the arrays of ``<stem>.safetensors`` by name."""
        if stem not in self._tensors:
            raise BadModelFile(f"model '{self.path}' has no arrays '{stem}'{nearest(stem, self._tensors)}")
        return dict(self._tensors[stem])

    @property
    def stems(self) -> list[str]:
        """The names ``arrays`` takes."""
        return list(self._tensors)

    @cached_property
    def labels(self) -> list[str] | None:
        """Label names in column order, or None if the model was saved without."""
        if LABELS not in self._raw:
            return None
        return parse_labels(self._raw[LABELS].tobytes(), self.path / self._files[LABELS][0])

    @property
    def extra(self) -> list[str]:
        """Names of the other files."""
        return [name for name in self._files if not (name == LABELS or _holds_arrays(name))]

    def content(self, name: str) -> bytes:
        """Return the content of another file."""
        if name not in self._raw:
            raise BadModelFile(f"model '{self.path}' has no file '{name}'{nearest(name, self._raw)}")
        return self._raw[name].tobytes()

    def folder(self, name: str) -> Path:
        """Return where the files saved as ``name/...`` lie; links that leave it are refused."""
        for saved, (file, _) in self._files.items():
            if saved.startswith(f"{name}/"):
                folder = self.path / PurePosixPath(file).parts[0]
                check_tree(folder)
                return folder
        raise BadModelFile(f"model '{self.path}' has no folder '{name}'")

    def inside(self, name: str) -> dict[str, np.ndarray]:
        """Return the bytes of the files saved as ``name/...`` by the rest of their names; they stay on disk."""
        return {saved.removeprefix(f"{name}/"): raw for saved, raw in self._raw.items() if saved.startswith(f"{name}/")}

    @property
    def size(self) -> int:
        """Bytes of all files the config names."""
        return sum(size for _, size in self._files.values())

    def verify(self) -> None:
        """Read every byte and compare it with the digest in its file's name."""
        expected = _stored_names({name: [raw.data] for name, raw in self._raw.items()})
        for name, (file, _) in self._files.items():
            if expected[name] != file:
                raise damaged(self.path / file, "its content has changed since it was saved")


def _collect(
    arrays: Mapping[str, Mapping[str, np.ndarray]], labels: Sequence[str] | None, extra: Mapping[str, bytes]
) -> dict[str, list[Buffer]]:
    """Gather every file by its plain name, as parts that need not be joined."""
    files: dict[str, list[Buffer]] = {f"{stem}{ARRAYS}": encode(tensors) for stem, tensors in arrays.items()}
    if labels is not None:
        files[LABELS] = [format_labels(labels)]
    for name, content in extra.items():
        if name in files or name == CONFIG or _holds_arrays(name):
            raise BadInput(f"an extra file cannot be called '{name}', the model needs that name; rename it")
        files[name] = [content]
    for name in files:
        check_name(name)
    return files


def _holds_arrays(name: str) -> bool:
    return name.endswith(ARRAYS) and "/" not in name


def _stored_names(files: Mapping[str, Sequence[Buffer]]) -> dict[str, str]:
    """Give every file its name on disk: a digest before the ending, or on the folder it lies in."""
    digests = {name: _digest(parts) for name, parts in files.items()}
    names = {}
    for name, digest in digests.items():
        top, slash, rest = name.partition("/")
        if slash:
            inside = [other for other in sorted(files) if other.startswith(f"{top}/")]
            folder_digest = _digest(f"{other} {digests[other]}\n".encode() for other in inside)
            names[name] = f"{top}-{folder_digest}/{rest}"
        else:
            stem, dot, ending = name.partition(".")
            names[name] = f"{stem}-{digest}{dot}{ending}"
    return names


def _digest(parts: Iterable[Buffer]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:16]


def _document(config: Mapping[str, Any], files: Mapping[str, Any]) -> str:
    """Return the text of config.json."""
    taken = [key for key in _RESERVED if key in config]
    if taken:
        raise BadInput(f"the config must not hold {', '.join(taken)}: the store adds them; remove them")
    document = {"format": FORMAT, "umpteen": __version__, "recipe": "", "settings": {}, "meta": {}, **config}
    try:
        return json.dumps({**document, "files": files}, indent=2, ensure_ascii=True, allow_nan=False) + "\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"the config must be plain JSON: {error}; convert arrays and numbers first") from None


def _claim(folder: Path) -> bool:
    """Make sure the folder is there, and say whether it was made now."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        if folder.is_dir():  # another writer may have made it just now
            return False
        raise BadInput(f"a model is saved as a folder, but '{folder}' is a file; choose another name") from None
    return True


def _refuse_foreign(folder: Path) -> None:
    """Refuse a folder with files of somebody else, unless a model already lives there."""
    entries = os.listdir(folder)
    if is_model(folder) if CONFIG in entries else all(_is_ours(entry) for entry in entries):
        return
    raise BadInput(
        f"'{folder}' is not empty and holds no umpteen model, so it is left alone; "
        "choose a new folder or empty this one first"
    )


def _replace(folder: Path, files: Mapping[str, Sequence[Buffer]], document: str) -> None:
    """Write the files beside the old ones, then let config.json name them."""
    _sweep(folder)
    try:
        for name, parts in files.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if not _holds(target, parts):
                atomic_write(target, parts)
        for below in {parent for name in files for parent in (folder / name).parents}:
            if folder in below.parents:
                sync_folder(below)
        sync_folder(folder)
        atomic_write(folder / CONFIG, document)
    finally:
        _sweep(folder)


def _holds(target: Path, parts: Sequence[Buffer]) -> bool:
    """Say whether the file is there with this content; a mapped file cannot be replaced everywhere."""
    return (
        target.is_file()
        and target.stat().st_size == total(parts)
        and _digest([_open(target.parent, target.name, total(parts), mmap=True).data]) == _digest(parts)
    )


def _sweep(folder: Path) -> None:
    """Remove what a killed or an earlier save left and config.json does not name."""
    kept = set()
    if (folder / CONFIG).exists():
        document = parse_json(_config_bytes(folder), folder / CONFIG)
        kept = {PurePosixPath(file).parts[0] for file, _ in _check_files(document["files"], folder).values()}
    for entry in os.listdir(folder):
        if entry not in kept and _is_ours(entry):
            remove(folder / entry)


def _is_ours(entry: str) -> bool:
    """Say whether only a save gives such a name."""
    return entry.startswith(TEMPORARY) or _OURS.fullmatch(entry) is not None


def _config_bytes(folder: Path) -> bytes:
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "does not exist"
        raise BadModelFile(f"model folder '{folder}' {what}; check the path")
    try:
        return read_inside(folder, CONFIG, _MOST_CONFIG)
    except FileNotFoundError:
        raise BadModelFile(
            f"'{folder}' is no umpteen model: it has no {CONFIG}; check the path, or save the model again "
            "if a save was interrupted"
        ) from None
    except OSError as error:
        raise BadModelFile(f"'{folder / CONFIG}' cannot be read: {error}; check its permissions") from error


def _check_config(document: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Check that the config is one of ours; its format may be newer."""
    version = document.get("format")
    has_tables = "umpteen" in document and isinstance(document.get("files"), dict)
    if not has_tables or type(version) is not int or version < 1:
        raise BadModelFile(f"'{folder}' is no umpteen model: its {CONFIG} is not one of ours; check the path")
    return document


def _upgrade(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Bring a config of an older format up to date, step by step."""
    version = config["format"]
    if version > FORMAT:
        raise BadModelFile(
            f"model '{folder}' was written by a newer umpteen (format {version}, this version reads up to "
            f"{FORMAT}); upgrade with pip install -U umpteen"
        )
    for step in range(version, FORMAT):
        if step not in UPGRADES:
            raise BadModelFile(f"model '{folder}' has format {step}, no longer read; train it again")
        config = {**UPGRADES[step](config), "format": step + 1}
    kinds = {"recipe": str, "settings": dict, "meta": dict}
    for key, kind in kinds.items():
        if not isinstance(config.get(key), kind):
            raise damaged(folder / CONFIG, f"its '{key}' is missing or no {kind.__name__}")
    return config


def _check_files(table: dict[str, Any], folder: Path) -> dict[str, tuple[str, int]]:
    """Check the table of files: every name is plain and lies where a save puts it, so no two share a file."""
    files, digests = {}, {}
    for name, entry in table.items():
        file, size = (entry.get("file"), entry.get("bytes")) if isinstance(entry, dict) else (None, None)
        if not isinstance(file, str) or not is_plain(name) or type(size) is not int or size < 0:
            raise damaged(folder / CONFIG, f"its entry for the file {name[:80]!r} is not valid")
        plain, digest = _without_digest(file)
        place = f"{name.partition('/')[0]}/" if "/" in name else name  # the files of a folder have one digest
        if plain != name or digests.setdefault(place, digest) != digest:
            raise damaged(folder / CONFIG, f"its file {name[:80]!r} is at {file[:80]!r}, where no save puts it")
        files[name] = (file, size)
    return files


def _without_digest(file: str) -> tuple[str, str]:
    """Undo ``_stored_names``: return a file's plain name and the digest in its name on disk; '' if it has none."""
    top, slash, rest = file.partition("/")
    stem, dot, ending = (top, "", "") if slash else top.partition(".")
    found = _DIGEST.search(stem)
    return (f"{stem[: found.start()]}{dot}{ending}{slash}{rest}", found[0]) if found else ("", "")


def _open(folder: Path, name: str, size: int, *, mmap: bool) -> np.ndarray:
    """Return the bytes of a file of the folder, which has the size that was saved."""
    with open_inside(folder, name) as file:
        found = os.fstat(file.fileno()).st_size
        raw = contents(file, mmap=mmap) if found == size else np.zeros(0, np.uint8)
    if raw.size != size:
        raise damaged(folder / name, f"it has {found} bytes where {size} were saved")
    return raw
