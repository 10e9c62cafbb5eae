"""Many floats side by side as one value: the same arithmetic on many sentences at once.

Small problems of one shape are faster abreast than one after the other: nothing is padded to whole
vectors and no loop depends on the data. A ``Lanes`` value is LLVM's <8 x double> or <16 x float>,
one register with AVX-512, two with AVX2 and four with SSE2 or NEON. Inside kernels it has
``+ - * /`` (also with a float) and what is below. Arrays hold lane l of entry i at
``i * lanes_of(array) + l``.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, overload, register_model

from minfer.kernels.arithmetic.powers import LN2_HI, LN2_LO, LOG2E, MAGIC, SQRT_HALF
from minfer.kernels.compiling import plain as _plain
from minfer.kernels.compiling.jit import jit
from minfer.kernels.compiling.plain import instead

BITS = 512
ZERO = -709.3  # its power of two has the exponent bits 0, which is the number 0
ZERO_32 = -28.0
MAGIC_32 = 12582912.0  # 1.5 * 2**23
LN2_HI_32 = 0.693359375  # few bits, so that its product with an exponent is exact
LN2_LO_32 = -2.12194440e-4
_FUSED = ("contract",)  # a product and a sum may become one operation


class Lanes(types.Type):
    """``count`` numbers of a numba type. Of a *strict* kind, no product and sum become one
    operation: then a lane has the same bits in vectors of any width."""

    def __init__(self, dtype: types.Float, count: int, strict: bool) -> None:
        super().__init__(name=f"Lanes({dtype}, {count}, {strict})")
        self.dtype = dtype
        self.count = count
        self.flags = () if strict else _FUSED
        element = ir.DoubleType() if dtype == types.float64 else ir.FloatType()
        self.vector = ir.VectorType(element, self.count)
        self.bits = ir.VectorType(ir.IntType(dtype.bitwidth), self.count)


_FLOATS = (types.float32, types.float64)
_LANES = {dtype: Lanes(dtype, BITS // dtype.bitwidth, False) for dtype in _FLOATS}
_STRICT = {dtype: Lanes(dtype, BITS // dtype.bitwidth, True) for dtype in _FLOATS}
_LONE = {dtype: Lanes(dtype, 1, True) for dtype in _FLOATS}


@register_model(Lanes)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, kind.vector)


def _named(function, name):
    """A function made by another one, under a name that says which: machine code has it, too."""
    function.__name__ = function.__qualname__ = name
    return function


def _kind(like):
    """The kind of lanes in an array, or of a value."""
    return like if isinstance(like, Lanes) else _LANES[like.dtype]


def _shuffle(builder, a, b, order):
    return builder.shuffle_vector(
        a, b, ir.Constant(ir.VectorType(ir.IntType(32), len(order)), list(order))
    )


def _transpose(builder, x):
    """The columns of a square matrix of rows."""
    x = list(x)
    bit = 1
    while bit < len(x):
        even = [j if not j & bit else len(x) + j - bit for j in range(len(x))]
        odd = [j + bit if not j & bit else len(x) + j for j in range(len(x))]
        for i in range(len(x)):
            if not i & bit:
                a, b = x[i], x[i | bit]
                x[i], x[i | bit] = _shuffle(builder, a, b, even), _shuffle(builder, a, b, odd)
        bit *= 2
    return x


class _Memory:
    """An array of floats, for code that is being generated; its lanes are as many as ``kind``'s."""

    def __init__(self, context, builder, array_type, array, kind):
        own = _LANES[array_type.dtype]
        self.builder, self.kind = builder, kind
        self.vector = ir.VectorType(own.vector.element, kind.count)
        self.align = own.dtype.bitwidth // 8
        self.data = context.make_array(array_type)(context, builder, array).data

    def _place(self, at):
        return self.builder.bitcast(self.builder.gep(self.data, [at]), self.vector.as_pointer())

    def load(self, at):
        x = self.builder.load(self._place(at), align=self.align)
        return self._converted(x, self.kind.vector)

    def store(self, at, x):
        self.builder.store(self._converted(x, self.vector), self._place(at), align=self.align)

    def _converted(self, x, to):
        if x.type == to:
            return x
        wide = isinstance(to.element, ir.DoubleType)
        return self.builder.fpext(x, to) if wide else self.builder.fptrunc(x, to)


@instead(_plain.lanes_of)
@intrinsic
def lanes_of(context, array):
    """How many lanes a value of this array has."""
    count = _kind(array).count

    def codegen(context, builder, signature, args):
        return context.get_constant(types.intp, count)

    return types.intp(array), codegen


def _zeros(kinds, name):
    def zero(context, array):
        kind = kinds[array.dtype]

        def codegen(context, builder, signature, args):
            return ir.Constant(kind.vector, [0.0] * kind.count)

        return kind(array), codegen

    return intrinsic(_named(zero, name))


