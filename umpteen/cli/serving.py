"""``umpteen serve``: models behind HTTP, until SIGTERM or Ctrl-C."""

import os
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from umpteen import store
from umpteen.cli.terminal import Terminal
from umpteen.config import update
from umpteen.config.serving import ServeConfig
from umpteen.engine import n_threads
from umpteen.errors import BadConfig, BadInput, MissingExtra
from umpteen.models.hub import local_folder

_NEEDED = ("fastapi", "uvicorn", "prometheus_client", "python_multipart")
_NAME = re.compile(r"[\w.-]{1,100}")
_SHORTEST_KEY = 8
_OF_THIS_MACHINE = ("127.0.0.1", "localhost", "::1")
_LOCAL_HOSTS = ("127.0.0.1", "localhost", "[::1]")  # in the header Host


def serve(
    models: Sequence[str], settings: dict[str, Any], *, host: str, port: int, workers: int, key_file: Path | None,
    terminal: Terminal,
) -> None:  # fmt: skip
    """Serve the models of some folders."""
    for package in _NEEDED:
        if find_spec(package) is None:
            raise MissingExtra(package.replace("_", "-"), "serve", "umpteen serve")
    from umpteen.serve.connections import address_of, listening_socket
    from umpteen.serve.worker import serve_here

    named, key = {name: local_folder(model) for name, model in named_models(models).items()}, api_key(key_file)
    for path in named.values():
        store.read(path)  # an error here is an error message, not a line in the log of a worker
    if workers > 1 and os.name != "posix":
        raise BadConfig(f"--workers {workers} needs a system with fork and signals; use --workers 1 here")
    usual: dict[str, Any] = {"threads": max(1, n_threads() // workers)}
    if key is None and host in _OF_THIS_MACHINE:
        usual["hosts"] = _LOCAL_HOSTS  # a page on the web cannot reach the server by a name that it controls
    config = update(ServeConfig(), usual | settings)
    if key is None and host not in _OF_THIS_MACHINE:
        terminal.note(f"Anyone who can reach {host} can use the models; --api-key-file asks for a key.")
    try:
        sock = listening_socket(host, port)
    except OSError as error:
        raise BadInput(f"{host} cannot be listened at, port {port}: {error}; choose another --host or --port") from None
    with sock:
        terminal.note(f"Serving {', '.join(named)} at {address_of(sock)} (Ctrl-C stops).")
        if workers == 1:
            serve_here(sock, named, config, key)
        else:
            from umpteen.serve.supervisor import Supervisor

            Supervisor(sock, named, config, key, workers).run()


def named_models(models: Sequence[str]) -> dict[str, str]:
    """Return folders, or names on the hub, by the name under which they are served: ``NAME=FOLDER``, or the last part.

    >>> named_models(["models/tags", "new=models/tags", "old/tags"])
    {'tags': 'models/tags', 'new': 'models/tags', 'tags-2': 'old/tags'}
    """
    found: dict[str, str] = {}
    for text in models:
        name, equals, rest = text.partition("=")
        if equals and not Path(text).exists():
            if not _NAME.fullmatch(name):
                raise BadInput(f"the name of a model has letters, digits, '.', '_' and '-', but is {name[:80]!r}")
            if name in found:
                raise BadInput(f"two models are named '{name}'; choose another name: NAME=FOLDER")
            found[name] = rest
        else:
            found[_unused(re.sub(r"[^\w.-]+", "-", Path(text).resolve().name) or "model", found)] = text
    return found


def _unused(name: str, taken: dict[str, str]) -> str:
    number, chosen = 1, name
    while chosen in taken:
        number += 1
        chosen = f"{name}-{number}"
    return chosen


def api_key(file: Path | None) -> str | None:
    """Return the key of the file, or of the environment, if there is one."""
    if file is None:
        key, source = os.environ.get("UMPTEEN_API_KEY", ""), "UMPTEEN_API_KEY"
        if not key:
            return None
    else:
        try:
            key, source = file.read_text(encoding="utf-8").strip(), str(file)
        except (OSError, ValueError) as error:
            raise BadInput(f"the file of the API key, {file}, cannot be read: {error}") from None
    if len(key) < _SHORTEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
        raise BadInput(
            f"the API key in {source} must have at least {_SHORTEST_KEY} characters, of ASCII and without spaces; "
            "openssl rand -hex 32 makes one"
        )
    return key
