"""Threads: results in order, failures that stop the rest, progress that only grows."""

from __future__ import annotations

import os
import threading

import pytest

from umpteen.engine import Pool, machine_memory, memory, n_threads, run, silent


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_results_come_in_the_order_of_tasks(threads):
    assert run(lambda i: i * i, 50, threads=threads, order=list(range(49, -1, -1))) == [i * i for i in range(50)]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("n", [0, 1, 2])
def test_few_or_no_tasks(threads, n):
    assert run(lambda i: i + 1, n, threads=threads) == list(range(1, n + 1))


def test_tasks_start_in_the_given_order():
    started: list[int] = []
    run(started.append, 5, order=[3, 1, 4, 0, 2])
    assert started == [3, 1, 4, 0, 2]


def test_the_number_of_threads_is_bounded():
    assert n_threads(3) == 3
    assert n_threads(10**9) <= 1024


def test_memory_of_the_machine(tmp_path, monkeypatch):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "_CONTAINER", limit)
    whole = machine_memory.__wrapped__()
    assert whole > 10**8
    for content, expected in [("max", whole), ("123456789", 123_456_789.0), ("1\xb2", whole)]:
        limit.write_text(content, encoding="latin-1")
        assert machine_memory.__wrapped__() == expected


def test_threads_take_the_first_of_the_order():
    both_at_work = threading.Barrier(2, timeout=30)
    started: list[int] = []

    def task(i: int) -> None:
        started.append(i)
        both_at_work.wait()

    run(task, 6, threads=2, order=[5, 2, 0, 1, 3, 4])
    # Nobody goes on before both have begun, so tasks start two by two.
    assert [set(started[i : i + 2]) for i in (0, 2, 4)] == [{5, 2}, {0, 1}, {3, 4}]


def test_tasks_run_on_several_threads_at_the_same_time():
    meeting = threading.Barrier(3, timeout=30)
    run(lambda i: meeting.wait(), 3, threads=3)  # fewer threads would break the barrier


def test_one_thread_means_the_calling_thread():
    assert set(run(lambda i: threading.get_ident(), 4, threads=1)) == {threading.get_ident()}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_a_failure_reaches_the_caller_and_stops_what_has_not_started(threads, error):
    started: list[int] = []
    others_wait = threading.Event()

    def task(i: int) -> None:
        started.append(i)
        if i == 0:
            raise error
        if threads > 1:
            others_wait.wait(0.05)

    with pytest.raises(type(error)):
        run(task, 10_000, threads=threads)
    assert started[0] == 0
    assert len(started) < 5_000


def test_an_interrupt_while_waiting_stops_the_workers():
    started: list[int] = []
    release = threading.Event()

    def task(i: int) -> None:
        started.append(i)
        release.wait(0.02)

    def interrupt(stage: str, done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        run(task, 2_000, threads=2, progress=interrupt)
    assert len(started) < 2_000
    assert not set(threading.enumerate()) - before


def test_threads_that_cannot_be_started_are_told_of(monkeypatch):
    plain, started = threading.Thread.start, []

    def refuse_the_second(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        plain(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_the_second)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        run(lambda i: i, 5, threads=3)
    assert not started[0].is_alive()


@pytest.mark.parametrize("threads", [1, 3])
def test_progress_grows_from_nothing_to_everything(threads):
    seen: list[tuple[str, int, int]] = []
    weights = [5, 0, 2, 9]
    run(lambda i: i, 4, threads=threads, weights=weights, stage="work", progress=lambda *now: seen.append(now))
    done = [now[1] for now in seen]
    assert {(stage, total) for stage, _, total in seen} == {("work", 16)}
    assert done[0] == 0
    assert done[-1] == 16
    assert done == sorted(done)
    assert len(seen) == 5


def test_progress_is_called_from_the_waiting_thread():
    callers = set()
    run(lambda i: i, 20, threads=3, progress=lambda *_: callers.add(threading.get_ident()))
    assert callers == {threading.get_ident()}


def test_without_weights_a_task_counts_one():
    seen: list[int] = []
    run(lambda i: i, 3, progress=lambda stage, done, total: seen.append((done, total)))
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_silent_reports_nothing(capsys):
    assert silent("work", 1, 2) is None
    assert capsys.readouterr().out == ""


def test_n_threads_takes_a_wish_or_all_cores(monkeypatch):
    assert n_threads(3) == 3
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 4}, raising=False)
    assert n_threads(0) == 5
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert n_threads() == 1


def test_a_pool_lends_what_came_back_and_makes_what_is_missing():
    made: list[list[int]] = []
    pool = Pool(lambda: made.append([]) or made[-1])
    with pool.borrow() as first, pool.borrow() as second:
        assert first is not second
    with pool.borrow() as again:
        assert again is first or again is second
    assert len(made) == 2


def test_a_pool_does_not_lend_what_a_failing_task_had():
    pool = Pool(list)
    with pytest.raises(ValueError), pool.borrow() as spoilt:  # noqa: PT012
        spoilt.append(1)
        raise ValueError
    with pool.borrow() as fresh:
        assert fresh == []


def test_a_pool_never_lends_one_thing_to_two_tasks():
    pool = Pool(lambda: {"users": 0, "most": 0})

    def task(i: int) -> int:
        with pool.borrow() as thing:
            thing["users"] += 1
            most = thing["users"]
            thing["users"] -= 1
            return most

    assert set(run(task, 2_000, threads=8)) == {1}
