"""What makes XR-Transformer good: the ablations of its paper, on data of your own.

    python -m benchmarks.ablations FOLDER --encoder FOLDER

prints three tables: what the ranker sees (the paper's Table 5), with and without cost-sensitive learning (Table 6), and
how fine the labels were that the encoder learned (Figure 2). Every row is measured on a part that was not trained on:
the split called ``dev`` if there is one, else the training rows after the first ``--rows``. The ranker is a tree in
all of them, and the encoder's own scorers have no say, as in the paper.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import umpteen
from umpteen.data import Dataset
from umpteen.models import create

Row = dict[str, Any]

CLUSTER_SIZES = (256, 32, 4, 1)
FIGURES = ("P@1", "P@3", "P@5", "R@1", "R@3", "R@5")
FIXED = {
    "tree.kind": "halving",
    "linear.eps": 0.1,
    "training.validation_fraction": 0.0,
    "features": "both",
    "embedding_weight": 0.4,
    "head_weight": 0.0,
    "training.loss": "squared-hinge",
}
AS_IT_IS = {"training.epochs": (0.0,), "training.init": "random"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all ablations on one dataset, print them and write them down."""
    options = _parse(arguments)
    train, test = parts(options.folder, options.rows, options.test_rows)
    given = dict(pair.split("=", 1) for pair in options.set)
    lab = Lab(train, test, FIXED | {"encoder.name": options.encoder} | given)
    print(
        f"{options.folder.name}: {len(train.texts):,} texts to learn from, {len(test.texts):,} to test on", flush=True
    )
    result = {"data": options.folder.name, "n_train": len(train.texts), "n_test": len(test.texts), "settings": given}
    ablations = {"features": lab.features, "costs": lab.costs, "resolution": lab.resolutions}
    for name in options.only.split(",") if options.only else ablations:
        result[name] = ablations[name]()
        if options.json:
            options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def parts(folder: Path, n_rows: int | None, n_test: int) -> tuple[Dataset, Dataset]:
    """Return texts to learn from and texts to test on, neither of them from the test part."""
    if any(folder.glob("dev*")):
        train = umpteen.read(folder, "train", n_rows=n_rows)
        return train, umpteen.read(folder, "dev", labels=train.labels, n_rows=n_test)
    if n_rows is None:
        raise SystemExit(f"{folder.name} has no part called dev: say with --rows how many training rows to learn from")
    every = umpteen.read(folder, "train", n_rows=n_rows + n_test)
    return every.take(slice(n_rows)), every.take(slice(n_rows, None))


class Lab:
    """A dataset and the settings that all rows of all tables share."""

    def __init__(self, train: Dataset, test: Dataset, settings: Row):
        self.train, self.test, self.settings = train, test, settings

    def features(self) -> list[Row]:
        """Compare what the ranker sees: words, the encoder as it comes, the encoder fine-tuned."""
        rows = [{"case": "tf-idf"} | self.measure({"features": "tfidf", **AS_IT_IS})]
        for name, more in (("as it comes", AS_IT_IS), ("fine-tuned", {})):
            alone, beside = self.alone_and_beside(more)
            rows += [{"case": name} | alone, {"case": f"{name}, with tf-idf"} | beside]
        return shown("what the ranker sees", rows, FIGURES[:3])

    def costs(self) -> list[Row]:
        """Compare training with and without weights from induced relevance, in the encoder and in the ranker."""
        rows = [
            {"case": name} | self.measure({"training.relevance": value, "linear.relevance": value})
            for name, value in (("with", "induce"), ("without", "none"))
        ]
        return shown("cost-sensitive learning", rows, FIGURES)

    def resolutions(self) -> list[Row]:
        """Compare encoders that learned labels in clusters of a size, at once, not from coarse to fine."""
        n_labels, rows = self.train.Y.shape[1], []
        for size in CLUSTER_SIZES:
            at_once = {"network.labels_per_cluster": size, "network.branching": n_labels, "network.max_nodes": n_labels}
            alone, beside = self.alone_and_beside(at_once)
            rows += [
                {"case": f"{size}", "size": size, "features": "encoder"} | alone,
                {"case": f"{size}, with tf-idf", "size": size, "features": "both"} | beside,
            ]
        return shown("labels per cluster while the encoder learns", rows, FIGURES[:3])

    def alone_and_beside(self, more: Row) -> tuple[Row, Row]:
        """Train an encoder once; measure it without and with tf-idf."""
        with tempfile.TemporaryDirectory() as folder:
            beside = self.measure(more, Path(folder, "model"))
            encoder = next(Path(folder, "model").glob("encoder*"))
            return self.measure(more | AS_IT_IS | {"encoder.name": str(encoder), "features": "encoder"}), beside

    def measure(self, more: Row, save: Path | None = None) -> Row:
        """Train and test once."""
        model = create("xr-transformer", self.settings | more)
        begun = time.perf_counter()
        model.fit(self.train.texts, self.train.Y)
        seconds = time.perf_counter() - begun
        if save is not None:
            model.save(save)
        figures = model.evaluate(self.test.texts, self.test.Y)
        row = {name: figures[name] for name in FIGURES} | {"seconds": seconds}
        print(f"  {more}: P@1 {row['P@1']:.2f}, {seconds:.0f} s", file=sys.stderr, flush=True)
        return row


def shown(title: str, rows: list[Row], figures: Sequence[str]) -> list[Row]:
    """Print a table and return its rows."""
    print(f"| {title} | " + " | ".join(figures) + " |\n" + "|---" * (len(figures) + 1) + "|")
    for row in rows:
        print(f"| {row['case']} | " + " | ".join(f"{row[name]:.2f}" for name in figures) + " |", flush=True)
    return rows


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("folder", type=Path)
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--rows", type=int, help="train on the first rows only")
    parser.add_argument("--test-rows", type=int, default=10_000)
    parser.add_argument("--only", help="some of features, costs and resolution, with commas between")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
