"""Beam search in a tree of packed linear classifiers."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from umpteen.config import SearchConfig
from umpteen.data.rows import Rows
from umpteen.data.sparse import stored
from umpteen.engine import n_threads, run
from umpteen.errors import BadInput
from umpteen.kernels import LANES, POSTS, lazy
from umpteen.linear.pack import Chunks, Level, pack
from umpteen.shortlist import TopK
from umpteen.tree import LabelTree

Triplet = tuple[np.ndarray, ...]

_OFFSETS_AT_MOST = 12_000_000  # entries of the table of run starts: 24 MB
_TOP_AT_MOST = 4_000_000  # decoded weights of the first level: 16 MB
_NO_OFFSETS = np.empty((0, 0), np.uint16)
ROWS_AT_ONCE = 32_768  # rows searched at a time: each needs some kilobytes
_PARTS = 8  # maximum number of parts of a batch per thread
_CHUNKS_A_PART = 8  # minimum, unless threads would be idle
_MOST_NODES = 2**31 - 1  # that a search keeps at a level
_FIRST_PARENTS = 3  # parents scored before the others are tested for relevance


class LinearTree:
    """Search a packed tree.

    ``arrays`` are those of ``kernels.score``: meta, children, bias, ptr, run_ptr, run_chunk, run_last, local,
    codes, table. They may be memory-mapped.
    """

    KERNEL: ClassVar[tuple[str, ...]] = (
        "meta", "children", "bias", "ptr", "run_ptr", "run_chunk", "run_last", "local", "codes", "table",
    )  # fmt: skip

    def __init__(self, arrays: dict[str, np.ndarray], tree: LabelTree, n_features: int, search: SearchConfig):
        self.arrays = {name: _read_only(array) for name, array in arrays.items()}
        self.tree, self.n_features, self.search = tree, n_features, search
        self.n_levels = len(self.arrays["meta"])
        self.packed = tuple(self.arrays[name] for name in self.KERNEL)
        self.posts = self._posts()
        self._by_chunk: dict[int, Chunks] = {}
        self._beams: dict[tuple[int | None, int], np.ndarray] = {}
        self._reached: dict[int | None, int] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Leave out caches."""
        return self.__dict__ | {"_by_chunk": {}, "_beams": {}, "_reached": {}}

    @classmethod
    def pack(
        cls,
        levels: list[Level],
        tree: LabelTree,
        n_features: int,
        search: SearchConfig,
        *,
        weights: str = "float32",
        threads: int = 1,
    ) -> LinearTree:
        """Pack trained levels for prediction: all levels of the tree, or the first ones."""
        return cls(pack(levels, tree, n_features, weights, threads), tree, n_features, search)

    @property
    def n_weights(self) -> int:
        """Number of stored weights."""
        return len(self.arrays["codes"])

    def topk(
        self, rows: Rows, k: int, *, beam: int | None = None, allowed: np.ndarray | None = None, threads: int = 1
    ) -> TopK:
        """Return the k best nodes of the last level."""
        if len(rows) > ROWS_AT_ONCE:
            blocks = (rows.between(*ends) for ends in row_blocks(len(rows)))
            tops = [self.topk(block, k, beam=beam, allowed=allowed, threads=threads) for block in blocks]
            return TopK(np.concatenate([top.labels for top in tops]), np.concatenate([top.scores for top in tops]))
        beams = self.beams(beam, k)
        flags = np.empty(0, np.uint8) if allowed is None else allowed
        n = len(rows)
        labels, scores = np.empty((n, k), np.int32), np.empty((n, k), np.float32)
        triplet = self._sparse(rows)
        derived = (*self._offsets, self._top)
        if n == 1:  # without threads and blocks
            lazy.score.search(*triplet, 0, 1, *self.packed, *derived, beams, self.posts, flags, labels, scores)
            return TopK(labels, scores)
        by_chunks = [n >= 64 and self.prefers_chunks(triplet, beams, i) for i in range(self.n_levels)]
        if any(by_chunks):
            return self._by_levels(triplet, k, beams, flags, by_chunks, threads)

        def task(first: int, last: int) -> None:
            lazy.score.search(*triplet, first, last, *self.packed, *derived, beams, self.posts, flags, labels, scores)

        _run_blocks(task, n, threads)
        return TopK(labels, scores)

    def score_labels(self, rows: Rows, pairs: sp.csr_matrix, *, threads: int = 1) -> sp.csr_matrix:
        """Score the given labels of each row, without a beam."""
        if len(rows) > ROWS_AT_ONCE:
            blocks = row_blocks(len(rows))
            parts = [self.score_labels(rows.between(*ends), pairs[slice(*ends)], threads=threads) for ends in blocks]
            return sp.csr_matrix(sp.vstack(parts))
        triplet = self._sparse(rows)
        # the root is the only parent of all rows and has the score one
        above = (np.arange(len(rows) + 1), np.zeros(len(rows), np.int32), np.ones(len(rows), np.float32))
        for level in range(self.n_levels):
            nodes = self.tree.lift(pairs, level)
            ptr, ids = nodes.indptr.astype(np.int64), nodes.indices.astype(np.int32)
            args = (ptr, ids, self.tree.parents[level][ids], *above, np.empty(len(ids), np.float32))
            _run_blocks(partial(self._score_block, triplet, level, args), len(rows), threads)
            above = (ptr, ids, args[-1])
        ptr, ids, scores = above
        scored = sp.csr_matrix((scores, self.tree.order[ids], ptr), shape=pairs.shape)
        scored.sort_indices()
        return scored

    def _score_block(self, triplet: Triplet, level: int, args: Triplet, first: int, last: int) -> None:
        lazy.score.score_pairs(*triplet, first, last, level, *self.packed, self.posts[level], *args)

    def _by_levels(
        self, triplet: Triplet, k: int, beams: np.ndarray, flags: np.ndarray, by_chunks: list[bool], threads: int
    ) -> TopK:
        """Search all rows level by level, each level by rows or by chunks."""
        n = len(triplet[0]) - 1
        beam = TopK(np.zeros((n, 1), np.int32), np.ones((n, 1), np.float32))
        for level in range(self.n_levels):
            keep = k if level == self.n_levels - 1 else int(beams[level])
            step = self.level_by_chunks if by_chunks[level] else self.level_by_rows
            beam = step(triplet, level, beam, keep, flags, threads)
        return beam

    def level_by_rows(
        self, triplet: Triplet, level: int, beam: TopK, keep: int, flags: np.ndarray, threads: int
    ) -> TopK:
        """Score the children of the nodes in the beam row by row, and keep the best."""
        n = len(beam.labels)
        labels, scores = np.empty((n, keep), np.int32), np.empty((n, keep), np.float32)
        offsets = self._offsets[0] if level == self._offsets[1] else _NO_OFFSETS

        def task(first: int, last: int) -> None:
            lazy.score.search_level(
                *triplet, first, last, level, *self.packed, offsets, self.posts[level], flags,
                beam.labels, beam.scores, labels, scores,
            )  # fmt: skip

        _run_blocks(task, n, threads)
        return TopK(labels, scores)

    def level_by_chunks(
        self, triplet: Triplet, level: int, beam: TopK, keep: int, flags: np.ndarray, threads: int
    ) -> TopK:
        """Score each chunk for all rows whose beam contains it, then merge the chunks of each row.

        A child never scores more than its parent, so after the first few parents only those are scored that may still
        change the result: usually four of ten.
        """
        n = len(beam)
        labels, scores = np.full((n, keep), -1, np.int32), np.zeros((n, keep), np.float32)
        parents = beam.labels[:, :_FIRST_PARENTS]
        self._add_chunks(triplet, level, parents, beam.scores, labels, scores, flags, threads)
        if beam.k > _FIRST_PARENTS:
            rest = np.ascontiguousarray(beam.scores[:, _FIRST_PARENTS:])
            is_relevant = (rest > scores[:, -1:]) | (labels[:, -1:] < 0) | (self.posts[level] == 0)
            parents = np.where(is_relevant, beam.labels[:, _FIRST_PARENTS:], -1)
            self._add_chunks(triplet, level, parents, rest, labels, scores, flags, threads)
        return TopK(labels, scores)

    def _add_chunks(
        self, triplet: Triplet, level: int, parents: np.ndarray, parent_scores: np.ndarray,
        labels: np.ndarray, scores: np.ndarray, flags: np.ndarray, threads: int,
    ) -> None:  # fmt: skip
        """Merge the children of ``parents`` (rows, b), padded by −1, into ``labels`` and ``scores``."""
        kernel, (n, width) = lazy.batch, parents.shape
        spec, chunks = self.arrays["meta"][level], self._chunks(level)
        chunk_ptr = np.zeros(len(chunks.entry_ptr) + 1, np.int64)
        pair_rows, pair_beams = np.empty(n * width, np.int32), np.empty(n * width, np.int32)
        kernel.pairs_by_chunk(parents, chunk_ptr, pair_rows, pair_beams)
        n_pairs = int(chunk_ptr[-1])
        pair_rows, pair_beams = pair_rows[:n_pairs], pair_beams[:n_pairs]
        best = min(labels.shape[1], int(spec[lazy.score.WIDEST]))
        pair_ids, pair_scores = np.empty((n_pairs, best), np.int32), np.empty((n_pairs, best), np.float32)
        place = np.zeros((n, width), np.int64)
        place[pair_rows, pair_beams] = np.arange(n_pairs)
        worst = np.where(labels[:, -1] < 0, np.float32(-np.inf), scores[:, -1])
        pair_cuts = _pair_cuts(chunk_ptr, threads)

        def task(part: int) -> None:
            with chunks.scratch.borrow() as weights:
                kernel.score_chunks(
                    *triplet, pair_cuts[part], pair_cuts[part + 1],
                    chunk_ptr, pair_rows, pair_beams, parent_scores, worst, self.n_features,
                    chunks.feature_ptr, chunks.features, chunks.entry_ptr, chunks.cells, chunks.codes,
                    self.arrays["table"], self.tree.starts[level], self.arrays["bias"], int(spec[lazy.score.NODE_AT]),
                    flags, self.posts[level], weights, pair_ids, pair_scores,
                )  # fmt: skip

        run(task, len(pair_cuts) - 1, threads=threads)

        def merge(first: int, last: int) -> None:
            kernel.merge_pairs(parents, place, pair_ids, pair_scores, first, last, labels, scores)

        _run_blocks(merge, n, threads)

    def prefers_chunks(self, triplet: Triplet, beams: np.ndarray, level: int) -> bool:
        """Compare the cost models of both methods: nanoseconds per row on one core, fitted to eight datasets.

        The number of threads is not considered because results, which are rounded differently, must not depend on it.
        """
        score, spec = lazy.score, self.arrays["meta"][level]
        indptr, indices, _ = triplet
        n_rows, n_sample = len(indptr) - 1, min(len(indptr) - 1, 64)
        sample = indices[indptr[0] : indptr[n_sample]]
        n_parents, length = int(spec[score.PARENTS]), len(sample) / n_sample
        n_beam = min(int(beams[level - 1]) if level else 1, n_parents)
        n_scored = min(n_beam, 5)  # parents that are usually scored
        ptr = self.arrays["ptr"][level]
        has_offsets = level == self._offsets[1]
        by_rows = 700.0 + length * (9.0 * n_scored if has_offsets else 4.4)
        by_rows += 0.7 * (ptr[sample + 1] - ptr[sample]).sum() / n_sample * min(1.0, 3.0 * n_beam / n_parents)
        if spec[score.WHOLE] == 0 and not has_offsets:
            run_ptr = self.arrays["run_ptr"][spec[score.RUN_ROW]]
            by_rows += 2.0 * (run_ptr[sample + 1] - run_ptr[sample]).sum() / n_sample
        n_groups = -(-int(spec[score.WIDEST]) // LANES)
        by_chunks = n_scored * (240.0 + 2.0 * length * n_groups)
        decoded = 2.0 * float(ptr[-1] - ptr[0]) * min(1.0, n_scored * n_rows / n_parents)
        n_passes = 1 if n_beam <= _FIRST_PARENTS else 2
        return by_chunks + n_passes * decoded / n_rows < by_rows

    def _chunks(self, level: int) -> Any:
        """Return the weights of a level by chunk, which are cached."""
        if level not in self._by_chunk:
            self._by_chunk[level] = Chunks.of(self.arrays, level, self.n_features, self.tree)
        return self._by_chunk[level]

    @cached_property
    def _offsets(self) -> tuple[np.ndarray, int]:
        """Start of the run of each feature and chunk, for the last level in runs, and the number of that level.

        With this table queries need not search for the runs of their beam. It is empty if it would be too large.
        """
        score, meta = lazy.score, self.arrays["meta"]
        in_runs = [level for level in range(self.n_levels) if meta[level, score.WHOLE] == 0]
        if in_runs:
            level = in_runs[-1]
            size = (self.n_features, int(meta[level, score.PARENTS]) + 1)
            if size[0] * size[1] <= _OFFSETS_AT_MOST:
                offsets = np.empty(size, np.uint16)
                run_ptr = self.arrays["run_ptr"][meta[level, score.RUN_ROW]]
                runs = (run_ptr, self.arrays["run_chunk"], self.arrays["run_last"])
                if lazy.layout.run_offsets(self.arrays["ptr"][level], *runs, offsets):
                    return offsets, level
        return np.empty((0, 0), np.uint16), -1

    @cached_property
    def _top(self) -> np.ndarray:
        """Decoded weights of the first level, which every query needs; empty if the table would be too large."""
        n_groups = -(-int(self.arrays["meta"][0, lazy.score.NODES]) // LANES)
        if n_groups * self.n_features * LANES > _TOP_AT_MOST:
            return np.empty((0, 0, LANES), np.float32)
        top = np.zeros((n_groups, self.n_features, LANES), np.float32)
        ptr = self.arrays["ptr"][0]
        entries = slice(int(ptr[0]), int(ptr[-1]))
        features, nodes = np.repeat(np.arange(self.n_features), np.diff(ptr)), self.arrays["local"][entries]
        codes = self.arrays["codes"][entries]
        top[nodes // LANES, features, nodes % LANES] = self.arrays["table"][codes] if codes.dtype.kind == "u" else codes
        return top

    def beams(self, beam: int | None, k: int) -> np.ndarray:
        """Return the number of nodes kept at each level: enough for k labels, and at most the size of the level."""
        if (beam, k) not in self._beams:
            self._beams[beam, k] = self._compute_beams(beam, k)
        return self._beams[beam, k]

    def _compute_beams(self, beam: int | None, k: int) -> np.ndarray:
        given = self.search.beams
        if given and beam is None:
            beams = [min(given[min(level, len(given) - 1)], _MOST_NODES) for level in range(self.n_levels)]
        else:
            narrow = min(beam or self.search.beam, _MOST_NODES)
            wide = math.ceil(min(narrow * self.search.upper_beam, _MOST_NODES))
            beams = [wide if level < self.tree.n_levels - 2 else narrow for level in range(self.n_levels)]
        enough = np.maximum(beams, self._narrowest(k))
        return np.minimum(enough, self.tree.sizes[: self.n_levels]).astype(np.int64)

    def reach(self, beam: int | None = None) -> int:
        """Return the smallest possible number of labels below the nodes that a beam keeps."""
        if beam not in self._reached:
            kept = 1
            for level, starts in enumerate(self.tree.starts[: self.n_levels]):
                found = int(np.sort(np.diff(starts))[:kept].sum())
                kept = min(int(self.beams(beam, 1)[level]), found)
            self._reached[beam] = found
        return self._reached[beam]

    def _narrowest(self, k: int) -> list[int]:
        """Return the number of nodes of each level that have at least k labels below them in any case."""
        needed = [k]
        for starts in reversed(self.tree.starts[1 : self.n_levels]):
            reached = np.cumsum(np.sort(np.diff(starts)))
            needed.append(min(int(np.searchsorted(reached, needed[-1])) + 1, len(reached)))
        return needed[::-1]

    def _posts(self) -> np.ndarray:
        post, leaf_post = self.search.post, self.search.leaf_post
        if leaf_post == "auto":
            leaf_post = "l4-hinge" if post.endswith("hinge") else "same"
        inner = POSTS.index(post)
        leaf = inner if leaf_post == "same" else POSTS.index(leaf_post)
        is_top = self.n_levels < self.tree.n_levels  # the last levels are missing
        return np.array([inner] * (self.n_levels - 1) + [inner if is_top else leaf], np.int64)

    def _sparse(self, rows: Rows) -> tuple[np.ndarray, ...]:
        if rows.n_features != self.n_features:
            raise BadInput(f"X has {rows.n_features} features, but the model was trained with {self.n_features}")
        if not rows.n_dense:
            return rows.triplet
        if len(rows) == 1:  # without scipy, whose matrices would take as long as the search
            columns = np.flatnonzero(rows.dense[0])
            indices = np.concatenate([rows.indices, (rows.n_sparse + columns).astype(np.int32)])
            return np.array((0, len(indices))), indices, np.concatenate([rows.data, rows.dense[0, columns]])
        return Rows.of(sp.csr_matrix(sp.hstack([rows.sparse, stored(rows.dense)]))).triplet


def row_blocks(n: int) -> list[tuple[int, int]]:
    """Split n rows into blocks (first, last) of similar size, at most ROWS_AT_ONCE.

    Examples
    --------
    >>> row_blocks(45_000)
    [(0, 22500), (22500, 45000)]
    """
    n_blocks = max(1, -(-n // ROWS_AT_ONCE))
    cuts = [n * block // n_blocks for block in range(n_blocks + 1)]
    return list(pairwise(cuts))


def _run_blocks(task: Callable[[int, int], None], n: int, threads: int) -> None:
    """Call ``task(first, last)`` for blocks of n rows: several per thread, of at least 16 rows."""
    n_blocks = max(1, min(8 * n_threads(threads), n // 16))
    cuts = np.linspace(0, n, n_blocks + 1).astype(np.int64)
    run(lambda block: task(cuts[block], cuts[block + 1]), n_blocks, threads=threads)


def _pair_cuts(chunk_ptr: np.ndarray, threads: int) -> np.ndarray:
    """Split pairs, which are ordered by chunk, into parts; a chunk in several parts is decoded in each of them."""
    n_pairs, n_chunks = int(chunk_ptr[-1]), len(chunk_ptr) - 1
    if n_chunks < _CHUNKS_A_PART * threads:
        return np.linspace(0, n_pairs, threads + 1).astype(np.int64)
    n_parts = min(n_chunks // _CHUNKS_A_PART, _PARTS * threads)
    even = np.linspace(0, n_pairs, n_parts + 1)
    return np.unique(chunk_ptr[np.searchsorted(chunk_ptr, even)])


def _read_only(array: np.ndarray) -> np.ndarray:
    """Return a read-only view, like a memory-mapped array: otherwise kernels would be compiled for both kinds."""
    view = np.asarray(array).view()
    view.setflags(write=False)
    return view
