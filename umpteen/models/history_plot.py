"""Plot the history of a training: loss, learning rate and held-out precision by step, or the seconds of each stage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from umpteen.engine import Record, number, stage_name
from umpteen.engine.printable import printable
from umpteen.errors import BadInput, MissingExtra

_ENDINGS = (".png", ".svg", ".pdf")
_PANELS = {"loss": ("loss",), "learning rate": ("lr",), "held-out precision (%)": ("P@1", "P@3", "P@5")}
_LONGEST = 60  # characters of a label
_STYLES = {"P@1": "-", "P@3": "--", "P@5": ":"}

Points = list[tuple[float, float]]


def plot_history(records: Sequence[Record], path: Path) -> None:
    """Write a picture of the records, as PNG, SVG or PDF by the ending of its name."""
    if path.suffix.lower() not in _ENDINGS:
        raise BadInput(f"a plot is a file that ends with {', '.join(_ENDINGS)}, but '{path}' does not; rename it")
    try:
        from matplotlib.figure import Figure  # type: ignore[import-not-found]
    except ImportError:
        raise MissingExtra("matplotlib", "plot", "a plot") from None
    if not records:
        raise BadInput("the model was saved without a history, so there is nothing to plot; train it again")
    panels = {title: names for title, names in _PANELS.items() if any(curves(records, name) for name in names)}
    figure = Figure(figsize=(8, 2 + 2.2 * max(1, len(panels))), layout="constrained")
    if panels:
        _draw_curves(figure, records, panels)
    else:
        _draw_seconds(figure.subplots(), records)
    figure.savefig(path, dpi=150)


def curves(records: Sequence[Record], name: str) -> dict[str, Points]:
    """Return the values of a name by stage; steps are counted from the beginning of the first stage.

    >>> records = [{"stage": "a", "step": 10, "loss": 2.0}, {"stage": "b", "step": 5, "loss": 1.0}]
    >>> curves(records, "loss")
    {'a': [(10.0, 2.0)], 'b': [(15.0, 1.0)]}
    """
    found: dict[str, Points] = {}
    last, before, offset = "", 0.0, 0.0
    for record in records:
        stage, step, value = stage_name(record), number(record, "step"), number(record, name)
        if step is None or "weights" in record:
            continue
        offset, last = (offset + before, stage) if stage != last else (offset, last)
        before = step
        if value is not None:
            found.setdefault(stage, []).append((offset + step, value))
    return found


def _draw_curves(figure: Any, records: Sequence[Record], panels: dict[str, tuple[str, ...]]) -> None:
    """Draw a panel for each kind of value, a colour for each stage."""
    stages = list(dict.fromkeys(map(stage_name, records)))
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axis, (title, names) in zip(axes, panels.items(), strict=True):
        for name in names:
            for stage, points in curves(records, name).items():
                label = _plain(f"{name}, {stage}" if len(names) > 1 else stage)
                colour, style = f"C{stages.index(stage) % 10}", _STYLES.get(name, "-")
                axis.plot(*zip(*points, strict=True), style, color=colour, marker=".", markersize=3, label=label)
        axis.set_ylabel(title)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        axis.legend(fontsize="x-small")
    axes[-1].set_xlabel("step")


def _draw_seconds(axis: Any, records: Sequence[Record]) -> None:
    """Draw how long each stage took, where no stage has steps."""
    seconds = {_plain(stage_name(record)): number(record, "seconds") or 0.0 for record in records}
    axis.barh(list(seconds), list(seconds.values()))
    axis.invert_yaxis()
    axis.set_xlabel("seconds")


def _plain(text: str) -> str:
    """Return a label that matplotlib shows as it is: a dollar would begin a formula."""
    return printable(text)[:_LONGEST].replace("$", r"\$")
