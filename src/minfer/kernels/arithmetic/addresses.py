"""Doubles by their address, one or eight at a time.

A call of a kernel counts references to every array it is handed, 5 to 10 ns each, which is more
than the arithmetic on a short vector takes. An address is a number: functions that take addresses
cost what is in them. Whoever calls them holds the arrays.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from minfer.kernels.arithmetic.lanes import _LANES, _named
from minfer.kernels.compiling import plain as _plain
from minfer.kernels.compiling.plain import instead

L = 8  # lanes of a vector of doubles
SPAN = 64  # bytes of them
_KIND = _LANES[types.float64]


@instead(_plain.address)
@intrinsic
def address(context, array):
    """Where the numbers of an array begin."""

    def codegen(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return types.int64(array), codegen


def _place(builder, at, kind):
    return builder.inttoptr(at, kind.as_pointer())


@instead(_plain.get)
@intrinsic
def get(context, at):
    """The double at an address."""

    def codegen(context, builder, signature, args):
        return builder.load(_place(builder, args[0], ir.DoubleType()), align=8)

    return types.float64(types.int64), codegen


@instead(_plain.put)
@intrinsic
def put(context, at, x):
    """Write a double to an address."""

    def codegen(context, builder, signature, args):
        builder.store(args[1], _place(builder, args[0], ir.DoubleType()), align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.float64), codegen


@instead(_plain.load)
@intrinsic
def load(context, at):
    """The eight doubles from an address on."""

    def codegen(context, builder, signature, args):
        return builder.load(_place(builder, args[0], _KIND.vector), align=8)

    return _KIND(types.int64), codegen


@instead(_plain.store)
@intrinsic
def store(context, at, x):
    """Write eight doubles from an address on."""

    def codegen(context, builder, signature, args):
        builder.store(args[1], _place(builder, args[0], _KIND.vector), align=8)
        return context.get_dummy_value()

    return types.void(types.int64, _KIND), codegen


@instead(_plain.spread)
@intrinsic
def spread(context, x):
    """The same number eight times."""

    def codegen(context, builder, signature, args):
        none = ir.Constant(_KIND.vector, ir.Undefined)
        first = builder.insert_element(none, args[0], ir.Constant(ir.IntType(32), 0))
        order = ir.Constant(ir.VectorType(ir.IntType(32), L), [0] * L)
        return builder.shuffle_vector(first, none, order)

    return _KIND(types.float64), codegen


@instead(_plain.greater)
@intrinsic
def greater(context, x, y):
    """The larger lane by lane, none NaN: one instruction, unlike ``lanes.larger``."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(_KIND.vector, [_KIND.vector] * 2)
        call = builder.module.declare_intrinsic(f"llvm.maxnum.v{L}f64", fnty=kind)
        return builder.call(call, args, fastmath=("nnan", "nsz"))

    return _KIND(_KIND, _KIND), codegen


def _lane(builder, x, i):
    return builder.extract_element(x, ir.Constant(ir.IntType(32), i))


@instead(_plain.total)
@intrinsic
def total(context, x):
    """The sum of eight lanes, in pairs."""

    def codegen(context, builder, signature, args):
        parts = [_lane(builder, args[0], i) for i in range(L)]
        while len(parts) > 1:
            parts = [builder.fadd(a, b) for a, b in zip(parts[::2], parts[1::2])]
        return parts[0]

    return types.float64(_KIND), codegen


def _extreme(sign, name):
    def extreme(context, x):
        def codegen(context, builder, signature, args):
            parts = [_lane(builder, args[0], i) for i in range(L)]
            while len(parts) > 1:
                parts = [
                    builder.select(builder.fcmp_ordered(sign, a, b), a, b)
                    for a, b in zip(parts[::2], parts[1::2])
                ]
            return parts[0]

        return types.float64(_KIND), codegen

    return intrinsic(_named(extreme, name))


most = instead(_plain.most)(_extreme(">", "most"))  # of eight lanes, none of which is NaN
least = instead(_plain.least)(_extreme("<", "least"))
