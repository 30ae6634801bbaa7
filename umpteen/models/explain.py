"""Explain the score of a label for one text: which words, which parts of the model, which path through the tree.

Linear classifiers are explained exactly: a margin is a sum over features. What an encoder makes of a text is explained
by leaving out one word at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from umpteen.data.rows import Rows
from umpteen.data.tfidf import Tfidf
from umpteen.data.words import Span, find_words, place_terms, sum_by_word
from umpteen.errors import BadInput
from umpteen.linear import DenseHead, LinearTree
from umpteen.linear.trace import Trace, TracedNode, trace_label
from umpteen.models import fusion
from umpteen.models.explanation import Contribution, Explanation, NearText, Path, Step, Suggestion, Word, share_out
from umpteen.shortlist import TopK, check_count, check_k
from umpteen.tree.trace import Kept

EMBEDDING = "embedding"
MARGINS, LOG_ODDS, SCORE = "margins", "log-odds", "score"
_NEAREST = 3  # training texts that are shown
_RANKED = 100  # places in which a label is looked for


class Findings(NamedTuple):
    """What a model finds out about a label and one row."""

    paths: list[Path]
    parts: list[tuple[str, float, float]]  # name, weight, value
    scale: str = SCORE
    features: Sequence[Contribution] = ()


# A whole model


def explain(model: Any, text: Any, label: Any, k: int, max_words: int, threads: int | None) -> Explanation:
    """Explain one label of one text or feature row; parameters as in ``Model.explain``."""
    check_k(k)
    check_count(max_words, "max_words")
    text = _alone(text)
    X = [text] if isinstance(text, str) else text
    top = _ranking(model, X, k, threads)
    number = _label_number(model, label, top)
    workers = model._workers(threads)
    rows = model._rows(X, workers)
    found = model._findings(rows, number, k, workers)
    rank = _rank(top, number, found.paths)
    words, features, notes = _words(model, text, number, found, max_words, workers)
    score = float(model._scored(rows, _pairs(model, [number]), workers).data[0])
    reason = f"{_reason(rank, k, found.paths)} {_prediction(model, top, number)}"
    return Explanation(
        model.recipe, text if isinstance(text, str) else None, *_names(model, number),
        score, rank, k, _suggestions(model, top, k), reason, found.scale, share_out(found.parts),
        tuple(found.paths), model._word_scale, tuple(words), tuple(features), tuple(notes), _nearest(model, text),
        probability=_probability(model, score),
        is_predicted=_is_predicted(model, top, number),
    )  # fmt: skip


def explain_ensemble(ensemble: Any, text: Any, label: Any, k: int, max_words: int, threads: int | None) -> Explanation:
    """Explain one label by each model of an ensemble."""
    check_k(k)
    text = _alone(text)
    top = _ranking(ensemble, [text] if isinstance(text, str) else text, k, threads)
    number = _label_number(ensemble, label, top)
    models = [explain(model, text, number, k, max_words, threads) for model in ensemble._fitted()]
    weights = np.ones(len(models)) if ensemble.weights is None else np.divide(ensemble.weights, max(ensemble.weights))
    weights = weights / weights.sum()
    parts = [(f"model {i + 1}: {one.recipe}", weights[i], one.score) for i, one in enumerate(models)]
    rank, score, is_mean = _rank(top, number, []), float(sum(w * s for _, w, s in parts)), ensemble.rule == "average"
    notes = [] if is_mean else [f"Labels are ranked by {ensemble.rule}, not by this score."]
    reason = f"{_reason(rank, k, [])} {_prediction(ensemble, top, number)}"
    return Explanation(
        ensemble.recipe, models[0].text, *_names(ensemble, number), score, rank, k,
        _suggestions(ensemble, top, k), reason, SCORE, share_out(parts), (),
        "models", tuple(_mean_words(models, weights)), (), tuple(notes), models=tuple(models),
        probability=_probability(ensemble, score) if is_mean else None,
        is_predicted=_is_predicted(ensemble, top, number),
    )  # fmt: skip


def _alone(text: Any) -> Any:
    """Return the text of a list of one."""
    return text[0] if isinstance(text, list | tuple) and len(text) == 1 and isinstance(text[0], str) else text


def _probability(model: Any, score: float) -> float | None:
    """Return the probability of a score, if the model is calibrated."""
    return None if model.calibration_ is None else float(model.calibration_(np.array([score]))[0])


def _nearest(model: Any, text: Any) -> tuple[NearText, ...]:
    """Return the most similar training texts that the model keeps."""
    examples = model.examples_
    if examples is None or not isinstance(text, str):
        return ()
    if examples.vectors is None:
        examples = model.examples_ = examples.with_vectors(model._vectors(examples.texts))
    return tuple(
        NearText(examples.texts[row], similarity, tuple(model.labels_.names(examples.labels[row].indices)))
        for row, similarity in examples.nearest(model._vectors([text]), _NEAREST)
    )


def _ranking(model: Any, X: Any, k: int, threads: int | None) -> TopK:
    """Return the first labels; refuse more than one row."""
    top = model.topk(X, min(len(model.labels_), max(k, _RANKED)), threads=threads)
    if len(top) != 1:
        raise BadInput(f"explain takes one text or one feature row, but got {len(top)}; pass them one by one")
    return top


def _label_number(model: Any, label: Any, top: TopK) -> int:
    """Return the column of a label, of the best one if none is named."""
    return int(top.labels[0, 0]) if label is None else int(model.targets_.ids([label], "label")[0])


def _names(model: Any, number: int) -> tuple[str, int, str]:
    return model.labels_.names([number])[0], number, model.labels_.keys([number])[0]


def _suggestions(model: Any, top: TopK, k: int) -> tuple[Suggestion, ...]:
    near = top.first(k)
    labels, scores = near[0]
    chances = [None] * len(labels) if near.probabilities is None else near.probabilities[0][: len(labels)].tolist()
    return tuple(map(Suggestion, model.labels_.names(labels), labels.tolist(), scores.tolist(), chances))


def _pairs(model: Any, numbers: Sequence[int]) -> sp.csr_matrix:
    """Return a matrix that selects one label of each row."""
    ones = np.ones(len(numbers), np.float32)
    shape = (len(numbers), len(model.labels_))
    return sp.csr_matrix((ones, (np.arange(len(numbers)), np.array(numbers))), shape=shape)


def _rank(top: TopK, number: int, paths: Sequence[Path]) -> int | None:
    """Return the place of a label; of a single tree also beyond the places that were looked at."""
    at = np.flatnonzero(top.labels[0] == number)
    if len(at):
        return int(at[0]) + 1
    return paths[0].steps[-1].rank if len(paths) == 1 else None


def _reason(rank: int | None, k: int, paths: Sequence[Path]) -> str:
    """Say why a label is suggested or not."""
    if rank is not None and rank <= k:
        return f"The label is suggested at place {rank}."
    lost = [(path, step) for path in paths if (step := path.lost_at) is not None]
    if paths and len(lost) == len(paths):
        return "The label is not suggested because the search did not come to it. " + " ".join(
            f"In {path.part}, its ancestor at level {step.level} has rank {step.rank} and a score of {step.score:.3g}; "
            f"{step.n_kept} nodes are kept, the last one with {step.last_kept_score:.3g}."
            for path, step in lost
        )
    place = f"at place {rank}" if rank is not None else f"below place {_RANKED}"
    return f"The label is not suggested because it is ranked {place}."


def _is_predicted(model: Any, top: TopK, number: int) -> bool:
    """Return whether ``predict`` returns a label."""
    return number in top.labels[0, model.decision().chosen(top)[0]]


def _prediction(model: Any, top: TopK, number: int) -> str:
    """Say whether ``predict`` returns a label, and if not, why."""
    if _is_predicted(model, top, number):
        return "It is predicted."
    decision = model.decision()
    least = float(np.broadcast_to(decision.least(np.array([number])), 1)[0])
    if number in top.labels[0, top.scores[0] >= least]:
        return f"It is not predicted, because no more than {decision.depth} labels of a text are."
    if not np.isfinite(least):
        return "It is not predicted, because no score reaches the threshold."
    if model.calibration_ is None:
        return f"It is not predicted, because its score is below the threshold of {least:.3g}."
    threshold = float(model.calibration_(np.array([least]))[0])
    return f"It is not predicted, because its probability is below the threshold of {threshold:.3g}."


# Words


def _words(
    model: Any, text: Any, number: int, found: Findings, max_words: int, threads: int
) -> tuple[list[Word], Sequence[Contribution], list[str]]:
    """Return the contributions of words and of features, and notes."""
    if not isinstance(text, str):
        if model._word_scale == MARGINS:
            return [], found.features, []
        return [], *_leave_out_features(model, text, number, max_words, threads)
    spans = find_words(text)
    if model._word_scale == MARGINS:
        sums = {one.name: one.contribution for one in found.features}
        values = sum_by_word(sums, place_terms(text, model.tfidf_.config), len(spans))
        return _as_words(text, spans, values), found.features, []
    some = spans[:max_words]
    variants = [text[:start] + text[end:] for start, end in some]
    values = _drops(model, [text, *variants], number, threads)
    return _as_words(text, some, values), found.features, _note("words", len(spans), max_words)


def _as_words(text: str, spans: Sequence[Span], values: np.ndarray) -> list[Word]:
    return [Word(text[s:e], s, e, float(value)) for (s, e), value in zip(spans, values, strict=True)]


def _drops(model: Any, X: Any, number: int, threads: int) -> np.ndarray:
    """Return by how much a label falls from the first row to each of the others."""
    rows = model._rows(X, threads)
    values = model._measured(rows, _pairs(model, [number] * len(rows)), threads)
    return (values[0] - values[1:]).astype(np.float64)


def _leave_out_features(
    model: Any, row: Any, number: int, max_words: int, threads: int
) -> tuple[list[Contribution], list[str]]:
    """Leave out the features of a row one by one."""
    row = sp.csr_matrix(row, dtype=np.float32)
    n = min(row.nnz, max_words)
    rows = sp.csr_matrix(sp.vstack([row] * (n + 1)))
    rows.data[np.arange(1, n + 1) * row.nnz + np.arange(n)] = 0.0
    found = _drops(model, rows, number, threads)
    columns, values = row.indices.tolist(), row.data.tolist()
    features = [Contribution(f"column {columns[i]}", float(found[i]), values[i]) for i in range(n)]
    return _largest_first(features), _note("features", row.nnz, max_words)


def _note(what: str, n_all: int, most: int) -> list[str]:
    if n_all <= most:
        return []
    return [f"Only the first {most} of {n_all} {what} were left out one by one; max_words changes that."]


def _mean_words(models: Sequence[Explanation], weights: np.ndarray) -> list[Word]:
    """Average the words of several models; each model counts as fractions of its strongest word."""
    sums: dict[tuple[str, int, int], float] = defaultdict(float)
    for model, weight in zip(models, weights, strict=True):
        most = max((abs(word.contribution) for word in model.words), default=0.0) or 1.0
        for word in model.words:
            sums[word.word, word.start, word.end] += float(weight * word.contribution / most)
    return [Word(*key, value) for key, value in sorted(sums.items(), key=lambda item: item[0][1])]


# Parts of a model


class FeatureNames(NamedTuple):
    """Names of the columns that a ranker sees; those from ``n_sparse`` on are an embedding."""

    tfidf: Tfidf | None
    n_sparse: int

    def name(self, column: int) -> str:
        """Return the term of a column, its number for feature rows, or ``embedding``."""
        if column >= self.n_sparse:
            return EMBEDDING
        return f"column {column}" if self.tfidf is None else self.tfidf.term(column)


def explain_trees(heads: Sequence[LinearTree], rows: Rows, label: int, k: int, names: FeatureNames) -> Findings:
    """Explain a label by the trees of a ranker, each of which proposes k labels."""
    paths, parts = [], []
    sums: dict[str, float] = defaultdict(float)
    for i, head in enumerate(heads):
        trace = trace_label(head, rows, label, k)
        name = "the tree" if len(heads) == 1 else f"tree {i + 1}"
        path = Path(name, tuple(_linear_step(node, trace, names) for node in trace.nodes))
        paths.append(path)
        parts.append((name, 1.0 / len(heads), path.steps[-1].score))
        for one in (one for step in path.steps for one in step.contributions):
            sums[one.name] += one.contribution / len(heads)
    features = [Contribution(name, value) for name, value in sums.items()]
    return Findings(paths, parts, features=_largest_first(features))


def _linear_step(node: TracedNode, trace: Trace, names: FeatureNames) -> Step:
    products = node.weights.astype(np.float64) * trace.values
    is_embedding = trace.features >= names.n_sparse
    found = [
        Contribution(names.name(int(trace.features[i])), float(products[i]), float(trace.values[i]), float(weight))
        for i, weight in enumerate(node.weights)
        if weight != 0 and not is_embedding[i]
    ]
    if is_embedding.any():
        found.append(Contribution(EMBEDDING, float(products[is_embedding].sum())))
    numbers = {name: getattr(node, name) for name in ("margin", "factor", "score", "bias")}
    contributions = tuple(_largest_first(found))
    return Step.at(node.level, node.node, node.place, **numbers, contributions=contributions)


def explain_head(head: DenseHead, e: np.ndarray, label: int, k: int) -> Path:
    """Explain a label by the classifiers of an encoder, for one embedding (1, d)."""
    margin, place = head.trace(e, label, k)
    bias = float(head.bias[label])
    contribution = (Contribution(EMBEDDING, margin - bias),)
    numbers = {"margin": margin, "factor": place.score, "score": place.score, "bias": bias}
    return Path("the classifiers", (Step.at(0, label, place, **numbers, contributions=contribution),))


def explain_network(network: Any, texts: Any, label: int, k: int) -> Path:
    """Explain a label by the levels of a network, for one text."""
    from umpteen.neural.trace import trace_label as trace_levels

    nodes = trace_levels(network, texts, label, k)
    return Path(
        "the network",
        tuple(
            Step.at(node.level, node.node, node.place, margin=node.margin, factor=node.factor, score=node.score)
            for node in nodes
        ),
    )


def network_beam(network: Any, texts: Any, k: int) -> list[Kept]:
    """Return what the levels of a network keep in a search for k labels of one text."""
    from umpteen.neural.trace import trace_beam

    return trace_beam(network, texts, k)


def combine_by_fusion(
    ranker: Findings, path: Path, scorers: Sequence[fusion.Scorer], label: int, n_labels: int, weights: fusion.Weights
) -> Findings:
    """Combine the explanations of ranker and classifiers as their scores are: by a logistic model of the margins."""
    pair = sp.csr_matrix((np.ones(1, np.float32), ([0], [label])), shape=(1, n_labels))
    margins = [float(scorer.margins(pair)[0]) for scorer in scorers]
    names = ("the ranker", path.part, "the frequency of the label")
    parts = [*zip(names[: len(margins)], weights, margins, strict=False), ("the bias", 1.0, weights[-1])]
    return Findings([*ranker.paths, path], parts, LOG_ODDS, ranker.features)


def combine_by_average(ranker: Findings, path: Path, share: float) -> Findings:
    """Combine the explanations of ranker and classifiers by the weight of the classifiers."""
    parts = [(name, (1.0 - share) * weight, value) for name, weight, value in ranker.parts]
    parts.append((path.part, share, path.steps[-1].score))
    return Findings([*ranker.paths, path], parts, SCORE, ranker.features)


def _largest_first(contributions: list[Contribution]) -> list[Contribution]:
    return sorted(contributions, key=lambda one: -abs(one.contribution))
