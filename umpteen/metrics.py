"""Metrics of rankings in per cent: P, R, F1, RP, nDCG, PSP, PSnDCG, coverage @k, MRR, micro- and macro-F1.

The calibration error ECE@k of probabilities is a fraction. Propensities follow Jain, Prabhu and Varma (KDD 2016);
docs/metrics.md has all formulas.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, issparse

from umpteen.data.sparse import as_csr, triplet
from umpteen.errors import BadInput
from umpteen.kernels import rank
from umpteen.shortlist import TopK, check_k

# (A, B) of the propensity model in the published tables of the benchmarks; other datasets use "default".
PROPENSITY: dict[str, tuple[float, float]] = {
    "default": (0.55, 1.5),
    "amazon-670k": (0.6, 2.6),
    "amazon-3m": (0.6, 2.6),
    "lf-amazon-131k": (0.6, 2.6),
    "lf-amazontitles-131k": (0.6, 2.6),
    "lf-amazontitles-1.3m": (0.6, 2.6),
    "wikilshtc-325k": (0.5, 0.4),
    "wiki-500k": (0.5, 0.4),
    "wikipedia-500k": (0.5, 0.4),
    "lf-wikipedia-500k": (0.5, 0.4),
}

ABOVE_THRESHOLD = 100  # maximum number of labels of a row that a threshold selects from
N_BINS = 20  # bins of equal width in which ECE@k compares probabilities with frequencies
_NEVER = np.iinfo(np.int32).max  # rank of a label without a hit


def inverse_propensity(Y_train: Any, A: float = 0.55, B: float = 1.5) -> np.ndarray:
    """Return the inverse propensity of each label; rare labels have larger weights.

    Parameters
    ----------
    Y_train
        Label matrix (n, n_labels) of the training data.
    A, B
        Constants of the dataset, see ``PROPENSITY``. State them with every PSP you publish.

    Returns
    -------
    One weight per label: 1 + (ln n - 1) (B + 1)^A (n_l + B)^-A, where n_l of the n texts have label l;
    1 if there are less than three texts.

    Examples
    --------
    >>> Y_train = [[1, 0], [1, 0], [1, 0], [1, 1]]
    >>> inverse_propensity(Y_train).round(3).tolist()
    [1.25, 1.386]
    """
    Y = true_labels(Y_train, "Y_train")
    return inverse_propensity_of_counts(np.bincount(Y.indices, minlength=Y.shape[1]), Y.shape[0], A, B)


def inverse_propensity_of_counts(counts: np.ndarray, n_rows: int, A: float = 0.55, B: float = 1.5) -> np.ndarray:
    """Return the inverse propensities from the number of training texts of each label.

    Examples
    --------
    >>> inverse_propensity_of_counts(np.array([4, 1]), 4).round(3).tolist()
    [1.25, 1.386]
    """
    if n_rows == 0:
        raise BadInput("propensities are counted on training texts, but Y_train has no rows; pass some")
    if not (np.isfinite(A) and np.isfinite(B) and B >= 0):
        raise BadInput(f"A and B must be numbers and B at least 0, but they are {A!r} and {B!r}")
    with np.errstate(divide="ignore"):  # B = 0 gives a label without texts an infinite weight
        return 1.0 + max(np.log(n_rows) - 1.0, 0.0) * (B + 1.0) ** A * (counts + B) ** -A


class Reliability(NamedTuple):
    """How often predictions of each probability are right: an entry per bin of equal width.

    ``probability`` is the mean probability and ``frequency`` the share of true labels among the ``count`` predictions
    of a bin, both NaN in an empty bin; ``low`` and ``high`` are its limits.
    """

    low: np.ndarray
    high: np.ndarray
    probability: np.ndarray
    frequency: np.ndarray
    count: np.ndarray

    @classmethod
    def of_sums(cls, sums: np.ndarray) -> Reliability:
        """Return the table of sums (3, n_bins): of predictions, of their probabilities, and of hits."""
        count, probability, hits = sums
        limits = np.linspace(0.0, 1.0, len(count) + 1)
        with np.errstate(invalid="ignore"):  # 0 / 0 in empty bins
            return cls(limits[:-1], limits[1:], probability / count, hits / count, count.astype(np.int64))

    @property
    def error(self) -> float:
        """The expected calibration error: mean of |probability - frequency| over all predictions; 0 without any."""
        gaps = np.nan_to_num(np.abs(self.probability - self.frequency))
        return float(np.dot(gaps, self.count) / max(1, self.count.sum()))


def reliability(probabilities: Any, hits: Any, n_bins: int = N_BINS) -> Reliability:
    """Compare predicted probabilities with observed frequencies, in bins of equal width.

    Parameters
    ----------
    probabilities
        (n, k) probabilities of the predicted labels; NaN where there is no prediction.
    hits
        (n, k) whether each of these labels is true, see :func:`find_hits`.
    n_bins
        Number of bins between 0 and 1. A bin includes its lower limit, the last one both.

    Examples
    --------
    >>> table = reliability([[0.9, 0.2], [0.7, 0.1]], [[True, False], [True, True]], n_bins=2)
    >>> table.probability.round(2).tolist(), table.frequency.tolist(), table.count.tolist()
    ([0.15, 0.8], [0.5, 1.0], [2, 2])
    """
    return Reliability.of_sums(_calibration_sums(probabilities, hits, n_bins).sum(axis=1))


def expected_calibration_error(probabilities: Any, hits: Any, n_bins: int = N_BINS) -> float:
    """Return by how much probabilities and frequencies differ on average, as a fraction from 0 to 1.

    Parameters are those of :func:`reliability`. Each bin counts by its number of predictions.

    Examples
    --------
    >>> round(expected_calibration_error([[0.9, 0.2], [0.7, 0.1]], [[True, False], [True, True]], n_bins=2), 3)
    0.275
    """
    return reliability(probabilities, hits, n_bins).error


def find_hits(labels: np.ndarray, Y: Any) -> np.ndarray:
    """Return whether each predicted label (n, k) is a true label of its text; False for -1.

    Examples
    --------
    >>> find_hits(np.array([[2, 0], [1, -1]]), [[1, 0, 0], [0, 1, 0]]).tolist()
    [[False, True], [True, False]]
    """
    truth = true_labels(Y, "Y")
    n_rows, n_labels = truth.shape
    numbers_of_rows = np.arange(n_rows, dtype=np.int64)
    present = np.repeat(numbers_of_rows, np.diff(truth.indptr)) * n_labels + truth.indices  # ascending
    wanted = numbers_of_rows[:, None] * n_labels + labels
    place = np.minimum(np.searchsorted(present, wanted), max(0, len(present) - 1))
    return (labels >= 0) & (present[place] == wanted) if len(present) else np.zeros(wanted.shape, bool)


def depth(ks: Sequence[int], threshold: float | None, n_labels: int) -> int:
    """Return the number of labels per row that the metrics need.

    Examples
    --------
    >>> depth((1, 5), None, 4_000), depth((1, 5), 0.3, 4_000), depth((1, 5), 0.3, 20)
    (5, 100, 20)
    """
    deepest = max(check_ks(ks))
    return deepest if threshold is None else max(deepest, min(ABOVE_THRESHOLD, n_labels))


def check_ks(ks: Sequence[int]) -> tuple[int, ...]:
    """Return ks as a tuple; raise BadInput unless it has at least one entry and all are positive integers."""
    if not isinstance(ks, Iterable) or isinstance(ks, (str, bytes)):
        raise BadInput(f"ks must be a list of depths, but is {ks!r}; pass for example ks=(1, 3, 5)")
    depths = tuple(ks)
    if not depths:
        raise BadInput("ks must name at least one depth, but is empty; pass for example ks=(1, 3, 5)")
    for k in depths:
        check_k(k)
    return depths


def evaluate(
    predicted: TopK | Any,
    Y: Any,
    ks: Sequence[int] = (1, 3, 5),
    *,
    inverse_propensity: np.ndarray | None = None,
    threshold: float | None = None,
) -> dict[str, float]:
    """Compare predictions with the true labels.

    Parameters
    ----------
    predicted
        A TopK, or a score matrix (n, n_labels).
    Y
        True labels (n, n_labels): entries other than zero.
    ks
        Depths of the metrics @k.
    inverse_propensity
        A weight per label, see :func:`inverse_propensity`; adds PSP@k and PSnDCG@k.
    threshold
        Adds micro-F1 and macro-F1 of the labels that score at least this much.

    Returns
    -------
    Percentages under the names ``P@1``, ``R@1``, ``F1@1``, ``RP@1``, ``nDCG@1``, ``PSP@1``, ``PSnDCG@1``,
    ``coverage@1`` and so on, ``MRR``, ``micro-F1``, ``macro-F1``. If predictions have probabilities, also ``ECE@1``
    and so on, as fractions. The metrics of a text without true labels are zero.

    Examples
    --------
    >>> top = TopK([[2, 0], [1, 0]], [[0.9, 0.4], [0.7, 0.1]])
    >>> figures = evaluate(top, [[1, 0, 1], [1, 0, 0]], ks=(1, 2))
    >>> figures["P@1"], figures["P@2"], figures["MRR"]
    (50.0, 75.0, 75.0)
    """
    metrics = Metrics(ks, inverse_propensity=inverse_propensity, threshold=threshold)
    metrics.add(predicted, Y)
    return metrics.result()


class Metrics:
    """The metrics of ``evaluate``, computed block by block.

    Parameters
    ----------
    ks, inverse_propensity, threshold
        As in ``evaluate``.

    Examples
    --------
    >>> metrics = Metrics(ks=(1,))
    >>> metrics.add(TopK([[0]], [[0.9]]), [[1, 0]])
    >>> metrics.add(TopK([[0]], [[0.8]]), [[0, 1]])
    >>> metrics.result()["P@1"]
    50.0
    """

    def __init__(
        self,
        ks: Sequence[int] = (1, 3, 5),
        *,
        inverse_propensity: np.ndarray | None = None,
        threshold: float | None = None,
    ):
        self.ks = check_ks(ks)
        if threshold is not None and not (isinstance(threshold, numbers.Real) and np.isfinite(threshold)):
            raise BadInput(f"threshold must be a number, but is {threshold!r}; scores lie between 0 and 1 as a rule")
        self.threshold = threshold
        self.n_rows = 0
        self._weights = _check_weights(inverse_propensity)
        self._sums = np.zeros((rank.N_SUMS, max(self.ks)))
        self._calibration = np.zeros((3, max(self.ks), N_BINS))  # predictions, probabilities and hits, by place
        self.has_probabilities = True  # of all predictions added so far
        self._n_true = self._n_hit = self._n_predicted = self._first_hit = np.zeros(0)  # allocated by the first block

    def add(self, predicted: TopK | Any, Y: Any, chosen: np.ndarray | None = None) -> None:
        """Add a block of predictions (a TopK or a score matrix) and its true labels.

        If ``chosen`` is given, F1 is that of the ranked labels for which it is True, whatever the threshold.
        """
        truth = true_labels(Y, "Y")
        if isinstance(predicted, TopK):
            top = predicted
        else:  # a threshold needs all scores
            top = TopK.from_csr(predicted, max(self.ks) if self.threshold is None else None)
        self._check_shapes(top, truth)
        if top is predicted:
            self._check_ranking(top, truth.shape[1])
        if self.n_rows == 0:
            self._allocate(truth.shape[1])
        indptr, indices, _ = triplet(truth)
        rank.rank_sums(indptr, indices, top.labels, self._weights, self._sums, self._first_hit, self._n_true)
        if self.threshold is not None:
            threshold = np.float32(self.threshold)  # scores are float32: 0.1 must equal 0.1
            scores = top.scores if chosen is None else np.where(chosen, np.float32(np.inf), np.float32(-np.inf))
            rank.count_above(indptr, indices, top.labels, scores, threshold, self._n_hit, self._n_predicted)
        self._add_probabilities(top, truth)
        self.n_rows += len(top)

    def result(self) -> dict[str, float]:
        """Return the metrics of all blocks added so far, in per cent."""
        if self.n_rows == 0:
            raise BadInput("there is nothing to evaluate: no rows were added; add at least one")
        figures: dict[str, float] = {}
        for name, values in self._at_each_depth().items():
            figures |= {f"{name}@{k}": 100.0 * float(values[k - 1]) for k in self.ks}
        occurring = max(1, int(np.count_nonzero(self._n_true)))
        for k in self.ks:
            figures[f"coverage@{k}"] = 100.0 * int(np.count_nonzero(self._first_hit < k)) / occurring
        figures["MRR"] = 100.0 * float(self._sums[rank.RECIPROCAL, -1]) / self.n_rows
        if self.threshold is not None:
            figures |= self._f1()
        if self.has_probabilities:
            figures |= {f"ECE@{k}": self.reliability(k).error for k in self.ks}
        return figures

    def reliability(self, k: int) -> Reliability:
        """Return the reliability table of the first k labels of all texts; predictions must have probabilities."""
        if self.n_rows == 0 or not self.has_probabilities:
            raise BadInput("a reliability table needs probabilities, but the predictions have scores only")
        return Reliability.of_sums(self._calibration[:, :k].sum(axis=1))

    def _add_probabilities(self, top: TopK, truth: csr_matrix) -> None:
        probabilities = getattr(top, "probabilities", None)
        if probabilities is None:
            self.has_probabilities = False
        if self.has_probabilities:
            width = min(max(self.ks), top.k)
            labels = top.labels[:, :width]
            known = np.where(labels >= 0, probabilities[:, :width], np.nan)
            self._calibration[:, :width] += _calibration_sums(known, find_hits(labels, truth), N_BINS)

    def _at_each_depth(self) -> dict[str, np.ndarray]:
        sums, n = self._sums, self.n_rows
        values = {
            "P": sums[rank.HITS] / (n * np.arange(1, sums.shape[1] + 1)),
            "R": sums[rank.RECALL] / n,
            "F1": sums[rank.F1] / n,
            "RP": sums[rank.R_PRECISION] / n,
            "nDCG": sums[rank.NDCG] / n,
        }
        if len(self._weights):
            values["PSP"] = _divide(sums[rank.PS_GAIN], sums[rank.PS_BEST])
            values["PSnDCG"] = _divide(sums[rank.PS_DCG], sums[rank.PS_DCG_BEST])
        return values

    def _f1(self) -> dict[str, float]:
        both = self._n_true + self._n_predicted  # 2 tp + fp + fn, per label
        macro = _divide(2.0 * self._n_hit, both).mean() if len(both) else 0.0
        micro = 2.0 * self._n_hit.sum() / max(1, both.sum())
        return {"micro-F1": 100.0 * float(micro), "macro-F1": 100.0 * float(macro)}

    def _allocate(self, n_labels: int) -> None:
        self._n_true = np.zeros(n_labels, np.int64)
        self._first_hit = np.full(n_labels, _NEVER, np.int32)
        if self.threshold is not None:
            self._n_hit, self._n_predicted = np.zeros(n_labels, np.int64), np.zeros(n_labels, np.int64)

    def _check_shapes(self, top: TopK, truth: csr_matrix) -> None:
        n_rows, n_labels = truth.shape
        known = len(self._n_true)
        if len(top) != n_rows:
            raise BadInput(f"Y has {n_rows} rows but {len(top)} were predicted; pass one label row per text")
        if self.n_rows and n_labels != known:
            raise BadInput(f"every block must have the same labels, but Y has {n_labels} columns after {known}")
        if len(self._weights) not in (0, n_labels):
            raise BadInput(
                f"inverse_propensity has {len(self._weights)} weights but Y has {n_labels} columns; "
                "compute it from the training labels with the same columns"
            )
        low, high = int(top.labels.min(initial=-1)), int(top.labels.max(initial=-1))
        if low < -1 or high >= n_labels:
            raise BadInput(
                f"label numbers must be columns of Y (0 to {n_labels - 1}) or -1, but "
                f"{low if low < -1 else high} is predicted; pass the Y whose columns the model was trained on"
            )

    def _check_ranking(self, top: TopK, n_labels: int) -> None:
        """Refuse rankings that are too short (unless they hold all labels) or repeat a label."""
        k = max(self.ks)
        if top.k < min(k, n_labels):
            raise BadInput(f"P@{k} needs {k} predictions a row but TopK holds {top.k}; call topk(k={k})")
        ranked = np.sort(top.labels[:, : k if self.threshold is None else top.k], axis=1)
        has_repeats = ((ranked[:, 1:] == ranked[:, :-1]) & (ranked[:, 1:] >= 0)).any(axis=1)
        if has_repeats.any():
            row = int(np.argmax(has_repeats))
            raise BadInput(f"the labels of a text must differ, but row {row} of the predictions repeats one")


def true_labels(Y: Any, what: str) -> csr_matrix:
    """Return the label matrix with sorted rows and without stored zeros."""
    truth = as_csr(Y, what, finite=False)
    if not truth.data.all():
        truth = truth.copy() if issparse(Y) else truth
        truth.eliminate_zeros()
    return truth


def _calibration_sums(probabilities: Any, hits: Any, n_bins: int) -> np.ndarray:
    """Return the sums of predictions, probabilities and hits in each place and bin: (3, k, n_bins)."""
    probabilities, hits = np.asarray(probabilities, dtype=np.float64), np.asarray(hits, dtype=bool)
    if probabilities.ndim != 2 or probabilities.shape != hits.shape:
        raise BadInput(
            "probabilities and hits must be two tables of one shape (texts, k), "
            f"but have shapes {probabilities.shape} and {hits.shape}"
        )
    is_known = ~np.isnan(probabilities)
    known, k = probabilities[is_known], hits.shape[1]
    if known.min(initial=0.0) < 0.0 or known.max(initial=1.0) > 1.0:
        raise BadInput(f"probabilities must be between 0 and 1, but range from {known.min():g} to {known.max():g}")
    bins = np.minimum((known * n_bins).astype(np.int64), n_bins - 1)
    cells = np.nonzero(is_known)[1] * n_bins + bins
    totals = [np.bincount(cells, weights, minlength=k * n_bins) for weights in (None, known, hits[is_known])]
    return np.array(totals, dtype=np.float64).reshape(3, k, n_bins)


def _check_weights(weights: np.ndarray | None) -> np.ndarray:
    if weights is None:
        return np.zeros(0)
    weights = np.ascontiguousarray(weights, dtype=np.float64)
    if weights.ndim != 1 or not np.isfinite(weights).all() or (weights < 0).any():
        raise BadInput("inverse_propensity must be one finite number of at least 0 for each label")
    return weights


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a / b, and 0 where b is 0."""
    return np.divide(a, b, out=np.zeros(len(b)), where=b > 0)
