"""Models that are replaced while they are used, keys, timeouts and logs."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.serve.conftest import async_client, client_of, events, wait_for
from umpteen import XRLinear
from umpteen.config.serving import ServeConfig
from umpteen.serve.app import create_app
from umpteen.serve.logs import Log

KEY = "correct-horse-battery"
BEARER = {"Authorization": f"Bearer {KEY}"}


def names(response: Any) -> list[str]:
    return [one["name"] for one in response.json()["predictions"][0]]


# Replacing a model


def test_a_new_folder_is_served_on_request(folder: Path, other: XRLinear, tiny: Any) -> None:
    with client_of(create_app({"tags": folder}, ServeConfig(watch=0), api_key=KEY)) as client:
        client.headers.update(BEARER)
        ask = {"texts": tiny.texts[:1]}
        before = client.get("/v1/models").json()["models"][0]["version"]
        assert client.post("/v1/admin/reload").json() == {"changed": {"tags": False}}
        old = names(client.post("/v1/predict", json=ask))
        other.save(folder)
        assert names(client.post("/v1/predict", json=ask)) == old
        assert client.post("/v1/admin/reload", json={"model": "tags"}).json() == {"changed": {"tags": True}}
        assert names(client.post("/v1/predict", json=ask)) == [f"new {name}" for name in old]
        assert client.get("/v1/models").json()["models"][0]["version"] != before
        assert 'umpteen_reloads_total{model="tags",result="done"} 1.0' in client.get("/metrics").text
        assert client.post("/v1/admin/reload", json={"model": "none"}).status_code == 404


def test_a_damaged_folder_leaves_the_old_model_in_use(folder: Path, log: io.StringIO, tiny: Any) -> None:
    app = create_app({"tags": folder}, ServeConfig(watch=0), api_key=KEY, log=Log(log))
    with client_of(app) as client:
        client.headers.update(BEARER)
        (folder / "config.json").write_text("{}")
        response = client.post("/v1/admin/reload")
        assert (response.status_code, response.json()["error"]["code"]) == (409, "reload_failed")
        assert str(folder) not in response.text
        assert client.post("/v1/predict", json={"texts": tiny.texts[:1]}).status_code == 200
    (failed,) = [event for event in events(log) if event["event"] == "reload_failed"]
    assert failed["level"] == "error"
    assert "config.json" in failed["error"]


def test_a_folder_that_is_still_being_copied_is_tried_again(
    folder: Path, other: XRLinear, tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``config.json`` arrives first, the files that it names later."""
    monkeypatch.setattr("umpteen.serve.service._LONGEST_WAIT", 0.0)
    other.save(tmp_path / "next")
    app = create_app({"tags": folder}, ServeConfig(watch=0.01))
    entry = app.state.service.entries["tags"]
    with client_of(app) as client:
        shutil.copy(tmp_path / "next" / "config.json", folder / "config.json")
        wait_for(lambda: entry.n_failures)
        assert not names(client.post("/v1/predict", json={"texts": tiny.texts[:1]}))[0].startswith("new ")
        shutil.copytree(tmp_path / "next", folder, dirs_exist_ok=True)
        wait_for(lambda: names(client.post("/v1/predict", json={"texts": tiny.texts[:1]}))[0].startswith("new "))
        assert entry.n_failures == 0


