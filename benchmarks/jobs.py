"""Run jobs as processes of their own and remember what they measured.

Every result is written down as soon as it is there, under a key that changes with the matrices, the
settings and umpteen's source; an interrupted run goes on where it stopped.
Knows nothing about bars and tables.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import environments
from benchmarks.plan import BEAM, THREADS, Job, K

Record = dict[str, Any]
_ROOT = Path(__file__).resolve().parent.parent
_PEERS = Path(__file__).resolve().parent / "peers"


class Results:
    """The file of results: a dict of records, written whole after every change."""

    def __init__(self, path: Path):
        self.path = path
        self.records: dict[str, Record] = json.loads(path.read_text()) if path.exists() else {}

    def forget(self, names: set[str]) -> None:
        """Drop what was measured for these variants, or everything for ``{"all"}``."""
        self.records = {
            key: record for key, record in self.records.items() if not ({"all", record.get("variant")} & names)
        }

    def put(self, key: str, record: Record) -> None:
        self.records[key] = record
        self.path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.path.with_suffix(".tmp")
        unfinished.write_text(json.dumps(self.records, indent=1))
        os.replace(unfinished, self.path)


@dataclass
class Runner:
    """Runs jobs that were not run yet."""

    work: Path
    venvs: Path
    results: Results
    queries: int = 1000
    batch_repeats: int = 3
    timeout_s: float = 3600.0
    _pythons: dict[str, Path | None] = field(default_factory=dict)

    def run(self, job: Job, checksum: str) -> Record | None:
        """Return the record of a job, measured now or before; None if it fails."""
        key = job_key(job, checksum, self.queries, self.batch_repeats)
        known = self.results.records.get(key)
        if known is not None and self._is_usable(job):
            return known
        python = self._python(job.variant.runner)
        if python is None:
            return None
        print(f"  {job} … ", end="", flush=True)
        figures = self._measure(job, python)
        if figures is None:
            return None
        print(_brief(figures), flush=True)
        record = {
            "dataset": job.dataset,
            "variant": job.variant.name,
            "stage": job.stage,
            "way": job.way,
            "turn": job.turn,
            "settings": dict(job.variant.settings),
            "time": time.strftime("%Y-%m-%d %H:%M:%S"),
            **figures,
        }
        self.results.put(key, record)
        return record

    def model_folder(self, job: Job) -> Path:
        return self.work / job.dataset / "models" / job.variant.name

    def predictions_file(self, dataset: str, variant: str) -> Path:
        return self.work / dataset / "predictions" / f"{variant}.npy"

    def _is_usable(self, job: Job) -> bool:
        """Say whether what the job leaves behind for later stages is still there."""
        if job.stage == "fit":
            return self.model_folder(job).exists()
        if job.stage == "batch" and job.way == "default":
            return self.predictions_file(job.dataset, job.variant.name).exists()
        return True

    def _python(self, runner: str) -> Path | None:
        if runner not in self._pythons:
            try:
                self._pythons[runner] = environments.python_of(runner, self.venvs)
            except RuntimeError as error:
                print(f"  {runner} is left out: {error}", flush=True)
                self._pythons[runner] = None
        return self._pythons[runner]

    def _measure(self, job: Job, python: Path) -> Record | None:
        threads = 1 if job.stage == "single" else THREADS
        command = [str(python), str(_PEERS / f"{job.variant.runner}_run.py"), job.stage]
        options: dict[str, Any] = {
            "data": self.work / job.dataset,
            "model": self.model_folder(job),
            "settings": json.dumps(dict(job.variant.settings)),
            "way": job.way,
            "threads": threads,
            "k": K,
            "beam": BEAM,
            "repeats": self.batch_repeats,
            "queries": self.queries,
        }
        if job.stage == "batch" and job.way == "default":
            options["predictions"] = self.predictions_file(job.dataset, job.variant.name)
        for name, value in options.items():
            command += [f"--{name}", str(value)]
        return call(command, environment(job.variant.runner, threads), self.timeout_s)


def call(command: list[str], env: dict[str, str], timeout_s: float) -> Record | None:
    """Run a command and return the last line of JSON it prints; None, with its last words, if it fails."""
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        print(f"stopped after {timeout_s:.0f} s", flush=True)
        return None
    if done.returncode:
        words = done.stderr.strip().splitlines()[-4:]
        print(f"failed with status {done.returncode}: " + " | ".join(words), flush=True)
        return None
    return last_json(done.stdout)


def last_json(output: str) -> Record | None:
    """Return the last line that is a JSON object; peers log to standard output too."""
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    print("printed no figures", flush=True)
    return None


def environment(runner: str, threads: int) -> dict[str, str]:
    """Return the environment variables of a job: nobody starts more threads than asked."""
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    for name in ("OMP", "OPENBLAS", "MKL", "NUMBA", "RAYON"):
        env[f"{name}_NUM_THREADS"] = str(threads)
    if runner == "umpteen":
        env["PYTHONPATH"] = str(_ROOT)
    return env


def job_key(job: Job, checksum: str, queries: int, batch_repeats: int) -> str:
    """Name a job so that changed matrices, settings or effort make another name."""
    effort = {"fit": [], "batch": [batch_repeats], "single": [queries]}[job.stage]
    code = source_checksum() if job.variant.runner == "umpteen" else ""
    state = json.dumps([dict(job.variant.settings), checksum, K, BEAM, THREADS, effort, code], sort_keys=True)
    digest = f"{zlib.crc32(state.encode()):08x}"
    return "/".join((job.dataset, job.variant.name, job.stage, job.way, str(job.turn), digest))


@functools.cache
def source_checksum() -> str:
    """Return a checksum of umpteen's source: changed code is measured again."""
    checksum = 0
    for path in sorted((_ROOT / "umpteen").rglob("*.py")):
        checksum = zlib.crc32(path.read_bytes(), checksum)
    return f"{checksum:08x}"


def _brief(figures: Record) -> str:
    if "fit_s" in figures:
        memory, size = figures["fit_memory_mb"], figures["model_mb"]
        return f"{figures['fit_s']:.2f} s, {memory:.0f} MB of memory, model {size:.1f} MB"
    if "docs_per_s" in figures:
        return f"{figures['docs_per_s']:,.0f} docs/s"
    if "p50_ms" in figures:
        return f"p50 {figures['p50_ms']:.3f} ms, p99 {figures['p99_ms']:.3f} ms"
    return json.dumps(figures)
