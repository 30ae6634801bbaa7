"""Kill jobs at random moments, run them again, and compare the result with that of a job that was left alone.

    python -m tests.fuzz.kills --kills 40 --seed 0
    python -m tests.fuzz.kills --kills 5 --seed 0 --only "xr-linear, ray"

A job is a command of ``umpteen``, or of ``torchrun`` with several ranks. It is started, and after a random time all of
its processes, or only one of its workers, get SIGKILL. Then the same command is started again, until it ends by itself.
It must go on if a process was killed that runs its tasks; it may fail without a rank, or without the processes of Ray
that are the cluster. The files that it leaves must be those of a run that was never killed, byte for byte, and nothing
else may be left.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from typing import Any

from tests.conftest import make_encoder
from tests.contract.conftest import LINEAR, SMALL, learning, make
from umpteen.data.labels import Labels
from umpteen.data.tfidf import Tfidf

_KILLS_A_RUN = 3  # after so many kills a job is left alone, so that it ends
_LONGEST = 300.0  # seconds of a job
_RAY_AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")  # a node ends without them


@dataclass(frozen=True)
class Job:
    """A command; ``{out}`` is what it writes, the other names in braces are what it reads: see ``Trial``."""

    name: str
    command: Sequence[str]
    kills_workers: bool = False
    ranks: int = 0  # of torchrun, which ends if one of them does; 0: without it
    needs: Sequence[str] = ()
    settings: dict[str, object] = field(default_factory=dict)

    @property
    def is_possible(self) -> bool:
        """Whether the packages that it needs are installed."""
        return all(find_spec(package) for package in self.needs)

    @property
    def stem(self) -> str:
        """The name in names of files."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower())


def _train(recipe: str, kind: str, *options: str, **more: Any) -> Job:
    """Return a job that trains a recipe or an ensemble; its name is that of the recipe and the kind."""
    members = [member.partition("*")[0] for member in recipe.split("+")]
    neural = [member for member in members if member not in LINEAR]
    settings: dict[str, object] = dict(SMALL)
    for member in neural:
        settings |= learning(member)
    command = ["train", "{rows}" if "feature rows" in kind else "{data}", "-o", "{out}", "--recipe", recipe, "-q"]
    command += ["--config", "{settings}", *options, *(["--encoder", "{encoder}"] if neural else [])]
    needs = (*more.pop("needs", ()), *(("torch", "transformers") if neural else ()))
    return Job(f"{recipe}, {kind}", command, settings=settings, needs=needs, **more)


def _predict(kind: str, model: str, source: str, *options: str, ending: str = "jsonl", **more: Any) -> Job:
    command = ["predict", model, source, "-o", f"{{out}}.{ending}", "-q", *options]
    return Job(f"prediction, {kind}", command, **more)


def _evaluate(kind: str, *options: str, **more: Any) -> Job:
    command = ["evaluate", "{model}", "{texts}", "-q", "--json", "--per-text", "{out}.jsonl", *options]
    return Job(f"evaluation, {kind}", [*command, "--storage", "{out}-stages"], **more)


CHECKPOINT = ("--checkpoint", "{out}-stages")
MEMORY = ("--memory", "1GB")
PROCESSES, IN_PROCESSES = ("--engine", "processes", "--workers", "2"), {"kills_workers": True}
RAY, ON_RAY = ("--engine", "ray"), {"kills_workers": True, "needs": ("ray",)}
RANKS = {"ranks": 2, "kills_workers": True}
DISCRIMINANTS = ("--training.init", "lda", "--training.validation_fraction", "0.2")  # so that clusters can be undone
BLOCKS, SMALL_BLOCKS = ("--block-rows", "200"), ("--block-rows", "30")

