"""The history of a training: callbacks get it, models keep it, folders hold it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import umpteen
from umpteen import Ensemble, XRLinear, store
from umpteen.errors import BadInput, BadModelFile
from umpteen.models import Model
from umpteen.store.records import format_bounded

from .conftest import Made

Small = Callable[..., Model]


def test_callbacks_get_the_history_that_is_saved(recipe: str, brief: Small, made: Made, tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    model = brief(recipe).fit(made.texts, made.lists, callbacks=[seen.append])
    assert model.history_
    assert seen == model.history_
    assert all(record["stage"] and record["seconds"] >= 0 for record in seen)
    model.save(tmp_path / "m")
    assert umpteen.load(tmp_path / "m", verify="full").history_ == model.history_


def test_linear_levels_have_nodes(small: Small, made: Made, tmp_path: Path) -> None:
    model = small("xr-linear").fit(made.texts, made.lists, checkpoint=tmp_path / "stages")
    sizes = model.heads_[0].tree.sizes
    assert [record["stage"] for record in model.history_] == [
        f"level {number} of {len(sizes)}" for number in range(1, len(sizes) + 1)
    ]
    assert [record["nodes"] for record in model.history_] == list(sizes)
    resumed = small("xr-linear").fit(made.texts, made.lists, checkpoint=tmp_path / "stages")
    assert resumed.history_ == model.history_  # seconds included: nothing was trained again


def test_trees_are_named(small: Small, made: Made) -> None:
    history = small("parabel").fit(made.texts, made.lists).history_
    assert [record["stage"].partition(":")[0] for record in history] == ["tree 1", "tree 2", "tree 3"]


def test_records_of_an_ensemble_name_the_model(small: Small, made: Made, tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    ensemble = Ensemble([small("xr-linear"), small("plt")])
    ensemble.fit(made.texts, made.lists, callbacks=[seen.append])
    assert {record["model"] for record in seen} == {1, 2}
    assert seen == ensemble.history_
    ensemble.save(tmp_path / "m")
    assert umpteen.load(tmp_path / "m").history_ == seen
    assert "model" not in ensemble.models_[0].history_[0]


def test_a_callback_cannot_change_the_history() -> None:
    model = XRLinear(threads=1).fit(["red apple", "green pear"], [["red"], ["green"]], callbacks=[dict.clear])
    assert model.history_[0]["stage"]


@pytest.mark.parametrize("callbacks", [print, ["print"], [None]])
def test_what_is_not_a_callback_is_refused(callbacks: Any) -> None:
    with pytest.raises(BadInput, match="callback"):
        XRLinear(threads=1).fit(["red apple", "green pear"], [["red"], ["green"]], callbacks=callbacks)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("history") / "m"
    XRLinear(threads=1).fit(["red apple", "green pear"], [["red"], ["green"]]).save(folder)
    return folder


def with_history(saved: Path, content: bytes | None) -> None:
    """Replace the history of a saved model, with a proper table of files."""
    config = json.loads((saved / "config.json").read_bytes())
    stored = store.read(saved)
    arrays = {stem: stored.arrays(stem) for stem in stored.stems}
    plain = {key: config[key] for key in ("recipe", "settings", "meta")}
    extra = {} if content is None else {"history.jsonl": content}
    store.write(saved, config=plain, arrays=arrays, labels=stored.labels, extra=extra)


@pytest.mark.parametrize(
    "content",
    [
        b"[1]\n", b"1\n", b"{}", b'{"a": [1]}\n', b'{"a": {"b": 1}}\n', b'{"a": NaN}\n', b'{"a": 1e999}\n', b"\xff\n",
        b"\n", b"[" * 100_000 + b"\n", json.dumps({str(key): 1 for key in range(65)}).encode() + b"\n",
    ],
)  # fmt: skip
def test_a_damaged_history_is_refused(saved: Path, content: bytes) -> None:
    with_history(saved, content)
    with pytest.raises(BadModelFile, match=r"history\.jsonl"):
        umpteen.load(saved)


def test_a_history_has_a_maximum_size(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_history(saved, b'{"stage": "a"}\n' * 10)
    assert len(umpteen.load(saved).history_) == 10
    monkeypatch.setattr("umpteen.store.records.MOST_RECORDS", 100)
    with pytest.raises(BadModelFile, match="at most"):
        umpteen.load(saved)


def test_a_model_may_have_no_history(saved: Path) -> None:
    with_history(saved, None)
    assert umpteen.load(saved).history_ == []


def test_what_is_too_long_is_thinned_out() -> None:
    records = [{"step": step} for step in range(1_000)]
    kept = store.parse_records(format_bounded(records, most=2_000), "test")
    assert kept == records[::8]
