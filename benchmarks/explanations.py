"""Whether explanations name the words that decide: ``python -m benchmarks.explanations FOLDER …`` (or ``demo``).

Trains a recipe, explains the best label of test texts, deletes the three words with the largest contributions, all
their occurrences, and prints the share of the texts in which the score of the label is lower then, and the label's
median score before and after. Three words that are drawn at random are deleted for comparison.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

import umpteen
from umpteen.data.words import find_words
from umpteen.models import create
from umpteen.models.explanation import Explanation

N_WORDS = 3


class Effect(NamedTuple):
    """Scores of a label with the whole text, without its strongest words, and without others."""

    before: float
    after: float
    after_random: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--recipe", default="xr-linear")
    parser.add_argument("--texts", type=int, default=500, help="test texts that are explained")
    parser.add_argument("--rows", type=int, help="training rows of datasets that have more")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args(arguments)
    settings = dict(pair.split("=", 1) for pair in options.set)
    print(f"| dataset | texts | score falls without {N_WORDS} words | without random ones | median score | then | ms |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for folder in options.folders:
        train, test = read(folder, options.rows)
        model = create(options.recipe, settings).fit(train.texts, train.Y, label_names=train.labels)
        print(row(Path(folder).name, model, test.texts, options.texts), flush=True)


def read(folder: str, n_rows: int | None) -> tuple[umpteen.Dataset, umpteen.Dataset]:
    """Return the training and the test data."""
    if folder == "demo":
        return umpteen.load_demo("train"), umpteen.load_demo("test")
    train = umpteen.read(folder, "train", n_rows=n_rows)
    return train, umpteen.read(folder, "test", labels=train.labels)


def row(name: str, model: Any, texts: Sequence[str], n_texts: int) -> str:
    """Return the row of one dataset."""
    rng, begun = np.random.default_rng(0), time.perf_counter()
    long_enough = [text for text in texts if len({word.lower() for word in words_of(text)}) > N_WORDS]
    effects = [effect(model, text, rng) for text in long_enough[:n_texts]]
    milliseconds = 1e3 * (time.perf_counter() - begun) / max(len(effects), 1)
    before, after, after_random = np.array(effects).T
    return (
        f"| {name} | {len(effects)} | {100 * np.mean(after < before):.1f} % | "
        f"{100 * np.mean(after_random < before):.1f} % | {np.median(before):.3f} | {np.median(after):.3f} | "
        f"{milliseconds:.1f} |"
    )


def effect(model: Any, text: str, rng: np.random.Generator) -> Effect:
    """Delete words of a text and score its best label again."""
    found = model.explain(text)
    strongest = [word for word, _ in found.top_words(N_WORDS)]
    others = sorted({word.lower() for word in words_of(text)})
    drawn = [others[i] for i in rng.choice(len(others), N_WORDS, replace=False)]
    variants = [text, without(found, strongest), without(found, drawn)]
    return Effect(*scores(model, variants, found.id))


def words_of(text: str) -> list[str]:
    """Return the words of a text, as explanations find them."""
    return [text[start:end] for start, end in find_words(text)]


def without(found: Explanation, words: Collection[str]) -> str:
    """Return the text without all occurrences of some words."""
    text = str(found.text)
    for start, end in reversed(find_words(text)):
        if text[start:end].lower() in words:
            text = text[:start] + text[end:]
    return text


def scores(model: Any, texts: list[str], label: int) -> list[float]:
    """Return the score of one label for each text."""
    pairs = sp.csr_matrix((np.ones(len(texts), np.float32), (range(len(texts)), [label] * len(texts))),
                          shape=(len(texts), len(model.labels_)))  # fmt: skip
    return model.score_labels(texts, pairs).data.tolist()


if __name__ == "__main__":
    main()
