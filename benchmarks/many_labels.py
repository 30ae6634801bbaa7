"""Networks with millions of labels: do they train and predict, how fast, in how much memory of a GPU?

    python -m benchmarks.many_labels --encoder gte-small --recipes full,cascadexml

makes texts of random words in which every label occurs once, as in a shop where most articles were sold once, and
measures recipes on them as ``umpteen bench`` does. There is nothing to be learned from such texts, so no figure says
how good the answers are.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks import report
from umpteen.cli.benchmark import Job, in_own_process

HEAD = ("recipe", "labels", "training s", "texts/s", "GPU MB", "estimated GPU MB", "memory MB", "ms/text")
SETTINGS = {
    "encoder.max_length": 32, "training.batch_size": 256, "training.learning_rate": 3e-4,
    "training.lr_schedule": "linear",
    "tfidf.ngram_max": 1,
}  # fmt: skip
OWN = {"cascadexml": {"network.depth": 4}, "lightxml": {"training.swa_start": 1.0}}
_WORDS = 20_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the texts, measure the recipes, print a table."""
    options = _parse(arguments)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), options.labels, options.per_text)
        for recipe in options.recipes.split(","):
            settings = (
                SETTINGS | OWN.get(recipe, {}) | {"training.epochs": options.epochs, "encoder.name": options.encoder}
            )
            row = in_own_process(Job(folder, recipe, settings, None, "test", quiet=True))
            n_read = options.labels / options.per_text * options.epochs
            rows.append([
                recipe, report.number(options.labels, 0), report.number(row["fit_s"], 0),
                report.number(n_read / row["fit_s"], 0), report.number(row["gpu_mb"], 0),
                report.number(row["expected"]["gpu_mb"], 0), report.number(row["peak_mb"], 0),
                report.number(row["ms_per_text"], 2),
            ])  # fmt: skip
            print(rows[-1], file=sys.stderr, flush=True)
    print(report.table(HEAD, rows))
    return 0


def make(folder: Path, n_labels: int, per_text: int, n_test: int = 2_000) -> None:
    """Write texts of a dozen words; each label belongs to one of those to train on, those to test on have three."""
    rng = np.random.default_rng(0)
    words = np.array([f"{chr(97 + i % 26)}{i}" for i in range(_WORDS)])
    order = rng.permutation(n_labels)
    labels = {"train": np.array_split(order, -(-n_labels // per_text)), "test": order[: n_test * 3].reshape(-1, 3)}
    for split, lists in labels.items():
        drawn = words[rng.integers(0, _WORDS, (len(lists), 12))]
        (folder / f"{split}_texts.txt").write_text("".join(" ".join(row) + "\n" for row in drawn), encoding="utf-8")
        named = "".join(" ".join(f"l{label}" for label in row) + "\n" for row in lists)
        (folder / f"{split}_labels.txt").write_text(named, encoding="utf-8")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", required=True, help="a folder in Hugging Face layout")
    parser.add_argument("--labels", type=int, default=3_000_000)
    parser.add_argument("--per-text", type=int, default=15, help="labels of a text")
    parser.add_argument("--epochs", type=float, default=1.0, help="passes over the texts")
    parser.add_argument("--recipes", default="full", metavar="A,B", help="which networks")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
