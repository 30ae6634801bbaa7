"""Measure napkinXC's probabilistic label tree; the settings are those of its ``PLT`` class.

It writes its model while it trains, so its fit includes that.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import measure
from measure import Job
from napkinxc.models import PLT


def fit(job: Job) -> dict[str, Any]:
    X, Y = job.matrix("X.trn"), job.matrix("Y.trn")
    labels = [Y.indices[a:b].tolist() for a, b in pairwise(Y.indptr)]
    measure.empty_folder(job.model)
    _, figures = measure.measure_fit(lambda: _model(job).fit(X, labels))
    figures["model_mb"] = measure.folder_mb(job.model)
    return figures


def batch(job: Job) -> dict[str, Any]:
    X, model = job.matrix("X.tst"), _model(job)
    model.load()
    predicted, figures = measure.measure_batch(lambda: model.predict(X, top_k=job.k), X.shape[0], job.repeats)
    measure.keep(job, measure.padded(predicted, job.k))
    return figures


def single(job: Job) -> dict[str, Any]:
    model = _model(job)
    model.load()
    return measure.measure_single(lambda row: model.predict(row, top_k=job.k), job.query_rows())


def _model(job: Job) -> PLT:
    return PLT(str(job.model), threads=job.threads, seed=0, **job.settings)


if __name__ == "__main__":
    measure.run({"fit": fit, "batch": batch, "single": single}, ("napkinxc",))
