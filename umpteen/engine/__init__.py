"""Run tasks on threads."""

from umpteen.engine.local import Pool, Progress, n_threads, run, silent

__all__ = ["Pool", "Progress", "n_threads", "run", "silent"]
