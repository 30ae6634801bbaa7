"""``umpteen explain``: tables, JSON and HTML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from umpteen import DiSMEC, Ensemble, XRLinear
from umpteen.cli import app

TEXTS = ["red apple", "green pear", "red cherry", "blue sky"]
LABELS = [["red"], ["green"], ["red"], ["<b>blue</b>"]]


def run(*args: Any) -> Any:
    return CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "colours"
    XRLinear(threads=1).fit(TEXTS, LABELS).save(path)
    return path


def test_tables(model: Path) -> None:
    done = run("explain", model, "--text", "a red plum")
    assert done.exit_code == 0
    assert done.stdout.startswith("red (xr-linear): score ")
    assert "suggested at place 1" in done.stdout
    for title in ("Suggested", "Words (margins)", "Parts of the score", "Path: the tree"):
        assert title in done.stdout


def test_json(model: Path) -> None:
    done = run("explain", model, "--text", "a red plum", "--label", "green", "-k", 1, "--json")
    found = json.loads(done.stdout)
    assert (found["label"], found["k"], found["is_suggested"]) == ("green", 1, False)
    assert found["suggestions"][0]["label"] == "red"
    step = found["paths"][0]["steps"][-1]
    assert step["bias"] + sum(one["contribution"] for one in step["contributions"]) == pytest.approx(step["margin"])


def test_html(model: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = run("explain", model, "--text", "a <i>red</i> \ud800 plum", "--label", "<b>blue</b>", "--html", page)
    assert done.exit_code == 0
    assert str(page) in done.stderr
    text = page.read_text(encoding="utf-8")
    assert "&lt;b&gt;blue&lt;/b&gt;" in text
    assert "<i>" not in text
    assert "<b>" not in text


def test_control_characters_do_not_reach_the_terminal(model: Path) -> None:
    done = run("explain", model, "--text", "red \x1b[2Jred\x1b[0m")
    assert "\x1b[2J" not in done.stdout


def test_an_ensemble(tmp_path: Path) -> None:
    Ensemble([XRLinear(threads=1), DiSMEC(threads=1)]).fit(TEXTS, LABELS).save(tmp_path / "m")
    done = run("explain", tmp_path / "m", "--text", "a red plum")
    assert done.exit_code == 0
    assert "Model 1: red (xr-linear)" in done.stdout
    assert "Model 2: red (dismec)" in done.stdout


def test_misuse(model: Path, tmp_path: Path) -> None:
    done = run("explain", model, "--text", "a red plum", "--label", "gren")
    assert done.exit_code == 2
    assert "did you mean 'green'?" in done.stderr
    XRLinear(threads=1).fit(sp.csr_matrix([[1.0, 0.0], [0.0, 1.0]]), [[0], [1]]).save(tmp_path / "rows")
    done = run("explain", tmp_path / "rows", "--text", "red")
    assert done.exit_code == 2
    assert "trained on feature rows" in done.stderr
