"""Belief propagation on many instances of one structure, one in each lane of a vector.

The instances share the wiring of binary pair factors (:mod:`minfer.kernels.messages.wiring`) and
differ in fields, perhaps in weights. What is done to one is what
:mod:`minfer.kernels.messages.sweeps` does to a single model: trees collected and distributed,
sweeps over the core forward and backward in turn, a quiet sweep followed by a confirming update,
the same definition of converged. No operation mixes lanes and each instance has counters of its
own, so its numbers do not depend on its neighbours.

Instances need very different numbers of sweeps, so lanes are never left idle. An instance that
falls quiet is parked and the next one takes its lane, before a forward sweep, since every instance
begins with one. When as many as there are lanes are parked, one confirming update serves them all.
What passes is finished (trees distributed, beliefs, log Z) and written; what fails waits, as it was
before the update, for a lane whose next sweep has its direction. When few lanes are left they are
swept one by one, in *strict* arithmetic, which gives the same bits in vectors of any width.

**Divisions** dominate, so two messages, or a message and a belief, share one: 1/c and 1/d follow
from 1/cd. Products of two sums of odds must not leave the range of floats, so fields are clamped;
:func:`reach` tells which instances that leaves right to the last bit.
"""

import math
from typing import NamedTuple

import numpy as np

from minfer.kernels.arithmetic.lanes import (
    aligned,
    choose,
    exp,
    lanes_of,
    larger,
    load,
    load_as,
    log,
    lone,
    magnitude,
    rows_into_lanes,
    smaller,
    splat,
    store,
    strict,
)
from minfer.kernels.compiling.jit import jit
from minfer.kernels.messages.odds import half_angle
from minfer.kernels.messages.wiring import pair_table, split_pair

WAITS, QUIET, STOPPED = 0, 1, 2  # why an instance is parked
FEW = 4  # lanes that are swept one by one: sooner than all at once


@jit
def reach(ptr, pair, log_odds, w, field, high, bonds, widest):
    """How far the numbers of each instance may go: the largest |log-odds| given (``field``), that a
    belief can have, messages lying between 1 and W (``high``), the largest sum of |w| at a variable
    (``bonds``) and the largest |w|. NaN in ``bonds`` or ``field`` where a number is."""
    n_variables, n_pairs = ptr.shape[0] - 1, w.shape[1]
    up = np.zeros(n_variables)
    width = most = 0.0
    for i in range(log_odds.shape[0]):
        if i == 0 or w.shape[0] > 1:
            row = w[i]
            width = most = 0.0
            for f in range(n_pairs):
                width = _most(width, abs(row[f]))
            for v in range(n_variables):
                up[v] = total = 0.0
                for e in range(ptr[v], ptr[v + 1]):
                    x = row[pair[e]]
                    up[v] += max(x, 0.0)
                    total += abs(x)
                most = _most(most, total)
        far = top = 0.0
        for v in range(n_variables):
            far, top = _most(far, abs(log_odds[i, v])), max(top, log_odds[i, v] + up[v])
        field[i], high[i], bonds[i], widest[i] = far, top, most, width


@jit
def _most(x, y):
    """The larger, NaN if one is."""
    return x if x >= y or x != x else y


@jit
def unary_parts(scope, slot, values, basis, lean, w, first, constant):
    """As ``wiring.pair_fill``, for many instances of one group, values (n, P or 1, K): adds unary
    parts to ``lean`` (n, V) and t00 to ``constant`` (n,); writes ``w`` (n, P) and ``first`` (n, E),
    a log."""
    single = values.shape[1] == 1
    for i in range(values.shape[0]):
        for f in range(scope.shape[0]):
            t00, t01, t10, t11 = pair_table(values[i], basis, 0 if single else f)
            ua, ub, x = split_pair(t00, t01, t10, t11)
            lean[i, scope[f, 0]] += ua
            lean[i, scope[f, 1]] += ub
            w[i, f] = x
            low, high = min(0.0, x), max(0.0, x)
            first[i, slot[f, 0]] = min(max(-ua, low), high)
            first[i, slot[f, 1]] = min(max(-ub, low), high)
            constant[i] += t00


class LaneNumbers(NamedTuple):
    """Numbers of as many instances as there are lanes, L, in the precision of the run."""

    W: np.ndarray  # (E,) weights of slots, where they are shared
    own: np.ndarray  # (P * L,) weights of pairs, where they are not; empty
    prior: np.ndarray  # (V * L,) odds
    m: np.ndarray  # (E * L,) messages
    bel: np.ndarray  # (V * L,) beliefs


