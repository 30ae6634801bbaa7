"""Every neural recipe on public data, with one encoder: the rows of docs/benchmarks-neural.json.

    python -m benchmarks.neural EURLEX57K --encoder gte-small --out docs/benchmarks-neural.json
    python -m benchmarks.neural_page docs/benchmarks-neural.json docs

Each row is one of ``umpteen bench``, measured in a process of its own, one after the other or, where the time does not
matter, several at once. A row that the file has already with the same settings, encoder and version is not measured
again. Settings were chosen on texts kept from training, never on the test part.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from umpteen import __version__
from umpteen.cli.benchmark import Job, Running
from umpteen.errors import UmpteenError
from umpteen.models.recipes import member_names
from umpteen.store import atomic_write

Settings = Mapping[str, Any]
Key = TypeVar("Key")

LIGHT: Settings = {"training.swa_start": 1.0, "training.head_learning_rate": 1e-2}  # a few passes, at a rate that falls


class Case(NamedTuple):
    """One row: a recipe, perhaps ``NAME*3``, its settings, and how many of the training rows it sees, None is all."""

    recipe: str
    settings: Settings
    n_rows: int | None = None


def _cases(net: Settings, finetune: Settings, ranker: Settings, own: Mapping[str, Settings]) -> dict[str, Case]:
    """Return the ten recipes of one table: what they share, and what is their own."""
    shared = {
        "xr-linear": {},
        "xr-transformer": {},
        "x-transformer": {**finetune, **ranker},
        "lightxml": {**net, **LIGHT},
        "cascadexml": net,
        "cascadexml-dismec": {**net, **ranker},
        "full": net,
        "attentionxml": {**net, "training.learning_rate": 1e-3, "training.swa_start": 1.0},
        "xml-cnn": {**net, "training.learning_rate": 1e-3},
        "extremetext": {},
    }
    single = {name: Case(name, {**settings, **own.get(name, {})}) for name, settings in shared.items()}
    voting = {f"{name}*3": Case(f"{name}*3", single[name].settings) for name in ("xr-transformer", "cascadexml")}
    return single | voting


def _eurlex() -> dict[str, Case]:
    tokens = {"encoder.max_length": 512}
    return _cases(
        net=tokens | {
            "training.batch_size": 64, "training.learning_rate": 2e-4, "training.lr_schedule": "linear",
            "training.epochs": 5.0,
        },
        finetune=tokens | {
            "training.batch_size": 64, "training.learning_rate": 2e-4, "training.negatives": "all",
            "training.validation_fraction": 0.0,
        },
        ranker={"linear.cost_positive": 1.5, "embedding_weight": 0.6, "head_weight": 0.2},
        own={
            "xr-transformer": tokens,
            "attentionxml": {"training.epochs": 8.0},
            "xml-cnn": {"training.epochs": 10.0},
        },
    )  # fmt: skip


def _yso() -> dict[str, Case]:
    tokens = {"encoder.max_length": 64}
    net = tokens | {
        "training.batch_size": 256,
        "training.learning_rate": 3e-4,
        "training.lr_schedule": "linear",
        "training.epochs": 3.0,
    }
    small_steps = {"training.batch_size": 128}
    ten = _cases(
        net=net,
        finetune=tokens | {
            "training.batch_size": 256, "training.learning_rate": 3e-4, "training.negatives": "all",
            "training.validation_fraction": 0.0,
            "training.init_cost": 0.1,
        },
        ranker={"linear.eps": 0.1, "linear.threshold": 0.05, "embedding_weight": 2.0, "head_weight": 0.3},
        own={
            "x-transformer": {"training.epochs": (3.0,)},
            "cascadexml-dismec": {"tree.kind": "halving"},  # one versus all would take far longer
            "attentionxml": small_steps | {"training.epochs": 2.0},
            "xml-cnn": small_steps | {"training.learning_rate": 3e-4},
        },
    )  # fmt: skip
    clusters = {**ten["lightxml"].settings, "network.few_labels": 0}
    orders = {"D": ("joint", 4.0), "BS": ("own-reader", 2.0), "S": ("shared-reader", 2.0)}  # of its paper's Table 5
    negatives = {  # as many passes over the texts each
        f"lightxml-{name}": Case("lightxml", {**clusters, "training.order": order, "training.epochs": epochs}, 150_000)
        for name, (order, epochs) in orders.items()
    }
    return ten | negatives | {"extremetext-150K": Case("extremetext", {}, 150_000)}


def _reverse_dictionary() -> dict[str, Case]:
    net = {
        "encoder.max_length": 32, "training.batch_size": 256, "training.learning_rate": 3e-4,
        "training.lr_schedule": "linear", "training.epochs": 3.0,
    }  # fmt: skip
    own: dict[str, Settings] = {
        "lightxml": LIGHT,
        "cascadexml": {"network.depth": 4, "network.beam": (256,)},
        "full": {},
    }
    return {"xr-linear": Case("xr-linear", {})} | {name: Case(name, {**net, **more}) for name, more in own.items()}


PLANS = {"EURLEX57K": _eurlex(), "YSO-Finna-en": _yso(), "ReverseDictionary": _reverse_dictionary()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the rows that the file does not have yet."""
    options = _parse(arguments)
    known = read(options.out)
    here = {name: version(name) for name in ("torch", "transformers")} | {"at_once": options.at_once}
    missing = {}
    for folder, name in options.rows:
        case = PLANS[folder.name][name]
        decisive = {
            "settings": _plain(case.settings), "split": options.split, "n_rows": case.n_rows,
            "encoder": Path(options.encoder).name, "umpteen": __version__,
        }  # fmt: skip
        if not decisive.items() <= known.get(folder.name, {}).get(name, {}).items():
            missing[folder.name, name] = job_of(folder, case, options), decisive
    for (data, name), row in measured({key: job for key, (job, _) in missing.items()}, options.at_once):
        known.setdefault(data, {})[name] = row | missing[data, name][1] | here
        atomic_write(options.out, json.dumps(known, indent=1) + "\n")
        print(data, name, {key: row[key] for key in ("P@1", "P@3", "P@5", "fit_s", "gpu_mb")}, flush=True)


