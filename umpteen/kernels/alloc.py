"""Arrays that kernels make for themselves.

numba compiles ``np.empty`` anew for every type, a function of its own each time; together they were a tenth of a cold
start. The same few instructions are written into the kernel here.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core.typing.npydecl import parse_dtype
from numba.extending import intrinsic
from numba.np.arrayobj import _empty_nd_impl


@intrinsic
def empty(typing: Any, n: Any, dtype: Any) -> Any:
    """Return a new array of ``n`` values, whatever they are: ``np.empty(n, dtype)``."""
    signature = types.Array(parse_dtype(dtype), 1, "C")(types.int64, dtype)

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _empty_nd_impl(context, builder, sig.return_type, (args[0],))._getvalue()

    return signature, emit