@jit
def _move(source, at, step, target, to, stride, count):
    """Numbers of one instance between a lane (step: how many there are) and a row (1)."""
    like = lone(target)
    for _ in range(count):
        store(target, to, load_as(like, source, at))
        at += step
        to += stride


@jit
def _exponentials(row, most, logs, target, lane):
    """e^x of numbers of one instance, held within ``most``, into a lane."""
    low, high, n = splat(logs, -most), splat(logs, most), row.shape[0]
    whole = n - n % lanes_of(logs)
    for k in range(0, whole, lanes_of(logs)):
        store(logs, k, exp(smaller(larger(load(row, k), low), high)))
    for k in range(whole, n):
        logs[k] = row[k]
    if whole < n:
        store(logs, whole, exp(smaller(larger(load(logs, whole), low), high)))
    _move(logs, 0, 1, target, lane, lanes_of(target), n)


@jit
def _enter(i, given, F, logs, lane, x):
    """Instance i into one lane. First messages of one row are shared: F has their odds."""
    _exponentials(given.log_odds[i], given.clamp, logs, x.prior, lane)
    if x.own.shape[0] > 0:
        _exponentials(given.w[i], np.inf, logs, x.own, lane)
    if given.first.shape[0] > 1:
        _exponentials(given.first[i], np.inf, logs, x.m, lane)
    else:
        _move(F, 0, 1, x.m, lane, lanes_of(x.m), F.shape[0])


@jit
def _announce(i, log_odds, s, x, lane):
    """Beliefs of known variables, and what they tell their neighbours before the first sweep."""
    L = lanes_of(x.m)
    for v in range(log_odds.shape[1]):
        if abs(log_odds[i, v]) < np.inf:
            continue
        on = log_odds[i, v] > 0.0
        x.bel[v * L + lane] = 1.0 if on else 0.0
        for e in range(s.ptr[v], s.ptr[v + 1]):
            w = x.W[e] if x.own.shape[0] == 0 else x.own[s.pair[e] * L + lane]
            x.m[s.rev[e] * L + lane] = w if on else 1.0


@jit(forceinline=True)
def _odds(like, at, L, ptr, v, prior, m):
    """Belief odds of a variable: its prior times all messages to it."""
    b = load_as(like, prior, at + v * L)
    for e in range(ptr[v], ptr[v + 1]):
        b = b * load_as(like, m, at + e * L)
    return b


@jit(forceinline=True)
def _weight(like, at, L, pair, e, W, own):
    """W of a slot: shared, of which ``own`` may be None, or the lane's own."""
    if own is None:
        return splat(like, W[e])
    return splat(like, W[e]) if own.shape[0] == 0 else load_as(like, own, at + pair[e] * L)


@jit(forceinline=True)
def _farther(x, old, far, apart):
    """The larger of far / apart and |x - old| / (x + old), as two numbers: spares divisions."""
    d, s = magnitude(x - old), x + old
    a, c = d * apart, far * s
    return choose(a, c, d, far), choose(a, c, s, apart)


@jit
def _collect(like, at, s, x):
    """Messages of trees towards the core or a root: from all others, once and for all."""
    L = lanes_of(x.m)
    one = splat(like, 1.0)
    for k in range(s.order.shape[0]):
        e = s.up[k]
        if e < 0:
            continue
        v = s.order[k]
        b = load_as(like, x.prior, at + v * L)
        for j in range(s.ptr[v], s.ptr[v + 1]):
            if j != e:
                b = b * load_as(like, x.m, at + j * L)
        w = _weight(like, at, L, s.pair, e, x.W, x.own)
        store(x.m, at + s.rev[e] * L, (one + w * b) / (one + b))


@jit
def _distribute(s, x):
    """Messages away from the core or a root, and the beliefs of trees."""
    L = lanes_of(x.m)
    one = splat(x.m, 1.0)
    for k in range(s.order.shape[0] - 1, -1, -1):
        v = s.order[k]
        b = _odds(one, 0, L, s.ptr, v, x.prior, x.m)
        store(x.bel, v * L, b / (one + b))
        for e in range(s.ptr[v], s.ptr[v + 1]):
            if e != s.up[k]:
                y, w = load(x.m, e * L), _weight(one, 0, L, s.pair, e, x.W, x.own)
                store(x.m, s.rev[e] * L, (y + w * b) / (y + b))


