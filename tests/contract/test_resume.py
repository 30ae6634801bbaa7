"""Interrupted training: nothing is lost, nothing is half done, and going on gives the same bytes.

Apart from the history: its times differ.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import umpteen
from umpteen import LabelTree
from umpteen.errors import BadInput
from umpteen.models import Model

from .conftest import LINEAR, N_LABELS, Made

Small = Callable[..., Model]
Files = Callable[[Path], dict[str, bytes]]


class Watcher:
    """A progress callback that notes the stages and may press Ctrl-C at one of them."""

    def __init__(self, stop_at: str = "", stop_when_done: bool = False):
        self.stages: list[str] = []
        self.stop_at, self.stop_when_done = stop_at, stop_when_done

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage not in self.stages:
            self.stages.append(stage)
        if stage == self.stop_at and done == (total if self.stop_when_done else 0):
            raise KeyboardInterrupt

    @property
    def trained(self) -> list[str]:
        """Stages of training, not those of reading the texts."""
        kinds = ("level", "fine-tuning", "training")
        return [stage for stage in self.stages if any(kind in stage for kind in kinds)]


def interrupt(model: Model, made: Made, stage: str, checkpoint: Path | None, *, when_done: bool = False) -> None:
    with pytest.raises(KeyboardInterrupt):
        model.fit(made.texts, made.lists, progress=Watcher(stage, when_done), checkpoint=checkpoint)


@pytest.fixture
def whole(recipe: str, brief: Small, made: Made, tmp_path: Path) -> tuple[Path, list[str]]:
    """A model trained without interruption, saved, and its stages."""
    watcher = Watcher()  # levels that need not be kept apart are trained together: stages show with a checkpoint
    brief(recipe).fit(made.texts, made.lists, progress=watcher, checkpoint=tmp_path / "seen")
    brief(recipe).fit(made.texts, made.lists).save(tmp_path / "whole")
    return tmp_path / "whole", watcher.trained


@pytest.mark.parametrize(("threads", "when_done"), [(1, False), (2, True)])
def test_going_on_after_any_stage_gives_the_same_bytes(
    recipe: str, brief: Small, made: Made, tmp_path: Path, files_but_history: Files, whole: tuple[Path, list[str]],
    threads: int, when_done: bool,
) -> None:  # fmt: skip
    saved, stages = whole
    assert stages
    for number, stage in enumerate(stages[:: max(1, len(stages) // 4)]):
        folder, target = tmp_path / f"stages {number}", tmp_path / f"resumed {number}"
        threads = threads if recipe in LINEAR else 1  # torch adds up in another order on more threads
        interrupt(brief(recipe, threads=threads), made, stage, folder, when_done=when_done)
        brief(recipe).fit(made.texts, made.lists, checkpoint=folder).save(target)
        assert files_but_history(target) == files_but_history(saved)


def test_finished_stages_are_not_trained_again(recipe: str, brief: Small, made: Made, tmp_path: Path) -> None:
    first, second = Watcher(), Watcher()
    whole = brief(recipe).fit(made.texts, made.lists, progress=first, checkpoint=tmp_path / "stages")
    assert first.trained
    again = brief(recipe).fit(made.texts, made.lists, progress=second, checkpoint=tmp_path / "stages")
    assert second.trained == []  # a run that died before it could save does not start over
    one, other = whole.topk(made.texts, 5), again.topk(made.texts, 5)
    np.testing.assert_array_equal(one.labels, other.labels)
    np.testing.assert_array_equal(one.scores, other.scores)


def test_the_last_interrupted_stage_is_where_it_goes_on(small: Small, made: Made, tmp_path: Path) -> None:
    watcher = Watcher()
    small("xr-linear").fit(made.texts, made.lists, progress=watcher, checkpoint=tmp_path / "seen")
    assert len(watcher.trained) >= 4  # levels of the tree, then the levels' weights
    interrupt(small("xr-linear"), made, watcher.trained[-1], tmp_path / "stages")
    resumed = Watcher()
    small("xr-linear").fit(made.texts, made.lists, progress=resumed, checkpoint=tmp_path / "stages")
    assert resumed.trained == watcher.trained[-1:]


def test_stages_are_removed_when_the_model_is_saved(recipe: str, brief: Small, made: Made, tmp_path: Path) -> None:
    stages = tmp_path / "stages"
    model = brief(recipe).fit(made.texts, made.lists, checkpoint=stages)
    assert any(stages.rglob("*.safetensors"))
    model.save(tmp_path / "model")
    assert not stages.exists()
    model.save(tmp_path / "model")  # nothing left to remove


def test_other_files_in_the_folder_are_left_alone(small: Small, made: Made, tmp_path: Path) -> None:
    (tmp_path / "stages").mkdir()
    (tmp_path / "stages" / "notes.txt").write_text("mine")
    model = small("parabel").fit(made.texts, made.lists, checkpoint=tmp_path / "stages")
    model.save(tmp_path / "model")
    assert [path.name for path in (tmp_path / "stages").iterdir()] == ["notes.txt"]


def test_a_run_removes_nobody_elses_stages(small: Small, made: Made, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    mine = [Path("finetuning/thesis.safetensors"), Path("tree-0/a.safetensors"), Path("tree-oak/.tmp-1.safetensors")]
    for path in mine:
        path.parent.mkdir()
        path.write_text("mine")
    interrupt(small("xr-linear", seed=1), made, "level 2 of 3", Path())
    other = set(Path().rglob("*.safetensors")) - set(mine)
    assert other
    model = small("xr-linear").fit(made.texts, made.lists, checkpoint=".")
    assert set(Path().rglob("*.safetensors")) > other | set(mine)
    model.save("tags")
    assert {path for path in Path().rglob("*.safetensors") if path.parts[0] != "tags"} == other | set(mine)
    watcher = Watcher()
    small("xr-linear", seed=1).fit(made.texts, made.lists, checkpoint=".", progress=watcher).save("tags")
    assert "level 2 of 3" in watcher.trained
    assert "tree level 1" not in watcher.trained  # the interrupted run went on
    assert sorted(os.listdir()) == ["finetuning", "tags", "tree-0", "tree-oak"]
    assert {path for path in Path().rglob("*.safetensors") if path.parts[0] != "tags"} == set(mine)


def test_a_checkpoint_that_cannot_be_used_is_told_before_training(small: Small, made: Made, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for checkpoint in (tmp_path / "file", tmp_path / "file" / "stages"):
        watcher = Watcher()
        with pytest.raises(BadInput, match="stages"):
            small("xr-linear").fit(made.texts, made.lists, progress=watcher, checkpoint=checkpoint)
        assert watcher.stages == []


@pytest.mark.parametrize("recipe", ["xr-linear", "xr-transformer", "lightxml"])
@pytest.mark.parametrize("change", ["labels", "texts", "settings", "words", "seed", "tree"])
def test_stages_of_other_work_are_not_used(
    recipe: str, brief: Small, made: Made, tmp_path: Path, files_but_history: Files, change: str
) -> None:
    stages = tmp_path / "stages"
    flat = LabelTree.flat(N_LABELS)
    old_tree = flat if change == "tree" else None
    before = brief(recipe).fit(made.texts, made.Y, tree=old_tree, checkpoint=stages)
    texts = made.texts[::-1] if change == "texts" else made.texts
    Y = made.Y[::-1] if change == "labels" else made.Y
    other = {"training.learning_rate": 1e-3} if recipe == "lightxml" else {"linear.cost": 2.0}
    changed = {"settings": other, "words": {"tfidf.ngram_max": 1}, "seed": {"seed": 5}}
    settings = changed.get(change, {})
    groups = [list(range(i, i + 10)) for i in range(0, N_LABELS, 10)]
    tree = LabelTree.from_groups(groups) if change == "tree" else None
    fresh = brief(recipe, **settings).fit(texts, Y, tree=tree)
    assert (fresh.topk(made.texts, 5).scores != before.topk(made.texts, 5).scores).any()  # it is other work
    fresh.save(tmp_path / "fresh")
    brief(recipe, **settings).fit(texts, Y, tree=tree, checkpoint=stages).save(tmp_path / "resumed")
    assert files_but_history(tmp_path / "resumed") == files_but_history(tmp_path / "fresh")


def test_threads_may_differ_between_the_runs(small: Small, made: Made, tmp_path: Path) -> None:
    small("plt").fit(made.texts, made.lists, checkpoint=tmp_path / "stages")
    watcher = Watcher()
    small("plt", threads=2).fit(made.texts, made.lists, progress=watcher, checkpoint=tmp_path / "stages")
    assert watcher.stages
    assert watcher.trained == []


@pytest.mark.parametrize(
    ("recipe", "advice"),
    [
        ("xr-transformer", {"encoder.batch_tokens": 4_096, "encoder.gradient_checkpointing": True}),
        ("cascadexml-dismec", {"encoder.batch_tokens": 4_096, "training.cuda_graphs": False, "encoder.compile": "off"}),
    ],
)
def test_advice_for_want_of_memory_keeps_finished_stages(
    brief: Small, made: Made, tmp_path: Path, recipe: str, advice: dict[str, Any]
) -> None:
    brief(recipe).fit(made.texts, made.lists, checkpoint=tmp_path / "stages")
    watcher = Watcher()
    brief(recipe, **advice).fit(made.texts, made.lists, progress=watcher, checkpoint=tmp_path / "stages")
    assert watcher.trained == []


@pytest.mark.parametrize("recipe", ["xr-linear", "xr-transformer"])
def test_a_damaged_stage_is_trained_again(
    recipe: str, small: Small, made: Made, tmp_path: Path, files_but_history: Files
) -> None:
    small(recipe).fit(made.texts, made.lists).save(tmp_path / "whole")
    small(recipe).fit(made.texts, made.lists, checkpoint=tmp_path / "stages")
    damaged = list((tmp_path / "stages").rglob("*.safetensors"))
    assert damaged
    for path in damaged:
        path.write_bytes(path.read_bytes()[:100])
    model = small(recipe).fit(made.texts, made.lists, checkpoint=tmp_path / "stages")
    model.save(tmp_path / "again")
    assert files_but_history(tmp_path / "again") == files_but_history(tmp_path / "whole")


def test_an_interrupted_fit_keeps_the_old_model(recipe: str, small: Small, made: Made, tmp_path: Path) -> None:
    model = small(recipe).fit(["red apple", "green pear"], [["red"], ["green"]])
    before = model.topk(["red"], 2)
    watcher = Watcher()
    small(recipe).fit(made.texts, made.lists, progress=watcher)
    interrupt(model, made, watcher.trained[-1], None)
    after = model.topk(["red"], 2)
    assert after.names == before.names
    np.testing.assert_array_equal(after.scores, before.scores)
    assert sorted(model.classes_) == ["green", "red"]
    model.save(tmp_path / "model")
    assert umpteen.load(tmp_path / "model").topk(["red"], 1).names == [["red"]]


KILLED = """
import json, os, signal, sys
from pathlib import Path
from contract.conftest import make
from umpteen.models import create

