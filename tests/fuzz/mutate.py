"""Damage a model folder as a stranger could: arrays, headers, config.json, the table of files, labels."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from umpteen.store.tensors import encode, load_tensors

Random = np.random.Generator

_VALUES = [
    -1, 0, 1, 2, 3, 7, 255, 2**31 - 1, 2**31, 2**62, 10**30, -(2**63), 1.5, -0.0, 1e308, True, False, None, "", "7",
    "l2-hinge", "identity", "../../etc/passwd", "/etc/passwd", "\x00", [], [1], [2**40], {}, {"a": 1}, "é" * 50,
]  # fmt: skip
_TYPES = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "?")


def mutate(folder: Path, others: list[Path], rng: Random) -> str:
    """Damage the model in ``folder``, or one inside an ensemble, in one to three ways; return what was done."""
    done = []
    inside = sorted(path.parent for path in folder.glob("model-*/config.json"))
    target = inside[rng.integers(len(inside))] if inside and rng.random() < 0.7 else folder
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        way = _WAYS[rng.choice(len(_WAYS), p=_ODDS)]
        done.append(f"{way.__name__}: {way(target, others, rng)}")
    if target is not folder:
        _restate_sizes(folder)
    return "; ".join(done)


def _restate_sizes(folder: Path) -> None:
    """Let the table of an ensemble have the sizes that the files of its models have now."""
    document = _config(folder)
    for entry in document["files"].values():
        entry["bytes"] = (folder / entry["file"]).stat().st_size
    _write(folder, document)


def _config(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())


def _write(folder: Path, document: Any) -> None:
    (folder / "config.json").write_text(json.dumps(document))


def _replace(folder: Path, name: str, content: bytes) -> None:
    """Give a file of the table another content, and its new size to the table."""
    document = _config(folder)
    entry = document["files"][name]
    (folder / entry["file"]).write_bytes(content)
    entry["bytes"] = len(content)
    _write(folder, document)


def _pick(folder: Path, rng: Random, ending: str = "") -> tuple[str, Path]:
    files = _config(folder)["files"]
    names = [name for name in sorted(files) if name.endswith(ending)]
    name = names[rng.integers(len(names))]
    return name, folder / files[name]["file"]


def arrays(folder: Path, _: list[Path], rng: Random) -> str:
    """Change one array and leave the file valid."""
    name, path = _pick(folder, rng, ".safetensors")
    tensors = {key: value.copy() for key, value in load_tensors(path, mmap=False).items()}
    key = sorted(tensors)[rng.integers(len(tensors))]
    change = _CHANGES[rng.integers(len(_CHANGES))]
    tensors[key] = change(tensors[key], rng)
    _replace(folder, name, b"".join(bytes(part) for part in encode(tensors)))
    return f"{name} {key} {change.__name__}"


def _place(array: np.ndarray, rng: Random) -> Any:
    return np.unravel_index(rng.integers(array.size), array.shape) if array.size else ()


def _extreme(array: np.ndarray, rng: Random, most: bool) -> np.ndarray:
    if array.dtype.kind == "b" or not array.size:
        return array
    limits = np.finfo(array.dtype) if array.dtype.kind == "f" else np.iinfo(array.dtype)
    value = limits.max if most else limits.min
    if rng.random() < 0.5:
        array[_place(array, rng)] = value
    else:
        array[...] = value
    return array


def largest(array: np.ndarray, rng: Random) -> np.ndarray:
    return _extreme(array, rng, True)


def least(array: np.ndarray, rng: Random) -> np.ndarray:
    return _extreme(array, rng, False)


def slightly(array: np.ndarray, rng: Random) -> np.ndarray:
    for _ in range(rng.integers(1, 4)):
        if array.size and array.dtype.kind != "b":
            at = _place(array, rng)
            array[at] = array[at] + array.dtype.type(rng.integers(1, 3))
    return array


def random(array: np.ndarray, rng: Random) -> np.ndarray:
    raw = rng.integers(0, 256, max(array.nbytes, 1), np.uint8)[: array.nbytes]
    return raw.view(array.dtype).reshape(array.shape)


def not_a_number(array: np.ndarray, rng: Random) -> np.ndarray:
    if array.dtype.kind == "f" and array.size:
        array[_place(array, rng)] = rng.choice([np.nan, np.inf, -np.inf])
    return array


def halved(array: np.ndarray, rng: Random) -> np.ndarray:
    return array[: len(array) // 2] if array.ndim else array


def emptied(array: np.ndarray, rng: Random) -> np.ndarray:
    return array[:0] if array.ndim else array


def doubled(array: np.ndarray, rng: Random) -> np.ndarray:
    return np.concatenate([array, array]) if array.ndim else array


def shuffled(array: np.ndarray, rng: Random) -> np.ndarray:
    return rng.permutation(array) if array.ndim else array


def zeroed(array: np.ndarray, rng: Random) -> np.ndarray:
    return np.zeros_like(array)


def another_type(array: np.ndarray, rng: Random) -> np.ndarray:
    with np.errstate(all="ignore"):
        return array.astype(_TYPES[rng.integers(len(_TYPES))])


def another_view(array: np.ndarray, rng: Random) -> np.ndarray:
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    kind = np.dtype(_TYPES[rng.integers(len(_TYPES))])
    return raw[: raw.size // kind.itemsize * kind.itemsize].view(kind)


def another_shape(array: np.ndarray, rng: Random) -> np.ndarray:
    flat = array.reshape(-1)
    shapes = [(1, flat.size), (flat.size, 1), (flat.size,), (0, flat.size)]
    shape = shapes[rng.integers(len(shapes))]
    return flat.reshape(shape) if 0 not in shape else np.empty(shape, array.dtype)


_CHANGES: list[Callable[[np.ndarray, Random], np.ndarray]] = [
    largest, least, slightly, slightly, random, not_a_number, halved, emptied, doubled, shuffled, zeroed, another_type,
    another_view, another_shape,
]  # fmt: skip


def missing_array(folder: Path, _: list[Path], rng: Random) -> str:
    """Leave an array out, or give it another's name."""
    name, path = _pick(folder, rng, ".safetensors")
    tensors = load_tensors(path, mmap=False)
    keys = sorted(tensors)
    one, two = keys[rng.integers(len(keys))], keys[rng.integers(len(keys))]
    taken = tensors.pop(one)
    if rng.random() < 0.5:
        tensors[two if rng.random() < 0.5 else f"starts-{rng.integers(9)}"] = taken
    _replace(folder, name, b"".join(bytes(part) for part in encode(tensors)))
    return f"{name} {one} {two}"


