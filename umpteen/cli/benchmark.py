"""``umpteen bench`` and ``umpteen demo``: train recipes on one dataset and put their figures in one table.

Every recipe of a bench runs in a process of its own, so that one's memory is not counted as another's. ``NAME*3`` and
``NAME+NAME`` are ensembles, measured as one model.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from umpteen import __version__
from umpteen.cli.evaluation import MANY_UNSEEN, unseen_note
from umpteen.cli.options import check_own
from umpteen.cli.terminal import Terminal
from umpteen.cli.training import build, size_of
from umpteen.config import to_dict
from umpteen.data import Dataset, read
from umpteen.engine import Progress
from umpteen.errors import BadConfig, BadInput, UmpteenError
from umpteen.evaluation import evaluate_model
from umpteen.metrics import PROPENSITY
from umpteen.store import atomic_write, fingerprint

KS = (1, 3, 5)
_HELD_OUT = 0.1  # share of a single file that is tested on
_QUERIES = 200  # single queries that are timed

COLUMNS = {
    "recipe": "recipe",
    **{f"{measure}@{k}": f"{measure}@{k}" for measure in ("P", "PSP") for k in KS},
    "fit_s": "train s",
    "peak_mb": "peak MB",
    "gpu_mb": "GPU MB",
    "model_mb": "model MB",
    "ms_per_text": "ms/text",
    "p50_ms": "one, p50 ms",
    "unseen_labels": "unseen %",
}


class BenchFailed(UmpteenError, RuntimeError):
    """A recipe whose process died."""


@dataclass(frozen=True)
class Job:
    """One recipe to be measured in a process of its own."""

    data: str
    recipe: str
    settings: dict[str, Any]
    n_rows: int | None
    split: str
    quiet: bool
    own: dict[str, dict[str, Any]] = field(default_factory=dict)  # settings of single recipes of an ensemble

    @property
    def key(self) -> str:
        """A name for all that decides the figures."""
        from umpteen.models.recipes import create_members

        whole = [to_dict(model.config) for model in create_members(self.recipe, self.settings, self.own)]
        data = _stamps(Path(self.data).resolve())
        return fingerprint(__version__, [data, whole, self.n_rows or 0, self.split])


def bench(
    data: str,
    recipes: Sequence[str],
    settings: dict[str, Any],
    *,
    terminal: Terminal,
    own: Mapping[str, dict[str, Any]] | None = None,
    n_rows: int | None = None,
    split: str = "test",
    out: Path | None = None,
    as_json: bool = False,
) -> None:
    """Train every recipe on ``data`` and print one table.

    ``own`` are settings of single recipes. What is found in ``out`` is not measured again, and every row is written
    there as soon as it is known.
    """
    jobs = _jobs(data, recipes, settings, own or {}, n_rows, split, terminal.quiet)
    known = _kept(out)
    if split != "test" and not Path(data).is_dir():
        raise BadConfig(f"--split {split} asks for a part of a folder, but {data} is one file; leave it out")
    rows: list[dict[str, Any]] = []
    try:
        for job in jobs:
            key = job.key
            if key not in known:
                terminal.note(f"{job.recipe} on {data}")
                known[key] = in_own_process(job)
                if known[key]["unseen_labels"] >= MANY_UNSEEN:
                    terminal.note(unseen_note(known[key]["unseen_labels"], f"{data} ({split})"))
                if out is not None:
                    atomic_write(out, json.dumps(known, indent=1))
            rows.append(known[key])
    finally:  # what is known by then is shown, even if a recipe failed or was interrupted
        if rows:
            terminal.json(rows) if as_json else _show(rows, data, split, terminal)


def _jobs(
    data: str, recipes: Sequence[str], settings: dict[str, Any], own: Mapping[str, dict[str, Any]],
    n_rows: int | None, split: str, quiet: bool,
) -> list[Job]:  # fmt: skip
    """Return what is to be measured; a wrong name or setting is told before anything is trained."""
    from umpteen.models.recipes import create_members, member_names, own_settings

    named = {recipe: member_names(recipe) for recipe in recipes}
    known = {name for names in named.values() for name in names}
    check_own(own, known)
    jobs = []
    for recipe, names in named.items():
        some = {name: own[name] for name in names if name in own}
        jobs.append(Job(data, recipe, own_settings(names, known, settings), n_rows, split, quiet, some))
        create_members(recipe, jobs[-1].settings, some)
    return jobs


def _show(rows: Sequence[Mapping[str, Any]], data: str, split: str, terminal: Terminal) -> None:
    """Print one table, without columns that no row has."""
    a, b = rows[0]["propensity"]
    columns = {key: name for key, name in COLUMNS.items() if any(row.get(key) is not None for row in rows)}
    shown = [[row.get(key) for key in columns] for row in rows]
    terminal.table(list(columns.values()), shown, title=f"{data} ({split}; PSP with A = {a}, B = {b})")


def _kept(out: Path | None) -> dict[str, Any]:
    """Return the rows of an earlier run, and see that new ones can be written."""
    if out is None:
        return {}
    if out.is_dir() or not out.resolve().parent.is_dir():
        raise BadInput(f"--out wants a file in a folder that exists, but is '{out}'")
    if not out.exists():
        return {}
    try:
        found = json.loads(out.read_text(encoding="utf-8"))
        whole = all(set(COLUMNS) - {"unseen_labels"} <= set(row) for row in found.values())  # which is newer
    except (ValueError, AttributeError, TypeError):
        whole = False
    if not whole:
        raise BadInput(f"'{out}' was not written by umpteen bench; name another file")
    return found


def _stamps(data: Path) -> list[Any]:
    """Return what tells data from others and from what they were before they were changed."""
    files = sorted(data.iterdir()) if data.is_dir() else [data]
    stats = [(file, file.stat()) for file in files if file.is_file()]
    return [str(data), *([file.name, stat.st_size, stat.st_mtime_ns] for file, stat in stats)]


def measure(model: Any, train: Dataset, test: Dataset, folder: Path, progress: Progress) -> dict[str, Any]:
    """Fit, predict and save a model; return its figures, times and sizes by name."""
    X = train.inputs
    before = _reset_peak()
    begun = time.perf_counter()
    model.fit(X, train.Y, label_names=train.labels, progress=progress)
    fit_s = time.perf_counter() - begun
    peak, gpu_peak = _peak_mb(), _gpu_peak_mb()
    expected = model.estimate(X, train.Y)  # afterwards, for it loads libraries whose memory is part of training
    constants = PROPENSITY.get(train.name.lower(), PROPENSITY["default"])
    found = evaluate_model(model, test, KS, propensity=constants, progress=progress)
    model.save(folder)
    return {
        "recipe": model.recipe,
        **{name: round(value, 3) for name, value in found.metrics.items()},
        "propensity": list(constants),
        "unseen_labels": round(found.unseen_labels, 3),
        "fit_s": round(fit_s, 3),
        "peak_mb": None if peak is None or before is None else round(peak - before, 1),
        "gpu_mb": _gpu_peak_mb(),
        "gpu_fit_mb": gpu_peak,
        "model_mb": round(size_of(folder) / 1e6, 3),
        "ms_per_text": round(1e3 * found.seconds / found.n_rows, 4),
        "p50_ms": round(_one_query_ms(model, test.inputs), 4),
        "shortlist_recall": [round(value, 2) for value in found.shortlist_recall],
        "expected": {name: round(getattr(expected, name), 3) for name in ("seconds", "memory_mb", "gpu_mb")},
    }


def read_both(data: str, n_rows: int | None = None, split: str = "test") -> tuple[Dataset, Dataset]:
    """Read the train split and another one; of a single file a tenth of the rows is held out."""
    train = read(data, "train", n_rows=n_rows)
    if not Path(data).is_dir():
        return train.split(_HELD_OUT)
    width = None if train.X is None else train.X.shape[1]
    return train, read(data, split, labels=train.labels, n_features=width)


def in_own_process(job: Job) -> dict[str, Any]:
    """Measure a recipe in a process of its own."""
    with Running(job) as running:
        return running.result()


class Running:
    """A job at work in a process of its own, which is ended when the block is left."""

    def __init__(self, job: Job):
        self.job = job
        context = get_context("spawn")
        self.answer, sender = context.Pipe(duplex=False)  # has something to read once the job is done
        self._process = context.Process(target=_answer, args=(job, sender), daemon=True)
        self._process.start()
        sender.close()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.terminate()
        self._process.join()
        self.answer.close()

    def result(self) -> dict[str, Any]:
        """Wait for the figures."""
        try:
            result = self.answer.recv()
        except EOFError as error:
            name = self.job.recipe
            raise BenchFailed(
                f"the process that trained '{name}' died, most likely for want of memory; try fewer rows with --rows"
            ) from error
        if isinstance(result, UmpteenError):
            raise result
        return result


def _answer(job: Job, sender: Connection) -> None:
    """Send the measurements, or what is wrong with the data, to the process that waits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one that waits is interrupted and ends this one
    try:
        sender.send(measure_job(job))
    except (BadInput, BadConfig) as error:
        sender.send(BadInput(str(error)))
    except UmpteenError as error:
        sender.send(BenchFailed(str(error)))
    except Exception as error:  # a fault of ours: it shall not look like another one
        traceback.print_exc()
        sender.send(BenchFailed(f"training '{job.recipe}' failed: {type(error).__name__}: {error}"))