stages, wanted, settings = Path(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])

def progress(stage, done, total):
    if len(list(stages.rglob("*.safetensors"))) >= wanted:
        os.kill(os.getpid(), signal.SIGKILL)

made = make(600, seed=1)
create(sys.argv[1], settings).fit(made.texts, made.lists, progress=progress, checkpoint=stages)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system cannot kill -9")
@pytest.mark.parametrize(("recipe", "n_stages"), [("xr-linear", 2), ("parabel", 2), ("xr-transformer", 3)])
def test_a_killed_process_can_be_resumed(
    recipe: str, n_stages: int, small: Small, settings_of: Callable[[str], dict[str, Any]], made: Made,
    tmp_path: Path, files_but_history: Files, whole: tuple[Path, list[str]],
) -> None:  # fmt: skip
    saved, _ = whole
    stages = tmp_path / "stages"
    here = Path(__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(here.parent), str(here)])}
    command = [sys.executable, "-c", KILLED, recipe, str(stages), str(n_stages), json.dumps(settings_of(recipe))]
    killed = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    watcher = Watcher()
    model = small(recipe).fit(made.texts, made.lists, progress=watcher, checkpoint=stages)
    model.save(tmp_path / "resumed")
    assert files_but_history(tmp_path / "resumed") == files_but_history(saved)
    assert not stages.exists()
