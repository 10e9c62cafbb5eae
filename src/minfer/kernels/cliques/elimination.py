"""Greedy elimination: an order of the variables, and the cliques it makes.

Fill counts are exact and updated as vertices go; a heap finds the next one. A new edge between a
and b counts w_a + w_b: 1 of min-fill, and with the logs of their states of weighted fill (after
Kjaerulff 1990).
"""

from __future__ import annotations

import numpy as np

from minfer.kernels.compiling.jit import jit

MIN_FILL, MIN_WEIGHT, GIVEN, WEIGHTED_FILL = 0, 1, 2, 3


@jit
def _find(pool, lo, n, vertex):
    """Where a vertex is, or would be, in the sorted list pool[lo : lo+n]."""
    a, b = lo, lo + n
    while a < b:
        mid = (a + b) >> 1
        if pool[mid] < vertex:
            a = mid + 1
        else:
            b = mid
    return a


@jit
def _common(pool, start, length, gone, a, b, out):
    """Living common neighbours of a and b into ``out``; their number."""
    if length[a] > length[b]:
        a, b = b, a
    n = 0
    i, i_end = start[a], start[a] + length[a]
    j, j_end = start[b], start[b] + length[b]
    search = 16 * length[a] < length[b]
    while i < i_end and j < j_end:
        u = pool[i]
        i += 1
        if gone[u]:
            continue
        if search:
            j = _find(pool, j, j_end - j, u)
        else:
            while j < j_end and pool[j] < u:
                j += 1
        if j < j_end and pool[j] == u:
            out[n] = u
            n += 1
    return n


@jit
def _compact(pool, start, length, gone, u):
    """Drop the eliminated from a neighbour list."""
    n = 0
    for i in range(start[u], start[u] + length[u]):
        if not gone[pool[i]]:
            pool[start[u] + n] = pool[i]
            n += 1
    length[u] = n


@jit
def _insert(pool, top, start, length, cap, u, vertex):
    """Insert a vertex into u's sorted list, moving the list to the pool's end if it is full; where
    that end is now. The caller makes room: to return an array at each call took a seventh of the
    time."""
    if length[u] == cap[u]:
        size = 2 * cap[u] + 4
        for i in range(length[u]):
            pool[top + i] = pool[start[u] + i]
        start[u], cap[u] = top, size
        top += size
    at = _find(pool, start[u], length[u], vertex)
    end = start[u] + length[u]
    while end > at:
        pool[end] = pool[end - 1]
        end -= 1
    pool[at] = vertex
    length[u] += 1
    return top


@jit
def _key(kind, fill, log_size, tie):
    """What is minimised: fill edges, ties by clique size (tie < 0) or at random, weighted ones up
    to half as much again; or clique size."""
    if kind == 3 and tie >= 0.0:
        return fill * (1.0 + 0.5 * tie) * 4096.0
    if kind != 1:
        return fill * 4096.0 + (log_size if tie < 0 else 4095.0 * tie)
    return log_size * 1048576.0 + (min(fill, 1e6) if tie < 0 else 1048575.0 * tie)


@jit
def _sift(heap, where, key, i, size):
    """Move the vertex at place i of heap[:size], the smallest key first, of equal ones the smallest
    vertex, up or down to where its key belongs; ``where`` (V,) are their places."""
    v = heap[i]
    while i > 0:
        u = heap[(i - 1) >> 1]
        if key[u] < key[v] or (key[u] == key[v] and u < v):
            break
        heap[i] = u
        where[u] = i
        i = (i - 1) >> 1
    child = 2 * i + 1
    while child < size:
        u = heap[child]
        if child + 1 < size:
            other = heap[child + 1]
            if key[other] < key[u] or (key[other] == key[u] and other < u):
                child += 1
                u = other
        if key[v] < key[u] or (key[v] == key[u] and v < u):
            break
        heap[i] = u
        where[u] = i
        i = child
        child = 2 * i + 1
    heap[i] = v
    where[v] = i


