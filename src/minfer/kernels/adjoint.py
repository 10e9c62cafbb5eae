"""Derivatives through a fixed point of belief propagation, backwards: one solve for all numbers.

With beliefs b_v, messages M of weight rho (1 in plain belief propagation) and a loss whose
derivative by the marginals is c_v(x), let s_v(x) b_v(x) be the derivative by the field of v and
lambda_{f,v}(x) b_v(x) that by log M_{f→v}(x). Under the factor's own belief b_f,

    q_{f,v}(x)      = E_f[ sum_{u in f, u != v} lambda_{f,u}(x_u) | x_v = x ]
    s_v             = c_v - E[c_v] + sum_f q_{f,v}
    lambda_{f,v}    = rho_f s_v - q_{f,v}
    d / d log psi_f(x) = b_f(x) sum_{v in f} lambda_{f,v}(x_v) / rho_f

which is message passing again, linear and with conditional expectations where the messages were: on
trees one pass up and one down, on cycles sweeps until nothing moves. It needs no derivative of a
message's code, only beliefs, and nothing in it is divided by a small probability. All of q, s and
lambda have mean 0 under b_v; a constant in them would be counted by walks, whose number explodes,
so rounding's share of it is taken off at every step.

**Binary pairs** need one number per direction. S_v = s_v(1) b_v(1) is the derivative by the
log-odds of v, ``lam`` that by the log of an odds message, f' = sigma(c + w) - sigma(c) the slope of
the message that answers a cavity with log-odds c (w is the conjunction's weight over rho):

    S_v = g_v + sum_e f'_e lam_rev(e),    lam_e = rho_e S_v - f'_e lam_rev(e)
    d / d w = (sigma_a lam_b + sigma_b lam_a) / rho,    sigma = sigma(c + w)

S must be the derivative of both states' difference: a field's is (-S, S).
"""

import math
from typing import NamedTuple

import numpy as np

from minfer.kernels._jit import jit
from minfer.kernels.labels import _masses, label_message

#: Cavity odds beyond these leave a message at its limit to the last bit.
_FAR = 1e100
CONVERGED, RUNNING, SLOW = 0, 1, 2
#: Sweeps go on while eight of them make the change at least so many times smaller.
_PACE, _WINDOW = 0.5, 8

# how a factor's conditional expectations are taken
BELIEF = 0  # from its joint belief
DENSE = 1  # a pair: from its table and the other's cavity
LABELS = 2  # a pair of labels, by distance


@jit
def pair_slopes(ptr, m, W, odds, log_odds, slope, sigma):
    """f' and sigma(c + w) of every slot, for the message that its variable sends.

    ``odds`` are the beliefs', NaN where ``log_odds`` have to do, which may be infinite.
    """
    for v in range(ptr.shape[0] - 1):
        o, lo = odds[v], log_odds[v]
        for e in range(ptr[v], ptr[v + 1]):
            w = W[e]
            if o == o:
                c = o / m[e]
            else:
                x = lo - math.log(m[e])
                c = math.exp(min(max(x, -300.0), 300.0))
            if c > _FAR and c * w > _FAR:
                slope[e], sigma[e] = 0.0, 1.0
            elif c * _FAR < 1.0 and c * w * _FAR < 1.0:
                slope[e], sigma[e] = 0.0, 0.0
            else:
                up = 1.0 / (1.0 + w * c)
                sigma[e] = w * c * up
                slope[e] = (w - 1.0) * (c / (1.0 + c)) * up


