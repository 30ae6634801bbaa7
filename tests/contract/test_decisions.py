"""Calibrated probabilities and decisions of models: fitted by default, stored, tuned, and used by predict."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import umpteen
from umpteen import DiSMEC, Ensemble, XRLinear
from umpteen.data import Dataset, load_demo
from umpteen.errors import BadInput, BadModelFile
from umpteen.models.answers import printed_decision
from umpteen.thresholds import LabelThresholds


@pytest.fixture(scope="module")
def data() -> Dataset:
    return load_demo("train").take(slice(3_000))


@pytest.fixture(scope="module")
def fresh() -> Dataset:
    return load_demo("test")


@pytest.fixture(scope="module")
def model(data: Dataset) -> XRLinear:
    return XRLinear(threads=1).fit(data.texts, data.Y, label_names=data.labels)


def test_a_fitted_model_has_probabilities_that_are_near_the_truth(model: XRLinear, fresh: Dataset) -> None:
    top = model.topk(fresh.texts, 5)
    assert top.probabilities.shape == top.scores.shape
    rows = np.repeat(np.arange(len(top)), 5)
    right = np.asarray(fresh.Y.tocsr()[rows, top.labels.ravel()]).ravel() > 0
    assert abs(top.probabilities.mean() - right.mean()) < 0.04
    assert (np.diff(top.probabilities, axis=1) <= 0).all()  # the ranking stays
    assert top[:3].probabilities.shape == (3, 5)
    assert top.first(2).probabilities.shape == (len(top), 2)


def test_the_ranking_is_that_of_a_model_trained_on_the_same_rows(data: Dataset, fresh: Dataset) -> None:
    """Calibration changes which rows are trained on, and nothing else."""
    plain = XRLinear(threads=1, calibration={"rows": 0}).fit(data.texts, data.Y)
    assert plain.calibration_ is None
    assert plain.topk(fresh.texts[:5], 3).probabilities is None
    held_out = XRLinear(threads=1).config.calibration.count(len(data))
    assert held_out == 200


@pytest.mark.parametrize("threshold", [-0.1, 1.2, 50])
def test_a_threshold_that_is_no_probability_is_refused(model: XRLinear, fresh: Dataset, threshold: float) -> None:
    with pytest.raises(BadInput, match=f"probability between 0 and 1, such as 0.5, but is {threshold}"):
        model.predict(fresh.texts[:3], threshold=threshold)


def test_printed_answers_ask_for_no_more_labels_than_there_are(model: XRLinear) -> None:
    assert printed_decision(model, 2**31 - 1).depth == len(model.labels_)


def test_the_stored_threshold_is_a_good_one(model: XRLinear, fresh: Dataset) -> None:
    def f1(threshold: float) -> float:
        return model.evaluate(fresh.texts, fresh.Y, threshold=model.score_at(threshold))["micro-F1"]

    best = max(f1(threshold) for threshold in np.linspace(0.1, 0.7, 13))
    assert f1(model.calibration_.threshold) > best - 2.0
    nothing = np.mean(model.predict(fresh.texts).getnnz(axis=1) == 0)
    assert nothing < 0.2


def test_predict_takes_k_and_a_threshold(model: XRLinear, fresh: Dataset) -> None:
    texts = fresh.texts[:20]
    assert (model.predict(texts, k=4).getnnz(axis=1) == 4).all()
    few, many = model.predict(texts, threshold=0.9).nnz, model.predict(texts, threshold=0.05).nnz
    assert few < many
    assert (model.predict(texts, k=2, threshold=0.05).getnnz(axis=1) <= 2).all()
    for wrong in (float("nan"), "high"):
        with pytest.raises(BadInput, match="threshold must be a number"):
            model.predict(texts, threshold=wrong)
    with pytest.raises(BadInput, match="k must be a whole number"):
        model.predict(texts, k=0)


def test_a_saved_model_decides_the_same(model: XRLinear, fresh: Dataset, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    again = umpteen.load(tmp_path / "model")
    assert again.calibration_.to_dict() == model.calibration_.to_dict()
    np.testing.assert_array_equal(
        again.topk(fresh.texts[:9], 5).probabilities, model.topk(fresh.texts[:9], 5).probabilities
    )
    assert (again.predict(fresh.texts[:50]) != model.predict(fresh.texts[:50])).nnz == 0


def test_a_damaged_calibration_is_refused(model: XRLinear, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    config["meta"]["calibration"]["probabilities"][-1] = 7
    path.write_text(json.dumps(config))
    with pytest.raises(BadModelFile, match="probabilities of a calibration must lie between 0 and 1"):
        umpteen.load(tmp_path / "model")


def test_goals_are_met_on_the_texts_they_are_tuned_on(data: Dataset, fresh: Dataset) -> None:
    model = XRLinear(threads=1).fit(data.texts, data.Y)
    model.tune(fresh.texts, fresh.Y, "precision=0.9")
    found = model.predict(fresh.texts)
    assert found.multiply(fresh.Y > 0).nnz / found.nnz >= 0.895
    model.tune(fresh.texts, fresh.Y, "labels=2")
    assert model.predict(fresh.texts).nnz / len(fresh) == pytest.approx(2.0, abs=0.1)
    model.tune(fresh.texts, fresh.Y, "f1@3")
    assert model.predict(fresh.texts).getnnz(axis=1).max() == 3


def test_a_model_can_be_calibrated_on_other_texts(data: Dataset, fresh: Dataset) -> None:
    model = XRLinear(threads=1, calibration={"rows": 0}).fit(data.texts, data.Y)
    with pytest.raises(BadInput, match="not calibrated"):
        model.tune(fresh.texts, fresh.Y)
    with pytest.raises(BadInput, match="nothing to calibrate on"):
        model.calibrate(fresh.texts[:3], fresh.Y[:3] * 0)
    with pytest.raises(BadInput, match="no label of these texts is known to the model"):
        model.calibrate(fresh.texts[:3], [["unknown"]] * 3)
    model.calibrate(fresh.texts, fresh.Y)
    assert model.topk(fresh.texts[:2], 3).probabilities is not None


def test_a_threshold_of_the_settings_is_a_probability(model: XRLinear, fresh: Dataset) -> None:
    other = deepcopy(model).set_params(search__threshold=0.8)
    expected = model.predict(fresh.texts[:40], threshold=0.8)
    assert (other.predict(fresh.texts[:40]) != expected).nnz == 0


def test_ensembles_are_calibrated_as_a_whole(data: Dataset, fresh: Dataset, tmp_path: Path) -> None:
    ensemble = Ensemble([XRLinear(threads=1), DiSMEC(threads=1)]).fit(data.texts, data.Y)
    top = ensemble.topk(fresh.texts, 5)
    rows = np.repeat(np.arange(len(top)), 5)
    right = np.asarray(fresh.Y.tocsr()[rows, top.labels.ravel()]).ravel() > 0
    assert abs(top.probabilities.mean() - right.mean()) < 0.04
    ensemble.save(tmp_path / "both")
    again = umpteen.load(tmp_path / "both")
    np.testing.assert_array_equal(again.topk(fresh.texts, 5).probabilities, top.probabilities)
    assert ensemble.describe()["calibrated"] is True


def test_an_ensemble_that_is_fitted_again_drops_its_old_probabilities(data: Dataset) -> None:
    ensemble = Ensemble([XRLinear(threads=1), DiSMEC(threads=1)]).fit(data.texts, data.Y)
    assert ensemble.calibration_ is not None
    few = data.take(range(60))
    assert ensemble.fit(few.texts, few.Y).calibration_ is None


def test_an_ensemble_of_fitted_models_describes_the_threshold_that_it_uses(data: Dataset, model: XRLinear) -> None:
    ensemble = Ensemble([model, DiSMEC(threads=1).fit(data.texts, data.Y, label_names=data.labels)])
    facts = ensemble.describe()
    assert facts["calibrated"] is True
    assert ensemble.threshold_ == pytest.approx(ensemble.score_at(facts["threshold"]))


def test_explanations_show_probabilities(model: XRLinear, fresh: Dataset) -> None:
    text = fresh.texts[0]
    top, found = model.topk([text], 5), model.explain(text)
    assert found.probability == pytest.approx(float(top.probabilities[0, 0]), abs=1e-3)
    assert [one.probability for one in found.suggestions] == top.probabilities[0].tolist()
    assert f"probability {found.probability:.3f}" in found.to_html()


def test_small_data_is_not_held_out() -> None:
    texts, labels = [f"word{i % 7}" for i in range(90)], [[f"label{i % 7}"] for i in range(90)]
    model = XRLinear(threads=1).fit(texts, labels)
    assert model.calibration_ is None
    facts: dict[str, Any] = model.describe()
    assert (facts["calibrated"], facts["threshold"]) == (False, 0.3)
    assert model.predict(["word3"]) == [["label3"]]


# Thresholds of single labels


def with_own_thresholds(model: Any, n: int = 30) -> Any:
    """Give the first labels thresholds that differ from the common one on both sides."""
    own = LabelThresholds(np.arange(n, dtype=np.int32), np.linspace(0.05, 0.95, n))
    model.calibration_ = model.calibration_.with_decision(model.calibration_.threshold, None, own)
    return model


@pytest.fixture
def several(data: Dataset) -> Any:
    models = {"one": XRLinear(threads=1), "ensemble": Ensemble([XRLinear(threads=1), DiSMEC(threads=1)])}
    return lambda name: with_own_thresholds(models[name].fit(data.texts, data.Y, label_names=data.labels))


@pytest.mark.parametrize("kind", ["one", "ensemble"])
def test_thresholds_of_labels_decide_and_are_stored(several: Any, kind: str, fresh: Dataset, tmp_path: Path) -> None:
    model, texts = several(kind), fresh.texts[:300]
    top = model.topk(texts, 100)
    own = np.append(np.linspace(0.05, 0.95, 30), np.full(len(model.labels_) - 30, model.calibration_.threshold))
    expected = (top.labels >= 0) & (top.probabilities >= own[top.labels])
    found = model.predict(texts)
    assert abs(found.nnz - expected.sum()) <= 2  # but for rounding at the thresholds
    assert found.nnz != model.predict(texts, threshold=model.calibration_.threshold).nnz  # a given one is for all
    assert model.describe()["label_thresholds"] == 30
    model.save(tmp_path / "model")
    again = umpteen.load(tmp_path / "model")
    assert (again.predict(texts) != found).nnz == 0
    evaluated = umpteen.evaluate_model(again, fresh.take(slice(300))).metrics["micro-F1"]
    right = found.multiply(fresh.Y[:300] > 0).nnz
    assert evaluated == pytest.approx(200 * right / (found.nnz + fresh.Y[:300].nnz))


@pytest.mark.parametrize("kind", ["one", "ensemble"])
def test_damaged_thresholds_of_labels_are_refused(several: Any, kind: str, tmp_path: Path) -> None:
    model = several(kind)
    own = model.calibration_.labels
    for labels in (own.labels + 10_000, own.labels[::-1].copy()):
        model.calibration_ = model.calibration_.with_decision(0.5, None, own._replace(labels=labels))
        model.save(tmp_path / "model")
        with pytest.raises(BadModelFile, match="thresholds must be those of different labels"):
            umpteen.load(tmp_path / "model")


def test_a_limit_and_an_unreachable_threshold_count_in_evaluations(data: Dataset, fresh: Dataset) -> None:
    model = XRLinear(threads=1).fit(data.texts, data.Y, label_names=data.labels)
    model.calibration_ = model.calibration_.with_decision(0.0, 3)  # three labels for every text
    metrics = umpteen.evaluate_model(model, fresh, ks=(3,)).metrics
    right = metrics["P@3"] / 100 * 3 * len(fresh)
    assert metrics["micro-F1"] == pytest.approx(200 * right / (3 * len(fresh) + fresh.Y.nnz))
    model.calibration_ = model.calibration_.with_decision(1.0, None)
    assert umpteen.evaluate_model(model, fresh, ks=(1,)).metrics["micro-F1"] == 0.0
