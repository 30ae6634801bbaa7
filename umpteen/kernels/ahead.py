"""Compile kernels in a second process, because numba compiles one function at a time in a process.

``plan`` sets the job of the second process, which is started when a kernel is not in the cache. It saves the kernels
that it compiles in the cache and also sends them to this process, for there may be no cache folder. Results do not
depend on it: kernels that it does not send are compiled here.

``UMPTEEN_COMPILE_AHEAD=0`` in the environment switches it off. This module does not load numba.
"""

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
_PATIENCE = 60.0  # seconds to wait for one kernel before it is compiled here

_log = logging.getLogger("umpteen.kernels")


class Helper:
    """The second process: the kernels that it has compiled, and the one that it is compiling."""

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
        """Return a compiled kernel, or None; if it is being compiled, wait for it."""
        with self._changed:
            if self._current == kernel and not self.is_over:
                with compiling(kernel):  # calls the callbacks of ``on_compile``
                    self._changed.wait_for(lambda: self._current != kernel or self.is_over, _PATIENCE)
            return self._compiled.pop((kernel, key), None)

    def stop(self) -> None:
        """Kill the process."""
        self._process.kill()

    def _listen(self) -> None:
        output: Any = self._process.stdout
        with output, suppress(OSError, ValueError):  # ValueError: a truncated message
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
_started: dict[tuple[str, ...], Helper | None] = {}  # by job
_send: Callable[[str, str | None, bytes], None] | None = None


def plan(*job: str) -> None:
    """Set the job of ``umpteen.models.ahead`` for the second process."""
    global _planned
    _planned = job


def take(kernel: str, key: str) -> bytes | None:
    """Return a kernel that the second process has compiled, or None; start the process if that was planned."""
    for helper in filter(None, _started.values()):
        if (body := helper.take(kernel, key)) is not None:
            return body
    if _planned and _planned not in _started and _is_possible():
        _started[_planned] = _start(_planned)
    return None


def give(kernel: str, key: str, body: bytes) -> None:
    """Send a compiled kernel to the parent process, if this is the second process."""
    if _send is not None:
        _send(kernel, key, body)


def serve(job: Callable[[], object]) -> None:
    """Run a job in the second process, and write the compiled kernels, and nothing else, to standard output."""
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
        if seconds is None and depth == 0:  # inner functions are compiled together with their kernel
            send(kernel, None)
        depth += 1 if seconds is None else -1

    _send = send
    with on_compile(announce), suppress(BrokenPipeError):  # the parent process has ended
        job()


def _start(job: tuple[str, ...]) -> Helper | None:
    root = str(Path(__file__).parents[2])  # -P: do not import from the working directory
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
    """Return whether there is a second core and ``sys.executable`` is a Python interpreter."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    is_python = Path(sys.executable or "").name.lower().startswith(("python", "pypy"))
    return cores > 1 and is_python and not getattr(sys, "frozen", False) and os.environ.get(SWITCH, "1") != "0"


def _forget() -> None:
    """Forget the second process after a fork: it belongs to the parent."""
    global _planned
    _planned = ()
    _started.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
