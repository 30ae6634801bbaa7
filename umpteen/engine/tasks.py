"""Tasks that any process can run: a function by name, and plain arguments.

A task gets paths and ranges, never arrays, and writes its result to a file. So the same tasks run in this process, in
other processes of this machine (``processes``) and on a cluster (``cluster``), and give the same bytes there.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from umpteen.engine.local import Progress, n_threads, silent
from umpteen.errors import BadInput

Function = TypeVar("Function", bound=Callable[..., Any])

_PACKAGE = __name__.partition(".")[0]
_MARK = "_is_task"


@dataclass(frozen=True)
class Task:
    """A call that can be made in another process.

    Parameters
    ----------
    function
        ``package.module:name`` of a function of this library that is decorated with :func:`task`.
    arguments
        Its keyword arguments, plain JSON values. The function also gets ``threads``.
    cost
        How long it takes compared with other tasks, for the order of the work and for the progress.
    """

    function: str
    arguments: Mapping[str, Any]
    cost: int = 1

    def __call__(self, threads: int = 1) -> Any:
        """Run the task in this process; return a plain JSON value."""
        return _resolve(self.function)(**self.arguments, threads=threads)


class Engine(Protocol):
    """Runs tasks."""

    @property
    def n_workers(self) -> int:
        """Number of tasks that run at the same time."""
        ...

    def run(self, tasks: Sequence[Task], *, stage: str = "", progress: Progress = silent) -> list[Any]:
        """Run tasks in any order and return their results in the order of the tasks.

        A task whose process ends is run again, so a task must give the same result if it runs twice. An exception of a
        task is raised here, and no further task is started.
        """
        ...

    def close(self) -> None:
        """End the processes of the engine."""
        ...


@runtime_checkable
class SharesFiles(Protocol):
    """An engine whose tasks run on several machines, which must share the files."""

    def check_storage(self, folder: str | os.PathLike[str], remedy: str = ...) -> None:
        """Refuse a folder that is not shared by all machines; ``remedy`` says what to do instead of sharing it."""
        ...

    def check_file(self, path: str | os.PathLike[str]) -> None:
        """Refuse a file that is not the same on all machines."""
        ...

    def warm_up(self, task: Task) -> None:
        """Run a task in all processes that run tasks, while other work goes on here; its result does not matter."""
        ...


class LocalEngine:
    """Runs tasks one after the other in this process, each with all threads.

    Examples
    --------
    >>> LocalEngine(threads=2).n_workers
    1
    """

    n_workers = 1

    def __init__(self, threads: int = 0) -> None:
        self.threads = n_threads(threads)

    def run(self, tasks: Sequence[Task], *, stage: str = "", progress: Progress = silent) -> list[Any]:
        """Run tasks in their order."""
        total, done, results = sum(task.cost for task in tasks), 0, []
        progress(stage, 0, total)
        for task in tasks:
            results.append(task(self.threads))
            done += task.cost
            progress(stage, done, total)
        return results

    def close(self) -> None:
        """Do nothing: there are no processes to end."""


def task(function: Function) -> Function:
    """Allow a function to be run as a task, by its name."""
    setattr(function, _MARK, True)
    return function


def name_of(function: Callable[..., Any]) -> str:
    """Return the name under which a task is found in another process.

    Examples
    --------
    >>> name_of(name_of)
    'umpteen.engine.tasks:name_of'
    """
    return f"{function.__module__}:{function.__qualname__}"


def _resolve(name: str) -> Callable[..., Any]:
    """Return the function of this name, if it is a task of this library."""
    module, _, attribute = name.partition(":")
    if module.partition(".")[0] == _PACKAGE:
        function = getattr(importlib.import_module(module), attribute, None)
        if getattr(function, _MARK, False):
            return function  # type: ignore[return-value]
    raise BadInput(f"{name!r:.120} is not a task of this library; tasks are functions decorated with @task")


def largest_first(tasks: Sequence[Task]) -> list[int]:
    """Return the order of tasks that keeps all workers busy to the end."""
    return sorted(range(len(tasks)), key=lambda i: -tasks[i].cost)
