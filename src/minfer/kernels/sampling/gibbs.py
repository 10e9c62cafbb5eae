"""Single-site Gibbs chains on a :class:`~minfer.kernels.messages.layout.SiteLayout`, and feasible
starts.

Random numbers come from xoshiro256++ (Blackman & Vigna 2021, "Scrambled linear pseudorandom number
generators", ACM TOMS 47:36), whose four words are passed in: nothing global is touched.
"""

from __future__ import annotations

from typing import Any, NamedTuple

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

_R11, _R17, _R23, _R41 = np.uint64(11), np.uint64(17), np.uint64(23), np.uint64(41)
_R45, _R19 = np.uint64(45), np.uint64(19)
UNIT = 1.0 / 9007199254740992.0  # 2**-53
_NOISE = 0.1  # share of random moves in the search for a feasible state


@jit
def random_word(s0, s1, s2, s3):
    """64 random bits, and the generator's state behind them (xoshiro256++)."""
    total = s0 + s3
    word = ((total << _R23) | (total >> _R41)) + s0
    t = s1 << _R17
    s2 ^= s0
    s3 ^= s1
    s1 ^= s2
    s0 ^= s3
    s2 ^= t
    return word, s0, s1, s2, (s3 << _R45) | (s3 >> _R19)


@jit
def uniform(words):
    """A number in [0, 1) with 53 random bits; advances ``words`` (u8, 4)."""
    word, s0, s1, s2, s3 = random_word(words[0], words[1], words[2], words[3])
    words[0], words[1], words[2], words[3] = s0, s1, s2, s3
    return np.int64(word >> _R11) * UNIT


@jit
def draw(off, probs, words, states):
    """Independent states from marginals (sum S,) into ``states`` (C, V), chain by chain."""
    for c in range(states.shape[0]):
        for v in range(states.shape[1]):
            left = uniform(words[c])
            for s in range(off[v], off[v + 1]):
                if probs[s] > 0.0:
                    states[c, v] = s - off[v]
                    left -= probs[s]
                    if left < 0.0:
                        break


@jit(inline="always")
def _walk(scope, literal, step_at, step, x, first, stop, state):
    """The state of a machine after places ``first`` to ``stop``; -1 if that is forbidden."""
    for i in range(first, stop):
        if state < 0:
            break
        state = step[step_at[i] + 2 * state + (x[scope[i]] == literal[i])]
    return state


class MachineArrays(NamedTuple):
    """What a :class:`SiteLayout` has of machines: see there."""

    machine: Any
    literal: Any
    step_at: Any
    step: Any
    final: Any


@jit(inline="always")
def _is_broken(f, x, fptr, scope, card, toff, width, log_psi, machines):
    """Whether factor f forbids the assignment x. Arrays of tables are read once, outside loops."""
    broken = False
    if toff[f] < 0:
        machine, literal, step_at, step, final = machines
        row = f - (toff.shape[0] - machine.shape[0])
        first, stop, start = fptr[f], fptr[f + 1], machine[row, START]
        state = _walk(scope, literal, step_at, step, x, first, stop, start)
        broken = state < 0 or final[machine[row, FINAL] + state] == -np.inf
    elif width[f] > 0:
        lo = fptr[f]
        apart = abs(x[scope[lo]] - x[scope[lo + 1]])
        broken = log_psi[toff[f] + min(apart, width[f] - 1)] == -np.inf
    else:
        cell = 0
        for k in range(fptr[f], fptr[f + 1]):
            cell = cell * card[scope[k]] + x[scope[k]]
        broken = log_psi[toff[f] + cell] == -np.inf
    return broken


@jit
def _machines(model):
    return MachineArrays(model.machine, model.literal, model.step_at, model.step, model.final)


@jit
def repair(model, x, words, max_moves):
    """Min-conflicts search with noise, in place; the number of broken factors that are left.

    A move takes a random broken factor and changes one of its variables: to the variable and state
    that break the fewest factors more; ties, and noise, by lot.
    """
    fptr, scope, card, toff, width = model.fptr, model.scope, model.card, model.toff, model.width
    log_psi, off, bias, vptr, vfac = model.log_psi, model.off, model.bias, model.vptr, model.vfac
    machines = _machines(model)
    n_facs = fptr.shape[0] - 1
    broken = np.empty(n_facs, np.int64)
    place = np.full(n_facs, -1, np.int64)  # position in ``broken``
    n = 0
    for f in range(n_facs):
        if _is_broken(f, x, fptr, scope, card, toff, width, log_psi, machines):
            broken[n], place[f] = f, n
            n += 1
    for _ in range(max_moves):
        if n == 0:
            break
        f = broken[int(uniform(words) * n)]
        noise = uniform(words) < _NOISE
        best, ties, var, state = np.inf, 0.0, -1, 0
        for k in range(fptr[f], fptr[f + 1]):
            v = scope[k]
            old = x[v]
            before = 0
            for i in range(vptr[v], vptr[v + 1]):
                before += place[vfac[i]] >= 0
            for s in range(card[v]):
                if s == old or bias[off[v] + s] == -np.inf:
                    continue
                x[v] = s
                cost = 0.0
                if not noise:
                    for i in range(vptr[v], vptr[v + 1]):
                        g = vfac[i]
                        cost += _is_broken(g, x, fptr, scope, card, toff, width, log_psi, machines)
                    cost -= before
                if cost < best:
                    best, ties, var, state = cost, 1.0, v, s
                elif cost == best:
                    ties += 1.0
                    if uniform(words) * ties < 1.0:
                        var, state = v, s
            x[v] = old
        if var < 0:
            continue
        x[var] = state
        for k in range(vptr[var], vptr[var + 1]):
            g = vfac[k]
            bad = _is_broken(g, x, fptr, scope, card, toff, width, log_psi, machines)
            if bad and place[g] < 0:
                broken[n], place[g] = g, n
                n += 1
            elif not bad and place[g] >= 0:
                n -= 1
                last = broken[n]
                broken[place[g]], place[last] = last, place[g]
                place[g] = -1
    return n


