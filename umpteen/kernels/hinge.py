"""One dual coordinate step on a row, for sixteen labels at once, in vector registers.

On short rows most of a step is not the product with the weights but the arithmetic around it. As loops over lanes it
would go through memory seven times; as LLVM vectors it stays in registers.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from umpteen.kernels import LANES
from umpteen.kernels.lanes import F32, VECTOR, add_products, data_of, fma, load, splat, store


def _constant(value: float) -> Any:
    return ir.Constant(VECTOR, [value] * LANES)


def _call(builder: Any, name: str, result: Any, *args: Any) -> Any:
    kind = ir.FunctionType(result, [arg.type for arg in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)


def _largest(builder: Any, a: Any, b: Any) -> Any:
    return _call(builder, f"llvm.maxnum.v{LANES}f32", VECTOR, a, b)


@intrinsic
def hinge_step(
    typing: Any, weights: Any, ids: Any, values: Any, start: Any, stop: Any, dense_weights: Any, dense_ids: Any,
    dense: Any, n_dense: Any, bias_weights: Any, bias: Any, private: Any, beta: Any, row: Any, row_square: Any,
    target: Any, cost: Any, lanes: Any, step: Any,
) -> Any:  # fmt: skip
    """Write the steps of the dual variables ``beta[row]`` to their optima to ``step``; return the largest.

    ``target`` (1 or −1), ``cost`` and ``lanes`` (1 for labels, 0 for unused lanes) have one entry per lane.
    """
    f32, i64 = types.float32, types.int64
    signature = f32(
        weights, ids, values, i64, i64, dense_weights, dense_ids, dense, i64, bias_weights, f32, f32, beta, i64, f32,
        target, cost, lanes, step,
    )  # fmt: skip

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        arrays = {i: data_of(context, builder, sig.args[i], args[i]) for i in (0, 1, 2, 5, 6, 7, 9, 12, 15, 16, 17, 18)}
        bias, private, row_square = (splat(builder, args[i]) for i in (10, 11, 14))
        place = builder.gep(arrays[12], [builder.mul(args[13], ir.Constant(ir.IntType(64), LANES))])
        old, target, cost, used = (load(builder, at) for at in (place, arrays[15], arrays[16], arrays[17]))
        score = fma(builder, bias, load(builder, arrays[9]), builder.fmul(private, old))
        score = add_products(builder, score, arrays[0], arrays[1], arrays[2], args[3], args[4])
        zero = ir.Constant(ir.IntType(64), 0)
        score = add_products(builder, score, arrays[5], arrays[6], arrays[7], zero, args[8])
        half = _constant(0.5)
        # the optimum, multiplied through by the cost, which may be zero
        slope = fma(builder, cost, builder.fsub(score, target), builder.fmul(half, old))
        new = builder.fsub(old, builder.fdiv(slope, fma(builder, cost, row_square, half)))
        new = builder.fmul(target, _largest(builder, builder.fmul(target, new), _constant(0.0)))
        move = builder.fmul(builder.fsub(new, old), used)
        store(builder, move, arrays[18])
        size = _call(builder, f"llvm.fabs.v{LANES}f32", VECTOR, move)
        return _call(builder, f"llvm.vector.reduce.fmax.v{LANES}f32", F32, size)

    return signature, emit


@intrinsic
def add_step(typing: Any, beta: Any, row: Any, bias_weights: Any, bias: Any, step: Any) -> Any:
    """beta[row] += step; bias_weights += bias * step."""
    signature = types.void(beta, types.int64, bias_weights, types.float32, step)

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        beta, bias_weights, step = (data_of(context, builder, sig.args[i], args[i]) for i in (0, 2, 4))
        place = builder.gep(beta, [builder.mul(args[1], ir.Constant(ir.IntType(64), LANES))])
        move = load(builder, step)
        store(builder, builder.fadd(load(builder, place), move), place)
        store(builder, fma(builder, splat(builder, args[3]), move, load(builder, bias_weights)), bias_weights)
        return context.get_dummy_value()

    return signature, emit
