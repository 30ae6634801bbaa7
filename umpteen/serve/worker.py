"""A process that serves: the only one, or one of several that share a socket and are watched by ``supervisor``.

A worker reads its job as a line of JSON from standard input, whose other end the parent holds: when it closes, the
parent is gone, and the worker stops too.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from umpteen.config import from_dict, to_dict
from umpteen.config.serving import ServeConfig
from umpteen.serve.app import create_app
from umpteen.serve.connections import DrainingServer, as_json
from umpteen.serve.logs import Log


def serve_here(
    sock: socket.socket, models: Mapping[str, Path], settings: ServeConfig, api_key: str | None, *,
    tell_ready: Any = None, tell_others: Any = None, log: Log | None = None, stop_with: Any = None,
    loads_first: bool = False, is_shared: bool = False,
) -> None:  # fmt: skip
    """Serve on a socket until a signal comes; raise what kept a model from being opened.

    With ``loads_first`` no connection is accepted before the models are loaded, because other workers take them.
    """
    sys.setswitchinterval(0.001)  # the event loop and the thread of predictions take turns more often
    app = create_app(models, settings, api_key=api_key, log=log)
    app.state.tell_ready, app.state.tell_others, app.state.loads_first = tell_ready, tell_others, loads_first
    server = DrainingServer(app, settings, is_shared=is_shared)
    if stop_with is not None:
        stop_with(server.stop)
    app.state.reloads_on_hangup = threading.current_thread() is threading.main_thread()
    server.run(sockets=[sock])
    if server.failure is not None:
        raise server.failure


def job_of(
    number: int, sock: socket.socket, models: Mapping[str, Path], settings: ServeConfig, api_key: str | None,
    ready: int, loads_first: bool,
) -> bytes:  # fmt: skip
    """Return the line that a worker reads."""
    return as_json({
        "number": number, "socket": sock.fileno(), "ready": ready, "api_key": api_key, "loads_first": loads_first,
        "models": {name: str(path) for name, path in models.items()}, "settings": to_dict(settings),
    })  # fmt: skip


def main() -> None:
    """Do the job that is read from standard input."""
    job = json.loads(_first_line())
    sock = socket.socket(fileno=job["socket"])
    models = {name: Path(path) for name, path in job["models"].items()}
    parent = os.getppid()

    def tell_ready() -> None:
        os.write(job["ready"], b"1")
        os.close(job["ready"])

    def stop_with(stop: Any) -> None:
        threading.Thread(target=_stop_without_parent, args=(stop,), daemon=True).start()

    try:
        serve_here(
            sock, models, from_dict(ServeConfig, job["settings"]), job["api_key"], tell_ready=tell_ready,
            tell_others=lambda: os.kill(parent, signal.SIGHUP) if os.getppid() == parent else None,
            log=Log(facts={"worker": job["number"], "pid": os.getpid()}), stop_with=stop_with,
            loads_first=job["loads_first"], is_shared=True,
        )  # fmt: skip
    except Exception:  # is in the log
        sys.exit(1)


def _first_line() -> bytes:
    """Read a line from standard input without a buffer."""
    line = b""
    while not line.endswith(b"\n") and (part := os.read(0, 2**16)):
        line += part
    return line


def _stop_without_parent(stop: Any) -> None:
    """Wait until the other end of standard input is closed."""
    while os.read(0, 1024):  # not by sys.stdin, whose lock this thread would still hold when the interpreter ends
        pass
    stop()


if __name__ == "__main__":
    main()
