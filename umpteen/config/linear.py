"""Settings of the linear recipes: tf-idf, label tree, classifiers, search."""

from dataclasses import dataclass, field
from typing import Any

from umpteen.config.checked import Checked, When, option, unused
from umpteen.errors import BadConfig


def has_ranker(config: Any) -> bool:
    """Return whether a recipe ranks labels with linear classifiers: all linear recipes, and some networks."""
    return getattr(config, "ranker", True) or config.is_recursive


UNCALIBRATED_THRESHOLD = 0.3
MOST_CALIBRATION_ROWS = 1_000
_FEWEST_ROWS = 500  # with fewer training rows none are held out

_RANKER = When("there is a ranker", has_ranker)
_ROWS = When("feature rows are read", lambda c: has_ranker(c) or c.network.reads == "features")
_PREDICTED = When("linear.negatives is not tfn", lambda c: c.linear.negatives != "tfn")
_WORDS = When("labels are clustered or ranked", lambda c: has_ranker(c) or c.network.head != "full")


@dataclass(frozen=True)
class TfidfConfig(Checked):
    """tf-idf features of texts."""

    analyzer: str = option(
        "word", "n-grams of words, of characters, or of characters within words", choices=("word", "char", "char_wb")
    )
    ngram_min: int = option(1, "shortest n-gram", low=1, high=100)
    ngram_max: int = option(2, "longest n-gram", low=1, high=100)
    lowercase: bool = option(True, "convert texts to lower case")
    min_df: int = option(1, "minimum number of texts that contain a term", low=1)
    max_df: float = option(1.0, "maximum fraction of the texts that contain a term", low=0.0, high=1.0)
    max_features: int = option(200_000, "number of terms to keep, the most frequent ones; 0: all", low=0)
    sublinear: bool = option(True, "use 1 + ln(count) instead of the count")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ngram_max < self.ngram_min:
            raise BadConfig(f"ngram_max must be at least ngram_min ({self.ngram_min}), but is {self.ngram_max}")

    def without_terms(self, n_texts: int) -> str:
        """Return the message about settings that leave no term."""
        return (
            f"min_df={self.min_df} and max_df={self.max_df} leave no term of {n_texts} texts; "
            "lower min_df or raise max_df"
        )


@dataclass(frozen=True)
class TreeConfig(Checked):
    """Clustering of labels."""

    kind: str = option(
        "halving",
        "halving (balanced 2-means, repeated), kmeans (balanced k-way), unbalanced (plain k-way), "
        "random, given (a hierarchy you pass), none (one versus all), auto (none for up to 5,000 labels, else halving)",
        choices=("auto", "kmeans", "halving", "unbalanced", "random", "given", "none"),
    )
    branching: int = option(128, "maximum number of children of an inner node", low=2, when=_RANKER)
    leaf_size: int = option(
        96, "maximum number of labels under one parent; multiples of 16 train fastest", low=1, when=_RANKER
    )
    depth: int = option(0, "number of levels above the labels; 0: determined by leaf_size", low=0, when=_RANKER)
    vectors: str = option(
        "pifa",
        "vector of a label: from its texts (pifa), its name (names), or both",
        choices=("pifa", "names", "both"),
    )
    max_features: int = option(300, "number of features of a label vector to keep, the largest ones; 0: all", low=0)
    max_iter: int = option(20, "maximum number of k-means iterations per split", low=1)
    tolerance: float = option(
        5e-4, "relative increase of the mean similarity below which a split has converged", low=0.0
    )


@dataclass(frozen=True)
class LinearConfig(Checked):
    """Training of the linear classifiers."""

    loss: str = option("squared-hinge", "squared-hinge or logistic", choices=("squared-hinge", "logistic"))
    cost: float = option(
        0.0,
        "weight of the loss against the norm of the weights (C); 0: between 0.25 and 1, chosen by the loss on held-out "
        "rows of a sample of the labels",
        low=0.0,
    )
    cost_positive: float = option(1.0, "weight of positive rows (Cp)", low=0.0)
    cost_negative: float = option(1.0, "weight of negative rows (Cn)", low=0.0)
    bias: float = option(1.0, "value of the constant feature; 0: no bias", low=0.0)
    eps: float = option(
        0.1, "tolerance: the largest change of a margin at convergence; 0.3 of it above the labels", low=0.0
    )
    max_iter: int = option(12, "maximum number of passes over the rows", low=1)
    threshold: float = option(0.1, "weights with a smaller magnitude are dropped", low=0.0)
    negatives: str = option(
        "auto",
        "rows that train a node: those under true parents (tfn), under parents predicted by the level above (man), or "
        "both. auto: tfn+man if rows have labels under 2.5 parents or more on average or if features explain 30 % of "
        "the loss on held-out rows, otherwise tfn",
        choices=("auto", "tfn", "man", "tfn+man"),
    )
    negatives_at: str = option(
        "leaf", "levels that use predicted parents with man: leaf or all", choices=("leaf", "all"), when=_PREDICTED
    )
    negatives_beam: int = option(
        0,
        "predicted parents per text with man; 0: search.beam, or less if negatives is auto: 2.5 for each true parent "
        "of a row, 1.5 if it is features that explain the loss",
        low=0,
        when=_PREDICTED,
    )
    relevance: str = option(
        "none",
        "cost-sensitive weights from induced relevance: none, induce, or induce-l1 (rows sum to one)",
        choices=("none", "induce", "induce-l1"),
    )


