"""The best states of a large block of variables, all others as they are.

The block is found on the way: variables are eliminated by least clique, and where even that is too
large, the one with the most neighbours is left as it is (a cutset by greed). Then maxima, bucket by
bucket (Dechter 1999), and the states read off backwards. The layout is that of
:mod:`minfer.kernels.best.dual`, with tables only.
"""

import math

import numpy as np

from minfer.kernels.compiling.jit import jit


@jit
def _set(bits, row, j):
    bits[row, j >> 6] |= np.uint64(1) << np.uint64(j & 63)


@jit
def _clear(bits, row, j):
    bits[row, j >> 6] &= ~(np.uint64(1) << np.uint64(j & 63))


@jit
def _members(bits, row, out):
    """The numbers of the bits set in a row."""
    size = 0
    for w in range(bits.shape[1]):
        word = bits[row, w]
        j = w << 6
        while word:
            if word & np.uint64(1):
                out[size] = j
                size += 1
            word >>= np.uint64(1)
            j += 1
    return size


@jit
def _weight(bits, row, size, out):
    """log2 of the cells of the clique that a variable and its neighbours make."""
    total = size[row]
    for k in range(_members(bits, row, out)):
        total += size[out[k]]
    return total


@jit
def _orders(adj, size, noise, limit, where, cptr, cliques):
    """Eliminate by least clique; variables left as they are have where = -1. How many cliques."""
    m = size.shape[0]
    mine, other = np.empty(m, np.int64), np.empty(m, np.int64)
    weight = np.empty(m)
    alive = np.ones(m, np.bool_)
    for v in range(m):
        where[v] = -1
        weight[v] = _weight(adj, v, size, mine)
    done, used = 0, 0
    for _ in range(m):
        v = -1
        for u in range(m):
            if alive[u] and (v < 0 or weight[u] < weight[v]):
                v = u
        leave = weight[v] > limit
        if leave:
            best = -1.0
            for u in range(m):
                if alive[u] and weight[u] * noise[u] > best:
                    v, best = u, weight[u] * noise[u]
        alive[v] = False
        n = _members(adj, v, mine)
        if not leave:
            if used + n + 1 > cliques.shape[0]:
                return -1
            where[v] = done
            cliques[used] = v
            for k in range(n):
                cliques[used + 1 + k] = mine[k]
            used += n + 1
            done += 1
            cptr[done] = used
        for k in range(n):
            u = mine[k]
            if not leave:
                for w in range(adj.shape[1]):
                    adj[u, w] |= adj[v, w]
                _clear(adj, u, u)
            _clear(adj, u, v)
        for k in range(n):
            weight[mine[k]] = _weight(adj, mine[k], size, other)
    used, at = 0, 0  # what was left later is not part of earlier cliques
    for c in range(done):
        stop = cptr[c + 1]
        for k in range(at, stop):
            if where[cliques[k]] >= 0:
                cliques[used] = cliques[k]
                used += 1
        at, cptr[c + 1] = stop, used
    return done


