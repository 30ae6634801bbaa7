"""Arrays in, arrays out. No classes, no files, no settings, no logging: but for ``ahead``, ``cache``, ``compiling`` and
``jit``, which compile kernels and keep what was compiled.

``lazy.solve``, ``lazy.score`` … import their module (and with it numba) when they are first used, so that
importing the library costs nothing.
"""

from __future__ import annotations

import importlib
from types import ModuleType

LANES = 16  # labels that a kernel takes at a time
POSTS = ("identity", "l1-hinge", "l2-hinge", "l3-hinge", "l4-hinge", "sigmoid")  # kernels know them by number


class _Lazy:
    """Modules of this package, imported on first use."""

    def __getattr__(self, name: str) -> ModuleType:
        if name.startswith("_"):  # what doctest and inspect ask of any object
            raise AttributeError(name)
        module = importlib.import_module(f"umpteen.kernels.{name}")
        setattr(self, name, module)
        return module


lazy = _Lazy()
