"""Servers and load generators as processes, and the memory that a process has. Knows nothing about what is measured."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
HOST = "127.0.0.1"
_PATIENCE = 300.0


class Server:
    """A server process and those it has started."""

    def __init__(self, command: Sequence[str], port: int):
        begun = time.perf_counter()
        self.port, self.lines = port, []  # type: int, list[str]
        self.process = subprocess.Popen(
            [sys.executable, *command], env=_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()
        wait_for(self.is_ready)
        self.start_s = time.perf_counter() - begun

    def _read(self) -> None:
        for line in self.process.stderr:  # type: ignore[union-attr]
            if '"event": "request"' not in line:
                self.lines.append(line)

    def is_ready(self) -> bool:
        """Return whether it says so."""
        if self.process.poll() is not None:
            raise RuntimeError(f"the server has ended: {''.join(self.lines[-5:])}")
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self.port}/readyz", timeout=5) as response:
                return response.status == 200
        except OSError:
            return False

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the logged events of a name."""
        found = [json.loads(line) for line in list(self.lines) if line.startswith("{")]
        return [event for event in found if event["event"] == name]

    def pids(self) -> list[int]:
        """Return the processes that serve: the workers, or the only process."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in children] or [self.process.pid]

    def memory_mb(self, kind: str = "Rss") -> float:
        """Return the memory of all processes that serve: ``Rss``, or ``Pss``, in which shared pages count once."""
        return sum(_memory(pid, kind) for pid in self.pids())

    def stop(self) -> int:
        """Stop by SIGTERM and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_PATIENCE)


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[Server]:
    """Serve a model as a user would, until the block ends."""
    port = free_port()
    server = Server(["-m", "umpteen", "serve", str(folder), "--port", str(port), "--quiet", *options], port)
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def serving_nothing() -> Iterator[Server]:
    """Serve the empty route, until the block ends."""
    port = free_port()
    server = Server(["-m", "benchmarks.serve_empty", str(port)], port)
    try:
        yield server
    finally:
        server.stop()


class Client:
    """A load generator that runs while something else is done."""

    def __init__(self, server: Server, bodies: Sequence[str], connections: int, **job: Any):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.serve_client"], env=_environment(), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        content = {"port": server.port, "path": "/v1/predict", "bodies": bodies, "connections": connections, **job}
        json.dump(content, self._process.stdin)  # type: ignore[arg-type]
        self._process.stdin.close()  # type: ignore[union-attr]

    def is_running(self) -> bool:
        """Return whether it still sends."""
        return self._process.poll() is None

    def result(self) -> dict[str, Any]:
        """Wait for the end and return the counts."""
        output = self._process.stdout.read()  # type: ignore[union-attr]
        self._process.wait(_PATIENCE)
        return json.loads(output)


def load(server: Server, bodies: Sequence[str], connections: int, **job: Any) -> dict[str, Any]:
    """Send requests and return the counts."""
    return Client(server, bodies, connections, **job).result()


def wait_for(is_done: Callable[[], Any], seconds: float = _PATIENCE) -> None:
    """Wait until a function returns something true."""
    deadline = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > deadline:
            raise TimeoutError("it did not happen in time")
        time.sleep(0.02)


def free_port() -> int:
    """Return a port that nothing listens at."""
    with socket.create_server((HOST, 0)) as sock:
        return sock.getsockname()[1]


def _memory(pid: int, kind: str) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{kind}:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"there is no {kind} of process {pid}")


def _environment() -> dict[str, str]:
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": paths}
