"""``umpteen history``: print or plot the records of the training of a saved model."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from umpteen.cli.terminal import Terminal
from umpteen.engine import Record, number, stage_name

_COLUMNS = ("stage", "weights", "epoch", "step", "loss", "lr", "P@1", "P@3", "P@5", "nodes", "seconds")


def history(path: Path, *, terminal: Terminal, plot: Path | None = None, as_json: bool = False) -> None:
    """Print the history of a saved model, one row per stage and epoch; with ``plot`` also write a picture."""
    import umpteen

    records = umpteen.load(path).history_
    if plot is not None:
        from umpteen.models.history_plot import plot_history

        plot_history(records, plot)
        terminal.note(f"Plotted in {plot}")
    if as_json:
        terminal.json(records)
    elif not records:
        terminal.note(f"{path} was saved without a history")
    else:
        rows = [_shown(row) for row in summarise(records)]
        columns = [name for name in _COLUMNS if any(row[name] is not None for row in rows)]
        terminal.table(columns, [[row[name] for name in columns] for row in rows], title=str(path))


def summarise(records: Iterable[Record]) -> list[Record]:
    """Return one row per stage and epoch: the mean loss of its steps, and the last of all other values.

    >>> records = [{"stage": "training", "step": 50, "epoch": 0.5, "loss": 2.0},
    ...            {"stage": "training", "step": 100, "epoch": 1.0, "loss": 1.0, "P@1": 70.0}]
    >>> summarise(records)
    [{'stage': 'training', 'step': 100, 'epoch': 1.0, 'loss': 1.5, 'P@1': 70.0}]
    """
    rows: dict[tuple[str, str, int], _Epoch] = {}
    before: dict[str, float] = {}
    for record in records:
        stage, step = stage_name(record), number(record, "step") or 0.0
        key = stage, str(record.get("weights", "")), math.ceil(number(record, "epoch") or 0.0)
        rows.setdefault(key, _Epoch()).add({**record, "stage": stage}, step - before.get(stage, 0.0))
        before[stage] = step
    return [row.summary for row in rows.values()]


class _Epoch:
    """What the records of an epoch add up to."""

    def __init__(self) -> None:
        self.summary: Record = {}
        self._total = self._steps = 0.0

    def add(self, record: Record, n_steps: float) -> None:
        """Add a record that stands for so many steps."""
        self.summary |= {name: value for name, value in record.items() if name != "model"}
        loss = number(record, "loss")
        if loss is not None and n_steps > 0:
            self._total, self._steps = self._total + n_steps * loss, self._steps + n_steps
            self.summary["loss"] = self._total / self._steps


def _shown(row: Record) -> dict[str, Any]:
    """Format numbers that a table would round too much."""
    digits = {"loss": "{:.4g}", "lr": "{:.3g}", "epoch": "{:g}"}
    values: dict[str, Any] = {name: row.get(name) for name in _COLUMNS}
    return values | {
        name: form.format(value) for name, form in digits.items() if (value := number(row, name)) is not None
    }
