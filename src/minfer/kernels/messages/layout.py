"""A conditioned model as arrays: what mean field and Gibbs read.

Binary pairs of moderate size are in quadratic form (:mod:`minfer.kernels.messages.wiring`): their
constants and unaries have gone into ``constant`` and ``bias``, and a sweep reads one weight and one
neighbour. All other factors lie end to end: tables first, cells row-major, the last variable
fastest; then machines, finite automata that read one literal of each variable in turn
(:class:`minfer.factors.Machine`).

Kernels take the arrays out of the tuple once, at the top: handing the tuple itself to a helper in
an inner loop costs a reference count per array and call.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from minfer.kernels.compiling.jit import jit
from minfer.kernels.messages.wiring import pair_table, split_pair

IDLE = 0  # no factor left: its marginal is that of its field, and no sweep touches it
FAST = 1  # binary, finite bias, quadratic pairs only
GENERAL = 2

# columns of SiteLayout.machine
STATES, START, FINAL, ASCENDING = 0, 1, 2, 3


class SiteLayout(NamedTuple):
    """V variables, F factors over E places, M of them machines, and pairs."""

    card: Any  # i4 (V,)
    off: Any  # i8 (V+1,) where a variable's states begin
    bias: Any  # f8 (sum S,) field, with the unaries of the quadratic pairs
    kind: Any  # i1 (V,) IDLE, FAST or GENERAL
    pair_ptr: Any  # i8 (V+1,) a variable's quadratic pairs
    qvar: Any  # i4 the neighbour
    qweight: Any  # f8 w
    ids: Any  # i8 (F,) the factors' numbers in the graph
    fptr: Any  # i8 (F+1,) where a factor's scope begins
    scope: Any  # i4 (E,)
    vptr: Any  # i8 (V+1,) a variable's places
    vfac: Any  # i4 (E,) factor
    vpos: Any  # i4 (E,) the variable's position in its scope
    vother: Any  # i4 (E,) the other variable of a table over two; -1 else
    vown: Any  # i4 (E,) stride of the variable's own state in the table; 0 of a machine
    toff: Any  # i8 (F,) where a factor's table begins (shared tables share it); -1: a machine
    log_psi: Any  # f8
    width: Any  # i4 (F,) of pairs of labels, whose log psi by distance lie in the place of a table,
    # how many; else 0
    literal: Any  # i4 (E,) the state that makes a machine's literal true
    step_at: Any  # i8 (E,) where the steps of a machine's place begin
    step: Any  # i4 (K, 2) each, those that are alike once
    machine: Any  # i8 (M, 4) of the last M factors: states, start, where the log-weights of its
    # end states begin, whether its scope is sorted
    final: Any  # f8 log-weights
    constant: Any  # f8 (1,) the pairs' t00, and log Z of the idle variables


@jit
def fill_pairs(scope, values, basis, off, nxt, bias, qvar, qweight, constant):
    """Binary pairs whose log-tables are ``values @ basis`` (one row each, or one for all)."""
    single = values.shape[0] == 1
    total = constant[0]
    for f in range(scope.shape[0]):
        t00, t01, t10, t11 = pair_table(values, basis, 0 if single else f)
        ua, ub, w = split_pair(t00, t01, t10, t11)
        total += t00
        a, b = scope[f, 0], scope[f, 1]
        bias[off[a] + 1] += ua
        bias[off[b] + 1] += ub
        i, j = nxt[a], nxt[b]
        qvar[i], qvar[j] = b, a
        qweight[i], qweight[j] = w, w
        nxt[a] += 1
        nxt[b] += 1
    constant[0] = total


@jit
def finish(model):
    """Fill ``kind``, ``vother`` and ``vown``; returns log Z of the idle variables."""
    card, off, bias, pair_ptr, kind = model.card, model.off, model.bias, model.pair_ptr, model.kind
    fptr, scope, toff, vptr, vfac = model.fptr, model.scope, model.toff, model.vptr, model.vfac
    vpos, vother, vown = model.vpos, model.vother, model.vown
    idle = 0.0
    for v in range(card.shape[0]):
        o = off[v]
        for k in range(vptr[v], vptr[v + 1]):
            f, pos = vfac[k], vpos[k]
            lo, hi = fptr[f], fptr[f + 1]
            vother[k], vown[k] = -1, 0
            if toff[f] >= 0:
                vother[k] = scope[lo + 1 - pos] if hi - lo == 2 else -1
                vown[k] = 1
                for i in range(lo + pos + 1, hi):
                    vown[k] *= card[scope[i]]
        kind[v] = GENERAL
        if vptr[v + 1] == vptr[v] and pair_ptr[v + 1] == pair_ptr[v]:
            kind[v] = IDLE
            idle += _log_sum_exp(bias, o, off[v + 1])
        elif vptr[v + 1] == vptr[v] and bias[o] > -np.inf and bias[o + 1] > -np.inf:
            kind[v] = FAST
    return idle


@jit
def _log_sum_exp(values, lo, hi):
    top, z = -np.inf, 0.0
    for s in range(lo, hi):
        top = max(top, values[s])
    for s in range(lo, hi):
        z += np.exp(values[s] - top)
    return top + np.log(z)


@jit
def machine_room(fptr, machine):
    """Where each machine's rows begin, (M,), and two arrays with room for them: a number per state
    for every position, and one row more."""
    n_tables = fptr.shape[0] - 1 - machine.shape[0]
    at = np.empty(machine.shape[0], np.int64)
    size = 0
    for m in range(machine.shape[0]):
        at[m] = size
        f = n_tables + m
        size += (fptr[f + 1] - fptr[f] + 1) * machine[m, STATES]
    return at, np.empty(size), np.empty(size)
