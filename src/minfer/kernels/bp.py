"""Sum-product and tree-reweighted sweeps over a :class:`~minfer.kernels.wiring.Wiring`.

Pair slots carry odds. With m the incoming odds message, B the belief odds and c = B / m the cavity,
the outgoing message (1 + W c) / (1 + c) is computed with one division as

    (m + W B) / (m + B).

Tree-reweighted pair slots keep rho * log m beside m: log B is their sum, W stands for psi^{1/rho},
and the message is the same (one exp per visit, one log per message). General variables are
:mod:`minfer.kernels.general`'s. Every sweep reports the largest change of any probability between
two visits of its variable. Automata (:mod:`minfer.kernels.machines`) take their turn after the
variables, factor by factor and in place.

Undamped sequential sweeps over pair variables *send ahead*: a visit sends only to variables that
the sweep has yet to come to. What it would send the others is overwritten, on the way back, before
they read it, so beliefs are those of sending everything, bit for bit, for half the messages.
Nothing reaches a variable between its visit and the end of the sweep, so :func:`complete` can send
the others when a run ends or is to be confirmed.

That change may be small long before anything has settled: messages sent later in the sweep, and
those the other way, go unseen. So a sweep within tolerance only *triggers* a confirming update:
every message is computed anew, undamped, from the messages as they are (one flooding iteration; in
models so large that their messages are not copied, one sweep in each direction). The run has
converged if in it

* no message moved by more than ``tol``: a general one as a normalised vector; a pair's, of log-odds
  l, by tanh(|l' - l| / 4), the most that p can move however the table is split into unary parts;
* no belief did, read from the messages before and after.

Otherwise the run goes on from before the update, as an undamped flooding iteration may leave what
sequential or damped sweeps hold. Trees never need this: walked in the order of
:func:`minfer.kernels.wiring.peel`, up and down, each message is computed once and for all.

Few layers, on purpose: a kernel is compiled again into every kernel that calls it, once for every
literal it is called with (hence ``np.int64(BOTH)``), and these are large. And a run compiles only
what it needs: *markers* are True, or None where there is nothing of a kind
(:meth:`minfer.wiring.Mesh.kinds`); numba leaves out a branch under ``if marker is not None`` before
it looks at what is called there.
"""

import math

import numpy as np

from minfer.kernels import machines
from minfer.kernels._jit import jit
from minfer.kernels.general import (
    BOTH,
    CAVITIES,
    MAX_ODDS,
    PULL,
    UPDATE,
    visit_linear,
    visit_log,
)
from minfer.kernels.lean import greet, sweep_lean
from minfer.kernels.tables import damped
from minfer.kernels.wiring import (
    ARITY,
    ASLEEP,
    FACTOR,
    FIRST,
    GENERAL,
    OFFSET,
    PLAIN,
    SCALED,
)

SEQUENTIAL, FLOODING, START, UP, DOWN, AHEAD = 0, 1, 2, 3, 4, 5  # modes of ``sweeps``
PHASE, TRIGGER, LAST, WORST, PASSED, DONE, FRESH, SENT = 0, 1, 2, 3, 4, 5, 6, 7  # Watch.control
BLANK = 8  # of it: messages and beliefs are for the first lean sweep to write
EARLIER, ALL, LATER = -1, 0, 1  # whom a visit sends to: neighbours of smaller or larger number
KEEP, COMPARE, WRITE = 0, 1, 2  # what ``read_beliefs`` does

_BIG = 1e150  # one step of the exponent of scaled products
_LOG_BIG = math.log(_BIG)
_ONE, _TWO = np.uint64(1), np.uint64(2)
_AFRESH = 32.0  # sweeps after which running beliefs are computed anew, so that they do not drift


@jit
def scaled_odds(prior, m, lo, hi):
    """Belief odds where plain products could overflow: a mantissa and an exponent, then clamped.

    Log-odds beyond 1e12 are the same as 1e12: messages of e^150 at most do not count there.
    """
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
def belief_odds(cls, prior, m, lo, hi):
    """Belief odds of a variable that is PLAIN or SCALED."""
    if cls != PLAIN:
        return scaled_odds(prior, m, lo, hi)
    for e in range(lo, hi):
        prior *= m[e]
    return prior


