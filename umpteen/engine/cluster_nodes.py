"""The nodes of a Ray cluster: connect to it, and check that they have the same software and the same files.

Tasks get paths, so all nodes must see the folder that holds them, and give the same bytes only with the same versions.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import logging
import os
import platform
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from umpteen.engine.local import n_threads
from umpteen.errors import BadConfig, MissingExtra

_PACKAGES = ("numpy", "scipy", "numba")  # beside this one: their versions decide the bytes of a result
_ANSWER_SECONDS = 120.0  # until a node that does not answer is given up; the first task of a node starts a process
_CONNECT_SECONDS = 10.0
_OBJECT_STORE = 100 * 2**20  # bytes, for a cluster that is started here; tasks pass no arrays
_MAX_RETRIES = 2  # of a question to a node, if its process ends
OTHER_STORAGE = "pass another folder with --storage"

_MANY_NODES = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # whether ray supports more than one node


def import_ray() -> Any:
    """Import ray; the nodes that it starts report no usage statistics."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("ray", "ray", "the engine 'ray'") from error
    return ray


def _import_for_loopback() -> Any:
    """Import ray so that a cluster of this machine listens on 127.0.0.1 only: ray must not expect other nodes."""
    before = os.environ.get(_MANY_NODES)
    os.environ[_MANY_NODES] = "0"
    try:
        return import_ray()  # reads the environment
    finally:
        os.environ.pop(_MANY_NODES)
        if before is not None:
            os.environ[_MANY_NODES] = before


def connect(address: str | None) -> bool:
    """Connect this process to a cluster.

    Parameters
    ----------
    address
        ``host:port`` of the head node, or ``auto`` for the cluster that this machine belongs to. ``None`` means the
        environment variable ``RAY_ADDRESS`` or, without it, a new cluster of this machine only.

    Returns
    -------
    bool
        Whether the connection was made here and is to be closed; one that exists is used.
    """
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    ray = _import_for_loopback() if address == "local" else import_ray()
    if ray.is_initialized():
        return False
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == "local":
        options |= {"num_cpus": n_threads(), "include_dashboard": False, "object_store_memory": _OBJECT_STORE}
        # Ray would wait for workers that it starts ahead, without end if one of them ends before it is known.
        options["_system_config"] = {"prestart_worker_first_driver": False}
    elif address != "auto":
        _check_address(address)
    with _signals_kept():
        try:
            ray.init(address=address, **options)
        except Exception as error:  # Ray raises Exception itself if a node does not start in time
            raise BadConfig(
                f"no Ray cluster could be used at {address!r:.120}: {error!s:.500}; start one with 'ray start --head', "
                "and run the command on one of its nodes"
            ) from error
    return True


