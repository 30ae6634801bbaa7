"""The command on documents: an answer per file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from umpteen.cli import app, prediction

SMALL = ["--set", "tree.leaf_size=2", "--set", "tree.branching=2", "--threads", "1", "--quiet"]
TEXTS = {"red apple pear": "fruit", "old hammer saw": "tool", "green pear plum": "fruit", "new saw drill": "tool"}


def run(*args: Any, stdin: str | bytes | None = None) -> Any:
    """Run a command in this process."""
    return CliRunner().invoke(app, [str(arg) for arg in args], input=stdin)


def ran(*args: Any, stdin: str | bytes | None = None) -> Any:
    """Run a command that has to succeed."""
    result = run(*args, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two labels, fruit and tool."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "train.jsonl").write_text(
        "".join(json.dumps({"text": text, "labels": [label]}) + "\n" for text, label in TEXTS.items())
    )
    ran("train", folder, "-o", folder / "model", *SMALL)
    return folder / "model"


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    """A folder of two documents."""
    (tmp_path / "letters" / "old").mkdir(parents=True)
    (tmp_path / "letters" / "b.txt").write_text("a hammer\nand a saw\n")
    (tmp_path / "letters" / "old" / "a\tb.txt").write_text("a pear\nand an apple\n")
    return tmp_path / "letters"


# Documents


def test_predict_answers_every_file_of_a_folder(model: Path, letters: Path) -> None:
    result = ran("predict", model, letters, "-k", "1")
    found = [line.split(" (")[0] for line in result.stdout.splitlines()]
    assert found == ["b.txt\ttool", "old/a\\tb.txt\tfruit"]
    assert "2 rows" in result.stderr
    answers = [json.loads(line) for line in ran("predict", model, letters, "-k", "1", "--json").stdout.splitlines()]
    assert [list(answer) for answer in answers] == [["file", "labels"]] * 2
    assert [answer["file"] for answer in answers] == ["b.txt", "old/a\tb.txt"]
    assert [answer["labels"][0]["label"] for answer in answers] == ["tool", "fruit"]


def test_documents_are_predicted_in_blocks(model: Path, letters: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ran("predict", model, letters).stdout
    monkeypatch.setattr(prediction, "_BLOCK_CHARACTERS", 1)
    assert ran("predict", model, letters).stdout == whole


def test_predict_takes_a_whole_file_as_one_text(model: Path, letters: Path) -> None:
    path = letters / "b.txt"
    assert len(ran("predict", model, path).stdout.splitlines()) == 2
    answer = json.loads(ran("predict", model, path, "--whole-file", "--json", "-k", "1").stdout)
    assert (answer["file"], answer["labels"][0]["label"]) == (str(path), "tool")
    typed = json.loads(ran("predict", model, "--whole-file", "--json", "-k", "1", stdin="a saw\nand a drill\n").stdout)
    assert (typed["file"], typed["labels"][0]["label"]) == ("-", "tool")


def test_a_document_called_test_is_no_split_if_files_are_texts(model: Path, letters: Path) -> None:
    (letters / "test.txt").write_text("a drill and a saw\n")
    refused = run("predict", model, letters)
    assert refused.exit_code == 2
    assert "--whole-file" in refused.stderr
    assert len(ran("predict", model, letters, "--whole-file").stdout.splitlines()) == 3


def test_predict_refuses_folders_it_cannot_read(model: Path, letters: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "is empty" in run("predict", model, tmp_path / "empty").stderr
    refused = run("predict", model, tmp_path / "empty", "--whole-file")
    assert (refused.exit_code, "has no documents" in refused.stderr) == (2, True)
    (letters / "c.txt").write_bytes(b"M\xfcnchen")
    refused = run("predict", model, letters)
    assert (refused.exit_code, "c.txt:1: this line is not UTF-8" in refused.stderr) == (2, True)


def test_a_model_of_rows_takes_no_whole_files(tmp_path: Path) -> None:
    (tmp_path / "train.svm").write_text("0 0:1\n1 1:1\n")
    ran("train", tmp_path, "-o", tmp_path / "model", *SMALL)
    refused = run("predict", tmp_path / "model", tmp_path / "train.svm", "--whole-file")
    assert (refused.exit_code, "trained on feature rows" in refused.stderr) == (2, True)
