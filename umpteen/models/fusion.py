"""How much an embedding counts beside tf-idf, and the encoder's own classifiers beside the ranker.

Embeddings of the texts that an encoder was trained on are better than those of new texts will ever be, so a ranker
trained on them trusts them too much. How much they are worth is found on texts that fine-tuning has not seen: a few
quick rankers are trained without these texts and asked about them. If tf-idf alone wins there, it is all that is used.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from umpteen.config import NeuralConfig
from umpteen.data.rows import Rows
from umpteen.engine import Progress, n_threads
from umpteen.linear import DenseHead
from umpteen.metrics import evaluate
from umpteen.models.base import search_tree
from umpteen.models.ensemble_rules import merge, tiers
from umpteen.models.ranker import Training
from umpteen.shortlist import TopK

USUAL = (0.6, 0.2)  # where there are no texts to choose on
_WEIGHTS = (0.0, 0.3, 0.6, 1.0, 2.0)  # of the embedding; 0 is tf-idf alone
_SHARES = (0.0, 0.1, 0.2, 0.4)  # of the encoder's own classifiers
_MOST = 20_000  # texts that the quick rankers learn from


def choose(
    features: sp.csr_matrix,
    E: np.ndarray,
    Y: sp.csr_matrix,
    head: DenseHead | None,
    held: np.ndarray,
    config: NeuralConfig,
    progress: Progress,
) -> tuple[float, float]:
    """Return the weight of the embedding and the share of the encoder's classifiers that do best on ``held`` texts.

    What the settings name is not tried otherwise. ``E`` are embeddings of length one.
    """
    weights = _WEIGHTS if config.embedding_weight is None else (config.embedding_weight,)
    shares = _SHARES if config.head_weight is None else (config.head_weight,)
    if head is None:
        shares = (0.0,)
    if not len(held):
        return weights[0] if len(weights) == 1 else USUAL[0], shares[0] if len(shares) == 1 else USUAL[1]
    kept = np.setdiff1d(np.arange(len(E)), held)
    kept = np.sort(np.random.default_rng(config.seed).permutation(kept)[:_MOST])
    depth = tiers(5, Y.shape[1])[-1].depth
    own = None if head is None else head.topk(E[held], depth)
    found: dict[tuple[float, float], float] = {}
    for number, weight in enumerate(weights):
        progress("weighing the embedding", number, len(weights))
        ranked = _ranked(features, E, weight, Y, kept, held, config, depth)
        for share in shares if weight else (0.0,):
            top = ranked if own is None or not share else merge([ranked, own], weights=[1.0 - share, share])
            figures = evaluate(top, Y[held], ks=(1, 3, 5))
            found[weight, share] = figures["P@1"] + figures["P@3"] + figures["P@5"]
    progress("weighing the embedding", len(weights), len(weights))
    return max(found, key=lambda pair: (found[pair], -sum(pair)))


def _ranked(
    features: sp.csr_matrix, E: np.ndarray, weight: float, Y: sp.csr_matrix, kept: np.ndarray, held: np.ndarray,
    config: NeuralConfig, k: int,
) -> TopK:  # fmt: skip
    """Train a quick ranker on some texts and ask it about others."""
    train, test = (
        Rows.mixed(features[rows], E[rows], weight) if weight else Rows.of(features[rows]) for rows in (kept, held)
    )
    usual = type(config)().linear  # a recipe may solve more exactly
    linear = replace(config.linear, eps=usual.eps, max_iter=usual.max_iter, threshold=usual.threshold)
    quick = replace(config, linear=linear, tree=replace(config.tree, kind="halving"), trees=1)
    (head,), _ = Training(train, Y[kept], quick).heads()
    return search_tree(head, test, min(k, Y.shape[1]), None, None, n_threads(config.threads))