@jit
def pair_pass(ptr, rev, rho, slope, g, lam, S, order, down, damping):
    """Visit some variables in turn: the largest change of S and (undamped) lam; the largest S."""
    n = order.shape[0]
    moved, scale = 0.0, 0.0
    for k in range(n):
        v = order[n - 1 - k] if down else order[k]
        lo, hi = ptr[v], ptr[v + 1]
        s = g[v]
        for e in range(lo, hi):
            s += slope[e] * lam[rev[e]]
        moved = max(moved, abs(s - S[v]))
        scale = max(scale, abs(s))
        S[v] = s
        for e in range(lo, hi):
            new = (s if rho.size == 0 else rho[e] * s) - slope[e] * lam[rev[e]]
            moved = max(moved, abs(new - lam[e]))
            lam[e] = new if damping == 0.0 else new + damping * (lam[e] - new)
    return moved, scale


@jit
def pair_sweeps(ptr, rev, rho, slope, g, lam, S, order, trace, done, most, tol, damping):
    """Sweeps ``done`` to ``most`` over the core, up and down in turn: how they ended, and where.

    Converged: two sweeps running, one in each direction, moved nothing by more than ``tol`` of the
    largest S. ``trace`` (8,) has the last changes.
    """
    quiet = 0
    while done < most:
        moved, scale = pair_pass(ptr, rev, rho, slope, g, lam, S, order, done % 2 == 1, damping)
        quiet = quiet + 1 if moved <= tol * scale else 0
        done += 1
        if quiet == 2:
            return CONVERGED, done
        if slow(trace, done, moved):
            return SLOW, done
    return RUNNING, done


@jit
def pair_begin(off, ptr, rev, rho, slope, probs, c, g, S, lam):
    """Centred cotangents ``c`` as derivatives by log-odds, and what they say to others at first."""
    for v in range(ptr.shape[0] - 1):
        o = off[v]
        g[v] = probs[o + 1] * c[o + 1] if off[v + 1] - o == 2 else 0.0
        S[v] = g[v]
        for e in range(ptr[v], ptr[v + 1]):
            lam[e] = g[v] if rho.size == 0 else rho[e] * g[v]


@jit
def pair_ahead(ptr, rev, rho, slope, g, lam, S, order, trace, most, tol):
    """Undamped sweeps as :func:`pair_sweeps`, at half the cost: variables send ahead only.

    What a variable says to one that the sweep has passed is said anew on the way back before it is
    heard. ``order`` rises; slots of neighbours to come lie before those of neighbours passed, with
    e < rev[e] (:func:`minfer.kernels.wiring.pair_slots`).
    """
    n = order.shape[0]
    heard, away = np.empty_like(lam), np.empty_like(lam)
    for e in range(lam.shape[0]):
        heard[e] = slope[e] * lam[rev[e]]
        away[e] = slope[rev[e]]
    quiet, done, code = 0, 0, RUNNING
    plain = rho.size == 0
    while done < most and code == RUNNING:
        moved, scale = 0.0, 0.0
        down = done % 2 == 1
        for k in range(n):
            v = order[n - 1 - k] if down else order[k]
            lo, hi = ptr[v], ptr[v + 1]
            s = g[v]
            for e in range(lo, hi):
                s += heard[e]
            moved = max(moved, abs(s - S[v]))
            scale = max(scale, abs(s))
            S[v] = s
            if down:
                e = hi
                while e > lo:
                    e -= np.uint64(1)
                    r = rev[e]
                    if r > e:
                        break
                    heard[r] = away[e] * ((s if plain else rho[e] * s) - heard[e])
            else:
                for e in range(lo, hi):
                    r = rev[e]
                    if r < e:
                        break
                    heard[r] = away[e] * ((s if plain else rho[e] * s) - heard[e])
        quiet = quiet + 1 if moved <= tol * scale else 0
        done += 1
        if quiet == 2:
            code = CONVERGED
        elif slow(trace, done, moved):
            code = SLOW
    for k in range(n):
        v = order[k]
        for e in range(ptr[v], ptr[v + 1]):
            lam[e] = (S[v] if plain else rho[e] * S[v]) - heard[e]
    return code, done


