"""Errors as a client sees them: a status, a code for programs and a sentence. They never quote what was sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


class Problem(Exception):
    """A request that is answered with an error.

    Parameters
    ----------
    status
        Of the response.
    code
        A word for programs, such as ``too_many_texts``.
    message
        The rule and the remedy, without anything from the request.
    headers
        Further headers of the response.
    """

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None):
        super().__init__(message)
        self.status, self.code, self.message, self.headers = status, code, message, dict(headers or {})

    def to_dict(self) -> dict[str, Any]:
        """Return the body of the response."""
        return {"error": {"code": self.code, "message": self.message}}

    def body(self) -> bytes:
        """Return the body of the response as JSON."""
        return json.dumps(self.to_dict()).encode()


def invalid(message: str) -> Problem:
    """Return the answer to a request whose values are out of range or of another type."""
    return Problem(422, "invalid_request", message)


def busy(seconds: int = 1) -> Problem:
    """Return the answer to a request that finds the queue full."""
    message = "the server has as many requests as it can queue; try again after the seconds in Retry-After"
    return Problem(429, "overloaded", message, {"Retry-After": str(seconds)})


# Codes of errors that the framework raises, by status
CODES = {400: "bad_request", 404: "not_found", 405: "method_not_allowed", 413: "too_large", 415: "not_json"}
SENTENCES = {
    404: "there is nothing at this path; /openapi.json lists what there is",
    405: "this path does not take this method; /openapi.json lists those it takes",
}


def of_status(status: int) -> Problem:
    """Return an error that the framework raised, without its own words."""
    message = SENTENCES.get(status, "the request cannot be answered")
    return Problem(status, CODES.get(status, "error"), message)
