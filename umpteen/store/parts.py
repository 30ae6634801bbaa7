"""Stages that are made in parts: each part by a task, which may run in any process, and saved as a stage of its own.

A task reads the stages that it needs from the same folder. It is not run if its part exists, so a run that was
interrupted goes on with the missing parts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from umpteen.engine import Engine, Progress, Task, name_of, silent, task
from umpteen.store.checkpoint import Checkpoint
from umpteen.store.tensors import Pieces, Tensors

_COPIED_AT_ONCE = 1 << 22  # entries


@dataclass(frozen=True)
class Part:
    """One part of a stage: what distinguishes its task from those of the other parts, and how long it takes."""

    name: str
    arguments: Mapping[str, Any]
    cost: int = 1


def part_task(function: Callable[..., Tensors]) -> Callable[..., None]:
    """Make a task of a function that returns the arrays of a part.

    The function is called as ``function(checkpoint, threads=…, **arguments)``.
    """

    @task
    @functools.wraps(function)
    def run(*, folder: str, key: str, stage: str, token: str, threads: int, **arguments: Any) -> None:
        checkpoint = Checkpoint(folder, key)
        if not checkpoint.has(stage):  # by an earlier attempt, of which the engine does not know
            checkpoint.write(stage, function(checkpoint, threads=threads, **arguments), token)

    return run


def make_parts(
    checkpoint: Checkpoint,
    engine: Engine,
    function: Callable[..., None],
    parts: Sequence[Part],
    *,
    common: Mapping[str, Any] | None = None,
    stage: str = "",
    progress: Progress = silent,
) -> list[str]:
    """Run the tasks of the parts that do not exist yet; return the stages of all parts."""
    missing = [part for part in parts if not checkpoint.has(part.name)]
    if missing:
        tokens = checkpoint.reserve([part.name for part in missing])
        where: dict[str, Any] = {"folder": str(checkpoint.folder.absolute()), "key": checkpoint.key}
        where |= common or {}
        tasks = [
            Task(name_of(function), {**where, **part.arguments, "stage": part.name, "token": token}, part.cost)
            for part, token in zip(missing, tokens, strict=True)
        ]
        try:
            engine.run(tasks, stage=stage, progress=progress)
        finally:
            checkpoint.sweep()
    return [part.name for part in parts]


def join_parts(
    checkpoint: Checkpoint,
    stage: str,
    parts: Sequence[str],
    *,
    pointers: Sequence[str] = (),
    extra: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Concatenate the arrays of parts, by name, to one stage with some ``extra`` arrays, and remove the parts.

    Arrays in ``pointers`` begin with 0 in every part; they are shifted and joined to one array of pointers. Arrays are
    copied in blocks, so no array is ever in memory as a whole.
    """
    if not checkpoint.has(stage):
        arrays = [checkpoint.load(part) for part in parts]
        joined = {name: _joined([part[name] for part in arrays], name in pointers) for name in arrays[0]}
        others = {name: Pieces(array.dtype, array.shape, [array]) for name, array in (extra or {}).items()}
        checkpoint.save_pieces(stage, joined | others)
    checkpoint.drop(*parts)


def _joined(parts: Sequence[np.ndarray], is_pointer: bool) -> Pieces:
    """Return the array that consists of parts, in the widest of their types."""
    kind = max((part.dtype for part in parts), key=lambda dtype: dtype.itemsize)
    length = sum(len(part) for part in parts) - (len(parts) - 1 if is_pointer else 0)
    return Pieces(kind, (length, *parts[0].shape[1:]), _shifted(parts) if is_pointer else _in_blocks(parts))


def _in_blocks(parts: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
    for part in parts:
        for first, last in blocks(len(part), _COPIED_AT_ONCE):
            yield part[first:last]


def _shifted(parts: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield pointers that begin where those before end; the first of a part is the last of the part before."""
    shift = 0
    yield parts[0][:1]
    for part in parts:
        for block in _in_blocks([part[1:]]):
            yield block + part.dtype.type(shift)
        shift += int(part[-1])


def blocks(n: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the ends of consecutive blocks of at most ``size`` of ``n`` things.

    Examples
    --------
    >>> list(blocks(5, 2))
    [(0, 2), (2, 4), (4, 5)]
    """
    for first in range(0, n, size):
        yield first, min(first + size, n)
