"""Sum-product and tree-reweighted messages of binary pairs: one odds number per direction.

With m the incoming odds message, B the belief odds and c = B / m the cavity, the outgoing message
(1 + W c) / (1 + c) is computed with one division as

    (m + W B) / (m + B).

Tree-reweighted pair slots keep rho * log m beside m: log B is their sum, W stands for psi^{1/rho},
and the message is the same (one exp per visit, one log per message).

Undamped sequential sweeps *send ahead*: a visit sends only to variables that the sweep has yet to
come to. What it would send the others is overwritten, on the way back, before they read it, so
beliefs are those of sending everything, bit for bit, for half the messages. Nothing reaches a
variable between its visit and the end of the sweep, so :func:`complete` can send the others when a
run ends or is to be confirmed. What *converged* means is told in
:mod:`minfer.kernels.messages.sweeps`, which has the sweeps of models that have other variables,
too.

A run compiles only what it needs: what is None leaves out the branch for it.
"""

import math

import numpy as np

from minfer.kernels.compiling.jit import jit
from minfer.kernels.messages.wiring import (
    ASLEEP,
    DAMPING,
    DONE,
    LAST,
    MAX_ODDS,
    NEVER,
    PASSED,
    PHASE,
    PLAIN,
    SCALED,
    SENT,
    SKIPPED,
    TOL,
    TRIGGER,
    WORST,
    damped,
)

EARLIER, ALL, LATER = -1, 0, 1  # whom a visit sends to: neighbours of smaller or larger number

_BIG = 1e150  # one step of the exponent of scaled products
_LOG_BIG = math.log(_BIG)
_ONE, _TWO = np.uint64(1), np.uint64(2)


@jit
def scaled_odds(prior, m, lo, hi):
    """Belief odds where plain products could overflow: a mantissa and an exponent, then clamped.
    Log-odds beyond 1e12 are cut: messages of e^150 at most do not count there."""
    prior = min(max(prior, -1e12), 1e12)
    steps = round(prior / _LOG_BIG)
    odds = math.exp(prior - steps * _LOG_BIG)
    for e in range(lo, hi):
        odds *= m[e]
        if odds > _BIG:
            odds /= _BIG
            steps += 1
        elif odds < 1.0 / _BIG:
            odds *= _BIG
            steps -= 1
    while steps > 0 and odds < MAX_ODDS:
        odds = min(odds * _BIG, MAX_ODDS)
        steps -= 1
    while steps < 0 and odds > 1.0 / MAX_ODDS:
        odds = max(odds / _BIG, 1.0 / MAX_ODDS)
        steps += 1
    return min(max(odds, 1.0 / MAX_ODDS), MAX_ODDS)


@jit
def visit_pairs(w, m, bel, out, begin, end, forward, send, damping, weights, order, wake):
    """Visit pair variables in turn: the largest change of a belief, and how far messages moved.

    ``w`` is off, kind, prior, ptr, rev and W, and no more: twenty arrays take a third longer to
    compile. Visited are begin..end, or ``order[begin:end]``. Else None, each compiled apart:
    ``damping``, which also has the messages watched, undamped; ``weights`` of tree-reweighted ones,
    (rho, weighted_log, whether in place: if not, rho log m is left to the caller); ``wake``, (owner
    of each slot, active, control), to visit only active variables, and to wake those whose messages
    moved by more than TRIGGER.

    The hot loop, written out: even a small call per variable, which counts references to its
    arrays, would double the cost. Slots of later neighbours come first, and have e < rev[e].
    """
    off, kind, prior, ptr, rev, W = w
    if weights is not None:
        rho, weighted_log, in_place = weights
    if wake is not None:
        owner, active, control = wake
        tol = control[TRIGGER]
    biggest = moved = 0.0
    for k in range(begin, end):
        v = np.uint64(k if forward else begin + end - 1 - k)
        if order is not None:
            v = np.uint64(order[v])
        if wake is not None:
            if active[v] == 0:
                control[SKIPPED] += 1.0 if kind[v] != ASLEEP else 0.0
                continue
            active[v] = 0
        lo, hi = ptr[v], ptr[v + _ONE]
        odds, more = prior[v], 1.0
        if weights is not None:
            if kind[v] == ASLEEP:
                continue
            for e in range(lo, hi):
                odds += weighted_log[e]
            odds = math.exp(min(max(odds, -460.0), 460.0))
        else:
            if lo < hi:
                last = hi - _ONE if forward else lo  # what the last visit may have just sent
                e = lo if forward else lo + _ONE
                to = e + (hi - lo - _ONE)
                while e + _TWO <= to:  # two products make a shorter chain
                    odds *= m[e]
                    more *= m[e + _ONE]
                    e += _TWO
                if e < to:
                    odds *= m[e]
                odds = odds * more * m[last]
            if kind[v] != PLAIN:  # seldom
                if kind[v] != SCALED:
                    continue
                odds = scaled_odds(prior[v], m, lo, hi)
        if damping is not None:
            for e in range(lo, hi):
                r = rev[e]
                if send != ALL and (r > e) != (send == LATER):
                    continue
                x, old = m[e], m[r]
                x = (x + W[e] * odds) / (x + odds)
                if abs(x - old) > moved * (x + old):  # seldom: spares a division
                    moved = abs(x - old) / (x + old)
                if damping > 0.0:
                    x = damped(x, old, damping)
                out[r] = x
                if weights is not None and in_place:
                    weighted_log[r] = rho[e] * math.log(x)
                if wake is not None and abs(x - old) > tol * old:
                    active[owner[r]] = 1
        elif send == EARLIER:
            e = hi
            while e > lo:
                e -= _ONE
                r = rev[e]
                if r > e:
                    break
                x = m[e]
                out[r] = (x + W[e] * odds) / (x + odds)
        else:
            e = lo
            while e < hi:
                r = rev[e]
                if r < e and send == LATER:
                    break
                x = m[e]
                out[r] = (x + W[e] * odds) / (x + odds)
                e += _ONE
        p = odds / (1.0 + odds)
        o = np.uint64(off[v]) + _ONE
        biggest = max(biggest, abs(p - bel[o]))
        bel[o] = p
    return biggest, half_angle(moved)


