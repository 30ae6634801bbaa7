"""The labels that ``umpteen predict`` prints or writes for each text, with their names, scores and probabilities."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from umpteen.data.labels import Labels
from umpteen.data.sparse import pointers
from umpteen.models.decision import Decision
from umpteen.shortlist import TopK

_USUAL_K = 5  # labels of a model that is not calibrated


def printed_decision(model: Any, k: int | None = None, threshold: float | None = None) -> Decision:
    """Return which labels are printed: those of ``predict``, but the first few if there are no probabilities."""
    if k is None and threshold is None and model.calibration_ is None:
        k = _USUAL_K
    return model.decision(None if k is None else min(k, len(model.labels_)), threshold)


class Named(NamedTuple):
    """A label of a text."""

    label: str
    id: int
    key: str
    score: float
    probability: float | None


class Answers(NamedTuple):
    """The labels of several texts, end to end: those of text i are at ``ptr[i]`` to ``ptr[i + 1]``.

    Examples
    --------
    >>> top = TopK([[2, 0], [1, -1]], [[0.75, 0.25], [0.5, 0.0]])
    >>> answers = Answers.of(top, Decision(depth=2, threshold=0.5))
    >>> answers.ptr.tolist(), answers.ids.tolist(), answers.scores.tolist()
    ([0, 1, 2], [2, 1], [0.75, 0.5])
    """

    ptr: np.ndarray
    ids: np.ndarray
    scores: np.ndarray
    probabilities: np.ndarray | None

    @classmethod
    def of(cls, top: TopK, decision: Decision) -> Answers:
        """Return the labels that a decision chooses."""
        chosen = decision.chosen(top)
        probabilities = None if top.probabilities is None else top.probabilities[chosen]
        return cls(pointers(chosen.sum(axis=1)), top.labels[chosen], top.scores[chosen], probabilities)

    def named(self, labels: Labels) -> Iterator[list[Named]]:
        """Yield the labels of each text by name."""
        ids = self.ids.tolist()
        missing = [None] * len(ids)
        probabilities = missing if self.probabilities is None else self.probabilities.tolist()
        columns = (labels.names(ids), ids, labels.keys(ids), self.scores.tolist(), probabilities)
        found = [Named(*values) for values in zip(*columns, strict=True)]
        ptr = self.ptr.tolist()
        return (found[first:last] for first, last in pairwise(ptr))


def as_json_value(answers: list[Named]) -> dict[str, Any]:
    """Return the labels of a text as ``umpteen predict --json`` prints them."""
    return {"labels": [_without_none(answer) for answer in answers]}


def _without_none(answer: Named) -> dict[str, Any]:
    return {name: value for name, value in answer._asdict().items() if value is not None}
