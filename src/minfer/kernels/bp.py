"""Sum-product and tree-reweighted sweeps over a :class:`~minfer.kernels.wiring.Wiring`.

Pair slots carry odds. With m the incoming odds message, B the belief odds and c = B / m the cavity,
the outgoing message (1 + W c) / (1 + c) is computed with one division as

    (m + W B) / (m + B).

Tree-reweighted pair slots keep rho * log m beside m: log B is their sum, W stands for psi^{1/rho},
and the message is the same (one exp per visit, one log per message). General variables are
:mod:`minfer.kernels.general`'s. Every sweep reports the largest change of any probability between
two visits of its variable.

Few layers, on purpose: a kernel is compiled again into every kernel that calls it, once for every
literal it is called with (hence ``np.int64(BOTH)``), and these are large.
"""

import math

import numpy as np

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
from minfer.kernels.tables import damped
from minfer.kernels.wiring import ARITY, FACTOR, FIRST, GENERAL, PLAIN

SEQUENTIAL, FLOODING, START = 0, 1, 2  # modes of ``sweeps``

_BIG = 1e150  # one step of the exponent of scaled products
_LOG_BIG = math.log(_BIG)
_ONE, _TWO = np.uint64(1), np.uint64(2)


@jit
def scaled_odds(prior, m, lo, hi):
    """Belief odds where plain products could overflow: a mantissa and an exponent, then clamped."""
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
def visit_pairs(w, s, out, begin, end, forward):
    """Visit the pair variables begin..end in turn. Returns the largest change of a belief.

    The engine's hot loop: everything stands here written out, because even a small call per
    variable, which counts references to its arrays, would double the cost of a sweep.
    """
    _, off, cls, prior, _, ptr, rev, W, _, _, _, _, _, _, _ = w
    m, bel = s.m, s.bel
    biggest = 0.0
    for k in range(begin, end):
        v = np.uint64(k if forward else begin + end - 1 - k)
        lo, hi = ptr[v], ptr[v + _ONE]
        if cls[v] == PLAIN:
            odds, more, e = prior[v], 1.0, lo
            while e + _TWO <= hi:  # two products make a shorter chain
                odds *= m[e]
                more *= m[e + _ONE]
                e += _TWO
            if e < hi:
                odds *= m[e]
            odds *= more
        else:
            odds = scaled_odds(prior[v], m, lo, hi)
        for e in range(lo, hi):
            x = m[e]
            out[rev[e]] = (x + W[e] * odds) / (x + odds)
        p = odds / (1.0 + odds)
        o = np.uint64(off[v]) + _ONE
        biggest = max(biggest, abs(p - bel[o]))
        bel[o] = p
    return biggest


@jit
def visit_damped(w, s, out, begin, end, forward, damping):
    """As ``visit_pairs``, with damped messages; apart, as the choice would cost the loop 8 %."""
    _, off, cls, prior, _, ptr, rev, W, _, _, _, _, _, _, _ = w
    m, bel = s.m, s.bel
    biggest = 0.0
    for k in range(begin, end):
        v = np.uint64(k if forward else begin + end - 1 - k)
        lo, hi = ptr[v], ptr[v + _ONE]
        odds = prior[v]
        if cls[v] == PLAIN:
            for e in range(lo, hi):
                odds *= m[e]
        else:
            odds = scaled_odds(prior[v], m, lo, hi)
        for e in range(lo, hi):
            x = m[e]
            out[rev[e]] = damped((x + W[e] * odds) / (x + odds), m[rev[e]], damping)
        p = odds / (1.0 + odds)
        o = np.uint64(off[v]) + _ONE
        biggest = max(biggest, abs(p - bel[o]))
        bel[o] = p
    return biggest


@jit
def visit_reweighted(w, s, begin, end, forward, damping):
    """As ``visit_pairs``, tree-reweighted and in place."""
    _, off, _, prior, _, ptr, rev, W, _, _, _, _, _, rho, _ = w
    m, rl, bel = s.m, s.rl, s.bel
    biggest = 0.0
    for k in range(begin, end):
        v = np.uint64(k if forward else begin + end - 1 - k)
        lo, hi = ptr[v], ptr[v + _ONE]
        if lo == hi:
            continue  # nothing moves it; ``read_beliefs`` knows it
        log_odds = prior[v]
        for e in range(lo, hi):
            log_odds += rl[e]
        odds = math.exp(min(max(log_odds, -460.0), 460.0))
        for e in range(lo, hi):
            x = (m[e] + W[e] * odds) / (m[e] + odds)
            if damping > 0.0:
                x = damped(x, m[rev[e]], damping)
            m[rev[e]] = x
            rl[rev[e]] = rho[e] * math.log(x)
        p = odds / (1.0 + odds)
        o = np.uint64(off[v]) + _ONE
        biggest = max(biggest, abs(p - bel[o]))
        bel[o] = p
    return biggest


