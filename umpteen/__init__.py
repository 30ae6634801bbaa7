"""Tag text with labels from a vocabulary of thousands to tens of millions.

Names are loaded when they are first used, so ``import umpteen`` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "XRLinear": "umpteen.models.xrlinear",
    "Parabel": "umpteen.models.xrlinear",
    "Bonsai": "umpteen.models.xrlinear",
    "PLT": "umpteen.models.xrlinear",
    "DiSMEC": "umpteen.models.xrlinear",
    "XRTransformer": "umpteen.models.xrtransformer",
    "XTransformer": "umpteen.models.xrtransformer",
    "LightXML": "umpteen.models.network",
    "CascadeXML": "umpteen.models.network",
    "CascadeDiSMEC": "umpteen.models.network",
    "FullHead": "umpteen.models.network",
    "XMLCNN": "umpteen.models.network",
    "AttentionXML": "umpteen.models.network",
    "ExtremeText": "umpteen.models.network",
    "Ensemble": "umpteen.models.ensemble",
    "load": "umpteen.models",
    "Dataset": "umpteen.data",
    "read": "umpteen.data",
    "load_demo": "umpteen.data",
    "TopK": "umpteen.shortlist",
    "Tfidf": "umpteen.data.tfidf",
    "LabelTree": "umpteen.tree",
    "evaluate": "umpteen.metrics",
    "evaluate_model": "umpteen.evaluation",
}

__all__ = [*sorted(_HOMES), "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'umpteen' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
