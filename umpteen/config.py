"""Settings: one frozen dataclass per noun, every field with a default, a sentence and a range.

The command line, ``set_params``, the JSON files and the docs are all generated from these classes, so
there is one list of options. Knows nothing about data, files or models.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import types
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from umpteen.errors import BadConfig, nearest

Settings = TypeVar("Settings")


# How much is done at a time where no setting says so: here, because what it takes is foretold without torch.
TOKENS_AT_ONCE = {"cpu": 4_096, "mps": 16_384, "cuda": 262_144}  # embedded
FEWER_IN_TRAINING = 4  # gradients need about this many times the memory
LABELS_SOLVED_AT_ONCE = 1_024
LABELS_STEPPED_AT_ONCE = 65_536

FEW_TEXTS = 5  # of a label: so few teach a network less than what they have in common does


def option(
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] | None = None,
) -> Any:
    """Declare a setting: its default, what it does, and what it may be."""
    return field(default=default, metadata={"doc": doc, "low": low, "high": high, "choices": choices})


class Checked:
    """Check every field's type and range when an instance is made."""

    def __post_init__(self) -> None:
        hints = _hints(type(self))
        for spec in fields(self):  # type: ignore[arg-type]
            value = _coerce(spec.name, getattr(self, spec.name), hints[spec.name])
            _check_range(spec.name, value, spec.metadata)
            object.__setattr__(self, spec.name, value)


@dataclass(frozen=True)
class TfidfConfig(Checked):
    """How texts become sparse rows."""

    analyzer: str = option("word", "what a term is made of", choices=("word", "char", "char_wb"))
    ngram_min: int = option(1, "shortest n-gram", low=1)
    ngram_max: int = option(2, "longest n-gram", low=1)
    lowercase: bool = option(True, "fold case before splitting")
    min_df: int = option(1, "drop terms that fewer texts contain", low=1)
    max_df: float = option(1.0, "drop terms that more than this share of the texts contain", low=0.0, high=1.0)
    max_features: int = option(200_000, "keep this many terms, the most frequent ones; 0 keeps all", low=0)
    sublinear: bool = option(True, "use 1 + ln(count) instead of the count")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ngram_max < self.ngram_min:
            raise BadConfig(f"ngram_max must be at least ngram_min ({self.ngram_min}), but is {self.ngram_max}")


@dataclass(frozen=True)
class TreeConfig(Checked):
    """How labels are grouped."""

    kind: str = option(
        "halving",
        "halving (balanced 2-means, repeated), kmeans (balanced k-way), unbalanced (plain k-way), "
        "random, given (a hierarchy you pass), none (one versus all), auto (none for up to 5,000 labels, else halving)",
        choices=("auto", "kmeans", "halving", "unbalanced", "random", "given", "none"),
    )
    branching: int = option(64, "most children of an inner node", low=2)
    leaf_size: int = option(96, "most labels under one parent; multiples of 16 train fastest", low=1)
    depth: int = option(0, "number of levels above the labels; 0 lets leaf_size decide", low=0)
    vectors: str = option(
        "pifa",
        "what a label looks like: its texts (pifa), its name (names), or both",
        choices=("pifa", "names", "both"),
    )
    max_features: int = option(300, "keep this many features of each label vector, the largest; 0 keeps all", low=0)
    max_iter: int = option(20, "k-means sweeps per split", low=1)
    tolerance: float = option(5e-4, "stop a split when the mean similarity grows by less than this share", low=0.0)