@jit
def half_angle(t):
    """tanh(d / 4) from t = tanh(d / 2) = |x - y| / (x + y), the odds x and y being d nats apart."""
    return t / (1.0 + math.sqrt(max(1.0 - t * t, 0.0)))


@jit
def is_quiet(control, change):
    """Whether the sweep after one that moved things by ``change`` promises to move them by no more
    than TRIGGER: then a confirming update follows."""
    last = control[LAST]
    control[LAST] = change
    if control[DAMPING] == 0.0 and change < last < np.inf:
        change *= change / last
    return change <= control[TRIGGER]


@jit
def most_apart(m, before):
    """The most that a pair message has moved."""
    t = 0.0
    for e in range(m.shape[0]):
        x, y = m[e], before[e]
        if abs(x - y) > t * (x + y):  # seldom: spares divisions
            t = abs(x - y) / (x + y)
    return half_angle(t)


@jit
def exchange(m, other, weights):
    """Messages change places with others; and rho log m."""
    for e in range(m.shape[0]):
        m[e], other[e] = other[e], m[e]
    if weights is not None:
        rho, weighted_log, _ = weights
        for e in range(m.shape[0]):
            weighted_log[e] = rho[e] * math.log(m[e])


@jit
def tighten(control):
    """After a failure sweeps must come closer (TRIGGER sinks) by about as much as was missed."""
    tol = control[TOL]
    share = min(max(0.9 * tol / control[WORST], 0.1), 0.7)
    least = 0.02 * tol if control[DAMPING] == 0.0 else 0.0
    control[TRIGGER] = max(control[TRIGGER] * share, least)
    control[LAST] = np.inf


@jit
def read_pairs(w, m, weights, bel, state):
    """Beliefs of the variables that are awake, read from the messages, into ``bel``; how far those
    of ``state`` that stood there were off."""
    off, kind, prior, ptr, _, _ = w
    worst = 0.0
    for v in range(kind.shape[0]):
        if kind[v] == ASLEEP:
            continue
        odds = prior[v]
        if weights is not None:
            for e in range(ptr[v], ptr[v + 1]):
                odds += weights[1][e]
            odds = math.exp(min(max(odds, -460.0), 460.0))
        elif kind[v] == PLAIN:
            for e in range(ptr[v], ptr[v + 1]):
                odds *= m[e]
        else:
            odds = scaled_odds(odds, m, ptr[v], ptr[v + 1])
        o, p, q = off[v], 1.0 / (1.0 + odds), odds / (1.0 + odds)
        worst = max(worst, abs((q if state == 1 else p) - bel[o + state]))
        bel[o], bel[o + 1] = p, q
    return worst


@jit
def complete(w, m, bel, control, weights):
    """Send what the last sweep, which sent ahead, left out. A variable has heard nothing since its
    visit but what such a completion sends it, in the order of that sweep: so each finds the
    messages of its visit."""
    sent, n, first = control[SENT], w[1].shape[0], np.int64(0)
    if sent == 0.0 or sent == NEVER:
        return
    control[SENT] = 0.0
    send = np.int64(-sent)
    if weights is not None:
        visit_pairs(w, m, bel, m, first, n, send < 0, send, 0.0, weights, None, None)
    else:
        visit_pairs(w, m, bel, m, first, n, send < 0, send, None, None, None, None)


@jit
def walk_pairs(w, m, bel, weights, order, forward):
    """Once through ``order``, forwards or backwards: the way through trees."""
    n, first, send = order.shape[0], np.int64(0), np.int64(ALL)
    if weights is not None:
        visit_pairs(w, m, bel, m, first, n, forward, send, 0.0, weights, order, None)
    else:
        visit_pairs(w, m, bel, m, first, n, forward, send, None, None, order, None)


@jit
def wake_all(active):
    for v in range(active.shape[0]):
        active[v] = 1


