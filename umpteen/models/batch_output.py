"""Write predictions as JSON lines or Parquet: the part of a block of rows, and the whole file from its parts."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from umpteen.data.labels import Labels
from umpteen.engine.printable import json_line
from umpteen.errors import BadInput, MissingExtra
from umpteen.models.answers import Answers, as_json_value

_CHUNK = 1 << 20  # bytes copied at a time
_LABELS, _NAMES, _SCORES, _PROBABILITIES = "labels", "names", "scores", "probabilities"

Ids = Sequence[int] | Sequence[str]


class Format(Protocol):
    """A format of predictions."""

    def encode(self, ids: Ids, answers: Answers, labels: Labels) -> bytes:
        """Return the content of a part."""
        ...

    def n_rows(self, path: Path) -> int | None:
        """Return the number of rows of a part; None if it is damaged."""
        ...

    def join(self, paths: Iterable[Path]) -> Iterator[bytes]:
        """Yield the content of the whole file."""
        ...


def format_of(output: Path) -> str:
    """Return the ending of an output that names its format."""
    name = output.name.lower()
    found = [suffix for suffix in _FORMATS if name.endswith(suffix)]
    if not found:
        raise BadInput(f"predictions are written as {', '.join(_FORMATS)}, but '{output}' ends otherwise; rename it")
    if found[0] == ".parquet":
        _pyarrow()
    return found[0]


def make_format(suffix: str, id_name: str) -> Format:
    """Return the format of an ending; ``id_name`` is the column that says which row it is."""
    if id_name in (_LABELS, _NAMES, _SCORES, _PROBABILITIES):
        raise BadInput(f"the id column is called '{id_name}' like a column of the predictions; rename it in the input")
    return _FORMATS[suffix](id_name)


@dataclass(frozen=True)
class JsonLines:
    """A line per row, as ``umpteen predict --json`` prints it, after the row's number or id."""

    id_name: str
    is_packed: bool = False

    def encode(self, ids: Ids, answers: Answers, labels: Labels) -> bytes:
        """Return the lines of the rows."""
        rows = zip(ids, answers.named(labels), strict=True)
        text = "".join(json_line({self.id_name: id_, **as_json_value(found)}) for id_, found in rows).encode()
        return gzip.compress(text, mtime=0) if self.is_packed else text

    def n_rows(self, path: Path) -> int | None:
        """Count the lines."""
        try:
            with gzip.open(path) if self.is_packed else open(path, "rb") as file:
                return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(_CHUNK), b""))
        except (OSError, EOFError, ValueError):
            return None

    def join(self, paths: Iterable[Path]) -> Iterator[bytes]:
        """Concatenate the parts; several gzip files end to end are one."""
        for path in paths:
            with open(path, "rb") as file:
                yield from iter(lambda: file.read(_CHUNK), b"")


@dataclass(frozen=True)
class Parquet:
    """A row group per block: the row's number or id, and lists of keys, names, scores and probabilities."""

    id_name: str

    def encode(self, ids: Ids, answers: Answers, labels: Labels) -> bytes:
        """Return a Parquet file of the rows."""
        pa, pq = _pyarrow()
        found, ptr = answers.ids.tolist(), pa.array(answers.ptr.astype("int32"))
        texts = {_LABELS: labels.keys(found), _NAMES: labels.names(found)}
        columns = {name: pa.array(values, pa.string()) for name, values in texts.items()}
        columns[_SCORES] = pa.array(answers.scores, pa.float32())
        if answers.probabilities is not None:
            columns[_PROBABILITIES] = pa.array(answers.probabilities, pa.float32())
        lists = {name: pa.ListArray.from_arrays(ptr, values) for name, values in columns.items()}
        kind = pa.string() if isinstance(ids[0], str) else pa.int64()
        table = pa.table({self.id_name: pa.array(ids, kind), **lists})
        sink = io.BytesIO()
        pq.write_table(table, sink, row_group_size=len(table))
        return sink.getvalue()

    def n_rows(self, path: Path) -> int | None:
        """Read the number of rows from the footer."""
        pa, pq = _pyarrow()
        try:
            return int(pq.read_metadata(path).num_rows)
        except (pa.ArrowException, OSError):
            return None

    def join(self, paths: Iterable[Path]) -> Iterator[bytes]:
        """Copy row group by row group."""
        _, pq = _pyarrow()
        sink, writer = _Sink(), None
        for path in paths:
            with pq.ParquetFile(path) as part:
                table = part.read()
            writer = writer or pq.ParquetWriter(sink, table.schema)
            writer.write_table(table, row_group_size=len(table))
            yield from sink.taken()
        if writer is not None:
            writer.close()
        yield from sink.taken()


class _Sink(io.RawIOBase):
    """A file that keeps what is written until it is taken."""

    def __init__(self) -> None:
        self._buffers: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._buffers.append(bytes(content))
        self._position += len(self._buffers[-1])
        return len(self._buffers[-1])

    def tell(self) -> int:
        return self._position

    def taken(self) -> list[bytes]:
        """Return what was written since the last call."""
        buffers, self._buffers = self._buffers, []
        return buffers


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("pyarrow", "data", "writing Parquet") from error
    return pyarrow, pyarrow.parquet


_FORMATS: dict[str, Callable[[str], Format]] = {
    ".parquet": Parquet,
    ".jsonl": JsonLines,
    ".jsonl.gz": lambda id_name: JsonLines(id_name, is_packed=True),
}
