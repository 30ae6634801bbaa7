"""Evaluation by an engine: the same figures as in one process."""

import json

import pytest
from typer.testing import CliRunner

import umpteen
from umpteen.cli.app import app
from umpteen.engine import LocalEngine
from umpteen.engine.processes import ProcessEngine
from umpteen.evaluation import evaluate_model
from umpteen.models.block_predictions import BlockPredictions


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    train = umpteen.load_demo("train").take(range(3000))
    folder = tmp_path_factory.mktemp("saved") / "model"
    umpteen.XRLinear().fit(train.texts, train.Y, label_names=train.labels).save(folder)
    return folder


@pytest.mark.parametrize("engine", [LocalEngine(1), ProcessEngine(2)], ids=["local", "processes"])
def test_engines_evaluate_like_the_model(saved, tmp_path, engine, monkeypatch):
    monkeypatch.setattr("umpteen.evaluation.model.BLOCK", 500)
    model, test = umpteen.load(saved), umpteen.load_demo("test")
    seen = []
    blocks = BlockPredictions(saved, tmp_path / "blocks", engine, 500, lambda *report: seen.append(report))
    found = evaluate_model(model, test, predict=blocks)
    engine.close()
    assert found.metrics == evaluate_model(model, test).metrics
    assert seen[-1] == ("predict", len(test), len(test))
    assert not (tmp_path / "blocks").exists()


def test_engines_name_the_labels_of_single_texts(saved, tmp_path):
    written = []
    for name, flags in (("one", []), ("other", ["--engine", "local"])):
        file = tmp_path / f"{name}.jsonl"
        ran = CliRunner().invoke(app, ["evaluate", str(saved), "demo", "-q", "--per-text", str(file), *flags])
        assert ran.exit_code == 0, ran.output
        written.append(file.read_text())
    assert written[0] == written[1]


def test_rows_are_evaluated_by_engines_too(tmp_path):
    train, test = umpteen.load_demo("train").take(range(2000)), umpteen.load_demo("test")
    tfidf = umpteen.Tfidf()
    X = tfidf.fit_transform(train.texts)
    umpteen.XRLinear().fit(X, train.Y).save(tmp_path / "model")
    model = umpteen.load(tmp_path / "model")
    data = umpteen.Dataset(X=tfidf.transform(test.texts), Y=test.Y)
    blocks = BlockPredictions(tmp_path / "model", tmp_path / "blocks", LocalEngine(1), 4096)
    assert evaluate_model(model, data, predict=blocks).metrics == evaluate_model(model, data).metrics


def test_the_command_evaluates_with_processes(saved):
    figures = []
    for flags in ([], ["--engine", "processes", "--workers", "1"]):
        ran = CliRunner().invoke(app, ["evaluate", str(saved), "demo", "--json", "-q", *flags])
        assert ran.exit_code == 0, ran.output
        values = json.loads(ran.stdout)
        figures.append({name: value for name, value in values.items() if name != "rows_per_s"})
    assert figures[0] == figures[1]
