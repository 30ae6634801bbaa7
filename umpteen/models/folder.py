"""A linear model on disk: which of its parts goes into which file of the folder.

Knows the model's parts and the store; knows nothing about training or prediction.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from umpteen import store
from umpteen.config import ModelConfig, from_dict, to_dict
from umpteen.data.labels import Labels
from umpteen.errors import BadInput, BadModelFile
from umpteen.features.tfidf import Tfidf
from umpteen.heads import LinearTree
from umpteen.models.inputs import Targets
from umpteen.models.training import tree_arrays, tree_from


class Parts(NamedTuple):
    """Everything a fitted linear model consists of."""

    config: ModelConfig
    targets: Targets
    tfidf: Tfidf | None
    n_features: int
    heads: list[LinearTree]


def write(path: str | os.PathLike[str], parts: Parts) -> None:
    """Save the parts, atomically."""
    arrays = {f"tree-{i}": {**head.arrays, **tree_arrays(head.tree)} for i, head in enumerate(parts.heads)}
    if parts.tfidf is not None:
        arrays["tfidf"] = parts.tfidf.arrays()
    labels, extra = parts.targets.labels, {}
    if not labels.is_numbered and labels.keys() != labels.names():
        extra["keys.txt"] = store.format_labels(labels.keys())
    settings = to_dict(parts.config)
    del settings["threads"]  # a property of the machine, not of the model
    meta = {
        "n_labels": len(labels),
        "n_features": parts.n_features,
        "trees": len(parts.heads),
        "targets": {"kind": parts.targets.kind, "dtype": parts.targets.dtype},
    }
    config = {"recipe": parts.config.recipe, "settings": settings, "meta": meta}
    store.write(path, config=config, arrays=arrays, labels=parts.targets.names, extra=extra)


def read(stored: store.Stored) -> Parts:
    """Return the parts of an open folder."""
    try:
        return _parts(stored, stored.config["meta"])
    except BadModelFile:
        raise
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise BadModelFile(f"'{stored.path}' is not a whole umpteen model ({error}); save it again") from error


def _parts(stored: store.Stored, meta: Mapping[str, Any]) -> Parts:
    config = from_dict(ModelConfig, {**stored.config["settings"], "recipe": stored.config["recipe"]})
    n_features = int(meta["n_features"])
    labels = _labels(stored, int(meta["n_labels"]))
    heads = [_head(stored.arrays(f"tree-{i}"), n_features, config) for i in range(int(meta["trees"]))]
    if not heads or any(head.tree.n_labels != len(labels) for head in heads):
        raise BadInput(f"its trees do not fit its {len(labels)} labels")
    tfidf = Tfidf.from_arrays(config.tfidf, stored.arrays("tfidf")) if "tfidf" in stored.stems else None
    if tfidf is not None and tfidf.n_features != n_features:
        raise BadInput(f"its tf-idf has {tfidf.n_features} terms where {n_features} were saved")
    return Parts(config, Targets(labels, **meta["targets"]), tfidf, n_features, heads)


def _head(arrays: Mapping[str, np.ndarray], n_features: int, config: ModelConfig) -> LinearTree:
    weights = {name: arrays[name] for name in LinearTree.KERNEL}
    return LinearTree(weights, tree_from(arrays), n_features, config.search)


def _labels(stored: store.Stored, n_labels: int) -> Labels:
    if stored.labels is None:
        return Labels.numbered(n_labels)
    keys = store.parse_labels(stored.content("keys.txt"), stored.path) if "keys.txt" in stored.extra else None
    labels = Labels(stored.labels, keys)
    if len(labels) != n_labels:
        raise BadInput(f"it names {len(labels)} labels where {n_labels} were saved")
    return labels
