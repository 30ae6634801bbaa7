"""Settings of the recipes that read with an encoder."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import ClassVar

from umpteen.config.checked import Checked, Form, option
from umpteen.config.linear import LinearConfig, ModelConfig
from umpteen.errors import BadConfig

# How much is done at a time where no setting says so: here, because what it takes is foretold without torch.
TOKENS_AT_ONCE = {"cpu": 4_096, "mps": 16_384, "cuda": 262_144}  # embedded
FEWER_IN_TRAINING = 4  # gradients need about this many times the memory
LABELS_SOLVED_AT_ONCE = 1_024
LABELS_STEPPED_AT_ONCE = 65_536

_POOLING = Form(
    r"(?:last5|(?:mean|cls)(?:@\d+(?:\+\d+)*)?)",
    "mean, cls, last5, or one of the first two at layers: mean@4+8",
)
_POOLINGS = Form(
    rf"(?:\s*{_POOLING.pattern}\s*(?:,\s*{_POOLING.pattern}\s*)*)?",
    "poolings separated by commas, such as last5 or cls@5+6,cls@8,cls@12",
)

FEW_TEXTS = 5  # of a label: so few teach a network less than what they have in common does


@dataclass(frozen=True)
class EncoderConfig(Checked):
    """Which transformer reads the texts, and how."""

    by_text: ClassVar[str] = "name"  # the one thing most people set

    name: str = option("minilm", "minilm, a name on the model hub, or a folder in Hugging Face layout")
    tokens: int = option(128, "tokens read of a text; what is longer is cut off", low=4)
    pooling: str = option(
        "mean",
        "how tokens become one vector: mean, cls, last5 (the first token in the last five layers), or either of the "
        "first two at chosen layers, such as cls@8 or mean@4+8",
        form=_POOLING,
    )
    device: str = option("auto", "where it runs", choices=("auto", "cpu", "cuda", "mps"))
    precision: str = option("auto", "bfloat16 on a GPU, else float32", choices=("auto", "float32", "bfloat16"))
    batch_tokens: int = option(
        0, "tokens in memory at a time while training; lower it if memory runs out. 0 chooses by device", low=0
    )
    compile: str = option("auto", "compile the layers; auto does so on a GPU", choices=("auto", "on", "off"))


@dataclass(frozen=True)
class FinetuneConfig(Checked):
    """How the encoder learns, one resolution of the label tree after the other."""

    levels: tuple[int, ...] = option(
        (), "clusters at each resolution, coarse to fine; the labels follow if they fit in max_nodes. "
        "Empty: one resolution per factor of branching", low=2
    )  # fmt: skip
    branching: int = option(64, "how much finer each resolution is", low=2)
    cluster: int = option(1, "labels per node at the finest resolution, where levels is empty", low=1)
    max_nodes: int = option(32_768, "the finest resolution to learn has at most this many nodes", low=2)
    epochs: tuple[float, ...] = option(
        (1.0, 4.0), "passes over the texts at each resolution; the last number serves the finest one", low=0.0
    )
    batch_size: int = option(64, "texts per step", low=1)
    rate: float = option(1e-4, "learning rate of the encoder", low=0.0)
    head_rate: float = option(2e-3, "learning rate of the scorers", low=0.0)
    warmup: float = option(
        0.06, "share of the steps in which the rates rise; they fall to zero after that", low=0.0, high=1.0
    )
    weight_decay: float = option(0.01, "weight decay of the encoder", low=0.0)
    dropout: float = option(0.1, "share of an embedding that is dropped before it is scored", low=0.0, high=0.95)
    clip: float = option(1.0, "longest gradient of the encoder; 0 sets no bound", low=0.0)
    loss: str = option("squared-hinge", "what a wrong score costs", choices=("squared-hinge", "hinge", "bce"))
    negatives: str = option(
        "tfn+man",
        "nodes that are scored: under true parents (tfn), also under the parents the level above predicts (tfn+man), "
        "or all",
        choices=("tfn", "tfn+man", "all"),
    )
    negatives_beam: int = option(20, "predicted parents per text for man", low=1)
    relevance: str = option(
        "induce",
        "cost-sensitive weights from induced relevance: none, induce, or induce-l1 (rows sum to one)",
        choices=("none", "induce", "induce-l1"),
    )
    alpha: float = option(1.0, "weight of a node that is not relevant (α)", low=0.0)
    bootstrap: bool = option(True, "start each resolution's scorers at the linear solution on the current embeddings")
    bootstrap_cost: float = option(1.0, "weight of the loss in that solution (C)", low=0.0)
    held_out: float = option(
        0.05, "share of the texts kept from fine-tuning, to stop early and to weigh the embedding", low=0.0, high=0.5
    )
    patience: int = option(2, "epochs without gain on those texts before a resolution ends", low=1)
    record: bool = option(
        True, "on a GPU, record steps and replay them, which spares a small encoder the wait for Python"
    )
    recompute: bool = option(False, "keep no activations but recompute them: slower, far less memory")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.epochs:
            raise BadConfig("epochs is empty; name at least one number of passes, such as 1,4")
        _check_growing(self.levels)

    def epochs_at(self, level: int, n_levels: int) -> float:
        """Return the passes at one of so many resolutions.

        Examples
        --------
        >>> [FinetuneConfig(epochs=(1.0, 4.0)).epochs_at(level, 3) for level in range(3)]
        [1.0, 1.0, 4.0]
        """
        is_last = level == n_levels - 1 or len(self.epochs) == 1
        return self.epochs[-1] if is_last else self.epochs[min(level, len(self.epochs) - 2)]


@dataclass(frozen=True)
class EncodedConfig(ModelConfig):
    """What all recipes with an encoder share: a linear recipe's settings for their ranker, and the encoder."""

    embedding_weight: float | None = option(
        None,
        "how many times as much the embedding counts as the tf-idf row; none lets xr-transformer choose it on texts "
        "kept from fine-tuning, and leave the encoder out if tf-idf alone does better there",
        low=0.001,
    )
    head_weight: float | None = option(
        None,
        "share that the encoder's own scorers have in a label's score; 0 leaves all to the ranker, none chooses it",
        low=0.0,
        high=1.0,
    )
    # rows with an embedding are long, and what its ranker needs was measured with these
    linear: LinearConfig = field(
        default_factory=lambda: LinearConfig(cost=1.0, max_iter=20, negatives="tfn+man", negatives_beam=5)
    )
    encoder: EncoderConfig = field(default_factory=EncoderConfig)


