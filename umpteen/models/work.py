"""What training consists of: stages of work with their rates, and what each part holds in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from umpteen.config import ModelConfig, NeuralConfig
from umpteen.config.linear import has_ranker
from umpteen.data.size import DataSize
from umpteen.engine import n_threads
from umpteen.errors import MissingExtra
from umpteen.linear.size import LOGISTIC, VISIT_FEATURES, TreeSize
from umpteen.models.lazy_neural import encoder_module
from umpteen.models.ranker import uses_words
from umpteen.models.rates import TYPICAL, Rates
from umpteen.tree import cluster_bytes, shape

if TYPE_CHECKING:
    from umpteen.neural.size import NetworkSize

_LIBRARY_BYTES = {"cpu": 3.5e8, "mps": 3.5e8, "cuda": 2.4e9}  # torch, transformers, and what drives a GPU
_SHARED = 0.6  # so many threads to this power are as fast as so many cores
_JOB_BYTES = 2e6  # of Python objects and scratch of kernels, whatever the size of the data
_TERM_BYTES = 24.0  # of a term in the stored vocabulary of tf-idf


class Stage(NamedTuple):
    """A kind of work: how much of what, and the seconds that one core, or a device, takes for a unit of it."""

    name: str
    amount: float
    unit: str
    rate: float
    shared_by: str = "cores"  # of all machines; "machines", which have a GPU each; or "none"

    def seconds(self, cores: int, nodes: int = 1) -> float:
        """Return the time on so many machines with so many cores each."""
        share = {"cores": nodes * effective(cores), "machines": nodes, "none": 1.0}[self.shared_by]
        return self.amount * self.rate / share


class MemoryParts(NamedTuple):
    """Bytes of each part; clustering comes before training, all others are held at the same time."""

    tfidf: float = 0.0
    clustering: float = 0.0
    jobs: float = 0.0  # rows, tables of weights and dual variables of the chunks that are trained at the same time
    weights: float = 0.0
    vectors: float = 0.0  # embeddings, and what a second ranker copies
    network: float = 0.0

    @property
    def total(self) -> float:
        """The peak."""
        return self.tfidf + max(self.clustering, self.jobs + self.weights) + self.vectors + self.network


class Work(NamedTuple):
    """What it takes to train a model."""

    data: DataSize
    stages: tuple[Stage, ...]
    memory: MemoryParts
    model_bytes: float
    n_weights: float = 0.0  # of linear classifiers
    n_entries: float = 0.0  # of label vectors
    gpu_bytes: float = 0.0
    device: str = ""  # where an encoder runs

    @classmethod
    def of(cls, data: DataSize, config: ModelConfig, rates: Rates = TYPICAL) -> Work:
        """Add up the parts of a model, with the settings that training would choose from the data."""
        network = None
        if isinstance(config, NeuralConfig):
            network = _network_size(config.with_features(data.n_labels), data)
            config = network.config
            if not (has_ranker(config) or config.network.reads == "features" or uses_words(config, data.n_labels)):
                data = data._replace(n_features=0, n_nonzeros=0)
        stages = [Stage("tf-idf", data.n_characters, "characters", rates.character)] if data.n_characters else []
        work = cls(data, tuple(stages), MemoryParts(data.tfidf_bytes), _TERM_BYTES * data.n_features * bool(stages))
        work = _with_trees(work, config, network, rates)
        return work if network is None else _with_network(work, network, rates)

    def seconds(self, cores: int, nodes: int = 1) -> float:
        """Return the time on so many machines with so many cores each."""
        return sum(stage.seconds(cores, nodes) for stage in self.stages)


def effective(cores: int) -> float:
    """Return how many times as fast so many cores are as one."""
    return cores**_SHARED


def _with_trees(work: Work, config: ModelConfig, network: NetworkSize | None, rates: Rates) -> Work:
    """Add what it takes to cluster the labels and to train linear classifiers."""
    data, threads, is_ranked = work.data, n_threads(config.threads), has_ranker(config)
    n_dense = network.ranker_width if network and is_ranked else 0
    n_kept = data.count_entries(config.tree.max_features) + data.n_labels * n_dense  # of label vectors
    clusters = network.levels[:-1] if network and not is_ranked else shape(data.n_labels, config.tree)
    if clusters:
        work = _add(
            work,
            Stage("clustering", config.trees * n_kept, "entries of label vectors", rates.clustered),
            Stage("labels", config.trees * data.n_labels, "labels", rates.label, "none"),
        )
        held = cluster_bytes(n_kept, data.n_features, data.n_labels, config.tree, threads)
        work = work._replace(memory=work.memory._replace(clustering=held), n_entries=n_kept)
    return _with_ranker(work, config, n_dense, rates) if is_ranked else work


def _with_ranker(work: Work, config: ModelConfig, n_dense: int, rates: Rates) -> Work:
    """Add linear classifiers over rows with so many dense columns."""
    data, n_rankers = work.data, _count_rankers(config, work.data.n_labels)
    tree = TreeSize.of(data, n_dense, config, n_threads(config.threads))
    times = n_rankers * config.trees * (LOGISTIC if config.linear.loss == "logistic" else 1.0)
    amount = times * tree.n_visits * (data.per_row + n_dense + VISIT_FEATURES)
    vectors = 8.0 * n_dense * data.n_rows  # as they are read, and as they are weighted beside tf-idf
    memory = work.memory._replace(
        jobs=_JOB_BYTES + tree.job_bytes, weights=tree.weight_bytes(config.trees),
        vectors=vectors + 8.0 * (n_rankers - 1) * data.n_nonzeros,
    )  # fmt: skip
    stages = (
        Stage("training", amount, "features visited for 16 labels", rates.visit),
        Stage("weights", n_rankers * config.trees * tree.n_weights, "weights", rates.weight),
    )
    return _add(work, *stages)._replace(
        memory=memory, n_weights=config.trees * tree.n_weights,
        model_bytes=work.model_bytes + config.trees * tree.model_bytes(data, config),
    )  # fmt: skip


def _with_network(work: Work, size: NetworkSize, rates: Rates) -> Work:
    """Add what it takes to train a network, or to fine-tune an encoder."""
    data, config, device, is_bag = work.data, size.config, size.device, size.config.network.reads == "features"
    tokens = data.token_counts(0 if is_bag else config.encoder.max_tokens)
    n_tokens, longest = float(tokens.sum()) * data.texts_each, int(tokens.max(initial=0))
    n_trained = float(config.training.mean_lengths(tokens).sum()) * data.texts_each
    flops = size.count_flops(data.n_rows, n_tokens, n_trained)
    threads = n_threads(config.threads) if device == "cpu" else 1
    n_steps = sum(size.epochs) * data.n_rows / config.training.batch_size
    copies = 12.0 if config.is_recursive else 4.0  # of classifiers: three in float32, or two in half precision
    held = _LIBRARY_BYTES[device] + 8.0 * n_tokens + copies * size.node_width * sum(size.levels)
    inputs = 4.0 * n_tokens + 12.0 * (is_bag * data.n_nonzeros + len(size.levels) * data.n_positives)
    trained = inputs + size.training_bytes(data.n_rows, longest)
    on_cpu, on_gpu = (held + trained, 0.0) if device == "cpu" else (held, trained)
    rate = effective(threads) / threads / rates.flops[device] if device == "cpu" else 1.0 / rates.flops[device]
    work = _add(
        work,
        Stage(f"network on {device}", flops, "operations", rate, "cores" if device == "cpu" else "machines"),
        Stage("steps", n_steps, "steps of the optimiser", rates.step, "machines"),
    )
    return work._replace(
        memory=work.memory._replace(network=on_cpu), gpu_bytes=on_gpu, device="" if is_bag else device,
        model_bytes=work.model_bytes + size.model_bytes,
    )  # fmt: skip


def _add(work: Work, *stages: Stage) -> Work:
    return work._replace(stages=(*work.stages, *stages))


def _network_size(config: NeuralConfig, data: DataSize) -> NetworkSize:
    """Return the size of a network, with the settings that training would choose from the data."""
    from umpteen.neural.size import NetworkSize, encoder_width  # for networks only

    device = _device(config)
    config = replace(config, encoder=config.encoder.with_length(device))
    tokens = data.token_counts(0 if config.network.reads == "features" else config.encoder.max_tokens)
    config = config.with_schedule(tokens, data.n_rows, encoder_width(config))
    config = config.with_init(data.n_positives / max(data.n_seen, 1))
    return NetworkSize.of(config, data.n_labels, data.n_features, device)


def _device(config: NeuralConfig) -> str:
    """Return the device of a network; without torch, a CPU is assumed."""
    if config.encoder.device != "auto":
        return config.encoder.device.partition(":")[0]
    try:
        return encoder_module().pick_device("auto").type
    except MissingExtra:
        return "cpu"


def _count_rankers(config: ModelConfig, n_labels: int) -> int:
    """Return how many rankers are trained: two if one of them is needed to fit ``fusion``."""
    return 2 if isinstance(config, NeuralConfig) and config.fits_fusion(n_labels) else 1
