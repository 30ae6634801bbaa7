"""How kernels are compiled: lazily, cached on disk, without the GIL, never with numba's own threads."""

from __future__ import annotations

import os
import tempfile

# A read-only installation has no place for the cache beside the source: numba then fails at the first
# call unless it is told of another place, so the process gets one before numba is imported.
if "NUMBA_CACHE_DIR" not in os.environ and not os.access(os.path.dirname(__file__), os.W_OK):
    _home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    _root = _home if os.access(_home, os.W_OK) else tempfile.gettempdir()
    os.environ["NUMBA_CACHE_DIR"] = os.path.join(_root, "umpteen", "numba")

import numba

# Reordering sums is allowed, ignoring NaN is not: inputs are checked before they get here.
_FASTMATH = {"contract", "reassoc", "nsz", "arcp"}

jit = numba.njit(cache=True, nogil=True, fastmath=_FASTMATH, boundscheck=False)
inline = numba.njit(cache=True, nogil=True, fastmath=_FASTMATH, boundscheck=False, inline="always")
