"""Open and query damaged models one after the other, and say of each what happened; run by ``models.py``.

A line of JSON per event: the case that begins, then how it ended. A process that dies says no more, which tells the
parent the case.
"""

from __future__ import annotations

import faulthandler
import json
import sys
import traceback
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import umpteen
from umpteen.errors import UmpteenError

from .mutate import damaged_copy
from .seeds import SEEDS, rows, texts

_MEMORY = 8 << 30  # bytes of addresses: room for numba, none for arrays of absurd sizes


def query(folder: Path, kind: str) -> None:
    """Ask a model everything that it can be asked; raise AssertionError if an answer is not one."""
    model = umpteen.load(folder)
    X: Any = texts(80) if kind == "texts" else rows(80)
    n_labels = len(model.labels_)
    k = min(5, n_labels)
    for n in (1, 20, 80):
        _check(model.topk(X[:n], k), model.topk(X[:n], k), (n, k), n_labels)
    allowed = list(range(0, n_labels, 3))
    if allowed:
        top = model.topk(X[:3], k, allowed=allowed)
        assert set(top.labels[top.labels >= 0].tolist()) <= set(allowed), "a label that is not allowed"
    pairs = np.zeros((3, n_labels), np.float32)
    pairs[:, ::2] = 1
    scored = model.score_labels(X[:3], pairs)
    assert np.isfinite(scored.data).all(), "scores that are not finite"
    model.predict(X[:3])
    if n_labels:
        found = model.explain(X[0], n_labels - 1, k)
        json.dumps(found.to_dict(), allow_nan=False)
        found.to_html()
    str(model.describe())
    if getattr(model, "tfidf_", None) is not None:  # an ensemble has none of its own
        assert len(model.tfidf_.terms) == model.tfidf_.n_features


def _check(top: Any, again: Any, shape: tuple[int, int], n_labels: int) -> None:
    assert top.labels.shape == top.scores.shape == shape, f"an answer of shape {top.labels.shape}"
    assert top.labels.min(initial=0) >= -1, "labels that do not exist"
    assert top.labels.max(initial=-1) < n_labels, "labels that do not exist"
    assert np.isfinite(top.scores).all(), "scores that are not finite"
    assert np.array_equal(top.labels, again.labels), "another answer to the same question"
    assert np.array_equal(top.scores, again.scores), "other scores for the same question"


def run(seeds: Path, scratch: Path, seed: int, first: int, last: int) -> None:
    """Run cases first..last."""
    names = sorted(SEEDS)
    for number in range(first, last):
        rng = np.random.default_rng((seed, number))
        name, what = damaged_copy(seeds, names, scratch / "model", rng)
        _say(case=number, model=name, what=what)
        try:
            query(scratch / "model", SEEDS[name][2])
            _say(ended="answered")
        except UmpteenError as error:
            _say(ended="refused", how=type(error).__name__, message=str(error)[:300])
        except BaseException as error:
            _say(ended="failed", how=repr(error)[:300], where=traceback.format_exc(limit=-6))


def _say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def _limit_memory() -> None:
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


if __name__ == "__main__":
    faulthandler.enable()
    warnings.simplefilter("ignore")
    _limit_memory()
    run(Path(sys.argv[1]), Path(sys.argv[2]), *(int(number) for number in sys.argv[3:6]))
