"""Run independent tasks on threads.

Kernels release the GIL, so plain threads use every core, survive ``fork`` and never fight over a
global thread pool. A task gets its number and writes its own output; the engine returns results in order.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

Thing = TypeVar("Thing")

# progress(stage, done, total): called from the thread that waits, never from a worker.
Progress = Callable[[str, int, int], None]


def silent(stage: str, done: int, total: int) -> None:
    """Report nothing."""


def n_threads(wanted: int = 0) -> int:
    """Return how many threads to use; 0 means every core this process may run on."""
    if wanted > 0:
        return wanted
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


class Pool(Generic[Thing]):
    """Lend things that are costly to make, one to each task in flight; they come back as they were lent."""

    def __init__(self, make: Callable[[], Thing]):
        self._make, self._free = make, []  # type: Callable[[], Thing], list[Thing]

    @contextmanager
    def borrow(self) -> Iterator[Thing]:
        """Lend one, made if none is free; one that a failing task had is not lent again."""
        try:
            thing = self._free.pop()
        except IndexError:  # asking first would race with other threads
            thing = self._make()
        yield thing
        self._free.append(thing)


def run(
    task: Callable[[int], Any],
    n: int,
    *,
    threads: int = 1,
    order: Sequence[int] | None = None,
    weights: Sequence[int] | None = None,
    stage: str = "",
    progress: Progress = silent,
) -> list[Any]:
    """Run ``task(0) … task(n - 1)`` and return their results in that order.

    ``order`` says which tasks start first (largest first keeps all cores busy to the end); ``weights``
    says how much of the progress bar each is worth. The first failure stops the tasks not yet started.
    """
    results: list[Any] = [None] * n
    queue = list(range(n)) if order is None else list(order)
    total = n if weights is None else int(sum(weights))
    done = 0
    progress(stage, 0, total)

    def finished(i: int) -> None:
        nonlocal done
        done += 1 if weights is None else int(weights[i])
        progress(stage, done, total)

    if threads <= 1 or n <= 1:
        for i in queue:
            results[i] = task(i)
            finished(i)
        return results

    stop = threading.Event()

    def guarded(i: int) -> None:
        if not stop.is_set():
            results[i] = task(i)

    with ThreadPoolExecutor(min(threads, n), thread_name_prefix="umpteen") as pool:
        waiting = {pool.submit(guarded, i): i for i in queue}
        try:
            while waiting:
                ready, _ = wait(waiting, timeout=0.5, return_when=FIRST_EXCEPTION)
                for future in ready:
                    i = waiting.pop(future)
                    future.result()
                    finished(i)
        except BaseException:
            stop.set()
            for future in waiting:
                future.cancel()
            raise
    return results
