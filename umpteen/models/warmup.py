"""Compile the kernels of the linear recipes, so that the first real call does not wait (images, servers, timings)."""

from __future__ import annotations

import tempfile

import numpy as np
import scipy.sparse as sp

from umpteen.engine import Progress, silent


def warmup(progress: Progress = silent) -> None:
    """Train, save, load and query tiny models of every kind; compiled code is kept on disk (``kernels.cache``)."""
    from umpteen.data.labels import Labels
    from umpteen.metrics import inverse_propensity
    from umpteen.models import load
    from umpteen.models.xrlinear import PLT, Bonsai, XRLinear

    rng = np.random.default_rng(0)
    n_labels = 600
    lists = [[f"label {i % n_labels}", f"label {(i * 7) % n_labels}"] for i in range(n_labels)]
    labels, Y = Labels.from_lists(lists)
    X = sp.random(n_labels, 80, 0.2, format="csr", dtype=np.float32, random_state=0)
    words = [f"word{i}" for i in range(60)]
    texts = [" ".join(rng.choice(words, 12)) for _ in range(n_labels)]
    narrow = {"leaf_size": 16}
    jobs = [
        (XRLinear(tree={**narrow, "branching": 8}, linear={"negatives": "tfn+man"}, trees=2), texts),
        (XRLinear(tree={**narrow, "kind": "kmeans"}, store={"weights": "float16"}), X),
        (XRLinear(tree={"kind": "none"}, store={"weights": "float32"}), X),
        (Bonsai(trees=1), X),
        (PLT(), X),
    ]
    for done, (model, rows) in enumerate(jobs):
        progress("compile kernels", done, len(jobs))
        model.fit(rows, Y, label_names=labels)
        with tempfile.TemporaryDirectory() as folder:
            model.save(f"{folder}/model")
            opened = load(f"{folder}/model")
            opened.topk(rows, 5)
            opened.topk(rows[:1], 5)
            opened.topk(rows[:20], 5, allowed=[0, 1, 2])
            opened.score_labels(rows[:20], Y[:20])
            opened.evaluate(rows, Y, inverse_propensity=inverse_propensity(Y), threshold=0.5)
    progress("compile kernels", len(jobs), len(jobs))
