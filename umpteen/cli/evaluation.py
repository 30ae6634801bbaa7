"""``umpteen evaluate``: a model's answers against a test split, whatever order its labels are in.

Test labels that the model does not know get columns behind the model's, so that recall counts them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from umpteen.cli.options import numbers
from umpteen.cli.prediction import takes_texts
from umpteen.cli.terminal import Terminal
from umpteen.cli.training import rows_of
from umpteen.data import Dataset, Labels, read
from umpteen.data.sparse import wrap
from umpteen.engine import Progress, silent
from umpteen.errors import BadInput, nearest
from umpteen.metrics import PROPENSITY, Metrics, depth, inverse_propensity, inverse_propensity_of_counts
from umpteen.shortlist import TopK

_BLOCK = 4096  # rows predicted at a time
MANY_UNSEEN = 30.0  # per cent of the labels; new labels alone are seldom so many


class Scored(NamedTuple):
    """The figures, as percentages, and how long prediction took."""

    figures: dict[str, float]
    n_rows: int
    seconds: float


def evaluate(
    model: Any,
    data: str,
    *,
    split: str,
    terminal: Terminal,
    ks: Sequence[int] = (1, 3, 5),
    propensity: str | None = None,
    threshold: float | None = None,
    threads: int | None = None,
    as_json: bool = False,
) -> None:
    """Print how good a model is on a split of ``data``."""
    constants = None if propensity is None else propensity_constants(propensity)
    dataset = read_for(model, data, split)
    known = dataset.Y[:, : len(model.labels_)]
    unseen = unseen_labels(model, dataset.Y)
    if unseen >= MANY_UNSEEN:
        terminal.note(unseen_note(unseen, data))
    weights = None if constants is None else _weights(model, data, dataset, constants, terminal)
    with terminal.progress() as progress:
        scored = score(model, dataset, ks=ks, weights=weights, threshold=threshold, threads=threads, progress=progress)
        recall = shortlist_recall(model, dataset, known, threads, progress)
    speed = scored.n_rows / max(scored.seconds, 1e-9)
    if as_json:
        figures = {name: round(value, 4) for name, value in scored.figures.items()} | {
            "unseen_labels": round(unseen, 4)
        }
        if recall:
            figures["shortlist_recall"] = [round(value, 4) for value in recall]
        terminal.json({**figures, "rows": scored.n_rows, "rows_per_s": round(speed, 1)})
        return
    terminal.table(
        *figure_table(scored.figures | {"unseen labels": unseen}, ks), title=f"{dataset.name or data} ({split})"
    )
    terminal.say(f"{scored.n_rows:,} rows, {speed:,.0f} docs/s")
    if recall:
        sizes = model.describe()["levels"][1:]
        *groups, labels = [f"{value:.1f} % of {size:,}" for size, value in zip(sizes, recall, strict=True)]
        shares = ", ".join([*(f"{share} groups" for share in groups), f"{labels} labels"])
        terminal.say(f"right ones still on the shortlist, level by level: {shares}")


def unseen_labels(model: Any, Y: sp.csr_matrix) -> float:
    """Return the share of the labels of these rows that no training row had, in per cent.

    The columns begin with those of the model. Of a model that keeps no counts all labels count as seen.
    """
    seen = np.zeros(Y.shape[1], bool)
    counts = model.targets_.counts
    seen[: len(model.labels_)] = True if counts is None else counts > 0
    return 100.0 * float(np.mean(~seen[Y.indices])) if Y.nnz else 0.0


def unseen_note(share: float, data: str) -> str:
    """Say that many labels are new, and what that may come from."""
    if share == 100.0:
        return f"no label of {data} is known to the model, so every figure is 0; was it trained on other labels?"
    return (
        f"{share:.0f} % of the labels of {data} were never seen in training and count as missed; "
        "check that they are written and separated as in training"
    )


def shortlist_recall(
    model: Any, dataset: Dataset, known: sp.csr_matrix, threads: int | None, progress: Progress
) -> list[float]:
    """Return what a network with several levels scores of the true nodes of each; else nothing."""
    if not hasattr(model, "shortlist_recall"):
        return []
    return model.shortlist_recall(rows_of(dataset), known, threads=threads, progress=progress)


def score(
    model: Any,
    dataset: Dataset,
    *,
    ks: Sequence[int] = (1, 3, 5),
    weights: np.ndarray | None = None,
    threshold: float | None = None,
    threads: int | None = None,
    progress: Progress = silent,
) -> Scored:
    """Predict a dataset block by block and compare with its labels, which begin with the model's."""
    metrics = Metrics(ks, inverse_propensity=weights, threshold=threshold)
    k = depth(ks, threshold, len(model.labels_))
    X, n_rows, seconds = rows_of(dataset), len(dataset), 0.0
    model.topk(X[:2], k, threads=threads)  # loading the compiled kernels is no part of the speed
    progress("predict", 0, n_rows)
    for start in range(0, n_rows, _BLOCK):
        stop = min(start + _BLOCK, n_rows)
        begun = time.perf_counter()
        top = model.topk(X[start:stop], k, threads=threads)
        seconds += time.perf_counter() - begun
        metrics.add(_padded(top, max(ks)), dataset.Y[start:stop])
        progress("predict", stop, n_rows)
    return Scored(metrics.result(), n_rows, seconds)


