"""Write the results of ``benchmarks.neural`` into the pages: tables, a plot, and a section for each recipe.

    python -m benchmarks.neural_page docs/benchmarks-neural.json docs

updates all of them from the rows in the file.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import neural, plot, report
from umpteen.models.recipes import member_names
from umpteen.store import atomic_write

Rows = Mapping[str, Mapping[str, Any]]

TABLES = ("<!-- networks:begin -->", "<!-- networks:end -->")
FIGURES = ("<!-- figures:begin -->", "<!-- figures:end -->")
HEAD = ("recipe", "P@1/3/5", "PSP@1/3/5", "training s", "memory MB", "GPU MB", "model MB", "ms/text")
OWN_HEAD = ("data", "P@1/3/5", "PSP@1/3/5", "training s", "GPU MB")
OURS = "Test results{} on one NVIDIA H200 ([all networks](../benchmarks-neural.md)):"
SHARED = "\\* Measured while other jobs used the same GPU."
THEIRS = "Published P@1/3/5 ([sources](../benchmarks.md#published-figures)), ensembles unless marked as one model:"


def main(file: str, docs: str) -> None:
    """Update all pages in a folder."""
    found = neural.read(Path(file))
    for path, text in pages(found, Path(docs)).items():
        atomic_write(path, text)
    draw(found, Path(docs, "img", "networks.svg"))


def pages(found: Mapping[str, Rows], docs: Path) -> dict[Path, str]:
    """Return the pages as they should be."""
    tables = docs / "benchmarks-neural.md"
    written = {tables: report.replace_between(tables.read_text(encoding="utf-8"), section(found), *TABLES)}
    theirs = published((docs / "benchmarks.md").read_text(encoding="utf-8"))
    for recipe in sorted({_recipe(name) for plan in neural.PLANS.values() for name in plan} - {"xr-linear"}):
        path = docs / "recipes" / f"{recipe}.md"
        text = own_section(recipe, found, theirs.get(recipe, []))
        written[path] = report.replace_between(path.read_text(encoding="utf-8"), text, *FIGURES)
    return written


def section(found: Mapping[str, Rows]) -> str:
    """Render a table per dataset, in the order of the plan; rows trained on a part of the texts have their own."""
    parts = []
    for data, plan in neural.PLANS.items():
        known = {name: found[data][name] for name in plan if name in found.get(data, {})}
        for n_rows in dict.fromkeys(plan[name].n_rows for name in known):
            rows = {name: row for name, row in known.items() if plan[name].n_rows == n_rows}
            title = data if n_rows is None else f"{data}, the first {n_rows:,} texts"
            parts += [part for part in (f"### {title}", table(rows), shortlists(rows)) if part]
    return "\n\n".join(parts)


def table(rows: Rows) -> str:
    """Render rows; times that were measured while other rows ran on the same GPU are marked."""
    lines = [
        [
            f"[{_title(name)}](recipes/{_recipe(name)}.md)",
            report.triple(row, "P"),
            report.triple(row, "PSP"),
            _seconds(row),
            report.number(row["peak_mb"], 0),
            report.number(row["gpu_mb"], 0),
            report.number(row["model_mb"], 0),
            report.number(row["ms_per_text"], 2),
        ]
        for name, row in rows.items()
    ]
    return report.table(HEAD, lines)


def shortlists(rows: Rows) -> str:
    """Return a line with the shortlist recall of each row that has one."""
    kept = {name: row["shortlist_recall"] for name, row in rows.items() if row.get("shortlist_recall")}
    said = "; ".join(f"{name} {', '.join(f'{share:.1f}' for share in shares)}" for name, shares in kept.items())
    return f"Shortlist recall (%) by level: {said}." if said else ""


def own_section(recipe: str, found: Mapping[str, Rows], theirs: Sequence[tuple[str, Mapping[str, str]]]) -> str:
    """Render the results of one recipe: measured, and published."""
    ours = [
        [
            f"{data}, ensemble of three" if name != recipe else data,
            report.triple(row, "P"),
            report.triple(row, "PSP"),
            _seconds(row),
            report.number(row["gpu_mb"], 0),
        ]
        for data, rows in found.items()
        for name, row in rows.items()
        if name in (recipe, f"{recipe}*3")
    ]
    parts = [OURS.format(" with gte-small" * neural.has_encoder(recipe)), report.table(OWN_HEAD, ours)] if ours else []
    if any("*" in line[3] for line in ours):
        parts.append(SHARED)
    if theirs:
        data = list(dict.fromkeys(name for _, figures in theirs for name in figures))
        lines = [[method, *(figures.get(name, "") for name in data)] for method, figures in theirs]
        parts += [THEIRS, report.table(["", *data], lines)]
    return "\n\n".join(parts)


def published(page: str) -> dict[str, list[tuple[str, dict[str, str]]]]:
    """Read the tables of published results: for each recipe, methods with P@1/3/5 by dataset."""
    found: dict[str, list[tuple[str, dict[str, str]]]] = {}
    head: list[str] = []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if cells[1:2] == ["recipe"]:
            head = cells
        elif head and cells[1:2] and cells[1].startswith("[`"):
            figures = {data: figure for data, figure in zip(head[2:], cells[2:], strict=True) if figure}
            name = cells[0] if head[0] == "method" else f"{cells[0]}, {head[0]}"
            found.setdefault(cells[1].split("`")[1], []).append((name, figures))
    return found


def draw(found: Mapping[str, Rows], path: Path) -> None:
    """Draw P@5 against the time of training, a panel for each dataset; rows that saw all its texts."""
    import matplotlib

    matplotlib.use("Agg")  # it can measure names, and writes the picture as SVG too
    import matplotlib.pyplot as plt

    found = {
        data: {name: row for name, row in rows.items() if row.get("n_rows") is None} for data, rows in found.items()
    }
    style = {"svg.hashsalt": "umpteen", "svg.fonttype": "none", "font.size": 10}
    with plt.rc_context(style):
        canvas, axes = plt.subplots(1, len(found), figsize=(6.2 * len(found), 5.4), layout="constrained", squeeze=False)
        panels = list(zip(axes[0], found.items(), strict=True))
        for axis, (data, rows) in panels:
            plot.scatter(axis, data, rows)
        canvas.canvas.draw()  # settles the layout, which the names are placed in
        for axis, (_, rows) in panels:
            plot.label(axis, rows)
        axes[0, 0].set_ylabel("P@5, percent")
        canvas.savefig(path, metadata={"Date": None})
        plt.close(canvas)


def _seconds(row: Mapping[str, Any]) -> str:
    return report.number(row["fit_s"], 0) + ("\\*" if plot.ran_beside_others(row) else "")


def _recipe(name: str) -> str:
    """Return the recipe of a row: cascadexml*3 is cascadexml, lightxml-BS is lightxml."""
    plan = next(plan for plan in neural.PLANS.values() if name in plan)
    return member_names(plan[name].recipe)[0]


def _title(name: str) -> str:
    return name.replace("*", " × ")


if __name__ == "__main__":
    main(*sys.argv[1:])
