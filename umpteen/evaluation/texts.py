"""Metrics of single texts, and their results block by block."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from umpteen.metrics import check_ks, find_hits, true_labels
from umpteen.shortlist import TopK


def text_metrics(top: TopK, Y: Any, ks: Sequence[int] = (1, 3, 5)) -> dict[str, np.ndarray]:
    """Return the metrics of every text in per cent: P, R, F1, RP and nDCG at each depth, and MRR.

    The mean over the texts is the metric of that name in ``umpteen.metrics.evaluate``.

    Examples
    --------
    >>> top = TopK([[2, 0], [1, 0]], [[0.9, 0.4], [0.7, 0.1]])
    >>> text_metrics(top, [[1, 0, 1], [1, 0, 0]], ks=(2,))["P@2"].tolist()
    [100.0, 50.0]
    """
    truth, deepest = true_labels(Y, "Y"), max(check_ks(ks))
    labels = first_places(top, deepest)
    hits = find_hits(labels, truth)
    n_true, places = np.diff(truth.indptr)[:, None], np.arange(1, deepest + 1)
    found, discounts = np.cumsum(hits, axis=1), 1.0 / np.log2(places + 1.0)
    some = np.maximum(n_true, 1)  # texts without true labels have no hits, so that their metrics are 0
    tables = {
        "P": found / places,
        "R": found / some,
        "F1": 2.0 * found / (np.cumsum(labels >= 0, axis=1) + some),
        "RP": found / np.minimum(places, some),
        "nDCG": np.cumsum(hits * discounts, axis=1) / np.cumsum(discounts * (places <= some), axis=1),
    }
    metrics = {f"{name}@{k}": 100.0 * table[:, k - 1] for name, table in tables.items() for k in ks}
    return metrics | {"MRR": 100.0 * (hits / places).max(axis=1)}


class TextResults:
    """Collect hits, metrics and the best label of every text, for ``evaluate_model(collectors=[...])``.

    Parameters
    ----------
    ks
        Depths at which hits are counted; P, R and F1 are those at the largest.

    Examples
    --------
    >>> results = TextResults(ks=(1, 2))
    >>> results.add(TopK([[2, 0]], [[0.9, 0.4]], label_names=["art", "law", "tax"]), [[1, 1, 0]])
    >>> next(results.rows())
    {'row': 0, 'n_labels': 2, 'hits@1': 0, 'hits@2': 1, 'P@2': 50.0, 'R@2': 50.0, 'F1@2': 50.0, 'label': 'tax',
     'score': 0.9}
    """

    def __init__(self, ks: Sequence[int] = (1, 3, 5)):
        self.ks = check_ks(ks)
        self.depth = max(self.ks)
        self._blocks: list[dict[str, list[Any]]] = []

    def add(self, top: TopK, Y: Any) -> None:
        """Add a block of predictions and its true labels."""
        truth = true_labels(Y, "Y")
        metrics = text_metrics(top, truth, self.ks)
        found = {f"hits@{k}": np.rint(metrics[f"P@{k}"] * k / 100.0).astype(int).tolist() for k in self.ks}
        shown = [f"{name}@{self.depth}" for name in ("P", "R", "F1")]
        self._blocks.append({
            "n_labels": np.diff(truth.indptr).tolist(),
            **found,
            **{name: metrics[name].round(4).tolist() for name in shown},
            "label": [_name(top, label) for label in top.labels[:, 0].tolist()],
            "score": [float(f"{score:.6g}") for score in top.scores[:, 0].tolist()],
        })  # fmt: skip

    def rows(self) -> Iterator[dict[str, Any]]:
        """Iterate over the texts: row number from 0, number of true labels, hits, metrics, best label and its score.

        The label of a text without predictions is None.
        """
        number = 0
        for block in self._blocks:
            for values in zip(*block.values(), strict=True):
                yield {"row": number, **dict(zip(block, values, strict=True))}
                number += 1


def first_places(top: TopK, k: int) -> np.ndarray:
    """Return the first k labels of each text, padded by -1."""
    labels = top.labels[:, :k]
    return np.pad(labels, ((0, 0), (0, k - labels.shape[1])), constant_values=-1)


def _name(top: TopK, label: int) -> str | None:
    if label < 0:
        return None
    return str(label) if top.label_names is None else top.label_names[label]
