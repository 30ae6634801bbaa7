"""Extreme multi-label text classification: tag texts with labels from a vocabulary of thousands to tens of millions.

Names are imported on first use, so that ``import umpteen`` is fast.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_PLACES = {
    "umpteen.data": ("Dataset", "load_demo", "read"),
    "umpteen.data.tfidf": ("Tfidf",),
    "umpteen.evaluation": ("evaluate_model",),
    "umpteen.metrics": ("evaluate",),
    "umpteen.models": ("load",),
    "umpteen.models.ensemble": ("Ensemble",),
    "umpteen.models.network": (
        "AttentionXML", "CascadeDiSMEC", "CascadeXML", "ExtremeText", "FullHead", "LightXML", "XMLCNN",
    ),
    "umpteen.models.xrlinear": ("Bonsai", "DiSMEC", "PLT", "Parabel", "XRLinear"),
    "umpteen.models.xrtransformer": ("XRTransformer", "XTransformer"),
    "umpteen.shortlist": ("TopK",),
    "umpteen.tree": ("LabelTree",),
}  # fmt: skip
_SUBMODULES = ("data", "errors", "metrics", "models")  # attributes without an import of their own
_MODULES = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [*sorted(_MODULES), "__version__"]


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"umpteen.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module 'umpteen' has no attribute '{name}'")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
