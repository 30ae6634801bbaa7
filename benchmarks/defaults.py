"""Compare the defaults of xr-linear with alternatives, one setting at a time, on held-out training rows.

    python -m benchmarks.defaults [--data DIR] [--datasets bibtex,delicious] [--settings linear.cost,linear.eps]

A tenth of the training rows of each dataset, drawn with a fixed seed, is held out for P@1, P@3 and P@5; the model is
trained on the rest. The test part is not used. Text features (vocabulary and idf) are computed once from all training
texts, as for ``benchmarks.run``, so they are the same for every setting. Kernels are compiled before the first fit.

Every row is printed and written to defaults.json when it is measured, and the tables to defaults.md;
``--page docs/recipes/xr-linear.md`` also puts them between the markers of that page.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks import plan, prepare, report
from umpteen.models import create, warmup

Row = dict[str, Any]
Matrix = sparse.csr_matrix

DEFAULT = "default"
ALTERNATIVES: dict[str, tuple[Any, ...]] = {
    "tree.depth": (1, 2, 3),
    "search.upper_beam": (1.0, 4.0),
    "linear.negatives": ("tfn", "tfn+man"),
    "linear.cost": (0.25, 0.5, 1.0),
    "linear.eps": (0.02,),
    "linear.max_iter": (8, 24),
    "search.post": ("l2-hinge", "l4-hinge"),
    "search.leaf_post": ("same", "l2-hinge"),
}
HELD_OUT = 0.1
SEED = 0
KS = (1, 3, 5)
MARKERS = ("<!-- defaults:begin -->", "<!-- defaults:end -->")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write the tables."""
    options = _parse(arguments)
    options.work.mkdir(parents=True, exist_ok=True)
    if options.measured:
        found = [json.loads(path.read_text(encoding="utf-8")) for path in options.measured]
        _write(options, [row for part in found for row in part["rows"]], found[0]["machine"])
        return
    warmup()
    rows: list[Row] = []
    for name in options.datasets:
        known = prepare.prepare(plan.dataset_plan(name), options.data, options.work, plan.THREADS)
        parts = split(*(prepare.load(options.work / name, part) for part in ("X.trn", "Y.trn")))
        print(f"{name}: {parts[0].shape[0]:,} rows to train on, {parts[2].shape[0]:,} held out", flush=True)
        for setting, value in cases(options.settings):
            case = {"dataset": name, "checksum": known["checksum"], "setting": setting, "value": value}
            rows.append(case | measure(*parts, setting, value))
            title = setting if value is None else f"{setting} {value}"
            print(f"  {title:26} {_cell(rows[-1])} ({rows[-1]['negatives']})", flush=True)
            _write(options, rows, report.machine())


def split(X: Matrix, Y: Matrix, share: float = HELD_OUT, seed: int = SEED) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """Return X and Y of the rows to train on, then of the rows held out; both parts keep the order of the rows."""
    is_held = np.zeros(X.shape[0], bool)
    is_held[np.random.default_rng(seed).permutation(X.shape[0])[: round(share * X.shape[0])]] = True
    return X[~is_held], Y[~is_held], X[is_held], Y[is_held]


def cases(settings: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield the defaults, then each alternative of each setting."""
    yield DEFAULT, None
    for setting in settings:
        for value in ALTERNATIVES[setting]:
            yield setting, value


def measure(X: Matrix, Y: Matrix, X_held: Matrix, Y_held: Matrix, setting: str, value: Any) -> Row:
    """Train with one setting changed, or with the defaults, and evaluate on the rows held out."""
    changed = {} if setting == DEFAULT else {setting: value}
    model = create("xr-linear", {"threads": plan.THREADS, "seed": SEED, **changed})
    begin = time.perf_counter()
    model.fit(X, Y)
    seconds = time.perf_counter() - begin
    figures = model.evaluate(X_held, Y_held, ks=KS)
    return {f"P@{k}": figures[f"P@{k}"] for k in KS} | {"fit_s": seconds, "negatives": model.config_.linear.negatives}


def tables(rows: Sequence[Row]) -> str:
    """Render a table per setting: datasets down, the default and its alternatives across."""
    found = {(row["dataset"], row["setting"], row["value"]): row for row in rows}
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    parts = []
    for setting in [name for name in ALTERNATIVES if any(row["setting"] == name for row in rows)]:
        columns = [(DEFAULT, None), *((setting, value) for value in ALTERNATIVES[setting])]
        head = ["dataset", "negatives", DEFAULT, *(f"`{value}`" for value in ALTERNATIVES[setting])]
        lines = [
            [
                plan.dataset_plan(name).title.partition(",")[0],
                f"`{found[name, DEFAULT, None]['negatives']}`",
                *(_cell(found.get((name, *column))) for column in columns),
            ]
            for name in datasets
        ]
        parts.append(f"`{setting}`:\n\n{report.table(head, lines)}")
    return "\n\n".join(parts)


def _cell(row: Row | None) -> str:
    return report.number(None, 0) if row is None else f"{report.triple(row, 'P')}, {row['fit_s']:.2f} s"


def _write(options: argparse.Namespace, rows: Sequence[Row], here: Row) -> None:
    raw = {"machine": here, "held_out": HELD_OUT, "seed": SEED, "rows": rows}
    (options.work / "defaults.json").write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    text = (
        f"P@1/3/5 on held-out training rows and seconds of fit on {plan.THREADS} threads ({here['cpu']}), "
        f"{here['date']}. The second column is what `linear.negatives` = `auto` chose.\n\n{tables(rows)}"
    )
    (options.work / "defaults.md").write_text(text + "\n", encoding="utf-8")
    if options.page:
        old = options.page.read_text(encoding="utf-8")
        options.page.write_text(report.replace_between(old, text, *MARKERS), encoding="utf-8")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.defaults", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, default=Path("../shared/data"), help="folder with the datasets")
    add("--datasets", default=",".join(plan.ALL), help=f"some of {','.join(plan.ALL)}")
    add("--settings", default=",".join(ALTERNATIVES), help=f"some of {','.join(ALTERNATIVES)}")
    add("--work", type=Path, default=Path("benchmarks/work"), help="matrices, defaults.json and defaults.md")
    add("--measured", type=Path, nargs="+", help="measure nothing: put these files, as defaults.json, together")
    add("--page", type=Path, help="also put the tables between the markers of this page")
    options = parser.parse_args(arguments)
    options.datasets, options.settings = options.datasets.split(","), options.settings.split(",")
    for name in options.datasets:
        plan.dataset_plan(name)
    if unknown := set(options.settings) - set(ALTERNATIVES):
        parser.error(f"unknown setting {', '.join(unknown)}; choose from {', '.join(ALTERNATIVES)}")
    return options


if __name__ == "__main__":
    main()
