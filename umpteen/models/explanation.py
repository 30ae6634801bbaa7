"""``Explanation``, what ``explain`` returns: plain values that can be printed, stored as JSON or shown as HTML."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from umpteen.tree.trace import Place


@dataclass(frozen=True)
class Contribution:
    """What a feature adds to a margin: its value in the text times its weight.

    The numbers of an embedding are one feature, whose value and weight are not given.
    """

    name: str  # a term of tf-idf, ``column 12`` of feature rows, or ``embedding``
    contribution: float
    value: float | None = None
    weight: float | None = None


@dataclass(frozen=True)
class Step:
    """A node on the path to a label, or the label itself at the last level.

    ``bias`` and the contributions add up to ``margin``. A network has a margin only; its bias is None. ``rank`` and
    what follows are None where the search did not come here, because it did not keep a node above.
    """

    level: int  # the first level is 1
    node: int
    margin: float
    factor: float
    score: float  # the product of the factors so far, as a rule
    bias: float | None = None
    contributions: tuple[Contribution, ...] = ()  # the largest first, by magnitude
    rank: int | None = None
    n_kept: int | None = None
    last_kept_score: float | None = None

    @property
    def is_kept(self) -> bool | None:
        """Whether the search kept this node; None if it did not come here."""
        return None if self.rank is None or self.n_kept is None else self.rank <= self.n_kept

    @classmethod
    def at(cls, level: int, node: int, place: Place | None, **numbers: Any) -> Step:
        """Return a step on level ``level``, counted from 0, with what is known of its place."""
        found = {} if place is None else {name: getattr(place, name) for name in ("rank", "n_kept", "last_kept_score")}
        return cls(level + 1, node, **numbers, **found)


@dataclass(frozen=True)
class Path:
    """The way through a tree to a label, in the search of one part of a model."""

    part: str
    steps: tuple[Step, ...]

    @property
    def lost_at(self) -> Step | None:
        """The node above the label that the search did not keep; None if it came to the label."""
        return next((step for step in self.steps[:-1] if step.is_kept is False), None)


@dataclass(frozen=True)
class Part:
    """A part of a model and its fraction of the score."""

    name: str
    weight: float
    value: float
    contribution: float  # weight times value; contributions add up to the score, or to its log-odds
    fraction: float  # of the sum of all contributions, without regard to their sign


@dataclass(frozen=True)
class Word:
    """A word of the text, ``text[start:end]``."""

    word: str
    start: int
    end: int
    contribution: float


@dataclass(frozen=True)
class Suggestion:
    """A label that the model suggests."""

    label: str
    id: int
    score: float
    probability: float | None = None  # None if the model is not calibrated


@dataclass(frozen=True)
class NearText:
    """A training text that the model keeps (``store.examples``)."""

    text: str
    similarity: float  # cosine of tf-idf rows or embeddings
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Explanation:
    """Why a label has its score for a text, and why it is suggested or not.

    Parameters
    ----------
    recipe
        Of the model.
    text
        What was explained; None for feature rows.
    label, id, key
        The label by name, column and key.
    score
        Of the label, computed without a search (``score_labels``).
    rank
        Its place in the ranking; None if it is beyond all places that were looked at.
    k, suggestions
        The labels that the model suggests.
    reason
        In sentences, why the label is among them or not, and why it is predicted or not.
    scale
        ``score`` or ``log-odds``: what the contributions of ``parts`` add up to.
    parts
        What the score consists of.
    paths
        The way to the label in each tree.
    word_scale
        What contributions of words are: parts of ``margins``, or by how much the ``log-odds`` or the ``score`` fall
        without the word.
    words
        The words in the order of the text.
    features
        Contributions summed over the levels and averaged over the trees, the largest first by magnitude.
    notes
        What is not as expected, such as words that were left out.
    nearest
        The most similar training texts, if the model keeps some.
    models
        For an ensemble, the explanation of each model; their weights are in ``parts``.
    probability
        Of the score; None if the model is not calibrated.
    is_predicted
        Whether ``predict`` returns the label: its threshold and limit are others than ``k``.
    """

    recipe: str
    text: str | None
    label: str
    id: int
    key: str
    score: float
    rank: int | None
    k: int
    suggestions: tuple[Suggestion, ...]
    reason: str
    scale: str
    parts: tuple[Part, ...]
    paths: tuple[Path, ...]
    word_scale: str = "margins"
    words: tuple[Word, ...] = ()
    features: tuple[Contribution, ...] = ()
    notes: tuple[str, ...] = ()
    nearest: tuple[NearText, ...] = ()
    models: tuple[Explanation, ...] = field(default=())
    probability: float | None = None
    is_predicted: bool = False

    @property
    def is_suggested(self) -> bool:
        """Whether the label is among the first k."""
        return self.rank is not None and self.rank <= self.k

    @property
    def numbers(self) -> str:
        """The score, the probability and the place in the ranking, as far as they are known."""
        probability = "" if self.probability is None else f", probability {self.probability:.3f}"
        rank = "" if self.rank is None else f", place {self.rank}"
        return f"score {self.score:.4g}{probability}{rank}"

    def suggestion_table(self) -> tuple[list[str], list[list[Any]]]:
        """Return the columns and rows of a table of the suggestions, with probabilities if there are any."""
        if any(one.probability is None for one in self.suggestions):
            return ["label", "score"], [[one.label, one.score] for one in self.suggestions]
        rows = [[one.label, one.score, one.probability] for one in self.suggestions]
        return ["label", "score", "probability"], rows

    def top_words(self, n: int = 5) -> list[tuple[str, float]]:
        """Return the n words that speak most for the label; occurrences of a word are added up, in lower case.

        Examples
        --------
        >>> from umpteen import XRLinear
        >>> model = XRLinear().fit(["red apple", "green pear", "red cherry"], [["red"], ["green"], ["red"]])
        >>> [word for word, _ in model.explain("a red, red plum").top_words(1)]
        ['red']
        """
        sums: dict[str, float] = {}
        for word in self.words:
            sums[word.word.lower()] = sums.get(word.word.lower(), 0.0) + word.contribution
        return sorted(sums.items(), key=lambda item: -item[1])[:n]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, which can be stored as JSON."""
        return {"is_suggested": self.is_suggested, **asdict(self), "models": [one.to_dict() for one in self.models]}

    def to_html(self) -> str:
        """Return a page for a browser; it refers to no other file."""
        from umpteen.models.explanation_html import page

        return page(self)


def share_out(parts: Iterable[tuple[str, float, float]]) -> tuple[Part, ...]:
    """Return parts by name, weight and value, with their fractions.

    Examples
    --------
    >>> [part.fraction for part in share_out([("ranker", 2.0, -0.5), ("network", 1.0, 3.0)])]
    [0.25, 0.75]
    """
    found = [Part(name, float(weight), float(value), float(weight * value), 0.0) for name, weight, value in parts]
    total = sum(abs(part.contribution) for part in found) or 1.0
    return tuple(replace(part, fraction=abs(part.contribution) / total) for part in found)
