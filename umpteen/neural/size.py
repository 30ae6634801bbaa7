"""How large a network is on its device, and how much work its training is, from settings alone; needs no torch.

Bytes of activations were measured on a GPU (docs/benchmarks-gpu.md).
"""

from __future__ import annotations

from typing import NamedTuple

from umpteen.config import (
    FEWER_IN_TRAINING,
    LABELS_SOLVED_AT_ONCE,
    LABELS_STEPPED_AT_ONCE,
    NUMBERS_SUMMED_AT_ONCE,
    TOKENS_AT_ONCE,
    NeuralConfig,
)  # fmt: skip
from umpteen.data.locate import read_encoder_config
from umpteen.tree import network_levels, resolutions

_ACTIVATION_BYTES = 42.0  # of a token in a layer, for each unit of width, in bfloat16; twice that in float32
_READ_BYTES = 24.0  # likewise of the layer at work where nothing is trained
_STATE_BYTES = 2.0  # likewise of a layer whose states are kept to be pooled
_WORD_LAYERS = 3  # layers whose activations are as large as those of an LSTM or of convolutions
_SCORE_BYTES = 16.0  # of a score, its target, loss and gradient
_GATHERED_BYTES = 8.0  # of a number that is gathered for a text: float32, bfloat16, and the gradient of that
_BACKWARD = 3.0  # FLOPs of a training step, as a multiple of a forward pass


class EncoderSize(NamedTuple):
    """The size of an encoder; one that is not on this machine is taken for bert-base."""

    layers: int = 12
    width: int = 768
    vocabulary: int = 30_522

    @classmethod
    def of(cls, name: str) -> EncoderSize:
        """Read the size from the config.json of an encoder, which training will check."""
        facts = read_encoder_config(name)
        try:
            layers = facts.get("num_hidden_layers") or facts["n_layers"]  # distilbert has words of its own
            width = facts.get("hidden_size") or facts["dim"]
            return cls(int(layers), int(width), int(facts.get("vocab_size", cls().vocabulary)))
        except (AttributeError, KeyError, TypeError, ValueError):
            return cls()


def encoder_width(config: NeuralConfig) -> int:
    """Return the hidden size of the encoder that settings name, or of the embeddings of features."""
    return config.network.hidden if config.network.reads == "features" else EncoderSize.of(config.encoder.name).width


