"""The models that are damaged: tiny ones of every layout, weight and kind of input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from umpteen.cli.training import build
from umpteen.data.labels import Labels
from umpteen.thresholds import LabelThresholds

N_LABELS, N_ROWS, N_FEATURES, N_WORDS = 600, 700, 60, 80

_DEEP = {"tree.branching": 4, "tree.leaf_size": 2}  # several levels in runs below whole ones
_WIDE = {"tree.branching": 64, "tree.leaf_size": 16}

# name: recipe, settings, kind of input, kind of labels
SEEDS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "deep-int8": ("xr-linear", {**_DEEP}, "texts", "names"),
    "wide-float16": ("xr-linear", {**_WIDE, "store.weights": "float16"}, "rows", "numbers"),
    "deep-float32": ("xr-linear", {**_DEEP, "store.weights": "float32", "search.post": "identity"}, "rows", "names"),
    "trees": ("xr-linear", {**_WIDE, "trees": 3, "search.beams": [3, 7]}, "rows", "numbers"),
    "flat": ("dismec", {"store.weights": "float32"}, "rows", "names"),
    "single": ("plt", {"store.examples": 20}, "texts", "single"),
    "letters": ("bonsai", {"trees": 1, "tfidf.analyzer": "char_wb", "tfidf.ngram_max": 3}, "texts", "keys"),
    "ensemble": ("xr-linear+plt", {**_WIDE}, "texts", "names"),
}
OWN_THRESHOLDS = ("deep-int8", "ensemble")  # models some of whose labels have a threshold of their own


def texts(n: int = N_ROWS) -> list[str]:
    """Write texts that begin with a word of their label."""
    rng = np.random.default_rng(1)
    return [f"w{i % N_LABELS % N_WORDS} " + " ".join(f"w{w}" for w in rng.integers(0, N_WORDS, 6)) for i in range(n)]


def rows(n: int = N_ROWS) -> sp.csr_matrix:
    """Make sparse feature rows."""
    return sp.random(n, N_FEATURES, 0.15, format="csr", dtype=np.float32, random_state=2)


def make(folder: Path) -> None:
    """Train and save every model, unless it is there."""
    for name, (recipe, settings, input_kind, label_kind) in SEEDS.items():
        if not (folder / name / "config.json").exists():
            X = texts() if input_kind == "texts" else rows()
            Y, names = _labels(label_kind)
            model = build(recipe, {**settings, "threads": 1})
            model.fit(X, Y, label_names=names)
            if name in OWN_THRESHOLDS:
                own = LabelThresholds(np.arange(0, N_LABELS, 7, dtype=np.int32), np.linspace(0.01, 0.9, 86))
                model.calibration_ = model.calibration_.with_decision(0.4, 7, own)
            model.save(folder / name)


def _labels(kind: str) -> tuple[Any, Any]:
    """Return the labels of every row in one of the forms that models take."""
    numbers = [[i % N_LABELS, (7 * i) % N_LABELS] for i in range(N_ROWS)]
    if kind == "single":
        return np.array([row[0] for row in numbers]), None
    if kind == "names":
        return [[f"label {label}" for label in row] for row in numbers], None
    if kind == "keys":
        keys, names = [f"k{i}" for i in range(N_LABELS)], [f"näme {i}\n" for i in range(N_LABELS)]
        return [[keys[label] for label in row] for row in numbers], Labels(names, keys)
    Y = sp.lil_matrix((N_ROWS, N_LABELS), dtype=np.float32)
    for i, row in enumerate(numbers):
        Y[i, row] = 1.0
    return Y.tocsr(), None
