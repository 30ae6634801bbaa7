"""A corpus of eight texts, and trees of linear classifiers with random weights."""

from __future__ import annotations

import numpy as np

from umpteen.config import SearchConfig
from umpteen.linear import Level, LinearTree
from umpteen.tree import LabelTree

N_FEATURES = 12
TEXTS = ["red apple pie", "green apple", "ripe plum", "plum jam", "old car", "fast car", "new bike", "red bike"]
LABELS = [
    ["apples"],
    ["apples", "green"],
    ["plums"],
    ["plums", "jam"],
    ["cars"],
    ["cars", "speed"],
    ["bikes"],
    ["bikes"],
]


def random_head(rng: np.random.Generator, tree: LabelTree, weights: str, search: SearchConfig) -> LinearTree:
    """Return a tree whose nodes have weights for about half of the features."""
    levels = []
    for size in tree.sizes:
        features, nodes = np.nonzero(rng.random((N_FEATURES, size)) < 0.5)
        order = np.argsort(nodes, kind="stable")
        values = rng.normal(size=len(nodes)).astype(np.float32)
        bias = rng.normal(size=size).astype(np.float32)
        levels.append(Level(features[order].astype(np.int32), nodes[order].astype(np.int32), values, bias))
    return LinearTree.pack(levels, tree, N_FEATURES, search, weights=weights)
