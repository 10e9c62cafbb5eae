"""Eight float64 side by side as one value: the same arithmetic on eight sentences at once.

Small problems of one shape are faster eight abreast than one after the other: nothing is padded to
whole vectors and no loop depends on the data. A ``Lanes`` value is LLVM's <8 x double>, which is
one register with AVX-512, two with AVX2 and four with SSE2 or NEON; inside kernels it has ``+ - *
/`` (also with a float), ``load``, ``store`` and what is below. Arrays hold lane l of entry i at
``8 * i + l``.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, overload, register_model

from minfer.kernels._jit import jit
from minfer.kernels.vexp import LN2_HI, LN2_LO, LOG2E, MAGIC

LANES = 8
ZERO = -709.3  # its power of two has the exponent bits 0, which is the number 0
_VECTOR = ir.VectorType(ir.DoubleType(), LANES)
_BITS = ir.VectorType(ir.IntType(64), LANES)
_FUSED = ("contract",)  # a product and a sum may become one operation


class Lanes(types.Type):
    def __init__(self) -> None:
        super().__init__(name="Lanes")


lanes = Lanes()


@register_model(Lanes)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


def _shuffle(builder, a, b, order):
    return builder.shuffle_vector(
        a, b, ir.Constant(ir.VectorType(ir.IntType(32), LANES), list(order))
    )


def _all(bits, value):
    return ir.Constant(bits, [value] * LANES)


def _place(context, builder, signature, args):
    array = context.make_array(signature.args[0])(context, builder, args[0])
    return builder.bitcast(builder.gep(array.data, [args[1]]), _VECTOR.as_pointer())


@intrinsic
def load(context, array, at):
    """The eight entries of a flat float64 array from ``at`` on."""

    def codegen(context, builder, signature, args):
        return builder.load(_place(context, builder, signature, args), align=8)

    return lanes(array, types.intp), codegen


@intrinsic
def store(context, array, at, x):
    """array[at : at + 8] = x."""

    def codegen(context, builder, signature, args):
        builder.store(args[2], _place(context, builder, signature, args), align=8)
        return context.get_dummy_value()

    return types.void(array, types.intp, x), codegen


@intrinsic
def splat(context, x):
    """The same number in all lanes."""

    def codegen(context, builder, signature, args):
        none = ir.Constant(_VECTOR, ir.Undefined)
        first = builder.insert_element(none, args[0], ir.Constant(ir.IntType(32), 0))
        return _shuffle(builder, first, none, [0] * LANES)

    return lanes(types.float64), codegen


@intrinsic
def choose(context, a, b, yes, no):
    """``yes`` in the lanes where a > b, else ``no``."""

    def codegen(context, builder, signature, args):
        return builder.select(builder.fcmp_ordered(">", args[0], args[1]), args[2], args[3])

    return lanes(lanes, lanes, lanes, lanes), codegen


@intrinsic
def _power_of_two(context, t):
    """2^k for t = k + MAGIC."""

    def codegen(context, builder, signature, args):
        k = builder.add(builder.bitcast(args[0], _BITS), _all(_BITS, 1023))
        return builder.bitcast(builder.shl(k, _all(_BITS, 52)), _VECTOR)

    return lanes(lanes), codegen


@intrinsic
def transpose(context, rows):
    """Eight values as the rows of a matrix, and its columns; both as tuples."""

    def codegen(context, builder, signature, args):
        x = [builder.extract_value(args[0], i) for i in range(LANES)]
        for bit in (1, 2, 4):
            even = [j if not j & bit else LANES + j - bit for j in range(LANES)]
            odd = [j + bit if not j & bit else LANES + j for j in range(LANES)]
            for i in range(LANES):
                if not i & bit:
                    a, b = x[i], x[i | bit]
                    x[i] = _shuffle(builder, a, b, even)
                    x[i | bit] = _shuffle(builder, a, b, odd)
        return context.make_tuple(builder, signature.return_type, x)

    eight = types.UniTuple(lanes, LANES)
    return eight(eight), codegen


def _operator(symbol, instruction):
    @intrinsic
    def both(context, a, b):
        def codegen(context, builder, signature, args):
            return getattr(builder, instruction)(args[0], args[1], flags=_FUSED)

        return lanes(lanes, lanes), codegen

    @overload(symbol)
    def infix(a, b):
        if isinstance(a, Lanes) and isinstance(b, Lanes):
            return lambda a, b: both(a, b)
        if isinstance(a, Lanes) and isinstance(b, types.Float):
            return lambda a, b: both(a, splat(b))
        if isinstance(a, types.Float) and isinstance(b, Lanes):
            return lambda a, b: both(splat(a), b)
        return None


_operator(operator.add, "fadd")
_operator(operator.sub, "fsub")
_operator(operator.mul, "fmul")
_operator(operator.truediv, "fdiv")


@jit
def larger(a, b):
    """b where one of them is NaN, as is ``smaller``."""
    return choose(a, b, a, b)


@jit
def smaller(a, b):
    return choose(b, a, a, b)


@jit
def bounded(x):
    """x, at least 0 and at most 1."""
    return larger(smaller(x, splat(1.0)), splat(0.0))


@jit
def exp(x):
    """e^x lane by lane for x <= 1 or so, 0 below -708.7. Relative error about 5e-16.

    e^r by its best polynomial of degree 10 that begins with 1 + r, |r| <= ln 2 / 2.
    """
    w = larger(splat(ZERO), x)  # this way round NaN stays
    t = w * LOG2E + MAGIC
    k = t - MAGIC
    r = (w - k * LN2_HI) - k * LN2_LO
    p = r * 2.7635605664348657e-07 + 2.763530310839762e-06
    p = p * r + 2.4801478121788737e-05
    p = p * r + 0.00019841184478840674
    p = p * r + 0.0013888888957724086
    p = p * r + 0.008333333371438332
    p = p * r + 0.041666666666480404
    p = p * r + 0.16666666666610283
    p = p * r + 0.5000000000000016
    p = p * r + 1.0
    p = p * r + 1.0
    return p * _power_of_two(t)
