"""Arc probabilities of many sentences at once under the matrix-tree theorem.

What ``minfer.kernels.trees.nonprojective`` does for one sentence (the formulas stand there), with a
sentence in each of the L lanes of a vector, 8 in float64 and 16 in float32. They have the same
number N >= L of nodes; a shorter one is filled up. Matrices have entry [i, j] of lane l at
``(i * N + j) * L + l``.

``inverse_in_lanes`` inverts Laplacians and tells where the answer is not safe: those sentences are
left to the kernels for one.

For a single root its favourite comes last: it changes places with word N - 1 in its own lane,
``swap``. In float32 weights below 7e-13 count as 0. That changes entries of the inverse by about as
much times their square, which ``LARGE_INVERSE_32`` bounds.

Laplacians are inverted without a subtraction. With b[m, h] = w[h, m] off the diagonal a
Gauss-Jordan step for word k is

    p = sum of b[k, h] over the heads not yet eliminated, and the root
    b[k, h] /= p,  b[k, k] = 1 / p,  then for all m:  b[m, h] += b[m, k] b[k, h],  b[m, k] /= p

and nothing is ever subtracted until w[h, m] (L^-1[m, m] - L^-1[h, m]). For a single root the column
of its favourite has the root's weights.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels.arithmetic.lanes import (
    aligned,
    bounded,
    exp,
    lanes_of,
    larger,
    load,
    load_as,
    rows_into_lanes,
    rows_out_of_lanes,
    splat,
    store,
)
from minfer.kernels.arithmetic.vexp import log_in_place
from minfer.kernels.compiling.jit import jit
from minfer.kernels.trees.nonprojective import LARGE_INVERSE

MOST_NODES = 256  # beyond, one sentence fills the cache, and several of them much memory
FEWEST = 2  # fewer sentences are faster one by one
RETRY = 8  # after a group with unsafe ones, the inverse is not tried for so many groups
LARGE_INVERSE_32 = 16.0  # probabilities from a float32 inverse below this are good to about 1e-5
LONG = 25  # words; with more of them inverses must be smaller
FAR = 1e9  # scores of this size leave no digits to those of others


@jit
def _rows(start, swap, h, n, at):
    """``at``: where the row of the word at place h begins in each sentence."""
    for lane in range(at.shape[0]):
        word = h
        if h == n - 1:
            word = swap[lane]
        elif h == swap[lane]:
            word = n - 1
        at[lane] = start[lane] + word * n


@jit
def _swap_columns(line, swap, n):
    lanes = lanes_of(line)
    for lane in range(lanes):
        i = swap[lane] * lanes + lane
        j = (n - 1) * lanes + lane
        line[i], line[j] = line[j], line[i]


@jit
def _best_heads(scores, start, n, first, rows, at, top):
    """The best score of each word's heads from ``first`` on, into lanes; ``rows`` is scratch."""
    lanes = lanes_of(top)
    mask = rows[: 2 * n + lanes]
    best = rows[2 * n + lanes :]
    for m in range(2 * n + lanes):
        mask[m] = 0.0
    mask[n] = -np.inf  # meets the diagonal, whatever is there
    for lane in range(lanes):
        at[lane] = lane * n
        for block in range(0, n, lanes):
            m = min(block, n - lanes)  # the last one overlaps
            here = start[lane] + m
            t = splat(top, -np.inf)
            u = t
            for h in range(first, n - 1, 2):
                t = larger(load_as(top, scores, here + h * n) + load(mask, n - h + m), t)
                u = larger(load_as(top, scores, here + h * n + n) + load(mask, n - h - 1 + m), u)
            t = larger(load_as(top, scores, here + (n - 1) * n) + load(mask, 1 + m), t)
            store(best, lane * n + m, larger(t, u))
    for block in range(0, n, lanes):
        rows_into_lanes(best, at, min(block, n - lanes), top)


@jit
def _weights(single_root, scores, start, n, swap, w, b, rows, at, log_scale):
    """Weights of which a word's best head has 1: ``w`` [head, modifier], ``b`` [modifier, head].

    A single root counts apart: all but one word have another head, and its best arc has weight 1.
    ``swap`` gets its modifier, and ``log_scale`` f8 (L,) the log of what was divided. That is minus
    infinity if a word has no head, or none but a single root, or scores too large to subtract.
    ``rows`` (4 N L) is scratch.
    """
    lanes = lanes_of(w)
    row = n * lanes
    top = rows[:row]
    line = rows[row : 2 * row]
    none = splat(w, -np.inf)
    _best_heads(scores, start, n, 1 if single_root else 0, rows[row:], at, top)
    root = rows[2 * row : 3 * row]
    for lane in range(lanes):
        log_scale[lane] = 0.0
        swap[lane] = n - 1
        for m in range(1, n):
            x = np.float64(top[m * lanes + lane])
            log_scale[lane] += x if abs(x) < FAR else -np.inf
        if single_root:
            best = -np.inf
            for m in range(1, n):
                x = np.float64(scores[start[lane] + m]) - top[m * lanes + lane]
                if x > best:
                    best = x
                    swap[lane] = m
            log_scale[lane] += best if abs(best) < FAR else -np.inf
            for m in range(1, n):
                x = np.float64(scores[start[lane] + m]) - top[m * lanes + lane]
                root[m * lanes + lane] = x - best
    _swap_columns(top, swap, n)
    _swap_columns(root, swap, n)
    for h in range(n):
        _rows(start, swap, h, n, at)
        for block in range(0, n, lanes):
            rows_into_lanes(scores, at, min(block, n - lanes), line)
        _swap_columns(line, swap, n)
        store(line, h * lanes, none)
        store(w, h * row, splat(w, 0.0))
        apart = single_root and h == 0
        for m in range(lanes, row, lanes):
            x = exp(load(root, m) if apart else load(line, m) - load(top, m))
            store(w, h * row + m, x)
            store(b, m * n + h * lanes, x)


