"""Settings of the neural recipes: an encoder, a network on it, and how both are trained."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

import numpy as np

from umpteen.config.checked import Checked, Form, When, option
from umpteen.config.linear import LinearConfig, ModelConfig, has_ranker
from umpteen.errors import BadConfig

# Block sizes that no setting changes. They are defined here because estimates need them without torch.
TOKENS_AT_ONCE = {"cpu": 4_096, "mps": 16_384, "cuda": 262_144}  # when embedding texts
FEWER_IN_TRAINING = 4  # divisor for training: gradients need about this many times the memory
USUAL_LENGTH = {"cpu": 128, "mps": 128, "cuda": 256}  # tokens that are read of a text where settings leave it open
LABELS_SOLVED_AT_ONCE = 1_024
LABELS_STEPPED_AT_ONCE = 65_536
NUMBERS_SUMMED_AT_ONCE = 1 << 31  # of first weights, where their sums are an array of its own: 8 GB


class ReaderSpec(NamedTuple):
    """A reader: its class, or the place of that (module:class), and its input.

    The input is ``layers`` of an encoder, its ``words`` (tokens and their embeddings), or ``features`` (tf-idf or given
    feature rows) without an encoder.
    """

    place: str | type
    reads: str


# ``umpteen.neural.readers.register_reader`` adds further ones.
READERS = {
    "layers": ReaderSpec("umpteen.neural.layers:Layers", "layers"),
    "lstm": ReaderSpec("umpteen.neural.attentionxml:BiLSTM", "words"),
    "cnn": ReaderSpec("umpteen.neural.xmlcnn:TextCNN", "words"),
    "bag": ReaderSpec("umpteen.neural.extremetext:FeatureBag", "features"),
}

GRAPHS = {"onnx": "model.onnx", "onnx-int8": "model-int8.onnx"}  # files of an exported encoder by encoder.backend

_POOLING = Form(
    r"(?:last5|(?:mean|cls)(?:@\d+(?:\+\d+)*)?)",
    "mean, cls, last5, or one of the first two at layers: mean@4+8",
)
_OWN_POOLING = Form(rf"(?:auto|{_POOLING.pattern})", f"auto, {_POOLING.words}")
_DEVICE = Form(r"(?:auto|cpu|mps|cuda(?::\d{1,3})?)", "auto, cpu, cuda, mps, or a GPU by its number: cuda:1")
_POOLINGS = Form(
    rf"(?:\s*{_POOLING.pattern}\s*(?:,\s*{_POOLING.pattern}\s*)*)?",
    "poolings separated by commas, such as last5 or cls@5+6,cls@8,cls@12",
)

FEW_TEXTS = 5  # texts per label, on average, below which LDA is the better initialisation

# The schedule where settings leave it open. A step has about 64 texts of 128 tokens. Five epochs are enough for many
# texts; fewer texts are read more often.
TOKENS_PER_STEP, MOST_TEXTS_PER_STEP, FEWEST_STEPS_PER_EPOCH = 8_192, 256, 128
TEXTS_READ, COARSE_EPOCHS, FEWEST_EPOCHS, MOST_EPOCHS = 225_000, 0.5, 5.0, 10.0
_USUAL_RATE, _USUAL_WIDTH, _USUAL_SIZE = 2e-4, 384, 64  # learning rate of an encoder, its width, and texts per step
FEWEST_HELD_OUT, MOST_HELD_OUT = 200, 2_500  # texts
_FEWEST_TOKENS = 4  # of a text: those that begin and end it, and two words

_ENCODER = When("the recipe has an encoder", lambda c: c.network.reads != "features")
_LAYERS = When("network.reader is layers", lambda c: c.network.reader == "layers")
_NO_LAYERS = When("network.reader is not layers", lambda c: c.network.reader != "layers")
_TREE = When(
    "network.head is tree or training.order is coarse-to-fine",
    lambda c: c.network.head != "full" or c.is_recursive,
)
_FULL = When(
    "network.head is full, or auto with coarse-to-fine",
    lambda c: c.network.head == "full" or (c.network.head == "auto" and c.is_recursive),
)
_VECTORS = When("network.reader is not lstm", lambda c: c.network.reader != "lstm")
_SEARCHED = When(
    "network.head is tree and training.order is not coarse-to-fine",
    lambda c: c.network.head != "full" and not c.is_recursive,
)
_SEARCHED_BY_VECTORS = When(
    "network.head is tree, network.reader is not lstm and training.order is not coarse-to-fine",
    lambda c: _SEARCHED.holds(c) and _VECTORS.holds(c),
)
_RECURSIVE = When("training.order is coarse-to-fine", lambda c: c.is_recursive)
_NOT_RECURSIVE = When("training.order is not coarse-to-fine", lambda c: not c.is_recursive)
_RANKED = When("there is a ranker", has_ranker)
_VALIDATED = When("training.validation_fraction is above 0", lambda c: c.training.validation_fraction > 0)


@dataclass(frozen=True)
class EncoderConfig(Checked):
    """The pretrained transformer."""

    by_text: ClassVar[str] = "name"

    name: str = option("minilm", "minilm, a name on the model hub, or a folder in Hugging Face layout", when=_ENCODER)
    max_length: int = option(
        128,
        "maximum number of tokens per text, or per window of it; longer texts are truncated. 0: "
        f"{USUAL_LENGTH['cuda']} if the encoder is trained on a GPU, {USUAL_LENGTH['cpu']} elsewhere",
        low=0,
        when=_ENCODER,
    )
    windows: int = option(
        1,
        "windows of encoder.max_length tokens that are read of a text; the encoder reads each on its own, and their "
        "token states are pooled into one vector. An LSTM or a cnn reads them as one longer text",
        low=1,
        when=_ENCODER,
    )
    pooling: str = option(
        "auto",
        "pooling of token states into one vector: mean, cls, last5 (the first token in the last five layers), or mean "
        "and cls at given layers, such as cls@8 or mean@4+8. auto: what the encoder was trained with, as the file "
        "1_Pooling/config.json of sentence-transformers says (mean or cls; a warning names any other), else mean",
        form=_OWN_POOLING,
        when=_LAYERS,
    )
    device: str = option("auto", "device: auto (a GPU if there is one), cpu, cuda, cuda:1 or mps", form=_DEVICE)
    precision: str = option(
        "auto",
        "precision of computations; auto is bfloat16 on a GPU and float32 elsewhere",
        choices=("auto", "float32", "bfloat16"),
        when=_ENCODER,
    )
    batch_tokens: int = option(
        0, "tokens per micro-batch in training; lower it if memory runs out. 0: chosen by device", low=0,
        when=_ENCODER,
    )  # fmt: skip
    compile: str = option(
        "auto", "compile the layers with torch.compile; auto: on a GPU", choices=("auto", "on", "off"), when=_LAYERS
    )
    backend: str = option(
        "auto",
        "what a trained encoder runs on: torch, or ONNX Runtime with an encoder that umpteen export has written, in "
        "float32 (onnx) or with weights of 8 bits (onnx-int8). auto: the exported encoder, with 8 bits if there is "
        "one, if onnxruntime is installed and the device is not a GPU; else torch",
        choices=("auto", "torch", *GRAPHS),
        when=_LAYERS,
    )
    gradient_checkpointing: bool = option(
        False, "recompute activations in the backward pass instead of storing them: slower, less memory",
        when=_LAYERS,
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if 0 < self.max_length < _FEWEST_TOKENS:
            raise BadConfig(f"max_length must be 0 or at least {_FEWEST_TOKENS}, but is {self.max_length}")

    def with_length(self, device: str, longest: int | None = None) -> EncoderConfig:
        """Replace ``max_length`` = 0 by what is usual on a kind of device; the encoder reads ``longest`` tokens."""
        if self.max_length:
            return self
        return replace(self, max_length=min(USUAL_LENGTH[device], longest or USUAL_LENGTH[device]))

    @property
    def max_tokens(self) -> int:
        """Tokens that are read of a text at most, in all windows."""
        return self.max_length * self.windows


@dataclass(frozen=True)
class NetworkConfig(Checked):
    """The network: the reader of texts, the levels of the label tree, and the head of each level."""

    reader: str = option(
        "layers",
        "representation of a text: layers of the encoder (layers), an LSTM with attention per node (lstm) or "
        "convolutions (cnn) on the encoder's word embeddings, or the sum of the embeddings of tf-idf features, without "
        "an encoder (bag)",
        choices=READERS,
    )
    head: str = option(
        "tree",
        "classifiers for every level of a label tree (tree), or one per label, trained in blocks without optimiser "
        "state (full). With coarse-to-fine, full is how the labels are trained after the clusters, and auto is full "
        "for more labels than network.max_nodes, which tree does not train on; otherwise auto is tree",
        choices=("tree", "full", "auto"),
    )
    levels: tuple[int, ...] = option(
        (),
        "number of clusters at each level above the labels, coarse to fine; levels with fewer than two labels per "
        "cluster are omitted. Empty: determined by depth and branching",
        low=2,
        when=_TREE,
    )
    depth: int = option(
        1, "number of levels, including the labels, if levels is empty; 0: determined by branching", low=0, when=_TREE
    )
    branching: int = option(8, "ratio of the sizes of consecutive levels, if levels is empty", low=2, when=_TREE)
    few_labels: int = option(0, "no clusters with up to this many labels", low=0, when=_SEARCHED)
    labels_per_cluster: int = option(
        1, "labels per node at the finest level, if levels is empty", low=1, when=_RECURSIVE
    )
    max_nodes: int = option(32_768, "maximum number of nodes of a level with an optimiser", low=2, when=_RECURSIVE)
    pooling: str = option(
        "",
        "pooling for each level, separated by commas, such as cls@5+6,cls@8,cls@12; a single one is used for all. "
        "Empty: deeper layers for finer levels, pooled according to encoder.pooling",
        form=_POOLINGS,
        when=When(
            "network.reader is layers and training.order is not coarse-to-fine",
            lambda c: _LAYERS.holds(c) and not c.is_recursive,
        ),
    )
    hidden: int = option(
        256, "LSTM units per direction and width of the layer after the attention, filters of each size of a cnn, or "
        "dimension of the embeddings of a bag", low=1, when=_NO_LAYERS,
    )  # fmt: skip
    bottleneck: int = option(
        0,
        "width of a linear layer before the classifiers: of a cnn, or of the last of several levels; 0: none, or "
        "network.hidden for a cnn",
        low=0,
        when=_SEARCHED_BY_VECTORS,
    )
    dropout: tuple[float, ...] = option(
        (0.1,), "dropout of the text vectors at each level; the last value is used for all further levels", low=0.0,
        high=0.95, when=_VECTORS,
    )  # fmt: skip
    beam: tuple[int, ...] = option(
        (64,), "nodes per level whose children are scored; the last value is used for all further levels", low=1,
        when=_TREE,
    )  # fmt: skip
    score: str = option(
        "product",
        "score of a label: product over its path (product), over the last two levels (weighted), or the score of the "
        "last level alone (level)",
        choices=("product", "weighted", "level"),
        when=_SEARCHED,
    )
    sparse_update_from: int = option(
        100_000,
        "levels below the first with at least this many nodes use sparse updates, with one number of optimiser state "
        "per node (not with training.order shared-reader)",
        low=1,
        when=_SEARCHED_BY_VECTORS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("dropout", "beam"):
            if not getattr(self, name):
                raise BadConfig(f"{name} is empty; name at least one number")
        if self.head == "full" and self.reader != "layers":
            raise BadConfig("network.head full reads layers of the encoder; leave network.reader out")
        _check_growing(self.levels)

    @property
    def reads(self) -> str:
        """What the reader reads of a text: layers, words or features."""
        return READERS[self.reader].reads

    @property
    def poolings(self) -> tuple[str, ...]:
        """Pooling for each level, or a single one for all; empty: that of the encoder."""
        return tuple(filter(None, (spec.strip() for spec in self.pooling.split(","))))

    def bottleneck_at(self, level: int, n_levels: int) -> int:
        """Return the width of the linear layer before the classifiers of a level; 0 means none."""
        return self.bottleneck if self.reader == "layers" and 0 < level == n_levels - 1 else 0

    def dropout_at(self, level: int) -> float:
        """Return the dropout of a level."""
        return _at(self.dropout, level)

    def beam_at(self, level: int) -> int:
        """Return the number of nodes of a level whose children are scored.

        Examples
        --------
        >>> NetworkConfig(beam=(20, 30)).beam_at(5)
        30
        """
        return int(_at(self.beam, level))


@dataclass(frozen=True)
class TrainingConfig(Checked):
    """Training of reader and heads."""

    order: str = option(
        "joint",
        "order in which levels are trained: together (joint); one after the other with a reader that is trained with "
        "the first level and then frozen (shared-reader), or with a reader per level, initialised with that of the "
        "level above (own-reader); or one after the other with an encoder that is trained at every level, for a "
        "linear ranker (coarse-to-fine)",
        choices=("joint", "shared-reader", "own-reader", "coarse-to-fine"),
    )
    epochs: tuple[float, ...] = option(
        (10.0,), "number of epochs; if levels are trained one after the other, for each of them, the last value for "
        f"the finest level. Empty: {COARSE_EPOCHS:g} for coarse levels and {FEWEST_EPOCHS:g} to {MOST_EPOCHS:g} for "
        "the finest, more for few texts", low=0.0
    )  # fmt: skip
    batch_size: int = option(
        64, f"texts per optimiser step; 0: as many as have about {TOKENS_PER_STEP:,} tokens, fewer for few texts", low=0
    )
    learning_rate: float | None = option(
        1e-4, "learning rate of the reader: encoder, LSTM, convolutions, bottleneck; none: by the width of the encoder "
        "and batch_size", low=0.0,
    )  # fmt: skip
    head_learning_rate: float = option(
        1e-3, "learning rate of the classifiers that have an optimiser", low=0.0, when=_TREE
    )
    full_head_learning_rate: float = option(
        3.0, "learning rate of the classifiers without an optimiser; with 1, a step changes the score of a text by its "
        "residual", low=0.0, when=_FULL,
    )  # fmt: skip
    lr_schedule: str = option(
        "linear",
        "linear decay after a warm-up (linear), constant, or constant with a cosine warm-up and decay (plateau)",
        choices=("linear", "constant", "plateau"),
    )
    warmup: float = option(0.06, "fraction of the steps used for warm-up", low=0.0, high=1.0)
    length_warmup: float = option(
        0.0,
        "fraction of the steps, at every level, in which only training.warmup_length tokens of a text are read: they "
        "take less time, and the steps after them are enough to learn from longer texts",
        low=0.0,
        high=1.0,
        when=_ENCODER,
    )
    warmup_length: int = option(
        128, "tokens of a text in these steps", low=_FEWEST_TOKENS, when=When(
            "training.length_warmup is above 0 and the recipe has an encoder",
            lambda c: c.training.length_warmup > 0 and _ENCODER.holds(c),
        ),
    )  # fmt: skip
    weight_decay: float = option(0.01, "weight decay of the reader", low=0.0)
    head_weight_decay: float = option(0.0, "weight decay of the classifiers", low=0.0, when=_TREE)
    max_grad_norm: float = option(1.0, "maximum gradient norm of the reader; 0: no clipping", low=0.0)
    loss: str = option(
        "bce", "loss of a node; the other orders use bce", choices=("squared-hinge", "hinge", "bce"), when=_RECURSIVE
    )  # fmt: skip
    negatives: str = option(
        "tfn+man",
        "nodes a text is trained on: children of its true parents (tfn), and of network.beam parents predicted by the "
        "level above (tfn+man), or all (coarse-to-fine only)",
        choices=("tfn", "tfn+man", "all"),
        when=_TREE,
    )
    relevance: str = option(
        "none",
        "cost-sensitive weights from induced relevance: none, induce, or induce-l1 (rows sum to one)",
        choices=("none", "induce", "induce-l1"),
        when=_RECURSIVE,
    )
    alpha: float = option(1.0, "weight of negative nodes (α)", low=0.0, when=_RECURSIVE)
    init: str = option(
        "auto",
        "initialisation of the classifiers: solution of the linear problem on the current vectors (newton), linear "
        "discriminants of whitened vectors (lda, with network.reader layers), log-odds of each node as bias (prior), "
        f"or random. auto: lda for labels with fewer than {FEW_TEXTS} texts on average, if it can be used, else prior, "
        "and newton with a hinge loss. With coarse-to-fine, lda is for the labels, not for clusters of them",
        choices=("auto", "newton", "lda", "prior", "random"),
        when=_VECTORS,
    )
    init_cost: float = option(
        1.0, "weight of the loss (C) in the linear problem of newton", low=0.0,
        when=When("training.init is auto or newton", lambda c: c.training.init in ("auto", "newton")),
    )  # fmt: skip
    validation_fraction: float = option(
        0.0, "fraction of the texts held out for early stopping and to fit fusion; no fewer than "
        f"{FEWEST_HELD_OUT} and no more than {MOST_HELD_OUT:,}", low=0.0, high=0.5,
    )  # fmt: skip
    patience: int = option(2, "epochs without improvement after which training stops early", low=1, when=_VALIDATED)
    swa_start: float = option(
        1.0,
        "fraction of the steps after which weights are averaged, every tenth step (SWA); 1: no averaging",
        low=0.0,
        high=1.0,
    )
    time_budget: float = option(
        0.0,
        "seconds that training may take by its estimate: encoder.max_length is then the largest of 32, 64, 128, 256 "
        "and 512 tokens that takes no longer, and no larger than 95 % of the texts need. 0: encoder.max_length is used "
        "as it is",
        low=0.0,
        when=_ENCODER,
    )
    cuda_graphs: bool = option(True, "on a GPU, capture training steps as CUDA graphs, which reduces launch overhead")

    def shortened(self, lengths: np.ndarray) -> np.ndarray:
        """Return how many tokens of texts are read in the steps of the length warm-up."""
        return np.minimum(lengths, self.warmup_length) if self.length_warmup > 0 else lengths

    def mean_lengths(self, lengths: np.ndarray) -> np.ndarray:
        """Return how many tokens of texts are read in a step, on average over all steps.

        Examples
        --------
        >>> TrainingConfig(length_warmup=0.75, warmup_length=100).mean_lengths(np.array([40, 300])).tolist()
        [40.0, 150.0]
        """
        return self.length_warmup * self.shortened(lengths) + (1.0 - self.length_warmup) * lengths

    def epochs_at(self, level: int, n_levels: int) -> float:
        """Return the number of epochs at one of ``n_levels`` levels.

        Examples
        --------
        >>> [TrainingConfig(epochs=(1.0, 4.0)).epochs_at(level, 3) for level in range(3)]
        [1.0, 1.0, 4.0]
        """
        is_last = level == n_levels - 1 or len(self.epochs) == 1
        return self.epochs[-1] if is_last else self.epochs[min(level, len(self.epochs) - 2)]


@dataclass(frozen=True)
class NeuralConfig(ModelConfig):
    """All settings of a neural recipe: ranker, encoder, network and training."""

    features: str = option(
        "auto",
        "input of the ranker: tf-idf and embedding (both), or one of them. auto: tfidf if the encoder's classifiers "
        "are those of the labels, else both",
        choices=("auto", "both", "encoder", "tfidf"),
        when=_RECURSIVE,
    )
    ranker: bool = option(
        False, "train a linear ranker on tf-idf and text embeddings after the network", when=_NOT_RECURSIVE
    )
    embedding_weight: float = option(
        0.6, "norm of the embedding relative to the tf-idf row, where the ranker sees both", low=0.001, when=_RANKED
    )
    head_weight: float | None = option(
        None,
        "weight of the network's own classifiers in an average with the ranker's scores; none: the two are combined "
        "by fusion",
        low=0.0,
        high=1.0,
        when=_RANKED,
    )
    fusion: tuple[float, ...] = option(
        (),
        "logistic model that combines ranker and classifiers: weight of the ranker's margin, weight of the "
        "classifiers' margin, perhaps the weight of the logarithm of a label's training texts plus one, and bias. "
        "Empty: fitted on held-out texts",
        when=When("there is a ranker and head_weight is none", lambda c: has_ranker(c) and c.head_weight is None),
    )
    # defaults of the ranker were measured on rows with an embedding, which are longer than tf-idf rows
    linear: LinearConfig = field(
        default_factory=lambda: LinearConfig(cost=1.0, max_iter=20, negatives="tfn+man", negatives_beam=5),
        metadata={"when": _RANKED},
    )
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.network.head == "full" and self.training.order not in ("joint", "coarse-to-fine"):
            raise BadConfig("network.head full has one level; use training.order joint or coarse-to-fine")
        if len(self.fusion) not in (0, 3, 4):
            raise BadConfig(f"fusion must be three or four numbers or empty, but has {len(self.fusion)}")
        if self.network.head == "full" and self.is_recursive and self.training.loss != "bce":
            raise BadConfig(f"network.head full needs training.loss bce, but that is {self.training.loss}")
        if self.training.negatives == "all" and not self.is_recursive:
            raise BadConfig("training.negatives all needs training.order coarse-to-fine; use tfn or tfn+man")
        if self.is_recursive and self.network.reader != "layers":
            raise BadConfig("training.order coarse-to-fine needs layers of an encoder; leave network.reader out")

    @property
    def is_recursive(self) -> bool:
        """Whether an encoder is fine-tuned level by level for a linear ranker, as in XR-Transformer."""
        return self.training.order == "coarse-to-fine"

    @property
    def whitens(self) -> bool:
        """Whether the classifiers of a network read whitened vectors."""
        return self.training.init == "lda" and self.network.reader == "layers" and not self.is_recursive

    def has_full_head(self, n_labels: int) -> bool:
        """Return whether the classifiers of the labels are trained in blocks, without an optimiser."""
        if self.network.head != "auto":
            return self.network.head == "full"
        return self.is_recursive and self.training.loss == "bce" and n_labels > self.network.max_nodes

    def trains_labels(self, n_labels: int) -> bool:
        """Return whether coarse-to-fine training ends with the labels, not with clusters of them."""
        network = self.network
        if network.labels_per_cluster > 1 and not network.levels:
            return False
        return n_labels <= network.max_nodes or self.has_full_head(n_labels)

    def fits_fusion(self, n_labels: int) -> bool:
        """Return whether ``fusion`` is left open, and texts are held out to fit it on."""
        has_both = self.trains_labels(n_labels) if self.is_recursive else self.ranker
        return has_both and self.head_weight is None and not self.fusion and self.training.validation_fraction > 0

    def with_features(self, n_labels: int) -> NeuralConfig:
        """Replace ``features`` = auto."""
        if self.features != "auto":
            return self
        return replace(self, features="tfidf" if self.trains_labels(n_labels) else "both")

    def updates_rows(self, level: int, n_nodes: int) -> bool:
        """Return whether a level uses sparse updates: of the scored rows only, without an optimiser."""
        network = self.network
        has_vectors = network.reader != "lstm" and self.training.order != "shared-reader"
        return level > 0 and n_nodes >= network.sparse_update_from and has_vectors

    @property
    def _usual_init(self) -> str:
        """How classifiers of nodes with many texts are initialised."""
        return "newton" if self.is_recursive and self.training.loss != "bce" else "prior"

    def with_init(self, texts_per_label: float) -> NeuralConfig:
        """Replace ``training.init`` = auto by what suits labels with so many texts each.

        Examples
        --------
        >>> [NeuralConfig().with_init(n).training.init for n in (2.0, 20.0)]
        ['lda', 'prior']
        """
        if self.training.init != "auto":
            return self
        can_whiten = self.network.reader == "layers"
        init = "lda" if texts_per_label < FEW_TEXTS and can_whiten else self._usual_init
        return replace(self, training=replace(self.training, init=init))

    def init_at(self, level: int, n_levels: int) -> str:
        """Return how a level of coarse-to-fine training is initialised: clusters have many texts each."""
        init = self.training.init
        is_usual = init == "auto" or (init == "lda" and level < n_levels - 1)
        return self._usual_init if is_usual else init

    def with_schedule(self, lengths: np.ndarray, n_texts: int, width: int) -> NeuralConfig:
        """Replace epochs, batch size and learning rate that are left open.

        Parameters
        ----------
        lengths
            Tokens of texts, perhaps of a sample.
        n_texts
            Number of texts.
        width
            Hidden size of the encoder.

        Examples
        --------
        >>> from umpteen.config import update
        >>> config = update(NeuralConfig(), {"training": {"epochs": (), "batch_size": 0, "learning_rate": None}})
        >>> training = config.with_schedule(np.array([128]), 45_000, 384).training
        >>> training.epochs, training.batch_size, training.learning_rate
        ((0.5, 5.0), 64, 0.0002)
        """
        training, size = self.training, self.training.batch_size
        if not size:
            read = training.shortened(lengths) if training.length_warmup >= 0.5 else lengths  # in most steps
            n_tokens = float(read.mean()) if len(read) else 0.0
            size = min(TOKENS_PER_STEP / max(n_tokens, 1.0), n_texts / FEWEST_STEPS_PER_EPOCH, MOST_TEXTS_PER_STEP)
            size = 1 << max(4, int(size).bit_length() - 1)
        epochs = training.epochs or (
            COARSE_EPOCHS,
            float(round(min(max(TEXTS_READ / max(n_texts, 1), FEWEST_EPOCHS), MOST_EPOCHS))),
        )
        rate = training.learning_rate
        if rate is None:
            rate = float(f"{_USUAL_RATE * (_USUAL_WIDTH / width) * (size / _USUAL_SIZE) ** 0.25:.2g}")
        return replace(self, training=replace(training, epochs=epochs, batch_size=size, learning_rate=rate))


def _at(values: tuple[float, ...], level: int) -> float:
    """Return the value of a level; the last value is used for all further levels."""
    return values[min(level, len(values) - 1)]


def _check_growing(levels: tuple[int, ...]) -> None:
    if any(below < 2 * above for above, below in itertools.pairwise(levels)):
        shown = ", ".join(map(str, levels))
        raise BadConfig(f"levels must grow from coarse to fine, each to at least twice the one above, but are {shown}")
