"""Predict the texts of several requests at once, in a thread beside the event loop.

Nothing waits for a batch to fill: an idle model takes the first request at once, and whatever arrives while it works is
the next batch.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from queue import SimpleQueue
from typing import Any

from umpteen.serve.problems import busy

Run = Callable[[Sequence["Job"]], list[Any]]


class Job:
    """The texts of a request.

    Parameters
    ----------
    group
        Jobs of the same group may be predicted together.
    texts
        What is predicted.
    content
        What ``run`` needs beside the texts.
    """

    __slots__ = ("content", "future", "group", "n_characters", "texts")

    def __init__(self, group: Hashable, texts: Sequence[str], content: Any):
        self.group, self.texts, self.content = group, texts, content
        self.n_characters = sum(map(len, texts))
        self.future: asyncio.Future[Any]


class Batcher:
    """A bounded queue and a thread that works it off.

    Parameters
    ----------
    run
        Called in the thread with jobs of one group; returns a result, or an exception, for each.
    most_waiting, most_characters
        Texts, and their characters, that may wait; requests beyond them are refused.
    most_at_once
        Texts of a batch; a single job may have more.
    """

    def __init__(self, run: Run, *, most_waiting: int, most_characters: int, most_at_once: int):
        self._run, self._most_at_once = run, most_at_once
        self._most_waiting, self._most_characters = most_waiting, most_characters
        self._groups: dict[Hashable, deque[Job]] = {}
        self._inbox: SimpleQueue[list[Job] | None] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_running = False
        self.n_waiting, self._n_characters = 0, 0

    def submit(self, job: Job) -> asyncio.Future[Any]:
        """Queue a job and return its future; refuse it if too much waits already."""
        n = len(job.texts)
        if self.n_waiting and (
            self.n_waiting + n > self._most_waiting or self._n_characters + job.n_characters > self._most_characters
        ):
            raise busy()
        self._start_thread()
        job.future = self._loop.create_future()  # type: ignore[union-attr]
        self._groups.setdefault(job.group, deque()).append(job)
        self.n_waiting += n
        self._n_characters += job.n_characters
        if not self._is_running:
            self._start_batch()
        return job.future

    def close(self) -> None:
        """End the thread after the batch it works on."""
        self._inbox.put(None)
        self._loop = None

    def _start_thread(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self._loop is not None:
            self.close()  # of an event loop that is no more
        self._inbox, self._is_running, self._loop = SimpleQueue(), False, loop
        threading.Thread(target=self._work, args=(loop, self._inbox), name="umpteen-batches", daemon=True).start()

    def _start_batch(self) -> None:
        batch = self._next_batch()
        self._is_running = bool(batch)
        if batch:
            self._inbox.put(batch)

    def _next_batch(self) -> list[Job]:
        """Take jobs of the group that has waited longest; those given up meanwhile are left out."""
        batch: list[Job] = []
        while self._groups and not batch:
            group = next(iter(self._groups))
            jobs, n = self._groups.pop(group), 0
            while jobs and (not batch or n + len(jobs[0].texts) <= self._most_at_once):
                job = jobs.popleft()
                self.n_waiting -= len(job.texts)
                self._n_characters -= job.n_characters
                if not job.future.done():
                    batch.append(job)
                    n += len(job.texts)
            if jobs:
                self._groups[group] = jobs  # behind the other groups
        return batch

    def _work(self, loop: asyncio.AbstractEventLoop, inbox: SimpleQueue[list[Job] | None]) -> None:
        while (batch := inbox.get()) is not None:
            results = self._results(batch)
            try:
                loop.call_soon_threadsafe(self._finish, batch, results)
            except RuntimeError:  # the loop is closed, nobody waits any more
                return
            del batch, results  # not kept until the next batch

    def _results(self, batch: list[Job]) -> list[Any]:
        """Run a batch; if it fails, its jobs one by one, so that only the guilty one fails."""
        try:
            return self._run(batch)
        except BaseException as error:  # tokenizers raise some that are no Exception; the thread must go on
            if len(batch) == 1:
                return [error if isinstance(error, Exception) else RuntimeError(type(error).__name__)]
            return [self._results([job])[0] for job in batch]

    def _finish(self, batch: list[Job], results: list[Any]) -> None:
        self._start_batch()
        for job, result in zip(batch, results, strict=True):
            if job.future.done():
                continue
            if isinstance(result, Exception):
                job.future.set_exception(result)
            else:
                job.future.set_result(result)


class SerialExecutor:
    """Work that is done one by one in a thread of its own; so much may wait, and more is refused."""

    def __init__(self, name: str, most_waiting: int):
        from concurrent.futures import ThreadPoolExecutor

        self._most, self._n = most_waiting, 0
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"umpteen-{name}")

    async def run(self, task: Callable[..., Any], *arguments: Any) -> Any:
        """Run a task; it is not interrupted if the caller gives up."""
        if self._n > self._most:
            raise busy()
        self._n += 1
        future = asyncio.get_running_loop().run_in_executor(self._executor, task, *arguments)
        future.add_done_callback(self._done)
        return await asyncio.shield(future)

    def _done(self, future: asyncio.Future[Any]) -> None:
        self._n -= 1
        if not future.cancelled():
            future.exception()  # was reported to the caller, unless that one gave up

    def close(self) -> None:
        """Do not wait for what runs."""
        self._executor.shutdown(wait=False, cancel_futures=True)
