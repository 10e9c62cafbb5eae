"""Numbers and orders for regions of binary variables: who is flipped, which pairs are kept, fields.

A pair is *kept* if both ends are inside and, after flipping some variables (y = 1 - x), its weight
is positive; kept pairs must agree on the flips (no frustrated cycle), found by union-find with
parities, heavier pairs first where some do not agree. Everything else that touches a variable is a
field in a range: the lower lane takes all lower ends, the upper lane all upper ends.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from minfer.kernels.arithmetic.sorting import sort_by
from minfer.kernels.compiling.jit import jit
from minfer.kernels.intervals.frontier import L, frontier_sizes

U = 2.0**-53


class PairArrays(NamedTuple):
    """What :class:`minfer.certified.local.LocalBounds` knows of binary variables and pairs."""

    ptr: np.ndarray  # i8 (V+1,)
    nbr: np.ndarray  # i8 (2E,)
    weight: np.ndarray  # f8 (2E, 2)
    theta: np.ndarray  # f8 (V, 2)
    other: np.ndarray  # f8 (V, 2)


@jit
def find_pair(ptr, nbr, i, j):
    """Where j is in the row of i, or -1. Rows are sorted."""
    low, high = ptr[i], ptr[i + 1]
    while low < high:
        mid = (low + high) // 2
        if nbr[mid] < j:
            low = mid + 1
        else:
            high = mid
    return low if low < ptr[i + 1] and nbr[low] == j else -1


@jit
def _root(parent, parity, v):
    p = 0
    r = v
    while parent[r] != r:
        p ^= parity[r]
        r = parent[r]
    while parent[v] != r and v != r:  # everyone on the way points to the root
        up, q = parent[v], parity[v]
        parent[v] = r
        parity[v] = p
        p ^= q
        v = up
    return r


@jit
def _keep(pairs, slot, weight, order, parent, parity, kept):
    """Keep pairs in ``order`` while they agree on flips; whether all did."""
    n = parent.size
    for v in range(n):
        parent[v] = v
        parity[v] = 0
    agree = True
    for m in order:
        kept[m] = False
        e = slot[m]
        if e < 0 or not (weight[e, 0] > 0 or weight[e, 1] < 0):
            continue
        a, b = pairs[m, 0], pairs[m, 1]
        ra, rb = _root(parent, parity, a), _root(parent, parity, b)
        pa = parity[a] if a != ra else 0
        pb = parity[b] if b != rb else 0
        want = 1 if weight[e, 1] < 0 else 0
        if ra == rb:
            kept[m] = pa ^ pb == want
            agree &= kept[m]
        else:
            parent[rb] = ra
            parity[rb] = pa ^ pb ^ want
            kept[m] = True
    return agree


@jit
def region_numbers(vertices, pairs, signed, local, most, lane, mark, field, w, flip, size):
    """Fields and weights of a region in lanes ``lane`` (lower) and ``lane + 1`` (upper).

    ``vertices`` (n,) are variables, -1 for none; ``pairs`` (m, 2) places in it that may be joined.
    ``signed``: the region is whole, so that pairs of any sign may stay, nothing is flipped, and
    both lanes take the middle of all numbers. Fields beyond ``most`` are cut outward, or, where
    that would be inward, the variable is pinned: then it tells nothing itself. ``mark`` (2E,) is
    scratch, all false. Filled: ``field`` (n * L,), ``w`` (m * L,), ``flip`` (n,): 1 flipped,
    2 pinned below, 4 pinned above; ``size`` (n,): the largest log-odds either lane can give.
    Returns, if signed, the sum of the widths of all numbers: odds are off by e^ of it at most.
    """
    ptr, nbr, weight, theta, other = local
    n, m = vertices.size, pairs.shape[0]
    slot = np.empty(m, np.int64)
    back = np.empty(m, np.int64)
    for k in range(m):
        i, j = vertices[pairs[k, 0]], vertices[pairs[k, 1]]
        slot[k] = find_pair(ptr, nbr, i, j) if i >= 0 and j >= 0 else -1
        back[k] = find_pair(ptr, nbr, j, i) if slot[k] >= 0 else -1
    kept = np.zeros(m, np.bool_)
    parent = np.empty(n, np.int64)
    parity = np.empty(n, np.int64)
    if signed:
        for k in range(m):
            kept[k] = slot[k] >= 0
        parity[:] = 0
        for v in range(n):
            parent[v] = v
    else:
        order = np.arange(m)
        if not _keep(pairs, slot, weight, order, parent, parity, kept):
            heavy = np.zeros(m)
            for k in range(m):
                if slot[k] >= 0:
                    heavy[k] = -abs(weight[slot[k], 0])
            sort_by(order, np.int64(0), m, heavy, np.empty(m, np.int64))
            _keep(pairs, slot, weight, order, parent, parity, kept)
    for v in range(n):
        r = _root(parent, parity, v)
        flip[v] = parity[v] if v != r else 0
        size[v] = 0.0
    spread = 0.0
    for k in range(m):
        low = high = 0.0
        if kept[k]:
            mark[slot[k]] = True
            mark[back[k]] = True
            low, high = weight[slot[k], 0], weight[slot[k], 1]
            if signed:
                spread += high - low
                low = high = (low + high) / 2
            elif high < 0:
                low, high = -high, -low
        w[k * L + lane] = low
        w[k * L + lane + 1] = high
    # who is flipped, by variable: rows of kept pairs ask it
    turned = np.zeros(n, np.int64)
    for v in range(n):
        turned[v] = flip[v]
    pull = np.zeros((n, 2))  # what kept pairs with flipped partners add
    grown = np.zeros(n)
    for k in range(m):
        if kept[k] and not signed:
            a, b = pairs[k, 0], pairs[k, 1]
            e = slot[k]
            if turned[b]:
                pull[a, 0] += weight[e, 0]
                pull[a, 1] += weight[e, 1]
                grown[a] += max(abs(weight[e, 0]), abs(weight[e, 1]))
            if turned[a]:
                pull[b, 0] += weight[e, 0]
                pull[b, 1] += weight[e, 1]
                grown[b] += max(abs(weight[e, 0]), abs(weight[e, 1]))
    for v in range(n):
        i = vertices[v]
        low = high = 0.0
        if i >= 0:
            low, high = theta[i, 0], theta[i, 1]
            total = grown[v]
            for x in (low, high, other[i, 0], other[i, 1]):
                if abs(x) < np.inf:
                    total += abs(x)
            low += other[i, 0] + pull[v, 0]
            high += other[i, 1] + pull[v, 1]
            for e in range(ptr[i], ptr[i + 1]):
                if not mark[e]:
                    low += min(weight[e, 0], 0.0)
                    high += max(weight[e, 1], 0.0)
                    total += max(abs(weight[e, 0]), abs(weight[e, 1]))
            error = 4 * U * (ptr[i + 1] - ptr[i] + 6) * total
            low -= error
            high += error
            if signed:
                spread += high - low
                low = high = (low + high) / 2
            elif flip[v]:
                low, high = -high, -low
        field[v * L + lane] = low
        field[v * L + lane + 1] = high
    for k in range(m):
        if kept[k]:
            mark[slot[k]] = False
            mark[back[k]] = False
    if not signed:
        for v in range(n):
            if not field[v * L + lane] >= -most:
                flip[v] |= 2
            if not field[v * L + lane + 1] <= most:
                flip[v] |= 4
        for k in range(m):  # a pinned variable becomes a field of its partners
            if kept[k]:
                a, b = pairs[k, 0], pairs[k, 1]
                if (flip[a] | flip[b]) & 2:
                    w[k * L + lane] = 0.0
                if (flip[a] | flip[b]) & 4:
                    push = w[k * L + lane + 1]
                    w[k * L + lane + 1] = 0.0
                    for x, y in ((a, b), (b, a)):
                        if flip[x] & 4 and not flip[y] & 4:
                            f = field[y * L + lane + 1] + push
                            field[y * L + lane + 1] = f + 4 * U * (abs(f) + push)
        for v in range(n):
            f, g = field[v * L + lane], field[v * L + lane + 1]
            field[v * L + lane] = 0.0 if flip[v] & 2 else min(f, most)
            field[v * L + lane + 1] = 0.0 if flip[v] & 4 else max(g, -most)
    for side in range(2):
        f = field[lane + side :: L]
        up = f.copy()
        down = f.copy()
        for k in range(m):
            x = w[k * L + lane + side]
            for end in pairs[k]:
                if x > 0:
                    up[end] += x
                else:
                    down[end] += x
        for v in range(n):
            size[v] = max(size[v], abs(up[v]), abs(down[v]))
    return spread


# ---------------------------------------------------------------- regions of any graph


@jit
def ball(center, ptr, nbr, allowed, most, where, vertices):
    """The ``most`` variables nearest to one, in order of distance; how many there are.

    ``where`` (V,) is -1 and becomes the place of each; the caller resets it.
    """
    vertices[0] = center
    where[center] = 0
    n, k = 1, 0
    while k < n and n < most:
        v = vertices[k]
        for e in range(ptr[v], ptr[v + 1]):
            j = nbr[e]
            if where[j] < 0 and allowed[j]:
                where[j] = n
                vertices[n] = j
                n += 1
                if n == most:
                    break
        k += 1
    return n


@jit
def inside(vertices, where, ptr, nbr):
    """The graph of a region in CSR form over its places, with numbers of pairs, and the pairs."""
    n = vertices.size
    lptr = np.zeros(n + 1, np.int64)
    for v in range(n):
        i = vertices[v]
        for e in range(ptr[i], ptr[i + 1]):
            lptr[v + 1] += where[nbr[e]] >= 0
    for v in range(n):
        lptr[v + 1] += lptr[v]
    lnbr = np.empty(lptr[n], np.int64)
    ledge = np.empty(lptr[n], np.int64)
    pairs = np.empty((lptr[n] // 2, 2), np.int64)
    at = lptr[:n].copy()
    m = 0
    for v in range(n):
        i = vertices[v]
        for e in range(ptr[i], ptr[i + 1]):
            u = where[nbr[e]]
            if u > v:
                pairs[m, 0] = v
                pairs[m, 1] = u
                lnbr[at[v]] = u
                lnbr[at[u]] = v
                ledge[at[v]] = m
                ledge[at[u]] = m
                at[v] += 1
                at[u] += 1
                m += 1
    return lptr, lnbr, ledge, pairs


@jit
def narrow_order(lptr, lnbr):
    """An order whose frontier is small: next comes whose arrival lets most others go.

    Among equals, a partner of who has waited longest. Begins far from the first variable.
    """
    n = lptr.size - 1
    order = np.empty(n, np.int64)
    unseen = np.empty(n, np.int64)  # partners still to come
    for v in range(n):
        unseen[v] = lptr[v + 1] - lptr[v]
    state = np.zeros(n, np.int64)  # 0 new, 1 next to the frontier, 2 in it or behind
    fresh = np.empty(n, np.int64)  # neighbours of the frontier
    n_fresh = done = 0
    begin = n - 1
    while done < n:
        if n_fresh == 0:
            while state[begin] != 0:
                begin -= 1
            fresh[0] = begin
            state[begin] = 1
            n_fresh = 1
        best, which = -1000000, 0
        for k in range(n_fresh):
            v = fresh[k]
            frees = 1 if unseen[v] == 0 else 0
            for e in range(lptr[v], lptr[v + 1]):
                u = lnbr[e]
                if state[u] == 2 and unseen[u] == 1:
                    frees += 1
            news = 0
            for e in range(lptr[v], lptr[v + 1]):
                news += state[lnbr[e]] == 0
            score = 8 * frees - news
            if score > best:
                best, which = score, k
        v = fresh[which]
        for k in range(which, n_fresh - 1):
            fresh[k] = fresh[k + 1]
        n_fresh -= 1
        state[v] = 2
        order[done] = v
        done += 1
        for e in range(lptr[v], lptr[v + 1]):
            u = lnbr[e]
            unseen[u] -= 1
            if state[u] == 0:
                state[u] = 1
                fresh[n_fresh] = u
                n_fresh += 1
    return order


@jit
def grow(
    center, local, allowed, weight, budget, passes, widest, most, rounds, where, vertices, served
):
    """The largest ball whose sums cost at most ``budget`` for each variable it serves.

    Balls of growing size are tried; ``served`` (V,) are variables that are looked for, and count if
    within a third of the ball's radius. ``where`` and ``vertices`` are scratch: -1 (V,), and room.
    Returns how many variables the ball has (0: none fits), how many of these lie in its core, and
    whether it is a whole component.
    """
    ptr, nbr = local.ptr, local.nbr
    best = core = 0
    whole = False
    size = 2.0
    for _ in range(rounds):
        n = ball(center, ptr, nbr, allowed, int(size), where, vertices)
        # distances, from the order of the search
        radius = 0
        done = 1
        dist = np.zeros(n, np.int64)
        for k in range(n):
            v = vertices[k]
            for e in range(ptr[v], ptr[v + 1]):
                j = where[nbr[e]]
                if j >= done:
                    dist[j] = dist[k] + 1
                    done = j + 1
                    radius = max(radius, dist[j])
        near = use = 0
        for k in range(n):
            if 3 * dist[k] <= radius or k == 0:
                near += 1
                use += served[vertices[k]]
        lptr, lnbr, _, _ = inside(vertices[:n], where, ptr, nbr)
        order = narrow_order(lptr, lnbr)
        local = np.empty(n)
        for k in range(n):
            local[k] = weight[vertices[k]]
        k, heavy, cells = frontier_sizes(order, lptr, lnbr, local, widest)
        complete = n < int(size)
        for v in vertices[:n]:
            where[v] = -1
        if complete:
            use = 0
            for v in vertices[:n]:
                use += served[v]
            near = n
        if k > widest or heavy > most or passes * cells > budget * max(use, 1):
            break
        best, core, whole = n, near, complete
        if complete:
            break
        size = max(size + 1, 1.3 * size)
    return best, core, whole
