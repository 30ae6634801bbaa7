"""Random rankings and true labels for tests of metrics."""

from __future__ import annotations

import numpy as np

from umpteen.shortlist import TopK


def made(seed: int, n_rows: int = 20, n_labels: int = 9, k: int = 5) -> tuple[TopK, np.ndarray]:
    """Make random rankings, some of which end early, and random true labels, some rows without any."""
    rng = np.random.default_rng(seed)
    labels = np.array([rng.permutation(n_labels)[:k] for _ in range(n_rows)])
    for row in labels:
        row[int(rng.integers(0, 2 * k + 1)) :] = -1
    scores = np.where(labels >= 0, -np.sort(-rng.random((n_rows, k)), axis=1), 0)
    return TopK(labels, scores), rng.random((n_rows, n_labels)) < 0.3
