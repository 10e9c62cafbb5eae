"""Arc probabilities of eight sentences at once under the matrix-tree theorem.

What ``minfer.kernels.nonprojective`` does for one sentence (the formulas stand there), with a
sentence in each lane: a quarter of the time. The eight have the same number N >= 8 of nodes; a
shorter one is filled up (``minfer.kernels.trees.batch_marginals``). Matrices have entry [i, j] of
lane l at ``8 * (i * N + j) + l``.

* ``inverse_abreast`` inverts Laplacians. With b[m, h] = w[h, m] off the diagonal a Gauss-Jordan
  step for word k is

      p = sum of b[k, h] over the heads not yet eliminated, and the root
      b[k, h] /= p,  b[k, k] = 1 / p,  then for all m:  b[m, h] += b[m, k] b[k, h],  b[m, k] /= p

  and nothing is ever subtracted until w[h, m] (L^-1[m, m] - L^-1[h, m]).
* ``sums_abreast`` does without that subtraction, where it is not safe, in twice the time.

In the column of one word, the root's favourite, a single root needs the root's weights; that word
comes last, and changes places with word N - 1 in its own lane: ``swap``.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels._jit import jit
from minfer.kernels.lanes import (
    LANES,
    bounded,
    choose,
    exp,
    larger,
    load,
    splat,
    store,
    transpose,
)
from minfer.kernels.nonprojective import LARGE_INVERSE, ONE_ROOT, SMALL_ROOT
from minfer.kernels.vexp import log_in_place

MAX_HALVINGS = 10
MOST_NODES = 256  # beyond, one sentence fills the cache, and eight of them much memory
FEWEST = 2  # fewer sentences are faster one by one
RETRY = 8  # after a group with unsafe ones, the inverse is not tried for so many groups
TINY = 1e-280  # as in minfer.kernels.trees


@jit
def _aligned(size):
    """An empty float64 array that begins on a cache line."""
    floats = np.empty(size + LANES, np.float64)
    first = (-(floats.ctypes.data >> 3)) & (LANES - 1)
    return floats[first : first + size]


@jit
def _at(h, start, swap, n):
    """Where the row of the word at place h begins."""
    if h == n - 1:
        return start + swap * n
    return start + (n - 1 if h == swap else h) * n


@jit
def _row(start, swap, h, n):
    return (
        _at(h, start[0], swap[0], n), _at(h, start[1], swap[1], n),
        _at(h, start[2], swap[2], n), _at(h, start[3], swap[3], n),
        _at(h, start[4], swap[4], n), _at(h, start[5], swap[5], n),
        _at(h, start[6], swap[6], n), _at(h, start[7], swap[7], n),
    )  # fmt: skip


@jit
def _read(x, at, m, line):
    """Eight columns from m on of one row of each sentence, into lanes."""
    c = transpose((
        load(x, at[0] + m), load(x, at[1] + m), load(x, at[2] + m), load(x, at[3] + m),
        load(x, at[4] + m), load(x, at[5] + m), load(x, at[6] + m), load(x, at[7] + m),
    ))  # fmt: skip
    m *= LANES
    store(line, m, c[0])
    store(line, m + 8, c[1])
    store(line, m + 16, c[2])
    store(line, m + 24, c[3])
    store(line, m + 32, c[4])
    store(line, m + 40, c[5])
    store(line, m + 48, c[6])
    store(line, m + 56, c[7])


@jit
def _swap_columns(line, swap, n):
    for lane in range(LANES):
        i = swap[lane] * LANES + lane
        j = (n - 1) * LANES + lane
        line[i], line[j] = line[j], line[i]


@jit
def _best_heads(scores, start, n, mask, top):
    """The best score of each word's heads, into lanes; ``mask`` (2 N + 8) is scratch."""
    for m in range(2 * n + LANES):
        mask[m] = 0.0
    mask[n] = -np.inf  # meets the diagonal, whatever is there
    none = splat(-np.inf)
    for block in range(0, n, LANES):
        m = min(block, n - LANES)  # the last one overlaps
        t0, t1, t2, t3, t4, t5, t6, t7 = none, none, none, none, none, none, none, none
        for h in range(n):
            at = h * n + m
            off = load(mask, n - h + m)
            t0 = larger(load(scores, start[0] + at) + off, t0)
            t1 = larger(load(scores, start[1] + at) + off, t1)
            t2 = larger(load(scores, start[2] + at) + off, t2)
            t3 = larger(load(scores, start[3] + at) + off, t3)
            t4 = larger(load(scores, start[4] + at) + off, t4)
            t5 = larger(load(scores, start[5] + at) + off, t5)
            t6 = larger(load(scores, start[6] + at) + off, t6)
            t7 = larger(load(scores, start[7] + at) + off, t7)
        c = transpose((t0, t1, t2, t3, t4, t5, t6, t7))
        at = m * LANES
        store(top, at, c[0])
        store(top, at + 8, c[1])
        store(top, at + 16, c[2])
        store(top, at + 24, c[3])
        store(top, at + 32, c[4])
        store(top, at + 40, c[5])
        store(top, at + 48, c[6])
        store(top, at + 56, c[7])


