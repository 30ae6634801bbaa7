"""Measure a recipe on the rows of ``benchmarks.scale_data``: ``fit`` trains and saves, ``use`` opens and predicts.

Each stage is a process of its own. Memory is counted from its first line, so that rows, compiled kernels and all
temporary arrays are in it; files that are mapped into memory count as far as they are resident.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

import measure
import numpy as np

import umpteen
from benchmarks import scale_data
from benchmarks.scale_oracle import KS, perfect
from umpteen.metrics import evaluate
from umpteen.models import create, warmup

_OPENINGS = 3  # the best time counts
_QUERIES = 2_000
_WIDER = (20, 50)  # beams beside the usual one


def fit(options: argparse.Namespace) -> dict[str, Any]:
    """Train and save."""
    warmup()
    X, Y = (scale_data.load(options.data, f"{kind}.trn") for kind in "XY")
    model = create(options.recipe, {"threads": options.threads, **options.settings})
    model, figures = measure.measure_fit(lambda: model.fit(X, Y, **options.fit))
    begin = time.perf_counter()
    model.save(options.model)
    figures |= {"save_s": time.perf_counter() - begin, "peak_mb": _peak_mb()}
    heads = [{"sizes": list(head.tree.sizes), "n_weights": head.n_weights} for head in model.heads_]
    return figures | {
        "model_mb": measure.folder_mb(options.model), "n_nonzeros": int(X.nnz), "n_positives": int(Y.nnz),
        "n_seen": int(np.count_nonzero(np.bincount(Y.indices, minlength=Y.shape[1]))), "heads": heads,
        "history": list(model.history_),
    }  # fmt: skip


def use(options: argparse.Namespace) -> dict[str, Any]:
    """Open, predict in a batch and one by one, and compare with a perfect model."""
    warmup()
    X, Y = (scale_data.load(options.data, f"{kind}.tst") for kind in "XY")
    seconds, model = [], None
    for _ in range(_OPENINGS):
        begin = time.perf_counter()
        model = umpteen.load(options.model)
        seconds.append(time.perf_counter() - begin)
    rows = [X[row] for row in range(min(_QUERIES, X.shape[0]))]
    figures = measure.measure_single(lambda row: model.topk(row, k=max(KS), threads=1), rows)
    usual, *wider = (_batch(model, X, Y, options.threads, beam) for beam in (None, *_WIDER))
    figures |= usual | {"open_s": min(seconds), "first_open_s": seconds[0], "use_peak_mb": _peak_mb()}
    return figures | {"beams": dict(zip(_WIDER, wider, strict=True))} | _of_oracle(options, X, Y)


def _batch(model: Any, X: Any, Y: Any, threads: int, beam: int | None) -> dict[str, float]:
    """Predict all rows with a beam; return speed and precision."""
    search = {"k": max(KS), "threads": threads, "beam": beam}
    top, figures = measure.measure_batch(lambda: model.topk(X, **search), X.shape[0], 3)
    found = evaluate(top, Y, ks=KS)
    return figures | {f"P@{k}": found[f"P@{k}"] for k in KS}


def _of_oracle(options: argparse.Namespace, X: Any, Y: Any) -> dict[str, Any]:
    """Return what a perfect model reaches on the first test rows."""
    about = json.loads((options.data / "about.json").read_text())
    counts = np.bincount(scale_data.load(options.data, "Y.trn").indices, minlength=about["n_labels"])
    structure = scale_data.Structure(about["n_labels"], about["seed"])
    best = perfect(structure, X[: options.sample], Y[: options.sample], counts)
    return {"oracle": best.precision, "oracle_expected": best.expected, "oracle_of_seen": best.of_seen}


def _peak_mb() -> float:
    """Return the peak of this process and, added to it, of the largest that it has started."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(resource.getrusage(who).ru_maxrss for who in whose) * 1024 / measure.MB


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("stage", choices=("fit", "use"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--recipe", default="xr-linear")
    parser.add_argument("--settings", type=json.loads, default={})
    parser.add_argument("--fit", type=json.loads, default={}, help="arguments of fit")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sample", type=int, default=2_000, help="test rows that a perfect model is tried on")
    options = parser.parse_args()
    print(json.dumps({"fit": fit, "use": use}[options.stage](options)), flush=True)


if __name__ == "__main__":
    main()
