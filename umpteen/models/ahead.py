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
    """Train the classifiers of a small tree, on so few rows that a batch of them is searched as one row is."""
    from umpteen.models.xrlinear import XRLinear
    from umpteen.tree import LabelTree

    n_rows, n_labels = 32, 512
    X = sp.random(n_rows, 80, 0.2, format="csr", dtype=np.float32, random_state=0)
    Y = sp.csr_matrix(np.kron(np.eye(n_rows), np.ones(n_labels // n_rows)))
    tree = LabelTree.from_groups(np.arange(n_labels).reshape(16, -1).tolist())
    XRLinear(linear={"negatives": "tfn+man"}).fit(X, Y, tree=tree)


def predict(path: str) -> None:
    """Search the trees of a model for a row without features."""
    from umpteen.data.rows import Rows
    from umpteen.models import load

    for head in load(path).heads_:
        head.topk(Rows.single(np.empty(0, np.int32), np.empty(0, np.float32), head.n_features), 1)


JOBS: dict[str, Callable[..., None]] = {TRAIN: train, PREDICT: predict}


def main() -> None:
    """Do the job that the command line names."""
    name, *arguments = sys.argv[1:]
    ahead.serve(lambda: JOBS[name](*arguments))
