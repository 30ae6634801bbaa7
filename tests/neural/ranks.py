"""What the ranks of tests run: train small models of several kinds, and write what rank 0 has found.

Started by torchrun, with a tiny encoder without dropout and the folder for the results.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.neural.conftest import make_corpus
from umpteen.models import create
from umpteen.neural.distributed import joined, ranks
from umpteen.neural.training_state import TrainingState

SHORT = {
    "training.epochs": 2.0,
    "training.batch_size": 14,  # the last batch of an epoch has 3 texts: one of 4 ranks has none
    "training.learning_rate": 1e-3,
    "training.validation_fraction": 0.1,
    "network.dropout": 0.0,
}
NETWORK = SHORT | {"network.pooling": "mean", "training.swa_start": 0.5}
TREE = NETWORK | {"network.levels": (3,), "network.beam": (3,), "training.head_learning_rate": 0.05}
RECURSIVE = SHORT | {"network.branching": 4, "features": "both", "head_weight": 0.5}

# Recipe and settings of every kind of head and reader.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "full": ("full", NETWORK),
    "full, cut": ("full", NETWORK | {"encoder.batch_tokens": 64}),
    "one level": ("cascadexml", NETWORK | {"network.few_labels": 100, "training.head_learning_rate": 0.05}),
    "tree": ("cascadexml", TREE),
    "tables, cut": ("lightxml", TREE | {"network.sparse_update_from": 1, "encoder.batch_tokens": 64}),
    "ranker": ("cascadexml-dismec", TREE),
    "levels in turn": ("cascadexml", TREE | {"training.order": "shared-reader"}),
    "fine-tuning": ("xr-transformer", RECURSIVE | {"training.negatives": "tfn+man", "training.init": "newton"}),
    "fine-tuning, full": ("xr-transformer", RECURSIVE | {"network.head": "full"}),
    "features": ("extremetext", {"training.epochs": 3.0, "network.branching": 4, "training.validation_fraction": 0.1}),
}


SIZES: list[int] = []


def note_sizes() -> None:
    """Note how many numbers the last head of this rank has when it is trained: weights and optimiser state."""
    save = TrainingState.save

    def noted(self: TrainingState, step: int, optimiser: torch.optim.Optimizer) -> None:
        heads = getattr(self.net, "heads", None)
        head = self.net.head if heads is None else heads[-1]
        tensors = [head.weight, head.bias]
        tensors += [moment for one in tensors for moment in optimiser.state.get(one, {}).values() if moment.ndim]
        SIZES[:] = [sum(tensor.numel() for tensor in tensors)]
        save(self, step, optimiser)

    TrainingState.save = noted


def train(kind: str, encoder: str, checkpoint: Path | None = None) -> dict[str, Any]:
    """Train a model of a kind; return its history and scores."""
    texts, lists, _ = make_corpus(290)
    recipe, settings = KINDS[kind]
    reads = {} if recipe == "extremetext" else {"encoder.name": encoder, "encoder.max_length": 16}
    common = {"encoder.device": "cpu", "threads": 1, "calibration.rows": 0}
    model = create(recipe, settings | reads | common)
    model.fit(texts, lists, checkpoint=checkpoint)
    found = {"sizes": ranks().objects(SIZES[0])}
    if not ranks().is_main:
        return found
    unseen = make_corpus(40, seed=9)[0]
    scores = model.score_labels(unseen, np.ones((len(unseen), 20), np.float32)).toarray()
    losses = [[one["stage"], one["step"], one["loss"]] for one in model.history_ if "loss" in one]
    return found | {"losses": losses, "scores": scores.tolist()}


def main(encoder: str, output: str, *kinds: str) -> None:
    """Train models of some kinds one after the other."""
    note_sizes()
    with joined() as all_ranks:
        for kind in kinds:
            found = train(kind, encoder)
            if all_ranks.is_main:
                (Path(output) / f"{kind}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
