"""Variables whose cliques are small, eliminated densely, their sums kept as nodes of a circuit.

    m(c) = sum_a u(a) prod_f f(c, a),   node(c) = {(a, u(a) prod_f f(c, a) / m(c), nodes of the f)}

for each context c of a variable: a message cell carries a number and the node whose value, at
likelihoods of one, is 1 and which it multiplies. Equal nodes are made once. A message over one
variable y joins y's own numbers; the nodes of those before it become children of its own, so that
y has one node a state whatever number of messages it got.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.kernels.circuits.keys import LEAST, fill_slots, find, mix, plus, rounded, share, times
from minfer.kernels.compiling.jit import jit


class TableArrays(NamedTuple):
    """V variables and F tables of ranged numbers, end to end."""

    card: NDArray[np.int64]  # (V,)
    off: NDArray[np.int64]  # (V+1,)
    own: NDArray[np.float64]  # (sum S,) of states; changed as messages come in
    own_e: NDArray[np.int32]
    fptr: NDArray[np.int64]  # (F+1,)
    scope: NDArray[np.int32]
    toff: NDArray[np.int64]  # (F,) row-major, the last variable fastest
    value: NDArray[np.float64]
    value_e: NDArray[np.int32]


class BottomArrays(NamedTuple):
    """What is left, and the nodes made."""

    left: NDArray[np.bool_]  # (V,) not eliminated
    fptr: NDArray[np.int64]  # (F'+1,) the tables left
    scope: NDArray[np.int32]
    toff: NDArray[np.int64]  # (F',)
    value: NDArray[np.float64]
    value_e: NDArray[np.int32]
    node: NDArray[np.int32]  # of a cell, -1: none
    own_node: NDArray[np.int32]  # (sum S,) of a state, -1: none
    n_children: NDArray[np.int32]  # (V,) of every edge of an eliminated variable's nodes
    variable: NDArray[np.int32]  # (N,)
    n_edges: NDArray[np.int32]  # (N,)
    state: NDArray[np.int32]  # (E,)
    weight: NDArray[np.float64]  # (E,)
    child: NDArray[np.int32]
    roots: NDArray[np.int32]


@jit
def _floats(a, n):
    if n <= a.size:
        return a
    out = np.empty(max(n, 2 * a.size), np.float64)
    for i in range(a.size):
        out[i] = a[i]
    return out


@jit
def _ints(a, n):
    if n <= a.size:
        return a
    out = np.empty(max(n, 2 * a.size), np.int32)
    for i in range(a.size):
        out[i] = a[i]
    return out


@jit
def _keys(a, n):
    if n <= a.size:
        return a
    out = np.empty(max(n, 2 * a.size), np.uint64)
    for i in range(a.size):
        out[i] = a[i]
    return out


@jit
def eliminate_small(t, order, blocked, limit, max_nodes):
    """Eliminate, in ``order``, every variable that is not ``blocked`` (V,) and whose clique has at
    most ``limit`` cells. Returns BottomArrays, the constant (a number and its exponent), and 1;
    or 0: everything is zero, -1: more than ``max_nodes``, 2: some weight was raised to LEAST."""
    card, off, own, own_e = t.card, t.off, t.own, t.own_e
    n = card.size
    n_given = t.toff.size
    # tables: those given, then one for each elimination at most
    fptr = np.zeros(n_given + n + 1, np.int64)
    toff = np.empty(n_given + n, np.int64)
    alive = np.ones(n_given + n, np.bool_)
    carries = np.zeros(n_given + n, np.bool_)
    for f in range(n_given):
        fptr[f + 1] = t.fptr[f + 1]
        toff[f] = t.toff[f]
    n_tables, n_places, n_cells = n_given, t.scope.size, t.value.size
    scope, link = _ints(t.scope, n_places + 64), np.empty(n_places + 64, np.int32)
    owner = np.empty(n_places + 64, np.int32)
    value, value_e = _floats(t.value, n_cells + 64), _ints(t.value_e, n_cells + 64)
    node = np.empty(value.size, np.int32)
    for i in range(n_cells):
        node[i] = -1
    head = np.full(n, -1, np.int32)  # the places of a variable, as linked lists
    for f in range(n_given):
        for k in range(fptr[f], fptr[f + 1]):
            owner[k] = f
            link[k] = head[scope[k]]
            head[scope[k]] = k
    own_node = np.full(own.size, -1, np.int32)
    has_node, left = np.zeros(n, np.bool_), np.ones(n, np.bool_)
    n_children = np.zeros(n, np.int32)
    nn, ne, nc = 0, 0, 0
    variable, n_edges = np.empty(64, np.int32), np.empty(64, np.int32)
    key1, key2 = np.empty(64, np.uint64), np.empty(64, np.uint64)
    slots = np.full(256, -1, np.int32)
    state, weight, child = np.empty(64, np.int32), np.empty(64, np.float64), np.empty(64, np.int32)
    roots, n_roots = np.empty(n, np.int32), 0
    stamp = np.full(n, -1, np.int32)
    at = np.empty(n, np.int32)  # of a variable in the context
    widest = 1
    for v in range(n):
        widest = max(widest, card[v])
    term, term_e = np.empty(widest, np.float64), np.empty(widest, np.int64)
    context, digit = np.empty(n, np.int32), np.zeros(n, np.int32)
    bucket = np.empty(n_given + n, np.int32)
    where, step = np.empty(n_given + n, np.int64), np.empty(n_given + n, np.int64)
    whole, whole_e, status = 1.0, 0, 1
    for i in range(order.size):
        x = order[i]
        if blocked[x]:
            continue
        m, c, cells = 0, 0, 1.0 * card[x]
        place = head[x]
        while place >= 0:
            f = owner[place]
            place = link[place]
            if not alive[f]:
                continue
            bucket[m] = f
            m += 1
            for k in range(fptr[f], fptr[f + 1]):
                v = scope[k]
                if v != x and stamp[v] != x:
                    stamp[v] = x
                    cells *= card[v]
                    context[c] = v
                    c += 1
            if cells > limit:
                break
        if cells > limit and c > 0:
            continue
        for p in range(1, c):  # by number
            v, q = context[p], p
            while q > 0 and context[q - 1] > v:
                context[q] = context[q - 1]
                q -= 1
            context[q] = v
        stride = np.zeros((m, c), np.int64)
        for p in range(c):
            at[context[p]] = p
            digit[p] = 0
        for b in range(m):
            f, size = bucket[b], 1
            where[b], alive[f] = toff[f], False
            for k in range(fptr[f + 1] - 1, fptr[f] - 1, -1):
                if scope[k] == x:
                    step[b] = size
                else:
                    stride[b, at[scope[k]]] = size
                size *= card[scope[k]]
        absorbs = c == 1 and has_node[context[0]]
        kids = 0
        if has_node[x]:
            kids += 1
        for b in range(m):
            if carries[bucket[b]]:
                kids += 1
        if absorbs:
            kids += 1
        n_children[x] = kids
        left[x] = False
        contexts = np.int64(cells) // card[x]
        if nn + contexts > max_nodes:
            status = -1
            break
        variable, n_edges = _ints(variable, nn + contexts), _ints(n_edges, nn + contexts)
        key1, key2 = _keys(key1, nn + contexts), _keys(key2, nn + contexts)
        state = _ints(state, ne + contexts * card[x])
        weight = _floats(weight, ne + contexts * card[x])
        child = _ints(child, nc + contexts * card[x] * kids + 1)
        if 2 * (nn + contexts) > slots.size:
            size = slots.size
            while size < 4 * (nn + contexts):
                size *= 2
            slots = np.full(size, -1, np.int32)
            fill_slots(slots, key1, nn)
        value, value_e = _floats(value, n_cells + contexts), _ints(value_e, n_cells + contexts)
        node = _ints(node, n_cells + contexts)
        top, top_e = 0.0, 0
        for cell in range(contexts):
            total, total_e = 0.0, 0
            for a in range(card[x]):
                v, e = own[off[x] + a], np.int64(own_e[off[x] + a])
                for b in range(m):
                    if v == 0.0:
                        break
                    p = where[b] + a * step[b]
                    v, e = times(v, e, value[p], np.int64(value_e[p]))
                term[a], term_e[a] = v, e
                total, total_e = plus(total, total_e, v, e)
            value[n_cells + cell], value_e[n_cells + cell] = total, total_e
            node[n_cells + cell] = -1
            if total > 0.0:
                k1, k2 = mix(np.uint64(x), np.uint64(1)), mix(np.uint64(x), np.uint64(2))
                e0, c0 = ne, nc
                for a in range(card[x]):
                    if term[a] == 0.0:
                        continue
                    r = share(term[a], term_e[a], total, total_e)
                    if r == LEAST:
                        status = 2
                    state[e0], weight[e0] = a, r
                    e0 += 1
                    q = np.uint64(rounded(r, 0))
                    k1, k2 = mix(k1 + np.uint64(a), q), mix(k2 + np.uint64(a), q)
                    if has_node[x]:
                        child[c0] = own_node[off[x] + a]
                        c0 += 1
                    for b in range(m):
                        if carries[bucket[b]]:
                            child[c0] = node[where[b] + a * step[b]]
                            c0 += 1
                    if absorbs:
                        child[c0] = own_node[off[context[0]] + cell]
                        c0 += 1
                    for k in range(c0 - kids, c0):
                        q = np.uint64(child[k])
                        k1, k2 = mix(k1, q), mix(k2, q)
                found = find(slots, key1, key2, k1, k2)
                if found < 0:
                    slots[-1 - found] = nn
                    key1[nn], key2[nn], variable[nn], n_edges[nn] = k1, k2, x, e0 - ne
                    found, ne, nc = nn, e0, c0
                    nn += 1
                node[n_cells + cell] = found
                if top == 0.0 or total_e > top_e or (total_e == top_e and total > top):
                    top, top_e = total, total_e
            p = c - 1
            while p >= 0:  # the next context
                digit[p] += 1
                for b in range(m):
                    where[b] += stride[b, p]
                if digit[p] < card[context[p]]:
                    break
                for b in range(m):
                    where[b] -= stride[b, p] * card[context[p]]
                digit[p] = 0
                p -= 1
        if top == 0.0:
            status = 0
            break
        whole, whole_e = times(whole, whole_e, top, top_e)
        if c == 0:
            roots[n_roots] = node[n_cells]
            n_roots += 1
            continue
        for cell in range(contexts):
            v, e = times(value[n_cells + cell] / top, value_e[n_cells + cell] - top_e, 1.0, 0)
            value[n_cells + cell], value_e[n_cells + cell] = v, e
        if c == 1:
            y = context[0]
            has_node[y] = True
            for b in range(card[y]):
                p = off[y] + b
                v, e = times(own[p], np.int64(own_e[p]), value[n_cells + b],
                             np.int64(value_e[n_cells + b]))  # fmt: skip
                own[p], own_e[p], own_node[p] = v, e, node[n_cells + b]
            continue
        scope, link = _ints(scope, n_places + c), _ints(link, n_places + c)
        owner = _ints(owner, n_places + c)
        for p in range(c):
            v = context[p]
            scope[n_places], owner[n_places] = v, n_tables
            link[n_places], head[v] = head[v], n_places
            n_places += 1
        toff[n_tables], carries[n_tables] = n_cells, True
        fptr[n_tables + 1] = n_places
        n_tables += 1
        n_cells += contexts
    kept, size = 0, 0
    for f in range(n_tables):
        if alive[f]:
            kept += 1
            size += fptr[f + 1] - fptr[f]
    kept_ptr, kept_off = np.zeros(kept + 1, np.int64), np.empty(kept, np.int64)
    kept_scope = np.empty(size, np.int32)
    kept, size = 0, 0
    for f in range(n_tables):
        if alive[f]:
            for k in range(fptr[f], fptr[f + 1]):
                kept_scope[size] = scope[k]
                size += 1
            kept_off[kept] = toff[f]
            kept += 1
            kept_ptr[kept] = size
    found = BottomArrays(
        left, kept_ptr, kept_scope, kept_off, value, value_e, node, own_node, n_children,
        variable[:nn].copy(), n_edges[:nn].copy(), state[:ne].copy(), weight[:ne].copy(),
        child[:nc].copy(), roots[:n_roots].copy(),
    )  # fmt: skip
    return found, whole, whole_e, status
