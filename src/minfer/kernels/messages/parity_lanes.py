"""Flooding over parity checks on many rows of one structure, one in each lane of a vector.

With q(x) what a bit tells a check, p(x) its prior, both of sum 1, and xor the only step of the
automata of :mod:`minfer.kernels.messages.automata`, forward and backward sums keep their sum:

    alpha'(k) = sum_x q(x) alpha(k ^ x)        beta(k) = sum_x q(x) beta'(k ^ x)
    m(x) = sum_k alpha(k) beta'(k ^ x)         q_e(x) ~ p(x) prod_{other checks} m(x)

so a check needs no division and a bit one for each of its messages; nothing cancels. An iteration
computes every message anew from the messages as they were: first all checks answer, then all bits.

Each row is judged as single runs are (:mod:`minfer.kernels.messages.sweeps`): one that falls quiet
is watched in its next iteration, and has converged if no message, of checks or of bits, and no
belief moved by more than ``tol`` in it. Numbers below FLOOR are held there. A message that is held
stands for one that goes on to sink, so a row with such messages passes only if nothing hangs on how
far: the state that they are against has no more than ``tol`` left in the belief of their bit, and
in what it tells any check that hears of them. Rows that were held and have not converged are left
to single runs, in logs.

A row that ends makes room for the next one in its lane; no operation mixes lanes.
"""

import math

import numpy as np

from minfer.kernels.arithmetic.lanes import (
    aligned,
    lanes_of,
    larger,
    load,
    magnitude,
    smaller,
    splat,
    store,
)
from minfer.kernels.compiling.jit import jit


@jit
def _checks(s, q0, q1, m0, m1, work, floor, moved, least):
    """Messages of all checks; how far they moved, and the smallest of them, lane by lane."""
    L = lanes_of(q0)
    one, zero, low = splat(q0, 1.0), splat(q0, 0.0), splat(q0, floor)
    far, small = load(moved, 0), load(least, 0)
    for f in range(s.even.shape[0]):
        lo, hi = s.first[f], s.first[f + 1]
        a, b = one, zero
        for j in range(lo, hi):
            store(work, 2 * (j - lo) * L, a)
            store(work, (2 * (j - lo) + 1) * L, b)
            x, y = load(q0, j * L), load(q1, j * L)
            a, b = a * x + b * y, b * x + a * y
        c, d = splat(q0, s.even[f]), splat(q0, 1.0 - s.even[f])
        for j in range(hi - 1, lo - 1, -1):
            a, b = load(work, 2 * (j - lo) * L), load(work, (2 * (j - lo) + 1) * L)
            x, y = a * c + b * d, a * d + b * c
            small = smaller(smaller(x, y), small)
            x, y = larger(x, low), larger(y, low)
            far = larger(magnitude(y - load(m1, j * L)), far)
            store(m0, j * L, x)
            store(m1, j * L, y)
            x, y = load(q0, j * L), load(q1, j * L)
            c, d = c * x + d * y, d * x + c * y
    store(moved, 0, far)
    store(least, 0, small)


@jit
def _bits(s, p0, p1, m0, m1, q0, q1, bel, work, floor, told):
    """What all bits tell their checks, and beliefs; ``told``: how far both moved, and the smallest
    message."""
    moved, change, least = told
    L = lanes_of(q0)
    one, low = splat(q0, 1.0), splat(q0, floor)
    far, top, small = load(moved, 0), splat(q0, 0.0), load(least, 0)
    for v in range(s.ptr.shape[0] - 1):
        lo, hi = s.ptr[v], s.ptr[v + 1]
        a, b = load(p0, v * L), load(p1, v * L)
        for k in range(lo, hi):
            e = s.slot[k]
            store(work, 2 * (k - lo) * L, a)
            store(work, (2 * (k - lo) + 1) * L, b)
            a, b = a * load(m0, e * L), b * load(m1, e * L)
        p = b / (a + b)
        top = larger(magnitude(p - load(bel, v * L)), top)
        store(bel, v * L, p)
        c, d = one, one
        for k in range(hi - 1, lo - 1, -1):
            e = s.slot[k]
            x = load(work, 2 * (k - lo) * L) * c
            y = load(work, (2 * (k - lo) + 1) * L) * d
            inverse = one / (x + y)
            x, y = x * inverse, y * inverse
            small = smaller(smaller(x, y), small)
            x, y = larger(x, low), larger(y, low)
            far = larger(magnitude(y - load(q1, e * L)), far)
            store(q0, e * L, x)
            store(q1, e * L, y)
            c, d = c * load(m0, e * L), d * load(m1, e * L)
    store(moved, 0, far)
    store(change, 0, top)
    store(least, 0, small)


@jit
def _hangs(s, m0, m1, q0, q1, bel, lane, L, floor, tol):
    """Whether it matters, in one lane, how far messages that are held go on to sink."""
    for v in range(s.ptr.shape[0] - 1):
        lo, hi = s.ptr[v], s.ptr[v + 1]
        for state in range(2):
            m, q = (m1, q1) if state == 1 else (m0, q0)
            held = 0
            for k in range(lo, hi):
                held += m[s.slot[k] * L + lane] <= floor
            if held == 0:
                continue
            left = bel[v * L + lane]
            if (left if state == 1 else 1.0 - left) > tol:
                return True
            for k in range(lo, hi):
                e = s.slot[k] * L + lane
                if held - (m[e] <= floor) > 0 and q[e] > tol:
                    return True
    return False


