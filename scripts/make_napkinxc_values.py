"""Write tests/data/napkinxc_metrics.json: seeded random predictions and what napkinXC says of them.

Run it where napkinXC is installed (``pip install napkinxc``); the tests read the stored file, so they need
neither napkinXC nor the same random numbers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

TARGET = Path(__file__).parent.parent / "tests" / "data" / "napkinxc_metrics.json"
DEPTH = 5


def make_case(name: str, seed: int, *, n: int, n_labels: int, A: float, B: float, gaps: bool) -> dict[str, Any]:
    """Draw training labels, true labels and rankings; with gaps some of each row or all of it is missing."""
    rng = np.random.default_rng(seed)
    popularity = rng.permutation(1.0 / np.arange(1, n_labels + 1))
    popularity /= popularity.sum()

    def draw(size: int) -> list[int]:
        return sorted(rng.choice(n_labels, size, replace=False, p=popularity).tolist())

    train = [draw(int(rng.integers(1, 8))) for _ in range(4 * n)]
    truth = [draw(int(rng.integers(0 if gaps else 1, 10))) for _ in range(n)]
    truth[0] = sorted({*truth[0], n_labels - 1})  # napkinXC counts labels up to the largest that occurs
    labels, scores = [], []
    for row in truth:
        length = int(rng.integers(0, 9)) if gaps else 8
        wrong = [label for label in rng.permutation(n_labels).tolist() if label not in row]
        mixed = rng.permutation(row + wrong[:8])[:length].tolist()
        labels.append(mixed)
        scores.append(sorted(rng.random(length).round(6).tolist(), reverse=True))
    return {
        "name": name, "n_labels": n_labels, "A": A, "B": B, "threshold": 0.4,
        "train": train, "truth": truth, "labels": labels, "scores": scores,
    }  # fmt: skip


def napkinxc_values(case: dict[str, Any]) -> dict[str, Any]:
    """Ask napkinXC for the metrics of a case, at every depth up to DEPTH."""
    from napkinxc import metrics
    from scipy.sparse import csr_matrix

    train = np.zeros((len(case["train"]), case["n_labels"]))
    for i, row in enumerate(case["train"]):
        train[i, row] = 1
    weights = metrics.Jain_et_al_inverse_propensity(csr_matrix(train), A=case["A"], B=case["B"])
    truth, labels = case["truth"], case["labels"]
    chosen = [
        [label for label, score in zip(row, scores, strict=True) if score >= case["threshold"]]
        for row, scores in zip(labels, case["scores"], strict=True)
    ]
    at_k = {
        "P": metrics.precision_at_k(truth, labels, k=DEPTH),
        "R": metrics.recall_at_k(truth, labels, k=DEPTH),
        "nDCG": metrics.ndcg_at_k(truth, labels, k=DEPTH),
        "PSP": metrics.psprecision_at_k(truth, labels, weights, k=DEPTH),
        "PSnDCG": metrics.psndcg_at_k(truth, labels, weights, k=DEPTH),
        "coverage": metrics.coverage_at_k(truth, labels, k=DEPTH),
    }
    values = {f"{name}@{d + 1}": 100.0 * float(row[d]) for name, row in at_k.items() for d in range(DEPTH)}
    values["micro-F1"] = 100.0 * float(metrics.micro_f1_measure(truth, chosen))
    values["macro-F1"] = 100.0 * float(metrics.macro_f1_measure(truth, chosen))
    return {"inverse_propensity": np.asarray(weights).ravel().tolist(), "values": values}


def main() -> None:
    cases = [
        make_case("full rows", 1, n=40, n_labels=60, A=0.55, B=1.5, gaps=False),
        make_case("short and empty rows", 2, n=40, n_labels=60, A=0.6, B=2.6, gaps=True),
        make_case("few labels", 3, n=30, n_labels=20, A=0.5, B=0.4, gaps=True),
    ]
    for case in cases:
        case |= napkinxc_values(case)
    TARGET.write_text(json.dumps(cases, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
