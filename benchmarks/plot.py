"""One picture of the results: fit time against P@5 for each dataset, and umpteen's ratios to PECOS below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.plan import DatasetPlan

Row = Mapping[str, Any]
Summary = Mapping[str, Mapping[str, Row]]

_INK, _GRID = "#333333", "#e4e4e4"
_OURS, _THEIRS = "#c2410c", "#64748b"
_SHORT = {
    "umpteen": "umpteen",
    "umpteen-best": "umpteen, best settings",
    "umpteen-dismec": "umpteen dismec",
    "umpteen-extremetext": "umpteen extremetext",
    "pecos": "PECOS",
    "pecos-ova": "PECOS one versus all",
    "omikuji": "omikuji",
    "napkinxc": "napkinXC",
    "napkinxc-l2": "napkinXC, squared hinge",
}
_SHADES = ("#c2410c", "#f59e0b", "#fcd34d")
# where a name may stand beside its point, in order of preference: offset in points, alignment
_PLACES = (
    ((-4, 8), "left"), ((4, 8), "right"), ((-4, -15), "left"), ((4, -15), "right"), ((-9, 0), "right"),
    ((9, 0), "left"), ((-4, 20), "left"), ((4, 20), "right"), ((-4, -27), "left"), ((4, -27), "right"),
    ((-4, 32), "left"), ((4, 32), "right"), ((-4, -39), "left"), ((4, -39), "right"),
)  # fmt: skip
_MARKER = 5  # pixels around the centre of a point that its marker covers


def ratios(rows: Mapping[str, Row]) -> dict[str, float | None]:
    """Return how many times better than PECOS umpteen is, figure by figure; None where one is missing."""
    ours, pecos = rows.get("umpteen", {}), rows.get("pecos", {})
    fastest = max((pecos.get("docs_per_s") or {"": 0.0}).values()) or None
    quickest = min((pecos.get("p50_ms") or {"": 0.0}).values()) or None
    pairs = {
        "fit": (pecos.get("fit_s"), ours.get("fit_s")),
        "batch": ((ours.get("docs_per_s") or {}).get("default"), fastest),
        "one query": (quickest, (ours.get("p50_ms") or {}).get("default")),
        "fit memory": (pecos.get("fit_memory_mb"), ours.get("fit_memory_mb")),
        "model size": (pecos.get("model_mb"), ours.get("model_mb")),
    }
    return {name: above / below if above and below else None for name, (above, below) in pairs.items()}


def draw(summary: Summary, plans: Sequence[DatasetPlan], path: Path) -> None:
    """Draw the picture into a PNG file."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = [plan for plan in plans if plan.name in summary]
    style = {
        "font.size": 10,
        "axes.edgecolor": "#999999",
        "text.color": _INK,
        "axes.labelcolor": _INK,
        "xtick.color": _INK,
        "ytick.color": _INK,
    }
    with plt.rc_context(style):
        figure = plt.figure(figsize=(4.4 * max(2, len(shown)), 7.6), layout="constrained")
        top, bottom = figure.subfigures(2, 1, height_ratios=(1.15, 1.0))
        axes = top.subplots(1, len(shown), squeeze=False)[0]
        for axis, plan in zip(axes, shown, strict=True):
            scatter(axis, _short_title(plan), summary[plan.name])
        axes[0].set_ylabel("P@5, percent")
        _bars(bottom.subplots(), [(_short_title(plan), ratios(summary[plan.name])) for plan in shown])
        figure.canvas.draw()  # settles the layout, which the names are placed in
        for axis, plan in zip(axes, shown, strict=True):
            label(axis, summary[plan.name])
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=130, metadata={"Software": None})
        plt.close(figure)


