"""The OpenAPI document: what the routes that read their body by hand take and return."""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, FastAPI, Response
from fastapi.openapi.utils import get_openapi

from umpteen.config.serving import ServeConfig

ABOUT = "Tag texts with labels from a vocabulary of thousands to tens of millions."

_TEXT = {"type": "string", "description": "Without control characters other than white space."}
_NAME = {"type": "string", "minLength": 1, "maxLength": 4096}
_MODEL = {"anyOf": [_NAME, {"type": "null"}], "description": "An id of /v1/models; the first one by default."}
_NUMBER_OR_NULL = {"anyOf": [{"type": "number"}, {"type": "null"}]}


_RESPONSES: dict[str, Any] = {
    "Error": {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["code", "message"],
                "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
            }
        },
    },
    "Prediction": {
        "type": "object",
        "required": ["label", "name", "score", "probability"],
        "properties": {
            "label": {"type": "string", "description": "The key of the label: a URI, a code, or its name."},
            "name": {"type": "string"},
            "score": {"type": "number"},
            "probability": _NUMBER_OR_NULL,
        },
    },
    "PredictResponse": {
        "type": "object",
        "required": ["model", "predictions"],
        "properties": {
            "model": {"type": "string"},
            "predictions": {
                "type": "array",
                "items": {"type": "array", "items": {"$ref": "#/components/schemas/Prediction"}},
            },
        },
    },
    "Suggestions": {
        "type": "object",
        "required": ["results"],
        "properties": {
            "results": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["label", "notation", "score", "uri"],
                    "properties": {
                        "uri": {"type": "string"},
                        "label": {"type": "string"},
                        "notation": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                        "score": {"type": "number", "minimum": 0, "maximum": 1},
                    },
                },
            }
        },
    },
}


def schemas(limits: ServeConfig) -> dict[str, Any]:
    """Return the schemas of bodies, with the limits of a server."""
    text = {**_TEXT, "maxLength": limits.max_characters}
    return {**_requests(limits, text), **_annif_requests(text), **_RESPONSES}


def _requests(limits: ServeConfig, text: dict[str, Any]) -> dict[str, Any]:
    return {
        "PredictRequest": {
            "type": "object",
            "required": ["texts"],
            "additionalProperties": False,
            "properties": {
                "texts": {"type": "array", "minItems": 1, "maxItems": limits.max_texts, "items": text},
                "k": {
                    "anyOf": [{"type": "integer", "minimum": 1, "maximum": limits.max_k}, {"type": "null"}],
                    "default": 5,
                    "description": "Labels per text; null: those that the model's own threshold and limit choose.",
                },
                "threshold": {**_NUMBER_OR_NULL, "description": "Lowest probability, or score if not calibrated."},
                "allowed": {
                    "anyOf": [
                        {"type": "array", "minItems": 1, "maxItems": limits.max_allowed, "items": _NAME},
                        {"type": "null"},
                    ],
                    "description": "The only labels that may be predicted, by key or name.",
                },
                "model": _MODEL,
            },
        },
        "ExplainRequest": {
            "type": "object",
            "required": ["text"],
            "additionalProperties": False,
            "properties": {
                "text": text,
                "label": {
                    "anyOf": [_NAME, {"type": "null"}],
                    "description": "A key or name; the best label by default.",
                },
                "k": {"type": "integer", "minimum": 1, "maximum": limits.max_k, "default": 5},
                "model": _MODEL,
            },
        },
        "TreePathRequest": {
            "type": "object",
            "required": ["text"],
            "additionalProperties": False,
            "properties": {
                "text": text,
                "k": {"type": "integer", "minimum": 1, "maximum": limits.max_k, "default": 5},
                "model": _MODEL,
            },
        },
        "ReloadRequest": {"type": "object", "additionalProperties": False, "properties": {"model": _MODEL}},
    }