def test_swaps_under_load_lose_nothing(folder: Path, model: XRLinear, other: XRLinear, tiny: Any) -> None:
    """Every answer is one of either model, whole; after the last swap it is that of the last model."""

    async def run() -> tuple[list[Any], Any]:
        app = create_app({"tags": folder}, ServeConfig(watch=0.01, access_log=False))
        async with async_client(app) as client:
            answers: list[Any] = []
            is_over = asyncio.Event()

            async def ask() -> None:
                while not is_over.is_set():
                    answers.append(await client.post("/v1/predict", json={"texts": tiny.texts[:2]}))

            tasks = [asyncio.create_task(ask()) for _ in range(4)]
            service = app.state.service
            for turn in range(4):
                before = service.entries["tags"].loaded
                await asyncio.to_thread((other, model)[turn % 2].save, folder)
                while service.entries["tags"].loaded is before:
                    await asyncio.sleep(0.005)
            is_over.set()
            await asyncio.gather(*tasks)
            return answers, await client.post("/v1/predict", json={"texts": tiny.texts[:2]})

    answers, last = asyncio.run(run())
    old = model.topk(tiny.texts[:2], 5).names
    wanted = [old, [[f"new {name}" for name in row] for row in old]]
    found = [[[one["name"] for one in row] for row in answer.json()["predictions"]] for answer in answers]
    assert {answer.status_code for answer in answers} == {200}
    assert all(one in wanted for one in found)
    assert all(one in found for one in wanted)
    assert [[one["name"] for one in row] for row in last.json()["predictions"]] == old


def test_a_folder_may_be_a_link_to_the_newest(folder: Path, other: XRLinear, tiny: Any, tmp_path: Path) -> None:
    link = tmp_path / "current"
    link.symlink_to(folder)
    other.save(tmp_path / "next")
    with client_of(create_app({"tags": link}, ServeConfig(watch=0), api_key=KEY)) as client:
        client.headers.update(BEARER)
        (tmp_path / "link").symlink_to(tmp_path / "next")
        (tmp_path / "link").replace(link)
        assert client.post("/v1/admin/reload").json() == {"changed": {"tags": True}}
        assert names(client.post("/v1/predict", json={"texts": tiny.texts[:1]}))[0].startswith("new ")


# Keys


@pytest.mark.parametrize(
    "headers",
    [BEARER, {"X-API-Key": KEY}, {"Authorization": "Basic " + base64.b64encode(f"annif:{KEY}".encode()).decode()}],
)
def test_a_key_opens_the_api(model: XRLinear, tiny: Any, headers: dict[str, str]) -> None:
    app = create_app({"tags": model}, api_key=KEY)
    with client_of(app) as client:
        assert client.post("/v1/predict", json={"texts": tiny.texts[:1]}, headers=headers).status_code == 200
        assert client.post("/v1/admin/reload", headers=headers).status_code == 200
        assert client.get("/metrics", headers=headers).status_code == 200


WRONG = {
    "none": {},
    "another": {"Authorization": "Bearer wrong-horse-battery"},
    "a prefix": {"Authorization": f"Bearer {KEY[:-1]}"},
    "empty": {"Authorization": "Bearer "},
    "no base64": {"Authorization": "Basic \xff"},
    "in the query": {},
}


@pytest.mark.parametrize("headers", WRONG.values(), ids=WRONG)
def test_without_the_key_there_is_nothing(model: XRLinear, log: io.StringIO, headers: dict[str, str]) -> None:
    app = create_app({"tags": model}, api_key=KEY, log=Log(log))
    with client_of(app) as client:
        for path in ("/v1/models", f"/v1/labels?key={KEY}", "/metrics", "/v1/projects", "/v1/nothing"):
            response = client.get(path, headers={k: v.encode("latin-1") for k, v in headers.items()})
            assert (response.status_code, response.json()["error"]["code"]) == (401, "unauthorized")
            assert response.headers["www-authenticate"] == "Bearer"
        assert client.post("/v1/predict", json={"texts": ["x"]}).status_code == 401
        assert client.post("/v1/admin/reload").status_code == 401
        for path in ("/", "/healthz", "/readyz", "/docs", "/openapi.json"):
            assert client.get(path).status_code == 200
    assert KEY not in log.getvalue()


