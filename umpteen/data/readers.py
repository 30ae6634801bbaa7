"""Recognise the format of a file or folder and read it into a Dataset.

The formats are read by ``folders``, ``tables`` and ``xmc``; this module finds the files of a split and its vocabulary.
Label ids do not depend on the split: they come from ``labels=``, else from a ``label_names`` file, else from the train
split. Labels unknown there get further columns at the end, so that recall counts them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import scipy.sparse as sp

from umpteen.data import folders, tables, xmc
from umpteen.data.corpus import Corpus, read_label_names, separator_in, split_cells
from umpteen.data.dataset import Dataset
from umpteen.data.documents import find_documents
from umpteen.data.label_rows import LabelRows, LabelRowsBuilder, Prepare
from umpteen.data.label_vocabulary import Vocabulary
from umpteen.data.labels import Labels
from umpteen.data.lines import PACKED, find_packed, listing, missing, open_bytes, open_text, plain_suffix
from umpteen.data.sparse import wrap
from umpteen.data.stored_texts import StoredTexts
from umpteen.errors import BadInput
from umpteen.store import Checkpoint, fingerprint

PathLike = str | os.PathLike[str]
_ROW_FILES = (".txt", ".svm", ".svmlight", ".libsvm")
_NPZ_NAMES = {"train": ("trn", "train"), "test": ("tst", "test"), "dev": ("val", "dev")}


def read(
    path: PathLike,
    split: str = "train",
    *,
    labels: Labels | None = None,
    n_rows: int | None = None,
    n_features: int | None = None,
    text_column: str | int | None = None,
    label_column: str | int | None = None,
    label_separator: str | None = None,
    has_header: bool = True,
    vocab: PathLike | Vocabulary | None = None,
    language: str | None = None,
    storage: Callable[[str], Checkpoint] | None = None,
) -> Dataset:
    """Read one split of a dataset, whatever its format.

    A folder may hold, for a split called ``train`` (text files also compressed: ``.gz``, ``.xz`` or ``.bz2``):

    - ``train_texts.txt`` and ``train_labels.txt``, line by line; labels separated by blanks;
    - ``train.txt`` in the Extreme Classification Repository's format (``rows features labels``, then
      ``label,label feature:value …``), or without that first line: svmlight, indices kept as given;
    - ``X.trn.npz`` and ``Y.trn.npz`` (``tst`` for test) as ``scipy.sparse.save_npz`` writes them;
    - ``train.tsv``: ``text<TAB><uri> <uri>``, as Annif has it;
    - ``train.jsonl``, ``train.csv`` or ``train.parquet`` with a column of texts and one of labels;
    - ``train/``, or the folder itself, with one ``.txt`` per text beside a ``.key`` or ``.tsv`` file.

    ``label_names.txt`` beside them is the vocabulary: ``key<TAB>name``, or one name per line; then labels may also be
    line numbers from zero. ``path`` may also be a single file of these kinds.

    Parameters
    ----------
    path
        A folder or a file.
    split
        Name of the split; ignored for a single file or a folder of documents.
    labels
        Vocabulary to use, and with it the separator of labels in a table. It is copied; unknown labels are added to the
        copy.
    n_rows
        Number of rows to read. Without a ``label_names`` file the vocabulary comes from these rows alone.
    n_features
        Number of features of svmlight rows, which have no header; further features are dropped. By default that of the
        train file.
    text_column, label_column
        Columns of JSON lines, CSV and Parquet: ``text`` and ``labels`` by default. If one is given, a TSV file is a
        table with a header, too.
    label_separator
        What separates labels in a cell or a line; by default it is detected in tables, and a blank elsewhere.
    has_header
        Whether CSV files begin with a header; if False, columns are numbers from zero, by default 0 and 1, in TSV files
        as well.
    vocab
        A :class:`Vocabulary`, or its file, in which names of the labels are looked up by key.
    language
        Language of these names, such as ``sv``.
    storage
        Returns the checkpoint of a key, where texts, or feature rows of a text file, are written and read from when
        they are used, so that they need not fit in memory.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "train.jsonl").write_text('{"text": "red apple", "labels": ["red", "fruit"]}')
    ...     _ = Path(folder, "test.jsonl").write_text('{"text": "green pear", "labels": ["fruit"]}')
    ...     train = read(folder)
    ...     test = read(folder, "test", labels=train.labels)
    >>> train.labels.names(), test.Y.toarray().tolist()
    (['fruit', 'red'], [[1.0, 0.0]])
    """
    if n_rows is not None and n_rows < 1:
        raise BadInput(f"n_rows must be at least 1, but is {n_rows}")
    if language is not None and vocab is None:
        raise BadInput(f"the language '{language}' is that of the names in a vocabulary; name its file as well (vocab)")
    vocabulary = vocab if vocab is None or isinstance(vocab, Vocabulary) else Vocabulary.read(vocab)
    columns = tables.Columns.of(text_column, label_column, label_separator, has_header)
    found = _find(Path(path), split, columns)
    if isinstance(found.source, Corpus):
        dataset = _read_corpus(found, found.source, labels, n_rows, columns.separator, storage)
    else:
        source = found.source if storage is None else partial(found.source, storage=storage)
        dataset = _read_matrices(found, source, labels, n_rows, n_features)
    if vocabulary is not None:
        dataset.labels = vocabulary.rename(dataset.labels, language)
    return dataset


def read_pair(path: PathLike, **options: Any) -> tuple[Dataset, Dataset]:
    """Read the train and test splits of a folder with one vocabulary and matrices of equal width.

    Takes the columns, separator and vocabulary like :func:`read`.
    """
    train = read(path, "train", **options)
    width = None if train.X is None else train.X.shape[1]
    test = read(path, "test", labels=train.labels, n_features=width, **options)
    if len(test.labels) > len(train.labels):
        Y = wrap(train.Y.data, train.Y.indices, train.Y.indptr, (len(train), len(test.labels)))
        train = Dataset(train.texts, train.X, Y, test.labels, train.name)
    return train, test


def stream_texts(
    path: PathLike, split: str = "train", text_column: str | int | None = None, has_header: bool = True
) -> Iterator[str]:
    """Yield the texts of a file or of a split of a folder (see :func:`read`), without holding them in memory.

    A file may be plain text with one text per line, JSON lines (also recognised by the first line), TSV, CSV or
    Parquet; ``-`` is standard input.
    """
    columns = replace(tables.Columns.of(text_column, None, has_header=has_header), labels=None)
    if str(path) != "-" and Path(path).is_dir():
        found = _find(Path(path), split, columns)
        if not isinstance(found.source, Corpus):
            raise BadInput(
                f"{path} holds feature rows, not texts; if each file is a text, use stream_documents (--whole-file)"
            )
        return found.source.texts()
    kind = plain_suffix(Path(path))
    if kind == ".tsv" and not columns.are_given:
        return (text for text, _ in folders.tsv_cells(Path(path), labelled=False))
    if kind in (".csv", ".tsv", ".parquet"):
        if not Path(path).exists():
            raise missing(Path(path))
        return tables.table_corpus(Path(path), kind, columns).texts()
    return _lines_or_json(open_text(path), str(path), kind in tables.TABLES, columns.text)


def stream_identified(
    path: PathLike,
    id_column: str | int,
    split: str = "train",
    text_column: str | int | None = None,
    has_header: bool = True,
) -> Iterator[tuple[str | int, str]]:
    """Yield the id and the text of each row of a table, or of a split of a folder that is a table.

    Ids are text or whole numbers. Takes the other arguments like :func:`stream_texts`.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "test.csv").write_text("number,text\\nb7,red apple\\nb9,green pear\\n")
    ...     list(stream_identified(f"{folder}/test.csv", "number"))
    [('b7', 'red apple'), ('b9', 'green pear')]
    """
    columns = replace(tables.Columns.of(text_column, None, has_header=has_header), labels=None, are_given=True)
    tables.Columns.of(id_column, has_header=has_header)  # refuses a name where columns have numbers
    wanted = [columns.text, str(id_column)]
    if str(path) != "-" and Path(path).is_dir():
        path = _find(Path(path), split, columns).where
    kind = plain_suffix(Path(path))
    if kind in (".tsv", *tables.TABLES):
        if not Path(path).exists():
            raise missing(Path(path))
        return tables.identified_texts(tables.table_values(Path(path), kind, columns, wanted))
    lines = open_text(path)
    first = next(lines, None)
    if first is not None and not tables.is_json_row(first, columns.text):
        raise BadInput(f"{path} has no columns, so there is no '{id_column}'; leave the id column out (--id-column)")
    both = [] if first is None else chain([first], lines)
    return tables.identified_texts(tables.json_values(both, str(path), wanted))


def count_rows(path: PathLike, split: str = "train") -> int | None:
    """Return about how many rows :func:`stream_texts` yields, by a quick look; None for standard input.

    Of Parquet the number is exact; of text files it is that of the lines, blank ones and those inside of quotes too.
    """
    if str(path) == "-":
        return None
    path = Path(path)
    if path.is_dir():
        path = _find(path, split, tables.Columns(labels=None)).where
    if path.is_dir():
        return sum(1 for _ in find_documents(path))
    if plain_suffix(path) == ".parquet":
        with tables.open_parquet(path) as table:
            return int(table.metadata.num_rows)
    with open_bytes(path) as stream:
        return sum(block.count(b"\n") for block in iter(partial(stream.read, 1 << 20), b""))


def read_texts(path: PathLike, text_column: str | int | None = None, has_header: bool = True) -> list[str]:
    """Read the texts of a file, or of standard input for ``-``; see :func:`stream_texts`."""
    return list(stream_texts(path, text_column=text_column, has_header=has_header))


def document_folder(path: PathLike, split: str = "test") -> Path | None:
    """Return the folder whose ``.txt`` files are the texts to predict; None if ``path`` is a dataset or a file.

    It is ``path`` itself, unless that holds the split in a sub-folder of texts beside label files.
    """
    folder = Path(path)
    if not folder.is_dir():
        return None
    columns = tables.Columns(labels=None)
    found = _in_folder(folder, split, columns)
    if found is not None:
        return found.where if found.where.is_dir() else None
    if folders.has_documents(folder):
        return folder
    is_dataset = _label_names(folder) is not None or _in_folder(folder, "train", columns) is not None
    return None if is_dataset or next(find_documents(folder), None) is None else folder


# reads X and Y, given n_rows and n_features, and perhaps storage
_Matrices = Callable[..., tuple[sp.csr_matrix, sp.csr_matrix]]


@dataclass
class _Found:
    """The files of a split, and the sources of its vocabulary."""

    where: Path
    source: Corpus | _Matrices
    states_width: bool = False  # the file states the numbers of features and labels
    label_names: Path | None = None
    train: Callable[[], _Found | None] = lambda: None


def _find(path: Path, split: str, columns: tables.Columns) -> _Found:
    if not path.exists():
        raise missing(path)
    if not path.is_dir():
        found = _in_file(path, columns)
        found.label_names = _label_names(path.parent)
        return found
    found = _in_folder(path, split, columns)
    if found is None and folders.has_documents(path):
        found = _Found(path, folders.document_corpus(path))
    elif found is not None and split != "train":
        found.train = lambda: _in_folder(path, "train", columns)
    if found is None:
        raise BadInput(
            f"no {split} split in {path}: looked for {split}_texts.txt with {split}_labels.txt, {split}.txt, "
            f"X.{_npz_names(split)[0]}.npz, {split}.tsv, {split}.jsonl, {split}.csv, {split}.parquet "
            f"(text files also {PACKED}) and *.txt beside *.key; {listing(path)}"
        )
    found.label_names = _label_names(path)
    return found


def _in_folder(folder: Path, split: str, columns: tables.Columns) -> _Found | None:
    texts = find_packed(folder, f"{split}_texts.txt")
    if texts is not None:
        labels = find_packed(folder, f"{split}_labels.txt")
        if labels is None and columns.labels is not None:
            raise BadInput(f"{texts} has no {split}_labels.txt, also {PACKED}, beside it; {listing(folder)}")
        return _Found(texts, folders.aligned_corpus(texts, labels) if labels else _unlabelled(texts))
    for suffix in _ROW_FILES:
        rows = find_packed(folder, split + suffix)
        if rows is not None:
            return _rows_file(rows)
    for name in _npz_names(split):
        x_path, y_path = folder / f"X.{name}.npz", folder / f"Y.{name}.npz"
        if x_path.is_file() or y_path.is_file():
            return _npz_files(x_path, y_path)
    for suffix in (".tsv", *tables.TABLES):
        table = find_packed(folder, split + suffix)
        if table is not None:
            return _in_file(table, columns)
    if (folder / split).is_dir() and folders.has_documents(folder / split):
        return _Found(folder / split, folders.document_corpus(folder / split))
    return None


def _in_file(path: Path, columns: tables.Columns) -> _Found:
    kind = plain_suffix(path)
    if kind == ".tsv" and not columns.are_given:
        return _Found(path, folders.tsv_corpus(path))
    if kind in (".tsv", *tables.TABLES):
        return _Found(path, tables.table_corpus(path, kind, columns))
    if kind in _ROW_FILES:
        return _rows_file(path)
    known = ", ".join((*_ROW_FILES, ".tsv", *tables.TABLES))
    raise BadInput(f"{path} is of no known kind: a data file ends in {known} (text files also {PACKED})")


def _rows_file(path: Path) -> _Found:
    return _Found(path, partial(xmc.read_rows, path), states_width=xmc.has_header(path))


def _npz_files(x_path: Path, y_path: Path) -> _Found:
    return _Found(x_path, lambda n_rows, *_, **__: xmc.read_npz(x_path, y_path, n_rows), states_width=True)


def _unlabelled(texts: Path) -> Corpus:
    return Corpus(texts, lambda: ((text, []) for text in open_text(texts)))


def _label_names(folder: Path) -> Path | None:
    return find_packed(folder, "label_names.txt") or find_packed(folder, "label_names.tsv")


def _npz_names(split: str) -> tuple[str, ...]:
    return _NPZ_NAMES.get(split, (split,))


def _read_corpus(
    found: _Found, corpus: Corpus, labels: Labels | None, n_rows: int | None, separator: str | None,
    storage: Callable[[str], Checkpoint] | None,
) -> Dataset:  # fmt: skip
    train = found.train()
    train = train.source if train is not None and isinstance(train.source, Corpus) else None
    if storage is None:
        texts, cells = corpus.read(n_rows)
    else:
        cells = islice(corpus.label_cells(), n_rows)
    if separator is None and corpus.is_table:
        separator = _separator(cells, labels, train)
    split = partial(split_cells, separator=separator)
    with _located(found.where):
        if storage is None:
            rows = LabelRows.read(cells, split)
        else:
            texts, rows = _read_stored(found, corpus, n_rows, storage, split)
    vocabulary, rows = _vocabulary(found, labels, rows, train, separator)
    with _located(found.where):
        if vocabulary is None:
            vocabulary, Y = Labels.from_lists(rows, corpus.names)
        else:
            Y = vocabulary.encode(rows, unknown="add")
    vocabulary.separator = separator
    return Dataset(texts, None, Y, vocabulary, _name(found.where))


@contextmanager
def _located(where: Path) -> Iterator[None]:
    """Say in which file something is wrong, unless the message begins with a file beside it already."""
    try:
        yield
    except BadInput as error:
        if str(error).startswith(str(where.parent)):
            raise
        raise BadInput(f"{where}: {error}") from error


def _read_stored(
    found: _Found, corpus: Corpus, n_rows: int | None, storage: Callable[[str], Checkpoint], split: Prepare
) -> tuple[StoredTexts, LabelRows]:
    """Write the texts to a file, unless they are there already, and return them with the labels."""
    key = fingerprint(corpus.state(), n_rows)
    builder = LabelRowsBuilder(split)

    def texts() -> Iterator[str]:
        for text, cell in islice(corpus.rows(), n_rows):
            builder.append(cell)
            yield text

    stored = StoredTexts.write(storage(key), texts())
    rows = builder.rows()
    if len(rows) < len(stored):  # the texts were there
        rows = LabelRows.read(islice(corpus.label_cells(), n_rows), split)
    return stored, rows


def _separator(cells: Iterable[Any], labels: Labels | None, train: Corpus | None) -> str | None:
    """Return the separator of labels: that of the vocabulary, else that of the train split, else of this file."""
    if labels is not None and labels.separator is not None:
        return labels.separator
    of_train = separator_in(train.label_cells()) if train is not None and train.is_table else None
    return of_train or separator_in(cells)


def _vocabulary(
    found: _Found, labels: Labels | None, rows: LabelRows, train: Corpus | None, separator: str | None
) -> tuple[Labels | None, LabelRows]:
    """Return the vocabulary (None: that of the rows), and the rows with labels of the vocabulary."""
    if found.label_names is not None:
        named, has_keys = read_label_names(found.label_names)
        if not has_keys:
            rows = _by_line_number(rows, named)
        if labels is None:
            _check_overlap(rows, named, found.label_names)
            return named, rows
    if labels is not None:
        return labels.copy(), rows
    if train is None:
        return None, rows
    of_train = LabelRows.read(train.label_cells(), partial(split_cells, separator=separator))
    return Labels.from_lists(of_train, train.names)[0], rows


def _by_line_number(rows: LabelRows, named: Labels) -> LabelRows:
    """Turn line numbers of the label file into labels, if every label is one and not all are names."""
    found = rows.distinct
    if all(label in named for label in found) or not all(_is_below(label, len(named)) for label in found):
        return rows
    keys = named.keys()
    return rows.renamed([keys[int(label)] for label in found])


def _is_below(label: str, bound: int) -> bool:
    return label.isascii() and label.isdigit() and len(label) < 12 and int(label) < bound


def _check_overlap(rows: LabelRows, named: Labels, path: Path) -> None:
    """Refuse a label file that has none of the labels: it belongs to other data."""
    distinct = set(rows.distinct)
    if distinct and not any(label in named for label in distinct) and distinct.isdisjoint(named.names()):
        raise BadInput(f"{path} has none of the {len(distinct)} labels of the texts, such as {min(distinct)!r}")


def _read_matrices(
    found: _Found, matrices: _Matrices, labels: Labels | None, n_rows: int | None, n_features: int | None
) -> Dataset:
    if n_features is None and not found.states_width:
        n_features, n_labels = _train_widths(found.train())
        if labels is None and found.label_names is None:
            labels = Labels.numbered(n_labels)
    X, Y = matrices(n_rows, n_features)
    if labels is None and found.label_names is not None:
        named, _ = read_label_names(found.label_names)
        n_labels = Y.shape[1] if found.states_width else max(Y.shape[1], len(named))
        labels = xmc.name_columns(named, n_labels, str(found.where))
    vocabulary = Labels.numbered(Y.shape[1]) if labels is None else labels.widen(Y.shape[1])
    Y = wrap(Y.data, Y.indices, Y.indptr, (Y.shape[0], len(vocabulary)))
    return Dataset(None, X, Y, vocabulary, _name(found.where))


def _train_widths(train: _Found | None) -> tuple[int | None, int]:
    """Return the numbers of features and labels of the train split, for a file without a header."""
    if train is None or isinstance(train.source, Corpus):
        return None, 0
    X, Y = train.source(None, None)
    return X.shape[1], Y.shape[1]


def _lines_or_json(lines: Iterator[str], where: str, is_json: bool, text_column: str) -> Iterator[str]:
    first = next(lines, None)
    if first is None:
        return
    lines = chain([first], lines)
    if is_json or tables.is_json_row(first, text_column):
        yield from (text for text, _ in tables.json_rows(lines, where, text_column))
    else:
        yield from lines


def _name(path: Path) -> str:
    return path.resolve().parent.name if path.is_file() else path.name
