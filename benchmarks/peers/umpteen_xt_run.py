"""Measure umpteen's XR-Transformer on raw texts; settings are those of ``umpteen train --set``.

Kernels are compiled before the clock starts, as the peers' are compiled before they are installed.
"""

from __future__ import annotations

import json
from typing import Any

import measure
import torch
from measure import Job

import umpteen
from umpteen.models import create, warmup


def fit(job: Job) -> dict[str, Any]:
    torch.set_num_threads(job.threads)
    texts, Y = _texts(job, "trn"), job.matrix("Y.trn")
    warmup()
    model = create("xr-transformer", {"threads": job.threads, **job.settings})
    fitted, figures = measure.measure_fit(lambda: model.fit(texts, Y))
    fitted.save(job.model)
    figures["model_mb"] = measure.folder_mb(job.model)
    return figures


def batch(job: Job) -> dict[str, Any]:
    texts, model = _texts(job, "tst"), _load(job)
    predicted, figures = measure.measure_batch(
        lambda: model.topk(texts, k=job.k, threads=job.threads), len(texts), job.repeats
    )
    measure.keep(job, predicted.labels)
    return figures


def single(job: Job) -> dict[str, Any]:
    queries, model = _texts(job, "tst")[: job.queries], _load(job)
    return measure.measure_single(lambda text: model.topk([text], k=job.k, threads=job.threads), queries)


def _load(job: Job) -> Any:
    torch.set_num_threads(job.threads)
    warmup()
    return umpteen.load(job.model)


def _texts(job: Job, part: str) -> list[str]:
    return json.loads((job.data / f"texts.{part}.json").read_text(encoding="utf-8"))


if __name__ == "__main__":
    measure.run({"fit": fit, "batch": batch, "single": single}, ("umpteen", "torch", "transformers", "numpy", "scipy"))
