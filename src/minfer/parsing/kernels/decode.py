"""The best dependency tree under one score per arc, ties to the first head or split found.

``score`` (N, N) [head, modifier]: node 0 is the root; minus infinity where there is no arc.
``heads`` i8 (N,) is filled, -1 at 0.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels.compiling.jit import jit

NEW, ON_THE_WAY, CONTRACTED, DONE = 0, 1, 2, 3


@jit
def decode(projective_tree, single_root, score, heads):
    """Whether there is a tree; the best one into ``heads``.

    Of probabilities it is the tree with the most expected correct arcs: minimum Bayes risk.
    """
    heads[0] = -1
    if projective_tree:
        return eisner(score, single_root, heads)
    return chu_liu_edmonds(score, single_root, heads)


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
def eisner(score, single_root, heads):
    """The best projective tree (Eisner 1996), O(n^3); splits are found again where they are read.

    A span from a head h to an end e, on either side, is an arc's or a complete one.
    """
    n = score.shape[0]
    last = n - 1
    charts = np.empty((3, n, n))
    joined = charts[0]  # [h, m]: by their arc
    whole = charts[1]  # [h, e]: complete
    ending = charts[2]  # [e, h]: the same
    for i in range(last, 0 if single_root else -1, -1):
        whole[i, i] = ending[i, i] = 0.0
        for j in range(i + 1, n):
            halves, _ = best_sum(whole[i], whole[j], i, i + 1, j - i)
            for side in range(2):
                h, e = (i, j) if side == 0 else (j, i)
                low = min(h + 1, e)
                joined[h, e] = halves + score[h, e]
                whole[h, e], _ = best_sum(joined[h], ending[e], low, low, j - i)
                ending[e, h] = whole[h, e]
    stack = np.empty(2 * n + 4, np.int64)  # spans still to be read, h n + e
    if single_root:
        for m in range(1, n):
            joined[0, m] = score[0, m] + whole[m, 1]
        best, child = best_sum(joined[0], ending[last], 1, 1, last)
        heads[child + 1] = 0
        stack[0] = (child + 1) * n + 1
        stack[1] = (child + 1) * n + last
        top = 2
    else:
        best = whole[0, last]
        stack[0] = last
        top = 1
    while top > 0 and best > -np.inf:
        top -= 1
        h, e = divmod(stack[top], n)
        if h == e:
            continue
        low = min(h + 1, e)
        m = low + best_sum(joined[h], ending[e], low, low, abs(h - e))[1]
        i, j = min(h, m), max(h, m)
        split = i + best_sum(whole[i], whole[j], i, i + 1, j - i)[1]
        heads[m] = h
        stack[top] = m * n + e
        stack[top + 1] = i * n + split
        stack[top + 2] = j * n + split + 1
        top += 3
    return best > -np.inf


@jit
def chu_liu_edmonds(score, single_root, heads):
    """The best tree (Chu & Liu 1965, Edmonds 1967), O(n^2).

    A way leads from a word to its best head, to that one's, and so on. A ring in it is contracted
    into one of its words, and the way goes on from there, until it meets the root or an earlier
    way. A single root is a best head only where there is no other, as if all its arcs had lost the
    same large number; none is added to any score.
    """
    n = score.shape[0]
    rows, by_node = np.zeros((4, n), np.int64), np.zeros((3, 2 * n), np.int64)
    state, best, way = rows[0], rows[1], rows[2]
    node = rows[3]  # the word or the ring that a row and column stand for
    ring_of, choice, found = by_node[0], by_node[1], by_node[2]
    state[0] = DONE
    w = np.full((n, n), -np.inf)
    arc = np.empty((n, n), np.int64)  # the one that an entry stands for
    for h in range(n):
        node[h] = h
        for m in range(1, n):
            arc[h, m] = h * n + m
            if h != m:
                w[h, m] = score[h, m]
    nodes = n
    for first in range(1, n):
        v = first
        length = 0
        while state[v] == NEW:
            top = -np.inf
            for h in range(1 if single_root else 0, n):
                if state[h] != CONTRACTED and w[h, v] > top:
                    top = w[h, v]
                    best[v] = h
            if top == -np.inf:
                top = w[0, v]
                best[v] = 0
            if top == -np.inf:
                return False
            choice[node[v]] = arc[best[v], v]
            state[v] = ON_THE_WAY
            way[length] = v
            length += 1
            v = best[v]
            if state[v] != ON_THE_WAY:
                continue
            end = length
            while state[v] == ON_THE_WAY:
                length -= 1
                state[way[length]] = CONTRACTED
                ring_of[node[way[length]]] = nodes
            for h in range(n):
                if state[h] != CONTRACTED:
                    to = away = v
                    gain = most = -np.inf
                    for c in way[length:end]:
                        if w[h, c] - w[best[c], c] > gain:
                            gain = w[h, c] - w[best[c], c]
                            to = c
                        if w[c, h] > most:
                            most = w[c, h]
                            away = c
                    w[h, v] = gain
                    arc[h, v] = arc[h, to]
                    w[v, h] = most
                    arc[v, h] = arc[away, h]
            state[v] = NEW
            node[v] = nodes
            nodes += 1
        for v in way[:length]:
            state[v] = DONE
    roots = 0
    for v in range(nodes - 1, 0, -1):  # rings before their parts, of which one follows its arc
        if found[v] == 0:
            h, m = divmod(choice[v], n)
            heads[m] = h
            roots += h == 0
            while m != v:
                found[m] = 1
                m = ring_of[m]
    return roots == 1 or not single_root
