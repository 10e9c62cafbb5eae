"""Parallel tempering on a :class:`~minfer.kernels.layout.Layout` of tables, a replica in each lane.

An ensemble is K copies of the model, one at each rung of a ladder of inverse temperatures
``beta`` from 0 to 1. A sweep draws every variable of all copies from its conditional at their
temperature, ``x`` (V, K) lane by lane; then neighbouring rungs exchange their copies by
Metropolis' rule. Lanes keep their states: what is exchanged are rungs.

Forbidden cells are soft: ``table`` has in their place a value well below the least allowed one of
their factor. What is recorded from the coldest rung is recorded where nothing forbidden holds, and
there the distribution is the model's own.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels._jit import jit
from minfer.kernels.gibbs import uniform
from minfer.kernels.layout import FAST, IDLE
from minfer.kernels.vexp import EXP_MIN, LN2_HI, LN2_LO, LOG2E, MAGIC, bits_of, double_of

_R17, _R23, _R41, _R45 = np.uint64(17), np.uint64(23), np.uint64(41), np.uint64(45)
_R12, _R19 = np.uint64(12), np.uint64(19)
_ONE = np.uint64(0x3FF0000000000000)


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
def place(model, x, cell):
    """The cell of every table that each copy is in, ``cell`` (F, K), from the states ``x``."""
    for f in range(cell.shape[0]):
        for k in range(cell.shape[1]):
            at = 0
            for i in range(model.fptr[f], model.fptr[f + 1]):
                v = model.scope[i]
                at = at * model.card[v] + int(x[v, k])
            cell[f, k] = at


@jit
def _entry(model, f, at, card_last):
    """Where factor f's value at cell ``at`` lies, by distance or plainly."""
    if model.width[f] > 0:
        return model.toff[f] + min(abs(at // card_last - at % card_last), model.width[f] - 1)
    return model.toff[f] + at


@jit
def energies(model, table, x, cell, out):
    """log of the (softened) weight of each copy, (K,)."""
    for k in range(x.shape[1]):
        total = 0.0
        for v in range(x.shape[0]):
            if model.kind[v] == IDLE:
                continue
            total += model.bias[model.off[v] + int(x[v, k])]
            if x[v, k] != 0.0:
                half = 0.0
                for q in range(model.qptr[v], model.qptr[v + 1]):
                    half += model.qweight[q] * x[model.qvar[q], k]
                total += 0.5 * half
        for f in range(cell.shape[0]):
            last = model.card[model.scope[model.fptr[f + 1] - 1]]
            total += table[_entry(model, f, cell[f, k], last)]
        out[k] = total


@jit
def _n_broken(model, forbidden, cell, k):
    count = 0
    for f in range(cell.shape[0]):
        last = model.card[model.scope[model.fptr[f + 1] - 1]]
        count += forbidden[_entry(model, f, cell[f, k], last)]
    return count


@jit
def _count(card, fptr, scope, x, k, count_ptr, counts):
    """Add one to the cell that copy k falls into, of every factor."""
    for f in range(fptr.shape[0] - 1):
        at = 0
        for i in range(fptr[f], fptr[f + 1]):
            at = at * card[scope[i]] + int(x[scope[i], k])
        counts[count_ptr[f] + at] += 1


@jit(fastmath={"contract"})
def temper(
    model, table, forbidden, x, cell, words, spare, beta, rung, lane_at, facing, n_sweeps, record,
    total, valid, mean_exp, tries, accepted, trips, fptr, scope, count_ptr, counts, parity,
):  # fmt: skip
    """Sweeps of one ensemble, each with a round of exchanges.

    Parameters
    ----------
    table, forbidden : f8, u1: log-weights with forbidden cells softened, and which these are;
        ``forbidden`` is empty where there are none
    x : f8 (V, K), cell : i4 (F, K), in and out
    words : u8 (4, K), spare : u8 (4,), in and out: a generator for each lane, one for exchanges
    beta : f8 (K,) by rung, from 0 to 1; rung : i8 (K,) of each lane; lane_at : i8 (K,) its inverse
    facing : i1 (K,) 1 if a lane was last at the hot end, -1 if at the cold one, else 0
    record : whether to add to what follows
    total : f8 (sum S,) sums of conditional distributions at the coldest rung
    valid : i8 (2,) sweeps recorded, and those of them where nothing forbidden held at their end
    mean_exp : f8 (2, K) running log sum exp((beta[r + 1] - beta[r]) E) by rung, as (top, sum)
    tries, accepted : i8 (K - 1,) exchanges; trips : i8 (1,) ways up and down again
    """
    card, off, bias, kind = model.card, model.off, model.bias, model.kind
    qptr, qvar, qweight = model.qptr, model.qvar, model.qweight
    vptr, vfac, vown = model.vptr, model.vfac, model.vown
    vother, toff, width = model.vother, model.toff, model.width
    n_lanes = x.shape[1]
    most = 2
    for n in card:
        most = max(most, n)
    hard = forbidden.size > 0
    e, weight = np.empty(most * n_lanes), np.empty(most * n_lanes)
    low, top, u, z, p, hot = (
        np.empty(n_lanes), np.empty(n_lanes), np.empty(n_lanes), np.empty(n_lanes),
        np.empty(n_lanes), np.empty(n_lanes),
    )  # fmt: skip
    new = np.empty(n_lanes)
    energy = np.empty(n_lanes)
    broken = np.zeros(most, np.int64)
    energies(model, table, x, cell, energy)
    for k in range(n_lanes):
        hot[k] = beta[rung[k]]
    for sweep in range(n_sweeps):
        cold = lane_at[n_lanes - 1]
        n_broken = _n_broken(model, forbidden, cell, cold) if hard else 0
        for v in range(card.shape[0]):
            if kind[v] == IDLE:
                continue
            for k in range(n_lanes):
                s0, s1, s2, s3 = words[0, k], words[1, k], words[2, k], words[3, k]
                sum03 = s0 + s3
                result = ((sum03 << _R23) | (sum03 >> _R41)) + s0
                t = s1 << _R17
                s2 ^= s0
                s3 ^= s1
                words[1, k] = s1 ^ s2
                words[0, k] = s0 ^ s3
                words[2, k] = s2 ^ t
                words[3, k] = (s3 << _R45) | (s3 >> _R19)
                u[k] = double_of(np.int64((result >> _R12) | _ONE)) - 1.0
            o, n = off[v], card[v]
            if kind[v] == FAST:
                first = bias[o + 1] - bias[o]
                for k in range(n_lanes):
                    low[k] = first
                for q in range(qptr[v], qptr[v + 1]):
                    w, other = qweight[q], qvar[q]
                    for k in range(n_lanes):
                        low[k] += w * x[other, k]
                for k in range(n_lanes):
                    odds = hot[k] * low[k]
                    small = _exp(-abs(odds))
                    small = small / (1.0 + small)
                    p[k] = small if odds < 0.0 else 1.0 - small
                for k in range(n_lanes):
                    now = 1.0 if u[k] < p[k] else 0.0
                    energy[k] += (now - x[v, k]) * low[k]
                    x[v, k] = now
                if record and n_broken == 0:
                    odds = low[cold]
                    small = np.exp(-abs(odds))
                    small = small / (1.0 + small)
                    total[o] += 1.0 - small if odds < 0.0 else small
                    total[o + 1] += small if odds < 0.0 else 1.0 - small
                continue
            for s in range(n):
                for k in range(n_lanes):
                    e[s * n_lanes + k] = bias[o + s]
            for q in range(qptr[v], qptr[v + 1]):
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
            for r in range(n_lanes - 1):
                d = (beta[r + 1] - beta[r]) * energy[lane_at[r]]
                if d > mean_exp[0, r]:
                    mean_exp[1, r] = mean_exp[1, r] * np.exp(mean_exp[0, r] - d) + 1.0
                    mean_exp[0, r] = d
                else:
                    mean_exp[1, r] += np.exp(d - mean_exp[0, r])
        for r in range((sweep + parity) % 2, n_lanes - 1, 2):
            a, b = lane_at[r], lane_at[r + 1]
            gain = (beta[r + 1] - beta[r]) * (energy[a] - energy[b])
            tries[r] += 1
            if gain >= 0.0 or uniform(spare) < np.exp(gain):
                accepted[r] += 1
                lane_at[r], lane_at[r + 1] = b, a
                rung[a], rung[b] = r + 1, r
                hot[a], hot[b] = beta[r + 1], beta[r]
        first, last = lane_at[0], lane_at[n_lanes - 1]
        if facing[first] == -1:
            trips[0] += 1
        facing[first], facing[last] = 1, -1
