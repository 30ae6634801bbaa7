"""Files as lines: plain, gzip or xz, UTF-8, one at a time, with errors that name file and line.

Knows nothing about what the lines mean. Lines end at ``\\n`` or ``\\r\\n`` and nowhere else: a lone ``\\r`` and
Unicode's other separators occur inside texts. Only where there is no ``\\n`` at all do lines end at ``\\r``.
"""

from __future__ import annotations

import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from umpteen.errors import BadInput

PACKINGS = ("", ".gz", ".xz")
_BUFFER = 1 << 20


@contextmanager
def open_bytes(path: Path | str) -> Iterator[BinaryIO]:
    """Open a file for reading, unpacked; what goes wrong while it is read becomes ``BadInput``."""
    path = Path(path)
    opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix.lower(), open)
    try:
        with opener(path, "rb") as packed, io.BufferedReader(packed, _BUFFER) as stream:
            yield stream
    except FileNotFoundError as error:
        raise BadInput(f"{path} does not exist; {_neighbours(path.parent)}") from error
    except EOFError as error:
        raise BadInput(f"{path} is truncated: its compressed data stops early; fetch it again") from error
    except (lzma.LZMAError, gzip.BadGzipFile, zlib.error) as error:
        raise BadInput(f"{path} is not a sound {path.suffix[1:]} file ({error}); fetch it again") from error
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from error


def open_text(path: Path | str) -> Iterator[str]:
    """Walk the lines of a UTF-8 file, packed or plain, without their ends; ``-`` is standard input."""
    if str(path) == "-":
        yield from _decoded(_typed_lines(), "standard input")
        return
    with open_bytes(path) as stream:
        yield from _decoded(line_blocks(stream), str(path))


def line_blocks(stream: BinaryIO, size: int = _BUFFER) -> Iterator[bytes]:
    """Cut a stream into blocks of whole lines; the last gets a newline if it has none."""
    rest: list[bytes] = []
    found = False
    while block := stream.read(size):
        cut = block.rfind(b"\n") + 1
        if cut:
            found = True
            yield b"".join((*rest, block[:cut]))
            rest = [block[cut:]]
        else:
            rest.append(block)
    last = b"".join(rest)
    if last:
        yield (last if found else with_newlines(last)) + b"\n"


def with_newlines(content: bytes) -> bytes:
    """Put ``\\n`` in the place of ``\\r`` in all that came, which has no ``\\n``; one at the very end is left out."""
    return content.removesuffix(b"\r").replace(b"\r", b"\n")


def find_packed(folder: Path, name: str) -> Path | None:
    """Return ``folder/name`` or its ``.gz`` or ``.xz`` form, whichever there is."""
    for packing in PACKINGS:
        path = folder / (name + packing)
        if path.is_file():
            return path
    return None


def plain_suffix(path: Path) -> str:
    """Return a file's suffix in lower case, looking through ``.gz`` and ``.xz``."""
    name = path.name.lower()
    for packing in PACKINGS[1:]:
        name = name.removesuffix(packing)
    return Path(name).suffix


def listing(folder: Path) -> str:
    """Say what a folder holds, for messages."""
    try:
        names = sorted(entry.name + "/" * entry.is_dir() for entry in folder.iterdir())
    except OSError:
        return f"{folder} cannot be listed"
    if not names:
        return f"{folder} is empty"
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return f"{folder} holds {', '.join(names[:12])}{more}"


def _neighbours(folder: Path) -> str:
    return listing(folder) if folder.is_dir() else f"nor does the folder {folder}"


def _typed_lines() -> Iterator[bytes]:
    """Walk standard input line by line: somebody may be waiting for each answer."""
    if sys.stdin is None:
        raise BadInput("standard input is closed; name a file, or pipe lines in")
    for number, line in enumerate(sys.stdin.buffer):
        if line.endswith(b"\n"):
            yield line
        else:  # the last one, and if it is the first too there is no newline at all
            yield (line if number else with_newlines(line)) + b"\n"


def _decoded(blocks: Iterator[bytes], where: str) -> Iterator[str]:
    """Decode block by block, which is many times faster than line by line."""
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
        lines.pop()  # what follows the last newline
        done += len(lines)
        yield from lines if "\r" not in text else (line.removesuffix("\r") for line in lines)