TRAININGS = [
    _train("xr-linear", "checkpoint", *CHECKPOINT),
    _train("xr-linear", "bounded memory", *MEMORY),
    _train("xr-linear", "feature rows, bounded memory", *MEMORY),
    _train("xr-linear", "feature rows, processes", *PROCESSES, **IN_PROCESSES),
    _train("parabel", "processes", *PROCESSES, **IN_PROCESSES),
    _train("plt", "processes, bounded memory", *PROCESSES, *MEMORY, **IN_PROCESSES),
    _train("bonsai", "bounded memory", *MEMORY),
    _train("dismec", "processes", *PROCESSES, **IN_PROCESSES),
    _train("xr-linear", "ray", *RAY, **ON_RAY),
    _train("plt", "ray, bounded memory", *RAY, *MEMORY, **ON_RAY),
    _train("parabel", "feature rows, ray", *RAY, **ON_RAY),
    *(
        _train(recipe, "checkpoint", *CHECKPOINT)
        for recipe in ("xr-transformer", "x-transformer", "lightxml", "cascadexml", "cascadexml-dismec", "full",
                       "attentionxml", "xml-cnn", "extremetext")
    ),
    _train("xr-transformer", "discriminants, checkpoint", *DISCRIMINANTS, *CHECKPOINT),
    _train("xr-transformer", "discriminants, 2 ranks", *DISCRIMINANTS, *CHECKPOINT, **RANKS),
    _train("xr-transformer", "bounded memory", *MEMORY),
    _train("xr-transformer", "processes", *PROCESSES, **IN_PROCESSES),
    _train("xr-transformer", "ray", *RAY, **ON_RAY),
    _train("cascadexml-dismec", "bounded memory", *MEMORY),
    _train("cascadexml-dismec", "processes", *PROCESSES, **IN_PROCESSES),
    _train("cascadexml-dismec", "ray", *RAY, **ON_RAY),
    _train("lightxml", "bounded memory", *MEMORY),
    *(
        _train(recipe, "2 ranks", *CHECKPOINT, **RANKS)
        for recipe in ("xr-transformer", "x-transformer", "lightxml", "cascadexml-dismec", "full", "attentionxml",
                       "xml-cnn", "extremetext")
    ),
    _train("plt*2+dismec", "checkpoint", *CHECKPOINT),
    _train("plt*2+dismec", "processes", *PROCESSES, **IN_PROCESSES),
    _train("xr-linear*2", "ray, bounded memory", *RAY, *MEMORY, **ON_RAY),
    _train("xr-linear+lightxml", "checkpoint", *CHECKPOINT),
    _train("xr-linear+xr-transformer", "bounded memory", *MEMORY),
]  # fmt: skip
PREDICTIONS = [
    _predict("alone", "{model}", "{texts}", *BLOCKS),
    _predict("Parquet", "{model}", "{texts}", *BLOCKS, ending="parquet", needs=("pyarrow",)),
    _predict("processes", "{model}", "{texts}", *BLOCKS, *PROCESSES, **IN_PROCESSES),
    _predict("ray", "{model}", "{texts}", *BLOCKS, *RAY, **ON_RAY),
    _predict("feature rows, processes", "{row_model}", "{rows}", *SMALL_BLOCKS, *PROCESSES, **IN_PROCESSES),
    _predict("feature rows, ray", "{row_model}", "{rows}", *SMALL_BLOCKS, *RAY, ending="jsonl.gz", **ON_RAY),
    _predict("encoder, processes", "{encoder_model}", "{data}", *SMALL_BLOCKS, *PROCESSES, kills_workers=True,
             needs=("torch", "transformers")),
    _evaluate("alone"),
    _evaluate("processes", *PROCESSES, **IN_PROCESSES),
    _evaluate("ray", *RAY, **ON_RAY),
]  # fmt: skip
JOBS = [*TRAININGS, *PREDICTIONS]
MODELS = {
    "model": _train("xr-linear", "model"),
    "row_model": _train("xr-linear", "model of feature rows"),
    "encoder_model": _train("xr-transformer", "model"),
}


class JobFailed(Exception):
    """A job ended with an error, or not at all, without a reason for it."""


