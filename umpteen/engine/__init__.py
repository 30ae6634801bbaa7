"""Where work runs: on threads of this machine. Knows tasks and workers, nothing about labels."""

from umpteen.engine.local import Progress, n_threads, run, silent

__all__ = ["Progress", "n_threads", "run", "silent"]
