"""Finite automata over literals: their messages, and their end states under product marginals.

With q_a(l) the weight of literal a being l, alpha the forward and beta the backward sums,

    alpha_{a+1}[step(k, l)] += alpha_a[k] q_a(l)
    beta_a[k] = sum_l q_a(l) beta_{a+1}[step(k, l)]
    M_a(l) = sum_k alpha_a[k] beta_{a+1}[step(k, l)],

all of them sums of products of numbers that are not negative: nothing cancels, whatever the arity.

A factor's messages are computed together, and in sequential sweeps *in place*: the cavities come
from the running beliefs, q = belief / message, and the beliefs change with the messages. A pass
goes over the factors forwards or backwards. Where every message is to come from those as they
were (flooding, confirming updates, trees), cavities are ``to_factor`` as for all general factors.

``visit_linear`` raises ``flag[0]`` where a number comes close to underflow; the run then goes on
with ``visit_log``, which does the same in logs. A factor i that allows nothing, as far as numbers
can tell, sets ``flag[1]`` to -1 - i.
"""

import math

import numpy as np

from minfer.kernels.arithmetic.vexp import log_add
from minfer.kernels.compiling.jit import jit

TINY = 1e-150  # as in :mod:`minfer.kernels.messages.vectors`
FARTHEST = -1e300  # of a message in logs, as there
SHORT = 8  # literals up to which sums need no scaling on the way
#: Codes of automata over binary variables with two states and steps [[0, 1], [1, x]].
OTHER, STAY, BACK, DEAD = 0, 1, 2, 3  # x = 1 (clause), 0 (parity), -1 (exactly one)
#: Counters of true literals, k -> k + 1, that die of one more than K - 1, or stay there.
LIMIT, CAP = 4, 5

_U0, _U1, _U2, _U3, _U4 = (np.uint64(i) for i in range(5))


