"""Sum-product and tree-reweighted sweeps over a :class:`~minfer.kernels.messages.wiring.Wiring`.

Models of pair variables alone are :mod:`minfer.kernels.messages.odds`'s; here are all others.
General variables are :mod:`minfer.kernels.messages.vectors`'s, and pair variables among them are
visited in runs. Every sweep reports the largest change of any probability between two visits of its
variable. Automata (:mod:`minfer.kernels.messages.automata`) take their turn after the variables,
factor by factor and in place.

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
:func:`minfer.kernels.messages.wiring.peel`, up and down, each message is computed once and for all.

Few layers, on purpose: a kernel is compiled again into every kernel that calls it, once for every
literal it is called with (hence ``np.int64(BOTH)``). And a run compiles only what it needs:
*markers* are True, or None where there is nothing of a kind; numba leaves out a branch under
``if marker is not None``.
"""

import math

import numpy as np

from minfer.kernels.compiling.jit import jit
from minfer.kernels.messages.automata import visit
from minfer.kernels.messages.odds import (
    ALL,
    exchange,
    is_quiet,
    most_apart,
    scaled_odds,
    tighten,
    visit_pairs,
    wake_all,
)
from minfer.kernels.messages.vector_pairs import first_messages, sweep_vector_pairs
from minfer.kernels.messages.vectors import BOTH, CAVITIES, PULL, UPDATE, visit_linear, visit_log
from minfer.kernels.messages.wiring import (
    ARITY,
    ASLEEP,
    BLANK,
    DAMPING,
    DONE,
    FACTOR,
    FIRST,
    FRESH,
    GENERAL,
    OFFSET,
    PASSED,
    PHASE,
    PLAIN,
    SENT,
    SKIPPED,
    TOL,
    TRIGGER,
    WORST,
)

SEQUENTIAL, FLOODING, START, UP, DOWN, COLOURED = 0, 1, 2, 3, 4, 5  # modes of ``sweeps``
KEEP, COMPARE, WRITE = 0, 1, 2  # what ``read_beliefs`` does

_AFRESH = 32.0  # sweeps after which running beliefs are computed anew, so that they do not drift


@jit
def _product(w, s, v, log):
    """The belief of a general variable into ``s.b``, normalised; False if nothing is left of it."""
    n, first, ptr, gptr, gslot, grho = w.card[v], w.off[v], w.ptr, w.gptr, w.gslot, w.grho
    field, m, weighted_log, to_variable, b = w.field, s.m, s.weighted_log, s.to_variable, s.b
    for i in range(n):
        b[i] = field[first + i]
    for e in range(ptr[v], ptr[v + 1]):
        if log:
            b[1] += math.log(m[e]) if weighted_log.size == 0 else weighted_log[e]
        else:
            b[1] *= m[e]
            scale = 1.0 / (b[0] + b[1])
            b[0] *= scale
            b[1] *= scale
    for g in range(gptr[v], gptr[v + 1]):
        power = grho[g] if grho.size > 0 else 1.0
        total = 0.0
        for i in range(n):
            x = to_variable[gslot[g, OFFSET] + i]
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
def read_beliefs(w, s, before, what, log):
    """Beliefs of all variables that are awake, read from the messages as they stand, to ``before``
    (KEEP; COMPARE returns how far those there were off) or to ``bel`` (WRITE)."""
    card, off, kind, prior, ptr = w.card, w.off, w.kind, w.prior, w.ptr
    m, weighted_log, b = s.m, s.weighted_log, s.b
    out = s.bel if what == WRITE else before
    worst = 0.0
    for v in range(card.shape[0]):
        if kind[v] == ASLEEP:
            continue
        if kind[v] == GENERAL:
            if not _product(w, s, v, log):
                continue  # contradictory messages: a visit will tell
        else:
            lo, hi = ptr[v], ptr[v + 1]
            odds = prior[v]
            if weighted_log.size > 0:
                for e in range(lo, hi):
                    odds += weighted_log[e]
                odds = math.exp(min(max(odds, -460.0), 460.0))
            elif kind[v] == PLAIN:
                for e in range(lo, hi):
                    odds *= m[e]
            else:
                odds = scaled_odds(odds, m, lo, hi)
            b[0], b[1] = 1.0 / (1.0 + odds), odds / (1.0 + odds)
        for i in range(card[v]):
            worst = max(worst, abs(b[i] - out[off[v] + i]))
            out[off[v] + i] = b[i]
    return worst


