"""Ensembles are trained, resumed, saved and opened as models are, and their folders are trusted no more."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import umpteen
from umpteen import DiSMEC, Ensemble, XRLinear
from umpteen.errors import BadConfig, BadInput, BadModelFile, NotFitted
from umpteen.models import Model, create
from umpteen.models.presets import PRESETS, preset_ensemble

from .conftest import SMALL, Made
from .test_resume import Watcher, interrupt

Small = Callable[..., Model]
Fitted = Callable[[str], Model]
Files = Callable[[Path], dict[str, bytes]]
needs_links = pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")


def two(**options: Any) -> Ensemble:
    return Ensemble.of("xr-linear+plt", SMALL, **options)


@pytest.fixture(scope="module")
def trained(made: Made) -> Ensemble:
    """Two models, weighted; do not change it."""
    return two(weights=[1, 3]).fit(made.texts, made.lists)


@pytest.fixture
def saved(trained: Ensemble, tmp_path: Path) -> Path:
    trained.save(tmp_path / "votes")
    return tmp_path / "votes"


def assert_same(one: Any, other: Any, texts: list[str]) -> None:
    expected, found = one.topk(texts, 7), other.topk(texts, 7)
    np.testing.assert_array_equal(found.labels, expected.labels)
    np.testing.assert_array_equal(found.scores, expected.scores)
    assert found.names == expected.names


# Training


def test_members_are_trained_as_they_would_be_alone(made: Made, held_out: Made) -> None:
    members = [create(recipe, SMALL) for recipe in ("xr-linear", "plt")]
    ensemble = Ensemble(members, weights=[1, 3]).fit(iter(made.texts), iter(made.lists))
    assert not any(member.__sklearn_is_fitted__() for member in members)  # they stay as they were
    alone = [create(recipe, SMALL).fit(made.texts, made.lists) for recipe in ("xr-linear", "plt")]
    assert_same(Ensemble(alone, weights=[1, 3]), ensemble, held_out.texts)
    assert ensemble.score(held_out.texts, held_out.lists) > 0.95
    assert ensemble.models_[0].targets_ is ensemble.models_[1].targets_  # a vocabulary is kept once


def test_members_that_are_fitted_stay_as_they_are(fitted: Fitted, made: Made, held_out: Made) -> None:
    ensemble = Ensemble([fitted("plt"), create("xr-linear", SMALL)]).fit(made.texts, made.lists)
    assert ensemble.models_[0] is fitted("plt")
    assert_same(Ensemble([fitted("plt"), fitted("xr-linear")]), ensemble, held_out.texts)


def test_what_cannot_be_fitted_is_told(fitted: Fitted, made: Made) -> None:
    with pytest.raises(BadInput, match="nothing to train; pass untrained ones"):
        Ensemble([fitted("plt")]).fit(made.texts, made.lists)
    with pytest.raises(BadInput, match="model 0 has 60 labels that differ from the 2 of Y"):
        Ensemble([fitted("plt"), XRLinear()]).fit(["a b", "c d"], [["x"], ["y"]])
    with pytest.raises(NotFitted, match="call fit first"):
        two().save("nowhere")
    assert not Path("nowhere").exists()


def test_an_interrupted_fit_keeps_the_old_ensemble(made: Made) -> None:
    ensemble = two().fit(["red apple", "green pear"], [["red"], ["green"]])
    watcher = Watcher()
    two().fit(made.texts, made.lists, progress=watcher)
    interrupt(ensemble, made, watcher.trained[-1], None)
    assert ensemble.topk(["red"], 1).names == [["red"]]


def test_the_same_ensemble_can_be_fitted_again(made: Made) -> None:
    ensemble = two().fit(["red apple", "green pear"], [["red"], ["green"]])
    assert_same(two().fit(made.texts, made.lists), ensemble.fit(made.texts, made.lists), made.texts[:9])


@pytest.mark.parametrize("when_done", [False, True])
def test_going_on_after_any_stage_gives_the_same_bytes(
    made: Made, tmp_path: Path, files_but_history: Files, when_done: bool
) -> None:
    watcher = Watcher()
    two().fit(made.texts, made.lists, progress=watcher, checkpoint=tmp_path / "seen").save(tmp_path / "whole")
    assert {stage.partition(":")[0] for stage in watcher.stages} == {"model 1", "model 2"}
    for number, stage in enumerate(watcher.trained[::2]):
        stages = tmp_path / f"stages {number}"
        interrupt(two(), made, stage, stages, when_done=when_done)
        resumed = Watcher()
        ensemble = two().fit(made.texts, made.lists, progress=resumed, checkpoint=stages)
        assert stage[:7] == "model 1" or all(stage[:7] == "model 2" for stage in resumed.trained)
        assert stages.exists()
        ensemble.save(tmp_path / "resumed")
        assert not stages.exists()
        assert files_but_history(tmp_path / "resumed") == files_but_history(tmp_path / "whole")


def test_places_are_checked_before_training(made: Made, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    watcher = Watcher()
    with pytest.raises(BadInput, match="stages"):
        two().fit(made.texts, made.lists, progress=watcher, checkpoint=tmp_path / "file")
    assert watcher.stages == []


def test_estimates_add_up(made: Made) -> None:
    ensemble = two()
    one, other = (model.estimate(made.texts, made.lists) for model in ensemble.models)
    both = ensemble.estimate(iter(made.texts), iter(made.lists))
    assert both.seconds == pytest.approx(one.seconds + other.seconds)
    assert max(one.memory_mb, other.memory_mb) < both.memory_mb < one.memory_mb + other.memory_mb
    assert (both.n_rows, both.n_labels, both.device) == (one.n_rows, one.n_labels, "")


# Names of recipes


def test_an_ensemble_is_made_by_names() -> None:
    ensemble = Ensemble.of(
        "xr-linear*2 + xr-transformer+xr-linear", {"seed": 3, "encoder.max_length": 9}, rule="round-robin"
    )
    found = [(model.recipe, model.seed) for model in ensemble.models]
    assert found == [("xr-linear", 3), ("xr-linear", 4), ("xr-transformer", 3), ("xr-linear", 5)]
    assert ensemble.models[2].config.encoder.max_length == 9  # which the others do not have
    assert ensemble.rule == "round-robin"
    assert repr(Ensemble([DiSMEC()], weights=[2])) == "Ensemble([DiSMEC()], rule='average', weights=[2.0])"


@pytest.mark.parametrize("wrong", ["xr-linear*0", "xr-linear*x", "xr-linear*100", "xr-linear+", "xr-linaer", "*3"])
def test_names_that_are_none_are_refused(wrong: str) -> None:
    with pytest.raises(BadConfig):
        Ensemble.of(wrong)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_make_the_ensembles_of_the_paper(name: str) -> None:
    ensemble = preset_ensemble(name, {"encoder.max_length": 7})
    assert tuple(model.config.encoder.name for model in ensemble.models) == PRESETS[name].encoders
    assert len({(model.config.encoder.name, model.seed) for model in ensemble.models}) == 3
    assert {model.config.encoder.max_length for model in ensemble.models} == {7}
    assert ensemble.rule == PRESETS[name].ensemble
    assert preset_ensemble(name, rule="average").rule == "average"


# Storage


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("verify", ["none", "arrays", "full"])
def test_a_saved_ensemble_is_the_same(trained: Ensemble, saved: Path, held_out: Made, mmap: bool, verify: str) -> None:
    opened = umpteen.load(saved, mmap=mmap, verify=verify)
    assert isinstance(opened, Ensemble)
    assert_same(trained, opened, held_out.texts)
    assert (opened.rule, opened.weights, opened.describe()) == ("average", [1.0, 3.0], trained.describe())
    assert opened.predict(held_out.texts) == trained.predict(held_out.texts)
    opened.save(saved.with_name("again"))
    assert_same(trained, Ensemble.load(saved.with_name("again")), held_out.texts)


def test_a_description_has_those_of_the_models(trained: Ensemble) -> None:
    facts = trained.describe()
    assert (facts["recipe"], facts["rule"], facts["model_weights"]) == ("ensemble", "average", [1.0, 3.0])
    assert facts["models"] == [model.describe() for model in trained.models_]
    assert facts["weights"] == sum(model["weights"] for model in facts["models"])
    assert trained.takes_texts
    json.dumps(facts)


def test_the_same_ensemble_is_the_same_bytes(
    trained: Ensemble, made: Made, saved: Path, files_but_history: Files
) -> None:
    two(weights=[1, 3]).fit(made.texts, made.lists).save(saved.with_name("again"))
    assert files_but_history(saved.with_name("again")) == files_but_history(saved)


def test_a_member_of_a_saved_ensemble_is_a_model(trained: Ensemble, saved: Path, held_out: Made) -> None:
    assert_same(trained.models_[1], umpteen.load(next(saved.glob("model-1-*"))), held_out.texts)


def test_models_and_ensembles_replace_each_other(trained: Ensemble, fitted: Fitted, saved: Path, files: Files) -> None:
    before, folder = files(saved), saved.with_name("m")
    fitted("plt").save(folder)
    alone = files(folder)
    trained.save(folder)
    assert files(folder) == before
    (folder / "mine-0123456789abcdef.txt").write_text("mine")
    fitted("plt").save(folder)
    assert files(folder) == alone | {"mine-0123456789abcdef.txt": b"mine"}
    assert not list(folder.glob("model-*"))


def test_the_class_opens_its_own_folders_only(saved: Path, fitted: Fitted, tmp_path: Path) -> None:
    fitted("plt").save(tmp_path / "plt")
    with pytest.raises(BadModelFile, match=r"holds a ensemble model; open it with umpteen\.load"):
        XRLinear.load(saved)
    with pytest.raises(BadModelFile, match=r"holds a plt model; open it with umpteen\.load"):
        Ensemble.load(tmp_path / "plt")
    with pytest.raises(BadInput, match="verify must be one of"):
        umpteen.load(saved, verify="some")


def test_feature_rows_and_single_labels(rows: sp.csr_matrix, made: Made, tmp_path: Path) -> None:
    names = [row[0] for row in made.lists]
    ensemble = two(rule="rank-average").fit(rows, names)
    ensemble.save(tmp_path / "votes")
    opened = umpteen.load(tmp_path / "votes")
    assert (opened.takes_texts, opened.n_features_in_) == (False, rows.shape[1])
    assert opened.predict(rows[:9]).tolist() == ensemble.predict(rows[:9]).tolist()
    assert opened.classes_.tolist() == sorted(set(names))
    assert opened.decision_function(rows[:9]).shape == (9, len(opened.classes_))


def test_chosen_labels_get_the_weighted_mean(trained: Ensemble, held_out: Made) -> None:
    pairs = held_out.Y[:9]
    one, other = (model.score_labels(held_out.texts[:9], pairs) for model in trained.models_)
    found = trained.score_labels(iter(held_out.texts[:9]), pairs)
    np.testing.assert_allclose(found.toarray(), (one + 3 * other).toarray() / 4, rtol=1e-6)


def test_an_ensemble_with_an_encoder_is_saved(
    fitted: Fitted, made: Made, held_out: Made, tmp_path: Path, files: Files
) -> None:
    pytest.importorskip("torch")
    ensemble = Ensemble([fitted("xr-transformer"), fitted("full"), fitted("xr-linear")], rule="rank-average")
    ensemble.save(tmp_path / "votes")
    opened = umpteen.load(tmp_path / "votes", verify="full")
    shutil.move(tmp_path / "votes", tmp_path / "moved")  # its encoders are not loaded yet
    assert_same(ensemble, opened, held_out.texts[:9])
    opened.save(tmp_path / "again")
    assert files(tmp_path / "again") == files(tmp_path / "moved")


# Folders of strangers


def change(path: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))


def change_member(saved: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    """Change config.json of the first model, and its size in the table of the ensemble."""
    path = next(saved.glob("model-0-*")) / "config.json"
    change(path, edit)
    size = path.stat().st_size
    change(saved / "config.json", lambda config: config["files"]["model-0/config.json"].update(bytes=size))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rule", "none"), ("rule", []), ("rule", 7), ("rule", None), ("weights", [1]), ("weights", "12"),
        ("weights", [1, -1]), ("weights", {"a": 1, "b": 2}), ("weights", 3), ("weights", [0, 0]), ("weights", [[1], 2]),
    ],
)  # fmt: skip
def test_settings_are_checked(saved: Path, key: str, value: Any) -> None:
    change(saved / "config.json", lambda config: config["settings"].update({key: value}))
    with pytest.raises(BadModelFile, match="is not a whole umpteen model"):
        umpteen.load(saved)


@pytest.mark.parametrize("value", [0, -1, 3, 2**31 - 1, 2**40, "2", None, True, 1.5, [2]])
def test_the_number_of_models_is_checked(saved: Path, value: Any) -> None:
    change(saved / "config.json", lambda config: config["meta"].update(models=value))
    with pytest.raises(BadModelFile):
        umpteen.load(saved)


@pytest.mark.parametrize("weights", [[1e308, 1e308], [1e-320, 1e-320], [5e-324, 1e308]])
def test_weights_of_any_size_give_finite_scores(saved: Path, held_out: Made, weights: list[float]) -> None:
    change(saved / "config.json", lambda config: config["settings"].update(weights=weights))
    opened = umpteen.load(saved)
    assert np.isfinite(opened.topk(held_out.texts, 5).scores).all()
    assert np.isfinite(opened.score_labels(held_out.texts, held_out.Y).data).all()


@pytest.mark.parametrize("recipe", ["ensemble", "unknown", "../xr-linear", ""])
def test_members_are_models_of_a_recipe(saved: Path, recipe: str) -> None:
    change_member(saved, lambda config: config.update(recipe=recipe))
    with pytest.raises(BadModelFile, match="holds a model of the unknown recipe"):
        umpteen.load(saved)


def test_members_have_the_same_labels(fitted: Fitted, saved: Path, tmp_path: Path) -> None:
    other = two().fit(["red apple", "green pear"], [["red"], ["green"]])
    other.models_[1] = fitted("plt")
    other.save(tmp_path / "mixed")
    with pytest.raises(BadModelFile, match="labels that differ from the 2 of model 0"):
        umpteen.load(tmp_path / "mixed")


@pytest.mark.parametrize(
    "file", ["../model-1/config.json", "/etc/passwd", "x", "tree-0-0123456789abcdef.safetensors", "config.json", ".."]
)
def test_a_member_names_no_file_that_the_ensemble_does_not(saved: Path, file: str) -> None:
    change_member(saved, lambda config: config["files"]["tree-0.safetensors"].update(file=file))
    with pytest.raises(BadModelFile, match=r"where no save puts it|is not one that the folder above names"):
        umpteen.load(saved)


def test_a_file_in_the_folder_of_a_member_that_no_table_names_is_not_read(saved: Path) -> None:
    member = next(saved.glob("model-0-*"))
    tree = next(member.glob("tree-0-*"))
    (member / "tree-0-0123456789abcdef.safetensors").write_bytes(tree.read_bytes())
    entry = {"file": "tree-0-0123456789abcdef.safetensors"}
    change_member(saved, lambda config: config["files"]["tree-0.safetensors"].update(entry))
    with pytest.raises(BadModelFile, match="is not one that the folder above names"):
        umpteen.load(saved)


@pytest.mark.parametrize("name", ["model-0/../x", "model-0//etc/passwd", "../model-0/x", "model-0/.x", "model-0/nul"])
def test_names_of_files_of_members_are_checked(saved: Path, name: str) -> None:
    def edit(config: dict[str, Any]) -> None:
        config["files"][name] = config["files"]["model-0/config.json"]

    change(saved / "config.json", edit)
    with pytest.raises(BadModelFile, match="is not valid"):
        umpteen.load(saved)


@pytest.mark.parametrize("name", ["model-0/config.json", "model-1/config.json"])
def test_a_member_without_a_config_is_none(saved: Path, name: str) -> None:
    change(saved / "config.json", lambda config: config["files"].pop(name))
    with pytest.raises(BadModelFile, match=r"has no model 'model-\d'"):
        umpteen.load(saved)


@needs_links
@pytest.mark.parametrize("pattern", ["model-0-*", "model-0-*/config.json", "model-1-*/tree-0-*", "model-1-*/labels-*"])
def test_links_out_of_an_ensemble_are_refused(saved: Path, pattern: str) -> None:
    path = next(saved.glob(pattern))
    path.rename(saved.with_name("elsewhere"))
    path.symlink_to(saved.with_name("elsewhere"))
    with pytest.raises(BadModelFile, match="is a link that leaves the folder"):
        umpteen.load(saved)


@pytest.mark.parametrize("pattern", ["model-0-*/config.json", "model-1-*/tree-0-*", "model-1-*/labels-*"])
def test_every_byte_of_the_members_is_verified(saved: Path, pattern: str) -> None:
    path = next(saved.glob(pattern))
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    with pytest.raises(BadModelFile):
        umpteen.load(saved, verify="full")


def test_a_file_of_a_member_that_is_cut_is_refused(saved: Path) -> None:
    path = next(saved.glob("model-1-*/tree-0-*"))
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(BadModelFile, match="bytes where"):
        umpteen.load(saved)
