"""Measure PECOS's own XR-Transformer on texts and the tf-idf rows of them; settings are ``{"encoder": folder, …}``.

The tf-idf rows are given, so neither its fit nor its queries pay for them. Beside its vectors PECOS needs an older
``transformers``, named in ``benchmarks.environments``.
"""

from __future__ import annotations

import json
from typing import Any

import measure
import torch
from measure import Job
from pecos.xmc.xtransformer.model import XTransformer
from pecos.xmc.xtransformer.module import MLProblemWithText


def fit(job: Job) -> dict[str, Any]:
    torch.set_num_threads(job.threads)
    problem = MLProblemWithText(_texts(job, "trn"), job.matrix("Y.trn"), X_feat=job.matrix("X.trn"))
    fitted, figures = measure.measure_fit(lambda: _train(problem, job))
    measure.empty_folder(job.model)
    fitted.save(str(job.model / "model"))
    figures["model_mb"] = measure.folder_mb(job.model)
    return figures


def _train(problem: MLProblemWithText, job: Job) -> XTransformer:
    """Train with the parameters that its authors publish for Eurlex-4K, which has as many texts as the demo data."""
    matcher = {
        "model_shortcut": job.settings["encoder"],
        "negative_sampling": "tfn+man",
        "loss_function": "weighted-squared-hinge",
        "bootstrap_method": "weighted-linear",
        "threshold": 0.001,
        "batch_size": 32,
        "batch_gen_workers": 1,  # it crashes with none, and two cores have no use for more
        "max_active_matching_labels": 1000,
        "learning_rate": 5e-5,
        "warmup_steps": 100,
        "save_steps": 10_000_000,
        "use_gpu": False,
    }
    node = {"threshold": 0.001, "Cp": 1.0, "Cn": 2.0, "threads": job.threads}
    train = {
        "preliminary_indexer_params": {"nr_splits": 16, "min_codes": 16, "max_leaf_size": 16, "threads": job.threads},
        "refined_indexer_params": {"nr_splits": 8, "max_leaf_size": 16, "threads": job.threads},
        "matcher_params_chain": [{**matcher, "max_steps": steps} for steps in job.settings["steps"]],
        "ranker_params": {
            "rel_mode": "induce",
            "rel_norm": "l1",
            "hlm_args": {"neg_mining_chain": "tfn+man", "model_chain": node},
        },
    }
    seen = {"only_topk": 5, "post_processor": "l3-hinge", "ensemble_method": "concat-only"}
    predict = {
        "matcher_params_chain": {**seen, "truncate_length": job.settings["tokens"]},
        "ranker_params": {"hlm_args": {"model_chain": {"only_topk": 75, "post_processor": "l3-hinge"}}},
    }
    return XTransformer.train(
        problem,
        train_params=XTransformer.TrainParams.from_dict(train, recursive=True),
        pred_params=XTransformer.PredParams.from_dict(predict, recursive=True),
        threads=job.threads,
    )


def batch(job: Job) -> dict[str, Any]:
    texts, X, predict = _texts(job, "tst"), job.matrix("X.tst"), _predictor(job)
    predicted, figures = measure.measure_batch(lambda: predict(texts, X), X.shape[0], job.repeats)
    measure.keep(job, measure.best_of_rows(predicted, job.k))
    return figures


def single(job: Job) -> dict[str, Any]:
    queries = list(zip(_texts(job, "tst"), job.query_rows(), strict=False))
    predict = _predictor(job)
    return measure.measure_single(lambda query: predict([query[0]], query[1]), queries)


def _predictor(job: Job) -> Any:
    torch.set_num_threads(job.threads)
    model = XTransformer.load(str(job.model / "model"), is_predict_only=True)
    options = {"only_topk": job.k, "batch_size": 64, "batch_gen_workers": 0, "use_gpu": False, "threads": job.threads}
    return lambda texts, X: model.predict(texts, X_feat=X, **options)


def _texts(job: Job, part: str) -> list[str]:
    return json.loads((job.data / f"texts.{part}.json").read_text(encoding="utf-8"))


if __name__ == "__main__":
    measure.run({"fit": fit, "batch": batch, "single": single}, ("libpecos", "torch", "transformers", "numpy", "scipy"))
