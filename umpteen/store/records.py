"""Records of a training as JSON lines: one object of plain values per line."""

import json
import math
import os
from collections.abc import Iterable, Sequence
from typing import Any

from umpteen.store.tensors import damaged

MOST_RECORDS = 64 * 2**20  # maximum size in bytes: half a million records, those of 25 million steps
_MOST_KEYS = 64  # of a record; a usual one has less than ten


def format_records(records: Iterable[dict[str, Any]]) -> bytes:
    """Return one line of JSON per record.

    Examples
    --------
    >>> format_records([{"stage": "training", "step": 50, "loss": 0.5}])
    b'{"stage": "training", "step": 50, "loss": 0.5}\\n'
    """
    return "".join(f"{json.dumps(record, allow_nan=False)}\n" for record in records).encode()


def format_bounded(records: Sequence[dict[str, Any]], most: int = MOST_RECORDS) -> bytes:
    """Return the lines of as many records as a model may have: every second, every fourth, … if there are too many."""
    content = format_records(records)
    while len(content) > most:
        records = records[::2]
        content = format_records(records)
    return content


def parse_records(content: bytes, source: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the records that ``format_records`` has written; raise BadModelFile if they are anything else."""
    if len(content) > MOST_RECORDS:
        raise damaged(source, f"it may have {MOST_RECORDS:,} bytes at most, but has {len(content):,}")
    lines = content.split(b"\n")
    if lines.pop():
        raise damaged(source, "its last line has no end")
    return [_parse(line, number, source) for number, line in enumerate(lines, start=1)]


def _parse(line: bytes, number: int, source: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise damaged(source, f"its line {number} is no valid JSON ({error})") from None
    if not isinstance(record, dict) or len(record) > _MOST_KEYS or not all(map(_is_plain, record.values())):
        raise damaged(source, f"its line {number} is no record of plain values")
    return record


def _is_plain(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, (str, int))
