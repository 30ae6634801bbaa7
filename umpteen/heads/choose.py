"""Which rows train the labels, where that is left to the data (``linear.negatives = auto``).

A label is scored for the rows whose beam holds its parent, so these are the rows to train it on: ``tfn+man`` with
as many predicted parents as the beam has. The price is known beforehand. Rows that carry a label under p parents are
trained under p of them by ``tfn`` and under all of the beam by ``tfn+man``; where that is more than ``MOST_TIMES`` as
many, as with short texts that carry one or two labels, ``tfn`` is taken.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from umpteen.config import LinearConfig, SearchConfig
from umpteen.tree import LabelTree

MOST_TIMES = 4.0  # rows that tfn+man may train on, times those of tfn


def settle(Y: sp.csr_matrix, tree: LabelTree, linear: LinearConfig, search: SearchConfig) -> LinearConfig:
    """Return the settings with the choices made that were left to the data."""
    linear = replace(linear, negatives_beam=linear.negatives_beam or search.beam)
    if linear.negatives != "auto":
        return linear
    if tree.n_levels < 2:
        return replace(linear, negatives="tfn")
    parents = tree.lift(Y, tree.n_levels - 2)
    per_row = parents.nnz / max(1, np.count_nonzero(np.diff(parents.indptr)))
    return replace(linear, negatives=negatives_for(tree.sizes[-2], per_row, linear.negatives_beam))


def negatives_for(n_parents: int, parents_per_row: float, beam: int) -> str:
    """Return which rows train the labels, if rows carry labels under so many of the parents on average.

    Examples
    --------
    >>> negatives_for(42, 3.2, 10), negatives_for(240, 2.1, 10)
    ('tfn+man', 'tfn')
    """
    return "tfn+man" if min(beam, n_parents) <= MOST_TIMES * max(parents_per_row, 1.0) else "tfn"