#: 0 in all lanes of an array, strict: a ``like`` for what is below. Then the same for a single one.
strict = instead(_plain.strict)(_zeros(_STRICT, "strict"))
lone = instead(_plain.lone)(_zeros(_LONE, "lone"))


@instead(_plain.load_lanes)
@intrinsic
def load(context, array, at):
    """The lanes of a flat array from ``at`` on."""

    def codegen(context, builder, signature, args):
        return _Memory(context, builder, array, args[0], _kind(array)).load(args[1])

    return _kind(array)(array, types.intp), codegen


@instead(_plain.load_as)
@intrinsic
def load_as(context, like, array, at):
    """As many entries of an array as ``like`` has lanes, and of its kind."""

    def codegen(context, builder, signature, args):
        return _Memory(context, builder, array, args[1], _kind(like)).load(args[2])

    return _kind(like)(like, array, types.intp), codegen


@instead(_plain.store_lanes)
@intrinsic
def store(context, array, at, x):
    """array[at : at + lanes] = x."""

    def codegen(context, builder, signature, args):
        _Memory(context, builder, array, args[0], x).store(args[1], args[2])
        return context.get_dummy_value()

    return types.void(array, types.intp, x), codegen


@instead(_plain.splat)
@intrinsic
def splat(context, like, x):
    """The same number in all lanes, of the kind of ``like``, an array or a value."""
    kind = _kind(like)

    def codegen(context, builder, signature, args):
        none = ir.Constant(kind.vector, ir.Undefined)
        first = builder.insert_element(none, args[1], ir.Constant(ir.IntType(32), 0))
        return _shuffle(builder, first, none, [0] * kind.count)

    return kind(like, kind.dtype), codegen


@instead(_plain.choose)
@intrinsic
def choose(context, a, b, yes, no):
    """``yes`` in the lanes where a > b, else ``no``."""

    def codegen(context, builder, signature, args):
        return builder.select(builder.fcmp_ordered(">", args[0], args[1]), args[2], args[3])

    return a(a, a, a, a), codegen


@instead(_plain.magnitude)
@intrinsic
def magnitude(context, x):
    """|x|."""

    def codegen(context, builder, signature, args):
        name = f"llvm.fabs.v{x.count}f{x.dtype.bitwidth}"
        kind = ir.FunctionType(x.vector, [x.vector])
        return builder.call(builder.module.declare_intrinsic(name, fnty=kind), args)

    return x(x), codegen


def _rows(into, name):
    def move(context, x, start, m, line):
        def codegen(context, builder, signature, args):
            rows, columns = _both_ways(context, builder, signature, args)
            source, target = (rows, columns) if into else (columns, rows)
            found = _transpose(builder, [memory.load(at) for memory, at in source])
            for (memory, at), vector in zip(target, found, strict=True):
                memory.store(at, vector)
            return context.get_dummy_value()

        return types.void(x, start, types.intp, line), codegen

    return intrinsic(_named(move, name))


# (x, start, m, line): as many columns from m on as there are lanes, of one row of each sentence,
# between ``x``, where ``start`` i8 (lanes,) tells the rows' beginnings, and ``line``, where column
# j is entry j and sentence l is in lane l
rows_into_lanes = instead(_plain.rows_into_lanes)(_rows(True, "rows_into_lanes"))
rows_out_of_lanes = instead(_plain.rows_out_of_lanes)(_rows(False, "rows_out_of_lanes"))


def _both_ways(context, builder, signature, args):
    """Where the rows of sentences and the entries of the line are."""
    kind = _kind(signature.args[3])
    x = _Memory(context, builder, signature.args[0], args[0], kind)
    line = _Memory(context, builder, signature.args[3], args[3], kind)
    starts = context.make_array(signature.args[1])(context, builder, args[1]).data
    rows, columns = [], []
    for lane in range(kind.count):
        start = builder.load(builder.gep(starts, [context.get_constant(types.intp, lane)]))
        rows.append((x, builder.add(start, args[2])))
        entry = builder.add(args[2], context.get_constant(types.intp, lane))
        columns.append((line, builder.mul(entry, context.get_constant(types.intp, kind.count))))
    return rows, columns


@instead(_plain.power_of_two)
@intrinsic
def _power_of_two(context, t):
    """2^k for t = k + MAGIC."""
    bias, mantissa = (1023, 52) if t.dtype == types.float64 else (127, 23)

    def codegen(context, builder, signature, args):
        def everywhere(x):
            return ir.Constant(t.bits, [x] * t.count)

        k = builder.add(builder.bitcast(args[0], t.bits), everywhere(bias))
        return builder.bitcast(builder.shl(k, everywhere(mantissa)), t.vector)

    return t(t), codegen


