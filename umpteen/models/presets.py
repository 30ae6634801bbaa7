"""The paper's settings for its six datasets, as differences from the recipe.

Steps are written as passes over the texts (steps × 256 texts / number of texts), which is what they come to on the
paper's machine. Where the paper trains several encoders, ``encoders`` names them; an ensemble of them is its final
row. The ranker's costs and beams are those of the published configurations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from umpteen.errors import BadConfig, nearest
from umpteen.models.ensemble import Ensemble
from umpteen.models.recipes import create, with_seed

_BERT, _ROBERTA, _XLNET = "bert-base-uncased", "roberta-base", "xlnet-base-cased"

# What all six have in common: the recipe as the paper has it, without our changes to it.
_PAPER: dict[str, Any] = {
    "encoder.name": _BERT,
    "encoder.pooling": "cls",
    "training.batch_size": 256,
    "training.weight_decay": 0.0,
    "training.init_cost": 100.0,
    "linear.relevance": "induce-l1",
    "linear.negatives": "tfn+man",
    "linear.threshold": 0.001,
    "linear.eps": 0.1,
    "linear.max_iter": 100,
    "linear.cost": 1.0,
    "linear.negatives_beam": 5,
    "features": "both",
    "embedding_weight": 1.0,
    "head_weight": 0.0,
    "network.head": "tree",
    "training.loss": "squared-hinge",
    "training.negatives": "tfn+man",
    "training.validation_fraction": 0.0,
    "tree.kind": "kmeans",
}


class Preset(NamedTuple):
    """One row of the paper's tables: settings, the encoders of its ensemble, how they vote, and its P@1, 3, 5."""

    settings: dict[str, Any]
    encoders: tuple[str, ...]
    seeds: tuple[int, ...]
    ensemble: str
    published: tuple[float, float, float]


def _preset(encoders: tuple[str, ...], ensemble: str, published: tuple[float, float, float], **nouns: Any) -> Preset:
    """Write nested settings as dotted ones; equal encoders differ by their seed."""
    own = {f"{noun}.{key}": value for noun, values in nouns.items() for key, value in values.items()}
    return Preset({**_PAPER, **own}, encoders, tuple(range(len(encoders))), ensemble, published)


PRESETS: dict[str, Preset] = {
    "eurlex-4k": _preset(
        (_BERT, _ROBERTA, _XLNET), "softmax-average", (88.41, 75.97, 63.18),
        encoder={"max_length": 128},
        network={"levels": (16, 256), "beam": (5,)},
        training={"epochs": (10, 13, 20), "learning_rate": 5e-5, "head_learning_rate": 5e-5},
        tree={"branching": 8, "leaf_size": 16},
        linear={"cost_positive": 2.0, "cost_negative": 4.0},
        search={"beams": (75, 75, 100)},
    ),
    "wiki10-31k": _preset(
        (_BERT, _ROBERTA, _XLNET), "rank-average", (88.69, 80.17, 70.91),
        encoder={"max_length": 256},
        network={"levels": (128, 2_048), "beam": (20,)},
        training={"epochs": (18, 18, 7), "learning_rate": 5e-5, "head_learning_rate": 5e-5},
        tree={"branching": 16, "leaf_size": 16},
        linear={"cost_positive": 4.0},
        search={"beam": 100},
    ),
    "amazoncat-13k": _preset(
        (_BERT, _ROBERTA, _XLNET), "softmax-average", (96.79, 83.66, 68.04),
        encoder={"max_length": 256},
        network={"levels": (128, 1_024), "beam": (50,), "dropout": (0.05,)},
        training={"epochs": (1.1, 2.2, 6.5), "learning_rate": 5e-5, "head_learning_rate": 5e-5},
        tree={"branching": 8, "leaf_size": 16},
        linear={"cost_positive": 0.25, "cost_negative": 0.5, "threshold": 0.0001, "eps": 0.01},
        search={"beams": (75, 100, 200)},
    ),
    "wiki-500k": _preset(
        (_BERT,) * 3, "sigmoid-average", (79.40, 59.02, 46.25),
        encoder={"max_length": 128},
        network={"levels": (64, 512, 4_096, 32_768), "beam": (5,)},
        training={"epochs": (1.4, 1.4, 2.9, 2.9), "learning_rate": 1e-4, "head_learning_rate": 1e-4},
        tree={"branching": 32, "leaf_size": 100},
        linear={"cost_positive": 4.0},
        search={"beam": 50},
    ),
    "amazon-670k": _preset(
        (_BERT,) * 3, "softmax-average", (50.11, 44.56, 40.64),
        encoder={"max_length": 128},
        network={"levels": (128, 2_048, 32_768), "beam": (5,)},
        training={"epochs": (2.1, 2.1, 6.3), "learning_rate": 1e-4, "head_learning_rate": 1e-4, "relevance": "none"},
        tree={"branching": 32, "leaf_size": 100},
        linear={"relevance": "none"},
        search={"beam": 75},
    ),
    "amazon-3m": _preset(
        (_BERT,) * 3, "rank-average", (54.20, 50.81, 48.26),
        encoder={"max_length": 128},
        network={"levels": (128, 2_048, 32_768), "beam": (20,)},
        training={"epochs": (1.5, 1.5, 1.5), "learning_rate": 1e-4, "head_learning_rate": 1e-4},
        tree={"branching": 32, "leaf_size": 100},
        linear={"cost_positive": 8.0},
        search={"beam": 50},
    ),
}  # fmt: skip


def preset(name: str) -> Preset:
    """Return the paper's settings for a dataset.

    Examples
    --------
    >>> preset("wiki10-31k").settings["network.levels"]
    (128, 2048)
    """
    if name not in PRESETS:
        raise BadConfig(f"the preset must be one of {', '.join(PRESETS)}, but is {name!r}{nearest(name, PRESETS)}")
    return PRESETS[name]


def preset_ensemble(
    name: str,
    settings: Mapping[str, Any] | None = None,
    *,
    recipe: str = "xr-transformer",
    rule: str | None = None,
    weights: Sequence[float] | None = None,
) -> Ensemble:
    """Make the untrained ensemble of the paper for a dataset: a model for each encoder, merged by the paper's rule.

    Settings take precedence over the paper's; the name of the encoder does not.

    Examples
    --------
    >>> [(model.config.encoder.name, model.seed) for model in preset_ensemble("eurlex-4k").models]
    [('bert-base-uncased', 0), ('roberta-base', 1), ('xlnet-base-cased', 2)]
    """
    chosen = preset(name)
    shared = {**chosen.settings, **(settings or {})}
    members = zip(chosen.encoders, chosen.seeds, strict=True)
    models = [with_seed(create(recipe, shared | {"encoder.name": encoder}), seed) for encoder, seed in members]
    return Ensemble(models, rule or chosen.ensemble, weights)
