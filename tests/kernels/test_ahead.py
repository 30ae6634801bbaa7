"""The process that compiles ahead: what it says, what is made of it, and that nothing depends on it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from umpteen.kernels import ahead
from umpteen.kernels.ahead import Helper
from umpteen.kernels.compiling import on_compile

ROOT = Path(__file__).parents[2]
# Stands for the job: tells of two kernels, sends one, then compiles the other until it is killed or told to end.
JOB = """
import sys, time
from pathlib import Path
from umpteen.kernels import ahead
from umpteen.kernels.compiling import compiling

def job():
    print("not a message")
    with compiling("score.search"):
        with compiling("score.post"):
            pass
    ahead.give("score.search", "key", bytes(range(256)) + b"\\n{}")
    with compiling("solve.solve"):
        while not Path(sys.argv[1]).exists():
            time.sleep(0.01)
    if sys.argv[2] == "sends":
        ahead.give("solve.solve", "key", b"late")

ahead.serve(job)
"""


@pytest.fixture
def helper(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Helper]:
    command = [sys.executable, "-c", JOB, str(tmp_path / "end"), getattr(request, "param", "sends")]
    found = Helper(command, {**os.environ, "PYTHONPATH": str(ROOT)})
    yield found
    found.stop()


def until(condition: Callable[[], Any]) -> None:
    ends = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_what_was_compiled_is_delivered_once(helper: Helper) -> None:
    found: list[bytes | None] = []
    until(lambda: found.append(helper.take("score.search", "key")) or found[-1])
    assert found[-1] == bytes(range(256)) + b"\n{}"
    assert helper.take("score.search", "key") is None


def test_only_what_was_asked_for_is_delivered(helper: Helper) -> None:
    found: list[bytes | None] = []
    until(lambda: found.append(helper.take("score.search", "another key")) or helper.take("score.search", "key"))
    assert set(found) == {None}


@pytest.fixture
def awaited(tmp_path: Path) -> Iterator[list[str]]:
    """Note kernels that are waited for; then let the job end, which it does not do before."""
    kernels: list[str] = []

    def tell(kernel: str, seconds: float | None) -> None:
        if seconds is None:
            kernels.append(kernel)
            (tmp_path / "end").touch()

    with on_compile(tell):
        yield kernels


def test_a_kernel_that_is_being_compiled_is_waited_for(helper: Helper, awaited: list[str]) -> None:
    found: list[bytes | None] = []
    until(lambda: found.append(helper.take("solve.solve", "key")) or awaited)
    assert found[-1] == b"late"
    assert awaited == ["solve.solve"]


def test_a_kernel_that_is_not_being_compiled_is_not_waited_for(helper: Helper, awaited: list[str]) -> None:
    until(lambda: helper.take("score.search", "key"))
    for _ in range(20):  # meanwhile the job goes on to another kernel
        assert helper.take("cluster.halve", "key") is None
        time.sleep(0.01)
    assert awaited == []


@pytest.mark.parametrize("helper", ["dies"], indirect=True)
def test_a_process_that_ends_early_is_not_waited_for(helper: Helper, awaited: list[str]) -> None:
    found: list[bytes | None] = []
    until(lambda: found.append(helper.take("solve.solve", "key")) or awaited)
    assert set(found) == {None}
    until(lambda: helper.is_over)


class Started:
    """Stands for the other process and notes its job."""

    jobs: ClassVar[list[str]] = []

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.jobs.append(command[-1])

    def take(self, kernel: str, key: str) -> None:
        return None

    def stop(self) -> None:
        pass


@pytest.fixture
def unplanned(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module as it is when it is imported for the first time, on a machine of two cores."""
    spec = importlib.util.spec_from_file_location("unplanned", ahead.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(Started, "jobs", [])
    monkeypatch.setattr(module, "Helper", Started)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    monkeypatch.setenv(ahead.SWITCH, "1")
    return module


def test_nothing_is_started_unless_planned_wanted_and_possible(
    unplanned: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = partial(unplanned.take, "score.search", "key")
    assert take() is None
    unplanned.plan("train")
    monkeypatch.setenv(ahead.SWITCH, "0")
    take()
    monkeypatch.setenv(ahead.SWITCH, "1")
    for name, value in (("executable", "/usr/bin/uwsgi"), ("executable", ""), ("frozen", True)):
        with monkeypatch.context() as patch:
            patch.setattr(sys, name, value, raising=False)
            take()
    with monkeypatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
        take()
    assert Started.jobs == []
    take()
    take()
    assert Started.jobs == ["train"]  # once, whatever becomes of it


# With an argument kernels are kept nowhere, so what is not compiled here came from the other process.
TRAINING = """
import sys, time
import numpy as np
import scipy.sparse as sp
import umpteen
from umpteen.kernels import ahead, cache, lazy

X = sp.random(50, 40, 0.2, format="csr", dtype=np.float32, random_state=1)
Y = sp.csr_matrix(np.kron(np.eye(50), np.ones(10)))
if sys.argv[1:]:
    class Kept(ahead.Helper):
        def __init__(self, *given):
            super().__init__(*given)
            helpers.append(self)

    helpers, ahead.Helper = [], Kept
    cache.places = lambda: cache.Places((), None)
    ahead.plan("train")
    ahead.take("none", "")
    while not helpers[0].is_over:
        time.sleep(0.01)
model = umpteen.XRLinear(tree={"leaf_size": 20}, linear={"negatives": "tfn+man"}).fit(X, Y)
delivered = sum(lazy.solve.solve.stats.cache_hits.values()) + sum(lazy.score.search.stats.cache_hits.values())
print(delivered, model.topk(X, 3).scores.astype(np.float64).sum().hex())
"""


@pytest.mark.slow
def test_a_training_uses_what_was_compiled_ahead(tmp_path: Path) -> None:
    def trained(switch: str, *arguments: str) -> list[str]:
        environment = {**os.environ, ahead.SWITCH: switch, "PYTHONPATH": str(ROOT)}
        if switch == "1":
            environment["NUMBA_CACHE_DIR"] = str(tmp_path)  # empty, for the other process
        done = subprocess.run(
            [sys.executable, "-c", TRAINING, *arguments],
            env=environment, capture_output=True, text=True, timeout=300, check=True, cwd=tmp_path,
        )  # fmt: skip
        return done.stdout.split()

    n_delivered, scores = trained("1", "wait")
    assert int(n_delivered) >= 2
    assert trained("0")[1] == scores
