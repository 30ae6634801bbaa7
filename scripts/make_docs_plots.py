"""Draw the plots of the docs from models of the demo data: reliability, learning curve, and a page with an explanation.

Needs the extras ``plot`` and ``transformers``, and a Chromium browser for the screenshot. Writes docs/img/.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import umpteen
from umpteen.evaluation import draw_reliability
from umpteen.metrics import find_hits, reliability
from umpteen.models.history_plot import plot_history

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "img"
TEXT = "Play chess against the computer, over the network, or study your own games in a graphical window"
DEPTH = 5
LABEL = "use: gameplaying"
PAGE = (760, 660)  # width and height of the screenshot: the paths below are cut off


def main() -> None:
    """Write all pictures."""
    train, test = umpteen.load_demo("train"), umpteen.load_demo("test")
    model = umpteen.XRLinear(seed=0, store={"examples": 3_000}).fit(train.texts, train.Y, label_names=train.labels)
    draw_probabilities(model, test)
    draw_explanation(model)
    draw_history(train)


def draw_probabilities(model: umpteen.XRLinear, test: umpteen.Dataset) -> None:
    """Compare scores and calibrated probabilities with how often labels are right."""
    top = model.topk(test.texts, DEPTH)
    hits = find_hits(top.labels, test.Y)
    tables = {"scores": np.clip(top.scores, 0, 1), "calibrated probabilities": top.probabilities}
    found = {name: reliability(values, hits, n_bins=10) for name, values in tables.items()}
    named = {f"{name}, ECE@{DEPTH} {table.error:.3f}": table for name, table in found.items()}
    draw_reliability(named, FOLDER / "reliability.svg")


def draw_explanation(model: umpteen.XRLinear) -> None:
    """Take a picture of the page that explains a label."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("no Chromium browser was found; install one to take the picture of an explanation")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "explanation.html")
        page.write_text(model.explain(TEXT, LABEL).to_html(), encoding="utf-8")
        size = f"--window-size={PAGE[0]},{PAGE[1]}"
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--user-data-dir={folder}/profile", size]
        picture = FOLDER / "explanation.png"
        command = [browser, *options, f"--screenshot={picture}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)


def draw_history(train: umpteen.Dataset) -> None:
    """Draw the learning curve of a network that needs no encoder."""
    settings = {"epochs": (12.0,), "validation_fraction": 0.05}
    model = umpteen.ExtremeText(training=settings, seed=0).fit(train.texts, train.Y, label_names=train.labels)
    plot_history(model.history_, FOLDER / "learning-curve.svg")


if __name__ == "__main__":
    main()