@jit
def visit_pairs(w, m, bel, out, begin, end, forward, send):
    """Visit the pair variables begin..end in turn. Returns the largest change of a belief.

    ``w`` is what it reads of the wiring, off, cls, prior, ptr, rev and W, and no more: a kernel
    with twenty arrays to hand on takes a third longer to compile.

    The engine's hot loop: everything stands here written out, because even a small call per
    variable, which counts references to its arrays, would double the cost of a sweep. Slots of
    later neighbours come first, and have e < rev[e] (:func:`minfer.kernels.wiring.pair_slots`).
    """
    off, cls, prior, ptr, rev, W = w
    biggest = 0.0
    for k in range(begin, end):
        v = np.uint64(k if forward else begin + end - 1 - k)
        lo, hi = ptr[v], ptr[v + _ONE]
        odds, more = prior[v], 1.0
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
        if cls[v] != PLAIN:  # seldom
            if cls[v] != SCALED:
                continue
            odds = scaled_odds(prior[v], m, lo, hi)
        if send == EARLIER:
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
    return biggest


@jit
def visit_watched(w, s, bel, out, begin, end, forward, send, damping):
    """As ``visit_pairs``, damped if need be; also how far its messages move, undamped.

    Apart, because the choice and the looking would cost the loop a fifth.
    """
    off, cls, prior = w.off, w.cls, w.prior
    ptr, rev, W = w.ptr, w.rev, w.W
    m = s.m
    biggest = moved = 0.0
    for k in range(begin, end):
        v = np.uint64(k if forward else begin + end - 1 - k)
        lo, hi = ptr[v], ptr[v + _ONE]
        odds = prior[v]
        if cls[v] == PLAIN:
            for e in range(lo, hi):
                odds *= m[e]
        elif cls[v] == SCALED:
            odds = scaled_odds(prior[v], m, lo, hi)
        else:
            continue
        for e in range(lo, hi):
            if send != ALL and (rev[e] > e) != (send == LATER):
                continue
            x, old = m[e], m[rev[e]]
            x = (x + W[e] * odds) / (x + odds)
            if abs(x - old) > moved * (x + old):  # seldom: spares a division
                moved = abs(x - old) / (x + old)
            out[rev[e]] = x if damping == 0.0 else damped(x, old, damping)
        p = odds / (1.0 + odds)
        o = np.uint64(off[v]) + _ONE
        biggest = max(biggest, abs(p - bel[o]))
        bel[o] = p
    return biggest, half_angle(moved)


@jit
def visit_reweighted(w, s, bel, out, begin, end, forward, send, damping, in_place):
    """As ``visit_watched``, tree-reweighted. Not in place, rho log m is left to the caller."""
    off, cls, prior = w.off, w.cls, w.prior
    ptr, rev, W = w.ptr, w.rev, w.W
    rho = w.rho
    m, rl = s.m, s.rl
    biggest = moved = 0.0
    for k in range(begin, end):
        v = np.uint64(k if forward else begin + end - 1 - k)
        lo, hi = ptr[v], ptr[v + _ONE]
        if cls[v] == ASLEEP:
            continue
        log_odds = prior[v]
        for e in range(lo, hi):
            log_odds += rl[e]
        odds = math.exp(min(max(log_odds, -460.0), 460.0))
        for e in range(lo, hi):
            if send != ALL and (rev[e] > e) != (send == LATER):
                continue
            old = m[rev[e]]
            x = (m[e] + W[e] * odds) / (m[e] + odds)
            if abs(x - old) > moved * (x + old):
                moved = abs(x - old) / (x + old)
            if damping > 0.0:
                x = damped(x, old, damping)
            out[rev[e]] = x
            if in_place:
                rl[rev[e]] = rho[e] * math.log(x)
        p = odds / (1.0 + odds)
        o = np.uint64(off[v]) + _ONE
        biggest = max(biggest, abs(p - bel[o]))
        bel[o] = p
    return biggest, half_angle(moved)


