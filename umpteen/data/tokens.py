"""Tokenise texts, and batch them by length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

import numpy as np

from umpteen.data.sparse import pointers, slice_blocks
from umpteen.data.vocabulary import as_text
from umpteen.engine import Progress, silent
from umpteen.store.parts import blocks
from umpteen.store.tensors import Allocate, in_memory

_AT_A_TIME = 4_096  # texts handed to the tokenizer in one call, if it reads one window of each
_FEWEST_AT_A_TIME = 64  # enough for all cores
_CHARACTERS = 6  # a token of a long text has fewer on average, so the text is first cut to this many per token
_POOLED = 50  # batches that are sorted by length together
_COPIED_AT_ONCE = 65_536  # texts whose tokens are copied in one go
_COLLECTED = 1 << 24  # tokens that are collected before they are moved to the array that they are kept in


@dataclass(frozen=True)
class Tokens:
    """Token numbers of all texts, one after the other; text i is ``ids[ptr[i]:ptr[i + 1]]``."""

    ptr: np.ndarray  # int64, texts + 1
    ids: np.ndarray  # int32

    def __len__(self) -> int:
        return len(self.ptr) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each text."""
        return np.diff(self.ptr)

    def take(self, rows: np.ndarray, allocate: Allocate = in_memory) -> Tokens:
        """Return a copy of the tokens of some texts; ``allocate`` makes the array."""
        return self._copied(self.ptr[rows], self.lengths[rows], allocate)

    def truncated(self, limit: int, allocate: Allocate = in_memory) -> Tokens:
        """Return at most ``limit`` tokens of each text: its first ones, and its last one, which ends every text."""
        out = self._copied(self.ptr[:-1], np.minimum(self.lengths, limit), allocate)
        is_cut = self.lengths > limit
        out.ids[out.ptr[1:][is_cut] - 1] = self.ids[self.ptr[1:][is_cut] - 1]
        return out

    def _copied(self, first: np.ndarray, sizes: np.ndarray, allocate: Allocate) -> Tokens:
        """Copy so many tokens from each of some places on."""
        ptr = pointers(sizes)
        ids = allocate({"ids": (np.int32, (int(ptr[-1]),))})["ids"]
        for to, places in slice_blocks(first, sizes, _COPIED_AT_ONCE):
            ids[to] = self.ids[places]
        return Tokens(ptr, ids)

    @classmethod
    def of(cls, lists: Sequence[Sequence[int]]) -> Tokens:
        """Concatenate lists of token ids."""
        return cls(pointers([len(ids) for ids in lists]), np.fromiter(chain.from_iterable(lists), np.int32))

    @classmethod
    def joined(cls, parts: Sequence[Tokens], allocate: Allocate = in_memory) -> Tokens:
        """Return the tokens of several sets of texts, one after the other; ``allocate`` makes the array."""
        ptr = pointers(np.concatenate([np.empty(0, np.int64), *(part.lengths for part in parts)]))
        ids, begin = allocate({"ids": (np.int32, (int(ptr[-1]),))})["ids"], 0
        for part in parts:
            ids[begin : begin + len(part.ids)] = part.ids
            begin += len(part.ids)
        return cls(ptr, ids)


def set_limit(tokenizer: Any, limit: int) -> None:
    """Let a tokenizer cut texts into windows of ``limit`` tokens; once, for not while others are using it."""
    tokenizer.enable_truncation(limit)
    tokenizer.no_padding()


