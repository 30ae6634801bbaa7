"""What every request passes before its route: the key, the size and time limits of its body; and its line in the log.

It is plain ASGI. Requests for predictions are answered from here, without the framework's routing, since for a linear
model that would take longer than the prediction.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from umpteen.serve.logs import place_of
from umpteen.serve.problems import Problem, busy
from umpteen.serve.service import Service

Handler = Callable[[Any, bytes], Awaitable[bytes]]  # of a scope and a body; returns JSON

_GUARDED = ("/v1/", "/metrics")  # paths that need the key, if there is one
_ADMIN = "/v1/admin/"
_BODIES_HELD = 32  # bodies of the largest size that may be in memory at once
_DISCARDED = 8  # times the largest body: what is read of one that is too large, so that the client sees the answer


class Disconnected(Exception):
    """The client has closed the connection."""


class Middleware:
    """The outermost ASGI application.

    Parameters
    ----------
    app
        The routes.
    service
        What they share.
    api_key
        Without one, all but ``/v1/admin/`` is open.
    direct
        Handlers by method and path that need no routing.
    """

    def __init__(
        self, app: Any, service: Service, api_key: str | None = None,
        direct: Mapping[tuple[str, str], Handler] | None = None,
    ):  # fmt: skip
        self.app, self.service, self.direct = app, service, direct or {}
        self._key = api_key.encode() if api_key else None
        self._most = service.settings.max_body
        self._hosts = frozenset(name.lower().encode() for name in service.settings.hosts)
        self._held, self._prefix, self._count = 0, secrets.token_hex(4), 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1003})
        elif scope["type"] == "http":
            self._count += 1
            exchange = Exchange(f"{self._prefix}-{self._count:x}", send, self.service)
            try:
                await self._answer(scope, receive, exchange)
            finally:
                exchange.report(scope)
        else:
            await self.app(scope, receive, send)

    async def _answer(self, scope: Any, receive: Any, exchange: Exchange) -> None:
        try:
            declared = self._check(scope)
            if declared == 0:
                await self._route(scope, b"", receive, exchange)
                return
            try:
                body = await self._read(receive, declared, exchange)
                await self._route(scope, body, receive, exchange)
            finally:
                self._held -= exchange.n_bytes
        except Problem as problem:
            await exchange.fail(problem)
        except Disconnected:
            exchange.status = 499
        except Exception as error:
            self.service.log.event("failed", level="error", id=exchange.id, error=place_of(error))
            await exchange.fail(Problem(500, "internal", "the request failed; the server's log has its id"))

    async def _route(self, scope: Any, body: bytes, receive: Any, exchange: Exchange) -> None:
        handler = self.direct.get((scope["method"], scope["path"]))
        if handler is None:
            await self.app(scope, _replayed(body, receive), exchange.send)
            return
        exchange.route = scope["path"]
        await exchange.json(await handler(scope, body))

    def _check(self, scope: Any) -> int:
        """Check host and key; return the declared size of the body, −1 if it is unknown."""
        length, key, host, is_chunked, waits = b"", b"", b"", False, False
        for name, value in scope["headers"]:
            if name == b"content-length":
                length = value
            elif name == b"transfer-encoding":
                is_chunked = True
            elif name == b"x-api-key":
                key = value
            elif name == b"host":
                host = value
            elif name == b"expect":
                waits = True
            elif name == b"authorization":
                key = _credentials(value)
        if self._hosts and _without_port(host) not in self._hosts:
            message = "the server does not answer to this host name; start it with --set hosts=NAME, or with an API key"
            raise Problem(403, "unknown_host", message)
        self._check_key(scope["path"], key)
        if is_chunked:
            return -1
        declared = int(length[:19]) if length.isdigit() else 0  # more digits are too large in any case
        if waits and declared > self._most:
            raise self._too_large()  # the client sends the body only if it is told to
        return declared

    def _check_key(self, path: str, key: bytes) -> None:
        if self._key is None:
            if path.startswith(_ADMIN):
                raise Problem(403, "no_api_key", "this path needs a server with an API key; set UMPTEEN_API_KEY")
        elif path.startswith(_GUARDED) and not hmac.compare_digest(key, self._key):
            message = "the API key is missing or wrong; send the header Authorization: Bearer KEY"
            raise Problem(401, "unauthorized", message, {"WWW-Authenticate": "Bearer"})

    def _too_large(self) -> Problem:
        return Problem(413, "too_large", f"a body may have {self._most} bytes; send fewer texts at once")

    async def _read(self, receive: Any, declared: int, exchange: Exchange) -> bytes:
        """Read a body within the limits of size and time; of one that is too large, as much as clients need."""
        if declared > self._most:
            await self._discard(receive)
            raise self._too_large()
        try:
            async with asyncio.timeout(self.service.settings.body_timeout):
                return await self._parts(receive, exchange)
        except TimeoutError:
            raise Problem(408, "slow_body", "the body did not arrive in time; send it at once") from None

    async def _parts(self, receive: Any, exchange: Exchange) -> bytes:
        parts: list[bytes] = []
        more = True
        while more:
            part, more = await _next_part(receive)
            parts.append(part)
            exchange.n_bytes += len(part)
            self._held += len(part)
            if exchange.n_bytes > self._most:
                parts.clear()
                if more:
                    await self._discard(receive)
                raise self._too_large()
            if self._held > _BODIES_HELD * self._most:
                raise busy()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _discard(self, receive: Any) -> None:
        """Read and forget: a client that is still sending would not see the answer."""
        size, more = 0, True
        with suppress(TimeoutError):
            async with asyncio.timeout(self.service.settings.body_timeout):
                while more and size <= _DISCARDED * self._most:
                    part, more = await _next_part(receive)
                    size += len(part)


class Exchange:
    """A request and its response: what is sent is noted for the log."""

    __slots__ = ("_send", "_service", "_start", "id", "n_bytes", "route", "status")

    def __init__(self, id: str, send: Any, service: Service):
        self.id, self._send, self._service = id, send, service
        self._start, self.status, self.n_bytes, self.route = time.perf_counter(), 0, 0, ""

    async def send(self, message: Any) -> None:
        """Pass a message of the application on, with the headers that all responses have."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *self._headers()]
        await self._send(message)

    async def json(self, body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Send a whole response."""
        self.status = status
        own = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        own += [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
        own += self._headers()
        await self._send({"type": "http.response.start", "status": status, "headers": own})
        await self._send({"type": "http.response.body", "body": body})

    async def fail(self, problem: Problem) -> None:
        """Send an error, unless a response has begun."""
        if self.status == 0:
            more = {"Connection": "close"} if problem.status in (408, 413) else {}  # the body was not read
            await self.json(problem.body(), problem.status, problem.headers | more)

    def _headers(self) -> list[tuple[bytes, bytes]]:
        headers = [(b"x-request-id", self.id.encode()), (b"x-content-type-options", b"nosniff")]
        if self._service.is_draining:
            headers.append((b"connection", b"close"))
        return headers

    def report(self, scope: Any) -> None:
        """Count the response and log it: by the pattern of its route, since a path may quote a text."""
        seconds = time.perf_counter() - self._start
        route = self.route or getattr(scope.get("route"), "path", "") or "other"
        self._service.metrics.response(route, self.status, seconds)
        if self._service.settings.access_log:
            facts: dict[str, Any] = {"id": self.id, "method": scope["method"], "route": route, "status": self.status}
            facts |= {"ms": round(seconds * 1000, 2), "bytes": self.n_bytes}
            if (asked := scope.get("umpteen.asked")) is not None:
                facts |= asked
            self._service.log.event("request", **facts)


def note(scope: Any, service: Service, texts: list[str]) -> None:
    """Note for the log how many texts a request has, and the texts if they are wanted."""
    scope["umpteen.asked"] = {"n_texts": len(texts)} | ({"texts": texts} if service.settings.log_texts else {})


async def _next_part(receive: Any) -> tuple[bytes, bool]:
    """Return the next part of a body, and whether there are more."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise Disconnected
    return message.get("body", b""), message.get("more_body", False)


def _without_port(host: bytes) -> bytes:
    """Return the name in a header ``Host``, in lower case; an IPv6 address keeps its brackets."""
    end = host.find(b"]") + 1
    return (host[:end] if end else host.partition(b":")[0]).lower()


def _credentials(value: bytes) -> bytes:
    """Return the key of ``Bearer KEY``, or of ``Basic`` with the key as password, which a URL can hold."""
    scheme, _, rest = value.partition(b" ")
    if scheme.lower() != b"basic":
        return rest
    try:
        return base64.b64decode(rest, validate=True).partition(b":")[2]
    except ValueError:
        return b""


def _replayed(body: bytes, receive: Any) -> Any:
    """Return a ``receive`` that gives the body, which was read already, once."""
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Any:
        return left.pop() if left else await receive()

    return next_message
