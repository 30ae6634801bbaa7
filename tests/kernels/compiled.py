"""A way in from Python to functions that only kernels call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def compiled(function: Any) -> Callable[..., Any]:
    """Return a compiled function that calls ``function`` with its own arguments."""
    return numba.njit(lambda *arguments: function(*arguments))