@jit
def _sweep(like, at, s, x, out, forward, damping, change, moved):
    """Visit the core, messages into ``out``; ``change``: how far beliefs moved, lane by lane.
    ``like`` is strict and tells how many lanes are visited, from ``at`` on. Damped ones are in
    place, and ``moved`` gets |x - y| / (x + y) of messages, undamped."""
    if damping > 0.0:
        _visit(like, at, s, x, x.own, x.m, forward, damping, change, moved)
    elif x.own.shape[0] == 0:
        _visit(like, at, s, x, None, out, forward, None, change, moved)
    else:
        _visit(like, at, s, x, x.own, out, forward, None, change, moved)


@jit
def _visit(like, at, s, x, own, out, forward, damping, change, moved):
    """The hot loop of ``_sweep``; compiled apart for shared weights (``own`` None) and damping."""
    W, prior, m, bel = x.W, x.prior, x.m, x.bel
    ptr, rev, pair, core = s.ptr, s.rev, s.pair, s.core
    L = lanes_of(m)
    one, top = splat(like, 1.0), splat(like, 0.0)
    far, apart = top, one
    n = core.shape[0]
    for k in range(n):
        v = core[k if forward else n - 1 - k]
        e, hi = ptr[v], ptr[v + 1]
        b = _odds(like, at, L, ptr, v, prior, m)
        while e + 2 <= hi:
            y, z = load_as(like, m, at + e * L), load_as(like, m, at + e * L + L)
            c, d = y + b, z + b
            inverse = one / (c * d)
            u = _weight(like, at, L, pair, e, W, own)
            w = _weight(like, at, L, pair, e + 1, W, own)
            y, z = (y + u * b) * (inverse * d), (z + w * b) * (inverse * c)
            far, apart = _say(like, at + rev[e] * L, y, damping, out, far, apart)
            far, apart = _say(like, at + rev[e + 1] * L, z, damping, out, far, apart)
            e += 2
        d = one + b
        if e < hi:
            y = load_as(like, m, at + e * L)
            c = y + b
            inverse = one / (c * d)
            y = (y + _weight(like, at, L, pair, e, W, own) * b) * (inverse * d)
            far, apart = _say(like, at + rev[e] * L, y, damping, out, far, apart)
            p = b * (inverse * c)
        else:
            p = b / d
        top = larger(magnitude(p - load_as(like, bel, at + v * L)), top)
        store(bel, at + v * L, p)
    store(change, at, top)
    store(moved, at, far / apart)


@jit(forceinline=True)
def _say(like, to, new, damping, out, far, apart):
    """Store a message; damped (a number, not None), and then how far it would have moved."""
    if damping is None:
        store(out, to, new)
        return far, apart
    one, old = splat(like, 1.0), load_as(like, out, to)
    far, apart = _farther(new, old, far, apart)
    a, c = splat(like, 1.0 - damping) * (one + old), splat(like, damping) * (one + new)
    store(out, to, (a * new + c * old) / (a + c))
    return far, apart


@jit
def _compare(s, x, out, moved, change):
    """How far messages ``out`` are from those before, and beliefs, which ``bel`` then has."""
    L = lanes_of(x.m)
    one, top = splat(x.m, 1.0), splat(x.m, 0.0)
    far, apart = top, one
    for e in range(0, x.m.shape[0], L):
        far, apart = _farther(load(out, e), load(x.m, e), far, apart)
    for v in s.core:
        b = _odds(one, 0, L, s.ptr, v, x.prior, out)
        p = b / (one + b)
        top = larger(magnitude(p - load(x.bel, v * L)), top)
        store(x.bel, v * L, p)
    store(change, 0, top)
    store(moved, 0, far / apart)


