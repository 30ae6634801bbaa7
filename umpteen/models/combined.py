"""Models with a linear ranker, classifiers trained with an encoder or a network, or both: how they rank and explain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from umpteen.calibration import Calibration
from umpteen.config import NeuralConfig
from umpteen.data.rows import Rows
from umpteen.errors import BadConfig
from umpteen.linear.trace import trace_beam
from umpteen.metrics import ABOVE_THRESHOLD
from umpteen.models import fusion
from umpteen.models.encoder_model import EncodedModel
from umpteen.models.ensemble_rules import merge_by_tiers, tiers
from umpteen.models.explain import (
    LOG_ODDS,
    MARGINS,
    SCORE,
    FeatureNames,
    Findings,
    combine_by_average,
    combine_by_fusion,
    explain_trees,
)  # fmt: skip
from umpteen.models.explanation import Path
from umpteen.models.tree_search import ranker_scorer
from umpteen.shortlist import TopK
from umpteen.tree.trace import Kept


def fit_fusion(
    ranker: fusion.Scorer, classifiers: fusion.Scorer, Y: sp.csr_matrix, split: tuple[np.ndarray, np.ndarray],
    config: NeuralConfig, *, can_drop: bool,
) -> tuple[fusion.Weights | None, Calibration | None]:  # fmt: skip
    """Fit how much ranker and classifiers count, and probabilities, on texts that neither was trained on.

    Parameters
    ----------
    ranker, classifiers
        Scorers of the held-out texts.
    Y, split
        The labels of all texts; the numbers of those trained on, and of those held out.
    config
        Settings of the model.
    can_drop
        Whether classifiers that do not improve on the ranker can be left out of the model: the weights are then None.
    """
    trained_on, held_out = split
    counts = Y[trained_on].getnnz(axis=0)  # a held-out text would be known by the labels it alone has
    scorers, truth = (ranker, classifiers, fusion.frequency(counts)), Y[held_out]
    weights = fusion.fit(scorers, truth)
    if weights is None and not can_drop:
        scorers, weights = scorers[:2], fusion.RANKER
    if not config.calibration.rows or not truth.nnz:
        return weights, None
    k = min(ABOVE_THRESHOLD, Y.shape[1])
    top = ranker.topk(k) if weights is None else fusion.fuse(scorers, weights, k, Y.shape[1])
    return weights, Calibration.fit(top, truth)


@dataclass(frozen=True)
class ReadTexts:
    """Texts as the parts of a model see them.

    Parameters
    ----------
    ranked
        Rows of the ranker; None if there is no ranker.
    seen
        What the classifiers score; None if there are no classifiers.
    tokens
        What the network reads, where ``seen`` is something else.
    """

    ranked: Rows | None
    seen: Any
    tokens: Any = None

    def __len__(self) -> int:
        return len(self.tokens if self.ranked is None else self.ranked)


class CombinedModel(EncodedModel):
    """Base of models whose labels are ranked by a ranker (``heads_``), by classifiers (``neural_``), or by both.

    A logistic model combines both (``fusion``), or an average with a fixed weight (``head_weight``).
    """

    config_class = NeuralConfig
    _n_proposed: ClassVar[int] = 50  # labels that each part proposes at least for an average

    @property
    def config(self) -> NeuralConfig:
        """The settings that ``fit`` would use."""
        config = super().config
        self._check_order(config)
        return config  # type: ignore[return-value]

    def _n_held_out(self, matrix: sp.csr_matrix) -> int:
        """Return how many rows are held out to calibrate the model: none if those that fit ``fusion`` serve for it."""
        return 0 if self.config.fits_fusion(matrix.shape[1]) else super()._n_held_out(matrix)

    def _classifiers(self, rows: ReadTexts, beam: int | None, wanted: np.ndarray | None, threads: int) -> fusion.Scorer:
        """Return the classifiers as a scorer of some texts."""
        raise NotImplementedError

    def _path(self, rows: ReadTexts, label: int, depth: int, threads: int) -> Path:
        """Explain a label of one text by the classifiers."""
        raise NotImplementedError

    @property
    def _has_classifiers(self) -> bool:
        """Whether classifiers score labels."""
        return self.neural_ is not None and not (self.heads_ and self.config_.head_weight == 0)

    @property
    def _is_fused(self) -> bool:
        """Whether a logistic model combines ranker and classifiers."""
        return bool(self.heads_) and self._has_classifiers and self.config_.head_weight is None

    # Ranking and scores

    def _ranked(
        self, rows: ReadTexts, k: int, beam: int | None, wanted: np.ndarray | None, threads: int
    ) -> TopK:  # fmt: skip
        """Rank labels by the classifiers, by the ranker, or by both."""
        if not self._has_classifiers:
            return super()._ranked(rows.ranked, k, beam, wanted, threads)
        if self._is_fused:
            scorers = self._scorers(rows, beam, wanted, threads)
            return fusion.fuse(scorers, self._fusion_weights, k, len(self.labels_))
        classifiers = self._classifiers(rows, beam, wanted, threads)
        if not self.heads_:
            return classifiers.topk(k)
        share, n_trees = self.config_.head_weight, len(self.heads_)
        wanted_tiers = tiers(k, len(self.labels_), self._n_proposed)
        depth = wanted_tiers[-1].depth
        tops = [*self._proposals(rows.ranked, depth, beam, wanted, threads), classifiers.topk(depth)]
        rule = self.config_.ensemble if n_trees > 1 else "average"
        weights = None if rule == "round-robin" else [(1.0 - share) / n_trees] * n_trees + [share]
        return merge_by_tiers(tops, rule, wanted_tiers, weights)

    def _scorers(
        self, rows: ReadTexts, beam: int | None = None, wanted: np.ndarray | None = None, threads: int = 0
    ) -> tuple[fusion.Scorer, ...]:
        """Return what ``fusion`` combines: ranker, classifiers, and the frequency of labels if it has a weight."""
        ranker = ranker_scorer(self.heads_, rows.ranked, self.config_, threads, beam, wanted)
        scorers = (ranker, self._classifiers(rows, beam, wanted, threads))
        if len(self._fusion_weights) == len(scorers) + 1:
            return scorers
        if self.targets_.counts is None:
            raise BadConfig("fusion has four numbers, but the model has no label counts; use three, or train it again")
        return (*scorers, fusion.frequency(self.targets_.counts))

    @property
    def _fusion_weights(self) -> fusion.Weights:
        """The logistic model that combines ranker and classifiers."""
        return self.config_.fusion or fusion.USUAL

    def _scored(self, rows: ReadTexts, wanted: sp.csr_matrix, threads: int) -> sp.csr_matrix:
        if not self._has_classifiers:
            return super()._scored(rows.ranked, wanted, threads)
        if self._is_fused:
            found = fusion.probabilities(self._scorers(rows, threads=threads), wanted, self._fusion_weights)
        else:
            found = self._classifiers(rows, None, None, threads).score(wanted)
            if self.heads_:
                share, ranked = np.float32(self.config_.head_weight), super()._scored(rows.ranked, wanted, threads)
                found = (1 - share) * ranked.data + share * found
        return sp.csr_matrix((found, wanted.indices, wanted.indptr), shape=wanted.shape)

    # Explanations

    @property
    def _word_scale(self) -> str:
        if self.neural_ is None:
            return MARGINS
        return LOG_ODDS if self._is_fused or not self.heads_ else SCORE

    def _measured(self, rows: ReadTexts, wanted: sp.csr_matrix, threads: int) -> np.ndarray:
        if self._is_fused:
            return fusion.log_odds(self._scorers(rows, threads=threads), wanted, self._fusion_weights)
        scores = self._scored(rows, wanted, threads).data
        return scores if self.heads_ else fusion.to_margins(scores, "sigmoid")

    def _findings(self, rows: ReadTexts, label: int, k: int, threads: int) -> Findings:
        depth = self._searched_depth(k)
        path = self._path(rows, label, depth, threads) if self._has_classifiers else None
        if not self.heads_:
            return Findings([path], [(path.part, 1.0, path.steps[-1].score)])
        names = FeatureNames(self.tfidf_, rows.ranked.n_sparse)
        ranker = explain_trees(self.heads_, rows.ranked, label, depth, names)
        if path is None:
            return ranker
        if not self._is_fused:
            return combine_by_average(ranker, path, self.config_.head_weight)
        scorers = self._scorers(rows, threads=threads)
        return combine_by_fusion(ranker, path, scorers, label, len(self.labels_), self._fusion_weights)

    def _kept_nodes(self, rows: ReadTexts, k: int, threads: int) -> list[list[Kept]]:
        depth = self._searched_depth(k)
        return [trace_beam(head, rows.ranked, depth) for head in self.heads_]

    def _searched_depth(self, k: int) -> int:
        """Return how many labels ranker and classifiers propose if k are wanted."""
        if not self.heads_:
            return k
        if not self._has_classifiers:
            return self._depth(k)
        return tiers(k, len(self.labels_), self._n_proposed)[-1].depth
