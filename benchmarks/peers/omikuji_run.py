"""Measure omikuji: its defaults (a Parabel tree), with as many trees as ``{"n_trees": 1}`` says.

omikuji trains from a text file. Writing and reading it are not counted, so loading and training, one call in
its Python interface, are called one after the other here. A row without features makes its loader refuse the
whole file; such rows are left out for it alone.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import measure
import omikuji
from measure import Job
from omikuji import _libomikuji as native

Pairs = list[tuple[int, float]]


def fit(job: Job) -> dict[str, Any]:
    path = _text_file(job)
    pool = omikuji._ThreadPoolHandle(job.threads, initialize=True)
    rows = native.lib.load_omikuji_data_set(native.ffi.new("char[]", str(path).encode()), pool.ptr)
    if rows == native.ffi.NULL:
        raise RuntimeError("omikuji could not load its file")
    fitted, figures = measure.measure_fit(lambda: _train(rows, pool, job))
    fitted.save(str(measure.empty_folder(job.model)))
    figures["model_mb"] = measure.folder_mb(job.model)
    return figures


def _train(rows: Any, pool: Any, job: Job) -> omikuji.Model:
    settings = omikuji.Model.default_hyper_param()
    for name, value in job.settings.items():
        setattr(settings, name, value)
    model = native.lib.train_omikuji_model(rows, settings, pool.ptr)
    if model == native.ffi.NULL:
        raise RuntimeError("omikuji could not train")
    return omikuji.Model(model)


def batch(job: Job) -> dict[str, Any]:
    """Loop over the texts: the Python interface takes one a call."""
    model, rows = _load(job), _pairs(job.matrix("X.tst"))
    predicted, figures = measure.measure_batch(
        lambda: [model.predict(row, beam_size=job.beam, top_k=job.k) for row in rows], len(rows), job.repeats
    )
    measure.keep(job, measure.padded([[label for label, _ in row] for row in predicted], job.k))
    return figures


def single(job: Job) -> dict[str, Any]:
    model = _load(job)
    rows = _pairs(job.matrix("X.tst")[: job.queries])
    return measure.measure_single(lambda row: model.predict(row, beam_size=job.beam, top_k=job.k), rows)


def _load(job: Job) -> omikuji.Model:
    model = omikuji.Model.load(str(job.model))
    model.init_prediction_thread_pool(job.threads)
    return model


def _pairs(X: Any) -> list[Pairs]:
    """Return rows the way omikuji takes them: lists of (feature, value)."""
    bounds = X.indptr.tolist()
    columns, values = X.indices.tolist(), X.data.tolist()
    return [list(zip(columns[a:b], values[a:b], strict=True)) for a, b in pairwise(bounds)]


def _text_file(job: Job) -> Path:
    path = job.data / "train.omikuji.txt"
    if path.exists():
        return path
    X, Y = job.matrix("X.trn"), job.matrix("Y.trn")
    kept = (X.indptr[1:] > X.indptr[:-1]).nonzero()[0]
    unfinished = path.with_suffix(".tmp")
    with open(unfinished, "w", encoding="ascii") as file:
        file.write(f"{len(kept)} {X.shape[1]} {Y.shape[1]}\n")
        for row in kept.tolist():
            labels = Y.indices[Y.indptr[row] : Y.indptr[row + 1]].tolist()
            pairs = _pairs(X[row])[0]
            file.write(",".join(map(str, labels)) + " " + " ".join([f"{c}:{v:.8g}" for c, v in pairs]) + "\n")
    unfinished.replace(path)
    return path


if __name__ == "__main__":
    measure.run({"fit": fit, "batch": batch, "single": single}, ("omikuji",))
