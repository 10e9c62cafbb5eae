"""Exact sums over a region of binary variables with pairs, swept by a frontier, eight runs abreast.

A region's variables are *introduced* one after the other; one is *forgotten* (summed over) as soon
as all its partners have come. Between two steps the sum over everything forgotten is a function F
of the k variables in the frontier, 2^k numbers, bit b of an index being the state of the b-th; a
backward pass gives the sum B over everything still to come, and

    P(frontier) is proportional to F B.

Where it is read off (*checks*, chosen so that every variable is in the frontier of one), F has been
stored; if all do not fit in memory, F is stored at the beginning of some stretches and computed
anew inside each. Each of the L = 8 lanes is a run of its own with the same structure and other
numbers: fields h and weights w, p(y) ~ exp(sum h y + sum w y y).

**Range.** Lane by lane, numbers are divided by the power of two in F[0] (that of state 0
everywhere) with every step. If the log-odds of variable u, given the others, never leave
[-R_u, R_u] and the R_u of any frontier add up to at most ``MOST``, then all of F is within e^MOST
of F[0], B within e^(2 MOST) of B[0], and F B, which is the frontier's distribution, within e^MOST
of F[0] B[0]. What underflows is less than 1e-27 of what it is added to. An overflow, which only a
single pair of hundreds of nats could still cause, would leave infinity in all sums behind it: odds
that are not finite and positive are for the caller to throw away.

**Rounding.** Only sums and products of positive numbers: see :func:`roundings` for how many lie on
a path. Powers of two are exact; fused products and sums round less often.

``steps`` i8 (T, 6), columns below. A step forgets the variable at bit BIT of the K in the frontier
(-1: none) and introduces VAR (-1: none) on top; EDGE joins the two (-1: none). X..X_END are other
pairs of VAR, with bits counted after the step.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from minfer.kernels.arithmetic.lanes import load, splat, store
from minfer.kernels.compiling.jit import jit

L = 8
#: What the R_u of a frontier may add up to.
MOST = 340.0
VAR, K, BIT, EDGE, X, X_END = range(6)


class FrontierSteps(NamedTuple):
    """How a region is swept."""

    steps: np.ndarray  # i8 (T, 6)
    xbit: np.ndarray  # i8 bits
    xedge: np.ndarray  # i8 ... and edges of other pairs
    check: np.ndarray  # i8 (C,) the steps before which checks are made
    cptr: np.ndarray  # i8 (C+1,) their frontiers,
    cvar: np.ndarray  # i8 variables by bit


# ---------------------------------------------------------------- structure


@jit
def plan(order, ptr, nbr, edge):
    """Steps and checks for introducing ``order`` (n,) of a graph in CSR form, ``edge`` its numbers.

    Also the size of the largest frontier.
    """
    n = order.size
    rank = np.empty(n, np.int64)
    last = np.empty(n, np.int64)
    for t in range(n):
        rank[order[t]] = t
    for v in range(n):
        last[v] = rank[v]
        for e in range(ptr[v], ptr[v + 1]):
            last[v] = max(last[v], rank[nbr[e]])
    steps = np.empty((2 * n, 6), np.int64)
    xbit = np.empty(nbr.size, np.int64)
    xedge = np.empty(nbr.size, np.int64)
    check = np.empty(n, np.int64)
    cptr = np.zeros(n + 1, np.int64)
    frontier = np.empty(n + 1, np.int64)
    bit_of = np.full(n, -1, np.int64)
    edge_to = np.full(n, -1, np.int64)
    covered = np.zeros(n, np.bool_)
    seen = np.empty(16, np.int64)
    n_seen = n_checks = n_steps = n_x = k = widest = 0
    for t in range(n):
        v = order[t]
        for e in range(ptr[v], ptr[v + 1]):
            edge_to[nbr[e]] = edge[e]
        fuse = -1
        for b in range(k):
            if last[frontier[b]] == t:
                fuse = b
                break
        for round in range(n + 1):  # the first introduces v, the others forget
            if round:
                fuse = -1
                for b in range(k):
                    if last[frontier[b]] <= t:
                        fuse = b
                        break
                if fuse < 0:
                    break
            if fuse >= 0 and not covered[frontier[fuse]]:
                while seen.size < n_seen + k:
                    grown = np.empty(2 * seen.size, np.int64)
                    for b in range(n_seen):  # a slice would compile 3 s of error texts
                        grown[b] = seen[b]
                    seen = grown
                for b in range(k):
                    covered[frontier[b]] = True
                    seen[n_seen + b] = frontier[b]
                n_seen += k
                check[n_checks] = n_steps
                n_checks += 1
                cptr[n_checks] = n_seen
            s = steps[n_steps]
            s[VAR] = v if round == 0 else -1
            s[K] = k
            s[BIT] = fuse
            s[EDGE] = -1
            if fuse >= 0:
                u = frontier[fuse]
                if round == 0:
                    s[EDGE] = edge_to[u]
                    edge_to[u] = -1
                bit_of[u] = -1
                for b in range(fuse, k - 1):
                    frontier[b] = frontier[b + 1]
                    bit_of[frontier[b]] = b
                k -= 1
            s[X] = n_x
            if round == 0:
                for e in range(ptr[v], ptr[v + 1]):
                    u = nbr[e]
                    if bit_of[u] >= 0 and edge_to[u] >= 0:
                        xbit[n_x] = bit_of[u]
                        xedge[n_x] = edge_to[u]
                        n_x += 1
                    edge_to[u] = -1
                frontier[k] = v
                bit_of[v] = k
                k += 1
            s[X_END] = n_x
            widest = max(widest, k)
            n_steps += 1
    made = FrontierSteps(
        steps[:n_steps].copy(), xbit[:n_x].copy(), xedge[:n_x].copy(), check[:n_checks].copy(),
        cptr[: n_checks + 1].copy(), seen[:n_seen].copy(),
    )  # fmt: skip
    return made, widest


@jit
def frontier_sizes(order, ptr, nbr, weight, most):
    """The largest frontier of an order, its largest sum of ``weight`` (n,), and the sum of 2^k.

    Stops early where a frontier is larger than ``most``.
    """
    n = order.size
    rank = np.empty(n, np.int64)
    for t in range(n):
        rank[order[t]] = t
    leave = np.zeros(n, np.int64)  # how many, and how much, go with each step
    light = np.zeros(n)
    k = widest = 0
    total = heaviest = cells = 0.0
    for t in range(n):
        v = order[t]
        end = t
        for e in range(ptr[v], ptr[v + 1]):
            end = max(end, rank[nbr[e]])
        k += 1 - (leave[t] > 0)  # one of those that go makes room
        total += weight[v]
        widest = max(widest, k)
        heaviest = max(heaviest, total)
        cells += 2.0**k
        k += leave[t] > 0
        leave[end] += 1
        light[end] += weight[v]
        k -= leave[t]
        total -= light[t]
        if widest > most:
            break
    return widest, heaviest, cells


# ---------------------------------------------------------------- numbers


@jit
def roundings(steps, xbit, exp):
    """Roundings on any path of :func:`sweep` to a sum of F B; ``exp`` those of an exponential.

    A cell meets every step once, in F or in B; the sums of :func:`_read` add up to 2^(k-1) cells
    one after the other, behind at most k that fold others in.
    """
    most = steps[:, K].max() + 1
    passes = steps.shape[0] * (2 * exp + 4) + xbit.size * (exp + 1)
    return passes + most + (1 << most) + 4


@jit
def _factors(field, weight, s, first, par):
    """What a step multiplies by, in ``par`` (24,): state 0, state 1, state 1 beside state 1.

    ``first``: where the number lies whose power of two is divided by; in its array.
    """
    for lane in range(L):
        m0 = 1.0
        m1 = 1.0
        if s[VAR] >= 0:
            h = field[s[VAR] * L + lane]
            if h > 0:
                m0 = math.exp(-h)
            else:
                m1 = math.exp(h)
        x = first[lane]
        e = math.frexp(x)[1]
        scale = math.ldexp(1.0, -e)
        m0 *= scale
        m1 *= scale
        par[lane] = m0
        par[L + lane] = m1
        par[2 * L + lane] = m1 * math.exp(weight[s[EDGE] * L + lane]) if s[EDGE] >= 0 else m1


@jit
def _pairs(v, size, s, xbit, xedge, weight, par):
    """Other pairs of the variable on top of ``size`` states: a factor where both are 1."""
    half = size >> 1
    for i in range(s[X], s[X_END]):
        for lane in range(L):
            par[lane] = math.exp(weight[xedge[i] * L + lane])
        w = load(par, 0)
        block = 1 << xbit[i]
        for t in range(half >> (xbit[i] + 1)):
            at = half + 2 * t * block + block
            for q in range(block):
                store(v, (at + q) * L, load(v, (at + q) * L) * w)


@jit
def _forward(f, g, s, xbit, xedge, field, weight, par):
    """One step: from F before, f, to F after, g."""
    _factors(field, weight, s, f, par)
    m0, m1, mw = load(par, 0), load(par, L), load(par, 2 * L)
    size = 1 << s[K]
    if s[BIT] < 0:
        for j in range(size):
            a = load(f, j * L)
            store(g, j * L, a * m0)
            store(g, (j + size) * L, a * m1)
        _pairs(g, 2 * size, s, xbit, xedge, weight, par)
        return
    half = size >> 1
    block = 1 << s[BIT]
    if s[VAR] < 0:
        for t in range(half >> s[BIT]):
            for q in range(block):
                i = 2 * t * block + q
                store(g, (t * block + q) * L, (load(f, i * L) + load(f, (i + block) * L)) * m0)
        return
    for t in range(half >> s[BIT]):
        for q in range(block):
            i = 2 * t * block + q
            j = t * block + q
            a, c = load(f, i * L), load(f, (i + block) * L)
            store(g, j * L, (a + c) * m0)
            store(g, (j + half) * L, a * m1 + c * mw)
    _pairs(g, size, s, xbit, xedge, weight, par)


@jit
def _backward(b, a, s, xbit, xedge, field, weight, par):
    """One step back: from B after, b (overwritten), to B before, a."""
    size = 1 << s[K]
    if s[BIT] < 0:
        _pairs(b, 2 * size, s, xbit, xedge, weight, par)
        _factors(field, weight, s, b, par)
        m0, m1 = load(par, 0), load(par, L)
        for j in range(size):
            store(a, j * L, load(b, j * L) * m0 + load(b, (j + size) * L) * m1)
        return
    half = size >> 1
    block = 1 << s[BIT]
    if s[VAR] < 0:
        _factors(field, weight, s, b, par)
        m0 = load(par, 0)
        for t in range(half >> s[BIT]):
            for q in range(block):
                i = 2 * t * block + q
                x = load(b, (t * block + q) * L) * m0
                store(a, i * L, x)
                store(a, (i + block) * L, x)
        return
    _pairs(b, size, s, xbit, xedge, weight, par)
    _factors(field, weight, s, b, par)
    m0, m1, mw = load(par, 0), load(par, L), load(par, 2 * L)
    for t in range(half >> s[BIT]):
        for q in range(block):
            i = 2 * t * block + q
            j = t * block + q
            x, y = load(b, j * L) * m0, load(b, (j + half) * L)
            store(a, i * L, x + y * m1)
            store(a, (i + block) * L, x + y * mw)


@jit
def _read(f, at, b, k, variables, first, odds):
    """Odds of the frontier's variables from F (in f at ``at``) and B; B is overwritten."""
    size = 1 << k
    for j in range(size):
        store(b, j * L, load(b, j * L) * load(f, at + j * L))
    for bit in range(k - 1, -1, -1):
        half = 1 << bit
        zero, one = splat(b, 0.0), splat(b, 0.0)
        for j in range(half):
            x, y = load(b, j * L), load(b, (j + half) * L)
            zero, one = zero + x, one + y
            store(b, j * L, x + y)
        store(odds, variables[first + bit] * L, one / zero)


