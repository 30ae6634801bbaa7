"""Settings of papers for their datasets, as differences from the recipe: XR-Transformer, LightXML and CascadeXML.

Steps are written as passes over the texts (steps × texts per step / number of texts), which is what they come to on the
papers' machines. Where a paper trains several encoders, ``encoders`` names them; an ensemble of them is its final row.
The costs and beams of XR-Transformer's ranker are those of the published configurations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from umpteen.errors import BadConfig, nearest
from umpteen.models.ensemble import Ensemble
from umpteen.models.recipes import create, with_seed

_BERT, _ROBERTA, _XLNET = "bert-base-uncased", "roberta-base", "xlnet-base-cased"

# What all datasets of a paper have in common: the recipe as the paper has it, without our changes to it.
_XR_TRANSFORMER: dict[str, Any] = {
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
    "search.upper_beam": 1.0,
    "features": "both",
    "embedding_weight": 1.0,
    "head_weight": 0.0,
    "network.head": "tree",
    "training.loss": "squared-hinge",
    "training.negatives": "tfn+man",
    "training.validation_fraction": 0.0,
    "tree.kind": "kmeans",
}


_NETWORK: dict[str, Any] = {
    "encoder.name": _BERT,
    "encoder.pooling": "cls",
    "training.learning_rate": 1e-4,
    "training.init": "random",
}
_LIGHTXML: dict[str, Any] = {
    **_NETWORK,
    "training.head_learning_rate": 1e-4,
    "training.weight_decay": 0.01,
    "training.head_weight_decay": 0.01,
    "training.lr_schedule": "constant",
    "network.pooling": "last5",
    "network.dropout": (0.5,),
}
_CASCADEXML: dict[str, Any] = {
    **_NETWORK,
    "training.head_learning_rate": 1e-3,
    "training.weight_decay": 0.05,
    "training.head_weight_decay": 0.005,
    "training.lr_schedule": "plateau",
    "training.batch_size": 256,
    "network.sparse_update_from": 1_000_000,  # Amazon-3M only
}


class Preset(NamedTuple):
    """One row of a paper's tables: settings, the encoders of its ensemble, how they vote, and its P@1, 3, 5."""

    settings: dict[str, Any]
    encoders: tuple[str, ...]
    seeds: tuple[int, ...]
    ensemble: str
    published: tuple[float, float, float]


def _preset(
    encoders: tuple[str, ...], ensemble: str, published: tuple[float, float, float],
    common: Mapping[str, Any] = _XR_TRANSFORMER, **nouns: Any,
) -> Preset:  # fmt: skip
    """Write nested settings as dotted ones; equal encoders differ by their seed."""
    own = {f"{noun}.{key}": value for noun, values in nouns.items() for key, value in values.items()}
    return Preset({**common, **own}, encoders, tuple(range(len(encoders))), ensemble, published)


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


# Epochs and batch sizes are those of the paper's Table 1; the fraction of epochs after which weights are averaged, and
# the number of clusters that are kept, are those of the published configurations.
LIGHTXML: dict[str, Preset] = {
    "eurlex-4k": _preset(
        (_BERT, _ROBERTA, _XLNET), "average", (87.63, 75.89, 63.36), _LIGHTXML,
        encoder={"max_length": 512},
        training={"epochs": (20.0,), "batch_size": 16, "swa_start": 10 / 20},
    ),
    "wiki10-31k": _preset(
        (_BERT, _XLNET, _ROBERTA), "average", (89.45, 78.96, 69.85), _LIGHTXML,
        encoder={"max_length": 512},
        network={"few_labels": 31_000},  # one classifier per label
        training={"epochs": (30.0,), "batch_size": 16, "swa_start": 10 / 30},
    ),
    "amazoncat-13k": _preset(
        (_BERT, _ROBERTA, _XLNET), "average", (96.77, 84.02, 68.70), _LIGHTXML,
        encoder={"max_length": 512},
        training={"epochs": (5.0,), "batch_size": 16, "swa_start": 2 / 5},
    ),
    "wiki-500k": _preset(
        (_BERT,) * 3, "average", (77.78, 58.85, 45.57), _LIGHTXML,
        encoder={"max_length": 128},
        network={"levels": (8_192,), "beam": (32,), "bottleneck": 500},
        training={"epochs": (10.0,), "batch_size": 32, "swa_start": 4 / 10},
    ),
    "amazon-670k": _preset(
        (_BERT,) * 3, "average", (49.10, 43.83, 39.85), _LIGHTXML,
        encoder={"max_length": 128},
        network={"levels": (8_192,), "beam": (75,), "bottleneck": 400},
        training={"epochs": (15.0,), "batch_size": 16, "swa_start": 4 / 15},
    ),
}  # fmt: skip

