"""One run of a batch prediction: prepare blocks, let an engine predict them, and join the parts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from umpteen.engine import Engine, Progress, Task, name_of
from umpteen.errors import BadInput
from umpteen.models.background import Background
from umpteen.models.batch_input import Block, Source
from umpteen.models.batch_job import Job, predict_block
from umpteen.store import OutputParts, fingerprint

_AHEAD = 8  # blocks per worker that are prepared at a time
_PREDICTING, _JOINING = "predicting", "writing the output"


class Part(NamedTuple):
    """A part of the output, and the task that makes it unless it is finished."""

    name: str
    n_rows: int
    task: Task | None


class Run:
    """One run: prepares blocks, lets the engine predict them, and joins the parts."""

    def __init__(self, parts: OutputParts, job: Job, source: Source, engine: Engine, progress: Progress) -> None:
        self._parts, self._job, self._source = parts, job, source
        self._engine, self._progress, self._format = engine, progress, job.format
        self._name = f"run-{job.mark}.json"
        self._n_ahead = _AHEAD * engine.n_workers
        self._count = Background(source.count)  # takes as long as reading the file once

    def write(self, block_rows: int) -> tuple[int, int]:
        """Write the output; return the number of its rows, and of those that were predicted before."""
        blocks = self._source.blocks(block_rows)
        first = next(blocks, None)
        if first is None:
            raise BadInput("the input has no rows, so there is nothing to predict; check the path")
        with self._parts.held():
            slots = [self._slots(0), self._slots(self._n_ahead)]
            self._parts.reserve([self._name, *slots[0], *slots[1]])
            self._parts.write(self._name, json.dumps(asdict(self._job)).encode())
            parts = self._predict(self._waves(chain([first], blocks), slots))
            self._check(parts)
            self._parts.finish(self._format.join(self._reported(parts)))
        return sum(part.n_rows for part in parts), sum(part.n_rows for part in parts if part.task is None)

    def _slots(self, first: int) -> list[str]:
        """Return the names of the files in which a wave of blocks is kept."""
        return [self._parts.scratch(first + number, self._source.suffix) for number in range(self._n_ahead)]

    def _waves(self, blocks: Iterator[Block], slots: Sequence[Sequence[str]]) -> Iterator[list[Part]]:
        """Yield parts with as many unfinished ones as there are files in turn; the other files are still being read.

        The first wave has one for each worker, so that work begins soon.
        """
        turn, limit = 0, self._engine.n_workers
        wave: list[Part] = []
        n_tasks = 0
        for block in blocks:
            part = self._part(block, slots[turn][n_tasks])
            wave.append(part)
            n_tasks += part.task is not None
            if n_tasks == limit:
                yield self._reserved(wave)
                turn, limit = 1 - turn, self._n_ahead
                wave, n_tasks = [], 0
        yield self._reserved(wave)

    def _part(self, block: Block, slot: str) -> Part:
        """Return the part of a block; unless it is finished, write the block for the task that makes it."""
        mark = fingerprint(self._job.mark, block.digest)[:16]
        name = f"part-{block.first_row:012d}-{block.n_rows}-{mark}{self._job.suffix}"
        if self._parts.has(name) and self._format.n_rows(self._parts.folder / name) == block.n_rows:
            return Part(name, block.n_rows, None)
        self._parts.write(slot, block.content)
        arguments = {
            "folder": str(self._parts.folder.absolute()), "run": self._name, "rows": slot, "part": name,
            "temporary": self._parts.temporary(block.first_row + 1), "first_row": block.first_row,
        }  # fmt: skip
        return Part(name, block.n_rows, Task(name_of(predict_block), arguments, cost=block.n_rows))

    def _reserved(self, wave: list[Part]) -> list[Part]:
        tasks = [part.task.arguments for part in wave if part.task is not None]
        self._parts.reserve(name for arguments in tasks for name in (arguments["part"], arguments["temporary"]))
        return wave

    def _predict(self, waves: Iterator[list[Part]]) -> list[Part]:
        """Run the tasks wave by wave; the next wave is read meanwhile."""
        found: list[Part] = []
        done, n_kept = 0, 0
        for wave in _prefetched(waves):
            found += wave
            n_kept += sum(part.n_rows for part in wave if part.task is None)
            tasks = [part.task for part in wave if part.task is not None]
            if tasks:
                self._engine.run(tasks, stage=_PREDICTING, progress=self._from(done, n_kept))
                done += sum(task.cost for task in tasks)
        self._progress(_PREDICTING, done, done)
        return found

    def _from(self, before: int, n_kept: int) -> Progress:
        """Return the progress of a wave as that of all rows that are not kept; their number is known at the end."""

        def report(stage: str, done: int, n_wave: int) -> None:
            total = (self._count.result() or 0) - n_kept if self._count.is_done else before + n_wave
            self._progress(stage, before + done, max(total, before + done + 1))

        return report

    def _check(self, parts: list[Part]) -> None:
        """Compare the rows of the parts with those of the input: each must be there once."""
        for part in parts:
            n_found = self._format.n_rows(self._parts.folder / part.name)
            if n_found != part.n_rows:
                raise BadInput(
                    f"'{self._parts.folder / part.name}' must have {part.n_rows} rows, but has {n_found or 'none'}; "
                    "it was changed, so run the same command again"
                )

    def _reported(self, parts: list[Part]) -> Iterator[Path]:
        for number, part in enumerate(parts):
            self._progress(_JOINING, number, len(parts))
            yield self._parts.folder / part.name
        self._progress(_JOINING, len(parts), len(parts))


def _prefetched(waves: Iterator[list[Part]]) -> Iterator[list[Part]]:
    """Yield the waves; the next one is made in another thread meanwhile."""
    waiting = Background(lambda: next(waves, None))
    while (wave := waiting.result()) is not None:
        waiting = Background(lambda: next(waves, None))
        yield wave
