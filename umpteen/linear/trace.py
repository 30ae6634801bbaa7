"""What a tree of packed classifiers does with one row: nodes in the beam, and margins and weights on a label's path.

For single queries. Weights are looked up in the packed arrays feature by feature, which takes a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from umpteen.data.rows import Rows
from umpteen.kernels import POSTS, lazy
from umpteen.linear.search import LinearTree, Triplet
from umpteen.tree.trace import Kept, Place

_IDENTITY = POSTS.index("identity")
_AT_ONCE = 1 << 20  # weights, or runs of them, that are looked at together


@dataclass(frozen=True)
class TracedNode:
    """An ancestor of a label, or the label itself at the last level."""

    level: int
    node: int
    margin: float
    factor: float  # what the margin becomes; the score of a label is the product along its path
    score: float  # of the path down to this node
    bias: float
    weights: np.ndarray  # of the features of the query, in their order; 0 where there is none
    place: Place | None  # None where an ancestor was not kept, so that the search did not come here


@dataclass(frozen=True)
class Trace:
    """The nodes from the first level to a label, and the query's features that their weights belong to."""

    features: np.ndarray
    values: np.ndarray
    nodes: list[TracedNode]


def trace_label(head: LinearTree, rows: Rows, label: int, k: int) -> Trace:
    """Follow a label through the tree for one row, of which the search returns k labels."""
    triplet, nodes = head._sparse(rows), []
    path = head.tree.path(label)
    places = _places(head, triplet, path, k)
    path_score = np.ones(1, np.float32)
    for level in range(head.n_levels):
        node = path[[level]]
        parent, post = head.tree.parents[level][node], head.posts[level]
        margin = _scores(head, triplet, level, _IDENTITY, node, parent, parent, path_score)
        factor = _scores(head, triplet, level, post, node, parent, parent, np.ones(1))
        path_score = _scores(head, triplet, level, post, node, parent, parent, path_score)
        bias = head.arrays["bias"][head.arrays["meta"][level, lazy.score.NODE_AT] + node[0]]
        weights, numbers = node_weights(head, level, int(node[0]), triplet[1]), (margin[0], factor[0], path_score[0])
        place = places[level] if level < len(places) else None
        nodes.append(TracedNode(level, int(node[0]), *map(float, numbers), float(bias), weights, place))
    return Trace(triplet[1], triplet[2], nodes)


def trace_beam(head: LinearTree, rows: Rows, k: int) -> list[Kept]:
    """Return what the search for k labels of one row keeps at each level."""
    return [Kept.best(*found) for found in _levels(head, head._sparse(rows), k)]


def _places(head: LinearTree, triplet: Triplet, path: np.ndarray, k: int) -> list[Place]:
    """Search for k labels; return where the nodes of a path rank, down to the first one that is not kept."""
    places: list[Place] = []
    for node, (nodes, scores, width) in zip(path, _levels(head, triplet, k), strict=False):
        places.append(Place.of(nodes, scores, int(node), width))
        if not places[-1].is_kept:
            break
    return places