def chosen(folders: Sequence[Path], only: str) -> list[tuple[Path, str]]:
    """Read which rows are asked for, in that order: NAME of every dataset that has it, or DATASET/NAME; all if none."""
    if not only:
        return [(folder, name) for folder in folders for name in PLANS[folder.name]]
    found = []
    for word in filter(None, only.split(",")):
        data, _, name = word.rpartition("/")
        having = [folder for folder in folders if data in ("", folder.name) and name in PLANS.get(folder.name, {})]
        if not having:
            raise ValueError(f"there is no row '{word}' for {', '.join(folder.name for folder in folders)}")
        found += [(folder, name) for folder in having]
    return found


def job_of(folder: Path, case: Case, options: argparse.Namespace) -> Job:
    """Return what is to be measured for a row."""
    encoder = {"encoder.name": options.encoder} if has_encoder(case.recipe) else {}
    settings = dict(case.settings) | encoder
    return Job(str(folder), case.recipe, settings, case.n_rows, options.split, quiet=True)


def has_encoder(recipe: str) -> bool:
    """Return whether a recipe reads texts by a transformer encoder or its word embeddings."""
    return member_names(recipe)[0] not in ("xr-linear", "extremetext")


def measured(jobs: Mapping[Key, Job], at_once: int = 1) -> Iterator[tuple[Key, dict[str, Any]]]:
    """Measure jobs, so many at a time, and give each as it is done; of one that fails it is only told why."""
    waiting, running = list(jobs), {}
    with ExitStack() as stack:
        while waiting or running:
            while waiting and len(running) < at_once:
                key = waiting.pop(0)
                begun = stack.enter_context(Running(jobs[key]))
                running[begun.answer] = key, begun
            for answer in wait(list(running)):
                key, done = running.pop(answer)
                try:
                    row = done.result()
                except UmpteenError as error:
                    print(key, error, file=sys.stderr, flush=True)
                else:
                    yield key, row


def read(file: Path) -> dict[str, dict[str, Any]]:
    """Return the rows of each dataset that are known."""
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def _plain(settings: Settings) -> dict[str, Any]:
    """Write settings as they are read back."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in settings.items()}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help=f"one called {' or '.join(PLANS)}")
    parser.add_argument("--encoder", required=True, help="a folder in Hugging Face layout")
    parser.add_argument("--only", default="", metavar="A,DATA/B", help="some of the rows, in this order")
    parser.add_argument("--split", default="test", help="the part that is tested on")
    parser.add_argument("--at-once", type=int, default=1, help="rows that are measured at the same time")
    parser.add_argument("--out", type=Path, required=True, help="rows are kept here, and go on from there")
    options = parser.parse_args(arguments)
    if unknown := [folder.name for folder in options.folders if folder.name not in PLANS]:
        parser.error(f"there are rows for {', '.join(PLANS)}, but not for {unknown[0]}")
    try:
        options.rows = chosen(options.folders, options.only)
    except ValueError as error:
        parser.error(str(error))
    return options


if __name__ == "__main__":
    main()
