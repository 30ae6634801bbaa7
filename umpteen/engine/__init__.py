"""Where work runs: on threads of this machine. Knows tasks and workers, nothing about labels."""

from umpteen.engine.local import Pool, Progress, n_threads, run, silent

__all__ = ["Pool", "Progress", "n_threads", "run", "silent"]
