"""Expected draws of the causes of a noisy gate, row by row (:mod:`minfer.learn.gates`)."""

from __future__ import annotations

import math

import numpy as np

from minfer.kernels.compiling.jit import jit


@jit
def expected_draws(x, y, weight, first, q, counts):
    """Add to ``counts`` what the causes and the leak are expected to have drawn; answers
    log P(y | x), minus infinity where a row is impossible.

    ``x`` int32 (N, P) has the states of the parents, ``y`` (N,) the levels of the child, ``weight``
    (N,); rows of ``q`` and ``counts``, (R, S), are by parent and state, parent i from ``first[i]``
    on; the last one is the leak's. Levels above y are of no use, so what is carried along is scaled
    by those that are. A parent in a state that is certain to draw no effect changes nothing.
    """
    n_parents, size = x.shape[1], q.shape[1]
    leak = q.shape[0] - 1
    ahead = np.empty((n_parents + 1, size))
    behind, then = np.empty(size), np.empty(size)
    acting = np.empty(n_parents, np.int64)  # rows of the parents that may have an effect
    likelihood = 0.0
    for r in range(x.shape[0]):
        top, scale = y[r], 0.0
        for s in range(top + 1):
            ahead[0, s] = q[leak, s]
        n = 0
        for i in range(n_parents):
            row = first[i] + x[r, i]
            if q[row, 0] == 1.0:
                counts[row, 0] += weight[r]
            else:
                acting[n] = row
                n += 1
        for i in range(n):
            row = acting[i]
            below, before, most = 0.0, 0.0, 0.0
            for s in range(top + 1):
                below += q[row, s]
                value = ahead[i, s] * below + before * q[row, s]
                before += ahead[i, s]
                ahead[i + 1, s] = value
                most = max(most, value)
            if most > 0.0:
                for s in range(top + 1):
                    ahead[i + 1, s] /= most
                scale += math.log(most)
        if not ahead[n, top] > 0.0:
            return -np.inf
        likelihood += weight[r] * (math.log(ahead[n, top]) + scale)
        behind[:] = 0.0
        behind[top] = 1.0
        for i in range(n - 1, -2, -1):
            row = acting[i] if i >= 0 else leak
            # from above: what stays where it is as it is higher than this draw
            stays, total = 0.0, 0.0
            for s in range(top, -1, -1):
                before = 0.0
                if i >= 0:
                    for t in range(s + 1):
                        before += ahead[i, t]
                else:
                    before = 1.0
                then[s] = q[row, s] * (before * behind[s] + stays)
                total += then[s]
                if i >= 0:
                    stays += ahead[i, s] * behind[s]
            for s in range(top + 1):
                counts[row, s] += weight[r] * then[s] / total
            if i < 0:
                break
            below = 0.0
            for s in range(top + 1):
                below += q[row, s]
                then[s] = below
            more, most = 0.0, 0.0
            for s in range(top, -1, -1):
                here = behind[s]
                behind[s] = here * then[s] + more
                more += here * q[row, s]
                most = max(most, behind[s])
            for s in range(top + 1):
                behind[s] /= most
    return likelihood
