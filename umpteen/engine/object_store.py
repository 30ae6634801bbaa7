"""Count what goes through the object stores of a Ray cluster.

Every node counts the bytes of all objects that were ever created in its object store: results, arguments, and copies of
those of other nodes. Messages of less than 100 kB are not stored there but sent with the call; engines count them
themselves. The counts include other jobs that use the cluster at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from umpteen.engine.cluster_nodes import import_ray
from umpteen.errors import MissingExtra


@dataclass(frozen=True)
class ObjectStoreReport:
    """Bytes that went through the object stores and in messages.

    Parameters
    ----------
    store_bytes
        Bytes of the objects that were created in the object stores of all nodes.
    message_bytes
        Bytes of the arguments and results of all tasks.
    n_nodes
        Nodes that were counted.
    n_lost
        Those of them that ended; what they stored after they were last asked is not counted.
    """

    store_bytes: int
    message_bytes: int
    n_nodes: int
    n_lost: int = 0

    def share_of(self, data_bytes: int) -> float:
        """Return the bytes in the object stores as a share of the bytes of the data.

        Examples
        --------
        >>> ObjectStoreReport(store_bytes=50, message_bytes=900, n_nodes=2).share_of(1000)
        0.05
        """
        return self.store_bytes / max(1, data_bytes)


class ObjectStoreCounter:
    """Counts from the moment when it is made."""

    def __init__(self) -> None:
        self._first = _created_bytes()
        self._last, self._alive = dict(self._first), set(self._first)

    def update(self) -> None:
        """Ask all nodes; a node that ended keeps its last count."""
        now = _created_bytes()
        self._alive = set(now)
        self._last |= now

    def report(self, message_bytes: int) -> ObjectStoreReport:
        """Return the counts of the last update."""
        stored = sum(created - self._first.get(node, 0) for node, created in self._last.items())
        return ObjectStoreReport(stored, message_bytes, len(self._last), len(self._last.keys() - self._alive))


def _created_bytes() -> dict[str, int]:
    """Return the bytes of all objects that were created in the store of each node."""
    nodes = [node for node in import_ray().nodes() if node["Alive"]]
    found = {node["NodeID"]: _created_bytes_of(node) for node in nodes}
    return {node: created for node, created in found.items() if created is not None}


def _created_bytes_of(node: dict[str, Any]) -> int | None:
    """Return the count of a node, or nothing if it ended."""
    try:
        import grpc
        from ray._private.internal_api import node_stats
    except ImportError as error:
        raise MissingExtra("grpcio", "ray", "the report on the object store") from error
    try:
        stats = node_stats(node["NodeManagerAddress"], node["NodeManagerPort"], include_memory_info=False)
    except grpc.RpcError:
        return None
    return int(stats.store_stats.cumulative_created_bytes)
