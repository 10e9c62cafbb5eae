"""exp and log of whole arrays in a form that LLVM vectorises, for log-space tables.

A float is taken apart by its bits: e^x = 2^k e^r with |r| <= ln 2 / 2, and log(m 2^k) = k ln 2 +
log m, each with a polynomial. Minus infinity is legal.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from minfer.kernels.arithmetic.powers import EXP_MIN, LN2_HI, LN2_LO, LOG2E, MAGIC, SQRT_HALF
from minfer.kernels.compiling import plain as _plain
from minfer.kernels.compiling.jit import jit
from minfer.kernels.compiling.plain import instead

TINY = 2.2250738585072014e-308


@instead(_plain.bits_of)
@intrinsic
def bits_of(context, x):
    """The bits of a float64 as an int64."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@instead(_plain.double_of)
@intrinsic
def double_of(context, bits):
    """The float64 with these bits."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@jit(fastmath={"contract"})
def exp_in_place(x):
    """x <- exp(x) for x <= 1 or so; minus infinity gives 0. Relative error about 2e-16."""
    for i in range(x.size):
        v = x[i]
        w = v if v > EXP_MIN else EXP_MIN
        t = w * LOG2E + MAGIC
        k = t - MAGIC
        r = (w - k * LN2_HI) - k * LN2_LO
        # the Taylor series to r^13 in pairs (Estrin): a shorter chain of dependent operations
        r2 = r * r
        r4 = r2 * r2
        low = (1.0 + r) + r2 * (0.5 + r * (1.0 / 6.0))
        mid = (1.0 / 24.0 + r * (1.0 / 120.0)) + r2 * (1.0 / 720.0 + r * (1.0 / 5040.0))
        high = (1.0 / 40320.0 + r * (1.0 / 362880.0)) + r2 * (
            1.0 / 3628800.0 + r * (1.0 / 39916800.0)
        )
        p = low + r4 * (mid + r4 * (high + r4 * (1.0 / 479001600.0 + r * (1.0 / 6227020800.0))))
        y = p * double_of((bits_of(t) + 1023) << 52)
        x[i] = y if v > EXP_MIN else 0.0


@jit(fastmath={"contract"})
def log_in_place(x):
    """x <- log(x) for finite x >= 0; what is below the normal numbers gives minus infinity."""
    for i in range(x.size):
        v = x[i]
        bits = bits_of(v)
        m = double_of((bits & 0x000FFFFFFFFFFFFF) | 0x3FE0000000000000)  # in [0.5, 1)
        small = m < SQRT_HALF
        m = m + m if small else m
        # the exponent as a float without an integer conversion, which AVX2 has not
        e = double_of(((bits >> 52) & 0x7FF) | 0x4330000000000000) - (4503599627370496.0 + 1022.0)
        e = e - 1.0 if small else e
        f = (m - 1.0) / (m + 1.0)
        g = f * f
        g2 = g * g
        g4 = g2 * g2
        low = (1.0 / 3.0 + g * (1.0 / 5.0)) + g2 * (1.0 / 7.0 + g * (1.0 / 9.0))
        mid = (1.0 / 11.0 + g * (1.0 / 13.0)) + g2 * (1.0 / 15.0 + g * (1.0 / 17.0))
        p = g * (low + g4 * (mid + g4 * (1.0 / 19.0 + g * (1.0 / 21.0))))
        y = e * LN2_HI + (e * LN2_LO + 2.0 * (f + f * p))
        x[i] = y if v >= TINY else -np.inf


@jit(fastmath={"contract"})
def log_dot(a, b, x, y, length):
    """log sum_k exp(a[x + k] + b[y + k])."""
    top = -np.inf
    for k in range(length):
        v = a[x + k] + b[y + k]
        if v > top:
            top = v
    if top == -np.inf:
        return top
    s = 0.0
    for k in range(length):
        s += np.exp(a[x + k] + b[y + k] - top)
    return top + np.log(s)


@jit
def log_add(x, y):
    """log(e^x + e^y)."""
    if x < y:
        x, y = y, x
    if y == -np.inf:
        return x
    return x + np.log1p(np.exp(y - x))