@jit
def visit_listed(w, s, order, begin, end, back):
    """Visit the pair variables order[begin:end], or the same from the other end of ``order``."""
    off, cls, prior = w.off, w.cls, w.prior
    ptr, rev, W = w.ptr, w.rev, w.W
    rho = w.rho
    m, rl, bel = s.m, s.rl, s.bel
    last = order.shape[0] - 1
    for k in range(begin, end):
        v = np.uint64(order[last - k] if back else order[k])
        lo, hi = ptr[v], ptr[v + _ONE]
        odds = prior[v]
        if rl.size > 0:
            for e in range(lo, hi):
                odds += rl[e]
            odds = math.exp(min(max(odds, -460.0), 460.0))
        elif cls[v] == PLAIN:
            for e in range(lo, hi):
                odds *= m[e]
        else:
            odds = scaled_odds(odds, m, lo, hi)
        for e in range(lo, hi):
            x = (m[e] + W[e] * odds) / (m[e] + odds)
            m[rev[e]] = x
            if rl.size > 0:
                rl[rev[e]] = rho[e] * math.log(x)
        bel[np.uint64(off[v]) + _ONE] = odds / (1.0 + odds)


@jit
def half_angle(t):
    """tanh(d / 4) from t = tanh(d / 2) = |x - y| / (x + y), the odds x and y being d nats apart."""
    return t / (1.0 + math.sqrt(max(1.0 - t * t, 0.0)))


@jit
def _product(v, card, off, field, ptr, gptr, gslot, grho, m, rl, gm, log, b):
    """The belief of a general variable into ``b``, normalised; False if nothing is left of it."""
    n = card[v]
    for i in range(n):
        b[i] = field[off[v] + i]
    for e in range(ptr[v], ptr[v + 1]):
        if log:
            b[1] += math.log(m[e]) if rl.size == 0 else rl[e]
        else:
            b[1] *= m[e]
            scale = 1.0 / (b[0] + b[1])
            b[0] *= scale
            b[1] *= scale
    for g in range(gptr[v], gptr[v + 1]):
        power = grho[g] if grho.size > 0 else 1.0
        total = 0.0
        for i in range(n):
            x = gm[gslot[g, OFFSET] + i]
            b[i] = b[i] + power * x if log else b[i] * x
            total += b[i]
        if not log and total < 1e-20:
            if total == 0.0:
                return False
            for i in range(n):
                b[i] /= total
    top, total = -np.inf, 0.0
    for i in range(n):
        top = max(top, b[i])
    if top == (-np.inf if log else 0.0):
        return False
    for i in range(n):
        b[i] = math.exp(b[i] - top) if log else b[i]
        total += b[i]
    for i in range(n):
        b[i] /= total
    return True


@jit
def read_beliefs(w, s, before, what, general, log):
    """Beliefs of all variables that are awake, read from the messages as they stand.

    KEEP writes them to ``before``; COMPARE too, and returns how far those there were off; WRITE
    writes them to ``bel``. Where ``before`` is empty, all being pair variables, the first states in
    ``bel``, which no visit writes, serve instead.
    """
    card, off, cls = w.card, w.off, w.cls
    prior, field, ptr = w.prior, w.field, w.ptr
    gptr, gslot, grho = w.gptr, w.gslot, w.grho
    m, rl, gm, bel, b = s.m, s.rl, s.gm, s.bel, s.b
    room = before.shape[0] > 0
    worst = 0.0
    for v in range(card.shape[0]):
        if cls[v] == ASLEEP:
            continue
        o = off[v]
        if cls[v] != GENERAL:
            lo, hi = ptr[v], ptr[v + 1]
            odds = prior[v]
            if rl.size > 0:
                for e in range(lo, hi):
                    odds += rl[e]
                odds = math.exp(min(max(odds, -460.0), 460.0))
            else:
                odds = belief_odds(cls[v], odds, m, lo, hi)
            p, q = 1.0 / (1.0 + odds), odds / (1.0 + odds)
            if what == WRITE:
                bel[o], bel[o + 1] = p, q
            elif room:
                worst = max(worst, abs(q - before[o + 1]))
                before[o], before[o + 1] = p, q
            else:
                worst = max(worst, abs(p - bel[o]))
                bel[o] = p
            continue
        if general is not None:
            if not _product(v, card, off, field, ptr, gptr, gslot, grho, m, rl, gm, log, b):
                continue  # contradictory messages: a visit will tell
            for i in range(card[v]):
                if what == WRITE:
                    bel[o + i] = b[i]
                else:
                    worst = max(worst, abs(b[i] - before[o + i]))
                    before[o + i] = b[i]
    return worst