_FOUR_LEVELS = {"levels": (1_024, 8_192, 65_536), "pooling": "cls@5+6,cls@8,cls@10,cls@12"}

# Table 9 of the paper. A beam is the number of nodes whose children are as many as the shortlists of that table. The
# published precisions are those of the ensemble with linear classifiers on tf-idf and embeddings (cascadexml-dismec).
CASCADEXML: dict[str, Preset] = {
    "wiki10-31k": _preset(
        (_BERT,) * 3, "average", (89.18, 79.71, 71.19), _CASCADEXML,
        encoder={"max_length": 256},
        network={
            "levels": (512, 4_096), "pooling": "cls@9+10,cls@11,cls@12", "beam": (64, 64), "dropout": (0.3, 0.3, 0.4),
            "score": "weighted",
        },
        training={"epochs": (15.0,), "warmup": 2 / 15},
    ),
    "amazoncat-13k": _preset(
        (_BERT,) * 3, "average", (96.71, 84.07, 68.69), _CASCADEXML,
        encoder={"max_length": 256},
        network={
            "levels": (256, 2_048), "pooling": "cls@7+8,cls@10,cls@12", "beam": (32, 40), "dropout": (0.2, 0.3, 0.4),
            "score": "level",
        },
        training={"epochs": (6.0,), "warmup": 1 / 6},
    ),
    "wiki-500k": _preset(
        (_BERT,) * 3, "average", (81.13, 62.43, 49.12), _CASCADEXML,
        encoder={"max_length": 128},
        network={**_FOUR_LEVELS, "beam": (128, 256, 512), "dropout": (0.2, 0.25, 0.35, 0.5), "score": "level"},
        training={"epochs": (12.0,), "warmup": 1 / 12},
    ),
    "amazon-670k": _preset(
        (_BERT,) * 3, "average", (52.15, 46.54, 42.44), _CASCADEXML,
        encoder={"max_length": 128},
        network={**_FOUR_LEVELS, "beam": (128, 256, 400), "dropout": (0.2, 0.25, 0.4, 0.5), "score": "weighted"},
        training={"epochs": (15.0,), "warmup": 1 / 15},
    ),
    "amazon-3m": _preset(
        (_BERT,) * 3, "average", (53.91, 51.24, 49.52), _CASCADEXML,
        encoder={"max_length": 128},
        network={**_FOUR_LEVELS, "beam": (128, 256, 96), "dropout": (0.2, 0.25, 0.3, 0.5), "score": "weighted"},
        training={"epochs": (15.0,), "warmup": 1 / 15},
    ),
}  # fmt: skip

BY_RECIPE: dict[str, dict[str, Preset]] = {
    "xr-transformer": PRESETS,
    "x-transformer": PRESETS,
    "lightxml": LIGHTXML,
    "cascadexml": CASCADEXML,
    "cascadexml-dismec": CASCADEXML,
}


def preset(name: str, recipe: str = "xr-transformer") -> Preset:
    """Return the settings of the recipe's paper for a dataset.

    Examples
    --------
    >>> preset("wiki10-31k").settings["network.levels"]
    (128, 2048)
    >>> preset("amazon-670k", "lightxml").settings["network.beam"]
    (75,)
    """
    if recipe not in BY_RECIPE:
        raise BadConfig(
            f"there are presets for {', '.join(BY_RECIPE)}, but the recipe is {recipe}; leave the preset out, or "
            "choose one of these recipes"
        )
    known = BY_RECIPE[recipe]
    if name not in known:
        hint = nearest(name, known)
        raise BadConfig(f"the preset must be one of {', '.join(known)} for {recipe}, but is {name!r:.80}{hint}")
    return known[name]


def preset_ensemble(
    name: str,
    settings: Mapping[str, Any] | None = None,
    *,
    recipe: str = "xr-transformer",
    rule: str | None = None,
    weights: Sequence[float] | None = None,
) -> Ensemble:
    """Make the untrained ensemble of a paper for a dataset: a model for each encoder, merged by the paper's rule.

    Settings take precedence over the paper's; the name of the encoder does not.

    Examples
    --------
    >>> [(model.config.encoder.name, model.seed) for model in preset_ensemble("eurlex-4k").models]
    [('bert-base-uncased', 0), ('roberta-base', 1), ('xlnet-base-cased', 2)]
    """
    chosen = preset(name, recipe)
    shared = {**chosen.settings, **(settings or {})}
    members = zip(chosen.encoders, chosen.seeds, strict=True)
    models = [with_seed(create(recipe, shared | {"encoder.name": encoder}), seed) for encoder, seed in members]
    return Ensemble(models, rule or chosen.ensemble, weights)
