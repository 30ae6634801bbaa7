"""Measure umpteen beside PECOS, omikuji and napkinXC: ``python -m benchmarks.run --data DIR``.

Prints the tables and the bars, and writes them into docs/benchmarks.md with a picture and the raw figures.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import bars, jobs, plan, prepare, report, summary, whole_datasets

Row = dict[str, Any]
Summary = dict[str, dict[str, Row]]  # dataset -> variant -> figures
_PAGE = """# Benchmarks

`make bench` measures umpteen beside its peers. The tables below are what it wrote.

"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = _parse(arguments)
    runner = jobs.Runner(
        work=options.work.resolve(),
        venvs=(options.venvs or options.work / "venvs").resolve(),
        results=jobs.Results(options.work.resolve() / "results.json"),
        queries=200 if options.quick else 1000,
        batch_repeats=1 if options.quick else 3,
    )
    if options.fresh:
        runner.results.forget(set(options.fresh.split(",")))
    about, rows = measure(runner, options)
    memory_runs = {} if options.no_scale else whole_datasets.measure(options.data, runner.work, runner.results)
    checked = bars.check(rows, memory_runs)
    _show(rows, memory_runs, checked)
    write(options.out, about, rows, memory_runs, checked)
    if not all("fit_s" in rows.get(name, {}).get("umpteen", {}) for name in options.datasets):
        return 1
    return int(options.strict and any(bar.verdict != "pass" for bar in checked))


def measure(runner: jobs.Runner, options: argparse.Namespace) -> tuple[dict[str, Row], Summary]:
    """Run all jobs; return what is known about each dataset, and the figures of each variant on it."""
    about: dict[str, Row] = {}
    rows: Summary = {}
    for name in options.datasets:
        print(f"{name}", flush=True)
        known = prepare.prepare(plan.dataset_plan(name), options.data, runner.work, plan.THREADS)
        about[name] = {key: value for key, value in known.items() if key != "plan"}
        variants = plan.variants_for(name, full=options.full, quick=options.quick)
        if options.variants:
            variants = [variant for variant in variants if variant.name in options.variants]
        records = _records(runner, name, variants, options.repeat, known["checksum"])
        rows[name] = summary.summarise(records).get(name, {})
        for variant, row in rows[name].items():
            predictions = runner.predictions_file(name, variant)
            if "docs_per_s" in row and predictions.exists():
                row.update(summary.quality(predictions, runner.work / name))
    return about, rows


def _records(
    runner: jobs.Runner, name: str, variants: Sequence[plan.Variant], repeat: int, checksum: str
) -> Iterator[Row]:
    """Yield what is measured; a variant that failed once is not asked again."""
    failed: set[str] = set()
    for job in plan.jobs(name, variants, repeat):
        if job.variant.name in failed:
            continue
        record = runner.run(job, checksum)
        if record is None:
            failed.add(job.variant.name)
        else:
            yield record


def _show(rows: Summary, memory_runs: dict[str, Row], checked: list[bars.Bar]) -> None:
    for name, variants in rows.items():
        print(f"\n{name}\n\n{report.dataset_table(variants)}")
    if memory_runs:
        print(f"\nwhole datasets from raw text\n\n{report.scale_table(memory_runs)}")
    print(f"\nbars\n\n{report.bar_table(checked)}")


def write(
    out: Path,
    about: dict[str, Row],
    rows: Summary,
    memory_runs: dict[str, Row],
    checked: list[bars.Bar],
) -> None:
    """Write the page with its picture, and the raw figures beside it."""
    out.mkdir(parents=True, exist_ok=True)
    here = report.machine()
    raw = {
        "machine": here,
        "datasets": about,
        "results": rows,
        "scale": memory_runs,
        "bars": [{**vars(bar), "verdict": bar.verdict} for bar in checked],
    }
    figures = json.dumps(raw, indent=1, ensure_ascii=False)
    (out / "benchmarks.json").write_text(figures + "\n", encoding="utf-8")
    plans = [entry for entry in plan.DATASETS if entry.name in rows]
    text = report.section(rows, about, plans, checked, memory_runs, here)
    page = out / "benchmarks.md"
    old = page.read_text(encoding="utf-8") if page.exists() else _PAGE
    page.write_text(report.replace_between(old, text), encoding="utf-8")
    readme = out.parent / "README.md"
    if readme.exists() and len(plans) == len(plan.DATASETS):
        old = readme.read_text(encoding="utf-8")
        readme.write_text(
            report.replace_between(old, report.first_page(rows, plans, here), *report.FIRST_PAGE), encoding="utf-8"
        )
    try:
        from benchmarks import plot

        plot.draw(rows, plans, out / "img" / "benchmarks.png")
    except ImportError as error:
        print(f"no picture: {error}; pip install -r benchmarks/requirements.txt")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    def names(text: str) -> list[str]:
        return [part for part in text.split(",") if part]

    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, default=Path("../shared/data"), help="folder with the datasets")
    add("--datasets", type=names, help=f"some of {','.join(plan.ALL)}")
    add("--variants", type=names, help="measure only these rows of the tables")
    add("--work", type=Path, default=Path("benchmarks/work"), help="matrices, models and results")
    add("--venvs", type=Path, help="the peers' environments (default: venvs in the work folder)")
    add("--out", type=Path, help="where the page goes (default: docs; with --quick the work folder)")
    add("--repeat", type=int, help="turns of every job, the best counts (default 2; with --quick 1)")
    add("--quick", action="store_true", help="the small dataset, one turn, no slow peers, no whole datasets")
    add("--full", action="store_true", help="napkinXC on all datasets, with both losses")
    add("--no-scale", action="store_true", help="leave out the whole datasets from raw text")
    add("--fresh", nargs="?", const="all", metavar="NAMES", help="forget what was measured (of these rows)")
    add("--strict", action="store_true", help="exit with 1 unless every bar is reached")
    options = parser.parse_args(arguments)
    options.datasets = options.datasets or list(plan.SMALL if options.quick else plan.ALL)
    for name in options.datasets:
        plan.dataset_plan(name)
    options.repeat = options.repeat or (1 if options.quick else 2)
    options.no_scale = options.no_scale or options.quick
    options.out = options.out or (options.work / "docs" if options.quick else Path("docs"))
    return options


if __name__ == "__main__":
    sys.exit(main())
