"""Read tables with a column of texts and one of labels: JSON lines, CSV with a header, Parquet.

Labels are a list, or a string that is split later; a string that begins with ``[`` is a JSON list.
"""

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from umpteen.data.corpus import Corpus, Row
from umpteen.data.lines import open_text
from umpteen.errors import BadInput, MissingExtra, nearest

TABLES = (".jsonl", ".ndjson", ".csv", ".parquet")


def table_corpus(path: Path, kind: str, text_column: str, label_column: str | None) -> Corpus:
    """Return the corpus of a table; without ``label_column`` its labels are empty."""
    names: dict[str, str] = {}

    def rows() -> Iterator[Row]:
        if kind == ".csv":
            return _csv_rows(path, text_column, label_column)
        if kind == ".parquet":
            return _parquet_rows(path, text_column, label_column, names)
        return json_rows(open_text(path), str(path), text_column, label_column, names)

    return Corpus(path, rows, is_table=True, names=names)


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
    names = {} if names is None else names
    for number, line in enumerate(lines, start=first_line):
        if not line.strip():
            continue
        here = f"{where}:{number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{here}: not valid JSON: {error}") from error
        if not isinstance(record, dict):
            raise BadInput(f"{here}: each line must be a JSON object with a '{text_column}' key")
        text = _field(record, text_column, here)
        cell = [] if label_column is None else _field(record, label_column, here)
        yield _as_text(text, here), _as_cell(cell, here, names)


def _csv_rows(path: Path, text_column: str, label_column: str | None) -> Iterator[Row]:
    reader = csv.reader(line + "\n" for line in open_text(path))
    with _long_fields():
        try:
            header = next(reader, None)
            if header is None:
                raise BadInput(f"{path} is empty; a CSV file needs a header line")
            names = [column.strip() for column in header]
            text_at = _column(names, text_column, f"{path}:1")
            label_at = text_at if label_column is None else _column(names, label_column, f"{path}:1")
            for record in reader:
                here = f"{path}:{reader.line_num}"
                if not record:
                    continue
                if len(record) != len(header):
                    raise BadInput(
                        f"{here}: {len(record)} columns where the header has {len(header)}; "
                        "put a cell that holds a comma in quotes"
                    )
                yield record[text_at], [] if label_column is None else _as_cell(record[label_at], here, {})
        except csv.Error as error:
            raise BadInput(f"{path}:{reader.line_num}: not valid CSV: {error}") from error


def _parquet_rows(path: Path, text_column: str, label_column: str | None, names: dict[str, str]) -> Iterator[Row]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtra("pyarrow", "data", "reading Parquet") from error
    columns = [text_column] if label_column is None else [text_column, label_column]
    number = 0
    try:
        with pq.ParquetFile(path) as table:
            for column in columns:
                _field(dict.fromkeys(table.schema_arrow.names, 0), column, str(path))
            for batch in table.iter_batches(columns=columns):
                for record in batch.to_pylist():
                    here = f"{path}: row {number}"
                    cell = [] if label_column is None else record[label_column]
                    yield _as_text(record[text_column], here), _as_cell(cell, here, names)
                    number += 1
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"{path} is not a readable Parquet file: {error}") from error


def _column(names: list[str], column: str, here: str) -> int:
    """Return the position of a column; duplicate columns are refused."""
    if names.count(column) > 1:
        raise BadInput(f"{here}: there are {names.count(column)} columns '{column}'; rename all but one")
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