@jit
def eliminate(ptr, adj, log_card, rank, kind, seed, max_log2, max_cells, max_work):
    """Eliminate greedily (kind MIN_FILL, WEIGHTED_FILL, MIN_WEIGHT; ``rank`` is added to what is
    minimised) or by increasing ``rank`` (V,) (GIVEN).

    ``adj[ptr[v] : ptr[v+1]]`` are v's neighbours, sorted. Fill counts are kept exact under every
    change, so an elimination costs only what it changes. Stops early when a clique exceeds
    ``2**max_log2`` cells, their sum ``max_cells``, or the work ``max_work``.

    Returns order (V,), pool, start (V,), length (V,): v's neighbours when it was eliminated are
    pool[start[v] : start[v] + length[v]]; then the number eliminated, the largest neighbourhood,
    log2 of the largest clique, the sum of clique cells, and the work.
    """
    n = ptr.size - 1
    start = ptr[:n].copy()
    length = np.empty(n, np.int64)
    for v in range(n):
        length[v] = ptr[v + 1] - ptr[v]
    cap = length.copy()
    degree = length.copy()
    top = adj.size
    pool = np.empty(2 * top + 16, np.int32)
    for i in range(top):
        pool[i] = adj[i]
    gone = np.zeros(n, np.bool_)
    shared = np.empty(n + 1, np.int32)
    order = np.empty(n, np.int32)
    log_size = log_card.copy()
    fill = np.zeros(n)
    weight = np.full(n, 0.5)
    if kind == 3:
        weight[:] = log_card
    around = np.zeros(n)  # weights of the neighbours
    work = 0
    for v in range(n):
        for i in range(ptr[v], ptr[v + 1]):
            log_size[v] += log_card[adj[i]]
            around[v] += weight[adj[i]]
            if kind != 2 and adj[i] > v and work <= max_work:  # else it stops at the first one
                c = _common(pool, start, length, gone, v, np.int64(adj[i]), shared)
                work += min(length[v], length[adj[i]])
                fill[v] -= weight[adj[i]] * c
                fill[adj[i]] -= weight[v] * c
        fill[v] += around[v] * (degree[v] - 1.0)
    rng = np.uint64(seed) * np.uint64(2654435769) + np.uint64(1)
    key = np.empty(n)
    heap = np.empty(n, np.int64)
    where = np.empty(n, np.int64)
    for v in range(n):
        tie = -1.0
        if seed > 0:
            rng = rng * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            tie = np.float64(rng >> np.uint64(11)) / 9007199254740992.0
        key[v] = rank[v]
        if kind != 2:
            key[v] += _key(kind, fill[v], log_size[v], tie)
        heap[v] = v
        _sift(heap, where, key, v, v + 1)
    stamp = np.zeros(n, np.int64)  # one more than the last step that touched a vertex
    mark = np.zeros(n, np.int64)
    n_marks = 0
    touched = np.empty(n, np.int32)
    n_done, width, largest, cells = 0, 0, 0.0, 0.0
    while n_done < n:
        v = heap[0]
        if n_done + 1 < n:
            heap[0] = heap[n - 1 - n_done]
            _sift(heap, where, key, np.int64(0), n - 1 - n_done)
        _compact(pool, start, length, gone, v)
        d = length[v]
        width = max(width, d)
        largest = max(largest, log_size[v])
        cells += 2.0 ** min(log_size[v], 1000.0)
        if largest > max_log2 or cells > max_cells or work > max_work:
            break
        n_touched = 0
        for i in range(d):
            a = pool[start[v] + i]
            stamp[a] = n_done + 1
            touched[n_touched] = a
            n_touched += 1
        if kind == 2 or fill[v] > 0.25:
            for i in range(d):
                a = np.int64(pool[start[v] + i])
                scan = length[a] < 16 * d
                if scan:
                    n_marks += 1
                    for j in range(start[a], start[a] + length[a]):
                        mark[pool[j]] = n_marks
                    work += length[a]
                work += d
                for j in range(i + 1, d):
                    b = np.int64(pool[start[v] + j])
                    if scan:
                        if mark[b] == n_marks:
                            continue
                    else:
                        at = _find(pool, start[a], length[a], b)
                        if at < start[a] + length[a] and pool[at] == b:
                            continue
                    if kind != 2:
                        c = _common(pool, start, length, gone, a, b, shared)
                        work += min(length[a], length[b])
                        known = 0.0
                        for q in range(c):
                            u = shared[q]
                            known += weight[u]
                            fill[u] -= weight[a] + weight[b]
                            if stamp[u] != n_done + 1:
                                stamp[u] = n_done + 1
                                touched[n_touched] = u
                                n_touched += 1
                        fill[a] += around[a] - known + (degree[a] - c) * weight[b]
                        fill[b] += around[b] - known + (degree[b] - c) * weight[a]
                    room = top + 2 * (cap[a] + cap[b]) + 8
                    if room > pool.size:
                        bigger = np.empty(2 * room, np.int32)
                        for q in range(top):
                            bigger[q] = pool[q]
                        pool = bigger
                    top = _insert(pool, top, start, length, cap, a, b)
                    top = _insert(pool, top, start, length, cap, b, a)
                    work += (length[a] + length[b]) >> 2
                    degree[a] += 1
                    degree[b] += 1
                    around[a] += weight[b]
                    around[b] += weight[a]
                    log_size[a] += log_card[b]
                    log_size[b] += log_card[a]
        gone[v] = True
        order[n_done] = v
        for i in range(d):
            a = np.int64(pool[start[v] + i])
            # pairs of v and a neighbour of a that v did not know
            fill[a] -= (degree[a] - d - 1) * weight[v] + around[a] - around[v] + weight[a]
            degree[a] -= 1
            around[a] -= weight[v]
            log_size[a] -= log_card[v]
            if length[a] > 2 * degree[a] + 8:
                _compact(pool, start, length, gone, a)
        work += d + n_touched
        if kind != 2:
            for i in range(n_touched):
                u = touched[i]
                if gone[u]:
                    continue
                tie = -1.0
                if seed > 0:
                    rng = rng * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
                    tie = np.float64(rng >> np.uint64(11)) / 9007199254740992.0
                key[u] = rank[u] + _key(kind, fill[u], log_size[u], tie)
                _sift(heap, where, key, where[u], n - 1 - n_done)
        n_done += 1
    return order, pool, start, length, n_done, width, largest, cells, work


