"""``umpteen train --log``: write the records of a training while it runs, as JSON lines or for TensorBoard."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO

from umpteen.engine import Callback, Record, stage_name
from umpteen.engine.printable import json_line
from umpteen.errors import BadConfig, BadInput, MissingExtra, nearest

_NOT_PLOTTED = ("model", "step")  # they say which curve a value belongs to, and where


class JsonLines:
    """Write every record as a line of JSON; a log of an earlier training is replaced by the first record."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: TextIO | None = None
        if not path.parent.is_dir():
            raise BadInput(f"--log jsonl:{path} needs a folder that exists, but '{path.parent}' does not; create it")
        _check_writable(path if path.exists() else path.parent, f"jsonl:{path}")
        if path.exists() and not _is_log(path):
            raise BadInput(f"'{path}' is in the way and is not a log of a training; move it elsewhere")

    def __call__(self, record: Record) -> None:
        if self._file is None:
            self._file = open(self.path, "w", encoding="utf-8")  # noqa: SIM115 - ``close`` closes it
        self._file.write(json_line(record))
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


class TensorBoard:
    """Write every number of a record as a scalar ``stage/name`` at its step.

    A log begins with the mark of a session, at which readers forget the records of earlier files in the folder: a
    training that resumes writes all records again.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # type: ignore[import-not-found]
            from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-not-found]
            from tensorboard.summary.writer.event_file_writer import EventFileWriter  # type: ignore[import-not-found]
        except ImportError:
            raise MissingExtra("tensorboard", "tensorboard", "--log tensorboard:DIR") from None
        if folder.exists() and not folder.is_dir():
            raise BadInput(f"--log tensorboard:{folder} needs a folder, but '{folder}' is a file; name another")
        _check_writable(
            next(one for one in (folder, *folder.absolute().parents) if one.exists()), f"tensorboard:{folder}"
        )
        self._event, self._summary = Event, Summary
        self._begin = Event(step=0, session_log=SessionLog(status=SessionLog.START))
        self._open = lambda: EventFileWriter(str(folder))
        self._writer: Any = None

    def __call__(self, record: Record) -> None:
        if self._writer is None:
            self._writer = self._open()
            self._begin.wall_time = time.time()
            self._writer.add_event(self._begin)
        values = [self._summary.Value(tag=tag, simple_value=value) for tag, value in scalars(record)]
        event = self._event(wall_time=time.time(), step=record.get("step", 0), summary=self._summary(value=values))
        self._writer.add_event(event)

    def close(self) -> None:
        """Write what is still in memory, and close the file."""
        if self._writer is not None:
            self._writer.close()


_KINDS = {"jsonl": JsonLines, "tensorboard": TensorBoard}


@contextmanager
def open_logs(logs: Sequence[JsonLines | TensorBoard]) -> Iterator[list[Callback]]:
    """Yield the logs as callbacks of a training, and close them at the end."""
    with ExitStack() as stack:
        for log in logs:
            stack.callback(log.close)
        yield list(logs)


def parse_logs(specs: Sequence[str]) -> list[JsonLines | TensorBoard]:
    """Return the logs that ``KIND:PATH`` describes; nothing is written before the first record."""
    logs = []
    for spec in specs:
        kind, colon, path = spec.partition(":")
        if kind not in _KINDS or not colon or not path:
            hint = nearest(kind, _KINDS) if colon else ""
            raise BadConfig(f"--log takes jsonl:FILE or tensorboard:DIR, but got '{spec}'{hint}")
        logs.append(_KINDS[kind](Path(path)))
    return logs


def scalars(record: Record) -> list[tuple[str, float]]:
    """Return the numbers of a record with their tags.

    >>> scalars({"stage": "training", "step": 50, "loss": 0.5})
    [('training/loss', 0.5)]
    """
    stage = stage_name(record).replace("/", "-")
    if "weights" in record:
        stage = f"{stage} ({record['weights']} weights)"
    return [
        (f"{stage}/{name}", float(value))
        for name, value in record.items()
        if isinstance(value, (int, float)) and name not in _NOT_PLOTTED
    ]


def _check_writable(path: Path, spec: str) -> None:
    """Refuse a log that could not be written, before time is spent on training."""
    if not os.access(path, os.W_OK):
        raise BadInput(f"--log {spec} cannot be written: no permission to write to '{path}'; name another place")


def _is_log(path: Path) -> bool:
    """Return whether a file is empty or begins with a record."""
    try:
        with open(path, encoding="utf-8") as file:
            line = file.readline(10_000)
        return not line or {"stage", "seconds"} <= json.loads(line).keys()
    except (OSError, ValueError, AttributeError):
        return False
