"""The models of a server: which there are, how requests reach them, and how a model is replaced while it is used."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from umpteen.config.serving import ServeConfig
from umpteen.errors import BadInput, UmpteenError
from umpteen.models.predictor import Predictor
from umpteen.serve.batching import Batcher, Job, SerialExecutor
from umpteen.serve.logs import Log
from umpteen.serve.metrics import Metrics
from umpteen.serve.problems import Problem
from umpteen.serve.request_bodies import ExplainRequest, PredictRequest
from umpteen.serve.served_model import Render, ServedModel, answer, predictions, stamp_of

_LONGEST_WAIT = 60.0  # seconds until a folder that could not be opened is tried again
_BODIES_WAITING = 16  # bodies of the largest size whose texts may wait


class Entry:
    """A model by its name; requests that have begun keep the version they began with."""

    def __init__(self, name: str, source: Path | Predictor, service: Service):
        self.name, self.path = name, source if isinstance(source, Path) else None
        self.loaded: ServedModel | None = None if isinstance(source, Path) else ServedModel(name, source, "in-memory")
        self.stamp: tuple[int, int, int] | None = None
        self.n_failures, self.retry_at = 0, float("inf")
        self._service, self._replacing = service, asyncio.Lock()
        limits = service.settings
        self.batcher = Batcher(
            self._answer,
            most_waiting=limits.max_queue,
            most_characters=_BODIES_WAITING * limits.max_body,
            most_at_once=limits.max_batch,
        )

    def ready(self) -> ServedModel:
        """Return the model as it is now."""
        if self.loaded is None:
            raise Problem(503, "loading", "the model is being loaded; try again later", {"Retry-After": "1"})
        return self.loaded

    async def replace(self) -> bool:
        """Open the folder anew; return whether the model has changed. The old one stays if that fails."""
        if self.path is None:
            return False
        async with self._replacing:
            before = self.loaded
            self.stamp = stamp_of(self.path)
            opened = await asyncio.to_thread(ServedModel.open, self.name, self.path, self._service.settings.threads)
            if before is not None and before.version == opened.version:
                return False
            self.loaded = opened
            self._service.metrics.loaded(self.name)
            return True

    @property
    def has_changed(self) -> bool:
        """Whether the folder should be opened anew: it was changed, or could not be opened some time ago."""
        if self.path is None:
            return False
        return stamp_of(self.path) not in (None, self.stamp) or time.monotonic() >= self.retry_at

    def note(self, *, failed: bool) -> None:
        """Note how the last opening went: a folder that is still being copied is tried again, later every time."""
        self.n_failures = self.n_failures + 1 if failed else 0
        wait = min(2.0**self.n_failures, _LONGEST_WAIT) if failed else float("inf")
        self.retry_at = time.monotonic() + wait

    def _answer(self, jobs: list[Job]) -> list[bytes]:
        metrics = self._service.metrics
        metrics.batch.observe(sum(len(job.texts) for job in jobs))
        metrics.waiting.refresh()
        return answer(jobs)


class Service:
    """What all requests share.

    Parameters
    ----------
    models
        By name: folders, which are opened when the server starts, or models in memory. The first is the default.
    settings
        Limits and timeouts.
    """

    def __init__(self, models: Mapping[str, Path | Predictor], settings: ServeConfig, log: Log | None = None):
        if not models:
            raise BadInput("there is no model to serve; name at least one folder")
        self.settings, self.log, self.metrics = settings, log or Log(), Metrics()
        self.is_draining, self._is_ready = False, False
        self.loaded = asyncio.Event()  # all models are, or one of them cannot be
        self.entries = {name: Entry(name, source, self) for name, source in models.items()}
        self.explanations = SerialExecutor("explanations", settings.max_explanations)
        self.searches = SerialExecutor("searches", settings.max_explanations)
        self.metrics.waiting.set_function(lambda: sum(entry.batcher.n_waiting for entry in self.entries.values()))

    # Requests

    def entry(self, name: str | None) -> Entry:
        """Return a model by name, the first one without."""
        if name is None:
            return next(iter(self.entries.values()))
        try:
            return self.entries[name]
        except KeyError:
            message = "there is no model of this name; GET /v1/models lists those there are"
            raise Problem(404, "unknown_model", message) from None

    async def predict(self, asked: PredictRequest, render: Render = predictions) -> bytes:
        """Return the body of the response to a request for predictions."""
        entry = self.entry(asked.model)
        job = entry.ready().job(asked.texts, asked.k, asked.threshold, asked.allowed, render, self.settings.threads)
        self.metrics.texts.inc(len(asked.texts))
        return await self.in_time(entry.batcher.submit(job))

    async def explain(self, asked: ExplainRequest) -> bytes:
        """Return the body of the response to a request for an explanation."""
        loaded, settings = self.entry(asked.model).ready(), self.settings
        arguments = (asked.text, asked.label, asked.k, settings.explained_words, settings.threads)
        return await self.in_time(self.explanations.run(loaded.explain, *arguments))

    async def find_labels(self, words: str, limit: int, model: str | None) -> bytes:
        """Return the body of the response to a search for labels."""
        return await self.in_time(self.searches.run(self.entry(model).ready().find, words, limit))

    def models(self) -> bytes:
        """Return the body of the response to ``/v1/models``."""
        about = [entry.ready().about for entry in self.entries.values()]
        limits = {name: getattr(self.settings, name) for name in ("max_k", "max_texts", "max_characters")}
        return json.dumps({"models": about, "limits": limits}).encode()

    async def in_time(self, result: Any) -> bytes:
        """Wait for a result no longer than a request may take."""
        try:
            async with asyncio.timeout(self.settings.request_timeout):
                return await result
        except TimeoutError:
            message = "the request was given up after the server's request_timeout; try again later"
            raise Problem(503, "timeout", message, {"Retry-After": "1"}) from None
        except BadInput:
            raise Problem(422, "invalid_request", "the model cannot use this input; check texts and k") from None

    # Models

    @property
    def is_ready(self) -> bool:
        """Whether all models can answer without compiling anything."""
        return self._is_ready and not self.is_draining

    async def load_all(self) -> None:
        """Open all folders, one after the other."""
        for entry in self.entries.values():
            if entry.loaded is None:
                await entry.replace()
            elif entry.path is None:
                await asyncio.to_thread(entry.loaded.warm, self.settings.threads)
        self._is_ready = True
        self.loaded.set()
        self.log.event("ready", models=list(self.entries))

    async def reload(self, name: str | None = None) -> dict[str, bool]:
        """Open folders anew; return which models have changed."""
        entries = self.entries.values() if name is None else [self.entry(name)]
        return {entry.name: await self.replace(entry) for entry in entries}

    async def replace(self, entry: Entry) -> bool:
        """Open a folder anew and log how that went."""
        try:
            has_changed = await entry.replace()
        except (UmpteenError, OSError) as error:
            entry.note(failed=True)
            self.metrics.reloads.labels(entry.name, "failed").inc()
            self.log.event("reload_failed", level="error", model=entry.name, error=str(error))
            message = "the model folder cannot be opened, so the model in use stays; the server's log says why"
            raise Problem(409, "reload_failed", message) from None
        entry.note(failed=False)
        if has_changed:
            self.metrics.reloads.labels(entry.name, "done").inc()
            self.log.event("reloaded", model=entry.name, version=entry.ready().version)
        return has_changed

    async def watch(self) -> None:
        """Look at the folders again and again."""
        while True:
            await asyncio.sleep(self.settings.watch)
            await self.reload_changed()

    async def reload_changed(self) -> None:
        """Open the folders anew whose ``config.json`` was replaced."""
        for entry in self.entries.values():
            if entry.has_changed:
                with suppress(Problem):  # it is in the log; the next change is looked at again
                    await self.replace(entry)

    def close(self) -> None:
        """End the threads."""
        for entry in self.entries.values():
            entry.batcher.close()
        self.explanations.close()
        self.searches.close()