@dataclass(frozen=True)
class LinearConfig(Checked):
    """How a node's linear scorer is trained."""

    loss: str = option("squared-hinge", "squared-hinge or logistic", choices=("squared-hinge", "logistic"))
    cost: float = option(1.0, "weight of the loss against the norm of the weights (C)", low=0.0)
    cost_positive: float = option(1.0, "extra weight of positive rows (Cp)", low=0.0)
    cost_negative: float = option(1.0, "extra weight of negative rows (Cn)", low=0.0)
    bias: float = option(1.0, "value of the constant feature; 0 trains without bias", low=0.0)
    eps: float = option(0.1, "stop when no row moves by more than this; levels above the labels by 0.3 of it", low=0.0)
    max_iter: int = option(20, "most sweeps over the rows", low=1)
    threshold: float = option(0.1, "drop weights smaller than this", low=0.0)
    negatives: str = option(
        "auto",
        "rows that train a node: under true parents (tfn), under the parents the level above predicts (man), or both; "
        "auto is tfn+man for long rows (50 features and more on average) and tfn for short ones",
        choices=("auto", "tfn", "man", "tfn+man"),
    )
    negatives_at: str = option(
        "leaf", "levels that use the predicted parents of man: leaf or all", choices=("leaf", "all")
    )
    negatives_beam: int = option(5, "predicted parents per text for man", low=1)
    relevance: str = option(
        "none",
        "cost-sensitive weights from induced relevance: none, induce, or induce-l1 (rows sum to one)",
        choices=("none", "induce", "induce-l1"),
    )
    memory_gb: float = option(0.0, "most memory the solver may hold at a time, in GB; 0 sets no bound", low=0.0)