def test_administration_needs_a_key(api: Any) -> None:
    response = api.post("/v1/admin/reload")
    assert (response.status_code, response.json()["error"]["code"]) == (403, "no_api_key")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("testserver", 200),
        ("TESTSERVER:8000", 200),
        ("[::1]:80", 200),
        ("rebound.example", 403),
        ("[::2]", 403),
        ("", 403),
    ],
)
def test_host_names_may_be_limited(model: XRLinear, host: str, status: int) -> None:
    app = create_app({"tags": model}, ServeConfig(hosts=("testserver", "[::1]")))
    with client_of(app) as client:
        response = client.get("/v1/models", headers={"Host": host})
    assert response.status_code == status
    assert status == 200 or response.json()["error"]["code"] == "unknown_host"


# Time


def test_a_request_that_takes_too_long_is_given_up(model: XRLinear, tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    app = create_app({"tags": model}, ServeConfig(request_timeout=0.1))
    may_go = threading.Event()
    with client_of(app) as client:
        topk = type(model).topk
        monkeypatch.setattr(type(model), "topk", lambda *args, **options: may_go.wait(30) and topk(*args, **options))
        response = client.post("/v1/predict", json={"texts": tiny.texts[:1]})
        may_go.set()
        assert (response.status_code, response.json()["error"]["code"]) == (503, "timeout")
        assert "retry-after" in response.headers
        monkeypatch.undo()
        assert client.post("/v1/predict", json={"texts": tiny.texts[:1]}).status_code in (200, 503)


def test_an_error_inside_is_a_500_without_its_words(
    model: XRLinear, tiny: Any, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise RuntimeError("a secret text")

    with client_of(create_app({"tags": model}, log=Log(log))) as client:
        monkeypatch.setattr(type(model), "topk", fail)
        response = client.post("/v1/predict", json={"texts": tiny.texts[:1]})
    assert (response.status_code, response.json()["error"]["code"]) == (500, "internal")
    assert "secret" not in response.text + log.getvalue()
    (failed,) = [event for event in events(log) if event["event"] == "failed"]
    assert failed["error"].startswith("RuntimeError at tests/serve/test_service.py:")
    assert failed["id"] == response.headers["x-request-id"]


# Logs


def test_a_log_has_no_text(api: Any, log: io.StringIO) -> None:
    secret = "Rumpelstilzchen"
    api.post("/v1/predict", json={"texts": [secret, secret]})
    api.post("/v1/explain", json={"text": secret})
    api.get("/v1/labels", params={"q": secret})
    api.post("/v1/projects/tags/suggest", data={"text": secret})
    api.get(f"/{secret}")
    assert secret not in log.getvalue()
    requests = [event for event in events(log) if event["event"] == "request" and event["route"] != "/readyz"]
    routes = ["/v1/predict", "/v1/explain", "/v1/labels", "/v1/projects/{project_id}/suggest", "other"]
    assert [event["route"] for event in requests] == routes
    assert requests[0]["n_texts"] == 2
    assert {"time", "level", "id", "method", "status", "ms", "bytes"} <= set(requests[0])


def test_texts_are_logged_if_that_is_wanted(model: XRLinear, log: io.StringIO) -> None:
    app = create_app({"tags": model}, ServeConfig(log_texts=True), log=Log(log))
    with client_of(app) as client:
        client.post("/v1/predict", json={"texts": ["a\nline"]})
    (event,) = [event for event in events(log) if event.get("route") == "/v1/predict"]
    assert event["texts"] == ["a\nline"]


def test_no_line_per_request_if_that_is_wanted(model: XRLinear, log: io.StringIO) -> None:
    with client_of(create_app({"tags": model}, ServeConfig(access_log=False), log=Log(log))) as client:
        client.post("/v1/predict", json={"texts": ["a"]})
    assert [event["event"] for event in events(log)] == ["ready"]


def test_a_log_that_cannot_be_written_stops_nothing() -> None:
    stream = io.StringIO()
    stream.close()
    log = Log(stream)
    log.event("ready")
    log.event("request")  # nor does the next one
    assert stream.closed


def test_places_of_errors_are_plain() -> None:
    from umpteen.serve.logs import place_of

    assert place_of(ValueError("text")) == "ValueError"
    assert json.dumps(place_of(ValueError("text")))
