"""Run tasks on threads, and report on long work: progress and records."""

from umpteen.engine.history import (
    Callback,
    History,
    Record,
    check_callbacks,
    ignore,
    number,
    stage_name,
    with_model,
    with_prefix,
)
from umpteen.engine.local import Pool, Progress, n_threads, run, silent

__all__ = [
    "Callback", "History", "Pool", "Progress", "Record", "check_callbacks", "ignore", "n_threads", "number", "run",
    "silent", "stage_name", "with_model", "with_prefix",
]  # fmt: skip