def header(folder: Path, _: list[Path], rng: Random) -> str:
    """Change bytes of the header of a file of arrays."""
    name, path = _pick(folder, rng, ".safetensors")
    content = bytearray(path.read_bytes())
    end = 8 + int.from_bytes(content[:8], "little")
    for _ in range(rng.integers(1, 4)):
        content[rng.integers(end)] = rng.choice([*b'0123456789"{}[],:-', int(rng.integers(256))])
    path.write_bytes(content)
    return name


def body(folder: Path, _: list[Path], rng: Random) -> str:
    """Change bytes anywhere in a file."""
    name, path = _pick(folder, rng)
    content = bytearray(path.read_bytes())
    for _ in range(rng.integers(1, 20)):
        if content:
            content[rng.integers(len(content))] = rng.integers(256)
    path.write_bytes(content)
    return name


def truncated(folder: Path, _: list[Path], rng: Random) -> str:
    """Cut a file short or make it longer; half the time its size in the table follows."""
    name, path = _pick(folder, rng)
    content = path.read_bytes()
    content = content[: rng.integers(len(content) + 1)] if rng.random() < 0.7 else content + content[:64]
    if rng.random() < 0.5:
        _replace(folder, name, content)
    else:
        path.write_bytes(content)
    return name


def settings(folder: Path, _: list[Path], rng: Random) -> str:
    """Replace a value of config.json, at any depth."""
    document = _config(folder)
    table, keys = document, []
    while True:
        found = sorted(table)
        keys.append(found[rng.integers(len(found))])
        if not isinstance(table[keys[-1]], dict) or not table[keys[-1]] or rng.random() < 0.05:
            break
        table = table[keys[-1]]
    value = _VALUES[rng.integers(len(_VALUES))]
    if rng.random() < 0.1:
        del table[keys[-1]]
    else:
        table[keys[-1]] = value
    _write(folder, document)
    return f"{'.'.join(keys)} = {value!r}"


