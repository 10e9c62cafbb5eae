"""Dual block ascent, its bound, rounding and moves on trees: :mod:`minfer.queries.map.dual`.

A model here is free variables in an order, states end to end (``off``), their weights ``theta``
(minus infinity: out of the running), and factors, tables or taps, whose *slots* (factor, variable)
are end to end too (``fptr``). A slot s has a vector q from its variable into its factor, one of mu
back, both at ``so[s]``:

    mu_s(x_i) = max_{x_a: x_i}  theta_a(x_a) + sum_{j != i} q_j(x_j).
"""

from typing import NamedTuple

import numpy as np

from minfer.kernels.compiling.jit import jit
from minfer.kernels.messages.labels import _best_message

_EPS = 2.220446049250313e-16
#: Nothing is allocated in these: no references to arrays are counted.
BARE = {"_nrt": False}


class MaxWires(NamedTuple):
    """V variables, F factors, E slots."""

    off: np.ndarray  # i8 (V+1,) where a variable's states begin
    vptr: np.ndarray  # i8 (V+1,)
    vs: np.ndarray  # i8 (E,) the slots of each variable
    fptr: np.ndarray  # i8 (F+1,)
    sv: np.ndarray  # i4 (E,) the variable of a slot
    so: np.ndarray  # i8 (E,) where its vectors begin
    sf: np.ndarray  # i8 (E,) its factor
    early: np.ndarray  # b1 (E,) whether that has a variable before this one
    late: np.ndarray  # b1 (E,) ... behind it
    ft: np.ndarray  # i8 (F,) where a factor's table or taps begin
    fw: np.ndarray  # i4 (F,) the width of taps, what is far off first; -1: a table
    tab: np.ndarray  # f8


class MaxScratch(NamedTuple):
    work: np.ndarray
    where: np.ndarray
    state: np.ndarray


@jit(**BARE)
def _pair(is_first, t, width, tab, k, m, q, at, out, to, scratch):
    """max over the other variable of a pair, q[at:at+m] its vector, into out[to:to+k].

    ``is_first``: the message is to the pair's first variable.
    """
    if width == 1:
        beyond, same = tab[t], tab[t + 1]
        top, second, best = -np.inf, -np.inf, 0
        for x in range(m):
            v = q[at + x]
            if v > top:
                top, second, best = v, top, x
            elif v > second:
                second = v
        for x in range(k):
            v = top if x != best else second
            out[to + x] = max(beyond + v, same + q[at + x])
    elif width >= 0:
        _best_message(tab[t : t + width + 1], width, q, at, k, out, to, scratch.work, scratch.where)
    elif is_first:
        for x in range(k):
            top = -np.inf
            row = t + x * m
            for y in range(m):
                top = max(top, tab[row + y] + q[at + y])
            out[to + x] = top
    else:
        for x in range(k):
            out[to + x] = -np.inf
        for y in range(m):
            v = q[at + y]
            if v == -np.inf:
                continue
            row = t + y * k
            for x in range(k):
                out[to + x] = max(out[to + x], tab[row + x] + v)


@jit
def _cell(tab, t, width, x, y, m):
    """log psi of a pair."""
    if width < 0:
        return tab[t + x * m + y]
    apart = abs(x - y)
    return tab[t + 1 + apart] if apart < width else tab[t]


@jit(**BARE)
def _message(wires, s, x, q, qo, out, to, scratch):
    """The message of a slot, by maxima over what is not given: x[j] >= 0 is.

    Vectors of variables not given are at q[qo[slot]].
    """
    off, sv, tab, state = wires.off, wires.sv, wires.tab, scratch.state
    f = wires.sf[s]
    first, last, t, width = wires.fptr[f], wires.fptr[f + 1], wires.ft[f], wires.fw[f]
    i = sv[s]
    k = off[i + 1] - off[i]
    if last - first == 2:
        other = first + last - 1 - s
        j = sv[other]
        m = off[j + 1] - off[j]
        given = x[j]
        if given < 0:
            _pair(s == first, t, width, tab, k, m, q, qo[other], out, to, scratch)
        elif s == first:
            for y in range(k):
                out[to + y] = _cell(tab, t, width, y, given, m)
        else:
            for y in range(k):
                out[to + y] = _cell(tab, t, width, given, y, k)
        return
    for y in range(k):
        out[to + y] = -np.inf
    for a in range(last - first):
        j = sv[first + a]
        state[a] = x[j] if x[j] >= 0 and first + a != s else 0
    while True:
        cell, value = 0, 0.0
        for a in range(last - first):
            j = sv[first + a]
            cell = cell * (off[j + 1] - off[j]) + state[a]
            if first + a != s and x[j] < 0:
                value += q[qo[first + a] + state[a]]
        value += tab[t + cell]
        mine = to + state[s - first]
        if value > out[mine]:
            out[mine] = value
        a = last - first - 1
        while a >= 0:
            j = sv[first + a]
            if x[j] < 0 or first + a == s:
                state[a] += 1
                if state[a] < off[j + 1] - off[j]:
                    break
                state[a] = 0
            a -= 1
        if a < 0:
            return


