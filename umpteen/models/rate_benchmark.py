"""Measure how fast this machine is by a short benchmark.

Typical rates were fitted to trainings on one machine. The tasks here took ``_REFERENCE`` seconds on that machine; a
machine that takes twice as long for a task has half the rate for the work that the task stands for.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable

import numpy as np

from umpteen.config import LinearConfig, SearchConfig, TfidfConfig, TreeConfig
from umpteen.data.rows import Rows
from umpteen.data.sparse import normalize_rows, wrap
from umpteen.data.tfidf import Tfidf
from umpteen.linear import train
from umpteen.models.rates import TYPICAL, Rates
from umpteen.models.warmup import warmup
from umpteen.tree import LabelTree, build

_ROWS, _PER_ROW, _FEATURES, _LABELS = 20_000, 40, 4_000, 256  # of the rows that the benchmark makes
_REFERENCE = {"character": 0.24, "clustered": 0.08, "visit": 0.12, "product": 0.085}  # seconds of processors
_DISK_BYTES = 1 << 26
_MATRIX = 1_536  # rows of the matrices that are multiplied


def measure_rates() -> Rates:
    """Measure this machine, in a second or two once the kernels are compiled; what is not measured is typical."""
    warmup()
    times = {name: seconds / _REFERENCE[name] for name, seconds in measure_tasks().items()}
    flops = {**TYPICAL.flops, "cpu": TYPICAL.flops["cpu"] / times.pop("product")}
    rates = {name: getattr(TYPICAL, name) * ratio for name, ratio in times.items()}
    rates |= {name: getattr(TYPICAL, name) * times["visit"] for name in ("label", "weight")}
    return TYPICAL._replace(**rates, flops=flops, disk=_measure_disk())


def measure_tasks() -> dict[str, float]:
    """Return the seconds that processors are busy with each task."""
    rows, texts = _made_rows(), _made_texts()
    labels = (rows.indices[rows.indptr[:-1] + 3].astype(np.int64) + np.arange(_ROWS) % 3) % _LABELS
    Y = wrap(np.ones(_ROWS, np.float32), labels.astype(np.int32), np.arange(_ROWS + 1), (_ROWS, _LABELS))
    groups = [group.tolist() for group in np.array_split(np.arange(_LABELS), 16)]
    tree, linear = LabelTree.from_groups(groups), LinearConfig(cost=1.0, negatives="tfn")
    vectors, matrix = rows.sparse[:10_000], np.ones((_MATRIX, _MATRIX), np.float32)
    return {
        "character": _time(lambda: Tfidf(TfidfConfig(), threads=1).fit_transform(texts)),
        "clustered": _time(lambda: build(vectors, TreeConfig(kind="halving"), threads=1)),
        "visit": _time(lambda: train(rows, Y, tree, linear, SearchConfig(), threads=1)),
        "product": _time(lambda: matrix @ matrix),
    }


def _made_rows() -> Rows:
    """Make rows of random features, some of which are frequent."""
    rng = np.random.default_rng(0)
    columns = np.sort((_FEATURES * rng.random((_ROWS, 2 * _PER_ROW)) ** 2).astype(np.int32), axis=1)
    is_new = np.diff(columns, axis=1, prepend=-1) > 0
    ptr = np.concatenate([[0], np.cumsum(is_new.sum(axis=1))])
    indices = columns[is_new]
    values = rng.random(len(indices), dtype=np.float32) + np.float32(0.1)
    return Rows.of(normalize_rows(wrap(values, indices, ptr, (_ROWS, _FEATURES))))


def _made_texts() -> list[str]:
    """Make texts of random words, some of which are frequent."""
    words = np.array([f"{chr(97 + n % 26)}{n}" for n in range(5_000)])
    rng = np.random.default_rng(0)
    return [" ".join(row) for row in words[(5_000 * rng.random((2_000, 60)) ** 2).astype(int)]]


def _measure_disk() -> float:
    """Write a file through to the disk of the temporary folder, and return bytes per second."""
    content = np.random.default_rng(0).bytes(_DISK_BYTES)
    with tempfile.TemporaryFile() as file:

        def write() -> None:
            file.seek(0)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

        return _DISK_BYTES / _time(write, time.perf_counter)


def _time(task: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """Return the seconds of a task, the best of three; by default those of processors, which others may use, too."""
    seconds = []
    for _ in range(3):
        begun = clock()
        task()
        seconds.append(clock() - begun)
    return max(min(seconds), 1e-9)
