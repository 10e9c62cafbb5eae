"""Laplacians of many sentences inverted at once: see ``minfer.kernels.trees.tree_lanes``.

With b[m, h] = w[h, m] off the diagonal a Gauss-Jordan step for word k is

    p = sum of b[k, h] over the heads not yet eliminated, and the root
    b[k, h] /= p,  b[k, k] = 1 / p,  then for all m:  b[m, h] += b[m, k] b[k, h],  b[m, k] /= p

and nothing is ever subtracted until w[h, m] (L^-1[m, m] - L^-1[h, m]). For a single root the column
of one word, the root's favourite, has the root's weights; that word comes last.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels.arithmetic.lanes import lanes_of, larger, load, splat, store
from minfer.kernels.arithmetic.vexp import log_in_place
from minfer.kernels.compiling.jit import jit
from minfer.kernels.trees.tree_lanes_weights import weights, write


@jit
def _take(b, at):
    """An entry, and 0 in its place."""
    x = load(b, at)
    store(b, at, splat(x, 0.0))
    return x


@jit
def _step(b, n, k, single_root, first, past):
    """A Gauss-Jordan step for word k in rows ``first`` to ``past``; returns the pivot."""
    lanes = lanes_of(b)
    row = n * lanes
    mine = k * row
    column = k * lanes
    pivot = splat(b, 0.0) if single_root else load(b, mine)
    other = splat(b, 0.0)  # a second chain of sums
    for h in range(column + lanes, row - lanes, 2 * lanes):
        pivot = pivot + load(b, mine + h)
        other = other + load(b, mine + h + lanes)
    if (n - k) % 2 == 0:
        pivot = pivot + load(b, mine + row - lanes)
    pivot = pivot + other
    inverse = 1.0 / pivot
    store(b, mine + column, splat(b, 1.0))
    for h in range(0, row, lanes):
        store(b, mine + h, load(b, mine + h) * inverse)
    for m in range(first, past):
        if m != k:
            at = m * row
            c = _take(b, at + column)
            for h in range(0, row, lanes):
                store(b, at + h, load(b, at + h) + c * load(b, mine + h))
    return pivot


@jit
def _four_steps(b, n, k):
    """Four finished rows k to k + 3 into all other rows, two at a time."""
    lanes = lanes_of(b)
    two = 2 * lanes
    three = 3 * lanes
    row = n * lanes
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
        at = p + k * lanes
        p0, p1 = _take(b, at), _take(b, at + lanes)
        p2, p3 = _take(b, at + two), _take(b, at + three)
        if m + 1 < n and m + 1 != k:
            q = p + row
            at = q + k * lanes
            q0, q1 = _take(b, at), _take(b, at + lanes)
            q2, q3 = _take(b, at + two), _take(b, at + three)
            for h in range(0, row, lanes):
                c0, c1, c2, c3 = load(b, w + h), load(b, x + h), load(b, y + h), load(b, z + h)
                store(b, p + h, load(b, p + h) + p0 * c0 + p1 * c1 + p2 * c2 + p3 * c3)
                store(b, q + h, load(b, q + h) + q0 * c0 + q1 * c1 + q2 * c2 + q3 * c3)
            m += 2
        else:
            for h in range(0, row, lanes):
                c0, c1, c2, c3 = load(b, w + h), load(b, x + h), load(b, y + h), load(b, z + h)
                store(b, p + h, load(b, p + h) + p0 * c0 + p1 * c1 + p2 * c2 + p3 * c3)
            m += 1


@jit
def _invert(n, single_root, b, pivots):
    """All words, or all but the last for a single root; how many products ``pivots`` has got."""
    lanes = lanes_of(b)
    count = 0
    past = n - 1 if single_root else n
    k = 1
    while k + 4 <= past:
        product = _step(b, n, k, single_root, k, k + 4)
        for j in range(k + 1, k + 4):
            product = product * _step(b, n, j, single_root, k, k + 4)
        _four_steps(b, n, k)
        store(pivots, count * lanes, product)
        count += 1
        k += 4
    while k < past:
        store(pivots, count * lanes, _step(b, n, k, single_root, 1, n))
        count += 1
        k += 1
    return count


@jit
def inverse_abreast(single_root, scores, start, n, swap, mu, log_z, danger, work, logs):
    """``mu``, ``log_z`` f8 (L,) and ``danger`` f8 (L,) of L sentences.

    ``start`` i8 (L,): where a sentence's N x N entries begin in the flat ``scores`` and ``mu``,
    whose float type may be another than that of ``work``, the scratch; ``swap`` i8 (2 L,) and
    ``logs`` f8 are scratch, too. Rounding errors of ``mu`` are about the float type's epsilon times
    the danger, the largest entry of the inverse, NaN after an overflow; log Z is minus infinity
    where there is no tree or it could not be told.
    """
    lanes = lanes_of(work)
    at = swap[lanes:]
    last = n - 1
    row = n * lanes
    w = work[: n * row]
    b = work[n * row : 2 * n * row]
    rows = work[2 * n * row : 2 * n * row + 4 * row]
    weights(single_root, scores, start, n, swap, w, b, rows, at, log_z)
    diagonal = rows[:row]
    root = rows[row : 2 * row]
    pivots = rows[2 * row :]
    count = _invert(n, single_root, b, pivots)
    zero = splat(b, 0.0)
    largest = zero
    lost = zero  # NaN once a number is not finite
    end = last * lanes if single_root else row
    for m in range(0, row, lanes):
        x = load(b, m * n + m) if 0 < m < end else zero
        largest = larger(x, largest)
        lost = lost + (x - x)
        store(diagonal, m, x)
        store(root, m, zero)
        store(b, m, zero)
    if single_root:  # what _write needs for the root, the last word and the others
        t = last * row
        store(pivots, count * lanes, load(b, t))
        count += 1
        inverse = 1.0 / load(b, t)
        most = zero
        reach = zero
        store(b, 0, splat(b, 1.0))
        for m in range(lanes, end, lanes):
            x = load(b, t + m) * inverse
            c = load(b, m * n)
            most = larger(x, most)
            reach = larger(c, reach)
            lost = lost + (x - x) + (c - c)
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
    for i in range(count * lanes):
        logs[i] = pivots[i] if pivots[i] < np.inf else 0.0
    log_in_place(logs[: count * lanes])
    for i in range(0, count * lanes, lanes):
        for lane in range(lanes):
            log_z[lane] += logs[i + lane]
    store(pivots, 0, largest + lost)
    for lane in range(lanes):
        danger[lane] = pivots[lane]
    write(w, b, diagonal, root, start, n, swap, rows[3 * row :], at, mu, log_z)