@jit
def weights(scores, start, n, swap, w, b, rows):
    """Weights of which a word's best head has 1: ``w`` [head, modifier], ``b`` [modifier, head].

    Returned is the log of what was divided. ``rows`` (32 N) is scratch.
    """
    row = n * LANES
    top = rows[:row]
    line = rows[row:]
    none = splat(-np.inf)
    _best_heads(scores, start, n, line, top)
    _swap_columns(top, swap, n)
    log_scale = splat(0.0)
    for m in range(LANES, row, LANES):
        x = load(top, m)
        x = choose(x, none, x, splat(0.0))
        log_scale = log_scale + x
        store(top, m, x)
    for h in range(n):
        at = _row(start, swap, h, n)
        for block in range(0, n, LANES):
            _read(scores, at, min(block, n - LANES), line)
        _swap_columns(line, swap, n)
        store(line, h * LANES, none)
        store(w, h * row, splat(0.0))
        for m in range(1, n):
            x = exp(load(line, m * LANES) - load(top, m * LANES))
            store(w, h * row + m * LANES, x)
            store(b, m * row + h * LANES, x)
    return log_scale


@jit
def _take(b, at):
    """An entry, and 0 in its place."""
    x = load(b, at)
    store(b, at, splat(0.0))
    return x


@jit
def _step(b, n, k, single_root, first, past):
    """A Gauss-Jordan step for word k in rows ``first`` to ``past``; returns the pivot."""
    row = n * LANES
    mine = k * row
    column = k * LANES
    pivot = splat(0.0) if single_root else load(b, mine)
    other = splat(0.0)  # a second chain of sums
    for h in range(column + LANES, row - LANES, 2 * LANES):
        pivot = pivot + load(b, mine + h)
        other = other + load(b, mine + h + LANES)
    if (n - k) % 2 == 0:
        pivot = pivot + load(b, mine + row - LANES)
    pivot = pivot + other
    inverse = 1.0 / pivot
    store(b, mine + column, splat(1.0))
    for h in range(0, row, LANES):
        store(b, mine + h, load(b, mine + h) * inverse)
    for m in range(first, past):
        if m != k:
            at = m * row
            c = _take(b, at + column)
            for h in range(0, row, LANES):
                store(b, at + h, load(b, at + h) + c * load(b, mine + h))
    return pivot


@jit
def _four_steps(b, n, k):
    """Four finished rows k to k + 3 into all other rows, two at a time."""
    row = n * LANES
    w = k * row
    x = w + row
    y = x + row
    z = y + row
    m = 1
    while m < n:
        if m == k:
            m += 4
            continue
        p = m * row
        at = p + k * LANES
        p0, p1, p2, p3 = _take(b, at), _take(b, at + 8), _take(b, at + 16), _take(b, at + 24)
        if m + 1 < n and m + 1 != k:
            q = p + row
            at = q + k * LANES
            q0, q1, q2, q3 = _take(b, at), _take(b, at + 8), _take(b, at + 16), _take(b, at + 24)
            for h in range(0, row, LANES):
                c0, c1, c2, c3 = load(b, w + h), load(b, x + h), load(b, y + h), load(b, z + h)
                store(b, p + h, load(b, p + h) + p0 * c0 + p1 * c1 + p2 * c2 + p3 * c3)
                store(b, q + h, load(b, q + h) + q0 * c0 + q1 * c1 + q2 * c2 + q3 * c3)
            m += 2
        else:
            for h in range(0, row, LANES):
                c0, c1, c2, c3 = load(b, w + h), load(b, x + h), load(b, y + h), load(b, z + h)
                store(b, p + h, load(b, p + h) + p0 * c0 + p1 * c1 + p2 * c2 + p3 * c3)
            m += 1


