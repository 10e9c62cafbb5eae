"""Sums over all dependency trees: the matrix-tree theorem.

Tutte 1948; Koo et al., Smith & Smith, McDonald & Satta 2007; here without a determinant. A word k
is eliminated by letting every word that hangs on k hang on k's heads instead, in proportion to
their weights: a Schur complement of the Laplacian whose pivots are sums of positive terms
(Grassmann, Taksar & Heyman 1985).

* ``nonprojective`` never subtracts. With all words but m gone, d[0, m] is the product of the pivots
  and d[h, m] that times the chance that the walk from h along heads ends in the root. Halving the
  set of words gives all m in O(n^3). A single root is the limit of small root weights.
* ``inverse_marginals`` gives probabilities, and nothing else, by one subtraction each from the
  inverse of the Laplacian: four times faster, and it tells when that subtraction is not safe.

Notation and scratch as in ``minfer.kernels.trees.trees``.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels.arithmetic.vexp import log_add, log_dot
from minfer.kernels.compiling.jit import jit

SMALL_ROOT = 1e-60  # weight of the root for a single child; what is below ONE_ROOT may be two
ONE_ROOT = 1e-40
MAX_DEPTH = 64
TINY = 1e-280  # a sum below this may have lost terms
LARGE_INVERSE = 1e4  # probabilities from an inverse below this are good to about 1e-11


@jit
def _begin(frame, first, past, offset):
    """A set of words, first to past, with no visits yet, and where its block will be saved."""
    frame[0], frame[1], frame[2], frame[3] = first, past, 0, offset


@jit
def _save_or_restore(save_it, a, b, v, r, save, at):
    """The block of words a to b of ``v`` (n, n) and ``r`` (n,) to ``save[at:]``, or back."""
    for m in range(a, b):
        for h in range(a, b):
            if save_it:
                save[at] = v[m, h]
            else:
                v[m, h] = save[at]
            at += 1
        if save_it:
            save[at] = r[m]
        else:
            r[m] = save[at]
        at += 1


@jit(fastmath={"reassoc", "contract"})
def nonprojective(w, single_root, d, work, ints):
    """Z; ``d`` (N, N) is filled. ``w`` (N, N) [head, modifier]."""
    n = w.shape[0] - 1
    t = SMALL_ROOT if single_root else 1.0
    width = ((n + 15) >> 4) << 4  # of a row, in whole vectors; eliminated words have zeros
    size = n * width
    v = work[:size].reshape(n, width)  # [modifier, head], words from 0
    f = work[size : 2 * size].reshape(n, width)  # shares of the heads of an eliminated word
    at = 2 * size
    x = work[at : at + width]
    at += width
    r = work[at : at + n]
    pr = work[at + n : at + 2 * n]  # the root's share of an eliminated word
    det = work[at + 2 * n : at + 2 * n + MAX_DEPTH]  # product of the pivots so far
    save = work[at + 2 * n + MAX_DEPTH :]
    node = ints[:n]  # words in the order of elimination
    frame = ints[n : n + 4 * MAX_DEPTH].reshape(MAX_DEPTH, 4)
    for m in range(n):
        r[m] = w[0, m + 1] * t
        for h in range(n):
            v[m, h] = w[h + 1, m + 1]
        for h in range(n, width):
            v[m, h] = 0.0
        v[m, m] = 0.0
    z = 0.0
    depth = 0
    _begin(frame[0], 0, n, 0)
    det[0] = 1.0
    while depth >= 0:
        a, b = frame[depth, 0], frame[depth, 1]
        visit, offset = frame[depth, 2], frame[depth, 3]
        gone = n - (b - a)  # eliminated so far
        if b - a == 1:
            for h in range(width):
                x[h] = 0.0
            for p in range(gone - 1, -1, -1):
                fp = f[p]
                s = pr[p]
                for h in range((width >> 4) << 4):
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
        _save_or_restore(visit == 0, a, b, v, r, save, offset)
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
            for h in range((width >> 4) << 4):
                s += vk[h]
            product *= s
            inverse = 1.0 / s if s > 0.0 else 0.0
            fp = f[gone]
            for h in range((width >> 4) << 4):
                fp[h] = vk[h] * inverse
            root = r[k] * inverse
            pr[gone] = root
            node[gone] = k
            gone += 1
            for m in range(lo, hi):
                vm = v[m]
                c = vm[k]
                if c != 0.0:
                    for h in range((width >> 4) << 4):
                        vm[h] += c * fp[h]
                    vm[m] = 0.0
                    vm[k] = 0.0
                    r[m] += c * root
        depth += 1
        _begin(frame[depth], lo, hi, offset + (b - a) * (b - a + 1))
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
    total = 0.0
    for h in range(n + 1):
        for m in range(n + 1):
            mu[h, m] = min(max(mu[h, m], 0.0), 1.0)
            total += mu[h, m]
    safe = z < np.inf and abs(total - n) < 1e-3 * n  # a last net: one head for each word
    return z if safe else np.nan


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
    _begin(frame[0], 0, n, 0)
    det[0] = 0.0
    while depth >= 0:
        a, b = frame[depth, 0], frame[depth, 1]
        visit, offset = frame[depth, 2], frame[depth, 3]
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
        _save_or_restore(visit == 0, a, b, v, r, save, offset)
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
        _begin(frame[depth], lo, hi, offset + (b - a) * (b - a + 1))
        det[depth] = product
    return z if z >= floor - 1.0 else -np.inf
