"""How the rankings of several models become one: five rules, as pure functions of TopK.

Knows nothing about the models. The rules are those of PECOS's ensembles, so published settings carry over; a
label that a model does not list counts as 0 there.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from umpteen.errors import BadConfig, BadInput, nearest
from umpteen.kernels.rank import merge_rows
from umpteen.shortlist import TopK, check_k


def merge(
    parts: Sequence[TopK | Any],
    rule: str = "average",
    k: int | None = None,
    weights: Sequence[float] | None = None,
) -> TopK:
    """Merge several models' predictions for the same texts.

    Parameters
    ----------
    parts
        One TopK (or score matrix) per model.
    rule
        ``average`` of the scores; ``rank-average`` of the places in the list; ``sigmoid-average`` and
        ``softmax-average`` of the scores made comparable first; ``round-robin``, where the models take turns.
    k
        How many labels to keep; by default as many as the longest part holds.
    weights
        How much each model counts (equally by default); not for round-robin.

    Returns
    -------
    TopK with the merged scores. Equal scores are ordered by label number.

    Examples
    --------
    >>> one = TopK([[0, 1]], [[0.8, 0.6]])
    >>> two = TopK([[1, 2]], [[0.9, 0.2]])
    >>> merge([one, two], "average").labels.tolist()
    [[1, 0]]
    >>> merge([one, two], "round-robin", k=3).labels.tolist()
    [[0, 1, 2]]
    """
    if rule not in RULES:
        raise BadConfig(f"the rule must be one of {', '.join(RULES)}, but is {rule!r}{nearest(rule, RULES)}")
    tops = [part if isinstance(part, TopK) else TopK.from_csr(part) for part in parts]
    _check_parts(tops)
    shares = _check_weights(weights, len(tops), rule)
    longest = max(top.k for top in tops)
    k = longest if k is None else k
    check_k(k)
    values = [RULES[rule](top, i, len(tops), longest) for i, top in enumerate(tops)]
    if weights is not None:
        values = [part * np.float32(share) for part, share in zip(values, shares, strict=True)]
    labels = np.empty((len(tops[0]), k), np.int32)
    scores = np.empty((len(tops[0]), k), np.float32)
    merge_rows(
        np.concatenate([top.labels for top in tops], axis=1), np.concatenate(values, axis=1),
        labels, scores.view(np.int32), rule == "round-robin", 1.0 / sum(shares),
    )  # fmt: skip
    return TopK(labels, scores, tops[0].label_names)


class Tier(NamedTuple):
    """So many places of a merged ranking are decided by so many labels of each model."""

    places: int
    depth: int


def tiers(k: int, n_labels: int, first: int = 50) -> list[Tier]:
    """Return which labels of each model decide the k best: twice as many as there are places, ``first`` at least.

    Places are filled from the top, and the depth at which one is decided does not depend on k: so the first labels are
    the same whatever k is. Few labels are all proposed.

    Examples
    --------
    >>> tiers(5, 1_000), tiers(60, 1_000)
    ([Tier(places=5, depth=50)], [Tier(places=25, depth=50), Tier(places=50, depth=100), Tier(places=60, depth=200)])
    >>> tiers(60, 80)
    [Tier(places=60, depth=80)]
    """
    found = []
    depth = first if n_labels > 2 * first else n_labels
    while not found or found[-1].places < k:
        depth = min(depth, n_labels)
        found.append(Tier(k if depth == n_labels else min(k, depth // 2), depth))
        depth *= 2
    return found


def merge_by_tiers(
    parts: Sequence[TopK], rule: str, wanted: Sequence[Tier], weights: Sequence[float] | None = None
) -> TopK:
    """Merge rankings that hold as many labels as the last tier wants: each tier adds what is missing behind the last.

    A label that a deeper tier adds scores no more than those before it.
    """
    top = None
    for tier in wanted:
        merged = merge([part.first(tier.depth) for part in parts], rule, tier.places, weights)
        top = merged if top is None else top.continued(merged)
    return top


def _score(top: TopK, part: int, n_parts: int, longest: int) -> np.ndarray:
    return top.scores


def _place(top: TopK, part: int, n_parts: int, longest: int) -> np.ndarray:
    """Give the first label of a row the longest part's length, the next one less, and so on."""
    places = longest - np.arange(top.k, dtype=np.float32)
    return np.broadcast_to(places, top.labels.shape)


def _sigmoid(top: TopK, part: int, n_parts: int, longest: int) -> np.ndarray:
    return 0.5 + 0.5 * np.tanh(0.5 * top.scores)  # never overflows


def _softmax(top: TopK, part: int, n_parts: int, longest: int) -> np.ndarray:
    """Turn the scores of a row's labels into shares of one."""
    scores = np.where(top.labels >= 0, top.scores, -np.inf)
    largest = scores.max(axis=1, keepdims=True, initial=-np.inf)
    powers = np.exp(scores - np.where(np.isfinite(largest), largest, 0))
    return powers / np.maximum(powers.sum(axis=1, keepdims=True), np.finfo(np.float32).tiny)


def _turn(top: TopK, part: int, n_parts: int, longest: int) -> np.ndarray:
    """Value places first and the order of the models second, so that they take turns."""
    return _place(top, part, n_parts, longest) + np.float32((n_parts - part) / (n_parts + 1.0))


RULES = {
    "average": _score,
    "rank-average": _place,
    "sigmoid-average": _sigmoid,
    "softmax-average": _softmax,
    "round-robin": _turn,
}


def _check_parts(tops: list[TopK]) -> None:
    if not tops:
        raise BadInput("there is nothing to merge; pass the predictions of at least one model")
    lengths = sorted({len(top) for top in tops})
    if len(lengths) > 1:
        raise BadInput(f"every model must predict the same texts, but they predict {lengths} rows")


def _check_weights(weights: Sequence[float] | None, n_parts: int, rule: str) -> list[float]:
    if weights is None:
        return [1.0] * n_parts
    if rule == "round-robin":
        raise BadConfig("round-robin lets the models take turns and has no weights; order the models instead")
    if isinstance(weights, str) or not all(isinstance(weight, numbers.Real) for weight in weights):
        raise BadConfig(f"weights must be one number per model, but are {weights!r:.80}")
    shares = [float(weight) for weight in weights]
    if len(shares) != n_parts:
        raise BadConfig(f"there must be one weight per model ({n_parts}), but there are {len(shares)}")
    if not all(np.isfinite(share) and share >= 0 for share in shares) or sum(shares) <= 0:
        raise BadConfig(f"weights must be at least 0 and not all 0, but are {shares}")
    return [share / max(shares) for share in shares]  # float32 holds them, whatever their scale