@jit
def _invert(n, single_root, b):
    """All words, or all but the last for a single root; returns the product of the pivots."""
    z = splat(1.0)
    past = n - 1 if single_root else n
    k = 1
    while k + 4 <= past:
        for j in range(k, k + 4):
            z = z * _step(b, n, j, single_root, k, k + 4)
        _four_steps(b, n, k)
        k += 4
    while k < past:
        z = z * _step(b, n, k, single_root, 1, n)
        k += 1
    return z


@jit
def _entry(w, b, diagonal, root, c, at, m):
    d = load(diagonal, m) - load(b, at + m) + c * load(root, m)
    return bounded(load(w, at + m) * d)


@jit
def _write(w, b, diagonal, root, start, n, swap, mu):
    """mu[h, m] = w[h, m] (diagonal[m] - b[h, m] + b[h, 0] root[m]) out of lanes."""
    last = n - 1
    for h in range(n):
        row = h * n * LANES
        c = load(b, row)
        at = _row(start, swap, h, n)
        for block in range(0, n, LANES):
            m = min(block, n - LANES)
            i = m * LANES
            r = transpose((
                _entry(w, b, diagonal, root, c, row, i),
                _entry(w, b, diagonal, root, c, row, i + 8),
                _entry(w, b, diagonal, root, c, row, i + 16),
                _entry(w, b, diagonal, root, c, row, i + 24),
                _entry(w, b, diagonal, root, c, row, i + 32),
                _entry(w, b, diagonal, root, c, row, i + 40),
                _entry(w, b, diagonal, root, c, row, i + 48),
                _entry(w, b, diagonal, root, c, row, i + 56),
            ))  # fmt: skip
            store(mu, at[0] + m, r[0])
            store(mu, at[1] + m, r[1])
            store(mu, at[2] + m, r[2])
            store(mu, at[3] + m, r[3])
            store(mu, at[4] + m, r[4])
            store(mu, at[5] + m, r[5])
            store(mu, at[6] + m, r[6])
            store(mu, at[7] + m, r[7])
    for lane in range(LANES):
        s = swap[lane]
        if s != last:
            for row in range(start[lane], start[lane] + n * n, n):
                mu[row + s], mu[row + last] = mu[row + last], mu[row + s]


@jit
def inverse_abreast(single_root, scores, start, n, swap, mu, out, work):
    """``mu`` of eight sentences and, in ``out`` (3, 8), Z, the log of its scale, and the danger.

    ``start`` i8 (8,): where a sentence's N x N entries begin in the flat ``scores`` and ``mu``;
    ``swap`` i8 (8,) is scratch. Rounding errors of ``mu`` are about 2e-16 times the danger, the
    largest entry of the inverse; infinite or NaN where Z = 0.
    """
    last = n - 1
    row = n * LANES
    w = work[: n * row]
    b = work[n * row : 2 * n * row]
    rows = work[2 * n * row :]
    for lane in range(LANES):
        swap[lane] = last
        if single_root:
            best = -np.inf
            for m in range(1, n):
                x = scores[start[lane] + m]
                if x > best:
                    best = x
                    swap[lane] = m
    log_scale = weights(scores, start, n, swap, w, b, rows)
    z = _invert(n, single_root, b)
    diagonal = rows[:row]
    root = rows[row : 2 * row]
    zero = splat(0.0)
    largest = zero
    end = last * LANES if single_root else row
    for m in range(0, row, LANES):
        x = load(b, m * n + m) if 0 < m < end else zero
        largest = larger(x, largest)
        store(diagonal, m, x)
        store(root, m, zero)
        store(b, m, zero)
    if single_root:  # what _write needs for the root, the last word and the others
        t = last * row
        inverse = 1.0 / load(b, t)
        z = z * load(b, t)
        most = zero
        reach = zero
        store(b, 0, splat(1.0))
        for m in range(LANES, end, LANES):
            x = load(b, t + m) * inverse
            c = load(b, m * n)
            most = larger(x, most)
            reach = larger(c, reach)
            d = load(diagonal, m) - c * x
            store(root, m, x)
            store(diagonal, m, d)
            store(b, m, d)
            store(b, t + m, zero)
            store(b, m * n + end, zero)
        largest = largest + most * reach
        store(root, end, inverse)
        store(b, t, zero)
        store(b, t + end, zero)
    _write(w, b, diagonal, root, start, n, swap, mu)
    store(out, 0, z)
    store(out, LANES, log_scale)
    store(out, 2 * LANES, largest)


