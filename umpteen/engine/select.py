"""Make an engine by its name."""

from __future__ import annotations

from umpteen.engine.tasks import Engine, LocalEngine
from umpteen.errors import BadConfig, nearest

ENGINES = ("local", "processes", "ray")


def make_engine(name: str, *, workers: int = 0, threads: int = 0, address: str | None = None) -> Engine:
    """Return an engine; who makes it closes it.

    Parameters
    ----------
    name
        ``local`` runs tasks in this process, ``processes`` in other processes of this machine, ``ray`` on the nodes of
        a Ray cluster.
    workers
        The most tasks that run at the same time; 0 means as many as there are cores for.
    threads
        Threads of this process for ``local``; 0 means one for each core. Other processes have one each, and without
        ``workers`` this is the number of ``processes``.
    address
        ``host:port`` of the head node of a cluster, or ``auto``; see :class:`umpteen.engine.cluster.RayEngine`.

    Examples
    --------
    >>> make_engine("local", threads=2).n_workers
    1
    """
    if name not in ENGINES:
        raise BadConfig(f"engine must be one of {', '.join(ENGINES)}, but is {name!r:.80}{nearest(str(name), ENGINES)}")
    if address is not None and name != "ray":
        raise BadConfig(f"an address is for the engine 'ray', but the engine is '{name}'; pass --engine ray")
    if name == "local":
        return LocalEngine(threads)
    if name == "processes":
        from umpteen.engine.processes import ProcessEngine

        return ProcessEngine(workers or threads)
    from umpteen.engine.cluster import RayEngine

    return RayEngine(address, max_workers=workers)
