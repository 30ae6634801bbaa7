"""Kill jobs at random moments, run them again, and compare the result with that of a job that was left alone.

    python -m tests.fuzz.kills --kills 40 --seed 0

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
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from tests.conftest import make_encoder
from tests.contract.conftest import SMALL, learning, make
from umpteen.data.labels import Labels
from umpteen.data.tfidf import Tfidf

_KILLS_A_RUN = 3  # after so many kills a job is left alone, so that it ends
_LONGEST = 300.0  # seconds of a job
_RAY_AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")  # a node ends without them


@dataclass(frozen=True)
class Job:
    """A command; ``{out}`` is what it writes, ``{data}``, ``{rows}`` and ``{model}`` are what it reads."""

    name: str
    command: Sequence[str]
    kills_workers: bool = False
    ranks: int = 0  # of torchrun, which ends if one of them does; 0: without it
    needs: Sequence[str] = field(default_factory=tuple)
    settings: dict[str, object] = field(default_factory=dict)

    @property
    def is_possible(self) -> bool:
        """Whether the packages that it needs are installed."""
        return all(find_spec(package) for package in self.needs)


def _train(name: str, recipe: str, *options: str, **more: object) -> Job:
    settings = SMALL if recipe in ("xr-linear", "parabel", "plt", "bonsai", "dismec") else SMALL | learning(recipe)
    data = "{rows}" if "feature rows" in name else "{data}"
    command = ["train", data, "-o", "{out}", "--recipe", recipe, "-q", "--config", "{settings}", *options]
    return Job(name, command, settings=settings, **more)  # type: ignore[arg-type]


CHECKPOINT = ("--checkpoint", "{out}-stages")
TORCH = {"needs": ("torch", "transformers")}
ENCODER = ("--encoder", "{encoder}")
JOBS = [
    _train("xr-linear, checkpoint", "xr-linear", *CHECKPOINT),
    _train("xr-linear, bounded memory", "xr-linear", "--memory", "1GB"),
    _train("xr-linear, feature rows, bounded memory", "xr-linear", "--memory", "1GB"),
    _train("xr-linear, feature rows, processes", "xr-linear", "--engine", "processes", kills_workers=True),
    _train("parabel, processes", "parabel", "--engine", "processes", "--workers", "2", kills_workers=True),
    _train("plt, processes, bounded memory", "plt", "--engine", "processes", "--memory", "1GB", kills_workers=True),
    _train("bonsai, bounded memory", "bonsai", "--memory", "1GB"),
    _train("dismec, processes", "dismec", "--engine", "processes", kills_workers=True),
    _train("xr-transformer", "xr-transformer", *CHECKPOINT, *ENCODER, **TORCH),
    _train("lightxml", "lightxml", *CHECKPOINT, *ENCODER, **TORCH),
    _train("full", "full", *CHECKPOINT, *ENCODER, **TORCH),
    _train("attentionxml", "attentionxml", *CHECKPOINT, *ENCODER, **TORCH),
    _train("extremetext", "extremetext", *CHECKPOINT, **TORCH),
    _train("xr-transformer, 2 ranks", "xr-transformer", *CHECKPOINT, *ENCODER, ranks=2, kills_workers=True, **TORCH),
    _train("full, 2 ranks", "full", *CHECKPOINT, *ENCODER, ranks=2, kills_workers=True, **TORCH),
    _train("xr-linear, ray", "xr-linear", "--engine", "ray", needs=("ray",), kills_workers=True),
    Job("prediction", ["predict", "{model}", "{texts}", "-o", "{out}.jsonl", "-q", "--block-rows", "200"]),
    Job(
        "prediction, processes",
        ["predict", "{model}", "{texts}", "-o", "{out}.jsonl", "-q", "--block-rows", "200", "--engine", "processes"],
        kills_workers=True,
    ),
]  # fmt: skip


class Trial:
    """Runs jobs in a folder, and kills them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random, self.n_kills = folder, random.Random(seed), 0
        # A driver of Ray ends soon after its head, and Ray's logs are removed with the folder.
        self._environment = os.environ | {"RAY_gcs_rpc_server_reconnect_timeout_s": "5", "RAY_TMPDIR": str(folder)}
        made = make(600, seed=1)
        self.data = folder / "train.jsonl"
        rows = zip(made.texts, made.lists, strict=True)
        self.data.write_text("".join(json.dumps({"text": text, "labels": labels}) + "\n" for text, labels in rows))
        self.rows = folder / "rows.txt"
        self.rows.write_text(_as_rows(made.texts, made.lists))
        self.texts = folder / "texts.jsonl"
        self.texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in made.texts * 20))
        self.encoder = make_encoder(folder / "encoder")
        self.model = folder / "model"
        self._run(_train("model", "xr-linear"), "model", kill_after=None)

    def compare(self, job: Job, n_kills: int) -> tuple[int, bool]:
        """Kill a job up to ``n_kills`` times; return how often it was, and whether the result is right."""
        alone = job.name.replace(" ", "-").replace(",", "")
        begun = time.monotonic()
        self._run(job, f"{alone}-whole", kill_after=None)
        usual, before = time.monotonic() - begun, self.n_kills
        is_over = False
        while not is_over:
            wait = self.random.uniform(0.3, usual) if self.n_kills - before < n_kills else None
            is_over = self._run(job, f"{alone}-killed", kill_after=wait)
        whole, after = self._files(f"{alone}-whole"), self._files(f"{alone}-killed")
        return self.n_kills - before, whole == after and bool(whole)

    def _run(self, job: Job, out: str, kill_after: float | None) -> bool:
        """Run a job; return whether it ended by itself. It must then have succeeded."""
        places = {name: str(getattr(self, name)) for name in ("data", "rows", "texts", "model", "encoder")}
        places["settings"] = str(self.folder / "settings.json")
        Path(places["settings"]).write_text(json.dumps(job.settings))
        words = [word.format(out=self.folder / out, **places) for word in job.command]
        launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(job.ranks)] if job.ranks else []
        command = [sys.executable, *launcher, "-m", "umpteen", *words]
        log, may_fail = self.folder / f"{out}.log", False
        with open(log, "wb") as stream:
            process = subprocess.Popen(
                command, stdout=stream, stderr=stream, start_new_session=True, env=self._environment
            )
            try:
                process.wait(_LONGEST if kill_after is None else kill_after)
            except subprocess.TimeoutExpired:
                may_fail = self._kill(process, job)
            if process.poll() is None:  # a worker was killed, the job goes on
                process.wait(_LONGEST)
        _kill_session(process.pid)  # a cluster whose head was killed leaves processes
        if process.returncode and may_fail:
            return False
        if process.returncode:
            raise SystemExit(f"{job.name} failed with {process.returncode}:\n{log.read_text()[-3000:]}")
        return True

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
        for path in [
            *self.folder.glob(f"{out}/**/*"),
            *self.folder.glob(f"{out}[.-]*/**/*"),
            self.folder / f"{out}.jsonl",
        ]:
            if path.is_file() and not path.match("history-*.jsonl"):
                content = path.read_bytes()
                name = re.sub(re.escape(out), "OUT", path.relative_to(self.folder).as_posix())
                found[name] = _without_files(content) if path.name == "config.json" else content
        return found


