"""Say before training what it will take: memory and time, from sizes alone.

Memory is the sum of what the parts of a model say they allocate. Time is work divided by rates of a typical machine;
the remaining time that ``umpteen train`` shows is measured while it trains.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from umpteen.config import FEW_TEXTS, ModelConfig, NeuralConfig
from umpteen.config.linear import has_ranker
from umpteen.data.size import DataSize
from umpteen.data.sparse import check_rows_match
from umpteen.engine import n_threads
from umpteen.errors import MissingExtra
from umpteen.linear.size import LOGISTIC, TreeSize
from umpteen.models.folder import encoders
from umpteen.models.ranker import uses_words
from umpteen.tree import cluster_bytes, shape

if TYPE_CHECKING:
    from umpteen.neural.size import NetworkSize

# Seconds on one core of a 2024 server processor
_PER_CHARACTER = 3e-8  # of a text that becomes a tf-idf row and tokens
_PER_CLUSTERED = 5e-7  # of a feature of a label that is clustered
_PER_LABEL = 2.6e-6  # in each tree, whether or not a row has it
_PER_VISIT = 6e-9  # of a feature of a row for sixteen labels, until the solver stops
_ROW = 100  # features that a row counts as by itself
_PER_STEP = 0.01  # of an optimiser, at least, on any device
_SHARED = 0.6  # so many threads to this power are as fast as so many cores
_FLOPS = {"cpu": 5e10, "mps": 2e12, "cuda": 1.2e14}  # per second, of one core or of a GPU
_LIBRARY_BYTES = {"cpu": 3.5e8, "mps": 3.5e8, "cuda": 2e9}  # torch, transformers, and what drives a GPU


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
        network = None
        if isinstance(config, NeuralConfig):
            network = _network_size(config.with_features(data.n_labels), data)
            config = network.config
            if not (has_ranker(config) or config.network.reads == "features" or uses_words(config, data.n_labels)):
                data = data._replace(n_features=0, n_nonzeros=0)
        parts = [_reading(data, config), _trees(data, config, network), *([_network(data, network)] if network else [])]
        return cls(
            data.n_rows, data.n_features, data.n_nonzeros, data.n_labels,
            memory_mb=sum(part.n_bytes for part in parts) / 1e6,
            seconds=sum(part.seconds for part in parts),
            device="".join(part.device for part in parts),
            gpu_mb=sum(part.gpu_bytes for part in parts) / 1e6,
        )  # fmt: skip


class _Part(NamedTuple):
    """What one part of the work takes."""

    seconds: float
    n_bytes: float
    gpu_bytes: float = 0.0
    device: str = ""


def _reading(data: DataSize, config: ModelConfig) -> _Part:
    """Return what it takes to turn texts into tf-idf rows."""
    return _Part(_PER_CHARACTER * float(data.lengths.sum()) / _cores(config), data.tfidf_bytes)


def _trees(data: DataSize, config: ModelConfig, network: NetworkSize | None) -> _Part:
    """Return what it takes to cluster the labels and to train linear classifiers."""
    threads, is_ranked, n_rankers = n_threads(config.threads), has_ranker(config), _count_rankers(config)
    n_dense = network.ranker_width if network and is_ranked else 0
    n_kept = data.count_entries(config.tree.max_features) + data.n_labels * n_dense  # of label vectors
    clusters = network.levels[:-1] if network and not is_ranked else shape(data.n_labels, config.tree)
    seconds = n_bytes = 0.0
    if clusters:
        seconds = config.trees * (n_kept * _PER_CLUSTERED / _cores(config) + data.n_labels * _PER_LABEL)
        n_bytes = cluster_bytes(n_kept, data.n_features, data.n_labels, config.tree, threads)
    if is_ranked:
        tree = TreeSize.of(data, n_dense, config, threads)
        each = (data.per_row + n_dense + _ROW) * _PER_VISIT * (LOGISTIC if config.linear.loss == "logistic" else 1.0)
        seconds += n_rankers * config.trees * tree.n_visits * each / _cores(config)
        vectors = 8.0 * n_dense * data.n_rows  # as they are read, and as they are weighted beside tf-idf
        n_bytes = max(n_bytes, tree.training_bytes(config.trees)) + vectors + 8.0 * (n_rankers - 1) * data.n_nonzeros
    return _Part(seconds, n_bytes)


def _network(data: DataSize, size: NetworkSize) -> _Part:
    """Return what it takes to train a network, or to fine-tune an encoder."""
    config, device, is_bag = size.config, size.device, size.config.network.reads == "features"
    tokens = data.token_counts(0 if is_bag else config.encoder.max_tokens)
    n_tokens, longest = float(tokens.sum()), int(tokens.max(initial=0))
    rate = _FLOPS[device] * (n_threads(config.threads) if device == "cpu" else 1)
    n_steps = sum(size.epochs) * data.n_rows / config.training.batch_size
    seconds = size.count_flops(data.n_rows, n_tokens) / rate + n_steps * _PER_STEP
    copies = 12.0 if config.is_recursive else 4.0  # of classifiers: three in float32, or two in half precision
    held = _LIBRARY_BYTES[device] + 8.0 * n_tokens + copies * size.node_width * sum(size.levels)
    inputs = 4.0 * n_tokens + 12.0 * (is_bag * data.n_nonzeros + len(size.levels) * data.n_positives)
    trained = inputs + size.training_bytes(data.n_rows, longest)
    on_cpu, on_gpu = (held + trained, 0.0) if device == "cpu" else (held, trained)
    return _Part(seconds, on_cpu, on_gpu, "" if is_bag else device)


def _network_size(config: NeuralConfig, data: DataSize) -> NetworkSize:
    """Return the size of a network, with the settings that training would choose from the data."""
    from umpteen.neural.size import NetworkSize, encoder_width  # for networks only

    tokens = data.token_counts(0 if config.network.reads == "features" else config.encoder.max_tokens)
    config = config.with_schedule(data.n_rows, float(tokens.mean()) if len(tokens) else 0.0, encoder_width(config))
    per_label = data.n_positives / max(np.count_nonzero(data.label_counts), 1)
    if config.training.init == "auto" and (not config.is_recursive or per_label < FEW_TEXTS):
        config = replace(config, training=replace(config.training, init="lda" if per_label < FEW_TEXTS else "prior"))
    return NetworkSize.of(config, data.n_labels, data.n_features, _device(config))


def _device(config: NeuralConfig) -> str:
    """Return the device of a network; without torch, a CPU is assumed."""
    if config.encoder.device != "auto":
        return config.encoder.device.partition(":")[0]
    try:
        return encoders().pick_device("auto").type
    except MissingExtra:
        return "cpu"


def _count_rankers(config: ModelConfig) -> int:
    """Return how many rankers are trained: two if one of them is needed to fit ``fusion``."""
    is_fused = isinstance(config, NeuralConfig) and config.is_recursive and config.head_weight is None
    return 2 if is_fused and config.training.validation_fraction and not config.fusion else 1


def _cores(config: ModelConfig) -> float:
    return n_threads(config.threads) ** _SHARED