@jit
def sweep_pairs(w, m, bel, before, seen, control, residuals, damping, weights, other, wake, order):
    """Up to as many sweeps as ``residuals`` has room for; returns how many were made, fewer if the
    run has converged.

    Forward and backward in turn, in place; sending ahead unless SENT is NEVER. ``other`` (E,), not
    None: flooding, through this spare array. ``before`` (E,) and ``seen`` are room for messages and
    beliefs of the confirming update; where ``before`` is empty it is one sweep in each direction.
    ``residuals`` gets the largest changes of beliefs, and with a minus sign what confirming sweeps
    moved. ``damping`` may be None if there is none, and room.

    ``wake``, None or (owner of each slot, active): the residual schedule visits only active
    variables, those whose messages moved. When nothing among them moves any more, everything is
    woken; a sweep over everything within the trigger is followed by the confirming update.

    ``order``, None or variables: the coloured schedule visits them in this order, always forwards;
    ``damping`` is a number then, and nothing is sent ahead.
    """
    n, tol, begin = w[1].shape[0], control[TOL], np.int64(0)
    room = before.shape[0] == m.shape[0]
    for it in range(residuals.shape[0]):
        watching = control[PHASE] != 0.0
        if control[PHASE] < 0.0:
            control[PHASE], control[WORST] = 1.0, 0.0
            if room:
                complete(w, m, bel, control, weights)
                for e in range(m.shape[0]):  # it writes those of variables that are awake
                    before[e] = m[e]
            elif damping is not None:
                read_pairs(w, m, weights, bel, np.int64(0))
        at_once = watching and room
        out, beliefs = before if at_once else m, seen if at_once else bel
        if other is not None:
            out, at_once = before if at_once else other, True
        forward = at_once or (control[DONE] % 2.0 == 0.0) != (control[PHASE] == 2.0)
        if order is not None:
            forward = control[PHASE] != 2.0
        send = ALL
        if not at_once and control[SENT] != NEVER:
            send = LATER if forward else EARLIER
            control[SENT] = send
        moved = share = 0.0
        if damping is not None:
            share = 0.0 if watching else damping
        if wake is not None:
            if watching:
                wake_all(wake[1])
            control[SKIPPED] = 0.0
            all_ = wake[0], wake[1], control
            change, moved = visit_pairs(
                w, m, beliefs, out, begin, n, forward, send, share, None, None, all_
            )
        elif order is not None and weights is not None:
            rho, last = (weights[0], weights[1], not at_once), order.shape[0]
            change, moved = visit_pairs(
                w, m, beliefs, out, begin, last, forward, send, share, rho, order, None
            )
        elif order is not None:
            change, moved = visit_pairs(
                w, m, beliefs, out, begin, order.shape[0], forward, send, share, None, order, None
            )
        elif weights is not None:
            rho = weights[0], weights[1], not at_once
            change, moved = visit_pairs(
                w, m, beliefs, out, begin, n, forward, send, share, rho, None, None
            )
        elif damping is not None and (share > 0.0 or (watching and not at_once)):
            change, moved = visit_pairs(  # apart: to look would cost a fifth
                w, m, beliefs, out, begin, n, forward, send, share, None, None, None
            )
        elif send == LATER and forward:  # literals: a sixth sooner
            change, _ = visit_pairs(
                w, m, beliefs, out, begin, n, True, LATER, None, None, None, None
            )
        elif send == EARLIER and not forward:
            change, _ = visit_pairs(
                w, m, beliefs, out, begin, n, False, EARLIER, None, None, None, None
            )
        else:
            change, _ = visit_pairs(
                w, m, beliefs, out, begin, n, forward, np.int64(ALL), None, None, None, None
            )
        if not watching:
            residuals[it] = change / (1.0 - share)
            control[DONE] += 1.0
            if other is not None:
                for e in range(m.shape[0]):  # m[:] = other would compile 3 s of error texts
                    m[e] = other[e]
            if wake is not None:
                quiet = residuals[it] <= control[TRIGGER]
                if quiet and control[SKIPPED] > 0.0:
                    quiet = False
                    wake_all(wake[1])
            else:
                quiet = is_quiet(control, max(residuals[it], moved if share > 0.0 else 0.0))
            if quiet:
                control[PHASE] = -1.0
            continue
        worst = max(control[WORST], most_apart(m, before) if room else max(moved, change))
        control[WORST] = worst
        residuals[it] = -worst
        if not room and control[PHASE] == 1.0:
            control[PHASE] = 2.0
            continue
        control[PHASE] = 0.0
        if room:
            exchange(m, before, weights)
        if worst <= tol:
            worst = max(worst, read_pairs(w, m, weights, seen if room else bel, np.int64(room)))
            control[WORST] = worst
            residuals[it] = -worst
            if worst <= tol:
                control[PASSED] = 1.0
                return it + 1
        if room and (other is None or control[DAMPING] > 0.0):  # else it is one like any other
            exchange(m, before, weights)
        tighten(control)
        if wake is not None:
            wake_all(wake[1])
    return residuals.shape[0]
