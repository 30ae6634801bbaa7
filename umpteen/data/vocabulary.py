"""The vocabulary of tf-idf: encode texts in blocks, count their terms, and find the strings of the kept terms."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from umpteen.config import TfidfConfig
from umpteen.data.sparse import pointers
from umpteen.engine import Progress, run, silent
from umpteen.errors import BadInput
from umpteen.kernels import text as text_kernels
from umpteen.kernels import vocabulary as kernels

BLOCK_CHARS = 1 << 20  # characters per task
BLOCK_TEXTS = 1 << 14
ROUND_BLOCKS = 32  # blocks in memory at a time
NAME_BYTES = 1 << 20  # initial size of the buffer for strings of terms
# The only characters whose lower case is not one character, or depends on the neighbours.
CASE_EXCEPTIONS = ("\N{GREEK CAPITAL LETTER SIGMA}", "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}")
_ANALYZERS = {"word": text_kernels.WORD, "char": text_kernels.CHAR, "char_wb": text_kernels.CHAR_WB}


class Splitter(NamedTuple):
    """Arguments of the kernels that split texts, in their order."""

    lower: NDArray[np.int32]  # code point -> lower case, empty to keep the case
    kinds: NDArray[np.uint8]  # code point -> word character, white space
    analyzer: int | None
    shortest: int
    longest: int

    @classmethod
    def of(cls, config: TfidfConfig) -> Splitter:
        """Return the splitter for these settings."""
        lower, kinds = character_tables()
        lower = lower if config.lowercase else lower[:0]
        return cls(lower, kinds, _ANALYZERS[config.analyzer], config.ngram_min, config.ngram_max)

    def most_terms(self, n_bytes: Any) -> Any:
        """Return an upper bound of the number of terms of a text of ``n_bytes`` bytes, or of an array of them."""
        n_units = text_kernels.most_units.py_func(n_bytes, self.analyzer)
        return n_units * np.minimum(self.longest - self.shortest + 1, n_units)  # an n-gram is no longer than its text


class Block(NamedTuple):
    """Texts as UTF-8; text i is ``text[offsets[i]:offsets[i + 1]]``."""

    text: NDArray[np.uint8]
    offsets: NDArray[np.int64]

    @property
    def n_texts(self) -> int:
        """Number of texts."""
        return self.offsets.size - 1


@functools.cache
def character_tables() -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return the lower case of every character, and whether ``\\w`` or ``\\s`` matches it."""
    everything = np.arange(0x110000, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    kinds = np.zeros(len(everything), np.uint8)
    for pattern, bit in ((r"\w+", text_kernels.IS_WORD), (r"\s+", text_kernels.IS_SPACE)):
        for run_ in re.finditer(pattern, everything):
            kinds[run_.start() : run_.end()] |= bit
    for exception in CASE_EXCEPTIONS:
        everything = everything.replace(exception, "-")
    folded = np.frombuffer(everything.lower().encode("utf-32-le", "surrogatepass"), "<u4").astype(np.int32)
    changed = np.flatnonzero(folded != np.arange(folded.size))
    lower = folded[: changed[-1] + 1].copy()
    for table in (lower, kinds):
        table.setflags(write=False)
    return lower, kinds


def encode(texts: list[str], lowercase: bool) -> Block:
    """Encode texts as one block."""
    pieces = [as_bytes(text, lowercase) for text in texts]
    return Block(np.frombuffer(b"".join(pieces), np.uint8), pointers([len(piece) for piece in pieces]))


def as_text(text: Any, row: int) -> str:
    """Return the text; raise BadInput if it is not a string."""
    if not isinstance(text, str):
        raise BadInput(f"text {row} is {type(text).__name__}; pass a str, use '' for an empty text")
    return str(text)


def as_bytes(text: str, lowercase: bool) -> bytes:
    """Encode a text as UTF-8; it is converted to lower case only if the table of the kernels cannot do that."""
    if not text.isascii() and lowercase and any(exception in text for exception in CASE_EXCEPTIONS):
        text = text.lower()
    return text.encode("utf-8", "surrogatepass")


class Texts:
    """Texts in blocks. An iterator is held in memory as UTF-8, so that it can be read again, unless ``once``."""

    def __init__(self, texts: Iterable[str], lowercase: bool, *, once: bool = False):
        if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
            raise BadInput(f"texts must be a list of texts, but is one {type(texts).__name__}; pass [text]")
        self._lowercase = lowercase
        self._texts = texts
        self._held: list[Block] | None = None
        self._length = len(texts) if hasattr(texts, "__len__") else 0
        if not once and iter(texts) is texts:
            self._held = [encode(block, lowercase) for block in _cut(texts)]
            self._length = sum(block.n_texts for block in self._held)

    @classmethod
    def stored(cls, texts: Any, lowercase: bool) -> Texts:
        """Return texts that encode themselves in blocks: those of ``StoredTexts``."""
        self = cls((), lowercase)
        self._texts, self._length = texts, len(texts)
        return self

    def map(self, task: Any, stage: str, threads: int, progress: Progress) -> Iterator[list[Any]]:
        """Yield lists of the results of ``task(block)``, for all blocks in order."""
        done = 0
        progress(stage, done, self._length)
        if hasattr(self._texts, "encoded"):
            blocks = self._texts.encoded(0, self._length, self._lowercase)
        else:
            blocks = iter(_cut(self._texts) if self._held is None else self._held)
        while batch := list(islice(blocks, ROUND_BLOCKS)):
            results = run(lambda i, batch=batch: task(self._encoded(batch[i])), len(batch), threads=threads)
            done += sum(block.n_texts if isinstance(block, Block) else len(block) for block in batch)
            progress(stage, done, max(done, self._length))
            yield results

    def _encoded(self, block: list[str] | Block) -> Block:
        return block if isinstance(block, Block) else encode(block, self._lowercase)


def _cut(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield texts in lists of similar size; raise BadInput if one is not a string."""
    block: list[str] = []
    n_chars = 0
    for row, text in enumerate(texts):
        block.append(as_text(text, row))
        n_chars += len(text)
        if n_chars >= BLOCK_CHARS or len(block) >= BLOCK_TEXTS:
            yield block
            block, n_chars = [], 0
    if block:
        yield block


class Counted(NamedTuple):
    """Terms and their counts: arrays of equal length."""

    keys: NDArray[np.uint64]
    n_texts: NDArray[np.int64]  # texts that contain the term
    n_times: NDArray[np.int64]  # occurrences in all texts

    @classmethod
    def none(cls) -> Counted:
        """Return no terms."""
        return cls(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int64))

    def joined(self, others: Counted) -> Counted:
        """Return these terms and others, which are different."""
        return Counted(*(np.concatenate(both) for both in zip(self, others, strict=True)))

    def within(self, config: TfidfConfig, n_texts: int) -> Counted:
        """Return the terms within min_df and max_df."""
        keep = (self.n_texts >= config.min_df) & (self.n_texts <= config.max_df * n_texts)
        return Counted(*(array[keep] for array in self))


class _Shard:
    """Hash table of the terms whose keys have the same highest bits."""

    def __init__(self) -> None:
        self.table = np.zeros(2 * 512, np.uint64)
        self.used = 0

    def add(self, keys: NDArray[np.uint64], counts: NDArray[np.int32], begin: int, end: int) -> None:
        while begin < end:
            begin, self.used = kernels.merge_terms(keys, counts, begin, end, self.table, self.used)
            if begin < end:
                self._enlarge()

    def _enlarge(self) -> None:
        larger = np.zeros(2 * self.table.size, np.uint64)
        kernels.move_terms(self.table, larger)
        self.table = larger

    def add_counts(self, keys: NDArray[np.uint64], numbers: NDArray[np.uint64]) -> None:
        """Add terms with counts as ``packed`` returns them."""
        begin, end = 0, len(keys)
        while begin < end:
            begin, self.used = kernels.merge_counts(keys, numbers, begin, end, self.table, self.used)
            if begin < end:
                self._enlarge()

    def packed(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return the keys, and both counts of each term in one number."""
        keys, numbers = self.table[::2], self.table[1::2]
        return keys[keys != 0], numbers[keys != 0]

    def terms(self) -> Counted:
        keys, numbers = self.packed()
        n_texts = numbers >> np.uint64(kernels.COUNT_BITS)
        n_times = numbers & np.uint64((1 << kernels.COUNT_BITS) - 1)
        return Counted(keys, n_texts.astype(np.int64), n_times.astype(np.int64))


class BlockTerms(NamedTuple):
    """The terms of the texts of a block, ordered by shard."""

    keys: NDArray[np.uint64]
    counts: NDArray[np.int32]
    indptr: NDArray[np.int64]
    n_texts: int


def _count_block(block: Block, splitter: Splitter) -> BlockTerms:
    """Count the terms of every text of a block."""
    most = int(splitter.most_terms(np.diff(block.offsets)).sum())
    keys, counts = np.empty(most, np.uint64), np.empty(most, np.int32)
    n = text_kernels.count_texts(*block, *splitter, keys, counts)
    terms = BlockTerms(
        np.empty(n, np.uint64), np.empty(n, np.int32), np.empty(kernels.N_SHARDS + 1, np.int64), block.n_texts
    )
    kernels.partition_terms(keys, counts, n, terms.keys, terms.counts, terms.indptr)
    return terms


def count_terms(
    texts: Texts, splitter: Splitter, config: TfidfConfig, threads: int, progress: Progress
) -> tuple[Counted, int]:
    """Count all terms; return the terms to keep, and the number of texts."""
    shards, n_texts = _count_shards(texts, splitter, threads, progress)
    check_counts(n_texts, sum(shard.used for shard in shards), config)
    parts = run(lambda _: shards.pop().terms().within(config, n_texts), len(shards), threads=threads)
    terms = Counted(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
    if not terms.keys.size:
        raise BadInput(config.without_terms(n_texts))
    return frequent(terms, config), n_texts


def _count_shards(texts: Texts, splitter: Splitter, threads: int, progress: Progress) -> tuple[list[_Shard], int]:
    shards = [_Shard() for _ in range(kernels.N_SHARDS)]
    n_texts = 0

    for counted in texts.map(lambda block: _count_block(block, splitter), "count terms", threads, progress):
        n_texts += sum(terms.n_texts for terms in counted)

        def merge(shard: int, counted: list[BlockTerms] = counted) -> None:
            for terms in counted:
                shards[shard].add(terms.keys, terms.counts, terms.indptr[shard], terms.indptr[shard + 1])

        run(merge, len(shards), threads=threads)
    return shards, n_texts


def check_counts(n_texts: int, n_terms: int, config: TfidfConfig) -> None:
    """Refuse texts that tf-idf cannot be learned from."""
    if not 0 < n_texts <= kernels.MAX_TEXTS:
        raise BadInput(f"tf-idf needs between 1 and {kernels.MAX_TEXTS} texts, but got {n_texts}")
    if not n_terms:
        raise BadInput(f"no {config.analyzer} n-gram in any of {n_texts} texts; pass texts with words")


def count_range(texts: Texts, splitter: Splitter, threads: int) -> dict[str, np.ndarray]:
    """Count the terms of some of the texts; return keys and counts by shard, to be added up by ``join_counts``."""
    shards, _ = _count_shards(texts, splitter, threads, silent)
    found = [shard.packed() for shard in shards]
    keys, numbers = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return {"keys": keys, "numbers": numbers, "indptr": pointers([len(keys) for keys, _ in found])}


def join_counts(parts: Iterable[Mapping[str, np.ndarray]], shard: int) -> Counted:
    """Add up one shard of what ``count_range`` returned for several ranges."""
    table = _Shard()
    for part in parts:
        mine = slice(*part["indptr"][shard : shard + 2])
        table.add_counts(part["keys"][mine], part["numbers"][mine])
    return table.terms()


def frequent(terms: Counted, config: TfidfConfig) -> Counted:
    """Return at most max_features terms."""
    if not 0 < config.max_features < terms.keys.size:
        return terms
    kept = most_frequent(terms, config.max_features)
    return Counted(*(array[kept] for array in terms))


def most_frequent(terms: Counted, n: int) -> NDArray[np.int64]:
    """Return the positions of the n most frequent terms; ties are ordered by key."""
    cut = np.partition(terms.n_times, terms.n_times.size - n)[terms.n_times.size - n]
    above, equal = np.flatnonzero(terms.n_times > cut), np.flatnonzero(terms.n_times == cut)
    equal = equal[np.argsort(terms.keys[equal], kind="stable")][: n - above.size]
    return np.concatenate([above, equal])


def make_slots(keys: NDArray[np.uint64]) -> NDArray[np.int32]:
    """Return the hash table from keys to columns."""
    slots = np.full(text_kernels.slots_for.py_func(keys.size), -1, np.int32)
    kernels.fill_slots(keys, slots)
    return slots


def _name_block(
    block: Block, splitter: Splitter, vocabulary: tuple[np.ndarray, ...], unnamed: NDArray[np.uint8]
) -> list[tuple[int, bytes]]:
    """Return column and string of the terms of a block whose string is not known yet."""
    found: list[tuple[int, bytes]] = []
    row, size = 0, NAME_BYTES
    n_left = int(np.count_nonzero(unnamed))
    columns, ends = np.empty(n_left, np.int32), np.empty(n_left, np.int64)
    while row < block.n_texts:
        before, out = row, np.empty(size, np.uint8)
        row, n = kernels.name_terms(*block, row, *splitter, *vocabulary, unnamed, columns, ends, out)
        packed, stops = out.tobytes(), ends[:n].tolist()
        strings = (packed[begin:end] for begin, end in zip([0, *stops], stops, strict=False))
        found += zip(columns[:n].tolist(), strings, strict=True)
        if row == before and not n:
            size *= 2  # a single string is longer than the buffer
    return found


def name_terms(
    texts: Texts, splitter: Splitter, keys: NDArray[np.uint64], threads: int, progress: Progress
) -> list[bytes]:
    """Return the strings of the kept terms, which are found by a second pass over the texts."""
    names = name_range(texts, splitter, keys, threads, progress)
    if len(names) < keys.size:
        raise BadInput("the texts differ between two readings; pass a list of texts")
    return [names[column] for column in range(keys.size)]


def name_range(
    texts: Texts, splitter: Splitter, keys: NDArray[np.uint64], threads: int, progress: Progress = silent
) -> dict[int, bytes]:
    """Return the strings of those of the kept terms that occur in some texts, by column."""
    vocabulary = (keys, make_slots(keys))
    unnamed = np.ones(keys.size, np.uint8)  # shared by threads; if two name a term, the strings are the same
    names: dict[int, bytes] = {}
    task = functools.partial(_name_block, splitter=splitter, vocabulary=vocabulary, unnamed=unnamed)
    for found in texts.map(task, "name terms", threads, progress):
        names.update(chain.from_iterable(found))
        if len(names) == keys.size:
            break
    return names


def learned_arrays(
    keys: NDArray[np.uint64], n_with: NDArray[np.int64], names: list[bytes], n_texts: int
) -> dict[str, np.ndarray]:
    """Return the arrays of a fitted ``Tfidf``: terms by name, of which ``n_with`` of all texts contain each."""
    # The order of UTF-8 bytes is that of code points, which is how Python sorts strings.
    order = np.array(sorted(range(len(names)), key=names.__getitem__))
    keys = keys[order]
    return {
        "keys": keys,
        "slots": make_slots(keys),
        "idf": (np.log((1 + n_texts) / (1 + n_with[order])) + 1).astype(np.float32),
        "term_bytes": np.frombuffer(b"".join(names[column] for column in order), np.uint8),
        "term_offsets": pointers([len(names[column]) for column in order]),
    }
