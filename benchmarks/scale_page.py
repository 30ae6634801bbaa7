"""Tables and plots of docs/scale.md, from the figures of ``benchmarks.scale``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import report
from benchmarks.plan import THREADS
from umpteen.data.size import DataSize
from umpteen.engine import Memory
from umpteen.models import create
from umpteen.models.plan import Plan

Row = Mapping[str, Any]
Runs = Mapping[str, Row]
BEGIN, END = "<!-- scale:begin -->", "<!-- scale:end -->"
PICTURE = "img/scale.svg"
IN_MEMORY = "in memory"
LABELS_PER_ROW, FEATURES_PER_ROW = 3.5, 32.0  # of the rows that are made, about
_COLOURS = ("#c2410c", "#0f766e", "#6d28d9", "#b45309", "#334155")
_INK, _GRID = "#333333", "#e4e4e4"


class Figure(NamedTuple):
    """A figure that is plotted: its name, how it is titled, and by what it is divided."""

    name: str
    title: str
    by: float = 1.0

    def of(self, row: Row) -> float:
        """Return the figure of a run."""
        return row[self.name] / self.by


FIGURES = (
    Figure("fit_s", "training, s"),
    Figure("peak_mb", "peak memory, GB", 1e3),
    Figure("model_mb", "model, MB"),
    Figure("p50_ms", "one query, p50, ms"),
)


def write(docs: Path, runs: Runs) -> None:
    """Write the tables between the markers of the page, and the plots beside it."""
    ordered = sorted(runs.values(), key=lambda row: (row["n_labels"], row["n_rows"], row["name"] != IN_MEMORY))
    page = docs / "scale.md"
    before = page.read_text(encoding="utf-8") if page.exists() else ""
    page.write_text(report.replace_between(before, section(ordered), BEGIN, END), encoding="utf-8")
    draw(ordered, docs / PICTURE)


def section(rows: Sequence[Row]) -> str:
    """Render everything between the markers."""
    machines = {(row["machine"]["cores"], row["machine"]["cpu"], row["machine"]["memory_gb"]) for row in rows}
    where = "; ".join(f"{cores} cores ({cpu}), {memory} GB" for cores, cpu, memory in sorted(machines))
    parts = [
        f"Measured on {where}: xr-linear with its defaults; 2 threads for training and batches, one for a query.",
        "### Cost",
        cost_table(rows),
        *[
            f"{short(row['n_labels'])} labels, {short(row['n_rows'])} rows: {row['note']}."
            for row in rows
            if row.get("note")
        ],
        "### Quality",
        quality_table(rows),
        "A wider beam finds more of what the classifiers know, in more time:",
        beam_table(rows),
        "### Prediction and measurement",
        "What `umpteen plan` says of rows with 3.5 labels and 32 features, from typical rates, and what was measured.",
        plan_table(rows),
        "### Growth",
        f"![Time, memory, size and latency against labels and against rows]({PICTURE})",
        slope_table(rows),
        "### Bars",
        report.table(("bar", "required", "measured", ""), bars(rows)),
    ]
    return "\n\n".join(parts)


def cost_table(rows: Sequence[Row]) -> str:
    """Render time, memory and speed of every run."""
    head = (
        "labels", "rows", "", "training s", "CPU s", "peak GB", "above start GB", "model MB", "opens in s",
        "texts/s", "p50 ms", "p99 ms",
    )  # fmt: skip
    number = report.number
    lines = [
        [
            *_size(row), row["name"], number(row["fit_s"], 1), number(row["fit_cpu_s"], 1),
            number(row["peak_mb"] / 1e3, 2), number(row["fit_memory_mb"] / 1e3, 2), number(row["model_mb"], 0),
            number(row["open_s"], 2),
            number(row["docs_per_s"], 0), number(row["p50_ms"], 3), number(row["p99_ms"], 3),
        ]
        for row in rows
    ]  # fmt: skip
    return report.table(head, lines)


def quality_table(rows: Sequence[Row]) -> str:
    """Render the precision of every run beside that of a perfect model."""
    head = ("labels", "rows", "", "labels seen", "P@1/3/5", "perfect model", "perfect, labels seen")
    triple = report.triple
    lines = [
        [
            *_size(row), row["name"], f"{100 * row['n_seen'] / row['n_labels']:.0f} %", triple(row, "P"),
            triple(row["oracle"], "P"), triple(row["oracle_of_seen"], "P"),
        ]
        for row in rows
    ]  # fmt: skip
    return report.table(head, lines)


def beam_table(rows: Sequence[Row]) -> str:
    """Render precision and speed with wider beams."""
    lines = [
        [*_size(row), beam, report.triple(figures, "P"), report.number(figures["docs_per_s"], 0)]
        for row in rows
        for beam, figures in {"usual, 10": row, **row["beams"]}.items()
        if row["name"] == IN_MEMORY and row["n_rows"] == 2 * row["n_labels"]
    ]
    return report.table(("labels", "rows", "beam", "P@1/3/5", "texts/s"), lines)


def planned_size(row: Row) -> DataSize:
    """Return what ``umpteen plan`` assumes of as many rows and labels."""
    n_rows, n_labels = row["n_rows"], row["n_labels"]
    return DataSize.planned(n_rows, n_labels, labels_per_row=LABELS_PER_ROW, per_row=FEATURES_PER_ROW)


def plan_table(rows: Sequence[Row]) -> str:
    """Render what a plan predicts beside what was measured."""
    head = (
        "labels",
        "rows",
        "",
        "training s",
        "measured",
        "ratio",
        "RAM GB",
        "measured",
        "ratio",
        "model MB",
        "measured",
        "ratio",
    )
    lines = []
    for row in rows:
        config = create(row["recipe"], row["settings"]).config
        memory = Memory.of(row["fit"].get("memory")).total or None
        needs = Plan.of(planned_size(row), config, cores=THREADS, memory=memory).needs[-1]
        pairs = (
            (needs.seconds, row["fit_s"], 1),
            (needs.ram_bytes / 1e9, row["peak_mb"] / 1e3, 2),
            (needs.model_bytes / 1e6, row["model_mb"], 0),
        )
        figures = [
            text
            for predicted, measured, digits in pairs
            for text in (
                report.number(predicted, digits),
                report.number(measured, digits),
                f"{predicted / measured:.2f}",
            )
        ]
        lines.append([*_size(row), row["name"], *figures])
    return report.table(head, lines)


def _size(row: Row) -> list[str]:
    return [short(row["n_labels"]), short(row["n_rows"])]


def short(n: float) -> str:
    """Write a number of labels or rows.

    >>> short(600_000), short(2_000_000), short(9_500)
    ('600K', '2M', '9.5K')
    """
    return f"{n / 1e6:g}M" if n >= 1e6 else f"{n / 1e3:g}K"


class Series(NamedTuple):
    """Runs that differ in one size only."""

    title: str
    sizes: np.ndarray
    values: np.ndarray

    @property
    def slope(self) -> float:
        """Exponent of the power law through the points: least squares on logarithms."""
        return float(np.polyfit(np.log(self.sizes), np.log(self.values), 1)[0])


def series(rows: Sequence[Row], figure: Figure, along: str, fixed: str) -> list[Series]:
    """Return the series of a figure along one size; each has one value of the other and at least three points.

    Along labels there is one more, of runs with as many rows per label.
    """
    shown = [row for row in rows if row["name"] == IN_MEMORY]
    groups = {
        f"{short(value)} {fixed.removeprefix('n_')}": [row for row in shown if row[fixed] == value]
        for value in sorted({row[fixed] for row in shown})
    }
    if along == "n_labels":
        groups["2 rows per label"] = [row for row in shown if row["n_rows"] == 2 * row["n_labels"]]
    found = []
    for title, some in groups.items():
        if len(some) >= 3:
            sizes, values = map(np.array, zip(*sorted((row[along], figure.of(row)) for row in some), strict=True))
            found.append(Series(title, sizes, values))
    return found


def slope_table(rows: Sequence[Row]) -> str:
    """Render the exponents of growth."""
    lines = []
    for along, fixed in (("n_labels", "n_rows"), ("n_rows", "n_labels")):
        by_title: dict[str, list[str]] = {}
        for figure in FIGURES:
            for one in series(rows, figure, along, fixed):
                by_title.setdefault(one.title, []).append(f"{one.slope:.2f}")
        lines += [[along.removeprefix("n_"), title, *slopes] for title, slopes in by_title.items()]
    return report.table(("growth with", "at", *(figure.title.partition(",")[0] for figure in FIGURES)), lines)


class Bar(NamedTuple):
    """What is required of a figure: at most, or at least, a value."""

    what: str
    value: float
    most: float = math.inf
    least: float = -math.inf
    form: str = "{:.2f}"

    def line(self) -> list[str]:
        """Return the bar as a line of a table."""
        required = f"≤ {self.most:,g}" if self.most < math.inf else f"≥ {self.least:,g}"
        holds = self.least <= self.value <= self.most
        return [self.what, required.replace("-", "−"), self.form.format(self.value), "pass" if holds else "fail"]


def bars(rows: Sequence[Row]) -> list[list[str]]:
    """Compare what is required with what was measured; a run that is not there has no bars."""
    by_size = {(row["n_labels"], row["n_rows"]): row for row in rows}
    same = by_size.get((100_000, 200_000))
    million, ten = by_size.get((1_000_000, 2_000_000)), by_size.get((10_000_000, 2_000_000))
    found: list[Bar] = []
    if million:
        found += [
            Bar("1M labels, 2M rows: peak memory, GB", million["peak_mb"] / 1e3, most=16),
            Bar("1M labels: texts/s on 2 cores", million["docs_per_s"], least=5_000, form="{:,.0f}"),
        ]
    if million and same:
        found += [Bar("1M labels: P@1 less that of 100K labels", million["P@1"] - same["P@1"], least=-1)]
        wide, other = million["beams"]["50"], same["beams"]["50"]
        found += [
            Bar("the same, both with beam 50", wide["P@1"] - other["P@1"], least=-1),
            Bar("1M labels with beam 50: texts/s on 2 cores", wide["docs_per_s"], least=5_000, form="{:,.0f}"),
        ]
    for one in series(rows, FIGURES[-1], "n_labels", "n_rows"):
        if one.sizes.tolist() == [10_000, 100_000, 1_000_000]:
            found += _latency_bars(one)
    if ten:
        found += [
            Bar("10M labels, 2M rows: peak memory, GB", ten["peak_mb"] / 1e3, most=20),
            Bar("10M labels: model, GB", ten["model_mb"] / 1e3, most=4),
            Bar("10M labels: opens in s", ten["open_s"], most=2),
        ]
    return [bar.line() for bar in found]


def _latency_bars(one: Series) -> list[Bar]:
    """Compare the growth of p50 with that of log L, which grows by as much for each tenfold number of labels."""
    small, middle, large = 1e3 * one.values
    what = f"p50 at {one.title}: µs added by 100K → 1M labels, at most what 10K → 100K added"
    proportion = math.log(one.sizes[-1]) / math.log(one.sizes[0])
    return [
        Bar(what, large - middle, most=round(middle - small, 1), form="{:.1f}"),
        Bar(f"p50 at {one.title}: 1M labels / 10K labels, in proportion to log L", large / small, most=proportion),
    ]


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw every figure against labels, above, and against rows, below, on logarithmic axes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    style = {"font.size": 9, "svg.hashsalt": "scale", "text.color": _INK, "axes.labelcolor": _INK}
    with plt.rc_context(style):
        figure, axes = plt.subplots(2, len(FIGURES), figsize=(14, 6.8), layout="constrained")
        for line, (along, fixed) in zip(axes, (("n_labels", "n_rows"), ("n_rows", "n_labels")), strict=True):
            for axis, what in zip(line, FIGURES, strict=True):
                _panel(axis, series(rows, what, along, fixed), what.title, along.removeprefix("n_"))
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)


def _panel(axis: Any, lines: Sequence[Series], title: str, along: str) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_title(title, fontsize=10, fontweight="bold")
    axis.set_xscale("log")
    axis.set_yscale("log")
    for one, colour in zip(lines, _COLOURS, strict=False):
        axis.plot(one.sizes, one.values, "o-", color=colour, markersize=4, label=f"{one.title}: slope {one.slope:.2f}")
    axis.set_xlabel(along)
    axis.grid(color=_GRID, which="both")
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    spread = max((one.values.max() / one.values.min() for one in lines), default=1.0)
    if math.log10(spread) > 1:
        axis.yaxis.set_minor_formatter(NullFormatter())
    if lines:
        axis.legend(frameon=False, fontsize=8)
