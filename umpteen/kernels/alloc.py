"""Allocate arrays in kernels.

numba compiles ``np.empty`` as a separate function for every type, which took a tenth of a cold start. This intrinsic
emits the same instructions into the kernel.
"""

from typing import Any

from numba import types
from numba.core.typing.npydecl import parse_dtype
from numba.extending import intrinsic
from numba.np.arrayobj import _empty_nd_impl


@intrinsic
def empty(typing: Any, n: Any, dtype: Any) -> Any:
    """Return an uninitialised array: ``np.empty(n, dtype)``."""
    signature = types.Array(parse_dtype(dtype), 1, "C")(types.int64, dtype)

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _empty_nd_impl(context, builder, sig.return_type, (args[0],))._getvalue()

    return signature, emit