def _annif_requests(text: dict[str, Any]) -> dict[str, Any]:
    return {
        "SuggestRequest": {
            "type": "object",
            "required": ["text"],
            "properties": {
                "text": text,
                "limit": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1, "default": 10},
                "threshold": {"type": "number", "minimum": 0, "maximum": 1, "default": 0},
                "language": {"type": "string", "description": "Accepted and not used."},
            },
        },
        "SuggestBatchRequest": {
            "type": "object",
            "required": ["documents"],
            "properties": {
                "documents": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 32,
                    "items": {
                        "type": "object",
                        "required": ["text"],
                        "properties": {"text": text, "document_id": {"anyOf": [_NAME, {"type": "null"}]}},
                    },
                }
            },
        },
    }


def _ref(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def _body(name: str, *, required: bool = True) -> dict[str, Any]:
    return {"required": required, "content": _ref(name)}


def _object(description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": {"type": "object"}}}}


def operation(ok: dict[str, Any], *statuses: int, **extra: Any) -> dict[str, Any]:
    """Return what is added to a route's part of the document: its answer, and the statuses of its errors."""
    always = (401, 429, 503)
    wrong = {
        str(status): {"description": MEANINGS[status], "content": _ref("Error")} for status in (*statuses, *always)
    }
    return {"responses": {"200": ok, **wrong}, **extra}


MEANINGS = {
    400: "The body is not JSON.",
    401: "The API key is missing or wrong.",
    403: "The server has no API key.",
    404: "No such model.",
    408: "The body did not arrive in time.",
    409: "The new model cannot be opened; the old one stays.",
    413: "The body is too large.",
    415: "The body is not declared as JSON.",
    422: "A value is missing, of another type or out of range.",
    429: "Too many requests wait; Retry-After says when to try again.",
    503: "The models are being loaded, or the request took too long.",
}
_OF_BODIES = (400, 404, 408, 413, 415, 422)
_PREDICTED = {"description": "A list of labels per text, best first.", "content": _ref("PredictResponse")}

PREDICT = operation(_PREDICTED, *_OF_BODIES, requestBody=_body("PredictRequest"))
EXPLAIN = operation(_object("The explanation."), *_OF_BODIES, requestBody=_body("ExplainRequest"))
TREE = operation(_object("A node and some of its children."), 404, 422)
TREE_PATH = operation(_object("The nodes that were kept."), *_OF_BODIES, requestBody=_body("TreePathRequest"))
MODELS = operation(_object("The models."))
LABELS = operation(_object("The labels that match."), 404, 422)
RELOAD = operation(
    _object("Which models have changed."), 400, 403, 404, 408, 409, 413, 422,
    requestBody=_body("ReloadRequest", required=False),
)  # fmt: skip
HEALTH = operation(_object("The process works."))
READY = operation(_object("All models can answer."))
PROJECTS = operation(_object("The models as projects."))
PROJECT = operation(_object("A model as a project."), 404, 422)
_SUGGESTED = {"description": "Labels, best first.", "content": _ref("Suggestions")}
_FORM = {"application/x-www-form-urlencoded": _ref("SuggestRequest")["application/json"]}
_SUGGEST_BODY = {"required": True, "content": _ref("SuggestRequest") | _FORM}
SUGGEST = operation(_SUGGESTED, *_OF_BODIES, requestBody=_SUGGEST_BODY)
_BATCH = {"type": "array", "items": {"$ref": "#/components/schemas/Suggestions"}}
SUGGEST_BATCH = operation(
    {"description": "Labels per document.", "content": {"application/json": {"schema": _BATCH}}}, *_OF_BODIES,
    requestBody=_body("SuggestBatchRequest"),
)  # fmt: skip
METRICS = operation({"description": "Metrics.", "content": {"text/plain": {"schema": {"type": "string"}}}})


def attach(app: FastAPI, limits: ServeConfig) -> None:
    """Serve the document at ``/openapi.json``, with the schemas and limits of this server."""
    cached: list[bytes] = []
    router = APIRouter()

    @router.get("/openapi.json", include_in_schema=False)
    async def document() -> Response:
        if not cached:
            cached.append(json.dumps(app.openapi()).encode())
        return Response(cached[0], media_type="application/json")

    def make() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            parts = found.setdefault("components", {}).setdefault("schemas", {})
            parts |= schemas(limits)
            found["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = make  # type: ignore[method-assign]
    app.include_router(router)
