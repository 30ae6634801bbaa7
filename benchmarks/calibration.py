"""How good probabilities and the stored threshold are on test texts: ``python -m benchmarks.calibration FOLDER …``.

Trains a recipe with and without held-out rows, with several seeds, and prints for each dataset: mean precision with and
without them, and the mean difference with its standard error; how much longer training takes with them (the fastest run
of each, taking turns); the expected calibration error of the five best labels, micro-F1 at the stored threshold and at
the best one in hindsight, and the share of texts without a label, all as means. ``--calibrated-only`` leaves out the
training without held-out rows, which for a network on a CPU takes long.
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
    parser.add_argument("--seeds", type=int, default=10, help="trainings of each kind")
    parser.add_argument("--calibrated-only", action="store_true", help="train with held-out rows only")
    parser.add_argument("--checkpoint", type=Path, help="folder to resume trainings from")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args(arguments)
    settings = dict(pair.split("=", 1) for pair in options.set)
    print("| dataset | P@1/3/5 | without | difference | time | ECE@5 | micro-F1 | best | texts without a label |")
    print("|---|---|---|---|---|---|---|---|---|")
    for folder in options.folders:
        print(row(folder, settings, options), flush=True)


def row(folder: Path, settings: dict[str, str], options: argparse.Namespace) -> str:
    """Return the row of one dataset."""
    train = umpteen.read(folder, "train", n_rows=options.rows)
    test = umpteen.read(folder, "test", labels=train.labels)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    precisions: dict[bool, list[list[float]]] = {True: [], False: []}
    decisions = []
    kinds = [(True, {}), (False, {"calibration.rows": "0"})][: 1 if options.calibrated_only else 2]
    for seed in range(options.seeds):
        for is_calibrated, rows in kinds:
            untrained = create(options.recipe, settings | {"seed": str(seed)} | rows)
            begun = time.perf_counter()
            model = untrained.fit(train.inputs, train.Y, checkpoint=options.checkpoint)
            seconds[is_calibrated].append(time.perf_counter() - begun)
            metrics = model.evaluate(test.inputs, test.Y)
            precisions[is_calibrated].append([metrics[f"P@{k}"] for k in (1, 3, 5)])
            if is_calibrated:
                decisions.append(decide(model, test))
    error, stored_f1, best_f1, nothing = np.mean(decisions, axis=0)
    largest = f" (at most {np.max(decisions, axis=0)[0]:.4f})" if options.seeds > 1 else ""
    calibrated = np.array(precisions[True])
    if options.calibrated_only:
        compared = f"– | – | {min(seconds[True]):.0f} s"
    else:
        without = np.array(precisions[False])
        longer = 100 * (min(seconds[True]) / min(seconds[False]) - 1)
        compared = f"{shown(without.mean(axis=0))} | {differences(calibrated - without)} | {longer:+.0f} %"
    return (
        f"| {folder.name} | {shown(calibrated.mean(axis=0))} | {compared} | {error:.4f}{largest} | {stored_f1:.2f} | "
        f"{best_f1:.2f} | {nothing:.1f} % |"
    )


def decide(model: umpteen.models.Model, test: umpteen.Dataset) -> tuple[float, float, float, float]:
    """Return the calibration error, micro-F1 stored and in hindsight, and the percentage of texts without a label."""
    top = model.topk(test.inputs, min(DEPTH, len(model.labels_)))
    hits, first = find_hits(top.labels, test.Y), top.first(5)
    error = expected_calibration_error(first.probabilities, hits[:, :5])
    p, is_true = top.probabilities.ravel().astype(np.float64), hits.ravel()
    threshold, n_true = model.calibration_.threshold, test.Y.nnz
    best = best_threshold(p, is_true, n_true)
    stored_f1, best_f1 = (100 * micro_f1(p >= t, is_true, n_true) for t in (threshold, best))
    return error, stored_f1, best_f1, 100 * float(np.mean(top.probabilities[:, 0] < threshold))


def shown(values: np.ndarray) -> str:
    """Return figures in one cell."""
    return "/".join(f"{value:.2f}" for value in values)


def differences(values: np.ndarray) -> str:
    """Return means over seeds (seeds, figures), with the largest of their standard errors."""
    means = "/".join(f"{mean:+.2f}" for mean in values.mean(axis=0))
    if len(values) < 2:
        return means
    return f"{means} ± {(values.std(axis=0, ddof=1) / len(values) ** 0.5).max():.2f}"


def micro_f1(is_chosen: np.ndarray, is_true: np.ndarray, n_true: int) -> float:
    """Return the micro-F1 of the chosen labels."""
    return 2.0 * float(is_true[is_chosen].sum()) / max(int(is_chosen.sum()) + n_true, 1)


if __name__ == "__main__":
    main()