@jit
def yield_to(model, x, target):
    """Move variables of broken factors to their ``target``, in place, until no factor is broken.

    For models that allow every allowed assignment with any variable moved to its target. Returns
    a factor that is broken even at the target, or -1.
    """
    fptr, scope, card, toff, width = model.fptr, model.scope, model.card, model.toff, model.width
    log_psi, machines = model.log_psi, _machines(model)
    for f in range(fptr.shape[0] - 1):
        k = fptr[f]
        while _is_broken(f, x, fptr, scope, card, toff, width, log_psi, machines):
            if k == fptr[f + 1]:
                return f
            x[scope[k]] = target[scope[k]]
            k += 1
    return -1


@jit
def _choose(x, v, e, n, words, total, o, t):
    """Draw state v from log-weights ``e`` (n,); if t >= 0, add the distribution to ``total[o:]``.

    Returns t (t + 1) times the largest change of the mean of the t distributions before.
    """
    top = -np.inf
    for s in range(n):
        top = max(top, e[s])
    z = 0.0
    for s in range(n):
        e[s] = np.exp(e[s] - top)
        z += e[s]
    left = uniform(words) * z
    for s in range(n):
        if e[s] > 0.0:
            x[v] = s
            left -= e[s]
            if left < 0.0:
                break
    change = 0.0
    if t >= 0:
        for s in range(n):
            p = e[s] / z
            change = max(change, abs(p * t - total[o + s]))
            total[o + s] += p
    return change


@jit
def _choose_binary(x, v, log_odds, words, total, o, t):
    """The same for two states, from the log-odds of state 1."""
    odds = np.exp(-abs(log_odds))
    small = odds / (1.0 + odds)
    p = small if log_odds < 0 else 1.0 - small
    x[v] = uniform(words) < p
    if t < 0:
        return 0.0
    change = abs(p * t - total[o + 1])
    total[o] += 1.0 - small if log_odds < 0 else small
    total[o + 1] += p
    return change


@jit
def _fast_sweep(model, x, words, total, t):
    """All variables once, in order; none is GENERAL. With t < 0 nothing is recorded."""
    off, bias, kind = model.off, model.bias, model.kind
    pair_ptr, qvar, qweight = model.pair_ptr, model.qvar, model.qweight
    worst = 0.0
    for v in range(off.shape[0] - 1):
        if kind[v] == IDLE:
            continue
        o = off[v]
        log_odds = bias[o + 1] - bias[o]
        for k in range(pair_ptr[v], pair_ptr[v + 1]):
            log_odds += qweight[k] * x[qvar[k]]
        worst = max(worst, _choose_binary(x, v, log_odds, words, total, o, t))
    return worst


@jit
def _foresee(model, x, at, state, behind):
    """Bring every machine with a sorted scope to its start, and its log-weights to x.

    Row i of ``behind``, from ``at[m]``, is the log-weight by the state before position i.
    """
    fptr, scope, literal, machine = model.fptr, model.scope, model.literal, model.machine
    step_at, step, final = model.step_at, model.step, model.final
    n_tables = fptr.shape[0] - 1 - machine.shape[0]
    for m in range(machine.shape[0]):
        state[m] = machine[m, START]
        if not machine[m, ASCENDING]:
            continue
        lo, hi = fptr[n_tables + m], fptr[n_tables + m + 1]
        n = machine[m, STATES]
        row = at[m] + (hi - lo) * n
        for k in range(n):
            behind[row + k] = final[machine[m, FINAL] + k]
        for i in range(hi - lo - 1, 0, -1):
            t = step_at[lo + i] + (x[scope[lo + i]] == literal[lo + i])
            for k in range(n):
                after = step[t + 2 * k]
                behind[row - n + k] = behind[row + after] if after >= 0 else -np.inf
            row -= n


