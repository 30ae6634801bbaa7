"""What the kills of jobs rest on: that every recipe and engine is killed, and that workers are found."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.fuzz.kills import JOBS, _descendants, _kill_all
from umpteen.engine.select import ENGINES
from umpteen.models import RECIPES


def words_after(flag: str) -> set[str]:
    return {word for job in JOBS for before, word in zip(job.command, job.command[1:], strict=False) if before == flag}


def test_every_recipe_and_engine_is_killed() -> None:
    members = {name.partition("*")[0] for names in words_after("--recipe") for name in names.split("+")}
    assert members == set(RECIPES)
    assert words_after("--engine") == set(ENGINES) - {"local"}
    assert len({job.stem for job in JOBS}) == len(JOBS)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")
def test_processes_that_threads_start_are_found() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with ThreadPoolExecutor(1) as thread:  # lives while it is looked at
        started = thread.submit(subprocess.Popen, [sys.executable, "-c", code], stdin=subprocess.PIPE).result()
        below: list[int] = []
        while not below and started.poll() is None:
            below = _descendants(started.pid)
        found = _descendants(os.getpid())
        _kill_all([started.pid, *below])
        started.communicate()
    assert {started.pid, *below} <= set(found)
    assert below