def scatter(axis: Any, title: str, rows: Mapping[str, Row]) -> None:
    """Draw a point for each row that has both figures, a hollow one if it ran beside others and took longer for it."""
    points = _points(rows)
    axis.set_title(title, fontsize=11, fontweight="bold")
    axis.set_xlabel("fit, seconds (log scale)")
    axis.set_xscale("log")
    axis.grid(color=_GRID, which="major")
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    _plain_ticks(axis)
    if not points:
        return
    times, levels = zip(*points.values(), strict=True)
    bottom, above = min(levels), max(levels)
    margin = max(0.12 * (above - bottom), 0.15)
    axis.set_xlim(min(times) / 1.8, max(times) * 2.2)
    axis.set_ylim(bottom - 1.2 * margin, above + 2.0 * margin)
    for name, point in points.items():
        color = _OURS if name.startswith("umpteen") else _THEIRS
        inside = "white" if ran_beside_others(rows[name]) else color
        axis.scatter(*point, s=60, facecolor=inside, edgecolor=color, linewidth=1.5, zorder=3)


def label(axis: Any, rows: Mapping[str, Row]) -> None:
    """Write each point's name inside the panel, where it covers the fewest points and names."""
    points = _points(rows)
    renderer, frame = axis.figure.canvas.get_renderer(), axis.get_window_extent()
    taken = [axis.transData.transform(point) for point in points.values()]
    boxes: list[Any] = []
    for name, point in sorted(points.items(), key=lambda item: item[1]):
        is_ours = name.startswith("umpteen")
        text = axis.annotate(
            _SHORT.get(name, name),
            point,
            textcoords="offset points",
            xytext=_PLACES[0][0],
            fontsize=9,
            color=_OURS if is_ours else _INK,
            fontweight="bold" if is_ours else "normal",
        )
        costs = []
        for place in _PLACES:
            box = _box_at(text, place, renderer)
            is_inside = frame.contains(box.x0, box.y0) and frame.contains(box.x1, box.y1)
            covered = [point for point in taken if box.padded(_MARKER).contains(*point)]
            costs.append(100 * (not is_inside) + sum(box.overlaps(other) for other in boxes) + len(covered))
        box = _box_at(text, _PLACES[costs.index(min(costs))], renderer)
        boxes.append(box)


def _box_at(text: Any, place: tuple[tuple[int, int], str], renderer: Any) -> Any:
    """Put a name beside its point; return the box that it covers."""
    offset, across = place
    text.set(position=offset, ha=across, va="center" if offset[1] == 0 else "baseline")
    return text.get_window_extent(renderer)


def ran_beside_others(row: Row) -> bool:
    """Say whether other rows were measured on the machine at the same time."""
    return row.get("at_once", 1) > 1


def _points(rows: Mapping[str, Row]) -> dict[str, tuple[float, float]]:
    return {name: (row["fit_s"], row["P@5"]) for name, row in rows.items() if "fit_s" in row and "P@5" in row}


def _short_title(plan: DatasetPlan) -> str:
    return plan.title.partition(",")[0]


def _plain_ticks(axis: Any) -> None:
    """Label the logarithmic axis with plain seconds: 1, 2, 5, 10, 20, …"""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.xaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _bars(axis: Any, groups: Sequence[tuple[str, Mapping[str, float | None]]]) -> None:
    title = "umpteen xr-linear, times better than PECOS at its best"
    axis.set_title(title, fontsize=11, fontweight="bold")
    figures = list(groups[0][1]) if groups else []
    width = 0.8 / max(1, len(groups))
    for place, (title, values) in enumerate(groups):
        offset = (place - (len(groups) - 1) / 2) * width
        heights = [values[name] or 0.0 for name in figures]
        places = [x + offset for x in range(len(figures))]
        drawn = axis.bar(places, heights, width * 0.92, label=title, color=_SHADES[place % 3])
        axis.bar_label(drawn, labels=[f"{h:.1f}×" if h else "" for h in heights], fontsize=9, padding=2)
    axis.axhline(1.0, color=_INK, linewidth=1, linestyle=(0, (4, 3)))
    axis.set_xticks(range(len(figures)), figures)
    axis.set_ylabel("ratio to PECOS")
    axis.margins(y=0.15)
    axis.grid(axis="y", color=_GRID)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="upper right")
