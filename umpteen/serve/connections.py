"""Connections: clients that are slow to send headers or to read a response, and how a server stops without losing one.

``DrainingServer`` extends uvicorn's server. After SIGTERM it takes the connections that wait to be accepted, answers
every request with ``Connection: close``, and closes connections that stay idle.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from umpteen.config.serving import ServeConfig
from umpteen.serve.problems import Problem
from umpteen.serve.service import Service

_LOOKS = 0.02  # seconds between looks at the connections that are left


def timed_protocol(seconds: float) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with a limit of the time in which the headers of a request must arrive."""

    class TimedProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        _deadline: asyncio.TimerHandle | None = None
        _has_begun = False  # whether a part of a request was received

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._deadline = self.loop.call_later(seconds, self._too_slow)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if not is_idle(self):
                self._stop_clock()
            elif self._deadline is None:
                self._has_begun = True
                self._deadline = self.loop.call_later(seconds, self._too_slow)
            else:
                self._has_begun = True

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_clock()
            super().connection_lost(exc)

        def timeout_keep_alive_handler(self) -> None:
            super().timeout_keep_alive_handler()
            if self.transport.get_write_buffer_size():  # the client does not read the last response
                self.transport.abort()

        def _stop_clock(self) -> None:
            self._has_begun = False
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _too_slow(self) -> None:
            self._deadline = None
            if is_idle(self) and not self.transport.is_closing():
                if self._has_begun:
                    self.transport.write(_slow_headers())
                self.transport.close()

    return TimedProtocol


def _slow_headers() -> bytes:
    """Return a whole response, since there is no request yet that the application could answer."""
    problem = Problem(408, "slow_headers", "the headers did not arrive in time; send them at once")
    body = problem.body()
    return (
        b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-type: application/json\r\n"
        b"content-length: " + str(len(body)).encode() + b"\r\n\r\n" + body
    )


def is_idle(connection: Any) -> bool:
    """Return whether no request of a connection is being answered."""
    return connection.cycle is None or connection.cycle.response_complete


class DrainingServer(uvicorn.Server):
    """A server that finishes what clients have asked before it stops."""

    def __init__(self, app: Any, settings: ServeConfig):
        config = uvicorn.Config(
            app, http=timed_protocol(settings.body_timeout), ws="none", lifespan="on", log_config=None,
            access_log=False, server_header=False, timeout_keep_alive=settings.keep_alive,  # type: ignore[arg-type]
            timeout_graceful_shutdown=1, h11_max_incomplete_event_size=2**16,
        )  # fmt: skip
        super().__init__(config)
        self._service: Service = app.state.service
        self._settings = settings
        self.failure: BaseException | None = None
        app.state.stop = self.stop

    def stop(self, failure: BaseException | None = None) -> None:
        """Stop, because models cannot be opened if a failure is given."""
        self.failure, self.should_exit = failure, True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop on the first signal; the second one does not wait. Signals are not raised again at the end."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what was asked, then stop."""
        self._service.is_draining = True
        self._service.log.event("draining", connections=len(self.server_state.connections))
        await self._accept_rest(sockets or [])
        await self._drain()
        await super().shutdown(sockets)
        self._service.log.event("stopped")

    async def _accept_rest(self, sockets: list[socket.socket]) -> None:
        """Stop to listen, and take the connections that were made before."""
        loop = asyncio.get_running_loop()
        copies = [sock.dup() for sock in sockets]
        for server in self.servers:
            server.close()
        for copy in copies:
            with copy:
                copy.setblocking(False)
                while True:
                    try:
                        accepted, _ = copy.accept()
                    except OSError:  # none is left
                        break
                    accepted.setblocking(False)
                    await loop.connect_accepted_socket(self._protocol, accepted)

    def _protocol(self) -> asyncio.Protocol:
        config: Any = self.config
        return config.http_protocol_class(config=config, server_state=self.server_state, app_state=self.lifespan.state)

    async def _drain(self) -> None:
        begun = time.monotonic()
        while self.server_state.connections and not self.force_exit:
            passed = time.monotonic() - begun
            if passed > self._settings.drain_timeout:
                return
            if passed >= self._settings.drain_idle:
                for connection in list(self.server_state.connections):
                    if is_idle(connection):
                        connection.shutdown()
            await asyncio.sleep(_LOOKS)


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens, which processes can share."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches Nagle's algorithm off only for sockets that name TCP; with it, responses take 40 ms
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if hasattr(socket, "SO_REUSEADDR"):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(2048)
    except OSError:
        sock.close()
        raise
    return sock


def address_of(sock: socket.socket) -> str:
    """Return the address at which a socket listens as a URL."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def as_json(facts: Any) -> bytes:
    """Return a line of JSON for another process."""
    return json.dumps(facts).encode() + b"\n"