@jit
def machine_beliefs(w, ma, s, log):
    """The running beliefs of the variables of machines from the messages as they are."""
    card, off, field = w.card, w.off, w.field
    ptr, gptr, gslot = w.ptr, w.gptr, w.gslot
    grho = w.grho
    m, rl, gm, bel, b, logs = s.m, s.rl, s.gm, s.bel, s.b, ma.logs
    for v in ma.vars:
        o, n = off[v], card[v]
        if log:
            for i in range(n):
                logs[o + i] = field[o + i]
            for e in range(ptr[v], ptr[v + 1]):
                logs[o + 1] += math.log(m[e])
            for g in range(gptr[v], gptr[v + 1]):
                for i in range(n):
                    logs[o + i] += gm[gslot[g, OFFSET] + i]
        elif _product(v, card, off, field, ptr, gptr, gslot, grho, m, rl, gm, log, b):
            for i in range(n):
                bel[o + i] = b[i]


@jit
def normalise_logs(ma, s, off):
    """Probabilities from the log-beliefs that a pass has left; their largest change."""
    biggest = 0.0
    for v in ma.vars:
        lo, hi = off[v], off[v + 1]
        top, total = -np.inf, 0.0
        for i in range(lo, hi):
            top = max(top, ma.logs[i])
        if top == -np.inf:
            s.flag[1] = v + 1
            break
        for i in range(lo, hi):
            total += math.exp(ma.logs[i] - top)
        for i in range(lo, hi):
            p = math.exp(ma.logs[i] - top) / total
            biggest = max(biggest, abs(p - s.bel[i]))
            s.bel[i] = p
    return biggest


@jit
def run_end(k, n, forward, cls):
    """Where the run of pair (or of general) variables that begins at place k of a sweep ends."""
    general = cls[k if forward else n - 1 - k] == GENERAL
    while k < n:
        c = cls[k if forward else n - 1 - k]
        if c != ASLEEP and (c == GENERAL) != general:
            break
        k += 1
    return k, general


@jit
def begin_watch(w, s, watch, general, log):
    """Keep what a confirming update begins with: beliefs, and what it overwrites in place."""
    watch.control[PHASE] = 1.0
    watch.control[WORST] = 0.0
    for i in range(watch.m.shape[0]):  # it writes those of variables that are awake
        watch.m[i] = s.m[i]
    for i in range(watch.gm.shape[0]):
        watch.gm[i] = s.gm[i]
        watch.gq[i] = s.gq[i]
    if w.field.size > 0 or not has_room(s, watch):
        read_beliefs(w, s, watch.bel, np.int64(KEEP), general, log)  # else the update does


@jit
def has_room(s, watch):
    """Whether there is a second array of messages: the confirming update floods then."""
    return watch.m.shape[0] == s.m.shape[0] and watch.gm.shape[0] == s.gm.shape[0]


@jit
def is_quiet(control, change, damping):
    """Whether a sweep that moved things by ``change`` is to be followed by a confirming update.

    It is if the next one promises to move things by no more than TRIGGER.
    """
    last = control[LAST]
    control[LAST] = change
    if damping == 0.0 and change < last < np.inf:
        change *= change / last
    return change <= control[TRIGGER]


