"""The place of this process among those that torchrun has started together: its rank, and how many there are.

Knows the environment that torchrun sets, not how processes exchange anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from umpteen.errors import BadConfig

_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")  # that torchrun sets


@dataclass(frozen=True)
class Place:
    """A process among several: ``local_rank`` counts those of one machine."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def is_main(self) -> bool:
        """Whether this process writes, prints, and does what is not divided."""
        return self.rank == 0


_ALONE = Place()
_present = _ALONE


def given_place() -> Place | None:
    """Return the place that torchrun has given to this process, None if torchrun did not start it."""
    if any(name not in os.environ for name in _VARIABLES):
        return None
    rank, size, local_rank = (_number(name) for name in _VARIABLES[:3])
    if not 0 <= rank < size:
        raise BadConfig(f"RANK is {rank} and WORLD_SIZE is {size}, but ranks count from 0; start with torchrun")
    return Place(rank, size, local_rank)


def present() -> Place:
    """Return the place of this process in the training that it takes part in; alone, it is rank 0 of 1."""
    return _present


@contextmanager
def placed(place: Place) -> Iterator[None]:
    """Let this process have a place."""
    global _present
    _present = place
    try:
        yield
    finally:
        _present = _ALONE


def _number(name: str) -> int:
    value = os.environ[name]
    if not value.isdecimal():
        raise BadConfig(f"{name} must be a number, but is '{value}'; start with torchrun, or unset it")
    return int(value)