def _check_address(address: str) -> None:
    """Refuse an address at which nothing listens, which ray would try for long."""
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal():
        raise BadConfig(
            f"the address of a cluster is host:port or auto, but is {address!r:.120}; pass the address that 'ray start "
            "--head' prints, on a node of the cluster"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise BadConfig(
            f"nothing answers at {address!r:.120} ({error}); start a cluster with 'ray start --head' and pass the "
            "address that it prints"
        ) from error


def alive_nodes(threads: int = 1) -> list[dict[str, Any]]:
    """Return the nodes that can run a task of so many threads, as ray describes them."""
    return [node for node in import_ray().nodes() if node["Alive"] and n_slots(node, threads)]


def n_slots(node: dict[str, Any], threads: int) -> int:
    """Return the number of tasks of so many threads that a node runs at the same time."""
    return int(node["Resources"].get("CPU", 0) // threads)


def remote(function: Callable[..., Any], **options: Any) -> Any:
    """Return a function that runs on the cluster, once for each call: who calls it decides what is run again."""
    ray = import_ray()
    options.setdefault("max_retries", 0)
    if paths := _python_path():
        options["runtime_env"] = {"env_vars": {"PYTHONPATH": os.pathsep.join([*paths, "${PYTHONPATH}"])}}
    return ray.remote(**options)(function)


def _python_path() -> list[str]:
    """Return folders in which nodes look for modules too: those of this process, and a development tree."""
    import umpteen

    folder = Path(umpteen.__file__).absolute().parents[1]
    tree = [str(folder)] if (folder / "pyproject.toml").is_file() else []
    given = [os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return tree + [path for path in given if path not in tree]


def versions() -> dict[str, str]:
    """Return the versions in this process that decide the bytes of a result."""
    import umpteen

    python = ".".join(platform.python_version_tuple()[:2])
    return {"python": python, "umpteen": umpteen.__version__, **{name: _installed(name) for name in _PACKAGES}}


_installed = functools.cache(importlib.metadata.version)  # it reads files


def differences(ours: dict[str, str], theirs: dict[str, str]) -> str:
    """Return what differs between two sets of versions, in words.

    Examples
    --------
    >>> differences({"umpteen": "0.2.0", "numpy": "2.0"}, {"umpteen": "0.1.0", "numpy": "2.0"})
    'umpteen 0.1.0 instead of 0.2.0'
    """
    return ", ".join(f"{name} {theirs.get(name)} instead of {v}" for name, v in ours.items() if theirs.get(name) != v)


def check_versions(threads: int = 1) -> None:
    """Refuse a cluster whose nodes do not have the versions of this process."""
    ours, other = versions(), []
    for answer in _ask_all(versions, threads):
        if answer.error:
            other.append(f"node {answer.node} cannot import umpteen {ours['umpteen']} ({answer.error})")
        elif answer.value != ours:
            other.append(f"node {answer.node} has {differences(ours, answer.value)}")
    if other:
        raise BadConfig(f"{'; '.join(other)}; start 'ray' on all nodes from environments with the same versions")


def check_storage(folder: str | os.PathLike[str], threads: int = 1, remedy: str = OTHER_STORAGE) -> None:
    """Refuse a folder that is not shared by this machine and the nodes of the cluster that is connected.

    Every node must see a file that is written here, and a file that it writes must be seen here.

    Parameters
    ----------
    folder
        A folder at the same path on all nodes.
    threads
        Nodes with fewer cores run no tasks and are not asked.
    remedy
        What to do instead of sharing the folder, for the message.
    """
    folder, name = Path(folder).absolute(), f".umpteen-storage-{secrets.token_hex(8)}"
    try:
        (folder / name).write_text(name)
    except OSError as error:
        raise BadConfig(f"'{folder}' must be a folder that can be written to, but: {error.strerror}") from error
    try:
        answers = _ask_all(_answer_in_storage, threads, str(folder), name)
        bad = [f"{a.node} ({a.error or a.value})" for a in answers if a.error or not (folder / a.value).is_file()]
    finally:
        for path in (folder / name, *folder.glob(f"{name}-*")):
            path.unlink(missing_ok=True)
    if bad:
        raise BadConfig(
            f"'{folder}' is not shared with these nodes of the cluster: {'; '.join(bad)}; mount it at the same path on "
            f"all nodes, or {remedy}"
        )


def _answer_in_storage(folder: str, name: str) -> str:
    """Read the file of the driver on a node, write one beside it, and return its name."""
    if Path(folder, name).read_text() != name:
        raise FileNotFoundError(f"'{folder}' has another file '{name}'")
    answer = f"{name}-{import_ray().get_runtime_context().get_node_id()}"
    Path(folder, answer).touch()
    return answer


def check_file(path: str | os.PathLike[str], threads: int = 1) -> None:
    """Refuse a file that is not the same on this machine and on the nodes of the cluster that is connected."""
    file = Path(path).absolute()
    ours = _digest(str(file))
    bad = [f"{a.node} ({a.error or 'another file'})" for a in _ask_all(_digest, threads, str(file)) if a.value != ours]
    if bad:
        raise BadConfig(
            f"tasks read '{file}', which these nodes of the cluster do not have: {'; '.join(bad)}; put it into a "
            "folder that is mounted at the same path on all nodes"
        )


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Answer(NamedTuple):
    """What a function returned on a node, or why it did not."""

    node: str
    value: Any = None
    error: str = ""


def _ask_all(function: Callable[..., Any], threads: int, *arguments: Any) -> list[_Answer]:
    """Run a function on every node that can run tasks; nodes that end meanwhile are left out."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray, nodes = import_ray(), alive_nodes(threads)
    options = {"num_cpus": 0, "max_retries": _MAX_RETRIES}
    places = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in nodes]
    calls = [remote(function, scheduling_strategy=place, **options).remote(*arguments) for place in places]
    ray.wait(calls, num_returns=len(calls), timeout=_ANSWER_SECONDS) if calls else None
    alive = {node["NodeID"] for node in alive_nodes(threads)}
    return [_answer(node, call) for node, call in zip(nodes, calls, strict=True) if node["NodeID"] in alive]


def _answer(node: dict[str, Any], call: Any) -> _Answer:
    ray = import_ray()
    name = node["NodeManagerAddress"]
    try:
        return _Answer(name, ray.get(call, timeout=0))
    except ray.exceptions.RayTaskError as error:
        return _Answer(name, error=last_line(error))
    except ray.exceptions.GetTimeoutError:
        return _Answer(name, error=f"no answer in {_ANSWER_SECONDS:.0f} s")
    except ray.exceptions.RayError as error:
        return _Answer(name, error=type(error).__name__)


def last_line(error: BaseException) -> str:
    """Return the last line of what an error says: an error of ray holds a whole traceback."""
    return (str(getattr(error, "cause", None) or error).strip().splitlines() or [type(error).__name__])[-1]


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Keep the handler of SIGTERM, which ray replaces in the main thread."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
