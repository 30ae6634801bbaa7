"""Model folders that earlier versions saved: they open, and answer the same.

``tests/data/format-N.zip`` holds models that were saved in format N, and what they answered.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

import umpteen
from tests.contract.conftest import NEURAL, needs_torch
from umpteen.store.folder import FORMAT

ARCHIVES = sorted((Path(__file__).parents[1] / "data").glob("format-*.zip"))
MODELS = [
    pytest.param(archive, name, id=f"{archive.stem}-{name}", marks=needs_torch if name in NEURAL else ())
    for archive in ARCHIVES
    for name in json.loads(zipfile.ZipFile(archive).read("expected.json"))["answers"]
]


def test_every_earlier_format_is_tried():
    assert [archive.stem for archive in ARCHIVES] == [f"format-{number}" for number in range(1, FORMAT)]


@pytest.mark.parametrize(("archive", "name"), MODELS)
def test_a_model_of_an_earlier_format_answers_the_same(archive, name, tmp_path):
    with zipfile.ZipFile(archive) as file:
        file.extractall(tmp_path)
    expected = json.loads((tmp_path / "expected.json").read_text())
    model = umpteen.load(tmp_path / name, verify="full")
    assert model.recipe == name
    for opened in (model, _saved_again(model, tmp_path / "again")):
        top = opened.topk(expected["texts"], 3)
        np.testing.assert_array_equal(top.labels, expected["answers"][name]["labels"])
        np.testing.assert_allclose(top.scores, expected["answers"][name]["scores"], atol=2e-5)


def _saved_again(model: umpteen.models.Model, folder: Path) -> umpteen.models.Model:
    model.save(folder)
    return umpteen.load(folder)
