"""Settings of all recipes: frozen dataclasses whose fields have a default, a description and a range."""

from typing import Any

from umpteen.config.checked import describe, difference, from_dict, to_dict, update
from umpteen.config.linear import (
    UNCALIBRATED_THRESHOLD,
    CalibrationConfig,
    LinearConfig,
    ModelConfig,
    SearchConfig,
    StoreConfig,
    TfidfConfig,
    TreeConfig,
)
from umpteen.config.neural import (
    FEW_TEXTS,
    FEWER_IN_TRAINING,
    FEWEST_HELD_OUT,
    GRAPHS,
    LABELS_SOLVED_AT_ONCE,
    LABELS_STEPPED_AT_ONCE,
    MOST_HELD_OUT,
    NUMBERS_SUMMED_AT_ONCE,
    READERS,
    TOKENS_AT_ONCE,
    EncoderConfig,
    NetworkConfig,
    NeuralConfig,
    ReaderSpec,
    TrainingConfig,
)
from umpteen.config.serving import ServeConfig

__all__ = [
    "FEWER_IN_TRAINING",
    "FEWEST_HELD_OUT",
    "FEW_TEXTS",
    "GRAPHS",
    "LABELS_SOLVED_AT_ONCE",
    "LABELS_STEPPED_AT_ONCE",
    "MOST_HELD_OUT",
    "NUMBERS_SUMMED_AT_ONCE",
    "READERS",
    "TOKENS_AT_ONCE",
    "UNCALIBRATED_THRESHOLD",
    "CalibrationConfig",
    "EncoderConfig",
    "LinearConfig",
    "ModelConfig",
    "NetworkConfig",
    "NeuralConfig",
    "ReaderSpec",
    "SearchConfig",
    "ServeConfig",
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
