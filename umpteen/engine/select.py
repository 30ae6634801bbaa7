"""Choose what runs the tasks of a long job by name."""

from umpteen.engine.processes import ProcessEngine
from umpteen.engine.tasks import Engine, LocalEngine
from umpteen.errors import BadConfig, nearest

ENGINES = ("local", "processes")


def make_engine(name: str, *, workers: int = 0, threads: int = 0, address: str | None = None) -> Engine:
    """Return an engine: ``local`` (this process) or ``processes`` (others of this machine).

    Parameters
    ----------
    workers
        Number of processes; 0 means one for each core.
    threads
        Threads of this process; other processes have one each.
    """
    if name == "local":
        return LocalEngine(threads)
    if name == "processes":
        return ProcessEngine(workers or threads)
    raise BadConfig(f"engine must be one of {', '.join(ENGINES)}, but is {name!r:.80}{nearest(str(name), ENGINES)}")