@jit
def _leave(x, k, lo, hi, n, f):
    """The shares f[k] of k's heads, lo .. hi - 1 and the root, in row k of ``x``; the pivot."""
    mine = k * n * LANES
    pivot = load(x, mine)
    for h in range(mine + lo * LANES, mine + hi * LANES, LANES):
        pivot = pivot + load(x, h)
    inverse = choose(pivot, splat(0.0), 1.0 / pivot, splat(0.0))
    store(f, mine, load(x, mine) * inverse)
    for h in range(mine + lo * LANES, mine + hi * LANES, LANES):
        store(f, h, load(x, h) * inverse)
    return pivot


@jit
def _hang(x, y, m, k, lo, hi, n, f):
    """What hangs on k in row m hangs on k's heads, from ``x`` to ``y``."""
    at = m * n * LANES
    mine = k * n * LANES
    c = load(x, at + k * LANES)
    store(y, at, load(x, at) + c * load(f, mine))
    for h in range(lo * LANES, hi * LANES, LANES):
        store(y, at + h, load(x, at + h) + c * load(f, mine + h))


@jit
def _eliminate(x, y, k, lo, hi, n, f):
    """Words lo .. hi - 1 without k, their neighbour: from ``x`` to ``y``, both [modifier, head].

    ``f`` [k] gets the shares of k's heads; returns the pivot.
    """
    pivot = _leave(x, k, lo, hi, n, f)
    for m in range(lo, hi):
        _hang(x, y, m, k, lo, hi, n, f)
    return pivot


@jit
def _eliminate_four(x, y, k, step, lo, hi, n, f):
    """As ``_eliminate`` four times, of k, k + step, ...; ``step`` is 1 or -1."""
    row = n * LANES
    product = splat(1.0)
    now = x
    for i in range(4):
        j = k + i * step
        a = lo if step < 0 else j + 1
        b = j if step < 0 else hi
        product = product * _leave(now, j, a, b, n, f)
        for other in range(i + 1, 4):
            _hang(now, y, k + other * step, j, a, b, n, f)
        now = y
    k0, k1, k2, k3 = k * LANES, (k + step) * LANES, (k + 2 * step) * LANES, (k + 3 * step) * LANES
    f0, f1, f2, f3 = k0 * n, k1 * n, k2 * n, k3 * n
    f01, f02, f03 = load(f, f0 + k1), load(f, f0 + k2), load(f, f0 + k3)
    f12, f13, f23 = load(f, f1 + k2), load(f, f1 + k3), load(f, f2 + k3)
    r0, r1, r2, r3 = load(f, f0), load(f, f1), load(f, f2), load(f, f3)
    m = lo
    while m < hi:
        p = m * row
        p0 = load(x, p + k0)
        p1 = load(x, p + k1) + p0 * f01
        p2 = load(x, p + k2) + p0 * f02 + p1 * f12
        p3 = load(x, p + k3) + p0 * f03 + p1 * f13 + p2 * f23
        store(y, p, load(x, p) + p0 * r0 + p1 * r1 + p2 * r2 + p3 * r3)
        if m + 1 < hi:
            q = p + row
            q0 = load(x, q + k0)
            q1 = load(x, q + k1) + q0 * f01
            q2 = load(x, q + k2) + q0 * f02 + q1 * f12
            q3 = load(x, q + k3) + q0 * f03 + q1 * f13 + q2 * f23
            store(y, q, load(x, q) + q0 * r0 + q1 * r1 + q2 * r2 + q3 * r3)
            for h in range(lo * LANES, hi * LANES, LANES):
                c0, c1, c2, c3 = load(f, f0 + h), load(f, f1 + h), load(f, f2 + h), load(f, f3 + h)
                store(y, p + h, load(x, p + h) + p0 * c0 + p1 * c1 + p2 * c2 + p3 * c3)
                store(y, q + h, load(x, q + h) + q0 * c0 + q1 * c1 + q2 * c2 + q3 * c3)
        else:
            for h in range(lo * LANES, hi * LANES, LANES):
                c0, c1, c2, c3 = load(f, f0 + h), load(f, f1 + h), load(f, f2 + h), load(f, f3 + h)
                store(y, p + h, load(x, p + h) + p0 * c0 + p1 * c1 + p2 * c2 + p3 * c3)
        m += 2
    return product