def read_for(model: Any, data: str, split: str) -> Dataset:
    """Read a split in the form the model wants, its labels in the model's columns."""
    wants_texts = takes_texts(model)
    if wants_texts:
        dataset = read(data, split, labels=model.labels_)
    else:
        dataset = read(data, split, n_features=model.n_features_in_)
    if wants_texts != (dataset.texts is not None):
        wanted, found = ("texts", "feature rows") if wants_texts else ("feature rows", "texts")
        raise BadInput(f"the model was trained on {wanted}, but {data} holds {found}; pass data of its kind")
    if dataset.Y is None or len(dataset) == 0:
        raise BadInput(f"{data} has no labelled rows to evaluate on")
    return dataset if wants_texts else align(dataset, model.labels_)


def align(dataset: Dataset, labels: Labels) -> Dataset:
    """Move the columns of Y to where ``labels`` has them; labels unknown there go behind.

    Labels are matched by key, else by name; columns without names by their number.
    """
    if dataset.labels.is_numbered or labels.is_numbered or dataset.labels == labels:
        n_labels = max(len(dataset.labels), len(labels))
        vocabulary, place = labels.widen(n_labels), np.arange(n_labels)
    else:
        vocabulary = labels.copy()
        both = zip(dataset.labels.keys(), dataset.labels.names(), strict=True)
        known = [[name if key not in labels and name in labels else key] for key, name in both]
        place = vocabulary.encode(known, unknown="add").indices
    Y = dataset.Y
    indices = place[Y.indices].astype(np.int32)
    moved = wrap(Y.data.copy(), indices, Y.indptr, (Y.shape[0], len(vocabulary)))
    moved.has_sorted_indices = False
    moved.sum_duplicates()
    return Dataset(dataset.texts, dataset.X, moved, vocabulary, dataset.name)


def propensity_constants(text: str) -> tuple[float, float]:
    """Read A and B: ``0.55,1.5``, or the name of a dataset whose values are known."""
    if text.lower() in PROPENSITY:
        return PROPENSITY[text.lower()]
    if any(character.isalpha() for character in text):
        known = ", ".join(PROPENSITY)
        hint = nearest(text.lower(), PROPENSITY)
        raise BadInput(f"--propensity takes A,B or one of {known}, but got '{text}'{hint}")
    values = numbers(text, float, "--propensity")
    if len(values) != 2:
        raise BadInput(f"--propensity takes two numbers A,B, but got '{text}'")
    return values[0], values[1]


def figure_table(figures: dict[str, float], ks: Sequence[int]) -> tuple[list[str], list[list[Any]]]:
    """Arrange figures as a row per measure and a column per depth, those without depth last."""
    measures = dict.fromkeys(name.partition("@")[0] for name in figures if "@" in name)
    rows = [[measure, *(figures[f"{measure}@{k}"] for k in ks)] for measure in measures]
    rows += [[name, value, *[None] * (len(ks) - 1)] for name, value in figures.items() if "@" not in name]
    return ["%", *(f"@{k}" for k in ks)], rows


def _weights(model: Any, data: str, dataset: Dataset, constants: tuple[float, float], terminal: Terminal) -> np.ndarray:
    """Weigh labels by how many of the rows that the model was trained on have them."""
    if model.targets_.counts is not None:
        return propensity_weights(model, len(dataset.labels), constants)
    if not Path(data).is_dir():
        raise BadInput(
            f"the model was saved without counts of its labels, and {data} is one file without a train split to count "
            "them in; pass its folder, or train again"
        )
    terminal.note(f"The model was saved without counts of its labels: they are counted in the train split of {data}")
    train = read_for(model, data, "train")
    columns = align(train, dataset.labels).Y[:, : len(dataset.labels)]
    return inverse_propensity(columns, *constants)


def propensity_weights(model: Any, n_labels: int, constants: tuple[float, float]) -> np.ndarray:
    """Return the weights by the model's own counts; columns behind the model's are labels without a training row."""
    targets = model.targets_
    counts = np.zeros(n_labels, np.int64)
    counts[: len(targets.counts)] = targets.counts
    return inverse_propensity_of_counts(counts, targets.n_rows, *constants)


def _padded(top: TopK, k: int) -> TopK:
    """Fill up with nothing where the model has fewer than k labels."""
    missing = k - top.k
    if missing <= 0:
        return top
    labels = np.pad(top.labels, ((0, 0), (0, missing)), constant_values=-1)
    return TopK(labels, np.pad(top.scores, ((0, 0), (0, missing))), top.label_names)