@jit
def _write(w, b, diagonal, root, start, n, swap, line, at, mu, log_z):
    """mu[h, m] = w[h, m] (diagonal[m] - b[h, m] + b[h, 0] root[m]) out of lanes.

    log Z becomes minus infinity where these do not add up to one head for each word: a last net.
    """
    lanes = lanes_of(w)
    last = n - 1
    total = splat(w, 0.0)
    for h in range(n):
        row = h * n * lanes
        c = load(b, row)
        for m in range(0, n * lanes, lanes):
            d = load(diagonal, m) - load(b, row + m) + c * load(root, m)
            x = bounded(load(w, row + m) * d)
            total = total + x
            store(line, m, x)
        _rows(start, swap, h, n, at)
        for block in range(0, n, lanes):
            rows_out_of_lanes(mu, at, min(block, n - lanes), line)
    for lane in range(lanes):
        s = swap[lane]
        if s != last:
            for row in range(start[lane], start[lane] + n * n, n):
                mu[row + s], mu[row + last] = mu[row + last], mu[row + s]
    store(line, 0, total)
    for lane in range(lanes):
        if not abs(line[lane] - last) < 1e-3 * n:
            log_z[lane] = -np.inf


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
def inverse_in_lanes(single_root, scores, start, n, swap, mu, log_z, danger, work, logs):
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
    _weights(single_root, scores, start, n, swap, w, b, rows, at, log_z)
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
    _write(w, b, diagonal, root, start, n, swap, rows[3 * row :], at, mu, log_z)


@jit
def _square(size, n, source, at, target, to):
    """A sentence of ``size`` nodes at ``source[at:]`` as one of n at ``target[to:]``.

    A word beyond its end hangs on word 1, with weight 1, and nothing hangs on it.
    """
    for h in range(size):
        for m in range(size):
            target[to + h * n + m] = source[at + h * size + m]
        for m in range(size, n):
            target[to + h * n + m] = 0.0 if h == 1 else -np.inf
    for i in range(to + size * n, to + n * n):
        target[i] = -np.inf


@jit
def marginals_in_lanes(single_root, n_nodes, start, order, scores, mu, log_z, like):
    """``batch_marginals`` of ``minfer.kernels.trees.trees``, as far as it is faster abreast.

    log Z is left alone for the other sentences. The float type of ``like`` is that of the work.
    """
    lanes = lanes_of(like)
    in_single = lanes > 8
    count = order.shape[0]
    most = lanes
    for i in range(count):
        if n_nodes[order[i]] <= MOST_NODES:
            most = max(most, n_nodes[order[i]])
    size = lanes * most * most
    work = aligned(2 * size + 4 * lanes * most, like)
    squares = scores[:0]  # for sentences that are filled up
    which = np.empty(lanes, np.int64)
    at = np.empty(lanes, np.int64)
    swap = np.empty(2 * lanes, np.int64)
    found = np.empty(lanes, np.float64)
    danger = np.empty(lanes, np.float64)
    logs = np.empty(lanes * (most // 4 + 5), np.float64)
    largest = LARGE_INVERSE_32 if in_single else LARGE_INVERSE
    skip = 0
    for first in range(0, count, lanes):
        past = min(first + lanes, count)
        n = n_nodes[order[past - 1]]
        if past - first < FEWEST or n > MOST_NODES:
            break
        if in_single and n < lanes:
            continue  # filling up to 16 nodes costs more than float32 saves
        if skip > 0:
            skip -= 1
            continue
        whole = past - first == lanes and n_nodes[order[first]] == n and n >= lanes
        n = max(n, lanes)
        for lane in range(lanes):
            which[lane] = order[min(first + lane, past - 1)]
            at[lane] = start[which[lane]] if whole else lane * n * n
        source = scores
        target = mu
        if not whole:
            if squares.size == 0:
                squares = aligned(2 * size, scores)
            source = squares[:size]
            target = squares[size:]
            for lane in range(lanes):
                b = which[lane]
                _square(n_nodes[b], n, scores, start[b], source, at[lane])
        inverse_in_lanes(single_root, source, at, n, swap, target, found, danger, work, logs)
        limit = largest * min(1.0, LONG / n)
        bad = 0
        for lane in range(lanes):
            if found[lane] > -np.inf and danger[lane] <= limit:
                log_z[which[lane]] = found[lane]
            else:
                bad += 1
        skip = RETRY if bad >= lanes // 2 else 0  # so many unsafe ones do not pay
        if not whole:
            for lane in range(lanes):
                b = which[lane]
                for h in range(n_nodes[b]):
                    for m in range(n_nodes[b]):
                        mu[start[b] + h * n_nodes[b] + m] = target[at[lane] + h * n + m]
