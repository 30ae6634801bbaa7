"""Say before training what it will take: memory and time, from sizes alone.

Right within a factor of two or three: good enough to choose between now, tonight and a larger machine. Knows an
encoder by its config file, and needs no torch for that.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sized
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from umpteen.config import EncoderConfig, ModelConfig, NeuralConfig
from umpteen.data.locate import locate
from umpteen.data.sparse import check_rows_match
from umpteen.data.targets import is_texts
from umpteen.engine import n_threads
from umpteen.errors import MissingExtra
from umpteen.kernels import LANES
from umpteen.linear.choose import negatives_for
from umpteen.models.folder import encoders
from umpteen.models.gpu_memory import Encoder, footprint, is_network, reading_part, table_size, vector_width
from umpteen.models.ranker import uses_words, with_init
from umpteen.tree import FEW_LABELS, network_levels, resolutions, shape

# Measured on cores of a 2024 server processor; other machines differ by a factor of two either way.
_SECONDS_PER_STEP = 2.3e-7  # one row against sixteen labels: what does not depend on its features
_SECONDS_PER_FEATURE = 1.8e-9  # and for each feature, product and update
_SWEEPS = 6  # row steps per row until the solver stops, typical
_BYTES_PER_SECOND = 50e6  # text that one core turns into tf-idf rows
_SECONDS_PER_TEXT = 5e-6  # and for each text
_SECONDS_PER_ADDED = 1e-8  # a feature of a text added to the vector of a label
_SECONDS_PER_HALVED = 9e-8  # a feature of a label, each time that labels are halved
_SECONDS_PER_COLUMN_HALVED = 1.1e-7  # a label, each time that labels are halved, even if no text has it
_SECONDS_PER_COLUMN = 1.4e-7  # a label at each level of a tree, where it is found and laid out
_BYTES_PER_COLUMN = 50.0  # a label while a tree is built and trained
_BYTES_PER_COLUMN_KEPT = 16.0  # and in each tree that is done
_UNBALANCED_COLUMNS = 4.0  # how much more of both where a cluster may have one label
_SHARED = 0.8  # threads to this power are as good as so many cores
_LOGISTIC = 2.5  # how much slower than the squared hinge
_UNBALANCED = 2.0  # a few chunks hold most of the labels
_ONE_VERSUS_ALL = 2.5  # weights over all features do not stay in cache
_BYTES_PER_NONZERO = 8.0
_BYTES_PER_WEIGHT = 24.0  # feature, label and value, once in parts and once put together
_BYTES_PER_PACKED = 3.0  # in a tree that is done
_BYTES_PER_KEPT_WEIGHT = 4.0  # of a network, as it is kept in half precision, twice
_WEIGHTS_PER_LABEL = 10.0  # most that are kept, divided by the square of the threshold
_REPEATED = 1_000.0  # words of a text of which half were there before
_SAMPLE = 1_000  # texts looked at
_CHARACTERS_PER_TOKEN = 4.5  # of English in a vocabulary of 30 000
_BERT_BASE = Encoder(12, 768)  # taken for an encoder whose config is not here yet
_FLOPS = {"cpu": 25e9, "mps": 2e12, "cuda": 1.2e14}  # per second: of a core in float32, of a GPU in its short floats
_BACKWARD = 3.0  # a step costs as much as three passes: one forward, two backward
_STEP = {"cpu": 0.0, "mps": 0.0, "cuda": 0.01}  # seconds that a step takes at least: a GPU waits for its orders
_SECONDS_PER_STEPPED = {"cpu": 8e-9, "mps": 1e-10, "cuda": 2e-11}  # of an optimiser, for each weight of a classifier
_SECONDS_PER_EMBEDDED = 3e-9  # a feature of a row, for each number of its embedding, in a step
_SECONDS_PER_PATH = 2e-4  # a row in a step, beside its features
_BYTES_PER_EMBEDDED = 12.0  # a feature of a row: number and weight on the device
_LIBRARIES = {"cpu": 0.3e9, "mps": 0.3e9, "cuda": 2.0e9}  # bytes of torch and transformers, and of what drives a GPU


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
        """Estimate from feature rows, or from a sample of texts."""
        n_rows, n_labels = Y.shape
        size = _size_of_texts(X, n_labels, config) if is_texts(X) else _size_of_rows(X)
        check_rows_match(X, Y)
        config = with_init(config, Y) if is_network(config) else config
        labels_per_row = max(1.0, Y.nnz / max(n_rows, 1))
        parts = [_reading(size, n_rows, config)]
        if isinstance(config, NeuralConfig) and config.network.reads == "features":
            parts.append(_embedding(size, n_rows, n_labels, config))
        elif isinstance(config, NeuralConfig):
            parts.append(_finetuning(X, n_labels, config))
        if size.n_features:
            parts.append(_clustering(size, n_rows, n_labels, labels_per_row, config))
        if not is_network(config) or config.ranker:
            parts.append(_ranking(size, n_rows, n_labels, labels_per_row, config))
        return cls(
            n_rows, size.n_features, size.n_nonzeros, n_labels,
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


class Size(NamedTuple):
    """How much there is to learn from."""

    n_features: int
    n_nonzeros: int
    n_bytes: float  # of text still to be turned into rows


def _reading(size: Size, n_rows: int, config: ModelConfig) -> _Part:
    """Guess what it takes to turn texts into tf-idf rows."""
    if not size.n_bytes:
        return _Part(0.0, 0.0)
    work = size.n_bytes / _BYTES_PER_SECOND + n_rows * _SECONDS_PER_TEXT
    return _Part(work / _cores(config), _BYTES_PER_NONZERO * size.n_nonzeros)


def _clustering(size: Size, n_rows: int, n_labels: int, labels_per_row: float, config: ModelConfig) -> _Part:
    """Guess what it takes to add up the texts of each label, and to cluster the labels."""
    counts = _clusters(n_labels, config)
    n_halvings = float(np.log2(max(np.prod(counts, dtype=float), 1.0)))
    added = size.n_nonzeros * labels_per_row
    kept = min(added, float(n_labels) * config.tree.max_features)
    each = kept * _SECONDS_PER_HALVED + n_labels * _SECONDS_PER_COLUMN_HALVED
    shared = (added * _SECONDS_PER_ADDED + n_halvings * each) / _cores(config)
    laid_out = n_labels * (len(counts) + 1) * _SECONDS_PER_COLUMN
    memory = n_labels * (_BYTES_PER_COLUMN + config.trees * _BYTES_PER_COLUMN_KEPT)
    more = _UNBALANCED_COLUMNS if config.tree.kind == "unbalanced" else 1.0
    return _Part(config.trees * (shared + more * laid_out) if n_halvings else 0.0, more * memory)


def _clusters(n_labels: int, config: ModelConfig) -> tuple[float, ...]:
    """Return how many children a node has at each level above the labels."""
    if is_network(config) and not config.ranker:
        sizes = network_levels(n_labels, config.network)[:-1]
        return tuple(size / above for above, size in zip((1, *sizes), sizes, strict=False))
    return shape(n_labels, config.tree)


def _ranking(size: Size, n_rows: int, n_labels: int, labels_per_row: float, config: ModelConfig) -> _Part:
    """Guess what it takes to train the trees of a linear model, or of the ranker on words and vectors."""
    n_dense = _n_dense(config)
    per_row = size.n_nonzeros / max(n_rows, 1)
    steps, rows_per_chunk = _work(n_rows, n_labels, labels_per_row, config)
    each = _SECONDS_PER_STEP + (per_row + n_dense) * _SECONDS_PER_FEATURE
    work = config.trees * steps * _SWEEPS * each * _slowdown(config, n_labels)
    kept = _WEIGHTS_PER_LABEL / max(config.linear.threshold, 0.01) ** 2
    weights = n_labels * n_dense + min(size.n_nonzeros * labels_per_row, kept * n_labels)
    held = 4 * LANES * (size.n_features + n_rows) + _BYTES_PER_NONZERO * per_row * rows_per_chunk
    vectors = 8.0 * n_dense * n_rows  # as they are, and as they count beside the words
    memory = n_threads(config.threads) * held + vectors
    memory += weights * (_BYTES_PER_WEIGHT + config.trees * _BYTES_PER_PACKED)
    return _Part(work / _cores(config), memory)


def _n_dense(config: ModelConfig) -> int:
    """Return the length of the vector that a ranker sees beside the words."""
    if not isinstance(config, NeuralConfig) or (config.is_recursive and config.features == "tfidf"):
        return 0
    return vector_width(_size_of_encoder(config.encoder), config)


def _cores(config: ModelConfig) -> float:
    return n_threads(config.threads) ** _SHARED


def _work(n_rows: int, n_labels: int, labels_per_row: float, config: ModelConfig) -> tuple[float, float]:
    """Count how often a row meets sixteen labels, over all levels, and the rows that are copied for a chunk of labels.

    One versus all, every thread reads the rows where they are.
    """
    steps, n_nodes, visited = 0.0, 1, 1.0  # nodes of a level, and those of them that a row goes through
    for children in shape(n_labels, config.tree):
        steps += n_rows * visited * -(-children // LANES)
        n_nodes *= children
        visited = min(labels_per_row, n_nodes)
    if n_nodes == 1:
        return n_rows * -(-n_labels // LANES), 0.0
    negatives, beam = config.linear.negatives, config.search.beam
    if negatives == "auto":
        negatives, beam = negatives_for(visited, beam)
    if "man" in negatives:
        visited = max(visited, min(config.linear.negatives_beam or beam, n_nodes))
    steps += n_rows * visited * -(-n_labels // (n_nodes * LANES))
    return steps, n_rows * visited / n_nodes


def _slowdown(config: ModelConfig, n_labels: int) -> float:
    kind = config.tree.kind if config.tree.kind != "auto" or n_labels > FEW_LABELS else "none"
    of_loss = _LOGISTIC if config.linear.loss == "logistic" else 1.0
    return of_loss * {"unbalanced": _UNBALANCED, "none": _ONE_VERSUS_ALL}.get(kind, 1.0)


def _size_of_rows(X: Any) -> Size:
    if sp.issparse(X):
        return Size(int(X.shape[1]), int(X.nnz), 0.0)
    array = np.asarray(X)
    return Size(int(array.shape[1]) if array.ndim == 2 else 1, int(np.count_nonzero(array)), 0.0)


def _size_of_texts(texts: Iterable[str], n_labels: int, config: ModelConfig) -> Size:
    """Guess from a sample: about six bytes a word, most terms of a text distinct, a quarter of them new."""
    if is_network(config) and not uses_words(config, n_labels) and config.network.reads != "features":
        return Size(0, 0, 0.0)
    sample, n_texts = _sample(texts)
    mean = float(np.mean(sample)) if sample else 0.0
    lengths = config.tfidf.ngram_max - config.tfidf.ngram_min + 1
    words = mean / 6.0
    total = int(words / (1.0 + words / _REPEATED) * lengths * 0.7 * n_texts)
    n_features = min(config.tfidf.max_features or total, max(total // 4, 1))
    return Size(n_features, total, mean * n_texts * lengths)


def _sample(texts: Iterable[str]) -> tuple[list[int], int]:
    """Return the lengths of the first texts in characters, and the number of all."""
    lengths = [len(text) for text in islice(texts, _SAMPLE) if isinstance(text, str)]
    return lengths, len(texts) if isinstance(texts, Sized) else len(lengths)


def _embedding(size: Size, n_rows: int, n_labels: int, config: NeuralConfig) -> _Part:
    """Guess what a network of feature embeddings takes: sums of embeddings, and classifiers on the path of a row."""
    width, device = config.network.hidden, _device(config.encoder)
    nodes = sum(network_levels(max(n_labels, 2), config.network))
    work = size.n_nonzeros * width * _SECONDS_PER_EMBEDDED + n_rows * _SECONDS_PER_PATH
    weights = width * float(size.n_features + nodes)
    held = _LIBRARIES["cpu"] + _BYTES_PER_KEPT_WEIGHT * weights
    trained = 4.0 * weights + _BYTES_PER_EMBEDDED * size.n_nonzeros
    on_cpu, on_gpu = (held + trained, 0.0) if device == "cpu" else (held, trained)
    return _Part(config.training.epochs[-1] * work / _cores(config), on_cpu, on_gpu)


def _finetuning(X: Any, n_labels: int, config: NeuralConfig) -> _Part:
    """Guess what the encoder adds: two operations per parameter and token for every pass over the texts."""
    if config.is_recursive and config.features == "tfidf":
        return _Part(0.0, 0.0)
    sample, n_texts = _sample(X)
    lengths = [min(config.encoder.max_tokens, n / _CHARACTERS_PER_TOKEN) for n in sample]
    tokens = n_texts * float(np.mean(lengths or [0.0]))
    encoder = _size_of_encoder(config.encoder)
    passes = _passes(max(n_labels, 2), config)
    device = _device(config.encoder)
    rate = _FLOPS[device] * (n_threads(config.threads) if device == "cpu" else 1)
    work = 2.0 * tokens * _parameters_met(encoder, config) * passes / rate
    work += _stepping(encoder, n_texts, max(n_labels, 2), config, rate, device)
    waits = _STEP[device] * n_texts * passes / _BACKWARD / config.training.batch_size
    held, trained = 4.0 * encoder.width * n_texts, footprint(encoder, n_texts, max(n_labels, 2), config, device)
    held += _LIBRARIES[device] + _BYTES_PER_KEPT_WEIGHT * table_size(encoder, max(n_labels, 2), config)
    on_cpu, on_gpu = (held + trained, 0.0) if device == "cpu" else (held, trained)
    return _Part(work + waits, on_cpu, on_gpu, device)


def _parameters_met(encoder: Encoder, config: NeuralConfig) -> float:
    """Return the weights that each token meets; a reader of words alone works about as much as one layer."""
    reader = reading_part(encoder, config)
    return reader.n_parameters if reader == encoder else reader._replace(layers=1).n_parameters


def _stepping(encoder: Encoder, n_texts: int, n_labels: int, config: NeuralConfig, rate: float, device: str) -> float:
    """Guess what it takes to score all labels and step their classifiers, where a network has no clusters."""
    if not is_network(config) or len(network_levels(n_labels, config.network)) > 1:
        return 0.0
    weights = table_size(encoder, n_labels, config)
    n_steps = n_texts * config.training.epochs[-1] / config.training.batch_size
    stepped = n_steps * weights * _SECONDS_PER_STEPPED[device] if config.network.head != "full" else 0.0
    return 2.0 * _BACKWARD * n_texts * config.training.epochs[-1] * weights / rate + stepped


def _passes(n_labels: int, config: ModelConfig) -> float:
    """Count the passes of all texts through the encoder."""
    if is_network(config):
        turns = 1 if config.training.order == "joint" else len(network_levels(n_labels, config.network))
        return _BACKWARD * config.training.epochs[-1] * turns + config.ranker
    if not isinstance(config, NeuralConfig):
        return 0.0
    sizes = resolutions(n_labels, config.network)
    epochs = sum(config.training.epochs_at(level, len(sizes)) for level in range(len(sizes)))
    return _BACKWARD * epochs + len(sizes) + 1  # the texts are embedded in between


def _size_of_encoder(config: EncoderConfig) -> Encoder:
    """Return the size of an encoder that lies on this machine; of another, that of bert-base."""
    source = locate(config.name)
    if not isinstance(source, Path):
        return _BERT_BASE
    try:
        facts = json.loads((source / "config.json").read_text(encoding="utf-8"))
        layers = facts.get("num_hidden_layers") or facts["n_layers"]  # distilbert has words of its own
        width, vocabulary = facts.get("hidden_size") or facts["dim"], facts.get("vocab_size", _BERT_BASE.vocabulary)
        return Encoder(int(layers), int(width), int(vocabulary))
    except (OSError, ValueError, KeyError, TypeError):
        return _BERT_BASE  # training will say what is wrong with it


def _device(config: EncoderConfig) -> str:
    """Return where the encoder will run; without torch nothing will, and a CPU is as good a guess as any."""
    if config.device != "auto":
        return config.device
    try:
        return encoders().pick_device("auto").type
    except MissingExtra:
        return "cpu"
