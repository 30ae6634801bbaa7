"""How much memory training an encoder and its classifiers takes on the device, from sizes alone.

The activations of a layer were measured: about 42 bytes for each token, layer and unit of width in short floats, from
12 layers of 384 at 128 tokens to bert-base at 512 (docs/benchmarks-gpu.md).
"""

from __future__ import annotations

from typing import NamedTuple

from umpteen.config import (
    FEWER_IN_TRAINING,
    LABELS_SOLVED_AT_ONCE,
    LABELS_STEPPED_AT_ONCE,
    TOKENS_AT_ONCE,
    ModelConfig,
    NetworkConfig,
    NeuralConfig,
)  # fmt: skip
from umpteen.tree import network_levels, resolutions

BYTES_PER_PARAMETER = 16.0  # the parameter, its gradient, and two averages of an optimiser
_BYTES_PER_ROW_STEPPED = 4.0  # the weight alone
_BYTES_PER_SHORT = 2.0
_BYTES_PER_STATE = {"cuda": 42.0, "mps": 84.0, "cpu": 84.0}  # of a token in a layer, for each unit of width
_BYTES_PER_KEPT = 4.0  # likewise where nothing is learned, of a layer whose states are read
_BYTES_PER_PASSING = 24.0  # and of the layer that is at work
_BYTES_PER_ATTENDED = 8.0  # a token of a text that a node attends to, and a number of what it sees
_BYTES_PER_SUM = 6.0  # a sum in full, and the short float that it becomes
_BYTES_PER_GATHERED = 12.0  # a gathered weight, its copy in another precision, its gradient
_BYTES_PER_SCORE = 16.0
_BYTES_PER_FIRST_SCORE = 24.0  # of a text for a node while the first weights are solved for


class Encoder(NamedTuple):
    """The size of an encoder."""

    layers: int
    width: int
    vocabulary: int = 30_522

    @property
    def n_parameters(self) -> float:
        """Weights of the layers, which each token meets."""
        return 12.0 * self.layers * self.width**2

    @property
    def n_weights(self) -> float:
        """Weights of the layers and of the words."""
        return self.n_parameters + self.vocabulary * self.width


def footprint(encoder: Encoder, n_texts: int, n_labels: int, config: NeuralConfig, device: str) -> float:
    """Return the bytes that training takes at its peak."""
    encoder = reading_part(encoder, config)
    at_once = config.encoder.batch_tokens or TOKENS_AT_ONCE[device] // FEWER_IN_TRAINING
    tokens = min(config.training.batch_size * config.encoder.max_tokens, at_once)
    activations = tokens * encoder.layers * encoder.width * _BYTES_PER_STATE[device]
    training = activations + scorers(encoder, n_labels, config) + _averages(encoder, n_labels, config)
    first = max(
        _first_scorers(encoder, n_texts, n_labels, config), _reading(encoder, n_texts, n_labels, config, device)
    )
    return BYTES_PER_PARAMETER * encoder.n_weights + max(training, first)


def reading_part(encoder: Encoder, config: NeuralConfig) -> Encoder:
    """Return what is trained to read: the encoder, or, where a network takes its words only, what three layers hold."""
    is_shallow = is_network(config) and config.network.reader != "layers"
    return encoder._replace(layers=3) if is_shallow else encoder  # an LSTM in two directions, or filters


def is_network(config: ModelConfig) -> bool:
    """Return whether a network predicts labels itself."""
    return isinstance(config, NeuralConfig) and not config.is_recursive


def _reading(encoder: Encoder, n_texts: int, n_labels: int, config: NeuralConfig, device: str) -> float:
    """Return the bytes of a pass in which texts are read and nothing learns, and sums of texts for first weights."""
    is_net = is_network(config)
    if is_net and not (config.whitens or config.ranker):
        return 0.0
    pooling = config.network.pooling if is_net else config.encoder.pooling
    n_kept = 1 if pooling in ("mean", "cls") else encoder.layers + 1
    at_once = FEWER_IN_TRAINING * config.encoder.batch_tokens or TOKENS_AT_ONCE[device]
    tokens = min(n_texts * config.encoder.max_tokens, at_once)
    sums = _BYTES_PER_SUM * n_labels * encoder.width if is_net and config.network.head == "full" else 0.0
    return tokens * encoder.width * (n_kept * _BYTES_PER_KEPT + _BYTES_PER_PASSING) + sums


