"""The command on documents, with vocabularies, and on tables with columns of any name."""

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


def test_a_document_that_cannot_be_read_does_not_stop_the_others(model: Path, letters: Path) -> None:
    whole = ran("predict", model, letters).stdout
    (letters / "a.txt").write_bytes(b"M\xfcnchen")
    found = run("predict", model, letters)
    assert found.stdout == whole
    assert "a.txt:1: this line is not UTF-8" in found.stderr
    assert (found.exit_code, "1 of 3 documents could not be read" in found.stderr) == (2, True)


def test_a_model_of_rows_takes_no_whole_files(tmp_path: Path) -> None:
    (tmp_path / "train.svm").write_text("0 0:1\n1 1:1\n")
    ran("train", tmp_path, "-o", tmp_path / "model", *SMALL)
    refused = run("predict", tmp_path / "model", tmp_path / "train.svm", "--whole-file")
    assert (refused.exit_code, "trained on feature rows" in refused.stderr) == (2, True)


# Vocabularies


@pytest.fixture
def keyed(tmp_path: Path) -> Path:
    """A folder of texts with labels that are keys, and a vocabulary in three languages."""
    folder = tmp_path / "keyed"
    folder.mkdir()
    keys = {"fruit": "urn:f", "tool": "urn:t"}
    rows = [json.dumps({"text": text, "labels": [keys[label]]}) for text, label in TEXTS.items()]
    (folder / "train.jsonl").write_text("\n".join(rows))
    (tmp_path / "vocab.csv").write_text("uri,label_en,label_sv,label_fi\nurn:f,fruit,frukt,\nurn:t,tool,,työkalu\n")
    return folder


def shown(model: Path, *flags: Any) -> list[tuple[str, str]]:
    """Return names and keys of the best labels of a fruit and of a tool."""
    result = ran("predict", model, "-k", "1", "--json", *flags, stdin="a pear\na saw\n")
    best = [json.loads(line)["labels"][0] for line in result.stdout.splitlines()]
    return [(label["label"], label["key"]) for label in best]


def test_names_of_a_vocabulary_are_stored_in_the_model(keyed: Path, tmp_path: Path) -> None:
    vocab = tmp_path / "vocab.csv"
    flags = [flag for flag in SMALL if flag != "--quiet"]
    result = ran("train", keyed, "-o", tmp_path / "m", "--vocab", vocab, "--language", "sv", *flags)
    assert "Of 2 labels, 1 have no name in 'sv' but in another language" in result.stderr
    assert shown(tmp_path / "m") == [("frukt", "urn:f"), ("tool", "urn:t")]
    again = ["--vocab", vocab, "--language", "fi"]
    assert shown(tmp_path / "m", *again) == [("fruit", "urn:f"), ("työkalu", "urn:t")]
    assert "no name in 'fi'" in run("predict", tmp_path / "m", *again, stdin="a pear\n").stderr
    assert shown(tmp_path / "m") == [("frukt", "urn:f"), ("tool", "urn:t")]  # for display only


def test_names_of_a_vocabulary_add_no_cells(keyed: Path, tmp_path: Path) -> None:
    ran("train", keyed, "-o", tmp_path / "m", *SMALL)
    (tmp_path / "odd.csv").write_text('uri,label\nurn:f,"a\nb\tc\x1b[2J"\nurn:t,t\n')
    line = ran("predict", tmp_path / "m", "--vocab", tmp_path / "odd.csv", "-k", "1", stdin="a pear\n").stdout
    assert line.startswith("a pear\ta b c\\x1b[2J (")
    assert len(line.splitlines()) == 1


def test_a_vocabulary_that_does_not_fit_is_refused(keyed: Path, tmp_path: Path) -> None:
    words = ["train", keyed, "-o", tmp_path / "m", *SMALL]
    refused = run(*words, "--language", "sv")
    assert (refused.exit_code, "--vocab FILE" in refused.stderr) == (2, True)
    refused = run(*words, "--vocab", tmp_path / "vocab.csv", "--language", "de")
    assert (refused.exit_code, "only in en, fi, sv" in refused.stderr) == (2, True)
    (tmp_path / "other.tsv").write_text("urn:x\tx\n")
    refused = run(*words, "--vocab", tmp_path / "other.tsv")
    assert (refused.exit_code, "has none of the 2 labels" in refused.stderr) == (2, True)
    assert not (tmp_path / "m").exists()


# Tables


def test_columns_of_tables_in_every_command(tmp_path: Path) -> None:
    rows = [f"{number},{text},{label}|all of them\n" for number, (text, label) in enumerate(TEXTS.items())]
    for split in ("train", "test"):
        (tmp_path / f"{split}.csv").write_text("id,title,subjects\n" + "".join(rows))
    columns = ["--text-column", "title", "--label-column", "subjects"]
    ran("train", tmp_path, "-o", tmp_path / "m", *columns, "--label-separator", "|", *SMALL)
    answers = ran("predict", tmp_path / "m", tmp_path, "-k", "3", "--text-column", "title", "--json").stdout
    labels = [{label["label"] for label in json.loads(line)["labels"]} for line in answers.splitlines()]
    assert labels == [{"fruit", "tool", "all of them"}] * 4
    evaluated = ran("evaluate", tmp_path / "m", tmp_path, *columns, "--json")  # the model has the separator
    found = json.loads(evaluated.stdout)
    assert found["unseen_labels"] == 0.0
    words = ["bench", tmp_path, "--recipes", "plt", "--json", *columns, "--label-separator", "|", *SMALL]
    assert json.loads(ran(*words).stdout)[0]["unseen_labels"] == 0.0


def test_tables_without_a_header(tmp_path: Path) -> None:
    rows = [f"{label}\t{number}\t{text}\n" for number, (text, label) in enumerate(TEXTS.items())]
    (tmp_path / "train.tsv").write_text("".join(rows))
    columns = ["--no-header", "--text-column", "2"]
    ran("train", tmp_path, "-o", tmp_path / "m", *columns, "--label-column", "0", *SMALL)
    lines = ran("predict", tmp_path / "m", tmp_path / "train.tsv", "-k", "1", *columns).stdout.splitlines()
    assert [line.split(" (")[0] for line in lines] == [f"{text}\t{label}" for text, label in TEXTS.items()]


def test_predict_reads_the_column_of_json_lines(model: Path) -> None:
    result = ran("predict", model, "-k", "1", "--text-column", "title", stdin='{"title": "a pear"}\n')
    assert result.stdout.startswith("a pear\tfruit")