def _operator(symbol, instruction):
    """An infix operator; each function of each operator has a name of its own."""
    name = symbol.__name__

    def both(context, a, b):
        def codegen(context, builder, signature, args):
            return getattr(builder, instruction)(args[0], args[1], flags=a.flags)

        return a(a, a), codegen

    both = instead(symbol)(intrinsic(_named(both, f"_{name}_both")))

    def infix(a, b):
        if isinstance(a, Lanes) and isinstance(b, Lanes):
            return _named(lambda a, b: both(a, b), f"{name}_lanes_lanes")
        if isinstance(a, Lanes) and isinstance(b, types.Float):
            return _named(lambda a, b: both(a, splat(a, b)), f"{name}_lanes_float")
        if isinstance(a, types.Float) and isinstance(b, Lanes):
            return _named(lambda a, b: both(splat(b, a), b), f"{name}_float_lanes")
        return None

    overload(symbol)(_named(infix, f"_{name}_infix"))


_operator(operator.add, "fadd")
_operator(operator.sub, "fsub")
_operator(operator.mul, "fmul")
_operator(operator.truediv, "fdiv")


@jit
def aligned(size, like):
    """An empty array of the type of ``like``, an array, that begins on a cache line."""
    lanes = lanes_of(like)
    out = np.empty(size + lanes, like.dtype)
    first = (-(out.ctypes.data // out.itemsize)) & (lanes - 1)
    return out[first : first + size]


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
    return larger(smaller(x, splat(x, 1.0)), splat(x, 0.0))


@jit
def _exp_64(x):
    """e^r by its best polynomial of degree 10 that begins with 1 + r, |r| <= ln 2 / 2."""
    w = larger(splat(x, ZERO), x)  # this way round NaN stays
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


@jit
def _exp_32(x):
    """The same with degree 6, and 0 below ZERO_32: few products of such numbers are denormal."""
    w = larger(splat(x, ZERO_32), x)
    t = w * LOG2E + MAGIC_32
    k = t - MAGIC_32
    r = (w - k * LN2_HI_32) - k * LN2_LO_32
    p = r * 0.001392625083 + 0.008363232884
    p = p * r + 0.04166655421
    p = p * r + 0.1666657667
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    return choose(splat(x, ZERO_32), x, splat(x, 0.0), p * _power_of_two(t))


def _plain_exp(x):
    """The twin of what ``_exp`` below chooses from."""
    return _exp_64(x) if x.itemsize == 8 else _exp_32(x)


@instead(_plain_exp)
def exp(x):
    """e^x lane by lane for x <= 1 or so; relative error 5e-16, in float32 2e-7.

    It is 0 below -708.7, in float32 below -28.
    """


@overload(exp)
def _exp(x):
    if x.dtype == types.float64:
        return _named(lambda x: _exp_64(x), "exp_lanes_64")
    return _named(lambda x: _exp_32(x), "exp_lanes_32")


@instead(_plain.taken_apart)
@intrinsic
def _taken_apart(context, x):
    """The mantissa of a normal float64, in [0.5, 1), and the exponent that goes with it."""

    def codegen(context, builder, signature, args):
        def everywhere(bits):
            return ir.Constant(x.bits, [bits] * x.count)

        bits = builder.bitcast(args[0], x.bits)
        mantissa = builder.or_(
            builder.and_(bits, everywhere(0x000FFFFFFFFFFFFF)), everywhere(0x3FE0000000000000)
        )
        # the exponent as a float without an integer conversion, which AVX2 has not
        exponent = builder.or_(
            builder.and_(builder.lshr(bits, everywhere(52)), everywhere(0x7FF)),
            everywhere(0x4330000000000000),
        )
        both = [builder.bitcast(part, x.vector) for part in (mantissa, exponent)]
        return context.make_tuple(builder, signature.return_type, both)

    return types.UniTuple(x, 2)(x), codegen


@jit
def log(x):
    """log x lane by lane, in float64, for normal numbers above 0; as ``vexp.log_in_place``."""
    m, e = _taken_apart(x)
    e = e - (4503599627370496.0 + 1022.0)
    small = splat(x, SQRT_HALF)
    e = choose(small, m, e - 1.0, e)
    m = choose(small, m, m + m, m)
    f = (m - 1.0) / (m + 1.0)
    g = f * f
    g2 = g * g
    g4 = g2 * g2
    low = (g * (1.0 / 5.0) + 1.0 / 3.0) + g2 * (g * (1.0 / 9.0) + 1.0 / 7.0)
    mid = (g * (1.0 / 13.0) + 1.0 / 11.0) + g2 * (g * (1.0 / 17.0) + 1.0 / 15.0)
    p = g * (low + g4 * (mid + g4 * (g * (1.0 / 21.0) + 1.0 / 19.0)))
    return e * LN2_HI + (e * LN2_LO + 2.0 * (f + f * p))
