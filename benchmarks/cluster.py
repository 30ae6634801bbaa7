"""Train on Ray clusters of one and of two worker nodes of one core, on this machine.

    python -m benchmarks.cluster [--data demo] [--tasks 24] [--rounds 2] [--page docs/clusters.md]

Prints the times, the speed-up, and the bytes in the object store against those of the data, and checks that all runs
write the same files as a run in this process. In the last run one of two nodes is killed in the middle. Times include
the start of the processes that run the tasks, but not that of the nodes; the fastest of several rounds counts.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import scipy.sparse as sp

import umpteen
from benchmarks.ray_nodes import Cluster, cluster
from benchmarks.report import machine, replace_between, table
from umpteen.engine import Engine, LocalEngine, Progress, Task, silent

HERE = Path(__file__).parent
MARKERS = ("<!-- cluster-bench:begin -->", "<!-- cluster-bench:end -->")
SPEED_UP, SHARE = 1.6, 0.01  # the bars


@dataclass
class Measured:
    """One run: what was written, and what it took."""

    files: dict[str, bytes]
    seconds: float
    store_bytes: int = 0
    message_bytes: int = 0


def train(engine: Engine, data: Path, output: Path, n_tasks: int, progress: Progress = silent) -> None:
    """Train XR-Linear: in the tasks of the recipe, or a cross-validation of so many folds, one task for each."""
    if n_tasks:
        return cross_validate(engine, data, output, n_tasks, progress)
    X, Y = (sp.load_npz(data / f"{name}.npz") for name in "XY")
    model = umpteen.XRLinear(threads=1).fit(X, Y, engine=engine, checkpoint=f"{output}.stages", progress=progress)
    model.save(output / "model")


def cross_validate(engine: Engine, data: Path, output: Path, n_tasks: int, progress: Progress) -> None:
    """Train one model for each fold."""
    n_rows = sp.load_npz(data / "Y.npz").shape[0]
    bounds = [n_rows * i // n_tasks for i in range(n_tasks + 1)]
    tasks = [
        Task(
            "umpteen.cluster_tasks:fit_fold",
            {"folder": str(data), "start": start, "stop": stop, "target": str(output / f"{start}")},
        )
        for start, stop in pairwise(bounds)
    ]
    engine.run(tasks, stage="training", progress=progress)


def write_data(folder: Path, source: str) -> int:
    """Write a train split as matrices and return their bytes."""
    found = umpteen.read(source, "train")
    X = found.X if found.texts is None else umpteen.Tfidf().fit(found.texts).transform(found.texts)
    sp.save_npz(folder / "X.npz", X)
    sp.save_npz(folder / "Y.npz", sp.csr_matrix(found.Y))
    return sum(path.stat().st_size for path in folder.iterdir())


def measure(engine: Engine, data: Path, n_tasks: int, progress: Progress = silent) -> Measured:
    """Train into a new folder."""
    output = Path(tempfile.mkdtemp(dir=data.parent))
    begun = time.perf_counter()
    train(engine, data, output, n_tasks, progress)
    seconds = time.perf_counter() - begun
    return Measured(files_but_history(output), seconds)


def files_but_history(folder: Path) -> dict[str, bytes]:
    """Return what the model folders in a folder hold; only the times in their histories may differ."""
    files = {}
    for path in sorted(folder.rglob("*.*")):
        content = path.read_bytes()
        if path.name == "config.json":
            config = json.loads(content)
            config["files"].pop("history.jsonl")
            content = json.dumps(config).encode()
        if not path.name.startswith("history-"):
            files[str(path.relative_to(folder))] = content
    return files


def measure_cluster(
    n_nodes: int, data: Path, n_tasks: int, progress: Callable[[Cluster], Progress] = lambda nodes: silent
) -> Measured:
    """Train on a new cluster."""
    from umpteen.engine.cluster import RayEngine

    with cluster(n_nodes) as nodes:
        engine = RayEngine(nodes.address)
        try:
            measured = measure(engine, data, n_tasks, progress(nodes))
            report = engine.object_store_report()
        finally:
            engine.close()
    measured.store_bytes, measured.message_bytes = report.store_bytes, report.message_bytes
    return measured


def kill_in_the_middle(nodes: Cluster) -> Progress:
    """Return a progress function that kills a node once half of a stage is done."""
    doomed = [nodes.workers[-1]]

    def progress(stage: str, done: int, total: int) -> None:
        if doomed and done and 2 * done >= total:
            doomed.pop().kill()

    return progress


@contextmanager
def tasks_importable() -> Iterator[None]:
    """Let this process and all nodes find the tasks of the benchmark in the package, where tasks must be."""
    before = os.environ.get("PYTHONPATH", "")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(f"import umpteen; umpteen.__path__.append({str(HERE)!r})")
        umpteen.__path__.append(str(HERE))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, before]))
        try:
            yield
        finally:
            umpteen.__path__.remove(str(HERE))
            os.environ["PYTHONPATH"] = before


def main(arguments: list[str] | None = None) -> int:
    """Measure, and return 1 if a result differs or a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="demo", help="what is trained on")
    parser.add_argument("--tasks", type=int, default=24, help="number of folds; 0 trains one model")
    parser.add_argument("--rounds", type=int, default=2, help="times that one and two nodes are measured in turn")
    parser.add_argument("--page", type=Path, help="also write the table into this page")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the nodes too
    with tempfile.TemporaryDirectory() as storage, tasks_importable():
        data = Path(storage, "data")
        data.mkdir()
        data_bytes = write_data(data, options.data)
        runs = {"this process": measure(LocalEngine(1), data, options.tasks)}
        rounds = [[measure_cluster(n, data, options.tasks) for n in (1, 2)] for _ in range(options.rounds)]
        runs["1 node"], runs["2 nodes"] = (fastest(measured) for measured in zip(*rounds, strict=True))
        runs["2 nodes, one killed"] = measure_cluster(2, data, options.tasks, kill_in_the_middle)
    text = section(runs, data_bytes, options)
    print(text)
    if options.page:
        options.page.write_text(replace_between(options.page.read_text(), text, *MARKERS))
    return 0 if meets_bars(runs, data_bytes) else 1


