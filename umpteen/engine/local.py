"""Run independent tasks on threads.

Kernels release the GIL, so plain threads use every core, survive ``fork`` and never fight over a
global thread pool. A task gets its number and writes its own output; the engine returns results in order.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue
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

    _on_threads(task, queue, results, finished, n_threads=min(threads, n), takes_part=progress is silent)
    return results


def _on_threads(
    task: Callable[[int], Any],
    queue: Sequence[int],
    results: list[Any],
    finished: Callable[[int], None],
    *,
    n_threads: int,
    takes_part: bool,
) -> None:
    """Fill ``results`` on so many threads; the calling one is among them, or waits and says what is finished.

    A caller without progress to report takes part: starting a thread takes longer than many a task.
    """
    waiting: SimpleQueue[int] = SimpleQueue()
    ended: SimpleQueue[tuple[int, BaseException | None]] = SimpleQueue()
    stop = threading.Event()
    for i in queue:
        waiting.put(i)

    def work() -> None:
        while not stop.is_set():
            try:
                i = waiting.get_nowait()
            except Empty:
                return
            try:
                results[i] = task(i)
                ended.put((i, None))
            except BaseException as error:
                stop.set()
                ended.put((i, error))

    workers = [threading.Thread(target=work, name=f"umpteen-{number}") for number in range(n_threads - takes_part)]
    try:
        for worker in workers:
            worker.start()
        if takes_part:
            work()
        for _ in queue:
            i, error = _get(ended)
            if error is not None:
                raise error
            finished(i)
    finally:
        stop.set()
        for worker in workers:
            if worker.ident is not None:  # it was started; the system may have refused to
                worker.join()


def _get(queue: SimpleQueue[Thing]) -> Thing:
    """Wait for the next thing, and wake up now and then: not every system lets an interrupt end a wait."""
    while True:
        try:
            return queue.get(timeout=0.5)
        except Empty:
            continue
