"""Pack trained weights for the search: by feature, in runs of siblings, with eight bits each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from umpteen.data.sparse import pointers
from umpteen.engine import Pool, run
from umpteen.errors import BadConfig
from umpteen.kernels import LANES, lazy
from umpteen.store.tensors import Allocate, in_memory
from umpteen.tree import LabelTree

WHOLE_BELOW = 256  # levels of up to this many nodes, which fit in a byte, have the layout whole
_LEAST_WEIGHTS = 1 << 19  # below which weights are not shared by threads
_INT8_RANGE = 2_000.0  # ratio of the largest to the smallest magnitude of int8 codes, in steps of 6 %


@dataclass(frozen=True)
class Level:
    """Trained weights of one level: entries (feature, node, value) chunk by chunk, and biases."""

    features: np.ndarray
    nodes: np.ndarray
    values: np.ndarray
    bias: np.ndarray

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the four arrays by name."""
        return dict(vars(self))


def pack(levels: list[Level], tree: LabelTree, n_features: int, weights: str, threads: int) -> dict[str, np.ndarray]:
    """Return the arguments of ``kernels.score`` for all levels of a tree."""
    coder = Coder.of([level.values for level in levels], weights)
    parts = [pack_features(level, tree, number, (0, n_features), coder, threads) for number, level in enumerate(levels)]
    return join_packed(parts, [level.bias for level in levels], tree, coder)


