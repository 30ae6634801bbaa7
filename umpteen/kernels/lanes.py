"""Vector loops over sixteen labels, of which all hot loops consist.

A table of weights ``W`` has one row per feature and ``LANES`` columns, one per label. For a sparse row,

- ``dot(W, indices, values, start, stop, out)`` adds the ``LANES`` products text · label to ``out``;
- ``axpy(W, indices, values, start, stop, step)`` adds ``value * step`` to each row of ``W`` it touches.

They are written as LLVM vectors: in a plain loop LLVM does not know that ``out`` and ``W`` do not overlap and keeps the
sums in memory, which takes 5.6 ns per feature instead of 0.7–1.5. A vector is one AVX-512 register or two of AVX.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from umpteen.kernels import LANES

_UNROLL = 4  # number of independent sums, which hide the latency of a fused multiply-add

_I8, _I32, _I64, F32 = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()
VECTOR = ir.VectorType(F32, LANES)
_NO_VECTOR = ir.Constant(VECTOR, ir.Undefined)
_FIRST = ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES)


def data_of(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    return context.make_array(kind)(context, builder, array).data


def load(builder: Any, pointer: Any) -> Any:
    value = builder.load(builder.bitcast(pointer, VECTOR.as_pointer()))
    value.align = 4  # rows of a view need not be aligned
    return value


def store(builder: Any, value: Any, pointer: Any) -> None:
    builder.store(value, builder.bitcast(pointer, VECTOR.as_pointer())).align = 4


def splat(builder: Any, scalar: Any) -> Any:
    first = builder.insert_element(_NO_VECTOR, scalar, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first, _NO_VECTOR, _FIRST)


def fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    kind = ir.FunctionType(VECTOR, [VECTOR] * 3)
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{LANES}f32")
    return builder.call(function, [a, b, c])


def _feature(builder: Any, table: Any, indices: Any, values: Any, k: Any) -> tuple[Any, Any]:
    """Return the address of the row of feature k in the table, and its value in every lane."""
    row = builder.zext(builder.load(builder.gep(indices, [k])), _I64)
    address = builder.gep(table, [builder.mul(row, ir.Constant(_I64, LANES))])
    return address, splat(builder, builder.load(builder.gep(values, [k])))


def _loop(builder: Any, counter: Any, stop: Any, step: int, body: Any) -> None:
    """Emit ``while counter < stop: body(counter); counter += step``."""
    head, inside, after = (builder.append_basic_block(name) for name in ("head", "inside", "after"))
    builder.branch(head)
    builder.position_at_end(head)
    k = builder.load(counter)
    builder.cbranch(builder.icmp_signed("<", k, stop), inside, after)
    builder.position_at_end(inside)
    body(k)
    builder.store(builder.add(k, ir.Constant(_I64, step)), counter)
    builder.branch(head)
    builder.position_at_end(after)


def add_products(builder: Any, total: Any, table: Any, indices: Any, values: Any, start: Any, stop: Any) -> Any:
    """Emit ``total + sum over k in start..stop of values[k] * table[indices[k], :]`` and return that vector."""
    zero = ir.Constant(VECTOR, [0.0] * LANES)
    sums = [cgutils.alloca_once_value(builder, zero) for _ in range(_UNROLL)]
    for extra in sums[1:]:  # alloca_once initialises at function entry only, but this code may run in a loop
        builder.store(zero, extra)
    builder.store(total, sums[0])

    def accumulate(count: int) -> Any:
        def body(k: Any) -> None:
            for j in range(count):
                address, value = _feature(builder, table, indices, values, builder.add(k, ir.Constant(_I64, j)))
                builder.store(fma(builder, value, load(builder, address), builder.load(sums[j])), sums[j])

        return body

    unrolled = builder.sub(stop, builder.srem(builder.sub(stop, start), ir.Constant(_I64, _UNROLL)))
    counter = cgutils.alloca_once(builder, _I64)
    builder.store(start, counter)
    _loop(builder, counter, unrolled, _UNROLL, accumulate(_UNROLL))
    _loop(builder, counter, stop, 1, accumulate(1))
    total = builder.load(sums[0])
    for extra in sums[1:]:
        total = builder.fadd(total, builder.load(extra))
    return total


@intrinsic
def dot(typing: Any, table: Any, indices: Any, values: Any, start: Any, stop: Any, out: Any) -> Any:
    """out[:] += sum over k in start..stop of values[k] * table[indices[k], :]."""
    signature = types.void(table, indices, values, types.int64, types.int64, out)

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        table, indices, values, out = (data_of(context, builder, sig.args[i], args[i]) for i in (0, 1, 2, 5))
        store(builder, add_products(builder, load(builder, out), table, indices, values, args[3], args[4]), out)
        return context.get_dummy_value()

    return signature, emit


@intrinsic
def axpy(typing: Any, table: Any, indices: Any, values: Any, start: Any, stop: Any, step: Any) -> Any:
    """table[indices[k], :] += values[k] * step[:] for k in start..stop."""
    signature = types.void(table, indices, values, types.int64, types.int64, step)

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        table, indices, values, step = (data_of(context, builder, sig.args[i], args[i]) for i in (0, 1, 2, 5))
        step = load(builder, step)
        counter = cgutils.alloca_once(builder, _I64)
        builder.store(args[3], counter)

        def body(k: Any) -> None:
            address, value = _feature(builder, table, indices, values, k)
            store(builder, fma(builder, value, step, load(builder, address)), address)

        _loop(builder, counter, args[4], 1, body)
        return context.get_dummy_value()

    return signature, emit


def _compare(operator: str, values: Any) -> tuple[Any, Any]:
    """Return signature and code of an intrinsic that compares lanes with a bound; bit b of its result is lane b."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vector = load(builder, data_of(context, builder, sig.args[0], args[0]))
        found = builder.fcmp_ordered(operator, vector, splat(builder, args[1]))
        return builder.zext(builder.bitcast(found, ir.IntType(LANES)), _I64)

    return types.int64(values, types.float32), emit


@intrinsic
def reaching(typing: Any, values: Any, bound: Any) -> Any:
    """Return the lanes whose value is at least ``bound``, as a bit mask."""
    return _compare(">=", values)


@intrinsic
def above(typing: Any, values: Any, bound: Any) -> Any:
    """Return the lanes whose value is more than ``bound``, as a bit mask."""
    return _compare(">", values)


@intrinsic
def count_bits(typing: Any, bits: Any) -> Any:
    """Return the number of bits that are set."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.int64), emit


@intrinsic
def lowest_bit(typing: Any, bits: Any) -> Any:
    """Return the position of the lowest bit that is set; not for zero."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), emit


@intrinsic
def prefetch(typing: Any, array: Any, index: Any) -> Any:
    """Prefetch array[index] into the caches of the processor; any index is allowed."""
    signature = types.void(array, types.int64)

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address = builder.gep(data_of(context, builder, sig.args[0], args[0]), [args[1]])
        kind = ir.FunctionType(ir.VoidType(), [_I8.as_pointer(), _I32, _I32, _I32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        read, keep, data = (ir.Constant(_I32, flag) for flag in (0, 3, 1))
        builder.call(function, [builder.bitcast(address, _I8.as_pointer()), read, keep, data])
        return context.get_dummy_value()

    return signature, emit
