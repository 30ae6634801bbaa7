"""Train on Ray clusters of one and of two worker nodes of one core, on this machine.

    python -m benchmarks.cluster [DATA …] [--made 100K,600K] [--rounds 2] [--page docs/clusters.md]

Trains XR-Linear from texts, by default those of the demo, or with ``--made LABELS,ROWS`` from rows of features that
``benchmarks.scale_data`` makes. Prints the times, the speed-up, and the bytes in the object
store against those of the texts, and checks that all models have the bytes of a training in memory. In the last run one
of two nodes is killed in the middle. Times include the start of the processes that run the tasks, but not that of the
nodes, nor reading the data; the fastest of several rounds counts.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import umpteen
from benchmarks import scale_data
from benchmarks.ray_nodes import Cluster, cluster
from benchmarks.report import machine, replace_between, table
from benchmarks.scale import count
from umpteen.data import Dataset, read
from umpteen.engine import Engine, Progress, silent

MARKERS = ("<!-- cluster-bench:begin -->", "<!-- cluster-bench:end -->")
SPEED_UP, SHARE = 1.6, 0.01  # the bars


@dataclass(frozen=True)
class Job:
    """What is trained on."""

    name: str
    inputs: Any
    Y: Any
    labels: Sequence[str] | None
    n_bytes: int

    @classmethod
    def of_texts(cls, data: Dataset, name: str) -> Job:
        """Train from texts."""
        n_bytes = sum(len(text.encode("utf-8", "surrogatepass")) for text in data.texts)
        return cls(f"the {len(data):,} texts of {name}", data.texts, data.Y, data.labels, n_bytes)

    @classmethod
    def of_made_rows(cls, folder: Path, size: str) -> Job:
        """Make rows of features in a folder, and train from them."""
        n_labels, n_rows = map(count, size.split(","))
        scale_data.make(folder, n_labels, n_rows)
        X, Y = (scale_data.load(folder, f"{kind}.trn") for kind in "XY")
        n_bytes = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
        return cls(f"{n_rows:,} made rows of features, {n_labels:,} labels", X, Y, None, n_bytes)


@dataclass
class Measured:
    """One run: what was written, and what it took."""

    files: dict[str, bytes]
    seconds: float
    store_bytes: int = 0
    message_bytes: int = 0


def train(engine: Engine | None, job: Job, output: Path, progress: Progress = silent) -> None:
    """Train with the tasks of an engine, or in memory without one."""
    options = {} if engine is None else {"engine": engine, "checkpoint": output / "stages"}
    model = umpteen.XRLinear(threads=1)
    model.fit(job.inputs, job.Y, label_names=job.labels, progress=progress, **options).save(output / "model")


def measure(engine: Engine | None, job: Job, storage: Path, progress: Progress = silent) -> Measured:
    """Train into a new folder."""
    output = Path(tempfile.mkdtemp(dir=storage))
    begun = time.perf_counter()
    train(engine, job, output, progress)
    seconds = time.perf_counter() - begun
    return Measured(files_but_history(output), seconds)


def files_but_history(folder: Path) -> dict[str, bytes]:
    """Return what the model folders in a folder hold; only the times in their histories may differ."""
    files = {}
    for path in sorted(folder.glob("model/**/*.*")):
        content = path.read_bytes()
        if path.name == "config.json":
            config = json.loads(content)
            config["files"].pop("history.jsonl")
            content = json.dumps(config).encode()
        if not path.name.startswith("history-"):
            files[str(path.relative_to(folder))] = content
    return files


def measure_cluster(
    n_nodes: int, job: Job, storage: Path, progress: Callable[[Cluster], Progress] = lambda nodes: silent
) -> Measured:
    """Train on a new cluster."""
    from umpteen.engine.cluster import RayEngine

    with cluster(n_nodes) as nodes:
        engine = RayEngine(nodes.address)
        try:
            measured = measure(engine, job, storage, progress(nodes))
            report = engine.object_store_report()
        finally:
            engine.close()
    measured.store_bytes, measured.message_bytes = report.store_bytes, report.message_bytes
    print(f"{n_nodes} nodes: {measured.seconds:.1f} s", flush=True)
    return measured


def kill_in_the_middle(nodes: Cluster) -> Progress:
    """Return a progress function that kills a node once half of the last level is trained."""
    doomed = [nodes.workers[-1]]

    def progress(stage: str, done: int, total: int) -> None:
        _, _, levels = stage.partition(" of ")
        if doomed and stage == f"level {levels} of {levels}" and 2 * done >= total:
            doomed.pop().kill()

    return progress


def main(arguments: list[str] | None = None) -> int:
    """Measure, and return 1 if a result differs or a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="*", help="datasets of texts; that of the demo by default")
    parser.add_argument("--made", action="append", default=[], metavar="LABELS,ROWS", help="made rows, as 100K,600K")
    parser.add_argument("--rounds", type=int, default=2, help="times that one and two nodes are measured in turn")
    parser.add_argument("--page", type=Path, help="also write the table into this page")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the nodes too
    sections, verdicts = [], []
    with tempfile.TemporaryDirectory() as name:
        for job in jobs(options, Path(name)):
            runs = measure_all(job, Path(name), options.rounds)
            sections.append(section(runs, job, options.rounds))
            verdicts.append(meets_bars(runs, job.n_bytes))
            print(sections[-1], flush=True)
    if options.page:
        text = "\n\n".join(sections)
        options.page.write_text(replace_between(options.page.read_text(), text, *MARKERS))
    return 0 if all(verdicts) else 1


