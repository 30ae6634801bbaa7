"""From records to a row per dataset and variant: the best of the turns, and how good the predictions are."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.plan import PROPENSITY
from benchmarks.prepare import load
from umpteen.metrics import evaluate, inverse_propensity
from umpteen.shortlist import TopK

Row = dict[str, Any]
QUALITY = tuple(f"{name}@{k}" for name in ("P", "PSP") for k in (1, 3, 5))


def summarise(records: Iterable[dict[str, Any]]) -> dict[str, dict[str, Row]]:
    """Return dataset -> variant -> figures: the fastest turn, but the largest memory.

    ``docs_per_s``, ``p50_ms`` and ``p99_ms`` are dicts, one value per way of loading the model.
    """
    rows: dict[str, dict[str, Row]] = {}
    for record in records:
        row = rows.setdefault(record["dataset"], {}).setdefault(record["variant"], {"versions": {}})
        row["versions"].update(record.get("versions", {}))
        row["settings"] = record.get("settings", {})
        {"fit": _add_fit, "batch": _add_batch, "single": _add_single}[record["stage"]](row, record)
    return rows


def _add_fit(row: Row, record: dict[str, Any]) -> None:
    row["turns"] = row.get("turns", 0) + 1
    row["fit_memory_mb"] = max(row.get("fit_memory_mb", 0.0), record["fit_memory_mb"])
    if record["fit_s"] < row.get("fit_s", float("inf")):
        row.update({name: record[name] for name in ("fit_s", "fit_cpu_s", "model_mb")})


def _add_batch(row: Row, record: dict[str, Any]) -> None:
    speeds = row.setdefault("docs_per_s", {})
    speeds[record["way"]] = max(speeds.get(record["way"], 0.0), record["docs_per_s"])


def _add_single(row: Row, record: dict[str, Any]) -> None:
    way = record["way"]
    if record["p50_ms"] < row.setdefault("p50_ms", {}).get(way, float("inf")):
        row["p50_ms"][way] = record["p50_ms"]
        row.setdefault("p99_ms", {})[way] = record["p99_ms"]


def quality(predictions: Path, data: Path) -> dict[str, float]:
    """Compute P@k and PSP@k of stored predictions, the same way for every peer."""
    labels = np.load(predictions)
    scores = np.broadcast_to(np.arange(labels.shape[1], 0, -1, dtype=np.float32), labels.shape)
    A, B = PROPENSITY
    weights = inverse_propensity(load(data, "Y.trn"), A=A, B=B)
    top = TopK(labels, np.where(labels < 0, 0.0, scores))
    figures = evaluate(top, load(data, "Y.tst"), ks=(1, 3, 5), inverse_propensity=weights)
    return {name: figures[name] for name in QUALITY}
