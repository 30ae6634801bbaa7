"""What the routes answer, and that it is what the model says."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import numpy as np
import pytest

from tests.serve.conftest import async_client, client_of
from umpteen import XRLinear
from umpteen.config.serving import ServeConfig
from umpteen.errors import BadInput
from umpteen.serve.app import create_app


def asked(model: XRLinear, texts: list[str], k: int = 5, **options: Any) -> list[list[str]]:
    """Return the keys that the model itself predicts."""
    return [model.labels_.keys(labels) for labels, _ in model.topk(texts, k, **options)]


def keys(response: Any) -> list[list[str]]:
    assert response.status_code == 200, response.text
    return [[one["label"] for one in row] for row in response.json()["predictions"]]


def test_predictions_are_those_of_the_model(api: Any, model: XRLinear, tiny: Any) -> None:
    response = api.post("/v1/predict", json={"texts": tiny.texts[:20], "k": 7})
    top = model.topk(tiny.texts[:20], 7)
    assert keys(response) == asked(model, tiny.texts[:20], 7)
    assert response.json()["model"] == "tags"
    rows = response.json()["predictions"]
    assert [[one["name"] for one in row] for row in rows] == top.names
    scores = np.array([[one["score"] for one in row] for row in rows], np.float32)
    np.testing.assert_allclose(scores, top.scores, rtol=1e-6)
    assert {one["probability"] for row in rows for one in row} == {None}


def test_k_is_five_by_default(api: Any, tiny: Any) -> None:
    assert [len(row) for row in keys(api.post("/v1/predict", json={"texts": tiny.texts[:3]}))] == [5, 5, 5]


def test_threshold_leaves_out_what_scores_less(api: Any, model: XRLinear, tiny: Any) -> None:
    scores = model.topk(tiny.texts[:1], 10).scores[0]
    threshold = float(scores[2] + scores[3]) / 2
    found = keys(api.post("/v1/predict", json={"texts": tiny.texts[:1], "k": 10, "threshold": threshold}))
    assert found == [asked(model, tiny.texts[:1], 3)[0]]


def test_a_threshold_that_is_no_probability_is_refused(tiny: Any) -> None:
    model = XRLinear(threads=1).fit(tiny.texts, tiny.Y, label_names=tiny.label_names)
    model.calibrate(tiny.texts, tiny.Y)
    with client_of(create_app({"tags": model}, ServeConfig())) as api:
        response = api.post("/v1/predict", json={"texts": tiny.texts[:1], "threshold": 1.5})
        assert (response.status_code, response.json()["error"]["code"]) == (422, "invalid_request")


def test_only_allowed_labels(api: Any, model: XRLinear, tiny: Any) -> None:
    allowed = [model.labels_.keys([7])[0], model.labels_.names([9])[0]]  # by key and by name
    found = keys(api.post("/v1/predict", json={"texts": tiny.texts[:2], "allowed": allowed}))
    assert found == asked(model, tiny.texts[:2], 5, allowed=[7, 9])


def test_without_k_the_model_decides(tiny: Any) -> None:
    model = XRLinear(threads=1).fit(tiny.texts, tiny.Y).calibrate(tiny.texts, tiny.Y)
    with client_of(create_app({"tags": model})) as client:
        response = client.post("/v1/predict", json={"texts": tiny.texts[:9], "k": None})
        wanted = model.predict(tiny.texts[:9])
        assert [sorted(map(int, row)) for row in keys(response)] == [sorted(row.indices) for row in wanted]
        probabilities = [one["probability"] for row in response.json()["predictions"] for one in row]
        assert all(0 < p <= 1 for p in probabilities)
        about = client.get("/v1/models").json()["models"][0]
        assert about["calibrated"] is True
        assert about["threshold"] == model.describe()["threshold"]


def test_models_by_name(model: XRLinear, other: XRLinear, tiny: Any) -> None:
    with client_of(create_app({"old": model, "new": other})) as client:
        assert [one["id"] for one in client.get("/v1/models").json()["models"]] == ["old", "new"]
        names = {}
        for name in (None, "old", "new"):
            found = client.post("/v1/predict", json={"texts": tiny.texts[:1], "model": name}).json()
            names[name] = (found["model"], found["predictions"][0][0]["name"].startswith("new "))
        assert names == {None: ("old", False), "old": ("old", False), "new": ("new", True)}
        assert client.post("/v1/predict", json={"texts": ["x"], "model": "none"}).status_code == 404


def test_explanations_are_those_of_the_model(api: Any, model: XRLinear, tiny: Any) -> None:
    label = model.labels_.keys([3])[0]
    response = api.post("/v1/explain", json={"text": tiny.texts[0], "label": label, "k": 4})
    wanted = json.loads(json.dumps(model.explain(tiny.texts[0], 3, 4).to_dict()))
    assert response.json() == {"model": "tags", **wanted}
    best = api.post("/v1/explain", json={"text": tiny.texts[0]}).json()
    assert best["rank"] == 1
    assert best["key"] == asked(model, tiny.texts[:1])[0][0]


def test_labels_by_name(api: Any, model: XRLinear) -> None:
    found = api.get("/v1/labels", params={"q": "LABEL 1", "limit": 3}).json()
    names = [name for name in model.labels_.names() if name.startswith("label 1")]
    assert [one["name"] for one in found["labels"]] == names[:3]
    assert found["labels"][0]["label"] == model.labels_.keys([model.labels_.names().index(names[0])])[0]
    assert len(api.get("/v1/labels").json()["labels"]) == 20


def test_about_the_models(api: Any, model: XRLinear) -> None:
    (about,) = api.get("/v1/models").json()["models"]
    wanted = {"id": "tags", "recipe": "xr-linear", "labels": 60, "input": "texts", "calibrated": False, "limit": None}
    assert about.items() >= wanted.items()
    assert {"threshold", "version", "loaded_at"} <= set(about)


def test_a_model_of_feature_rows_is_refused(tiny: Any) -> None:
    with pytest.raises(BadInput, match="feature rows"):
        create_app({"rows": XRLinear(threads=1).fit(tiny.X, tiny.Y)})


def test_no_model_is_refused() -> None:
    with pytest.raises(BadInput, match="no model to serve"):
        create_app({})


def test_the_page_and_its_headers(api: Any) -> None:
    for path in ("/", "/docs", "/docs.js", "/docs.css"):
        response = api.get(path)
        assert response.status_code == 200, path
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "http://" not in response.text.replace("http://www.w3.org/", "")
        assert "https://" not in response.text
    assert api.get("/").headers["content-type"].startswith("text/html")


def test_the_document_lists_every_route(api: Any) -> None:
    document = api.get("/openapi.json").json()
    wanted = {
        "/v1/predict", "/v1/explain", "/v1/models", "/v1/labels", "/v1/admin/reload", "/healthz", "/readyz", "/metrics",
        "/v1/projects", "/v1/projects/{project_id}", "/v1/projects/{project_id}/suggest",
        "/v1/projects/{project_id}/suggest-batch",
    }  # fmt: skip
    assert wanted <= set(document["paths"])
    body = document["components"]["schemas"]["PredictRequest"]
    assert body["properties"]["texts"]["maxItems"] == ServeConfig().max_texts


def test_the_document_has_the_limits_of_the_server(model: XRLinear) -> None:
    with client_of(create_app({"tags": model}, ServeConfig(max_texts=3, max_k=7))) as client:
        properties = client.get("/openapi.json").json()["components"]["schemas"]["PredictRequest"]["properties"]
        assert properties["texts"]["maxItems"] == 3
        assert properties["k"]["anyOf"][0]["maximum"] == 7


def test_metrics_count_requests_and_texts(api: Any, tiny: Any) -> None:
    api.post("/v1/predict", json={"texts": tiny.texts[:4]})
    api.post("/v1/predict", content=b"{", headers={"content-type": "application/json"})
    lines = api.get("/metrics").text.splitlines()
    assert 'umpteen_requests_total{route="/v1/predict",status="200"} 1.0' in lines
    assert 'umpteen_requests_total{route="/v1/predict",status="400"} 1.0' in lines
    assert "umpteen_texts_total 4.0" in lines
    assert "umpteen_waiting_texts 0.0" in lines


def test_a_server_is_not_ready_before_its_models_are(folder: Any) -> None:
    """Folders are opened while the application runs already."""

    async def statuses() -> tuple[int, int, int]:
        app = create_app({"tags": folder})
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://server") as client:
            before = [(await client.get(path)).status_code for path in ("/healthz", "/readyz")]
        async with async_client(app) as client:
            return (*before, (await client.get("/readyz")).status_code)

    assert asyncio.run(statuses()) == (200, 503, 200)
