"""``umpteen calibrate`` and ``umpteen tune``: fit probabilities and the threshold of a saved model on other texts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import umpteen
from umpteen.calibration import Calibration
from umpteen.cli.terminal import Terminal
from umpteen.evaluation import read_for
from umpteen.evaluation.model import labelled_inputs
from umpteen.models.hub import own_folder


def calibrate(folder: Path, data: str | Path, split: str, *, terminal: Terminal, **columns: Any) -> None:
    """Fit probabilities and a threshold anew, and save the model."""
    model = umpteen.load(own_folder(folder))
    model.calibrate(*_labelled(model, data, split, columns))
    _save(model, folder, terminal)


def tune(folder: Path, data: str | Path, goal: str, split: str, *, terminal: Terminal, **columns: Any) -> None:
    """Choose thresholds and limit for a goal, and save the model."""
    model = umpteen.load(own_folder(folder))
    model.tune(*_labelled(model, data, split, columns), goal)
    _save(model, folder, terminal)


def _labelled(model: Any, data: str | Path, split: str, columns: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return inputs and labels of a dataset, with columns in the order of the model's labels."""
    dataset = read_for(model, data, split, **columns)
    return labelled_inputs(model, dataset), dataset.align(model.labels_).Y


def _save(model: Any, folder: Path, terminal: Terminal) -> None:
    model.save(folder)
    terminal.note(f"predict returns {described(model.calibration_)}.")


def described(calibration: Calibration) -> str:
    """Say which labels ``predict`` returns."""
    words = [f"labels with a probability of at least {calibration.threshold:.3f}"]
    if calibration.labels is not None:
        own = calibration.labels.probabilities
        words.append(f"{len(own):,} labels with thresholds of their own ({own.min():.3f} to {own.max():.3f})")
    if calibration.limit is not None:
        words.append(f"at most {calibration.limit} labels per text")
    return ", ".join(words)
