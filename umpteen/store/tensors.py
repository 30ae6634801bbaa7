"""The safetensors format: eight bytes of length, a JSON header, the arrays end to end.

The reader checks the whole header. It maps the file, while the numpy reader of the safetensors package copies it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from umpteen.errors import BadInput, BadModelFile
from umpteen.store.atomic import Buffer, atomic_write
from umpteen.store.mapped import mapped, reserve

ARRAYS = ".safetensors"
METADATA = "__metadata__"
ALIGNMENT = 64  # bytes: a cache line, and the widest vector register
MAX_HEADER = 100_000_000  # bytes: the limit of the reference implementation

DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1",
    "BOOL": "|b1",
}  # fmt: skip
_CODES = {np.dtype(spelling): code for code, spelling in DTYPES.items()}
_BF16 = "BF16"  # not a numpy type: read as float32, never written

Tensors = dict[str, np.ndarray]
Layout = Mapping[str, tuple[type, tuple[int, ...]]]  # type and shape of arrays, by name
Allocate = Callable[[Layout], Tensors]  # makes arrays to be filled, in memory or in a file


class Pieces(NamedTuple):
    """An array that is written piece by piece; the pieces must have its length together."""

    dtype: np.dtype
    shape: tuple[int, ...]
    arrays: Iterable[np.ndarray]


class _Place(NamedTuple):
    """Type, shape and position of an array; offsets are relative to the end of the header."""

    name: str
    code: str
    shape: tuple[int, ...]
    begin: int
    end: int


def encode(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> list[Buffer]:
    """Return the bytes of a safetensors file in parts; the arrays among them are not copied."""
    arrays = {name: _writable(name, array) for name, array in tensors.items()}
    order, text, _ = _describe({name: (array.dtype, array.shape) for name, array in arrays.items()}, metadata)
    return [len(text).to_bytes(8, "little"), text, *(raw_bytes(arrays[name]) for name in order)]


def encode_pieces(pieces: Mapping[str, Pieces], metadata: Mapping[str, str] | None = None) -> Iterator[Buffer]:
    """Yield the bytes of a safetensors file whose arrays are made piece by piece, in the order of the file."""
    order, text, _ = _describe({name: (array.dtype, array.shape) for name, array in pieces.items()}, metadata)
    yield len(text).to_bytes(8, "little") + text
    for name in order:
        kind, shape, arrays = pieces[name]
        missing = kind.itemsize * math.prod(shape)
        for piece in arrays:
            content = raw_bytes(piece.astype(kind, copy=False))
            missing -= len(content)
            yield content
        if missing:
            raise BadInput(
                f"the pieces of '{name}' do not have its length; what is read twice must not change meanwhile"
            )


def in_memory(layout: Layout) -> Tensors:
    """Allocate arrays in memory.

    Examples
    --------
    >>> in_memory({"rows": (np.int32, (3,))})["rows"].shape
    (3,)
    """
    return {name: np.empty(shape, dtype) for name, (dtype, shape) in layout.items()}


def allocate(path: str | os.PathLike[str], layout: Layout, metadata: Mapping[str, str] | None = None) -> Tensors:
    """Create a safetensors file and return its arrays as writable maps, to be filled; their content is undefined.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     arrays = allocate(f"{folder}/a.safetensors", {"ids": (np.int64, (3,))})
    ...     arrays["ids"][:] = 7
    ...     load_tensors(f"{folder}/a.safetensors")["ids"].tolist()
    [7, 7, 7]
    """
    with open(path, "x+b") as file:
        return allocate_in(file, layout, metadata)


def allocate_in(file: Any, layout: Layout, metadata: Mapping[str, str] | None = None) -> Tensors:
    """Make an empty file that is open a safetensors file, as :func:`allocate` does."""
    _, text, size = _describe({name: (np.dtype(dtype), shape) for name, (dtype, shape) in layout.items()}, metadata)
    file.write(len(text).to_bytes(8, "little") + text)
    file.flush()
    reserve(file.fileno(), 8 + len(text) + size)
    return decode(mapped(np.memmap(file, dtype=np.uint8, mode="r+")), str(file.name))[0]


def _describe(
    layout: Mapping[str, tuple[np.dtype, tuple[int, ...]]], metadata: Mapping[str, str] | None
) -> tuple[list[str], bytes, int]:
    """Return the order of arrays in a file, its header, and the bytes of all arrays."""
    # The format allows no gaps, so the widest types come first: then every array is aligned to its type.
    order = sorted(layout, key=lambda name: (-layout[name][0].itemsize, name))
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    end = 0
    for name in order:
        dtype, shape = layout[name]
        begin, end = end, end + dtype.itemsize * math.prod(shape)
        header[name] = {"dtype": _CODES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    if len(text) > MAX_HEADER:
        raise BadInput(f"a file holds {MAX_HEADER} bytes of names, but these take {len(text)}; use more files")
    return order, text, end


def decode(raw: np.ndarray, source: str | os.PathLike[str]) -> tuple[Tensors, dict[str, str]]:
    """Return the arrays in ``raw`` (uint8) as views of it, and the file's metadata.

    Raises BadModelFile, naming ``source``, unless the header, every size and every offset agree.
    """
    start, header = _header(raw, source)
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict):
        raise damaged(source, "its metadata is no table")
    places = [_place(name, entry, source) for name, entry in header.items()]
    places.sort(key=lambda place: (place.begin, place.end))
    end = 0
    for place in places:
        if place.begin != end:
            raise damaged(source, f"array '{place.name}' starts at byte {place.begin}, not {end}")
        end = place.end
    if start + end != raw.size:
        raise damaged(source, f"its header describes {start + end} bytes, but it has {raw.size}")
    return {place.name: _view(raw[start:], place, source) for place in places}, metadata


def save_tensors(
    path: str | os.PathLike[str],
    tensors: Mapping[str, np.ndarray],
    metadata: Mapping[str, str] | None = None,
    temporary: Path | None = None,
) -> None:
    """Write arrays to a safetensors file atomically.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_tensors(f"{folder}/a.safetensors", {"ids": np.arange(3)})
    ...     load_tensors(f"{folder}/a.safetensors")["ids"].tolist()
    [0, 1, 2]
    """
    atomic_write(path, encode(tensors, metadata), temporary)


def load_tensors(path: str | os.PathLike[str], *, mmap: bool = True) -> Tensors:
    """Read a safetensors file, as read-only views of the mapped file or into memory."""
    return load_with_metadata(path, mmap=mmap)[0]


def load_with_metadata(path: str | os.PathLike[str], *, mmap: bool = True) -> tuple[Tensors, dict[str, str]]:
    """Read the arrays and the metadata of a safetensors file, as :func:`load_tensors` does."""
    with open(path, "rb") as file:
        return decode(contents(file, mmap=mmap), path)


def contents(file: BinaryIO, *, mmap: bool, writable: bool = False) -> np.ndarray:
    """Return the bytes of an open file, mapped (read-only) or in memory (writable).

    With ``writable`` a mapped array can be written to as well, which does not change the file.
    """
    size = os.fstat(file.fileno()).st_size
    if not mmap:
        return np.fromfile(file, dtype=np.uint8, count=size)
    if size == 0:  # an empty file cannot be mapped
        return np.zeros(0, dtype=np.uint8)
    return mapped(np.memmap(file, dtype=np.uint8, mode="c" if writable else "r"))


def _writable(name: str, array: np.ndarray) -> np.ndarray:
    """Check name and type of an array, and return it little-endian and contiguous."""
    if not isinstance(name, str) or name == METADATA:
        raise BadInput(f"arrays have names other than '{METADATA}', but one is called {name!r}; rename it")
    array = np.asarray(array, order="C")
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    if array.dtype not in _CODES:
        raise BadInput(f"array '{name}' must hold real numbers or booleans, but is {array.dtype}; convert it")
    return array


def _header(raw: np.ndarray, source: str | os.PathLike[str]) -> tuple[int, dict[str, Any]]:
    """Return the offset of the first array, and the parsed header."""
    if raw.size < 8:
        raise damaged(source, f"it has only {raw.size} bytes")
    length = int.from_bytes(raw[:8].tobytes(), "little")
    if length > min(MAX_HEADER, raw.size - 8):
        raise damaged(source, f"its header should have {length} bytes, but the whole file has {raw.size}")
    return 8 + length, parse_json(raw[8 : 8 + length].tobytes(), source)


def damaged(source: str | os.PathLike[str], why: str) -> BadModelFile:
    """Return the exception for a damaged file."""
    return BadModelFile(f"'{source}' is truncated or damaged: {why}; copy or save the model again")


def parse_json(content: bytes, source: str | os.PathLike[str]) -> dict[str, Any]:
    """Parse a JSON object; raise BadModelFile, naming ``source``, if it is damaged."""
    table = parse_document(content, source)
    if not isinstance(table, dict):
        raise damaged(source, "its JSON is no table")
    return table


def parse_document(content: bytes, source: str | os.PathLike[str]) -> Any:
    """Parse a JSON value; raise BadModelFile, naming ``source``, if it is damaged."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise damaged(source, f"it holds no valid JSON ({error})") from None


