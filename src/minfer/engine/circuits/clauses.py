"""A model of hard clauses over binary variables as its own search takes it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.engine.circuits.core import Ready, links_of
from minfer.engine.circuits.orders import candidates
from minfer.engine.elimination import eliminate_by
from minfer.engine.layout import ends
from minfer.kernels.circuits import clauses as k
from minfer.kernels.circuits.clauses import ClauseArrays, ClauseNodes, ClauseState


def literals_of(start: Ready) -> list[NDArray] | None:
    """The clauses of a model, literals 2 v + state each; None if it has other factors."""
    t = start.tables
    out: list[NDArray] = []
    if (t.card[t.scope] > 2).any():
        return None
    known: dict[bytes, list[list[int]]] = {}
    for f in range(len(t.toff)):
        scope = t.scope[t.fptr[f] : t.fptr[f + 1]]
        cells = t.value[t.toff[f] : t.toff[f] + 2 ** len(scope)]
        wrong = cells == 0.0
        key = wrong.tobytes()
        if key not in known:
            known[key] = prime(np.flatnonzero(wrong).tolist(), len(scope))
        for clause in known[key]:
            out.append(np.array([2 * scope[j] + s for j, s in clause]))
        if len(np.unique(cells[~wrong])) > 1 or len(np.unique(t.value_e[t.toff[f] : t.toff[f] + 2 ** len(scope)][~wrong]))>1:
            return None
    for g in start.machines:
        if len(g.step) != 2 or g.last.any():
            return None
        for row in range(len(g.scope)):
            a = int(g.start[row])
            b = 1 - a
            if g.step[:, :2].tolist() != ([[0, 1], [1, 1]] if a == 0 else [[0, 0], [1, 0]]):
                return None
            if g.final[row, a] > -np.inf or g.final[row, b] == -np.inf:
                return None
            lit = g.literal[row]
            state = np.where(lit >= 0, lit, 1 - (-1 - lit))
            out.append(2 * g.scope[row] + state)
    return out


def prime(wrong: list[int], arity: int) -> list[list[tuple[int, int]]]:
    """Clauses (place, state that makes it true) that exclude exactly these cells."""
    full = (1 << arity) - 1
    level = {(full, w) for w in wrong}
    out = []
    while level:
        merged, then = set(), set()
        for mask, w in level:
            for j in range(arity):
                b = 1 << j
                if mask & b and (mask, w ^ b) in level:
                    then.add((mask & ~b, w & ~b))
                    merged.add((mask, w))
        out += sorted(level - merged)
        level = then
    return [
        [(j, 1 - ((w >> (arity - 1 - j)) & 1)) for j in range(arity) if mask >> (arity - 1 - j) & 1]
        for mask, w in out
    ]


def prior_of(links, order: NDArray) -> tuple[NDArray, int]:
    """How high each vertex is in a tree decomposition with its root in the middle, 0 to 1; the
    width."""
    n = len(order)
    rank = -np.ones(n)
    tree = eliminate_by(links, 2, 0, math.inf, "given", _rank(order), math.inf, 1e300)
    place = np.empty(n, np.int64)
    place[tree.order] = np.arange(n)
    bags, parent = [], np.full(n, -1)
    for i in range(n):
        v = tree.order[i]
        near = tree.pool[tree.start[v] : tree.start[v] + tree.length[v]]
        bags.append(np.append(near, tree.order[i]))
        if len(near):
            parent[i] = place[near].min()
    # merge: bag i; the centroid: weights of own variable
    near_bags = [[] for _ in range(n)]
    for i, p in enumerate(parent.tolist()):
        if p >= 0:
            near_bags[i].append(p); near_bags[p].append(i)
    size = np.ones(n)
    for i in range(n):
        if parent[i] >= 0:
            size[parent[i]] += size[i]
    depth = np.full(n, -1)
    comp_roots = np.flatnonzero(parent < 0)
    for r in comp_roots.tolist():
        total, c = size[r], r
        while True:
            heavy = [j for j in near_bags[c] if parent[j] == c and size[j] > total / 2]
            if not heavy:
                break
            c = heavy[0]
        depth[c] = 0
        stack = [c]
        while stack:
            i = stack.pop()
            for j in near_bags[i]:
                if depth[j] < 0:
                    depth[j] = depth[i] + (0 if set(bags[j]) <= set(bags[i]) else 1)
                    stack.append(j)
    high = np.full(n, np.iinfo(np.int64).max)
    for i in range(n):
        np.minimum.at(high, bags[i], depth[i])
    return 1.0 - high / max(1, high.max()), int(tree.length.max(initial=0))


def _rank(order):
    rank = np.empty(len(order))
    rank[order] = np.arange(len(order))
    return rank


def arrays_of(start, clauses, prior, variables) -> ClauseArrays:
    n = len(variables)
    t = start.tables
    number = np.full(len(t.card), -1)
    number[variables] = np.arange(n)
    lits = [2 * number[c >> 1] + (c & 1) for c in clauses]
    lits = sorted({tuple(sorted(c.tolist())) for c in lits})
    units = [c[0] for c in lits if len(c) == 1]
    two = np.array([c for c in lits if len(c) == 2], dtype=np.int64).reshape(-1, 2)
    long = [c for c in lits if len(c) > 2]
    states = t.off[variables][:, None] + np.arange(2)
    weight = t.own[states].ravel(); weight_e = t.own_e[states].ravel().astype(np.int64)
    for u in units:
        weight[u ^ 1] = 0.0
    both = weight.reshape(-1, 2).sum(axis=1)
    both_e = np.zeros(n, np.int64)
    src = np.concatenate([two[:, 0] ^ 1, two[:, 1] ^ 1]); dst = np.concatenate([two[:, 1], two[:, 0]])
    o = np.argsort(src, kind="stable")
    two_ptr = ends(np.bincount(src, minlength=2 * n)).astype(np.int32)
    start_ = ends([len(c) for c in long]).astype(np.int32)
    literal = np.array([q for c in long for q in c], dtype=np.int32)
    owner = np.repeat(np.arange(len(long)), np.diff(start_))
    oo = np.argsort(literal >> 1, kind="stable")
    occurs_ptr = ends(np.bincount(literal >> 1, minlength=n)).astype(np.int32)
    salt = np.random.Generator(np.random.PCG64(np.random.SeedSequence(20371))).integers(
        0, np.iinfo(np.uint64).max, (2 * n, 2), dtype=np.uint64)
    return ClauseArrays(weight, weight_e, both, both_e, prior, salt, two_ptr, dst[o].astype(np.int32),
                        occurs_ptr, owner[oo].astype(np.int32), start_, literal)


def begun(f: ClauseArrays):
    n, n_long = len(f.both), len(f.start) - 1
    now = np.zeros(k.N_NOW, np.int64)
    arena = np.zeros(len(f.literal) + 5 * n_long + 64 * n + 100000, np.int32)
    s = ClauseState(now, np.zeros(2*n, np.int8), np.zeros(n, np.int32), np.full(n, -1, np.int32),
        np.zeros(n+1, np.int32), np.append(np.zeros(n), 1.0), np.zeros(n, np.int32), np.zeros(n, np.int64),
        np.zeros(n_long, np.int64), np.zeros(n+1, np.int8), np.zeros(n+1, np.int32), np.zeros(n, np.int32), np.zeros(n_long, np.int32),
        np.full(2*n, -1, np.int32), arena, np.zeros(4*(n+n_long)+1000, np.int32), np.zeros((4*n+100, 3), np.int64),
        np.zeros((4*n+100, 2), np.uint64), np.ones(n, np.int8), np.zeros(n, np.int8), np.zeros(n+2, np.int32), np.zeros((n+2, 12), np.int64), np.zeros((n+2, 2)), np.zeros((n+2,2), np.int64),
        np.zeros(8*n+100, np.int32))
    # root
    s.pool[:n] = np.arange(n); s.pool[n:n+n_long] = np.arange(n_long)
    s.part[0] = 0, n, n_long
    now[k.N_POOL], now[k.N_PART] = n + n_long, 1
    s.frame[0, 2] = 2; s.frame[0,4]=n+n_long; s.frame[0,5]=1
    now[k.MODE] = 2
    N = 3*n
    variable = np.zeros(N+1024, np.int32); variable[:N] = np.repeat(np.arange(n), 3)
    ne = np.tile([1,1,2], n)
    eptr = np.zeros(N+1025, np.int64); eptr[:N+1] = ends(ne)
    E = 4*n
    state = np.zeros(E+2048, np.int32); state[:E] = np.tile([0,1,0,1], n)
    weight = np.zeros(E+2048)
    with np.errstate(all='ignore'):
        weight[:E] = np.stack([np.ones(n), np.ones(n), f.weight[::2]/f.both, f.weight[1::2]/f.both],1).ravel()
    now[k.NODES] = N
    d = ClauseNodes(variable, eptr, np.zeros((1024,2), np.uint64), np.zeros(1024), np.zeros(1024, np.int64), state, weight,
        np.zeros(E+2049, np.int64), np.zeros(4096, np.int32), np.full(4096, -1, np.int32))
    ok = k.begin(f, s)
    return s, d, ok


def grow(a, size):
    out = np.zeros((size, *a.shape[1:]), a.dtype)
    out[:len(a)] = a
    return out
