"""A tree of linear scorers, packed for prediction.

Holds weights and searches them; knows nothing about how they were trained or where they are stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from umpteen.config import SearchConfig
from umpteen.data.rows import Rows
from umpteen.engine import n_threads, run
from umpteen.errors import BadConfig, BadInput
from umpteen.kernels import lazy
from umpteen.shortlist import TopK
from umpteen.tree import LabelTree

Triplet = tuple[np.ndarray, ...]

_LANES = 16  # as in kernels.lanes
_FIRST_PARENTS = 3  # parents a batch looks at before it asks which others can still matter
_WHOLE_BELOW = 256  # a level with at most this many nodes is added up whole: a byte names a node
_POSTS = ("identity", "l1-hinge", "l2-hinge", "l3-hinge", "l4-hinge", "sigmoid")  # as in kernels.score
_INT8_RANGE = 2_000.0  # an int8 code spans this ratio of magnitudes in steps of 6 %


@dataclass(frozen=True)
class Level:
    """Weights of one level as they are trained: entries (feature, node, value) chunk by chunk, and biases."""

    NAMES: ClassVar[tuple[str, ...]] = ("features", "nodes", "values", "bias")

    features: np.ndarray
    nodes: np.ndarray
    values: np.ndarray
    bias: np.ndarray

    def arrays(self) -> dict[str, np.ndarray]:
        """The four arrays by name."""
        return {name: getattr(self, name) for name in self.NAMES}


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
        self._by_chunk: dict[int, Any] = {}

    @classmethod
    def pack(
        cls,
        levels: list[Level],
        tree: LabelTree,
        n_features: int,
        search: SearchConfig,
        *,
        weights: str = "float32",
    ) -> LinearTree:
        """Lay trained levels out for prediction; fewer levels than the tree has make a search of its top."""
        return cls(_pack(levels, tree, n_features, weights), tree, n_features, search)

    @property
    def n_weights(self) -> int:
        """Number of stored weights."""
        return len(self.arrays["codes"])

    def topk(
        self,
        rows: Rows,
        k: int,
        *,
        beam: int | None = None,
        allowed: np.ndarray | None = None,
        threads: int = 1,
    ) -> TopK:
        """Return the k best nodes of the last level, in the level's own numbering."""
        beams = self._beams(beam, k)
        flags = np.empty(0, np.uint8) if allowed is None else allowed
        n = len(rows)
        labels, scores = np.empty((n, k), np.int32), np.empty((n, k), np.float32)
        triplet = self._sparse(rows)
        if n == 1:  # the thin path: no threads, no blocks
            lazy.score.search(*triplet, 0, 1, *self.packed, beams, self.posts, flags, labels, scores)
            return TopK(labels, scores)
        by_chunks = [n >= 64 and self._prefers_chunks(triplet, beams, level) for level in range(self.n_levels)]
        if any(by_chunks):
            return self._by_levels(triplet, k, beams, flags, by_chunks, threads)
        cuts = _cuts(n, threads)

        def task(block: int) -> None:
            lazy.score.search(
                *triplet, cuts[block], cuts[block + 1], *self.packed, beams, self.posts, flags, labels, scores
            )

        run(task, len(cuts) - 1, threads=threads)
        return TopK(labels, scores)

    def score_labels(self, rows: Rows, pairs: sp.csr_matrix, *, threads: int = 1) -> sp.csr_matrix:
        """Score the given labels of each row, whether or not a beam would reach them."""
        triplet = self._sparse(rows)
        parent_ptr = np.arange(len(rows) + 1, dtype=np.int64)
        parent_nodes, parent_scores = np.zeros(len(rows), np.int32), np.ones(len(rows), np.float32)
        out = np.empty(0, np.float32)
        for level in range(self.n_levels):
            nodes = self.tree.lift(pairs, level)
            ptr, ids = nodes.indptr.astype(np.int64), nodes.indices.astype(np.int32)
            above = self.tree.parents[level][ids]
            out = np.empty(len(ids), np.float32)
            cuts = _cuts(len(rows), threads)

            def task(block: int, level: int = level, given: tuple[Any, ...] = (
                ptr, ids, above, parent_ptr, parent_nodes, parent_scores, out
            )) -> None:  # fmt: skip
                lazy.score.score_pairs(
                    *triplet, cuts[block], cuts[block + 1], level, *self.packed, self.posts[level], *given
                )

            run(task, len(cuts) - 1, threads=threads)
            parent_ptr, parent_nodes, parent_scores = ptr, ids, out
        scored = sp.csr_matrix((out, self.tree.order[parent_nodes], parent_ptr), shape=pairs.shape)
        scored.sort_indices()
        return scored

    def _by_levels(
        self, triplet: Triplet, k: int, beams: np.ndarray, flags: np.ndarray, by_chunks: list[bool], threads: int
    ) -> TopK:
        """Take all rows down together, each level by the method that suits it."""
        n = len(triplet[0]) - 1
        beam = TopK(np.zeros((n, 1), np.int32), np.ones((n, 1), np.float32))
        for level in range(self.n_levels):
            keep = k if level == self.n_levels - 1 else int(beams[level])
            step = self._level_by_chunks if by_chunks[level] else self._level_by_rows
            beam = step(triplet, level, beam, keep, flags, threads)
        return beam

    def _level_by_rows(
        self, triplet: Triplet, level: int, beam: TopK, keep: int, flags: np.ndarray, threads: int
    ) -> TopK:
        n = len(beam.labels)
        labels, scores = np.empty((n, keep), np.int32), np.empty((n, keep), np.float32)
        cuts = _cuts(n, threads)

        def task(block: int) -> None:
            lazy.score.search_level(
                *triplet, cuts[block], cuts[block + 1], level, *self.packed, self.posts[level], flags,
                beam.labels, beam.scores, labels, scores,
            )  # fmt: skip

        run(task, len(cuts) - 1, threads=threads)
        return TopK(labels, scores)

    def _level_by_chunks(
        self, triplet: Triplet, level: int, beam: TopK, keep: int, flags: np.ndarray, threads: int
    ) -> TopK:
        """Score chunk by chunk all rows whose beam holds it, then merge each row's chunks.

        A child never scores more than its parent, so after the first few parents only those that beat the
        worst kept child are looked at: on the usual data four of ten.
        """
        n = len(beam)
        labels, scores = np.full((n, keep), -1, np.int32), np.zeros((n, keep), np.float32)
        alive = beam.labels[:, :_FIRST_PARENTS]
        self._add_chunks(triplet, level, alive, beam.scores, labels, scores, flags, threads)
        if beam.k > _FIRST_PARENTS:
            rest = np.ascontiguousarray(beam.scores[:, _FIRST_PARENTS:])
            may_win = (rest > scores[:, -1:]) | (labels[:, -1:] < 0) | (self.posts[level] == 0)
            alive = np.where(may_win, beam.labels[:, _FIRST_PARENTS:], -1)
            self._add_chunks(triplet, level, alive, rest, labels, scores, flags, threads)
        return TopK(labels, scores)

    def _add_chunks(
        self, triplet: Triplet, level: int, parents: np.ndarray, parent_scores: np.ndarray,
        labels: np.ndarray, scores: np.ndarray, flags: np.ndarray, threads: int,
    ) -> None:  # fmt: skip
        """Merge the children of ``parents`` (rows, b), padded by −1, into the rows' best so far."""
        kernel, (n, width) = lazy.batch, parents.shape
        spec, chunks = self.arrays["meta"][level], self._chunks(level)
        n_chunks, node_at = len(chunks.features), int(spec[lazy.score.NODE_AT])
        chunk_ptr = np.zeros(n_chunks + 1, np.int64)
        pair_rows, pair_beams = np.empty(n * width, np.int32), np.empty(n * width, np.int32)
        kernel.pairs_by_chunk(parents, chunk_ptr, pair_rows, pair_beams)
        n_pairs = int(chunk_ptr[-1])
        pair_rows, pair_beams = pair_rows[:n_pairs], pair_beams[:n_pairs]
        best = min(labels.shape[1], int(spec[lazy.score.WIDEST]))
        pair_ids, pair_scores = np.empty((n_pairs, best), np.int32), np.empty((n_pairs, best), np.float32)
        place = np.zeros((n, width), np.int64)
        place[pair_rows, pair_beams] = np.arange(n_pairs)
        lengths, starts = np.diff(triplet[0]), self.tree.starts[level]

        def task(chunk: int) -> None:
            pairs = slice(chunk_ptr[chunk], chunk_ptr[chunk + 1])
            queries, features = pair_rows[pairs], chunks.features[chunk]
            if not len(queries):
                return
            total = int(lengths[queries].sum()) + 1
            ids, kept, ptr = np.empty(total, np.int32), np.empty(total, np.float32), np.zeros(len(queries) + 1, np.int64)
            local, weights = chunks.scratch.pop() if chunks.scratch else chunks.new_scratch(self.n_features)
            kernel.compact(*triplet, queries, features, local, ids, kept, ptr)
            first, last = int(starts[chunk]), int(starts[chunk + 1])
            margins = np.empty((len(queries), last - first), np.float32)
            kernel.chunk_margins(
                ptr, ids, kept, chunks.entry_ptr[chunk], chunks.rows, chunks.lanes, chunks.codes,
                self.arrays["table"], self.arrays["bias"][node_at + first : node_at + last], weights, margins,
            )  # fmt: skip
            chunks.scratch.append((local, weights))
            kernel.best_of_chunk(
                margins, parent_scores[queries, pair_beams[pairs]], first, flags, node_at,
                self.posts[level], pair_ids[pairs], pair_scores[pairs],
            )  # fmt: skip

        order = np.argsort(-np.diff(chunk_ptr), kind="stable")
        run(task, n_chunks, threads=threads, order=order.tolist())
        cuts = _cuts(n, threads)
        run(
            lambda b: kernel.merge_pairs(parents, place, pair_ids, pair_scores, cuts[b], cuts[b + 1], labels, scores),
            len(cuts) - 1,
            threads=threads,
        )

    def _prefers_chunks(self, triplet: Triplet, beams: np.ndarray, level: int) -> bool:
        """Compare what the two batch methods would cost on a sample of rows (nanoseconds, measured once)."""
        score, spec = lazy.score, self.arrays["meta"][level]
        n_parents, whole = int(spec[score.PARENTS]), spec[score.WHOLE] == 1
        if whole and n_parents > 1:
            return False
        indptr, indices, _ = triplet
        n = len(indptr) - 1
        sample = indices[indptr[0] : indptr[min(n, 64)]]
        n_sample = min(n, 64)
        ptr = self.arrays["ptr"][level]
        adds = float((ptr[sample + 1] - ptr[sample]).sum()) / n_sample
        n_beam = min(int(beams[level - 1]) if level else 1, n_parents)
        share = min(1.0, 3.0 * n_beam / n_parents)
        by_rows = 0.9 * adds * share
        if not whole:
            run_ptr = self.arrays["run_ptr"][spec[score.RUN_ROW]]
            by_rows += 1.5 * float((run_ptr[sample + 1] - run_ptr[sample]).sum()) / n_sample
        groups = -(-int(spec[score.WIDEST]) // _LANES)
        by_chunks = min(n_beam, 5) * (len(sample) / n_sample) * (1.3 + 0.6 * groups)
        n_features = min(self.n_features, int(ptr[-1] - ptr[0]) / n_parents)
        entries = float(ptr[-1] - ptr[0])
        by_chunks += (4.0 * n_parents * n_features + 12.0 * entries) / n  # decoding is shared by the batch
        return by_chunks < by_rows

    def _chunks(self, level: int) -> Any:
        """Weights chunk by chunk, made when a batch first wants them."""
        if level not in self._by_chunk:
            self._by_chunk[level] = _Chunks.of(self, level)
        return self._by_chunk[level]

    def _beams(self, beam: int | None, k: int) -> np.ndarray:
        given = self.search.beams
        if given and beam is None:
            beams = [given[min(level, len(given) - 1)] for level in range(self.n_levels)]
        else:
            beams = [beam or self.search.beam] * self.n_levels
        # a beam too narrow to hold k labels would cut the answer short
        narrowest = [-(-k // max(1, int(spec[lazy.score.WIDEST]))) for spec in self.arrays["meta"][1:]] + [1]
        return np.maximum(beams, narrowest).astype(np.int64)

    def _posts(self) -> np.ndarray:
        inner = _POSTS.index(self.search.post)
        leaf = inner if self.search.leaf_post == "same" else _POSTS.index(self.search.leaf_post)
        is_top = self.n_levels < self.tree.n_levels  # the search of a tree's top has no leaf
        return np.array([inner] * (self.n_levels - 1) + [inner if is_top else leaf], np.int64)

    def _sparse(self, rows: Rows) -> tuple[np.ndarray, ...]:
        if rows.n_features != self.n_features:
            raise BadInput(f"X has {rows.n_features} features, but the model was trained with {self.n_features}")
        if not rows.n_dense:
            return rows.triplet
        sparse = sp.csr_matrix((rows.data, rows.indices, rows.indptr), shape=(len(rows), rows.n_sparse))
        return Rows.of(sp.csr_matrix(sp.hstack([sparse, sp.csr_matrix(rows.dense)]))).triplet


@dataclass(frozen=True)
class _Chunks:
    """One level's weights chunk by chunk: features, and entries by group of lanes (``kernels.layout.by_chunk``)."""

    features: list[np.ndarray]
    entry_ptr: np.ndarray  # (chunks, groups + 1)
    rows: np.ndarray
    lanes: np.ndarray
    codes: np.ndarray
    scratch: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)  # zeroed; one per thread in flight

    def new_scratch(self, n_features: int) -> tuple[np.ndarray, np.ndarray]:
        """Zeroed tables for ``kernels.batch``."""
        widest = max((len(features) for features in self.features), default=0)
        return np.zeros(n_features, np.int32), np.zeros((widest, _LANES), np.float32)

    @classmethod
    def of(cls, head: LinearTree, level: int) -> _Chunks:
        kernel, score, arrays = lazy.layout, lazy.score, head.arrays
        spec, ptr = arrays["meta"][level], arrays["ptr"][level]
        n_chunks, n_groups = int(spec[score.PARENTS]), -(-int(spec[score.WIDEST]) // _LANES)
        if spec[score.WHOLE] == 1:  # one parent: a feature's postings are one run
            lengths = np.diff(ptr)
            run_ptr = np.concatenate([[0], np.cumsum(lengths > 0)])
            run_last = lengths[lengths > 0] - 1
            run_chunk = np.zeros(len(run_last), np.uint8)
        else:
            run_ptr = arrays["run_ptr"][spec[score.RUN_ROW]]
            run_chunk, run_last = arrays["run_chunk"], arrays["run_last"]
        runs = (ptr, run_ptr, run_chunk, run_last, arrays["local"])
        n_features, n_entries = np.zeros(n_chunks, np.int64), np.zeros(n_chunks * n_groups, np.int64)
        kernel.count_by_chunk(*runs, n_groups, n_features, n_entries)
        feature_ptr = np.concatenate([[0], np.cumsum(n_features)])
        entry_at = np.concatenate([[0], np.cumsum(n_entries)])
        features, n = np.empty(feature_ptr[-1], np.int32), int(entry_at[-1])
        rows, lanes, codes = np.empty(n, np.int32), np.empty(n, np.uint8), np.empty(n, arrays["codes"].dtype)
        kernel.by_chunk(
            *runs, arrays["codes"], n_groups, feature_ptr[:-1].copy(), entry_at[:-1].copy(), feature_ptr,
            features, rows, lanes, codes,
        )  # fmt: skip
        groups = np.arange(n_chunks)[:, None] * n_groups + np.arange(n_groups + 1)
        return cls(np.split(features, feature_ptr[1:-1]), entry_at[groups], rows, lanes, codes)


def _pack(levels: list[Level], tree: LabelTree, n_features: int, weights: str) -> dict[str, np.ndarray]:
    score, layout = lazy.score, lazy.layout
    meta = np.zeros((len(levels), score.N_META), np.int64)
    ptrs, locals_, values, run_ptrs, run_chunks, run_lasts = [], [], [], [], [], []
    n_entries = n_runs = node_at = parent_at = 0
    for number, level in enumerate(levels):
        starts = tree.starts[number]
        n_nodes, n_parents = int(starts[-1]), len(starts) - 1
        ptr, nodes, value = layout.sort_by_feature(level.features, level.nodes, level.values, n_features)
        whole = n_parents == 1 or n_nodes <= _WHOLE_BELOW
        if not whole:
            run_ptr, chunk, last, nodes = _runs(ptr, nodes, tree.parents[number], starts)
            run_ptrs.append(run_ptr + n_runs)
            run_chunks.append(chunk)
            run_lasts.append(last)
            n_runs += len(chunk)
        widest = int(np.diff(starts).max(initial=0))
        meta[number] = (whole, n_nodes, n_parents, node_at, parent_at, len(run_ptrs) - 1, widest)
        ptrs.append(ptr + n_entries)
        locals_.append(nodes)
        values.append(value)
        n_entries += len(value)
        node_at += n_nodes
        parent_at += n_parents + 1
    codes, table = encode(np.concatenate(values), weights)
    return {
        "meta": meta,
        "children": np.concatenate(tree.starts[: len(levels)]).astype(np.int32),
        "bias": np.concatenate([level.bias for level in levels]).astype(np.float32),
        "ptr": _narrow(np.stack(ptrs), signed=True),
        "run_ptr": _narrow(np.stack(run_ptrs), signed=True) if run_ptrs else np.zeros((1, 1), np.int32),
        "run_chunk": _narrow(np.concatenate(run_chunks)) if run_chunks else np.zeros(0, np.uint8),
        "run_last": _narrow(np.concatenate(run_lasts)) if run_lasts else np.zeros(0, np.uint8),
        "local": _narrow(np.concatenate(locals_)),
        "codes": codes,
        "table": table,
    }


def _runs(
    ptr: np.ndarray, nodes: np.ndarray, parents: np.ndarray, starts: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    run_ptr, none = np.empty(len(ptr), np.int64), np.empty(0, np.int32)
    n_runs = lazy.layout.split_runs(ptr, nodes, parents, starts, run_ptr, none, none, none)
    chunk, last, local = np.empty(n_runs, np.int32), np.empty(n_runs, np.int32), np.empty(len(nodes), np.int32)
    if n_runs:
        lazy.layout.split_runs(ptr, nodes, parents, starts, run_ptr, chunk, last, local)
    return run_ptr, chunk, last, local


def encode(values: np.ndarray, weights: str) -> tuple[np.ndarray, np.ndarray]:
    """Turn weights into codes and the table that decodes them.

    ``int8`` keeps the sign and one of 127 magnitudes on a logarithmic scale, so that small and large weights
    are equally exact (within 2 % for the usual span); ``float16`` is IEEE half precision.
    """
    if weights == "float32":
        return np.ascontiguousarray(values, np.float32), np.zeros(1, np.float32)
    if weights == "float16":
        halves = values.astype(np.float16)
        return halves.view(np.uint16), np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    if weights != "int8":
        raise BadConfig(f"weights must be float32, float16 or int8, but is {weights!r}")
    size = np.abs(values)
    high = float(size.max(initial=1e-6))
    low = max(float(size.min(initial=high)), high / _INT8_RANGE)
    step = max(np.log(high / low) / 127, 1e-9)
    place = np.rint(np.log(np.maximum(size, low) / low) / step).astype(np.uint8)
    magnitudes = low * np.exp(np.arange(128) * step)
    return place + np.where(values < 0, np.uint8(128), np.uint8(0)), np.concatenate(
        [magnitudes, -magnitudes]
    ).astype(np.float32)


def _narrow(array: np.ndarray, *, signed: bool = False) -> np.ndarray:
    """Store in the smallest of the types that kernels are compiled for."""
    top = int(array.max(initial=0))
    kinds = (np.int32, np.int64) if signed else (np.uint8, np.uint16, np.uint32)
    return array.astype(next(kind for kind in kinds if top <= np.iinfo(kind).max))


def _cuts(n: int, threads: int) -> np.ndarray:
    """Cut rows into blocks: several per thread, none tiny."""
    blocks = max(1, min(8 * n_threads(threads), n // 16))
    return np.linspace(0, n, blocks + 1).astype(np.int64)


def _read_only(array: np.ndarray) -> np.ndarray:
    """View as read-only, as a mapped array is: one kind of array means one compiled kernel."""
    view = np.asarray(array).view()
    view.setflags(write=False)
    return view
