"""Pack trained weights for the search: by feature, in runs of siblings, with eight bits each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from umpteen.data.sparse import pointers
from umpteen.engine import Pool, run
from umpteen.errors import BadConfig
from umpteen.kernels import LANES, lazy
from umpteen.tree import LabelTree

WHOLE_BELOW = 256  # levels of up to this many nodes, which fit in a byte, have the layout whole
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
    parts: list[_Packed] = run(
        lambda i: _pack_level(levels[i], tree, i, n_features, coder), len(levels), threads=threads
    )
    ptrs = [part.ptr + first for part, first in zip(parts, pointers([len(part.codes) for part in parts]), strict=False)]
    in_runs = [part for part in parts if part.run_ptr is not None]
    n_runs = pointers([len(part.run_chunk) for part in in_runs])
    run_ptrs = [part.run_ptr + first for part, first in zip(in_runs, n_runs, strict=False)]
    return {
        "meta": describe_levels(tree, np.array([part.run_ptr is None for part in parts])),
        "children": np.concatenate(tree.starts[: len(levels)]).astype(np.int32),
        "bias": np.concatenate([level.bias for level in levels]).astype(np.float32),
        "ptr": _narrow(np.stack(ptrs), signed=True),
        "run_ptr": _narrow(np.stack(run_ptrs), signed=True) if run_ptrs else np.zeros((1, 1), np.int32),
        "run_chunk": _join([part.run_chunk for part in parts]),
        "run_last": _join([part.run_last for part in parts]),
        "local": _join([part.local for part in parts]),
        "codes": np.concatenate([part.codes for part in parts]),
        "table": coder.table,
    }


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


class _Packed(NamedTuple):
    """One level by feature; ``run_ptr`` is None for the layout whole."""

    ptr: np.ndarray
    local: np.ndarray
    codes: np.ndarray
    run_ptr: np.ndarray | None
    run_chunk: np.ndarray
    run_last: np.ndarray


def _pack_level(level: Level, tree: LabelTree, number: int, n_features: int, coder: Coder) -> _Packed:
    """Sort the weights of a level by feature and, if it has many nodes, into runs."""
    starts, none = tree.starts[number], np.empty(0, np.int32)
    ptr, nodes, codes = lazy.layout.sort_by_feature(level.features, level.nodes, coder.encode(level.values), n_features)
    if len(starts) == 2 or starts[-1] <= WHOLE_BELOW:
        return _Packed(ptr, _narrow(nodes), codes, None, _narrow(none), _narrow(none))
    run_ptr, chunk, last, local = _split_runs(ptr, nodes, tree, number)
    return _Packed(ptr, local, codes, run_ptr, chunk, last)


def _split_runs(
    ptr: np.ndarray, nodes: np.ndarray, tree: LabelTree, number: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Split the postings of a level into runs of siblings: run_ptr, run_chunk, run_last, local."""
    starts, parents, run_ptr = tree.starts[number], tree.parents[number], np.empty(len(ptr), np.int64)
    of_chunks, of_children = _kind_for(len(starts) - 2), _kind_for(int(np.diff(starts).max(initial=1)) - 1)
    found = (np.empty(0, of_chunks), np.empty(0, of_children), np.empty(0, of_children))
    if n_runs := lazy.layout.split_runs(ptr, nodes, parents, starts, run_ptr, *found):
        found = (np.empty(n_runs, of_chunks), np.empty(n_runs, of_children), np.empty(len(nodes), of_children))
        lazy.layout.split_runs(ptr, nodes, parents, starts, run_ptr, *found)
    return run_ptr, *found


@dataclass(frozen=True)
class Coder:
    """Encodes weights, and has the table that decodes them.

    ``int8`` keeps the sign and one of 128 magnitudes on a logarithmic scale, so that small and large weights have the
    same relative precision; ``float16`` is half precision; ``float32`` weights are not encoded.
    """

    weights: str
    table: np.ndarray
    low: float = 1.0
    step: float = 1.0

    @classmethod
    def of(cls, parts: list[np.ndarray], weights: str) -> Coder:
        """Return the coder for the range of these weights."""
        if weights == "float32":
            return cls(weights, np.zeros(1, np.float32))
        if weights == "float16":
            return cls(weights, np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32))
        if weights != "int8":
            raise BadConfig(f"weights must be float32, float16 or int8, but is {weights!r}")
        high = max((float(max(part.max(), -part.min())) for part in parts if len(part)), default=1.0) or 1.0
        smallest = min((float(np.abs(part).min()) for part in parts if len(part)), default=high)
        low = max(smallest, high / _INT8_RANGE)
        step = max(float(np.log(high / low)) / 127, 1e-9)
        magnitudes = low * np.exp(np.arange(128) * step)
        return cls(weights, np.concatenate([magnitudes, -magnitudes]).astype(np.float32), low, step)

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Return one code per weight."""
        if self.weights == "float32":
            return np.ascontiguousarray(values, np.float32)
        if self.weights == "float16":
            return values.astype(np.float16).view(np.uint16)
        codes = np.empty(len(values), np.uint8)
        lazy.layout.encode_log(values, np.float32(self.low), np.float32(1.0 / self.step), codes)
        return codes


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


def _join(parts: list[np.ndarray]) -> np.ndarray:
    """Concatenate arrays in the widest of their types."""
    kind = max((part.dtype for part in parts), key=lambda dtype: dtype.itemsize)
    return np.concatenate([part.astype(kind, copy=False) for part in parts])


def _narrow(array: np.ndarray, *, signed: bool = False) -> np.ndarray:
    """Convert to the smallest of the types that kernels are compiled for."""
    return array.astype(_kind_for(int(array.max(initial=0)), signed=signed))


def _kind_for(top: int, *, signed: bool = False) -> type:
    """Return the smallest type for numbers up to ``top``, of those that kernels are compiled for."""
    kinds = (np.int32, np.int64) if signed else (np.uint8, np.uint16, np.uint32)
    return next(kind for kind in kinds if top <= np.iinfo(kind).max)
