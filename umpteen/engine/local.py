"""Run independent tasks on threads.

Kernels release the GIL, so plain threads use all cores. They survive ``fork`` and share no global thread pool.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_MOST_THREADS = 1024  # more would take memory for stacks and gain nothing

# progress(stage, done, total): called by the thread that called ``run``, never by a worker.
Progress = Callable[[str, int, int], None]


def silent(stage: str, done: int, total: int) -> None:
    """Report nothing."""


def n_threads(threads: int = 0) -> int:
    """Return the number of threads to use; 0 means one for each core that this process may run on."""
    if threads > 0:
        return min(threads, _MOST_THREADS)
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


class Pool(Generic[T]):
    """Reusable objects that are costly to create, one for each running task."""

    def __init__(self, make: Callable[[], T]):
        self._make, self._free = make, []  # type: Callable[[], T], list[T]

    @contextmanager
    def borrow(self) -> Iterator[T]:
        """Yield a free object, or a new one; if the block raises, the object is not used again."""
        try:
            item = self._free.pop()
        except IndexError:  # testing for emptiness first would race with other threads
            item = self._make()
        yield item
        self._free.append(item)


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

    ``order`` is the order in which tasks start (largest first keeps all cores busy to the end), ``weights`` the share
    of each in the progress. After a failure no further task is started.
    """
    results: list[Any] = [None] * n
    waiting = deque(range(n) if order is None else order)
    total = n if weights is None else int(sum(weights))
    done = 0
    progress(stage, 0, total)

    def finished(i: int) -> None:
        nonlocal done
        done += 1 if weights is None else int(weights[i])
        progress(stage, done, total)

    if threads <= 1 or n <= 1:
        for i in waiting:
            results[i] = task(i)
            finished(i)
    else:
        _run_on_threads(task, waiting, results, finished, n_threads=min(threads, n), caller_works=progress is silent)
    return results


def _run_on_threads(
    task: Callable[[int], Any],
    waiting: deque[int],
    results: list[Any],
    finished: Callable[[int], None],
    *,
    n_threads: int,
    caller_works: bool,
) -> None:
    """Fill ``results`` on ``n_threads`` threads.

    The calling thread either runs tasks too, which saves the start of a thread, or waits and reports progress.
    """
    ended: SimpleQueue[tuple[int, BaseException | None]] = SimpleQueue()
    n_tasks = len(waiting)

    def work() -> None:
        while True:
            try:
                i = waiting.popleft()
            except IndexError:
                return
            try:
                results[i] = task(i)
                ended.put((i, None))
            except BaseException as error:
                waiting.clear()
                ended.put((i, error))

    workers = [threading.Thread(target=work, name=f"umpteen-{number}") for number in range(n_threads - caller_works)]
    try:
        for worker in workers:
            worker.start()
        if caller_works:
            work()
        for _ in range(n_tasks):
            i, error = _get(ended)
            if error is not None:
                raise error
            finished(i)
    finally:
        waiting.clear()
        for worker in workers:
            if worker.ident is not None:  # the system may have refused to start it
                worker.join()


def _get(queue: SimpleQueue[T]) -> T:
    """Wait for the next item; the timeout lets Ctrl-C through on systems where it does not end a wait."""
    while True:
        with suppress(Empty):
            return queue.get(timeout=0.5)
