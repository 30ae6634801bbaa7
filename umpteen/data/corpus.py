"""Texts with labels that are read on demand, and the ways in which files write the labels of a text."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from umpteen.data.labels import Labels
from umpteen.data.lines import open_text
from umpteen.errors import BadInput
from umpteen.store import fingerprint

Row = tuple[str, Any]  # the text, and its labels as a list or a string that is split later
_BRACKETED = re.compile(r"<([A-Za-z][A-Za-z0-9+.-]*:[^<>]*)>")  # only URIs: a label may be called <g>
_LONGEST_SEPARATOR = 8


@dataclass
class Corpus:
    """A source of rows that can be read repeatedly.

    ``cells`` yields the labels alone, if that is cheaper; ``is_table`` says that the separator of labels is to be
    detected; reading rows adds the names of labels to ``names``, if the format has them. ``columns`` are those of a
    table that are read.
    """

    where: Path
    rows: Callable[[], Iterator[Row]]
    cells: Callable[[], Iterator[Any]] | None = None
    is_table: bool = False
    names: dict[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()

    def state(self) -> str:
        """Return a digest of which texts are read, and of the sizes and times of their files."""
        files = sorted(self.where.iterdir()) if self.where.is_dir() else [self.where]
        stats = [(path.name, path.stat()) for path in files]
        sizes = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
        return fingerprint(str(self.where.resolve()), sizes, list(self.columns))

    def texts(self) -> Iterator[str]:
        """Yield the texts."""
        return (text for text, _ in self.rows())

    def label_cells(self) -> Iterator[Any]:
        """Yield the labels of every row, not yet split."""
        return self.cells() if self.cells else (cell for _, cell in self.rows())

    def read(self, n_rows: int | None = None) -> tuple[list[str], list[Any]]:
        """Read the texts and label cells of every row, or of the first ``n_rows``."""
        texts, cells = [], []
        for text, cell in islice(self.rows(), n_rows):
            texts.append(text)
            cells.append(cell)
        return texts, cells


def split_cell(cell: Any) -> Any:
    """Split labels separated by blanks, and remove the angle brackets of URIs.

    >>> split_cell("<http://example.org/a> b"), split_cell("<urn:a>; <urn:b>")
    (['http://example.org/a', 'b'], ['urn:a', 'urn:b'])
    """
    if not isinstance(cell, str):
        return cell
    if "<" in cell and (uris := _uris(cell, ";,|")):
        return uris
    labels = cell.replace("\t", " ").split(" ")  # not at other white space, which may be part of a label
    if "" in labels:
        labels = [label for label in labels if label]
    return labels if "<" not in cell else [without_brackets(label) for label in labels]


def without_brackets(label: str) -> str:
    """Return the URI inside ``<…>``; other labels unchanged."""
    match = _BRACKETED.fullmatch(label)
    return match[1] if match else label


def _uris(cell: str, separators: str) -> list[str]:
    """Return the URIs in angle brackets of a cell; none if it holds anything else but blanks and separators."""
    return _BRACKETED.findall(cell) if not _BRACKETED.sub("", cell).strip(f"{separators} \t") else []


def _has_uris(cell: str) -> bool:
    """Return whether a cell holds URIs in angle brackets, which are separated by blanks."""
    return "<" in cell and _BRACKETED.search(cell) is not None


def separator_in(cells: Iterable[Any]) -> str | None:
    """Return the separator of labels in a table: a semicolon if any cell has one, else a blank; None if neither.

    >>> separator_in(["machine learning; law", "tax law"]), separator_in(["tax law"]), separator_in(["tax", ["a", "b"]])
    (';', ' ', None)
    """
    has_blanks = False
    for cell in cells:
        if isinstance(cell, str) and not _has_uris(cell):
            cell = cell.strip()
            if ";" in cell:
                return ";"
            has_blanks = has_blanks or " " in cell or "\t" in cell
    return " " if has_blanks else None


def check_separator(separator: str) -> None:
    """Refuse what cannot separate labels in a cell."""
    is_short = isinstance(separator, str) and 0 < len(separator) <= _LONGEST_SEPARATOR
    if not is_short or any(character in separator for character in "\r\n<>"):
        most = _LONGEST_SEPARATOR
        raise BadInput(f"a label separator is one to {most} characters such as ; or |, but is {separator!r}")


def split_cells(cells: Iterable[Any], separator: str | None = None) -> list[Any]:
    """Split label cells at a separator, or at blanks if that is None or a blank; URIs in brackets always at blanks.

    >>> split_cells(["machine learning; law", "tax law", ["a", "b"]], ";")
    [['machine learning', 'law'], ['tax law'], ['a', 'b']]
    >>> split_cells(["<urn:a>|<urn:b>", "tax law|c"], "|")
    [['urn:a', 'urn:b'], ['tax law', 'c']]
    """
    if separator in (None, " "):
        return [split_cell(cell) for cell in cells]
    return [_split_at(cell, separator) if isinstance(cell, str) else cell for cell in cells]


def _split_at(cell: str, separator: str) -> list[str]:
    if _has_uris(cell):
        return _uris(cell, separator) or split_cell(cell)
    return [label for part in cell.split(separator) if (label := part.strip())]


def read_label_names(path: Path) -> tuple[Labels, bool]:
    """Read a vocabulary, ``key<TAB>name`` or one name per line; return it and whether it has keys.

    Ids are line numbers from zero. Keys may be in angle brackets.
    """
    keys: dict[str, int] = {}
    names: list[str] = []
    has_keys = False
    for number, line in enumerate(open_text(path), start=1):
        key, tab, name = line.partition("\t")
        has_keys |= bool(tab)
        key = without_brackets(key.strip())
        if "\t" in name.rstrip():
            raise BadInput(f"{path}:{number}: the line must be key<TAB>name, but has more cells; take the others out")
        if not key:
            raise BadInput(f"{path}:{number}: the line has no label; write key<TAB>name or one name a line")
        if key in keys:
            raise BadInput(f"{path}:{number}: {key!r} was on line {keys[key]} already; labels must be unique")
        keys[key] = number
        names.append(name.strip() or key)
    return Labels(names, list(keys)) if has_keys else Labels(list(keys)), has_keys
