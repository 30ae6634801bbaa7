"""Models behind an application, and servers in processes of their own."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from umpteen import XRLinear
from umpteen.config.serving import ServeConfig
from umpteen.data.labels import Labels
from umpteen.serve.app import create_app
from umpteen.serve.logs import Log

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0  # seconds after which a test that waits fails


def train(tiny: Any, seed: int = 0, prefix: str = "") -> XRLinear:
    """Train on the small corpus; labels have keys that differ from their names."""
    names = [prefix + name for name in tiny.label_names]
    labels = Labels(names, [f"http://example.org/{column}" for column in range(len(names))])
    return XRLinear(seed=seed, threads=1, search={"post": "sigmoid"}).fit(tiny.texts, tiny.Y, label_names=labels)


@pytest.fixture(scope="session")
def model(tiny: Any) -> XRLinear:
    """A model of 60 labels with keys and names."""
    return train(tiny)


@pytest.fixture(scope="session")
def other(tiny: Any) -> XRLinear:
    """The same with other names."""
    return train(tiny, prefix="new ")


@pytest.fixture
def folder(model: XRLinear, tmp_path: Path) -> Path:
    """The model on disk."""
    model.save(tmp_path / "tags")
    return tmp_path / "tags"


@pytest.fixture
def log() -> io.StringIO:
    """What the server logs."""
    return io.StringIO()


def events(log: io.StringIO) -> list[dict[str, Any]]:
    """Return the events of a log."""
    return [json.loads(line) for line in log.getvalue().splitlines()]


@pytest.fixture
def api(model: XRLinear, log: io.StringIO) -> Iterator[Any]:
    """A client of an application with one model in memory."""
    with client_of(create_app({"tags": model}, ServeConfig(), log=Log(log))) as client:
        yield client


@contextmanager
def client_of(app: Any) -> Iterator[Any]:
    """Run an application and yield a client of it."""
    with TestClient(app, raise_server_exceptions=False) as client:
        wait_for(lambda: client.get("/readyz").status_code == 200)
        yield client


@asynccontextmanager
async def async_client(app: Any) -> Any:
    """Run an application in this event loop and yield a client of it."""
    async with app.router.lifespan_context(app):
        await asyncio.wait_for(app.state.service.loaded.wait(), PATIENCE)
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            yield client


def wait_for(is_done: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Wait until a function returns something true, and return it."""
    deadline = time.monotonic() + seconds
    while not (found := is_done()):
        if time.monotonic() > deadline:
            raise TimeoutError("it did not happen in time")
        time.sleep(0.02)
    return found


class Server:
    """``umpteen serve`` in a process of its own."""

    def __init__(self, *arguments: str, environment: dict[str, str] | None = None):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "umpteen", "serve", *arguments, "--port", "0"], cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "500"} | (environment or {}),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.port = int(wait_for(self._port))
        self.url = f"http://127.0.0.1:{self.port}"

    def _read(self) -> None:
        for line in self.process.stderr:  # type: ignore[union-attr]
            self.lines.append(line)

    def _port(self) -> str | None:
        if self.process.poll() is not None:
            raise RuntimeError(f"the server has ended: {''.join(self.lines)}")
        found = re.search(r"http://127\.0\.0\.1:(\d+)", "".join(self.lines[:1]))
        return found[1] if found else None

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the logged events of a name."""
        found = [json.loads(line) for line in list(self.lines) if line.startswith("{")]
        return [event for event in found if event["event"] == name]

    def wait_until_ready(self, n_workers: int = 1) -> None:
        """Wait until so many workers have loaded the models."""
        wait_for(lambda: len(self.events("ready")) >= n_workers or self.process.poll() is not None)
        assert self.process.poll() is None, "".join(self.lines)

    def connect(self) -> socket.socket:
        """Open a connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def stop(self) -> int:
        """Stop it by SIGTERM and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self._reader.join(PATIENCE)
        self.process.stderr.close()  # type: ignore[union-attr]
        return code


@pytest.fixture
def server() -> Iterator[Callable[..., Server]]:
    """A function that starts servers, which are stopped at the end."""
    started: list[Server] = []

    def start(*arguments: Any, **options: Any) -> Server:
        started.append(Server(*map(str, arguments), **options))
        return started[-1]

    yield start
    for one in started:
        one.stop()
