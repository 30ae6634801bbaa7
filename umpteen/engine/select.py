"""Choose an engine by its name."""

from __future__ import annotations

from umpteen.engine.local import n_threads
from umpteen.engine.processes import ProcessEngine
from umpteen.engine.tasks import Engine, LocalEngine
from umpteen.errors import BadConfig, nearest

ENGINES = ("local", "processes")


def make_engine(
    name: str = "local", *, workers: int | None = None, threads: int | None = None, address: str | None = None
) -> Engine:
    """Return an engine.

    Parameters
    ----------
    name
        ``local`` runs tasks one after the other in this process, ``processes`` in several processes of this machine.
    workers
        Number of processes; by default so many that all cores are used.
    threads
        Threads of each task. By default all cores in this process, and one in other processes.
    address
        Address of a cluster, for engines that run on one.

    Examples
    --------
    >>> make_engine("local", threads=1).n_workers
    1
    """
    if name not in ENGINES:
        raise BadConfig(f"the engine must be one of {', '.join(ENGINES)}, but is {name!r:.40}{nearest(name, ENGINES)}")
    if address is not None:
        raise BadConfig(f"the engine {name} runs on this machine and has no address; leave the address out")
    if name == "processes":
        threads = threads or 1
        return ProcessEngine(workers or max(1, n_threads() // threads), threads=threads)
    if workers not in (None, 1):
        raise BadConfig(f"the engine local has one worker, but got {workers}; name the engine processes")
    return LocalEngine(threads or 0)
