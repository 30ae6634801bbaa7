"""Whether thresholds of single labels help: ``python -m benchmarks.thresholds FOLDER … --tune 1000,5000``.

Trains a recipe without some of the training rows, tunes the threshold of ``predict`` on these for ``f1``, and prints
micro-F1 and macro-F1 on the test texts with one threshold and with those that ``tune`` chose: for labels with enough
examples their own, if cross-validation on the tuning rows showed that they help. The column ``unchecked`` has micro-F1
with thresholds of labels whatever cross-validation says.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import umpteen
from umpteen import thresholds
from umpteen.calibration import Calibration, _pairs, tune
from umpteen.metrics import ABOVE_THRESHOLD, Metrics
from umpteen.models import create
from umpteen.models.decision import Decision
from umpteen.shortlist import TopK


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--recipe", default="xr-linear")
    parser.add_argument("--tune", default="1000,2000,5000", metavar="N,N", help="rows that are tuned on")
    parser.add_argument("--rows", type=int, help="rows of training parts that have more")
    options = parser.parse_args(arguments)
    print(
        "| dataset | rows tuned on | labels with their own | micro-F1, one threshold | chosen | unchecked | macro-F1 |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|")
    for folder in options.folders:
        for line in rows(folder, options.recipe, [int(n) for n in options.tune.split(",")], options.rows):
            print(line, flush=True)


def rows(folder: Path, recipe: str, sizes: list[int], n_rows: int | None) -> list[str]:
    """Return a line for each number of rows to tune on."""
    train = umpteen.read(folder, "train", n_rows=n_rows)
    test = umpteen.read(folder, "test", labels=train.labels)
    order = np.random.default_rng(0).permutation(len(train))
    kept, held_out = np.sort(order[max(sizes) :]), order[: max(sizes)]
    model = create(recipe).fit([train.texts[i] for i in kept], train.Y[kept])
    depth = min(ABOVE_THRESHOLD, train.Y.shape[1])
    known = model.topk([train.texts[i] for i in held_out], depth), train.Y[held_out]
    unknown = model.topk(test.texts, depth), test.Y
    return [line(folder.name, model.calibration_, known[0][:n], known[1][:n], *unknown) for n in sizes]


def line(name: str, calibration: Calibration, top: TopK, Y: Any, top_test: TopK, Y_test: Any) -> str:
    """Tune and measure."""
    chosen = tune(calibration, top, Y, "f1")
    common = chosen.with_decision(chosen.threshold, None)
    every = thresholds._by_label(_pairs(calibration, top, Y), chosen.threshold, int(Y.nnz))
    unchecked = chosen.with_decision(chosen.threshold, None, every)
    (one, one_macro), (own, own_macro), (raw, _) = (f1(some, top_test, Y_test) for some in (common, chosen, unchecked))
    n_own = 0 if chosen.labels is None else len(chosen.labels.labels)
    return f"| {name} | {len(top)} | {n_own} | {one:.2f} | {own:.2f} | {raw:.2f} | {one_macro:.2f} → {own_macro:.2f} |"


def f1(calibration: Calibration, top: TopK, Y: Any) -> tuple[float, float]:
    """Return micro-F1 and macro-F1 of what a calibration decides."""
    metrics = Metrics((1,), threshold=0.0)
    metrics.add(top, Y, Decision.stored(calibration, top.k).chosen(top))
    found = metrics.result()
    return found["micro-F1"], found["macro-F1"]


if __name__ == "__main__":
    main()