@jit
def centre(off, probs, c, out):
    """c - E[c] of every variable, 0 on states that are impossible."""
    for v in range(off.shape[0] - 1):
        mean = 0.0
        for i in range(off[v], off[v + 1]):
            mean += probs[i] * c[i]
        for i in range(off[v], off[v + 1]):
            out[i] = c[i] - mean if probs[i] > 0.0 else 0.0


@jit
def slow(trace, done, moved):
    """Whether the change has not become much smaller in eight sweeps, or is no number."""
    before = trace[done % _WINDOW]
    trace[done % _WINDOW] = moved
    return not moved < np.inf or (done > 2 * _WINDOW and moved > _PACE * before)


@jit
def pair_weights(slot, rho, sigma, lam, out):
    """d / d w of the conjunction of every pair factor with slots (P, 2)."""
    for f in range(slot.shape[0]):
        a, b = slot[f, 0], slot[f, 1]
        x = sigma[a] * lam[b] + sigma[b] * lam[a]
        out[f] = x if rho.size == 0 else x / rho[a]


@jit
def pair_statistics(rows, scope, S, by_weight, basis, out):
    """Derivatives by the weights of pair factors ``rows``, log-tables being weights @ basis."""
    for r in range(rows.shape[0]):
        f = rows[r]
        a, b, w = S[scope[f, 0]], S[scope[f, 1]], by_weight[f]
        d00, d01, d10 = w - a - b, b - w, a - w
        for k in range(basis.shape[0]):
            out[r, k] = basis[k, 0] * d00 + basis[k, 1] * d01 + basis[k, 2] * d10 + basis[k, 3] * w


class Web(NamedTuple):
    """A model of tables as the adjoint sees it. V variables, L slots, F factors.

    Slots lie variable after variable; vectors of a slot (``lam``, ``q``, ``norm``, ``cavity``) have
    one number per state of its variable and begin at ``start``.
    """

    off: np.ndarray  # i8 (V+1,) where a variable's states begin
    ptr: np.ndarray  # i8 (V+1,) slots of a variable
    factor: np.ndarray  # i8 (L,)
    position: np.ndarray  # i8 (L,) in the factor's scope
    start: np.ndarray  # i8 (L+1,)
    behind: np.ndarray  # u1 (L,) 1: another of the scope comes sooner going up; 2: going down
    first: np.ndarray  # i8 (F+1,) in ``slots``
    slots: np.ndarray  # i8 (L,) of each factor, in scope order
    kind: np.ndarray  # i8 (F, 4) BELIEF, DENSE or LABELS; code and width of labels; the table
    rho: np.ndarray  # f8 (F,)
    tab: np.ndarray  # f8 tables of pairs, linear
    belief: np.ndarray  # f8 joint beliefs of the others
    cavity: np.ndarray  # f8 of each slot, linear
    norm: np.ndarray  # f8 of each slot: one over the marginal or the message, 0 where that is 0


@jit
def sides(ptr, factor, first, slots, core, behind):
    """Fill in ``behind``: which slots' factors have variables of the core before or after them."""
    owner = np.empty(factor.shape[0], np.int64)
    for v in range(ptr.shape[0] - 1):
        for j in range(ptr[v], ptr[v + 1]):
            owner[j] = v
    for j in range(factor.shape[0]):
        behind[j] = 0
        for a in range(first[factor[j]], first[factor[j] + 1]):
            u = owner[slots[a]]
            if core[u]:
                if u < owner[j]:
                    behind[j] |= 1
                elif u > owner[j]:
                    behind[j] |= 2


@jit
def norms(web, tmp):
    """Fill in ``norm``; ``tmp`` has room for a vector of labels, as their messages need it."""
    (off, ptr, factor, position, start, behind, first, slots, kind, rho, tab, belief, cavity,
     norm) = web  # fmt: skip
    ones = np.ones(cavity.shape[0])
    for j in range(factor.shape[0]):
        f, n = factor[j], start[j + 1] - start[j]
        if kind[f, 0] == BELIEF:
            _expect(web, f, position[j], ones, tmp)
            others = first[f + 1] - first[f] - 1
            for i in range(n):
                tmp[i] /= others
        else:
            other = slots[first[f] + 1 - position[j]]
            _message(tab, kind, f, position[j], n, cavity, start[other], start[other + 1], tmp)
        for i in range(n):
            norm[start[j] + i] = 1.0 / tmp[i] if tmp[i] > 0.0 else 0.0


