"""Text formats made of lines and folders: line-aligned files, Annif's TSV, Annif's one file per document.

Each function returns a Corpus. Knows nothing about vocabularies or which split is wanted.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from umpteen.data.corpus import Corpus, Row, split_cell, without_brackets
from umpteen.data.lines import open_text
from umpteen.errors import BadInput


def aligned_corpus(texts: Path, labels: Path) -> Corpus:
    """Two files, line by line: the text, and its labels separated by blanks."""
    return Corpus(texts, lambda: _aligned_rows(texts, labels), cells=lambda: open_text(labels))


def tsv_corpus(path: Path) -> Corpus:
    """One line per text: ``text<TAB><uri> <uri>``, with or without the angle brackets."""
    return Corpus(path, lambda: _tsv_rows(path))


def document_corpus(folder: Path) -> Corpus:
    """One ``.txt`` per text, beside a ``.key`` (a label a line) or a ``.tsv`` file (``<uri><TAB>label``).

    Texts without such a file are left out; the order is that of the file names.
    """
    names: dict[str, str] = {}
    return Corpus(folder, lambda: _documents(folder, names), names=names)


def has_documents(folder: Path) -> bool:
    """Tell whether a folder holds texts beside label files."""
    return any(_label_file(text) for text in folder.glob("*.txt"))


def _aligned_rows(texts: Path, labels: Path) -> Iterator[Row]:
    both = zip_longest(open_text(texts), open_text(labels))
    for number, (text, cell) in enumerate(both):
        if text is None or cell is None:
            rest = 1 + sum(1 for _ in both)
            longer, shorter = (labels, texts) if text is None else (texts, labels)
            raise BadInput(
                f"{longer} has {number + rest} lines but {shorter} has {number}; "
                "write one label line per text, empty for none"
            )
        yield text, cell


def _tsv_rows(path: Path) -> Iterator[Row]:
    for number, line in enumerate(open_text(path), start=1):
        if not line.strip():
            continue
        text, tab, cell = line.partition("\t")
        if not tab:
            raise BadInput(f"{path}:{number}: the line has no TAB between text and labels")
        yield text, split_cell(cell)


def _documents(folder: Path, names: dict[str, str]) -> Iterator[Row]:
    for text in sorted(folder.glob("*.txt")):
        label_file = _label_file(text)
        if label_file is not None:
            yield "\n".join(open_text(text)), _document_labels(label_file, names)


def _label_file(text: Path) -> Path | None:
    for suffix in (".tsv", ".key"):
        path = text.with_suffix(suffix)
        if path.is_file():
            return path
    return None


def _document_labels(path: Path, names: dict[str, str]) -> list[str]:
    labels = []
    for line in open_text(path):
        key, _, name = line.partition("\t") if path.suffix == ".tsv" else (line, "", "")
        key = without_brackets(key.strip())
        if key:
            labels.append(key)
            if name.strip():
                names[key] = name.strip()
    return labels
