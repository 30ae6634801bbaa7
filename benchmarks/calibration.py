"""How good probabilities and the stored threshold are on test texts: ``python -m benchmarks.calibration FOLDER …``.

Trains a recipe with and without held-out rows and prints, for each dataset: precision with both, how much longer
training takes with them (the fastest of several runs of each, taking turns), the expected calibration error of the five
best labels, micro-F1 at the stored threshold and at the best one in hindsight, and the share of texts without a label.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import umpteen
from umpteen.calibration import best_threshold
from umpteen.metrics import expected_calibration_error, find_hits
from umpteen.models import create

DEPTH = 100  # labels of a text that a threshold selects from


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--recipe", default="xr-linear")
    parser.add_argument("--rows", type=int, help="training rows of datasets that have more")
    parser.add_argument("--repeat", type=int, default=3, help="trainings of each kind")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args(arguments)
    settings = dict(pair.split("=", 1) for pair in options.set)
    print("| dataset | P@1/3/5 | without | time | ECE@5 | micro-F1 | best | texts without a label |")
    print("|---|---|---|---|---|---|---|---|")
    for folder in options.folders:
        print(row(folder, options.recipe, settings, options.rows, options.repeat), flush=True)


def row(folder: Path, recipe: str, settings: dict[str, str], n_rows: int | None, repeat: int) -> str:
    """Return the row of one dataset."""
    train = umpteen.read(folder, "train", n_rows=n_rows)
    test = umpteen.read(folder, "test", labels=train.labels)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    models = {}
    for _ in range(repeat):
        for is_calibrated in seconds:
            untrained = create(recipe, settings if is_calibrated else settings | {"calibration.rows": "0"})
            begun = time.perf_counter()
            models[is_calibrated] = untrained.fit(train.inputs, train.Y)
            seconds[is_calibrated].append(time.perf_counter() - begun)
    model, plain = models[True], models[False]
    longer = 100 * (min(seconds[True]) / min(seconds[False]) - 1)
    top = model.topk(test.inputs, min(DEPTH, train.Y.shape[1]))
    hits, first = find_hits(top.labels, test.Y), top.first(5)
    error = expected_calibration_error(first.probabilities, hits[:, :5])
    p, is_true = top.probabilities.ravel().astype(np.float64), hits.ravel()
    threshold, n_true = model.calibration_.threshold, test.Y.nnz
    best = best_threshold(p, is_true, n_true)
    stored_f1, best_f1 = (100 * micro_f1(p >= t, is_true, n_true) for t in (threshold, best))
    nothing = 100 * float(np.mean(top.probabilities[:, 0] < threshold))
    return (
        f"| {folder.name} | {precisions(model, test)} | {precisions(plain, test)} | {longer:+.0f} % | {error:.4f} | "
        f"{stored_f1:.2f} | {best_f1:.2f} | {nothing:.1f} % |"
    )


def micro_f1(is_chosen: np.ndarray, is_true: np.ndarray, n_true: int) -> float:
    """Return the micro-F1 of the chosen labels."""
    return 2.0 * float(is_true[is_chosen].sum()) / max(int(is_chosen.sum()) + n_true, 1)


def precisions(model: umpteen.models.Model, test: umpteen.Dataset) -> str:
    """Return P@1/3/5."""
    metrics = model.evaluate(test.inputs, test.Y)
    return "/".join(f"{metrics[f'P@{k}']:.2f}" for k in (1, 3, 5))


if __name__ == "__main__":
    main()