def tokenize(
    texts: Sequence[str], tokenizer: Any, limit: int, *, windows: int = 1, progress: Progress = silent,
    allocate: Allocate = in_memory,
) -> Tokens:  # fmt: skip
    """Cut each text into at most ``windows`` windows of ``limit`` tokens.

    The windows of a text lie one after the other, each with its own special tokens; only the last one may be shorter
    than ``limit``. ``tokenizer`` is one of the package ``tokenizers``, which works on all cores; ``set_limit`` has told
    it the limit. ``allocate`` makes the arrays of tokens.
    """

    def read() -> Iterator[Tokens]:
        for first, last in blocks(len(texts), max(_AT_A_TIME // windows, _FEWEST_AT_A_TIME)):
            block = [as_text(text, first + row) for row, text in enumerate(texts[first:last])]
            progress("tokens", first, len(texts))
            yield Tokens.of(_block_ids(block, tokenizer, limit, windows))
        progress("tokens", len(texts), len(texts))

    return _collected(read(), allocate)


def _collected(some: Iterable[Tokens], allocate: Allocate) -> Tokens:
    """Join tokens whose number is not known before; few of them are in memory at a time if ``allocate`` makes files."""
    moved: list[Tokens] = []
    waiting: list[Tokens] = []
    for tokens in some:
        waiting.append(tokens)
        if sum(len(part.ids) for part in waiting) >= _COLLECTED:
            moved.append(Tokens.joined(waiting, allocate))
            waiting.clear()
    if not moved:
        return Tokens.joined(waiting, allocate)
    return Tokens.joined([*moved, Tokens.joined(waiting)], allocate)


def _block_ids(block: list[str], tokenizer: Any, limit: int, windows: int) -> list[list[int]]:
    """Return the token numbers of some texts.

    Reading a long text to its end only to throw most of it away is what takes the time, so the tokenizer first sees
    its beginning, and the whole text only if that was too little.
    """
    most = limit * windows
    begun = [_beginning(text, _CHARACTERS * most) for text in block]
    found = _encoded(tokenizer, begun, windows)
    short = [i for i, text in enumerate(block) if len(begun[i]) < len(text) and len(found[i]) < most]
    if not short:
        return found
    for i, ids in zip(short, _encoded(tokenizer, [block[i] for i in short], windows), strict=True):
        found[i] = ids
    return found


def _encoded(tokenizer: Any, texts: list[str], windows: int) -> list[list[int]]:
    """Return the token numbers of some texts; half a character, which no tokenizer reads, becomes a question mark."""
    try:
        found = tokenizer.encode_batch_fast(texts)
    except TypeError:
        found = tokenizer.encode_batch_fast([text.encode("utf-8", "replace").decode("utf-8") for text in texts])
    return [_window_ids(encoded, windows) for encoded in found]


def _window_ids(encoded: Any, windows: int) -> list[int]:
    """Return the token numbers of the first windows, one after the other; the tokenizer has cut them all."""
    if windows == 1:
        return encoded.ids
    return list(chain(encoded.ids, *(rest.ids for rest in encoded.overflowing[: windows - 1])))


def _beginning(text: str, size: int) -> str:
    """Truncate a text at a space before ``size`` characters; a text without spaces is not truncated."""
    if len(text) <= size:
        return text
    cut = text.rfind(" ", 0, size)
    return text[:cut] if cut > 0 else text


def training_batches(lengths: np.ndarray, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield every text once, in random batches of texts of similar length."""
    order = rng.permutation(len(lengths))
    for first in range(0, len(order), size * _POOLED):
        pooled = order[first : first + size * _POOLED]
        pooled = pooled[np.argsort(lengths[pooled], kind="stable")]
        batches = [pooled[i : i + size] for i in range(0, len(pooled), size)]
        for i in rng.permutation(len(batches)):
            yield batches[i]


def endless_batches(lengths: np.ndarray, size: int, *seed: int) -> Iterator[np.ndarray]:
    """Yield the training batches of successive epochs, each with its own order."""
    for epoch in count():
        yield from training_batches(lengths, size, np.random.default_rng((*seed, epoch)))


def by_budget(lengths: np.ndarray, budget: int, widths: np.ndarray | None = None) -> Iterator[np.ndarray]:
    """Yield all texts from short to long, in batches of at most ``budget`` tokens with padding.

    A batch is padded to the ``widths`` of its longest text, by default the length of that.

    Examples
    --------
    >>> [batch.tolist() for batch in by_budget(np.array([5, 2, 9, 2]), 10)]
    [[1, 3], [0], [2]]
    >>> [batch.tolist() for batch in by_budget(np.array([5, 2, 9, 2]), 10, np.array([8, 8, 16, 8]))]
    [[1], [3], [0], [2]]
    """
    order = np.argsort(lengths, kind="stable")
    wide = np.maximum((lengths if widths is None else widths)[order], 1)
    first = 0
    while first < len(order):
        ahead = wide[first : first + max(budget, 1)]
        held = ahead * np.arange(1, len(ahead) + 1)  # tokens of batches that end here
        last = first + max(1, int(np.searchsorted(held, budget, side="right")))
        yield order[first:last]
        first = last
