"""Sentences into lanes as weights, and probabilities out: see
``minfer.kernels.trees.tree_lanes``.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels.arithmetic.lanes import (
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
from minfer.kernels.compiling.jit import jit

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
def weights(single_root, scores, start, n, swap, w, b, rows, at, log_scale):
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
def write(w, b, diagonal, root, start, n, swap, line, at, mu, log_z):
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
