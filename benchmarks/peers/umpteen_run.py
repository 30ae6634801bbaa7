"""Measure umpteen; settings are ``{"recipe": "xr-linear", "linear.eps": 0.1, …}``.

Kernels are compiled before the clock starts, as the peers' are compiled before they are installed.
"""

from __future__ import annotations

from typing import Any

import measure
from measure import Job

import umpteen
from umpteen.models import create, warmup


def fit(job: Job) -> dict[str, Any]:
    settings = {"threads": job.threads, **job.settings}
    recipe = settings.pop("recipe", "xr-linear")
    X, Y = job.matrix("X.trn"), job.matrix("Y.trn")
    warmup()
    fitted, figures = measure.measure_fit(lambda: create(recipe, settings).fit(X, Y))
    fitted.save(job.model)
    figures["model_mb"] = measure.folder_mb(job.model)
    return figures


def batch(job: Job) -> dict[str, Any]:
    warmup()
    X, model = job.matrix("X.tst"), umpteen.load(job.model)
    predicted, figures = measure.measure_batch(
        lambda: model.topk(X, k=job.k, beam=job.beam, threads=job.threads), X.shape[0], job.repeats
    )
    measure.keep(job, predicted.labels)
    return figures


def single(job: Job) -> dict[str, Any]:
    warmup()
    model = umpteen.load(job.model)
    return measure.measure_single(
        lambda row: model.topk(row, k=job.k, beam=job.beam, threads=job.threads), job.query_rows()
    )


if __name__ == "__main__":
    measure.run({"fit": fit, "batch": batch, "single": single}, ("umpteen", "numpy", "scipy", "numba"))