def jobs(options: argparse.Namespace, folder: Path) -> Iterator[Job]:
    """Yield what is to be trained, one after the other."""
    if not options.data and not options.made:
        yield Job.of_texts(umpteen.load_demo("train"), "the demo")
    for path in options.data:
        yield Job.of_texts(read(path), path.name)
    for size in options.made:
        yield Job.of_made_rows(folder / f"made-{size}", size)


def measure_all(job: Job, storage: Path, n_rounds: int) -> dict[str, Measured]:
    """Train in memory, on one and on two nodes, and on two of which one is killed."""
    train(None, job, Path(tempfile.mkdtemp(dir=storage)))  # compiles kernels
    runs = {"in memory": measure(None, job, storage)}
    rounds = [[measure_cluster(n, job, storage) for n in (1, 2)] for _ in range(n_rounds)]
    runs["1 node"], runs["2 nodes"] = (fastest(measured) for measured in zip(*rounds, strict=True))
    runs["2 nodes, one killed"] = measure_cluster(2, job, storage, kill_in_the_middle)
    return runs


def fastest(measured: Sequence[Measured]) -> Measured:
    """Return the fastest run with the most bytes of any; all must have written the same files."""
    if any(run.files != measured[0].files for run in measured):
        raise RuntimeError("two runs wrote different files")
    store, messages = (max(getattr(run, name) for run in measured) for name in ("store_bytes", "message_bytes"))
    return Measured(measured[0].files, min(run.seconds for run in measured), store, messages)


def section(runs: dict[str, Measured], job: Job, n_rounds: int) -> str:
    """Return the table and what was measured."""
    head = ["run", "s", "speed-up", "object store, bytes", "share of the data", "messages, bytes", "same bytes"]
    lines = [[name, *_cells(run, runs, job.n_bytes)] for name, run in runs.items()]
    here = machine()
    return (
        f"XR-Linear on {job.name}, {job.n_bytes / 1e6:.1f} MB, with one thread in each process. Nodes have one core. "
        f"Times include the start of the processes of the tasks; the fastest of {n_rounds} rounds. {here['cores']} "
        f"cores ({here['cpu']}), {here['date']}.\n\n{table(head, lines)}"
    )


def _cells(run: Measured, runs: dict[str, Measured], data_bytes: int) -> list[str]:
    same = "yes" if run.files == runs["in memory"].files else "NO"
    if run is runs["in memory"]:
        return [f"{run.seconds:.1f}", "", "", "", "", ""]
    speed_up, share = runs["1 node"].seconds / run.seconds, run.store_bytes / data_bytes
    return [f"{run.seconds:.1f}", f"{speed_up:.2f}", f"{run.store_bytes}", f"{share:.2%}", f"{run.message_bytes}", same]


def meets_bars(runs: dict[str, Measured], data_bytes: int) -> bool:
    """Return whether results are equal, the object store is nearly unused, and two nodes are faster than one."""
    is_same = all(run.files == runs["in memory"].files for run in runs.values())
    is_small = all(run.store_bytes < SHARE * data_bytes for run in runs.values())
    return is_same and is_small and runs["1 node"].seconds / runs["2 nodes"].seconds >= SPEED_UP


if __name__ == "__main__":
    sys.exit(main())
