"""Visits of general variables: pull the messages in, form the belief, send the cavities out.

    M_{f→v}(x_v) ∝ sum psi(x) prod_{u != v} q_{u→f}(x_u)      (pull)
    b_v ∝ field_v prod_f M_{f→v}^rho,  q_{v→f} ∝ b_v / M_{f→v}     (update)

A cavity is belief / message with 0 / 0 = 0: a state with a zero message is left out of everything.
``visit_linear`` keeps vectors scaled to sum 1 (sums vectorise, maxima do not), ``visit_log``
their logs scaled to maximum 0; they do the same. A linear number below 1e-150 raises ``flag[0]``
while it is still accurate, and the run goes on in log space, where only what is forbidden is minus
infinity. Until the end of a sweep, numbers may fall to zero nevertheless. A variable with no state
left raises ``flag[1]``; whether that proves anything is for :mod:`minfer.engine.support` to say.

Each visits a run of variables, because a call counts references to all its arrays.

**Sending ahead.** Undamped sweeps that alternate in direction need half of that. Call a variable of
a factor's scope *behind* another if the sweep comes to it sooner. With ``ahead``

* a message is pulled only from factors that have a variable behind this one. All others of the
  scope were last visited in the sweep before, before this one was, and it heard them then: their
  cavities, and so the message, are the same bits as now;
* a cavity is written only for factors that have a variable ahead. Where there is none, this
  variable is the first of the scope to be visited in the sweep to come, and writes its cavity anew
  before any other of the scope pulls.

So beliefs and messages are those of sending all, bit for bit; cavities are not, and are computed
anew (CAVITIES) where somebody asks for them.
"""

import math

import numpy as np

from minfer.kernels.arithmetic.addresses import (
    SPAN,
    L,
    address,
    get,
    least,
    load,
    most,
    put,
    spread,
    store,
    total,
)
from minfer.kernels.arithmetic.lanes import choose, exp, larger, smaller
from minfer.kernels.compiling.jit import jit
from minfer.kernels.messages.labels import label_message
from minfer.kernels.messages.tables import contract, factor_message
from minfer.kernels.messages.vector_pairs import by_columns, by_rows, distance
from minfer.kernels.messages.wiring import (
    ARITY,
    ASLEEP,
    CODE,
    FACTOR,
    FIRST,
    GENERAL,
    MAX_ODDS,
    OFFSET,
    POSITION,
    SIZE,
    TABLE,
    WIDTH,
    damped,
    plus,
)

#: Linear messages and products stay above this or the run continues in log space.
TINY = 1e-150
#: No message in logs is further from the largest, so that sums of them never are minus infinity.
FARTHEST = -1e300

BOTH, PULL, UPDATE, CAVITIES = 0, 1, 2, 3  # phases; CAVITIES is UPDATE without pair messages


@jit
def _log_distance(new, old, o, n, top):
    """The largest difference of two vectors of logs, new[:n] and old[o:o+n], both taken to sum 1;
    ``top`` is the largest of ``new``, that of ``old`` is 0 or near."""
    a = b = 0.0
    for i in range(n):
        a += math.exp(new[i] - top)
        b += math.exp(old[o + i])
    worst = 0.0
    if a > 0.0 and b > 0.0:
        for i in range(n):
            worst = max(worst, abs(math.exp(new[i] - top) / a - math.exp(old[o + i]) / b))
    return worst


