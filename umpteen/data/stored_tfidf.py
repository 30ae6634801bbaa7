"""Learn tf-idf from texts in a file, and write their rows to a file, in tasks that each read a range of the texts.

kept           numbers of the texts
counts-0-900   terms of a range of the texts with their counts, by shard
named          strings of the terms that are kept, as far as they are known
names-0-900    strings of further ones that occur in a range
tfidf          what was learned
rows-0-900     tf-idf rows of a range of the texts, which are joined to the stage rows
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from umpteen.config import TfidfConfig, from_dict, to_dict
from umpteen.data.sparse import pointers
from umpteen.data.stored_texts import StoredTexts
from umpteen.data.tfidf import Tfidf, stack
from umpteen.data.vocabulary import (
    Counted,
    Splitter,
    Texts,
    check_counts,
    count_range,
    frequent,
    join_counts,
    learned_arrays,
    name_range,
)
from umpteen.engine import Engine, Memory, Progress, silent
from umpteen.errors import BadInput
from umpteen.kernels.vocabulary import N_SHARDS
from umpteen.store import Checkpoint
from umpteen.store.mapped import resident_limit
from umpteen.store.parts import Part, blocks, join_parts, make_parts, part_task
from umpteen.store.tensors import Tensors

ROWS, TFIDF, KEPT, TERMS, NAMED = "rows", "tfidf", "kept", "terms", "named"

_RANGE_BYTES = 24_000_000  # of the texts of one task, at most
_LEAST_RANGE = 2_000_000
_RANGES_A_WORKER = 8  # into which texts are divided if ranges are between these
_NAMES_AT_ONCE = 1 << 16  # strings that are copied
_MEMORY_PER_BYTE = 12.0  # of a text whose terms are counted


def _texts(checkpoint: Checkpoint, place: Mapping[str, str], first: int, last: int, config: TfidfConfig) -> Texts:
    source = StoredTexts(place, checkpoint.load(KEPT)["rows"][first:last])
    return Texts.stored(source, config.lowercase)


@part_task
def count(
    checkpoint: Checkpoint, *, texts: dict[str, str], first: int, last: int, config: dict[str, Any], memory: int,
    threads: int,
) -> Tensors:  # fmt: skip
    """Return the terms of a range of texts with their counts, by shard."""
    settings = from_dict(TfidfConfig, config)
    with resident_limit(Memory(memory).maps):
        source = _texts(checkpoint, texts, first, last, settings)
        return count_range(source, Splitter.of(settings), threads)


@part_task
def name(
    checkpoint: Checkpoint, *, texts: dict[str, str], first: int, last: int, config: dict[str, Any], memory: int,
    threads: int,
) -> Tensors:  # fmt: skip
    """Return the strings of the terms that occur in a range of texts and are not known yet."""
    settings, keys = from_dict(TfidfConfig, config), checkpoint.load(TERMS)["keys"]
    columns = np.delete(np.arange(len(keys)), checkpoint.load(NAMED)["columns"])
    with resident_limit(Memory(memory).maps):
        source = _texts(checkpoint, texts, first, last, settings)
        found = name_range(source, Splitter.of(settings), keys[columns], threads)
    return _packed_names({int(columns[i]): string for i, string in found.items()})


def _packed_names(names: Mapping[int, bytes]) -> Tensors:
    columns = np.array(sorted(names), np.int64)
    strings = [names[column] for column in columns.tolist()]
    ends = np.cumsum([len(string) for string in strings], dtype=np.int64)
    return {"columns": columns, "ends": ends, "text": np.frombuffer(b"".join(strings), np.uint8)}


def _joined_names(parts: Sequence[Tensors]) -> Tensors:
    """Join packed names; a term that is in several parts has the same string in each."""
    text = np.concatenate([part["text"] for part in parts])
    columns, at = np.unique(np.concatenate([part["columns"] for part in parts]), return_index=True)
    lengths = np.concatenate([np.diff(part["ends"], prepend=0) for part in parts])
    begins = pointers(lengths)[at]
    ends = np.cumsum(lengths[at])
    taken = np.empty(ends[-1] if len(ends) else 0, np.uint8)
    for first, last in blocks(len(at), _NAMES_AT_ONCE):
        done = int(ends[first - 1]) if first else 0
        shift = np.repeat(begins[first:last] - np.append(done, ends[first : last - 1]), lengths[at[first:last]])
        taken[done : ends[last - 1]] = text[np.arange(done, ends[last - 1]) + shift]
    return {"columns": columns, "ends": ends, "text": taken}


def _unpacked_names(arrays: Tensors) -> list[bytes]:
    text, ends = arrays["text"].tobytes(), arrays["ends"].tolist()
    return [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


@part_task
def weigh(
    checkpoint: Checkpoint, *, texts: dict[str, str], first: int, last: int, config: dict[str, Any], memory: int,
    threads: int,
) -> Tensors:  # fmt: skip
    """Return the tf-idf rows of a range of texts."""
    settings = from_dict(TfidfConfig, config)
    tfidf = Tfidf.from_arrays(settings, checkpoint.load(TFIDF))
    with resident_limit(Memory(memory).maps):
        found = tfidf.transform_blocks(_texts(checkpoint, texts, first, last, settings), threads)
        indptr, indices, data = stack(found)
    return {"indptr": indptr, "indices": indices, "data": data}


@dataclass(frozen=True)
class StoredTfidf:
    """tf-idf of texts in a file."""

    checkpoint: Checkpoint
    texts: StoredTexts
    config: TfidfConfig
    engine: Engine
    memory: Memory
    threads: int
    progress: Progress = silent

    def fit_transform(self) -> Tfidf:
        """Learn the terms and write the rows to the stage ``rows``; what was finished before is not done again."""
        stages = self.checkpoint
        if not stages.has(TFIDF):
            self._learn()
        tfidf = Tfidf.from_arrays(self.config, stages.load(TFIDF), threads=self.threads)
        if not stages.has(ROWS):
            parts = self._make(weigh, ROWS, "weigh terms", self._ranges)
            extra = {"n_sparse": np.array([tfidf.n_features]), "dense": np.zeros((1, 0), np.float32)}
            join_parts(stages, ROWS, parts, pointers=["indptr"], extra=extra)
        return tfidf

    def _learn(self) -> None:
        stages = self.checkpoint
        if not stages.has(KEPT):
            rows = np.arange(len(self.texts)) if self.texts.rows is None else self.texts.rows
            stages.save(KEPT, {"rows": rows.astype(np.int64)})
        if not stages.has(TERMS):
            parts = self._make(count, "counts", "count terms", self._ranges)
            terms = self._join_counts([stages.load(part) for part in parts])
            stages.drop(NAMED)  # of terms in another order
            stages.save(TERMS, {"keys": terms.keys, "n_texts": terms.n_texts})
            stages.drop(*parts)
        terms = stages.load(TERMS)
        names = self._names(len(terms["keys"]))
        stages.save(TFIDF, learned_arrays(terms["keys"], terms["n_texts"], names, len(self.texts)))

    def _join_counts(self, parts: list[Tensors]) -> Counted:
        """Add up the counts of all ranges, a shard after the other, and keep the terms that the settings want."""
        n_texts, n_terms, kept = len(self.texts), 0, Counted.none()
        check_counts(n_texts, 1, self.config)
        for shard in range(N_SHARDS):
            terms = join_counts(parts, shard)
            n_terms += len(terms.keys)
            kept = frequent(kept.joined(terms.within(self.config, n_texts)), self.config)
        check_counts(n_texts, n_terms, self.config)
        if not len(kept.keys):
            raise BadInput(self.config.without_terms(n_texts))
        return kept

    def _names(self, n_terms: int) -> list[bytes]:
        """Return the strings of all terms; texts are read until all have been found.

        Most terms occur in the first texts. The others are looked for in four times as many ranges each time.
        """
        stages = self.checkpoint
        if not stages.has(NAMED):
            stages.save(NAMED, {**_packed_names({}), "upto": np.zeros(1, np.int64)})
        known = stages.load(NAMED, mmap=False)  # Windows cannot replace a file that is mapped
        upto = int(known.pop("upto")[0])
        waiting = [part for part in self._ranges if part.arguments["last"] > upto]
        n_at_once = 2 * max(1, self.engine.n_workers)  # a cluster may be without nodes for a moment
        while len(known["columns"]) < n_terms and waiting:
            some, waiting = waiting[:n_at_once], waiting[n_at_once:]
            parts = self._make(name, "names", "name terms", some)
            known = _joined_names([known, *(stages.load(part) for part in parts)])
            stages.save(NAMED, {**known, "upto": np.array([some[-1].arguments["last"]])})
            stages.drop(*parts)
            n_at_once *= 4
        if len(known["columns"]) < n_terms:
            stages.drop(NAMED)
            raise BadInput("the texts changed while they were read; run the training again")
        return _unpacked_names(known)

    @property
    def _ranges(self) -> list[Part]:
        """Return ranges of texts of similar length."""
        ends = np.cumsum(self.texts.lengths, dtype=np.float64)
        total = float(ends[-1]) if len(ends) else 0.0
        most = self.memory.shared_by(self.engine.n_workers).part / _MEMORY_PER_BYTE
        wanted = max(total / (_RANGES_A_WORKER * max(1, self.engine.n_workers)), _LEAST_RANGE)
        size = min(wanted, _RANGE_BYTES, max(most, _LEAST_RANGE))
        n_ranges = max(1, round(total / size))
        cuts = np.unique(np.searchsorted(ends, np.linspace(0, total, n_ranges + 1)[1:-1]))
        bounds = [0, *cuts.tolist(), len(ends)]
        return [
            Part(f"{first}-{last}", {"first": first, "last": last}, max(int(ends[last - 1] - ends[first]), 1))
            for first, last in pairwise(bounds)
            if first < last
        ]

    def _make(self, function: Any, prefix: str, stage: str, ranges: list[Part]) -> list[str]:
        parts = [Part(f"{prefix}-{part.name}", part.arguments, part.cost) for part in ranges]
        common = {"texts": self.texts.place, "config": to_dict(self.config)}
        common["memory"] = self.memory.shared_by(self.engine.n_workers).total
        return make_parts(
            self.checkpoint, self.engine, function, parts, common=common, stage=stage, progress=self.progress
        )
