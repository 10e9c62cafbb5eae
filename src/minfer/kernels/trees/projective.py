"""Sums over projective dependency trees: the chart of Eisner (1996), inside and outside.

O(n^3), or O(n A + n^2) over A candidate arcs; the outside pass is the inside pass differentiated
backwards. Notation and scratch as in ``minfer.kernels.trees.trees``.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels.arithmetic.vexp import log_add, log_dot
from minfer.kernels.compiling.jit import jit


@jit(fastmath={"reassoc", "contract"})
def projective(w, single_root, d, work):
    """Z; ``d`` (N, N) is filled. ``w`` (N, N) [head, modifier]."""
    n = w.shape[0]
    size = n * n
    cr = work[:size].reshape(n, n)  # [i, j]: complete, head i, span i..j
    cl = work[size : 2 * size].reshape(n, n)  # [i, j] and [j, i]: complete, head j
    op = work[2 * size : 3 * size].reshape(n, n)  # [i, j]: two halves that an arc may join
    inc = work[3 * size : 4 * size].reshape(n, n)  # [h, m]: joined by the arc
    acr = work[4 * size : 5 * size].reshape(n, n)  # derivatives
    acl = work[5 * size : 6 * size].reshape(n, n)
    lo = 1 if single_root else 0
    last = n - 1
    for i in range(last, lo - 1, -1):
        cri = cr[i]
        cli = cl[i]
        for j in range(i, n):
            cri[j] = 0.0
            acr[i, j] = 0.0
        for j in range(n):
            acl[i, j] = 0.0
            d[i, j] = 0.0
        cri[i] = 1.0
        cli[i] = 1.0
        for j in range(i + 1, n):
            clj = cl[j]
            crj = cr[j]
            s = 0.0
            for k in range(i, j):
                s += cri[k] * clj[k + 1]
            op[i, j] = s
            right = w[i, j] * s
            inc[i, j] = right
            incj = inc[j]
            incj[i] = w[j, i] * s
            for k in range(j, n):
                cri[k] += right * crj[k]
            s = 0.0
            for k in range(i, j):
                s += cli[k] * incj[k]
            cli[j] = s
            clj[i] = s
    if single_root:
        z = 0.0
        for m in range(1, n):
            both = cl[1, m] * cr[m, last]
            d[0, m] = both
            z += w[0, m] * both
            acl[1, m] += w[0, m] * cr[m, last]
            acr[m, last] += w[0, m] * cl[1, m]
    else:
        z = cr[0, last]
        acr[0, last] = 1.0
    for i in range(lo, n):
        cri = cr[i]
        cli = cl[i]
        acri = acr[i]
        acli = acl[i]
        for j in range(last, i, -1):
            clj = cl[j]
            crj = cr[j]
            aclj = acl[j]
            acrj = acr[j]
            incj = inc[j]
            dj = d[j]
            a = acli[j] + aclj[i]
            for k in range(i, j):
                acli[k] += a * incj[k]
                dj[k] += a * cli[k]  # adjoint of the open left span k, j
            right = inc[i, j]
            s = 0.0
            for k in range(j, n):
                s += acri[k] * crj[k]
                acrj[k] += right * acri[k]
            a = s * w[i, j] + dj[i] * w[j, i]
            o = op[i, j]
            d[i, j] = s * o
            dj[i] *= o
            for k in range(i, j):
                acri[k] += a * clj[k + 1]
                aclj[k + 1] += a * cri[k]
    return z


@jit
def plan_arcs(heads, modifiers, n_nodes, plan):
    """How ``projective_sparse`` walks A candidate arcs; fills ``plan`` i4 (8, A + N + 1).

    Rows: 0 where the pairs of each left end begin; 1 the pairs' right ends, increasing; 2 and 3 the
    arcs of a pair to the right and to the left, or -1; 4 and 5 head and modifier of the arcs to the
    left, by head and then from right to left; 6 the place of an arc among these; 7 where each
    head's begin.
    """
    n_arcs = heads.shape[0]
    arc_at = np.full((n_nodes, n_nodes), -1, np.int32)
    for a in range(n_arcs):
        arc_at[heads[a], modifiers[a]] = a
        plan[6, a] = -1
    p = 0
    for i in range(n_nodes):
        plan[0, i] = p
        for j in range(i + 1, n_nodes):
            if arc_at[i, j] >= 0 or arc_at[j, i] >= 0:
                plan[1, p] = j
                plan[2, p] = arc_at[i, j]
                plan[3, p] = arc_at[j, i]
                p += 1
    plan[0, n_nodes] = p
    p = 0
    for j in range(n_nodes):
        plan[7, j] = p
        for k in range(j - 1, 0, -1):
            a = arc_at[j, k]
            if a >= 0:
                plan[4, p] = j
                plan[5, p] = k
                plan[6, a] = p
                p += 1
    plan[7, n_nodes] = p


@jit(fastmath={"reassoc", "contract"})
def projective_sparse(plan, w, n, single_root, d, work):
    """Z over candidate arcs only; ``w`` and ``d`` (A,), ``plan`` from ``plan_arcs``; n nodes."""
    size = n * n
    cr = work[:size].reshape(n, n)
    cl = work[size : 2 * size].reshape(n, n)  # symmetric
    acr = work[2 * size : 3 * size].reshape(n, n)
    acl = work[3 * size : 4 * size].reshape(n, n)
    n_arcs = w.shape[0]
    op = work[4 * size : 4 * size + n_arcs]  # by pair
    val = work[4 * size + n_arcs : 4 * size + 2 * n_arcs]
    aval = work[4 * size + 2 * n_arcs : 4 * size + 3 * n_arcs]
    start = plan[0]
    partner = plan[1]
    right_arc = plan[2]
    left_arc = plan[3]
    left_j = plan[4]
    left_k = plan[5]
    slot = plan[6]
    first = plan[7]
    n_left = first[n]
    lo = 1 if single_root else 0
    last = n - 1
    for p in range(n_left):
        val[p] = 0.0
        aval[p] = 0.0
    for q in range(2 * size, 4 * size):
        work[q] = 0.0
    for i in range(last, lo - 1, -1):
        cri = cr[i]
        cli = cl[i]
        for j in range(n):
            cri[j] = 0.0
            cli[j] = 0.0
        cri[i] = 1.0
        for p in range(start[i], start[i + 1]):
            j = partner[p]
            clj = cl[j]
            s = 0.0
            for k in range(i, j):
                s += cri[k] * clj[k + 1]
            op[p] = s
            a = right_arc[p]
            if a >= 0:
                right = w[a] * s
                crj = cr[j]
                for k in range(j, n):
                    cri[k] += right * crj[k]
            a = left_arc[p]
            if a >= 0:
                val[slot[a]] = w[a] * s
        cli[i] = 1.0
        for p in range(first[i + 1], n_left):
            cli[left_j[p]] += cli[left_k[p]] * val[p]
        for j in range(i + 1, n):
            cl[j, i] = cli[j]
    z = 0.0
    if single_root:
        for p in range(start[0], start[1]):
            m = partner[p]
            a = right_arc[p]
            both = cl[1, m] * cr[m, last]
            d[a] = both
            z += w[a] * both
            acl[1, m] = w[a] * cr[m, last]
            acr[m, last] = w[a] * cl[1, m]
    else:
        z = cr[0, last]
        acr[0, last] = 1.0
    for i in range(lo, n):
        cri = cr[i]
        cli = cl[i]
        acri = acr[i]
        acli = acl[i]
        for j in range(i + 1, n):
            acli[j] += acl[j, i]
        for p in range(n_left - 1, first[i + 1] - 1, -1):
            a_ = acli[left_j[p]]
            k = left_k[p]
            acli[k] += a_ * val[p]
            aval[p] += a_ * cli[k]
        for p in range(start[i + 1] - 1, start[i] - 1, -1):
            j = partner[p]
            clj = cl[j]
            aclj = acl[j]
            o = op[p]
            push = 0.0
            a = right_arc[p]
            if a >= 0:
                right = w[a] * o
                crj = cr[j]
                acrj = acr[j]
                s = 0.0
                for k in range(j, n):
                    s += acri[k] * crj[k]
                for k in range(j, n):
                    acrj[k] += right * acri[k]
                d[a] = s * o
                push = s * w[a]
            a = left_arc[p]
            if a >= 0:
                s = aval[slot[a]]
                d[a] = s * o
                push += s * w[a]
                val[slot[a]] = 0.0
            for k in range(i, j):
                acri[k] += push * clj[k + 1]
                aclj[k + 1] += push * cri[k]
    return z


@jit
def projective_log(w, single_root, d, work):
    """log Z; ``d`` (N, N) gets the log-derivatives. ``w`` (N, N) log-weights."""
    n = w.shape[0]
    size = n * n
    cr = work[:size].reshape(n, n)  # symmetric
    cl = work[size : 2 * size].reshape(n, n)  # symmetric
    op = work[2 * size : 3 * size].reshape(n, n)
    inc = work[3 * size : 4 * size].reshape(n, n)  # [h, m]
    acr = work[4 * size : 5 * size].reshape(n, n)  # symmetric
    acl = work[5 * size : 6 * size].reshape(n, n)  # symmetric
    aop = work[6 * size : 7 * size].reshape(n, n)  # symmetric
    inc_t = work[7 * size : 8 * size].reshape(n, n)  # [m, h]
    lo = 1 if single_root else 0
    last = n - 1
    for i in range(last, lo - 1, -1):
        cr[i, i] = 0.0
        cl[i, i] = 0.0
        for j in range(i + 1, n):
            o = log_dot(cr[i], cl[j], i, i + 1, j - i)
            op[i, j] = o
            inc[i, j] = w[i, j] + o
            inc[j, i] = w[j, i] + o
            inc_t[j, i] = inc[i, j]
            inc_t[i, j] = inc[j, i]
            right = log_dot(inc[i], cr[j], i + 1, i + 1, j - i)
            left = log_dot(cl[i], inc[j], i, i, j - i)
            cr[i, j] = right
            cr[j, i] = right
            cl[i, j] = left
            cl[j, i] = left
    z = -np.inf
    acr[:n, :n] = -np.inf
    acl[:n, :n] = -np.inf
    if single_root:
        for m in range(1, n):
            left = cl[1, m]
            right = cr[m, last]
            d[0, m] = left + right
            z = log_add(z, w[0, m] + left + right)
            acl[1, m] = w[0, m] + right
            acl[m, 1] = acl[1, m]
            acr[m, last] = w[0, m] + left
            acr[last, m] = acr[m, last]
    else:
        z = cr[0, last]
        acr[0, last] = 0.0
        acr[last, 0] = 0.0
    for width in range(last - lo, 0, -1):
        for i in range(lo, n - width):
            j = i + width
            if j < last:
                acr[i, j] = log_add(acr[i, j], log_dot(aop[i], cl[j + 1], j + 1, j + 1, last - j))
                acl[i, j] = log_add(acl[i, j], log_dot(acl[i], inc_t[j], j + 1, j + 1, last - j))
            if i > lo:
                acr[i, j] = log_add(acr[i, j], log_dot(acr[j], inc_t[i], lo, lo, i - lo))
                acl[i, j] = log_add(acl[i, j], log_dot(aop[j], cr[i - 1], lo, lo, i - lo))
            acr[j, i] = acr[i, j]
            acl[j, i] = acl[i, j]
            right = log_dot(acr[i], cr[j], j, j, n - j)
            left = log_dot(acl[j], cl[i], lo, lo, i - lo + 1)
            d[i, j] = right + op[i, j]
            d[j, i] = left + op[i, j]
            aop[i, j] = log_add(right + w[i, j], left + w[j, i])
            aop[j, i] = aop[i, j]
    return z
