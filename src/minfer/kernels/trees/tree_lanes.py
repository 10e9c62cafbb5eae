"""Arc probabilities of many sentences at once under the matrix-tree theorem.

What ``minfer.kernels.trees.nonprojective`` does for one sentence (the formulas stand there), with a
sentence in each of the L lanes of a vector, 8 in float64 and 16 in float32. They have the same
number N >= L of nodes; a shorter one is filled up. Matrices have entry [i, j] of lane l at
``(i * N + j) * L + l``.

``inverse_abreast`` inverts Laplacians and tells where the answer is not safe: those sentences are
left to the kernels for one.

For a single root its favourite comes last: it changes places with word N - 1 in its own lane,
``swap``. In float32 weights below 7e-13 count as 0. That changes entries of the inverse by about as
much times their square, which ``LARGE_INVERSE_32`` bounds.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels.arithmetic.lanes import aligned, lanes_of
from minfer.kernels.compiling.jit import jit
from minfer.kernels.trees.nonprojective import LARGE_INVERSE
from minfer.kernels.trees.tree_lanes_inverse import inverse_abreast

MOST_NODES = 256  # beyond, one sentence fills the cache, and several of them much memory
FEWEST = 2  # fewer sentences are faster one by one
RETRY = 8  # after a group with unsafe ones, the inverse is not tried for so many groups
LARGE_INVERSE_32 = 16.0  # probabilities from a float32 inverse below this are good to about 1e-5
LONG = 25  # words; with more of them inverses must be smaller


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
def abreast(single_root, n_nodes, start, order, scores, mu, log_z, like):
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
        inverse_abreast(single_root, source, at, n, swap, target, found, danger, work, logs)
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
