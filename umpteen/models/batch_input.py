"""Cut the rows of an input into blocks, and write and read blocks as files for other processes.

The cuts depend on the rows alone, so that the same input gives the same blocks in every run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from umpteen.data import stream_documents, stream_identified, stream_texts
from umpteen.data.documents import find_documents
from umpteen.data.readers import count_rows
from umpteen.data.sparse import triplet
from umpteen.errors import BadInput
from umpteen.models.inputs import check_texts, documents_of, read_features
from umpteen.store.tensors import ARRAYS, encode, load_tensors

ROW, FILE = "row", "file"  # columns of the output that say which row it is, unless the input has ids
TEXTS = ".json"
_BLOCK_CHARACTERS = 1 << 25  # of texts, after which a block ends


class Block(NamedTuple):
    """Consecutive rows: the first one's number, how many, and the content of a file that holds them."""

    first_row: int
    n_rows: int
    content: bytes

    @property
    def digest(self) -> str:
        """A digest of the rows."""
        return hashlib.sha256(self.content).hexdigest()


class Source(NamedTuple):
    """The rows of an input.

    ``suffix`` is that of the files of its blocks, ``id_name`` the name of what identifies a row in the output.
    ``blocks(n_rows)`` yields the blocks, ``count()`` returns about how many rows there are, None if that is unknown.
    """

    suffix: str
    id_name: str
    blocks: Callable[[int], Iterator[Block]]
    count: Callable[[], int | None]


def open_source(
    model: Any, data: str, *, id_column: str | int | None = None, whole_file: bool = False, **columns: Any
) -> Source:
    """Return the rows of a path that a model predicts for; ``columns`` are those of a table."""
    if not model.takes_texts:
        if id_column is not None:
            raise BadInput("feature rows have no columns with ids; leave the id column out (--id-column)")
        X = read_features(data, model.n_features_in_, whole_file=whole_file)
        return Source(ARRAYS, ROW, lambda n_rows: _feature_blocks(X, n_rows), lambda: X.shape[0])
    documents = documents_of(data, whole_file)
    if documents is not None:
        if id_column is not None:
            raise BadInput(
                "documents are identified by the names of their files; leave the id column out (--id-column)"
            )
        named = stream_documents(documents)
        return Source(TEXTS, FILE, lambda n_rows: _text_blocks(named, n_rows), lambda: _count_documents(documents))
    check_texts(data)
    if id_column is None:
        rows = ((None, text) for text in stream_texts(data, "test", **columns))
    else:
        rows = _of_one_kind(stream_identified(data, id_column, "test", **columns))
    name = ROW if id_column is None else str(id_column)
    return Source(TEXTS, name, lambda n_rows: _text_blocks(rows, n_rows), lambda: count_rows(data, "test"))


def read_block(path: Path) -> tuple[list[str] | list[int] | None, Any]:
    """Return the ids of the rows of a block, None if they have none, and its texts or feature rows."""
    if path.suffix == ARRAYS:
        arrays = load_tensors(path)
        shape = tuple(arrays["shape"].tolist())
        return None, sp.csr_matrix((arrays["data"], arrays["indices"], arrays["indptr"]), shape=shape)
    content = json.loads(path.read_bytes())
    return content["ids"], content["texts"]


def _text_blocks(rows: Iterator[tuple[str | int | None, str]], n_rows: int) -> Iterator[Block]:
    """Yield blocks of texts, which end after so many rows or characters."""
    first, n_characters = 0, 0
    ids: list[str | int | None] = []
    texts: list[str] = []
    for identifier, text in rows:
        ids.append(identifier)
        texts.append(text)
        n_characters += len(text)
        if len(texts) == n_rows or n_characters >= _BLOCK_CHARACTERS:
            yield _text_block(first, ids, texts)
            first, n_characters = first + len(texts), 0
            ids, texts = [], []
    if texts:
        yield _text_block(first, ids, texts)


def _of_one_kind(rows: Iterator[tuple[str | int, str]]) -> Iterator[tuple[str | int, str]]:
    """Refuse numbers among texts as ids, and texts among numbers: a column of a table has one type."""
    kind = None
    for number, (identifier, text) in enumerate(rows):
        kind = kind or type(identifier)
        if type(identifier) is not kind:
            raise BadInput(
                f"ids must be all text or all whole numbers, but that of row {number} is {identifier!r:.80} and that "
                f"of row 0 is {'text' if kind is str else 'a number'}; write all as text"
            )
        yield identifier, text


def _text_block(first: int, ids: list[Any], texts: list[str]) -> Block:
    content = {"ids": None if ids[0] is None else ids, "texts": texts}
    return Block(first, len(texts), json.dumps(content).encode())


def _feature_blocks(X: sp.csr_matrix, n_rows: int) -> Iterator[Block]:
    for first in range(0, X.shape[0], n_rows):
        block = X[first : first + n_rows]
        indptr, indices, data = triplet(block)
        arrays = {"indptr": indptr, "indices": indices, "data": data, "shape": np.array(block.shape)}
        yield Block(first, block.shape[0], b"".join(encode(arrays)))


def _count_documents(path: str | Path) -> int:
    return sum(1 for _ in find_documents(Path(path))) if Path(path).is_dir() else 1
