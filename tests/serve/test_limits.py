"""Requests that cannot be answered: a clear 4xx, whose words never repeat what was sent."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.serve.conftest import client_of
from umpteen import XRLinear
from umpteen.config.serving import ServeConfig
from umpteen.serve.app import create_app
from umpteen.serve.logs import Log

JSON = {"content-type": "application/json"}
SECRET = "Rumpelstilzchen"  # in what is sent, never in what comes back
LIMITS = ServeConfig(max_body=20_000, max_texts=4, max_characters=300, max_k=9, max_allowed=3, body_timeout=0.2)


@pytest.fixture
def small(model: XRLinear, log: io.StringIO) -> Iterator[Any]:
    """A client of an application with low limits."""
    with client_of(create_app({"tags": model}, LIMITS, log=Log(log))) as client:
        yield client


def predict(**values: Any) -> tuple[str, bytes]:
    return "/v1/predict", json.dumps({"texts": [SECRET], **values}).encode()


BAD = {
    "not JSON": (("/v1/predict", b'{"texts": ["Rumpelstilzchen'), 400, "bad_json"),
    "nothing": (("/v1/predict", b""), 400, "bad_json"),
    "not UTF-8": (("/v1/predict", b'{"texts": ["\xff\xfe Rumpelstilzchen"]}'), 400, "bad_json"),
    "nested deeply": (("/v1/predict", b"[" * 9_000), 400, "bad_json"),
    "a huge number": (("/v1/predict", b'{"texts": ["x"], "k": ' + b"9" * 6_000 + b"}"), 400, "bad_json"),
    "a list": (("/v1/predict", b'["Rumpelstilzchen"]'), 422, "invalid_request"),
    "an unknown field": (predict(Rumpelstilzchen=1), 422, "invalid_request"),
    "no texts": (("/v1/predict", b"{}"), 422, "invalid_request"),
    "texts as a string": (predict(texts=SECRET), 422, "invalid_request"),
    "no text": (predict(texts=[]), 422, "invalid_request"),
    "a number as text": (predict(texts=[SECRET, 7]), 422, "invalid_request"),
    "too many texts": (predict(texts=[SECRET] * 5), 422, "too_many_texts"),
    "a long text": (predict(texts=[SECRET * 21]), 422, "text_too_long"),
    "a control character": (predict(texts=[f"{SECRET}\x00"]), 422, "control_character"),
    "an escape": (predict(texts=[f"\x1b[31m{SECRET}"]), 422, "control_character"),
    "half a character": (predict(texts=[f"{SECRET}\ud800"]), 422, "control_character"),
    "k of 0": (predict(k=0), 422, "invalid_request"),
    "k too large": (predict(k=10), 422, "invalid_request"),
    "k as text": (predict(k="5"), 422, "invalid_request"),
    "k as bool": (predict(k=True), 422, "invalid_request"),
    "k as float": (predict(k=5.0), 422, "invalid_request"),
    "threshold as text": (predict(threshold=SECRET), 422, "invalid_request"),
    "threshold of NaN": (predict(threshold=float("nan")), 422, "invalid_request"),
    "threshold without end": (predict(threshold=float("inf")), 422, "invalid_request"),
    "an unknown label": (predict(allowed=[SECRET]), 422, "unknown_label"),
    "no allowed label": (predict(allowed=[]), 422, "invalid_request"),
    "too many allowed labels": (predict(allowed=["x"] * 4), 422, "invalid_request"),
    "allowed as text": (predict(allowed=SECRET), 422, "invalid_request"),
    "a column as label": (predict(allowed=[3]), 422, "invalid_request"),
    "a label with a line break": (predict(allowed=[f"{SECRET}\n"]), 422, "control_character"),
    "a file of UTF-16": (("/v1/predict", '{"texts": ["x"]}'.encode("utf-16")), 400, "bad_json"),
    "an unknown model": (predict(model=SECRET), 404, "unknown_model"),
    "a path as model": (predict(model=f"../../{SECRET}"), 404, "unknown_model"),
    "an object as model": (predict(model={}), 422, "invalid_request"),
    "explain nothing": (("/v1/explain", b"{}"), 422, "invalid_request"),
    "explain a list": (("/v1/explain", b'{"text": ["Rumpelstilzchen"]}'), 422, "invalid_request"),
    "explain k of null": (("/v1/explain", b'{"text": "x", "k": null}'), 422, "invalid_request"),
    "explain an unknown label": (("/v1/explain", b'{"text": "x", "label": "Rumpelstilzchen"}'), 422, "unknown_label"),
    "suggest nothing": (("/v1/projects/tags/suggest", b"{}"), 422, "invalid_request"),
    "suggest a limit of text": (
        ("/v1/projects/tags/suggest", b'{"text": "x", "limit": "Rumpelstilzchen"}'), 422, "invalid_request",
    ),
    "suggest a threshold of 2": (
        ("/v1/projects/tags/suggest", b'{"text": "x", "threshold": 2}'), 422, "invalid_request",
    ),
    "suggest of no project": (("/v1/projects/Rumpelstilzchen/suggest", b'{"text": "x"}'), 404, "unknown_model"),
    "suggest no documents": (("/v1/projects/tags/suggest-batch", b"[]"), 422, "invalid_request"),
    "suggest a number": (("/v1/projects/tags/suggest-batch", b'{"documents": [1]}'), 422, "invalid_request"),
    "suggest too many": (
        ("/v1/projects/tags/suggest-batch", json.dumps({"documents": [{"text": "x"}] * 33}).encode()),
        422, "invalid_request",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_a_bad_request_is_refused(small: Any, log: io.StringIO, case: Any) -> None:
    (path, body), status, code = case
    response = small.post(path, content=body, headers=JSON)
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert set(response.json()) == {"error"}
    assert set(response.json()["error"]) == {"code", "message"}
    for place in (response.text, str(response.headers), log.getvalue()):
        assert SECRET not in place


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/labels?limit=0", 422), ("/v1/labels?limit=x", 422), ("/v1/labels?model=Rumpelstilzchen", 404),
        ("/v1/labels?q=%00Rumpelstilzchen", 422), ("/v1/labels?q=" + "x" * 201, 422),
        ("/v1/projects/Rumpelstilzchen", 404), ("/v1/Rumpelstilzchen", 404), ("/Rumpelstilzchen.html", 404),
        ("/v1/projects/tags/suggest", 405), ("/v1/predict", 405),
        ("/../../etc/passwd", 404), ("/%2e%2e/%2e%2e/etc/passwd", 404), ("/..%2f..%2fetc%2fpasswd", 404),
        ("/page.js/../../app.py", 404), ("/app.py", 404), ("/%00", 404), ("//etc/passwd", 404),
        ("/docs.js%00.html", 404), ("/v1/projects/..%2f..", 404), ("/v1/projects/%00", 422),
    ],
)  # fmt: skip
def test_a_bad_path_is_refused(small: Any, log: io.StringIO, path: str, status: int) -> None:
    response = small.get(path)
    assert response.status_code == status, response.text
    assert set(response.json()) == {"error"}
    for place in (response.text, str(response.headers), log.getvalue()):
        assert SECRET not in place
        assert "root:" not in place


def test_a_body_must_say_that_it_is_json(small: Any) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""):
        response = small.post("/v1/predict", content=b'{"texts": ["x"]}', headers={"content-type": kind})
        assert (response.status_code, response.json()["error"]["code"]) == (415, "not_json")
    response = small.post(
        "/v1/predict", content=b'{"texts": ["x"]}', headers={"content-type": "Application/JSON; charset=utf-8"}
    )
    assert response.status_code == 200
    assert (
        small.post("/v1/projects/tags/suggest", content=b"x", headers={"content-type": "text/plain"}).status_code == 415
    )


def test_a_byte_order_mark_is_skipped(small: Any) -> None:
    response = small.post("/v1/predict", content=b'\xef\xbb\xbf{"texts": ["x"]}', headers=JSON)
    assert response.status_code == 200, response.text


def test_a_length_of_many_digits_is_too_large(small: Any) -> None:
    headers = JSON | {"content-length": "9" * 4000, "expect": "100-continue"}
    response = small.post("/v1/predict", content=b"{}", headers=headers)
    assert response.status_code == 413, response.text


def test_a_body_that_is_too_large_is_refused(small: Any) -> None:
    body = json.dumps({"texts": ["x" * 200] * 100}).encode()
    for content in (body, iter([body[:10_000], body[10_000:]])):  # with and without a declared length
        response = small.post("/v1/predict", content=content, headers=JSON)
        assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")


def test_ten_megabytes_are_refused_by_default(api: Any) -> None:
    response = api.post("/v1/predict", content=b" " * 10_000_000, headers=JSON)
    assert response.status_code == 413


def test_a_small_body_in_pieces_is_read(small: Any) -> None:
    body = b'{"texts": ["x"]}'
    response = small.post("/v1/predict", content=iter([body[i : i + 1] for i in range(len(body))]), headers=JSON)
    assert response.status_code == 200


SCOPE = {
    "type": "http", "method": "POST", "path": "/v1/predict", "raw_path": b"/v1/predict", "query_string": b"",
    "http_version": "1.1", "scheme": "http", "server": ("x", 80), "client": ("x", 1), "root_path": "",
}  # fmt: skip


def messages(app: Any, *received: Any) -> list[Any]:
    """Call an application with messages of a client, which then says nothing more."""
    sent: list[Any] = []
    left = list(received)

    async def receive() -> Any:
        if left:
            return left.pop(0)
        await asyncio.sleep(60)

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json"), (b"content-length", b"100")]
    asyncio.run(app({**SCOPE, "headers": headers}, receive, send))
    return sent


def test_a_body_that_does_not_come_is_given_up(model: XRLinear, log: io.StringIO) -> None:
    app = create_app({"tags": model}, LIMITS, log=Log(log))
    start, body = messages(app, {"type": "http.request", "body": b'{"texts"', "more_body": True})
    assert start["status"] == 408
    assert json.loads(body["body"])["error"]["code"] == "slow_body"
    assert (b"connection", b"close") in start["headers"]


def test_a_client_that_hangs_up_gets_no_answer(model: XRLinear, log: io.StringIO) -> None:
    app = create_app({"tags": model}, LIMITS, log=Log(log))
    assert messages(app, {"type": "http.disconnect"}) == []
    assert json.loads(log.getvalue())["status"] == 499


def test_bodies_that_are_only_declared_take_no_room(model: XRLinear) -> None:
    """Clients that announce much and send little are let in; of those that send much, as many as there is room for."""
    app = create_app({"tags": model}, ServeConfig(max_body=1024, access_log=False))
    small = b'{"texts": ["x"]}'

    async def run() -> tuple[int, list[int], list[int], int]:
        may_go = asyncio.Event()
        slow = [asyncio.create_task(status_of(app, b" ", 1024, may_go)) for _ in range(100)]
        await asyncio.sleep(0)
        before = await status_of(app, small, len(small))
        full = [asyncio.create_task(status_of(app, b" " * 1023, 1024, may_go)) for _ in range(40)]
        await asyncio.sleep(0)
        may_go.set()
        statuses = await asyncio.gather(*slow), await asyncio.gather(*full)
        return (before, *statuses, await status_of(app, small, len(small)))

    before, slow, full, after = asyncio.run(run())
    assert (before, after) == (200, 200)
    assert set(slow + full) == {400, 429}  # white space is no JSON


async def status_of(app: Any, body: bytes, declared: int, rest: asyncio.Event | None = None) -> int:
    """Send a part of a body, and the rest when an event is set; return the status of the response."""
    sent: list[Any] = []
    parts = [{"type": "http.request", "body": body, "more_body": rest is not None}]

    async def receive() -> Any:
        if parts:
            return parts.pop()
        await rest.wait()  # type: ignore[union-attr]
        return {"type": "http.request", "body": b" " * (declared - len(body)), "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json"), (b"content-length", str(declared).encode())]
    await app({**SCOPE, "headers": headers}, receive, send)
    return sent[0]["status"]


def test_many_labels_are_no_more_than_there_are(api: Any, tiny: Any) -> None:
    response = api.post("/v1/predict", json={"texts": tiny.texts[:1], "k": 100})
    assert response.status_code == 200
    assert len(response.json()["predictions"][0]) <= 60
