"""Run work on threads, in processes or on a cluster, and report on long work: progress and records."""

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
from umpteen.engine.memory import Memory, machine_memory
from umpteen.engine.tasks import Engine, LocalEngine, Task, name_of, task

__all__ = [
    "Callback", "Engine", "History", "LocalEngine", "Memory", "Pool", "Progress", "Record", "Task", "check_callbacks",
    "ignore", "machine_memory", "n_threads", "name_of", "number", "run", "silent", "stage_name", "task", "with_model",
    "with_prefix",
]  # fmt: skip
