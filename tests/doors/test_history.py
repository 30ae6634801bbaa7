"""``umpteen history`` and ``umpteen train --log``: tables, plots and logs of a training."""

from __future__ import annotations

import io
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

import umpteen
from umpteen import XRLinear
from umpteen.cli import app
from umpteen.cli.history import summarise
from umpteen.cli.logs import TensorBoard, parse_logs
from umpteen.cli.terminal import Terminal, figures_of
from umpteen.errors import BadConfig, BadInput, MissingExtra
from umpteen.models.history_plot import plot_history

STAGE = "training the network"
RECORDS: list[dict[str, Any]] = [
    {"stage": "a $_{", "step": 50, "epoch": 0.5, "loss": 3.0, "lr": 1e-4, "seconds": 1.0},
    {"stage": "a $_{", "step": 60, "epoch": 0.6, "loss": 9.0, "lr": 1e-4, "seconds": 1.5},
    {"stage": STAGE, "step": 50, "epoch": 0.5, "loss": 2.0, "lr": 2e-5, "seconds": 2.0},
    {"stage": STAGE, "step": 100, "epoch": 1.0, "loss": 1.0, "lr": 1e-5, "seconds": 4.0, "P@1": 70.0, "P@5": 41.5},
    {"stage": STAGE, "step": 100, "epoch": 1.0, "weights": "averaged", "P@1": 72.0, "P@5": 42.5, "seconds": 5.0},
    {"stage": "level 1 of 1", "nodes": 2, "seconds": 0.1},
]  # fmt: skip