class Trial:
    """Runs jobs in a folder, and kills them.

    Jobs read ``{data}``: texts with labels, ``{texts}``: these 20 times, ``{rows}``: feature rows, ``{encoder}``, and
    the models of ``MODELS``; encoder and models are made when they are needed.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random, self.n_kills = folder, random.Random(seed), 0
        self._usual: dict[str, float] = {}  # seconds of jobs that were left alone
        # A driver of Ray ends soon after its head, and Ray's logs are removed with the folder.
        self._environment = os.environ | {"RAY_gcs_rpc_server_reconnect_timeout_s": "5", "RAY_TMPDIR": str(folder)}
        self._environment["TMPDIR"] = str(folder / "temporary")
        (folder / "temporary").mkdir()
        made = make(600, seed=1)
        rows = [{"text": text, "labels": labels} for text, labels in zip(made.texts, made.lists, strict=True)]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        self._places = {name: folder / name for name in (*MODELS, "encoder", "settings")}
        for name, content in (("data", lines), ("texts", lines * 20), ("rows", _as_rows(made.texts, made.lists))):
            self._places[name] = folder / f"{name}.{'txt' if name == 'rows' else 'jsonl'}"
            self._places[name].write_text(content)

    def compare(self, job: Job, n_kills: int) -> tuple[int, bool]:
        """Kill a job up to ``n_kills`` times; return how often it was, and whether the result is right."""
        whole, killed, before = f"{job.stem}-whole", f"{job.stem}-killed", self.n_kills
        try:
            if job.name not in self._usual:
                begun = time.monotonic()
                self._run(job, whole)
                self._usual[job.name] = time.monotonic() - begun
            is_over = False
            while not is_over:
                latest = max(0.5, 0.95 * self._usual[job.name])
                wait = self.random.uniform(0.3, latest) if self.n_kills - before < n_kills else None
                is_over = self._run(job, killed, wait)
        except JobFailed as error:
            print(error, flush=True)
            return self.n_kills - before, False
        expected, found = self._files(whole), self._files(killed)
        for name in sorted({name for name in {*expected, *found} if expected.get(name) != found.get(name)}):
            print(f"  {name} is {'missing' if name not in found else 'different' if name in expected else 'left over'}")
        return self.n_kills - before, expected == found and any(expected.values())

    def forget(self, job: Job) -> None:
        """Remove what a job that was killed has written."""
        for path in self.folder.glob(f"{job.stem}-killed*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _run(self, job: Job, out: str, kill_after: float | None = None) -> bool:
        """Run a job; return whether it ended by itself. It must then have succeeded."""
        command, may_fail = self._command(job, out), False
        log = self.folder / f"{out}.log"
        with open(log, "wb") as stream, open(self.folder / f"{out}.printed", "wb") as printed:
            process = subprocess.Popen(
                command, stdout=printed, stderr=stream, start_new_session=True, env=self._environment
            )
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LONGEST if kill_after is None else kill_after)
            if process.poll() is None and kill_after is not None:
                may_fail = self._kill(process, job)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_LONGEST)  # the job goes on if only a worker was killed
        ended = process.poll()
        _kill_session(process.pid)  # a cluster whose head was killed leaves processes
        if ended is None or (ended and not may_fail):
            reason = f"failed with {ended}" if ended else f"did not end in {_LONGEST:.0f} s"
            raise JobFailed(f"{job.name} {reason}:\n{log.read_text(errors='replace')[-3000:]}")
        return ended == 0

    def _command(self, job: Job, out: str) -> list[str]:
        """Return the command of a job, and make what it reads."""
        asked = " ".join(job.command)
        if "{encoder}" in asked and not self._places["encoder"].exists():
            make_encoder(self._places["encoder"])
        for name, training in MODELS.items():
            if f"{{{name}}}" in asked and not self._places[name].exists():
                self._run(training, name)
        self._places["settings"].write_text(json.dumps(job.settings))
        words = [word.format(out=self.folder / out, **self._places) for word in job.command]
        ranks = ["torch.distributed.run", "--nproc-per-node", str(job.ranks), "-m", "--"] if job.ranks else []
        return [sys.executable, "-m", *ranks, "umpteen", *words]

    def _kill(self, process: subprocess.Popen[bytes], job: Job) -> bool:
        """Kill all processes of a job, or one of its workers; return whether the job may fail."""
        workers = _descendants(process.pid)
        self.n_kills += 1
        if workers and job.kills_workers and self.random.random() < 0.5:
            worker = self.random.choice(workers)
            may_fail = job.ranks > 0 or ("ray" in job.needs and not _runs_tasks_of_ray(worker))
            _kill_all([worker])
            return may_fail
        _kill_all([process.pid, *workers])  # torchrun gives its ranks sessions of their own
        return True

    def _files(self, out: str) -> dict[str, bytes]:
        """Return all files that a job left, without times: those of the history, and what depends on them."""
        found = {}
        for path in [*self.folder.glob(f"{out}/**/*"), *self.folder.glob(f"{out}[.-]*"),
                     *self.folder.glob(f"{out}[.-]*/**/*")]:  # fmt: skip
            if path.is_file() and path.suffix != ".log" and not path.match("history-*.jsonl"):
                name = re.sub(re.escape(out), "OUT", path.relative_to(self.folder).as_posix())
                name = re.sub(r"(model-\d+)-[0-9a-f]{16}/", r"\1/", name)  # of an ensemble, by a digest of its files
                found[name] = _without_times(path)
        return found


def _as_rows(texts: Sequence[str], lists: Sequence[Sequence[str]]) -> str:
    """Return tf-idf rows and labels in the format of the Extreme Classification Repository."""
    X, (labels, Y) = Tfidf().fit_transform(texts), Labels.from_lists(lists)
    lines = [f"{X.shape[0]} {X.shape[1]} {len(labels)}"]
    for x, y in zip(X, Y, strict=True):
        features = " ".join(f"{column}:{value:.5f}" for column, value in zip(x.indices, x.data, strict=True))
        lines.append(f"{','.join(map(str, y.indices))} {features}")
    return "\n".join(lines) + "\n"


def _without_times(path: Path) -> bytes:
    """Return the content of a file without times, or digests of files that hold times."""
    content = path.read_bytes()
    if path.name == "config.json":
        return json.dumps({key: value for key, value in json.loads(content).items() if key != "files"}).encode()
    lines = [line for line in content.splitlines() if line.startswith(b"{")]
    if path.suffix == ".printed" and lines:
        figures = json.loads(lines[-1])
        return json.dumps({key: value for key, value in figures.items() if key != "rows_per_s"}).encode()
    return content


def _kill_all(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _kill_session(session: int) -> None:
    """Kill what is left of the processes of a session."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[3]) == session:
                _kill_all([int(path.parent.name)])


