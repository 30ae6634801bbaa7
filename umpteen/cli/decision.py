"""``umpteen calibrate`` and ``umpteen tune``: fit probabilities and the threshold of a saved model on other texts."""

from pathlib import Path
from typing import Any

import umpteen
from umpteen.cli.terminal import Terminal
from umpteen.data import read
from umpteen.models.hub import own_folder


def calibrate(folder: Path, data: Path, split: str, n_rows: int | None, *, terminal: Terminal) -> None:
    """Fit probabilities and a threshold anew, and save the model."""
    model = umpteen.load(own_folder(folder))
    model.calibrate(*_labelled(model, data, split, n_rows))
    _save(model, folder, terminal)


def tune(folder: Path, data: Path, goal: str, split: str, n_rows: int | None, *, terminal: Terminal) -> None:
    """Choose threshold and limit for a goal, and save the model."""
    model = umpteen.load(own_folder(folder))
    model.tune(*_labelled(model, data, split, n_rows), goal)
    _save(model, folder, terminal)


def _labelled(model: Any, data: Path, split: str, n_rows: int | None) -> tuple[Any, Any]:
    """Return inputs and labels of a dataset, with columns in the order of the model's labels."""
    dataset = read(data, split, labels=model.labels_, n_rows=n_rows)
    return dataset.texts if model.takes_texts else dataset.X, dataset.Y


def _save(model: Any, folder: Path, terminal: Terminal) -> None:
    model.save(folder)
    decision = model.calibration_
    limit = "" if decision.limit is None else f", at most {decision.limit} labels per text"
    terminal.note(f"predict returns labels with a probability of at least {decision.threshold:.3f}{limit}.")
