"""Train and predict with 10 thousand to 10 million labels, on rows whose structure is known.

    python -m benchmarks.scale                                         # what was not measured yet, up to 1M labels
    python -m benchmarks.scale --labels 10M --rows 2M                  # 10 million labels
    python -m benchmarks.scale --page                                  # write docs/scale.md again

Rows are made by ``benchmarks.scale_data``. Training is measured in one process, opening and prediction in another. What
was measured is not measured again unless ``--fresh`` is given. Figures are kept in docs/scale.json; the tables and
plots of docs/scale.md are written from them. ``--set`` changes settings of the recipe, ``--fit`` arguments of ``fit``;
runs with other settings need another ``--name``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import jobs, report, scale_data, scale_page
from benchmarks.plan import THREADS

Row = dict[str, Any]
DOCS = Path(__file__).resolve().parent.parent / "docs"
GRID = [(10_000, 20_000), *itertools.product((10_000, 100_000, 1_000_000), (200_000, 600_000, 2_000_000))]
_SCRIPT = Path(__file__).resolve().parent / "peers" / "made_rows_run.py"
_UNITS = {"K": 1_000, "M": 1_000_000, "G": 1_000_000_000}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is missing and write the page; return 1 if a run failed."""
    options = _parse(arguments)
    results = jobs.Results(options.out / "scale.json")
    failed = 0 if options.page else sum(not measure(options, results, *size) for size in _sizes(options))
    scale_page.write(options.out, results.records)
    return int(failed > 0)


def measure(options: argparse.Namespace, results: jobs.Results, n_labels: int, n_rows: int) -> bool:
    """Measure one size, unless it was measured; return whether there are figures."""
    key = f"{n_labels}-{n_rows}-{options.name}"
    if key in results.records and not options.fresh:
        return True
    print(f"{n_labels:,} labels, {n_rows:,} rows, {options.name}: rows … ", end="", flush=True)
    data, model = options.work / f"{n_labels}-{n_rows}", options.work / f"model-{key}"
    about = scale_data.make(data, n_labels, n_rows)
    figures: Row = {}
    try:
        for stage in ("fit", "use"):
            print(f"{stage} … ", end="", flush=True)
            found = jobs.call(_command(options, stage, data, model), jobs.environment("umpteen", THREADS), 7200.0)
            if found is None:
                return False
            figures |= found
    finally:
        for folder in () if options.keep else (data, model):
            shutil.rmtree(folder, ignore_errors=True)
    asked = {
        "recipe": options.recipe,
        "settings": options.set,
        "fit": options.fit,
        "name": options.name,
        "note": options.note,
    }
    when = {"time": time.strftime("%Y-%m-%d %H:%M:%S"), "machine": report.machine()}
    results.put(key, {**about, **asked, **when, **figures})
    print(f"{figures['fit_s']:.1f} s, peak {figures['peak_mb']:,.0f} MB, P@1 {figures['P@1']:.2f}", flush=True)
    return True


def _command(options: argparse.Namespace, stage: str, data: Path, model: Path) -> list[str]:
    given = {
        "data": data, "model": model, "recipe": options.recipe, "threads": THREADS,
        "settings": json.dumps(options.set), "fit": json.dumps(options.fit),
    }  # fmt: skip
    return [
        sys.executable,
        str(_SCRIPT),
        stage,
        *(word for name, value in given.items() for word in (f"--{name}", str(value))),
    ]


def _sizes(options: argparse.Namespace) -> list[tuple[int, int]]:
    if options.labels is None and options.rows is None:
        return GRID
    labels = options.labels or [100_000]
    return list(itertools.product(labels, options.rows or [2_000_000]))


def count(text: str) -> int:
    """Read a number such as 10M.

    >>> count("10M"), count("2_000")
    (10000000, 2000)
    """
    unit = _UNITS.get(text[-1:].upper(), 1)
    return round(float(text[:-1] if unit > 1 else text) * unit)


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    return dict(text.split("=", 1) for text in texts)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--labels", type=lambda text: [count(part) for part in text.split(",")], metavar="N,N", help="such as 1M,10M")
    add("--rows", type=lambda text: [count(part) for part in text.split(",")], metavar="N,N", help="such as 600K,2M")
    add("--recipe", default="xr-linear")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the recipe")
    add("--fit", action="append", default=[], metavar="KEY=VALUE", help="an argument of fit")
    add("--name", default="in memory", help="what is measured, if settings are not the usual ones")
    add("--note", default="", help="what is to be known of the measurement, for the page")
    add("--fresh", action="store_true", help="measure again what was measured")
    add("--keep", action="store_true", help="keep the rows that were made, and the models")
    add("--page", action="store_true", help="only write the page again")
    add("--work", type=Path, default=Path("benchmarks/work/scale"), help="folder of rows and models")
    add("--out", type=Path, default=DOCS)
    options = parser.parse_args(arguments)
    options.set, options.fit = _pairs(options.set), _pairs(options.fit)
    return options


if __name__ == "__main__":
    sys.exit(main())
