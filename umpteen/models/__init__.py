"""Recipes: which level learns when. `RECIPES` lists them, `create` makes one, `load` opens a saved one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from umpteen import store
from umpteen.config import update
from umpteen.engine import Progress, silent
from umpteen.errors import BadConfig, BadModelFile, nearest
from umpteen.models.base import Model
from umpteen.models.network import XMLCNN, AttentionXML, CascadeDiSMEC, CascadeXML, ExtremeText, FullHead, LightXML
from umpteen.models.warmup import warmup
from umpteen.models.xrlinear import PLT, Bonsai, DiSMEC, Parabel, XRLinear
from umpteen.models.xrtransformer import XRTransformer, XTransformer

__all__ = [
    "PLT",
    "RECIPES",
    "XMLCNN",
    "AttentionXML",
    "Bonsai",
    "CascadeDiSMEC",
    "CascadeXML",
    "DiSMEC",
    "ExtremeText",
    "FullHead",
    "LightXML",
    "Model",
    "Parabel",
    "Progress",
    "XRLinear",
    "XRTransformer",
    "XTransformer",
    "create",
    "load",
    "silent",
    "warmup",
]  # fmt: skip

_LINEAR = (XRLinear, Parabel, Bonsai, PLT, DiSMEC)
_NETWORKS = (LightXML, CascadeXML, CascadeDiSMEC, FullHead, AttentionXML, XMLCNN, ExtremeText)
_NEURAL = (XRTransformer, XTransformer, *_NETWORKS)
RECIPES: dict[str, type[Model]] = {cls.recipe: cls for cls in (*_LINEAR, *_NEURAL)}


def create(recipe: str, settings: Mapping[str, Any] | None = None) -> Model:
    """Make an untrained model from a recipe's name and settings with dotted or nested keys.

    Examples
    --------
    >>> create("xr-linear", {"tree.branching": 16}).config.tree.branching
    16
    """
    if recipe not in RECIPES:
        known = ", ".join(RECIPES)
        raise BadConfig(f"the recipe must be one of {known}, but is {recipe!r}{nearest(str(recipe), RECIPES)}")
    cls = RECIPES[recipe]
    for key in settings or {}:
        _refuse_foreign(key, recipe)
    return cls.from_config(update(cls.defaults(), settings or {}))


def _refuse_foreign(key: str, recipe: str) -> None:
    """Say of a setting that other recipes have which ones do."""
    noun = key.partition(".")[0]
    having = [name for name, cls in RECIPES.items() if any(spec.name == noun for spec in fields(cls.config_class))]
    if having and recipe not in having:
        raise BadConfig(f"{recipe} has no setting '{key}'; those that have are {', '.join(having)}")


def load(path: str | os.PathLike[str], *, mmap: bool = True, verify: str = "arrays") -> Model:
    """Open a saved model of any recipe; see ``Model.load``."""
    stored = store.read(path, mmap=mmap)
    recipe = stored.config["recipe"]
    if recipe not in RECIPES:
        raise BadModelFile(f"'{path}' holds a model of the unknown recipe {recipe!r}; upgrade umpteen to open it")
    return RECIPES[recipe]._from_stored(stored, verify)