@dataclass(frozen=True)
class NeuralConfig(EncodedConfig):
    """Everything XR-Transformer needs."""

    features: str = option(
        "both",
        "what the ranker sees: tf-idf and embedding (both), or one of them",
        choices=("both", "encoder", "tfidf"),
    )
    finetune: FinetuneConfig = field(default_factory=FinetuneConfig)


@dataclass(frozen=True)
class NetConfig(Checked):
    """A network that scores labels itself: its levels, and how all of them learn at once."""

    kind: str = option(
        "cascade",
        "scorers of several levels (cascade), or one per label, trained in pieces without an optimiser's state (full)",
        choices=("cascade", "full"),
    )
    reader: str = option(
        "layers",
        "what reads a text: layers of the encoder, or, on the encoder's vectors of words alone, an LSTM whose states "
        "each node attends to (lstm) or filters over neighbouring words (cnn)",
        choices=("layers", "lstm", "cnn"),
    )
    hidden: int = option(
        256, "states of the LSTM in each direction and width of what follows, or filters of a size", low=1
    )
    order: str = option(
        "at-once",
        "levels learn at once, or one after the other: with one reader that learns with the first (one-reader), or "
        "each with a reader that begins as the one above ended (own-reader)",
        choices=("at-once", "one-reader", "own-reader"),
    )
    levels: tuple[int, ...] = option(
        (),
        "clusters at each level above the labels, coarse to fine, rounded up so that all have as many children; those "
        "with less than two labels a cluster are left out. Empty: chosen by depth, branching and few_labels",
        low=2,
    )
    depth: int = option(1, "levels, the labels' included, where levels is empty", low=1)
    branching: int = option(8, "how much finer each level is, where levels is empty", low=2)
    few_labels: int = option(0, "up to so many labels, they are all scored and there are no clusters", low=0)
    pooling: str = option(
        "",
        "what each level reads of the encoder, separated by commas, such as cls@5+6,cls@8,cls@12; one serves all. "
        "Empty: deeper and deeper layers, pooled as encoder.pooling says",
        form=_POOLINGS,
    )
    dropout: tuple[float, ...] = option(
        (0.1,), "share of what a level reads that is dropped in training; the last number serves all deeper levels",
        low=0.0, high=0.95,
    )  # fmt: skip
    bottleneck: int = option(
        0,
        "width that a text's vector is brought to, by a cnn or at the last of several levels; 0 leaves it as it is, "
        "that of a cnn as wide as hidden",
        low=0,
    )
    by_row: int = option(
        100_000,
        "levels below the first with at least so many nodes step the rows that a batch touches and keep one number of "
        "state a node; smaller ones, those that attend and those of one-reader have an optimiser that keeps two for "
        "each weight",
        low=1,
    )
    beam: tuple[int, ...] = option(
        (64,), "nodes of each level whose children are scored; the last number serves all deeper levels", low=1
    )
    score: str = option(
        "product",
        "the score of a label: those of all levels on its way multiplied (product), of the last two (weighted), or "
        "that of the last (level)",
        choices=("product", "weighted", "level"),
    )
    epochs: float = option(10.0, "passes over the texts, for each level where they learn in turn", low=0.0)
    batch_size: int = option(64, "texts per step", low=1)
    begin: str = option(
        "auto",
        "where scorers begin: at what the texts of their nodes have in common, which takes a look at all texts, or at "
        "how often nodes are right (shares), as filters always do; nodes that attend begin at nothing. Auto: at texts "
        f"if a label has less than {FEW_TEXTS} of them on average",
        choices=("auto", "texts", "shares"),
    )
    rate: float = option(1e-4, "learning rate of what reads a text: encoder, LSTM, filters, bottleneck", low=0.0)
    head_rate: float = option(1e-3, "learning rate of the scorers", low=0.0)
    schedule: str = option(
        "linear",
        "how rates change: fall linearly, stay constant, or constant with a cosine at both ends (plateau); all but "
        "constant rise first",
        choices=("linear", "constant", "plateau"),
    )
    warmup: float = option(0.06, "share of the steps in which rates rise", low=0.0, high=1.0)
    weight_decay: float = option(0.01, "weight decay of what reads a text", low=0.0)
    head_decay: float = option(0.0, "weight decay of the scorers", low=0.0)
    clip: float = option(1.0, "longest gradient of what reads a text; 0 sets no bound", low=0.0)
    average_from: float = option(
        1.0,
        "share of the steps after which the weights of every tenth are averaged (SWA); 1 averages none",
        low=0.0,
        high=1.0,
    )
    record: bool = option(True, "on a GPU, record steps and replay them: a small encoder waits for Python otherwise")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("dropout", "beam"):
            if not getattr(self, name):
                raise BadConfig(f"{name} is empty; name at least one number")
        if self.kind == "full" and (self.reader, self.order) != ("layers", "at-once"):
            raise BadConfig("net.kind full reads layers of the encoder, at once; leave net.reader and net.order out")
        _check_growing(self.levels)

    def steps_rows(self, level: int, n_nodes: int) -> bool:
        """Return whether a level steps the rows that a batch touches, without an optimiser."""
        return level > 0 and n_nodes >= self.by_row and self.reader != "lstm" and self.order != "one-reader"

    def settled(self, texts_per_label: float) -> NetConfig:
        """Replace ``auto`` by what suits labels with so many texts each."""
        by_itself = "texts" if texts_per_label < FEW_TEXTS else "shares"
        return replace(self, begin=by_itself if self.begin == "auto" else self.begin)

    @property
    def poolings(self) -> tuple[str, ...]:
        """What levels read of the encoder, one for each or one for all; none leaves it to the encoder."""
        return tuple(filter(None, (spec.strip() for spec in self.pooling.split(","))))

    @property
    def begins_with_texts(self) -> bool:
        """Whether scorers begin at what the texts of their nodes have in common."""
        return self.begin == "texts" and self.reader == "layers"

    def narrowed(self, level: int, n_levels: int) -> int:
        """Return the width to which a level brings a text's vector before it is scored; 0 is as it is."""
        return self.bottleneck if self.reader == "layers" and 0 < level == n_levels - 1 else 0

    def at(self, values: tuple[float, ...], level: int) -> float:
        """Return the value for a level of a list whose last one serves the rest.

        Examples
        --------
        >>> NetConfig().at((0.2, 0.3), 5)
        0.3
        """
        return values[min(level, len(values) - 1)]


