"""Texts whose labels a word gives away, and the tiny encoder in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

pytest.importorskip("torch")
pytest.importorskip("transformers")

from umpteen.config import EncoderConfig, NeuralConfig, update
from umpteen.neural.encoder import Encoder

N_TOPICS, PER_TOPIC = 4, 5
N_LABELS = N_TOPICS * PER_TOPIC


# Networks that learn labels in ways of their own: without an optimiser, by the rows a batch touches, and with one.
KINDS = {
    "full": {"network.head": "full", "training.full_head_learning_rate": 2.0},
    "tables": {
        "network.levels": (3,),
        "network.sparse_update_from": 1,
        "network.beam": (3,),
        "training.head_learning_rate": 0.05,
    },
    "tree": {"network.levels": (3,), "network.beam": (3,), "training.head_learning_rate": 0.05},
}


def neural(settings: dict[str, Any] | None = None) -> NeuralConfig:
    """Return the default settings with some changed, under their dotted names."""
    return update(NeuralConfig(), settings or {})


def tiny(folder: Path) -> dict[str, Any]:
    """Return the settings with which a recipe reads with the tiny encoder."""
    return {"encoder.name": str(folder), "encoder.max_length": 16, "encoder.device": "cpu", "threads": 1}


def make_corpus(n: int = 160, seed: int = 0) -> tuple[list[str], list[list[str]], sp.csr_matrix]:
    """Write texts of one to three labels: a word of the label, a word of its topic, and noise."""
    rng = np.random.default_rng(seed)
    texts, lists = [], []
    for row in range(n):
        topic = rng.integers(N_TOPICS)
        some = topic * PER_TOPIC + rng.choice(PER_TOPIC, rng.integers(1, 4), replace=False)
        chosen = [row % N_LABELS] if row < N_LABELS else sorted(int(label) for label in some)
        words = [f"word{label}" for label in chosen] + [f"topic{label // PER_TOPIC}" for label in chosen]
        words += [f"noise{number}" for number in rng.integers(0, 30, rng.integers(1, 8))]
        rng.shuffle(words)
        texts.append(" ".join(words))
        lists.append([f"label {label:02}" for label in chosen])
    Y = sp.lil_matrix((n, N_LABELS), dtype=np.float32)
    for row, labels in enumerate(lists):
        for label in labels:
            Y[row, int(label.split()[1])] = 1.0
    return texts, lists, Y.tocsr()


@pytest.fixture(scope="session")
def corpus() -> tuple[list[str], list[list[str]], sp.csr_matrix]:
    """The training data: texts, label lists, matrix."""
    return make_corpus()


@pytest.fixture
def encoder(encoder_folder: Path) -> Encoder:
    """A fresh copy of the tiny encoder on the CPU."""
    return Encoder.load(EncoderConfig(name=str(encoder_folder), max_length=16, device="cpu"))
