"""Compare two models on the same texts: differences of their metrics, and whether they are significant."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from umpteen.data import Dataset
from umpteen.engine import Progress, silent
from umpteen.errors import BadInput
from umpteen.evaluation.model import labelled_inputs, predict_all, unseen_labels
from umpteen.evaluation.texts import text_metrics
from umpteen.shortlist import TopK, check_count

_RESAMPLES = 1_000
_LEVEL = 95.0  # per cent of the resamples that an interval covers
_SHOWN = 10  # texts that differ most
_CELLS = 4_000_000  # counts in memory at a time


class Difference(NamedTuple):
    """A metric of two models in per cent: ``difference`` is b - a, ``low`` and ``high`` its 95 % interval."""

    a: float
    b: float
    difference: float
    low: float
    high: float

    @property
    def is_significant(self) -> bool:
        """Whether the interval does not contain 0."""
        return self.low > 0 or self.high < 0


class DifferentText(NamedTuple):
    """A text for which two models differ: its row from 0, and P@k of both."""

    row: int
    a: float
    b: float


class Comparison(NamedTuple):
    """Result of ``compare_rankings``: a ``Difference`` per metric, and the texts that differ most in P@k.

    ``unseen_labels`` are the percentages of the true labels that the models never saw, where they are known.
    """

    metrics: dict[str, Difference]
    n_rows: int
    k: int
    texts: list[DifferentText]
    unseen_labels: tuple[float, ...] = ()


def compare_rankings(
    top_a: TopK,
    top_b: TopK,
    Y: Any,
    ks: Sequence[int] = (1, 3, 5),
    *,
    Y_b: Any = None,
    n_resamples: int = _RESAMPLES,
    seed: int = 0,
) -> Comparison:
    """Compare two rankings of the labels of the same texts by a paired bootstrap over texts.

    Texts are drawn with replacement, as many as there are, and the metrics of both rankings are computed on the same
    drawn texts. The interval of a difference holds the middle 95 % of the resamples.

    Parameters
    ----------
    top_a, top_b
        Predictions of both models.
    Y
        True labels (n, n_labels).
    ks
        Depths of the metrics @k.
    Y_b
        True labels with the columns of the second model, if they are not those of the first.
    n_resamples, seed
        Number of resamples, and seed of the random number generator.

    Examples
    --------
    >>> Y = np.eye(3)[[0, 1, 2, 0]]
    >>> right = TopK([[0], [1], [2], [0]], np.ones((4, 1)))
    >>> wrong = TopK([[0], [2], [1], [1]], np.ones((4, 1)))
    >>> found = compare_rankings(wrong, right, Y, ks=(1,))
    >>> found.metrics["P@1"].difference, found.metrics["P@1"].is_significant
    (75.0, True)
    >>> found.texts[0]
    DifferentText(row=1, a=0.0, b=100.0)
    """
    check_count(n_resamples, "n_resamples")
    a, b = text_metrics(top_a, Y, ks), text_metrics(top_b, Y if Y_b is None else Y_b, ks)
    n_rows, k = len(top_a), max(ks)
    if n_rows != len(top_b) or n_rows == 0:
        raise BadInput(f"both rankings must be of the same texts, at least one, but have {n_rows} and {len(top_b)}")
    gaps = np.stack([b[name] - a[name] for name in a], axis=1)
    resampled = np.concatenate(list(_resampled_means(gaps, n_resamples, seed)))
    low, high = np.percentile(resampled, [50 - _LEVEL / 2, 50 + _LEVEL / 2], axis=0)
    metrics = {
        name: Difference(*map(float, (a[name].mean(), b[name].mean(), gaps[:, i].mean(), low[i], high[i])))
        for i, name in enumerate(a)
    }
    return Comparison(metrics, n_rows, k, _most_different(a[f"P@{k}"], b[f"P@{k}"]))


def compare_models(
    model_a: Any,
    model_b: Any,
    dataset: Dataset,
    ks: Sequence[int] = (1, 3, 5),
    *,
    dataset_b: Dataset | None = None,
    n_resamples: int = _RESAMPLES,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress = silent,
) -> Comparison:
    """Predict a dataset with two models and compare them, see :func:`compare_rankings`.

    The labels of the dataset are matched with those of each model by key, else by name. ``dataset_b`` has the same
    rows, read for the second model, if that one has other labels: names that the first gives to labels are its own.

    Examples
    --------
    >>> from umpteen import XRLinear
    >>> texts, labels = ["red apple", "green pear"], [["red"], ["green"]]
    >>> models = [XRLinear(seed=seed, threads=1).fit(texts, labels) for seed in (0, 1)]
    >>> dataset = Dataset(["a red plum"], Y=[[0, 1]], labels=models[0].labels_)
    >>> compare_models(*models, dataset, ks=(1,)).metrics["P@1"].difference
    0.0
    """
    tops, truths = [], []
    for model, data in ((model_a, dataset), (model_b, dataset if dataset_b is None else dataset_b)):
        tops.append(predict_all(model, labelled_inputs(model, data), max(ks), threads, progress))
        truths.append(data.align(model.labels_).Y)
    found = compare_rankings(*tops, truths[0], ks, Y_b=truths[1], n_resamples=n_resamples, seed=seed)
    return found._replace(unseen_labels=tuple(map(unseen_labels, (model_a, model_b), truths)))


def _resampled_means(values: np.ndarray, n_resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Yield the means (some, n_metrics) of values (n_rows, n_metrics) over rows that are drawn with replacement."""
    rng, n_rows = np.random.default_rng(seed), len(values)
    at_once = max(1, _CELLS // n_rows)
    for start in range(0, n_resamples, at_once):
        n = min(at_once, n_resamples - start)
        drawn = rng.integers(0, n_rows, (n, n_rows)) + n_rows * np.arange(n)[:, None]
        times = np.bincount(drawn.ravel(), minlength=n * n_rows).reshape(n, n_rows)
        yield times @ values / n_rows


def _most_different(a: np.ndarray, b: np.ndarray) -> list[DifferentText]:
    """Return the texts with the largest differences, the first rows first among equal ones."""
    order = np.argsort(-np.abs(b - a), kind="stable")[:_SHOWN].tolist()
    return [DifferentText(row, float(a[row]), float(b[row])) for row in order if a[row] != b[row]]
