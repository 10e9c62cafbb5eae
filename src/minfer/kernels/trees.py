"""Sums over dependency trees: their weight and its derivative by every arc.

Nodes are ``0 .. n``; 0 is the root and never a modifier; N = n + 1. With one weight w[h, m] per arc

    Z = sum_trees prod_{(h, m) in tree} w[h, m],    d[h, m] = dZ / dw[h, m]

where every word has exactly one head and the root one child (``single_root``) or any number. A tree
has one arc into each m, so d[h, m] does not depend on the weights of the arcs into m, a word's
weights may be scaled at will, and all that is asked of a tree factor follows by sums of positive
terms: an arc is on with mass w d and off with the mass of its rivals, the other arcs into m.

* projective: inside-outside in the chart of Eisner (1996), O(n^3), or O(n A + n^2) over A
  candidate arcs; the outside pass is the inside pass differentiated backwards;
* non-projective: the matrix-tree theorem (Tutte 1948; Koo et al., Smith & Smith, McDonald & Satta
  2007) without a determinant and without a subtraction. A word k is eliminated by letting every
  word that hangs on k hang on k's heads instead, in proportion to their weights: a Schur
  complement of the Laplacian whose pivots are sums (Grassmann, Taksar & Heyman 1985). With all
  words but m gone, d[0, m] is the product of the pivots and d[h, m] that times the chance that the
  walk from h along heads ends in the root. Halving the set of words gives all m in O(n^3).
  A single root is the limit of small root weights. Where probabilities are all that is asked, the
  inverse of the Laplacian gives them by one subtraction each (``inverse_marginals``), five times
  faster, and tells when that subtraction is not safe.

Linear kernels take and give plain weights, ``*_log`` kernels logarithms (minus infinity is a zero).
Scratch is passed in, at least ``float_scratch(N)`` and ``int_scratch(N)`` entries, and may hold
anything. Entries of ``d`` that are no arcs are left alone.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels._jit import jit
from minfer.kernels.vexp import exp_in_place, log_in_place

TINY = 1e-280  # a linear sum below this may have lost terms
SMALL_ROOT = 1e-60  # weight of the root for a single child; what is below ONE_ROOT may be two
ONE_ROOT = 1e-40
SPREAD = 2.6  # see scale_of
MAX_DEPTH = 64
LARGE_INVERSE = 1e4  # probabilities from an inverse below this are good to about 1e-12


@jit
def float_scratch(n_nodes):
    return 8 * n_nodes * n_nodes + 4 * MAX_DEPTH


@jit
def int_scratch(n_nodes):
    return 3 * n_nodes + 4 * MAX_DEPTH


# ------------------------------------------------------------------ projective


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


@jit(fastmath={"contract"})
def log_dot(a, b, x, y, length):
    """log sum_k exp(a[x + k] + b[y + k])."""
    top = -np.inf
    for k in range(length):
        v = a[x + k] + b[y + k]
        if v > top:
            top = v
    if top == -np.inf:
        return top
    s = 0.0
    for k in range(length):
        s += np.exp(a[x + k] + b[y + k] - top)
    return top + np.log(s)


@jit
def log_add(x, y):
    """log(e^x + e^y)."""
    if x < y:
        x, y = y, x
    if y == -np.inf:
        return x
    return x + np.log1p(np.exp(y - x))


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


# ------------------------------------------------------------------ non-projective


@jit(fastmath={"reassoc", "contract"})
def nonprojective(w, single_root, d, work, ints):
    """Z; ``d`` (N, N) is filled. ``w`` (N, N) [head, modifier]."""
    n = w.shape[0] - 1
    t = SMALL_ROOT if single_root else 1.0
    v = work[: n * n].reshape(n, n)  # [modifier, head], words from 0
    f = work[n * n : 2 * n * n].reshape(n, n)  # shares of the heads of an eliminated word
    at = 2 * n * n
    r = work[at : at + n]
    pr = work[at + n : at + 2 * n]  # the root's share of an eliminated word
    x = work[at + 2 * n : at + 3 * n]
    det = work[at + 3 * n : at + 3 * n + MAX_DEPTH]  # product of the pivots so far
    save = work[at + 3 * n + MAX_DEPTH :]
    node = ints[:n]  # words in the order of elimination
    low = ints[n : 2 * n]  # which words were left then: low .. high - 1
    high = ints[2 * n : 3 * n]
    frame = ints[3 * n : 3 * n + 4 * MAX_DEPTH].reshape(MAX_DEPTH, 4)
    for m in range(n):
        r[m] = w[0, m + 1] * t
        for h in range(n):
            v[m, h] = w[h + 1, m + 1]
        v[m, m] = 0.0
    z = 0.0
    depth = 0
    frame[0, 0] = 0  # first word
    frame[0, 1] = n  # past the last
    frame[0, 2] = 0  # visits
    frame[0, 3] = 0  # offset of the saved block
    det[0] = 1.0
    while depth >= 0:
        a = frame[depth, 0]
        b = frame[depth, 1]
        visit = frame[depth, 2]
        offset = frame[depth, 3]
        gone = n - (b - a)  # eliminated so far
        if b - a == 1:
            for h in range(n):
                x[h] = 0.0
            for p in range(gone - 1, -1, -1):
                fp = f[p]
                s = pr[p]
                for h in range(low[p], high[p]):
                    s += fp[h] * x[h]
                x[node[p]] = s
            z = det[depth] * r[a] / t
            d[0, a + 1] = det[depth]
            scale = det[depth] / t
            for h in range(n):
                d[h + 1, a + 1] = scale * x[h]
            depth -= 1
            continue
        mid = (a + b) // 2
        if visit == 2:
            depth -= 1
            continue
        width = b - a
        q = offset
        if visit == 0:
            for m in range(a, b):
                for h in range(a, b):
                    save[q] = v[m, h]
                    q += 1
                save[q] = r[m]
                q += 1
        else:
            for m in range(a, b):
                for h in range(a, b):
                    v[m, h] = save[q]
                    q += 1
                r[m] = save[q]
                q += 1
        frame[depth, 2] = visit + 1
        product = det[depth]
        lo = a
        hi = b
        for _ in range(b - mid if visit == 0 else mid - a):
            if visit == 0:
                hi -= 1
                k = hi
            else:
                k = lo
                lo += 1
            vk = v[k]
            s = r[k]
            for h in range(lo, hi):
                s += vk[h]
            product *= s
            inverse = 1.0 / s if s > 0.0 else 0.0
            fp = f[gone]
            for h in range(lo, hi):
                fp[h] = vk[h] * inverse
            pr[gone] = r[k] * inverse
            node[gone] = k
            low[gone] = lo
            high[gone] = hi
            root = pr[gone]
            gone += 1
            for m in range(lo, hi):
                vm = v[m]
                c = vm[k]
                if c != 0.0:
                    for h in range(lo, hi):
                        vm[h] += c * fp[h]
                    vm[m] = 0.0
                    r[m] += c * root
        depth += 1
        frame[depth, 0] = lo
        frame[depth, 1] = hi
        frame[depth, 2] = 0
        frame[depth, 3] = offset + width * (width + 1)
        det[depth] = product
    return z


@jit(fastmath={"reassoc", "contract"})
def inverse_marginals(w, single_root, mu, work):
    """Z, and arc probabilities ``mu`` (N, N), from the inverse of the Laplacian; NaN: not safe.

    ``w`` (N, N) [head, modifier], scaled so that each word's weights sum to about 1. With L[m, m]
    the sum of the weights of m's heads and L[m, h] = -w[h, m]

        mu[h, m] = w[h, m] (L^-1[m, m] - L^-1[h, m]),   mu[0, m] = w[0, m] L^-1[m, m]

    For a single root, the root is left out of L and the column of one word s is replaced by the
    root's weights (Koo et al. 2007); what depends on that column changes accordingly. L is inverted
    in place by Gauss-Jordan steps; their pivots are sums of positive terms as in ``nonprojective``,
    and s, the root's favourite, comes last. Rows are padded to whole vectors; column n holds the
    root's weights.
    """
    n = w.shape[0] - 1
    width = ((n + 16) >> 4) << 4
    q = work[: n * width].reshape(n, width)
    row = work[n * width : (n + 1) * width]
    diagonal = work[(n + 1) * width : (n + 2) * width]
    s = -1
    if single_root:
        s = 0
        for m in range(1, n):
            if w[0, m + 1] > w[0, s + 1]:
                s = m
    for m in range(n):
        qm = q[m]
        for h in range(n):
            qm[h] = -w[h + 1, m + 1]
        for h in range(n, width):
            qm[h] = 0.0
        qm[n] = w[0, m + 1] if single_root else -w[0, m + 1]
    z = 1.0
    past = n if single_root else n + 1
    for k in range(n):
        if k == s:
            continue
        qk = q[k]
        pivot = -qk[s] if 0 <= s < k else 0.0
        for h in range(k + 1, past):
            pivot -= qk[h]
        if not pivot > 0.0:
            return np.nan
        z *= pivot
        inverse = 1.0 / pivot
        for h in range((width >> 4) << 4):
            row[h] = qk[h] * inverse
            qk[h] = row[h]
        qk[k] = inverse
        for m in range(n):
            if m != k:
                qm = q[m]
                c = qm[k]
                for h in range((width >> 4) << 4):
                    qm[h] -= c * row[h]
                qm[k] = -c * inverse
    largest = 0.0
    for m in range(n):
        if m != s:
            largest = max(largest, q[m, m])
    if single_root:
        qs = q[s]
        pivot = qs[n]
        if not pivot > 0.0:
            return np.nan
        z *= pivot
        inverse = 1.0 / pivot
        most = 0.0
        for h in range((width >> 4) << 4):
            row[h] = qs[h] * inverse
        for h in range(n):
            if h != s:
                most = max(most, row[h])
        reach = 0.0
        for m in range(n):
            if m != s:
                qm = q[m]
                c = qm[n]
                reach = max(reach, c)
                for h in range((width >> 4) << 4):
                    qm[h] -= c * row[h]
                qm[n] = -c * inverse
        row[n] = inverse
        largest += most * reach
    if not largest <= LARGE_INVERSE:
        return np.nan
    mu[:, 0] = 0.0
    for m in range(n):
        diagonal[m] = q[m, m]
    for m in range(n):
        mu[0, m + 1] = w[0, m + 1] * (row[m] if single_root else diagonal[m])
    for h in range(n):
        qh = q[h]
        for m in range(n):
            mu[h + 1, m + 1] = w[h + 1, m + 1] * (diagonal[m] - qh[m])
    if single_root:
        mu[0, s + 1] = w[0, s + 1] * row[n]
        for m in range(n):
            mu[s + 1, m + 1] = w[s + 1, m + 1] * diagonal[m]
            mu[m + 1, s + 1] = -w[m + 1, s + 1] * q[m, n]
        mu[s + 1, s + 1] = 0.0
    for h in range(n + 1):
        for m in range(n + 1):
            mu[h, m] = min(max(mu[h, m], 0.0), 1.0)
    return z


@jit
def nonprojective_log(w, single_root, d, work, ints):
    """log Z; ``d`` (N, N) gets the log-derivatives. ``w`` (N, N) log-weights, none above 0.

    Slower, for any range of weights. For a single root the root's weights are lowered so far that
    two children weigh e^-40 of the least tree that one child could make.
    """
    n = w.shape[0] - 1
    v = work[: n * n].reshape(n, n)
    f = work[n * n : 2 * n * n].reshape(n, n)
    at = 2 * n * n
    r = work[at : at + n]
    pr = work[at + n : at + 2 * n]
    x = work[at + 2 * n : at + 3 * n]
    det = work[at + 3 * n : at + 3 * n + MAX_DEPTH]
    save = work[at + 3 * n + MAX_DEPTH :]
    node = ints[:n]
    low = ints[n : 2 * n]
    high = ints[2 * n : 3 * n]
    frame = ints[3 * n : 3 * n + 4 * MAX_DEPTH].reshape(MAX_DEPTH, 4)
    shift = 0.0
    floor = -np.inf
    if single_root:
        floor = 0.0
        shift = 40.0 + n * np.log(n + 1.0)
        for m in range(1, n + 1):
            least = 0.0
            for h in range(n + 1):
                if h != m and w[h, m] > -np.inf:
                    least = min(least, w[h, m])
            floor += least
        shift -= floor
    for m in range(n):
        r[m] = w[0, m + 1] - shift
        for h in range(n):
            v[m, h] = w[h + 1, m + 1]
        v[m, m] = -np.inf
    z = -np.inf
    depth = 0
    frame[0, 0] = 0
    frame[0, 1] = n
    frame[0, 2] = 0
    frame[0, 3] = 0
    det[0] = 0.0
    while depth >= 0:
        a = frame[depth, 0]
        b = frame[depth, 1]
        visit = frame[depth, 2]
        offset = frame[depth, 3]
        gone = n - (b - a)
        if b - a == 1:
            for h in range(n):
                x[h] = -np.inf
            for p in range(gone - 1, -1, -1):
                lo = low[p]
                x[node[p]] = log_add(pr[p], log_dot(f[p], x, lo, lo, high[p] - lo))
            z = det[depth] + r[a] + shift
            d[0, a + 1] = det[depth] if det[depth] >= floor - 1.0 else -np.inf
            scale = det[depth] + shift
            for h in range(n):
                value = scale + x[h]
                d[h + 1, a + 1] = value if value >= floor - 1.0 else -np.inf
            depth -= 1
            continue
        mid = (a + b) // 2
        if visit == 2:
            depth -= 1
            continue
        width = b - a
        q = offset
        if visit == 0:
            for m in range(a, b):
                for h in range(a, b):
                    save[q] = v[m, h]
                    q += 1
                save[q] = r[m]
                q += 1
        else:
            for m in range(a, b):
                for h in range(a, b):
                    v[m, h] = save[q]
                    q += 1
                r[m] = save[q]
                q += 1
        frame[depth, 2] = visit + 1
        product = det[depth]
        lo = a
        hi = b
        for _ in range(b - mid if visit == 0 else mid - a):
            if visit == 0:
                hi -= 1
                k = hi
            else:
                k = lo
                lo += 1
            s = r[k]
            for h in range(lo, hi):
                s = log_add(s, v[k, h])
            product += s
            fp = f[gone]
            for h in range(lo, hi):
                fp[h] = v[k, h] - s if v[k, h] > -np.inf else -np.inf
            pr[gone] = r[k] - s if r[k] > -np.inf else -np.inf
            node[gone] = k
            low[gone] = lo
            high[gone] = hi
            for m in range(lo, hi):
                c = v[m, k]
                if c > -np.inf:
                    for h in range(lo, hi):
                        v[m, h] = log_add(v[m, h], c + fp[h])
                    v[m, m] = -np.inf
                    r[m] = log_add(r[m], c + pr[gone])
            gone += 1
        depth += 1
        frame[depth, 0] = lo
        frame[depth, 1] = hi
        frame[depth, 2] = 0
        frame[depth, 3] = offset + width * (width + 1)
        det[depth] = product
    return z if z >= floor - 1.0 else -np.inf


# ------------------------------------------------------------------ grandparents


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


# ------------------------------------------------------------------ from weights to answers


@jit
def scale_of(log_w, arcs, lo, hi, cap):
    """What to subtract from the log-weights of the arcs into one word: ``arcs[lo:hi]``.

    Their sum, so that Z is at most 1; in the projective chart at most ``cap`` times the largest,
    because most choices of heads cross and Z would sink too fast (equal weights give about 6.75^n
    trees, one good head each gives 1: ``SPREAD``, about the root of it, fits both).
    """
    top = -np.inf
    for p in range(lo, hi):
        top = max(top, log_w[arcs[p]])
    if top == -np.inf:
        return 0.0
    total = 0.0
    for p in range(lo, hi):
        total += np.exp(log_w[arcs[p]] - top)
    return top + np.log(min(total, cap))


@jit
def derivatives(projective_tree, single_root, n, heads, modifiers, plan, w, d, work, ints):
    """Z and dZ/dw of A candidate arcs, ``w`` and ``d`` (A,); a plan without columns means dense."""
    if projective_tree and plan.shape[1] > 0:
        return projective_sparse(plan, w, n, single_root, d, work)
    dense = np.zeros((n, n))
    dense_d = np.zeros((n, n))
    for a in range(w.shape[0]):
        dense[heads[a], modifiers[a]] = w[a]
    if projective_tree:
        z = projective(dense, single_root, dense_d, work)
    else:
        z = nonprojective(dense, single_root, dense_d, work, ints)
    for a in range(w.shape[0]):
        d[a] = dense_d[heads[a], modifiers[a]]
    return z


@jit
def trusted(z, d, dead, floor):
    """Whether no linear sum is too small or too large, but for arcs that are in no tree anyway."""
    if not (floor <= z < 1.0 / TINY):
        return False
    for a in range(d.shape[0]):
        if not (d[a] < 1.0 / TINY) or (d[a] < floor and dead[a] == 0):
            return False
    return True


@jit
def find_dead(projective_tree, single_root, n, heads, modifiers, plan, log_w, dead, work, ints):
    """Mark in ``dead`` u1 (A,) the arcs that no tree of arcs with positive weight can contain.

    The derivatives at equal weights tell, unless the least that they can be is too small a number.
    """
    n_arcs = heads.shape[0]
    count = np.zeros(n)
    for a in range(n_arcs):
        if log_w[a] > -np.inf:
            count[modifiers[a]] += 1.0
    least = 0.0
    for m in range(1, n):
        least -= np.log(max(count[m], 1.0))
    floor = ONE_ROOT if single_root and not projective_tree else TINY
    for a in range(n_arcs):
        dead[a] = 0
    if least < np.log(floor) + 1.0:
        return
    w = np.zeros(n_arcs)
    d = np.zeros(n_arcs)
    for a in range(n_arcs):
        if log_w[a] > -np.inf:
            w[a] = 1.0 / count[modifiers[a]]
    derivatives(projective_tree, single_root, n, heads, modifiers, plan, w, d, work, ints)
    for a in range(n_arcs):
        dead[a] = 1 if d[a] < floor else 0


@jit
def log_derivatives(projective_tree, single_root, n, heads, modifiers, plan, dead, log_w, log_d):
    """log Z over A arcs of scaled log-weights, and log dZ/dw (A,); logs all through if need be.

    ``dead`` u1 (A,): arcs that are known to be in no tree.
    """
    n_arcs = heads.shape[0]
    work = np.empty(float_scratch(n), np.float64)
    ints = np.empty(int_scratch(n), np.int64)
    w = log_w.copy()
    exp_in_place(w)
    log_d[:] = 0.0
    z = derivatives(projective_tree, single_root, n, heads, modifiers, plan, w, log_d, work, ints)
    floor = ONE_ROOT if single_root and not projective_tree else TINY
    fine = trusted(z, log_d, dead, floor)
    if not fine and z >= floor:
        dead = dead.copy()
        find_dead(projective_tree, single_root, n, heads, modifiers, plan, log_w, dead, work, ints)
        fine = trusted(z, log_d, dead, floor)
    if fine:
        log_in_place(log_d)
        for a in range(n_arcs):
            if dead[a] == 1:
                log_d[a] = -np.inf
        return np.log(z)
    dense = np.full((n, n), -np.inf)
    d = np.full((n, n), -np.inf)
    for a in range(n_arcs):
        dense[heads[a], modifiers[a]] = log_w[a]
    if projective_tree:
        log_z = projective_log(dense, single_root, d, work)
    else:
        log_z = nonprojective_log(dense, single_root, d, work, ints)
    for a in range(n_arcs):
        log_d[a] = d[heads[a], modifiers[a]]
    return log_z


@jit
def tree_messages(
    projective_tree, single_root, n, heads, modifiers, plan, dead, order, start, incoming, out
):
    """Messages of the tree factor over A binary arcs and its log-partition.

    ``order`` i8 (A,) are the arcs by modifier, those into m at ``start[m] : start[m + 1]``, i8
    (N + 1,). ``incoming`` and ``out`` f8 (2 A,): log-messages for off and on, arc after arc.
    """
    n_arcs = heads.shape[0]
    log_w = np.empty(n_arcs)  # on, times all rivals off
    log_d = np.empty(n_arcs)
    scale = np.zeros(n)
    off = np.zeros(n)  # sum of the log-messages for off, forced arcs left out
    forced = np.zeros(n, np.int64)  # arcs whose message forbids off
    cap = SPREAD if projective_tree else np.inf
    base = 0.0
    for m in range(1, n):
        for p in range(start[m], start[m + 1]):
            q0 = incoming[2 * order[p]]
            if q0 == -np.inf:
                forced[m] += 1
            else:
                off[m] += q0
        for p in range(start[m], start[m + 1]):
            a = order[p]
            q0 = incoming[2 * a]
            if q0 == -np.inf:
                log_w[a] = incoming[2 * a + 1] + off[m] if forced[m] == 1 else -np.inf
            else:
                log_w[a] = incoming[2 * a + 1] + off[m] - q0 if forced[m] == 0 else -np.inf
        scale[m] = scale_of(log_w, order, start[m], start[m + 1], cap)
        for p in range(start[m], start[m + 1]):
            log_w[order[p]] -= scale[m]
        base += scale[m]
    log_z = log_derivatives(
        projective_tree, single_root, n, heads, modifiers, plan, dead, log_w, log_d
    )
    for m in range(1, n):
        others = base - scale[m] + off[m]
        first = -1  # the heaviest arc into m
        for p in range(start[m], start[m + 1]):
            a = order[p]
            q0 = incoming[2 * a]
            log_w[a] = log_d[a] + incoming[2 * a + 1] - (q0 if q0 > -np.inf else 0.0)
            if first < 0 or log_w[a] > log_w[first]:
                first = a
        top = log_w[first] if first >= 0 else -np.inf
        second = -np.inf
        for p in range(start[m], start[m + 1]):
            if order[p] != first:
                second = max(second, log_w[order[p]])
        total = 0.0  # relative to top
        rest = 0.0  # without the first, relative to second
        for p in range(start[m], start[m + 1]):
            if top > -np.inf:
                total += np.exp(log_w[order[p]] - top)
            if order[p] != first and second > -np.inf:
                rest += np.exp(log_w[order[p]] - second)
        for p in range(start[m], start[m + 1]):
            a = order[p]
            q0 = incoming[2 * a]
            is_forced = q0 == -np.inf
            rivals = forced[m] - (1 if is_forced else 0)  # that must be on
            without = others - (0.0 if is_forced else q0)
            out[2 * a + 1] = log_d[a] + without if rivals == 0 else -np.inf
            mass = -np.inf
            if rivals == 0:
                if a == first:
                    mass = second + np.log(rest) if rest > 0.0 else -np.inf
                elif top > -np.inf:
                    mass = top + np.log(total - np.exp(log_w[a] - top))
            elif rivals == 1:
                for p2 in range(start[m], start[m + 1]):
                    b = order[p2]
                    if b != a and incoming[2 * b] == -np.inf:
                        mass = log_w[b]
            out[2 * a] = mass + without
    return log_z + base


@jit
def tree_marginals(projective_tree, single_root, scores, mu, w, d, work, ints):
    """Arc probabilities ``mu`` (N, N) under exp(scores), and log Z; minus infinity: no tree.

    ``scores`` (N, N) [head, modifier]; column 0 and the diagonal are not read. ``w`` and ``d``
    (N, N) are scratch, as are ``work`` and ``ints``.
    """
    n = scores.shape[0]
    shift = work[:n]  # what is subtracted from the scores of the arcs into a word
    total = work[n : 2 * n]
    for m in range(n):
        shift[m] = -np.inf
        total[m] = 0.0
    for h in range(n):
        for m in range(n):
            w[h, m] = scores[h, m]
        w[h, 0] = -np.inf
        w[h, h] = -np.inf
        for m in range(n):
            shift[m] = w[h, m] if w[h, m] > shift[m] else shift[m]
    for m in range(1, n):
        if shift[m] == -np.inf:
            mu[:, :] = 0.0
            return -np.inf
    shift[0] = 0.0
    for h in range(n):
        for m in range(n):
            w[h, m] -= shift[m]
    exp_in_place(w.reshape(n * n))
    for h in range(n):
        for m in range(n):
            total[m] += w[h, m]
    total[0] = 1.0
    base = 0.0
    for m in range(1, n):
        if projective_tree:
            total[m] = min(total[m], SPREAD)
        shift[m] += np.log(total[m])
        base += shift[m]
        total[m] = 1.0 / total[m]
    for h in range(n):
        for m in range(n):
            w[h, m] *= total[m]
    if not projective_tree:
        z = inverse_marginals(w, single_root, mu, work[n:])
        if z >= TINY:
            return base + np.log(z)
    d[:, :] = 0.0
    if projective_tree:
        z = projective(w, single_root, d, work[n:])
    else:
        z = nonprojective(w, single_root, d, work[n:], ints)
    floor = ONE_ROOT if single_root and not projective_tree else TINY
    if floor <= z < 1.0 / TINY:
        inverse = 1.0 / z
        for h in range(n):
            for m in range(n):
                mu[h, m] = min(w[h, m] * d[h, m] * inverse, 1.0)
        return base + np.log(z)
    for h in range(n):
        for m in range(n):
            w[h, m] = scores[h, m] - shift[m] if m > 0 and h != m else -np.inf
    d[:, :] = -np.inf
    if projective_tree:
        log_z = projective_log(w, single_root, d, work)
    else:
        log_z = nonprojective_log(w, single_root, d, work, ints)
    for h in range(n):
        for m in range(n):
            if log_z > -np.inf:
                mu[h, m] = min(np.exp(w[h, m] + d[h, m] - log_z), 1.0)
            else:
                mu[h, m] = 0.0
    return base + log_z


@jit
def batch_marginals(projective_tree, single_root, n_nodes, start, scores, mu, log_z):
    """``tree_marginals`` of B sentences, one after the other.

    ``n_nodes`` i8 (B,), words + 1; ``start`` i8 (B,): where a sentence's N x N entries begin in
    ``scores`` and ``mu``, both flat; ``log_z`` (B,).
    """
    most = 0
    for b in range(n_nodes.shape[0]):
        most = max(most, n_nodes[b])
    work = np.empty(float_scratch(most), np.float64)
    ints = np.empty(int_scratch(most), np.int64)
    square = np.empty(2 * most * most, np.float64)
    for b in range(n_nodes.shape[0]):
        n = n_nodes[b]
        size = n * n
        at = start[b]
        log_z[b] = tree_marginals(
            projective_tree, single_root,
            scores[at : at + size].reshape(n, n), mu[at : at + size].reshape(n, n),
            square[:size].reshape(n, n), square[size : 2 * size].reshape(n, n), work, ints,
        )  # fmt: skip


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
    for m in range(1, n):
        scale[m] = scale_of(heads[m], words, 0, n, SPREAD)
        base += scale[m]
    root = np.zeros(n)
    for m in range(1, n):
        root[m] = np.exp(arcs[0, m] - scale[m])
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
