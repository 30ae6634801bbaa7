"""Settings: one frozen dataclass per noun, every field with a default, a sentence and a range.

Knows nothing about data, files or models.
"""

from __future__ import annotations

from typing import Any

from umpteen.config.checked import describe, difference, from_dict, to_dict, update
from umpteen.config.linear import (
    LinearConfig,
    ModelConfig,
    SearchConfig,
    StoreConfig,
    TfidfConfig,
    TreeConfig,
)  # fmt: skip
from umpteen.config.neural import (
    FEW_TEXTS,
    FEWER_IN_TRAINING,
    FEWEST_HELD_OUT,
    LABELS_SOLVED_AT_ONCE,
    LABELS_STEPPED_AT_ONCE,
    MOST_HELD_OUT,
    READERS,
    TOKENS_AT_ONCE,
    EncoderConfig,
    NetworkConfig,
    NeuralConfig,
    ReaderSpec,
    TrainingConfig,
)

__all__ = [
    "FEWER_IN_TRAINING",
    "FEWEST_HELD_OUT",
    "FEW_TEXTS",
    "LABELS_SOLVED_AT_ONCE",
    "LABELS_STEPPED_AT_ONCE",
    "MOST_HELD_OUT",
    "READERS",
    "TOKENS_AT_ONCE",
    "EncoderConfig",
    "LinearConfig",
    "ModelConfig",
    "NetworkConfig",
    "NeuralConfig",
    "ReaderSpec",
    "SearchConfig",
    "StoreConfig",
    "TfidfConfig",
    "TrainingConfig",
    "TreeConfig",
    "describe",
    "describe_all",
    "difference",
    "from_dict",
    "to_dict",
    "update",
]


def describe_all() -> list[tuple[str, str, Any, str]]:
    """List the settings of all recipes, each once."""
    return describe(NeuralConfig)