@jit
def judge(w, s, watch, mode, change, moved, tol, damping, general, log):
    """After a sweep of a confirming update: has the run converged?

    PHASE is 0, or -1 where an update is to begin, or which sweep of it comes next.
    """
    c = watch.control
    c[WORST] = max(c[WORST], moved)
    room = has_room(s, watch)
    if room:
        c[WORST] = max(c[WORST], most_apart(s.m, watch.m))
    else:
        c[WORST] = max(c[WORST], change)
        if c[PHASE] == 1.0:
            c[PHASE] = 2.0
            return
    c[PHASE] = 0.0
    back = mode != FLOODING or damping > 0.0  # else the update is an iteration like any other
    for turn in range(2):
        if room:  # messages before and after change places, and perhaps back again
            exchange(s.m, watch.m)
            for e in range(s.rl.shape[0]):
                s.rl[e] = w.rho[e] * math.log(s.m[e])
        if turn == 0 and c[WORST] <= tol:
            off = read_beliefs(w, s, watch.bel, np.int64(COMPARE), general, log)
            c[WORST] = max(c[WORST], off)
            if c[WORST] <= tol:
                c[PASSED] = 1.0
                return
        if not back:
            break
    for i in range(watch.gm.shape[0] if room and back else 0):
        s.gm[i] = watch.gm[i]
        s.gq[i] = watch.gq[i]
    come_closer(c, tol, damping)


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
def exchange(m, other):
    for e in range(m.shape[0]):
        m[e], other[e] = other[e], m[e]


@jit
def come_closer(control, tol, damping):
    """After a failure sweeps must come closer (TRIGGER sinks) by about as much as was missed."""
    share = min(max(0.9 * tol / control[WORST], 0.1), 0.7)
    control[TRIGGER] = max(control[TRIGGER] * share, 0.02 * tol if damping == 0.0 else 0.0)
    control[LAST] = np.inf


@jit
def complete(w, s, control, weighted):
    """Send what the last sweep, which sent ahead, left out: messages as if it had sent them all.

    A variable has heard nothing since its visit but what such a completion sends it, and it comes
    to the variables in the order of that sweep: so each finds the messages of its visit.
    """
    sent = np.int64(control[SENT])
    control[SENT] = 0.0
    if sent == ALL:
        return
    if weighted:
        visit_reweighted(
            w, s, s.bel, s.m, np.int64(0), w.card.shape[0], sent == LATER, -sent, 0.0,
            np.bool_(True),
        )  # fmt: skip
    else:
        visit_pairs(
            (w.off, w.cls, w.prior, w.ptr, w.rev, w.W), s.m, s.bel, s.m, np.int64(0),
            w.card.shape[0], sent == LATER, -sent,
        )  # fmt: skip


