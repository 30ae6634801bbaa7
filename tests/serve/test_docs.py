"""The pages on serving say what there is: settings, commands, images and the unit of systemd."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.serve.conftest import ROOT
from umpteen.cli.app import app
from umpteen.config.serving import ServeConfig

PAGE = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")


def commands(page: str) -> list[str]:
    """Return the commands of a page that can be run as they stand."""
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]


def test_the_page_lists_every_setting() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \| (.*) \|$", PAGE, re.MULTILINE)
    listed = [
        (name, default, text) for name, default, text in rows if name in {spec.name for spec in fields(ServeConfig)}
    ]
    assert listed == [(spec.name, str(spec.default), spec.metadata["doc"]) for spec in fields(ServeConfig)]


def test_the_commands_of_the_page_run(server: Callable[..., Any], folder: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    curls = [line for line in commands(PAGE) if line.startswith("curl")]
    assert len(curls) >= 4
    running = server(folder)
    running.wait_until_ready()
    for line in curls:
        words = shlex.split(line.replace("http://127.0.0.1:8000", running.url))
        done = subprocess.run([*words, "--fail"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (line, done.stderr)
        assert '"error"' not in done.stdout


def test_options_of_the_command_are_on_the_page() -> None:
    shown = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).output
    manual = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    section = manual.partition("\n## serve\n")[2].partition("\n## ")[0]
    options = set(re.findall(r"--[a-z][a-z-]+", shown)) - {"--help", "--quiet"}
    assert options
    assert options == set(re.findall(r"--[a-z][a-z-]+", section))


def test_the_unit_starts_the_command_as_it_is() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[method-assign, assignment]
    unit.read(ROOT / "deploy" / "umpteen.service")
    words = shlex.split(unit["Service"]["ExecStart"])
    assert words[:2] == ["/opt/umpteen/bin/umpteen", "serve"]
    shown = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).output
    assert all(word in shown for word in words if word.startswith("--"))
    assert float(unit["Service"]["TimeoutStopSec"]) > ServeConfig().drain_timeout + 5


def test_the_page_on_containers_shows_the_image_for_encoders() -> None:
    text = (ROOT / "docker" / "Dockerfile.encoder").read_text(encoding="utf-8")
    assert f"```dockerfile\n{text}```" in (ROOT / "docs" / "containers.md").read_text(encoding="utf-8")
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE)
    assert all((ROOT / source).exists() for line in copied for source in line.split())
