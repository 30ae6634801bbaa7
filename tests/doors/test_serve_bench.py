"""The load tests of the server: the generator counts right, and the page says what was measured."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from benchmarks.serve_client import Load
from benchmarks.serve_load import bars, section

ANSWER = json.dumps({"predictions": [[{"label": "a"}]]}).encode()


class Stub:
    """A server that answers with given statuses in turn; 0 closes the connection instead."""

    def __init__(self, statuses: list[int]):
        self.statuses, self.n = statuses, 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(int(head.lower().split(b"content-length:")[1].split()[0]))
                status = self.statuses[self.n % len(self.statuses)]
                self.n += 1
                if status == 0:
                    break
                writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(ANSWER)}\r\n\r\n".encode() + ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()


def run(statuses: list[int], **job: Any) -> dict[str, Any]:
    async def both() -> dict[str, Any]:
        server = await asyncio.start_server(Stub(statuses), "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            return await Load({"port": port, "path": "/", "bodies": ["{}"], "seconds": 30, **job}).run()

    return asyncio.run(both())


def test_answers_are_counted() -> None:
    found = run([200, 200, 429], requests=30, connections=3, expected=[[[["a"]]]])
    assert found["statuses"] == {"200": 20, "429": 10}
    assert (found["sent"], found["lost"], found["wrong"]) == (30, 0, 0)
    assert found["p50_ms"] <= found["p99_ms"]


def test_lost_and_wrong_answers_are_counted() -> None:
    found = run([200, 0], requests=10, connections=1, expected=[[[["b"]]]])
    assert (found["statuses"], found["lost"], found["wrong"]) == ({"200": 5}, 5, 5)


def test_requests_at_a_rate() -> None:
    found = run([200], requests=20, connections=4, rate=500)
    assert found["sent"] == 20
    assert found["statuses"] == {"200": 20}


RESULTS = {
    "rate": {"rate": 900.0, "p50_ms": 2.0, "p99_ms": 6.0, "empty_rate": 1000.0, "ratio": 0.9},
    "encoder": {"served": 80.0, "bare": 100.0, "ratio": 0.8, "rss_mb": 900.0, "start_s": 5.0},
    "overload": {
        "statuses": {"200": 10, "429": 30}, "lost": 0, "seconds": 60.0, "memory_before_mb": 100.0,
        "memory_most_mb": 101.0, "rate_after": 99.0, "capacity": 100.0,
    },
    "requests": {"requests": 50_000, "growth": 0.01},
    "swaps": {"swaps": 20, "sent": 1000, "lost": 0, "wrong": 0, "statuses": {"200": 1000}},
    "kill": {"sent": 100, "lost": 3, "wrong": 0, "replaced_s": 1.0, "connections": 32, "statuses": {"200": 97}},
    "sizing": {"1": {"start_s": 1.0, "rss_mb": 2.0, "pss_mb": 3.0, "rate": 4.0, "p50_ms": 5.0, "p99_ms": 6.0}},
}  # fmt: skip


def test_bars_that_are_met() -> None:
    assert {row[-1] for row in bars(RESULTS)} == {"yes"}
    text = section(RESULTS, {"cores": 2, "cpu": "x", "system": "Linux", "python": "3.12", "date": "2026-11-18"})
    assert "| 1 | 1.0 | 2 | 3 | 4 | 5.0 | 6.0 |" in text


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("rate", {"ratio": 0.4}), ("rate", {"p99_ms": 11.0}), ("encoder", {"ratio": 0.6}), ("overload", {"lost": 1}),
        ("overload", {"statuses": {"200": 1, "503": 1}}), ("overload", {"memory_most_mb": 120.0}),
        ("overload", {"rate_after": 50.0}), ("requests", {"growth": 0.03}), ("swaps", {"lost": 1}),
        ("swaps", {"wrong": 1}), ("kill", {"lost": 33}), ("kill", {"wrong": 1}),
    ],
)  # fmt: skip
def test_a_bar_that_is_missed_is_said(name: str, values: dict[str, Any]) -> None:
    changed = RESULTS | {name: RESULTS[name] | values}
    assert sum(row[-1] == "**no**" for row in bars(changed)) == 1
