"""Read tables with a column of texts and one of labels: JSON lines, CSV, TSV, Parquet.

Labels are a list, or a string that is split later; a string that begins with ``[`` is a JSON list.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from umpteen.data.corpus import Corpus, Row, check_separator
from umpteen.data.lines import open_text
from umpteen.errors import BadInput, MissingExtra, nearest

TABLES = (".jsonl", ".ndjson", ".csv", ".parquet")
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_PARQUET_ROWS = 4096  # rows read at a time
_BUFFER = 1 << 20  # bytes of a column of a Parquet file that are read at a time

Values = tuple[str, list[Any]]  # the place of a row, for messages, and its values in some columns


@dataclass(frozen=True)
class Columns:
    """The columns of a table, and how its labels are separated.

    ``labels`` is None if they are not read. ``separator`` is None if it is to be detected. Columns of a file without a
    header are numbers from zero. ``are_given`` says that a TSV file is to be read as a table with these columns.
    """

    text: str = "text"
    labels: str | None = "labels"
    separator: str | None = None
    has_header: bool = True
    are_given: bool = False

    @classmethod
    def of(
        cls,
        text_column: str | int | None = None,
        label_column: str | int | None = None,
        label_separator: str | None = None,
        has_header: bool = True,
    ) -> Columns:
        """Check the columns, and set those that are not given: text and labels, or 0 and 1 without a header."""
        given = (text_column, label_column)
        text, labels = (
            str(default if column is None else column)
            for column, default in zip(given, ("text", "labels") if has_header else (0, 1), strict=True)
        )
        for column in () if has_header else (text, labels):
            if not (column.isascii() and column.isdigit()):
                raise BadInput(f"without a header a column is a number from 0, but is '{column}'")
        if label_separator is not None:
            check_separator(label_separator)
        return cls(text, labels, label_separator, has_header, given != (None, None) or not has_header)


def table_corpus(path: Path, kind: str, columns: Columns) -> Corpus:
    """Return the corpus of a table: ``kind`` is the suffix of its format."""
    names: dict[str, str] = {}
    wanted = [columns.text] if columns.labels is None else [columns.text, columns.labels]
    read = (*wanted, "header" if columns.has_header else "no header")
    return Corpus(
        path, lambda: _as_rows(table_values(path, kind, columns, wanted), names), is_table=True, names=names,
        columns=read,
    )  # fmt: skip


def table_values(path: Path, kind: str, columns: Columns, wanted: Sequence[str]) -> Iterator[Values]:
    """Yield the place of every row of a table, for messages, and its values in the wanted columns."""
    if not columns.has_header and kind not in _DELIMITERS:
        raise BadInput(f"{path} names its columns; only CSV and TSV files can be without a header (--no-header)")
    if kind in _DELIMITERS:
        return _csv_values(path, _DELIMITERS[kind], columns.has_header, wanted)
    if kind == ".parquet":
        return _parquet_values(path, wanted)
    return json_values(open_text(path), str(path), wanted)


def is_json_row(line: str, text_column: str) -> bool:
    """Return whether a line looks like a JSON object with a text."""
    return line.lstrip().startswith("{") and f'"{text_column}"' in line


def json_rows(
    lines: Iterable[str],
    where: str,
    text_column: str,
    label_column: str | None = None,
    names: dict[str, str] | None = None,
    first_line: int = 1,
) -> Iterator[Row]:
    """Yield the rows of JSON lines; blank lines are skipped."""
    wanted = [text_column] if label_column is None else [text_column, label_column]
    yield from _as_rows(json_values(lines, where, wanted, first_line), {} if names is None else names)


def json_values(lines: Iterable[str], where: str, wanted: Sequence[str], first_line: int = 1) -> Iterator[Values]:
    """Yield the wanted columns of JSON lines; blank lines are skipped."""
    for number, line in enumerate(lines, start=first_line):
        if not line.strip():
            continue
        here = f"{where}:{number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{here}: not valid JSON: {error}") from error
        if not isinstance(record, dict):
            raise BadInput(f"{here}: each line must be a JSON object with a '{wanted[0]}' key")
        yield here, [_field(record, column, here) for column in wanted]


def _as_rows(values: Iterable[Values], names: dict[str, str]) -> Iterator[Row]:
    """Yield texts and labels, given the columns of the texts and perhaps of the labels."""
    for here, (text, *cells) in values:
        yield _as_text(text, here), _as_cell(cells[0], here, names) if cells else []


def identified_texts(values: Iterable[Values]) -> Iterator[tuple[str | int, str]]:
    """Yield ids and texts, given the columns of the texts and of the ids."""
    for here, (text, identifier) in values:
        if isinstance(identifier, bool) or not isinstance(identifier, (str, int)):
            raise BadInput(f"{here}: an id must be text or a whole number, but is {identifier!r:.80}; fill the column")
        if isinstance(identifier, str):
            identifier = _without_surrogates(identifier)
        elif not -(2**63) <= identifier < 2**63:
            raise BadInput(f"{here}: an id must fit in 64 bits, but is {identifier}; write it as text")
        yield identifier, _as_text(text, here)


def csv_records(path: Path, *, delimiter: str = ",", has_header: bool = True) -> Iterator[tuple[str, list[str]]]:
    """Yield the place and the cells of every record of a CSV or TSV file, including the header.

    Blank lines are skipped, and a record of another width than the first is refused. TSV files have no quotes.
    """
    quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    reader = csv.reader((line + "\n" for line in open_text(path)), delimiter=delimiter, quoting=quoting)
    width = None
    with _long_fields():
        try:
            for record in reader:
                if not record:
                    continue
                here = f"{path}:{reader.line_num}"
                width = len(record) if width is None else width
                if len(record) != width:
                    raise BadInput(_wrong_width(here, record, width, delimiter, has_header))
                yield here, record
        except csv.Error as error:
            raise BadInput(f"{path}:{reader.line_num}: not valid CSV: {error}") from error
    if width is None:
        raise BadInput(f"{path} is empty; a CSV file needs a header line" if has_header else f"{path} is empty")


def _wrong_width(here: str, record: list[str], width: int, delimiter: str, has_header: bool) -> str:
    first = "the header" if has_header else "the first line"
    remedy = "put a cell that holds a comma in quotes"
    if delimiter == "\t":
        remedy = "take the TABs out of the cells" if len(record) > width else "write a TAB before an empty cell, too"
    return f"{here}: {len(record)} columns where {first} has {width}; {remedy}"


def _csv_values(path: Path, delimiter: str, has_header: bool, wanted: Sequence[str]) -> Iterator[Values]:
    records = csv_records(path, delimiter=delimiter, has_header=has_header)
    where, first = next(records)
    names = [name.strip() for name in first] if has_header else [str(at) for at in range(len(first))]
    places = [_column(names, column, where) for column in wanted]
    for here, record in records if has_header else chain([(where, first)], records):
        yield here, [record[at] for at in places]


def _parquet_values(path: Path, wanted: Sequence[str]) -> Iterator[Values]:
    number = 0
    with open_parquet(path) as table:
        for column in wanted:
            _field(dict.fromkeys(table.schema_arrow.names, 0), column, str(path))
        for record in _records(table, list(dict.fromkeys(wanted))):
            yield f"{path}: row {number}", [record[column] for column in wanted]
            number += 1


def _records(table: Any, columns: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of an open Parquet file, one row group after the other, so that pyarrow frees their memory."""
    for group in range(table.num_row_groups):
        for batch in table.iter_batches(_PARQUET_ROWS, row_groups=[group], columns=columns):
            yield from batch.to_pylist()


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file; errors while it is read become ``BadInput``."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtra("pyarrow", "data", "reading Parquet") from error
    try:
        with pq.ParquetFile(path, buffer_size=_BUFFER) as table:
            yield table
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} has text that is not UTF-8; write it again as UTF-8") from error
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"{path} is not a readable Parquet file: {error}") from error