@jit
def _substitute(f, k, lo, hi, first, past, n, e):
    """e[m, k] for words m from ``first`` on: k's shares of e[m, h], h from lo to hi - 1."""
    row = n * LANES
    mine = k * row
    root = load(f, mine)
    m = first
    while m + 4 <= past:
        at = m * row
        s0, s1, s2, s3 = root, root, root, root
        for h in range(lo * LANES, hi * LANES, LANES):
            c = load(f, mine + h)
            s0 = s0 + c * load(e, at + h)
            s1 = s1 + c * load(e, at + row + h)
            s2 = s2 + c * load(e, at + 2 * row + h)
            s3 = s3 + c * load(e, at + 3 * row + h)
        at += k * LANES
        store(e, at, s0)
        store(e, at + row, s1)
        store(e, at + 2 * row, s2)
        store(e, at + 3 * row, s3)
        m += 4
    while m < past:
        s0 = root
        for h in range(lo * LANES, hi * LANES, LANES):
            s0 = s0 + load(f, mine + h) * load(e, m * row + h)
        store(e, m * row + k * LANES, s0)
        m += 1


@jit
def sums_abreast(single_root, scores, start, n, swap, mu, out, work, frame):
    """As ``inverse_abreast``, without a subtraction; ``out`` has no danger.

    ``nonprojective`` of eight sentences: e[m, h] is the chance that the walk from h along heads
    ends in the root and not in m.
    """
    row = n * LANES
    size = n * row
    t = SMALL_ROOT if single_root else 1.0
    w = work[:size]
    f = work[size : 2 * size]
    e = work[2 * size : 3 * size]
    rows = work[3 * size : 3 * size + 4 * row]
    product = work[3 * size + 4 * row : 3 * size + 4 * row + MAX_HALVINGS * LANES]
    layers = work[3 * size + 4 * row + MAX_HALVINGS * LANES :]
    b = layers[:size]
    for lane in range(LANES):
        swap[lane] = n - 1
    log_scale = weights(scores, start, n, swap, w, b, rows)
    scale = rows[:row]
    gain = rows[row : 2 * row]
    for m in range(1, n):  # a word's weights sum to 1
        total = splat(0.0)
        for at in range(m * row, m * row + row, LANES):
            total = total + load(b, at)
        store(scale, m * LANES, total)
        total = choose(total, splat(0.0), 1.0 / total, splat(0.0))
        for at in range(m * row, m * row + row, LANES):
            store(b, at, load(b, at) * total)
        store(b, m * row, load(b, m * row) * t)
        store(gain, m * LANES, total)
    log_in_place(scale[LANES:row])
    for m in range(LANES, row, LANES):
        log_scale = log_scale + load(scale, m)
        store(scale, m, load(gain, m))
    store(product, 0, splat(1.0))
    depth = 0
    frame[0, 0] = 1  # first word
    frame[0, 1] = n  # past the last
    frame[0, 2] = 0  # halves done
    z = splat(0.0)
    while depth >= 0:
        lo = frame[depth, 0]
        hi = frame[depth, 1]
        done = frame[depth, 2]
        x = layers[depth * size : (depth + 1) * size]
        if hi - lo == 1:
            store(e, lo * (row + LANES), splat(0.0))
            store(gain, lo * LANES, load(product, depth * LANES))
            z = load(product, depth * LANES) * load(x, lo * row)
            depth -= 1
            continue
        mid = (lo + hi) // 2
        if done == 1:
            for k in range(mid, hi):
                _substitute(f, k, lo, k, lo, mid, n, e)
        elif done == 2:
            for k in range(mid - 1, lo - 1, -1):
                _substitute(f, k, k + 1, hi, mid, hi, n, e)
            depth -= 1
            continue
        frame[depth, 2] = done + 1
        y = layers[(depth + 1) * size : (depth + 2) * size]
        p = load(product, depth * LANES)
        step = -1 if done == 0 else 1
        k = hi - 1 if done == 0 else lo
        left = hi - mid if done == 0 else mid - lo
        while left > 0:
            each = 4 if left >= 4 else 1
            if done == 0:
                hi -= each
            else:
                lo += each
            if each == 4:
                p = p * _eliminate_four(x, y, k, step, lo, hi, n, f)
            else:
                p = p * _eliminate(x, y, k, lo, hi, n, f)
            k += each * step
            left -= each
            x = y
        depth += 1
        store(product, depth * LANES, p)
        frame[depth, 0] = lo
        frame[depth, 1] = hi
        frame[depth, 2] = 0
    inverse = 1.0 / z
    for m in range(1, n):
        g = 0.0 - load(gain, m * LANES) * inverse * load(scale, m * LANES)
        store(b, m * LANES, g * t)
        for h in range(1, n):
            store(b, h * row + m * LANES, g * load(e, m * row + h * LANES))
    for m in range(0, row, LANES):
        store(b, m * n, splat(0.0))
        store(scale, m, splat(0.0))
    _write(w, b, scale, scale, start, n, swap, mu)
    store(out, 0, z * (1.0 / t))
    store(out, LANES, log_scale)