@jit
def run_end(k, n, forward, cls):
    """Where the run of pair (or of general) variables that begins at place k of a sweep ends."""
    general = cls[k if forward else n - 1 - k] == GENERAL
    while k < n and (cls[k if forward else n - 1 - k] == GENERAL) == general:
        k += 1
    return k, general


@jit
def sweeps(w, s, out, mode, n_sweeps, tol, damping, log, first, residuals):
    """Up to ``n_sweeps`` sweeps; returns how many were made.

    SEQUENTIAL: forward and backward in turn, in place (``out`` is ``s.m``); FLOODING: every message
    from those of the sweep before, through the spare array ``out``; START: no sweep, only the
    cavities of general variables from the messages as they are, which is how every run begins.
    """
    n = w.card.shape[0]
    mixed = w.field.size > 0  # else all are pair variables: one run
    for it in range(n_sweeps):
        forward = mode != SEQUENTIAL or (first + it) % 2 == 0
        biggest = 0.0
        for step in range(2 if mode == FLOODING else 1):
            phase = np.int64(BOTH)
            if mode == START:
                phase = np.int64(CAVITIES)
            elif mode == FLOODING:
                phase = np.int64(PULL) if step == 0 else np.int64(UPDATE)
            k = np.int64(0)
            while k < n and s.flag[1] == 0:
                end, general = run_end(k, n, forward, w.cls) if mixed else (n, mixed)
                lo, hi = (k, end) if forward else (n - end, n - k)
                k = end
                change = 0.0
                if general and log:
                    change, _ = visit_log(w, s, out, lo, hi, forward, phase, damping)
                elif general:
                    change, _ = visit_linear(w, s, out, lo, hi, forward, phase, damping)
                elif phase in (BOTH, UPDATE):
                    if s.rl.size > 0:
                        change = visit_reweighted(w, s, lo, hi, forward, damping)
                    elif damping > 0.0:
                        change = visit_damped(w, s, out, lo, hi, forward, damping)
                    else:
                        change = visit_pairs(w, s, out, lo, hi, forward)
                biggest = max(biggest, change)
        if mode == FLOODING:
            for e in range(out.shape[0]):  # s.m[:] = out would compile 2 s of error texts
                s.m[e] = out[e]
        residuals[it] = biggest / (1.0 - damping)
        if s.flag[0] != 0 or s.flag[1] != 0 or residuals[it] <= tol:
            return it + 1
    return n_sweeps


@jit
def residual(w, s, n_sweeps, tol, damping, log, first, residuals, owner, gowner, active):
    """Sequential sweeps that visit only ``active`` variables, those whose messages moved.

    When nothing among them moves any more, everything is woken, and only a sweep over everything
    may report a residual within ``tol``: small changes cannot hide. Returns the sweeps made.
    """
    card, off, cls, prior, field, ptr, rev, W, gptr, gslot, fac, fslot, tab, rho, grho = w
    m, bel, flag = s.m, s.bel, s.flag
    n = card.shape[0]
    for it in range(n_sweeps):
        visited = 0
        biggest = 0.0
        for k in range(n):
            v = k if (first + it) % 2 == 0 else n - 1 - k
            if active[v] == 0:
                continue
            active[v] = 0
            visited += 1
            if cls[v] == GENERAL:
                yes, phase = np.bool_(True), np.int64(BOTH)
                if log:
                    change, moved = visit_log(w, s, m, v, v + 1, yes, phase, damping)
                else:
                    change, moved = visit_linear(w, s, m, v, v + 1, yes, phase, damping)
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
        residuals[it] = biggest / (1.0 - damping)
        if flag[0] != 0:
            return it + 1
        if residuals[it] <= tol:
            if visited == n:
                return it + 1
            residuals[it] = np.nextafter(tol, 1.0)
            active[:] = 1
    return n_sweeps


@jit
def read_beliefs(w, s):
    """Beliefs of all pair variables from the messages as they stand, both states written.

    General variables have theirs from their last visit.
    """
    _, off, cls, prior, _, ptr, _, _, _, _, _, _, _, _, _ = w
    m, rl, bel = s.m, s.rl, s.bel
    for v in range(off.shape[0] - 1):
        if cls[v] == GENERAL:
            continue
        lo, hi = ptr[v], ptr[v + 1]
        odds = prior[v]
        if rl.size > 0:
            for e in range(lo, hi):
                odds += rl[e]
            odds = math.exp(min(max(odds, -460.0), 460.0))
        elif cls[v] == PLAIN:
            for e in range(lo, hi):
                odds *= m[e]
        else:
            odds = scaled_odds(prior[v], m, lo, hi)
        bel[off[v]] = 1.0 / (1.0 + odds)
        bel[off[v] + 1] = odds / (1.0 + odds)
