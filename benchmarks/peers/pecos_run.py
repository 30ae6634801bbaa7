"""Measure PECOS's XR-Linear, or its one-versus-all model (settings ``{"ova": true}``).

The label vectors and the tree belong to the fit. Beam and number of labels are stored with the model, so
that a query does not pay for overriding them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import measure
from measure import Job
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel

# ways of loading: name -> (is a memory-mapped copy, keyword arguments of load)
_WAYS: dict[str, tuple[bool, dict[str, Any]]] = {
    "default": (False, {"weight_matrix_type": "BINARY_SEARCH_CHUNKED"}),
    "hash": (False, {"weight_matrix_type": "HASH_CHUNKED"}),
    "mmap": (True, {"lazy_load": True}),
}


def fit(job: Job) -> dict[str, Any]:
    X, Y = job.matrix("X.trn"), job.matrix("Y.trn").tocsc()
    fitted, figures = measure.measure_fit(lambda: _train(X, Y, job))
    measure.empty_folder(job.model)
    fitted.save(str(job.model / "model"))
    figures["model_mb"] = measure.folder_mb(job.model)
    return figures


def _train(X: Any, Y: Any, job: Job) -> XLinearModel:
    settings = dict(job.settings)
    stored = {"beam_size": job.beam, "only_topk": job.k, "post_processor": "l3-hinge"}
    if settings.pop("ova", False):
        return XLinearModel.train(X, Y, C=None, threads=job.threads, pred_kwargs=stored, **settings)
    tree = {"nr_splits": settings.get("nr_splits", 16), "max_leaf_size": settings.pop("max_leaf_size", 100)}
    vectors = LabelEmbeddingFactory.create(Y, X, method="pifa", threads=job.threads)
    clusters = Indexer.gen(vectors, indexer_type="hierarchicalkmeans", threads=job.threads, **tree)
    return XLinearModel.train(X, Y, C=clusters, threads=job.threads, pred_kwargs=stored, **settings)


def batch(job: Job) -> dict[str, Any]:
    X, model = job.matrix("X.tst"), _load(job)
    predicted, figures = measure.measure_batch(lambda: model.predict(X, threads=job.threads), X.shape[0], job.repeats)
    measure.keep(job, measure.best_of_rows(predicted, job.k))
    return figures


def single(job: Job) -> dict[str, Any]:
    model = _load(job)
    return measure.measure_single(lambda row: model.predict(row, threads=job.threads), job.query_rows())


def _load(job: Job) -> XLinearModel:
    is_mapped, options = _WAYS[job.way]
    folder = job.model / "model"
    if is_mapped:
        folder = _mapped(job.model)
    return XLinearModel.load(str(folder), is_predict_only=True, **options)


def _mapped(model: Path) -> Path:
    """Return the memory-mapped copy beside the model, made on first use."""
    folder = model / "mapped"
    if not folder.exists():
        XLinearModel.compile_mmap_model(str(model / "model"), str(folder))
    return folder


if __name__ == "__main__":
    measure.run({"fit": fit, "batch": batch, "single": single}, ("libpecos", "numpy", "scipy"))
