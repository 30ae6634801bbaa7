"""Ids of tables beside their texts, and the number of rows of a file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from umpteen.data import stream_identified
from umpteen.data.readers import count_rows
from umpteen.errors import BadInput


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_ids_keep_their_type(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(lines({"text": "a", "n": 7}, {"text": "b", "n": -1}) + "\n")
    (tmp_path / "a.csv").write_text('n,text\n007,"a\nb"\n8,c\n')
    assert list(stream_identified(tmp_path / "a.jsonl", "n")) == [(7, "a"), (-1, "b")]
    assert list(stream_identified(tmp_path / "a.csv", "n")) == [("007", "a\nb"), ("8", "c")]


def test_a_column_may_be_text_and_id(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"text": ["a", "b"]}), tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text(lines({"text": "a"}, {"text": "b"}))
    for name in ("a.parquet", "a.jsonl"):
        assert list(stream_identified(tmp_path / name, "text")) == [("a", "a"), ("b", "b")]


def test_columns_without_a_header_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("x1\ta\nx2\tb\n")
    found = list(stream_identified(tmp_path / "a.tsv", 0, text_column=1, has_header=False))
    assert found == [("x1", "a"), ("x2", "b")]
    with pytest.raises(BadInput, match="a column is a number from 0, but is 'id'"):
        stream_identified(tmp_path / "a.tsv", "id", text_column=1, has_header=False)


def test_the_split_of_a_folder_has_ids(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text("id,text\n1,a\n")
    assert list(stream_identified(tmp_path, "id", "test")) == [("1", "a")]


@pytest.mark.parametrize("value", [None, True, 1.5, [1], 2**63])
def test_other_ids_are_refused(value: Any, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(lines({"text": "a", "id": value}))
    with pytest.raises(BadInput, match=r"a\.jsonl:1: an id must"):
        list(stream_identified(tmp_path / "a.jsonl", "id"))


def test_rows_are_counted_by_a_quick_look(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"text": ["a", "b"]}), tmp_path / "test.parquet")
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"a\nb\nc\n"))
    assert count_rows(tmp_path / "test.parquet") == 2
    assert count_rows(tmp_path, "test") == 2
    assert count_rows(tmp_path / "a.txt.gz") == 3
    assert count_rows("-") is None
    (tmp_path / "b.parquet").write_text("no table")
    with pytest.raises(BadInput, match="not a readable Parquet file"):
        count_rows(tmp_path / "b.parquet")
