"""How much memory a training may use, and what for."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from umpteen.errors import BadInput

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(I?)B?\s*", re.IGNORECASE)
_BASE = 250_000_000  # bytes of the interpreter, libraries and compiled kernels
_LEAST = 400_000_000
TORCH = 450_000_000  # bytes of torch, transformers and what they hold, in addition
_CONTAINER = Path("/sys/fs/cgroup/memory.max")  # bytes that Linux lets the processes of a container have, or "max"


class Memory(NamedTuple):
    """A bound on the resident memory of a process, in bytes, and how it is shared out; 0 is no bound.

    Examples
    --------
    >>> Memory.of("8GB").total, Memory.of("512 MiB").total, Memory.of(None).total
    (8000000000, 536870912, 0)
    """

    total: int
    base: int = _BASE  # bytes that a process takes before it has any data

    @classmethod
    def of(cls, size: Any) -> Memory:
        """Return the bound that a user gave: a number of bytes, text such as ``8GB``, or None for no bound."""
        if size is None:
            return cls(0)
        match = _SIZE.fullmatch(str(size))
        if match is None or isinstance(size, bool):
            raise BadInput(f"memory is a number of bytes or text such as '8GB' or '512MB', but is {size!r:.80}")
        unit = _UNITS[match[2].upper()] if not match[3] else 1024 ** list(_UNITS).index(match[2].upper())
        total = int(float(match[1]) * unit)
        if total < _LEAST:
            raise BadInput(f"memory must be at least {_LEAST // 10**6}MB, but is {size!r:.80}; allow more")
        return cls(total)

    def beside(self, n_bytes: int) -> Memory:
        """Return the same bound for a process whose libraries take so many bytes more."""
        if self.total and self.total < _LEAST + n_bytes:
            raise BadInput(
                f"memory must be at least {(_LEAST + n_bytes) // 10**6}MB for a recipe with an encoder, but is "
                f"{self.total // 10**6}MB; allow more"
            )
        return self._replace(base=self.base + n_bytes)

    def shared_by(self, n_workers: int) -> Memory:
        """Return the share of each of some processes, which is at least the smallest bound."""
        return self if n_workers <= 1 or not self.total else Memory(max(self.total // n_workers, _LEAST))

    @property
    def solver(self) -> float:
        """Bytes of the chunks that are solved at the same time; 0 is no bound."""
        return 0.45 * self._free

    @property
    def maps(self) -> float | None:
        """Bytes of mapped files that may be resident; None is no bound."""
        return 0.25 * self._free if self.total else None

    @property
    def part(self) -> float:
        """Bytes of the result of one task."""
        return 0.1 * self._free if self.total else 2.5e8

    @property
    def _free(self) -> float:
        return float(max(self.total - self.base, 0))


@cache
def machine_memory() -> float:
    """Return the bytes of memory that this machine or container has; infinity if that is not known."""
    found = [float("inf")]
    if hasattr(os, "sysconf") and {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= os.sysconf_names.keys():
        found.append(float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES"))
    try:
        limit = _CONTAINER.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        limit = ""
    return min(*found, float(limit)) if limit.isdigit() else min(found)
