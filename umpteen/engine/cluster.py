"""Run tasks on the nodes of a Ray cluster.

A task is sent as its name and arguments, and its answer comes back, both as JSON in messages: paths and ranges, never
arrays. The files are in a folder that all nodes share. A task whose process or node ends is run again elsewhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from umpteen.engine.cluster_nodes import (
    OTHER_STORAGE,
    alive_nodes,
    check_file,
    check_storage,
    check_versions,
    connect,
    differences,
    import_ray,
    last_line,
    n_slots,
    remote,
    versions,
)
from umpteen.engine.local import Progress, silent
from umpteen.engine.object_store import ObjectStoreCounter, ObjectStoreReport
from umpteen.engine.processes import MAX_ATTEMPTS, TaskFailed, answer_of, result_of
from umpteen.engine.tasks import Task, largest_first
from umpteen.errors import BadConfig

__all__ = ["ObjectStoreReport", "RayEngine", "check_storage"]

_REFRESH_SECONDS = 2.0  # between two looks at the nodes of the cluster
_JOIN_SECONDS = 60.0  # until a cluster without nodes for tasks is refused
_STOP_SECONDS = 10.0  # until tasks that are cancelled are left alone


class RayEngine:
    """Runs tasks on the nodes of a Ray cluster.

    Nodes may join and leave while tasks run. A connection of this process that exists is used and left open.

    Parameters
    ----------
    address
        ``host:port`` of the head node, or ``auto`` for the cluster that this machine belongs to. ``None`` means the
        environment variable ``RAY_ADDRESS`` or, without it, a new cluster of this machine only.
    threads
        Threads of each task; a node with 8 cores runs 4 tasks of 2 threads.
    max_workers
        The most tasks that run at the same time; 0 means as many as the cluster has cores for.
    patience
        Seconds after which a run ends with an error if no node is left that can run a task. A cluster that has none at
        the beginning is refused after a minute at most.
    """

    def __init__(
        self, address: str | None = None, *, threads: int = 1, max_workers: int = 0, patience: float = 600.0
    ) -> None:
        self.address, self.threads = address, max(1, threads)
        self.max_workers, self.patience = max_workers, patience
        self._message_bytes = 0
        self._store: ObjectStoreCounter | None = None
        self._open()

    def _open(self) -> None:
        """Connect to the cluster and check its nodes."""
        self._is_ours, self._is_open = connect(self.address), True
        try:
            self._wait_for_nodes()
            check_versions(self.threads)
            self._store = self._store or ObjectStoreCounter()
        except BaseException:
            self.close()
            raise
        self._answer = remote(_answer, num_cpus=self.threads, scheduling_strategy="SPREAD")

    @property
    def n_workers(self) -> int:
        """Number of tasks that run at the same time; it changes when nodes join or leave."""
        return min(self._n_slots, self.max_workers or self._n_slots)

    def run(self, tasks: Sequence[Task], *, stage: str = "", progress: Progress = silent) -> list[Any]:
        """Run tasks, the largest first; an engine that was closed connects again."""
        if not self._is_open:
            self._open()
        run = _Run(tasks)
        done, total = 0, sum(task.cost for task in tasks)
        progress(stage, 0, total)
        try:
            while run.is_unfinished:
                self._submit(run)
                for i in self._collect(run):
                    done += tasks[i].cost
                    progress(stage, done, total)
        except BaseException:
            _cancel(run.running)
            raise
        self._count()
        return run.results

    def check_storage(self, folder: str | os.PathLike[str], remedy: str = OTHER_STORAGE) -> None:
        """Refuse a folder that is not shared by this machine and all nodes; it may be created later."""
        if not self._is_open:
            self._open()
        place = Path(folder).absolute()
        existing = next((parent for parent in (place, *place.parents) if parent.exists()), place)
        check_storage(existing, self.threads, remedy)

    def check_file(self, path: str | os.PathLike[str]) -> None:
        """Refuse a file that is not the same on this machine and on all nodes."""
        if not self._is_open:
            self._open()
        check_file(path, self.threads)

    def warm_up(self, task: Task) -> None:
        """Send a task to all cores, which start their processes and load what they need; do not wait for it."""
        for _ in range(self.n_workers):
            self._send(task)

    def object_store_report(self) -> ObjectStoreReport:
        """Return what went through the object stores since the engine was made, until it is closed."""
        self._count()
        return self._store.report(self._message_bytes)  # type: ignore[union-attr]

    def close(self) -> None:
        """Close the connection, unless it existed before; a cluster that was started for it ends."""
        self._count()
        if self._is_ours:
            import_ray().shutdown()
        self._is_ours = self._is_open = False

    def _count(self) -> None:
        """Ask the nodes for the counts of their object stores."""
        if self._is_open and self._store is not None:
            with contextlib.suppress(import_ray().exceptions.RayError):  # the cluster has ended
                self._store.update()

    def _wait_for_nodes(self) -> None:
        """Wait for the first node that can run tasks: the nodes of a cluster start at about the same time."""
        until = time.monotonic() + min(self.patience, _JOIN_SECONDS)
        self._look()
        while not self.n_workers:
            if time.monotonic() > until:
                raise BadConfig(
                    f"no node of the cluster has {self.threads} cores for a task; lower the number of threads or start "
                    "nodes with 'ray start --address'"
                )
            time.sleep(_REFRESH_SECONDS)
            self._look()

    def _look(self) -> None:
        """Count the tasks that the nodes of the cluster can run now."""
        self._n_slots = sum(n_slots(node, self.threads) for node in alive_nodes(self.threads))
        self._looked_at = time.monotonic()
        if self._n_slots:
            self._usable_at = self._looked_at

    def _submit(self, run: _Run) -> None:
        """Send tasks: one waits for each that runs, so that no core is idle and few messages are on their way."""
        if time.monotonic() - self._looked_at > _REFRESH_SECONDS:
            self._look()
        n_waiting = 0 if self.max_workers else max(1, self.n_workers)
        while run.waiting and len(run.running) < self.n_workers + n_waiting:
            i = run.waiting.popleft()
            run.attempts[i] += 1
            run.running[self._send(run.tasks[i])] = i

    def _send(self, task: Task) -> Any:
        """Send a task to a node; return what its answer will be got by."""
        question = _question(task, self.threads)
        self._message_bytes += len(question)
        return self._answer.remote(question)

    def _collect(self, run: _Run) -> Iterable[int]:
        """Wait for tasks and yield those that are done; tasks whose process ended wait again."""
        ray = import_ray()
        if not run.running:  # no node is left
            time.sleep(_REFRESH_SECONDS)
        ready, _ = ray.wait(list(run.running), timeout=_REFRESH_SECONDS) if run.running else ([], [])
        for call in ready:
            i = run.running.pop(call)
            answer = self._get(call)
            if answer is None:
                run.again(i)
            else:
                run.results[i] = result_of(answer)
                yield i
        if not ready and time.monotonic() - self._usable_at > self.patience:
            raise TaskFailed(
                f"the cluster has had no node with {self.threads} cores for {self.patience:.0f} s; start nodes with "
                "'ray start --address' and run the command again, which resumes"
            )

    def _get(self, call: Any) -> dict[str, Any] | None:
        """Return the answer of a task, or nothing if its process or node ended."""
        errors = import_ray().exceptions
        try:
            answer = import_ray().get(call)
        except (errors.RayTaskError, errors.TaskCancelledError, errors.RuntimeEnvSetupError) as error:
            raise TaskFailed(f"a node could not run a task: {last_line(error)}") from error
        except errors.RayError:  # the process, its node or its object store ended
            return None
        self._message_bytes += len(answer)
        return json.loads(answer)


class _Run:
    """The tasks of a run: those that wait, those that were sent, and the results of the others."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.tasks, self.waiting = tasks, deque(largest_first(tasks))
        self.running: dict[Any, int] = {}
        self.results: list[Any] = [None] * len(tasks)
        self.attempts = [0] * len(tasks)

    @property
    def is_unfinished(self) -> bool:
        """Whether tasks wait or run."""
        return bool(self.waiting or self.running)

    def again(self, i: int) -> None:
        """Let a task wait again whose process ended, unless that happened too often."""
        if self.attempts[i] >= MAX_ATTEMPTS:
            raise TaskFailed(
                f"a process or node ended {MAX_ATTEMPTS} times while it ran {self.tasks[i].function}, perhaps for lack "
                "of memory; lower the memory limit or the number of tasks that run on a node at the same time"
            )
        self.waiting.appendleft(i)


def _question(task: Task, threads: int) -> str:
    """Return a task as a message."""
    return json.dumps(
        {"function": task.function, "arguments": dict(task.arguments), "threads": threads, "versions": versions()}
    )


def _answer(question: str) -> str:
    """Run a task on a node; a node that joined later has not been checked before."""
    asked = json.loads(question)
    if other := differences(asked["versions"], versions()):
        node = import_ray().util.get_node_ip_address()
        message = f"node {node} has {other}; start 'ray' on all nodes from environments with the same versions"
        return json.dumps({"error": "BadConfig", "module": BadConfig.__module__, "message": message})
    return json.dumps(answer_of(Task(asked["function"], asked["arguments"]), asked["threads"]))


def _cancel(running: dict[Any, int]) -> None:
    """Stop tasks and wait until they have ended, so that nothing is written any more."""
    ray = import_ray()
    for call in running:
        with contextlib.suppress(ray.exceptions.RayError):
            ray.cancel(call, force=True)
    if running:
        with contextlib.suppress(ray.exceptions.RayError):
            ray.wait(list(running), num_returns=len(running), timeout=_STOP_SECONDS)
