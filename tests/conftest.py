"""Shared data: a small corpus whose structure is known."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.tree import LabelTree

N_TOPICS, LABELS_PER_TOPIC, WORDS_PER_LABEL, WORDS_PER_TOPIC = 6, 10, 3, 5


class Tiny(NamedTuple):
    """Texts about one topic each; a label belongs to one topic and has words of its own."""

    texts: list[str]
    X: sp.csr_matrix  # (texts, words), rows of length one
    Y: sp.csr_matrix  # (texts, labels)
    label_names: list[str]
    topic_of: np.ndarray  # topic of each label
    tree: LabelTree  # topics above labels


def make_tiny(n_texts: int = 200, seed: int = 0) -> Tiny:
    """Make the corpus: labels are scattered over topics, so that their numbers tell nothing."""
    rng = np.random.default_rng(seed)
    n_labels = N_TOPICS * LABELS_PER_TOPIC
    topic_of = rng.permutation(np.repeat(np.arange(N_TOPICS), LABELS_PER_TOPIC))
    words = [f"topic{t}word{w}" for t in range(N_TOPICS) for w in range(WORDS_PER_TOPIC)]
    words += [f"label{label}word{w}" for label in range(n_labels) for w in range(WORDS_PER_LABEL)]
    counts = np.zeros((n_texts, len(words)), np.float32)
    targets = np.zeros((n_texts, n_labels), np.float32)
    for i in range(n_texts):
        topic = i % N_TOPICS
        mine = rng.choice(np.flatnonzero(topic_of == topic), 1 + i % 3, replace=False)
        targets[i, mine] = 1
        first = N_TOPICS * WORDS_PER_TOPIC + mine[:, None] * WORDS_PER_LABEL + np.arange(WORDS_PER_LABEL)
        counts[i, first.ravel()] = 1
        counts[i, topic * WORDS_PER_TOPIC + rng.choice(WORDS_PER_TOPIC, 3, replace=False)] = 1
    texts = [" ".join(words[w] for w in np.flatnonzero(row)) for row in counts]
    X = counts / np.linalg.norm(counts, axis=1, keepdims=True)
    tree = LabelTree.from_groups([np.flatnonzero(topic_of == t).tolist() for t in range(N_TOPICS)])
    names = [f"label {label} of topic {topic}" for label, topic in enumerate(topic_of)]
    return Tiny(texts, sp.csr_matrix(X), sp.csr_matrix(targets), names, topic_of, tree)


@pytest.fixture(scope="session")
def tiny() -> Tiny:
    """200 texts, 60 labels in 6 topics."""
    return make_tiny()
