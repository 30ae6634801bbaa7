"""Compare a recipe with XR-Linear where there is little to train on: ``python -m benchmarks.small_data FOLDER …``.

For each dataset and seed, some texts are drawn from the training part to train on, and as many others to evaluate on;
the test part is not used. Both recipes are trained with their defaults on the same texts, and the table has the mean of
each precision and of the differences, with the largest of their standard errors.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import umpteen
from benchmarks.calibration import differences, shown
from umpteen.models import create

KS = (1, 3, 5)
BASELINE = "xr-linear"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--recipe", default="xr-transformer")
    parser.add_argument("--texts", type=int, default=2000, help="texts to train on, and as many to evaluate on")
    parser.add_argument("--seeds", type=int, default=1, help="draws of texts")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args(arguments)
    settings = dict(pair.split("=", 1) for pair in options.set)
    print(f"| dataset | texts | {BASELINE} P@1/3/5 | {options.recipe} | difference | training s |")
    print("|---|---:|---:|---:|---:|---:|")
    for folder in options.folders:
        print(row(folder, options.recipe, settings, options.texts, options.seeds), flush=True)


def row(folder: Path, recipe: str, settings: dict[str, str], n_texts: int, n_seeds: int) -> str:
    """Return the row of one dataset."""
    whole = umpteen.read(folder, "train")
    n_texts = min(n_texts, len(whole.texts) // 2)
    found = np.zeros((2, n_seeds, len(KS)))
    seconds = []
    for seed in range(n_seeds):
        drawn = np.random.default_rng(seed).permutation(len(whole.texts))[: 2 * n_texts]
        trained_on, others = np.sort(drawn[:n_texts]), np.sort(drawn[n_texts:])
        for i, (name, given) in enumerate(((BASELINE, {}), (recipe, settings))):
            begun = time.perf_counter()
            model = create(name, {**given, "seed": str(seed)}).fit(
                [whole.texts[j] for j in trained_on], whole.Y[trained_on]
            )
            if i:
                seconds.append(time.perf_counter() - begun)
            metrics = model.evaluate([whole.texts[j] for j in others], whole.Y[others])
            found[i, seed] = [metrics[f"P@{k}"] for k in KS]
    before, after = found.mean(axis=1)
    return (
        f"| {folder.name} | {n_texts} | {shown(before)} | {shown(after)} | {differences(found[1] - found[0])} | "
        f"{np.mean(seconds):.0f} |"
    )


if __name__ == "__main__":
    main()
