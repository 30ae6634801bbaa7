"""Whole datasets from raw text within a bound of memory: ``python -m benchmarks.whole_datasets --data DIR``.

Each runs in a process of its own, whose peak memory counts from its first line: reading, tf-idf, the tree,
the weights and the prediction of the test texts.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import bars, jobs, report
from benchmarks.plan import THREADS

Row = dict[str, Any]
RUNS = {"yso-finna-en-full": "YSO-Finna-en", "reverse-dictionary": "ReverseDictionary"}  # name -> folder
SETTINGS: dict[str, dict[str, Any]] = {"yso-finna-en-full": {}, "reverse-dictionary": {}}
_SCRIPT = Path(__file__).resolve().parent / "peers" / "scale_run.py"


def measure(data: Path, work: Path, results: jobs.Results, timeout_s: float = 7200.0) -> dict[str, Row]:
    """Run what was not run yet and return one row per dataset; a folder that is not there is left out."""
    rows: dict[str, Row] = {}
    for name, folder in RUNS.items():
        key = f"{name}/scale/{jobs.source_checksum()}/{json.dumps(SETTINGS[name])}"
        row = results.records.get(key)
        if row is None and (data / folder).is_dir():
            row = _run(name, data / folder, work, timeout_s)
            if row is not None:
                results.put(key, row)
        if row is not None:
            rows[name] = row
    return rows


def _run(name: str, folder: Path, work: Path, timeout_s: float) -> Row | None:
    print(f"  {name}, whole, from raw text … ", end="", flush=True)
    options = {
        "data": folder,
        "model": work / "scale" / name,
        "settings": json.dumps(SETTINGS[name]),
        "threads": THREADS,
    }
    command = [sys.executable, str(_SCRIPT)]
    for option, value in options.items():
        command += [f"--{option}", str(value)]
    figures = jobs.call(command, jobs.environment("umpteen", THREADS), timeout_s)
    if figures is None:
        return None
    print(f"{figures['fit_s']:.1f} s, peak {figures['peak_mb']:,.0f} MB", flush=True)
    when = time.strftime("%Y-%m-%d %H:%M:%S")
    return {"variant": "scale", "stage": "scale", "title": folder.name, "time": when, **figures}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.whole_datasets", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--work", type=Path, default=Path("benchmarks/work"))
    parser.add_argument("--fresh", action="store_true", help="measure again what was measured before")
    options = parser.parse_args()
    results = jobs.Results(options.work / "results.json")
    if options.fresh:
        results.forget({"scale"})
    rows = measure(options.data, options.work, results)
    if not rows:
        print(f"no results: --data has none of {', '.join(RUNS.values())}, or all runs failed")
        return 1
    print("\n" + report.scale_table(rows) + "\n\n" + report.bar_table(bars.check({}, rows)))
    return 0 if len(rows) == len(RUNS) else 1


if __name__ == "__main__":
    sys.exit(main())
