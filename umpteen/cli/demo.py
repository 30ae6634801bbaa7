"""``umpteen demo``: train on the data that comes with the package, measure, tag three sentences, save.

A further recipe is a further name in ``RECIPES`` and becomes a further row; the first one is saved.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from umpteen.cli.benchmark import measure
from umpteen.cli.terminal import Terminal
from umpteen.cli.training import check_target
from umpteen.data import load_demo

RECIPES = ("xr-linear",)

# Written for this demo; none of them describes a package in the data.
SENTENCES = (
    "Crop, rotate and resize your holiday photographs with the mouse, and save them as JPEG or PNG.",
    "A daemon that watches the log files of a mail server and blocks hosts that send too much spam.",
    "Python bindings for a fast C++ library that aligns DNA sequences.",
)
_COLUMNS = {
    "recipe": "recipe",
    "P@1": "P@1",
    "P@3": "P@3",
    "P@5": "P@5",
    "nDCG@5": "nDCG@5",
    "PSP@5": "PSP@5",
    "fit_s": "train s",
    "ms_per_text": "ms/text",
    "model_mb": "model MB",
}


def demo(output: Path, settings: dict[str, Any], *, terminal: Terminal) -> None:
    """Show what the library does, from data to a saved model."""
    from umpteen.models import create, warmup

    check_target(output)
    train = load_demo("train")
    test = load_demo("test")
    terminal.note(
        f"Debian packages and their tags: {len(train):,} descriptions to learn from, "
        f"{len(test):,} to test on, {len(train.labels):,} labels"
    )
    models, rows = [], []
    with tempfile.TemporaryDirectory() as folder, terminal.progress() as progress:
        warmup(progress)  # compiling is no part of training
        for recipe in RECIPES:
            model = create(recipe, settings)
            rows.append(measure(model, train, test, Path(folder, recipe), progress))
            models.append(model)
    terminal.table(
        list(_COLUMNS.values()),
        [[row[key] for key in _COLUMNS] for row in rows],
        title="On the test part, in %",
    )
    _tag(models[0], terminal)
    models[0].save(output)
    terminal.note(
        f"Saved in {output}. Next:\n"
        f'  echo "play chess against the computer" | umpteen predict {output}\n'
        f"  umpteen evaluate {output} demo\n"
        "  umpteen train YOUR_DATA -o YOUR_MODEL"
    )


def _tag(model: Any, terminal: Terminal) -> None:
    rows = []
    for text, (labels, scores) in zip(SENTENCES, model.topk(list(SENTENCES), 5), strict=True):
        names = model.labels_.names(labels)
        rows.append([text, "\n".join(names), "\n".join(f"{score:.2f}" for score in scores)])
    terminal.table(["a new text", "labels", "score"], rows, title="Tagged", lines=True)
