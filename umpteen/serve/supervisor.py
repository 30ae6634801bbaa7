"""The parent of several workers: it holds the socket, starts workers, replaces those that end, and passes signals on.

The first worker is started alone, so that kernels are compiled once; the others follow when it is ready.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from umpteen.config.serving import ServeConfig
from umpteen.errors import UmpteenError
from umpteen.serve.logs import Log
from umpteen.serve.metrics import SHARED
from umpteen.serve.worker import job_of

_LOOKS = 0.05  # seconds between looks at the workers
_LONGEST_WAIT = 30.0  # seconds until a worker that never became ready is started again
_AFTER_DRAIN = 5.0  # seconds until workers that do not stop are killed


class Worker:
    """A process and what is known of it."""

    def __init__(self, number: int, job: Any, environment: Mapping[str, str], sock: socket.socket):
        ready, told = os.pipe()
        os.set_blocking(ready, False)
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "umpteen.serve.worker"], stdin=subprocess.PIPE,
                env=dict(environment), pass_fds=(sock.fileno(), told), start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(told)
        self.number, self._ready, self.is_ready = number, ready, False
        with suppress(BrokenPipeError):  # it has ended already, which is noticed later
            self.process.stdin.write(job(number, told))  # type: ignore[union-attr]
            self.process.stdin.flush()  # type: ignore[union-attr]

    def look(self) -> bool:
        """Return whether it has become ready since the last look."""
        if self.is_ready:
            return False
        with suppress(BlockingIOError):
            self.is_ready = os.read(self._ready, 1) == b"1"
        return self.is_ready

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    def close(self) -> None:
        """Give back what belongs to a process that has ended."""
        os.close(self._ready)
        with suppress(OSError):
            self.process.stdin.close()  # type: ignore[union-attr]


class Supervisor:
    """Keep so many workers running until SIGTERM or SIGINT.

    Parameters
    ----------
    sock
        Listens, and is shared by all workers.
    models, settings, api_key
        What is served.
    n_workers
        How many processes.
    """

    def __init__(
        self, sock: socket.socket, models: Mapping[str, Path], settings: ServeConfig, api_key: str | None,
        n_workers: int, log: Log | None = None,
    ):  # fmt: skip
        self._sock, self._n_workers, self._log = sock, n_workers, log or Log(facts={"pid": os.getpid()})
        self._drain_timeout = settings.drain_timeout
        self._job = lambda number, told: job_of(number, sock, models, settings, api_key, told, self._was_ready)
        self._workers: dict[int, Worker] = {}
        self._failures = [0] * n_workers  # starts since a worker of this number was ready
        self._not_before = [0.0] * n_workers
        self._was_ready, self._is_stopping = False, False
        self._environment: dict[str, str] = {}

    def run(self) -> None:
        """Supervise; returns after a signal, when all workers have ended."""
        handlers = {signal.SIGTERM: self._on_stop, signal.SIGINT: self._on_stop, signal.SIGHUP: self._on_hangup}
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            with tempfile.TemporaryDirectory(prefix="umpteen-metrics-") as folder:
                self._environment = _environment(folder)
                while not self._is_stopping:
                    self._look()
                    time.sleep(_LOOKS)
                self._stop()
        finally:
            self._kill()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        self._is_stopping = True

    def _on_hangup(self, number: int, frame: FrameType | None) -> None:
        for worker in list(self._workers.values()):
            if worker.is_ready:
                worker.send(signal.SIGHUP)

    def _look(self) -> None:
        """Start what is missing, and bury what has ended."""
        for number, worker in list(self._workers.items()):
            if worker.look():
                self._failures[number], self._was_ready = 0, True
            if worker.process.poll() is not None:
                self._replace(number, worker)
        for number in range(self._n_workers if self._was_ready else 1):
            if number not in self._workers and time.monotonic() >= self._not_before[number]:
                self._workers[number] = Worker(number, self._job, self._environment, self._sock)
                self._log.event("worker_started", worker=number, worker_pid=self._workers[number].process.pid)

    def _replace(self, number: int, worker: Worker) -> None:
        """Forget a worker that has ended; wait longer with every start that failed."""
        del self._workers[number]
        worker.close()
        _forget_gauges(worker.process.pid, self._environment[SHARED])
        code = worker.process.returncode
        self._log.event("worker_ended", level="error", worker=number, worker_pid=worker.process.pid, code=code)
        if not self._was_ready:
            raise UmpteenError("the server cannot start, because its models cannot be opened; the log above says why")
        if not worker.is_ready:
            self._failures[number] += 1
            self._not_before[number] = time.monotonic() + min(2.0 ** self._failures[number], _LONGEST_WAIT)

    def _stop(self) -> None:
        """Let the workers finish what they were asked."""
        self._sock.close()  # each worker has its own copy, and takes the connections that wait
        for worker in self._workers.values():
            worker.send(signal.SIGTERM)
        deadline = time.monotonic() + self._drain_timeout + _AFTER_DRAIN
        for worker in self._workers.values():
            with suppress(subprocess.TimeoutExpired):
                worker.process.wait(max(0.0, deadline - time.monotonic()))

    def _kill(self) -> None:
        for worker in self._workers.values():
            if worker.process.poll() is None:
                worker.process.kill()
                worker.process.wait()
            worker.close()
        self._workers.clear()


def _environment(folder: str) -> dict[str, str]:
    """Return the environment of workers: this installation, and the folder of the metrics."""
    root = str(Path(__file__).parents[2])
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": paths, SHARED: folder}


def _forget_gauges(pid: int, folder: str) -> None:
    """Remove the gauges of a process that has ended from the metrics; its counters stay."""
    from prometheus_client import multiprocess

    multiprocess.mark_process_dead(pid, folder)
