"""Annif's REST dialect: shapes of its answers, and scores that Annif accepts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from umpteen import XRLinear


def test_projects(api: Any) -> None:
    (project,) = api.get("/v1/projects").json()["projects"]
    assert project == api.get("/v1/projects/tags").json()
    assert project["project_id"] == "tags"
    assert project["is_trained"] is True
    assert project["backend"] == {"backend_id": "umpteen-xr-linear"}
    assert project["vocab"] == {"vocab_id": "tags", "languages": ["und"], "size": 60, "loaded": True}
    assert "T" in project["modification_time"]


@pytest.mark.parametrize("kind", ["form", "multipart", "json"])
def test_suggestions_are_predictions(api: Any, model: XRLinear, tiny: Any, kind: str) -> None:
    values = {"text": tiny.texts[0], "limit": 3, "threshold": 0.0, "language": "en", "metadata_title": "x"}
    how = {
        "form": {"data": values},
        "multipart": {"files": {key: (None, str(value)) for key, value in values.items()}},
        "json": {"json": values},
    }[kind]
    results = api.post("/v1/projects/tags/suggest", **how).json()["results"]
    top = model.topk(tiny.texts[:1], 3)
    assert [one["uri"] for one in results] == model.labels_.keys(top.labels[0])
    assert [one["label"] for one in results] == top.names[0]
    assert {one["notation"] for one in results} == {None}
    assert all(0 < one["score"] <= 1 for one in results)


def test_limit_and_threshold(api: Any, model: XRLinear, tiny: Any) -> None:
    def suggest(**values: Any) -> list[Any]:
        return api.post("/v1/projects/tags/suggest", data={"text": tiny.texts[0], **values}).json()["results"]

    scores = [one["score"] for one in suggest()]
    assert len(scores) == 10
    assert suggest(limit=0) == []
    assert len(suggest(limit=1_000_000)) <= 60
    assert len(suggest(threshold=scores[2])) == 3


def test_batches(api: Any, tiny: Any) -> None:
    documents = [{"text": text, "document_id": f"d{i}"} for i, text in enumerate(tiny.texts[:3])]
    documents.append({"text": tiny.texts[3], "metadata": {"title": "x"}})
    answers = api.post("/v1/projects/tags/suggest-batch?limit=2", json={"documents": documents}).json()
    assert [one["document_id"] for one in answers] == ["d0", "d1", "d2", None]
    for text, answer in zip(tiny.texts[:4], answers, strict=True):
        alone = api.post("/v1/projects/tags/suggest", data={"text": text, "limit": 2}).json()["results"]
        assert [one["uri"] for one in answer["results"]] == [one["uri"] for one in alone]


def test_a_file_is_no_text(api: Any) -> None:
    response = api.post("/v1/projects/tags/suggest", files={"text": ("a.txt", b"x")})
    assert response.status_code == 400
    assert set(response.json()) == {"error"}


def test_probabilities_are_scores(tiny: Any) -> None:
    from tests.serve.conftest import client_of
    from umpteen.serve.app import create_app

    model = XRLinear(threads=1).fit(tiny.texts, tiny.Y).calibrate(tiny.texts, tiny.Y)
    with client_of(create_app({"tags": model})) as client:
        found = client.post("/v1/projects/tags/suggest", data={"text": tiny.texts[0]}).json()["results"]
    top = model.topk(tiny.texts[:1], 10)
    wanted = [float(p) for p in top.probabilities[0] if p > 0]
    assert [one["score"] for one in found] == pytest.approx(wanted)
    assert json.dumps(found)
