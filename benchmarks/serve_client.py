"""A bounded load generator for a server on this machine: raw HTTP/1.1 over kept connections, in a process of its own.

    echo '{"port": …}' | python -m benchmarks.serve_client

reads a job as JSON and prints what happened as JSON. A job has ``port``, ``path``, ``bodies`` (JSON texts), and either
``connections`` that each send the next request when the last one was answered, or a ``rate`` of requests per second;
and ends after ``seconds``, or after ``requests``. Only 127.0.0.1 is ever contacted.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from typing import Any

HOST = "127.0.0.1"
_MOST_SECONDS = 600.0
_PATIENCE = 60.0  # seconds that answers are waited for at the end


class Load:
    """Requests that are sent, and what came back."""

    def __init__(self, job: dict[str, Any]):
        self.port, self.path = int(job["port"]), job["path"]
        self.bodies = [_request(self.path, self.port, text) for text in job["bodies"]]
        self.expected = job.get("expected")  # per body, the answers that are right
        self.seconds = min(float(job.get("seconds", _MOST_SECONDS)), _MOST_SECONDS)
        self.most, self.rate = job.get("requests"), job.get("rate")
        self.n_connections = int(job["connections"])
        self.sent, self.lost, self.wrong, self.refused, self.shed = 0, 0, 0, 0, 0
        self.statuses: Counter[int] = Counter()
        self.latencies: list[float] = []
        self.finished_at: list[float] = []
        self.gave_up = False
        self.connections: set[Connection] = set()
        self.reconnecting: set[asyncio.Task[None]] = set()
        self.idle: list[Connection] = []

    async def run(self) -> dict[str, Any]:
        """Send, wait for the answers and return the counts."""
        loop = asyncio.get_running_loop()
        self.begun = loop.time()
        self.until = self.begun + self.seconds
        await asyncio.gather(*(self.connect() for _ in range(self.n_connections)))
        if self.rate is None:
            for connection in list(self.connections):
                connection.next()
        else:
            await self._at_rate(loop)
        while any(connection.is_waiting for connection in self.connections) and loop.time() < self.until + _PATIENCE:
            await asyncio.sleep(0.01)
        self.lost += sum(connection.is_waiting for connection in self.connections)
        for connection in list(self.connections):
            connection.transport.abort()
        return self.result()

    async def _at_rate(self, loop: asyncio.AbstractEventLoop) -> None:
        """Send at a rate whatever comes back; what finds no free connection is counted and not sent."""
        due = 0
        while self.may_send():
            now = loop.time()
            while due < (now - self.begun) * self.rate and self.may_send():
                due += 1
                if self.idle:
                    self.idle.pop().next()
                else:
                    self.shed += 1
            await asyncio.sleep(0.002)

    def may_send(self) -> bool:
        """Return whether the job is not over."""
        is_within = self.most is None or self.sent < self.most
        return is_within and not self.gave_up and asyncio.get_running_loop().time() < self.until

    async def connect(self) -> Connection | None:
        """Open a connection, unless the server refuses it."""
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: Connection(self), HOST, self.port
            )
        except OSError:
            self.refused += 1
            self.gave_up = True
            return None
        return connection

    def reconnect(self) -> None:
        """Open another connection and go on with it."""
        self.reconnecting.add(task := asyncio.ensure_future(self._go_on()))
        task.add_done_callback(self.reconnecting.discard)

    async def _go_on(self) -> None:
        if (connection := await self.connect()) is not None:
            connection.next_or_rest()

    def result(self) -> dict[str, Any]:
        """Return all counts in plain values."""
        took = (max(self.finished_at) if self.finished_at else time.perf_counter()) - self._first
        ranked = sorted(self.latencies)
        return {
            "sent": self.sent, "statuses": {str(code): n for code, n in sorted(self.statuses.items())},
            "lost": self.lost, "wrong": self.wrong, "refused": self.refused, "shed": self.shed,
            "seconds": took, "rate": len(ranked) / took if took else 0.0,
            "p50_ms": _percentile(ranked, 50), "p99_ms": _percentile(ranked, 99),
            "ok_per_s": self.statuses[200] / took if took else 0.0,
        }  # fmt: skip

    _first = 0.0


class Connection(asyncio.Protocol):
    """A connection with at most one request under way."""

    def __init__(self, load: Load):
        self.load, self.is_waiting, self._buffer, self._number = load, False, bytearray(), 0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.load.connections.add(self)
        self.load.idle.append(self)

    def next_or_rest(self) -> None:
        """Go on with the next request, unless requests are sent at a rate."""
        if self.load.rate is None:
            self.next()

    def next(self) -> None:
        """Send a request, unless the job is over."""
        load = self.load
        if not load.may_send():
            return
        self._number = load.sent % len(load.bodies)
        load.sent += 1
        load._first = load._first or time.perf_counter()
        self.is_waiting, self._began = True, time.perf_counter()
        self.transport.write(load.bodies[self._number])

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._buffer[:end]).lower()
        start = head.index(b"content-length:") + 15
        length = int(head[start:].split(b"\r\n", 1)[0])
        if len(self._buffer) >= end + 4 + length:
            body = bytes(self._buffer[end + 4 : end + 4 + length])
            self._buffer.clear()
            self._answered(int(head[9:12]), body, b"connection: close" in head)

    def _answered(self, status: int, body: bytes, closes: bool) -> None:
        load, now = self.load, time.perf_counter()
        self.is_waiting = False
        load.statuses[status] += 1
        load.finished_at.append(now)
        if status == 200:
            load.latencies.append((now - self._began) * 1000)
            if load.expected is not None and _labels(body) not in load.expected[self._number]:
                load.wrong += 1
        if closes:
            self._leave()
            self.transport.close()
            if load.may_send():
                load.reconnect()
        elif load.rate is None:
            self.next()
        else:
            load.idle.append(self)

    def connection_lost(self, error: Exception | None) -> None:
        if self not in self.load.connections:
            return
        self._leave()
        if self.is_waiting:
            self.is_waiting = False
            self.load.lost += 1
        if self.load.may_send():
            self.load.reconnect()

    def _leave(self) -> None:
        self.load.connections.discard(self)
        if self in self.load.idle:
            self.load.idle.remove(self)


def _labels(body: bytes) -> list[list[str]]:
    """Return the labels of each text of a response."""
    return [[one["label"] for one in row] for row in json.loads(body)["predictions"]]


def _request(path: str, port: int, text: str) -> bytes:
    body = text.encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _percentile(ranked: list[float], percent: float) -> float | None:
    return ranked[min(len(ranked) - 1, int(len(ranked) * percent / 100))] if ranked else None


def main() -> None:
    """Do the job of standard input."""
    print(json.dumps(asyncio.run(Load(json.load(sys.stdin)).run())))


if __name__ == "__main__":
    main()
