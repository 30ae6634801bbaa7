"""Run tasks in other processes of this machine.

A worker reads one task per line on its standard input and answers with one line, both JSON. A worker that ends while
it runs a task is replaced, and the task is run again.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from umpteen.engine.local import Progress, n_threads, run, silent
from umpteen.engine.tasks import Task, largest_first
from umpteen.errors import UmpteenError

MAX_ATTEMPTS = 3  # times that a task is run if its process ends
_INTERRUPTED = (130, -signal.SIGINT)  # exit codes of a worker that got Ctrl-C
_STOP_SECONDS = 5.0  # until a worker that does not end by itself is killed


class TaskFailed(UmpteenError, RuntimeError):
    """A task could not be run to its end."""


class _WorkerEnded(Exception):
    """A worker ended before it answered."""


class ProcessEngine:
    """Runs tasks in ``n_workers`` processes, which are started when they are needed.

    Parameters
    ----------
    n_workers
        Number of processes; 0 means one for each core.
    threads
        Threads of each task.
    """

    def __init__(self, n_workers: int = 0, *, threads: int = 1) -> None:
        self.n_workers, self.threads = n_threads(n_workers), threads
        self._free: list[_Worker] = []
        self._lock = threading.Lock()

    def run(self, tasks: Sequence[Task], *, stage: str = "", progress: Progress = silent) -> list[Any]:
        """Run tasks, the largest first."""
        return run(
            lambda i: self._run_one(tasks[i]), len(tasks), threads=self.n_workers, order=largest_first(tasks),
            weights=[task.cost for task in tasks], stage=stage, progress=progress,
        )  # fmt: skip

    def close(self) -> None:
        """End the processes."""
        with self._lock:
            workers, self._free = self._free, []
        for worker in workers:
            worker.close()

    def _run_one(self, task: Task) -> Any:
        for _ in range(MAX_ATTEMPTS):
            worker = self._take()
            try:
                answer = worker.ask(task, self.threads)
            except _WorkerEnded:
                if worker.close() in _INTERRUPTED:
                    raise KeyboardInterrupt from None
                continue
            with self._lock:
                self._free.append(worker)
            return result_of(answer)
        raise TaskFailed(
            f"a process ended {MAX_ATTEMPTS} times while it ran {task.function}, perhaps for lack of memory; lower the "
            "number of workers or the memory limit"
        )

    def _take(self) -> _Worker:
        with self._lock:
            if self._free:
                return self._free.pop()
        return _Worker()


class _Worker:
    """A process that runs one task at a time."""

    def __init__(self) -> None:
        command = [sys.executable, "-P", "-m", "umpteen.engine.worker"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment())

    def ask(self, task: Task, threads: int) -> dict[str, Any]:
        """Run a task and return the answer of the process."""
        question = {"function": task.function, "arguments": dict(task.arguments), "threads": threads}
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")  # type: ignore[union-attr]
            self._process.stdin.flush()  # type: ignore[union-attr]
            line = self._process.stdout.readline()  # type: ignore[union-attr]
        except OSError:
            raise _WorkerEnded from None
        if not line.endswith(b"\n"):
            raise _WorkerEnded
        return json.loads(line)

    def close(self) -> int:
        """End the process and return its exit code; without its standard input it ends by itself."""
        with contextlib.suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]
        try:
            code = self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._process.stdout.close()  # type: ignore[union-attr]
        return code


def answer_of(task: Task, threads: int) -> dict[str, Any]:
    """Run a task and return its result or its exception as plain values."""
    try:
        return {"result": task(threads)}
    except Exception as error:
        return {"error": type(error).__name__, "module": type(error).__module__, "message": str(error)}


def result_of(answer: dict[str, Any]) -> Any:
    """Return the result of a task that ran elsewhere, or raise its exception."""
    if "error" not in answer:
        return answer["result"]
    kind = _exception(answer["module"], answer["error"])
    raise kind(answer["message"]) if kind else TaskFailed(f"{answer['error']}: {answer['message']}")


def _exception(module: str, name: str) -> Any:
    """Return the class of an exception that is raised again under its own name: those of this library."""
    from umpteen import errors

    is_ours = module == errors.__name__ and name != errors.MissingExtra.__name__
    return getattr(errors, name, None) if is_ours else {"MemoryError": MemoryError}.get(name)


def _environment() -> dict[str, str]:
    """Return the environment of a worker: it finds the modules that this process finds."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return os.environ | {"PYTHONPATH": path}
