"""The best dependency tree under one score per arc, ties to the first head or split found.

``score`` (N, N) [head, modifier]: node 0 is the root; minus infinity where there is no arc.
``heads`` i8 (N,) is filled, -1 at 0. Other arrays are scratch.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels._jit import jit


@jit
def decode(projective_tree, single_root, score, heads):
    """Whether there is a tree; the best one into ``heads``.

    Of probabilities it is the tree with the most expected correct arcs: minimum Bayes risk.
    """
    n = score.shape[0]
    heads[0] = -1
    if projective_tree:
        return eisner(score, single_root, heads, np.empty((3, n, n)), np.empty(4 * n + 8, np.int64))
    return chu_liu_edmonds(
        score, single_root, heads, np.empty((2, n, n)), np.empty((n, n), np.int64),
        np.empty((7, 2 * n), np.int64),
    )  # fmt: skip


@jit
def best_sum(a, b, x, y, length):
    """The largest a[x + k] + b[y + k], and the first k that has it."""
    best = -np.inf
    at = 0
    for k in range(length):
        s = a[x + k] + b[y + k]
        if s > best:
            best = s
            at = k
    return best, at


@jit
def eisner(score, single_root, heads, charts, stack):
    """The best projective tree (Eisner 1996), O(n^3); splits are found again where they are read.

    ``charts`` (3, N, N); ``stack`` i8 (4 N + 8,), spans from a head to an end, still to be read.
    """
    n = score.shape[0]
    right = charts[0]  # [i, j] and [j, i]: complete, head i < j
    left = charts[1]  # likewise, head j
    joined = charts[2]  # [h, m]: from h to m, by their arc
    last = n - 1
    for i in range(last, 0 if single_root else -1, -1):
        right[i, i] = 0.0
        left[i, i] = 0.0
        for j in range(i + 1, n):
            halves, _ = best_sum(right[i], left[j], i, i + 1, j - i)
            joined[i, j] = halves + score[i, j]
            joined[j, i] = halves + score[j, i]
            right[i, j], _ = best_sum(joined[i], right[j], i + 1, i + 1, j - i)
            left[i, j], _ = best_sum(left[i], joined[j], i, i, j - i)
            right[j, i] = right[i, j]
            left[j, i] = left[i, j]
    if single_root:
        for m in range(1, n):
            joined[0, m] = score[0, m] + left[1, m]
        best, child = best_sum(joined[0], right[last], 1, 1, last)
        heads[child + 1] = 0
        stack[:4] = child + 1
        stack[1] = 1
        stack[3] = last
        top = 4
    else:
        best = right[0, last]
        stack[0] = 0
        stack[1] = last
        top = 2
    while top > 0 and best > -np.inf:
        top -= 2
        h = stack[top]
        e = stack[top + 1]
        if h == e:
            continue
        if h < e:
            m = h + 1 + best_sum(joined[h], right[e], h + 1, h + 1, e - h)[1]
            own = h + best_sum(right[h], left[m], h, h + 1, m - h)[1]
            its = own + 1
        else:
            m = e + best_sum(left[e], joined[h], e, e, h - e)[1]
            its = m + best_sum(right[m], left[h], m, m + 1, h - m)[1]
            own = its + 1
        heads[m] = h
        stack[top] = m
        stack[top + 1] = e
        stack[top + 2] = h
        stack[top + 3] = own
        stack[top + 4] = m
        stack[top + 5] = its
        top += 6
    return best > -np.inf


@jit
def find_ring(best, alive, mark):
    """A node on a ring of best heads, or -1."""
    mark[:] = -1
    mark[0] = 0
    for m in range(1, alive.shape[0]):
        v = m
        while alive[m] == 1 and mark[v] < 0:
            mark[v] = m
            v = best[v]
        if v > 0 and mark[v] == m:
            return v
    return -1


@jit
def chu_liu_edmonds(score, single_root, heads, values, arc, ints):
    """The best tree (Chu & Liu 1965, Edmonds 1967), O(n^3).

    Every word takes its best head, a ring is contracted into one of its words, and so on. For a
    single root an arc is worth the pair (minus 1 if it leaves the root, score), compared in that
    order: an ordered group, so the algorithm stays exact, and no large number is added to any
    score. ``values`` (2, N, N), ``arc`` i8 (N, N), ``ints`` i8 (7, 2 N).
    """
    n = score.shape[0]
    roots = values[0]  # arcs out of a single root, which count first
    w = values[1]
    best, alive, mark = ints[0, :n], ints[1, :n], ints[2, :n]
    node = ints[3, :n]  # the word or the ring that a row and column stand for
    up, choice, done = ints[4], ints[5], ints[6]  # by node: its ring, its arc, whether it has one
    nothing = (-np.inf, -np.inf)
    for h in range(n):
        alive[h] = 1
        node[h] = h
        for m in range(n):
            absent = h == m or m == 0 or score[h, m] == -np.inf
            roots[h, m] = -np.inf if absent else -1.0 if single_root and h == 0 else 0.0
            w[h, m] = -np.inf if absent else score[h, m]
            arc[h, m] = h * n + m  # the arc that this one stands for
    nodes = n
    while True:
        for m in range(1, n):
            if alive[m] == 1:
                top = nothing
                for h in range(n):
                    if alive[h] == 1 and (roots[h, m], w[h, m]) > top:
                        top = roots[h, m], w[h, m]
                        best[m] = h
                if top == nothing:
                    return False
                choice[node[m]] = arc[best[m], m]
        ring = find_ring(best, alive, mark)
        if ring < 0:
            break
        mark[:] = 0
        v = ring
        while mark[v] == 0:
            mark[v] = 1
            alive[v] = 0
            up[node[v]] = nodes
            v = best[v]
        for h in range(n):
            if alive[h] == 0:
                continue
            to = away = ring
            gain = most = nothing
            for c in range(1, n):
                if mark[c] == 1:
                    lead = roots[h, c] - roots[best[c], c], w[h, c] - w[best[c], c]
                    if lead > gain:
                        gain = lead
                        to = c
                    if (roots[c, h], w[c, h]) > most:
                        most = roots[c, h], w[c, h]
                        away = c
            roots[h, ring], w[h, ring] = gain
            arc[h, ring] = arc[h, to]
            roots[ring, h], w[ring, h] = most
            arc[ring, h] = arc[away, h]
        alive[ring] = 1
        node[ring] = nodes
        nodes += 1
    done[:nodes] = 0
    for v in range(nodes - 1, 0, -1):  # rings before their parts, of which one follows its arc
        if done[v] == 0:
            h, m = divmod(choice[v], n)
            heads[m] = h
            while m != v:
                done[m] = 1
                m = up[m]
    count = 0
    for m in range(1, n):
        count += 1 if heads[m] == 0 else 0
    return count == 1 or not single_root
