"""When a label is predicted: a score to reach, for all labels or for each, and the most labels of a text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from umpteen.calibration import Calibration
from umpteen.shortlist import TopK
from umpteen.thresholds import LabelThresholds


@dataclass(frozen=True)
class Decision:
    """Which of the ranked labels of a text are predicted.

    Parameters
    ----------
    depth
        The most labels of a text.
    threshold
        The score from which on a label is predicted.
    labels, scores
        Labels with a threshold of their own, and their scores; None if there are none.

    Examples
    --------
    >>> top = TopK([[2, 0, 1]], [[0.9, 0.6, 0.5]])
    >>> Decision(depth=3, threshold=0.5).chosen(top).tolist()
    [[True, True, True]]
    >>> own = LabelThresholds(np.array([0]), np.array([0.7]))
    >>> Decision(3, 0.5, own, np.array([0.7])).chosen(top).tolist()
    [[True, False, True]]
    """

    depth: int
    threshold: float
    labels: LabelThresholds | None = None
    scores: np.ndarray | None = None

    @classmethod
    def stored(cls, calibration: Calibration, depth: int) -> Decision:
        """Return what a calibration says, with at most ``depth`` labels where it has no limit."""
        threshold = _as_score(calibration.score_at(calibration.threshold))
        most = depth if calibration.limit is None else calibration.limit
        if calibration.labels is None:
            return cls(most, threshold)
        own = calibration.scores_at(calibration.labels.probabilities)
        return cls(most, threshold, calibration.labels, own.astype(np.float32).astype(np.float64))

    @property
    def lowest(self) -> float:
        """The lowest score with which any label is predicted."""
        return self.threshold if self.scores is None else min(self.threshold, float(self.scores.min()))

    def least(self, labels: np.ndarray) -> float | np.ndarray:
        """Return the score from which on each of these labels is predicted; one number if it is the same for all."""
        return self.threshold if self.labels is None else self.labels.of(labels, self.threshold, self.scores)

    def chosen(self, top: TopK) -> np.ndarray:
        """Return which of the ranked labels are predicted."""
        near = (top.labels >= 0) & (np.arange(top.k) < self.depth)
        return near & (top.scores >= self.least(top.labels))


def _as_score(score: float) -> float:
    return float(np.float32(score))  # the precision of scores
