"""Coordinate ascent on the mean-field bound, over a
:class:`~minfer.kernels.messages.layout.SiteLayout`.

Of a quadratic pair a sweep reads one weight and one neighbour. Every other table keeps its cells; a
cell of minus infinity is a *forbidden* cell, and its expected mass is kept apart from the finite
energies. Of a machine, which forbids nothing, the distribution over its states before each position
and the expected log-weight after it, given the state, are kept in step with the sweep: a variable's
message takes time in the number of states.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels.compiling.jit import jit
from minfer.kernels.messages.layout import (
    ASCENDING,
    FAST,
    FINAL,
    GENERAL,
    IDLE,
    START,
    STATES,
    machine_room,
)

_TINY = 1e-300  # forbidden mass below this is underflow, not mass
_TIE = 1.0 + 1e-9


@jit
def _scratch(fptr):
    """Two arrays for :func:`_message`, large enough for every factor."""
    most = 0
    for f in range(fptr.shape[0] - 1):
        most = max(most, fptr[f + 1] - fptr[f])
    return np.empty(most + 1, np.int64), np.empty(most + 1)


@jit
def _literal_probs(q, o, n, state):
    """How probable a literal is to be false and to be true."""
    rest = 0.0
    for s in range(n):
        rest += q[o + s] if s != state else 0.0
    return rest, q[o + state]


@jit
def _step_forth(step, t, at, n, q0, q1, ahead):
    """The distribution over n states after a position, row at + n, from that before, row at."""
    for k in range(at + n, at + 2 * n):
        ahead[k] = 0.0
    for k in range(n):
        p = ahead[at + k]
        if p > 0.0:
            off, on = step[t + 2 * k], step[t + 2 * k + 1]
            if off >= 0:
                ahead[at + n + off] += p * q0
            if on >= 0:
                ahead[at + n + on] += p * q1


@jit
def _step_back(step, t, at, n, q0, q1, behind):
    """The expected log-weight given the state before a position from that given the state after."""
    for k in range(n):
        off, on = step[t + 2 * k], step[t + 2 * k + 1]
        x = q0 * behind[at + n + off] if off >= 0 else 0.0
        behind[at + k] = x + (q1 * behind[at + n + on] if on >= 0 else 0.0)


@jit
def _read(model, m, q, at, pos, ahead, behind):
    """Read machine m, whose rows begin at ``at``, from both ends up to ``pos``, itself unread: rows
    0 to pos of ``ahead`` are distributions over the states before each position, rows pos + 1 to
    the last of ``behind`` E_q[log-weight | state]. Minus infinity is out of reach here."""
    card, off, scope, literal = model.card, model.off, model.scope, model.literal
    step_at, step, final, row = model.step_at, model.step, model.final, model.machine[m]
    f = model.toff.shape[0] - model.machine.shape[0] + m
    lo, hi = model.fptr[f], model.fptr[f + 1]
    n = row[STATES]
    last = at + (hi - lo) * n
    for k in range(n):
        ahead[at + k] = k == row[START]
        weight = final[row[FINAL] + k]
        behind[last + k] = weight if weight > -np.inf else 0.0
    for i in range(pos):
        u = scope[lo + i]
        q0, q1 = _literal_probs(q, off[u], card[u], literal[lo + i])
        _step_forth(step, step_at[lo + i], at + n * i, n, q0, q1, ahead)
    for i in range(hi - lo - 1, pos, -1):
        u = scope[lo + i]
        q0, q1 = _literal_probs(q, off[u], card[u], literal[lo + i])
        _step_back(step, step_at[lo + i], at + n * i, n, q0, q1, behind)


@jit
def _message(card, off, scope, lo, hi, pos, table, log_psi, q, out, digit, prefix):
    """E_q[log Psi | x_v = s] over the allowed cells, and the mass of the forbidden ones, into
    ``out`` (2, S). All cells in order, with the products over the leading variables kept: the
    factor has the variables ``scope[lo:hi]``, v is at ``pos``; ``digit`` and ``prefix`` are
    scratch."""
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
def _pair_message(n_own, own, n_other, other, table, log_psi, q, first, out):
    """The same for a pair; ``own``, ``other`` are strides, at q[first] begins the other's q."""
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
        out[0, s], out[1, s] = e, m


