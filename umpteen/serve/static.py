"""The page: the files of the folder ``page``, read once. Requests name routes, never paths of files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from fastapi import APIRouter, Response

FOLDER = Path(__file__).parent / "page"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
}
_HEADERS = {"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}
_SHORT = {"index.html": "/", "docs.html": "/docs"}


def page_router(folder: Path = FOLDER) -> APIRouter:
    """Return a route for each file of the folder."""
    router = APIRouter()
    for path in sorted(folder.iterdir()):
        if path.suffix in _TYPES:
            route = _SHORT.get(path.name, f"/{path.name}")
            router.add_api_route(route, _endpoint(path), methods=["GET", "HEAD"], include_in_schema=False)
    return router


def _endpoint(path: Path) -> Callable[[], Awaitable[Response]]:
    content, media_type = path.read_bytes(), _TYPES[path.suffix]

    async def endpoint() -> Response:
        return Response(content, media_type=media_type, headers=_HEADERS)

    return endpoint