def fastest(measured: Sequence[Measured]) -> Measured:
    """Return the fastest run with the most bytes of any; all must have written the same files."""
    if any(run.files != measured[0].files for run in measured):
        raise RuntimeError("two runs wrote different files")
    store, messages = (max(getattr(run, name) for run in measured) for name in ("store_bytes", "message_bytes"))
    return Measured(measured[0].files, min(run.seconds for run in measured), store, messages)


def section(runs: dict[str, Measured], data_bytes: int, options: argparse.Namespace) -> str:
    """Return the table and what was measured."""
    head = ["run", "s", "speed-up", "object store, bytes", "share of the data", "messages, bytes", "same files"]
    lines = [[name, *_cells(run, runs, data_bytes)] for name, run in runs.items()]
    here = machine()
    what = f"A cross-validation in {options.tasks} tasks" if options.tasks else "Training"
    return (
        f"{table(head, lines)}\n\n{what} of XR-Linear on {Path(options.data).name}, {data_bytes / 1e6:.1f} MB of "
        f"vectors and labels; {len(runs['1 node'].files)} files written. Nodes "
        f"have one core. Times include the start of the processes of the tasks; the fastest of {options.rounds} "
        f"rounds. {here['cores']} cores ({here['cpu']}), {here['date']}."
    )


def _cells(run: Measured, runs: dict[str, Measured], data_bytes: int) -> list[str]:
    same = "yes" if run.files == runs["this process"].files else "NO"
    if run is runs["this process"]:
        return [f"{run.seconds:.1f}", "", "", "", "", ""]
    speed_up, share = runs["1 node"].seconds / run.seconds, run.store_bytes / data_bytes
    return [f"{run.seconds:.1f}", f"{speed_up:.2f}", f"{run.store_bytes}", f"{share:.2%}", f"{run.message_bytes}", same]


def meets_bars(runs: dict[str, Measured], data_bytes: int) -> bool:
    """Return whether results are equal, the object store is nearly unused, and two nodes are faster than one."""
    is_same = all(run.files == runs["this process"].files for run in runs.values())
    is_small = all(run.store_bytes < SHARE * data_bytes for run in runs.values())
    return is_same and is_small and runs["1 node"].seconds / runs["2 nodes"].seconds >= SPEED_UP


if __name__ == "__main__":
    sys.exit(main())
