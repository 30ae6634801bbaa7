"""Tables in Markdown, and the part of a page between two markers.

Knows summaries and bars; nothing about measuring.
"""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.bars import Bar
from benchmarks.plan import BEAM, THREADS, VARIANTS, WAY_TITLES, DatasetPlan, K

Row = Mapping[str, Any]
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
FIRST_PAGE = ("<!-- readme-bench:begin -->", "<!-- readme-bench:end -->")
_NONE = "–"
_TITLES = {variant.name: variant.title for variant in VARIANTS}
_HEAD = (
    "model", "fit s", "×", "CPU s", "fit MB", "model MB",
    "docs/s", "×", "p50 ms", "p99 ms", "P@1/3/5", "PSP@1/3/5",
)  # fmt: skip


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Render a table; the first column is text, the others are figures."""
    marks = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, marks, *rows))


def dataset_table(rows: Mapping[str, Row]) -> str:
    """Render all variants of a dataset, further ways of loading below their own."""
    base = rows.get("pecos", {})
    lines: list[list[str]] = []
    for name in [n for n in _TITLES if n in rows]:
        lines += _variant_lines(_TITLES[name], rows[name], base)
    return table(_HEAD, lines)


def short_table(summary: Mapping[str, Mapping[str, Row]], plans: Sequence[DatasetPlan]) -> str:
    """Render the few figures that the first page shows: umpteen's and its two fastest peers'."""
    head = ("dataset", "", "fit s", "texts/s", "one text, ms", "model MB", "P@1/3/5")
    lines = []
    for plan in plans:
        for name, title in (("umpteen", "**umpteen**"), ("pecos", "PECOS"), ("omikuji", "omikuji")):
            row = summary.get(plan.name, {}).get(name)
            if row is None:
                continue
            lines.append([
                plan.title.partition(",")[0] if name == "umpteen" else "",
                title,
                number(row.get("fit_s"), 1),
                number(max(row.get("docs_per_s", {}).values(), default=None), 0),
                number(min(row.get("p50_ms", {}).values(), default=None), 3),
                number(row.get("model_mb"), 1),
                triple(row, "P"),
            ])  # fmt: skip
    return table(head, lines)


def first_page(summary: Mapping[str, Mapping[str, Row]], plans: Sequence[DatasetPlan], here: Row) -> str:
    """Render what goes between the markers of README.md."""
    return (
        f"{short_table(summary, plans)}\n\n"
        f"XR-Linear on {here['cores']} cores ({here['cpu']}), {here['date']}, all on the same matrices, by "
        "`make bench`; every peer by its fastest way to predict. "
        "[All figures, method and caveats](docs/benchmarks.md)."
    )


def _variant_lines(title: str, row: Row, base: Row) -> list[list[str]]:
    lines = [
        [
            title,
            number(row.get("fit_s"), 2),
            times(base.get("fit_s"), row.get("fit_s")),
            number(row.get("fit_cpu_s"), 1),
            number(row.get("fit_memory_mb"), 0),
            number(row.get("model_mb"), 1),
            *_speed(row, base, "default"),
            triple(row, "P"),
            triple(row, "PSP"),
        ]
    ]
    ways = dict.fromkeys([*row.get("docs_per_s", {}), *row.get("p50_ms", {})])
    for way in ways:
        if way != "default":
            lines.append([f"{title}, {WAY_TITLES.get(way, way)}", *[""] * 5, *_speed(row, base, way), "", ""])
    return lines


def _speed(row: Row, base: Row, way: str) -> list[str]:
    docs = row.get("docs_per_s", {}).get(way)
    return [
        number(docs, 0),
        times(docs, base.get("docs_per_s", {}).get("default")),
        number(row.get("p50_ms", {}).get(way), 3),
        number(row.get("p99_ms", {}).get(way), 3),
    ]


def bar_table(bars: Sequence[Bar]) -> str:
    """Render required and measured figures."""
    rows = [[b.what, b.dataset, b.required, b.measured or _NONE, b.verdict] for b in bars]
    return table(("bar", "dataset", "required", "measured", ""), rows)


def scale_table(scale: Mapping[str, Row]) -> str:
    """Render the runs on whole datasets from raw text."""
    head = ("dataset", "texts", "labels", "read s", "fit s", "model MB", "peak MB", "P@1/3/5")
    rows = [
        [
            row["title"],
            number(row["n_train"], 0),
            number(row["n_labels"], 0),
            number(row["read_s"], 1),
            number(row["fit_s"], 1),
            number(row["model_mb"], 1),
            number(row["peak_mb"], 0),
            triple(row, "P"),
        ]
        for row in scale.values()
    ]
    return table(head, rows)


def number(value: float | None, digits: int) -> str:
    """Write a figure with thousands apart, or a dash."""
    return _NONE if value is None else f"{value:,.{digits}f}".replace(",", " ")


def times(above: float | None, below: float | None) -> str:
    """Write a ratio, or a dash."""
    return _NONE if above is None or not below else f"{above / below:.1f}×"


def triple(row: Row, name: str) -> str:
    """Write a figure @1, @3 and @5, or a dash."""
    values = [row.get(f"{name}@{k}") for k in (1, 3, 5)]
    return _NONE if None in values else "/".join(f"{value:.2f}" for value in values)


def machine() -> dict[str, Any]:
    """Describe the machine without naming it."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9),
        "system": platform.system(),
        "python": platform.python_version(),
        "date": datetime.date.today().isoformat(),
    }


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else []:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def section(
    summary: Mapping[str, Mapping[str, Row]],
    about: Mapping[str, Row],
    plans: Sequence[DatasetPlan],
    bars: Sequence[Bar],
    scale: Mapping[str, Row],
    here: Row,
) -> str:
    """Render everything between the markers."""
    parts = [
        f"Measured on {here['date']} by `make bench` on {here['cores']} cores ({here['cpu']}), "
        f"{here['memory_gb']} GB, {here['system']}, Python {here['python']}; "
        f"{THREADS} threads for fit and batch, one for single queries, top {K}, beam {BEAM}.",
        "![Fit time against P@5, and umpteen's ratios to PECOS](img/benchmarks.png)",
        "### Bars",
        bar_table(bars),
    ]
    for plan in plans:
        if plan.name in summary:
            parts += [f"### {plan.title}", _sentence(about[plan.name]), dataset_table(summary[plan.name])]
    if scale:
        parts += ["### Whole datasets from raw text", "xr-linear with its defaults.", scale_table(scale)]
    parts += ["### Settings", _settings(summary), "### Versions", _versions(summary)]
    return "\n\n".join(parts)


