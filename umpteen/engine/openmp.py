"""Let OpenMP's threads sleep while they wait. To be imported before torch.

torch computes on threads of OpenMP. Between two loops they spin, by default: that saves microseconds on idle cores, and
keeps the cores from any other process that could use them, which slows both down. The OpenMP library reads the
environment once, when torch loads it.
"""

from __future__ import annotations

import os
import sys

PASSIVE = {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0"}  # GNU's library, and LLVM's and Intel's
_CHOICES = (*PASSIVE, "GOMP_SPINCOUNT", "KMP_LIBRARY")  # with which users say how threads wait


def wait_passively() -> None:
    """Set the environment, unless torch is loaded already or the user has chosen."""
    if "torch" not in sys.modules and not any(name in os.environ for name in _CHOICES):
        os.environ.update(PASSIVE)


wait_passively()
