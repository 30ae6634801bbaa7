"""Say before training what it will take: memory and time, from sizes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import scipy.sparse as sp

from umpteen.config import ModelConfig
from umpteen.engine import n_threads
from umpteen.tree import shape

# Measured on one core of a 2024 server processor; other machines differ by a factor of two either way.
_SECONDS_PER_LANE_STEP = 2.5e-9  # one feature against sixteen labels, product and update
_SWEEPS = 6  # row steps per row until the solver stops, typical
_BYTES_PER_SECOND = 25e6  # text that one core turns into tf-idf rows
_LANES = 16


@dataclass(frozen=True)
class Estimate:
    """What a training run will take, roughly."""

    n_rows: int
    n_features: int
    n_nonzeros: int
    n_labels: int
    memory_mb: float
    seconds: float

    def __str__(self) -> str:
        time = f"{self.seconds:.0f} s" if self.seconds < 120 else f"{self.seconds / 60:.0f} min"
        return (
            f"{self.n_rows:,} rows, {self.n_features:,} features, {self.n_labels:,} labels: "
            f"about {time} and {self.memory_mb:,.0f} MB of memory beyond the data"
        )

    @classmethod
    def of(cls, X: Any, Y: sp.csr_matrix, config: ModelConfig) -> Estimate:
        """Estimate from a matrix, or from a sample of texts."""
        n_rows, n_labels = Y.shape
        threads = n_threads(config.threads)
        if sp.issparse(X) or isinstance(X, np.ndarray):
            n_features = int(X.shape[1])
            n_nonzeros = int(X.nnz) if sp.issparse(X) else int(np.count_nonzero(X))
            reading = 0.0
        else:
            n_features, n_nonzeros, reading = _from_texts(X, config, threads)
        counts = (*shape(n_labels, config.tree), 0)
        labels_per_row = max(1.0, Y.nnz / max(n_rows, 1))
        steps, n_groups, visits = 0.0, 1, 1.0
        for level, count in enumerate(counts):
            children = count or max(1, round(n_labels / n_groups))
            steps += n_nonzeros * visits * -(-children // _LANES)
            n_groups *= max(count, 1)
            visits = min(labels_per_row, n_groups)
            if level == len(counts) - 2 and "man" in config.linear.negatives:
                visits += config.linear.negatives_beam
        seconds = reading + config.trees * steps * _SWEEPS * _SECONDS_PER_LANE_STEP / threads
        working = threads * (4 * _LANES * (n_features + n_rows) + 8 * n_nonzeros * visits / max(n_groups, 1))
        model = 3.0 * min(n_nonzeros * labels_per_row, 60.0 * n_labels * n_nonzeros / max(n_rows, 1)) * config.trees
        texts = 12.0 * n_nonzeros if reading else 0.0
        return cls(n_rows, n_features, n_nonzeros, n_labels, (working + model + texts) / 1e6, seconds)


def _from_texts(texts: Sequence[str], config: ModelConfig, threads: int) -> tuple[int, int, float]:
    """Guess features and non-zeros from a sample: about six bytes a word, most terms of a text distinct."""
    sample = [len(text) for text in islice((text for text in texts if isinstance(text, str)), 1_000)]
    mean = float(np.mean(sample)) if sample else 0.0
    lengths = config.tfidf.ngram_max - config.tfidf.ngram_min + 1
    per_row = mean / 6.0 * lengths * 0.7
    total = int(per_row * len(texts))
    limit = config.tfidf.max_features or total
    return min(limit, max(total // 4, 1)), total, mean * len(texts) * lengths / _BYTES_PER_SECOND / threads
