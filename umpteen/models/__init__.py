"""Recipes and ensembles of them: `RECIPES` lists them, `create` makes one, `load` opens a saved one."""

from __future__ import annotations

import os

from umpteen import store
from umpteen.engine import Progress, silent
from umpteen.models.base import Model
from umpteen.models.ensemble import Ensemble, open_model
from umpteen.models.hub import local_folder
from umpteen.models.network import XMLCNN, AttentionXML, CascadeDiSMEC, CascadeXML, ExtremeText, FullHead, LightXML
from umpteen.models.recipes import RECIPES, create
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
    "Ensemble",
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


def load(
    path: str | os.PathLike[str], *, mmap: bool = True, verify: str = "arrays", backend: str | None = None
) -> Model | Ensemble:
    """Open a saved model of any recipe, or an ensemble, of a folder or of the hub; see ``Model.load``."""
    stored = store.read(local_folder(path), mmap=mmap)
    if stored.config["recipe"] == Ensemble.recipe:
        return Ensemble._from_stored(stored, verify)._on_backend(backend)
    return open_model(stored, verify)._on_backend(backend)
