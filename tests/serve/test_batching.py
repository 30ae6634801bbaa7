"""Batches: what is predicted together, what waits, what is refused, and that nobody notices."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.serve.conftest import async_client
from umpteen import XRLinear
from umpteen.config.serving import ServeConfig
from umpteen.serve.app import create_app
from umpteen.serve.batching import Batcher, Job, SerialExecutor
from umpteen.serve.problems import Problem


class Slow:
    """A model that works when it is told to, and notes what it was given."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.may_go = threading.Semaphore(0)

    def __call__(self, jobs: Sequence[Job]) -> list[Any]:
        self.batches.append([job.content for job in jobs])
        self.may_go.acquire()
        if any(job.content == "bad" for job in jobs):
            raise ValueError("this job is bad")
        return [job.content for job in jobs]


def batcher(run: Any, waiting: int = 10, at_once: int = 4) -> Batcher:
    return Batcher(run, most_waiting=waiting, most_characters=1000, most_at_once=at_once)


def job(content: Any, n: int = 1, group: str = "a", text: str = "x") -> Job:
    return Job(group, [text] * n, content)


def test_what_arrives_meanwhile_is_the_next_batch() -> None:
    async def run() -> None:
        slow = Slow()
        queue = batcher(slow)
        futures = [queue.submit(job(i)) for i in range(6)]
        for _ in range(3):
            slow.may_go.release()
        assert await asyncio.gather(*futures) == list(range(6))
        assert slow.batches == [[0], [1, 2, 3, 4], [5]]  # the first at once, then as many as a batch may have
        queue.close()

    asyncio.run(run())


def test_groups_are_not_mixed_and_take_turns() -> None:
    async def run() -> None:
        slow = Slow()
        queue = batcher(slow, at_once=2)
        kinds = ["first", "a", "b", "a", "a", "b"]
        futures = [queue.submit(job((kind, i), group=kind)) for i, kind in enumerate(kinds)]
        for _ in range(4):
            slow.may_go.release()
        await asyncio.gather(*futures)
        wanted = [[("first", 0)], [("a", 1), ("a", 3)], [("b", 2), ("b", 5)], [("a", 4)]]
        assert slow.batches == wanted
        queue.close()

    asyncio.run(run())


def test_a_full_queue_refuses() -> None:
    async def run() -> None:
        slow = Slow()
        queue = batcher(slow, waiting=5)
        futures = [queue.submit(job(0, n=100)), queue.submit(job(1, n=5))]  # one runs, one waits
        with pytest.raises(Problem) as refused:
            queue.submit(job(2))
        assert refused.value.status == 429
        assert int(refused.value.headers["Retry-After"]) >= 1
        slow.may_go.release(2)
        assert await asyncio.gather(*futures) == [0, 1]
        assert queue.n_waiting == 0
        third = queue.submit(job(2))
        slow.may_go.release()
        assert await third == 2
        queue.close()

    asyncio.run(run())


def test_long_texts_fill_a_queue_too() -> None:
    async def run() -> None:
        slow = Slow()
        queue = batcher(slow)
        futures = [queue.submit(job(0)), queue.submit(job(1, text="x" * 900))]
        with pytest.raises(Problem):
            queue.submit(job(2, text="x" * 200))
        slow.may_go.release(2)
        await asyncio.gather(*futures)
        queue.close()

    asyncio.run(run())


def test_only_the_guilty_job_fails() -> None:
    async def run() -> None:
        slow = Slow()
        queue = batcher(slow)
        futures = [queue.submit(job(content)) for content in ("first", "good", "bad", "fine")]
        slow.may_go.release(10)
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert [str(result) for result in results] == ["first", "good", "this job is bad", "fine"]
        queue.close()

    asyncio.run(run())


def test_a_panic_does_not_end_the_thread() -> None:
    class Panic(BaseException):
        """What a library written in Rust raises."""

    def panic(jobs: Sequence[Job]) -> list[Any]:
        if jobs[0].content == "bad":
            raise Panic
        return [job.content for job in jobs]

    async def run() -> None:
        queue = batcher(panic)
        with pytest.raises(RuntimeError, match="Panic"):
            await queue.submit(job("bad"))
        assert await queue.submit(job("good")) == "good"
        queue.close()

    asyncio.run(run())


def test_a_job_that_was_given_up_is_not_run() -> None:
    async def run() -> None:
        slow = Slow()
        queue = batcher(slow)
        first, second, third = (queue.submit(job(i)) for i in range(3))
        second.cancel()
        slow.may_go.release(2)
        assert await asyncio.gather(first, third) == [0, 2]
        assert slow.batches == [[0], [2]]
        assert queue.n_waiting == 0
        queue.close()

    asyncio.run(run())


def test_a_lane_refuses_what_cannot_wait() -> None:
    async def run() -> None:
        executor, may_go = SerialExecutor("test", 1), threading.Event()
        tasks = [asyncio.create_task(executor.run(may_go.wait)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Problem) as refused:
            await executor.run(may_go.wait)
        assert refused.value.status == 429
        tasks[1].cancel()  # still counts until it has run
        may_go.set()
        assert await tasks[0]
        executor.close()

    asyncio.run(run())


def test_predictions_in_batches_are_those_of_single_texts(model: XRLinear, tiny: Any) -> None:
    """Many requests at once, with options of their own: each gets what it would get alone."""
    asks = []
    for i in range(120):
        ask: dict[str, Any] = {"texts": tiny.texts[i : i + 1 + i % 3], "k": 3 + i % 2}
        if i % 5 == 0:
            ask["threshold"] = 0.2
        if i % 7 == 0:
            ask["allowed"] = model.labels_.keys(range(30))
        asks.append(ask)

    async def run() -> tuple[list[Any], float]:
        app = create_app({"tags": model}, ServeConfig(access_log=False, max_queue=100_000))
        async with async_client(app) as client:
            responses = await asyncio.gather(*(client.post("/v1/predict", json=ask) for ask in asks))
            batches = app.state.service.metrics.batch._sum.get() / 120
            return [response.json()["predictions"] for response in responses], batches

    found, texts_per_batch = asyncio.run(run())
    assert texts_per_batch > 1
    for ask, rows in zip(asks, found, strict=True):
        allowed = list(range(30)) if "allowed" in ask else None
        top = model.topk(ask["texts"], ask["k"], allowed=allowed)
        least = ask.get("threshold", -1.0)
        for row, (labels, scores) in zip(rows, top, strict=True):
            kept = scores >= np.float32(least)
            assert [one["label"] for one in row] == model.labels_.keys(labels[kept])
            np.testing.assert_allclose([one["score"] for one in row], scores[kept], rtol=1e-5)


def test_overload_is_429_and_passes(model: XRLinear, tiny: Any) -> None:
    async def run() -> list[Any]:
        app = create_app({"tags": model}, ServeConfig(max_queue=8, access_log=False))
        async with async_client(app) as client:
            ask = {"texts": tiny.texts[:4]}
            crowd = await asyncio.gather(*(client.post("/v1/predict", json=ask) for _ in range(60)))
            return [*crowd, await client.post("/v1/predict", json=ask)]

    *crowd, last = asyncio.run(run())
    statuses = {response.status_code for response in crowd}
    assert statuses == {200, 429}
    refused = next(response for response in crowd if response.status_code == 429)
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.json()["error"]["code"] == "overloaded"
    assert last.status_code == 200