@jit
def visit_linear(ma, s, order, begin, end, forward, in_place, damping, watching):
    """Messages of the machines order[begin:end] in turn; the largest change of a belief (in place)
    and, if ``watching``, of a message, undamped."""
    code, first, gfirst, at, card, lit = ma.code, ma.first, ma.gfirst, ma.at, ma.card, ma.lit
    stp, step, start, n_ends = ma.stp, ma.step, ma.start, ma.n_ends
    fin, final, work = ma.fin, ma.final, ma.work
    to_variable, to_factor, bel, flag = s.to_variable, s.to_factor, s.bel, s.flag
    biggest = moved = 0.0
    small = 0
    for place in range(begin, end):
        i = order[place if forward else begin + end - 1 - place]
        lo, hi = first[i], first[i + 1]
        kind = code[i]
        if damping == 0.0 and OTHER < kind < LIMIT and hi - lo <= SHORT:  # most: written out
            c11 = 1.0 if kind == STAY else 0.0
            c10 = 1.0 if kind == BACK else 0.0
            a0 = 1.0 if start[i] == 0 else 0.0
            a1 = 1.0 - a0
            g, r = np.uint64(gfirst[i]), _U0
            for j in range(lo, hi):
                t, o = np.uint64(lit[j]), np.uint64(at[j])
                f = _U1 - t
                if in_place:
                    bt, bf, mt, mf = bel[o + t], bel[o + f], to_variable[g + t], to_variable[g + f]
                    if mt > 0.0 and mf > 0.0:  # bt / mt and bf / mf, both times mt mf
                        qt, qf = bt * mf, bf * mt
                    else:
                        qt, qf = bt if mt > 0.0 else 0.0, bf if mf > 0.0 else 0.0
                else:
                    qt, qf = to_factor[g + t], to_factor[g + f]
                total = qt + qf
                if total < 1e-10:
                    if total == 0.0:
                        flag[1] = -1 - i
                        return biggest, moved
                    qt, qf = qt / total, qf / total
                work[r], work[r + _U1], work[r + _U2], work[r + _U3] = a0, a1, qt, qf
                x = a0 * qt
                a0 = a0 * qf + c10 * (a1 * qt)
                a1 = a1 * (qf + c11 * qt) + x
                g += _U2
                r += _U4
            b0, b1 = final[fin[i]], final[fin[i] + 1]
            z = a0 * b0 + a1 * b1
            if not z > 0.0:
                flag[1] = -1 - i
                return biggest, moved
            z = 1.0 / z  # of all literals: q M sums to it
            for j in range(hi - 1, lo - 1, -1):
                g -= _U2
                r -= _U4
                a0, a1, qt, qf = work[r], work[r + _U1], work[r + _U2], work[r + _U3]
                b2 = c11 * b1 + c10 * b0
                mt, mf = a0 * b1 + a1 * b2, a0 * b0 + a1 * b1
                b0, b1 = qf * b0 + qt * b1, qf * b1 + qt * b2
                t, o = np.uint64(lit[j]), np.uint64(at[j])
                f = _U1 - t
                bt, bf = qt * mt * z, qf * mf * z
                x = mt + mf
                if not x > 0.0:  # both too small for a number, or forbidden
                    flag[1] = -1 - i
                    return biggest, moved
                x = 1.0 / x
                mt, mf = mt * x, mf * x
                if min(min(mt, mf), min(bt, bf)) < TINY:
                    small += (0.0 < mt < TINY) + (0.0 < mf < TINY)
                    small += (0.0 < bt < TINY) + (0.0 < bf < TINY)
                if watching:
                    x = to_variable[g + t]
                    moved = max(moved, abs(mt - x / (x + to_variable[g + f])))
                to_variable[g + t], to_variable[g + f] = mt, mf
                if in_place:
                    biggest = max(biggest, abs(bt - bel[o + t]))
                    bel[o + t], bel[o + f] = bt, bf
            continue
        arity, n = hi - lo, np.int64(n_ends[i])
        q = (arity + 1) * n  # where cavities lie in the scratch, then the backward sums
        back = q + 2 * arity
        for k in range(n):
            work[k] = 0.0
        work[start[i]] = 1.0
        g = gfirst[i]
        for a in range(arity):
            j = lo + a
            t, size, o = lit[j], card[j], at[j]
            qf = 0.0
            if in_place:
                qt, mt, mf = bel[o + t], to_variable[g + t], to_variable[g + (1 if t == 0 else 0)]
                for x in range(size):
                    qf += bel[o + x] if x != t else 0.0
                qt = qt / mt if mt > 0.0 else 0.0
                qf = qf / mf if mf > 0.0 else 0.0
            else:
                qt = to_factor[g + t]
                for x in range(size):
                    qf += to_factor[g + x] if x != t else 0.0
            total = qt + qf
            if total == 0.0:
                flag[1] = -1 - i
                return biggest, moved
            qt, qf = qt / total, qf / total
            small += (0.0 < qt < TINY) + (0.0 < qf < TINY)
            work[q + 2 * a], work[q + 2 * a + 1] = qf, qt
            old = a * n
            new = old + n
            if kind >= LIMIT:
                work[new] = work[old] * qf
                for k in range(1, n):
                    work[new + k] = work[old + k] * qf + work[old + k - 1] * qt
                if kind == CAP:
                    work[new + n - 1] += work[new - 1] * qt
                small += rescaled(work, new, n)
                g += size
                continue
            for k in range(n):
                work[new + k] = 0.0
            for k in range(n):
                x = work[old + k]
                if x > 0.0:
                    l0, l1 = step[stp[j] + 2 * k], step[stp[j] + 2 * k + 1]
                    if l0 >= 0:
                        work[new + l0] += x * qf
                    if l1 >= 0:
                        work[new + l1] += x * qt
            small += rescaled(work, new, n)
            g += size
        z = 0.0
        for k in range(n):
            work[back + k] = final[fin[i] + k]
            z += work[back + k] * work[arity * n + k]
        work[back + n] = 0.0 if kind != CAP else work[back + n - 1]  # state -1, or one more
        if not z > 0.0:
            flag[1] = -1 - i
            return biggest, moved
        for a in range(arity - 1, -1, -1):
            j = lo + a
            t, size, o = lit[j], card[j], at[j]
            g -= size
            qf, qt = work[q + 2 * a], work[q + 2 * a + 1]
            mt = mf = 0.0
            ahead = back if (arity - 1 - a) % 2 == 0 else back + n + 1
            behind = back + n + 1 if ahead == back else back
            if kind >= LIMIT:
                for k in range(n):
                    b0, b1 = work[ahead + k], work[ahead + k + 1]
                    mf += work[a * n + k] * b0
                    mt += work[a * n + k] * b1
                    work[behind + k] = qf * b0 + qt * b1
            else:
                for k in range(n):
                    l0, l1 = step[stp[j] + 2 * k], step[stp[j] + 2 * k + 1]
                    b0 = work[ahead + (l0 if l0 >= 0 else n)]
                    b1 = work[ahead + (l1 if l1 >= 0 else n)]
                    mf += work[a * n + k] * b0
                    mt += work[a * n + k] * b1
                    work[behind + k] = qf * b0 + qt * b1
            small += rescaled(work, behind, n)
            work[behind + n] = 0.0 if kind != CAP else work[behind + n - 1]
            total = mt + mf
            if not total > 0.0:
                flag[1] = -1 - i
                return biggest, moved
            mt, mf = mt / total, mf / total
            small += (0.0 < mt < TINY) + (0.0 < mf < TINY)
            if watching or damping > 0.0:
                total = 0.0
                for x in range(size):
                    total += to_variable[g + x]
                whole = mt + (size - 1) * mf
                ot, of = to_variable[g + t] / total, to_variable[g + (1 if t == 0 else 0)] / total
                mt, mf = mt / whole, mf / whole
                moved = max(moved, max(abs(mt - ot), abs(mf - of)))
                if damping > 0.0:
                    mt = mt + damping * (ot - mt) if mt > 0.0 else 0.0
                    mf = mf + damping * (of - mf) if mf > 0.0 else 0.0
            if in_place:  # before the messages are overwritten
                rest = 0.0
                for x in range(size):
                    rest += bel[o + x] if x != t else 0.0
                total = qt * mt + qf * mf
                if not total > 0.0:
                    flag[1] = -1 - i
                    return biggest, moved
                qt, qf = qt * mt / total, qf * mf / total
                small += (0.0 < qt < TINY) + (0.0 < qf < TINY)
                biggest = max(biggest, abs(qt - bel[o + t]))
                for x in range(size):
                    if x == t:
                        bel[o + x] = qt
                    elif rest > 0.0:
                        bel[o + x] = qf * (bel[o + x] / rest)
            for x in range(size):
                to_variable[g + x] = mt if x == t else mf
    if small > 0:
        flag[0] = 1
    return biggest, moved