@jit
def best_block(wires, theta, x, region, noise, limit, shift, place):
    """Best states of a block of ``region``, into x; how many of the region were left, or -1.

    No clique has more than 2^limit cells. ``place`` (V,) is -1 throughout, and is so again. Of
    equally good states the first counted from ``shift``.
    """
    off, vptr, vs, fptr = wires.off, wires.vptr, wires.vs, wires.fptr
    sv, sf, ft, tab = wires.sv, wires.sf, wires.ft, wires.tab
    m = region.shape[0]
    size, where = np.empty(m), np.empty(m, np.int64)
    for v in range(m):
        i = region[v]
        place[i] = v
        size[v] = math.log2(off[i + 1] - off[i])
    adj = np.zeros((m, (m + 63) // 64), np.uint64)
    for v in range(m):
        i = region[v]
        for p in range(vptr[i], vptr[i + 1]):
            f = sf[vs[p]]
            for s in range(fptr[f], fptr[f + 1]):
                u = place[sv[s]]
                if u >= 0 and u != v:
                    _set(adj, v, u)
    cptr = np.zeros(m + 1, np.int64)
    cliques = np.empty(m * (int(limit) + 2), np.int64)
    n = _orders(adj, size, noise, limit, where, cptr, cliques)
    if n < 0:
        for v in range(m):
            place[region[v]] = -1
        return -1
    start = np.zeros(n + 1, np.int64)  # of the messages
    widest, inputs = 1, 1
    for c in range(n):
        cells = 1
        for k in range(cptr[c] + 1, cptr[c + 1]):
            i = region[cliques[k]]
            cells *= off[i + 1] - off[i]
        start[c + 1] = start[c] + cells
        widest = max(widest, cptr[c + 1] - cptr[c])
        i = region[cliques[cptr[c]]]
        inputs = max(inputs, vptr[i + 1] - vptr[i])
    inputs += n
    message, choice = np.empty(start[n]), np.empty(start[n], np.int32)
    head, after = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    index, step = np.empty(inputs, np.int64), np.empty((inputs, widest), np.int64)
    card, state = np.empty(widest, np.int64), np.empty(widest, np.int64)
    spot = np.full(m, -1, np.int64)
    for c in range(n):
        lo, width = cptr[c], cptr[c + 1] - cptr[c]
        i = region[cliques[lo]]
        for k in range(width):
            j = region[cliques[lo + k]]
            card[k], state[k] = off[j + 1] - off[j], 0
            spot[cliques[lo + k]] = k
        n_tables = 0
        for p in range(vptr[i], vptr[i + 1]):
            f = sf[vs[p]]
            first = True
            for s in range(fptr[f], fptr[f + 1]):
                u = place[sv[s]]
                first = first and (u < 0 or where[u] < 0 or where[u] >= c)
            if not first:
                continue
            for k in range(width):
                step[n_tables, k] = 0
            at, stride = ft[f], 1
            for back in range(fptr[f + 1] - fptr[f]):
                j = sv[fptr[f + 1] - 1 - back]
                u = place[j]
                if u >= 0 and where[u] >= 0:
                    step[n_tables, spot[u]] = stride
                else:
                    at += stride * x[j]
                stride *= off[j + 1] - off[j]
            index[n_tables] = at
            n_tables += 1
        n_inputs = n_tables
        child = head[c]
        while child >= 0:
            for k in range(width):
                step[n_inputs, k] = 0
            stride = 1
            for back in range(cptr[child + 1] - cptr[child] - 1):
                u = cliques[cptr[child + 1] - 1 - back]
                step[n_inputs, spot[u]] = stride
                j = region[u]
                stride *= off[j + 1] - off[j]
            index[n_inputs] = start[child]
            n_inputs += 1
            child = after[child]
        for cell in range(start[c], start[c + 1]):
            top, best = -np.inf, x[i]
            for turn in range(card[0]):
                y = (turn + shift) % card[0]
                value = theta[off[i] + y]
                for a in range(n_tables):
                    value += tab[index[a] + y * step[a, 0]]
                for a in range(n_tables, n_inputs):
                    value += message[index[a] + y * step[a, 0]]
                if value > top:
                    top, best = value, y
            message[cell], choice[cell] = top, best
            k = width - 1
            while k > 0:
                state[k] += 1
                if state[k] < card[k]:
                    for a in range(n_inputs):
                        index[a] += step[a, k]
                    break
                for a in range(n_inputs):
                    index[a] -= step[a, k] * (card[k] - 1)
                state[k] = 0
                k -= 1
        if width > 1:  # its message goes where the first of the others is eliminated
            to = n
            for k in range(1, width):
                to = min(to, where[cliques[lo + k]])
            after[c] = head[to]
            head[to] = c
    for turn in range(n):
        c = n - 1 - turn
        cell = 0
        for k in range(cptr[c] + 1, cptr[c + 1]):
            j = region[cliques[k]]
            cell = cell * (off[j + 1] - off[j]) + x[j]
        x[region[cliques[cptr[c]]]] = choice[start[c] + cell]
    for v in range(m):
        place[region[v]] = -1
    return m - n
