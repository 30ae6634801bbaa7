"""Read the lines of UTF-8 files, plain or compressed (gzip, xz, bzip2; zstd where Python has it).

Lines end with ``\\n`` or ``\\r\\n``, not with a single ``\\r`` or other separators of Unicode, which occur in texts.
Only in a file without any ``\\n`` do lines end with ``\\r``.
"""

import bz2
import gzip
import importlib
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from umpteen.errors import BadInput

_BUFFER = 1 << 20


def _zstd_module() -> Any:
    """Return the module of the standard library, which has it from Python 3.14 on; else None."""
    try:
        return importlib.import_module("compression.zstd")
    except ImportError:
        return None


_ZSTD = _zstd_module()
_OPENERS: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
_DAMAGED: tuple[type[Exception], ...] = (lzma.LZMAError, gzip.BadGzipFile, zlib.error)
if _ZSTD is not None:
    _OPENERS[".zst"] = _ZSTD.open
    _DAMAGED += (_ZSTD.ZstdError,)
PACKINGS = ("", *_OPENERS)
PACKED = " or ".join(", ".join(_OPENERS).rsplit(", ", 1))  # for messages


@contextmanager
def open_bytes(path: Path | str) -> Iterator[BinaryIO]:
    """Open a file for reading, decompressed; errors while it is read become ``BadInput``."""
    path = Path(path)
    kind = path.suffix.lower()
    if kind == ".zst" and _ZSTD is None:
        raise BadInput(f"{path} needs Python 3.14 or newer, which can read zstd; compress it as {PACKED}")
    opener = _OPENERS.get(kind, open)
    try:
        with opener(path, "rb") as packed, io.BufferedReader(packed, _BUFFER) as stream:
            yield stream
    except FileNotFoundError as error:
        raise missing(path) from error
    except EOFError as error:
        raise BadInput(f"{path} is truncated: its compressed data stops early; fetch it again") from error
    except _DAMAGED as error:
        raise BadInput(f"{path} is not a sound {kind[1:]} file ({error}); fetch it again") from error
    except OSError as error:
        if kind == ".bz2" and error.errno is None:  # how bz2 reports damage
            raise BadInput(f"{path} is not a sound bz2 file ({error}); fetch it again") from error
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from error


def open_text(path: Path | str) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, without line ends; ``-`` is standard input."""
    if str(path) == "-":
        if sys.stdin is None:
            raise BadInput("standard input is closed; name a file, or pipe lines in")
        yield from chain.from_iterable(arriving_lines(sys.stdin.buffer))
        return
    with open_bytes(path) as stream:
        yield from chain.from_iterable(_decoded(line_blocks(partial(stream.read, _BUFFER)), str(path)))


def arriving_lines(stream: BinaryIO) -> Iterator[list[str]]:
    """Yield the lines of standard input in blocks, as they arrive."""
    return _decoded(line_blocks(partial(stream.read1, _BUFFER)), "standard input")


def line_blocks(read: Callable[[], bytes]) -> Iterator[bytes]:
    """Yield blocks of complete lines; a missing newline at the end is added."""
    rest: list[bytes] = []
    has_newlines = False
    while block := read():
        end = block.rfind(b"\n") + 1
        if end:
            has_newlines = True
            yield b"".join((*rest, block[:end]))
            rest = [block[end:]]
        else:
            rest.append(block)
    last = b"".join(rest)
    if last:
        yield (last if has_newlines else last.removesuffix(b"\r").replace(b"\r", b"\n")) + b"\n"


def find_packed(folder: Path, name: str) -> Path | None:
    """Return ``folder/name``, or the same with the suffix of a compressed file, if it exists."""
    for packing in PACKINGS:
        path = folder / (name + packing)
        if path.is_file():
            return path
    return None


def plain_suffix(path: Path) -> str:
    """Return the suffix of a file in lower case, without that of compression."""
    name = path.name.lower()
    for packing in (*PACKINGS[1:], ".zst"):
        name = name.removesuffix(packing)
    return Path(name).suffix


def listing(folder: Path) -> str:
    """List the content of a folder for an error message."""
    try:
        names = sorted(entry.name + "/" * entry.is_dir() for entry in folder.iterdir())
    except OSError:
        return f"{folder} cannot be listed"
    if not names:
        return f"{folder} is empty"
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return f"{folder} holds {', '.join(names[:12])}{more}"


def missing(path: Path) -> BadInput:
    """Return the exception for a file or folder that does not exist."""
    around = listing(path.parent) if path.parent.is_dir() else f"nor does the folder {path.parent}"
    return BadInput(f"{path} does not exist; {around}")


def _decoded(blocks: Iterator[bytes], where: str) -> Iterator[list[str]]:
    """Decode blocks of lines, which is many times faster than decoding single lines."""
    done = 0
    for block in blocks:
        if done == 0:
            block = block.removeprefix(b"\xef\xbb\xbf")  # byte-order mark
        try:
            text = block.decode()
        except UnicodeDecodeError as error:
            line = done + 1 + block.count(b"\n", 0, error.start)
            raise BadInput(f"{where}:{line}: this line is not UTF-8; convert the file first") from error
        lines = text.split("\n")
        lines.pop()  # after the last newline
        done += len(lines)
        yield lines if "\r" not in text else [line.removesuffix("\r") for line in lines]