@dataclass(frozen=True)
class SearchConfig(Checked):
    """How the tree is searched for a text."""

    beam: int = option(10, "nodes kept per level", low=1)
    beams: tuple[int, ...] = option((), "nodes kept at each level from the top, instead of beam", low=1)
    post: str = option(
        "auto",
        "what turns a margin into a factor of the score; auto is l3-hinge for long rows and l2-hinge for short ones",
        choices=("auto", "l3-hinge", "l2-hinge", "l1-hinge", "l4-hinge", "sigmoid", "identity"),
    )
    leaf_post: str = option(
        "auto",
        "the same at the last level; auto is l4-hinge after a hinge (steeper ranks better there), else the same",
        choices=("auto", "same", "l3-hinge", "l2-hinge", "l1-hinge", "l4-hinge", "sigmoid", "identity"),
    )
    threshold: float = option(0.3, "score from which predict calls a label present", low=0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.post == "identity" and self.leaf_post not in ("auto", "same", "identity"):
            raise BadConfig(
                f"post 'identity' gives raw margins, which cannot be factors of leaf_post {self.leaf_post!r}; "
                "set leaf_post to 'same' too, or choose another post"
            )


@dataclass(frozen=True)
class StoreConfig(Checked):
    """How weights lie on disk."""

    weights: str = option("int8", "precision of stored weights", choices=("float32", "float16", "int8"))


@dataclass(frozen=True)
class ModelConfig(Checked):
    """Everything a linear recipe needs; presets are differences from it."""

    recipe: str = option("xr-linear", "name of the recipe")
    trees: int = option(1, "trees in the ensemble, each with its own seed", low=1)
    ensemble: str = option(
        "average",
        "how the trees' scores are merged",
        choices=("average", "rank-average", "sigmoid-average", "softmax-average", "round-robin"),
    )
    normalize: bool = option(True, "scale feature rows to length one")
    seed: int = option(0, "same seed, same model", low=0)
    threads: int = option(0, "threads to use; 0 means all cores", low=0)
    tfidf: TfidfConfig = field(default_factory=TfidfConfig)
    tree: TreeConfig = field(default_factory=TreeConfig)
    linear: LinearConfig = field(default_factory=LinearConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    store: StoreConfig = field(default_factory=StoreConfig)

    @property
    def idle(self) -> dict[str, str]:
        """Settings, or nouns of them, that change nothing here, and why."""
        return {}


@dataclass(frozen=True)
class EncoderConfig(Checked):
    """Which transformer reads the texts, and how."""

    name: str = option("minilm", "minilm, a name on the model hub, or a folder in Hugging Face layout")
    tokens: int = option(128, "tokens read of a text; what is longer is cut off", low=4)
    pooling: str = option(
        "mean",
        "how tokens become one vector: mean, cls, last5 (the first token in the last five layers), or either of the "
        "first two at chosen layers, such as cls@8 or mean@4+8",
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
        ranker = ("trees", "ensemble", "linear", "search", "embedding_weight", "head_weight")
        levels = ("levels", "depth", "branching", "few_labels", "bottleneck", "by_row", "beam", "score", "head_decay")
        found = {} if self.ranker else dict.fromkeys(ranker, f"{self.recipe} has no ranker")
        if self.net.kind == "full":
            found |= {
                f"net.{name}": f"{self.recipe} scores every label, without levels or an optimiser" for name in levels
            }
        if self.net.reader != "layers":
            why = f"{self.recipe} takes the encoder's vectors of words and none of its layers"
            found |= {"net.pooling": why, "net.begin": why}
        return found


def describe_all() -> list[tuple[str, str, Any, str]]:
    """List the settings of all recipes, each once."""
    rows = {row[0]: row for cls in (NeuralConfig, NetModelConfig) for row in describe(cls)}
    return list(rows.values())


def _check_growing(levels: tuple[int, ...]) -> None:
    if any(below < 2 * above for above, below in itertools.pairwise(levels)):
        shown = ", ".join(map(str, levels))
        raise BadConfig(f"levels must grow from coarse to fine, each to at least twice the one above, but are {shown}")


def describe(cls: type) -> list[tuple[str, str, Any, str]]:
    """List every setting as ``(dotted key, type, default, doc)``, nested ones included."""
    rows = []
    hints = _hints(cls)
    for spec in fields(cls):
        default = spec.default if spec.default is not dataclasses.MISSING else spec.default_factory()  # type: ignore[misc]
        if dataclasses.is_dataclass(default):
            rows += [(f"{spec.name}.{key}", *rest) for key, *rest in describe(type(default))]
        else:
            hint = hints[spec.name]
            kind = _kind(hint)
            rows.append((spec.name, kind, default, spec.metadata.get("doc", "")))
    return rows


def _kind(hint: Any) -> str:
    if isinstance(hint, types.UnionType):
        return f"{typing.get_args(hint)[0].__name__} or none"
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)


def to_dict(settings: Any) -> dict[str, Any]:
    """Turn settings into plain JSON values."""
    return json.loads(json.dumps(dataclasses.asdict(settings)))


def from_dict(cls: type[Settings], values: Mapping[str, Any]) -> Settings:
    """Build settings from a nested dict; what is absent keeps its default."""
    return update(cls(), values)


def update(settings: Settings, values: Mapping[str, Any]) -> Settings:
    """Return a copy with values replaced.

    Keys may be nested dicts or dotted (``"tree.branching"``); strings are converted to the field's type.
    An unknown key is an error that suggests the nearest known one.
    """
    hints = _hints(type(settings))
    changes: dict[str, Any] = {}
    for key, value in values.items():
        head, _, rest = key.partition(".")
        if head not in hints:
            raise BadConfig(f"unknown setting '{key}'{nearest(key, _all_keys(type(settings)))}")
        current = changes.get(head, getattr(settings, head))
        if rest:
            if not dataclasses.is_dataclass(current):
                raise BadConfig(f"setting '{head}' has no parts, so '{key}' does not exist")
            with _within(head, type(current)):
                changes[head] = update(current, {rest: value})
        elif dataclasses.is_dataclass(current) and isinstance(value, Mapping):
            with _within(head, type(current)):
                changes[head] = update(current, value)
        else:
            changes[head] = value
    return replace(settings, **changes)  # type: ignore[type-var]


@contextmanager
def _within(noun: str, cls: type) -> Iterator[None]:
    """Name a setting that is wrong in full: ``net.epochs``, not ``epochs``."""
    try:
        yield
    except BadConfig as error:
        text = str(error)
        is_own = text.split(" ", 1)[0] in {spec.name for spec in fields(cls)}
        raise BadConfig(f"{noun}.{text}" if is_own else text) from None


def difference(settings: Any, base: Any) -> dict[str, Any]:
    """List what differs from ``base`` as dotted keys: the short form in which recipes are published."""
    changed: dict[str, Any] = {}
    for spec in fields(settings):
        ours, theirs = getattr(settings, spec.name), getattr(base, spec.name)
        if dataclasses.is_dataclass(ours):
            changed |= {f"{spec.name}.{key}": value for key, value in difference(ours, theirs).items()}
        elif ours != theirs:
            changed[spec.name] = ours
    return changed


def _all_keys(cls: type) -> list[str]:
    return [key for key, *_ in describe(cls)] + [spec.name for spec in fields(cls)]


def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _coerce(name: str, value: Any, hint: Any) -> Any:
    """Convert what a person typed, or JSON held, to the field's type."""
    if dataclasses.is_dataclass(hint):
        if hint is EncoderConfig and isinstance(value, str):  # a name is the one thing most people set
            return EncoderConfig(name=value)
        if isinstance(value, Mapping):
            with _within(name, hint):
                return from_dict(hint, value)  # type: ignore[type-var]
        if not isinstance(value, hint):  # type: ignore[arg-type]
            raise BadConfig(f"{name} must be a {hint.__name__} or a dict, but is {value!r}")
        return value
    if typing.get_origin(hint) is tuple:
        if isinstance(value, str):
            value = [part for part in value.replace(",", " ").split() if part]
        if not isinstance(value, (list, tuple)):
            raise BadConfig(f"{name} must be a list, but is {value!r}")
        item = typing.get_args(hint)[0]
        return tuple(_coerce(name, part, item) for part in value)
    if hint is bool:
        return _as_bool(name, value)
    if hint in (int, float):
        return _as_number(name, value, hint)
    if isinstance(hint, types.UnionType):  # a number or nothing
        is_nothing = value is None or (isinstance(value, str) and value.strip().lower() == "none")
        return None if is_nothing else _coerce(name, value, typing.get_args(hint)[0])
    if hint is str and not isinstance(value, str):
        raise BadConfig(f"{name} must be text, but is {value!r}")
    return value


def _as_bool(name: str, value: Any) -> bool:
    if isinstance(value, str):
        word = value.strip().lower()
        if word in ("true", "yes", "on", "1"):
            return True
        if word in ("false", "no", "off", "0"):
            return False
    elif value in (True, False):
        return bool(value)
    raise BadConfig(f"{name} must be true or false, but is {value!r}")


def _as_number(name: str, value: Any, kind: type) -> int | float:
    try:
        number = float(value) if not isinstance(value, bool) else float("nan")
        if kind is int and isinstance(value, str):
            with suppress(ValueError):  # "1e3" is a whole number too, but large ones lose digits as floats
                return int(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not math.isfinite(number):
        raise BadConfig(f"{name} must be a number, but is {value!r}")
    if kind is int:
        if number != int(number):
            raise BadConfig(f"{name} must be a whole number, but is {value!r}")
        return int(value) if not isinstance(value, str) else int(number)
    return number


def _check_range(name: str, value: Any, rules: Mapping[str, Any]) -> None:
    if isinstance(value, tuple):
        for part in value:
            _check_range(name, part, rules)
        return
    if value is None:
        return
    choices, low, high = rules.get("choices"), rules.get("low"), rules.get("high")
    if choices and value not in choices:
        raise BadConfig(f"{name} must be one of {', '.join(choices)}, but is {value!r}{nearest(str(value), choices)}")
    if low is not None and value < low:
        raise BadConfig(f"{name} must be at least {low}, but is {value!r}")
    if high is not None and value > high:
        raise BadConfig(f"{name} must be at most {high}, but is {value!r}")
