"""Read requests: JSON from a stranger into checked values, by hand because it is on the way of every request."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from umpteen.config.serving import ServeConfig
from umpteen.serve.problems import Problem, invalid

DEFAULT_K = 5

# Control characters other than white space, and halves of characters, which UTF-8 cannot express
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff]")
_NOT_IN_NAMES = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_LONGEST_NAME = 4096  # characters of the name of a label or a model


class PredictRequest(NamedTuple):
    """What a prediction is asked for."""

    texts: list[str]
    k: int | None = DEFAULT_K  # None: as many as the model decides
    threshold: float | None = None
    allowed: tuple[str, ...] | None = None
    model: str | None = None


class ExplainRequest(NamedTuple):
    """What an explanation is asked for."""

    text: str
    label: str | None = None
    k: int = DEFAULT_K
    model: str | None = None


def check_json(scope: Any) -> None:
    """Refuse a body that does not say it is JSON: a page of another site can send those without being asked."""
    for name, value in scope["headers"]:
        if name == b"content-type":
            if value.partition(b";")[0].strip().lower() == b"application/json":
                return
            break
    raise Problem(415, "not_json", "the body must be JSON; send the header Content-Type: application/json")


def read_json(body: bytes) -> Any:
    """Parse a body."""
    try:
        return json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise Problem(400, "bad_json", "the body is not valid JSON in UTF-8; send an object of JSON") from None


def read_object(body: bytes, known: frozenset[str]) -> dict[str, Any]:
    """Parse a body that must be an object with known keys."""
    values = read_json(body)
    if type(values) is not dict:
        raise invalid('the body must be a JSON object such as {"texts": ["…"]}')
    if not values.keys() <= known:
        raise invalid(f"the body has an unknown field; known ones are {', '.join(sorted(known))}")
    return values


_PREDICT = frozenset(PredictRequest._fields)
_EXPLAIN = frozenset(ExplainRequest._fields)


def read_predict(body: bytes, limits: ServeConfig) -> PredictRequest:
    """Return the checked request for a prediction."""
    values = read_object(body, _PREDICT)
    return PredictRequest(
        texts_of(values.get("texts"), limits),
        k_of(values.get("k", DEFAULT_K), limits.max_k, none=True),
        threshold_of(values.get("threshold")),
        allowed_of(values.get("allowed"), limits.max_allowed),
        name_of(values.get("model"), "model"),
    )


def read_explain(body: bytes, limits: ServeConfig) -> ExplainRequest:
    """Return the checked request for an explanation."""
    values = read_object(body, _EXPLAIN)
    text = text_of(values, limits)
    k = k_of(values.get("k", DEFAULT_K), limits.max_k)
    return ExplainRequest(
        text, name_of(values.get("label"), "label"), k or DEFAULT_K, name_of(values.get("model"), "model")
    )


def text_of(values: Mapping[str, Any], limits: ServeConfig) -> str:
    """Return the one text of a body."""
    text = values.get("text")
    if type(text) is not str:
        raise invalid("text must be a string")
    return texts_of([text], limits, "text")[0]


def texts_of(texts: Any, limits: ServeConfig, what: str = "texts") -> list[str]:
    """Return texts that are strings and within the limits."""
    if type(texts) is not list or not texts:
        raise invalid(f"{what} must be a list of at least one string")
    if len(texts) > limits.max_texts:
        raise Problem(422, "too_many_texts", f"{what} may hold {limits.max_texts} texts; send several requests")
    for text in texts:
        if type(text) is not str:
            raise invalid(f"{what} must hold strings only")
        if len(text) > limits.max_characters:
            message = f"a text may have {limits.max_characters} characters; shorten it"
            raise Problem(422, "text_too_long", message)
        if _CONTROL.search(text):
            message = "a text has a control character, or half of a surrogate pair; remove it"
            raise Problem(422, "control_character", message)
    return texts


def k_of(k: Any, most: int, *, none: bool = False) -> int | None:
    """Return a number of labels."""
    if k is None and none:
        return None
    if type(k) is not int or not 1 <= k <= most:
        raise invalid(f"k must be a whole number from 1 to {most}{', or null for what the model decides' * none}")
    return k


def threshold_of(threshold: Any) -> float | None:
    """Return a threshold."""
    if threshold is None:
        return None
    if type(threshold) not in (int, float) or not abs(threshold) <= 1e30 or not math.isfinite(threshold):
        raise invalid("threshold must be a number or null; probabilities lie between 0 and 1")
    return float(threshold)


def allowed_of(allowed: Any, most: int) -> tuple[str, ...] | None:
    """Return the labels that may be predicted."""
    if allowed is None:
        return None
    if type(allowed) is not list or not 1 <= len(allowed) <= most:
        raise invalid(f"allowed must be null or a list of 1 to {most} labels")
    return tuple(_name(label, "allowed") for label in allowed)


def name_of(name: Any, what: str) -> str | None:
    """Return the name of a label or model, if there is one."""
    return None if name is None else _name(name, what)


def _name(name: Any, what: str) -> str:
    if type(name) is not str or not 1 <= len(name) <= _LONGEST_NAME:
        raise invalid(f"{what} must be a string of 1 to {_LONGEST_NAME} characters")
    if _NOT_IN_NAMES.search(name):
        raise Problem(422, "control_character", f"{what} has a control character; remove it")
    return name