@jit
def rescaled(work, begin, n):
    """Scale n numbers up where all have become small; how many are now too close to underflow."""
    top = 0.0
    for k in range(begin, begin + n):
        top = max(top, work[k])
    if 0.0 < top < 1e-30:
        top = 1.0 / top
        for k in range(begin, begin + n):
            work[k] *= top
    small = 0
    for k in range(begin, begin + n):
        small += 0.0 < work[k] < TINY
    return small


@jit
def plus(x, y):
    """log(e^x + e^y); a term below e^-40 of the other is less than its last digit."""
    if x < y:
        x, y = y, x
    return x + math.log1p(math.exp(y - x)) if y - x > -40.0 else x


@jit
def visit_log(ma, s, order, begin, end, forward, in_place, damping, watching):
    """The same in logs; in place, the running beliefs are ``ma.logs``."""
    first, gfirst, at, card, lit = ma.first, ma.gfirst, ma.at, ma.card, ma.lit
    stp, step, start, n_ends = ma.stp, ma.step, ma.start, ma.n_ends
    fin, final, work, logs = ma.fin, ma.final, ma.work, ma.logs
    to_variable, to_factor, flag = s.to_variable, s.to_factor, s.flag
    moved = 0.0
    for place in range(begin, end):
        i = order[place if forward else begin + end - 1 - place]
        lo, hi = first[i], first[i + 1]
        arity, n = hi - lo, np.int64(n_ends[i])
        q = (arity + 1) * n
        back = q + 2 * arity
        for k in range(n):
            work[k] = -np.inf
        work[start[i]] = 0.0
        g = gfirst[i]
        for a in range(arity):
            j = lo + a
            t, size, o = lit[j], card[j], at[j]
            qt = qf = -np.inf
            for x in range(size):
                y = to_factor[g + x]
                if in_place:
                    y = logs[o + x] - to_variable[g + x] if logs[o + x] > -np.inf else -np.inf
                if x == t:
                    qt = y
                else:
                    qf = plus(qf, y)
            top = max(qt, qf)
            if top == -np.inf:
                flag[1] = -1 - i
                return moved
            qt, qf = qt - top, qf - top
            work[q + 2 * a], work[q + 2 * a + 1] = qf, qt
            old = a * n
            new = old + n
            for k in range(n):
                work[new + k] = -np.inf
            for k in range(n):
                x = work[old + k]
                if x > -np.inf:
                    l0, l1 = step[stp[j] + 2 * k], step[stp[j] + 2 * k + 1]
                    if l0 >= 0:
                        work[new + l0] = plus(work[new + l0], x + qf)
                    if l1 >= 0:
                        work[new + l1] = plus(work[new + l1], x + qt)
            g += size
        for k in range(n):
            work[back + k] = final[fin[i] + k]
        work[back + n] = -np.inf
        for a in range(arity - 1, -1, -1):
            j = lo + a
            t, size, o = lit[j], card[j], at[j]
            g -= size
            qf, qt = work[q + 2 * a], work[q + 2 * a + 1]
            mt = mf = -np.inf
            ahead = back if (arity - 1 - a) % 2 == 0 else back + n + 1
            behind = back + n + 1 if ahead == back else back
            for k in range(n):
                l0, l1 = step[stp[j] + 2 * k], step[stp[j] + 2 * k + 1]
                b0 = work[ahead + (l0 if l0 >= 0 else n)]
                b1 = work[ahead + (l1 if l1 >= 0 else n)]
                mf = plus(mf, work[a * n + k] + b0)
                mt = plus(mt, work[a * n + k] + b1)
                work[behind + k] = plus(qf + b0, qt + b1)
            work[behind + n] = -np.inf
            top = max(mt, mf)
            if top == -np.inf or max(qt + mt, qf + mf) == -np.inf:
                flag[1] = -1 - i
                return moved
            mt, mf = mt - top, mf - top
            if mt + mf < FARTHEST:  # seldom; minus infinity is for what is forbidden
                mt = max(mt, FARTHEST) if mt > -np.inf else mt
                mf = max(mf, FARTHEST) if mf > -np.inf else mf
            if watching:
                whole, total = math.exp(mt) + (size - 1) * math.exp(mf), 0.0
                for x in range(size):
                    total += math.exp(to_variable[g + x])
                for x in range(size):
                    y = math.exp(mt if x == t else mf) / whole
                    moved = max(moved, abs(y - math.exp(to_variable[g + x]) / total))
            for x in range(size):
                y, old_message = mt if x == t else mf, to_variable[g + x]
                if damping > 0.0 and y > -np.inf and old_message > -np.inf:
                    y += damping * (old_message - y)
                if in_place and logs[o + x] > -np.inf:
                    logs[o + x] = logs[o + x] - old_message + y
                to_variable[g + x] = y
    return moved


