"""Encoders and networks that are loaded when they are first asked for."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import umpteen
from umpteen.neural.encoder import Encoder
from umpteen.neural.network import Network
from umpteen.store import Run

from .conftest import make_corpus


def quick(encoder_folder: Path) -> umpteen.FullHead:
    encoder = {"name": str(encoder_folder), "max_length": 16, "device": "cpu"}
    return umpteen.FullHead(encoder=encoder, training={"epochs": 1.0, "batch_size": 16}, threads=1)


def test_threads_wait_until_a_network_is_loaded(
    encoder_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, lists, _ = make_corpus(48)
    model = quick(encoder_folder).fit(texts, lists)
    expected = model.topk(texts, 3).scores
    model.save(tmp_path / "model")
    loaded = umpteen.load(tmp_path / "model")
    load, n_loads = Network.load, []

    def slow(network: Network, arrays: Any) -> None:
        n_loads.append(network)
        time.sleep(0.2)
        load(network, arrays)

    monkeypatch.setattr(Network, "load", slow)
    found: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda: found.append(loaded.topk(texts, 3).scores)) for _ in range(3)]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    for thread in threads:
        thread.join()
    assert len(n_loads) == 1
    for scores in found:
        np.testing.assert_allclose(scores, expected, atol=1e-4)


@pytest.mark.parametrize("recipe", [umpteen.FullHead, umpteen.LightXML])
def test_the_first_labels_do_not_depend_on_how_many_are_asked_for(recipe: Any, encoder_folder: Path) -> None:
    texts, lists, _ = make_corpus(48)
    twins = [[*labels, *(f"also {label}" for label in labels)] for labels in lists]  # they learn the same, and tie
    encoder = {"name": str(encoder_folder), "max_length": 16, "device": "cpu"}
    model = recipe(encoder=encoder, training={"epochs": 1.0, "batch_size": 16, "init": "lda"}, threads=1)
    many = model.fit(texts, twins).topk(texts, 12)
    for k in (1, 2, 5):
        np.testing.assert_array_equal(model.topk(texts, k).labels, many.labels[:, :k])
    assert (np.diff(many.scores, axis=1) == 0).any()


def test_texts_that_are_all_empty_are_refused(encoder_folder: Path) -> None:
    with pytest.raises(umpteen.errors.BadInput, match="all texts are empty"):
        quick(encoder_folder).fit(["", " "], [["a"], ["b"]])


def test_another_encoder_under_the_same_name_begins_anew(encoder_folder: Path, tmp_path: Path) -> None:
    texts, *_ = make_corpus(48)
    folder = tmp_path / "encoder"
    shutil.copytree(encoder_folder, folder)
    model, keys = quick(folder), []
    for scale in (1.0, 1.5):
        encoder = Encoder.load(model.config.encoder)
        with torch.no_grad():
            encoder.model.get_input_embeddings().weight.mul_(scale)
        tokens = encoder.tokenize(texts)
        keys.append(model._stages(Run(tmp_path / "kept"), encoder, tokens).key)
        again = model._stages(Run(tmp_path / "kept"), encoder, tokens).key
        assert again == keys[-1]
    assert keys[0] != keys[1]