@jit
def _bethe(s, p0, p1, m0, m1, q0, q1, lane, L):
    """The log of Z, Bethe's, of the messages in one lane: bits, checks, less both ends of each
    message."""
    total = 0.0
    for v in range(s.ptr.shape[0] - 1):
        a, b = p0[v * L + lane], p1[v * L + lane]
        for k in range(s.ptr[v], s.ptr[v + 1]):
            e = s.slot[k] * L + lane
            a, b = a * m0[e], b * m1[e]
        total += math.log(a + b)
    for f in range(s.even.shape[0]):
        a, b = 1.0, 0.0
        for j in range(s.first[f], s.first[f + 1]):
            x, y = q0[j * L + lane], q1[j * L + lane]
            total -= math.log(x * m0[j * L + lane] + y * m1[j * L + lane])
            a, b = a * x + b * y, b * x + a * y
        total += math.log(a * s.even[f] + b * (1.0 - s.even[f]))
    return total


@jit
def propagate_parities(s, prior, rows, how, found):
    """Run some rows of ``prior`` (n, V, 2), each of sum 1; ``s`` and ``found`` are ParityStructure
    and ParityAnswers of :mod:`minfer.solvers.parity_lanes`; ``how``: (tol, max_iters, floor)."""
    tol, max_iters, floor = how
    V, E = s.ptr.shape[0] - 1, s.slot.shape[0]
    L = lanes_of(prior)
    m0, m1 = aligned(E * L, prior), aligned(E * L, prior)
    q0, q1 = aligned(E * L, prior), aligned(E * L, prior)
    p0, p1, bel = aligned(V * L, prior), aligned(V * L, prior), aligned(V * L, prior)
    work = aligned(2 * s.longest * L, prior)
    moved, change, least = np.zeros(L), np.zeros(L), np.ones(L)
    for e in range(E * L):
        m0[e] = m1[e] = q0[e] = q1[e] = 0.5
    for v in range(V * L):
        p0[v] = p1[v] = bel[v] = 0.5
    holds, count, phase = np.full(L, -1), np.zeros(L, np.int64), np.zeros(L, np.int64)
    trigger, last, ever = np.zeros(L), np.zeros(L), np.zeros(L, np.bool_)
    begin, running = np.int64(0), 0
    while True:
        for lane in range(L):
            if holds[lane] >= 0 or begin >= rows.shape[0]:
                continue
            i = rows[begin]
            begin += 1
            running += 1
            holds[lane], count[lane], phase[lane] = i, 0, 0
            trigger[lane], last[lane], ever[lane] = tol, np.inf, False
            for v in range(V):
                x, y = prior[i, v, 0], prior[i, v, 1]
                p0[v * L + lane], p1[v * L + lane], bel[v * L + lane] = x, y, 0.5
                for k in range(s.ptr[v], s.ptr[v + 1]):
                    e = s.slot[k] * L + lane
                    m0[e] = m1[e] = 0.5
                    q0[e], q1[e] = max(x, floor), max(y, floor)
        if running == 0:
            return
        for lane in range(L):
            moved[lane], least[lane] = 0.0, 1.0
        _checks(s, q0, q1, m0, m1, work, floor, moved, least)
        _bits(s, p0, p1, m0, m1, q0, q1, bel, work, floor, (moved, change, least))
        for lane in range(L):
            i = holds[lane]
            if i < 0:
                continue
            count[lane] += 1
            ever[lane] |= not least[lane] > floor
            step, passed = change[lane], False
            if phase[lane] == 1:  # watched
                phase[lane] = 0
                step = max(step, moved[lane])
                if step <= tol:
                    passed = not (
                        ever[lane] and _hangs(s, m0, m1, q0, q1, bel, lane, L, floor, tol)
                    )
                else:
                    share = min(max(0.9 * tol / step, 0.1), 0.7)
                    trigger[lane] = max(trigger[lane] * share, 0.02 * tol)
                    last[lane] = np.inf
            else:
                hope = step
                if step < last[lane] < np.inf:
                    hope *= step / last[lane]
                last[lane] = step
                phase[lane] = 1 if hope <= trigger[lane] else 0
            if not passed and count[lane] < max_iters and found.stop[0] == 0:
                continue
            found.converged[i], found.iterations[i] = passed, count[lane]
            found.residual[i] = step if passed else max(step, math.nextafter(tol, 2.0))
            found.unsafe[i] = ever[lane] and not passed and found.stop[0] == 0
            for v in range(V):
                found.probs[i, v] = bel[v * L + lane]
            if found.log_z.shape[0] > 0:
                found.log_z[i] = _bethe(s, p0, p1, m0, m1, q0, q1, lane, L)
            holds[lane] = -1
            running -= 1