def counts(folder: Path, _: list[Path], rng: Random) -> str:
    """Replace a number of config.json that arrays have to fit."""
    document = _config(folder)
    key = ["n_labels", "n_features", "trees"][rng.integers(3)]
    value = _VALUES[rng.integers(len(_VALUES))] if rng.random() < 0.7 else document["meta"][key] + rng.choice([-1, 1])
    document["meta"][key] = value if isinstance(value, (str, list, dict, type(None), bool, float)) else int(value)
    _write(folder, document)
    return f"{key} = {value!r}"


def files(folder: Path, _: list[Path], rng: Random) -> str:
    """Let the table name another file, or one that does not exist, or none."""
    document = _config(folder)
    table = document["files"]
    names = sorted(table)
    one, two = names[rng.integers(len(names))], names[rng.integers(len(names))]
    way = rng.integers(5)
    if way == 0:
        table[one], table[two] = table[two], table[one]
    elif way == 1:
        table[one]["file"] = _VALUES[rng.integers(len(_VALUES))]
    elif way == 2:
        table[one]["bytes"] = _VALUES[rng.integers(len(_VALUES))]
    elif way == 3:
        del table[one]
    else:
        table[f"tree-{rng.integers(5)}.safetensors"] = table[one]
    _write(folder, document)
    return f"{one} {two} {way}"


def labels(folder: Path, _: list[Path], rng: Random) -> str:
    """Change the lines of a file of names."""
    names = [name for name in _config(folder)["files"] if name.endswith(".txt")]
    if not names:
        return "none"
    name = names[rng.integers(len(names))]
    lines = (folder / _config(folder)["files"][name]["file"]).read_bytes().split(b"\n")
    at = rng.integers(len(lines))
    change = [[lines[0]], [], [b"\\u12"], [b"\xff\xfe"], [b""], [lines[at], lines[at]], [b"x" * 10_000]][
        rng.integers(7)
    ]
    lines[at : at + 1] = change
    _replace(folder, name, b"\n".join(lines))
    return f"{name} {at}"


def swapped(folder: Path, others: list[Path], rng: Random) -> str:
    """Take a file of another model."""
    other = others[rng.integers(len(others))]
    theirs, path = _pick(other, rng)
    name = theirs if theirs in _config(folder)["files"] else _pick(folder, rng)[0]
    _replace(folder, name, path.read_bytes())
    return f"{name} from {other.name}/{theirs}"


def text(folder: Path, _: list[Path], rng: Random) -> str:
    """Change bytes of config.json."""
    content = bytearray((folder / "config.json").read_bytes())
    for _ in range(rng.integers(1, 3)):
        content[rng.integers(len(content))] = rng.choice([*b'0123456789"{}[],:-', int(rng.integers(256))])
    (folder / "config.json").write_bytes(content)
    return ""


_WAYS: list[Callable[[Path, list[Path], Random], str]] = [
    arrays, missing_array, header, body, truncated, settings, counts, files, labels, swapped, text,
]  # fmt: skip
_ODDS = np.array([30, 3, 5, 5, 5, 12, 5, 5, 4, 5, 3]) / 82


def damaged_copy(seeds: Path, names: list[str], folder: Path, rng: Random) -> tuple[str, str]:
    """Copy one of the models to ``folder`` and damage it; return its name and what was done."""
    name = names[rng.integers(len(names))]
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(seeds / name, folder)
    while True:
        try:
            return name, mutate(folder, [seeds / other for other in names], rng)
        except (LookupError, TypeError, ValueError, OSError, AttributeError):  # already too damaged to damage further
            continue