@jit(fastmath={"reassoc", "contract"})
def _message(tab, kind, f, k, n, h, begin, end, tmp):
    """sum_u psi(x_v, x_u) h(x_u) of a pair with its table into tmp[:n]; v is at position k."""
    t, m = kind[f, 3], end - begin
    if kind[f, 0] == LABELS:
        label_message(tab, t, kind[f, 1], kind[f, 2], h, begin, m, tmp)
    elif k == 0:
        for i in range(n):
            total = 0.0
            for j in range(m):
                total += tab[t + i * m + j] * h[begin + j]
            tmp[i] = total
    else:
        for i in range(n):
            tmp[i] = 0.0
        for j in range(m):
            x = h[begin + j]
            for i in range(n):
                tmp[i] += tab[t + j * n + i] * x


@jit
def _expect(web, f, k, lam, tmp):
    """sum over x_f at x_k of belief times the others' lam, into tmp."""
    start, first, slots, kind, belief = web.start, web.first, web.slots, web.kind, web.belief
    lo, n = first[f], first[f + 1] - first[f]
    t = kind[f, 3]
    size = start[slots[lo + k] + 1] - start[slots[lo + k]]
    for i in range(size):
        tmp[i] = 0.0
    if n == 2:
        o = start[slots[lo + 1 - k]]
        m = start[slots[lo + 1 - k] + 1] - o
        for i in range(size):
            total = 0.0
            for j in range(m):
                total += belief[t + (i * m + j if k == 0 else j * size + i)] * lam[o + j]
            tmp[i] = total
        return
    inner = 1  # cells of what comes after position k
    for a in range(k + 1, n):
        inner *= start[slots[lo + a] + 1] - start[slots[lo + a]]
    cells = inner * size
    for a in range(k):
        cells *= start[slots[lo + a] + 1] - start[slots[lo + a]]
    for a in range(n):
        if a == k:
            continue
        stride = 1
        for b in range(a + 1, n):
            stride *= start[slots[lo + b] + 1] - start[slots[lo + b]]
        o = start[slots[lo + a]]
        m = start[slots[lo + a] + 1] - o
        for c in range(cells):
            tmp[(c // inner) % size] += belief[t + c] * lam[o + (c // stride) % m]


@jit
def _centre(q, at, probs, o, n):
    """Take the mean off a vector. It is 0 but for rounding, which grows with the degree."""
    mean = 0.0
    for i in range(n):
        mean += probs[o + i] * q[at + i]
    for i in range(n):
        q[at + i] -= mean


@jit
def table_pass(web, c, probs, lam, q, s, order, down, every, damping, tmp):
    """Visit some variables in turn: the largest change of b s and b lam; the largest b s.

    ``c`` are centred cotangents. Not ``every`` slot is asked then, but those alone whose factors
    have a variable that was visited since; what the others would say is in ``q``.
    """
    (off, ptr, factor, position, start, behind, first, slots, kind, rho, tab, belief, cavity,
     norm) = web  # fmt: skip
    n_order = order.shape[0]
    moved, scale = 0.0, 0.0
    side = 2 if down else 1
    room = tmp.shape[0] // 2
    for r in range(n_order):
        v = order[n_order - 1 - r] if down else order[r]
        o = off[v]
        n = off[v + 1] - o
        for j in range(ptr[v], ptr[v + 1]):
            if not every and behind[j] & side == 0:
                continue
            f, k, at = factor[j], position[j], start[j]
            if kind[f, 0] == BELIEF:
                _expect(web, f, k, lam, tmp)
                for i in range(n):
                    q[at + i] = tmp[i] * norm[at + i]
                _centre(q, at, probs, o, n)
                continue
            other = slots[first[f] + 1 - k]
            b, e = start[other], start[other + 1]
            low = 0.0
            if kind[f, 0] == LABELS:  # whose messages are for what is not negative
                low = lam[b]
                for i in range(b + 1, e):
                    low = min(low, lam[i])
            for i in range(e - b):
                tmp[room + i] = cavity[b + i] * (lam[b + i] - low)
            _message(tab, kind, f, k, n, tmp, room, room + (e - b), tmp)
            for i in range(n):
                q[at + i] = tmp[i] * norm[at + i]
            _centre(q, at, probs, o, n)  # so what was taken off before, low, need not be added
        for i in range(n):
            p = probs[o + i]
            new = 0.0
            if p > 0.0:
                new = c[o + i]
                for j in range(ptr[v], ptr[v + 1]):
                    new += q[start[j] + i]
            moved = max(moved, p * abs(new - s[o + i]))
            scale = max(scale, p * abs(new))
            s[o + i] = new
        for j in range(ptr[v], ptr[v + 1]):
            weight, at = rho[factor[j]], start[j]
            for i in range(n):
                new = weight * s[o + i] - q[at + i] if probs[o + i] > 0.0 else 0.0
                moved = max(moved, probs[o + i] * abs(new - lam[at + i]))
                lam[at + i] = new if damping == 0.0 else new + damping * (lam[at + i] - new)
    return moved, scale


@jit
def table_sweeps(web, c, probs, lam, q, s, order, trace, done, most, tol, damping, tmp):
    """As :func:`pair_sweeps`."""
    quiet = 0
    while done < most:
        moved, scale = table_pass(
            web, c, probs, lam, q, s, order, done % 2 == 1, done == 0, damping, tmp
        )
        quiet = quiet + 1 if moved <= tol * scale else 0
        done += 1
        if quiet == 2:
            return CONVERGED, done
        if slow(trace, done, moved):
            return SLOW, done
    return RUNNING, done


@jit
def weigh(web, rows, lam, out):
    """Joint beliefs (n, cells) of factors ``rows`` times sum_v lam_v(x_v) / rho, in place."""
    start, first, slots, rho = web.start, web.first, web.slots, web.rho
    for r in range(rows.shape[0]):
        f = rows[r]
        lo, n = first[f], first[f + 1] - first[f]
        cells = out.shape[1]
        for c in range(cells):
            rest, total = c, 0.0
            for a in range(n - 1, -1, -1):
                o = start[slots[lo + a]]
                m = start[slots[lo + a] + 1] - o
                total += lam[o + rest % m]
                rest //= m
            out[r, c] *= total / rho[f]


@jit
def weigh_distances(web, rows, lam, taps, which, mass):
    """The same by distance: (n, T), of pairs of labels with linear taps (n or 1, T)."""
    start, first, slots, rho, cavity = web.start, web.first, web.slots, web.rho, web.cavity
    h = cavity * lam
    more = np.empty((1, mass.shape[1]))
    base = np.empty((1, mass.shape[1]))
    for r in range(rows.shape[0]):
        f = rows[r]
        a, b = slots[first[f]], slots[first[f] + 1]
        i, j, n = start[a], start[b], start[a + 1] - start[a]
        _masses(cavity, i, cavity, j, n, base, 0)
        _masses(h, i, cavity, j, n, mass, r)
        _masses(cavity, i, h, j, n, more, 0)
        total = 0.0
        for d in range(mass.shape[1]):
            total += base[0, d] * taps[which[r], d]
        for d in range(mass.shape[1]):
            mass[r, d] = (mass[r, d] + more[0, d]) * taps[which[r], d] / (total * rho[f])
