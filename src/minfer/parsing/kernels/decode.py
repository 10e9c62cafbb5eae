"""The best dependency tree under one score per arc, ties to the first head or split found.

``score`` (N, N) [head, modifier]: node 0 is the root; minus infinity where there is no arc. Scratch
is passed in.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels._jit import jit


@jit
def eisner(score, single_root, heads, work, back):
    """Score of the best projective tree, minus infinity if there is none (Eisner 1996), O(n^3).

    ``heads`` i8 (N,) is filled, -1 at 0; ``work`` 2 N N floats, ``back`` 2 N N + 4 N + 8 ints.
    """
    n = score.shape[0]
    size = n * n
    right = work[:size].reshape(n, n)
    left = work[size : 2 * size].reshape(n, n)
    split = back[:size].reshape(n, n)
    grow = back[size : 2 * size].reshape(n, n)  # [h, e]: last child of h in the complete span
    stack = back[2 * size :]
    lo = 1 if single_root else 0
    last = n - 1
    # right[i, j] complete, head i; left[i, j] complete, head j; open arcs in the lower triangles
    for i in range(last, lo - 1, -1):
        right[i, i] = 0.0
        left[i, i] = 0.0
        for j in range(i + 1, n):
            best = -np.inf
            at = i
            for k in range(i, j):
                s = right[i, k] + left[k + 1, j]
                if s > best:
                    best = s
                    at = k
            split[i, j] = at
            right[j, i] = best + score[i, j]
            left[j, i] = best + score[j, i]
            best = -np.inf
            at = j
            for k in range(i + 1, j + 1):
                s = right[k, i] + right[k, j]
                if s > best:
                    best = s
                    at = k
            right[i, j] = best
            grow[i, j] = at
            best = -np.inf
            at = i
            for k in range(i, j):
                s = left[i, k] + left[j, k]
                if s > best:
                    best = s
                    at = k
            left[i, j] = best
            grow[j, i] = at
    heads[0] = -1
    top = 0
    if single_root:
        best = -np.inf
        child = 1
        for m in range(1, n):
            s = score[0, m] + left[1, m] + right[m, last]
            if s > best:
                best = s
                child = m
        heads[child] = 0
        stack[0] = child
        stack[1] = 1
        stack[2] = child
        stack[3] = last
        top = 4
    else:
        best = right[0, last]
        stack[0] = 0
        stack[1] = last
        top = 2
    if best == -np.inf:
        return best
    while top > 0:
        top -= 2
        h = stack[top]
        e = stack[top + 1]
        if h == e:
            continue
        m = grow[h, e]
        heads[m] = h
        k = split[h, m] if h < m else split[m, h]
        stack[top] = m
        stack[top + 1] = e
        stack[top + 2] = h
        stack[top + 3] = k if h < m else k + 1
        stack[top + 4] = m
        stack[top + 5] = k + 1 if h < m else k
        top += 6
    return best


@jit
def chu_liu_edmonds(score, single_root, heads, work, ints):
    """Whether there is a tree; the best one into ``heads`` i8 (N,), -1 at 0.

    Chu & Liu 1965, Edmonds 1967: every word takes its best head, a ring is contracted, and so on.
    For a single root an arc is worth the pair (minus 1 if it leaves the root, score), compared
    in that order: an ordered group, so the algorithm stays exact, and no large number is added to
    any score. ``work`` N N floats, ``ints`` 6 N N + 5 N.
    """
    n = score.shape[0]
    size = n * n
    w = work[:size].reshape(n, n)
    roots = ints[:size].reshape(n, n)  # arcs out of the root, counted first
    source = ints[size : 2 * size].reshape(n, n)  # the arc a contracted arc stands for
    target = ints[2 * size : 3 * size].reshape(n, n)
    before = ints[3 * size : 4 * size].reshape(n, n)  # [level, word]: its component then
    rest = ints[4 * size :]
    best = rest[:n]
    alive = rest[n : 2 * n]
    mark = rest[2 * n : 3 * n]
    entry = rest[3 * n : 4 * n]
    merged = rest[4 * n : 5 * n]
    arc_from = ints[4 * size + 5 * n : 5 * size + 5 * n].reshape(n, n)  # [level, component]
    arc_to = ints[5 * size + 5 * n : 6 * size + 5 * n].reshape(n, n)
    for h in range(n):
        alive[h] = 1
        for m in range(n):
            w[h, m] = score[h, m] if h != m and m > 0 else -np.inf
            roots[h, m] = -1 if single_root and h == 0 else 0
            source[h, m] = h
            target[h, m] = m
    for v in range(n):
        before[0, v] = v
    level = 0
    while True:
        for m in range(1, n):
            if alive[m] == 0:
                continue
            top = -1
            for h in range(n):
                if alive[h] == 0 or w[h, m] == -np.inf:
                    continue
                if top >= 0:
                    gain = roots[h, m] - roots[top, m]
                    if gain < 0 or (gain == 0 and w[h, m] <= w[top, m]):
                        continue
                top = h
            if top < 0:
                return False
            best[m] = top
        for v in range(n):
            mark[v] = -1
        mark[0] = 0
        ring = -1
        for m in range(1, n):
            if alive[m] == 0 or mark[m] >= 0:
                continue
            v = m
            while mark[v] < 0:
                mark[v] = m
                v = best[v]
            if v > 0 and mark[v] == m:
                ring = v
                break
        if ring < 0:
            break
        # contract the ring into its member `ring`
        for v in range(n):
            mark[v] = 0
        v = ring
        while True:
            mark[v] = 1
            arc_from[level, v] = source[best[v], v]
            arc_to[level, v] = target[best[v], v]
            v = best[v]
            if v == ring:
                break
        for h in range(n):
            if alive[h] == 0 or mark[h] == 1:
                continue
            value = -np.inf
            count = 0
            pick = -1
            away = -1
            for c in range(1, n):
                if mark[c] == 0:
                    continue
                if w[h, c] > -np.inf:
                    dr = roots[h, c] - roots[best[c], c]
                    dw = w[h, c] - w[best[c], c]
                    if pick < 0 or dr > count or (dr == count and dw > value):
                        pick = c
                        count = dr
                        value = dw
                if (
                    h > 0
                    and w[c, h] > -np.inf
                    and (
                        away < 0
                        or roots[c, h] > roots[away, h]
                        or (roots[c, h] == roots[away, h] and w[c, h] > w[away, h])
                    )
                ):
                    away = c
            if pick >= 0:
                source[h, ring] = source[h, pick]
                target[h, ring] = target[h, pick]
            roots[h, ring] = count
            w[h, ring] = value
            if away >= 0:
                source[ring, h] = source[away, h]
                target[ring, h] = target[away, h]
                roots[ring, h] = roots[away, h]
                w[ring, h] = w[away, h]
            else:
                w[ring, h] = -np.inf
        merged[level] = ring
        for v in range(n):
            c = before[level, v]
            before[level + 1, v] = ring if mark[c] == 1 else c
        for v in range(1, n):
            if mark[v] == 1 and v != ring:
                alive[v] = 0
        level += 1
    heads[0] = -1
    for m in range(1, n):
        if alive[m] == 1:
            word = target[best[m], m]
            heads[word] = source[best[m], m]
            entry[m] = word
    while level > 0:
        level -= 1
        ring = merged[level]
        word = entry[ring]
        for v in range(n):
            mark[v] = 0
        for v in range(1, n):
            if before[level + 1, v] == ring:
                mark[before[level, v]] = 1
        for c in range(1, n):
            if mark[c] == 1:
                if c == before[level, word]:
                    entry[c] = word
                else:
                    entry[c] = arc_to[level, c]
                    heads[arc_to[level, c]] = arc_from[level, c]
    if single_root:
        count = 0
        for m in range(1, n):
            if heads[m] == 0:
                count += 1
        return count == 1
    return True
