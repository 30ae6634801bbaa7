"""The precision of a perfect model on the rows of ``benchmarks.scale_data``: it knows how rows are made.

The labels with the highest probabilities given the features of a row maximise the expected P@k, for every k. These
probabilities have a closed form, because within a topic labels are drawn independently and share no feature:

- For a topic, each of its features multiplies the likelihood by P(present | topic) / P(present by chance) or by
  P(absent | topic) / P(absent by chance).
- For a label of the topic with probability π, the ratios of its features are multiplied in the same way, to r with the
  label and to s without it, where its features may be mentioned nevertheless. They multiply the likelihood of the topic
  by (1 − π) s + π r, and the label is there with probability π r / ((1 − π) s + π r).
- Rows have at least one label: likelihood and probabilities are those under this condition.
- The probability of a label is the sum over topics of the probability of the topic times that of the label in it.

Of all topics, the 64 with the highest probability given the features of topics are considered.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from benchmarks.scale_data import OF_LABEL, OF_TOPIC, TOPIC_FEATURES, Structure
from umpteen.metrics import evaluate
from umpteen.shortlist import TopK

_TOPICS = 64
KS = (1, 3, 5)


class Oracle:
    """A perfect model of a structure."""

    def __init__(self, structure: Structure):
        self.structure = structure
        topics = np.arange(structure.n_topics)
        features = structure.features_of_topics(topics) - structure.first_of_topics
        order = np.argsort(features, axis=None, kind="stable")
        self.topics = (order // TOPIC_FEATURES).astype(np.int32)  # by feature
        counts = np.bincount(features.ravel(), minlength=TOPIC_FEATURES * structure.topic_part)
        self.starts = np.concatenate([[0], np.cumsum(counts)])
        mentioned = structure.mentioned
        self.of_topic = self._ratios(1 - (1 - OF_TOPIC) * (1 - structure.by_chance))
        self.of_label = self._ratios(1 - (1 - OF_LABEL) * (1 - mentioned))
        self.of_others = self._ratios(mentioned)

    def topk(self, X: sp.csr_matrix, k: int = max(KS), allowed: np.ndarray | None = None) -> TopK:
        """Return the k most probable labels of each row, of those that ``allowed`` flags, with probabilities."""
        found = [self._row(X.indices[X.indptr[i] : X.indptr[i + 1]], k, allowed) for i in range(X.shape[0])]
        return TopK(np.stack([labels for labels, _ in found]), np.stack([scores for _, scores in found]))

    def _row(self, features: np.ndarray, k: int, allowed: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        structure = self.structure
        topics, weight = self._topics(features)
        labels, probability = structure.labels_of(topics), structure.label_probability(topics)
        with_label, without = self._of_labels(labels, features)  # (topics, labels)
        likelihood = (1 - probability) * without + probability * with_label
        none_after = np.prod((1 - probability) * without / likelihood, axis=1)
        none_before = np.prod(1 - probability, axis=1)
        weight = weight + np.log(likelihood).sum(axis=1) + np.log1p(-none_after) - np.log1p(-none_before)
        weight = np.exp(weight - weight.max())
        posterior = (weight / weight.sum() / (1 - none_after))[:, None] * probability * with_label / likelihood
        numbers, place = np.unique(structure.number_of(labels), return_inverse=True)
        total = np.bincount(place.ravel(), posterior.ravel())
        if allowed is not None:
            total = np.where(allowed[numbers], total, -1.0)
        best = np.argsort(-total, kind="stable")[:k]
        return np.where(total[best] >= 0, numbers[best], -1).astype(np.int32), total[best].astype(np.float32)

    def _topics(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the most probable topics by their own features, and the logarithms of their probabilities."""
        structure = self.structure
        own = features[(features >= structure.first_of_topics) & (features < structure.first_of_labels)]
        own = own - structure.first_of_topics
        found = [self.topics[self.starts[f] : self.starts[f + 1]] for f in own]
        likely = np.arange(min(_TOPICS, structure.n_topics), dtype=np.int32)  # if no feature is of a topic
        topics, hits = np.unique(np.concatenate([likely, *found]), return_counts=True)
        hits = hits - (topics < len(likely))
        log = np.log(structure.topic_probability[topics])
        log += np.log(self.of_topic) @ np.stack([TOPIC_FEATURES - hits, hits])
        best = np.argsort(-log, kind="stable")[:_TOPICS]
        return topics[best].astype(np.int64), log[best]

    def _of_labels(self, labels: np.ndarray, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return how much more likely these features are with each label, and without it, than by chance."""
        theirs = self.structure.features_of_labels(labels.ravel())
        is_present = np.isin(theirs, features).astype(np.int64)
        return tuple(
            ratios[is_present].prod(axis=1).reshape(labels.shape) for ratios in (self.of_label, self.of_others)
        )

    def _ratios(self, probability: float) -> np.ndarray:
        """Return the ratio to what chance gives, for a feature that is absent and one that is present."""
        by_chance = self.structure.by_chance
        return np.array([(1 - probability) / (1 - by_chance), probability / by_chance])


class Perfect(NamedTuple):
    """What a perfect model reaches on a sample of rows, in per cent."""

    precision: dict[str, float]  # by name, such as P@1
    expected: float  # P@1 by its own probabilities, which must agree with P@1
    of_seen: dict[str, float]  # if it may name only labels that the training rows have


def perfect(structure: Structure, X: sp.csr_matrix, Y: sp.csr_matrix, counts: np.ndarray) -> Perfect:
    """Return the precision of a perfect model on these rows; ``counts`` are the training rows of each label."""
    oracle = Oracle(structure)
    top = oracle.topk(X)
    seen = oracle.topk(X, allowed=counts > 0)
    return Perfect(_precision(top, Y), 100.0 * float(top.scores[:, 0].mean()), _precision(seen, Y))


def _precision(top: TopK, Y: sp.csr_matrix) -> dict[str, float]:
    found = evaluate(top, Y, ks=KS)
    return {name: float(found[name]) for name in (f"P@{k}" for k in KS)}
