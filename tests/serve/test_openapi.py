"""Requests made from the OpenAPI document, valid and not: no 5xx, and answers as documented."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode, checks

KEY = "correct-horse"
LIMITS = ("max_texts=8", "max_characters=200", "max_k=20", "max_allowed=5", "access_log=false")
N_EXAMPLES = 20  # per route and kind

CHECKS = [
    checks.not_a_server_error,
    checks.response_schema_conformance,
    checks.content_type_conformance,
    checks.status_code_conformance,
]


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["valid", "invalid"])
def test_every_route_keeps_its_word(server: Callable[..., Any], folder: Path, mode: GenerationMode) -> None:
    options = [word for limit in LIMITS for word in ("--set", limit)]
    running = server(folder, *options, environment={"UMPTEEN_API_KEY": KEY})
    running.wait_until_ready()
    schema = schemathesis.openapi.from_url(f"{running.url}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) >= 12
    for operation in operations:
        if mode is GenerationMode.POSITIVE or operation.body or operation.query:
            call(operation.as_strategy(generation_mode=mode))


def call(strategy: Any) -> None:
    """Send some requests and check the answers."""

    @given(strategy)
    @settings(max_examples=N_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    def run(case: Any) -> None:
        response = case.call(headers={"Authorization": f"Bearer {KEY}"}, timeout=60)
        case.validate_response(response, checks=CHECKS)

    run()
