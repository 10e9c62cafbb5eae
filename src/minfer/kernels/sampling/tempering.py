"""Parallel tempering on a :class:`~minfer.kernels.messages.layout.SiteLayout`, a replica in each
lane.

An ensemble is K copies of the model, one at each rung of a ladder of inverse temperatures
``beta`` from 0 to 1. A sweep draws every variable of all copies from its conditional at their
temperature, ``x`` (V, K) lane by lane; then neighbouring rungs exchange their copies by
Metropolis' rule. Lanes keep their states: what is exchanged are rungs.

Forbidden cells are soft: ``table`` has in their place a value well below the least allowed one of
their factor. What is recorded from the coldest rung is recorded where nothing forbidden holds, and
there the distribution is the model's own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from minfer.kernels.arithmetic.powers import EXP_MIN, LN2_HI, LN2_LO, LOG2E, MAGIC
from minfer.kernels.arithmetic.vexp import bits_of, double_of
from minfer.kernels.compiling.jit import jit
from minfer.kernels.messages.layout import FAST, IDLE
from minfer.kernels.sampling.gibbs import UNIT, random_word, uniform

_R11, _R16, _BIN = np.uint64(11), np.uint64(16), np.uint64(4095)
_U1, _U2, _U3, _U4 = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
BINS = 4096


class Replicas(NamedTuple):
    """An ensemble of K copies in L lanes, K rounded up to a multiple of 4; the rest idle at 0."""

    x: Any  # f8 (V, L)
    cell: Any  # i4 (F, L)
    words: Any  # u8 (4,) the generator
    rung: Any  # i8 (K,) of each lane
    lane_at: Any  # i8 (K,) of each rung
    facing: Any  # i1 (K,) 1 if a lane was last at the hot end, -1 if at the cold one, else 0


class TemperingSums(NamedTuple):
    """What sweeps add to."""

    totals: Any  # f8 (sum S,) sums of conditional distributions at the coldest rung
    valid: Any  # i8 (2,) sweeps, and those of them where nothing forbidden held at their end
    mean_exp: Any  # f8 (2, K) running log sum exp((beta[r + 1] - beta[r]) E), as (top, sum)
    tries: Any  # i8 (K - 1,) exchanges
    accepted: Any  # i8 (K - 1,)
    trips: Any  # i8 (1,) ways up and down again


@jit(fastmath={"contract"})
def _exp(v):
    """e^v for v <= 0, in a form that vectorises; relative error some 1e-11."""
    w = v if v > EXP_MIN else EXP_MIN
    t = w * LOG2E + MAGIC
    k = t - MAGIC
    r = (w - k * LN2_HI) - k * LN2_LO
    r2 = r * r
    r4 = r2 * r2
    low = (1.0 + r) + r2 * (0.5 + r * (1.0 / 6.0))
    mid = (1.0 / 24.0 + r * (1.0 / 120.0)) + r2 * (1.0 / 720.0 + r * (1.0 / 5040.0))
    p = low + r4 * (mid + r4 * (1.0 / 40320.0 + r * (1.0 / 362880.0)))
    return p * double_of((bits_of(t) + 1023) << 52) if v > EXP_MIN else 0.0


@jit
def _less_likely(odds):
    """The probability of the less likely state of a binary variable with these log-odds."""
    small = np.exp(-abs(odds))
    return small / (1.0 + small)


@jit
def _cell_of(f, fptr, scope, card, x, k):
    """The cell of factor f that copy k is in."""
    at = 0
    for i in range(fptr[f], fptr[f + 1]):
        at = at * card[scope[i]] + int(x[scope[i], k])
    return at


@jit
def place(model, x, cell):
    """The cell of every table that each copy is in, ``cell`` (F, K), from the states ``x``."""
    fptr, scope, card = model.fptr, model.scope, model.card
    for f in range(cell.shape[0]):
        for k in range(cell.shape[1]):
            cell[f, k] = _cell_of(f, fptr, scope, card, x, k)


@jit
def _entry(at, begin, width, last):
    """Where a factor's value at cell ``at`` lies: by distance if it is a pair of labels."""
    if width > 0:
        return begin + min(abs(at // last - at % last), width - 1)
    return begin + at


@jit
def energies(model, table, x, cell, out):
    """log of the (softened) weight of each copy, (K,)."""
    off, bias, kind, card = model.off, model.bias, model.kind, model.card
    pair_ptr, qvar, qweight = model.pair_ptr, model.qvar, model.qweight
    fptr, scope, toff, width = model.fptr, model.scope, model.toff, model.width
    for k in range(x.shape[1]):
        total = 0.0
        for v in range(x.shape[0]):
            if kind[v] == IDLE:
                continue
            total += bias[off[v] + int(x[v, k])]
            if x[v, k] != 0.0:
                half = 0.0
                for q in range(pair_ptr[v], pair_ptr[v + 1]):
                    half += qweight[q] * x[qvar[q], k]
                total += 0.5 * half
        for f in range(cell.shape[0]):
            last = card[scope[fptr[f + 1] - 1]]
            total += table[_entry(cell[f, k], toff[f], width[f], last)]
        out[k] = total


@jit
def _n_broken(fptr, scope, card, toff, width, forbidden, cell, k):
    count = 0
    for f in range(cell.shape[0]):
        last = card[scope[fptr[f + 1] - 1]]
        count += forbidden[_entry(cell[f, k], toff[f], width[f], last)]
    return count


@jit
def _count(card, fptr, scope, x, k, count_ptr, counts):
    """Add one to the cell that copy k falls into, of every factor."""
    for f in range(fptr.shape[0] - 1):
        counts[count_ptr[f] + _cell_of(f, fptr, scope, card, x, k)] += 1


@jit(fastmath={"contract"})
def temper(
    model, table, forbidden, copies, logit, beta, n_sweeps, record, sums, counted, counts, parity
):  # fmt: skip
    """Sweeps of one ensemble, each with a round of exchanges.

    Parameters
    ----------
    table, forbidden : f8, u1: log-weights with forbidden cells softened, and which these are;
        ``forbidden`` is empty where there are none
    copies : Replicas, sums : TemperingSums, in and out
    logit : f8 (BINS + 1,) log(u / (1 - u)) at u = i / BINS. A binary variable is drawn by the bin
        that u falls into alone unless its probability lies in the same bin: then all of u is drawn
    beta : f8 (K,) by rung, from 0 to 1
    record : whether to add to ``sums`` and ``counts``; exchanges and trips are always counted
    counted : scopes end to end (fptr, scope) and where each one's cells begin in ``counts``
    """
    x, cell, words, rung, lane_at, facing = copies
    total, valid, mean_exp, tries, accepted, trips = sums
    fptr, scope, count_ptr = counted
    card, off, bias, kind = model.card, model.off, model.bias, model.kind
    pair_ptr, qvar, qweight = model.pair_ptr, model.qvar, model.qweight
    vptr, vfac, vown = model.vptr, model.vfac, model.vown
    vother, toff, width = model.vother, model.toff, model.width
    mptr, mscope = model.fptr, model.scope
    n_lanes, n_rungs = x.shape[1], beta.shape[0]
    wide, flat = np.uint64(n_lanes), x.reshape(-1)
    most = 2
    for n in card:
        most = max(most, n)
    hard = forbidden.size > 0
    e, weight = np.empty(most * n_lanes), np.empty(most * n_lanes)
    low, top, u, z, hot = (
        np.empty(n_lanes), np.empty(n_lanes), np.empty(n_lanes), np.empty(n_lanes),
        np.empty(n_lanes),
    )  # fmt: skip
    new = np.empty(n_lanes)
    s0, s1, s2, s3 = words[0], words[1], words[2], words[3]
    energy = np.empty(n_lanes)
    broken = np.zeros(most, np.int64)
    energies(model, table, x, cell, energy)
    for k in range(n_lanes):
        hot[k] = beta[rung[k]] if k < n_rungs else 0.0
    for sweep in range(n_sweeps):
        cold = lane_at[n_rungs - 1]
        n_broken = 0
        if hard:
            n_broken = _n_broken(mptr, mscope, card, toff, width, forbidden, cell, cold)
        for v in range(card.shape[0]):
            if kind[v] == IDLE:
                continue
            o, n = off[v], card[v]
            if kind[v] == FAST:
                first = bias[o + 1] - bias[o]
                for k in range(0, n_lanes, 4):
                    a0, a1, a2, a3 = first, first, first, first
                    here = np.uint64(k)
                    for q in range(np.uint64(pair_ptr[v]), np.uint64(pair_ptr[v + 1])):
                        w = qweight[q]
                        at = np.uint64(qvar[q]) * wide + here
                        a0 += w * flat[at]
                        a1 += w * flat[at + _U1]
                        a2 += w * flat[at + _U2]
                        a3 += w * flat[at + _U3]
                    low[here], low[here + _U1] = a0, a1
                    low[here + _U2], low[here + _U3] = a2, a3
                    bits, s0, s1, s2, s3 = random_word(s0, s1, s2, s3)
                    mine = np.uint64(v) * wide + here
                    for j in range(_U4):
                        i = bits & _BIN
                        bits >>= _R16
                        force = low[here + j]
                        odds = hot[here + j] * force
                        now = odds >= logit[i + _U1]
                        if now != (odds >= logit[i]):
                            word, s0, s1, s2, s3 = random_word(s0, s1, s2, s3)
                            small = _less_likely(odds)
                            fine = (np.int64(i) + np.int64(word >> _R11) * UNIT) / BINS
                            now = fine < small if odds < 0.0 else 1.0 - fine > small
                        state = 1.0 if now else 0.0
                        energy[here + j] += (state - flat[mine + j]) * force
                        flat[mine + j] = state
                if record and n_broken == 0:
                    odds = low[cold]
                    small = _less_likely(odds)
                    total[o] += 1.0 - small if odds < 0.0 else small
                    total[o + 1] += small if odds < 0.0 else 1.0 - small
                continue
            for k in range(n_lanes):
                word, s0, s1, s2, s3 = random_word(s0, s1, s2, s3)
                u[k] = np.int64(word >> _R11) * UNIT
            for s in range(n):
                for k in range(n_lanes):
                    e[s * n_lanes + k] = bias[o + s]
            for q in range(pair_ptr[v], pair_ptr[v + 1]):
                w, other = qweight[q], qvar[q]
                for k in range(n_lanes):
                    e[n_lanes + k] += w * x[other, k]
            for i in range(vptr[v], vptr[v + 1]):
                f, own, begin = vfac[i], vown[i], toff[vfac[i]]
                if width[f] > 0:
                    far, other = width[f] - 1, vother[i]
                    for k in range(n_lanes):
                        there = int(x[other, k])
                        for s in range(n):
                            e[s * n_lanes + k] += table[begin + min(abs(s - there), far)]
                    continue
                for k in range(n_lanes):
                    at = begin + cell[f, k] - int(x[v, k]) * own
                    for s in range(n):
                        e[s * n_lanes + k] += table[at + s * own]
            if hard:
                for s in range(n):
                    broken[s] = 0
                for i in range(vptr[v], vptr[v + 1]):
                    f, own, begin = vfac[i], vown[i], toff[vfac[i]]
                    if width[f] > 0:
                        far, there = width[f] - 1, int(x[vother[i], cold])
                        for s in range(n):
                            broken[s] += forbidden[begin + min(abs(s - there), far)]
                        continue
                    at = begin + cell[f, cold] - int(x[v, cold]) * own
                    for s in range(n):
                        broken[s] += forbidden[at + s * own]
                n_broken -= broken[int(x[v, cold])]
            for k in range(n_lanes):
                top[k] = e[k]
            for s in range(1, n):
                for k in range(n_lanes):
                    top[k] = max(top[k], e[s * n_lanes + k])
            for k in range(n_lanes):
                z[k] = 0.0
            for s in range(n):
                for k in range(n_lanes):
                    d = e[s * n_lanes + k] - top[k]
                    g = _exp(hot[k] * d) if d > -np.inf else 0.0
                    weight[s * n_lanes + k] = g
                    z[k] += g
            for k in range(n_lanes):
                u[k] *= z[k]
                z[k] = 0.0
                new[k] = 0.0
            for s in range(n):
                for k in range(n_lanes):
                    z[k] += weight[s * n_lanes + k]
                    new[k] += 1.0 if z[k] <= u[k] else 0.0
            for k in range(n_lanes):
                if new[k] >= n:  # the last one that is possible: u z rounded up to z
                    new[k] = n - 1.0
                    while weight[int(new[k]) * n_lanes + k] == 0.0:
                        new[k] -= 1.0
                old, now = int(x[v, k]), int(new[k])
                energy[k] += e[now * n_lanes + k] - e[old * n_lanes + k]
                if now != old:
                    x[v, k] = new[k]
                    for i in range(vptr[v], vptr[v + 1]):
                        cell[vfac[i], k] += (now - old) * vown[i]
            if hard:
                n_broken += broken[int(x[v, cold])]
            if record and n_broken == 0:
                norm = 0.0
                for s in range(n):
                    if broken[s] == 0:
                        norm += weight[s * n_lanes + cold]
                for s in range(n):
                    if broken[s] == 0:
                        total[o + s] += weight[s * n_lanes + cold] / norm
        if record:
            valid[0] += 1
            if n_broken == 0:
                valid[1] += 1
                _count(card, fptr, scope, x, cold, count_ptr, counts)
            for r in range(n_rungs - 1):
                d = (beta[r + 1] - beta[r]) * energy[lane_at[r]]
                if d > mean_exp[0, r]:
                    mean_exp[1, r] = mean_exp[1, r] * np.exp(mean_exp[0, r] - d) + 1.0
                    mean_exp[0, r] = d
                else:
                    mean_exp[1, r] += np.exp(d - mean_exp[0, r])
        words[0], words[1], words[2], words[3] = s0, s1, s2, s3
        for r in range((sweep + parity) % 2, n_rungs - 1, 2):
            a, b = lane_at[r], lane_at[r + 1]
            gain = (beta[r + 1] - beta[r]) * (energy[a] - energy[b])
            tries[r] += 1
            if uniform(words) < np.exp(min(gain, 0.0)):  # a draw for each: ties are no fork
                accepted[r] += 1
                lane_at[r], lane_at[r + 1] = b, a
                rung[a], rung[b] = r + 1, r
                hot[a], hot[b] = beta[r + 1], beta[r]
        s0, s1, s2, s3 = words[0], words[1], words[2], words[3]
        first, last = lane_at[0], lane_at[n_rungs - 1]
        if facing[first] == -1:
            trips[0] += 1
        facing[first], facing[last] = 1, -1
