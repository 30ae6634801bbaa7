"""``umpteen train``: read, estimate, fit, save.

Knows nothing about how a recipe learns.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from umpteen.cli.terminal import Terminal, duration, megabytes
from umpteen.data import read
from umpteen.store import Run


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with a sentence that says what is kept and how to go on."""


def train(
    data: str,
    output: Path,
    recipe: str,
    settings: dict[str, Any],
    *,
    terminal: Terminal,
    n_rows: int | None = None,
    checkpoint: Path | None = None,
) -> None:
    """Train a model on the train split of ``data`` and save it in ``output``."""
    from umpteen.models import create
    from umpteen.models.ranker import check_places
    from umpteen.models.rescue import save_or_rescue

    model = create(recipe, settings)  # a wrong setting is told before anything is read
    for key, why in model.config.idle.items():
        if any(f"{name}.".startswith(f"{key}.") for name in settings):
            terminal.note(f"{key} changes nothing: {why}")
    check_places(model.config, checkpoint, output)
    terminal.note(f"Reading {data}")
    dataset = read(data, "train", n_rows=n_rows)
    X = dataset.inputs
    terminal.note(str(model.estimate(X, dataset.Y)))
    begun = time.perf_counter()
    try:
        with terminal.progress() as progress:
            where = None if checkpoint is None else str(checkpoint)
            model.fit(X, dataset.Y, label_names=dataset.labels, progress=progress, checkpoint=where)
        save_or_rescue(model, output, checkpoint)
    except KeyboardInterrupt as error:
        raise Interrupted(_what_is_kept(checkpoint)) from error
    seconds, size = duration(time.perf_counter() - begun), megabytes(size_of(output))
    terminal.note(f"Trained in {seconds}, saved in {output} ({size})\nNext: umpteen predict {output}")


def size_of(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _what_is_kept(checkpoint: Path | None) -> str:
    if checkpoint is None:
        return "Interrupted; nothing was saved. With --checkpoint DIR a run can be resumed."
    if not Run(checkpoint).is_begun:
        return "Interrupted before a stage or an epoch was finished; the same command starts again."
    return f"Interrupted; finished stages are kept in {checkpoint}: the same command resumes from there."
