"""Several trained models that vote: other recipes, other encoders, other seeds, in any mix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from umpteen.data.labels import Labels
from umpteen.data.targets import Targets, readable
from umpteen.errors import BadInput
from umpteen.models.base import Model
from umpteen.models.ensemble_rules import merge, merge_by_tiers, tiers
from umpteen.models.predictor import Answers
from umpteen.shortlist import TopK, check_k


class Ensemble(Answers):
    """Merge the predictions of fitted models over the same labels.

    Parameters
    ----------
    models
        Fitted models whose labels agree.
    rule
        average, rank-average, sigmoid-average, softmax-average or round-robin.
    weights
        How much each model counts; equally by default.

    Examples
    --------
    >>> from umpteen import DiSMEC, Ensemble, XRLinear
    >>> texts, labels = ["red apple", "green pear", "red cherry"], [["red"], ["green"], ["red"]]
    >>> models = [XRLinear().fit(texts, labels), DiSMEC().fit(texts, labels)]
    >>> Ensemble(models, rule="rank-average").topk(["a red plum"], k=1).names
    [['red']]
    """

    def __init__(self, models: Sequence[Model], rule: str = "average", weights: Sequence[float] | None = None):
        if not isinstance(models, Sequence):
            raise BadInput(f"an ensemble needs a list of models, but got a {type(models).__name__}; wrap it: [model]")
        if not models:
            raise BadInput("an ensemble needs at least one model; pass a list of fitted models")
        first = models[0].labels_
        for number, model in enumerate(models):
            if model.labels_ != first:
                raise BadInput(
                    f"model {number} has {len(model.labels_)} labels that differ from the {len(first)} of "
                    "model 0; train all models on the same labels"
                )
        nothing = TopK(np.zeros((0, 1)), np.zeros((0, 1)))
        merge([nothing] * len(models), rule, 1, weights)  # a wrong rule or weight is told now
        self.models, self.rule, self.weights = list(models), rule, weights

    def topk(
        self, X: Any, k: int = 10, *, beam: int | None = None, allowed: Any = None, threads: int | None = None
    ) -> TopK:
        """Return the k best labels by the merged score.

        Each model proposes twice as many, and 50 at least; what it does not propose counts 0.
        """
        check_k(k)
        X, wanted = readable(X), tiers(k, len(self.labels_))
        depth = wanted[-1].depth
        tops = [model.topk(X, depth, beam=beam, allowed=allowed, threads=threads) for model in self.models]
        return merge_by_tiers(tops, self.rule, wanted, self.weights)

    @property
    def labels_(self) -> Labels:
        """The label vocabulary, the same for all."""
        return self.models[0].labels_

    @property
    def targets_(self) -> Targets:
        """The form in which labels came to the first model, and in which ``predict`` returns them."""
        return self.models[0].targets_

    @property
    def _threshold(self) -> float:
        return self.models[0]._threshold