@jit
def _totals(s, x, holds, given, log_z, joint):
    """Bethe log Z and beliefs of pairs, in float64, of the instances in ``holds`` (-1: none). With
    p and q = 1 - p the beliefs of a pair's ends and m their messages, its share of Z is the sum of
    qq, q p/m, p/m q and W p/m p/m. A known variable's own log-odds count as 0."""
    L, V = lanes_of(x.m), s.ptr.shape[0] - 1
    on, off, four = np.ones(8 * V), np.ones(8 * V), np.ones(32)
    like = splat(on, 1.0)
    C = lanes_of(on)
    for base in range(0, L, C):
        total = like - like
        for v in range(V):
            b = _odds(like, base, L, s.ptr, v, x.prior, x.m)
            q = like / (like + b)
            total = total + log(like + b)
            store(on, v * C, b * q)
            store(off, v * C, q)
        store(four, 0, total)
        for lane in range(C):
            i = holds[base + lane]
            if i < 0:
                continue
            more = 0.0
            for v in range(V):
                y = given.log_odds[i, v]
                if abs(y) == np.inf:
                    on[v * C + lane] = 1.0 if y > 0.0 else 0.0
                    off[v * C + lane] = 0.0 if y > 0.0 else 1.0
                    more -= given.clamp if y > 0.0 else 0.0
                elif y > given.clamp:
                    more += y - given.clamp
            log_z[i] = four[lane] + more
        total = like - like
        for f in range(s.slot.shape[0]):
            i, j, a, b = s.slot[f, 0], s.slot[f, 1], s.scope[f, 0], s.scope[f, 1]
            y, z = load_as(like, x.m, i * L + base), load_as(like, x.m, j * L + base)
            w = like * x.W[i] if x.own.shape[0] == 0 else load_as(like, x.own, f * L + base)
            inverse = like / (y * z)
            p, q = load(on, a * C) * (inverse * z), load(off, a * C)
            r, t = load(on, b * C) * (inverse * y), load(off, b * C)
            z = q * t + p * t + (q * r + w * p * r)
            total = total + log(z)
            if joint.shape[0] > 0:
                z = like / z
                store(four, 0, q * t * z)
                store(four, C, q * r * z)
                store(four, 2 * C, p * t * z)
                store(four, 3 * C, w * p * r * z)
                for lane in range(C):
                    n = holds[base + lane]
                    for k in range(4 if n >= 0 else 0):
                        joint[n, f, k] = four[k * C + lane]
        store(four, 0, total)
        for lane in range(C):
            if holds[base + lane] >= 0:
                log_z[holds[base + lane]] += four[lane]


@jit
def _finish(s, x, holds, given, found):
    """Beliefs of trees; marginals, log Z and beliefs of pairs of the instances in ``holds``."""
    V, L, flat = s.ptr.shape[0] - 1, lanes_of(x.m), found.probs.reshape(-1)
    _distribute(s, x)
    for lane in range(L):
        if holds[lane] >= 0:
            _move(x.bel, lane, L, flat, holds[lane] * V, 1, V)
    if found.log_z.shape[0] > 0:
        _totals(s, x, holds, given, found.log_z, found.pairs)


@jit
def forests(s, given, rows, found):
    """The same as ``propagate`` where all is trees: one pass up and one down, no iteration."""
    L, kind = lanes_of(found.probs), found.probs.dtype
    V, E = s.ptr.shape[0] - 1, s.rev.shape[0]
    W, _ = _shared(s.pair, given, np.empty(E, kind), np.empty(E, kind))
    own = given.w.shape[1] if given.w.shape[0] > 1 else 0
    x = LaneNumbers(
        W, np.ones(own * L, kind), np.ones(V * L, kind), np.ones(E * L, kind), np.ones(V * L, kind)
    )
    logs, holds = np.zeros(max(V, E) + 8), np.full(L, -1)
    moved, change = np.zeros(L, kind), np.zeros(L, kind)
    for begin in range(0, rows.shape[0], L):
        n = min(np.int64(L), rows.shape[0] - begin)
        for lane in range(L):  # those to spare repeat the last; first messages are not read
            i = rows[begin + min(lane, n - 1)]
            _exponentials(given.log_odds[i], given.clamp, logs, x.prior, lane)
            if own > 0:
                _exponentials(given.w[i], np.inf, logs, x.own, lane)
            holds[lane] = rows[begin + lane] if lane < n else -1
        _collect(strict(x.m), 0, s, x)
        _compare(s, x, x.m, moved, change)
        _finish(s, x, holds, given, found)


@jit
def _shared(pair, given, W, F):
    """Odds of shared weights, slot by slot, and of shared first messages."""
    w, first = given.w, given.first
    for e in range(pair.shape[0]):
        W[e] = math.exp(w[0, pair[e]]) if w.shape[0] == 1 else 1.0
        F[e] = math.exp(first[0, e]) if first.shape[0] == 1 else 1.0
    return W, F


@jit
def _ones(size, like):
    """On cache lines: a lane that lies across two takes half as long again."""
    out = aligned(size, like)
    for i in range(size):
        out[i] = 1.0
    return out