@jit
def sweep(plan, field, weight, stretch, a, b, c, kept, odds, stop):
    """Odds p(1) / p(0) of all variables, (n * L,).

    ``field`` (n * L,) and ``weight`` (edges * L,) are logarithms. ``a``, ``b``, ``c`` have room for
    the largest frontier, ``kept`` for ``stretch`` checks and the beginnings of all stretches but
    the first. Given up where ``stop[0]`` becomes 1.
    """
    steps, xbit, xedge, check, cptr, cvar = plan
    par = np.empty(3 * L)
    room = a.size
    n_steps, n_checks = steps.shape[0], check.size
    n_stretches = (n_checks + stretch - 1) // stretch
    begins = stretch * room  # beginnings of stretches come behind the checks of one
    store(a, 0, splat(a, 1.0))
    src, dst = a, b
    for t in range(check[(n_stretches - 1) * stretch] if n_checks else 0):
        for i in range(1, n_stretches):
            if check[i * stretch] == t:
                at = begins + (i - 1) * room
                for j in range(L << steps[t, K]):
                    kept[at + j] = src[j]
        if stop[0]:
            return
        _forward(src, dst, steps[t], xbit, xedge, field, weight, par)
        src, dst = dst, src
    if n_stretches > 1:
        for j in range(L << steps[check[(n_stretches - 1) * stretch], K]):
            kept[begins + (n_stretches - 2) * room + j] = src[j]
    back, spare = a, b
    end = n_steps
    store(back, 0, splat(a, 1.0))
    for i in range(n_stretches - 1, -1, -1):
        first, last = i * stretch, min((i + 1) * stretch, n_checks)
        t = 0
        # forward again, with c and the unused of a and b
        src, dst = c, spare
        if i == 0:
            store(src, 0, splat(a, 1.0))
        else:
            t = check[first]
            for j in range(L << steps[t, K]):
                src[j] = kept[begins + (i - 1) * room + j]
        for q in range(first, last):
            while t < check[q]:
                if stop[0]:
                    return
                _forward(src, dst, steps[t], xbit, xedge, field, weight, par)
                src, dst = dst, src
                t += 1
            for j in range(L << steps[t, K]):
                kept[(q - first) * room + j] = src[j]
        c, spare = src, dst  # both are free again
        for q in range(last - 1, first - 1, -1):
            while end > check[q]:
                if stop[0]:
                    return
                end -= 1
                _backward(back, spare, steps[end], xbit, xedge, field, weight, par)
                back, spare = spare, back
            for j in range(L << steps[end, K]):
                c[j] = back[j]
            _read(kept, (q - first) * room, c, steps[end, K], cvar, cptr[q], odds)