class NetworkSize(NamedTuple):
    """A network: an encoder or what reads its words, and classifiers for the nodes of each level."""

    config: NeuralConfig
    encoder: EncoderSize
    device: str
    levels: tuple[int, ...]
    text_width: int  # length of the vector of a text
    node_width: int  # length of the vector of a label; clusters, which are few, may have longer ones

    @classmethod
    def of(cls, config: NeuralConfig, n_labels: int, n_features: int, device: str) -> NetworkSize:
        """Take the size from settings; embeddings of features count as those of words."""
        net, is_bag = config.network, config.network.reads == "features"
        encoder = EncoderSize(0, net.hidden, n_features) if is_bag else EncoderSize.of(config.encoder.name)
        levels = (resolutions if config.is_recursive else network_levels)(max(n_labels, 2), net)
        if config.is_recursive and config.trains_labels(n_labels) and max(levels, default=0) < n_labels:
            levels = (*levels, n_labels)
        widths = {"lstm": 2 * net.hidden, "cnn": net.bottleneck or net.hidden, "bag": net.hidden}
        last = (config.encoder.pooling if config.is_recursive else net.pooling).split(",")[-1].strip()
        side_by_side = min(5, encoder.layers + 1) if last == "last5" else last.count("+") + 1
        width = widths.get(net.reader, encoder.width * side_by_side)
        bottleneck = net.bottleneck_at(len(levels) - 1, len(levels))
        return cls(config, encoder, device, levels or (1,), width, bottleneck or width)

    @property
    def ranker_width(self) -> int:
        """Dense columns that a ranker sees beside tf-idf."""
        return 0 if self.config.is_recursive and self.config.features == "tfidf" else self.text_width

    @property
    def n_met(self) -> float:
        """Weights that every token meets: of the layers; an LSTM and convolutions are like one."""
        return 12.0 * self.encoder.width**2 * (self.encoder.layers if self.config.network.reads == "layers" else 1)

    @property
    def epochs(self) -> list[float]:
        """Epochs of each training: of all levels together, or of one after the other."""
        n = 1 if self.config.training.order == "joint" else len(self.levels)
        return [self.config.training.epochs_at(turn, n) for turn in range(n)]

    def count_scored(self, level: int) -> int:
        """Return how many nodes of a level are scored for a text."""
        if not level or self.config.is_recursive:
            return self.levels[level]
        children = -(-self.levels[level] // self.levels[level - 1])
        return min(self.config.network.beam_at(level - 1) * children, self.levels[level])

    def count_flops(self, n_texts: int, n_tokens: float, n_trained: float) -> float:
        """Return the operations of training: two for each weight that a token or a text meets.

        ``n_tokens`` are those of all texts, ``n_trained`` those that an epoch reads.
        """
        n_scored = sum(self.count_scored(level) for level in range(len(self.levels))) / len(self.epochs)
        scored = self.node_width * n_scored * n_texts
        trained = _BACKWARD * sum(self.epochs) * (self.n_met * n_trained + scored)
        return 2.0 * (trained + self.n_passes * self.n_met * n_tokens)

    @property
    def n_passes(self) -> int:
        """Passes over the texts in which nothing is trained."""
        if not self.config.is_recursive:
            return self.config.ranker + self.config.whitens
        return len(self.levels) * self._uses_newton + (self.config.features != "tfidf")

    @property
    def _uses_newton(self) -> bool:
        """Whether classifiers are initialised with the solution of the linear problem."""
        training = self.config.training
        is_newton = training.init == "newton" or (training.init == "auto" and training.loss != "bce")
        return self.config.is_recursive and is_newton

    @property
    def model_bytes(self) -> float:
        """Bytes on disk: the encoder, and the classifiers of a network, or of labels where an encoder has them."""
        encoder = 4.0 * (self.n_met + self.encoder.vocabulary * self.encoder.width)
        levels = self.levels[-1:] if self.config.is_recursive else self.levels
        return encoder + 4.0 * self.node_width * sum(levels)

    # Bytes on the device

    def training_bytes(self, n_texts: int, longest: int) -> float:
        """Return the peak of training on texts of at most ``longest`` tokens."""
        each = 4.0 if self.config.network.reads == "features" else self._weight_bytes  # features have sparse updates
        held = each * (self.n_met + self.encoder.vocabulary * self.encoder.width)
        between = max(self._reading_bytes(n_texts * longest), self._solver_bytes(n_texts))
        return held + max(self._step_bytes(longest), between)

    def _step_bytes(self, longest: int) -> float:
        """Return the activations of a step, and the heads that are trained at the same time."""
        config, order = self.config.encoder, self.config.training.order
        most = config.batch_tokens or TOKENS_AT_ONCE[self.device] // FEWER_IN_TRAINING
        is_short = config.precision == "bfloat16" or (config.precision == "auto" and self.device == "cuda")
        of_layer = _ACTIVATION_BYTES * (1 if is_short else 2)
        per_unit = of_layer * (_WORD_LAYERS if self.config.network.reads == "words" else self.encoder.layers)
        if config.gradient_checkpointing:
            per_unit = of_layer + 4.0 * self.encoder.layers
        activations = min(self.config.training.batch_size * longest, most) * self.encoder.width * per_unit
        first, *others = (self.head_bytes(level, longest) for level in range(len(self.levels)))
        if order == "joint":
            return activations + first + sum(others)
        return max(activations + first, max(others, default=0.0) + (order != "shared-reader") * activations)

    @property
    def _weight_bytes(self) -> float:
        """Bytes of a trained weight: with its gradient and two means of Adam, and the copies that settings ask for."""
        training = self.config.training
        return 16.0 + 4.0 * (training.swa_start < 1.0) + 4.0 * (training.validation_fraction > 0.0)

    def head_bytes(self, level: int, longest: int) -> float:
        """Return the weights of a level with what trains them, and the scores of a batch."""
        net, size, width = self.config.network, self.levels[level], self.node_width
        each, gathered = self._weight_bytes, 0
        if level == len(self.levels) - 1 and self.config.has_full_head(size):
            each = 2.0 if self.device == "cuda" else 4.0
        elif net.reader == "lstm":
            gathered = longest + width  # a node attends to every token
        elif self.config.updates_rows(level, size):
            each = 4.0
        elif level and not self.config.is_recursive:
            gathered = width
        n_scores = self.config.training.batch_size * min(self.count_scored(level), LABELS_STEPPED_AT_ONCE)
        return each * size * width + n_scores * (_SCORE_BYTES + _GATHERED_BYTES * gathered)

    def _reading_bytes(self, n_tokens: int) -> float:
        """Return what texts take that are read between trainings; 0 if none are."""
        config, net = self.config, self.config.network
        if config.training.order == "joint" and not (config.whitens or config.ranker):
            return 0.0
        most = FEWER_IN_TRAINING * config.encoder.batch_tokens or TOKENS_AT_ONCE[self.device]
        pooling = config.encoder.pooling if config.is_recursive else net.pooling or "@" * (len(self.levels) > 1)
        is_every = net.reader == "layers" and ("@" in pooling or "last5" in pooling)
        n_states = self.encoder.layers + 1 if is_every else 1
        sums = 4.0 * min(self.node_width * self.levels[-1], NUMBERS_SUMMED_AT_ONCE) * (config.training.init == "lda")
        return min(n_tokens, most) * self.encoder.width * (_READ_BYTES + _STATE_BYTES * n_states) + sums

    def _solver_bytes(self, n_texts: int) -> float:
        """Return what initialises the classifiers of an encoder: all vectors twice, and with Newton's method scores."""
        if not self.config.is_recursive or not (self._uses_newton or self.config.training.init == "lda"):
            return 0.0
        most = max(-(-size // above) for above, size in zip((1, *self.levels), self.levels, strict=False))
        scores = 1.5 * _SCORE_BYTES * min(most, LABELS_SOLVED_AT_ONCE) * self._uses_newton
        return n_texts * (8.0 * self.text_width + scores)
