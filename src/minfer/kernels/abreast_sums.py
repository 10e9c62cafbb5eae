"""Sums over the trees of many sentences at once, without a subtraction.

``minfer.kernels.nonprojective.nonprojective`` with a sentence in each lane; see
``minfer.kernels.abreast`` for lanes and layout.
"""

from __future__ import annotations

from minfer.kernels._jit import jit
from minfer.kernels.abreast_weights import weights, write
from minfer.kernels.lanes import choose, lanes_of, load, splat, store
from minfer.kernels.nonprojective import ONE_ROOT, SMALL_ROOT, TINY
from minfer.kernels.vexp import log_in_place

MAX_HALVINGS = 10


@jit
def _leave(x, k, lo, hi, n, f):
    """The shares f[k] of k's heads, lo .. hi - 1 and the root, in row k of ``x``; the pivot."""
    lanes = lanes_of(x)
    mine = k * n * lanes
    pivot = load(x, mine)
    for h in range(mine + lo * lanes, mine + hi * lanes, lanes):
        pivot = pivot + load(x, h)
    zero = splat(x, 0.0)
    inverse = choose(pivot, zero, 1.0 / pivot, zero)
    store(f, mine, load(x, mine) * inverse)
    for h in range(mine + lo * lanes, mine + hi * lanes, lanes):
        store(f, h, load(x, h) * inverse)
    return pivot


@jit
def _hang(x, y, m, k, lo, hi, n, f):
    """What hangs on k in row m hangs on k's heads, from ``x`` to ``y``."""
    lanes = lanes_of(x)
    at = m * n * lanes
    mine = k * n * lanes
    c = load(x, at + k * lanes)
    store(y, at, load(x, at) + c * load(f, mine))
    for h in range(lo * lanes, hi * lanes, lanes):
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
    lanes = lanes_of(x)
    row = n * lanes
    product = splat(x, 1.0)
    now = x
    for i in range(4):
        j = k + i * step
        a = lo if step < 0 else j + 1
        b = j if step < 0 else hi
        product = product * _leave(now, j, a, b, n, f)
        for other in range(i + 1, 4):
            _hang(now, y, k + other * step, j, a, b, n, f)
        now = y
    k0, k1, k2, k3 = k * lanes, (k + step) * lanes, (k + 2 * step) * lanes, (k + 3 * step) * lanes
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
            for h in range(lo * lanes, hi * lanes, lanes):
                c0, c1, c2, c3 = load(f, f0 + h), load(f, f1 + h), load(f, f2 + h), load(f, f3 + h)
                store(y, p + h, load(x, p + h) + p0 * c0 + p1 * c1 + p2 * c2 + p3 * c3)
                store(y, q + h, load(x, q + h) + q0 * c0 + q1 * c1 + q2 * c2 + q3 * c3)
        else:
            for h in range(lo * lanes, hi * lanes, lanes):
                c0, c1, c2, c3 = load(f, f0 + h), load(f, f1 + h), load(f, f2 + h), load(f, f3 + h)
                store(y, p + h, load(x, p + h) + p0 * c0 + p1 * c1 + p2 * c2 + p3 * c3)
        m += 2
    return product


@jit
def _substitute(f, k, lo, hi, first, past, n, e):
    """e[m, k] for words m from ``first`` on: k's shares of e[m, h], h from lo to hi - 1."""
    lanes = lanes_of(f)
    row = n * lanes
    mine = k * row
    root = load(f, mine)
    m = first
    while m + 4 <= past:
        at = m * row
        s0, s1, s2, s3 = root, root, root, root
        for h in range(lo * lanes, hi * lanes, lanes):
            c = load(f, mine + h)
            s0 = s0 + c * load(e, at + h)
            s1 = s1 + c * load(e, at + row + h)
            s2 = s2 + c * load(e, at + 2 * row + h)
            s3 = s3 + c * load(e, at + 3 * row + h)
        at += k * lanes
        store(e, at, s0)
        store(e, at + row, s1)
        store(e, at + 2 * row, s2)
        store(e, at + 3 * row, s3)
        m += 4
    while m < past:
        s0 = root
        for h in range(lo * lanes, hi * lanes, lanes):
            s0 = s0 + load(f, mine + h) * load(e, m * row + h)
        store(e, m * row + k * lanes, s0)
        m += 1


@jit
def sums_abreast(single_root, scores, start, n, swap, mu, log_z, work, frame):
    """``nonprojective`` of L sentences, in float64; arguments as of ``inverse_abreast``.

    e[m, h] is the chance that the walk from h along heads ends in the root and not in m.
    """
    lanes = lanes_of(work)
    at = swap[lanes:]
    row = n * lanes
    size = n * row
    t = SMALL_ROOT if single_root else 1.0
    w = work[:size]
    f = work[size : 2 * size]
    e = work[2 * size : 3 * size]
    rows = work[3 * size : 3 * size + 4 * row]
    product = work[3 * size + 4 * row : 3 * size + 4 * row + MAX_HALVINGS * lanes]
    layers = work[3 * size + 4 * row + MAX_HALVINGS * lanes :]
    b = layers[:size]
    weights(single_root, scores, start, n, swap, w, b, rows, at, log_z)
    scale = rows[:row]
    gain = rows[row : 2 * row]
    logs = rows[2 * row : 3 * row]
    zero = splat(w, 0.0)
    for m in range(1, n):  # a word's weights sum to 1
        total = zero
        for h in range(m * row, m * row + row, lanes):
            total = total + load(b, h)
        store(logs, m * lanes, total)
        total = choose(total, zero, 1.0 / total, zero)
        for h in range(m * row, m * row + row, lanes):
            store(b, h, load(b, h) * total)
        store(b, m * row, load(b, m * row) * t)
        store(scale, m * lanes, total)
    store(product, 0, splat(w, 1.0))
    depth = 0
    frame[0, 0] = 1  # first word
    frame[0, 1] = n  # past the last
    frame[0, 2] = 0  # halves done
    z = splat(w, 0.0)
    while depth >= 0:
        lo = frame[depth, 0]
        hi = frame[depth, 1]
        done = frame[depth, 2]
        x = layers[depth * size : (depth + 1) * size]
        if hi - lo == 1:
            store(e, lo * (row + lanes), splat(w, 0.0))
            store(gain, lo * lanes, load(product, depth * lanes))
            z = load(product, depth * lanes) * load(x, lo * row)
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
        p = load(product, depth * lanes)
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
        store(product, depth * lanes, p)
        frame[depth, 0] = lo
        frame[depth, 1] = hi
        frame[depth, 2] = 0
    inverse = 1.0 / z
    for m in range(1, n):
        g = 0.0 - load(gain, m * lanes) * inverse * load(scale, m * lanes)
        store(b, m * lanes, g * t)
        for h in range(1, n):
            store(b, h * row + m * lanes, g * load(e, m * row + h * lanes))
    for m in range(0, row, lanes):
        store(b, m * n, zero)
        store(scale, m, zero)
    known = choose(z, splat(z, ONE_ROOT * t if single_root else TINY), z * (1.0 / t), zero)
    store(logs, 0, choose(splat(z, 1.0 / TINY), known, known, zero))
    log_in_place(logs)
    for i in range(0, row, lanes):
        for lane in range(lanes):
            log_z[lane] += logs[i + lane]
    write(w, b, scale, scale, start, n, swap, rows[3 * row :], at, mu, log_z)