def _sentence(about: Row) -> str:
    return (
        f"{number(about['n_train'], 0)} texts to train and {number(about['n_test'], 0)} to test, "
        f"{number(about['n_features'], 0)} features ({about['features_per_row']:.0f} a text), "
        f"{number(about['n_labels'], 0)} labels ({about['labels_per_row']:.1f} a text)."
    )


def _settings(summary: Mapping[str, Mapping[str, Row]]) -> str:
    used = {name: row["settings"] for rows in summary.values() for name, row in rows.items()}
    lines = []
    for name, title in _TITLES.items():
        if name in used:
            words = ", ".join(f"{key}={value}" for key, value in used[name].items()) or "defaults"
            lines.append(f"- {title}: `{words}`")
    return "\n".join(lines)


def _versions(summary: Mapping[str, Mapping[str, Row]]) -> str:
    lines: dict[str, str] = {}
    for rows in summary.values():
        for name, row in rows.items():
            main, *others = row["versions"].items()
            beside = f" (with {', '.join(f'{package} {v}' for package, v in others)})" if others else ""
            lines[name.partition("-")[0]] = f"{main[0]} {main[1]}{beside}"
    return "; ".join(lines.values()) + "."


def replace_between(page: str, text: str, begin: str = BEGIN, end: str = END) -> str:
    """Return the page with new text between its markers; a page without them gets them at its end."""
    block = f"{begin}\n\n{text}\n\n{end}"
    head, found, rest = page.partition(begin)
    if not found:
        return f"{page.rstrip()}\n\n{block}\n" if page.strip() else f"{block}\n"
    _, closed, tail = rest.partition(end)
    if not closed:
        raise ValueError(f"the page has {begin} but no {end} after it; put it back where the tables end")
    return head + block + tail
