"""Rename the settings, and the arrays of networks, of earlier model formats."""

import re
from collections.abc import Mapping
from typing import Any

# Old group and name of a setting: its present name. Other settings are unchanged.
_FORMAT_1 = {
    "encoder": {"tokens": "encoder.max_length"},
    "finetune": {
        "levels": "network.levels", "branching": "network.branching", "cluster": "network.labels_per_cluster",
        "max_nodes": "network.max_nodes", "dropout": "network.dropout", "negatives_beam": "network.beam",
        "epochs": "training.epochs", "batch_size": "training.batch_size", "rate": "training.learning_rate",
        "head_rate": "training.head_learning_rate", "warmup": "training.warmup",
        "weight_decay": "training.weight_decay", "clip": "training.max_grad_norm", "loss": "training.loss",
        "negatives": "training.negatives", "relevance": "training.relevance", "alpha": "training.alpha",
        "bootstrap": "training.init", "bootstrap_cost": "training.init_cost",
        "held_out": "training.validation_fraction", "patience": "training.patience",
        "record": "training.cuda_graphs", "recompute": "encoder.gradient_checkpointing",
    },
    "net": {
        "kind": "network.head", "reader": "network.reader", "hidden": "network.hidden", "levels": "network.levels",
        "depth": "network.depth", "branching": "network.branching", "few_labels": "network.few_labels",
        "pooling": "network.pooling", "dropout": "network.dropout", "bottleneck": "network.bottleneck",
        "by_row": "network.sparse_update_from", "beam": "network.beam", "score": "network.score",
        "order": "training.order", "epochs": "training.epochs", "batch_size": "training.batch_size",
        "begin": "training.init", "rate": "training.learning_rate", "head_rate": "training.head_learning_rate",
        "schedule": "training.lr_schedule", "warmup": "training.warmup", "weight_decay": "training.weight_decay",
        "head_decay": "training.head_weight_decay", "clip": "training.max_grad_norm",
        "average_from": "training.swa_start", "record": "training.cuda_graphs",
    },
}  # fmt: skip
_VALUES = {
    "network.head": {"cascade": "tree"},
    "training.order": {"at-once": "joint", "one-reader": "shared-reader"},
    "training.init": {"texts": "lda", "shares": "prior", True: "newton", False: "random"},
}
_ARRAYS = (
    (r"^(weight|bias)$", r"heads.0.\1"), (r"^standard\.", "heads.0.whitening."), (r"^scorers\.", "heads."),
    (r"\.standard\.", ".whitening."), (r"\.whitening\.centre$", ".whitening.mean"),
    (r"\.whitening\.turn$", ".whitening.matrix"), (r"\.narrow\.", ".bottleneck."), (r"\.onward\.", ".forward_lstm."),
    (r"\.back\.", ".backward_lstm."),
)  # fmt: skip
_LISTS = ("network.dropout", "network.beam", "training.epochs")  # single numbers in format 1


def from_format_1(config: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the settings of a model of format 1; malformed entries are kept and refused by later checks."""
    settings = config.get("settings")
    if not isinstance(settings, dict):
        return dict(config)
    found: dict[str, Any] = {}
    for group, values in settings.items():
        if group not in _FORMAT_1 or not isinstance(values, dict):
            found[group] = {**found[group], **values} if isinstance(found.get(group), dict) else values
            continue
        for name, value in values.items():
            new_group, _, new_name = _FORMAT_1[group].get(name, f"{group}.{name}").partition(".")
            found.setdefault(new_group, {})[new_name] = _value(f"{new_group}.{new_name}", value)
    if "finetune" in settings:
        found.setdefault("network", {})["depth"] = 0
        found.setdefault("training", {})["order"] = "coarse-to-fine"
    meta = config.get("meta")
    return {**config, "settings": found, "meta": {**meta, "arrays": 1} if isinstance(meta, dict) else meta}


def from_format_2(config: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out an embedding weight that was to be chosen: a model that uses one has stored a number."""
    settings = config.get("settings")
    if not isinstance(settings, dict) or settings.get("embedding_weight", 0) is not None:
        return dict(config)
    return {**config, "settings": {name: value for name, value in settings.items() if name != "embedding_weight"}}


def from_format_3(config: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the bound of the solver's memory, which is an argument of ``fit`` and no setting of a model."""
    settings, meta = config.get("settings"), config.get("meta")
    changed = dict(config)
    if isinstance(settings, dict) and isinstance(linear := settings.get("linear"), dict):
        kept = {name: value for name, value in linear.items() if name != "memory_gb"}
        changed["settings"] = {**settings, "linear": kept}
    if isinstance(meta, dict) and isinstance(given := meta.get("given"), dict):
        changed["meta"] = {**meta, "given": {key: value for key, value in given.items() if key != "linear.memory_gb"}}
    return changed


def from_format_4(config: Mapping[str, Any]) -> dict[str, Any]:
    """Keep as many nodes at every level, as these models did; later ones keep more at the levels further up."""
    settings = config.get("settings")
    if not isinstance(settings, dict) or not isinstance(search := settings.get("search"), dict):
        return dict(config)
    return {**config, "settings": {**settings, "search": {"upper_beam": 1.0, **search}}}


def _value(name: str, value: Any) -> Any:
    """Return the present spelling of a value."""
    if name in _LISTS and isinstance(value, (int, float)):
        return [value]
    return _VALUES.get(name, {}).get(value, value) if isinstance(value, (str, bool)) else value


def array_from_format_1(name: str) -> str:
    """Return the present name of a network's array.

    Examples
    --------
    >>> array_from_format_1("scorers.1.standard.turn"), array_from_format_1("weight")
    ('heads.1.whitening.matrix', 'heads.0.weight')
    """
    for pattern, replacement in _ARRAYS:
        name = re.sub(pattern, replacement, name)
    return name