def _as_rows(texts: Sequence[str], lists: Sequence[Sequence[str]]) -> str:
    """Return tf-idf rows and labels in the format of the Extreme Classification Repository."""
    X, (labels, Y) = Tfidf().fit_transform(texts), Labels.from_lists(lists)
    lines = [f"{X.shape[0]} {X.shape[1]} {len(labels)}"]
    for x, y in zip(X, Y, strict=True):
        features = " ".join(f"{column}:{value:.5f}" for column, value in zip(x.indices, x.data, strict=True))
        lines.append(f"{','.join(map(str, y.indices))} {features}")
    return "\n".join(lines) + "\n"


def _without_files(content: bytes) -> bytes:
    config = json.loads(content)
    config.pop("files", None)
    return json.dumps(config).encode()


def _kill_all(pids: Sequence[int]) -> None:
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
    """Kill jobs until there were enough kills; the exit code says whether all results were right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="run only jobs whose names contain this")
    parser.add_argument("--folder", type=Path, default=None, help="an empty folder; a temporary one by default")
    args = parser.parse_args()
    folder = args.folder or Path(os.environ.get("TMPDIR", "/tmp")) / f"umpteen-kills-{os.getpid()}"
    folder.mkdir(parents=True)
    n_killed, wrong = 0, []
    try:
        trial = Trial(folder, args.seed)
        jobs = [job for job in JOBS if args.only in job.name and job.is_possible]
        while n_killed < args.kills:
            for job in jobs:
                killed, is_right = trial.compare(job, min(_KILLS_A_RUN, args.kills - n_killed))
                n_killed += killed
                print(f"{job.name}: {killed} kills, {'same bytes' if is_right else 'OTHER BYTES'}", flush=True)
                wrong += [] if is_right else [job.name]
                shutil.rmtree(folder / f"{job.name.replace(' ', '-').replace(',', '')}-killed", ignore_errors=True)
                if n_killed >= args.kills:
                    break
    finally:
        if args.folder is None and not wrong:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{n_killed} kills, {len(wrong)} wrong results")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
