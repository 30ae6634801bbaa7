"""Callbacks and log messages about the compilation of kernels. Does not load numba."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# callback(kernel, seconds): called before a kernel is compiled, with None, and after it. By any thread.
Callback = Callable[[str, float | None], None]

_log = logging.getLogger("umpteen.kernels")
_callbacks: list[Callback] = []
_lock = threading.Lock()


@contextmanager
def on_compile(callback: Callback) -> Iterator[None]:
    """Call ``callback(kernel, None)`` before a kernel is compiled and ``callback(kernel, seconds)`` after it.

    Kernels in the cache are not compiled. Calls are nested if kernels call each other.

    Examples
    --------
    >>> calls = []
    >>> with on_compile(lambda kernel, seconds: calls.append((kernel, seconds is None))):
    ...     with compiling("score.search"):
    ...         pass
    >>> calls
    [('score.search', True), ('score.search', False)]
    """
    with _lock:
        _callbacks.append(callback)
    try:
        yield
    finally:
        with _lock:
            _callbacks.remove(callback)


@contextmanager
def compiling(kernel: str) -> Iterator[None]:
    """Call the callbacks before and after the block, in which a kernel is compiled."""
    begun = time.perf_counter()
    _notify(kernel, None)
    try:
        yield
    finally:
        seconds = time.perf_counter() - begun
        _log.info("compiled %s in %.2f s", kernel, seconds)
        _notify(kernel, seconds)


def _notify(kernel: str, seconds: float | None) -> None:
    with _lock:
        callbacks = list(_callbacks)
    for callback in callbacks:
        callback(kernel, seconds)