@dataclass(frozen=True)
class SearchConfig(Checked):
    """Beam search in the tree."""

    beam: int = option(10, "nodes kept at the level above the labels", low=1, when=_RANKER)
    upper_beam: float = option(
        2.0,
        "nodes kept at the levels further up, as a multiple of beam: they take little time, and a node that is dropped "
        "there loses many labels",
        low=1.0,
        when=_RANKER,
    )
    beams: tuple[int, ...] = option(
        (),
        "nodes kept at each level from the top, instead of beam and upper_beam; the last value is used for all further "
        "levels",
        low=1,
        when=_RANKER,
    )
    post: str = option(
        "l3-hinge",
        "function that turns a margin into a factor of the score",
        choices=("l3-hinge", "l2-hinge", "l1-hinge", "l4-hinge", "sigmoid", "identity"),
        when=_RANKER,
    )
    leaf_post: str = option(
        "auto",
        "the same at the last level; auto: l4-hinge if post is a hinge (a steeper one ranks better there), else same",
        choices=("auto", "same", "l3-hinge", "l2-hinge", "l1-hinge", "l4-hinge", "sigmoid", "identity"),
        when=_RANKER,
    )
    threshold: float | None = option(
        None,
        "minimum probability of a label in predict, or minimum score if the model is not calibrated; none: the "
        f"threshold that was fitted with the probabilities, or {UNCALIBRATED_THRESHOLD} without",
        low=0.0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.post == "identity" and self.leaf_post not in ("auto", "same", "identity"):
            raise BadConfig(
                f"post 'identity' gives raw margins, which cannot be factors of leaf_post {self.leaf_post!r}; "
                "set leaf_post to 'same' too, or choose another post"
            )


@dataclass(frozen=True)
class CalibrationConfig(Checked):
    """Probabilities and the threshold of predict."""

    rows: int = option(
        MOST_CALIBRATION_ROWS,
        "maximum number of training rows held out to fit probabilities and the threshold of predict; 1 % of the rows "
        "if these are fewer, but at least 500 or 2 %, and at least 200 or 10 %. 0: none, and scores are no "
        "probabilities",
        low=0,
    )

    def count(self, n_rows: int) -> int:
        """Return how many of the training rows are held out.

        Examples
        --------
        >>> [CalibrationConfig().count(n) for n in (499, 600, 3_000, 20_000, 30_000, 80_000, 10**7)]
        [0, 60, 200, 400, 500, 800, 1000]
        """
        if n_rows < _FEWEST_ROWS:
            return 0
        return min(max(n_rows // 100, min(n_rows // 50, 500), min(n_rows // 10, 200)), self.rows)


@dataclass(frozen=True)
class StoreConfig(Checked):
    """What a model folder holds."""

    weights: str = option("int8", "precision of stored weights", choices=("float32", "float16", "int8"))
    examples: int = option(
        0, "number of training texts to keep in the model, so that explanations show the nearest ones", low=0
    )


@dataclass(frozen=True)
class ModelConfig(Checked):
    """All settings of a linear recipe; presets are differences from it."""

    recipe: str = option("xr-linear", "name of the recipe")
    trees: int = option(1, "trees in the ensemble, each with its own seed", low=1, when=_RANKER)
    ensemble: str = option(
        "average",
        "how the scores of the trees are merged",
        choices=("average", "rank-average", "sigmoid-average", "softmax-average", "round-robin"),
        when=_RANKER,
    )
    normalize: bool = option(True, "scale feature rows to unit length", when=_ROWS)
    seed: int = option(0, "seed of the random number generators", low=0, high=2**62)
    threads: int = option(0, "number of threads; 0: all cores", low=0)
    tfidf: TfidfConfig = field(default_factory=TfidfConfig, metadata={"when": _WORDS})
    tree: TreeConfig = field(default_factory=TreeConfig, metadata={"when": _WORDS})
    linear: LinearConfig = field(default_factory=LinearConfig, metadata={"when": _RANKER})
    search: SearchConfig = field(default_factory=SearchConfig)
    calibration: CalibrationConfig = field(default_factory=CalibrationConfig)
    store: StoreConfig = field(default_factory=StoreConfig)

    @property
    def unused(self) -> dict[str, str]:
        """Settings, or groups of settings, that have no effect, and the condition under which they would."""
        return unused(self)
