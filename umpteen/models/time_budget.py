"""Choose how much of a text an encoder reads, so that training ends in time (``training.time_budget``)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from umpteen.config import NeuralConfig
from umpteen.data.size import DataSize
from umpteen.engine import n_threads
from umpteen.models.work import Work

LENGTHS = (32, 64, 128, 256, 512)  # tokens that are compared
_COVERED = 0.95  # fraction of the texts that need not be truncated


def with_time_budget(config: NeuralConfig, X: Any, Y: sp.csr_matrix) -> NeuralConfig:
    """Replace ``encoder.max_length`` by the largest length with which the estimated time is within the budget.

    It is no larger than the texts need. If no length is short enough, it is the smallest. Without a budget the
    settings stay as they are.
    """
    budget = config.training.time_budget
    if not budget or config.network.reads == "features":
        return config
    data = DataSize.of(X, Y, config.tfidf)

    def with_length(length: int) -> NeuralConfig:
        return replace(config, encoder=replace(config.encoder, max_length=length))

    def is_in_time(length: int) -> bool:
        return Work.of(data, with_length(length)).seconds(n_threads(config.threads)) <= budget

    lengths = _lengths(data, config.encoder.windows)
    return with_length(next(filter(is_in_time, reversed(lengths)), lengths[0]))


def _lengths(data: DataSize, windows: int) -> list[int]:
    """Return the lengths of windows up to the first that nearly all texts fit into."""
    tokens = data.token_counts(windows * LENGTHS[-1])
    needed = float(np.quantile(tokens, _COVERED)) if len(tokens) else 0.0
    enough = next((length for length in LENGTHS if windows * length >= needed), LENGTHS[-1])
    return [length for length in LENGTHS if length <= enough]