def _place(name: str, entry: Any, source: str | os.PathLike[str]) -> _Place:
    """Check an entry of the header."""
    if not isinstance(entry, dict) or not entry.keys() >= {"dtype", "shape", "data_offsets"}:
        raise damaged(source, f"array '{name}' lacks its dtype, shape or data_offsets")
    code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(code, str) or (code not in DTYPES and code != _BF16):
        raise damaged(source, f"array '{name}' has the unknown dtype {str(code)[:80]!r}")
    if not _counts(shape) or not _counts(offsets) or len(offsets) != 2:
        raise damaged(source, f"array '{name}' has no valid shape or offsets")
    begin, end = offsets
    itemsize = 2 if code == _BF16 else np.dtype(DTYPES[code]).itemsize
    if end - begin != math.prod(shape) * itemsize:
        raise damaged(source, f"array '{name}' of shape {shape} and dtype {code} cannot take {end - begin} bytes")
    return _Place(name, code, tuple(shape), begin, end)


def _counts(values: Any) -> bool:
    """Return whether this is a list of integers that can be sizes."""
    return (
        isinstance(values, list)
        and len(values) <= 64
        and all(type(value) is int and 0 <= value < 2**63 for value in values)
    )


def _view(body: np.ndarray, place: _Place, source: str | os.PathLike[str]) -> np.ndarray:
    raw = body[place.begin : place.end]
    try:
        if place.code == _BF16:
            return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32).reshape(place.shape)
        array = raw.view(DTYPES[place.code]).reshape(place.shape)
    except ValueError as error:  # more dimensions than numpy has, or an empty array of impossible shape
        raise damaged(source, f"array '{place.name}': {error}") from None
    # Other writers may not align arrays; kernels need it.
    return array if array.flags.aligned else array.copy()


def raw_bytes(array: np.ndarray) -> memoryview:
    """Return the bytes of an array in C order, without a copy if it is contiguous."""
    return np.asarray(array, order="C").reshape(-1).view(np.uint8).data


def total(parts: Iterable[Buffer]) -> int:
    """Return the total number of bytes."""
    return sum(len(part) for part in parts)
