"""Coordinate ascent on the mean-field bound, and the split of a model it shares with Gibbs.

Finite 2x2 tables of moderate size are a quadratic form: with y in {0, 1} and T the log-table,

    T(y_i, y_j) = T_00 + (T_10 - T_00) y_i + (T_01 - T_00) y_j + W y_i y_j,
    W = T_11 - T_10 - T_01 + T_00,

so the first three terms go into a constant and the field (``bias``) and what a sweep reads per
factor and variable is one weight and one neighbour. Every other table keeps its cells; a cell of
minus infinity is a *forbidden* cell, and its expected mass is kept apart from the finite energies.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from minfer.kernels._jit import jit

#: Larger entries keep their table: in T_11 - T_10 - T_01 + T_00 they would swallow small ones.
MAX_QUADRATIC = 1e5
IDLE = 0  # no factor left: its marginal is that of its field, and no sweep touches it
FAST = 1  # binary, finite bias, quadratic edges only
GENERAL = 2
_TINY = 1e-300  # forbidden mass below this is underflow, not mass
_TIE = 1.0 + 1e-9


class Split(NamedTuple):
    """A model as quadratic edges and general factors. V variables, F factors.

    Kernels take the arrays out of it once, at the top: handing the tuple itself to a helper in an
    inner loop costs a reference count per array and call.
    """

    card: Any  # i4 (V,)
    off: Any  # i8 (V+1,) where a variable's states begin
    bias: Any  # f8 (sum S,) field, with the linear terms of the quadratic edges
    kind: Any  # i1 (V,) IDLE, FAST or GENERAL
    qptr: Any  # i8 (V+1,) a variable's quadratic edges
    qvar: Any  # i4 the neighbour
    qweight: Any  # f8 W
    gptr: Any  # i8 (V+1,) a variable's general factors
    gfac: Any  # i4 factor
    gpos: Any  # i4 the variable's position in its scope
    gvar: Any  # i4 the other variable of a pair; -1 for a larger scope
    gown: Any  # i4 stride of the variable's own state in the table
    fptr: Any  # i8 (F+1,) where a factor's scope begins
    scope: Any  # i4
    toff: Any  # i8 (F,) where a factor's table begins
    log_psi: Any  # f8
    general: Any  # bool (F,)


@jit
def _is_general(flat, f):
    lo = flat.fptr[f]
    if flat.fptr[f + 1] - lo != 2:
        return True
    if flat.card[flat.scope[lo]] != 2 or flat.card[flat.scope[lo + 1]] != 2:
        return True
    for c in range(flat.toff[f], flat.toff[f] + 4):
        if not abs(flat.log_psi[c]) <= MAX_QUADRATIC:
            return True
    return False


@jit
def _log_sum_exp(values, lo, hi):
    top, z = -np.inf, 0.0
    for s in range(lo, hi):
        top = max(top, values[s])
    for s in range(lo, hi):
        z += np.exp(values[s] - top)
    return top + np.log(z)


@jit
def split(flat):
    """The model as a :class:`Split`, and a constant: all T_00, and log Z of the idle variables."""
    n_vars, n_facs = flat.card.shape[0], flat.toff.shape[0]
    general = np.empty(n_facs, np.bool_)
    constant = 0.0
    for f in range(n_facs):
        general[f] = _is_general(flat, f)
        if not general[f]:
            constant += flat.log_psi[flat.toff[f]]
    qptr = np.zeros(n_vars + 1, np.int64)
    gptr = np.zeros(n_vars + 1, np.int64)
    for v in range(n_vars):
        n_general = 0
        for k in range(flat.vptr[v], flat.vptr[v + 1]):
            n_general += general[flat.vfac[k]]
        gptr[v + 1] = gptr[v] + n_general
        qptr[v + 1] = qptr[v] + flat.vptr[v + 1] - flat.vptr[v] - n_general
    qvar = np.empty(qptr[n_vars], np.int32)
    qweight = np.empty(qptr[n_vars], np.float64)
    gfac = np.empty(gptr[n_vars], np.int32)
    gpos = np.empty(gptr[n_vars], np.int32)
    gvar = np.empty(gptr[n_vars], np.int32)
    gown = np.empty(gptr[n_vars], np.int32)
    bias = flat.field.copy()
    kind = np.empty(n_vars, np.int8)
    q, g = 0, 0
    for v in range(n_vars):
        o = flat.off[v]
        for k in range(flat.vptr[v], flat.vptr[v + 1]):
            f, pos = flat.vfac[k], flat.vpos[k]
            if general[f]:
                gfac[g] = f
                gpos[g] = pos
                lo, hi = flat.fptr[f], flat.fptr[f + 1]
                gvar[g] = flat.scope[lo + 1 - pos] if hi - lo == 2 else -1
                gown[g] = 1
                for i in range(lo + pos + 1, hi):
                    gown[g] *= flat.card[flat.scope[i]]
                g += 1
                continue
            t = flat.log_psi[flat.toff[f] : flat.toff[f] + 4]
            bias[o + 1] += t[2 - pos] - t[0]
            qvar[q] = flat.scope[flat.fptr[f] + 1 - pos]
            qweight[q] = (t[3] - t[2]) - (t[1] - t[0])
            q += 1
        kind[v] = GENERAL
        if flat.vptr[v + 1] == flat.vptr[v]:
            kind[v] = IDLE
            constant += _log_sum_exp(bias, o, flat.off[v + 1])
        elif gptr[v + 1] == gptr[v] and bias[o] > -np.inf and bias[o + 1] > -np.inf:
            kind[v] = FAST
    model = Split(
        flat.card, flat.off, bias, kind, qptr, qvar, qweight, gptr, gfac, gpos,
        gvar, gown, flat.fptr, flat.scope, flat.toff, flat.log_psi, general,
    )  # fmt: skip
    return model, constant


@jit
def _scratch(fptr):
    """Two arrays for :func:`_message`, large enough for every factor."""
    most = 0
    for f in range(fptr.shape[0] - 1):
        most = max(most, fptr[f + 1] - fptr[f])
    return np.empty(most + 1, np.int64), np.empty(most + 1)


@jit
def _message(card, off, scope, lo, hi, pos, table, log_psi, q, out, digit, prefix):
    """E_q[log Psi | x_v = s] over the allowed cells, and the mass of the forbidden ones.

    For any arity: all cells in order, with the products over the leading variables kept. The factor
    has the variables ``scope[lo:hi]``, v is at ``pos``; ``out`` (2, S) gets both rows. ``digit``
    and ``prefix`` are scratch, of at least hi - lo + 1 entries.
    """
    n = hi - lo
    for s in range(card[scope[lo + pos]]):
        out[0, s], out[1, s] = 0.0, 0.0
    for d in range(n):
        digit[d] = 0
    prefix[0] = 1.0
    cell, changed = table, 0
    while changed >= 0:
        for d in range(changed, n):
            weight = 1.0 if d == pos else q[off[scope[lo + d]] + digit[d]]
            prefix[d + 1] = prefix[d] * weight
        if log_psi[cell] == -np.inf:
            out[1, digit[pos]] += prefix[n]
        else:
            out[0, digit[pos]] += prefix[n] * log_psi[cell]
        cell += 1
        changed = n - 1
        while changed >= 0:
            digit[changed] += 1
            if digit[changed] < card[scope[lo + changed]]:
                break
            digit[changed] = 0
            changed -= 1


@jit
def _add_pair_message(n_own, own, n_other, other, table, log_psi, q, first, total, closing, closes):
    """The same for a pair, added to ``total`` and, if it closes, to ``closing``.

    ``own`` and ``other`` are strides, ``q[first]`` is where the other variable's q begins.
    """
    for s in range(n_own):
        e, m = 0.0, 0.0
        cell = table + s * own
        for t in range(first, first + n_other):
            value = log_psi[cell]
            cell += other
            if value == -np.inf:
                m += q[t]
            else:
                e += q[t] * value
        total[0, s] += e
        total[1, s] += m
        if closes:
            closing[0, s] += e
            closing[1, s] += m


@jit
def _closes(scope, lo, hi, v, backward):
    """Whether v is the last variable of a scope that a sweep in this direction comes to."""
    n_later = 0
    for k in range(lo, hi):
        n_later += scope[k] != v and (scope[k] < v) == backward
    return n_later == 0


@jit
def _to_log_weights(bias, o, n, penalty, total):
    """Turn energies and forbidden masses into log-weights, in place; the largest.

    A finite penalty is charged per unit of forbidden mass. An infinite one is lexicographic: only
    the states with the least forbidden mass stay.
    """
    least = np.inf
    for s in range(n):
        if total[1, s] < _TINY:
            total[1, s] = 0.0
        if bias[o + s] > -np.inf:
            least = min(least, total[1, s])
    top = -np.inf
    for s in range(n):
        if bias[o + s] == -np.inf:
            total[0, s] = -np.inf
        elif penalty < np.inf:
            total[0, s] -= penalty * (total[1, s] - least)
        elif total[1, s] > least * _TIE:
            total[0, s] = -np.inf
        top = max(top, total[0, s])
    return top


@jit
def _renew(bias, q, o, n, penalty, total, closing):
    """New q_v from energies and masses; its largest change, its part of the bound, of the mass."""
    top = _to_log_weights(bias, o, n, penalty, total)
    z = 0.0
    for s in range(n):
        total[1, s] = np.exp(total[0, s] - top)
        z += total[1, s]
    change, value, mass = 0.0, np.log(z), 0.0
    for s in range(n):
        p = total[1, s] / z
        change = max(change, abs(p - q[o + s]))
        q[o + s] = p
        if p > 0.0:
            value += p * (bias[o + s] + closing[0, s] - (total[0, s] - top))
            mass += p * closing[1, s]
    return change, value, mass


@jit
def _renew_binary(bias, q, o, x, close):
    """The same for two states with log-odds x, closing energy ``close`` for state 1 and no mass.

    The entropy is log(1 + t) + |x| t / (1 + t) with t = exp(-|x|); 1 + t is returned instead of its
    logarithm, so that one logarithm can serve many variables.
    """
    t = np.exp(-abs(x))
    small = t / (1.0 + t)
    p = small if x < 0 else 1.0 - small
    rest = 1.0 - small if x < 0 else small
    change = abs(p - q[o + 1])
    q[o], q[o + 1] = rest, p
    return change, rest * bias[o] + p * (bias[o + 1] + close) + abs(x) * small, 1.0 + t


@jit
def _fast_sweep(model, q, one, backward):
    """All variables once; largest change, and the bound at the end. None is GENERAL.

    A factor's energy is read off at the last of its variables: the others are final by then.
    """
    off, bias, kind = model.off, model.bias, model.kind
    qptr, qvar, qweight = model.qptr, model.qvar, model.qweight
    n_vars = off.shape[0] - 1
    worst, bound, product = 0.0, 0.0, 1.0
    for i in range(n_vars):
        v = n_vars - 1 - i if backward else i
        if kind[v] == IDLE:
            continue
        o = off[v]
        x, close = bias[o + 1] - bias[o], 0.0
        for k in range(qptr[v], qptr[v + 1]):
            m = qweight[k] * one[qvar[k]]
            x += m
            close += m if (qvar[k] < v) != backward else 0.0
        change, value, factor = _renew_binary(bias, q, o, x, close)
        one[v] = q[o + 1]
        worst = max(worst, change)
        bound += value
        product *= factor
        if product > 1e100:
            bound += np.log(product)
            product = 1.0
    return worst, bound + np.log(product), 0.0


@jit
def _sweep(model, q, one, penalty, backward):
    """The same with variables of every kind; also the forbidden mass at the end."""
    card, off, bias, kind = model.card, model.off, model.bias, model.kind
    qptr, qvar, qweight = model.qptr, model.qvar, model.qweight
    gptr, gfac, gpos, gvar, gown = model.gptr, model.gfac, model.gpos, model.gvar, model.gown
    fptr, scope, toff, log_psi = model.fptr, model.scope, model.toff, model.log_psi
    n_vars, n_states = card.shape[0], 2
    for n in card:
        n_states = max(n_states, n)
    total = np.empty((2, n_states))  # energies and forbidden masses of one variable's states,
    closing = np.empty((2, n_states))  # of the factors it closes alone,
    part = np.empty((2, n_states))  # and of one factor
    digit, prefix = _scratch(fptr)
    worst, bound, mass, product = 0.0, 0.0, 0.0, 1.0
    for i in range(n_vars):
        v = n_vars - 1 - i if backward else i
        if kind[v] == IDLE:
            continue
        o, n = off[v], card[v]
        x, close = 0.0, 0.0
        for k in range(qptr[v], qptr[v + 1]):
            m = qweight[k] * one[qvar[k]]
            x += m
            close += m if (qvar[k] < v) != backward else 0.0
        if kind[v] == FAST:
            x += bias[o + 1] - bias[o]
            change, value, factor = _renew_binary(bias, q, o, x, close)
            one[v] = q[o + 1]
            worst = max(worst, change)
            bound += value
            product *= factor
            if product > 1e100:
                bound += np.log(product)
                product = 1.0
            continue
        for s in range(n):
            total[0, s], total[1, s] = bias[o + s], 0.0
            closing[0, s], closing[1, s] = 0.0, 0.0
        if n == 2:
            total[0, 1] += x
            closing[0, 1] = close
        for k in range(gptr[v], gptr[v + 1]):
            f, u, pos = gfac[k], gvar[k], gpos[k]
            if u >= 0:
                closes = (u < v) != backward
                other, first = 1 if pos == 0 else n, off[u]
                _add_pair_message(
                    n, gown[k], card[u], other, toff[f], log_psi, q, first, total, closing, closes
                )
                continue
            lo, hi = fptr[f], fptr[f + 1]
            closes = _closes(scope, lo, hi, v, backward)
            _message(card, off, scope, lo, hi, pos, toff[f], log_psi, q, part, digit, prefix)
            for s in range(n):
                total[0, s] += part[0, s]
                total[1, s] += part[1, s]
                if closes:
                    closing[0, s] += part[0, s]
                    closing[1, s] += part[1, s]
        change, value, more = _renew(bias, q, o, n, penalty, total, closing)
        worst = max(worst, change)
        bound += value
        mass += more
        if n == 2:
            one[v] = q[o + 1]
    return worst, bound + np.log(product), mass if mass >= _TINY else 0.0


@jit
def forbidden_mass(model, q):
    """Sum over factors of the probability that q gives to their forbidden cells."""
    card, off, scope = model.card, model.off, model.scope
    part = np.empty((2, card.max()))
    digit, prefix = _scratch(model.fptr)
    total = 0.0
    for f in range(model.toff.shape[0]):
        if model.general[f]:
            lo, hi = model.fptr[f], model.fptr[f + 1]
            table, psi = model.toff[f], model.log_psi
            _message(card, off, scope, lo, hi, 0, table, psi, q, part, digit, prefix)
            for s in range(card[scope[lo]]):
                total += q[off[scope[lo]] + s] * part[1, s]
    return total if total >= _TINY else 0.0


@jit
def expected_size(model, q):
    """Sum over general factors of E_q |log Psi|, forbidden cells apart."""
    card, off, scope = model.card, model.off, model.scope
    part = np.empty((2, card.max()))
    digit, prefix = _scratch(model.fptr)
    size = np.abs(model.log_psi)
    for c in range(size.shape[0]):
        if size[c] == np.inf:
            size[c] = -np.inf
    total = 0.0
    for f in range(model.toff.shape[0]):
        if model.general[f]:
            lo, hi = model.fptr[f], model.fptr[f + 1]
            _message(card, off, scope, lo, hi, 0, model.toff[f], size, q, part, digit, prefix)
            for s in range(card[scope[lo]]):
                total += q[off[scope[lo]] + s] * part[0, s]
    return total


@jit
def ascend(model, q, before, calm, penalties, backward, until_allowed, tol, trace):
    """Sweeps in alternating directions, one per penalty; returns how many were made.

    Parameters
    ----------
    model : Split
    q : f8 (sum S,), in and out
    before : f8 (sum S,), in and out: q before the calm sweeps
    calm : how many sweeps before these moved no probability by more than ``tol``
    penalties : f8 (n,), see ``_to_log_weights``
    backward : bool, direction of the first sweep
    until_allowed : bool
        Stop once no forbidden mass is left; else once two sweeps running, one in each direction,
        move no probability by more than ``tol``.
    trace : f8 (3, n), out: largest change, bound, forbidden mass
    """
    n_vars = model.card.shape[0]
    one = np.zeros(n_vars)  # probability of state 1 of the binary variables
    for v in range(n_vars):
        if model.card[v] == 2:
            one[v] = q[model.off[v] + 1]
    only_fast = (model.kind != GENERAL).all()
    for i in range(penalties.shape[0]):
        if calm == 0:
            before[:] = q
        if only_fast:
            change, bound, mass = _fast_sweep(model, q, one, backward)
        else:
            change, bound, mass = _sweep(model, q, one, penalties[i], backward)
        trace[0, i] = change
        trace[1, i] = bound if mass == 0.0 else -np.inf
        trace[2, i] = mass
        backward = not backward
        calm = calm + 1 if change <= tol else 0
        if (mass == 0.0) if until_allowed else (calm >= 2):
            return i + 1
    return penalties.shape[0]