@jit
def propagate(s, given, rows, how, found):
    """Run the instances ``rows``; ``s``, ``given`` and ``found`` are :mod:`minfer.solvers.lanes`'s
    LaneStructure, LaneRows and LaneAnswers; ``how``: (tol, floor, max_iters, damping). Arithmetic
    has the precision of ``found.probs``."""
    tol, floor, max_iters, damping = how
    like = found.probs
    L, kind = lanes_of(like), like.dtype
    V, E = s.ptr.shape[0] - 1, s.rev.shape[0]
    own = given.w.shape[1] if given.w.shape[0] > 1 else 0
    W, F = _shared(s.pair, given, np.empty(E, kind), np.empty(E, kind))
    logs = np.zeros(max(V, E) + 8)
    size = E + V + own
    padded = size + L - size % L
    length = padded + V
    # an instance is its messages, prior and weights; in lanes, or a row of the park with beliefs
    # at its end
    run, bel, half = _ones(size * L, like), _ones(V * L, like), np.full(V, 0.5)
    park, which = np.ones(2 * L * length, kind), np.zeros(L, np.int64)
    judged, was, out = _ones(padded * L, like), _ones(V * L, like), _ones(E * L, like)
    a, b, c = E * L, (E + V) * L, size * L
    x = LaneNumbers(W, run[b:], run[a:b], run[:a], bel)
    parked = LaneNumbers(W, judged[b:c], judged[a:b], judged[:a], was)
    updated = LaneNumbers(W, judged[b:c], judged[a:b], out, was)
    change, moved = np.zeros(L, kind), np.zeros(L, kind)
    change_p, moved_p = np.zeros(L, kind), np.zeros(L, kind)
    # the instance in each lane and row (-1: none), its iterations and sweeps, when it is quiet
    runs, parks, holds = np.full(L, -1), np.full(2 * L, -1), np.full(L, -1)
    count, count_p = np.zeros(L, np.int64), np.zeros(2 * L, np.int64)
    done, done_p = np.zeros(L, np.int64), np.zeros(2 * L, np.int64)
    trigger, trigger_p = np.zeros(L), np.zeros(2 * L)
    last, last_p = np.zeros(L), np.zeros(2 * L)
    why = np.zeros(2 * L, np.int64)
    n, begin = rows.shape[0], np.int64(0)
    n_run, n_park, n_wait = 0, 0, 0
    forward = np.bool_(True)  # of that type, so that no visit is compiled for literals too
    while True:
        for lane in range(L):
            if runs[lane] >= 0:
                continue
            for j in range(2 * L if n_wait > 0 else 0):
                if parks[j] >= 0 and why[j] == WAITS and (done_p[j] % 2 == 0) == forward:
                    _move(park, j * length, 1, run, lane, L, size)
                    _move(park, j * length + padded, 1, bel, lane, L, V)
                    runs[lane], count[lane], done[lane] = parks[j], count_p[j], done_p[j]
                    trigger[lane], last[lane] = trigger_p[j], np.inf
                    parks[j] = -1
                    n_wait -= 1
                    n_run += 1
                    break
            # those that wait come first, so that there is always a row to be parked in
            if runs[lane] < 0 and forward and begin < n and n_run + n_wait < L:
                i = rows[begin]
                begin += 1
                _enter(i, given, F, logs, lane, x)
                _move(half, 0, 1, bel, lane, L, V)
                if given.known[i]:
                    _announce(i, given.log_odds, s, x, lane)
                _collect(lone(run), lane, s, x)
                runs[lane], count[lane], done[lane] = i, 0, 0
                trigger[lane], last[lane] = tol, np.inf
                n_run += 1
        halt, alone = found.stop[0] != 0, n_run <= FEW
        for lane in range(0 if halt or n_run == 0 else L if alone else 1):
            if not alone:
                _sweep(strict(run), lane, s, x, x.m, forward, damping, change, moved)
            elif runs[lane] >= 0:
                _sweep(lone(run), lane, s, x, x.m, forward, damping, change, moved)
        forward = not forward
        lane = 0
        while lane < L or (n_run == 0 and n_park > 0):
            if n_park == L or lane == L:  # no room to park, or nothing else to do: judge
                k = 0
                for j in range(2 * L):
                    if parks[j] >= 0 and why[j] != WAITS:
                        which[k] = j
                        k += 1
                for j in range(L):
                    holds[j] = which[j] * length
                for k in range(0, size, L):
                    rows_into_lanes(park, holds, k, judged)
                for e in range(E * L if s.order.shape[0] > 0 else 0):
                    out[e] = judged[e]  # from trees nothing comes
                _sweep(
                    strict(run), np.int64(0), s, parked, out, np.bool_(True), 0.0, change_p, moved_p
                )
                _compare(s, parked, out, moved_p, change_p)
                unproved = 0
                for k in range(L):
                    holds[k] = -1
                    if k >= n_park:
                        continue
                    j = which[k]
                    i = parks[j]
                    passed, worst = False, last_p[j]
                    if why[j] == QUIET:
                        count_p[j] += 1
                        worst = half_angle(np.float64(moved_p[k]))
                        if worst <= tol:
                            worst = max(worst, np.float64(change_p[k]))
                            passed = worst <= tol
                        if not passed and count_p[j] < max_iters:
                            share = min(max(0.9 * tol / worst, 0.1), 0.7)
                            trigger_p[j] = max(trigger_p[j] * share, floor)
                            why[j] = WAITS
                            n_wait += 1
                            continue
                    holds[k] = i
                    found.iterations[i], found.converged[i] = count_p[j], passed
                    found.residual[i] = worst
                    if not passed:
                        unproved += 1
                        _move(judged, k, L, out, k, L, E)  # as before the update
                        if worst <= tol:  # quiet, but not confirmed
                            found.residual[i] = np.nextafter(tol, 1.0)
                    parks[j] = -1
                n_park = 0
                if unproved > 0:
                    _compare(s, updated, out, moved_p, change_p)
                _finish(s, updated, holds, given, found)
                if lane == L:
                    break
                continue
            state = WAITS
            if runs[lane] >= 0 and halt:
                state = STOPPED
            elif runs[lane] >= 0:
                moves = np.float64(change[lane]) / (1.0 - damping)
                before, quiet = last[lane], moves
                if damping > 0.0:
                    quiet = max(quiet, half_angle(np.float64(moved[lane])))
                last[lane] = quiet
                if damping == 0.0 and quiet < before < np.inf:
                    quiet *= quiet / before
                count[lane] += 1
                done[lane] += 1
                if count[lane] >= max_iters:
                    state, last[lane] = STOPPED, moves
                elif quiet <= trigger[lane]:
                    state = QUIET
            if state != WAITS:
                j = 0
                while parks[j] >= 0:
                    j += 1
                _move(run, lane, L, park, j * length, 1, size)
                _move(bel, lane, L, park, j * length + padded, 1, V)
                parks[j], why[j], count_p[j], done_p[j] = runs[lane], state, count[lane], done[lane]
                trigger_p[j], last_p[j] = trigger[lane], last[lane]
                runs[lane] = -1
                n_run -= 1
                n_park += 1
            lane += 1
        if n_run == 0 and n_wait == 0:
            if begin == n:
                return
            forward = True


