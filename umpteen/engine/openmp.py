"""Make OpenMP threads sleep while they wait. Import before torch.

torch computes on OpenMP threads, which spin between two loops by default. That saves microseconds on idle cores but
slows down other processes on busy ones. The OpenMP library reads the environment once, when torch loads it.
"""

import os
import sys

PASSIVE = {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0"}  # GNU's library, and LLVM's and Intel's
_CHOICES = (*PASSIVE, "GOMP_SPINCOUNT", "KMP_LIBRARY")  # variables by which users choose how threads wait


def wait_passively() -> None:
    """Set the environment, unless torch is loaded already or the user has chosen."""
    if "torch" not in sys.modules and not any(name in os.environ for name in _CHOICES):
        os.environ.update(PASSIVE)


wait_passively()
