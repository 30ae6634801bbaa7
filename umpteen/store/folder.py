"""Read a model folder, whose content is not trusted. ``saving`` writes it.

    config.json                        format, version, recipe, settings, meta, and the table of files
    weights-<digest>.safetensors       arrays
    labels-<digest>.txt                one name per line, escaped
    encoder-<digest>/...               a folder of files that keep their names; it may be a model folder itself

Every file but ``config.json`` has a digest of its content in its name, so a new version never overwrites an old file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from umpteen.config.upgrade import from_format_1, from_format_2, from_format_3, from_format_4
from umpteen.errors import BadModelFile, nearest
from umpteen.store.labels import parse_labels
from umpteen.store.names import check_tree, open_inside, read_inside
from umpteen.store.table import CONFIG, LABELS, check_files, holds_arrays, stored_names
from umpteen.store.tensors import ARRAYS, Tensors, contents, damaged, decode, parse_json

FORMAT = 5  # raise it when an older umpteen could misread a new folder, and add the step to UPGRADES

# UPGRADES[n] turns a config of format n into one of format n + 1.
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: from_format_1,
    2: from_format_2,
    3: from_format_3,
    4: from_format_4,
}

_MANY_READS = 20
MOST_CONFIG = 64 * 2**20  # maximum size of config.json in bytes; a usual one has a few thousand


def read(path: str | os.PathLike[str], *, mmap: bool = True) -> Stored:
    """Open a model folder.

    With ``mmap`` the arrays are read-only views of the memory-mapped files; without, they are read into memory.
    Everything but the content of the arrays is checked.

    Raises
    ------
    BadModelFile : the folder is missing, damaged, not a model, or written by a newer version.
    """
    folder = Path(path)
    before = None
    for _ in range(_MANY_READS):
        content = config_bytes(folder)
        try:
            return Stored(folder, content, mmap=mmap)
        except FileNotFoundError as error:
            # Either a save replaced the model while it was being opened, or the file is missing.
            if content == before:
                missing = os.path.relpath(str(error.filename), folder)
                raise BadModelFile(f"model '{folder}' lacks '{missing}'; copy or save it again") from None
            before = content
        except OSError as error:
            raise BadModelFile(f"model '{folder}' cannot be read: {error}; check its permissions") from error
    raise BadModelFile(f"model '{folder}' is being replaced again and again; try again later")


def is_model(path: str | os.PathLike[str]) -> bool:
    """Return whether the folder holds an umpteen model, of any format."""
    try:
        _check_config(parse_json(config_bytes(Path(path)), path), Path(path))
    except BadModelFile:
        return False
    return True


def named(folder: Path) -> list[str]:
    """Return the files that config.json names; an empty list if there is no config.json."""
    return list(table_of(folder)) if os.path.lexists(folder / CONFIG) else []


def table_of(folder: Path) -> dict[str, int]:
    """Return the files that config.json names, with their sizes; none of them need exist."""
    document = _check_config(parse_json(config_bytes(folder), folder / CONFIG), folder)
    return dict(check_files(document["files"], folder).values())


class Stored:
    """An open model folder; later saves to the same folder do not change it.

    Attributes
    ----------
    path : the folder.
    config : ``recipe``, ``settings``, ``meta``, ``format`` and ``umpteen``, upgraded to the present format.
    """

    def __init__(
        self, folder: Path, content: bytes, *, mmap: bool, files: Mapping[str, np.ndarray] | None = None
    ) -> None:
        self.path, self._mmap = folder, mmap
        self.config = _upgrade(_check_config(parse_json(content, folder / CONFIG), folder), folder)
        self._files = check_files(self.config.pop("files"), folder)
        self._raw = {name: self._open(name, files) for name in self._files}
        self._tensors = {
            name.removesuffix(ARRAYS): decode(raw, folder / self._files[name][0])[0]
            for name, raw in self._raw.items()
            if holds_arrays(name)
        }

    def _open(self, name: str, files: Mapping[str, np.ndarray] | None) -> np.ndarray:
        """Return the bytes of a file: from ``files``, opened with the folder above, or else from disk."""
        (file, size), mmap = self._files[name], self._mmap or "/" in name
        if files is None:
            return open_file(self.path, file, size, mmap=mmap)
        if file not in files or files[file].size != size:
            raise damaged(self.path / CONFIG, f"its file {file[:80]!r} is not one that the folder above names")
        return files[file] if mmap else files[file].copy()

    def arrays(self, stem: str) -> Tensors:
        """Return the arrays of ``<stem>.safetensors`` by name."""
        if stem not in self._tensors:
            raise BadModelFile(f"model '{self.path}' has no arrays '{stem}'{nearest(stem, self._tensors)}")
        return dict(self._tensors[stem])

    @property
    def stems(self) -> list[str]:
        """Valid arguments of ``arrays``."""
        return list(self._tensors)

    @cached_property
    def labels(self) -> list[str] | None:
        """Label names in column order, or None if the model was saved without them."""
        if LABELS not in self._raw:
            return None
        return parse_labels(self._raw[LABELS].tobytes(), self.path / self._files[LABELS][0])

    @property
    def extra(self) -> list[str]:
        """Names of the files that are neither labels nor arrays."""
        return [name for name in self._files if not (name == LABELS or holds_arrays(name))]

    def content(self, name: str) -> bytes:
        """Return the content of a file."""
        if name not in self._raw:
            raise BadModelFile(f"model '{self.path}' has no file '{name}'{nearest(name, self._raw)}")
        return self._raw[name].tobytes()

    def folder(self, name: str) -> Path:
        """Return the folder of the files saved as ``name/...``; links that leave it are refused."""
        for saved, (file, _) in self._files.items():
            if saved.startswith(f"{name}/"):
                folder = self.path / PurePosixPath(file).parts[0]
                check_tree(folder)
                return folder
        raise BadModelFile(f"model '{self.path}' has no folder '{name}'")

    def inside(self, name: str) -> dict[str, np.ndarray]:
        """Return the bytes of the files saved as ``name/...``, memory-mapped, by the rest of their names."""
        return {saved.removeprefix(f"{name}/"): raw for saved, raw in self._raw.items() if saved.startswith(f"{name}/")}

    def nested(self, name: str) -> Stored:
        """Open the model folder whose files were saved as ``name/...``; it cannot refer to other files."""
        files = self.inside(name)
        if CONFIG not in files or files[CONFIG].size > MOST_CONFIG:
            raise BadModelFile(f"model '{self.path}' has no model '{name}'; copy or save it again")
        return Stored(self.folder(name), files[CONFIG].tobytes(), mmap=self._mmap, files=files)

    @property
    def size(self) -> int:
        """Total size of all files in bytes."""
        return sum(size for _, size in self._files.values())

    def verify(self) -> None:
        """Compare the content of every file with the digest in its name."""
        expected = stored_names({name: [raw.data] for name, raw in self._raw.items()})
        for name, (file, _) in self._files.items():
            if expected[name] != file:
                raise damaged(self.path / file, "its content has changed since it was saved")


def config_bytes(folder: Path) -> bytes:
    """Return the content of ``config.json``; raise BadModelFile if there is none."""
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "does not exist"
        raise BadModelFile(f"model folder '{folder}' {what}; check the path")
    try:
        return read_inside(folder, CONFIG, MOST_CONFIG)
    except FileNotFoundError:
        raise BadModelFile(
            f"'{folder}' is no umpteen model: it has no {CONFIG}; check the path, or save the model again "
            "if a save was interrupted"
        ) from None
    except OSError as error:
        raise BadModelFile(f"'{folder / CONFIG}' cannot be read: {error}; check its permissions") from error


def _check_config(document: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Check that the config was written by umpteen; its format may be newer."""
    version = document.get("format")
    has_tables = "umpteen" in document and isinstance(document.get("files"), dict)
    if not has_tables or type(version) is not int or version < 1:
        raise BadModelFile(f"'{folder}' is no umpteen model: its {CONFIG} is not one of ours; check the path")
    return document


def _upgrade(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Upgrade a config of an older format step by step."""
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


def open_file(folder: Path, name: str, size: int, *, mmap: bool) -> np.ndarray:
    """Return the bytes of a file of the folder, and check its size."""
    with open_inside(folder, name) as file:
        found = os.fstat(file.fileno()).st_size
        raw = contents(file, mmap=mmap) if found == size else np.zeros(0, np.uint8)
    if raw.size != size:
        raise damaged(folder / name, f"it has {found} bytes where {size} were saved")
    return raw
