"""Label trees for people: nodes with names, numbers of labels and texts, and the nodes that a text came to.

A node above the labels has no name of its own; it is named by its most typical words. Where a linear classifier of
words decides about the node, these are the terms with the largest weights: what texts below the node say and texts
below its siblings do not. They read better than the names of the labels, which often repeat a prefix. Networks, models
of feature rows, and nodes without such terms take the words of the label names instead: words count that are more
frequent below the node than below its parent, and a label counts by the logarithm of its training texts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from umpteen.data.words import find_words
from umpteen.errors import BadInput
from umpteen.linear import LinearTree
from umpteen.linear.trace import largest_weights
from umpteen.tree import LabelTree
from umpteen.tree.trace import Kept

_WORDS = 3  # in the name of a node
_WORD_LENGTH = 40  # characters of a word that are shown
_SAMPLE = 400  # labels of a node whose names are read: those with the most texts
_CACHED = 20_000  # names and word counts that are kept
_MOST_SCORED = 100  # nodes of a level that ``where`` returns at most
ROOT = (0, 0)


@dataclass(frozen=True)
class TreeNode:
    """A node of a label tree, or a label at the last level.

    Parameters
    ----------
    level, node
        Its level, 1 below the root, and its number there, as in the steps of an explanation; the root has level 0.
    name
        The name of a label, or the most typical words of a node above the labels.
    n_labels
        How many labels are below it.
    n_texts
        How many training texts have them; a text counts once for each of its labels. None if the model does not say.
    n_children
        How many children it has; 0 for a label.
    key, id
        Of a label, its key and column; None above the labels.
    """

    level: int
    node: int
    name: str
    n_labels: int
    n_texts: int | None
    n_children: int
    key: str | None = None
    id: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, which can be stored as JSON."""
        return asdict(self)


class _Words(NamedTuple):
    """The words of label names: how often each occurs, by weight and by number of labels."""

    weights: dict[str, float]
    counts: dict[str, int]
    forms: dict[str, str]  # as first written
    n_labels: int

    def lift(self, word: str, above: _Words) -> float:
        """Return the logarithm of how much more frequent a word is here than above; 0 if it is not."""
        here, there = self.counts[word] / self.n_labels, above.counts.get(word, 0) / max(above.n_labels, 1)
        return max(0.0, math.log(here / there)) if there else math.log(1 + above.n_labels)


