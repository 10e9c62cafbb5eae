"""Messages of table factors: the sum over all other variables of the scope.

    M_{f -> k}(x_k) = sum_{x \\ x_k} psi(x) prod_{j != k} q_j(x_j)

contracted one axis at a time (last axes first, then the leading ones), which costs about two passes
over the table whatever the arity. Linear numbers are scaled to maximum 1; the log twin is for
models whose range does not fit. Named fast-math flags allow sums to be reordered; none assumes
finite numbers.
"""

import math

import numpy as np

from minfer.kernels.compiling.jit import jit
from minfer.kernels.messages.labels import label_message, label_message_log
from minfer.kernels.messages.wiring import ARITY, CODE, FIRST, OFFSET, SIZE, TABLE, WIDTH


@jit(fastmath={"reassoc", "contract"})
def contract(tab, t, to_factor, gslot, fslot, first, arity, k, tmp):
    """Sum a linear table over all axes but k into ``tmp[:S_k]``."""
    size = 1
    for a in range(arity):
        size *= gslot[fslot[first + a], SIZE]
    fresh = True  # the first contraction reads the table, later ones work in place
    for a in range(arity - 1, k, -1):
        q = gslot[fslot[first + a], OFFSET]
        n = gslot[fslot[first + a], SIZE]
        size //= n
        for r in range(size):
            total = 0.0
            for j in range(n):
                total += (tab[t + r * n + j] if fresh else tmp[r * n + j]) * to_factor[q + j]
            tmp[r] = total
        fresh = False
    for a in range(k):
        q = gslot[fslot[first + a], OFFSET]
        n = gslot[fslot[first + a], SIZE]
        size //= n
        for r in range(size):
            tmp[r] = to_factor[q] * (tab[t + r] if fresh else tmp[r])
        for i in range(1, n):
            x = to_factor[q + i]
            for r in range(size):
                tmp[r] += x * (tab[t + i * size + r] if fresh else tmp[i * size + r])
        fresh = False


@jit
def contract_log(tab, t, to_factor, gslot, fslot, first, arity, k, tmp):
    """Log-sum-exp a log table over all axes but k into ``tmp[:S_k]``."""
    size = 1
    for a in range(arity):
        size *= gslot[fslot[first + a], SIZE]
    trailing = arity - 1 - k
    for step in range(arity - 1):
        a = arity - 1 - step if step < trailing else step - trailing
        q = gslot[fslot[first + a], OFFSET]
        n = gslot[fslot[first + a], SIZE]
        size //= n
        stride = 1 if step < trailing else size
        for r in range(size):
            start = r * n if step < trailing else r
            top = -np.inf
            for i in range(n):
                cell = start + i * stride
                top = max(top, to_factor[q + i] + (tab[t + cell] if step == 0 else tmp[cell]))
            if top > -np.inf:
                total = 0.0
                for i in range(n):
                    cell = start + i * stride
                    x = to_factor[q + i] + (tab[t + cell] if step == 0 else tmp[cell])
                    total += math.exp(x - top)
                top += math.log(total)
            tmp[r] = top


@jit
def factor_message(tab, fac, f, to_factor, gslot, fslot, k, log, tmp):
    """The message of factor f, a table or a pair of labels, to its variable k into ``tmp``."""
    t, first, arity, code = fac[f, TABLE], fac[f, FIRST], fac[f, ARITY], fac[f, CODE]
    if code > 0:
        other = fslot[first + 1 - k]
        q, n = gslot[other, OFFSET], gslot[other, SIZE]
        if log:
            label_message_log(tab, t, code, fac[f, WIDTH], to_factor, q, n, tmp)
        else:
            label_message(tab, t, code, fac[f, WIDTH], to_factor, q, n, tmp)
    elif log:
        contract_log(tab, t, to_factor, gslot, fslot, first, arity, k, tmp)
    else:
        contract(tab, t, to_factor, gslot, fslot, first, arity, k, tmp)


@jit
def softplus(x):
    """log(1 + e^x)."""
    if x > 0.0:
        return x + math.log1p(math.exp(-x))
    return math.log1p(math.exp(x))
