"""Logs: a line of JSON per event on standard error. Texts of requests are in them only if that is wanted."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TextIO


class Log:
    """Write events as lines of JSON.

    Examples
    --------
    >>> import io
    >>> stream = io.StringIO()
    >>> Log(stream).event("ready", models=["tags"])
    >>> event = json.loads(stream.getvalue())
    >>> event["event"], event["level"], event["models"]
    ('ready', 'info', ['tags'])
    """

    def __init__(self, stream: TextIO | None = None, facts: Mapping[str, Any] | None = None):
        self._stream, self._facts = stream, dict(facts or {})

    def event(self, event: str, *, level: str = "info", **facts: Any) -> None:
        """Write an event; a log that cannot be written stops nothing."""
        now = time.time()
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"
        line = json.dumps({"time": when, "level": level, "event": event, **self._facts, **facts})
        stream = self._stream or sys.stderr
        if stream is None:
            return
        with suppress(OSError, ValueError):
            stream.write(line + "\n")
            stream.flush()


def place_of(error: BaseException) -> str:
    """Say where an error was raised: file, line and type, not its message, which may quote a text."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    name = trace.tb_frame.f_code.co_filename.replace("\\", "/")
    return f"{type(error).__name__} at {'/'.join(name.split('/')[-3:])}:{trace.tb_lineno}"