@jit
def enter(base, more, lean, evidence, log_odds, own, dead):
    """Fields of binary variables as log-odds (n, V), infinite where known; all rows in one pass.
    ``base`` (n or 1, 2V) and ``more`` (n or 1, 2V, or empty) are log-fields to be added up,
    ``lean`` (n or 1, V) what pairs add to state 1, ``evidence`` (n, V) states or -1, or empty. Also
    writes the sum of each variable's own number (state 0's, or the known one's), and whether no
    state is left somewhere."""
    for r in range(log_odds.shape[0]):
        a = r if base.shape[0] > 1 else 0
        b = r if more.shape[0] > 1 else 0
        c = r if lean.shape[0] > 1 else 0
        total, bad = 0.0, False
        for v in range(log_odds.shape[1]):
            low, high = base[a, 2 * v], base[a, 2 * v + 1]
            if more.size > 0:
                low += more[b, 2 * v]
                high += more[b, 2 * v + 1]
            if evidence.size > 0:
                if evidence[r, v] == 1:
                    low = -np.inf
                elif evidence[r, v] == 0:
                    high = -np.inf
            if low == -np.inf:
                bad = bad or high == -np.inf
                total += high + lean[c, v]
                log_odds[r, v] = np.inf
            else:
                total += low
                log_odds[r, v] = high - low + lean[c, v]
        own[r], dead[r] = total, bad


@jit
def leave(p, probs):
    """P(1) (n, V) as the probabilities of both states, (n, 2V)."""
    for r in range(p.shape[0]):
        for v in range(p.shape[1]):
            probs[r, 2 * v] = 1.0 - p[r, v]
            probs[r, 2 * v + 1] = p[r, v]