def run(*args: Any) -> Any:
    return CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with the history above."""
    folder = tmp_path_factory.mktemp("history") / "m"
    model = XRLinear(threads=1).fit(["red apple", "green pear"], [["red"], ["green"]])
    model.history_ = RECORDS
    model.save(folder)
    return folder


def test_the_table_has_a_row_per_stage_and_epoch(saved: Path) -> None:
    assert summarise(RECORDS) == [
        {**RECORDS[1], "loss": 4.0},  # fifty steps with 3, ten with 9
        {**RECORDS[3], "loss": 1.5},
        RECORDS[4],
        RECORDS[5],
    ]
    done = run("history", saved)
    assert done.exit_code == 0
    assert "averaged" in done.stdout
    assert "1e-05" in done.stdout


def test_json_has_all_records(saved: Path) -> None:
    assert json.loads(run("history", saved, "--json").stdout) == RECORDS


def test_a_model_without_history_is_told(tmp_path: Path) -> None:
    model = XRLinear(threads=1).fit(["red apple", "green pear"], [["red"], ["green"]])
    model.history_ = []
    model.save(tmp_path / "m")
    done = run("history", tmp_path / "m")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "without a history" in done.stderr
    assert json.loads(run("history", tmp_path / "m", "--json").stdout) == []


def test_values_of_other_kinds_are_shown_as_they_are(tmp_path: Path) -> None:
    model = XRLinear(threads=1).fit(["red apple", "green pear"], [["red"], ["green"]])
    model.history_ = [{"stage": None, "step": "many", "epoch": "x", "loss": True}, {}, {"step": 10**400}]
    model.save(tmp_path / "m")
    assert run("history", tmp_path / "m").exit_code == 0


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_plot_is_written(saved: Path, tmp_path: Path, ending: str) -> None:
    pytest.importorskip("matplotlib")
    assert run("history", saved, "--plot", tmp_path / f"curve.{ending}").exit_code == 0
    content = (tmp_path / f"curve.{ending}").read_bytes()
    assert content.startswith(b"\x89PNG" if ending == "png" else b"<?xml")
    plot_history(RECORDS[-1:], tmp_path / f"bars.{ending}")  # without steps
    assert (tmp_path / f"bars.{ending}").stat().st_size


def test_a_plot_has_a_known_ending(saved: Path, tmp_path: Path) -> None:
    done = run("history", saved, "--plot", tmp_path / "curve.doc")
    assert done.exit_code == 2
    assert ".png" in done.stderr


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    with pytest.raises(MissingExtra, match=r"umpteen\[plot\]"):
        plot_history(RECORDS, tmp_path / "curve.png")
    with pytest.raises(MissingExtra, match=r"umpteen\[tensorboard\]"):
        parse_logs([f"tensorboard:{tmp_path}"])


def test_training_writes_the_records_it_keeps(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    for recipe in ("xr-linear", "plt*2"):  # the second replaces the log of the first
        given = ("train", "demo", "-o", tmp_path / recipe[:3], "--recipe", recipe, "--rows", 200, "--threads", 1)
        done = run(*given, "--log", f"jsonl:{log}")
        assert done.exit_code == 0, done.stderr
        written = [json.loads(line) for line in log.read_text().splitlines()]
        assert written == umpteen.load(tmp_path / recipe[:3]).history_


def test_a_file_that_is_no_log_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text('{"text": "mine"}\n')
    for path in (tmp_path / "data.jsonl", tmp_path, tmp_path / "nowhere" / "log.jsonl"):
        with pytest.raises(BadInput):
            parse_logs([f"jsonl:{path}"])
    done = run("train", "demo", "-o", tmp_path / "m", "--rows", 50, "--log", f"jsonl:{tmp_path / 'data.jsonl'}")
    assert done.exit_code == 2
    assert (tmp_path / "data.jsonl").read_text() == '{"text": "mine"}\n'


@pytest.mark.parametrize("spec", ["jsonl:log.jsonl", "tensorboard:new/runs"])
def test_a_log_that_cannot_be_written_is_refused_before_training(
    spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.access", lambda path, mode: False)  # permissions do not stop root
    with pytest.raises(BadInput, match="no permission to write"):
        parse_logs([spec])


@pytest.mark.parametrize("spec", ["jsonl", "jsonl:", "tensorbord:x", ":x"])
def test_a_log_of_unknown_kind_is_refused(spec: str) -> None:
    with pytest.raises(BadConfig, match="jsonl:FILE or tensorboard:DIR"):
        parse_logs([spec])


def test_tensorboard_can_read_its_log(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = TensorBoard(tmp_path / "logs")
    for record in RECORDS:
        log(record)
    log.close()
    events = EventAccumulator(str(tmp_path / "logs"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars(f"{STAGE}/loss")] == [(50, 2.0), (100, 1.0)]
    assert [event.value for event in events.Scalars(f"{STAGE} (averaged weights)/P@1")] == [72.0]
    assert [event.value for event in events.Scalars("level 1 of 1/nodes")] == [2.0]


def test_tensorboard_reads_every_step_once_after_a_training_has_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    clock = itertools.count(1_800_000_000)  # files are read in the order of the seconds in their names
    monkeypatch.setattr("time.time", lambda: float(next(clock)))
    other = {"stage": "another training", "step": 200, "loss": 7.0, "seconds": 1.0}
    for records in ([other, *RECORDS[:3]], RECORDS):  # the second run has what the first one wrote before it was killed
        log = TensorBoard(tmp_path)
        for record in records:
            log(record)
        log.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars(f"{STAGE}/loss")] == [(50, 2.0), (100, 1.0)]
    assert [event.step for event in events.Scalars("a $_{/loss")] == [50, 60]
    assert not events.Scalars("another training/loss")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_shows_loss_and_precision(is_terminal: bool) -> None:
    terminal, shown = Terminal(), io.StringIO()
    terminal.err = Console(file=shown, force_terminal=is_terminal, width=200, legacy_windows=False)
    with terminal.progress() as progress:
        (figures,) = figures_of(progress)
        progress(f"model 2: {STAGE}", 0, 2)
        figures({"model": 2, "stage": STAGE, "step": 1, "loss": 0.25, "P@5": 41.5, "seconds": 1.0})
        figures({"model": 2, "stage": STAGE, "step": 2, "loss": 0.125, "seconds": 1.0})
        progress(f"model 2: {STAGE}", 2, 2)
        figures({"model": 1, "stage": STAGE, "step": 2, "loss": 9.5, "seconds": 1.0})  # no bar shows this stage
    assert "loss 0.125, P@5 41.5" in shown.getvalue()
    assert "9.5" not in shown.getvalue()


def test_a_quiet_command_shows_no_figures() -> None:
    with Terminal(quiet=True).progress() as progress:
        assert figures_of(progress) == []
