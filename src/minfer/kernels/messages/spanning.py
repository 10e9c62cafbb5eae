"""Spanning trees of a multigraph: blocks, effective resistances, covering forests.

A graph here is ``edges`` (i4, E x 2, no self-loop; parallel edges are edges of their own) over the
vertices ``0 .. n - 1``. Everything is iterative and deterministic. ``resistances`` and
``cover_with_forests`` compute edge appearance probabilities in two ways; the mathematics is told in
``minfer.solvers.appearance``.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels.compiling.jit import jit


@jit
def incidence(n, edges):
    """CSR of the edge numbers at every vertex: ``start`` (i8, n + 1) and ``inc`` (i4, 2 E)."""
    start = np.zeros(n + 1, np.int64)
    for e in range(edges.shape[0]):
        start[edges[e, 0] + 1] += 1
        start[edges[e, 1] + 1] += 1
    for v in range(n):
        start[v + 1] += start[v]
    fill = start[:-1].copy()
    inc = np.empty(2 * edges.shape[0], np.int32)
    for e in range(edges.shape[0]):
        for side in range(2):
            v = edges[e, side]
            inc[fill[v]] = e
            fill[v] += 1
    return start, inc


@jit
def blocks(n, edges):
    """Biconnected components by Tarjan's search with an explicit stack: the block of every edge
    (i4), the number of vertices of every block (i4). A bridge is a block of one edge."""
    n_edges = edges.shape[0]
    start, inc = incidence(n, edges)
    cursor = start[:-1].copy()
    seen = np.zeros(n, np.int32)  # discovery time, from 1; 0 is unseen
    low = np.zeros(n, np.int32)
    entered_by = np.full(n, -1, np.int32)
    path = np.empty(n, np.int32)
    waiting = np.empty(n_edges, np.int32)  # edges whose block is still open
    block_of = np.empty(n_edges, np.int32)
    sizes = np.empty(n_edges, np.int32)
    n_blocks = 0
    n_waiting = 0
    time = 0
    for root in range(n):
        if seen[root] != 0:
            continue
        time += 1
        seen[root] = time
        low[root] = time
        path[0] = root
        depth = 1
        while depth > 0:
            v = path[depth - 1]
            if cursor[v] < start[v + 1]:
                e = inc[cursor[v]]
                cursor[v] += 1
                if e == entered_by[v]:
                    continue
                w = edges[e, 0] + edges[e, 1] - v
                if seen[w] == 0:
                    time += 1
                    seen[w] = time
                    low[w] = time
                    entered_by[w] = e
                    path[depth] = w
                    depth += 1
                    waiting[n_waiting] = e
                    n_waiting += 1
                elif seen[w] < seen[v]:
                    waiting[n_waiting] = e
                    n_waiting += 1
                    low[v] = min(low[v], seen[w])
                continue
            depth -= 1
            if depth == 0:
                break
            p = path[depth - 1]
            low[p] = min(low[p], low[v])
            if low[v] >= seen[p]:  # what hangs below v, and the edge into v, is a block
                vertices = 1
                while True:
                    n_waiting -= 1
                    e = waiting[n_waiting]
                    block_of[e] = n_blocks
                    if entered_by[edges[e, 0]] == e or entered_by[edges[e, 1]] == e:
                        vertices += 1  # the search tree spans the block
                    if e == entered_by[v]:
                        break
                sizes[n_blocks] = vertices
                n_blocks += 1
    return block_of, sizes[:n_blocks].copy()


@jit
def group_by_block(block_of, n_blocks):
    """The edge numbers sorted by block: ``start`` (i8, blocks + 1) and ``members`` (i4)."""
    start = np.zeros(n_blocks + 1, np.int64)
    for e in range(block_of.size):
        start[block_of[e] + 1] += 1
    for b in range(n_blocks):
        start[b + 1] += start[b]
    fill = start[:-1].copy()
    members = np.empty(block_of.size, np.int32)
    for e in range(block_of.size):
        b = block_of[e]
        members[fill[b]] = e
        fill[b] += 1
    return start, members


@jit
def _breadth_first(n, start, neighbour, root, limit, order, place):
    """Number the vertices breadth first. Returns the bandwidth, or -1 as soon as it tops limit: the
    widest gap between a vertex and one it discovers, since whoever else is adjacent to the
    discovered vertex comes after its discoverer."""
    place[:n] = -1
    order[0] = root
    place[root] = 0
    tail = 1
    bandwidth = 0
    for head in range(n):
        v = order[head]
        for i in range(start[v], start[v + 1]):
            w = neighbour[i]
            if place[w] < 0:
                if tail - head > bandwidth:
                    bandwidth = tail - head
                    if bandwidth > limit:
                        return -1
                place[w] = tail
                order[tail] = w
                tail += 1
    return bandwidth


@jit(fastmath={"reassoc", "contract"})
def _eliminate(n, b, weight, total):
    """Eliminate vertices 0, 1, .. of a banded network; ``weight[v (b+1) + k - v]`` for k > v.
    Star-mesh steps only ever add: every entry keeps its relative accuracy. Afterwards row v holds
    the weights at its elimination divided by their sum ``total[v]``."""
    for v in range(n - 1):
        m = min(b, n - 1 - v)
        row = weight[v * (b + 1) + 1 : v * (b + 1) + 1 + m]
        d = 0.0
        for k in range(m):
            d += row[k]
        total[v] = d
        for k in range(m):
            if row[k] == 0.0:
                continue
            c = row[k] / d
            at = (v + 1 + k) * (b + 1)
            target = weight[at + 1 : at + m - k]
            source = row[k + 1 :]
            for l in range(source.size):
                target[l] += c * source[l]
        for k in range(m):
            row[k] /= d


@jit(fastmath={"reassoc", "contract"})
def _band_resistances(n, b, weight, total, res):
    """Effective resistances inside the band, back to front; ``res[v (2b+1) + b + k - v]``.

    With p the normalised weights of v at its elimination and d their sum,
    R(v, x) = 1/d + sum_k p_k R(k, x) - (1/2) sum_kl p_k p_l R(k, l).
    """
    width = 2 * b + 1
    mean = np.empty(b)
    res[(n - 1) * width + b] = 0.0
    for v in range(n - 2, -1, -1):
        m = min(b, n - 1 - v)
        p = weight[v * (b + 1) + 1 : v * (b + 1) + 1 + m]
        spread = 0.0
        for j in range(m):
            at = (v + 1 + j) * width + b - j
            r = res[at : at + m]
            s = 0.0
            for k in range(m):
                s += p[k] * r[k]
            mean[j] = s
            spread += p[j] * s
        base = 1.0 / total[v] - 0.5 * spread
        res[v * width + b] = 0.0
        for j in range(m):
            r_vx = base + mean[j]
            res[v * width + b + 1 + j] = r_vx
            res[(v + 1 + j) * width + b - 1 - j] = r_vx


@jit
def _work(n, b):
    """Multiply-adds of the two banded passes over a block of n vertices and bandwidth b."""
    return float(b) * b * (1.5 * n - b)


@jit
def resistances(n, edges, start, members, sizes, per_edge, dense, floor, max_entries, rho):
    """Fill ``rho`` with effective resistances, block by block; leave -1 where it costs too much. A
    block is solved if its work is at most ``per_edge[0]`` times its edges (``[1]``: of more than
    ``dense`` edges a vertex), or fits into what is left of ``floor``, and its arrays into
    ``max_entries``. Single edges and cycles have a closed form. Returns the number of edges left
    out."""
    local = np.full(n, -1, np.int32)
    vertices = np.empty(n, np.int32)
    order = np.empty(n, np.int32)
    place = np.empty(n, np.int32)
    begin = np.empty(n + 1, np.int64)
    fill = np.empty(n + 1, np.int64)
    most = 0
    for block in range(sizes.size):
        if start[block + 1] - start[block] > sizes[block]:
            most = max(most, start[block + 1] - start[block])
    neighbour = np.empty(2 * most, np.int32)
    weight = np.empty(1024)
    res = np.empty(2048)
    total = np.empty(256)
    left_out = 0
    for block in range(sizes.size):
        size = np.int64(sizes[block])
        mine = members[start[block] : start[block + 1]]
        if mine.size <= size:  # a bridge (2 vertices, 1 edge) or a cycle
            value = 1.0 if mine.size == 1 else (size - 1.0) / size
            for i in range(mine.size):
                rho[mine[i]] = value
            continue
        share = mine.size * (per_edge[1] if mine.size > dense * size else per_edge[0])
        budget = max(share, floor)
        if _work(size, size - 1) <= budget:
            limit = size
        else:
            limit = min(size, np.int64(np.sqrt(budget / (1.5 * size))))
        limit = min(limit, max_entries // (3 * size))
        if limit < 1:
            left_out += mine.size
            for i in range(mine.size):
                rho[mine[i]] = -1.0
            continue

        # the block as a graph of its own
        found = 0
        begin[0] = 0
        for i in range(mine.size):
            for side in range(2):
                v = edges[mine[i], side]
                if local[v] < 0:
                    local[v] = found
                    vertices[found] = v
                    found += 1
                    begin[found] = 0
                begin[local[v] + 1] += 1
        for v in range(size):
            begin[v + 1] += begin[v]
            fill[v] = begin[v]
        for i in range(mine.size):
            u = local[edges[mine[i], 0]]
            v = local[edges[mine[i], 1]]
            neighbour[fill[u]] = v
            fill[u] += 1
            neighbour[fill[v]] = u
            fill[v] += 1

        # number it from (nearly) an end; a start in the middle may look several times as wide
        b = _breadth_first(size, begin, neighbour, 0, 4 * limit, order, place)
        for _ in range(2):
            if b >= 0:
                b = _breadth_first(size, begin, neighbour, order[size - 1], 4 * limit, order, place)
        if b < 0 or b > limit:
            left_out += mine.size
            for i in range(mine.size):
                rho[mine[i]] = -1.0
        else:
            work = _work(size, b)
            if work > share:
                floor -= work
            if weight.size < size * (b + 1):
                weight = np.empty(size * (b + 1))
            if res.size < size * (2 * b + 1):
                res = np.empty(size * (2 * b + 1))
            if total.size < size:
                total = np.empty(size)
            weight[: size * (b + 1)] = 0.0
            for i in range(mine.size):
                u = place[local[edges[mine[i], 0]]]
                v = place[local[edges[mine[i], 1]]]
                weight[min(u, v) * (b + 1) + abs(u - v)] += 1.0
            _eliminate(size, b, weight, total)
            _band_resistances(size, b, weight, total, res)
            for i in range(mine.size):
                u = np.int64(place[local[edges[mine[i], 0]]])
                v = np.int64(place[local[edges[mine[i], 1]]])
                rho[mine[i]] = res[u * (2 * b + 1) + b + v - u]
        for i in range(size):
            local[vertices[i]] = -1
    return left_out


@jit
def _find(parent, v):
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v


@jit
def _join(parent, u, v):
    """Unite the sets of u and v; False if they were one already. The smaller number is the root."""
    u = _find(parent, u)
    v = _find(parent, v)
    if u == v:
        return False
    if u < v:
        parent[v] = u
    else:
        parent[u] = v
    return True


@jit
def cover_with_forests(n, edges, least, most, count):
    """Spanning forests that together hold every edge; ``count`` (i4) is how many hold each. Kruskal
    rounds that prefer the edges held least so far, ties by smaller end, up and down in turn: at
    least ``least``, then until all are covered, at most ``most``. What is uncovered then is split
    into forests by one maximum adjacency search (Nagamochi and Ibaraki), each completed from one of
    the last trees in turn. Returns the number of forests."""
    n_edges = edges.shape[0]
    low = np.empty(n_edges, np.int32)
    for e in range(n_edges):
        low[e] = min(edges[e, 0], edges[e, 1])
    _, by_low = group_by_block(low, n)  # neighbours in memory, whatever order they came in
    pairs = np.empty((n_edges, 2), np.int32)
    for i in range(n_edges):
        pairs[i, 0] = edges[by_low[i], 0]
        pairs[i, 1] = edges[by_low[i], 1]
    held = np.zeros(n_edges, np.int32)
    rounds = _cover_sorted(n, pairs, least, most, held)
    for i in range(n_edges):
        count[by_low[i]] = held[i]
    return rounds


@jit
def _cover_sorted(n, edges, least, most, count):
    n_edges = edges.shape[0]
    parent = np.empty(n, np.int32)
    order = np.arange(n_edges).astype(np.int32)
    n_kept = min(16, most)
    kept = np.empty((n_kept, max(n - 1, 0)), np.int32)
    rank = n  # edges of a spanning forest; the first round finds it out
    slots = np.empty(most + 2, np.int64)
    uncovered = n_edges
    rounds = 0
    while rounds < least or (uncovered > 0 and rounds < most):
        for v in range(n):
            parent[v] = v
        tree = kept[rounds % n_kept]
        have = 0
        for i in range(n_edges):
            if have == rank:
                break
            e = order[i]
            if _join(parent, edges[e, 0], edges[e, 1]):
                tree[have] = e
                have += 1
        rank = have
        for i in range(rank):
            e = tree[i]
            if count[e] == 0:
                uncovered -= 1
            count[e] += 1
        rounds += 1
        # sort by count for the next round
        slots[: rounds + 2] = 0
        for e in range(n_edges):
            slots[count[e] + 1] += 1
        for c in range(rounds + 1):
            slots[c + 1] += slots[c]
        up = rounds % 2 == 0
        for i in range(n_edges):
            e = i if up else n_edges - 1 - i
            order[slots[count[e]]] = e
            slots[count[e]] += 1
    if uncovered > 0:
        rounds += _cover_rest(n, edges, rank, order[:uncovered].copy(), kept, parent, count)
    return rounds


@jit
def _cover_rest(n, edges, rank, rest, kept, parent, count):
    """Cover the edges ``rest`` by forests of a maximum adjacency search; returns how many."""
    pairs = np.empty((rest.size, 2), np.int32)
    for i in range(rest.size):
        pairs[i, 0] = edges[rest[i], 0]
        pairs[i, 1] = edges[rest[i], 1]
    start, inc = incidence(n, pairs)
    degree = 0
    for v in range(n):
        degree = max(degree, start[v + 1] - start[v])
    # vertices by the number of edges to scanned ones, in doubly linked buckets
    first = np.full(degree + 1, -1, np.int32)
    after = np.full(n, -1, np.int32)
    before = np.full(n, -1, np.int32)
    for v in range(n - 1, -1, -1):
        after[v] = first[0]
        if first[0] >= 0:
            before[first[0]] = v
        first[0] = v
    reached = np.zeros(n, np.int32)  # -1: scanned
    forest = np.full(rest.size, -1, np.int32)
    n_forests = 0
    top = 0
    for _ in range(n):
        while first[top] < 0:
            top -= 1
        v = first[top]
        first[top] = after[v]
        if after[v] >= 0:
            before[after[v]] = -1
        reached[v] = -1
        for i in range(start[v], start[v + 1]):
            w = pairs[inc[i], 0] + pairs[inc[i], 1] - v
            r = reached[w]
            if r < 0:
                continue
            forest[inc[i]] = r
            if r + 1 > n_forests:
                n_forests = r + 1
            if before[w] >= 0:
                after[before[w]] = after[w]
            else:
                first[r] = after[w]
            if after[w] >= 0:
                before[after[w]] = before[w]
            before[w] = -1
            after[w] = first[r + 1]
            if first[r + 1] >= 0:
                before[first[r + 1]] = w
            first[r + 1] = w
            reached[w] = r + 1
            top = max(top, r + 1)
    begin, members = group_by_block(forest, n_forests)
    for f in range(n_forests):
        for v in range(n):
            parent[v] = v
        have = 0
        for i in range(begin[f], begin[f + 1]):
            e = rest[members[i]]
            if _join(parent, edges[e, 0], edges[e, 1]):
                count[e] += 1
                have += 1
        tree = kept[f % kept.shape[0]]
        for i in range(rank):
            if have == rank:
                break
            e = tree[i]
            if _join(parent, edges[e, 0], edges[e, 1]):
                count[e] += 1
                have += 1
    return n_forests
