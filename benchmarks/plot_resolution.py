"""Draw how fine the labels must be that an encoder learns (the paper's Figure 2).

    python -m benchmarks.plot_resolution docs/benchmarks-gpu.json docs/img/resolution.svg

reads what ``benchmarks.ablations`` wrote down.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

STYLES = {"both": ("with tf-idf", "#c2410c", "o"), "encoder": ("embedding alone", "#0e7490", "s")}
FIGURES = ("P@1", "P@5")


def draw(ablations: list[dict[str, Any]], path: Path) -> None:
    """Draw a row per dataset with a panel per figure."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    shape, size = (len(ablations), len(FIGURES)), (3.8 * len(FIGURES), 3.0 * len(ablations))
    with plt.rc_context({"svg.hashsalt": "umpteen", "svg.fonttype": "none", "font.size": 10}):
        canvas, axes = plt.subplots(*shape, figsize=size, layout="constrained", squeeze=False)
        for row, ablation in zip(axes, ablations, strict=True):
            for axis, figure in zip(row, FIGURES, strict=True):
                panel(axis, ablation["resolution"], figure)
                axis.set_title(f"{ablation['data']}, {figure}", fontsize=11)
        axes[0, -1].legend(frameon=False)
        canvas.savefig(path, metadata={"Date": None})
        plt.close(canvas)


def panel(axis: Any, rows: list[dict[str, Any]], figure: str) -> None:
    """Draw a figure against the labels per cluster, from coarse to fine."""
    sizes = sorted({row["size"] for row in rows}, reverse=True)
    for features, (name, colour, marker) in STYLES.items():
        found = {row["size"]: row[figure] for row in rows if row["features"] == features}
        axis.plot(range(len(sizes)), [found[size] for size in sizes], color=colour, marker=marker, label=name)
    axis.set_xticks(range(len(sizes)), [f"{size:,}" for size in sizes])
    axis.set_xlabel("labels per cluster")
    axis.grid(color="#e4e4e4")
    axis.spines[["top", "right"]].set_visible(False)


def main(source: str, path: str) -> None:
    """Draw every dataset whose label resolution was measured."""
    ablations = json.loads(Path(source).read_text(encoding="utf-8"))["ablations"]
    draw([ablation for ablation in ablations if "resolution" in ablation], Path(path))


if __name__ == "__main__":
    main(*sys.argv[1:])
