"""Counters and histograms for Prometheus. With several workers they add up, by files in a folder that all share."""

from __future__ import annotations

import os
from typing import Any

SHARED = "PROMETHEUS_MULTIPROC_DIR"  # set before prometheus_client is imported, if there are several workers

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        import prometheus_client as client

        self._client, self.registry = client, client.CollectorRegistry()
        own: dict[str, Any] = {"registry": self.registry}
        self.requests = client.Counter("umpteen_requests_total", "Responses", ["route", "status"], **own)
        self.seconds = client.Histogram(
            "umpteen_request_seconds", "Time from headers to response", ["route"], buckets=_SECONDS, **own
        )
        self.texts = client.Counter("umpteen_texts_total", "Texts that predictions were asked for", **own)
        self.batch = client.Histogram("umpteen_batch_texts", "Texts that were predicted at once", buckets=_TEXTS, **own)
        self.waiting = _Waiting(client, own)
        self.reloads = client.Counter("umpteen_reloads_total", "Models replaced", ["model", "result"], **own)
        self._loaded_at = client.Gauge(
            "umpteen_model_loaded_timestamp_seconds", "When the model was loaded", ["model"],
            multiprocess_mode="mostrecent", **own,
        )  # fmt: skip
        self._known: dict[tuple[str, int], tuple[Any, Any]] = {}

    def response(self, route: str, status: int, seconds: float) -> None:
        """Count a response."""
        key = (route, status)
        if key not in self._known:
            self._known[key] = (self.requests.labels(route, str(status)), self.seconds.labels(route))
        counter, histogram = self._known[key]
        counter.inc()
        histogram.observe(seconds)

    def loaded(self, model: str) -> None:
        """Note that a model was loaded now."""
        self._loaded_at.labels(model).set_to_current_time()

    def page(self) -> tuple[bytes, str]:
        """Return what Prometheus reads, of all workers, and its media type."""
        registry = self.registry
        if os.environ.get(SHARED):
            from prometheus_client import multiprocess

            self.waiting.refresh()
            registry = self._client.CollectorRegistry()
            multiprocess.MultiProcessCollector(registry)
        return self._client.generate_latest(registry), self._client.CONTENT_TYPE_LATEST


class _Waiting:
    """The gauge of texts that wait: read when it is asked for, which works in a process of its own only."""

    def __init__(self, client: Any, own: dict[str, Any]):
        name, text = "umpteen_waiting_texts", "Texts that wait for a prediction"
        self._gauge = client.Gauge(name, text, multiprocess_mode="livesum", **own)
        self._function: Any = None
        self._is_shared = bool(os.environ.get(SHARED))

    def set_function(self, function: Any) -> None:
        """Take a function that returns the number."""
        self._function = function
        if not self._is_shared:
            self._gauge.set_function(function)

    def refresh(self) -> None:
        """Write the number of this process, for others to read."""
        if self._is_shared and self._function is not None:
            self._gauge.set(self._function())
