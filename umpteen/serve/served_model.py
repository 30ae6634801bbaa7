"""A model in memory, ready to answer: opened, its kernels compiled by real predictions."""

from __future__ import annotations

import datetime
import hashlib
import itertools
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from umpteen.data.labels import Labels
from umpteen.errors import BadInput, UmpteenError
from umpteen.models import load
from umpteen.models.decision import Decision
from umpteen.models.predictor import Predictor
from umpteen.serve.batching import Job
from umpteen.serve.label_search import LabelSearch
from umpteen.serve.problems import Problem, invalid
from umpteen.serve.request_bodies import DEFAULT_K
from umpteen.shortlist import TopK

CONFIG = "config.json"
_WARM_TEXTS = 64


class Hit(NamedTuple):
    """A label of a text."""

    id: int
    score: float
    probability: float | None


Rows = list[list[Hit]]
Render = Callable[["ServedModel", Rows], bytes]


class Content(NamedTuple):
    """What a job needs beside its texts."""

    loaded: ServedModel
    decision: Decision  # which labels are returned
    allowed: Any  # columns, None for all
    threads: int | None
    render: Render


class ServedModel:
    """A model, its labels and what is known about it.

    Parameters
    ----------
    name
        By which requests name it.
    model
        Fitted on texts.
    version
        Changes if the model does.
    """

    def __init__(self, name: str, model: Predictor, version: str):
        if not model.takes_texts:
            raise BadInput(f"the model '{name}' was trained on feature rows, but a server takes texts")
        self.name, self.model, self.version = name, model, version
        self.labels: Labels = model.labels_
        self.loaded_at = datetime.datetime.now(datetime.UTC)
        self.about = self._describe()

    @classmethod
    def open(cls, name: str, path: Path, threads: int = 0) -> ServedModel:
        """Open a folder and compile what predictions need."""
        loaded = cls(name, load(path), version_of(path))
        loaded.warm(threads)
        return loaded

    def warm(self, threads: int = 0) -> None:
        """Predict and explain once in every way that requests do: kernels are compiled by that."""
        some = range(min(len(self.labels), _WARM_TEXTS))
        texts = [*self.labels.names(some), "a text"]
        workers = threads or None
        self.labels.encode([["no label"]], unknown="ignore")  # makes the tables of keys and names
        for batch in (texts[-1:], texts):
            self.model.topk(batch, DEFAULT_K, threads=workers)  # type: ignore[call-arg]
            self.model.topk(batch, DEFAULT_K, allowed=[0], threads=workers)  # type: ignore[call-arg]
        with suppress(UmpteenError):
            self.model.explain(texts[0], k=1, max_words=1, threads=workers)

    @cached_property
    def search(self) -> LabelSearch:
        """The index of names, made by the first search."""
        return LabelSearch(self.labels)

    def _describe(self) -> dict[str, Any]:
        facts = self.model.describe()
        kept = {key: facts.get(key) for key in ("recipe", "labels", "input", "calibrated", "threshold", "limit")}
        when = self.loaded_at.isoformat(timespec="milliseconds")
        return {"id": self.name, **kept, "version": self.version, "loaded_at": when}

    def job(
        self, texts: Sequence[str], k: int | None, threshold: float | None, allowed: Sequence[str] | None,
        render: Render, threads: int = 0,
    ) -> Job:  # fmt: skip
        """Return what is to be predicted, with the model's own decision where k is None."""
        columns = None if allowed is None else self.columns(allowed)
        if k is None and threshold is None and self.model.calibration_ is None:
            k = DEFAULT_K  # scores alone do not decide
        try:
            decision = self.model.decision(k, threshold)
        except BadInput:
            raise invalid("threshold must be a probability between 0 and 1, such as 0.5") from None
        group = (id(self), decision.depth, None if columns is None else columns.tobytes())
        return Job(group, texts, Content(self, decision, columns, threads or None, render))

    def columns(self, labels: Sequence[str], what: str = "allowed") -> Any:
        """Return the columns of labels by key or name; the error does not repeat them."""
        unknown = f"{what} has a label that the model does not have, or a name that several have; use keys"
        try:
            found = self.labels.encode([[label] for label in labels], unknown="ignore")
        except BadInput:
            raise Problem(422, "unknown_label", unknown) from None
        if found.nnz < len(labels):
            raise Problem(422, "unknown_label", unknown)
        return found.indices

    def explain(self, text: str, label: str | None, k: int, max_words: int, threads: int) -> bytes:
        """Explain a label of a text as JSON."""
        wanted = None if label is None else int(self.columns([label], "label")[0])
        found = self.model.explain(text, wanted, min(k, len(self.labels)), max_words=max_words, threads=threads or None)
        return json.dumps({"model": self.name, **found.to_dict()}).encode()

    def find(self, words: str, limit: int) -> bytes:
        """Search labels by name; the result is JSON."""
        ids = self.search(words, limit)
        pairs = zip(self.labels.keys(ids), self.labels.names(ids), strict=True)
        found = [{"label": key, "name": name} for key, name in pairs]
        return json.dumps({"model": self.name, "labels": found}).encode()


def answer(jobs: Sequence[Job]) -> list[bytes]:
    """Predict jobs of one group at once and return the body of each response."""
    content: Content = jobs[0].content
    texts = [text for job in jobs for text in job.texts] if len(jobs) > 1 else jobs[0].texts
    options = {} if content.allowed is None else {"allowed": content.allowed}
    k = min(content.decision.depth, len(content.loaded.labels))
    top = content.loaded.model.topk(texts, k, threads=content.threads, **options)  # type: ignore[call-arg]
    bodies, first = [], 0
    for job in jobs:
        own = top if len(jobs) == 1 else top[first : first + len(job.texts)]
        bodies.append(job.content.render(content.loaded, _hits(own, job.content.decision)))
        first += len(job.texts)
    return bodies


def _hits(top: TopK, decision: Decision) -> Rows:
    """Return the labels of each text that are predicted."""
    nothing = itertools.repeat(None)
    probabilities = itertools.repeat(nothing) if top.probabilities is None else top.probabilities.tolist()
    rows = zip(decision.chosen(top).tolist(), top.labels.tolist(), top.scores.tolist(), probabilities, strict=False)
    return [[Hit(*one) for is_chosen, *one in zip(*row, strict=False) if is_chosen] for row in rows]


def predictions(loaded: ServedModel, rows: Rows) -> bytes:
    """Return the body of the response to ``/v1/predict``."""
    found = [_named(loaded.labels, hits) for hits in rows]
    return json.dumps({"model": loaded.name, "predictions": found}).encode()


def _named(labels: Labels, hits: list[Hit]) -> list[dict[str, Any]]:
    ids = [hit.id for hit in hits]
    return [
        {"label": key, "name": name, "score": hit.score, "probability": hit.probability}
        for key, name, hit in zip(labels.keys(ids), labels.names(ids), hits, strict=True)
    ]


def version_of(path: Path) -> str:
    """Return a digest of ``config.json``, which names every file by a digest of its content."""
    with open(path / CONFIG, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def stamp_of(path: Path) -> tuple[int, int, int] | None:
    """Return what changes if ``config.json`` is replaced, None if there is none."""
    try:
        found = (path / CONFIG).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
