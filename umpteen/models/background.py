"""Run a function in a thread of its own while this one waits for another processor."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from umpteen.engine import Progress


class Background:
    """A call that has begun; ``result`` waits for it and returns what it returned, or raises what it raised.

    If nobody waits, because the program was interrupted, it does not keep the program from ending.
    """

    def __init__(self, call: Callable[[], Any]):
        self._call, self._result, self._error = call, None, None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:  # raised in the thread that asks for the result
            self._error = error

    @property
    def is_done(self) -> bool:
        """Whether the call has ended."""
        return not self._thread.is_alive()

    def result(self) -> Any:
        """Wait for the end of the call."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._result


def one_at_a_time(progress: Progress) -> Progress:
    """Let several threads report: only one of them calls ``progress`` at a time."""
    lock = threading.Lock()

    def report(stage: str, done: int, total: int) -> None:
        with lock:
            progress(stage, done, total)

    return report
