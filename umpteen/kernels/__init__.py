"""Compiled loops over arrays. ``jit``, ``cache``, ``ahead`` and ``compiling`` compile them and cache the result.

``lazy.solve``, ``lazy.score`` and so on import their module, and with it numba, on first use.
"""

import importlib
from types import ModuleType

LANES = 16  # labels that are computed at a time
POSTS = ("identity", "l1-hinge", "l2-hinge", "l3-hinge", "l4-hinge", "sigmoid")  # kernels take their index


class _Lazy:
    """Modules of this package, imported on first use."""

    def __getattr__(self, name: str) -> ModuleType:
        if name.startswith("_"):  # attributes that doctest and inspect look up
            raise AttributeError(name)
        module = importlib.import_module(f"umpteen.kernels.{name}")
        setattr(self, name, module)
        return module


lazy = _Lazy()
