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

**When sweeps stop.** They are one linear map after the other, so changes shrink by a ratio r from
sweep to sweep, and what is still to come is the last change times r / (1 - r). Converged: that is
at most ``tol`` of the largest derivative, going by the larger of the last two ratios; or two sweeps
running, one in each direction, moved nothing by more than that.
"""

import math
from typing import NamedTuple

import numpy as np

from minfer.kernels._jit import jit
from minfer.kernels.addresses import SPAN, L, address, get, load, most, put, spread, store, total
from minfer.kernels.labels import RISE, _masses, label_message
from minfer.kernels.lanes import larger, magnitude
from minfer.kernels.lean import _by_columns, _by_rows, _copy, _line, _multiply

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

# how a factor's conditional expectations are taken
BELIEF = 0  # from its joint belief
DENSE = 1  # a pair: from its table and the other's cavity
LABELS = 2  # a pair of labels, by distance


@jit
def pair_slopes(ptr, prior, m, W, odds, log_odds, slope, sigma):
    """f' and sigma(c + w) of every slot, for the message that its variable sends.

    ``odds`` are the beliefs', NaN where ``log_odds`` have to do, which may be infinite; both are
    empty where all are ``prior`` times the messages.
    """
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
def pair_sweeps(ptr, rev, rho, slope, g, lam, S, order, trace, n_sweeps, tol, damping):
    """Sweeps over the core, up and down in turn: how they ended, and how many.

    ``trace`` (8,), infinite at first, has the last changes.
    """
    done = 0
    while done < n_sweeps:
        moved, scale = pair_pass(ptr, rev, rho, slope, g, lam, S, order, done % 2 == 1, damping)
        code = judged(trace, done, moved, tol * scale)
        done += 1
        if code != RUNNING:
            return code, done
    return RUNNING, done


@jit
def pair_begin(off, ptr, rho, probs, c, g, S, lam):
    """Cotangents ``c`` as derivatives by log-odds, and what they say to others at first."""
    for v in range(ptr.shape[0] - 1):
        o = off[v]
        g[v] = 0.0
        if off[v + 1] - o == 2:  # p (c - E[c]) of state 1
            g[v] = probs[o] * probs[o + 1] * (c[o + 1] - c[o])
        S[v] = g[v]
        for e in range(ptr[v], ptr[v + 1]):
            lam[e] = g[v] if rho.size == 0 else rho[e] * g[v]


@jit
def pair_ahead(ptr, rev, rho, slope, g, lam, S, order, trace, n_sweeps, tol):
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
    done, code = 0, RUNNING
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
def centre(off, probs, c, out):
    """c - E[c] of every variable, 0 on states that are impossible."""
    for v in range(off.shape[0] - 1):
        mean = 0.0
        for i in range(off[v], off[v + 1]):
            mean += probs[i] * c[i]
        for i in range(off[v], off[v + 1]):
            out[i] = c[i] - mean if probs[i] > 0.0 else 0.0


@jit
def judged(trace, done, moved, goal):
    """What a sweep that moved so much means, after ``done`` others; ``trace`` has their changes.

    SLOW: the change has not become much smaller in eight sweeps, or is not a number.
    """
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
    """As :func:`pair_slopes`, from the beliefs of the pairs (P, 4): 00, 01, 10, 11.

    sigma(c + w) is P(x_v = 1 | x_u = 1), and sigma(c) the same given x_u = 0. Where u has one state
    left what is said of the other is 0; nothing that is not 0 will be multiplied with it.
    """
    for f in range(slot.shape[0]):
        none, second, first, both = joint[f, 0], joint[f, 1], joint[f, 2], joint[f, 3]
        odd = both * none - first * second
        for k in range(2):
            lone, other = (first, second) if k == 0 else (second, first)
            on, off = both + other, none + lone
            sigma[slot[f, k]] = both / on if on > 0.0 else 0.0
            slope[slot[f, k]] = odd / on / off if on > 0.0 and off > 0.0 else 0.0


@jit
def pair_rows(
    off, ptr, rev, slot, scope, core, order, rows, joint, probs, c, tol, damping, max_iters,
    S, tables, sweeps, codes,
):  # fmt: skip
    """The adjoint of many instances of one structure of binary pairs, one after the other.

    ``joint`` (n, P, 4) are beliefs of the pairs, ``probs`` and ``c`` (n, 2V) marginals and
    cotangents, ``rows`` those that are asked for. Writes S (n, V), derivatives by log-tables
    (n, P, 4), or none where ``tables`` has no rows, how many sweeps it took and how they ended.
    """
    none, trace, cells = np.empty(0), np.empty(_WINDOW), np.eye(4)
    every = np.arange(slot.shape[0])
    slope, sigma, lam = np.empty(rev.shape), np.empty(rev.shape), np.empty(rev.shape)
    g = np.empty(ptr.shape[0] - 1)
    for r in rows:
        joint_slopes(slot, joint[r], slope, sigma)
        pair_begin(off, ptr, none, probs[r], c[r], g, S[r], lam)
        pair_pass(ptr, rev, none, slope, g, lam, S[r], order, np.bool_(False), 0.0)
        codes[r], sweeps[r] = CONVERGED, 1
        if core.shape[0] > 0:
            trace[:] = np.inf
            if damping == 0.0:
                codes[r], sweeps[r] = pair_ahead(
                    ptr, rev, none, slope, g, lam, S[r], core, trace, max_iters, tol
                )
            else:
                codes[r], sweeps[r] = pair_sweeps(
                    ptr, rev, none, slope, g, lam, S[r], core, trace, max_iters, tol, damping
                )
        pair_pass(ptr, rev, none, slope, g, lam, S[r], order, np.bool_(True), 0.0)
        if tables.shape[0] > 0:
            pair_statistics(every, slot, scope, none, sigma, lam, S[r], cells, tables[r])


@jit
def pair_statistics(rows, slot, scope, rho, sigma, lam, S, basis, out):
    """Derivatives by the weights of pair factors ``rows``, log-tables being weights @ basis."""
    for r in range(rows.shape[0]):
        f = rows[r]
        i, j = slot[f, 0], slot[f, 1]
        w = sigma[i] * lam[j] + sigma[j] * lam[i]  # d / d w of the conjunction
        if rho.size > 0:
            w /= rho[i]
        a, b = S[scope[f, 0]], S[scope[f, 1]]
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
    norm: np.ndarray  # f8 of each slot: one over the marginal or the message, 0 where that is RARE


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
    """Fill in ``norm``; ``tmp`` as in :func:`table_pass`."""
    (off, ptr, factor, position, start, behind, first, slots, kind, rho, tab, belief, cavity,
     norm) = web  # fmt: skip
    ones = np.ones(cavity.shape[0])
    room = tmp.shape[0] // 3
    numbers, out, cavities = address(tab), address(tmp), address(cavity)
    for j in range(factor.shape[0]):
        f, k, n = factor[j], position[j], start[j + 1] - start[j]
        if kind[f, 0] == BELIEF:
            _expect(web, f, k, ones, tmp)
            others = first[f + 1] - first[f] - 1
            for i in range(n):
                tmp[i] /= others
        else:
            other = slots[first[f] + 1 - k]
            size = start[other + 1] - start[other]
            if kind[f, 0] == DENSE or (kind[f, 1] == RISE and kind[f, 2] <= 1):
                h = out + 8 * room
                mass = _copy(h, cavities + 8 * start[other], size)
                psi = numbers + 8 * kind[f, 3]
                _message(psi, kind[f, 0], kind[f, 2], k, h, mass, size, n, out)
            else:
                label_message(
                    tab, kind[f, 3], kind[f, 1], kind[f, 2], cavity, start[other], size, tmp
                )
        for i in range(n):
            norm[start[j] + i] = 1.0 / tmp[i] if tmp[i] > RARE else 0.0


@jit
def _message(numbers, kind, width, k, h, mass, size, n, out):
    """sum_u psi(x_v, x_u) h(x_u) of a pair with a table, or of Potts; by address.

    v is at position k and has n states; h has ``size`` numbers, which sum to ``mass``.
    """
    if kind == LABELS:
        _line(out, get(numbers) * mass, get(numbers + 8) if width > 0 else 0.0, h, n, SPAN)
    elif k == 0:
        _by_rows(numbers, h, 1.0, size, n, out)
    else:
        _by_columns(numbers, h, 1.0, size, n, out)


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
def table_pass(web, alive, c, probs, lam, q, s, order, down, every, ahead, damping, tmp):
    """Visit some variables in turn: the largest change of b s and b lam; the largest b s.

    ``c`` are centred cotangents; ``alive`` is 1 where ``probs`` are positive, else 0. Not ``every``
    slot is asked then, but those alone whose factors have a variable that was visited since; what
    the others would say is in ``q``. ``ahead``, undamped: lam is left only to factors that have
    others still to be visited, and its changes are not looked at. ``tmp`` has room for three
    vectors of labels, as their messages need it.

    Written out, and by address, for a call costs more than what is done for eight states.
    """
    (off, ptr, factor, position, start, behind, first, slots, kind, rho, tab, belief, cavity,
     norm) = web  # fmt: skip
    n_order = order.shape[0]
    moved, scale = 0.0, 0.0
    side = 2 if down else 1
    room = tmp.shape[0] // 3
    a_tab, a_cavity, a_norm, a_lam, a_q = (
        address(tab), address(cavity), address(norm), address(lam), address(q),
    )  # fmt: skip
    a_c, a_s, a_alive, a_probs, a_tmp = (
        address(c), address(s), address(alive), address(probs), address(tmp),
    )  # fmt: skip
    h, sums = a_tmp + 8 * room, a_tmp + 16 * room
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
            else:
                other = slots[first[f] + 1 - k]
                b = start[other]
                size = start[other + 1] - b
                if kind[f, 0] == DENSE or (kind[f, 1] == RISE and kind[f, 2] <= 1):
                    mass = _multiply(h, a_cavity + 8 * b, a_lam + 8 * b, size)
                    numbers = a_tab + 8 * kind[f, 3]
                    _message(numbers, kind[f, 0], kind[f, 2], k, h, mass, size, n, a_tmp)
                else:  # messages of other labels are for what is not negative
                    low = lam[b]
                    for i in range(b + 1, b + size):
                        low = min(low, lam[i])
                    for i in range(size):  # what is taken off here goes with the mean below
                        tmp[room + i] = cavity[b + i] * (lam[b + i] - low)
                    label_message(tab, kind[f, 3], kind[f, 1], kind[f, 2], tmp, room, size, tmp)
            here = a_q + 8 * at
            mean = _weigh(here, a_tmp, a_norm + 8 * at, a_probs + 8 * o, n)
            _shift(here, mean, n)  # it is 0 but for rounding, which grows with the degree
        _copy(sums, a_c + 8 * o, n)
        for j in range(ptr[v], ptr[v + 1]):
            _add(sums, a_q + 8 * start[j], n)
        moved, scale = _settle(a_s + 8 * o, sums, a_alive + 8 * o, a_probs + 8 * o, n, moved, scale)
        for j in range(ptr[v], ptr[v + 1]):
            weight, at = rho[factor[j]], start[j]
            if ahead:
                if behind[j] & (3 - side):
                    _leave(a_lam + 8 * at, weight, a_s + 8 * o, a_q + 8 * at, a_alive + 8 * o, n)
                continue
            for i in range(n):
                new = (weight * s[o + i] - q[at + i]) * alive[o + i]
                moved = max(moved, probs[o + i] * abs(new - lam[at + i]))
                lam[at + i] = new if damping == 0.0 else new + damping * (lam[at + i] - new)
    return moved, scale


@jit
def table_sweeps(web, alive, c, probs, lam, q, s, order, trace, n_sweeps, tol, damping, tmp):
    """As :func:`pair_sweeps`; undamped ones send ahead, as :func:`pair_ahead`'s do."""
    done, code = 0, RUNNING
    while done < n_sweeps and code == RUNNING:
        moved, scale = table_pass(
            web, alive, c, probs, lam, q, s, order, done % 2 == 1, done == 0, damping == 0.0,
            damping, tmp,
        )  # fmt: skip
        code = judged(trace, done, moved, tol * scale)
        done += 1
    if damping == 0.0:  # what is left to say
        ptr, off, start, factor, rho = web.ptr, web.off, web.start, web.factor, web.rho
        for v in order:
            for j in range(ptr[v], ptr[v + 1]):
                _leave(
                    address(lam) + 8 * start[j], rho[factor[j]], address(s) + 8 * off[v],
                    address(q) + 8 * start[j], address(alive) + 8 * off[v],
                    off[v + 1] - off[v],
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
    few = mass.shape[1] == 2  # equal or not
    h = cavity * lam if not few else cavity
    more = np.empty((1, mass.shape[1]))
    base = np.empty((1, mass.shape[1]))
    for r in range(rows.shape[0]):
        f = rows[r]
        a, b = slots[first[f]], slots[first[f] + 1]
        i, j, n = start[a], start[b], start[a + 1] - start[a]
        if few:
            base[0, 0], base[0, 1], mass[r, 0], mass[r, 1] = _equal_or_not(cavity, lam, i, j, n)
            more[:] = 0.0
        else:
            _masses(cavity, i, cavity, j, n, base, 0)
            _masses(h, i, cavity, j, n, mass, r)
            _masses(cavity, i, h, j, n, more, 0)
        total = 0.0
        for d in range(mass.shape[1]):
            total += base[0, d] * taps[which[r], d]
        for d in range(mass.shape[1]):
            mass[r, d] = (mass[r, d] + more[0, d]) * taps[which[r], d] / (total * rho[f])


@jit
def _equal_or_not(cavity, lam, i, j, n):
    """Mass of equal labels and of different ones, plain and times the sum of both ends' lam.

    Of different ones by running sums: nothing is subtracted.
    """
    same = other = same_lam = other_lam = 0.0
    left = left_lam = right = right_lam = 0.0  # of labels before
    for k in range(n):
        p, q = cavity[i + k], cavity[j + k]
        x, y = p * lam[i + k], q * lam[j + k]
        same += p * q
        same_lam += x * q + p * y
        other += p * right + q * left
        other_lam += (x * right + p * right_lam) + (y * left + q * left_lam)
        left, left_lam, right, right_lam = left + p, left_lam + x, right + q, right_lam + y
    return same, other, same_lam, other_lam
