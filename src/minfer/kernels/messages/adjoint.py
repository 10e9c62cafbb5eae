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

S must be the derivative of both states' difference: a field's is (-S, S). Pairs of a model that has
other factors too join in with q(x) b(x) = (-f' lam, f' lam) and S_v = s_v(1) b_v(1).

**When sweeps stop.** They are one linear map after the other, so changes shrink by a ratio r from
sweep to sweep, and what is still to come is the last change times r / (1 - r). Converged: that is
at most ``tol`` of the largest derivative, going by the larger of the last two ratios; or two sweeps
running, one in each direction, moved nothing by more than that.
"""

import math
from typing import NamedTuple

import numpy as np

from minfer.kernels.arithmetic.addresses import (
    SPAN,
    L,
    address,
    get,
    load,
    most,
    put,
    spread,
    store,
    total,
)
from minfer.kernels.arithmetic.lanes import larger, magnitude
from minfer.kernels.compiling.jit import jit
from minfer.kernels.messages.labels import RISE, label_message, masses
from minfer.kernels.messages.vector_pairs import by_columns, by_rows, copy, line, multiply
from minfer.kernels.messages.vectors import has_other
from minfer.kernels.messages.wiring import (
    ARITY,
    CODE,
    FACTOR,
    FIRST,
    OFFSET,
    POSITION,
    SIZE,
    TABLE,
    WIDTH,
)

#: Cavity odds beyond these leave a message at its limit to the last bit.
_FAR = 1e100
#: Belief odds within these, times messages and weights in odds form twice, stay numbers.
_NEAR = 1e70
CONVERGED, RUNNING, SLOW = 0, 1, 2
#: Sweeps go on while eight of them make the change at least so many times smaller.
_PACE, _WINDOW = 0.5, 8

#: States below this have no conditional expectations: one over such a number may be infinite, and
#: what they add to any derivative is smaller still.
RARE = 1e-300


class PairFrame(NamedTuple):
    """What binary pairs are differentiated over: a part of their wiring."""

    off: np.ndarray  # (V+1,) states of a variable
    ptr: np.ndarray  # (V+1,) slots of a variable
    rev: np.ndarray  # (E,) the slot of the opposite direction
    rho: np.ndarray  # (E,) or empty: 1
    slot: np.ndarray  # (P, 2)
    scope: np.ndarray  # (P, 2)
    core: np.ndarray  # variables that sweeps visit
    order: np.ndarray  # those of trees in collecting order


@jit
def pair_slopes(ptr, prior, m, W, odds, log_odds, slope, sigma):
    """f' and sigma(c + w) of every slot, for the message that its variable sends. ``odds`` are the
    beliefs', NaN where ``log_odds``, which may be infinite, have to do; both are empty where all
    are ``prior`` times the messages."""
    for v in range(ptr.shape[0] - 1):
        lo, hi = ptr[v], ptr[v + 1]
        if odds.size == 0:
            o = prior[v]
            for e in range(lo, hi):
                o *= m[e]
        else:
            o = odds[v]
        if 1.0 / _NEAR < o < _NEAR:  # with c = o / m, and one division
            for e in range(lo, hi):
                x, w = m[e], W[e]
                down, up = x + o, x + w * o
                both = 1.0 / (down * up)
                sigma[e] = w * o * down * both
                slope[e] = (w - 1.0) * o * x * both
            continue
        for e in range(lo, hi):
            w = W[e]
            if o == o:
                c = o / m[e]
            else:
                x = log_odds[v] - math.log(m[e])
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
def pair_pass(frame, slope, g, lam, S, order, down, damping):
    """Visit some variables in turn: the largest change of S and (undamped) lam; the largest S."""
    ptr, rev, rho, n = frame.ptr, frame.rev, frame.rho, order.shape[0]
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
def pair_begin(frame, probs, c, g, S, lam):
    """Cotangents ``c`` as derivatives by log-odds, and what they say to others at first."""
    off, ptr, rho = frame.off, frame.ptr, frame.rho
    for v in range(ptr.shape[0] - 1):
        o = off[v]
        g[v] = 0.0
        if off[v + 1] - o == 2:  # p (c - E[c]) of state 1
            g[v] = probs[o] * probs[o + 1] * (c[o + 1] - c[o])
        S[v] = g[v]
        for e in range(ptr[v], ptr[v + 1]):
            lam[e] = g[v] if rho.size == 0 else rho[e] * g[v]


@jit
def pair_sweeps(frame, slope, g, lam, S, trace, n_sweeps, tol, damping):
    """Sweeps over the core, up and down in turn: how they ended, and how many. ``trace`` (8,),
    infinite at first, has the last changes. Undamped ones send ahead only, in half the time: what
    is said to a variable that was passed is said anew before it is heard. The core rises; slots of
    neighbours to come lie first, with e < rev[e]."""
    ptr, rev, rho, order = frame.ptr, frame.rev, frame.rho, frame.core
    done, code = 0, RUNNING
    while damping > 0.0 and done < n_sweeps and code == RUNNING:
        moved, scale = pair_pass(frame, slope, g, lam, S, order, done % 2 == 1, damping)
        code = judged(trace, done, moved, tol * scale)
        done += 1
    if damping > 0.0:
        return code, done
    n = order.shape[0]
    heard, away = np.empty_like(lam), np.empty_like(lam)
    for e in range(lam.shape[0]):
        heard[e] = slope[e] * lam[rev[e]]
        away[e] = slope[rev[e]]
    plain = rho.size == 0
    while done < n_sweeps and code == RUNNING:
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
        code = judged(trace, done, moved, tol * scale)
        done += 1
    for k in range(n):
        v = order[k]
        for e in range(ptr[v], ptr[v + 1]):
            lam[e] = (S[v] if plain else rho[e] * S[v]) - heard[e]
    return code, done


@jit
def judged(trace, done, moved, goal):
    """What a sweep that moved so much means, after ``done`` others with the changes ``trace``.
    SLOW: it has not become much smaller in eight sweeps, or is not a number."""
    last, former = trace[(done - 1) % _WINDOW], trace[(done - 2) % _WINDOW]
    before = trace[done % _WINDOW]
    trace[done % _WINDOW] = moved
    if moved <= goal and last <= goal:
        return CONVERGED
    if moved < last < former < np.inf:
        ratio = max(moved / last, last / former)
        if moved * ratio <= goal * (1.0 - ratio):
            return CONVERGED
    if not moved < np.inf or (done >= 2 * _WINDOW and moved > _PACE * before):
        return SLOW
    return RUNNING


@jit
def joint_slopes(slot, joint, slope, sigma):
    """As :func:`pair_slopes`, from the beliefs of the pairs (P, 4): 00, 01, 10, 11. sigma(c + w) is
    P(x_v = 1 | x_u = 1), and sigma(c) the same given x_u = 0; 0 where u has no such state, which
    nothing but 0 will be multiplied with."""
    for f in range(slot.shape[0]):
        none, second, first, both = joint[f, 0], joint[f, 1], joint[f, 2], joint[f, 3]
        odd = both * none - first * second
        for k in range(2):
            lone, other = (first, second) if k == 0 else (second, first)
            on, off = both + other, none + lone
            sigma[slot[f, k]] = both / on if on > 0.0 else 0.0
            slope[slot[f, k]] = odd / on / off if on > 0.0 and off > 0.0 else 0.0


@jit
def pair_rows(frame, rows, joint, probs, c, how, found):
    """The adjoint of instances ``rows`` of one structure of binary pairs, one after the other.
    ``joint`` (n, P, 4) are beliefs of the pairs, ``probs`` and ``c`` (n, 2V) marginals and
    cotangents; ``how``: (tol, damping, max_iters). ``found``: S (n, V), derivatives by log-tables
    (n, P, 4), or none where these have no rows, how many sweeps it took and how they ended."""
    tol, damping, max_iters = how
    S, tables, sweeps, codes = found
    trace, cells, every = np.empty(_WINDOW), np.eye(4), np.arange(frame.slot.shape[0])
    slope, sigma, lam = (
        np.empty(frame.rev.shape), np.empty(frame.rev.shape), np.empty(frame.rev.shape)
    )  # fmt: skip
    g = np.empty(frame.ptr.shape[0] - 1)
    for r in rows:
        joint_slopes(frame.slot, joint[r], slope, sigma)
        pair_begin(frame, probs[r], c[r], g, S[r], lam)
        pair_pass(frame, slope, g, lam, S[r], frame.order, np.bool_(False), 0.0)
        codes[r], sweeps[r] = CONVERGED, 1
        if frame.core.shape[0] > 0:
            trace[:] = np.inf
            codes[r], sweeps[r] = pair_sweeps(
                frame, slope, g, lam, S[r], trace, max_iters, tol, damping
            )
        pair_pass(frame, slope, g, lam, S[r], frame.order, np.bool_(True), 0.0)
        if tables.shape[0] > 0:
            pair_statistics(frame, every, sigma, lam, S[r], cells, tables[r])


@jit
def pair_statistics(frame, rows, sigma, lam, S, basis, out):
    """Derivatives by the weights of pair factors ``rows``, log-tables being weights @ basis."""
    for r in range(rows.shape[0]):
        f = rows[r]
        i, j = frame.slot[f, 0], frame.slot[f, 1]
        w = sigma[i] * lam[j] + sigma[j] * lam[i]  # d / d w of the conjunction
        if frame.rho.size > 0:
            w /= frame.rho[i]
        a, b = S[frame.scope[f, 0]], S[frame.scope[f, 1]]
        d00, d01, d10 = w - a - b, b - w, a - w
        for k in range(basis.shape[0]):
            out[r, k] = basis[k, 0] * d00 + basis[k, 1] * d01 + basis[k, 2] * d10 + basis[k, 3] * w


class Conditionals(NamedTuple):
    """What conditional expectations are made of, beside a wiring with G general and E pair slots.
    Vectors of general slots lie as their messages do; numbers ``lam`` are those of the general
    slots, then one for each pair slot."""

    belief: np.ndarray  # f8 joint beliefs of factors of which tables and cavities do not serve
    at: np.ndarray  # i8 (F,) where a factor's begins; -1: a pair, from its table and cavities
    cavity: np.ndarray  # f8 (sum of sizes,) linear
    norm: np.ndarray  # f8 one over the marginal or the message, 0 where that is RARE
    slope: np.ndarray  # f8 (E,) of pairs in odds form


@jit
def _expect(gslot, fslot, lo, n, k, belief, t, lam, tmp):
    """sum over x_f at x_k of belief times the others' lam, into tmp."""
    size = gslot[fslot[lo + k], SIZE]
    for i in range(size):
        tmp[i] = 0.0
    inner, cells = 1, 1  # cells of what comes after position k
    for a in range(n):
        cells *= gslot[fslot[lo + a], SIZE]
        if a > k:
            inner *= gslot[fslot[lo + a], SIZE]
    stride = cells
    for a in range(n):
        o, m = gslot[fslot[lo + a], OFFSET], gslot[fslot[lo + a], SIZE]
        stride //= m
        for c in range(cells if a != k else 0):
            tmp[(c // inner) % size] += belief[t + c] * lam[o + (c // stride) % m]


@jit
def table_begin(w, c, probs, lam, q, s):
    """Centred cotangents ``c``, and what they say to others at first."""
    gptr, gslot, grho, off, ptr = w.gptr, w.gslot, w.grho, w.off, w.ptr
    q[:] = 0.0
    s[:] = c
    for v in range(off.shape[0] - 1):
        o = off[v]
        for g in range(gptr[v], gptr[v + 1]):
            for i in range(gslot[g, SIZE]):
                lam[gslot[g, OFFSET] + i] = c[o + i] * (grho[g] if grho.size > 0 else 1.0)
        for e in range(ptr[v], ptr[v + 1]):
            rho = w.rho[e] if w.rho.size > 0 else 1.0
            lam[q.shape[0] + e] = rho * c[o + 1] * probs[o + 1]


@jit
def table_pass(w, given, alive, c, probs, lam, q, s, order, how, damping, tmp):
    """Visit some variables in turn: the largest change of b s and b lam; the largest b s.

    ``c`` are centred cotangents; ``alive`` is 1 where ``probs`` are positive, else 0. ``how`` is
    (down, every, ahead, norming). Not ``every``: only slots are asked whose factors have a variable
    that was visited since; what the others would say is in ``q``. ``ahead``, undamped: lam is left
    only to factors that have others still to be visited, its changes unseen. ``norming``, with
    ``lam`` all 1: fills in ``norm`` and no more. ``tmp`` has room for three vectors of labels. By
    address, for a call costs more than what is done for eight states.
    """
    off, gptr, gslot, grho, fac, fslot = w.off, w.gptr, w.gslot, w.grho, w.fac, w.fslot
    ptr, rev, rho, tab = w.ptr, w.rev, w.rho, w.tab
    belief, begin, cavity, norm, slope = given
    down, every, ahead, norming = how
    n_order, base = order.shape[0], q.shape[0]
    moved, scale = 0.0, 0.0
    a_norm, a_lam, a_q, a_tmp = address(norm), address(lam), address(q), address(tmp)
    a_c, a_s, a_alive, a_probs = address(c), address(s), address(alive), address(probs)
    a_tab, a_cavity, room = address(tab), address(cavity), tmp.shape[0] // 3
    h, sums = a_tmp + 8 * room, a_tmp + 16 * room
    for r in range(n_order):
        v = order[n_order - 1 - r] if down else order[r]
        o = off[v]
        n = off[v + 1] - o
        for g in range(gptr[v], gptr[v + 1]):
            f, k = gslot[g, FACTOR], np.int64(gslot[g, POSITION])
            first = fac[f, FIRST]
            if not every and not has_other(fslot, first, fac[f, ARITY], g, down):
                continue
            code, width = fac[f, CODE], fac[f, WIDTH]
            if begin[f] >= 0:
                _expect(gslot, fslot, first, fac[f, ARITY], k, belief, begin[f], lam, tmp)
            else:
                other = fslot[first + 1 - k]
                b, size = np.int64(gslot[other, OFFSET]), np.int64(gslot[other, SIZE])
                psi = a_tab + 8 * fac[f, TABLE]
                if code > 0 and not (code == RISE and width <= 1):
                    low = 0.0  # messages of such labels are for what is not negative
                    for i in range(b, b + size):
                        low = min(low, lam[i])
                    for i in range(size):  # what is taken off here goes with the mean below
                        tmp[room + i] = cavity[b + i] * (lam[b + i] - low)
                    label_message(tab, fac[f, TABLE], code, width, tmp, room, size, tmp)
                else:
                    mass = multiply(h, a_cavity + 8 * b, a_lam + 8 * b, size)
                    if code > 0:  # Potts
                        high = get(psi + 8) if width > 0 else 0.0
                        line(a_tmp, get(psi) * mass, high, h, n, SPAN)
                    elif k == 0:
                        by_rows(psi, h, 1.0, size, n, a_tmp)
                    else:
                        by_columns(psi, h, 1.0, size, n, a_tmp)
            at = 8 * np.int64(gslot[g, OFFSET])
            if norming:
                others = 1 if begin[f] < 0 else fac[f, ARITY] - 1
                for i in range(n):
                    x = tmp[i] / others
                    norm[gslot[g, OFFSET] + i] = 1.0 / x if x > RARE else 0.0
                continue
            mean = _weigh(a_q + at, a_tmp, a_norm + at, a_probs + 8 * o, n)
            _shift(a_q + at, mean, n)  # it is 0 but for rounding, which grows with the degree
        if norming:
            continue
        copy(sums, a_c + 8 * o, n)
        for g in range(gptr[v], gptr[v + 1]):
            _add(sums, a_q + 8 * np.int64(gslot[g, OFFSET]), n)
        heard = 0.0
        for e in range(ptr[v], ptr[v + 1]):
            heard += slope[e] * lam[base + rev[e]]
        if ptr[v] < ptr[v + 1]:
            for i in range(2):
                if probs[o + i] > RARE:
                    put(sums + 8 * i, get(sums + 8 * i) + (2 * i - 1) * heard / probs[o + i])
        moved, scale = _settle(a_s + 8 * o, sums, a_alive + 8 * o, a_probs + 8 * o, n, moved, scale)
        for e in range(ptr[v], ptr[v + 1]):
            own = s[o + 1] * probs[o + 1] * (rho[e] if rho.size > 0 else 1.0)
            new, old = own - slope[e] * lam[base + rev[e]], lam[base + e]
            moved = max(moved, abs(new - old))
            lam[base + e] = new if damping == 0.0 else new + damping * (old - new)
        for g in range(gptr[v], gptr[v + 1]):
            weight, at, f = grho[g] if grho.size > 0 else 1.0, gslot[g, OFFSET], gslot[g, FACTOR]
            if ahead:
                if has_other(fslot, fac[f, FIRST], fac[f, ARITY], g, not down):
                    there = 8 * np.int64(at)
                    _leave(a_lam + there, weight, a_s + 8 * o, a_q + there, a_alive + 8 * o, n)
                continue
            for i in range(n):
                new = (weight * s[o + i] - q[at + i]) * alive[o + i]
                moved = max(moved, probs[o + i] * abs(new - lam[at + i]))
                lam[at + i] = new if damping == 0.0 else new + damping * (lam[at + i] - new)
    return moved, scale


@jit
def table_sweeps(w, given, alive, c, probs, lam, q, s, order, trace, how, tmp):
    """As :func:`pair_sweeps`; undamped ones send ahead, too. ``how``: (n_sweeps, tol, damping)."""
    n_sweeps, tol, damping = how
    done, code = 0, RUNNING
    while done < n_sweeps and code == RUNNING:
        kind = done % 2 == 1, done == 0, damping == 0.0, False
        moved, scale = table_pass(w, given, alive, c, probs, lam, q, s, order, kind, damping, tmp)
        code = judged(trace, done, moved, tol * scale)
        done += 1
    if damping == 0.0:  # what is left to say
        gptr, gslot, off, grho = w.gptr, w.gslot, w.off, w.grho
        for v in order:
            for g in range(gptr[v], gptr[v + 1]):
                at, o = 8 * np.int64(gslot[g, OFFSET]), 8 * off[v]
                _leave(
                    address(lam) + at, grho[g] if grho.size > 0 else 1.0, address(s) + o,
                    address(q) + at, address(alive) + o, off[v + 1] - off[v],
                )  # fmt: skip
    return code, done


# ---------------------------------------------------------------------- vectors, by address


@jit
def _weigh(out, a, b, p, n):
    """out = a b; its mean under p."""
    lanes, rest = spread(0.0), 0.0
    for _ in range(n // L):
        x = load(a) * load(b)
        store(out, x)
        lanes = lanes + x * load(p)
        out, a, b, p = out + SPAN, a + SPAN, b + SPAN, p + SPAN
    for _ in range(n % L):
        x = get(a) * get(b)
        put(out, x)
        rest += x * get(p)
        out, a, b, p = out + 8, a + 8, b + 8, p + 8
    return total(lanes) + rest


@jit
def _shift(out, x, n):
    """out -= x."""
    lanes = spread(x)
    for _ in range(n // L):
        store(out, load(out) - lanes)
        out += SPAN
    for _ in range(n % L):
        put(out, get(out) - x)
        out += 8


@jit
def _add(out, a, n):
    """out += a."""
    for _ in range(n // L):
        store(out, load(out) + load(a))
        out, a = out + SPAN, a + SPAN
    for _ in range(n % L):
        put(out, get(out) + get(a))
        out, a = out + 8, a + 8


@jit
def _settle(s, new, alive, p, n, moved, scale):
    """s = new where alive; the largest changes of p s and the largest p s, if more than given."""
    far, large = spread(moved), spread(scale)
    for _ in range(n // L):
        x, weight = load(new) * load(alive), load(p)
        far = larger(magnitude((x - load(s)) * weight), far)
        large = larger(magnitude(x * weight), large)
        store(s, x)
        s, new, alive, p = s + SPAN, new + SPAN, alive + SPAN, p + SPAN
    for _ in range(n % L):
        x, weight = get(new) * get(alive), get(p)
        moved = max(moved, abs(x - get(s)) * weight)
        scale = max(scale, abs(x) * weight)
        put(s, x)
        s, new, alive, p = s + 8, new + 8, alive + 8, p + 8
    return max(most(far), moved), max(most(large), scale)


@jit
def _leave(out, rho, s, q, alive, n):
    """out = rho s - q where alive."""
    for _ in range(n // L):
        store(out, (load(s) * rho - load(q)) * load(alive))
        out, s, q, alive = out + SPAN, s + SPAN, q + SPAN, alive + SPAN
    for _ in range(n % L):
        put(out, (get(s) * rho - get(q)) * get(alive))
        out, s, q, alive = out + 8, s + 8, q + 8, alive + 8


@jit
def weigh(w, rows, lam, out):
    """Joint beliefs (n, cells) of factors ``rows`` times sum_v lam_v(x_v) / rho, in place."""
    gslot, fac, fslot, grho = w.gslot, w.fac, w.fslot, w.grho
    for r in range(rows.shape[0]):
        lo, n = fac[rows[r], FIRST], fac[rows[r], ARITY]
        rho = grho[fslot[lo]] if grho.size > 0 else 1.0
        for c in range(out.shape[1]):
            rest, total = c, 0.0
            for a in range(n - 1, -1, -1):
                o, m = gslot[fslot[lo + a], OFFSET], gslot[fslot[lo + a], SIZE]
                total += lam[o + rest % m]
                rest //= m
            out[r, c] *= total / rho


@jit
def weigh_distances(w, cavity, rows, lam, taps, which, mass):
    """The same by distance: (n, T), of pairs of labels with linear taps (n or 1, T)."""
    gslot, fac, fslot, grho = w.gslot, w.fac, w.fslot, w.grho
    h = cavity * lam[: cavity.shape[0]]
    more, base = np.empty((1, mass.shape[1])), np.empty((1, mass.shape[1]))
    for r in range(rows.shape[0]):
        a, b = fslot[fac[rows[r], FIRST]], fslot[fac[rows[r], FIRST] + 1]
        i, j, n = gslot[a, OFFSET], gslot[b, OFFSET], gslot[a, SIZE]
        rho = grho[a] if grho.size > 0 else 1.0
        masses(cavity, i, cavity, j, n, base, 0)
        masses(h, i, cavity, j, n, mass, r)
        masses(cavity, i, h, j, n, more, 0)
        total = 0.0
        for d in range(mass.shape[1]):
            total += base[0, d] * taps[which[r], d]
        for d in range(mass.shape[1]):
            mass[r, d] = (mass[r, d] + more[0, d]) * taps[which[r], d] / (total * rho)
