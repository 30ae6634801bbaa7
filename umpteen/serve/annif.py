"""Annif's REST dialect, so that Annif's ``http`` backend and its clients can use a model: a model is a project.

Scores are probabilities if the model is calibrated. Annif takes scores between 0 and 1, so others are clipped.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Query, Request, Response

from umpteen.config.serving import ServeConfig
from umpteen.serve import openapi
from umpteen.serve.middleware import note
from umpteen.serve.problems import Problem, invalid
from umpteen.serve.request_bodies import PredictRequest, name_of, read_json, texts_of
from umpteen.serve.served_model import Hit, Rows, ServedModel
from umpteen.serve.service import Service

LIMIT = 10  # labels per text, if a request does not say
MOST_DOCUMENTS = 32
_LARGEST = 2**31 - 1
_FIELDS = 100  # of a form: text, limit, threshold, language, metadata
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
_LANGUAGE = "und"  # a model does not know its language

router = APIRouter(prefix="/v1/projects", tags=["Annif"])


@router.get("", openapi_extra=openapi.PROJECTS)
async def projects(request: Request) -> dict[str, Any]:
    """List the models as Annif lists projects."""
    service: Service = request.app.state.service
    return {"projects": [_project(entry.ready()) for entry in service.entries.values()]}


@router.get("/{project_id}", openapi_extra=openapi.PROJECT)
async def project(request: Request, project_id: str) -> dict[str, Any]:
    """Describe a model as Annif describes a project."""
    return _project(request.app.state.service.entry(name_of(project_id, "project_id")).ready())


@router.post("/{project_id}/suggest", openapi_extra=openapi.SUGGEST)
async def suggest(request: Request, project_id: str) -> Response:
    """Suggest labels for a text, given as a form or as JSON."""
    service: Service = request.app.state.service
    values = await _values(request)
    text = values.get("text")
    if type(text) is not str:
        raise invalid("text is missing or no string; send text, and limit and threshold if wanted")
    limit, threshold = _limit(values.get("limit", LIMIT)), _threshold(values.get("threshold", 0.0))
    texts = texts_of([text], service.settings, "text")
    body = await _suggested(request, project_id, texts, limit, threshold, lambda results: {"results": results[0]})
    return Response(body, media_type="application/json")


@router.post("/{project_id}/suggest-batch", openapi_extra=openapi.SUGGEST_BATCH)
async def suggest_batch(
    request: Request,
    project_id: str,
    limit: int = Query(LIMIT, ge=0, le=_LARGEST),
    threshold: float = Query(0.0, ge=0.0, le=1.0),
    language: str | None = Query(None, max_length=100, description="Accepted and not used."),
) -> Response:
    """Suggest labels for up to 32 documents."""
    texts, ids = _documents(read_json(await request.body()), request.app.state.service.settings)

    def arranged(results: list[Any]) -> Any:
        return [{"results": found, "document_id": id} for found, id in zip(results, ids, strict=True)]

    return Response(
        await _suggested(request, project_id, texts, limit, threshold, arranged), media_type="application/json"
    )


async def _suggested(
    request: Request, project_id: str, texts: list[str], limit: int, threshold: float, arranged: Callable[..., Any]
) -> bytes:
    """Predict, and arrange the results as a response."""
    service: Service = request.app.state.service
    model = name_of(project_id, "project_id")
    note(request.scope, service, texts)
    if limit == 0:
        service.entry(model).ready()
        return json.dumps(arranged([[] for _ in texts])).encode()

    def render(loaded: ServedModel, rows: Rows) -> bytes:
        return json.dumps(arranged([_results(loaded, hits, threshold) for hits in rows])).encode()

    return await service.predict(PredictRequest(texts, min(limit, service.settings.max_k), None, None, model), render)


def _results(loaded: ServedModel, hits: list[Hit], threshold: float) -> list[dict[str, Any]]:
    """Return labels as Annif does; what scores 0 is no suggestion."""
    ids = [hit.id for hit in hits]
    found = zip(loaded.labels.keys(ids), loaded.labels.names(ids), map(_score, hits), strict=True)
    return [
        {"label": name, "notation": None, "score": score, "uri": key}
        for key, name, score in found
        if score > 0.0 and score >= threshold
    ]


def _score(hit: Hit) -> float:
    return min(1.0, max(0.0, hit.score if hit.probability is None else hit.probability))


def _project(loaded: ServedModel) -> dict[str, Any]:
    return {
        "project_id": loaded.name,
        "name": loaded.name,
        "language": _LANGUAGE,
        "backend": {"backend_id": f"umpteen-{loaded.about['recipe']}"},
        "vocab": {
            "vocab_id": loaded.name,
            "languages": [_LANGUAGE],
            "size": len(loaded.labels),
            "loaded": True,
        },
        "vocab_language": _LANGUAGE,
        "is_trained": True,
        "modification_time": loaded.about["loaded_at"],
    }


async def _values(request: Request) -> dict[str, Any]:
    """Return the fields of a form, or of an object of JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        values = read_json(await request.body())
        if type(values) is not dict:
            raise invalid("the body must be a JSON object with a text")
        return values
    if kind not in _FORMS:
        raise Problem(415, "not_a_form", "send a form (application/x-www-form-urlencoded) or application/json")
    async with request.form(max_files=0, max_fields=_FIELDS, max_part_size=2**30) as form:
        return dict(form)


def _limit(limit: Any) -> int:
    """Return a number of labels from JSON, or from the text of a form."""
    if type(limit) is str and limit.isascii() and limit.isdigit() and len(limit) < 11:
        limit = int(limit)
    if type(limit) is not int or not 0 <= limit <= _LARGEST:
        raise invalid(f"limit must be a whole number from 0 to {_LARGEST}")
    return limit


def _threshold(threshold: Any) -> float:
    if type(threshold) is str and len(threshold) < 40:
        try:
            threshold = float(threshold)
        except ValueError:
            threshold = None
    if type(threshold) not in (int, float) or not 0 <= threshold <= 1:
        raise invalid("threshold must be a number from 0 to 1")
    return float(threshold)


def _documents(body: Any, limits: ServeConfig) -> tuple[list[str], list[str | None]]:
    """Return the texts and the ids of documents."""
    documents = body.get("documents") if type(body) is dict else None
    if type(documents) is not list or not 1 <= len(documents) <= MOST_DOCUMENTS:
        raise invalid(f"documents must be a list of 1 to {MOST_DOCUMENTS} objects with a text")
    if not all(type(one) is dict for one in documents):
        raise invalid("documents must hold objects with a text")
    ids = [name_of(one.get("document_id"), "document_id") for one in documents]
    return texts_of([one.get("text") for one in documents], limits, "documents"), ids