def join_packed(
    parts: Sequence[Sequence[Packed]], biases: list[np.ndarray], tree: LabelTree, coder: Coder,
    allocate: Allocate = in_memory,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Put the packed levels of a tree together, each of which is given by consecutive ranges of features."""
    in_runs = [ranges for ranges in parts if ranges[0].is_in_runs]
    every = [part for ranges in parts for part in ranges]
    pieces = {
        "meta": [describe_levels(tree, np.array([not ranges[0].is_in_runs for ranges in parts]))],
        "children": [start.astype(np.int32, copy=False) for start in tree.starts[: len(parts)]],
        "bias": [bias.astype(np.float32, copy=False) for bias in biases],
        "ptr": _pointer_table([[part.ptr for part in ranges] for ranges in parts]),
        "run_ptr": _pointer_table([[part.run_ptr for part in ranges] for ranges in in_runs]),
        "table": [coder.table],
    } | {name: [getattr(part, name) for part in every] for name in ("run_chunk", "run_last", "local", "codes")}
    arrays = allocate({name: _joined(some) for name, some in pieces.items()})
    for name, some in pieces.items():
        at = 0
        for piece in some:
            arrays[name][at : at + len(piece)] = piece
            at += len(piece)
    return arrays


def _pointer_table(levels: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """Join the pointers of the ranges of each level to one row of a table; each row begins where that before ends."""
    rows, end = [], 0
    for ptrs in levels:
        rows.append(_joined_pointers(ptrs) + end)
        end = int(rows[-1][-1])
    kind = _kind_for(end, signed=True)
    return [row.astype(kind)[None] for row in rows] or [np.zeros((1, 1), kind)]


def _joined(pieces: list[np.ndarray]) -> tuple[np.dtype, tuple[int, ...]]:
    """Return type and shape of arrays that are put together, in the widest of their types."""
    kind = max((piece.dtype for piece in pieces), key=lambda dtype: dtype.itemsize)
    return kind, (sum(len(piece) for piece in pieces), *pieces[0].shape[1:])


def describe_levels(tree: LabelTree, whole: np.ndarray) -> np.ndarray:
    """Return ``meta`` of ``kernels.score`` for the first levels of a tree; ``whole`` is the layout of each."""
    n, score = len(whole), lazy.score
    n_starts = [len(starts) for starts in tree.starts[:n]]
    meta = np.empty((n, score.N_META), np.int64)
    meta[:, score.WHOLE] = whole
    meta[:, score.NODES] = tree.sizes[:n]
    meta[:, score.PARENTS] = np.subtract(n_starts, 1)
    meta[:, score.NODE_AT] = pointers(tree.sizes[:n])[:-1]
    meta[:, score.PARENT_AT] = pointers(n_starts)[:-1]
    meta[:, score.RUN_ROW] = np.cumsum(whole == 0) - 1
    meta[:, score.WIDEST] = tree.most_children[:n]
    return meta


class Packed(NamedTuple):
    """A range of the features of one level; without runs, ``run_ptr`` is empty."""

    ptr: np.ndarray
    local: np.ndarray
    codes: np.ndarray
    run_ptr: np.ndarray
    run_chunk: np.ndarray
    run_last: np.ndarray

    @property
    def is_in_runs(self) -> bool:
        """Whether weights are in runs of siblings; if not, a node is its number in the level."""
        return len(self.run_ptr) > 0


def count_weights(level: Level, first: int, last: int) -> np.ndarray:
    """Return the number of weights of each feature of a range."""
    counts = np.zeros(last - first, np.int64)
    lazy.layout.count_by_feature(level.features, first, counts)
    return counts


def pack_features(
    level: Level, tree: LabelTree, number: int, between: tuple[int, int], coder: Coder, threads: int
) -> list[Packed]:
    """Sort the weights of a range of features of a level by feature and, if it has many nodes, into runs.

    Return consecutive ranges: one for each thread, if there are many weights.
    """
    first, last = between
    counts = count_weights(level, first, last)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    n_ranges = max(1, min(threads, total // _LEAST_WEIGHTS))
    cuts = np.searchsorted(ends, np.arange(1, n_ranges) * total / n_ranges)
    bounds = [0, *cuts.tolist(), len(counts)]

    def task(i: int) -> Packed:
        low, high = bounds[i], bounds[i + 1]
        return _pack_range(level, tree, number, first + low, pointers(counts[low:high]), coder)

    return run(task, n_ranges, threads=threads)


def joined_ranges(parts: Sequence[Packed]) -> Packed:
    """Join consecutive ranges of the features of a level."""
    if len(parts) == 1:
        return parts[0]
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in Packed._fields}
    ptrs = {"ptr": [part.ptr for part in parts]}
    if parts[0].is_in_runs:
        ptrs["run_ptr"] = [part.run_ptr for part in parts]
    return Packed(**arrays | {name: _joined_pointers(some) for name, some in ptrs.items()})


def _joined_pointers(ptrs: Sequence[np.ndarray]) -> np.ndarray:
    return pointers(np.concatenate([np.diff(ptr) for ptr in ptrs]))


def _pack_range(level: Level, tree: LabelTree, number: int, first: int, ptr: np.ndarray, coder: Coder) -> Packed:
    """Return the weights of the features from ``first`` on, of which ``ptr`` counts those of each."""
    nodes, values = np.empty(ptr[-1], np.int32), np.empty(ptr[-1], np.float32)
    lazy.layout.sort_by_feature(level.features, level.nodes, level.values, first, ptr[:-1].copy(), nodes, values)
    codes = coder.encode(values)
    starts = tree.starts[number]
    if len(starts) == 2 or starts[-1] <= WHOLE_BELOW:
        local = nodes.astype(_kind_for(int(starts[-1]) - 1))
        return Packed(ptr, local, codes, np.empty(0, np.int64), np.empty(0, np.uint8), np.empty(0, np.uint8))
    run_ptr, run_chunk, run_last, local = _split_runs(ptr, nodes, tree, number)
    return Packed(ptr, local, codes, run_ptr, run_chunk, run_last)


def _split_runs(
    ptr: np.ndarray, nodes: np.ndarray, tree: LabelTree, number: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Split the postings of a level into runs of siblings: run_ptr, run_chunk, run_last, local."""
    starts, parents, run_ptr = tree.starts[number], tree.parents[number], np.empty(len(ptr), np.int64)
    of_chunks, of_children = _kind_for(len(starts) - 2), _kind_for(tree.most_children[number] - 1)
    nothing = (np.empty(0, of_chunks), np.empty(0, of_children), np.empty(0, of_children))
    n_runs = lazy.layout.split_runs(ptr, nodes, parents, starts, run_ptr, *nothing)
    runs = (np.empty(n_runs, of_chunks), np.empty(n_runs, of_children), np.empty(len(nodes), of_children))
    if n_runs:
        lazy.layout.split_runs(ptr, nodes, parents, starts, run_ptr, *runs)
    return run_ptr, *runs


@dataclass(frozen=True)
class Coder:
    """Encodes weights, and has the table that decodes them.

    ``int8`` keeps the sign and one of 128 magnitudes on a logarithmic scale, so that small and large weights have the
    same relative precision; ``float16`` is half precision; ``float32`` weights are not encoded.
    """

    weights: str
    low: float = 1.0
    step: float = 1.0

    @classmethod
    def of(cls, parts: list[np.ndarray], weights: str) -> Coder:
        """Return the coder for the range of these weights."""
        if weights in ("float32", "float16"):
            return cls(weights)
        if weights != "int8":
            raise BadConfig(f"weights must be float32, float16 or int8, but is {weights!r}")
        ranges = [_magnitudes(part) for part in parts if len(part)]
        high = max((high for _, high in ranges), default=1.0) or 1.0
        smallest = min((low for low, _ in ranges), default=high)
        low = max(smallest, high / _INT8_RANGE)
        return cls(weights, low, max(float(np.log(high / low)) / 127, 1e-9))

    @property
    def table(self) -> np.ndarray:
        """The weight of each code."""
        if self.weights == "float32":
            return np.zeros(1, np.float32)
        if self.weights == "float16":
            return np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
        magnitudes = self.low * np.exp(np.arange(128) * self.step)
        return np.concatenate([magnitudes, -magnitudes]).astype(np.float32)

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Return one code per weight."""
        if self.weights == "float32":
            return values
        if self.weights == "float16":
            return values.astype(np.float16).view(np.uint16)
        codes = np.empty(len(values), np.uint8)
        lazy.layout.encode_log(values, np.float32(self.low), np.float32(1.0 / self.step), codes)
        return codes


def _magnitudes(values: np.ndarray, block: int = 1 << 22) -> tuple[float, float]:
    """Return the smallest and the largest magnitude of values, without a copy of all of them."""
    low, high = np.inf, 0.0
    for first in range(0, len(values), block):
        sizes = np.abs(values[first : first + block])
        low, high = min(low, float(sizes.min())), max(high, float(sizes.max()))
    return low, high


@dataclass(frozen=True)
class Chunks:
    """Weights of one level by chunk: features, and entries by group of lanes (``kernels.layout.by_chunk``)."""

    feature_ptr: np.ndarray
    features: np.ndarray
    entry_ptr: np.ndarray  # (chunks, groups + 1)
    cells: np.ndarray
    codes: np.ndarray
    scratch: Pool[np.ndarray]  # zeroed tables, which kernels leave zeroed

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray], level: int, width: int, tree: LabelTree) -> Chunks:
        """Sort a level of packed arrays by chunk; ``width`` is the number of features of the model."""
        kernel, score = lazy.layout, lazy.score
        spec, ptr = arrays["meta"][level], arrays["ptr"][level]
        n_chunks, n_groups = int(spec[score.PARENTS]), -(-int(spec[score.WIDEST]) // LANES)
        codes = arrays["codes"]
        if spec[score.WHOLE] == 1:
            mine, ptr = slice(int(ptr[0]), int(ptr[-1])), (ptr - ptr[0]).astype(np.int64)
            run_ptr, *run = _split_runs(ptr, arrays["local"][mine].astype(np.int32), tree, level)
            runs, codes = (ptr.astype(np.int32), run_ptr.astype(np.int32), *run), codes[mine]
        else:
            run_ptr = arrays["run_ptr"][spec[score.RUN_ROW]]
            runs = (ptr, run_ptr, arrays["run_chunk"], arrays["run_last"], arrays["local"])
        n_features, n_entries = np.zeros(n_chunks, np.int64), np.zeros(n_chunks * n_groups, np.int64)
        nothing = np.empty(0, np.int32)
        kernel.by_chunk(*runs, codes, n_groups, n_features, n_entries, nothing, nothing, codes[:0].copy())
        feature_ptr, entry_at = pointers(n_features), pointers(n_entries)
        features, n = np.empty(feature_ptr[-1], np.int32), int(entry_at[-1])
        cells, sorted_codes = np.empty(n, np.int32), np.empty(n, codes.dtype)
        kernel.by_chunk(
            *runs, codes, n_groups, feature_ptr[:-1].copy(), entry_at[:-1].copy(), features, cells, sorted_codes
        )
        groups = np.arange(n_chunks)[:, None] * n_groups + np.arange(n_groups + 1)
        most = int(n_features.max(initial=0))
        scratch = Pool(lambda: np.zeros((most, LANES), np.float32))
        return cls(feature_ptr, features, entry_at[groups], cells, sorted_codes, scratch)


def _kind_for(top: int, *, signed: bool = False) -> type:
    """Return the smallest type for numbers up to ``top``, of those that kernels are compiled for."""
    kinds = (np.int32, np.int64) if signed else (np.uint8, np.uint16, np.uint32)
    return next(kind for kind in kinds if top <= np.iinfo(kind).max)