@jit
def machine_beliefs(w, ma, s, log):
    """The running beliefs of the variables of machines from the messages as they are."""
    card, off, field = w.card, w.off, w.field
    ptr, gptr, gslot = w.ptr, w.gptr, w.gslot
    m, to_variable, bel, b, logs = s.m, s.to_variable, s.bel, s.b, ma.logs
    for v in ma.vars:
        o, n = off[v], card[v]
        if log:
            for i in range(n):
                logs[o + i] = field[o + i]
            for e in range(ptr[v], ptr[v + 1]):
                logs[o + 1] += math.log(m[e])
            for g in range(gptr[v], gptr[v + 1]):
                for i in range(n):
                    logs[o + i] += to_variable[gslot[g, OFFSET] + i]
        elif _product(w, s, v, log):
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
def run_end(k, n, forward, kind):
    """Where the run of pair (or of general) variables that begins at place k of a sweep ends."""
    general = kind[k if forward else n - 1 - k] == GENERAL
    while k < n:
        c = kind[k if forward else n - 1 - k]
        if c != ASLEEP and (c == GENERAL) != general:
            break
        k += 1
    return k, general


@jit
def begin_watch(w, s, watch, log):
    """Keep what a confirming update begins with: beliefs, and what it overwrites in place."""
    watch.control[PHASE] = 1.0
    watch.control[WORST] = 0.0
    for i in range(watch.m.shape[0]):  # it writes those of variables that are awake
        watch.m[i] = s.m[i]
    for i in range(watch.to_variable.shape[0]):
        watch.to_variable[i] = s.to_variable[i]
        watch.to_factor[i] = s.to_factor[i]
    read_beliefs(w, s, watch.bel, np.int64(KEEP), log)


@jit
def has_room(s, watch):
    """Whether there is a second array of messages: the confirming update floods then."""
    return watch.m.shape[0] == s.m.shape[0] and watch.to_variable.shape[0] == s.to_variable.shape[0]


@jit
def confirm(w, s, watch, mode, change, moved, log):
    """After a sweep of a confirming update: has the run converged? PHASE is 0, or -1 where an
    update is to begin, or which sweep of it comes next."""
    c, room = watch.control, has_room(s, watch)
    c[WORST] = max(max(c[WORST], moved), most_apart(s.m, watch.m) if room else change)
    if not room and c[PHASE] == 1.0:
        c[PHASE] = 2.0
        return
    c[PHASE] = 0.0
    back = mode != FLOODING or c[DAMPING] > 0.0  # else the update is an iteration like any other
    if room:
        _exchange_pairs(w, s, watch)
    if c[WORST] <= c[TOL]:
        c[WORST] = max(c[WORST], read_beliefs(w, s, watch.bel, np.int64(COMPARE), log))
        if c[WORST] <= c[TOL]:
            c[PASSED] = 1.0
            return
    if room and back:
        _exchange_pairs(w, s, watch)
        for i in range(watch.to_variable.shape[0]):
            s.to_variable[i] = watch.to_variable[i]
            s.to_factor[i] = watch.to_factor[i]
    tighten(c)


@jit
def _exchange_pairs(w, s, watch):
    """Pair messages before and after change places."""
    if s.weighted_log.shape[0] > 0:
        exchange(s.m, watch.m, (w.rho, s.weighted_log, np.bool_(True)))
    else:
        exchange(s.m, watch.m, None)


@jit
def wake_neighbours(w, owner, gowner, active, v, change, moved, tol):
    """Wake whom a visit of general variable v, which moved its belief or cavities, concerns."""
    ptr, rev, gptr, gslot, fac, fslot = w.ptr, w.rev, w.gptr, w.gslot, w.fac, w.fslot
    if change > tol:
        for e in range(ptr[v], ptr[v + 1]):
            active[owner[rev[e]]] = 1
    for g in range(gptr[v], gptr[v + 1]) if moved > tol else range(0):
        f = gslot[g, FACTOR]
        for a in range(fac[f, FIRST], fac[f, FIRST] + fac[f, ARITY]):
            if gowner[fslot[a]] != v:
                active[gowner[fslot[a]]] = 1


