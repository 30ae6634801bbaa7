"""What only a GPU does: steps that are recorded and replayed end where plain ones do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from umpteen.models import create

from .conftest import KINDS, make_corpus

RECORDED = KINDS | {
    "filters": {"network.reader": "cnn", "training.head_learning_rate": 0.05},
    "windows": KINDS["tree"] | {"encoder.max_length": 8, "encoder.windows": 3},
}


# Levels that are trained one after the other, with the recipe and what differs from its preset.
IN_TURN = {
    "coarse to fine": ("xr-transformer", {}),
    "coarse to fine, selected nodes": ("xr-transformer", {"training.negatives": "tfn+man"}),
    "coarse to fine, labels in blocks": ("xr-transformer", {"network.max_nodes": 10, "training.init": "lda"}),
    "a reader per level": ("cascadexml", {"training.order": "own-reader", "network.levels": (3,)}),
    "a shared reader": ("cascadexml", {"training.order": "shared-reader", "network.levels": (3,)}),
}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", IN_TURN)
def test_levels_in_turn_end_where_plain_steps_do(kind: str, encoder_folder: Path) -> None:
    texts, lists, _ = make_corpus(300)
    recipe, own = IN_TURN[kind]
    usual = {
        "encoder.name": str(encoder_folder), "encoder.max_length": 16, "encoder.compile": "off",
        "encoder.precision": "float32", "training.epochs": 4.0, "training.batch_size": 16, "network.dropout": (0.0,),
        "training.learning_rate": 1e-4, "training.length_warmup": 0.5, "training.warmup_length": 6,
    }  # fmt: skip
    if recipe == "xr-transformer":  # the classifiers have a say, whatever they gain
        usual |= {"network.branching": 4, "fusion": (1.0, 1.0, 0.0)}

    def scores(record: bool) -> np.ndarray:
        return create(recipe, usual | own | {"training.cuda_graphs": record}).fit(texts, lists).decision_function(texts)

    plain = scores(record=False)
    np.testing.assert_allclose(scores(record=True), plain, atol=0.05)  # short weights are rounded at random
    assert np.ptp(plain) > 0.05  # it has learned something to compare


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", RECORDED)
def test_recorded_steps_end_where_plain_ones_do(kind: str, encoder_folder: Path) -> None:
    texts, lists, _ = make_corpus(160)
    usual = {
        "encoder.name": str(encoder_folder), "encoder.max_length": 16, "encoder.device": "cuda",
        "encoder.compile": "off",
        "encoder.precision": "float32", "training.epochs": 4.0, "training.batch_size": 16, "network.dropout": (0.0,),
        "network.pooling": "mean", "training.learning_rate": 1e-4,
    }  # fmt: skip

    def scores(record: bool) -> np.ndarray:
        model = create("cascadexml", usual | RECORDED[kind] | {"training.cuda_graphs": record}).fit(texts, lists)
        return model.decision_function(texts)

    plain = scores(record=False)
    np.testing.assert_allclose(scores(record=True), plain, atol=0.05)  # short weights are rounded at random
    assert np.ptp(plain) > 0.05  # it has learned something to compare