@jit
def visit(ma, s, order, begin, end, forward, in_place, damping, watching, log):
    """``visit_linear`` or ``visit_log``; in logs, changes of beliefs are the caller's."""
    if log:
        moved = visit_log(ma, s, order, begin, end, forward, in_place, damping, watching)
        return 0.0, moved
    return visit_linear(ma, s, order, begin, end, forward, in_place, damping, watching)


@jit
def partitions(ma, s, log, ends):
    """sum_f log Z_f of all machines from the cavities ``to_factor`` as they are. ``ends`` gets
    their beliefs over end states, K numbers each, or is empty."""
    first, gfirst, card, lit, stp, step = ma.first, ma.gfirst, ma.card, ma.lit, ma.stp, ma.step
    start, n_ends, fin, final, work, to_factor = (
        ma.start,
        ma.n_ends,
        ma.fin,
        ma.final,
        ma.work,
        s.to_factor,
    )
    total, done = 0.0, 0
    for i in range(start.shape[0]):
        n = np.int64(n_ends[i])
        g = gfirst[i]
        for k in range(n):
            work[k] = -np.inf
        work[start[i]] = 0.0
        for j in range(first[i], first[i + 1]):
            qt = qf = -np.inf
            for x in range(card[j]):
                y = to_factor[g + x]
                if not log:
                    y = math.log(y) if y > 0.0 else -np.inf
                if x == lit[j]:
                    qt = y
                else:
                    qf = plus(qf, y)
            for k in range(n):
                work[n + k] = -np.inf
            for k in range(n):
                x = work[k]
                if x > -np.inf:
                    l0, l1 = step[stp[j] + 2 * k], step[stp[j] + 2 * k + 1]
                    if l0 >= 0:
                        work[n + l0] = plus(work[n + l0], x + qf)
                    if l1 >= 0:
                        work[n + l1] = plus(work[n + l1], x + qt)
            for k in range(n):
                work[k] = work[n + k]
            g += card[j]
        z = -np.inf
        for k in range(n):
            x = final[fin[i] + k]
            if not log:
                x = math.log(x) if x > 0.0 else -np.inf
            work[k] += x
            z = plus(z, work[k])
        total += z
        if ends.size > 0:
            for k in range(n):
                ends[done + k] = math.exp(work[k] - z)
            done += n
    return total


