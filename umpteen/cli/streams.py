"""Standard streams that are closed when the command starts, or while it runs."""

import io
import os
import sys
from contextlib import suppress
from typing import TextIO


class ClosedOutput(io.TextIOBase):
    """Replaces a closed standard output: only commands that print results fail."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        """Raise OSError."""
        raise OSError("standard output is closed, so there is nowhere to print results; send it to a file or a pipe")


def prepare() -> None:
    """Set the encoding to UTF-8, and replace closed streams, whose numbers the next opened files would get."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
    if sys.stdout is None:
        sys.stdout = ClosedOutput()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # until the command ends
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def discard(stream: TextIO) -> None:
    """Discard what is written to a stream, also what is buffered, which Python would try to write again at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