@jit
def _sweep(model, x, words, e, total, t, at, state, behind):
    """The same with variables of every kind; ``at``, ``state``, ``behind`` as they are foreseen."""
    card, off, bias, kind = model.card, model.off, model.bias, model.kind
    pair_ptr, qvar, qweight = model.pair_ptr, model.qvar, model.qweight
    vptr, vfac, vpos, vother, vown = model.vptr, model.vfac, model.vpos, model.vother, model.vown
    fptr, scope, toff, log_psi = model.fptr, model.scope, model.toff, model.log_psi
    literal, machine, final, width = model.literal, model.machine, model.final, model.width
    step_at, step = model.step_at, model.step
    n_tables = toff.shape[0] - machine.shape[0]
    worst = 0.0
    for v in range(card.shape[0]):
        if kind[v] == IDLE:
            continue
        o, n = off[v], card[v]
        log_odds = 0.0
        for k in range(pair_ptr[v], pair_ptr[v + 1]):
            log_odds += qweight[k] * x[qvar[k]]
        if kind[v] == FAST:
            log_odds += bias[o + 1] - bias[o]
            worst = max(worst, _choose_binary(x, v, log_odds, words, total, o, t))
            continue
        for s in range(n):
            e[s] = bias[o + s]
        if n == 2:
            e[1] += log_odds
        for k in range(vptr[v], vptr[v + 1]):
            f, u = vfac[k], vother[k]
            if toff[f] < 0:
                m, pos, lo = f - n_tables, vpos[k], fptr[f]
                n_k, here = machine[m, STATES], state[m]
                if not machine[m, ASCENDING]:
                    here = _walk(scope, literal, step_at, step, x, lo, lo + pos, here)
                row = at[m] + (pos + 1) * n_k
                for on in range(2):
                    after = step[step_at[lo + pos] + 2 * here + on] if here >= 0 else -1
                    if machine[m, ASCENDING]:
                        weight = behind[row + after] if after >= 0 else -np.inf
                    else:
                        first, stop = lo + pos + 1, fptr[f + 1]
                        after = _walk(scope, literal, step_at, step, x, first, stop, after)
                        weight = final[machine[m, FINAL] + after] if after >= 0 else -np.inf
                    for s in range(n):
                        if (s == literal[lo + pos]) == (on == 1):
                            e[s] += weight
                continue
            if width[f] > 0:  # a pair of labels, by distance
                far = width[f] - 1
                for s in range(n):
                    e[s] += log_psi[toff[f] + min(abs(s - x[u]), far)]
                continue
            cell = 0
            if u >= 0:
                cell = x[u] * (1 if vpos[k] == 0 else n)
            else:
                for i in range(fptr[f], fptr[f + 1]):
                    cell = cell * card[scope[i]] + (x[scope[i]] if scope[i] != v else 0)
            cell += toff[f]
            for s in range(n):
                e[s] += log_psi[cell + s * vown[k]]
        worst = max(worst, _choose(x, v, e, n, words, total, o, t))
        for k in range(vptr[v], vptr[v + 1]):
            f, pos = vfac[k], vpos[k]
            if toff[f] < 0 and machine[f - n_tables, ASCENDING]:
                m, here = f - n_tables, fptr[f] + pos
                if state[m] >= 0:
                    on = x[v] == literal[here]
                    state[m] = step[step_at[here] + 2 * state[m] + on]
    return worst


@jit
def _count(card, fptr, scope, x, count_ptr, counts):
    """Add one to the cell that x falls into, of every factor."""
    for f in range(fptr.shape[0] - 1):
        cell = 0
        for k in range(fptr[f], fptr[f + 1]):
            cell = cell * card[scope[k]] + x[scope[k]]
        counts[count_ptr[f] + cell] += 1


@jit
def sample(model, states, words, n_sweeps, t, totals, fptr, scope, count_ptr, counts, residuals):
    """Sweep every chain; ``t`` is the number of recorded sweeps so far, or -1 for burn-in.

    Parameters
    ----------
    states : i4 (C, V), in and out
    words : u8 (C, 4), in and out: the generators
    totals : f8 (C, sum S), in and out: sums of conditional distributions; not of IDLE variables
    fptr, scope : the scopes of the factors whose joint states are counted, end to end
    count_ptr : i8 (F+1,), where a factor's cells begin in ``counts``
    counts : i8, in and out: joint states seen, all chains together
    residuals : f8 (n_sweeps,), in and out: largest change of a chain's mean in each sweep
    """
    most = 2
    for n in model.card:  # max() of an empty array is an error
        most = max(most, n)
    e = np.empty(most)
    only_fast = (model.kind != GENERAL).all()
    at, behind, _ = machine_room(model.fptr, model.machine)
    machine_states = np.empty(at.shape[0], np.int64)
    for c in range(states.shape[0]):
        x, generator, total = states[c], words[c], totals[c]
        for i in range(n_sweeps):
            done = t + i if t >= 0 else -1
            if only_fast:
                change = _fast_sweep(model, x, generator, total, done)
            else:
                _foresee(model, x, at, machine_states, behind)
                change = _sweep(model, x, generator, e, total, done, at, machine_states, behind)
            if t >= 0:
                change = change / (done * (done + 1.0)) if done > 0 else 1.0
                residuals[i] = max(residuals[i], change)
                _count(model.card, fptr, scope, x, count_ptr, counts)
