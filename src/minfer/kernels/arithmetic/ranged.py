"""Non-negative numbers that neither overflow nor underflow: m 2^(512 e).

A number is a pair: m = 0, or LOW <= m < HIGH with LOW = 2^-256 and HIGH = 2^256; and an integer e
(0 where m is). Products, quotients and sums of such numbers cost one rounding of the floats they
are made with, as plain floats do within their range: shifts by 2^512 are exact, since LOW * 2^-512
is still a normal number. A sum that leaves out an addend smaller by two steps of e is wrong by less
than 2^-512, relatively: less than a rounding. No positive number ever becomes 0.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels.compiling.jit import jit

LOW, HIGH = 2.0**-256, 2.0**256
STEP, BACK = 2.0**512, 2.0**-512
LOG_STEP = 512 * np.log(2.0)


@jit
def times(m, e, n, f):
    """m 2^(512 e) times n 2^(512 f)."""
    x = m * n
    y = e + f
    if x < LOW:
        if x == 0.0:
            return 0.0, 0
        return x * STEP, y - 1
    if x >= HIGH:
        return x * BACK, y + 1
    return x, y


@jit
def over(m, e, n, f):
    """The quotient; of nothing by nothing: 0."""
    if m == 0.0:
        return 0.0, 0
    x = m / n
    y = e - f
    if x < LOW:
        return x * STEP, y - 1
    if x >= HIGH:
        return x * BACK, y + 1
    return x, y


@jit
def plus(m, e, n, f):
    """The sum."""
    if n == 0.0:
        return m, e
    if m == 0.0:
        return n, f
    if e == f:
        m += n
    elif e == f + 1:
        m += n * BACK
    elif e + 1 == f:
        m = m * BACK + n
        e = f
    elif e < f:
        return n, f
    if m >= HIGH:
        return m * BACK, e + 1
    return m, e


@jit
def exponentials(logs, m, e):
    """exp of all numbers; minus infinity gives 0. The argument is wrong by at most 3 U |x| (what is
    taken off is rounded twice, the difference once), the exponential itself by what the library's
    is."""
    for k in range(logs.size):
        x = logs[k]
        m[k] = 0.0
        e[k] = 0
        if x > -np.inf:
            steps = np.floor(x / LOG_STEP + 0.5)
            m[k] = np.exp(x - steps * LOG_STEP)
            e[k] = np.int64(steps)
            if m[k] < LOW:
                m[k] *= STEP
                e[k] -= 1
            elif m[k] >= HIGH:
                m[k] *= BACK
                e[k] += 1