@jit
def _label_message(n, table, width, log_psi, q, first, out):
    """``_message`` of a pair of labels, log psi by distance at ``table``. What is as far as the
    last of them or further is summed from both ends."""
    far = width - 1
    last = log_psi[table + far]
    left = right = 0.0
    for s in range(n):
        out[0, s], out[1, s] = 0.0, 0.0
    for s in range(far, n):  # mass at s - far and below it, at n - 1 - s + far and above it
        left += q[first + s - far]
        right += q[first + n - 1 - s + far]
        if last == -np.inf:
            out[1, s] += left
            out[1, n - 1 - s] += right if far > 0 else 0.0
        else:
            out[0, s] += left * last
            out[0, n - 1 - s] += right * last if far > 0 else 0.0
    if far == 0:  # the same for every label
        for s in range(n):
            out[0, s], out[1, s] = out[0, n - 1], out[1, n - 1]
    for s in range(n):
        for t in range(max(s - far + 1, 0), min(s + far, n)):
            value = log_psi[table + abs(s - t)]
            if value == -np.inf:
                out[1, s] += q[first + t]
            else:
                out[0, s] += q[first + t] * value


@jit
def _closes(scope, lo, hi, v, backward):
    """Whether v is the last variable of a scope that a sweep in this direction comes to."""
    n_later = 0
    for k in range(lo, hi):
        n_later += scope[k] != v and (scope[k] < v) == backward
    return n_later == 0


