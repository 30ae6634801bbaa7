"""A Ray cluster of several nodes on this machine, started by ``ray start`` as on a real cluster.

Every node has a loopback address and a session of its own, by which exactly its processes are found and ended. A random
token keeps others out. Linux only.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OBJECT_STORE = 80_000_000  # bytes, about the least that ray accepts
_START_SECONDS = 120.0

# The death of a node is noticed in about a second instead of a minute, and tasks have the priority of other processes.
_ENVIRONMENT = {
    "RAY_worker_niceness": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "300",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}


class Node:
    """The processes of one node."""

    def __init__(self, host: str, folder: Path, options: list[str]) -> None:
        self.host, self.folder = host, folder
        folder.mkdir(parents=True)
        command = [
            str(Path(sys.executable).with_name("ray")), "start", f"--node-ip-address={host}", f"--temp-dir={folder}",
            f"--object-store-memory={OBJECT_STORE}", "--disable-usage-stats", "--include-log-monitor=false", *options,
        ]  # fmt: skip
        self._log = folder / "start.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def wait(self) -> None:
        """Wait until the node has been started."""
        if self._process.wait(_START_SECONDS):
            raise RuntimeError(f"'ray start' failed: {self._log.read_text()}")

    def kill(self) -> None:
        """End all processes of the node, without a warning."""
        while alive := [pid for pid, session in _sessions() if session == self._process.pid]:
            for pid in alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._process.wait()


def _sessions() -> Iterator[tuple[int, int]]:
    """Yield the number and the session of every process that has not ended."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, session = path.read_text().rpartition(")")[2].split()[:4]
            if state not in "ZX":
                yield int(path.parent.name), int(session)


class Cluster:
    """A head node without cores for tasks, and worker nodes.

    Parameters
    ----------
    folder
        For logs and sockets; its path must be short.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._n_started = folder, 1
        self._network = f"127.{secrets.randbelow(250) + 2}.{secrets.randbelow(250) + 2}"
        self.head = Node(
            f"{self._network}.1", folder / "0",
            ["--head", "--port=0", "--num-cpus=0", "--include-dashboard=false", f"--ray-client-server-port={_port()}"],
        )  # fmt: skip
        self.workers: list[Node] = []

    @property
    def address(self) -> str:
        """Address of the head node."""
        return (self.head.folder / "ray_current_cluster").read_text()

    def add(self, n_nodes: int, n_cores: int = 1) -> list[Node]:
        """Start worker nodes side by side."""
        self.head.wait()
        added = []
        for _ in range(n_nodes):
            self._n_started += 1
            options = [f"--address={self.address}", f"--num-cpus={n_cores}"]
            added.append(Node(f"{self._network}.{self._n_started}", self._folder / str(self._n_started), options))
        self.workers += added
        for node in added:
            node.wait()
        return added

    def close(self) -> None:
        """End all nodes."""
        for node in (*self.workers, self.head):
            node.kill()


@contextmanager
def cluster(n_nodes: int) -> Iterator[Cluster]:
    """Start a cluster with worker nodes of one core, and end it in any case."""
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    os.environ.update(_ENVIRONMENT)
    folder = Path(tempfile.mkdtemp(prefix="ray"))
    made = None
    try:
        made = Cluster(folder)
        made.add(n_nodes)
        yield made
    finally:
        if made is not None:
            made.close()
        shutil.rmtree(folder, ignore_errors=True)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
