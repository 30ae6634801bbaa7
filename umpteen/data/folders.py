"""Read texts and labels from line-aligned files, from the TSV of Annif, and from one file per document."""

from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from umpteen.data.corpus import Corpus, Row, without_brackets
from umpteen.data.documents import read_document
from umpteen.data.lines import PACKINGS, find_packed, open_text, plain_suffix
from umpteen.errors import BadInput


def aligned_corpus(texts: Path, labels: Path) -> Corpus:
    """Return the corpus of two files with corresponding lines: texts, and labels separated by blanks."""
    return Corpus(texts, lambda: _aligned_rows(texts, labels), cells=lambda: _label_lines(labels))


def tsv_corpus(path: Path) -> Corpus:
    """Return the corpus of a file of lines ``text<TAB><uri> <uri>``, with or without the angle brackets."""
    return Corpus(path, lambda: tsv_cells(path))


def document_corpus(folder: Path) -> Corpus:
    """Return the corpus of ``.txt`` files beside ``.key`` (a label per line) or ``.tsv`` files (``<uri><TAB>label``).

    Texts without labels are omitted; the order is that of the file names. Where there are both, a label of a ``.key``
    file that is the name of one label in the ``.tsv`` files is that label.
    """
    names: dict[str, str] = {}
    return Corpus(folder, lambda: _documents(folder, names), names=names)


def has_documents(folder: Path) -> bool:
    """Return whether a folder holds texts beside label files."""
    return any(_label_file(text) for text in _texts(folder))


def _aligned_rows(texts: Path, labels: Path) -> Iterator[Row]:
    both = zip_longest(open_text(texts), _label_lines(labels))
    for number, (text, cell) in enumerate(both):
        if text is None or cell is None:
            rest = 1 + sum(1 for _ in both)
            longer, shorter = (labels, texts) if text is None else (texts, labels)
            raise BadInput(
                f"{longer} has {number + rest} lines but {shorter} has {number}; "
                "write one label line per text, empty for none"
            )
        yield text, cell


def _label_lines(path: Path) -> Iterator[str]:
    for number, line in enumerate(open_text(path), start=1):
        yield _one_line(line, f"{path}:{number}")


def tsv_cells(path: Path, *, labelled: bool = True) -> Iterator[Row]:
    """Yield the text and the labels of each line; blank lines are skipped."""
    for number, line in enumerate(open_text(path), start=1):
        if not line.strip():
            continue
        cells = line.split("\t")
        if len(cells) == 1 and labelled:
            raise BadInput(f"{path}:{number}: the line has no TAB between text and labels")
        if len(cells) > 2:
            raise BadInput(
                f"{path}:{number}: a line must be text, TAB, labels separated by blanks, but has {len(cells)} cells; "
                "take the TABs out of texts and labels"
            )
        if number == 1 and [cell.strip().lower() for cell in cells] == ["text", "labels"]:
            raise BadInput(f"{path}:1: the line is a header, but a .tsv file has none; remove it, or write a .csv file")
        yield cells[0], _one_line(cells[-1], f"{path}:{number}") if labelled else []


def _one_line(labels: str, here: str) -> str:
    """Refuse a carriage return between labels, which are then labels of several rows: line ends are mixed."""
    if "\r" in labels:
        raise BadInput(f"{here}: the labels hold a carriage return that ends no line; use one kind of line end")
    return labels


def _documents(folder: Path, names: dict[str, str]) -> Iterator[Row]:
    found = [(text, file) for text in _texts(folder) if (file := _label_file(text)) is not None]
    keys = _keys_by_name([file for _, file in found])
    for text, file in found:
        yield read_document(text), [keys.get(label, label) for label in _document_labels(file, names)]


def _keys_by_name(label_files: list[Path]) -> dict[str, str]:
    """Return the keys of the names that ``.tsv`` files have, if there are ``.key`` files, too: names alone."""
    with_keys = [path for path in label_files if plain_suffix(path) == ".tsv"]
    names: dict[str, str] = {}
    if with_keys and len(with_keys) < len(label_files):
        for path in with_keys:
            _document_labels(path, names)
    counts = Counter(names.values())
    return {name: key for key, name in names.items() if counts[name] == 1}


def _texts(folder: Path) -> list[Path]:
    """Return the ``.txt`` files of a folder, also compressed, in the order of their names."""
    return sorted(path for packing in PACKINGS for path in folder.glob(f"*.txt{packing}"))


def _label_file(text: Path) -> Path | None:
    name = text.name[: text.name.rindex(".txt")]
    return find_packed(text.parent, f"{name}.tsv") or find_packed(text.parent, f"{name}.key")


def _document_labels(path: Path, names: dict[str, str]) -> list[str]:
    labels = []
    for line in open_text(path):
        key, _, name = line.partition("\t") if plain_suffix(path) == ".tsv" else (line, "", "")
        key = without_brackets(key.strip())
        if key:
            labels.append(key)
            if name.strip():
                names[key] = name.strip()
    return labels
