"""The command: names of models, keys, and what it refuses before anything is served."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from umpteen.cli.app import app
from umpteen.cli.serving import api_key, named_models
from umpteen.errors import BadInput


def test_names_of_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a=b").mkdir()
    found = named_models(["x/tags", "y/tags", "best=y/tags", "a=b", ".", "odd name/"])
    wanted = ["tags", "tags-2", "best", "a-b", tmp_path.name, "odd-name"]
    assert list(found) == wanted
    assert found["best"] == "y/tags"
    assert found["a-b"] == "a=b"


@pytest.mark.parametrize("models", [["a/b=x"], ["=x"], ["a=x", "a=y"], ["\n=x"]])
def test_names_that_are_refused(models: list[str]) -> None:
    with pytest.raises(BadInput):
        named_models(models)


def test_a_key_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    file.write_text("correct-horse\n")
    monkeypatch.delenv("UMPTEEN_API_KEY", raising=False)
    assert api_key(None) is None
    monkeypatch.setenv("UMPTEEN_API_KEY", "another-horse")
    assert api_key(None) == "another-horse"
    assert api_key(file) == "correct-horse"


@pytest.mark.parametrize("key", ["", "short", "with a space", "schlüssel-schlüssel", "two\nlines-of-it"])
def test_a_key_that_is_refused(tmp_path: Path, key: str) -> None:
    file = tmp_path / "key"
    file.write_text(key, encoding="utf-8")
    with pytest.raises(BadInput, match="at least 8 characters") as refused:
        api_key(file)
    assert not key or key not in str(refused.value)


def test_a_key_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        api_key(tmp_path / "key")


def test_a_port_that_is_taken(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(app, ["serve", str(folder), "--port", port])
    assert result.exit_code == 2
    assert "choose another" in " ".join(result.output.split())


def test_an_extra_that_is_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("umpteen.cli.serving.find_spec", lambda name: None)
    result = CliRunner().invoke(app, ["serve", str(folder)])
    assert result.exit_code == 1
    assert "umpteen[serve]" in " ".join(result.output.split())