def _descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, those that they have started, and so on."""
    children = _children(pid)
    return children + [below for child in children for below in _descendants(child)]


def _children(pid: int) -> list[int]:
    """Return the processes that the threads of a process have started and that still run."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, path.read_text().split())
    return sorted(found)


def _runs_tasks_of_ray(pid: int) -> bool:
    """Return whether a process of a cluster runs tasks, so that others go on without it."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return False
    is_starting = len(words) > 1 and words[1].endswith("_worker.py")
    return is_starting or (words[0].startswith("ray::") and not words[0].startswith(_RAY_AGENTS))


def main() -> None:
    """Kill every job, until there were enough kills; the exit code says whether all results were right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=40, help="at least so many, and each job once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="run only jobs whose names contain this")
    parser.add_argument("--folder", type=Path, default=None, help="an empty folder; a temporary one by default")
    args = parser.parse_args()
    jobs = [job for job in JOBS if args.only in job.name and job.is_possible]
    if not jobs:
        parser.error(f"no job is called {args.only!r}; there are {'; '.join(job.name for job in JOBS)}")
    folder = args.folder or Path(os.environ.get("TMPDIR", "/tmp")) / f"umpteen-kills-{os.getpid()}"
    folder.mkdir(parents=True)
    wrong: list[str] = []
    try:
        killed = _kill_jobs(Trial(folder, args.seed), jobs, args.kills, wrong)
    finally:
        if args.folder is None and not wrong:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{killed.total()} kills of {len(jobs)} jobs, {len(wrong)} wrong results")
    sys.exit(bool(wrong))


def _kill_jobs(trial: Trial, jobs: Sequence[Job], n_kills: int, wrong: list[str]) -> Counter[str]:
    """Kill jobs in turn; return how often each was killed, and append those with wrong results to ``wrong``."""
    killed: Counter[str] = Counter()
    share = min(_KILLS_A_RUN, ceil(n_kills / len(jobs)))
    while killed.total() < n_kills and set(wrong) < {job.name for job in jobs}:
        for job in jobs:
            if job.name in wrong or (killed.total() >= n_kills and killed[job.name]):
                continue
            n_killed, is_right = trial.compare(job, share)
            killed[job.name] += n_killed
            print(f"{job.name}: {n_killed} kills, {'same bytes' if is_right else 'WRONG'}", flush=True)
            if is_right:
                trial.forget(job)
            else:
                wrong.append(job.name)
    return killed


if __name__ == "__main__":
    main()