# ---------------------------------------------------------------------- product marginals


@jit
def end_distributions(step, literal, start, scope, probs, offsets, out):
    """Where the automata end if variables are independent: ``out`` (F, K + 1), the last: nowhere.
    ``step`` i4 (A, K, 2), ``literal`` and ``scope`` i4 (F, A), ``start`` i4 (F,)."""
    arity, n_states = step.shape[0], step.shape[1]
    new = np.empty(n_states + 1)
    for f in range(start.shape[0]):
        old = out[f]
        old[:] = 0.0
        old[start[f]] = 1.0
        for a in range(arity):
            v = scope[f, a]
            on, off = probs[offsets[v] + literal[f, a]], 0.0
            for i in range(offsets[v], offsets[v + 1]):
                off += probs[i] if i != offsets[v] + literal[f, a] else 0.0
            new[:] = 0.0
            new[n_states] = old[n_states]
            for k in range(n_states):
                i, j = step[a, k, 0], step[a, k, 1]
                new[i if i >= 0 else n_states] += old[k] * off
                new[j if j >= 0 else n_states] += old[k] * on
            for k in range(n_states + 1):
                old[k] = new[k]


@jit
def residuals(step, literal, start, final, scope, probs, offsets, ends, out):
    """1/2 E[R^2], R = log psi minus its best sum of unary terms; infinite if a zero has mass.

    Reading literal a in state k moves the expectation of log psi by (l - p_a) D_a(k), where D_a is
    the difference of the expectations after reading 1 and 0. These increments do not correlate,
    and what no unary term explains of them is D_a(k) - E[D_a]:

        E[R^2] = sum_a p_a (1 - p_a) Var[D_a].
    """
    arity, n_states = step.shape[0], step.shape[1]
    value = np.zeros((arity + 1, n_states + 1))  # expected log psi from a state on
    old, new = np.empty(n_states + 1), np.empty(n_states + 1)
    on, off = np.empty(arity), np.empty(arity)
    for f in range(start.shape[0]):
        hard = ends[f, n_states] > 0.0
        for k in range(n_states):
            zero = final[f, k] == -np.inf
            hard |= zero and ends[f, k] > 0.0
            value[arity, k] = 0.0 if zero else final[f, k]
        if hard:
            out[f] = np.inf
            continue
        for a in range(arity - 1, -1, -1):
            v = scope[f, a]
            on[a], off[a] = probs[offsets[v] + literal[f, a]], 0.0
            for i in range(offsets[v], offsets[v + 1]):
                off[a] += probs[i] if i != offsets[v] + literal[f, a] else 0.0
            for k in range(n_states):
                i, j = step[a, k, 0], step[a, k, 1]  # -1 is the last one, 0
                value[a, k] = off[a] * value[a + 1, i] + on[a] * value[a + 1, j]
        old[:] = 0.0
        old[start[f]] = 1.0
        total = 0.0
        for a in range(arity):
            mean = spread = 0.0
            new[:] = 0.0
            for k in range(n_states):
                i, j = step[a, k, 0], step[a, k, 1]
                mean += old[k] * (value[a + 1, j] - value[a + 1, i])
                new[i] += old[k] * off[a]
                new[j] += old[k] * on[a]
            for k in range(n_states):
                i, j = step[a, k, 0], step[a, k, 1]
                d = value[a + 1, j] - value[a + 1, i] - mean
                spread += old[k] * d * d
            total += on[a] * off[a] * spread
            for k in range(n_states):
                old[k] = new[k]
        out[f] = 0.5 * total


