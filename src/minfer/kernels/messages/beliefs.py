"""Joint beliefs of many factors at once, from the messages as they stand.

    b_f(x_f) ∝ psi_f(x_f)^{1/rho} prod_{v in f} q_{v→f}(x_v),    q_{v→f} ∝ b_v / M_{f→v}

Of a pair in odds form, with B the belief odds of its ends, m the messages into them and c = B / m,
that is (1, c_b, c_a, c_a c_b W) / their sum: no exponential.
"""

import math

import numpy as np

from minfer.kernels.compiling.jit import jit
from minfer.kernels.messages.wiring import ARITY, FIRST, OFFSET, SIZE, TABLE

#: Cavity odds are cut here: a product of two of them and W stays a number.
_MAX_CAVITY = 1e75


@jit
def pair_beliefs(rows, slot, scope, off, bel, m, W, out):
    """Joint beliefs (n, 4) of the pair factors ``rows`` with slots and scopes (P, 2)."""
    for k in range(rows.shape[0]):
        f = rows[k]
        i, j = slot[f, 0], slot[f, 1]
        a, b = off[scope[f, 0]], off[scope[f, 1]]
        ca = _odds(bel[a], bel[a + 1], m[i])
        cb = _odds(bel[b], bel[b + 1], m[j])
        both = ca * cb * W[i]
        scale = 1.0 / (1.0 + ca + cb + both)
        out[k, 0] = scale
        out[k, 1] = cb * scale
        out[k, 2] = ca * scale
        out[k, 3] = both * scale


@jit
def _odds(p, q, m):
    """q / (p m) within what a product may have."""
    if q >= _MAX_CAVITY * p * m:
        return _MAX_CAVITY
    return max(q / (p * m), 1.0 / _MAX_CAVITY)


@jit(fastmath={"reassoc", "contract"})
def table_beliefs(w, gq, rows, log, out):
    """Joint beliefs (n, cells) of the general factors ``rows``, all tables of so many cells."""
    gslot, fac, fslot, tab = w.gslot, w.fac, w.fslot, w.tab
    cells = out.shape[1]
    most = 1
    for k in range(rows.shape[0]):
        most = max(most, fac[rows[k], ARITY])
    digit = np.zeros(most, np.int64)
    part = np.zeros(most + 1)  # products (sums of logs) over the leading variables
    for k in range(rows.shape[0]):
        f = rows[k]
        first, n, t = fac[f, FIRST], fac[f, ARITY], np.uint64(fac[f, TABLE])
        part[0] = 0.0 if log else 1.0
        for d in range(n):
            digit[d] = 0
        last = np.uint64(gslot[fslot[first + n - 1], OFFSET])
        size = np.uint64(gslot[fslot[first + n - 1], SIZE])
        row, here = np.uint64(k), np.uint64(0)
        changed, total = 0, 0.0
        while changed >= 0:
            for d in range(changed, n - 1):
                q = gq[gslot[fslot[first + d], OFFSET] + digit[d]]
                part[d + 1] = part[d] + q if log else part[d] * q
            lead = part[n - 1]
            if log:
                for j in range(size):
                    out[row, here + j] = tab[t + here + j] + (lead + gq[last + j])
            else:
                for j in range(size):
                    out[row, here + j] = tab[t + here + j] * (lead * gq[last + j])
                for j in range(size):
                    total += out[row, here + j]
            here += size
            changed = n - 2
            while changed >= 0:
                digit[changed] += 1
                if digit[changed] < gslot[fslot[first + changed], SIZE]:
                    break
                digit[changed] = 0
                changed -= 1
        if log:
            top = -np.inf
            for c in range(cells):
                top = max(top, out[k, c])
            for c in range(cells):
                out[k, c] = math.exp(out[k, c] - top)
                total += out[k, c]
        scale = 1.0 / total
        for c in range(cells):
            out[k, c] *= scale
