"""Servers in processes of their own: signals, workers that are killed, slow clients."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serve.conftest import PATIENCE, ROOT, Server, wait_for
from umpteen import XRLinear

pytestmark = pytest.mark.skipif(os.name != "posix", reason="workers need signals and inherited sockets")

Start = Callable[..., Server]
QUIET = ("--set", "access_log=false")


def post(port: int, body: bytes) -> bytes:
    lines = ["POST /v1/predict HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""])
    return head.encode() + body


class Crowd:
    """Clients that ask again and again over kept connections, until the server closes."""

    def __init__(self, server: Server, texts: list[str], wanted: list[list[str]], n: int = 6):
        self.server, self.texts, self.wanted = server, texts, wanted
        self.answers, self.lost, self.is_over = 0, 0, False
        self.wrong: list[Any] = []
        self.threads = [threading.Thread(target=self._ask, args=(i,), daemon=True) for i in range(n)]
        for thread in self.threads:
            thread.start()

    def _ask(self, number: int) -> None:
        while not self.is_over:
            try:
                client = httpx.Client(timeout=PATIENCE)
                with client:
                    self._ask_by(client, number)
            except httpx.ConnectError:
                time.sleep(0.01)
            except httpx.TransportError:
                self.lost += 1

    def _ask_by(self, client: httpx.Client, number: int) -> None:
        while not self.is_over:
            number = (number + 1) % len(self.texts)
            response = client.post(f"{self.server.url}/v1/predict", json={"texts": [self.texts[number]]})
            self.answers += 1
            found = (
                [one["label"] for one in response.json()["predictions"][0]] if response.is_success else response.text
            )
            if found != self.wanted[number]:
                self.wrong.append(found)

    def end(self) -> None:
        """Let all clients finish."""
        self.is_over = True
        for thread in self.threads:
            thread.join(PATIENCE)


@pytest.fixture
def wanted(model: XRLinear, tiny: Any) -> list[list[str]]:
    return [model.labels_.keys(labels) for labels, _ in model.topk(tiny.texts[:50], 5)]


def test_sigterm_under_load_loses_no_request(server: Start, folder: Path, tiny: Any, wanted: Any) -> None:
    running = server(folder, *QUIET)
    running.wait_until_ready()
    crowd = Crowd(running, tiny.texts[:50], wanted)
    wait_for(lambda: crowd.answers > 100)
    assert running.stop() == 0
    crowd.end()
    assert crowd.lost == 0
    assert not crowd.wrong
    assert [running.events(name) != [] for name in ("draining", "stopped")] == [True, True]


def test_a_killed_worker_is_replaced(server: Start, folder: Path, tiny: Any, wanted: Any) -> None:
    running = server(folder, "--workers", 2, *QUIET)
    running.wait_until_ready(2)
    crowd = Crowd(running, tiny.texts[:50], wanted)
    wait_for(lambda: crowd.answers > 100)
    victim = running.events("worker_started")[0]["worker_pid"]
    os.kill(victim, signal.SIGKILL)
    running.wait_until_ready(3)
    before = crowd.answers
    wait_for(lambda: crowd.answers > before + 100)
    crowd.end()
    assert crowd.lost <= len(crowd.threads)
    assert not crowd.wrong
    assert running.events("worker_ended")[0]["code"] == -signal.SIGKILL
    metrics = httpx.get(f"{running.url}/metrics").text
    counted = [line for line in metrics.splitlines() if line.startswith('umpteen_requests_total{route="/v1/predict"')]
    n_counted = sum(float(line.split()[-1]) for line in counted)  # those of the killed one, too
    assert n_counted >= crowd.answers - len(crowd.threads)  # it may have answered what it had not counted yet
    assert running.stop() == 0


def test_all_workers_take_a_new_model(server: Start, folder: Path, other: XRLinear) -> None:
    running = server(folder, "--workers", 2, "--set", "watch=0", environment={"UMPTEEN_API_KEY": "correct-horse"})
    running.wait_until_ready(2)
    other.save(folder)
    headers = {"Authorization": "Bearer correct-horse"}
    assert httpx.post(f"{running.url}/v1/admin/reload").status_code == 401
    assert httpx.post(f"{running.url}/v1/admin/reload", headers=headers, timeout=PATIENCE).is_success
    wait_for(lambda: {event["worker"] for event in running.events("reloaded")} == {0, 1})


def test_hangup_takes_a_new_model(server: Start, folder: Path, other: XRLinear) -> None:
    running = server(folder, "--set", "watch=0")
    running.wait_until_ready()
    other.save(folder)
    running.process.send_signal(signal.SIGHUP)
    wait_for(lambda: running.events("reloaded"))


def test_a_parent_that_is_killed_takes_its_workers_along(server: Start, folder: Path) -> None:
    running = server(folder, "--workers", 2)
    running.wait_until_ready(2)
    pids = [event["worker_pid"] for event in running.events("worker_started")]
    running.process.kill()
    wait_for(lambda: not any(_is_alive(pid) for pid in pids))


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_slow_clients_are_told(server: Start, folder: Path) -> None:
    running = server(folder, "--set", "body_timeout=0.3")
    running.wait_until_ready()
    beginnings = {
        b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\n": b"slow_headers",
        post(running.port, b'{"texts": ["x"]}')[:-5]: b"slow_body",
    }
    for beginning, code in beginnings.items():
        with running.connect() as connection:
            connection.sendall(beginning)
            answer = b"".join(iter(lambda: connection.recv(4096), b""))  # until the server closes
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert code in answer
    with running.connect() as connection:  # says nothing at all
        assert connection.recv(1) == b""


def test_a_connection_is_kept_and_closed_when_idle(server: Start, folder: Path) -> None:
    running = server(folder, "--set", "keep_alive=1")
    running.wait_until_ready()
    with running.connect() as connection:
        for _ in range(2):
            connection.sendall(post(running.port, b'{"texts": ["x"]}'))
            received = b""
            while not received.endswith(b"]]}"):
                received += connection.recv(2**16)
            assert received.startswith(b"HTTP/1.1 200 ")
        assert connection.recv(4096) == b""  # the server closes


def test_a_client_that_does_not_read_is_left(server: Start, folder: Path, tiny: Any) -> None:
    running = server(folder, "--set", "keep_alive=0.5", "--max-texts", 3000, "--set", "max_batch=3000")
    running.wait_until_ready()
    body = json.dumps({"texts": tiny.texts[:200] * 15, "k": 60}).encode()  # the answer is larger than buffers
    with running.connect() as connection:
        connection.sendall(post(running.port, body))
        wait_for(lambda: [event for event in running.events("request") if event["route"] == "/v1/predict"])
        time.sleep(1.5)  # longer than the server keeps the connection
        received = sum(len(part) for part in iter(lambda: connection.recv(2**20), b""))
    assert 0 < received < len(httpx.post(f"{running.url}/v1/predict", json=json.loads(body), timeout=PATIENCE).content)


def test_a_local_server_does_not_answer_to_names_of_others(server: Start, folder: Path) -> None:
    local, keyed = server(folder), server(folder, environment={"UMPTEEN_API_KEY": "correct-horse"})
    for one, status in ((local, 403), (keyed, 200)):
        one.wait_until_ready()
        assert httpx.get(f"{one.url}/healthz").status_code == 200
        assert httpx.get(f"{one.url}/healthz", headers={"Host": "rebound.example"}).status_code == status


def test_a_large_body_is_refused_before_it_is_sent(server: Start, folder: Path) -> None:
    running = server(folder)
    running.wait_until_ready()
    with running.connect() as connection:
        head = (
            b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\nExpect: 100-continue\r\n\r\n"
        )
        connection.sendall(head)
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_large_body_gets_its_answer(server: Start, folder: Path) -> None:
    running = server(folder)
    running.wait_until_ready()
    response = httpx.post(
        f"{running.url}/v1/predict", content=b" " * 10_000_000, headers={"content-type": "application/json"}
    )
    assert response.status_code == 413


@pytest.mark.parametrize("arguments", [["no-such-folder"], ["--set", "max_k=0"], ["--set", "maxk=1"], []])
def test_what_cannot_be_served_is_an_error(folder: Path, arguments: list[str]) -> None:
    command = [sys.executable, "-m", "umpteen", "serve", *([str(folder)] if "--set" in arguments else []), *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "500"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr


def test_workers_that_cannot_open_a_model_end_the_server(tiny: Any, tmp_path: Path) -> None:
    XRLinear(threads=1).fit(tiny.X, tiny.Y).save(tmp_path / "rows")
    for workers in ("1", "2"):
        command = [
            sys.executable,
            "-m",
            "umpteen",
            "serve",
            str(tmp_path / "rows"),
            "--port",
            "0",
            "--workers",
            workers,
        ]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "500"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode in (1, 2)
        assert "feature rows" in done.stderr
        assert "Traceback" not in done.stderr
    log = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert [event["event"] for event in log if event["level"] == "error"] == ["start_failed", "worker_ended"]
