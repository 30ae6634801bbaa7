"""Standard streams that whoever started the command has closed, or that close while it runs.

Nothing heavy is imported here: the command looks at its streams before anything else.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress


class ClosedOutput(io.TextIOBase):
    """Stands in for a standard output that is closed: a command without results runs, one with results fails."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        """Refuse."""
        raise OSError("standard output is closed, so there is nowhere to print results; send it to a file or a pipe")


def prepare() -> None:
    """Write UTF-8, and occupy what is closed: the next file that is opened would be taken for a standard stream."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free, which is this one
    if sys.stdout is None:
        sys.stdout = ClosedOutput()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # for as long as the command runs
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # labels are in any script


def forget_output() -> None:
    """Forget what could not be written, or Python complains about it at the end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
