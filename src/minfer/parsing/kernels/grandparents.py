"""Exact marginals of projective grandparent models, model 0 of Koo & Collins (2010), O(n^4).

Notation as in ``minfer.kernels.trees.trees``, but the arc (h, m) has a weight v[h, m, g] for each
head g of h, 0 where g lies between the two or is one of them; the root's arcs have v[0, m, 0]
alone. Spans know the head of their head.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels.arithmetic.vexp import exp_in_place
from minfer.kernels.compiling.jit import jit
from minfer.kernels.trees.trees import SPREAD, root_scale, scale_of


@jit(fastmath={"reassoc", "contract"})
def add_times(out, row, x):
    for g in range(out.shape[0]):
        out[g] += row[g] * x


@jit(fastmath={"reassoc", "contract"})
def multiply(out, a, b):
    for g in range(out.shape[0]):
        out[g] = a[g] * b[g]


@jit(fastmath={"reassoc", "contract"})
def dot(a, b):
    total = 0.0
    for g in range(a.shape[0]):
        total += a[g] * b[g]
    return total


@jit
def grandparents(v, single_root, mu, cubes, opened):
    """Z; ``mu`` (N, N) gets w dZ/dw of every arc, Z times its probability.

    ``v`` (N, N, G) with zeros from N on; ``cubes`` (4, N, N, G) of zeros and ``opened`` (G,) are
    scratch. A span ``i .. j`` has two: the head h is i on side 0 and j on side 1, e the other end.
    """
    n = v.shape[0]
    c, inc = cubes[0], cubes[1]  # [h, e, g]: complete; [h, m, g]: closed by the arc
    dc, dinc = cubes[2], cubes[3]  # derivatives
    last = n - 1
    lo = 1 if single_root else 0
    for i in range(last, lo - 1, -1):
        c[i, i, :] = 1.0
        for j in range(i + 1, n):
            for side in range(2 if i > 0 else 1):
                h, e = (i, j) if side == 0 else (j, i)
                opened[:] = 0.0
                for k in range(i, j):
                    add_times(opened, c[h, k + side], c[e, k + 1 - side, h])
                multiply(inc[h, e], v[h, e], opened)
                for k in range(i, j):
                    m = k + 1 - side
                    add_times(c[h, e], inc[h, m], c[m, e, h])
    z = 0.0
    if single_root:
        for m in range(1, n):
            left, right = c[m, 1, 0], c[m, last, 0]
            mu[0, m] = v[0, m, 0] * left * right
            z += mu[0, m]
            dc[m, 1, 0] += v[0, m, 0] * right
            dc[m, last, 0] += v[0, m, 0] * left
    else:
        z = c[0, last, 0]
        dc[0, last, 0] = 1.0
    for i in range(lo, n):
        for j in range(last, i, -1):
            for side in range(2 if i > 0 else 1):
                h, e = (i, j) if side == 0 else (j, i)
                for k in range(i, j):
                    m = k + 1 - side
                    dc[m, e, h] += dot(dc[h, e], inc[h, m])
                    add_times(dinc[h, m], dc[h, e], c[m, e, h])
                mu[h, e] = dot(inc[h, e], dinc[h, e])
                multiply(opened, dinc[h, e], v[h, e])
                for k in range(i, j):
                    own, its = k + side, k + 1 - side
                    dc[e, its, h] += dot(opened, c[h, own])
                    add_times(dc[h, own], opened, c[e, its, h])
    return z


@jit
def grandparent_marginals(arcs, pairs, single_root, mu):
    """Arc probabilities ``mu`` (N, N) and log Z of a projective grandparent model.

    ``arcs`` (N, N) [h, m] and ``pairs`` (N, N, N) [g, h, m] are scores. Returns log Z, and Z as the
    linear chart had it: if that is out of range, the answer is not to be used.
    """
    n = arcs.shape[0]
    width = (n + 3) // 4 * 4  # of the grandparents: whole vectors
    v = np.full((n, n, width), -np.inf)
    best = np.full((n, n), -np.inf)  # [m, h]: the most that h can give
    others = np.full(n, -np.inf)  # the most that a word can give
    for h in range(1, n):
        for m in range(1, n):
            low, high = min(h, m), max(h, m)
            for g in range(n if h != m else 0):
                if g < low or g > high:
                    v[h, m, g] = arcs[h, m] + pairs[g, h, m]
                    best[m, h] = max(best[m, h], v[h, m, g])
            others[m] = max(others[m], best[m, h])
    v[0, 1:, 0] = arcs[0, 1:]
    base = root_scale(arcs[0], others) if single_root else 0.0
    words = np.arange(n)
    for m in range(1, n):
        v[0, m, 0] -= base
        best[m, 0] = v[0, m, 0]
        others[m] = scale_of(best[m], words, 0, n, SPREAD)
    for h in range(n):
        for m in range(1, n):
            for g in range(n):
                v[h, m, g] -= others[m]
    base += others[1:].sum()
    exp_in_place(v.reshape(n * n * width))
    mu[:, :] = 0.0
    z = grandparents(v, single_root, mu, np.zeros((4, n, n, width)), np.empty(width))
    for h in range(n):
        for m in range(n):
            mu[h, m] = min(mu[h, m] / z, 1.0)
    return base + np.log(z), z