@jit
def _joined(a, b, best):
    """log(e^a + e^b), or the larger."""
    return max(a, b) if best else log_add(a, b)


@jit
def all_messages(step, literal, start, final, card, incoming, out, log_z, best):
    """All messages of n automata of one group, in logs: sums, or maxima where ``best``. ``step``
    (A, K, 2), ``literal`` (n, A), ``start`` (n,), ``final`` (n or 1, K), ``card`` (A,); messages
    (n, sum of card) as :meth:`minfer.factors.GlobalFactor.messages` has them."""
    arity, n_ends = step.shape[0], step.shape[1]
    forth = np.empty((arity + 1, n_ends))
    back = np.empty((arity + 1, n_ends))
    q = np.empty((arity, 2))
    for r in range(literal.shape[0]):
        row = r if final.shape[0] > 1 else 0
        o = 0
        for a in range(arity):
            q[a, 0], q[a, 1] = -np.inf, -np.inf
            for s in range(card[a]):
                k = 1 if s == literal[r, a] else 0
                q[a, k] = _joined(q[a, k], incoming[r, o + s], best)
            o += card[a]
        for k in range(n_ends):
            forth[0, k] = 0.0 if k == start[r] else -np.inf
            back[arity, k] = final[row, k]
        for a in range(arity):
            for k in range(n_ends):
                forth[a + 1, k] = -np.inf
            for k in range(n_ends):
                for x in range(2):
                    to = step[a, k, x]
                    if to >= 0:
                        forth[a + 1, to] = _joined(forth[a + 1, to], forth[a, k] + q[a, x], best)
        for a in range(arity - 1, -1, -1):
            for k in range(n_ends):
                back[a, k] = -np.inf
                for x in range(2):
                    to = step[a, k, x]
                    if to >= 0:
                        back[a, k] = _joined(back[a, k], q[a, x] + back[a + 1, to], best)
        log_z[r] = back[0, start[r]]
        o = 0
        for a in range(arity):
            no, yes = -np.inf, -np.inf
            for k in range(n_ends):
                if step[a, k, 0] >= 0:
                    no = _joined(no, forth[a, k] + back[a + 1, step[a, k, 0]], best)
                if step[a, k, 1] >= 0:
                    yes = _joined(yes, forth[a, k] + back[a + 1, step[a, k, 1]], best)
            for s in range(card[a]):
                out[r, o + s] = yes if s == literal[r, a] else no
            o += card[a]
