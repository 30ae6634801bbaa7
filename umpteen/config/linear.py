"""Settings of the linear recipes: tf-idf, label tree, classifiers, search."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from umpteen.config.checked import Checked, When, option, unused
from umpteen.errors import BadConfig


def has_ranker(config: Any) -> bool:
    """Return whether a recipe ranks with linear classifiers: all linear ones do, and some networks."""
    return getattr(config, "ranker", True) or config.is_recursive


_RANKER = When("there is a ranker", has_ranker)
_ROWS = When("feature rows are read", lambda c: has_ranker(c) or c.network.reads == "features")
_WORDS = When("labels are clustered or ranked", lambda c: has_ranker(c) or c.network.head == "tree")


@dataclass(frozen=True)
class TfidfConfig(Checked):
    """How texts become sparse rows."""

    analyzer: str = option("word", "what a term is made of", choices=("word", "char", "char_wb"))
    ngram_min: int = option(1, "shortest n-gram", low=1, high=100)
    ngram_max: int = option(2, "longest n-gram", low=1, high=100)
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
    branching: int = option(64, "most children of an inner node", low=2, when=_RANKER)
    leaf_size: int = option(96, "most labels under one parent; multiples of 16 train fastest", low=1, when=_RANKER)
    depth: int = option(0, "number of levels above the labels; 0 lets leaf_size decide", low=0, when=_RANKER)
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
    """How the linear classifier of a node is trained."""

    loss: str = option("squared-hinge", "squared-hinge or logistic", choices=("squared-hinge", "logistic"))
    cost: float = option(
        0.0,
        "weight of the loss against the norm of the weights (C); 0 chooses one between 0.25 and 1 by the loss on "
        "held-out rows of a sample of the labels",
        low=0.0,
    )
    cost_positive: float = option(1.0, "extra weight of positive rows (Cp)", low=0.0)
    cost_negative: float = option(1.0, "extra weight of negative rows (Cn)", low=0.0)
    bias: float = option(1.0, "value of the constant feature; 0 trains without bias", low=0.0)
    eps: float = option(0.1, "stop when no row moves by more than this; levels above the labels by 0.3 of it", low=0.0)
    max_iter: int = option(12, "most sweeps over the rows", low=1)
    threshold: float = option(0.1, "drop weights smaller than this", low=0.0)
    negatives: str = option(
        "auto",
        "rows that train a node: under true parents (tfn), under the parents the level above predicts (man), or both; "
        "auto is tfn+man where rows have labels under 2.5 parents or more on average or where features explain 30 % of "
        "the loss on held-out rows, and tfn otherwise",
        choices=("auto", "tfn", "man", "tfn+man"),
    )
    negatives_at: str = option(
        "leaf", "levels that use the predicted parents of man: leaf or all", choices=("leaf", "all")
    )
    negatives_beam: int = option(
        0,
        "predicted parents per text for man; 0 means search.beam, or less if negatives is auto: 2.5 (where features "
        "explain the loss 1.5) for each parent that rows have labels under",
        low=0,
    )
    relevance: str = option(
        "none",
        "cost-sensitive weights from induced relevance: none, induce, or induce-l1 (rows sum to one)",
        choices=("none", "induce", "induce-l1"),
    )
    memory_gb: float = option(0.0, "most memory the solver may hold at a time, in GB; 0 sets no bound", low=0.0)


@dataclass(frozen=True)
class SearchConfig(Checked):
    """How the tree is searched for a text."""

    beam: int = option(10, "nodes kept per level", low=1, when=_RANKER)
    beams: tuple[int, ...] = option((), "nodes kept at each level from the top, instead of beam", low=1, when=_RANKER)
    post: str = option(
        "l3-hinge",
        "what turns a margin into a factor of the score",
        choices=("l3-hinge", "l2-hinge", "l1-hinge", "l4-hinge", "sigmoid", "identity"),
        when=_RANKER,
    )
    leaf_post: str = option(
        "auto",
        "the same at the last level; auto is l4-hinge after a hinge (steeper ranks better there), else the same",
        choices=("auto", "same", "l3-hinge", "l2-hinge", "l1-hinge", "l4-hinge", "sigmoid", "identity"),
        when=_RANKER,
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
    trees: int = option(1, "trees in the ensemble, each with its own seed", low=1, when=_RANKER)
    ensemble: str = option(
        "average",
        "how the trees' scores are merged",
        choices=("average", "rank-average", "sigmoid-average", "softmax-average", "round-robin"),
        when=_RANKER,
    )
    normalize: bool = option(True, "scale feature rows to length one", when=_ROWS)
    seed: int = option(0, "same seed, same model", low=0, high=2**62)
    threads: int = option(0, "threads to use; 0 means all cores", low=0)
    tfidf: TfidfConfig = field(default_factory=TfidfConfig, metadata={"when": _WORDS})
    tree: TreeConfig = field(default_factory=TreeConfig, metadata={"when": _WORDS})
    linear: LinearConfig = field(default_factory=LinearConfig, metadata={"when": _RANKER})
    search: SearchConfig = field(default_factory=SearchConfig)
    store: StoreConfig = field(default_factory=StoreConfig)

    @property
    def unused(self) -> dict[str, str]:
        """Settings, or groups of them, that have no effect here, and when they would."""
        return unused(self)