@jit
def _to_log_weights(bias, o, n, penalty, total):
    """Turn energies and forbidden masses into log-weights, in place; the largest. A penalty is
    charged per unit of forbidden mass; where it is infinite only the states with least mass stay.
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
def _renew(bias, q, o, n, penalty, total, closing, dry):
    """New q_v from energies and masses, unless ``dry``; its largest change, its part of the bound,
    of the mass."""
    top = _to_log_weights(bias, o, n, penalty, total)
    z = 0.0
    for s in range(n):
        total[1, s] = np.exp(total[0, s] - top)
        z += total[1, s]
    change, value, mass = 0.0, np.log(z), 0.0
    for s in range(n):
        p = total[1, s] / z
        change = max(change, abs(p - q[o + s]))
        if not dry:
            q[o + s] = p
        if p > 0.0:
            value += p * (bias[o + s] + closing[0, s] - (total[0, s] - top))
            mass += p * closing[1, s]
    return change, value, mass


@jit
def _renew_binary(bias, q, o, x, close, dry):
    """The same for two states with log-odds x, closing energy ``close`` for state 1 and no mass; of
    the entropy log(1 + t) + |x| t / (1 + t), t = exp(-|x|), it returns 1 + t, so that one logarithm
    serves many variables."""
    t = np.exp(-abs(x))
    small = t / (1.0 + t)
    p = small if x < 0 else 1.0 - small
    rest = 1.0 - small if x < 0 else small
    change = abs(p - q[o + 1])
    if not dry:
        q[o], q[o + 1] = rest, p
    return change, rest * bias[o] + p * (bias[o + 1] + close) + abs(x) * small, 1.0 + t


@jit
def _fast_sweep(model, q, one, backward, dry):
    """All variables once; largest change, and the bound at the end. None is GENERAL.

    A factor's energy is read off at the last of its variables: the others are final by then.
    """
    off, bias, kind = model.off, model.bias, model.kind
    pair_ptr, qvar, qweight = model.pair_ptr, model.qvar, model.qweight
    n_vars = off.shape[0] - 1
    worst, bound, product = 0.0, 0.0, 1.0
    for i in range(n_vars):
        v = n_vars - 1 - i if backward else i
        if kind[v] == IDLE:
            continue
        o = off[v]
        x, close = bias[o + 1] - bias[o], 0.0
        for k in range(pair_ptr[v], pair_ptr[v + 1]):
            m = qweight[k] * one[qvar[k]]
            x += m
            close += m if (qvar[k] < v) != backward else 0.0
        change, value, factor = _renew_binary(bias, q, o, x, close, dry)
        one[v] = q[o + 1]
        worst = max(worst, change)
        bound += value
        product *= factor
        if product > 1e100:
            bound += np.log(product)
            product = 1.0
    return worst, bound + np.log(product), 0.0


@jit
def _sweep(model, q, one, penalty, backward, at, ahead, behind, dry):
    """The same with variables of every kind; also the forbidden mass at the end.

    ``at``, ``ahead`` and ``behind`` are of the machines, see :func:`_read`. Where the scope is
    sorted, ``behind`` is right before a sweep forwards, which renews ``ahead``, and the reverse.
    """
    card, off, bias, kind = model.card, model.off, model.bias, model.kind
    pair_ptr, qvar, qweight = model.pair_ptr, model.qvar, model.qweight
    vptr, vfac, vpos, vother, vown = model.vptr, model.vfac, model.vpos, model.vother, model.vown
    fptr, scope, toff, log_psi = model.fptr, model.scope, model.toff, model.log_psi
    literal, machine, width = model.literal, model.machine, model.width
    step_at, step = model.step_at, model.step
    n_tables = toff.shape[0] - machine.shape[0]
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
        for k in range(pair_ptr[v], pair_ptr[v + 1]):
            m = qweight[k] * one[qvar[k]]
            x += m
            close += m if (qvar[k] < v) != backward else 0.0
        if kind[v] == FAST:
            x += bias[o + 1] - bias[o]
            change, value, factor = _renew_binary(bias, q, o, x, close, dry)
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
        for k in range(vptr[v], vptr[v + 1]):
            f, u, pos = vfac[k], vother[k], vpos[k]
            lo, hi = fptr[f], fptr[f + 1]
            if u >= 0:
                closes = (u < v) != backward
                if width[f] > 0:
                    _label_message(n, toff[f], width[f], log_psi, q, off[u], part)
                else:
                    other = 1 if pos == 0 else n
                    _pair_message(n, vown[k], card[u], other, toff[f], log_psi, q, off[u], part)
            elif toff[f] < 0:
                m = f - n_tables
                row, k0 = machine[m], at[m]
                if row[ASCENDING]:
                    closes = pos == (0 if backward else hi - lo - 1)
                else:
                    closes = _closes(scope, lo, hi, v, backward)
                    _read(model, m, q, k0, pos, ahead, behind)
                n_k = row[STATES]
                k0 += pos * n_k
                e0, e1 = 0.0, 0.0
                for j in range(n_k):
                    t = step_at[lo + pos] + 2 * j
                    if ahead[k0 + j] > 0.0:
                        e0 += ahead[k0 + j] * behind[k0 + n_k + step[t]]
                        e1 += ahead[k0 + j] * behind[k0 + n_k + step[t + 1]]
                for s in range(n):
                    part[0, s], part[1, s] = e1 if s == literal[lo + pos] else e0, 0.0
            else:
                closes = _closes(scope, lo, hi, v, backward)
                _message(card, off, scope, lo, hi, pos, toff[f], log_psi, q, part, digit, prefix)
            for s in range(n):
                total[0, s] += part[0, s]
                total[1, s] += part[1, s]
                if closes:
                    closing[0, s] += part[0, s]
                    closing[1, s] += part[1, s]
        change, value, more = _renew(bias, q, o, n, penalty, total, closing, dry)
        for k in range(vptr[v], vptr[v + 1]):
            f, pos = vfac[k], vpos[k]
            if toff[f] < 0 and machine[f - n_tables, ASCENDING]:
                row = machine[f - n_tables]
                n_k = row[STATES]
                t, k0 = step_at[fptr[f] + pos], at[f - n_tables] + n_k * pos
                q0, q1 = _literal_probs(q, o, n, literal[fptr[f] + pos])
                if backward:
                    _step_back(step, t, k0, n_k, q0, q1, behind)
                else:
                    _step_forth(step, t, k0, n_k, q0, q1, ahead)
        worst = max(worst, change)
        bound += value
        mass += more
        if n == 2:
            one[v] = q[o + 1]
    return worst, bound + np.log(product), mass if mass >= _TINY else 0.0


@jit
def _over_tables(model, psi, q):
    """Sums over all tables, with cells ``psi``: E_q of them, forbidden ones apart, and these."""
    card, off, scope = model.card, model.off, model.scope
    part = np.empty((2, card.max()))
    digit, prefix = _scratch(model.fptr)
    finite, mass = 0.0, 0.0
    for f in range(model.toff.shape[0] - model.machine.shape[0]):
        lo, hi, table = model.fptr[f], model.fptr[f + 1], model.toff[f]
        if model.width[f] > 0:
            _label_message(card[scope[lo]], table, model.width[f], psi, q, off[scope[lo + 1]], part)
        else:
            _message(card, off, scope, lo, hi, 0, table, psi, q, part, digit, prefix)
        for s in range(card[scope[lo]]):
            finite += q[off[scope[lo]] + s] * part[0, s]
            mass += q[off[scope[lo]] + s] * part[1, s]
    return finite, mass


@jit
def forbidden_mass(model, q):
    """Sum over factors of the probability that q gives to their forbidden cells."""
    _, mass = _over_tables(model, model.log_psi, q)
    return mass if mass >= _TINY else 0.0


@jit
def expected_size(model, q):
    """Sum over tables of E_q |log Psi|, forbidden cells apart; machines count once per variable."""
    size = np.abs(model.log_psi)
    for c in range(size.shape[0]):
        if size[c] == np.inf:
            size[c] = -np.inf
    total, _ = _over_tables(model, size, q)
    n_tables = model.toff.shape[0] - model.machine.shape[0]
    at, ahead, behind = machine_room(model.fptr, model.machine)
    for m in range(model.machine.shape[0]):
        lo, hi = model.fptr[n_tables + m], model.fptr[n_tables + m + 1]
        row = model.machine[m]
        _read(model, m, q, at[m], hi - lo, ahead, behind)
        last = at[m] + (hi - lo) * row[STATES]
        for k in range(row[STATES]):  # a sum of products of so many numbers
            total += (hi - lo) * ahead[last + k] * abs(behind[last + k])
    return total


@jit
def ascend(model, q, before, calm, penalties, backward, until_allowed, tol, trace):
    """Sweeps in alternating directions, one per penalty (n,); returns how many were made.

    ``q`` (sum S,) is changed, and so is ``before``, q before the ``calm`` sweeps: those up to now
    that moved no probability by more than ``tol``. ``backward``: the direction of the first. They
    stop once no forbidden mass is left (``until_allowed``); else once two running, one in each
    direction, are calm and after them no update of one variable alone would move more: weights of a
    thousand turn a neighbour's last step of ``tol`` into a thousand. ``trace`` (3, n) gets the
    largest change (of such updates too), the bound and the forbidden mass.
    """
    n_vars = model.card.shape[0]
    one = np.zeros(n_vars)  # probability of state 1 of the binary variables
    for v in range(n_vars):
        if model.card[v] == 2:
            one[v] = q[model.off[v] + 1]
    only_fast = (model.kind != GENERAL).all()
    at, ahead, behind = machine_room(model.fptr, model.machine)
    n_tables = model.toff.shape[0] - model.machine.shape[0]
    for m in range(model.machine.shape[0]):
        lo, hi = model.fptr[n_tables + m], model.fptr[n_tables + m + 1]
        _read(model, m, q, at[m], hi - lo if backward else -1, ahead, behind)
    for i in range(penalties.shape[0]):
        if calm == 0:
            for v in range(q.shape[0]):  # a slice would compile 3 s of error texts
                before[v] = q[v]
        dry, change, bound, mass = False, 0.0, 0.0, 0.0
        for _ in range(2):  # the second time to confirm two calm sweeps
            if only_fast:
                moved, value, left = _fast_sweep(model, q, one, backward, dry)
            else:
                moved, value, left = _sweep(
                    model, q, one, penalties[i], backward, at, ahead, behind, dry
                )
            if dry:
                change = max(change, moved)
                break
            change, bound, mass = moved, value, left
            backward = not backward
            if until_allowed or calm == 0 or change > tol:
                break
            dry = True
        trace[0, i] = change
        trace[1, i] = bound if mass == 0.0 else -np.inf
        trace[2, i] = mass
        calm = calm + 1 if change <= tol else 0
        if (mass == 0.0) if until_allowed else (calm >= 2):
            return i + 1
    return penalties.shape[0]