@dataclass(frozen=True)
class NetModelConfig(EncodedConfig):
    """Everything a recipe needs whose network scores labels itself."""

    ranker: bool = option(False, "train a ranker on tf-idf and what the network makes of a text, after the network")
    net: NetConfig = field(default_factory=NetConfig)

    @property
    def idle(self) -> dict[str, str]:
        """Settings, or nouns of them, that change nothing here, and why."""
        ranker = ("trees", "ensemble", "linear", "embedding_weight", "head_weight", "normalize")
        ranker += tuple(f"search.{name}" for name in ("beam", "beams", "post", "leaf_post"))
        levels = ("levels", "depth", "branching", "few_labels", "bottleneck", "by_row", "beam", "score", "head_decay")
        found = {} if self.ranker else dict.fromkeys(ranker, f"{self.recipe} has no ranker")
        if self.net.kind == "full":
            why = f"{self.recipe} scores every label, without levels or an optimiser"
            found |= {f"net.{name}": why for name in levels}
        if not self.ranker and self.net.kind == "full":
            found |= dict.fromkeys(("tfidf", "tree"), f"{self.recipe} has neither clusters nor a ranker")
        elif not self.ranker:
            why = "net.levels, net.depth and net.branching say how labels are clustered for a network"
            found |= {f"tree.{name}": why for name in ("branching", "leaf_size", "depth")}
        if self.net.reader != "layers":
            why = f"{self.recipe} takes the encoder's vectors of words and none of its layers"
            found |= {"encoder.pooling": why, "net.pooling": why, "net.begin": why}
        else:
            found["net.hidden"] = f"{self.recipe} reads layers of the encoder"
        if self.net.reader == "lstm":
            why = f"nodes of {self.recipe} attend to states, by shares that its paper names"
            found |= {f"net.{name}": why for name in ("dropout", "bottleneck", "by_row")}
        return found


def _check_growing(levels: tuple[int, ...]) -> None:
    if any(below < 2 * above for above, below in itertools.pairwise(levels)):
        shown = ", ".join(map(str, levels))
        raise BadConfig(f"levels must grow from coarse to fine, each to at least twice the one above, but are {shown}")
