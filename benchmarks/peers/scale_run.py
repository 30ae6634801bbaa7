"""Train xr-linear on a whole dataset from raw text, predict its test texts; report times and peak memory."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import measure

from umpteen.data import read_pair
from umpteen.metrics import evaluate
from umpteen.models import create, warmup


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--settings", type=json.loads, default={})
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    warmup()
    begin = time.perf_counter()
    train, test = read_pair(options.data)
    read_s = time.perf_counter() - begin
    begin = time.perf_counter()
    model = create("xr-linear", {"threads": options.threads, **options.settings}).fit(train.texts, train.Y)
    fit_s = time.perf_counter() - begin
    fit_peak_mb = measure.process_peak_mb()
    model.save(options.model)
    begin = time.perf_counter()
    top = model.topk(test.texts, k=5)
    predict_s = time.perf_counter() - begin
    quality = evaluate(top, test.Y, ks=(1, 3, 5))
    figures = {
        "n_train": len(train),
        "n_test": len(test),
        "n_labels": train.Y.shape[1],
        "read_s": read_s,
        "fit_s": fit_s,
        "docs_per_s": len(test) / predict_s,
        "fit_peak_mb": fit_peak_mb,
        "model_mb": measure.folder_mb(options.model),
        **{name: quality[name] for name in ("P@1", "P@3", "P@5")},
    }
    print(json.dumps({**figures, "peak_mb": measure.process_peak_mb()}), flush=True)


if __name__ == "__main__":
    main()