@jit
def _room(off, fptr):
    """Scratch of one call: a vector over states, and what :func:`_message` needs."""
    most, arity = 1, 1
    for i in range(off.shape[0] - 1):
        most = max(most, off[i + 1] - off[i])
    for f in range(fptr.shape[0] - 1):
        arity = max(arity, fptr[f + 1] - fptr[f])
    return np.empty(most), MaxScratch(
        np.empty(3 * most + 1), np.empty(most + 1, np.int64), np.empty(arity, np.int64)
    )


@jit
def sweep(wires, theta, q, mu, forward, every, cut):
    """Visit all variables in order, or against it; -1, or a variable without a state left.

    At a visit all that the factors know of a variable is collected, b = theta + sum mu, and divided
    among those that have a variable still to come. ``every``: all messages anew, else those that
    can have changed. A state more than ``cut`` below the best of b is put out of the running.
    """
    off, vptr, vs, fptr, sv, so, sf, early, late, ft, fw, tab = wires
    n = off.shape[0] - 1
    b, scratch = _room(off, fptr)
    nothing = np.full(n, -1, np.int32)
    before, behind = (early, late) if forward else (late, early)
    for step in range(n):
        i = step if forward else n - 1 - step
        lo, k = off[i], off[i + 1] - off[i]
        for x in range(k):
            b[x] = theta[lo + x]
        n_before, n_behind = 0, 0
        for p in range(vptr[i], vptr[i + 1]):
            s = vs[p]
            at = so[s]
            n_before += before[s]
            n_behind += behind[s]
            if before[s] or every:
                _message(wires, s, nothing, q, so, mu, at, scratch)
            for x in range(k):
                b[x] += mu[at + x]
        top = -np.inf
        for x in range(k):
            top = max(top, b[x])
        if top == -np.inf:
            return i
        for x in range(k):
            if b[x] == -np.inf or b[x] < top - cut:
                theta[lo + x] = b[x] = -np.inf
        share = 1.0 / max(n_before, n_behind, 1)
        for p in range(vptr[i], vptr[i + 1]):
            s = vs[p]
            at = so[s]
            part = share if behind[s] else 0.0
            for x in range(k):
                q[at + x] = -np.inf if b[x] == -np.inf else part * (b[x] - top) - mu[at + x]
    return -1


@jit
def collect(wires, theta, q, mu, which):
    """Some variables take all that their factors know: a sweep's visit that gives nothing away."""
    off, vptr, vs, fptr, sv, so, sf, early, late, ft, fw, tab = wires
    _, scratch = _room(off, fptr)
    nothing = np.full(off.shape[0] - 1, -1, np.int32)
    for i in which:
        for p in range(vptr[i], vptr[i + 1]):
            s = vs[p]
            at = so[s]
            _message(wires, s, nothing, q, so, mu, at, scratch)
            for x in range(off[i + 1] - off[i]):
                alive = theta[off[i] + x] > -np.inf and mu[at + x] > -np.inf
                q[at + x] = -mu[at + x] if alive else -np.inf


@jit
def tops(wires, size, theta, q, nodes, factors):
    """The largest value of each variable and each factor, moved up by what rounding may hide.

    A sum of k + 1 numbers errs by at most k 2^-53 / (1 - k 2^-53) times the sum of their sizes;
    (k + 2) 2^-52 times that sum, itself rounded, is more. ``size`` (F,) is the largest finite
    number of each factor. Taps are read one by one: envelopes round in ways of their own.
    """
    off, vptr, vs, fptr, sv, so, sf, early, late, ft, fw, tab = wires
    n = off.shape[0] - 1
    out, scratch = _room(off, fptr)
    nothing = np.full(n, -1, np.int32)
    for i in range(n):
        top = -np.inf
        degree = vptr[i + 1] - vptr[i]
        for x in range(off[i + 1] - off[i]):
            v = theta[off[i] + x]
            if v == -np.inf:
                continue
            total = abs(v)
            for p in range(vptr[i], vptr[i + 1]):
                w = q[so[vs[p]] + x]
                v -= w
                total += abs(w)
            top = max(top, v + (degree + 2) * _EPS * total)
        nodes[i] = top
    for f in range(fptr.shape[0] - 1):
        first, last = fptr[f], fptr[f + 1]
        total = size[f]
        for s in range(first, last):
            i = sv[s]
            far = 0.0
            for x in range(off[i + 1] - off[i]):
                if theta[off[i] + x] > -np.inf:
                    far = max(far, abs(q[so[s] + x]))
            total += far
        top = -np.inf
        i, at = sv[first], so[first]
        k = off[i + 1] - off[i]
        if fw[f] > 1:
            to = so[first + 1]
            for x in range(k):
                for y in range(k):
                    top = max(top, _cell(tab, ft[f], fw[f], x, y, k) + q[at + x] + q[to + y])
        else:
            _message(wires, first, nothing, q, so, out, 0, scratch)
            for x in range(k):
                top = max(top, out[x] + q[at + x])
        factors[f] = top + (last - first + 2) * _EPS * total


