"""Learning curves: what records hold, and that an interruption leaves neither gaps nor duplicates."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from umpteen.engine import Record
from umpteen.errors import BadConfig
from umpteen.models import create
from umpteen.models.network import NetModel
from umpteen.neural.curve import Curve
from umpteen.neural.loop import Group, optimise

from .conftest import make_corpus, tiny

STEPS = 6  # of an epoch: 96 of 120 texts are trained on, 16 at a time
LEARN = {"training.epochs": 3.0, "training.batch_size": 16, "training.validation_fraction": 0.2, "training.patience": 9}
RECIPES: dict[str, dict[str, Any]] = {
    "lightxml": {"network.levels": 4, "training.swa_start": 0.5},
    "attentionxml": {"network.levels": (4,), "network.hidden": 8},
    "xr-transformer": {"training.learning_rate": 1e-3, "tree.kind": "halving", "network.branching": 4},
}


def settings(recipe: str, folder: Path) -> dict[str, Any]:
    return tiny(folder) | LEARN | RECIPES[recipe]


def timeless(records: list[Record]) -> list[Record]:
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


@pytest.fixture(autouse=True)
def _hold_out_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("umpteen.neural.trainer._FEWEST_TO_SPLIT", 20)
    monkeypatch.setattr("umpteen.neural.loop._LOOK_EVERY", 4)  # not in step with the epochs


def stop_at(wanted: int) -> Callable[[str, int, int], None]:
    """Return a progress callback that interrupts the last stage of training at a step."""
    seen: set[str] = set()

    def progress(stage: str, done: int, total: int) -> None:
        if stage.startswith(("training", "fine-tuning")):
            seen.add(stage)
            is_last = len(seen) == 2 or stage == "training the network"
            if is_last and done == wanted:
                raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("step", [2 * STEPS - 2, 2 * STEPS + 1], ids=["within an epoch", "after an epoch"])
def test_a_resumed_training_has_the_history_of_an_uninterrupted_one(
    recipe: str, step: int, encoder_folder: Path, tmp_path: Path
) -> None:
    texts, lists, _ = make_corpus(120)
    expected = create(recipe, settings(recipe, encoder_folder)).fit(texts, lists, checkpoint=tmp_path / "whole")
    model, seen = create(recipe, settings(recipe, encoder_folder)), []
    with pytest.raises(KeyboardInterrupt):
        model.fit(texts, lists, checkpoint=tmp_path / "stages", progress=stop_at(step))
    model.fit(texts, lists, checkpoint=tmp_path / "stages", callbacks=[seen.append])
    assert timeless(model.history_) == timeless(expected.history_)
    assert seen == model.history_
    for stage in {record["stage"] for record in seen}:
        seconds = [record["seconds"] for record in seen if record["stage"] == stage]
        assert seconds == sorted(seconds)


@pytest.mark.parametrize("recipe", ["lightxml", "extremetext"])
def test_networks_are_measured_on_the_texts_that_calibrate_them(
    recipe: str, encoder_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, lists, _ = make_corpus(600)
    given = {"training.epochs": 3.0, "training.batch_size": 100, "training.swa_start": 1.0, "threads": 1}
    given |= {} if recipe == "extremetext" else tiny(encoder_folder) | {"network.levels": 4}
    model = create(recipe, given).fit(texts, lists)
    measured = [record for record in model.history_ if "P@1" in record]
    assert [record["epoch"] for record in measured] == [1.0, 2.0, 3.0]
    monkeypatch.setattr(NetModel, "_watched", lambda *args: None)
    unmeasured = create(recipe, given).fit(texts, lists)
    assert not any("P@1" in record for record in unmeasured.history_)
    for name, array in model.neural_.net.arrays.items():  # nothing was chosen
        np.testing.assert_array_equal(unmeasured.neural_.net.arrays[name], array)


def test_records_have_loss_rate_and_held_out_precisions(encoder_folder: Path, tmp_path: Path) -> None:
    texts, lists, _ = make_corpus(120)
    given = settings("lightxml", encoder_folder) | {"training.swa_start": 1.0}
    history = create("lightxml", given).fit(texts, lists).history_
    assert [record["step"] for record in history] == [4, 6, 8, 12, 16, 18]
    assert {record["stage"] for record in history} == {"training the network"}
    for record in history:
        assert record["epoch"] == pytest.approx(record["step"] / STEPS, abs=1e-4)
        assert record["loss"] > 0
        assert 0 < record["lr"] <= given.get("training.learning_rate", 1.0)
        is_end = record["step"] % STEPS == 0
        assert ("P@1" in record, "P@3" in record, "P@5" in record) == (is_end,) * 3
    assert all(0 <= record["P@5"] <= 100 for record in history if "P@5" in record)


def test_averaged_weights_are_measured_at_the_end(encoder_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("umpteen.neural.trainer._AVERAGE_EVERY", 2)
    texts, lists, _ = make_corpus(120)
    history = create("lightxml", settings("lightxml", encoder_folder)).fit(texts, lists).history_
    assert [record.get("weights") for record in history] == [None] * (len(history) - 1) + ["averaged"]
    assert "loss" not in history[-1]
    assert "P@1" in history[-1]


def test_the_loss_of_a_record_is_the_mean_since_the_last() -> None:
    curve = Curve("training", per_epoch=4)
    for step, loss in enumerate([1.0, 2.0, 6.0], start=1):
        curve.add(torch.tensor(loss), lr=0.1 * step)
        if step == 2:
            curve.look(step)
            curve.write()
    curve.write()  # nothing was looked at
    curve.look(3)
    curve.measure(3, {"P@1": 50.0})
    curve.write()
    assert timeless(curve.records) == [
        {"stage": "training", "step": 2, "epoch": 0.5, "loss": 1.5, "lr": 0.2},
        {"stage": "training", "step": 3, "epoch": 0.75, "loss": 6.0, "lr": 0.3, "P@1": 50.0},
    ]


def test_losses_that_were_not_reported_are_kept_with_the_state() -> None:
    first, second, seen = Curve(), Curve(), []
    second.record = seen.append
    first.add(torch.tensor(5.0), 0.1)
    first.look(1)
    first.write()
    first.add(torch.tensor(1.0, dtype=torch.bfloat16), 0.1)
    second.load_state(first.state())
    second.add(torch.tensor(2.0), 0.1)
    second.look(3)
    second.write()
    assert [record["loss"] for record in seen] == [5.0, 1.5]


def test_the_loop_looks_at_the_loss_now_and_then() -> None:
    weight, looks = torch.nn.Parameter(torch.ones(2)), []
    curve = Curve()
    curve.look = looks.append  # type: ignore[method-assign]

    def backward(batch: int) -> torch.Tensor:
        loss = weight.square().sum()
        loss.backward()
        return loss.detach()

    optimise([Group([weight], 0.1)], range(10), backward, n_steps=10, lr=lambda step: 1.0, curve=curve)
    assert looks == [4, 8, 10]


def test_a_loss_that_is_not_a_number_ends_the_training() -> None:
    curve = Curve()
    curve.add(torch.tensor(float("nan")), 0.1)
    with pytest.raises(BadConfig, match="no longer a number"):
        curve.look(1)


def test_a_ranker_in_the_background_is_recorded_by_the_thread_that_called_fit(
    encoder_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("umpteen.models.xrtransformer._has_own_processor", lambda encoder: True)
    texts, lists, _ = make_corpus(120)
    seen: list[tuple[int, Record]] = []
    model = create("xr-transformer", settings("xr-transformer", encoder_folder) | {"features": "tfidf"})
    model.fit(texts, lists, callbacks=[lambda record: seen.append((threading.get_ident(), record))])
    assert {thread for thread, _ in seen} == {threading.get_ident()}
    assert [record for _, record in seen] == model.history_
    assert "nodes" in model.history_[-1]
    assert sum("nodes" in record for record in model.history_) == 1  # not the ranker that decides on the weights