def measure_job(job: Job) -> dict[str, Any]:
    """Read the data, train the models of a job and return their figures, in this process."""
    from umpteen.models import warmup

    terminal = Terminal(quiet=job.quiet)
    model = build(job.recipe, job.settings, job.own)
    train, test = read_both(job.data, job.n_rows, job.split)
    with terminal.progress() as progress, tempfile.TemporaryDirectory() as folder:
        warmup(progress)  # compiling is no part of training
        row = measure(model, train, test, Path(folder, "model"), progress)
    own = {f"{name}:{key}": value for name, settings in job.own.items() for key, value in settings.items()}
    row["settings"] = {key: str(value) for key, value in (job.settings | own).items()}
    return row | {"recipe": job.recipe.replace("*", " × ").replace("+", " + ")}


def _one_query_ms(model: Any, X: Any) -> float:
    """Return the median time of single queries on one thread."""
    times = []
    for i in range(min(_QUERIES, len(X) if isinstance(X, list) else X.shape[0])):
        one = X[i : i + 1]
        begun = time.perf_counter()
        model.topk(one, max(KS), threads=1)
        times.append(time.perf_counter() - begun)
    return 1e3 * float(np.median(times))


def _reset_peak() -> float | None:
    """Let the peak start at what is resident now, where the system can; return it in MB."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return _status_mb("VmRSS")
    except OSError:
        return _peak_mb()


def _peak_mb() -> float | None:
    """Return the most memory that was resident, in MB, or None where the system does not say."""
    try:
        return _status_mb("VmHWM")
    except OSError:
        pass
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1e6 if sys.platform == "darwin" else 1e3  # bytes there, kB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _gpu_peak_mb() -> float | None:
    """Return the most memory that was taken on a GPU, in MB; None where none is in use."""
    torch = sys.modules.get("torch")  # a recipe that uses a GPU has imported it
    if torch is None or not torch.cuda.is_initialized():
        return None
    return round(torch.cuda.max_memory_allocated() / 1e6, 1)


def _status_mb(key: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) / 1e3
    raise OSError(f"no {key} in /proc/self/status")