@jit
def _pack(b, n, n_nodes, start, scores, mu, at, there, into):
    """A sentence between its own place and a square of N nodes at ``there[at:]``.

    A word beyond its end hangs on word 1, with weight 1, and nothing hangs on it.
    """
    size = n_nodes[b]
    for h in range(size):
        own = start[b] + h * size
        if into:
            for m in range(size):
                there[at + h * n + m] = scores[own + m]
            for m in range(size, n):
                there[at + h * n + m] = 0.0 if h == 1 else -np.inf
        else:
            for m in range(size):
                mu[own + m] = there[at + h * n + m]
    if into:
        for i in range(at + size * n, at + n * n):
            there[i] = -np.inf


@jit
def abreast(single_root, n_nodes, start, order, scores, mu, log_z):
    """Part of ``minfer.kernels.trees.batch_marginals``: log Z stays NaN where one by one is better.

    ``order`` i8 (B,) lists the sentences by length.
    """
    count = order.shape[0]
    most = 0
    for i in range(count):
        if n_nodes[i] <= MOST_NODES:
            most = max(most, n_nodes[i])
    most = max(most, LANES)
    size = LANES * most * most
    work = _aligned(2 * size + 4 * LANES * most)
    more = work[:0]  # for sums_abreast
    squares = work[:0]  # for sentences that are filled up
    which = np.empty(LANES, np.int64)
    at = np.empty(LANES, np.int64)
    swap = np.empty(LANES, np.int64)
    frame = np.empty((MAX_HALVINGS, 3), np.int64)
    out = np.empty(3 * LANES, np.float64)
    floor = ONE_ROOT if single_root else TINY
    skip = 0
    for first in range(0, count, LANES):
        past = min(first + LANES, count)
        n = n_nodes[order[past - 1]]
        if past - first < FEWEST or n > MOST_NODES:
            break
        whole = past - first == LANES and n_nodes[order[first]] == n and n >= LANES
        n = max(n, LANES)
        for lane in range(LANES):
            which[lane] = order[min(first + lane, past - 1)]
            at[lane] = start[which[lane]] if whole else lane * n * n
        source = scores
        target = mu
        if not whole:
            if squares.size == 0:
                squares = _aligned(2 * size)
            source = squares[:size]
            target = squares[size:]
            for lane in range(LANES):
                _pack(which[lane], n, n_nodes, start, scores, mu, at[lane], source, True)
        bad = LANES
        if skip == 0:
            inverse_abreast(single_root, source, at, n, swap, target, out, work)
            bad = 0
            for lane in range(LANES):
                if TINY <= out[lane] < 1.0 / TINY and out[2 * LANES + lane] <= LARGE_INVERSE:
                    log_z[which[lane]] = out[LANES + lane] + np.log(out[lane])
                else:
                    bad += 1
            skip = RETRY if bad >= FEWEST else 0
        else:
            skip -= 1
        if bad >= FEWEST:
            if more.size == 0:
                layers = 2
                while 1 << (layers - 2) < most:
                    layers += 1
                more = _aligned((3 + layers) * size + (4 * most + MAX_HALVINGS) * LANES)
            sums_abreast(single_root, source, at, n, swap, target, out, more, frame)
            for lane in range(LANES):
                known = floor <= out[lane] < 1.0 / TINY
                log_z[which[lane]] = out[LANES + lane] + np.log(out[lane]) if known else np.nan
        if not whole:
            for lane in range(LANES):
                _pack(which[lane], n, n_nodes, start, scores, mu, at[lane], target, False)