@jit
def sweeps(
    w, ma, s, out, watch, mode, n_sweeps, tol, damping, residuals, weighted, general, log, lean
):  # fmt: skip
    """Up to ``n_sweeps`` sweeps; returns how many were made, fewer if the run has converged.

    SEQUENTIAL: forward and backward in turn, in place (``out`` is ``s.m``); AHEAD: the same of pair
    variables alone and undamped, sending only to those that the sweep has yet to come to; FLOODING:
    every message from those of the sweep before, through the spare array ``out``; START: no sweep,
    only the cavities of general variables from the messages as they are, which is how runs begin;
    UP and DOWN: once through ``watch.order``, forwards or backwards, undamped (of pair variables
    alone, that is ``visit_listed``). ``residuals`` gets the largest changes of beliefs, and with a
    minus sign what confirming sweeps moved. ``ma`` are the automata, or None; ``weighted`` says
    whether pairs are tree-reweighted.

    Markers: there are ``general`` variables, their numbers are logs (``log``), and sweeps may be
    ``lean``.
    """
    n, cls, order, control, flag = w.card.shape[0], w.cls, watch.order, watch.control, s.flag
    odds = w.off, cls, w.prior, w.ptr, w.rev, w.W
    mixed = general is not None  # else all are pair variables: one run
    logs = log is not None
    walk = mode in (UP, DOWN)
    places = order.shape[0] if walk else n
    automata = False
    if ma is not None:  # numba leaves such branches out where there are none
        automata = ma.mine.shape[0] > 0 and not walk and mode != START
    for it in range(n_sweeps):
        watching = control[PHASE] != 0.0 and mode in (SEQUENTIAL, AHEAD, FLOODING)
        at_once = mode == FLOODING
        bel, write = s.bel, out
        if watching and has_room(s, watch):
            at_once, write = True, watch.m
            if not mixed:  # beliefs before: those that visits now find
                bel = watch.bel
        share = 0.0 if watching or walk else damping
        even = control[DONE] % 2.0 == 0.0
        forward = at_once or walk or even != (control[PHASE] == 2.0)
        send = ALL
        if mode == AHEAD and at_once:
            complete(w, s, control, weighted)
        elif mode == AHEAD:
            send = LATER if forward else EARLIER
            control[SENT] = send
        biggest = moved = 0.0
        first = 0
        # general variables send ahead after an undamped sweep in the other direction
        turned = damping == 0.0 and control[SENT] == (-1.0 if forward else 1.0)
        turned = turned and mode == SEQUENTIAL and not at_once
        ahead = turned and not watching
        by_lean = False
        if lean is not None:
            by_lean = turned and watch.work.size > 0
        if mixed and mode == SEQUENTIAL and control[PHASE] == -1.0:
            first = -1  # such sweeps, and passes of automata, left cavities as they were
        if ma is not None and automata and not at_once:  # a pass visits them
            for v in ma.alone:
                cls[v] = ASLEEP
        if lean is not None and by_lean:
            if control[PHASE] < 0.0:
                begin_watch(w, s, watch, general, logs)
            biggest, moved = sweep_lean(
                w, watch.ways, s.gm, s.gm, s.bel, watch.work, np.int64(0), np.int64(n), forward,
                np.bool_(True), watching, control[BLANK] != 0.0,
            )  # fmt: skip
        for step in range(first, first if by_lean else 2 if at_once else 1):
            if step == 0 and watching and control[PHASE] < 0.0:
                begin_watch(w, s, watch, general, logs)
            if ma is not None and automata and at_once and step == 0:
                _, moved = machines.visit(
                    ma, s, ma.mine, np.int64(0), ma.mine.shape[0], forward, np.bool_(False),
                    share, watching, logs,
                )  # fmt: skip
            phase = np.int64(BOTH)
            if mode == START or step < 0:
                phase = np.int64(CAVITIES)
            elif at_once:
                phase = np.int64(PULL) if step == 0 else np.int64(UPDATE)
            k = np.int64(0)
            while k < places and flag[1] == 0:
                lo, hi, end, rich = k, n, n, mixed
                if walk and mixed:
                    lo = order[k] if mode == UP else order[places - 1 - k]
                    if ma is not None and lo < 0:
                        ma.one[0] = -1 - lo - ma.base
                        machines.visit(
                            ma, s, ma.one, np.int64(0), np.int64(1), forward, np.bool_(False),
                            share, watching, logs,
                        )  # fmt: skip
                        k += 1
                        continue
                    hi, end, rich = lo + 1, k + 1, cls[lo] == GENERAL
                elif walk:
                    end = places
                elif mixed:
                    end, rich = run_end(k, n, forward, cls)
                    lo, hi = (k, end) if forward else (n - end, n - k)
                change = shift = 0.0
                look = watching and step >= 0
                if general is not None and rich:
                    if log is not None:
                        change, x, y = visit_log(
                            w, s, write, lo, hi, forward, phase, share, look, ahead
                        )
                    else:
                        change, x, y = visit_linear(
                            w, s, write, lo, hi, forward, phase, share, look, ahead
                        )
                    shift = max(x, y)
                elif general is not None and walk:
                    visit_listed(w, s, order, k, end, mode == DOWN)
                elif phase in (BOTH, UPDATE):
                    if weighted:
                        change, shift = visit_reweighted(
                            w, s, bel, write, lo, hi, forward, send, share, not at_once
                        )
                    elif share > 0.0 or (watching and not at_once):
                        change, shift = visit_watched(
                            w, s, bel, write, lo, hi, forward, send, share
                        )
                    elif general is None and send == LATER and forward:  # literals: a sixth sooner
                        change = visit_pairs(odds, s.m, bel, write, lo, hi, True, LATER)
                    elif general is None and send == EARLIER and not forward:
                        change = visit_pairs(odds, s.m, bel, write, lo, hi, False, EARLIER)
                    else:
                        change = visit_pairs(odds, s.m, bel, write, lo, hi, forward, send)
                biggest = max(biggest, change)
                moved = max(moved, shift)
                k = end
        if ma is not None:
            if automata and not at_once:
                for v in ma.alone:
                    cls[v] = GENERAL
            if automata and not at_once and flag[1] == 0:
                if control[FRESH] == 0.0 or logs:
                    machine_beliefs(w, ma, s, logs)
                    control[FRESH] = _AFRESH
                control[FRESH] -= 1.0  # for so many sweeps the running beliefs still serve
                change, shift = machines.visit(
                    ma, s, ma.mine, np.int64(0), ma.mine.shape[0], forward, np.bool_(True), share,
                    watching, logs,
                )  # fmt: skip
                if logs:
                    change = normalise_logs(ma, s, w.off)
                biggest = max(biggest, change)
                moved = max(moved, shift)
            elif automata:
                control[FRESH] = 0.0
        if mixed and mode == SEQUENTIAL and not at_once and control[SENT] <= 1.0:
            control[SENT] = 1.0 if forward else -1.0
        if at_once and not watching:
            for e in range(out.shape[0]):  # s.m[:] = out would compile 3 s of error texts
                s.m[e] = out[e]
        residuals[it] = biggest / (1.0 - share)
        if flag[0] != 0 or flag[1] != 0:
            control[PHASE] = 0.0
            return it + 1
        if mode not in (SEQUENTIAL, AHEAD, FLOODING):
            return it + 1
        if watching:
            judge(w, s, watch, mode, biggest, moved, tol, damping, general, logs)
            residuals[it] = -control[WORST]
            if control[PASSED] > 0.0:
                return it + 1
        else:
            control[DONE] += 1.0
            if is_quiet(control, max(residuals[it], moved if damping > 0.0 else 0.0), damping):
                control[PHASE] = -1.0
        if lean is not None and by_lean and control[BLANK] != 0.0:
            if it + 1 == n_sweeps or control[PHASE] != 0.0:
                greet(w, watch.ways, s.gm, watch.work)  # the next to look is no such sweep
            control[BLANK] = 0.0
    return n_sweeps