def _levels(head: LinearTree, triplet: Triplet, k: int) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Search for k labels; yield for each level the nodes that are scored, their scores, and how many are kept."""
    kept = Kept(np.zeros(1, np.int32), np.ones(1, np.float32), 1)
    widths = [*head.beams(None, min(k, head.reach()))[:-1], k]
    for level, width in enumerate(map(int, widths)):
        nodes, scores = _children(head, triplet, level, kept.nodes, kept.scores)
        yield nodes, scores, width
        kept = Kept.best(nodes, scores, width)


def largest_weights(head: LinearTree, level: int, parent: int, n: int, n_features: int) -> list[np.ndarray]:
    """Return the features with the n largest positive weights, the largest first, for each child of a parent.

    Only the first ``n_features`` features count. All weights of the level are looked at, or all runs where the level is
    stored in runs, a block at a time.
    """
    arrays, (first, last) = head.arrays, map(int, head.tree.starts[level][parent : parent + 2])
    shift = first if arrays["meta"][level, lazy.score.WHOLE] == 1 else 0
    at = np.empty(0, np.int64)
    for entries in _entries_of(head, level, parent, n_features):
        at = _best_of_each(head, np.concatenate([at, entries]), n)
    ends = np.searchsorted(arrays["local"][at].astype(np.int64) - shift, np.arange(1, last - first))
    features = np.searchsorted(arrays["ptr"][level], at, side="right") - 1
    return np.split(features, ends) if last > first else []


def _best_of_each(head: LinearTree, at: np.ndarray, n: int) -> np.ndarray:
    """Return of some stored weights the n largest positive ones of each node, in the order of the nodes."""
    codes, nodes = head.arrays["codes"][at], head.arrays["local"][at]
    weights = codes.astype(np.float32) if codes.dtype.kind == "f" else head.arrays["table"][codes]
    order = np.lexsort((at, -weights, nodes))
    order = order[weights[order] > 0]
    nodes = nodes[order]
    rank = np.arange(len(nodes)) - np.searchsorted(nodes, nodes)  # among the weights of the same node
    return at[order[rank < n]]


def _entries_of(head: LinearTree, level: int, parent: int, n_features: int) -> Iterator[np.ndarray]:
    """Yield where the weights of the first features for all children of a parent are stored."""
    arrays, (first, last) = head.arrays, head.tree.starts[level][parent : parent + 2]
    begin, end = int(arrays["ptr"][level][0]), int(arrays["ptr"][level][n_features])
    if arrays["meta"][level, lazy.score.WHOLE] == 1:
        for start in range(begin, end, _AT_ONCE):
            nodes = arrays["local"][start : min(start + _AT_ONCE, end)]
            yield start + np.flatnonzero((nodes >= first) & (nodes < last))
        return
    run_ptr = arrays["run_ptr"][arrays["meta"][level, lazy.score.RUN_ROW]]
    for start in range(int(run_ptr[0]), int(run_ptr[n_features]), _AT_ONCE):
        runs = slice(start, min(start + _AT_ONCE, int(run_ptr[n_features])))
        ends = begin + np.cumsum(arrays["run_last"][runs].astype(np.int64) + 1)
        wanted = np.flatnonzero(arrays["run_chunk"][runs] == parent)
        lengths = arrays["run_last"][runs][wanted].astype(np.int64) + 1
        before = np.cumsum(lengths) - lengths
        yield np.repeat(ends[wanted] - lengths - before, lengths) + np.arange(lengths.sum())
        begin = int(ends[-1])


def node_weights(head: LinearTree, level: int, node: int, features: np.ndarray) -> np.ndarray:
    """Return the decoded weights of a node for some features, 0 where none is stored."""
    arrays, spec = head.arrays, head.arrays["meta"][level]
    parent = int(head.tree.parents[level][node])
    is_whole = spec[lazy.score.WHOLE] == 1
    wanted = node if is_whole else node - int(head.tree.starts[level][parent])
    weights = np.zeros(len(features), np.float32)
    for i, feature in enumerate(features):
        begin, end = arrays["ptr"][level][feature], arrays["ptr"][level][feature + 1]
        if not is_whole:
            begin, end = _run_of(head, level, parent, int(feature), int(begin))
        found = np.flatnonzero(arrays["local"][begin:end] == wanted)
        if len(found):
            code = arrays["codes"][begin + found[0]]
            weights[i] = code if code.dtype.kind == "f" else arrays["table"][code]
    return weights


def _run_of(head: LinearTree, level: int, parent: int, feature: int, begin: int) -> tuple[int, int]:
    """Return where the weights of a feature for the children of a parent begin and end."""
    arrays = head.arrays
    run_ptr = arrays["run_ptr"][arrays["meta"][level, lazy.score.RUN_ROW]]
    runs = slice(int(run_ptr[feature]), int(run_ptr[feature + 1]))
    at = np.flatnonzero(arrays["run_chunk"][runs] == parent)
    if not len(at):
        return begin, begin
    lengths = arrays["run_last"][runs].astype(np.int64) + 1
    begin += int(lengths[: at[0]].sum())
    return begin, begin + int(lengths[at[0]])


def _children(
    head: LinearTree, triplet: Triplet, level: int, beam: np.ndarray, beam_scores: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the children of the nodes in the beam and their scores; siblings are ordered by their margins."""
    starts = head.tree.starts[level]
    parts = [np.arange(starts[parent], starts[parent + 1], dtype=np.int32) for parent in beam]
    nodes, at = np.concatenate(parts), np.repeat(np.arange(len(beam)), [len(part) for part in parts])
    margins = _scores(head, triplet, level, _IDENTITY, nodes, beam[at], beam, beam_scores)
    scores = _scores(head, triplet, level, head.posts[level], nodes, beam[at], beam, beam_scores)
    order = np.lexsort((nodes, -margins, at))
    return nodes[order], scores[order]


def _scores(
    head: LinearTree, triplet: Triplet, level: int, post: int, nodes: np.ndarray, parents: np.ndarray,
    beam: np.ndarray, beam_scores: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Score nodes of a level for one row; ``beam`` has all of their parents."""
    out = np.empty(len(nodes), np.float32)
    lazy.score.score_pairs(
        *triplet, 0, 1, level, *head.packed, post,
        np.array([0, len(nodes)]), nodes.astype(np.int32), parents.astype(np.int32),
        np.array([0, len(beam)]), beam.astype(np.int32), beam_scores.astype(np.float32), out,
    )  # fmt: skip
    return out
