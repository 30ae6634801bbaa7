"""``umpteen bench``: train recipes on one dataset and compare them in a table.

Every recipe is trained in its own process, so that its memory can be measured. ``NAME*3`` and ``NAME+NAME`` are
ensembles.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from umpteen import __version__
from umpteen.cli.benchmark_summary import summarize, with_deviation
from umpteen.cli.evaluation import MANY_UNSEEN, unseen_note
from umpteen.cli.options import check_own, data_name
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
_HELD_OUT = 0.1  # fraction of a single file that is the test split
_QUERIES = 200  # number of timed single queries

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
    """The process of a recipe has failed."""


@dataclass(frozen=True)
class Job:
    """A recipe to be measured in its own process."""

    data: str
    recipe: str
    settings: dict[str, Any]
    n_rows: int | None
    split: str
    quiet: bool
    own: dict[str, dict[str, Any]] = field(default_factory=dict)  # settings of single recipes of an ensemble
    columns: dict[str, Any] = field(default_factory=dict)  # of a table, as arguments of umpteen.read
    propensity: tuple[float, float] | None = None  # constants A and B of PSP, instead of those of the dataset

    @property
    def key(self) -> str:
        """Digest of everything the results depend on."""
        from umpteen.models.recipes import create_members

        configs = [to_dict(model.config) for model in create_members(self.recipe, self.settings, self.own)]
        data = _stamps(Path(self.data).resolve())
        columns = [self.columns] if self.columns else []  # without columns the digest is that of earlier versions
        constants = [] if self.propensity is None else [list(self.propensity)]
        return fingerprint(__version__, [data, configs, self.n_rows or 0, self.split, *columns, *constants])


def bench(
    data: str,
    recipes: Sequence[str],
    settings: dict[str, Any],
    *,
    terminal: Terminal,
    own: Mapping[str, dict[str, Any]] | None = None,
    n_rows: int | None = None,
    split: str = "test",
    seeds: int | None = None,
    propensity: tuple[float, float] | None = None,
    out: Path | None = None,
    as_json: bool = False,
    columns: dict[str, Any] | None = None,
) -> None:
    """Train every recipe on ``data`` and print a table.

    ``own`` are settings of single recipes. With ``seeds`` every recipe is trained with so many seeds, and rows are
    means. Results in the file ``out`` are reused, and new ones are added to it one by one.
    """
    jobs = _jobs(data, recipes, settings, own or {}, n_rows, split, terminal.quiet)
    jobs = [replace(job, columns=columns or {}, propensity=propensity) for job in jobs]
    groups = [[job] for job in jobs] if seeds is None else [_with_seeds(job, seeds) for job in jobs]
    known = _kept(out)
    if split != "test" and not Path(data).is_dir():
        raise BadConfig(f"--split {split} is a split of a folder, but {data} is one file; leave it out")
    rows: list[list[dict[str, Any]]] = []
    try:
        for group in groups:
            rows.append([])
            for job in group:
                rows[-1].append(_measured(job, known, out, terminal))
    finally:  # also if a recipe failed or was interrupted
        shown = [some[0] if seeds is None else summarize(some) for some in rows if some]
        if shown:
            terminal.json(shown) if as_json else _show(shown, data, split, terminal)


def _measured(job: Job, known: dict[str, Any], out: Path | None, terminal: Terminal) -> dict[str, Any]:
    """Return the results of a job: those that are known, or else measured and kept in the file ``out``."""
    key = job.key
    if key not in known:
        seed = f", seed {job.settings['seed']}" if "seed" in job.settings else ""
        terminal.note(f"{job.recipe} on {job.data}{seed}")
        known[key] = in_own_process(job)
        if known[key]["unseen_labels"] >= MANY_UNSEEN:
            terminal.note(unseen_note(known[key]["unseen_labels"], f"{data_name(job.data)} ({job.split})"))
        if out is not None:
            atomic_write(out, json.dumps(known, indent=1))
    return known[key]


def _with_seeds(job: Job, n_seeds: int) -> list[Job]:
    """Return the job with several seeds; models of an ensemble have consecutive ones, so that none is used twice."""
    from umpteen.models.recipes import create_members

    if any("seed" in settings for settings in job.own.values()):
        raise BadConfig("--seeds chooses the seeds of all recipes, so that --set NAME:seed has no place; leave one out")
    members = create_members(job.recipe, job.settings, job.own)
    first = members[0].config.seed
    seeds = [first + number * len(members) for number in range(n_seeds)]
    return [replace(job, settings=job.settings | {"seed": seed}) for seed in seeds]


def _jobs(
    data: str, recipes: Sequence[str], settings: dict[str, Any], own: Mapping[str, dict[str, Any]],
    n_rows: int | None, split: str, quiet: bool,
) -> list[Job]:  # fmt: skip
    """Return the jobs; names and settings are checked before any training."""
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
    """Print a table, without columns that are empty in all rows."""
    a, b = rows[0]["propensity"]
    columns = {key: name for key, name in COLUMNS.items() if any(row.get(key) is not None for row in rows)}
    shown = [[with_deviation(row, key) for key in columns] for row in rows]
    n_seeds = max(len(row.get("seeds", [])) for row in rows)
    title = f"{data_name(data)} ({split}; PSP with A = {a}, B = {b})"
    terminal.table(list(columns.values()), shown, title=title, lines=n_seeds > 0)
    terminal.say("PSP uses the label counts of the training rows.")
    if n_seeds:
        terminal.say(f"Mean ± standard deviation of {n_seeds} seeds.")


def _kept(out: Path | None) -> dict[str, Any]:
    """Return the rows of an earlier run, and check that the file can be written."""
    if out is None:
        return {}
    if out.is_dir() or not out.resolve().parent.is_dir():
        raise BadInput(f"--out must be a file in an existing folder, but is '{out}'")
    if not out.exists():
        return {}
    try:
        found = json.loads(out.read_text(encoding="utf-8"))
        is_complete = all(set(COLUMNS) - {"unseen_labels"} <= set(row) for row in found.values())
    except (ValueError, AttributeError, TypeError):
        is_complete = False
    if not is_complete:
        raise BadInput(f"'{out}' was not written by umpteen bench; name another file")
    return found


def _stamps(data: Path) -> list[Any]:
    """Return the path of the data, and name, size and modification time of its files."""
    files = sorted(data.iterdir()) if data.is_dir() else [data]
    stats = [(file, file.stat()) for file in files if file.is_file()]
    return [str(data), *([file.name, stat.st_size, stat.st_mtime_ns] for file, stat in stats)]


def measure(
    model: Any, train: Dataset, test: Dataset, folder: Path, progress: Progress,
    propensity: tuple[float, float] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Fit, evaluate and save a model; return metrics, times and sizes by name."""
    X = train.inputs
    before = _reset_peak()
    begun = time.perf_counter()
    model.fit(X, train.Y, label_names=train.labels, progress=progress)
    fit_s = time.perf_counter() - begun
    peak, gpu_peak = _peak_mb(), _gpu_peak_mb()
    expected = model.estimate(X, train.Y)  # after training, for it may load libraries, whose memory is measured
    constants = propensity or PROPENSITY.get(train.name.lower(), PROPENSITY["default"])
    found = evaluate_model(model, test, KS, propensity=constants, progress=progress)
    model.save(folder)
    return {
        "recipe": model.recipe,
        **{name: round(value, 3) for name, value in found.metrics.items()},
        "propensity": list(constants),
        "propensity_counts": "training",
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


def read_both(data: str, n_rows: int | None = None, split: str = "test", **columns: Any) -> tuple[Dataset, Dataset]:
    """Read the train split and another one; a single file is split at random."""
    train = read(data, "train", n_rows=n_rows, **columns)
    if not Path(data).is_dir():
        return train.split(_HELD_OUT)
    width = None if train.X is None else train.X.shape[1]
    return train, read(data, split, labels=train.labels, n_features=width, **columns)


def in_own_process(job: Job) -> dict[str, Any]:
    """Measure a recipe in its own process."""
    with Running(job) as running:
        return running.result()


class Running:
    """Context manager that runs a job in its own process, which is terminated on exit."""

    def __init__(self, job: Job):
        self.job = job
        context = get_context("spawn")
        self.answer, sender = context.Pipe(duplex=False)  # readable when the job is done
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
        """Wait for the results and return them."""
        try:
            result = self.answer.recv()
        except EOFError as error:
            name = self.job.recipe
            raise BenchFailed(
                f"the process that trained '{name}' died, most likely out of memory; try fewer rows with --rows"
            ) from error
        if isinstance(result, UmpteenError):
            raise result
        return result


def _answer(job: Job, sender: Connection) -> None:
    """Send the results, or an exception, to the parent process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C and terminates this one
    try:
        sender.send(measure_job(job))
    except (BadInput, BadConfig) as error:
        sender.send(BadInput(str(error)))
    except UmpteenError as error:
        sender.send(BenchFailed(str(error)))
    except Exception as error:  # a bug: show where
        traceback.print_exc()
        sender.send(BenchFailed(f"training '{job.recipe}' failed: {type(error).__name__}: {error}"))


def measure_job(job: Job) -> dict[str, Any]:
    """Read the data, train and evaluate the model of a job, in this process."""
    from umpteen.models import warmup

    terminal = Terminal(quiet=job.quiet)
    model = build(job.recipe, job.settings, job.own)
    train, test = read_both(job.data, job.n_rows, job.split, **job.columns)
    with terminal.progress() as progress, tempfile.TemporaryDirectory() as folder:
        warmup(progress)  # compilation is not measured
        row = measure(model, train, test, Path(folder, "model"), progress, job.propensity)
    own = {f"{name}:{key}": value for name, settings in job.own.items() for key, value in settings.items()}
    row["settings"] = {key: str(value) for key, value in (job.settings | own).items()}
    return row | {"recipe": job.recipe.replace("*", " × ").replace("+", " + ")}


def _one_query_ms(model: Any, X: Any) -> float:
    """Return the median time of a single query on one thread, in milliseconds."""
    times = []
    for i in range(min(_QUERIES, len(X) if isinstance(X, list) else X.shape[0])):
        one = X[i : i + 1]
        begun = time.perf_counter()
        model.topk(one, max(KS), threads=1)
        times.append(time.perf_counter() - begun)
    return 1e3 * float(np.median(times))


def _reset_peak() -> float | None:
    """Reset the peak of the resident memory, where the system can; return the present value in MB."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return _status_mb("VmRSS")
    except OSError:
        return _peak_mb()


def _peak_mb() -> float | None:
    """Return the peak of the resident memory in MB, or None if the system does not report it."""
    try:
        return _status_mb("VmHWM")
    except OSError:
        pass
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1e6 if sys.platform == "darwin" else 1e3  # bytes on macOS, kB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _gpu_peak_mb() -> float | None:
    """Return the peak of the GPU memory in MB; None if no GPU is used."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return round(torch.cuda.max_memory_allocated() / 1e6, 1)


def _status_mb(key: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) / 1e3
    raise OSError(f"no {key} in /proc/self/status")