@jit
def sweeps_pairs(w, m, bel, control, before, seen, n_sweeps, tol, residuals):
    """``sweeps`` in the plainest case: AHEAD, not reweighted, with room for the confirming update.

    The same to the last bit; apart, since it is the first that most programs compile. ``w`` is for
    ``visit_pairs``; ``before`` and ``seen`` are m and bel of the watch.
    """
    n = w[1].shape[0]
    for it in range(n_sweeps):
        if control[PHASE] == 0.0:
            if control[DONE] % 2.0 == 0.0:
                control[SENT] = LATER
                change = visit_pairs(w, m, bel, m, np.int64(0), n, True, LATER)
            else:
                control[SENT] = EARLIER
                change = visit_pairs(w, m, bel, m, np.int64(0), n, False, EARLIER)
            residuals[it] = change
            control[DONE] += 1.0
            if is_quiet(control, change, 0.0):
                control[PHASE] = -1.0
            continue
        sent = np.int64(control[SENT])
        control[PHASE] = control[SENT] = 0.0
        for update in range(0 if sent != ALL else 1, 2):  # first as ``complete`` does
            for e in range(m.shape[0] if update else 0):
                before[e] = m[e]
            visit_pairs(
                w, m, seen if update else bel, before if update else m, np.int64(0), n,
                update == 1 or sent == LATER, np.int64(ALL) if update else -sent,
            )  # fmt: skip
        control[WORST] = most_apart(m, before)
        exchange(m, before)
        if control[WORST] <= tol:
            control[WORST] = max(control[WORST], read_pairs(w, m, seen))
            if control[WORST] <= tol:
                control[PASSED] = 1.0
        residuals[it] = -control[WORST]
        if control[PASSED] > 0.0:
            return it + 1
        exchange(m, before)
        come_closer(control, tol, 0.0)
    return n_sweeps


@jit
def read_pairs(w, m, seen):
    """``read_beliefs`` of pair variables alone: COMPARE."""
    off, cls, prior, ptr, _, _ = w
    worst = 0.0
    for v in range(cls.shape[0]):
        if cls[v] != ASLEEP:
            odds = belief_odds(cls[v], prior[v], m, ptr[v], ptr[v + 1])
            p, q, o = 1.0 / (1.0 + odds), odds / (1.0 + odds), off[v]
            worst = max(worst, abs(q - seen[o + 1]))
            seen[o], seen[o + 1] = p, q
    return worst


