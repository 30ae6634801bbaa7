"""What every runner shares: reading the matrices, timing, peak memory, one line of JSON.

Runs inside the environment of any peer, so it knows only numpy, scipy and the standard library.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import importlib
import importlib.metadata
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

MB = 1e6
STAGES = ("fit", "batch", "single")
_WARM_QUERIES = 50


@dataclass
class Job:
    """What one process has to measure."""

    stage: str
    data: Path  # folder with X.trn.npz, Y.trn.npz, X.tst.npz
    model: Path  # folder of the model: written by fit, read by the other stages
    settings: dict[str, Any]
    way: str  # how the model is loaded, where a peer has several ways
    threads: int
    k: int
    beam: int
    repeats: int
    queries: int
    predictions: Path | None  # batch writes its top k here

    def matrix(self, name: str) -> sparse.csr_matrix:
        """Read a matrix with sorted rows; ``name`` is for example ``X.trn``."""
        matrix = sparse.csr_matrix(sparse.load_npz(self.data / f"{name}.npz"), dtype=np.float32)
        matrix.sort_indices()
        return matrix

    def query_rows(self) -> list[sparse.csr_matrix]:
        """Return the first test rows, each a matrix of its own, sliced before the clock starts."""
        X = self.matrix("X.tst")
        return [X[row] for row in range(min(self.queries, X.shape[0]))]


def run(stages: dict[str, Callable[[Job], dict[str, Any]]], packages: Sequence[str]) -> None:
    """Do the stage the command line names and print its figures with the packages' versions."""
    job = _parse()
    figures = stages[job.stage](job)
    print(json.dumps({**figures, "versions": {name: _version(name) for name in packages}}), flush=True)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return str(getattr(importlib.import_module(package), "__version__", "unknown"))


def measure_fit(fit: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Run ``fit`` once: wall and CPU seconds, and peak memory above what was resident before."""
    with PeakMemory() as memory:
        wall, cpu = time.perf_counter(), time.process_time()
        fitted = fit()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return fitted, {
        "fit_s": wall,
        "fit_cpu_s": cpu,
        "fit_memory_mb": memory.peak_mb,
        "resident_mb": memory.resident_mb,
    }


def measure_batch(predict: Callable[[], Any], n_rows: int, repeats: int) -> tuple[Any, dict[str, float]]:
    """Predict all rows some times; the best time counts."""
    best, predicted = float("inf"), None
    for _ in range(repeats):
        begin = time.perf_counter()
        predicted = predict()
        best = min(best, time.perf_counter() - begin)
    return predicted, {"docs_per_s": n_rows / best, "batch_s": best}


def measure_single(predict: Callable[[Any], Any], rows: Sequence[Any]) -> dict[str, float]:
    """Predict one row a call; the first calls are not counted."""
    for row in rows[:_WARM_QUERIES]:
        predict(row)
    seconds = np.empty(len(rows))
    for number, row in enumerate(rows):
        begin = time.perf_counter()
        predict(row)
        seconds[number] = time.perf_counter() - begin
    p50, p99 = np.percentile(seconds * 1e3, (50, 99))
    return {"p50_ms": float(p50), "p99_ms": float(p99), "queries": len(rows)}


class PeakMemory:
    """Peak resident memory of a block above what is resident when it begins.

    The kernel's own high-water mark where it may be reset, else a thread that looks every 5 ms (it sees
    nothing while a peer holds the interpreter's lock).
    """

    resident_mb = 0.0
    peak_mb = 0.0

    def __enter__(self) -> PeakMemory:
        give_back_memory()
        self._sampler = None if _reset_high_water() else _Sampler()
        self.resident_mb = _status_mb("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        highest = _status_mb("VmHWM") if self._sampler is None else self._sampler.stop()
        self.peak_mb = max(0.0, highest - self.resident_mb)


class _Sampler:
    """A thread that remembers the highest resident size it saw."""

    def __init__(self) -> None:
        self._highest, self._done = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._done.wait(0.005):
            self._highest = max(self._highest, _status_mb("VmRSS"))

    def stop(self) -> float:
        self._done.set()
        self._thread.join()
        return max(self._highest, _status_mb("VmRSS"))


def give_back_memory() -> None:
    """Return freed memory to the system, so that loading leaves nothing a fit could reuse unseen."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # another C library: what it keeps for reuse is missed
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def process_peak_mb() -> float:
    """Peak resident memory of this process so far."""
    return _status_mb("VmHWM")


def _reset_high_water() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _status_mb(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024 / MB
    raise RuntimeError(f"/proc/self/status has no {field}; memory can only be measured on Linux")


def folder_mb(path: Path) -> float:
    """Size of all files under a folder."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / MB


def empty_folder(path: Path) -> Path:
    """Make the folder if needed and remove the model files in it."""
    path.mkdir(parents=True, exist_ok=True)
    for file in sorted(path.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    return path


def best_of_rows(scores: sparse.csr_matrix, k: int) -> np.ndarray:
    """Return the column numbers of each row's k largest scores, best first, -1 where there are fewer."""
    top = np.full((scores.shape[0], k), -1, np.int32)
    for row in range(scores.shape[0]):
        begin, end = scores.indptr[row], scores.indptr[row + 1]
        order = np.argsort(-scores.data[begin:end], kind="stable")[:k]
        top[row, : len(order)] = scores.indices[begin:end][order]
    return top


def padded(rows: Sequence[Sequence[int]], k: int) -> np.ndarray:
    """Return lists of labels as an array, -1 where a list is short."""
    top = np.full((len(rows), k), -1, np.int32)
    for number, row in enumerate(rows):
        top[number, : min(k, len(row))] = row[:k]
    return top


def keep(job: Job, top: np.ndarray) -> None:
    """Write predictions, if they are wanted."""
    if job.predictions is not None:
        job.predictions.parent.mkdir(parents=True, exist_ok=True)
        np.save(job.predictions, top.astype(np.int32))


def _parse() -> Job:
    parser = argparse.ArgumentParser()
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--settings", type=json.loads, default={})
    parser.add_argument("--way", default="default")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--beam", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--predictions", type=Path)
    return Job(**vars(parser.parse_args()))