def _first_scorers(encoder: Encoder, n_texts: int, n_labels: int, config: NeuralConfig) -> float:
    """Return the bytes of the solver that resolutions begin with: all texts, twice, and scores of a node's children."""
    if not isinstance(config, NeuralConfig) or config.training.init not in ("auto", "newton"):
        return 0.0
    sizes = resolutions(n_labels, config.network)
    widest = max((-(-size // above) for above, size in zip((1, *sizes), sizes, strict=False)), default=0)
    return n_texts * (8.0 * encoder.width + min(widest, LABELS_SOLVED_AT_ONCE) * _BYTES_PER_FIRST_SCORE)


def table_size(encoder: Encoder, n_labels: int, config: NeuralConfig) -> float:
    """Return how many weights the classifiers of a network have."""
    if not is_network(config):
        return 0.0
    sizes = network_levels(n_labels, config.network)
    return float(sum(size * _width(level, len(sizes), encoder, config.network) for level, size in enumerate(sizes)))


def vector_width(encoder: Encoder, config: NeuralConfig) -> int:
    """Return the length of what is read of a text in the end, which a ranker sees beside the words."""
    if is_network(config):
        return _read_width(-1, 1, encoder, config.network)
    return encoder.width * _n_layers(config.encoder.pooling, encoder)


def _averages(encoder: Encoder, n_labels: int, config: NeuralConfig) -> float:
    """Return the bytes of the mean of all weights, where one is taken."""
    if not is_network(config) or config.training.swa_start >= 1.0:
        return 0.0
    return 4.0 * (encoder.n_weights + table_size(encoder, n_labels, config))


def scorers(encoder: Encoder, n_labels: int, config: NeuralConfig) -> float:
    """Return the bytes of the classifiers, of their optimiser, and of the scores of a batch."""
    if is_network(config):
        net, n_texts = config.network, config.training.batch_size
        if net.head == "full":
            return n_labels * (_BYTES_PER_SHORT * vector_width(encoder, config) + 8.0) + n_texts * (
                min(n_labels, LABELS_STEPPED_AT_ONCE) * 12.0
            )
        sizes = network_levels(n_labels, net)
        return sum(_level(level, sizes, encoder, config) for level in range(len(sizes)))
    if isinstance(config, NeuralConfig):
        size = max(resolutions(n_labels, config.network), default=0)
        return size * (
            BYTES_PER_PARAMETER * vector_width(encoder, config) + config.training.batch_size * _BYTES_PER_SCORE
        )
    return 0.0


def _level(level: int, sizes: tuple[int, ...], encoder: Encoder, config: NeuralConfig) -> float:
    """Return what one level of a network takes."""
    net, size, wide = config.network, sizes[level], _width(level, len(sizes), encoder, config.network)
    candidates = config.training.batch_size * (
        size if not level else min(net.beam_at(level - 1) * -(-size // sizes[level - 1]), size)
    )
    if net.reader == "lstm":
        return size * BYTES_PER_PARAMETER * wide + candidates * (config.encoder.max_tokens + wide) * _BYTES_PER_ATTENDED
    if not level:
        return size * BYTES_PER_PARAMETER * wide + candidates * _BYTES_PER_SCORE
    if config.updates_rows(level, size):
        return size * (_BYTES_PER_ROW_STEPPED * wide + 8.0) + candidates * _BYTES_PER_SCORE
    return size * BYTES_PER_PARAMETER * wide + candidates * (_BYTES_PER_GATHERED * wide + _BYTES_PER_SCORE)


def _width(level: int, n_levels: int, encoder: Encoder, net: NetworkConfig) -> int:
    """Return the length of a node's vector at a level."""
    return net.bottleneck_at(level, n_levels) or _read_width(level, n_levels, encoder, net)


def _read_width(level: int, n_levels: int, encoder: Encoder, net: NetworkConfig) -> int:
    """Return the length of what a level reads of a text."""
    from umpteen.neural.pooling import deeper_and_deeper

    if net.reader == "lstm":
        return 2 * net.hidden
    if net.reader == "cnn":
        return net.bottleneck or net.hidden
    specs = net.poolings or deeper_and_deeper(encoder.layers, n_levels)
    return encoder.width * _n_layers(specs[level if len(specs) > 1 else 0], encoder)


def _n_layers(pooling: str, encoder: Encoder) -> int:
    """Return how many layers a pooling puts side by side."""
    return min(5, encoder.layers + 1) if pooling == "last5" else pooling.count("+") + 1
