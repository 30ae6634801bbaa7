"""Every neural recipe on public data, with one encoder: the rows of docs/benchmarks-neural.json.

    python -m benchmarks.neural run EURLEX57K --encoder gte-small --out docs/benchmarks-neural.json
    python -m benchmarks.neural page docs/benchmarks-neural.json

Each row is one of ``umpteen bench``, measured in a process of its own, one after the other. A row that the file has
already with the same settings is not measured again. Settings were chosen on texts kept from training, never on the
test part.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import report
from umpteen.cli.benchmark import Job, in_own_process, members
from umpteen.store import atomic_write

Settings = Mapping[str, Any]

LIGHT: Settings = {"net.average_from": 1.0, "net.head_rate": 1e-2}  # a few passes, at a rate that falls


class Case(NamedTuple):
    """One row: a recipe, perhaps ``NAME*3``, its settings, and how many of the training rows it sees, None is all."""

    recipe: str
    settings: Settings
    n_rows: int | None = None


def _cases(net: Settings, finetune: Settings, ranker: Settings, own: Mapping[str, Settings]) -> dict[str, Case]:
    """Return the nine recipes of one table: what they share, and what is their own."""
    shared = {
        "xr-linear": {},
        "xr-transformer": {**finetune, **ranker},
        "x-transformer": {**finetune, **ranker},
        "lightxml": {**net, **LIGHT},
        "cascadexml": net,
        "cascadexml-dismec": {**net, **ranker},
        "full": net,
        "attentionxml": {**net, "net.rate": 1e-3, "net.average_from": 1.0},
        "xml-cnn": {**net, "net.rate": 1e-3},
    }
    single = {name: Case(name, {**settings, **own.get(name, {})}) for name, settings in shared.items()}
    voting = {f"{name}*3": Case(f"{name}*3", single[name].settings) for name in ("xr-transformer", "cascadexml")}
    return single | voting


def _eurlex() -> dict[str, Case]:
    tokens = {"encoder.tokens": 512}
    return _cases(
        net=tokens | {"net.batch_size": 64, "net.rate": 2e-4, "net.schedule": "linear", "net.epochs": 5.0},
        finetune=tokens | {
            "finetune.batch_size": 64, "finetune.rate": 2e-4, "finetune.negatives": "all", "finetune.held_out": 0.0,
        },
        ranker={"linear.cost_positive": 1.5, "embedding_weight": 0.6, "head_weight": 0.2},
        own={
            "xr-transformer": {"finetune.levels": (64,), "finetune.epochs": (0.6, 4.4)},
            "attentionxml": {"net.epochs": 8.0},
            "xml-cnn": {"net.epochs": 10.0},
        },
    )  # fmt: skip


def _yso() -> dict[str, Case]:
    tokens = {"encoder.tokens": 64}
    net = tokens | {"net.batch_size": 256, "net.rate": 3e-4, "net.schedule": "linear", "net.epochs": 3.0}
    small_steps = {"net.batch_size": 128}
    nine = _cases(
        net=net,
        finetune=tokens | {
            "finetune.batch_size": 256, "finetune.rate": 3e-4, "finetune.negatives": "all", "finetune.held_out": 0.0,
            "finetune.bootstrap_cost": 0.1,
        },
        ranker={"linear.eps": 0.1, "linear.threshold": 0.05, "embedding_weight": 2.0, "head_weight": 0.3},
        own={
            "xr-transformer": {"finetune.epochs": (0.5, 0.5, 2.0)},
            "x-transformer": {"finetune.epochs": (3.0,)},
            "cascadexml-dismec": {"tree.kind": "halving"},  # one versus all would take far longer
            "attentionxml": small_steps | {"net.epochs": 2.0},
            "xml-cnn": small_steps,
        },
    )  # fmt: skip
    clusters = {**nine["lightxml"].settings, "net.few_labels": 0}
    orders = {"D": ("at-once", 4.0), "BS": ("own-reader", 2.0), "S": ("one-reader", 2.0)}  # of its paper's Table 5
    negatives = {  # as many passes over the texts each
        f"lightxml-{name}": Case("lightxml", {**clusters, "net.order": order, "net.epochs": epochs}, 150_000)
        for name, (order, epochs) in orders.items()
    }
    return nine | negatives


def _reverse_dictionary() -> dict[str, Case]:
    net = {
        "encoder.tokens": 32, "net.batch_size": 256, "net.rate": 3e-4, "net.schedule": "linear", "net.epochs": 3.0,
    }  # fmt: skip
    own: dict[str, Settings] = {"lightxml": LIGHT, "cascadexml": {"net.depth": 4}, "full": {}}
    return {"xr-linear": Case("xr-linear", {})} | {name: Case(name, {**net, **more}) for name, more in own.items()}


PLANS = {"EURLEX57K": _eurlex(), "YSO-Finna-en": _yso(), "ReverseDictionary": _reverse_dictionary()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure rows, or write the tables of those that are known."""
    options = _parse(arguments)
    if options.command == "page":
        print("\n\n".join(f"{name}\n\n{table(rows)}" for name, rows in _known(options.file).items()))
        return
    plan = PLANS[options.folder.name]
    for name in options.only.split(",") if options.only else plan:
        row = measured(options, name, plan[name])
        print(name, {key: row[key] for key in ("P@1", "P@3", "P@5", "fit_s", "gpu_mb")}, flush=True)
    print(table(_known(options.out)[options.folder.name]))


def measured(options: argparse.Namespace, name: str, case: Case) -> dict[str, Any]:
    """Return a row, from the file if it is there."""
    known = _known(options.out)
    rows = known.setdefault(options.folder.name, {})
    settings = {key: list(value) if isinstance(value, tuple) else value for key, value in case.settings.items()}
    decisive = {"settings": settings, "split": options.split, "n_rows": case.n_rows}
    if decisive.items() <= rows.get(name, {}).items():
        return rows[name]
    recipe, count = members(case.recipe)
    encoder = {} if recipe == "xr-linear" else {"encoder.name": options.encoder}
    changed = dict(case.settings) | encoder
    job = Job(str(options.folder), recipe, count, changed, case.n_rows, options.split, quiet=True)
    rows[name] = in_own_process(job) | decisive
    atomic_write(options.out, json.dumps(known, indent=1) + "\n")
    return rows[name]


COLUMNS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "fit_s", "peak_mb", "gpu_mb", "model_mb", "ms_per_text")
HEADS = (*COLUMNS[:6], "training, s", "memory, MB", "GPU memory, MB", "model, MB", "ms a text")


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return rows as a table in Markdown."""
    exact = {key for key in COLUMNS if "@" in key} | {"ms_per_text"}
    lines = [
        [name.replace("*", " × "), *(report.number(row[key], 2 if key in exact else 0) for key in COLUMNS)]
        for name, row in rows.items()
    ]
    return report.table(["recipe", *HEADS], lines)


def _known(file: Path) -> dict[str, dict[str, Any]]:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="measure the rows of a dataset")
    run.add_argument("folder", type=Path, help=f"a folder called {' or '.join(PLANS)}")
    run.add_argument("--encoder", required=True, help="a folder in Hugging Face layout")
    run.add_argument("--only", default="", metavar="A,B", help="some of the rows")
    run.add_argument("--split", default="test", help="the part that is tested on")
    run.add_argument("--out", type=Path, required=True, help="rows are kept here, and go on from there")
    page = commands.add_parser("page", help="print tables in Markdown")
    page.add_argument("file", type=Path)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
