"""Search the trees of a model: one or several, wider where a beam does not lead to enough labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import scipy.sparse as sp

from umpteen.config import ModelConfig
from umpteen.data.rows import Rows
from umpteen.linear import LinearTree
from umpteen.models.ensemble_rules import merge_by_tiers, tiers
from umpteen.models.fusion import Scorer
from umpteen.shortlist import TopK

_ALL = np.iinfo(np.int32).max  # reach of a beam that leaves nothing out


def search_tree(
    head: LinearTree, rows: Rows, k: int, beam: int | None, wanted: np.ndarray | None, threads: int
) -> TopK:
    """Search one tree for labels by their numbers, of those ``wanted`` if any are named."""
    flags = None if wanted is None else head.tree.allowed_nodes(wanted)
    kept = head.beams(beam, 1)[:-1].tolist()
    reach = head.reach(beam) if wanted is None else reach_of_wanted(wanted, kept, head.tree.sizes)

    def search(places: int) -> TopK:
        wide = beam if wanted is None or places <= reach else max(*kept, min(places, len(wanted)))
        top = head.topk(rows, min(places, head.tree.n_labels), beam=wide, allowed=flags, threads=threads)
        positions, top.labels = top.labels, head.tree.order[top.labels]
        if top.k and (positions[:, -1] < 0).any():
            top.labels[positions < 0] = -1
        return top

    return padded(widened(search, min(k, head.tree.n_labels), reach), k)


def search_trees(
    heads: Sequence[LinearTree], rows: Rows, k: int, rule: str, threads: int, beam: int | None = None,
    wanted: np.ndarray | None = None,
) -> TopK:  # fmt: skip
    """Search several trees and merge what they find by a rule."""
    if len(heads) == 1:
        return search_tree(heads[0], rows, k, beam, wanted, threads)
    wanted_tiers = tiers(k, heads[0].tree.n_labels)
    tops = [search_tree(head, rows, wanted_tiers[-1].depth, beam, wanted, threads) for head in heads]
    return merge_by_tiers(tops, rule, wanted_tiers)


def ranker_scorer(
    heads: Sequence[LinearTree], rows: Rows, config: ModelConfig, threads: int, beam: int | None = None,
    wanted: np.ndarray | None = None,
) -> Scorer:  # fmt: skip
    """Return the trees of a ranker as a scorer of some texts."""
    has_raw_margins = config.search.leaf_post == "identity"  # whatever the levels above are scored by
    return Scorer(
        lambda k: search_trees(heads, rows, k, config.ensemble, threads, beam, wanted),
        lambda pairs: score_by_trees(heads, rows, pairs, threads).data,
        "identity" if has_raw_margins else config.search.post,
    )


def score_by_trees(heads: Sequence[LinearTree], rows: Rows, pairs: sp.csr_matrix, threads: int) -> sp.csr_matrix:
    """Return the scores of the stored entries of ``pairs``, averaged over the trees."""
    parts = [head.score_labels(rows, pairs, threads=threads) for head in heads]
    scores = parts[0]
    scores.data = np.mean([part.data for part in parts], axis=0, dtype=np.float32)
    return scores


def widened(search: Callable[[int], TopK], k: int, reach: int) -> TopK:
    """Search for k labels where the usual beam leads to ``reach`` in any case; for more of them it is made wider.

    A wider beam may find labels that score higher. They are put behind those that were found without: so the first
    labels are the same whatever k is.
    """
    top = search(min(k, reach))
    while reach < k:
        reach *= 2
        top = top.continued(search(reach).first(k))
    return top


def reach_of_wanted(wanted: np.ndarray, kept: Sequence[int], sizes: Sequence[int]) -> int:
    """Return how many of the labels that are wanted a search finds: each node that it keeps leads to one.

    ``kept`` and ``sizes`` are the numbers of nodes that are kept at each level above the labels, and of all nodes.
    """
    least = min((few for few, size in zip(kept, sizes, strict=False) if few < size), default=_ALL)
    return least if least < len(wanted) else _ALL


def padded(top: TopK, k: int) -> TopK:
    """Fill rows up to k places with −1."""
    if top.k >= k:
        return top
    missing = ((0, 0), (0, k - top.k))
    return TopK(np.pad(top.labels, missing, constant_values=-1), np.pad(top.scores, missing))
