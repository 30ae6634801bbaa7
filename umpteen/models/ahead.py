"""What the process that compiles ahead does: a small job of the kind that is coming. Run by ``umpteen.kernels.ahead``.

The process that started it begins with reading texts and clustering labels; this one begins with what comes after.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from umpteen.kernels import ahead

TRAIN, PREDICT = "train", "predict"


def train() -> None:
    """Train the scorers of a small tree."""
    from umpteen.models.xrlinear import XRLinear
    from umpteen.tree import LabelTree

    n_labels = 256
    X = sp.random(n_labels, 80, 0.2, format="csr", dtype=np.float32, random_state=0)
    tree = LabelTree.from_groups(np.arange(n_labels).reshape(16, -1).tolist())
    XRLinear(normalize=False).fit(X, sp.identity(n_labels, format="csr"), tree=tree)


def predict(path: str) -> None:
    """Search the trees of a model for a row without features."""
    from umpteen.data.rows import Rows
    from umpteen.models import load

    for head in load(path).heads_:
        head.topk(Rows.single(np.empty(0, np.int32), np.empty(0, np.float32), head.n_features), 1)


JOBS: dict[str, Callable[..., None]] = {TRAIN: train, PREDICT: predict}

if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    ahead.serve(lambda: JOBS[name](*arguments))