@jit
def residual(w, ma, s, watch, n_sweeps, damping, residuals, owner, gowner, active, logs):
    """Sequential sweeps that visit only ``active`` variables, those whose messages moved.

    When nothing among them moves any more, everything is woken; a sweep over everything within
    the trigger begins the confirming update, which is the caller's. Machines are passed over in
    every sweep. Returns the sweeps made. ``logs``: the numbers of general variables are.
    """
    automata = False
    if ma is not None:
        automata = ma.mine.shape[0] > 0
    card, off, cls = w.card, w.off, w.cls
    prior, ptr, rev = w.prior, w.ptr, w.rev
    W, gptr, gslot = w.W, w.gptr, w.gslot
    fac, fslot = w.fac, w.fslot
    m, bel, flag = s.m, s.bel, s.flag
    n = card.shape[0]
    tol = watch.control[TRIGGER]
    before = bel.copy() if automata else np.zeros(0)
    for it in range(n_sweeps):
        skipped = 0
        biggest = 0.0
        forward = watch.control[DONE] % 2.0 == 0.0
        if ma is not None:
            for v in ma.alone:
                cls[v] = ASLEEP
        for k in range(n):
            v = k if forward else n - 1 - k
            if cls[v] == ASLEEP:
                continue
            if active[v] == 0:
                skipped += 1
                continue
            active[v] = 0
            if cls[v] == GENERAL:
                yes, no, phase = np.bool_(True), np.bool_(False), np.int64(BOTH)
                if logs:
                    change, moved, _ = visit_log(w, s, m, v, v + 1, yes, phase, damping, yes, no)
                else:
                    change, moved, _ = visit_linear(w, s, m, v, v + 1, yes, phase, damping, yes, no)
                if flag[1] != 0:
                    return it + 1
                if change > tol:
                    for e in range(ptr[v], ptr[v + 1]):
                        active[owner[rev[e]]] = 1
                for g in range(gptr[v], gptr[v + 1]) if moved > tol else range(0):
                    f = gslot[g, FACTOR]
                    for a in range(fac[f, FIRST], fac[f, FIRST] + fac[f, ARITY]):
                        if gowner[fslot[a]] != v:
                            active[gowner[fslot[a]]] = 1
                biggest = max(biggest, change)
                continue
            lo, hi = ptr[v], ptr[v + 1]
            odds = prior[v]
            if cls[v] == PLAIN:
                for e in range(lo, hi):
                    odds *= m[e]
            else:
                odds = scaled_odds(prior[v], m, lo, hi)
            p = odds / (1.0 + odds)
            biggest = max(biggest, abs(p - bel[off[v] + 1]))
            bel[off[v] + 1] = p
            for e in range(lo, hi):
                old = m[rev[e]]
                x = (m[e] + W[e] * odds) / (m[e] + odds)
                x = damped(x, old, damping)
                if abs(x - old) > tol * old:
                    active[owner[rev[e]]] = 1
                m[rev[e]] = x
        if ma is not None and automata:
            for v in ma.alone:
                cls[v] = GENERAL
            for i in range(bel.shape[0]):
                before[i] = bel[i]
            if watch.control[FRESH] == 0.0 or logs:
                machine_beliefs(w, ma, s, logs)
                watch.control[FRESH] = _AFRESH
            watch.control[FRESH] -= 1.0
            change, _ = machines.visit(
                ma, s, ma.mine, np.int64(0), ma.mine.shape[0], forward, np.bool_(True), damping,
                np.bool_(False), logs,
            )  # fmt: skip
            if logs:
                change = normalise_logs(ma, s, w.off)
            if flag[1] != 0:
                return it + 1
            biggest = max(biggest, change)
            for v in ma.vars:
                for i in range(off[v], off[v + 1]):
                    if abs(bel[i] - before[i]) > tol:
                        active[v] = 1
        residuals[it] = biggest / (1.0 - damping)
        watch.control[DONE] += 1.0
        if flag[0] != 0:
            return it + 1
        if residuals[it] <= tol:
            if skipped == 0:
                watch.control[PHASE] = -1.0
                return it + 1
            active[:] = 1
    return n_sweeps
