"""A module of tasks that tests put inside the package, for this process and for those that engines start."""

import os
from pathlib import Path

import pytest

import umpteen

# Imports of every module, and tasks that fail or end their process.
COMMON = """
import hashlib, os, signal, time
from pathlib import Path
from umpteen.engine import task
from umpteen.errors import BadInput

@task
def fail(threads):
    raise BadInput("row 3 is empty; fill it")

@task
def die(threads):
    os.kill(os.getpid(), signal.SIGKILL)

@task
def die_once(path, threads):
    if not Path(path).exists():
        Path(path).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"
"""


def install(folder: Path, name: str, source: str, patch: pytest.MonkeyPatch) -> None:
    """Make ``umpteen.NAME`` a module of the common tasks and those of ``source``."""
    (folder / f"{name}.py").write_text(COMMON + source)
    (folder / "sitecustomize.py").write_text(f"import umpteen; umpteen.__path__.append({str(folder)!r})")
    patch.setattr(umpteen, "__path__", [*umpteen.__path__, str(folder)])
    patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)  # for nodes of a cluster
    patch.syspath_prepend(str(folder))  # for other processes