def _column(names: list[str], column: str, here: str) -> int:
    """Return the position of a column; duplicate columns are refused."""
    if names.count(column) > 1:
        raise BadInput(f"{here}: there are {names.count(column)} columns '{column}'; rename all but one")
    if len(names) == 1 and column != names[0] and (";" in names[0] or "\t" in names[0]):
        raise BadInput(
            f"{here}: columns are separated by commas in .csv files and by tabs in .tsv files, but the header has one "
            f"column, {names[0]!r:.80}; convert the file"
        )
    return _field({name: at for at, name in enumerate(names)}, column, here)


def _field(record: dict[str, Any], column: str, here: str) -> Any:
    if column not in record:
        known = ", ".join(f"'{name}'" for name in list(record)[:12])
        hint = nearest(column, record)
        raise BadInput(f"{here}: there is no column '{column}' but only {known or 'none at all'}{hint}")
    return record[column]


def _as_text(text: Any, here: str) -> str:
    if not isinstance(text, str):
        raise BadInput(f"{here}: the text must be a string, but is {text!r:.80}")
    return _without_surrogates(text)


def _as_cell(cell: Any, here: str, names: dict[str, str]) -> Any:
    """Return labels as a list of text and numbers, or as a string that is split later."""
    if cell is None:
        return []
    if isinstance(cell, str):
        cell = _without_surrogates(cell)
        if not cell.lstrip().startswith("["):
            return cell
        try:
            cell = json.loads(cell)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{here}: labels begin like a JSON list but are none: {error}") from error
    if not isinstance(cell, (list, tuple)):
        cell = [cell]
    return [_as_label(label, here, names) for label in cell]


def _as_label(label: Any, here: str, names: dict[str, str]) -> str | int:
    """Return one label; of an object ``{"uri": …, "label": …}`` its URI, and add its name to ``names``."""
    if isinstance(label, dict) and isinstance(label.get("uri"), str):
        uri, name = label["uri"], label.get("label")
        if isinstance(name, str) and name:
            names[uri] = _without_surrogates(name)
        label = uri
    if isinstance(label, str) and label:
        return _without_surrogates(label)
    if isinstance(label, int) and not isinstance(label, bool):
        return label
    raise BadInput(f"{here}: a label must be text or a whole number, but is {label!r:.80}")


def _without_surrogates(text: str) -> str:
    """Replace unpaired surrogates, which JSON escapes can contain and UTF-8 cannot encode."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@contextmanager
def _long_fields() -> Iterator[None]:
    """Raise the limit of the csv module, 131,072 characters per field."""
    before = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        yield
    finally:
        csv.field_size_limit(before)
