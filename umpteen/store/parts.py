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
from umpteen.store.tensors import Tensors

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
    others = extra or {}
    if not checkpoint.has(stage):
        arrays = [checkpoint.load(part) for part in parts]
        with checkpoint.writing(stage) as allocate:
            layout = _joined_layout(arrays, pointers)
            joined = allocate(layout | {name: (array.dtype, array.shape) for name, array in others.items()})
            for name, out in joined.items():
                pieces = [others[name]] if name in others else [part[name] for part in arrays]
                _join(pieces, out, is_pointer=name in pointers)
    for part in parts:
        checkpoint.drop(part)


def _joined_layout(arrays: Sequence[Tensors], pointers: Sequence[str]) -> dict[str, tuple[Any, tuple[int, ...]]]:
    layout = {}
    for name, first in arrays[0].items():
        kind = max((part[name].dtype for part in arrays), key=lambda dtype: dtype.itemsize)
        extra = len(arrays) - 1 if name in pointers else 0
        layout[name] = (kind, (sum(len(part[name]) for part in arrays) - extra, *first.shape[1:]))
    return layout


def _join(parts: Sequence[np.ndarray], out: np.ndarray, *, is_pointer: bool) -> None:
    at, shift = 0, 0
    for part in parts:
        for first, last in blocks(len(part), _COPIED_AT_ONCE):
            out[at + first : at + last] = part[first:last] + part.dtype.type(shift) if is_pointer else part[first:last]
        at += len(part)
        if is_pointer:
            at, shift = at - 1, int(out[at - 1])


def blocks(n: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the ends of consecutive blocks of at most ``size`` of ``n`` things.

    Examples
    --------
    >>> list(blocks(5, 2))
    [(0, 2), (2, 4), (4, 5)]
    """
    for first in range(0, n, size):
        yield first, min(first + size, n)