@jit
def sweeps(w, ma, s, watch, mode, n_sweeps, residuals, weighted, log, vectors, wake):
    """Up to ``n_sweeps`` sweeps; returns how many were made, fewer if the run has converged.

    SEQUENTIAL: forward and backward in turn, in place; FLOODING: every message from those of the
    sweep before, of pairs through ``watch.other``; START: only the cavities of general variables,
    which is how runs begin; UP and DOWN: once through ``watch.order``, forwards or backwards,
    undamped; COLOURED: always forwards through ``watch.order``, colour by colour, in place.
    ``residuals`` gets the largest changes of beliefs, and with a minus sign what confirming sweeps
    moved. ``ma`` are the automata, or None; ``weighted``: messages are tree-reweighted. Markers:
    general numbers are logs (``log``), sweeps may be of ``vectors``.
    (owners of pair slots, of general slots, active, room for beliefs; empty for other schedules):
    the residual one, as in :func:`minfer.kernels.messages.odds.sweep_pairs`, with automata in every
    sweep.
    """
    owner, gowner, active, room = wake
    awake = active.shape[0] > 0
    n, kind, order, control, flag = w.card.shape[0], w.kind, watch.order, watch.control, s.flag
    odds = w.off, kind, w.prior, w.ptr, w.rev, w.W
    damping, send = control[DAMPING], np.int64(ALL)
    logs = log is not None
    walk = mode in (UP, DOWN)
    automata = False
    if ma is not None:  # numba leaves such branches out where there are none
        automata = ma.mine.shape[0] > 0 and not walk and mode != START
    for it in range(n_sweeps):
        watching = control[PHASE] != 0.0 and mode in (SEQUENTIAL, FLOODING, COLOURED)
        at_once = mode == FLOODING
        write = watch.other if at_once else s.m
        if watching and has_room(s, watch):
            at_once, write = True, watch.m
        share = 0.0 if watching or walk else damping
        even = control[DONE] % 2.0 == 0.0
        forward = at_once or walk or even != (control[PHASE] == 2.0)
        ordered = walk
        if mode == COLOURED and not at_once:
            ordered, forward = True, control[PHASE] != 2.0
        biggest = moved = 0.0
        first = 0
        # general variables send ahead after an undamped sweep in the other direction
        turned = damping == 0.0 and control[SENT] == (-1.0 if forward else 1.0)
        turned = turned and mode == SEQUENTIAL and not at_once
        if awake:
            turned = False
            control[SKIPPED] = 0.0
            if watching:
                wake_all(active)
        ahead = turned and not watching
        by_vector_pairs = False
        if vectors is not None:
            by_vector_pairs = turned and watch.work.size > 0
        if mode in (SEQUENTIAL, COLOURED) and control[PHASE] == -1.0:
            first = -1  # such sweeps, and passes of automata, left cavities as they were
        if ma is not None and automata and not at_once:  # a pass visits them
            for v in ma.alone:
                kind[v] = ASLEEP
        if vectors is not None and by_vector_pairs:
            if control[PHASE] < 0.0:
                begin_watch(w, s, watch, logs)
            biggest, moved = sweep_vector_pairs(
                w, watch.ways, s.to_variable, s.bel, watch.work, np.int64(0), np.int64(n), forward,
                watching, control[BLANK] != 0.0,
            )  # fmt: skip
        for step in range(first, first if by_vector_pairs else 2 if at_once else 1):
            if step == 0 and watching and control[PHASE] < 0.0:
                begin_watch(w, s, watch, logs)
            if ma is not None and automata and at_once and step == 0:
                _, moved = visit(
                    ma, s, ma.mine, np.int64(0), ma.mine.shape[0], forward, np.bool_(False),
                    share, watching, logs,
                )  # fmt: skip
            phase = np.int64(BOTH)
            if mode == START or step < 0:
                phase = np.int64(CAVITIES)
            elif at_once:
                phase = np.int64(PULL) if step == 0 else np.int64(UPDATE)
            k, places = np.int64(0), order.shape[0] if ordered else n
            while k < places and flag[1] == 0:
                look = watching and step >= 0
                if ordered:
                    lo = order[k] if mode != DOWN and forward else order[places - 1 - k]
                    if ma is not None and lo < 0:
                        ma.one[0] = -1 - lo - ma.base
                        visit(
                            ma, s, ma.one, np.int64(0), np.int64(1), forward, np.bool_(False),
                            share, watching, logs,
                        )  # fmt: skip
                        k += 1
                        continue
                    hi, end, rich = lo + 1, k + 1, kind[lo] == GENERAL
                else:
                    end, rich = k + 1, True
                    lo = k if forward else n - 1 - k
                    if awake and kind[lo] == GENERAL and not watching:  # one at a time
                        look = True
                        if active[lo] == 0:
                            control[SKIPPED] += 1.0
                            k = end
                            continue
                        active[lo] = 0
                    else:
                        end, rich = run_end(k, n, forward, kind)
                    lo, hi = (k, end) if forward else (n - end, n - k)
                change = shift = 0.0
                if rich:
                    if log is not None:
                        change, x, y = visit_log(
                            w, s, write, lo, hi, forward, phase, share, look, ahead
                        )
                    else:
                        change, x, y = visit_linear(
                            w, s, write, lo, hi, forward, phase, share, look, ahead
                        )
                    shift = max(x, y)
                    if awake and not watching:
                        wake_neighbours(w, owner, gowner, active, lo, change, x, control[TRIGGER])
                elif phase in (BOTH, UPDATE):
                    if awake:
                        own = owner, active, control
                        change, shift = visit_pairs(
                            odds, s.m, s.bel, write, lo, hi, forward, send, share, None, None, own
                        )
                    elif weighted:
                        rho = w.rho, s.weighted_log, not at_once
                        change, shift = visit_pairs(
                            odds, s.m, s.bel, write, lo, hi, forward, send, share, rho, None, None
                        )
                    elif share > 0.0 or (watching and not at_once):
                        change, shift = visit_pairs(  # apart: to look would cost a fifth
                            odds, s.m, s.bel, write, lo, hi, forward, send, share, None, None, None
                        )
                    else:
                        change, _ = visit_pairs(
                            odds, s.m, s.bel, write, lo, hi, forward, send, None, None, None, None
                        )
                biggest = max(biggest, change)
                moved = max(moved, shift)
                k = end
        if ma is not None:
            if automata and not at_once:
                for v in ma.alone:
                    kind[v] = GENERAL
            if automata and not at_once and flag[1] == 0:
                if control[FRESH] == 0.0 or logs:
                    machine_beliefs(w, ma, s, logs)
                    control[FRESH] = _AFRESH
                control[FRESH] -= 1.0  # for so many sweeps the running beliefs still serve
                if awake:
                    for i in range(s.bel.shape[0]):
                        room[i] = s.bel[i]
                change, shift = visit(
                    ma, s, ma.mine, np.int64(0), ma.mine.shape[0], forward, np.bool_(True), share,
                    watching, logs,
                )  # fmt: skip
                if logs:
                    change = normalise_logs(ma, s, w.off)
                biggest = max(biggest, change)
                moved = max(moved, shift)
                if awake:
                    for v in ma.vars:
                        for i in range(w.off[v], w.off[v + 1]):
                            if abs(s.bel[i] - room[i]) > control[TRIGGER]:
                                active[v] = 1
            elif automata:
                control[FRESH] = 0.0
        if mode == SEQUENTIAL and not at_once and control[SENT] <= 1.0:
            control[SENT] = 1.0 if forward else -1.0
        if at_once and not watching:
            for e in range(s.m.shape[0]):  # s.m[:] = write would compile 3 s of error texts
                s.m[e] = write[e]
        residuals[it] = biggest / (1.0 - share)
        if flag[0] != 0 or flag[1] != 0:
            control[PHASE] = 0.0
            return it + 1
        if mode not in (SEQUENTIAL, FLOODING, COLOURED):
            return it + 1
        if watching:
            confirm(w, s, watch, mode, biggest, moved, logs)
            residuals[it] = -control[WORST]
            if control[PASSED] > 0.0:
                return it + 1
        else:
            control[DONE] += 1.0
            if awake:
                quiet = residuals[it] <= control[TRIGGER]
                if quiet and control[SKIPPED] > 0.0:
                    quiet = False
                    wake_all(active)
            else:
                quiet = is_quiet(control, max(residuals[it], moved if damping > 0.0 else 0.0))
            if quiet:
                control[PHASE] = -1.0
        if awake and watching:
            wake_all(active)
        if vectors is not None and by_vector_pairs and control[BLANK] != 0.0:
            if it + 1 == n_sweeps or control[PHASE] != 0.0:
                first_messages(
                    w, watch.ways, s.to_variable, watch.work
                )  # the next to look is no such sweep
            control[BLANK] = 0.0
    return n_sweeps