@jit
def shift_to_top(given, at, n):
    """Take the largest of n numbers off all, by address; it, and the lowest that is not -inf."""
    lanes, top, a = spread(-np.inf), -np.inf, given
    for _ in range(n // L):
        lanes = larger(load(a), lanes)
        a += SPAN
    for _ in range(n % L):
        top = max(top, get(a))
        a += 8
    top = max(top, most(lanes))
    a, off, none, far = given, spread(top), spread(-np.inf), spread(np.inf)
    low = far
    rest = np.inf
    for _ in range(n // L):
        x = load(a) - off
        store(at, x)
        low = smaller(low, choose(x, none, x, far))
        a, at = a + SPAN, at + SPAN
    for _ in range(n % L):
        x = get(a) - top
        put(at, x)
        rest = min(rest, x if x > -np.inf else np.inf)
        a, at = a + 8, at + 8
    return top, min(rest, least(low))


@jit
def exp_from_top(given, at, n, few):
    """:func:`shift_to_top`, then :func:`exp_all`: the largest, the lowest difference, the sum."""
    top, low = shift_to_top(given, at, n)
    return top, low, exp_all(at, n, few)


@jit
def exp_all(a, n, few):
    """e^x of n numbers x <= 1 by address; their sum. All are computed in vectors: ``few`` has room
    for eight."""
    lanes, rest = spread(0.0), 0.0
    for _ in range(n // L):
        x = exp(load(a))
        store(a, x)
        lanes = lanes + x
        a += SPAN
    if n % L > 0:
        for i in range(n % L):
            put(few + 8 * i, get(a + 8 * i))
        store(few, exp(load(few)))
        for i in range(n % L):
            put(a + 8 * i, get(few + 8 * i))
            rest += get(few + 8 * i)
    return total(lanes) + rest


@jit
def multiply(a, x, n):
    """n numbers times x, by address."""
    for _ in range(n // L):
        store(a, load(a) * x)
        a += SPAN
    for _ in range(n % L):
        put(a, get(a) * x)
        a += 8


@jit
def scale_field(given, off, kind, linear, field):
    """Logs of general variables taken to maximum 0, of others to 0, as exponentials if ``linear``.
    Returns the sum of what was taken off, and the lowest logarithm left, zeros apart."""
    tops = lost = lowest = 0.0
    few = np.zeros(L)
    for v in range(kind.shape[0]):
        lo, n = off[v], off[v + 1] - off[v]
        top = low = 0.0
        if kind[v] != GENERAL:
            for i in range(lo, lo + n):
                field[i] = 1.0 if linear else 0.0
        elif linear:
            a, at = address(given) + 8 * lo, address(field) + 8 * lo
            top, low, _ = exp_from_top(a, at, n, address(few))
        else:
            top, low = shift_to_top(address(given) + 8 * lo, address(field) + 8 * lo, n)
        lowest = min(lowest, low)
        tops, lost = plus(tops, lost, top)
    return tops, lowest


@jit
def has_other(fslot, first, arity, g, later):
    """Whether a factor has another slot than g, of a later (an earlier) variable: slots lie in the
    order of their variables."""
    for a in range(first, first + arity):  # noqa: SIM110 - kernels have no generators
        if fslot[a] != g and (fslot[a] > g) == later:
            return True
    return False


@jit
def _mixed(new, old, damping):
    """A damped message; on its own, so that no flag lets two versions of a loop round it apart."""
    return new + damping * (old - new)


@jit(fastmath={"reassoc", "contract"})
def visit_linear(w, s, out, begin, end, forward, phase, damping, watching, ahead):
    """Visit general variables begin..end; ``ahead``: see the module's text. Returns the largest
    change of a belief and, if ``watching``, of a cavity and of a message into the variable or, of a
    pair, out of it, undamped."""
    card, off, kind = w.card, w.off, w.kind
    field, ptr, rev = w.field, w.ptr, w.rev
    W, gptr, gslot = w.W, w.gptr, w.gslot
    fac, fslot, tab = w.fac, w.fslot, w.tab
    m, to_variable, to_factor = s.m, s.to_variable, s.to_factor
    bel, b, tmp = s.bel, s.b, s.tmp
    flag = s.flag
    biggest = moved = told = 0.0
    small = 0  # numbers too close to underflow
    for place in range(begin, end):
        v = place if forward else begin + end - 1 - place
        if kind[v] == ASLEEP:
            continue
        n, base = card[v], off[v]
        for g in range(gptr[v], gptr[v + 1]) if phase <= PULL else range(0):
            f, o = gslot[g, FACTOR], gslot[g, OFFSET]
            t = fac[f, TABLE]
            if t < 0:
                continue  # a machine or a global factor: filled in already
            first, k = fac[f, FIRST], gslot[g, POSITION]
            if ahead and not has_other(fslot, first, fac[f, ARITY], g, not forward):
                continue
            if fac[f, CODE] > 0:
                q = gslot[fslot[first + 1 - k], OFFSET]
                label_message(tab, t, fac[f, CODE], fac[f, WIDTH], to_factor, q, n, tmp)
            elif fac[f, ARITY] == 2:  # most factors
                other = fslot[first + 1 - k]
                h, size = (
                    address(to_factor) + 8 * gslot[other, OFFSET],
                    np.int64(gslot[other, SIZE]),
                )
                if k == 0:
                    by_rows(address(tab) + 8 * t, h, 1.0, size, np.int64(n), address(tmp))
                else:
                    by_columns(address(tab) + 8 * t, h, 1.0, size, np.int64(n), address(tmp))
            else:
                contract(tab, t, to_factor, gslot, fslot, first, fac[f, ARITY], np.int64(k), tmp)
            if watching:
                told = max(told, distance(address(tmp), address(to_variable) + 8 * o, n))
            if damping == 0.0:  # a message is at most 1, so it needs no scaling
                for i in range(n):
                    x = tmp[i]
                    small += x < TINY and x > 0.0
                    to_variable[o + i] = x
                continue
            total = 0.0
            for i in range(n):
                total += tmp[i]
            if total == 0.0:
                flag[1] = v + 1
                return biggest, moved, told
            for i in range(n):
                x = tmp[i] / total
                small += x < TINY and x > 0.0
                to_variable[o + i] = _mixed(x, to_variable[o + i], damping) if x > 0.0 else 0.0
        if phase == PULL:
            continue
        for i in range(n):
            b[i] = field[base + i]
        for e in range(ptr[v], ptr[v + 1]):
            b[1] *= m[e]
            scale = 1.0 / (b[0] + b[1])
            b[0] *= scale
            b[1] *= scale
            small += (b[0] < TINY and b[0] > 0.0) or (b[1] < TINY and b[1] > 0.0)
        total = 1.0
        for g in range(gptr[v], gptr[v + 1]):
            o = gslot[g, OFFSET]
            total = 0.0
            for i in range(n):
                x = b[i] * to_variable[o + i]
                small += x < TINY and x > 0.0
                b[i] = x
            for i in range(n):
                total += b[i]
            if total == 0.0:
                flag[1] = v + 1
                return biggest, moved, told
            if total < 1e-20:
                for i in range(n):
                    b[i] /= total
        total = 0.0
        for i in range(n):
            total += b[i]
        scale = 1.0 / total
        for i in range(n):
            p = b[i] * scale
            biggest = max(biggest, abs(p - bel[base + i]))
            bel[base + i] = p
        for g in range(gptr[v], gptr[v + 1]):
            f, o = gslot[g, FACTOR], gslot[g, OFFSET]
            here = ahead and fac[f, TABLE] >= 0
            if here and not has_other(fslot, fac[f, FIRST], fac[f, ARITY], g, forward):
                continue
            total = 0.0
            for i in range(n):
                tmp[i] = b[i] / to_variable[o + i] if b[i] > 0.0 else 0.0
            for i in range(n):
                total += tmp[i]
            scale = 1.0 / total
            if watching:
                moved = max(moved, distance(address(tmp), address(to_factor) + 8 * o, n))
            for i in range(n):
                x = tmp[i] * scale
                small += x < TINY and x > 0.0
                to_factor[o + i] = x
        if phase != CAVITIES and ptr[v] < ptr[v + 1]:
            odds = MAX_ODDS if b[0] == 0.0 else min(max(b[1] / b[0], 1.0 / MAX_ODDS), MAX_ODDS)
            for e in range(ptr[v], ptr[v + 1]):
                x, old = (m[e] + W[e] * odds) / (m[e] + odds), m[rev[e]]
                told = max(told, abs(x - old) / (x + old))  # at least what a pair's message counts
                out[rev[e]] = x if damping == 0.0 else damped(x, old, damping)
    if small > 0:
        flag[0] = 1
    return biggest, moved, told


@jit
def visit_log(w, s, out, begin, end, forward, phase, damping, watching, ahead):
    """The same in logs, and with messages raised to their edge appearance where there is one."""
    card, off, kind = w.card, w.off, w.kind
    field, ptr, rev = w.field, w.ptr, w.rev
    W, gptr, gslot = w.W, w.gptr, w.gslot
    fac, fslot, tab = w.fac, w.fslot, w.tab
    rho, grho = w.rho, w.grho
    m, weighted_log, to_variable = s.m, s.weighted_log, s.to_variable
    to_factor, bel, b = s.to_factor, s.bel, s.b
    tmp, flag = s.tmp, s.flag
    biggest = moved = told = 0.0
    for place in range(begin, end):
        v = place if forward else begin + end - 1 - place
        if kind[v] == ASLEEP:
            continue
        n, base = card[v], off[v]
        for g in range(gptr[v], gptr[v + 1]) if phase <= PULL else range(0):
            f, o = gslot[g, FACTOR], gslot[g, OFFSET]
            if fac[f, TABLE] < 0:
                continue
            if ahead and not has_other(fslot, fac[f, FIRST], fac[f, ARITY], g, not forward):
                continue
            k = np.int64(gslot[g, POSITION])
            factor_message(tab, fac, f, to_factor, gslot, fslot, k, np.bool_(True), tmp)
            top = -np.inf
            for i in range(n):
                top = max(top, tmp[i])
            if top == -np.inf:
                flag[1] = v + 1
                return biggest, moved, told
            if watching:
                told = max(told, _log_distance(tmp, to_variable, o, n, top))
            for i in range(n):
                x = tmp[i] - top
                if x < FARTHEST and x > -np.inf:
                    x = FARTHEST
                if damping > 0.0 and x > -np.inf and to_variable[o + i] > -np.inf:
                    x += damping * (to_variable[o + i] - x)
                to_variable[o + i] = x
        if phase == PULL:
            continue
        for i in range(n):
            b[i] = field[base + i]
        for e in range(ptr[v], ptr[v + 1]):
            b[1] += math.log(m[e]) if weighted_log.size == 0 else weighted_log[e]
        for g in range(gptr[v], gptr[v + 1]):
            power = grho[g] if grho.size > 0 else 1.0
            for i in range(n):
                b[i] += power * to_variable[gslot[g, OFFSET] + i]
        top = -np.inf
        for i in range(n):
            top = max(top, b[i])
        if top == -np.inf:
            flag[1] = v + 1
            return biggest, moved, told
        total = 0.0
        for i in range(n):
            b[i] -= top
            total += math.exp(b[i])
        for i in range(n):
            p = math.exp(b[i]) / total
            biggest = max(biggest, abs(p - bel[base + i]))
            bel[base + i] = p
        for g in range(gptr[v], gptr[v + 1]):
            f, o = gslot[g, FACTOR], gslot[g, OFFSET]
            here = ahead and fac[f, TABLE] >= 0
            if here and not has_other(fslot, fac[f, FIRST], fac[f, ARITY], g, forward):
                continue
            top = -np.inf
            for i in range(n):
                x = b[i] - to_variable[o + i] if b[i] > -np.inf else -np.inf
                tmp[i] = x
                top = max(top, x)
            if watching:
                moved = max(moved, _log_distance(tmp, to_factor, o, n, top))
            for i in range(n):
                to_factor[o + i] = tmp[i] - top
        if phase != CAVITIES and ptr[v] < ptr[v + 1]:
            odds = math.exp(min(max(b[1] - b[0], -460.0), 460.0))
            for e in range(ptr[v], ptr[v + 1]):
                x, old = (m[e] + W[e] * odds) / (m[e] + odds), m[rev[e]]
                told = max(told, abs(x - old) / (x + old))
                if damping > 0.0:
                    x = damped(x, old, damping)
                out[rev[e]] = x
                if weighted_log.size > 0:
                    weighted_log[rev[e]] = rho[e] * math.log(x)
    return biggest, moved, told
