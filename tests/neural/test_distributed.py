"""Training by several processes: the same losses and models as by one, resumed by any number, and never a hang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import umpteen
from umpteen.engine.ranks import Place, given_place, present
from umpteen.errors import BadConfig
from umpteen.neural.distributed import joined

from .conftest import make_corpus
from .ranks import DIVIDED, KINDS_BY_RANKS, LONGER

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
SEVERAL = [(kind, n_ranks) for n_ranks, kinds in KINDS_BY_RANKS.items() if n_ranks > 1 for kind in kinds]


@pytest.fixture(scope="module")
def trained(encoder_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Let ranks train all kinds of models; return the folder of what they have found."""
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-m", "tests.neural.ranks", str(encoder_folder), str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return folder


def found(folder: Path, kind: str, n_ranks: int) -> dict[str, Any]:
    return json.loads((folder / f"{kind}, {n_ranks}.json").read_text())


def codes(folder: Path, plan: str) -> list[int | None]:
    return json.loads((folder / "codes.json").read_text())[plan]


@pytest.mark.parametrize(("kind", "n_ranks"), SEVERAL)
def test_losses_and_scores_are_those_of_one_process(trained: Path, kind: str, n_ranks: int) -> None:
    one, several = (found(trained / "kinds", kind, n) for n in (1, n_ranks))
    assert [loss[:2] for loss in several["losses"]] == [loss[:2] for loss in one["losses"]]
    np.testing.assert_allclose([loss[2] for loss in several["losses"]], [loss[2] for loss in one["losses"]], rtol=1e-4)
    np.testing.assert_allclose(several["scores"], one["scores"], atol=1e-2)  # Adam magnifies how gradients are rounded
    assert np.std(one["scores"]) > 0.02  # or anything would be close


@pytest.mark.parametrize(("kind", "n_ranks"), SEVERAL)
def test_heads_that_score_all_nodes_are_divided(trained: Path, kind: str, n_ranks: int) -> None:
    (whole,), sizes = (found(trained / "kinds", kind, n)["sizes"] for n in (1, n_ranks))
    assert sizes == [whole // n_ranks if kind in DIVIDED else whole] * n_ranks


@pytest.mark.parametrize("n_ranks", [1, 4])
def test_another_number_of_ranks_goes_on_from_a_checkpoint(trained: Path, n_ranks: int) -> None:
    assert codes(trained, "resumed")[:2] == [-9, 1]  # it was stopped
    assert set(codes(trained, "resumed")[2:]) == {0}
    again = found(trained / "resumed", "full", n_ranks)
    whole = found(trained / "kinds", "full", 1)
    np.testing.assert_allclose(again["scores"], whole["scores"], atol=1e-4)
    np.testing.assert_allclose([loss[2] for loss in again["losses"]], [loss[2] for loss in whole["losses"]], rtol=1e-4)


def test_when_a_rank_is_killed_the_other_fails_and_the_training_can_be_resumed(trained: Path) -> None:
    first, second, third, whole = np.array_split(codes(trained, "killed"), 4)
    assert first.tolist() == [1, -9]
    assert second.tolist() == [-9, 1]
    assert third.tolist() == whole.tolist() == [0, 0]
    assert found(trained / "killed", LONGER, 2)["scores"] == found(trained / "whole", LONGER, 2)["scores"]


def torchrun(*arguments: str, n_ranks: int = 2) -> subprocess.CompletedProcess[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n_ranks)]
    command = [*launcher, "-m", "--", "umpteen", *arguments]
    return subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=200)


def test_the_command_trains_under_torchrun(encoder_folder: Path, tmp_path: Path) -> None:
    texts, lists, _ = make_corpus(60)
    rows = [{"text": text, "labels": labels} for text, labels in zip(texts, lists, strict=True)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = ["--set", "encoder.max_length=16", "--set", "training.epochs=2", "--device", "cpu"]
    log = tmp_path / "log.jsonl"  # --log is also the beginning of options of torchrun
    places = ["-o", str(tmp_path / "model"), "--checkpoint", str(tmp_path / "stages"), "--log", f"jsonl:{log}"]
    done = torchrun("train", str(tmp_path), *places, "--recipe", "full", "--encoder", str(encoder_folder), *settings)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Trained in") == 1  # rank 0 alone prints
    assert done.stderr.count("training the network") == 1
    assert not (tmp_path / "stages").exists()
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(records) == len({(record["stage"], record["step"]) for record in records}) > 0
    assert umpteen.load(tmp_path / "model").topk(texts[:3], 2).labels.shape == (3, 2)


def test_a_linear_recipe_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from umpteen.cli.app import app

    for name, value in PLACE.items():
        monkeypatch.setenv(name, value)
    done = CliRunner().invoke(app, ["train", "demo", "-o", str(tmp_path / "model")])
    assert done.exit_code == 2
    assert "xr-linear has no network, so torchrun cannot divide its training" in done.output


PLACE = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


def test_a_rank_without_a_gpu_of_its_own_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (PLACE | {"RANK": "1", "LOCAL_RANK": "1"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with pytest.raises(BadConfig, match=r"process 2 of its machine, but torch finds 1 GPU"), joined():
        pass


def test_the_place_of_a_process_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PLACE:
        monkeypatch.delenv(name, raising=False)
    assert given_place() is None
    assert present() == Place(0, 1, 0)
    for name, value in (PLACE | {"RANK": "1", "LOCAL_RANK": "1"}).items():
        monkeypatch.setenv(name, value)
    assert given_place() == Place(1, 2, 1)
    monkeypatch.setenv("RANK", "2")
    with pytest.raises(BadConfig, match="RANK is 2 and WORLD_SIZE is 2"):
        given_place()
    monkeypatch.setenv("RANK", "one")
    with pytest.raises(BadConfig, match="RANK must be a number, but is 'one'"):
        given_place()
