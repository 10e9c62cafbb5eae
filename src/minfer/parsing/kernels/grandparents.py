"""Exact marginals of projective grandparent models, model 0 of Koo & Collins (2010).

Notation as in ``minfer.kernels.trees``, but the arc (h, m) has a weight for each head g of h.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels._jit import jit
from minfer.kernels.trees import SPREAD, root_scale, scale_of
from minfer.kernels.vexp import exp_in_place


@jit(fastmath={"reassoc", "contract"})
def grandparents(root, v, single_root, mu, work):
    """Z of projective trees whose arcs (h, m) weigh v[h, m, g], g the head of h.

    Model 0 of Koo & Collins 2010, O(n^4): spans know the head of their head. ``root`` (N,) are the
    weights of the arcs out of 0; ``v`` (N, N, N) is 0 where g lies in the span of the arc. ``mu``
    (N, N) gets w dZ/dw of every arc, Z times its probability. ``work``: 4 N^3 + 4 N floats.
    """
    n = v.shape[0]
    cube = n * n * n
    c = work[:cube].reshape(n, n, n)  # [h, e, g]: complete, head h with head g, from h to e
    inc = work[cube : 2 * cube].reshape(n, n, n)  # [h, m, g]
    ac = work[2 * cube : 3 * cube].reshape(n, n, n)  # derivatives
    ainc = work[3 * cube : 4 * cube].reshape(n, n, n)
    opened = work[4 * cube : 4 * cube + n]
    opened2 = work[4 * cube + n : 4 * cube + 2 * n]
    last = n - 1
    for i in range(last, 0, -1):
        for g in range(n):
            c[i, i, g] = 1.0
        for j in range(i + 1, n):
            cij = c[i, j]
            cji = c[j, i]
            for g in range(n):
                opened[g] = 0.0
                opened2[g] = 0.0
                cij[g] = 0.0
                cji[g] = 0.0
            for k in range(i, j):
                cik = c[i, k]
                cjk = c[j, k + 1]
                x = cjk[i]
                y = cik[j]
                for g in range(n):
                    opened[g] += cik[g] * x
                    opened2[g] += cjk[g] * y
            vij = v[i, j]
            vji = v[j, i]
            right = inc[i, j]
            left = inc[j, i]
            for g in range(n):
                right[g] = vij[g] * opened[g]
                left[g] = vji[g] * opened2[g]
            for k in range(i, j):
                right = inc[i, k + 1]
                left = inc[j, k]
                x = c[k + 1, j, i]
                y = c[k, i, j]
                for g in range(n):
                    cij[g] += right[g] * x
                    cji[g] += left[g] * y
    for i in range(1, n):
        for j in range(1, n):
            a = ac[i, j]
            b = ainc[i, j]
            for g in range(n):
                a[g] = 0.0
                b[g] = 0.0
    z = 0.0
    if single_root:
        for m in range(1, n):
            left_ = c[m, 1, 0]
            right_ = c[m, last, 0]
            mu[0, m] = root[m] * left_ * right_
            z += mu[0, m]
        for m in range(1, n):
            ac[m, 1, 0] += root[m] * c[m, last, 0]
            ac[m, last, 0] += root[m] * c[m, 1, 0]
    else:
        chain = opened  # chain[e]: all words up to e
        arcs = opened2
        chain[0] = 1.0
        for e in range(1, n):
            s = 0.0
            for k in range(e):
                s += chain[k] * c[e, k + 1, 0]
            arcs[e] = root[e] * s
            s = 0.0
            for m in range(1, e + 1):
                s += arcs[m] * c[m, e, 0]
            chain[e] = s
        z = chain[last]
        achain = work[4 * cube + 2 * n : 4 * cube + 3 * n]
        aarcs = work[4 * cube + 3 * n : 4 * cube + 4 * n]
        for e in range(n):
            achain[e] = 0.0
            aarcs[e] = 0.0
        achain[last] = 1.0
        for e in range(last, 0, -1):
            for m in range(1, e + 1):
                aarcs[m] += achain[e] * c[m, e, 0]
                ac[m, e, 0] += achain[e] * arcs[m]
            mu[0, e] = aarcs[e] * arcs[e]
            a_ = aarcs[e] * root[e]
            for k in range(e):
                achain[k] += a_ * c[e, k + 1, 0]
                ac[e, k + 1, 0] += a_ * chain[k]
    for i in range(1, n):
        for j in range(last, i, -1):
            a = ac[i, j]
            b = ac[j, i]
            for k in range(i, j):
                right = inc[i, k + 1]
                aright = ainc[i, k + 1]
                left = inc[j, k]
                aleft = ainc[j, k]
                x = c[k + 1, j, i]
                y = c[k, i, j]
                s = 0.0
                t = 0.0
                for g in range(n):
                    s += a[g] * right[g]
                    t += b[g] * left[g]
                for g in range(n):
                    aright[g] += a[g] * x
                    aleft[g] += b[g] * y
                ac[k + 1, j, i] += s
                ac[k, i, j] += t
            right = inc[i, j]
            aright = ainc[i, j]
            left = inc[j, i]
            aleft = ainc[j, i]
            vij = v[i, j]
            vji = v[j, i]
            s = 0.0
            t = 0.0
            for g in range(n):
                s += right[g] * aright[g]
                t += left[g] * aleft[g]
                opened[g] = aright[g] * vij[g]
                opened2[g] = aleft[g] * vji[g]
            mu[i, j] = s
            mu[j, i] = t
            for k in range(i, j):
                cik = c[i, k]
                cjk = c[j, k + 1]
                acik = ac[i, k]
                acjk = ac[j, k + 1]
                x = cjk[i]
                y = cik[j]
                s = 0.0
                t = 0.0
                for g in range(n):
                    s += opened[g] * cik[g]
                    t += opened2[g] * cjk[g]
                for g in range(n):
                    acik[g] += opened[g] * x
                    acjk[g] += opened2[g] * y
                acjk[i] += s
                acik[j] += t
    return z


@jit
def grandparent_marginals(arcs, pairs, single_root, mu):
    """Arc probabilities ``mu`` (N, N) and log Z of a projective grandparent model.

    ``arcs`` (N, N) [h, m] and ``pairs`` (N, N, N) [g, h, m] are scores. Returns log Z, and Z as the
    linear chart had it: if that is out of range, the answer is not to be used.
    """
    n = arcs.shape[0]
    v = np.empty((n, n, n))
    heads = np.full((n, n), -np.inf)  # [m, h]: the best that h can give
    for h in range(n):
        for m in range(n):
            vm = v[h, m]
            low = min(h, m)
            high = max(h, m)
            best = -np.inf
            for g in range(n):
                vm[g] = -np.inf
                if m > 0 and low > 0 and low != high and (g < low or g > high):
                    vm[g] = arcs[h, m] + pairs[g, h, m]
                    best = max(best, vm[g])
            if h == 0 and m > 0:
                best = arcs[0, m]
            heads[m, h] = best
    scale = np.zeros(n)
    words = np.arange(n)
    base = 0.0
    if single_root:
        others = np.full(n, -np.inf)
        for m in range(1, n):
            others[m] = heads[m, 1:].max()
        base = root_scale(heads[:, 0], others)
        heads[:, 0] -= base
    root = np.zeros(n)
    for m in range(1, n):
        scale[m] = scale_of(heads[m], words, 0, n, SPREAD)
        root[m] = np.exp(heads[m, 0] - scale[m])
        base += scale[m]
    for h in range(n):
        for m in range(n):
            vm = v[h, m]
            for g in range(n):
                vm[g] -= scale[m]
    exp_in_place(v.reshape(n * n * n))
    mu[:, :] = 0.0
    z = grandparents(root, v, single_root, mu, np.empty(4 * n * n * n + 4 * n))
    inverse = 1.0 / z
    for h in range(n):
        for m in range(n):
            mu[h, m] = min(mu[h, m] * inverse, 1.0)
    return base + np.log(z), z