@jit
def build_cliques(order, pool, start, length, kind):
    """The maximal cliques of an elimination, children before parents. A vertex joins the clique of
    a child c when N(c) is just its own clique and they are of one ``kind`` (V,). Returns ptr
    (C+1,), variables (in elimination order, the eliminated ones first), n_eliminated (C,), parent
    (C,) or -1, and the clique in which each variable is eliminated (V,)."""
    n = order.size
    pos = np.empty(n, np.int64)
    for i in range(n):
        pos[order[i]] = i
    heir = np.empty(n, np.int32)  # the child whose clique goes on with a vertex, or -1
    above = np.empty(n, np.int32)
    head = np.empty(n, np.int32)  # first vertex of the clique a vertex is eliminated in
    last = np.empty(n, np.bool_)
    for v in range(n):
        heir[v], last[v] = -1, True
    for i in range(n):
        v = order[i]
        head[v] = head[heir[v]] if heir[v] >= 0 else v
        p, best = -1, n
        for j in range(start[v], start[v] + length[v]):
            if pos[pool[j]] < best:
                best, p = pos[pool[j]], pool[j]
        above[v] = p
        same = p >= 0 and length[v] == length[p] + 1 and kind[v] == kind[p]
        if same and heir[p] < 0:
            heir[p] = v
            last[v] = False
    total, n_cliques = 0, 0
    for v in range(n):
        if head[v] == v:
            total += length[v] + 1
            n_cliques += 1
    ptr = np.zeros(n_cliques + 1, np.int64)
    variables = np.empty(total, np.int32)
    n_res = np.zeros(n_cliques, np.int32)
    parent = np.empty(n_cliques, np.int32)
    number = np.empty(n, np.int32)  # by head
    above_of = np.empty(n_cliques, np.int32)
    c = 0
    for i in range(n):
        v = order[i]
        if not last[v]:
            continue
        h = head[v]
        number[h] = c
        above_of[c] = above[v]
        ptr[c + 1] = ptr[c] + length[h] + 1
        variables[ptr[c]] = h
        for j in range(length[h]):  # insertion sort by position
            u = pool[start[h] + j]
            at = ptr[c] + j + 1
            while pos[variables[at - 1]] > pos[u]:
                variables[at] = variables[at - 1]
                at -= 1
            variables[at] = u
        n_res[c] = length[h] + 1 - length[v]
        c += 1
    home = np.empty(n, np.int32)
    for v in range(n):
        home[v] = number[head[v]]
    for c in range(n_cliques):
        parent[c] = home[above_of[c]] if above_of[c] >= 0 else -1
    return ptr, variables, n_res, parent, home


@jit
def link_scopes(scope, fptr, number, n):
    """The graph of ``n`` vertices that share a scope: ptr (n+1,) and sorted neighbours. ``number``
    (V,): a variable's vertex, -1 for one that is none."""
    begin = np.zeros(n + 1, np.int64)  # of a vertex's neighbours, one for every scope they share
    for f in range(fptr.size - 1):
        here = 0
        for k in range(fptr[f], fptr[f + 1]):
            here += number[scope[k]] >= 0
        for k in range(fptr[f], fptr[f + 1]):
            if number[scope[k]] >= 0:
                begin[number[scope[k]] + 1] += here - 1
    for v in range(n):
        begin[v + 1] += begin[v]
    near, ordered = np.empty(begin[n], np.int32), np.empty(begin[n], np.int32)
    at = begin.copy()
    for f in range(fptr.size - 1):
        for i in range(fptr[f], fptr[f + 1]):
            u = number[scope[i]]
            if u < 0:
                continue
            for j in range(fptr[f], fptr[f + 1]):
                if number[scope[j]] >= 0 and j != i:
                    near[at[u]] = number[scope[j]]
                    at[u] += 1
    for v in range(n):
        at[v] = begin[v]
    for u in range(n):  # each tells its neighbours, in turn, so these hear of them in order
        for k in range(begin[u], begin[u + 1]):
            ordered[at[near[k]]] = u
            at[near[k]] += 1
    ptr = np.zeros(n + 1, np.int64)
    m = 0
    for v in range(n):
        last = -1
        for k in range(begin[v], begin[v + 1]):
            if ordered[k] != last:
                last = ordered[k]
                near[m] = last
                m += 1
        ptr[v + 1] = m
    return ptr, near[:m].copy()