@jit
def round_off(wires, theta, q, mu, forward, x):
    """States one after the other, each the best given those before and the messages of the rest.

    Variables with x >= 0 are given. How many were left no state by those before (they take what is
    best by itself).
    """
    off, vptr, vs, fptr, sv, so, sf, early, late, ft, fw, tab = wires
    n = off.shape[0] - 1
    out, scratch = _room(off, fptr)
    b = np.empty_like(out)
    failed = 0
    for step in range(n):
        i = step if forward else n - 1 - step
        if x[i] >= 0:
            continue
        lo, k = off[i], off[i + 1] - off[i]
        for y in range(k):
            b[y] = theta[lo + y]
        for p in range(vptr[i], vptr[i + 1]):
            s = vs[p]
            f = sf[s]
            told = False
            for other in range(fptr[f], fptr[f + 1]):
                told = told or x[sv[other]] >= 0
            if told:
                _message(wires, s, x, q, so, out, 0, scratch)
                for y in range(k):
                    b[y] += out[y]
            else:
                for y in range(k):
                    b[y] += mu[so[s] + y]
        best = 0
        for y in range(1, k):
            if b[y] > b[best]:
                best = y
        if b[best] == -np.inf:
            failed += 1
            for y in range(k):
                if theta[lo + y] > theta[lo + best]:
                    best = y
        x[i] = best
    return failed


@jit
def _root(root, j):
    """The root of j's tree; ways are halved."""
    while root[j] != j:
        root[j] = root[root[j]]
        j = root[j]
    return j


@jit
def tree_moves(wires, theta, x, order, movable):
    """The best states of all variables of a forest, all others as they are; x in place.

    Variables come into the forest in the given order, unless a factor would then have three of
    them, or two trees would be joined twice. How many variables changed.
    """
    off, vptr, vs, fptr, sv, so, sf, early, late, ft, fw, tab = wires
    n = off.shape[0] - 1
    out, scratch = _room(off, fptr)
    own = np.empty(sv.shape[0], np.int64)
    for s in range(sv.shape[0]):
        own[s] = off[sv[s]]
    root = np.arange(n)
    inside = np.zeros(n, np.bool_)
    stamp = np.full(n, -1, np.int64)
    for i in order:
        if not movable[i]:
            continue
        good = True
        for p in range(vptr[i], vptr[i + 1]):
            f = sf[vs[p]]
            found = 0
            for s in range(fptr[f], fptr[f + 1]):
                j = sv[s]
                if inside[j]:
                    found += 1
                    j = _root(root, j)
                    if stamp[j] == i:
                        good = False
                    stamp[j] = i
            good = good and found <= 1
            if not good:
                break
        if not good:
            continue
        inside[i] = True
        for p in range(vptr[i], vptr[i + 1]):
            f = sf[vs[p]]
            for s in range(fptr[f], fptr[f + 1]):
                j = sv[s]
                if inside[j] and j != i:
                    root[_root(root, j)] = i
    # parents before children
    line, above = np.empty(n, np.int64), np.full(n, -1, np.int64)
    seen = np.zeros(n, np.bool_)
    size = 0
    for r in range(n):
        if not inside[r] or seen[r]:
            continue
        head = size
        line[size] = r
        size += 1
        seen[r] = True
        while head < size:
            i = line[head]
            head += 1
            for p in range(vptr[i], vptr[i + 1]):
                f = sf[vs[p]]
                for s in range(fptr[f], fptr[f + 1]):
                    j = sv[s]
                    if inside[j] and not seen[j]:
                        seen[j] = True
                        above[j] = vs[p]  # the parent's slot in the factor between
                        line[size] = j
                        size += 1
    before = x.copy()
    for p in range(size):
        x[line[p]] = -1
    b = theta.copy()
    for step in range(size):
        i = line[size - 1 - step]
        lo, k = off[i], off[i + 1] - off[i]
        for p in range(vptr[i], vptr[i + 1]):
            s = vs[p]
            f = sf[s]
            lonely = True
            for other in range(fptr[f], fptr[f + 1]):
                lonely = lonely and (sv[other] == i or not inside[sv[other]])
            if lonely:
                _message(wires, s, x, b, own, out, 0, scratch)
                for y in range(k):
                    b[lo + y] += out[y]
        s = above[i]
        if s >= 0:
            j = sv[s]
            _message(wires, s, x, b, own, out, 0, scratch)
            for y in range(off[j + 1] - off[j]):
                b[off[j] + y] += out[y]
    changed = 0
    for step in range(size):
        i = line[step]
        lo, k = off[i], off[i + 1] - off[i]
        s = above[i]
        if s >= 0:  # the parent has its state
            f = sf[s]
            for mine in range(fptr[f], fptr[f + 1]):
                if sv[mine] == i:
                    _message(wires, mine, x, b, own, out, 0, scratch)
            for y in range(k):
                b[lo + y] += out[y]
        best = before[i]
        for y in range(k):
            if b[lo + y] > b[lo + best]:
                best = y
        x[i] = best
        changed += best != before[i]
    return changed
