"""Tasks of the benchmark of a cluster: one fold of a cross-validation of XR-Linear."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp

from umpteen.engine import task


@task
def fit_fold(*, folder: str, start: int, stop: int, target: str, threads: int) -> float:
    """Train on all rows but a range, save the model, and return P@1 on the range."""
    from umpteen import XRLinear

    X, Y = (sp.load_npz(Path(folder, f"{name}.npz")) for name in "XY")
    kept = np.r_[0:start, stop : X.shape[0]]
    model = XRLinear(threads=threads).fit(X[kept], Y[kept])
    model.save(target)
    return model.evaluate(X[start:stop], Y[start:stop])["P@1"]
