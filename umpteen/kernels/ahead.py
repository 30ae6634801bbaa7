"""A second process that compiles kernels this one will need soon: numba compiles one function at a time in a process.

``plan`` says which job the other process would do. It is started when a kernel is needed that no cache holds, so never
where kernels have been compiled before. What it compiles it also saves in the cache, and sends here, because there may
be no cache. Nothing depends on it: what it does not deliver is compiled here.

``UMPTEEN_COMPILE_AHEAD=0`` in the environment switches it off. Does not load numba.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from umpteen.kernels.compiling import compiling, on_compile

SWITCH = "UMPTEEN_COMPILE_AHEAD"
_PATIENCE = 60.0  # seconds for one kernel; then it is compiled here

_log = logging.getLogger("umpteen.kernels")


class Helper:
    """The other process, seen from here: what it has compiled, and what it is compiling now."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._changed = threading.Condition()
        self._compiled: dict[tuple[str, str], bytes] = {}
        self._current: str | None = None
        self.is_over = False
        threading.Thread(target=self._listen, daemon=True, name="compile ahead").start()

    def take(self, kernel: str, key: str) -> bytes | None:
        """Return a kernel that was compiled, waiting for it if it is being compiled; None if there is none."""
        with self._changed:
            if self._current == kernel and not self.is_over:
                with compiling(kernel):  # so that whoever wants to know is told
                    self._changed.wait_for(lambda: self._current != kernel or self.is_over, _PATIENCE)
            return self._compiled.pop((kernel, key), None)

    def stop(self) -> None:
        """End the process; what it had not finished is lost."""
        self._process.kill()

    def _listen(self) -> None:
        output: Any = self._process.stdout
        with output, suppress(OSError, ValueError):  # a message that was cut off
            while header := output.readline():
                message = json.loads(header)
                body = output.read(message["size"])
                with self._changed:
                    if message["key"] is None:
                        self._current = message["kernel"]
                    elif len(body) == message["size"]:
                        self._compiled[message["kernel"], message["key"]] = body
                        self._current = None
                    self._changed.notify_all()
        with self._changed:
            self.is_over = True
            self._changed.notify_all()
        self._process.wait()


_planned: tuple[str, ...] = ()
_started: dict[tuple[str, ...], Helper | None] = {}  # by job; none is done twice
_send: Callable[[str, str | None, bytes], None] | None = None


def plan(*job: str) -> None:
    """Say which job of ``umpteen.models.ahead`` the other process is to do if a kernel has to be compiled."""
    global _planned
    _planned = job


def take(kernel: str, key: str) -> bytes | None:
    """Return what the other process compiled for a kernel that no cache holds; start it if that was planned."""
    for helper in filter(None, _started.values()):
        if (body := helper.take(kernel, key)) is not None:
            return body
    if _planned and _planned not in _started and _is_possible():
        _started[_planned] = _start(_planned)
    return None


def give(kernel: str, key: str, body: bytes) -> None:
    """Send a compiled kernel to the process that started this one, if one did."""
    if _send is not None:
        _send(kernel, key, body)


def serve(job: Callable[[], object]) -> None:
    """Do a job in the other process: what it compiles goes to standard output, and nothing else does."""
    global _send
    output: BinaryIO = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    depth = 0

    def send(kernel: str, key: str | None, body: bytes = b"") -> None:
        header = json.dumps({"kernel": kernel, "key": key, "size": len(body)})
        output.write(header.encode() + b"\n" + body)
        output.flush()

    def announce(kernel: str, seconds: float | None) -> None:
        nonlocal depth
        if seconds is None and depth == 0:  # functions that a kernel calls are compiled within
            send(kernel, None)
        depth += 1 if seconds is None else -1

    _send = send
    with on_compile(announce), suppress(BrokenPipeError):  # the other one has gone
        job()


def _start(job: tuple[str, ...]) -> Helper | None:
    root = str(Path(__file__).parents[2])  # -P keeps the working directory, which may be anybody's, off the path
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    try:
        helper = Helper(
            [sys.executable, "-P", "-c", "from umpteen.models.ahead import main; main()", *job],
            {**os.environ, "PYTHONPATH": paths, SWITCH: "0"},
        )
    except OSError as error:
        _log.info("kernels are not compiled ahead: %s", error)
        return None
    atexit.register(helper.stop)
    return helper


def _is_possible() -> bool:
    """Return whether a second process makes sense, and ``sys.executable`` is an interpreter that can be one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    is_python = Path(sys.executable or "").name.lower().startswith(("python", "pypy"))
    return cores > 1 and is_python and not getattr(sys, "frozen", False) and os.environ.get(SWITCH, "1") != "0"


def _forget() -> None:
    """Leave the other process to the parent: in a forked process no thread listens to it."""
    global _planned
    _planned = ()
    _started.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
