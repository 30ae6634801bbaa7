"""Texts in a file: UTF-8 end to end, mapped, so that any number of them take little memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, overload

import numpy as np

from umpteen.data.sparse import pointers
from umpteen.data.vocabulary import BLOCK_CHARS, BLOCK_TEXTS, CASE_EXCEPTIONS, Block, as_bytes, as_text
from umpteen.store import Checkpoint
from umpteen.store.parts import blocks, join_parts
from umpteen.store.tensors import Pieces

TEXTS = "texts"  # name of the stage

_PART_BYTES = 1 << 24  # of texts that are in memory until they are written
_EXCEPTIONS = tuple(character.encode() for character in CASE_EXCEPTIONS)


class StoredTexts(Sequence[str]):
    """A sequence of texts that are read from a stage of a checkpoint when they are used.

    Parameters
    ----------
    place
        The checkpoint, as ``Checkpoint.place`` names it.
    rows
        Numbers of the texts that belong to the sequence; all by default.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     texts = StoredTexts.write(Checkpoint(folder), ["red apple", "green pear", "cherry"])
    ...     len(texts), texts[1], texts.take(np.array([2, 0]))[0]
    (3, 'green pear', 'cherry')
    """

    def __init__(self, place: Mapping[str, str], rows: np.ndarray | None = None) -> None:
        self.place, self.rows = dict(place), rows
        arrays = Checkpoint(**self.place).load(TEXTS)
        self._text, self._offsets = arrays["text"], arrays["offsets"]

    @classmethod
    def write(cls, checkpoint: Checkpoint, texts: Iterable[str]) -> Self:
        """Write texts to a stage, if it does not exist yet."""
        if checkpoint.has(TEXTS):
            return cls(checkpoint.place)
        if isinstance(texts, Sequence):  # can be read twice: once for the lengths
            lengths = (_n_bytes(as_text(text, row)) for row, text in enumerate(texts))
            offsets = pointers(np.fromiter(lengths, np.int64, len(texts)))
            joined = (np.frombuffer(b"".join(pieces), np.uint8) for pieces in _pieces(texts))
            text = Pieces(np.dtype(np.uint8), (int(offsets[-1]),), joined)
            checkpoint.save_pieces(TEXTS, {"text": text, "offsets": Pieces(offsets.dtype, offsets.shape, [offsets])})
        else:
            parts = []
            for number, pieces in enumerate(_pieces(texts)):
                parts.append(f"{TEXTS}-part-{number}")
                text = np.frombuffer(b"".join(pieces), np.uint8)
                checkpoint.save(parts[-1], {"text": text, "offsets": pointers([len(piece) for piece in pieces])})
            join_parts(checkpoint, TEXTS, parts, pointers=["offsets"])
        return cls(checkpoint.place)

    def __len__(self) -> int:
        return len(self._offsets) - 1 if self.rows is None else len(self.rows)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        row = index % len(self) if self.rows is None else self.rows[index]
        return self._bytes(int(row)).decode("utf-8", "surrogatepass")

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))

    def _bytes(self, row: int) -> bytes:
        return self._text[self._offsets[row] : self._offsets[row + 1]].tobytes()

    @property
    def lengths(self) -> np.ndarray:
        """Bytes of each text."""
        lengths = np.diff(self._offsets)
        return lengths if self.rows is None else lengths[self.rows]

    def take(self, rows: np.ndarray) -> StoredTexts:
        """Return the sequence of the texts with these numbers; they are not copied."""
        return StoredTexts(self.place, rows if self.rows is None else self.rows[rows])

    def digest(self) -> str:
        """Return a digest of all texts."""
        digest = hashlib.sha256(np.ascontiguousarray(self._offsets))
        if self.rows is not None:
            digest.update(np.ascontiguousarray(self.rows))
        for first, last in blocks(len(self._text), _PART_BYTES):
            digest.update(self._text[first:last])
        return digest.hexdigest()

    def encoded(self, first: int, last: int, lowercase: bool) -> Iterator[Block]:
        """Yield the texts with the numbers ``first … last - 1`` in blocks, as ``vocabulary.encode`` encodes them."""
        rows = np.arange(first, last) if self.rows is None else self.rows[first:last]
        ends = np.cumsum(self._offsets[rows + 1] - self._offsets[rows])
        begin = 0
        while begin < len(rows):
            done = ends[begin - 1] if begin else 0
            end = min(int(np.searchsorted(ends, done + BLOCK_CHARS)) + 1, begin + BLOCK_TEXTS, len(rows))
            yield self._block(rows[begin:end], lowercase)
            begin = end

    def _block(self, rows: np.ndarray, lowercase: bool) -> Block:
        is_run = rows[-1] - rows[0] == len(rows) - 1
        if is_run:
            begin, end = self._offsets[rows[0]], self._offsets[rows[-1] + 1]
            text, offsets = self._text[begin:end].copy(), self._offsets[rows[0] : rows[-1] + 2] - begin
        else:
            pieces = [self._bytes(int(row)) for row in rows]
            text, offsets = np.frombuffer(b"".join(pieces), np.uint8), pointers([len(piece) for piece in pieces])
        if lowercase and any(character in text.tobytes() for character in _EXCEPTIONS):
            pieces = [as_bytes(self._bytes(int(row)).decode("utf-8", "surrogatepass"), True) for row in rows]
            text, offsets = np.frombuffer(b"".join(pieces), np.uint8), pointers([len(piece) for piece in pieces])
        text.setflags(write=False)  # like blocks of texts in memory: kernels would be compiled for both kinds
        return Block(text, offsets)


def digest_of(texts: Iterable[str]) -> str:
    """Return a digest of texts in memory."""
    digest = hashlib.sha256()
    for pieces in _pieces(texts):
        digest.update(pointers([len(piece) for piece in pieces]))
        for piece in pieces:
            digest.update(piece)
    return digest.hexdigest()


def _n_bytes(text: str) -> int:
    """Return the length of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _pieces(texts: Iterable[str]) -> Iterator[list[bytes]]:
    """Yield texts as UTF-8 in lists of some megabytes; at least one list, which may be empty."""
    pieces: list[bytes] = []
    n_bytes, is_first = 0, True
    for row, text in enumerate(texts):
        pieces.append(as_text(text, row).encode("utf-8", "surrogatepass"))
        n_bytes += len(pieces[-1])
        if n_bytes >= _PART_BYTES:
            yield pieces
            pieces, n_bytes, is_first = [], 0, False
    if pieces or is_first:
        yield pieces
