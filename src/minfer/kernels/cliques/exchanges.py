"""Exchanges in a contraction tree: ((a, b), c) becomes ((a, c), b)
(:mod:`minfer.engine.contraction`).

Sets of variables are bytes, eight variables each, and ``logs`` has the log2 of the joint states of
each byte's 256 subsets. A node costs the joint states of its children's variables and ``write``
times its own. An exchange that saves is made; one that does not with a probability of
(old / new)^(1 / (heat ln 2)), the heat falling.
"""

import numpy as np

from minfer.kernels.compiling.jit import jit

#: A generator of pseudo-random numbers (Lehmer, with Park & Miller's later factor).
MODULUS, FACTOR = 2147483647, 48271
#: Exchanges at one heat.
SPELL = 256


@jit
def _cost(a, b, left, logs, write):
    """Of a node with these children that leaves that."""
    inner, outer = 0.0, 0.0
    for k in range(a.size):
        inner += logs[k, a[k] | b[k]]
        outer += logs[k, left[k]]
    return 2.0**inner + write * 2.0**outer


@jit
def exchange(kids, out, inner, logs, write, moves, hot, cold, seed, best_kids, best_out):
    """So many, in place; the cheapest tree on the way into ``best_kids`` and ``best_out``, and what
    it costs."""
    cost = np.zeros(out.shape[0])
    total = 0.0
    for at in range(inner.size):
        i = inner[at]
        cost[i] = _cost(out[kids[i, 0]], out[kids[i, 1]], out[i], logs, write)
        total += cost[i]
    best_kids[:], best_out[:], best = kids, out, total
    left = np.empty(out.shape[1], np.uint8)
    state, heat, n = seed, hot, inner.size
    for k in range(moves):
        if k % SPELL == 0:
            share = 1.0 - k / moves
            heat = hot * share * share + cold
        state = state * FACTOR % MODULUS
        p = inner[state % n]
        state = state * FACTOR % MODULUS
        which = (state >> 8) & 3
        x, c = kids[p, 0], kids[p, 1]
        if which & 1:
            x, c = c, x
        a, b = kids[x, 0], kids[x, 1]
        if a < 0:
            continue
        if which & 2:
            a, b = b, a
        for j in range(left.size):
            left[j] = (out[a, j] | out[c, j]) & (out[b, j] | out[p, j])
        first = _cost(out[a], out[c], left, logs, write)
        second = _cost(left, out[b], out[p], logs, write)
        old, new = cost[x] + cost[p], first + second
        if new > old:
            state = state * FACTOR % MODULUS
            if state / MODULUS >= (old / new) ** (1.4426950408889634 / heat):
                continue
        kids[x, 0], kids[x, 1] = a, c
        kids[p, 0], kids[p, 1] = x, b
        out[x] = left
        cost[x], cost[p] = first, second
        total += new - old
        if total < 0.999 * best:
            best_kids[:], best_out[:], best = kids, out, total
    return best
