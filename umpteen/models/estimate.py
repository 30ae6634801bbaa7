"""Say before training what it will take: memory and time, from sizes alone.

Memory is the sum of what the parts of a model say they allocate. Time is work divided by rates of a typical machine;
the remaining time that ``umpteen train`` shows is measured while it trains. ``umpteen plan`` shows the parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import scipy.sparse as sp

from umpteen.config import ModelConfig
from umpteen.data.size import DataSize
from umpteen.data.sparse import check_rows_match
from umpteen.engine import n_threads
from umpteen.models.work import Work


@dataclass(frozen=True)
class Estimate:
    """What a training run will take, roughly.

    Examples
    --------
    >>> str(Estimate(14_217, 200_000, 1_398_000, 537, memory_mb=48.6, seconds=1.3))
    '14,217 rows, 200,000 features, 537 labels: about 1 s and 49 MB of memory beyond the data'
    """

    n_rows: int
    n_features: int
    n_nonzeros: int
    n_labels: int
    memory_mb: float
    seconds: float
    device: str = ""  # where an encoder would run
    gpu_mb: float = 0.0  # memory there, where it is not that of the processor

    def __str__(self) -> str:
        time = f"{self.seconds:.0f} s" if self.seconds < 120 else f"{self.seconds / 60:.0f} min"
        where = f" with the encoder on {self.device}" if self.device else ""
        there = f", and {self.gpu_mb:,.0f} MB on the GPU" if self.gpu_mb else ""
        features = f"{self.n_features:,} features, " if self.n_features else ""  # some networks have no use for words
        labels = f"{self.n_labels:,} label" + "s" * (self.n_labels != 1)
        return (
            f"{self.n_rows:,} rows, {features}{labels}: "
            f"about {time}{where} and {self.memory_mb:,.0f} MB of memory beyond the data{there}"
        )

    @classmethod
    def of(cls, X: Any, Y: sp.csr_matrix, config: ModelConfig) -> Estimate:
        """Estimate from feature rows, or from the lengths of texts."""
        data = DataSize.of(X, Y, config.tfidf)
        check_rows_match(X, Y)
        return cls.of_size(data, config)

    @classmethod
    def of_size(cls, data: DataSize, config: ModelConfig) -> Estimate:
        """Estimate from sizes."""
        work = Work.of(data, config)
        data = work.data
        return cls(
            data.n_rows, data.n_features, data.n_nonzeros, data.n_labels,
            memory_mb=work.memory.total / 1e6, seconds=work.seconds(n_threads(config.threads)),
            device=work.device, gpu_mb=work.gpu_bytes / 1e6,
        )  # fmt: skip