class TreeView:
    """A label tree of a model, with names.

    Parameters
    ----------
    part
        What the tree belongs to, such as ``the tree`` or ``model 2: the network``.
    tree
        The tree.
    targets
        Names of the labels and how many training texts have each.
    head, tfidf
        Linear classifiers of the tree and the terms they read, if there are any.

    Examples
    --------
    >>> from umpteen import XRLinear
    >>> texts, labels = ["red apple", "red plum", "old car", "new car"], [["apples"], ["plums"], ["old"], ["new"]]
    >>> model = XRLinear(tree={"leaf_size": 2}).fit(texts, labels)
    >>> view = tree_views(model)[0]
    >>> view.node(*ROOT).n_labels
    4
    >>> [child.name for child in view.children(1, 0)], [child.name for child in view.children(1, 1)]
    (['apples', 'plums'], ['new', 'old'])
    """

    def __init__(self, part: str, tree: LabelTree, targets: Any, head: LinearTree | None = None, tfidf: Any = None):
        self.part, self.tree, self._labels = part, tree, targets.labels
        self._head, self._tfidf = head, tfidf
        self._counts = targets.counts
        self._sums = None
        if targets.counts is not None:
            self._sums = np.concatenate([[0], np.cumsum(targets.counts[tree.order], dtype=np.int64)])
        self._names: dict[tuple[int, int], str] = {}
        self._words: dict[tuple[int, int], _Words] = {}

    def node(self, level: int, node: int) -> TreeNode:
        """Return one node; level 0 is the root."""
        self._check(level, node)
        low, high = self._labels_below(level, node)
        texts = None if self._sums is None else int(self._sums[high] - self._sums[low])
        if level < self.tree.n_levels:
            children = int(self.tree.starts[level][node + 1] - self.tree.starts[level][node])
            return TreeNode(level, node, self._name(level, node), high - low, texts, children)
        column = int(self.tree.order[node])
        name, key = self._labels.names([column])[0], self._labels.keys([column])[0]
        return TreeNode(level, node, name, 1, texts, 0, key, column)

    def children(self, level: int, node: int, start: int = 0, limit: int | None = None) -> list[TreeNode]:
        """Return some children of a node; those with the most texts, or else labels, come first."""
        self._check(level, node)
        if level == self.tree.n_levels:
            return []
        numbers = self._by_size(level, node)[0][start : None if limit is None else start + limit]
        return [self.node(level + 1, int(number)) for number in numbers]

    def examples(self, level: int, node: int, n: int = 3) -> list[str]:
        """Return the names of the n labels below a node that have the most texts."""
        self._check(level, node)
        columns = self._most_frequent(level, node, n)
        if self._counts is not None:
            columns = columns[np.argsort(-self._counts[columns], kind="stable")]
        return self._labels.names(columns)

    def sizes_below(self, level: int, node: int, n: int) -> list[tuple[int, int]]:
        """Return the n largest children of a node by number, each with its texts, or else labels."""
        self._check(level, node)
        if level == self.tree.n_levels:
            return []
        numbers, sizes = self._by_size(level, node)
        return list(zip(numbers[:n].tolist(), sizes[:n].tolist(), strict=True))

    def ancestors(self, level: int, node: int) -> list[TreeNode]:
        """Return the nodes above a node, the root first."""
        self._check(level, node)
        above = []
        while level:
            level, node = level - 1, self._parent(level, node)
            above.append(self.node(level, node))
        return above[::-1]

    def _check(self, level: int, node: int) -> None:
        if not 0 <= level <= self.tree.n_levels:
            raise BadInput(f"level must be between 0 and {self.tree.n_levels}, but is {level}; 0 is the root")
        size = self.tree.sizes[level - 1] if level else 1
        if not 0 <= node < size:
            raise BadInput(f"level {level} has nodes 0 to {size - 1}, but node {node} was asked for")

    def _parent(self, level: int, node: int) -> int:
        return int(np.searchsorted(self.tree.starts[level - 1], node, side="right")) - 1

    def _labels_below(self, level: int, node: int) -> tuple[int, int]:
        """Return the first label below a node and one past the last, as positions in the last level."""
        low, high = node, node + 1
        for starts in self.tree.starts[level:]:
            low, high = int(starts[low]), int(starts[high])
        return low, high

    def _by_size(self, level: int, node: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the children of a node, those with the most texts first, and how many texts each has."""
        first, last = self.tree.starts[level][node : node + 2]
        ends = np.arange(first, last + 1)
        for starts in self.tree.starts[level + 1 :]:
            ends = starts[ends]
        sizes = np.diff(ends if self._sums is None else self._sums[ends])
        order = np.argsort(-sizes, kind="stable")
        return first + order, sizes[order]

    # Names

    def _name(self, level: int, node: int) -> str:
        if (level, node) == ROOT:
            return "all labels"
        found = self._names.get((level, node))
        if found is None:
            words = self._names_by_terms(level, node) if self._has_terms else {node: []}
            names = {at: self._joined(of_node, level, at) for at, of_node in words.items()}
            _make_room(self._names, len(names))
            self._names.update({(level, at): name for at, name in names.items()})
            found = names[node]
        return found

    def _joined(self, words: list[str], level: int, node: int) -> str:
        """Return some words as a name; without any, that of its labels."""
        return ", ".join(words or self._typical_words(level, node)) or self._some_labels(level, node)

    def _typical_words(self, level: int, node: int) -> list[str]:
        """Return the words that are more frequent below a node than below its parent."""
        own, above = self._counted(level, node), self._counted(level - 1, self._parent(level, node))
        scores = {word: weight * own.lift(word, above) for word, weight in own.weights.items()}
        ranked = sorted(scores, key=lambda word: (-scores[word], word))
        return [_shortened(own.forms[word]) for word in _distinct(ranked, _WORDS)]

    def _counted(self, level: int, node: int) -> _Words:
        found = self._words.get((level, node))
        if found is None:
            columns = self._most_frequent(level, node, _SAMPLE)
            counts = np.zeros(len(columns)) if self._counts is None else self._counts[columns]
            found = _count_words(self._labels.names(columns), np.log2(2.0 + counts).tolist())
            _make_room(self._words, 1)
            self._words[level, node] = found
        return found

    def _most_frequent(self, level: int, node: int, n: int) -> np.ndarray:
        """Return the columns of at most n labels below a node, those with the most texts."""
        columns = self.tree.order[slice(*self._labels_below(level, node))]
        if self._counts is None or len(columns) <= n:
            return columns[:n]
        return columns[np.argpartition(-self._counts[columns], n)[:n]]

    @property
    def _has_terms(self) -> bool:
        return self._head is not None and self._tfidf is not None and self._tfidf.config.analyzer == "word"

    def _names_by_terms(self, level: int, node: int) -> dict[int, list[str]]:
        """Return the terms with the largest weights for a node and its siblings."""
        parent = self._parent(level, node)
        found = largest_weights(self._head, level - 1, parent, 4 * _WORDS, self._tfidf.n_features)
        terms = ([self._tfidf.term(int(one)) for one in features] for features in found)
        names = ([_shortened(term) for term in _distinct(of_child, _WORDS)] for of_child in terms)
        return dict(enumerate(names, start=int(self.tree.starts[level - 1][parent])))

    def _some_labels(self, level: int, node: int) -> str:
        names = self._labels.names(self._most_frequent(level, node, _WORDS))
        shown = ", ".join(map(_shortened, names)) or "none"
        return f"labels {shown}" if self._labels.is_numbered else shown


def _make_room(cache: dict[tuple[int, int], Any], n: int) -> None:
    """Start anew where a cache would grow beyond its bound."""
    if len(cache) + n > _CACHED:
        cache.clear()


def _count_words(names: Iterable[str], weights: Iterable[float]) -> _Words:
    """Count the words of names that contain a letter; each label counts once for a word."""
    words = _Words({}, {}, {}, 0)
    n_labels = 0
    for name, weight in zip(names, weights, strict=True):
        n_labels += 1
        found = [name[start:end] for start, end in find_words(name)]
        for word, form in {form.lower(): form for form in found if any(map(str.isalpha, form))}.items():
            words.weights[word] = words.weights.get(word, 0.0) + weight
            words.counts[word] = words.counts.get(word, 0) + 1
            words.forms.setdefault(word, form)
    return words._replace(n_labels=n_labels)


def _distinct(words: Iterable[str], n: int) -> list[str]:
    """Return the first n terms; of terms that share a word, or of game and games, the first only.

    Examples
    --------
    >>> _distinct(["game", "games", "board", "board game", "chess"], 3)
    ['game', 'board', 'chess']
    """
    kept: list[str] = []
    for word in words:
        if not any(_is_variant(word, other) for other in kept):
            kept.append(word)
        if len(kept) == n:
            break
    return kept


def _is_variant(word: str, other: str) -> bool:
    if " " in word or " " in other:
        return not set(word.split()).isdisjoint(other.split())
    short, long = sorted((word, other), key=len)
    return long.startswith(short) and len(long) - len(short) <= 2


def _shortened(text: str) -> str:
    return text if len(text) <= _WORD_LENGTH else f"{text[: _WORD_LENGTH - 1]}…"


# Trees of a model


def tree_views(model: Any) -> list[TreeView]:
    """Return the label trees of a model or an ensemble, with names; none where every label is scored by itself."""
    return [view for _, view, _ in _views(model)]


def why_no_tree(model: Any) -> str:
    """Say why a model has no label tree."""
    return f"This {model.recipe} model scores each of its {len(model.labels_):,} labels directly and has no label tree."


def _views(model: Any) -> Iterator[tuple[Any, TreeView, int]]:
    """Yield every tree of more than one level: its model, a view, and its place among the trees of the model."""
    members = getattr(model, "models_", [model])
    for number, member in enumerate(members, start=1):
        trees, n_heads = member._label_trees(), len(member.heads_)
        for place, tree in enumerate(trees):
            if tree.n_levels == 1:
                continue
            part = "the network"
            if place < n_heads:
                part = "the tree" if n_heads == 1 else f"tree {place + 1}"
            part = part if len(members) == 1 else f"model {number}: {part}"
            head = member.heads_[place] if place < n_heads else None
            yield member, TreeView(part, tree, member.targets_, head, _terms_of(member)), place


def _terms_of(model: Any) -> Any:
    """Return the terms that the rows of a ranker begin with; None if they are embeddings alone, or feature rows."""
    return None if getattr(model.config_, "features", "") == "encoder" else model.tfidf_


# Where a text went


@dataclass(frozen=True)
class KeptNode:
    """A node that the search kept for a text, with its score there."""

    node: TreeNode
    score: float


@dataclass(frozen=True)
class KeptLevel:
    """What the search did at a level: how many nodes it scored and kept, and those it kept, the best first."""

    level: int
    n_scored: int
    n_kept: int
    kept: tuple[KeptNode, ...]


@dataclass(frozen=True)
class TextPath:
    """Where a text went in one tree."""

    part: str
    levels: tuple[KeptLevel, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, which can be stored as JSON."""
        return asdict(self)


def text_paths(
    model: Any, text: Any, k: int = 5, *, views: Sequence[TreeView] | None = None, threads: int | None = None
) -> list[TextPath]:
    """Return the nodes that the search for k labels kept at each level of each tree.

    Parameters
    ----------
    model
        A model or an ensemble.
    text
        One text, or one feature row if the model was trained on such.
    k
        How many labels are wanted; more nodes are kept for more labels.
    views
        What ``tree_views`` returned for the model, whose names are then not computed again.
    threads
        Threads to use, instead of the model's.

    Examples
    --------
    >>> from umpteen import XRLinear
    >>> texts, labels = ["red apple", "red plum", "old car", "new car"], [["apples"], ["plums"], ["old"], ["new"]]
    >>> model = XRLinear(tree={"leaf_size": 2}).fit(texts, labels)
    >>> (path,) = text_paths(model, "a red plum", k=1)
    >>> [level.kept[0].node.name for level in path.levels][-1]
    'plums'
    """
    found, kept_of = [], {}
    for number, (member, view, place) in enumerate(_views(model)):
        if id(member) not in kept_of:
            workers = member._workers(threads)
            rows = member._rows([text] if isinstance(text, str) else text, workers)
            if len(rows) != 1:
                raise BadInput(f"a path is that of one text or feature row, but got {len(rows)}; pass them one by one")
            kept_of[id(member)] = member._kept_nodes(rows, k, workers)
        shown = view if views is None else views[number]
        found.append(TextPath(view.part, tuple(_levels(shown, kept_of[id(member)][place], k))))
    return found


def _levels(view: TreeView, levels: Sequence[Kept], k: int) -> Iterator[KeptLevel]:
    for level, kept in enumerate(levels, start=1):
        most = min(k if level == len(levels) else len(kept.nodes), _MOST_SCORED)
        pairs = zip(kept.nodes[:most].tolist(), kept.scores[:most].tolist(), strict=True)
        nodes = tuple(KeptNode(view.node(level, node), score) for node, score in pairs)
        yield KeptLevel(
            level, kept.n_scored, min(len(kept.nodes), k) if level == len(levels) else len(kept.nodes), nodes
        )
