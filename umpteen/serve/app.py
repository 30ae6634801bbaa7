"""The web application: ``create_app`` puts routes, limits, models and the page together.

Routes of other files are listed in ``_routers``. A route finds the models by ``service_of(request)``; it may raise
``Problem``.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from umpteen import __version__
from umpteen.config.serving import ServeConfig
from umpteen.models.predictor import Predictor
from umpteen.serve import annif, openapi, tree
from umpteen.serve.logs import Log
from umpteen.serve.middleware import Middleware, note
from umpteen.serve.problems import Problem, invalid, of_status
from umpteen.serve.request_bodies import check_json, name_of, read_explain, read_object, read_predict
from umpteen.serve.service import Service
from umpteen.serve.static import page_router

JSON = "application/json"

router = APIRouter()


def create_app(
    models: Mapping[str, Path | Predictor], settings: ServeConfig | None = None, *, api_key: str | None = None,
    log: Log | None = None,
) -> FastAPI:  # fmt: skip
    """Return the application that serves some models.

    Parameters
    ----------
    models
        By the name that requests use: folders, which are opened when the application starts, or models in memory. The
        first is the default.
    settings
        Limits and timeouts.
    api_key
        What requests to ``/v1/`` and ``/metrics`` must send.
    log
        Where events go; standard error by default.
    """
    service = Service(models, settings or ServeConfig(), log)
    app = FastAPI(
        title="umpteen", version=__version__, description=openapi.ABOUT, lifespan=_lifespan,
        docs_url=None, redoc_url=None, openapi_url=None,
    )  # fmt: skip
    app.state.service = service
    app.add_middleware(Middleware, service=service, api_key=api_key, direct={("POST", "/v1/predict"): _direct(service)})
    app.add_exception_handler(HTTPException, _of_framework)
    app.add_exception_handler(RequestValidationError, _not_valid)
    for part in _routers():
        app.include_router(part)
    openapi.attach(app, service.settings)
    return app


def _routers() -> list[APIRouter]:
    """List the routes of all files; the page comes last."""
    return [router, annif.router, tree.router, page_router()]


def service_of(request: Request) -> Service:
    """Return what all requests share."""
    return request.app.state.service


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the models while the server already says that it is not ready; look for new ones afterwards."""
    service: Service = app.state.service
    loading = asyncio.create_task(_load_and_watch(app))
    if getattr(app.state, "loads_first", False):
        await service.loaded.wait()
    yield
    loading.cancel()
    with suppress(asyncio.CancelledError):
        await loading
    service.close()


async def _load_and_watch(app: FastAPI) -> None:
    service: Service = app.state.service
    try:
        await service.load_all()
    except Exception as error:
        service.log.event("start_failed", level="error", error=f"{type(error).__name__}: {error}")
        if (stop := getattr(app.state, "stop", None)) is not None:
            stop(error)
        service.loaded.set()
        return
    _reload_on_hangup(app)
    if (tell := getattr(app.state, "tell_ready", None)) is not None:
        tell()
    if service.settings.watch:
        await service.watch()


def _reload_on_hangup(app: FastAPI) -> None:
    """Open folders that have changed on SIGHUP, if this is the application of the process."""
    if not hasattr(signal, "SIGHUP") or not getattr(app.state, "reloads_on_hangup", False):
        return
    service: Service = app.state.service
    tasks: set[asyncio.Task[None]] = set()

    def start() -> None:
        tasks.add(task := asyncio.ensure_future(service.reload_changed()))
        task.add_done_callback(tasks.discard)

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, start)


def _of_framework(request: Request, error: Any) -> Response:
    raise _with_headers(of_status(error.status_code), error.headers)


def _with_headers(problem: Problem, headers: Mapping[str, str] | None) -> Problem:
    problem.headers |= headers or {}
    return problem


def _not_valid(request: Request, error: Any) -> Response:
    names = sorted({str(part) for one in error.errors() for part in one["loc"][1:] if isinstance(part, str)})
    raise invalid(f"these parameters are missing or out of range: {', '.join(names)}; /openapi.json has their types")


# Routes


def _direct(service: Service) -> Any:
    """Return the handler of ``/v1/predict``, which ``Middleware`` calls without the framework."""

    async def handle(scope: Any, body: bytes) -> bytes:
        check_json(scope)
        asked = read_predict(body, service.settings)
        note(scope, service, asked.texts)
        return await service.predict(asked)

    return handle


@router.post("/v1/predict", openapi_extra=openapi.PREDICT)
async def predict(request: Request) -> Response:
    """Return the best labels of each text."""
    body = await _direct(service_of(request))(request.scope, await request.body())
    return Response(body, media_type=JSON)


@router.post("/v1/explain", openapi_extra=openapi.EXPLAIN)
async def explain(request: Request) -> Response:
    """Say why a label is suggested for a text, or why not."""
    check_json(request.scope)
    service = service_of(request)
    asked = read_explain(await request.body(), service.settings)
    note(request.scope, service, [asked.text])
    return Response(await service.explain(asked), media_type=JSON)


@router.get("/v1/models", openapi_extra=openapi.MODELS)
async def models(request: Request) -> Response:
    """List the models; the first is the default."""
    return Response(service_of(request).models(), media_type=JSON)


@router.get("/v1/labels", openapi_extra=openapi.LABELS)
async def labels(
    request: Request,
    q: str = Query("", max_length=200, description="A part of the name; case does not matter."),
    limit: int = Query(20, ge=1, le=1000),
    model: str | None = Query(None, max_length=4096),
) -> Response:
    """Search labels by name: equal names, then prefixes, then names that contain the words."""
    if q:
        name_of(q, "q")
    return Response(await service_of(request).find_labels(q, limit, name_of(model, "model")), media_type=JSON)


@router.post("/v1/admin/reload", openapi_extra=openapi.RELOAD)
async def reload(request: Request) -> dict[str, Any]:
    """Open model folders anew, all or one; requests that have begun finish with the old model."""
    body = await request.body()
    name = name_of(read_object(body, frozenset({"model"})).get("model"), "model") if body else None
    changed = await service_of(request).reload(name)
    if (tell := getattr(request.app.state, "tell_others", None)) is not None:
        tell()
    return {"changed": changed}


@router.get("/healthz", openapi_extra=openapi.HEALTH)
async def healthz() -> dict[str, str]:
    """Say that the process works."""
    return {"status": "ok"}


@router.get("/readyz", openapi_extra=openapi.READY)
async def readyz(request: Request) -> dict[str, str]:
    """Say whether all models are loaded and their kernels compiled."""
    if not service_of(request).is_ready:
        raise Problem(503, "not_ready", "models are being loaded, or the server is being stopped; try again later")
    return {"status": "ready"}


@router.get("/metrics", openapi_extra=openapi.METRICS)
async def metrics(request: Request) -> Response:
    """Return metrics for Prometheus."""
    content, media_type = service_of(request).metrics.page()
    return Response(content, media_type=media_type)
