"""Who is told while kernels are compiled: the log, and whoever asked. Does not load numba."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# callback(kernel, seconds): before a kernel is compiled, without seconds, and after it. From any thread.
Callback = Callable[[str, float | None], None]

_log = logging.getLogger("umpteen.kernels")
_asked: list[Callback] = []
_lock = threading.Lock()


@contextmanager
def on_compile(callback: Callback) -> Iterator[None]:
    """Call ``callback(kernel, None)`` before a kernel is compiled and ``callback(kernel, seconds)`` after it.

    A kernel that is found in the cache is not compiled. Kernels that others call are told of within those.

    Examples
    --------
    >>> told = []
    >>> with on_compile(lambda kernel, seconds: told.append((kernel, seconds is None))):
    ...     with compiling("score.search"):
    ...         pass
    >>> told
    [('score.search', True), ('score.search', False)]
    """
    with _lock:
        _asked.append(callback)
    try:
        yield
    finally:
        with _lock:
            _asked.remove(callback)


@contextmanager
def compiling(kernel: str) -> Iterator[None]:
    """Tell that a kernel is compiled within."""
    begun = time.perf_counter()
    _tell(kernel, None)
    try:
        yield
    finally:
        seconds = time.perf_counter() - begun
        _log.info("compiled %s in %.2f s", kernel, seconds)
        _tell(kernel, seconds)


def _tell(kernel: str, seconds: float | None) -> None:
    with _lock:
        callbacks = list(_asked)
    for callback in callbacks:
        callback(kernel, seconds)
