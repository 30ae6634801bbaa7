"""Connections: clients that are slow to send headers or to read a response, and how a server stops without losing one.

``DrainingServer`` extends uvicorn's server. After SIGTERM it takes the connections that wait to be accepted, answers
every request with ``Connection: close``, and closes connections that stay idle.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import Callable, Sized
from contextlib import suppress
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from umpteen.config.serving import ServeConfig
from umpteen.errors import UmpteenError
from umpteen.serve.problems import Problem
from umpteen.serve.service import Service

_BACKLOG = 2048  # connections that wait to be accepted
_TURN = 0.001  # seconds in which other workers may accept, after one that has connections accepted another
_NO_FILES = 1.0  # seconds until the next try to accept, if there are too many open files
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


class Acceptor:
    """Accept connections of a socket, which several processes may share.

    A process that has connections leaves the next one to others for a moment. Without that, the first process that
    wakes up would take a whole crowd.
    """

    def __init__(
        self, sock: socket.socket, protocol: Callable[[], asyncio.Protocol], connections: Sized, is_shared: bool
    ):
        self._sock, self._protocol, self._connections, self._is_shared = sock, protocol, connections, is_shared
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_over = False
        sock.setblocking(False)

    def start(self) -> None:
        """Accept from now on."""
        if not self._is_over:
            self._loop.add_reader(self._sock.fileno(), self._ready)

    def _ready(self) -> None:
        try:
            accepted, _ = self._sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # another process was faster
        except OSError:
            self._pause(_NO_FILES)
            return
        self._take(accepted)
        if self._is_shared and self._connections:
            self._pause(_TURN)

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._sock.fileno())
        self._loop.call_later(seconds, self.start)

    def _take(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        self._tasks.add(task := self._loop.create_task(self._connect(accepted)))
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, accepted: socket.socket) -> None:
        await self._loop.connect_accepted_socket(self._protocol, accepted)

    async def stop(self) -> None:
        """Take the connections that were made already, and stop to listen."""
        self._is_over = True
        self._loop.remove_reader(self._sock.fileno())
        with suppress(OSError):  # none is left
            while True:
                self._take(self._sock.accept()[0])
        self._sock.close()
        if self._tasks:
            await asyncio.wait(self._tasks)


class DrainingServer(uvicorn.Server):
    """A server that finishes what clients have asked before it stops."""

    def __init__(self, app: Any, settings: ServeConfig, *, is_shared: bool = False):
        config = uvicorn.Config(
            app, http=timed_protocol(settings.body_timeout), ws="none", lifespan="on", log_config=None,
            access_log=False, server_header=False, timeout_keep_alive=settings.keep_alive,  # type: ignore[arg-type]
            timeout_graceful_shutdown=1, h11_max_incomplete_event_size=2**16,
        )  # fmt: skip
        super().__init__(config)
        self._service: Service = app.state.service
        self._settings, self._is_shared = settings, is_shared
        self._acceptors: list[Acceptor] = []
        self.failure: BaseException | None = None
        app.state.stop = self.stop

    def stop(self, failure: BaseException | None = None) -> None:
        """Stop, because models cannot be opened if a failure is given."""
        self.failure, self.should_exit = failure, True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop on the first signal; the second one does not wait. Signals are not raised again at the end."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the models, then accept connections. Takes the place of uvicorn's, whose workers do not take turns."""
        if os.name != "posix":  # sockets cannot be watched by its event loop, and there is one process
            await super().startup(sockets)
            return
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            self.stop(self.failure or UmpteenError("the application cannot be started"))
        connections = self.server_state.connections
        self._acceptors = [Acceptor(sock, self._protocol, connections, self._is_shared) for sock in sockets or []]
        for acceptor in self._acceptors:
            acceptor.start()
        self.servers, self.started = [], True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what was asked, then stop."""
        self._service.is_draining = True
        self._service.log.event("draining", connections=len(self.server_state.connections))
        for acceptor in self._acceptors:
            await acceptor.stop()
        await self._drain()
        await super().shutdown(sockets)
        self._service.log.event("stopped")

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
        sock.listen(_BACKLOG)
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
