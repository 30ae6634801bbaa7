"""Break down metrics by how frequent labels are and by how many labels texts have."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from umpteen.evaluation.texts import first_places
from umpteen.metrics import Metrics, check_ks, find_hits, true_labels
from umpteen.shortlist import TopK

GROUPS = ("head", "torso", "tail", "unseen")
_HEAD, _TORSO, _TAIL, _UNSEEN = range(4)
# Names and limits of the groups of texts by their number of labels
_SIZES = {"0": (0, 0), "1": (1, 1), "2": (2, 2), "3-5": (3, 5), "6+": (6, np.iinfo(np.int64).max)}


class Breakdown(NamedTuple):
    """Result of ``break_down``: a dict per group of labels, and a dict per group of texts."""

    by_frequency: list[dict[str, Any]]
    by_number: list[dict[str, Any]]


def break_down(top: TopK, Y: Any, counts: Any, ks: Sequence[int] = (1, 3, 5)) -> Breakdown:
    """Break down metrics by frequency of the labels and by number of labels of the texts.

    Parameters
    ----------
    top
        Predictions.
    Y
        True labels (n, n_labels).
    counts
        Number of training texts of each label, such as ``model.targets_.counts``; further columns of Y have none.
    ks
        Depths.

    Returns
    -------
    ``by_frequency`` has for each group of labels (see :func:`frequency_groups`) how many ``labels`` it has, the fewest
    and most training texts of one of them, the ``training_assignments`` of all, their ``assignments`` in Y, the part of
    ``P@k`` that is due to them (the groups add up to P@k), and ``recall@k``, the share of the assignments that are
    among the first k labels. ``by_number`` has for each number of labels how many ``texts`` have it, and the mean of
    their P, R, F1 and nDCG.

    Examples
    --------
    >>> top = TopK([[0, 1], [0, 2]], [[0.9, 0.4], [0.7, 0.1]])
    >>> found = break_down(top, [[1, 1, 0], [0, 0, 1]], counts=[6, 2, 1], ks=(2,))
    >>> [(group["group"], group["labels"], group["P@2"], group["recall@2"]) for group in found.by_frequency]
    [('head', 1, 25.0, 100.0), ('tail', 2, 50.0, 100.0)]
    >>> [(group["labels_per_text"], group["texts"], group["P@2"]) for group in found.by_number]
    [('1', 1, 50.0), ('2', 1, 100.0)]
    """
    collected = BreakdownMetrics(counts, ks)
    collected.add(top, Y)
    return collected.result()


def frequency_groups(counts: Any) -> np.ndarray:
    """Return the group of each label: 0 head, 1 torso, 2 tail, 3 unseen in training.

    The head are the most frequent labels that have the first third of all assignments, the torso those that have the
    second third, the tail the rest. A label that crosses a limit belongs to the more frequent group, as do all labels
    of the same count.

    Examples
    --------
    >>> frequency_groups([6, 3, 2, 1, 0]).tolist()
    [0, 1, 2, 2, 3]
    """
    counts = np.asarray(counts, dtype=np.int64)
    descending = np.sort(counts[counts > 0])[::-1]
    if len(descending) == 0:
        return np.full(len(counts), _UNSEEN)
    before, total = np.cumsum(descending) - descending, int(descending.sum())
    head, torso = (int(descending[3 * before < part * total][-1]) for part in (1, 2))
    return np.select([counts >= head, counts >= torso, counts > 0], [_HEAD, _TORSO, _TAIL], _UNSEEN)


class BreakdownMetrics:
    """The metrics of ``break_down`` block by block, for ``evaluate_model(collectors=[...])``."""

    def __init__(self, counts: Any, ks: Sequence[int] = (1, 3, 5)):
        self.ks = check_ks(ks)
        self.depth = max(self.ks)
        self._counts = np.asarray(counts, dtype=np.int64)
        self._hits = np.zeros((len(GROUPS), self.depth), np.int64)  # by group of the label and place
        self._n_true = np.zeros(len(GROUPS), np.int64)
        self._by_number = {name: Metrics(self.ks) for name in _SIZES}

    def add(self, top: TopK, Y: Any) -> None:
        """Add a block of predictions and its true labels."""
        truth = true_labels(Y, "Y")
        self._counts = np.pad(self._counts, (0, max(0, truth.shape[1] - len(self._counts))))
        groups, labels = frequency_groups(self._counts), first_places(top, self.depth)
        rows, places = np.nonzero(find_hits(labels, truth))
        np.add.at(self._hits, (groups[labels[rows, places]], places), 1)
        self._n_true += np.bincount(groups[truth.indices], minlength=len(GROUPS))
        n_labels = np.diff(truth.indptr)
        for name, (low, high) in _SIZES.items():
            chosen = (n_labels >= low) & (n_labels <= high)
            if chosen.any():
                self._by_number[name].add(top[chosen], truth[chosen])

    def result(self) -> Breakdown:
        """Return the groups that occur."""
        groups = frequency_groups(self._counts)
        n_rows = sum(metrics.n_rows for metrics in self._by_number.values())
        by_frequency = [self._group(number, groups == number, n_rows) for number in np.unique(groups)]
        return Breakdown(
            [group for group in by_frequency if group["assignments"] or group["training_assignments"]],
            [self._texts(name, metrics) for name, metrics in self._by_number.items() if metrics.n_rows],
        )

    def _group(self, number: int, is_member: np.ndarray, n_rows: int) -> dict[str, Any]:
        counts, n_true = self._counts[is_member], int(self._n_true[number])
        found = np.cumsum(self._hits[number])
        return {
            "group": GROUPS[number],
            "labels": len(counts),
            "fewest": int(counts.min()),
            "most": int(counts.max()),
            "training_assignments": int(counts.sum()),
            "assignments": n_true,
            **{f"P@{k}": 100.0 * int(found[k - 1]) / (max(1, n_rows) * k) for k in self.ks},
            **{f"recall@{k}": 100.0 * int(found[k - 1]) / max(1, n_true) for k in self.ks},
        }

    def _texts(self, name: str, metrics: Metrics) -> dict[str, Any]:
        figures = metrics.result()
        shown = {f"{measure}@{k}": figures[f"{measure}@{k}"] for measure in ("P", "R", "F1", "nDCG") for k in self.ks}
        return {"labels_per_text": name, "texts": metrics.n_rows, **shown}
