"""Texts that are whole files: the documents of a folder, a single file, or standard input."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from umpteen.data.lines import PACKED, missing, open_bytes, plain_suffix
from umpteen.errors import BadInput

MAX_BYTES = 1 << 27  # of one document, decompressed: a file that unpacks without end must not fill the memory
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def stream_documents(
    path: str | os.PathLike[str], unreadable: Callable[[BadInput], None] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each document of a folder, or of a single file; ``-`` is standard input.

    The documents of a folder are its ``.txt`` files, also compressed, and those of its sub-folders, in the order of
    their names; their names are relative to the folder, with ``/`` between the parts. Hidden files and folders are
    left out, and symbolic links to folders are not followed.

    A document that cannot be read, because it is not UTF-8 for example, raises BadInput. With ``unreadable`` this is
    called with the error instead, and the other documents of the folder follow.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "b.txt").write_text("a red apple")
    ...     _ = Path(folder, "a.txt").write_text("a green\\npear")
    ...     list(stream_documents(folder))
    [('a.txt', 'a green\\npear'), ('b.txt', 'a red apple')]
    """
    folder = Path(path)
    if str(path) == "-":
        yield "-", read_document("-")
    elif not folder.is_dir():
        yield str(path), read_document(folder)
    else:
        is_empty = True
        for document in find_documents(folder):
            is_empty = False
            try:
                text = read_document(document)
            except BadInput as error:
                if unreadable is None:
                    raise
                unreadable(error)
                continue
            yield document.relative_to(folder).as_posix(), text
        if is_empty:
            raise BadInput(f"{folder} has no documents; put .txt files into it (also {PACKED})")


def find_documents(folder: Path) -> Iterator[Path]:
    """Yield the paths of the ``.txt`` files of a folder and of its sub-folders, sorted by name."""
    waiting = [folder]
    while waiting:
        path = waiting.pop()
        if path is not folder and not path.is_dir():
            yield path
            continue
        try:
            entries = sorted(os.scandir(path), key=lambda entry: entry.name, reverse=True)
        except OSError as error:
            raise BadInput(f"the folder {path} cannot be listed: {error.strerror or error}") from error
        waiting += [path / entry.name for entry in entries if _is_wanted(entry)]


def read_document(path: Path | str) -> str:
    """Read a UTF-8 file, plain or compressed, as one text; ``-`` is standard input."""
    if str(path) == "-":
        if sys.stdin is None:
            raise BadInput("the text is read from standard input, but that is closed; name a file, or pipe a text in")
        return _decode(sys.stdin.buffer.read(MAX_BYTES + 1), "standard input")
    if Path(path).is_dir():
        raise BadInput(f"{path} is a folder, but one document was expected; name a file")
    with open_bytes(path) as stream:
        return _decode(stream.read(MAX_BYTES + 1), str(path))


def _is_wanted(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a document or a folder to look into."""
    if entry.name.startswith("."):
        return False
    if entry.is_dir(follow_symlinks=False):
        return True
    if plain_suffix(Path(entry.name)) != ".txt" or entry.is_dir():
        return False
    if entry.is_symlink() and not os.path.exists(entry.path):
        raise missing(Path(entry.path))
    return entry.is_file()  # pipes and devices are never opened


def _decode(content: bytes, where: str) -> str:
    if len(content) > MAX_BYTES:
        raise BadInput(f"{where} is larger than {MAX_BYTES >> 20} MiB, too large for one document; split it")
    try:
        text = content.removeprefix(_BYTE_ORDER_MARK).decode()
    except UnicodeDecodeError as error:
        line = 1 + content.count(b"\n", 0, error.start)
        raise BadInput(f"{where}:{line}: this line is not UTF-8; convert the file first") from error
    return text.replace("\r\n" if "\n" in text else "\r", "\n").removesuffix("\n")  # as lines.open_text
