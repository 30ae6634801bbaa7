"""Compare the estimates made before training with what the benchmarks have measured.

    python -m benchmarks.estimates

recomputes the estimate of every row in docs/benchmarks*.json and docs/scale.json from its settings and the sizes of its
dataset, and prints it beside the measurement. Needs neither the datasets nor an encoder nor a GPU. Rows that were
measured with older code are shown but do not count.
"""

from __future__ import annotations

import functools
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from benchmarks import neural, plot, report, scale_page
from umpteen.models import Ensemble, create
from umpteen.models.estimate import Estimate
from umpteen.models.recipes import create_members

MOST = 1.5  # ratio of estimated and measured memory, either way
DOCS = Path(__file__).resolve().parent.parent / "docs"
HEAD = ("dataset", "row", "what", "estimated", "measured", "ratio", "")
UNITS = {"memory_mb": "memory MB", "gpu_mb": "GPU MB", "seconds": "s"}
ENCODERS = {"gte-small": 12, "minilm": 6}  # layers; both are 384 wide and know 30 522 words
GPU_CORES, CPU_CORES = 16, 2  # of the machines that the benchmarks ran on

# What docs/benchmarks-neural.md says was measured with an older revision, which needed more memory
OLDER = {
    ("EURLEX57K", "xr-linear", "memory_mb"), ("EURLEX57K", "xr-transformer", "memory_mb"),
    ("YSO-Finna-en", "xr-transformer", "memory_mb"), ("YSO-Finna-en", "x-transformer", "memory_mb"),
    ("YSO-Finna-en", "cascadexml-dismec", "memory_mb"), ("YSO-Finna-en", "cascadexml-dismec", "gpu_mb"),
    ("YSO-Finna-en", "full", "gpu_mb"),
}  # fmt: skip


# Defaults of XR-Transformer when its rows were measured: settings that were recorded say how they differ from these
XR_TRANSFORMER = {
    "features": "both", "network.head": "tree", "training.loss": "squared-hinge", "training.epochs": (1.0, 4.0),
    "tree.kind": "auto", "linear.cost": 1.0, "linear.eps": 0.03, "linear.max_iter": 40, "linear.threshold": 0.02,
    "linear.negatives": "tfn+man", "linear.negatives_beam": 5, "training.length_warmup": 0.0,
}  # fmt: skip


class Texts(NamedTuple):
    """The size of a dataset of texts: rows, mean and largest number of characters, labels, labels of a row."""

    n_rows: int
    characters: int
    longest: int
    n_labels: int
    labels_per_row: float


TEXTS = {
    "EURLEX57K": Texts(45_000, 4_688, 30_425, 4_271, 5.07),
    "YSO-Finna-en": Texts(619_485, 95, 5_491, 25_147, 2.45),
    "ReverseDictionary": Texts(283_105, 82, 1_495, 217_680, 1.32),
    "demo": Texts(14_217, 461, 79_946, 537, 4.51),
}


@functools.cache
def make(dataset: str, n_rows: int | None = None) -> tuple[list[str], sp.csr_matrix]:
    """Make texts and labels of the sizes of a dataset, or of its first rows."""
    size = TEXTS[dataset]
    n = n_rows or size.n_rows
    return ["x" * size.characters] * (n - 1) + ["x" * size.longest], matrix(n, size.n_labels, size.labels_per_row)


class Row(NamedTuple):
    """One measured row: where from, what it was, and figures by the names of ``Estimate``."""

    dataset: str
    name: str
    estimate: Estimate
    measured: Mapping[str, float | None]
    is_alone: bool = True  # on its machine, so that its time counts


def main() -> int:
    """Print all rows and the largest ratios; return 1 if memory is off by more than it may."""
    rows = [*neural_rows(), *gpu_rows(), *cpu_rows(), *linear_rows(), *scale_rows()]
    lines, worst = compare(rows)
    print(report.table(HEAD, lines))
    print("largest ratio: " + ", ".join(f"{ratio:.2f} for {UNITS[what]}" for what, ratio in worst.items()))
    return int(max(worst["memory_mb"], worst["gpu_mb"]) > MOST)


def compare(rows: list[Row]) -> tuple[list[list[str]], dict[str, float]]:
    """Return a line for every figure, and the largest ratio of each kind among those that count."""
    lines, worst = [], dict.fromkeys(UNITS, 1.0)
    for row in rows:
        for what, measured in row.measured.items():
            if not measured:
                continue
            estimated = getattr(row.estimate, what)
            note = "older code" if (row.dataset, row.name, what) in OLDER else ""
            note = "not alone" if what == "seconds" and not row.is_alone else note
            numbers = (f"{estimated:,.1f}", f"{measured:,.1f}", f"{estimated / measured:.2f}")
            lines.append([row.dataset, row.name, UNITS[what], *numbers, note])
            if not note:
                worst[what] = max(worst[what], estimated / measured, measured / estimated)
    return lines, worst


