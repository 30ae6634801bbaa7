"""A model on a dataset: the figures of the command, whatever the order of the labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import umpteen
from umpteen import Dataset, evaluate_model
from umpteen.data import Labels
from umpteen.errors import BadInput
from umpteen.evaluation import read_for
from umpteen.metrics import inverse_propensity
from umpteen.models import Model

from .conftest import LINEAR, Made

Fitted = Callable[[str], Model]


@pytest.fixture
def held_out_data(held_out: Made) -> Dataset:
    return Dataset(held_out.texts, Y=held_out.Y, labels=held_out.labels, name="held out")


@pytest.mark.parametrize("recipe", LINEAR)
def test_the_figures_are_those_of_evaluate(recipe: str, fitted: Fitted, made: Made, held_out_data: Dataset) -> None:
    model = fitted(recipe)
    found = evaluate_model(model, held_out_data, (1, 5), propensity=(0.55, 1.5), threshold=0.3, threads=1)
    weights = inverse_propensity(made.Y)
    options = {"inverse_propensity": weights, "threshold": 0.3}
    expected = model.evaluate(held_out_data.texts, held_out_data.Y, (1, 5), **options)
    assert found.metrics == pytest.approx(expected)
    assert (found.n_rows, found.unseen_labels, found.shortlist_recall) == (150, 0.0, [])
    assert found.seconds > 0


def test_blocks_add_up(fitted: Fitted, held_out_data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, stages = evaluate_model(fitted("xr-linear"), held_out_data), []
    monkeypatch.setattr("umpteen.evaluation.model.BLOCK", 40)
    found = evaluate_model(fitted("xr-linear"), held_out_data, progress=lambda *stage: stages.append(stage))
    assert found.metrics == pytest.approx(whole.metrics)
    assert stages == [("predict", done, 150) for done in (0, 40, 80, 120, 150)]


def test_labels_are_matched_by_name_and_unknown_ones_are_missed(fitted: Fitted, held_out: Made) -> None:
    names = [*reversed(held_out.labels.names()), "new"]
    Y = Labels(names).encode([[*row, "new"] for row in held_out.lists])
    found = evaluate_model(fitted("xr-linear"), Dataset(held_out.texts, Y=Y, labels=Labels(names)), (1,))
    assert found.metrics["P@1"] == fitted("xr-linear").evaluate(held_out.texts, held_out.lists, (1,))["P@1"]
    assert found.unseen_labels == pytest.approx(100.0 * len(held_out) / Y.nnz)


def test_a_vocabulary_shorter_than_k_is_no_obstacle() -> None:
    model = umpteen.XRLinear(threads=1).fit(["red apple", "green pear"], [["red"], ["green"]])
    names = ["red", "green", *(f"other {i}" for i in range(9))]
    data = Dataset(["a red plum"], Y=Labels(names).encode([["red"]]), labels=Labels(names))
    assert evaluate_model(model, data, (1, 7)).metrics["R@7"] == 100.0


def test_what_cannot_be_evaluated_is_told(fitted: Fitted, held_out_data: Dataset, rows: object) -> None:
    model = fitted("xr-linear")
    with pytest.raises(BadInput, match="trained on texts, but held out holds feature rows; pass data of its kind"):
        evaluate_model(model, Dataset(X=np.ones((2, 3)), Y=np.ones((2, 3)), name="held out"))
    with pytest.raises(BadInput, match="held out has no labelled rows to evaluate on"):
        evaluate_model(model, Dataset(held_out_data.texts, name="held out"))
    model_of_rows = umpteen.XRLinear(threads=1).fit(rows, np.eye(600, 3))
    with pytest.raises(BadInput, match="trained on feature rows, but held out holds texts"):
        evaluate_model(model_of_rows, held_out_data)


def test_propensities_need_counts(fitted: Fitted, held_out_data: Dataset, tmp_path: Path) -> None:
    fitted("xr-linear").save(tmp_path / "m")
    model = umpteen.load(tmp_path / "m")
    model.targets_ = replace(model.targets_, counts=None)
    assert evaluate_model(model, held_out_data).unseen_labels == 0
    with pytest.raises(BadInput, match="saved without counts of its labels, which propensities need"):
        evaluate_model(model, held_out_data, propensity=(0.55, 1.5))


def test_a_split_is_read_as_the_model_takes_it(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,labels\n" + "apple pear,sweet fruit; food\nsaw drill,hand tool\n" * 9)
    (tmp_path / "test.csv").write_text("text,labels\napple pear,sweet fruit\nsaw drill,hand tool\n")
    train = umpteen.read(tmp_path)
    model = umpteen.XRLinear(threads=1).fit(train.texts, train.Y, label_names=train.labels)
    found = evaluate_model(model, read_for(model, tmp_path / "test.csv"), (1, 2))
    assert (found.metrics["R@2"], found.unseen_labels) == (100.0, 0.0)


def test_f1_is_measured_at_the_threshold_of_predict(fitted: Fitted, held_out_data: Dataset) -> None:
    model = fitted("xr-linear")
    found = evaluate_model(model, held_out_data, (1,))
    assert found.threshold == model.threshold_
    expected = model.evaluate(held_out_data.texts, held_out_data.Y, (1,), threshold=model.threshold_)
    assert found.metrics == pytest.approx(expected)


def test_texts_with_more_labels_above_the_threshold_are_predicted_again(
    fitted: Fitted, held_out_data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, asked = fitted("xr-linear"), []
    topk = model.topk
    monkeypatch.setattr(model, "topk", lambda X, k, **more: asked.append((len(X), k)) or topk(X, k, **more))
    found = evaluate_model(model, held_out_data, (1,), threshold=0.5)
    n_cut = int((topk(held_out_data.texts, 1).scores >= 0.5).sum())
    assert 0 < n_cut < 150
    assert asked == [(2, 1), (150, 1), (n_cut, len(model.labels_))]
    expected = model.evaluate(held_out_data.texts, held_out_data.Y, (1,), threshold=0.5)
    assert found.metrics == pytest.approx(expected)