def neural_rows() -> Iterator[Row]:
    """Yield the rows of all networks, and of XR-Linear on the same machine."""
    for dataset, rows in _read("benchmarks-neural.json").items():
        for name, row in rows.items():
            recipe = neural.PLANS[dataset][name].recipe
            settings = row["settings"] if recipe == "xr-linear" else row["settings"] | _on_gpu()
            measured = {"memory_mb": row["peak_mb"], "gpu_mb": row.get("gpu_fit_mb") or row["gpu_mb"]}
            found = estimate(recipe, settings | {"threads": GPU_CORES}, *make(dataset, row["n_rows"]))
            yield Row(dataset, name, found, measured | {"seconds": row["fit_s"]}, not plot.ran_beside_others(row))


def gpu_rows() -> Iterator[Row]:
    """Yield the rows of XR-Transformer with the times of its stages."""
    found = _read("benchmarks-gpu.json")
    for key, dataset in (("eurlex57k", "EURLEX57K"), ("yso-finna-en-150k", "YSO-Finna-en")):
        row, settings = found[key], {"training.length_warmup": 0.0, **found[key]["settings"]}
        n_rows = settings.pop("rows", None)
        yield _of_gpu(key, row, settings, dataset, n_rows)
    for key, dataset in (("eurlex57k", "EURLEX57K"), ("yso-finna-en", "YSO-Finna-en")):
        yield _of_gpu(f"{key}, defaults", found["defaults"][key], {}, dataset)


def _of_gpu(key: str, row: Mapping[str, Any], settings: dict[str, Any], dataset: str, n_rows: int | None = None) -> Row:
    settings |= _on_gpu() | {"threads": GPU_CORES}
    measured = {"gpu_mb": 1e3 * row["gpu_memory_gb"], "seconds": row["seconds"]}
    return Row(key, "xr-transformer", estimate("xr-transformer", settings, *make(dataset, n_rows)), measured)


def cpu_rows() -> Iterator[Row]:
    """Yield XR-Transformer on a CPU; torch was in memory before."""
    row = _read("benchmarks-xr-transformer.json")["results"]["umpteen_xt"]
    settings = row["settings"] | {"encoder.name": _encoder("minilm"), "threads": CPU_CORES}
    found = estimate("xr-transformer", settings, *make("demo"))
    yield Row("demo", "xr-transformer", found, {"memory_mb": row["fit_memory_mb"], "seconds": row["fit_s"]})


def linear_rows() -> Iterator[Row]:
    """Yield the linear recipes and extremeText on feature rows."""
    found = _read("benchmarks.json")
    for dataset, rows in found["results"].items():
        about = found["datasets"][dataset]
        sizes = ((about[f"n_{what}"], about[f"{what}_per_row"]) for what in ("features", "labels"))
        X, Y = (matrix(about["n_train"], *size) for size in sizes)
        for name, row in rows.items():
            if name.startswith("umpteen"):
                settings = {"threads": CPU_CORES, **row["settings"]}
                recipe = settings.pop("recipe")
                settings |= {"encoder.device": "cpu"} if recipe == "extremetext" else {}
                measured = {"memory_mb": row["fit_memory_mb"], "seconds": row["fit_s"]}
                yield Row(dataset, name, estimate(recipe, settings, X, Y), measured)


def scale_rows() -> Iterator[Row]:
    """Yield the runs with up to millions of labels; the rows were mapped into memory while they trained."""
    for run in _read("scale.json").values():
        if run["name"] == scale_page.IN_MEMORY:
            size = scale_page.planned_size(run)
            found = Estimate.of_size(size, create(run["recipe"], {**run["settings"], "threads": CPU_CORES}).config)
            measured = {"memory_mb": run["fit_memory_mb"] - size.input_bytes / 1e6, "seconds": run["fit_s"]}
            name = f"{run['n_labels']:,} labels, {run['n_rows']:,} rows"
            yield Row("made", name, found, measured, is_alone="shared" not in run.get("note", ""))


def estimate(recipe: str, settings: Mapping[str, Any], X: Any, Y: sp.csr_matrix) -> Estimate:
    """Return the estimate of a model, or of an ensemble such as ``cascadexml*3``."""
    if recipe.startswith("xr-transformer") and "head_weight" in settings:  # no longer given in the plan
        settings = {**XR_TRANSFORMER, **settings}
    models = create_members(recipe, dict(settings), {})
    return (models[0] if len(models) == 1 else Ensemble(models)).estimate(X, Y)


def matrix(n_rows: int, n_columns: int, per_row: float) -> sp.csr_matrix:
    """Make a matrix with so many nonzeros of a row on average, at random columns."""
    ptr = np.linspace(0, round(n_rows * per_row), n_rows + 1).astype(np.int64)
    columns = np.random.default_rng(0).integers(0, n_columns, ptr[-1]).astype(np.int32)
    return sp.csr_matrix((np.ones(len(columns), np.float32), columns, ptr), shape=(n_rows, n_columns))


def _on_gpu() -> dict[str, Any]:
    return {"encoder.name": _encoder("gte-small"), "encoder.device": "cuda"}


def _encoder(name: str) -> str:
    """Make a folder with all that an estimate asks of an encoder."""
    folder = Path(tempfile.gettempdir(), f"umpteen-size-of-{name}")
    folder.mkdir(exist_ok=True)
    facts = {"num_hidden_layers": ENCODERS[name], "hidden_size": 384, "vocab_size": 30_522}
    (folder / "config.json").write_text(json.dumps(facts), encoding="utf-8")
    return str(folder)


def _read(name: str) -> dict[str, Any]:
    return json.loads((DOCS / name).read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main())
