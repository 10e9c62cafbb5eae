"""AND/OR search over a pseudo tree; equal residual problems are solved once, and what was done is
a circuit.

    solve(x): the node of the variables below x, given those above it:
        key = salt(x) + sum of the contents of factors that cross into the subtree of x
        known key: that node;  else for each value a of x: its number is that of the factors at x
        times the children's, zero where unit propagation says so; a node of what is not zero

(And/or search with context-based caching: Dechter & Mateescu 2007; caching by content rather than
context: Sang et al. 2004 for clauses.) Keys know decisions only; what is propagated only prunes, or
values forced far below would be missing from the key of the factor that forced them. A node keeps
p(a) among its values at likelihoods of one, and its total, a ranged number, goes to its parent.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.kernels.circuits.keys import LEAST, find, plus, share, times
from minfer.kernels.circuits.residuals import reads
from minfer.kernels.compiling.jit import jit


class CoreArrays(NamedTuple):
    """n variables in the order of the search, parents before children."""

    variable: NDArray[np.int32]  # (n,) of the model
    card: NDArray[np.int64]  # (n,)
    off: NDArray[np.int64]  # (n+1,) of their states
    own: NDArray[np.float64]  # (S,) numbers of states
    own_e: NDArray[np.int32]
    own_node: NDArray[np.int32]  # (S,) node of a state, -1: none
    has_node: NDArray[np.bool_]  # (n,)
    salt1: NDArray[np.uint64]  # (n,)
    salt2: NDArray[np.uint64]
    parent: NDArray[np.int32]  # (n,) -1: a root
    below_ptr: NDArray[np.int32]  # (n+1,)
    below: NDArray[np.int32]  # children
    at_ptr: NDArray[np.int32]  # (n+1,)
    at: NDArray[np.int32]  # factors of a variable
    over_ptr: NDArray[np.int32]  # (n+1,)
    over: NDArray[np.int32]  # factors over variables both above x and in its subtree
    end_ptr: NDArray[np.int32]  # (n+1,)
    end: NDArray[np.int32]  # factors with nodes whose last variable it is
    n_kids: NDArray[np.int32]  # (n,) of each edge: children, ends, its own node
    kid_off: NDArray[np.int64]  # (n,)
    rule_ptr: NDArray[np.int32]  # (n+1,)
    rule: NDArray[np.int32]  # factors that forbid something, of a variable
    rule_step: NDArray[np.int64]
    rule_base: NDArray[np.int64]


class SearchState(NamedTuple):
    """Where a search stands."""

    now: NDArray[np.int64]  # see the constants below
    cur: NDArray[np.int32]  # (F,) state of each factor, by decisions
    saved: NDArray[np.int32]  # by place of ``at``
    index: NDArray[np.int32]  # (G,) of factors that forbid, by what is known
    known: NDArray[np.bool_]  # (n,)
    value: NDArray[np.int32]  # (n,) where known
    left: NDArray[np.uint64]  # (n,) values left, as bits; of the first 64
    queue: NDArray[np.int32]  # (n,) variables known, in turn
    trail_v: NDArray[np.int32]  # values that were left before
    trail_left: NDArray[np.uint64]
    trail_g: NDArray[np.int32]  # indices before
    trail_i: NDArray[np.int32]
    frame: NDArray[np.int32]  # (n, 6) value, child, and the lengths of queue and both trails
    sums: NDArray[np.uint64]  # (n, 6) sums of contents at x, and for its only child; key
    number: NDArray[np.float64]  # (n, 2) total; product of the value under way
    number_e: NDArray[np.int64]
    term: NDArray[np.float64]  # (S,) products of values
    term_e: NDArray[np.int64]
    kids: NDArray[np.int32]


class NodeArrays(NamedTuple):
    """Nodes found so far, those of the bottom first; with room for more."""

    variable: NDArray[np.int32]  # (N,) of the model
    n_edges: NDArray[np.int32]  # (N,)
    total: NDArray[np.float64]  # (N - bottom,)
    total_e: NDArray[np.int32]
    key1: NDArray[np.uint64]
    key2: NDArray[np.uint64]
    state: NDArray[np.int32]  # (E,)
    weight: NDArray[np.float64]
    child: NDArray[np.int32]
    slots: NDArray[np.int32]


# places of SearchState.now
X, MODE, NODES, EDGES, KIDS, FOUND, N_QUEUE, N_TRAIL, N_INDEX = 0, 1, 2, 3, 4, 5, 6, 7, 8
HITS, DEAD, VISITS, RAISED, BOTTOM = 9, 10, 11, 12, 13
N_NOW = 14
_ENTER, _NEXT, _BELOW, _BACK, _DONE, _STORE = 0, 1, 2, 3, 4, 5
#: Why a slice ended.
PAUSED, SOLVED, NO_ROOM, NO_SLOTS = 0, 1, 2, 3
_ONE = np.uint64(1)


@jit
def _narrow(s, x, now, left):
    """Leave a variable fewer values, for which ``now`` are more than ``left``; one: it is known."""
    n = s.now[N_TRAIL]
    s.trail_v[n], s.trail_left[n] = x, now
    s.now[N_TRAIL] = n + 1
    s.left[x] = left
    if not s.known[x] and left & (left - _ONE) == np.uint64(0):
        b = 0
        while left > _ONE:
            left >>= _ONE
            b += 1
        s.known[x], s.value[x] = True, b
        s.queue[s.now[N_QUEUE]] = x
        s.now[N_QUEUE] += 1


@jit
def _prune(s, r, g):
    """Leave the variables of a factor what its index allows; False: one has nothing left."""
    i = np.int64(s.index[g])
    lo, hi = r.fptr[g], r.fptr[g + 1]
    table = r.step[lo] > 0
    at = r.into[g] + i * ((hi - lo) if table else 2)
    for k in range(lo, hi):
        x = r.position[k]
        if s.known[x]:
            continue
        if table:
            mask = r.masks[at + k - lo]
            if mask == np.uint64(0):
                continue
        else:
            bits = r.masks[at + (-1 - r.step[k])]
            if bits == np.uint64(3):
                continue
            if bits == np.uint64(0):
                return False
            literal = r.base[k]
            mask = _ONE << np.uint64(literal if literal >= 0 else -1 - literal)
            if (bits == _ONE) == (literal >= 0):
                mask = ~mask
        now = s.left[x]
        left = now & mask
        if left == np.uint64(0):
            return False
        if left != now:
            _narrow(s, x, now, left)
    return True


@jit
def propagate(c, s, r, start):
    """What follows from the variables known from place ``start`` of the queue on; False: zero."""
    at = start
    while at < s.now[N_QUEUE]:
        y = s.queue[at]
        b = np.int64(s.value[y])
        at += 1
        for k in range(c.rule_ptr[y], c.rule_ptr[y + 1]):
            g = c.rule[k]
            i = np.int64(s.index[g])
            n = s.now[N_INDEX]
            s.trail_g[n], s.trail_i[n] = g, i
            s.now[N_INDEX] = n + 1
            step = c.rule_step[k]
            if step > 0:
                i += c.rule_base[k] + b * step
            else:
                literal = reads(b, c.rule_base[k])
                i = np.int64(r.after[4 * (r.by[g] + i) + 2 * (-1 - step) + literal])
                if i < 0:
                    return False
            s.index[g] = i
            what = r.what[r.by[g] + i]
            if what == 0:
                continue
            if what == 2 or not _prune(s, r, g):
                return False
    return True


@jit
def begin(c, s, r):
    """What follows before anything is decided; False: everything is zero."""
    for x in range(c.card.size):
        if c.card[x] > 62:
            continue
        left, all_values = np.uint64(0), (_ONE << np.uint64(c.card[x])) - _ONE
        for a in range(c.card[x]):
            if c.own[c.off[x] + a] > 0.0:
                left |= _ONE << np.uint64(a)
        s.left[x] = all_values
        if left == np.uint64(0):
            return False
        if left != all_values or c.card[x] == 1:
            _narrow(s, x, all_values, left)
    for g in range(r.start.size):
        what = r.what[r.by[g] + s.index[g]]
        if what == 2 or (what == 1 and not _prune(s, r, g)):
            return False
    return propagate(c, s, r, 0)


@jit
def _take_back(s, n_queue, n_trail, n_index):
    """Know what was known before."""
    n = s.now[N_INDEX]
    while n > n_index:
        n -= 1
        s.index[s.trail_g[n]] = s.trail_i[n]
    s.now[N_INDEX] = n
    n = s.now[N_TRAIL]
    while n > n_trail:
        n -= 1
        s.left[s.trail_v[n]] = s.trail_left[n]
    s.now[N_TRAIL] = n
    n = s.now[N_QUEUE]
    while n > n_queue:
        n -= 1
        s.known[s.queue[n]] = False
    s.now[N_QUEUE] = n


@jit
def _undo(c, s, x):
    """Take back the value of x, and what followed."""
    for k in range(c.at_ptr[x], c.at_ptr[x + 1]):
        s.cur[c.at[k]] = s.saved[k]
    _take_back(s, s.frame[x, 2], s.frame[x, 3], s.frame[x, 4])


@jit
def _decide(c, s, f, r, x, a):
    """Give x the value a: False where that is zero, and nothing has changed; else the number is in
    ``number[x, 1]`` and the sum of contents for an only child in ``sums[x, 2:4]``."""
    w, e = c.own[c.off[x] + a], np.int64(c.own_e[c.off[x] + a])
    if w == 0.0:
        return False
    lo, hi = c.at_ptr[x], c.at_ptr[x + 1]
    for k in range(lo, hi):
        if f.to[f.eptr[s.cur[c.at[k]]] + a] < 0:
            return False
    s1, s2 = s.sums[x, 0], s.sums[x, 1]
    for k in range(lo, hi):
        g = c.at[k]
        p = s.cur[g]
        t = f.eptr[p] + a
        q = f.to[t]
        s.saved[k], s.cur[g] = p, q
        if f.weight[t] != 1.0 or f.weight_e[t] != 0:
            w, e = times(w, e, f.weight[t], np.int64(f.weight_e[t]))
        s1 += f.c1[q] - f.c1[p]
        s2 += f.c2[q] - f.c2[p]
    s.sums[x, 2], s.sums[x, 3] = s1, s2
    s.number[x, 1], s.number_e[x, 1] = w, e
    s.frame[x, 2], s.frame[x, 3], s.frame[x, 4] = s.now[N_QUEUE], s.now[N_TRAIL], s.now[N_INDEX]
    if not s.known[x] and c.rule_ptr[x + 1] > c.rule_ptr[x]:
        s.known[x], s.value[x] = True, a
        n = s.now[N_QUEUE]
        s.queue[n] = x
        s.now[N_QUEUE] = n + 1
        if not propagate(c, s, r, n):
            _undo(c, s, x)
            return False
    return True


@jit
def _sum_over(c, s, f, x):
    """The sum of contents of factors that cross into the subtree of x, into ``sums[x, 0:2]``."""
    s1, s2 = np.uint64(0), np.uint64(0)
    for k in range(c.over_ptr[x], c.over_ptr[x + 1]):
        p = s.cur[c.over[k]]
        s1 += f.c1[p]
        s2 += f.c2[p]
    s.sums[x, 0], s.sums[x, 1] = s1, s2


@jit
def run(c, s, f, r, d, budget):
    """Search on, for so many visits of variables; the state is in ``s``, nodes go to ``d``. Returns
    why the slice ended."""
    now = s.now
    x, mode, nn, ne, nc, found = now[X], now[MODE], now[NODES], now[EDGES], now[KIDS], now[FOUND]
    bottom = now[BOTTOM]
    left, reason = budget, PAUSED
    while True:
        if mode == _ENTER:
            k1, k2 = c.salt1[x] + s.sums[x, 0], c.salt2[x] + s.sums[x, 1]
            t = find(d.slots, d.key1, d.key2, k1, k2)
            left -= 1
            if t >= 0:
                now[HITS] += 1
                found, mode = t, _BACK
                continue
            s.sums[x, 4], s.sums[x, 5] = k1, k2
            s.frame[x, 0] = -1
            s.number[x, 0], s.number_e[x, 0] = 0.0, 0
            mode = _NEXT
            if left <= 0:
                break
        if mode == _NEXT:
            a = s.frame[x, 0] + 1
            values, narrow = c.card[x], c.card[x] <= 62
            while a < values:
                if not narrow or (s.left[x] >> np.uint64(a)) & _ONE:
                    if _decide(c, s, f, r, x, a):
                        break
                    now[DEAD] += 1
                s.term[c.off[x] + a] = 0.0
                a += 1
            s.frame[x, 0] = a
            if a == values:
                mode = _STORE
            else:
                n = c.kid_off[x] + a * c.n_kids[x] + c.below_ptr[x + 1] - c.below_ptr[x]
                for k in range(c.end_ptr[x], c.end_ptr[x + 1]):
                    s.kids[n] = f.node[s.cur[c.end[k]]]
                    n += 1
                if c.has_node[x]:
                    s.kids[n] = c.own_node[c.off[x] + a]
                s.frame[x, 1] = 0
                mode = _BELOW
        if mode == _BELOW:
            q = s.frame[x, 1]
            lo = c.below_ptr[x]
            if s.number[x, 1] != 0.0 and q < c.below_ptr[x + 1] - lo:
                y = c.below[lo + q]
                if c.below_ptr[x + 1] - lo == 1:
                    s.sums[y, 0], s.sums[y, 1] = s.sums[x, 2], s.sums[x, 3]
                else:
                    _sum_over(c, s, f, y)
                x, mode = y, _ENTER
                continue
            a = s.frame[x, 0]
            v, e = s.number[x, 1], s.number_e[x, 1]
            s.term[c.off[x] + a], s.term_e[c.off[x] + a] = v, e
            s.number[x, 0], s.number_e[x, 0] = plus(s.number[x, 0], s.number_e[x, 0], v, e)
            _undo(c, s, x)
            mode = _NEXT
            continue
        if mode == _STORE:
            if (
                nn >= d.variable.size
                or nn - bottom >= d.total.size
                or (ne + c.card[x] > d.state.size or nc + c.card[x] * c.n_kids[x] > d.child.size)
            ):
                reason = NO_ROOM
                break
            if 2 * (nn - bottom + 1) > d.slots.size:
                reason = NO_SLOTS
                break
            v, e, kids, first = s.number[x, 0], s.number_e[x, 0], c.n_kids[x], ne
            if v > 0.0:
                for a in range(c.card[x]):
                    i = c.off[x] + a
                    if s.term[i] > 0.0:
                        p = share(s.term[i], s.term_e[i], v, e)
                        if p == LEAST:
                            now[RAISED] += 1
                        d.state[ne], d.weight[ne] = a, p
                        ne += 1
                        for k in range(c.kid_off[x] + a * kids, c.kid_off[x] + (a + 1) * kids):
                            d.child[nc] = s.kids[k]
                            nc += 1
            own = nn - bottom
            d.variable[nn], d.n_edges[nn] = c.variable[x], ne - first
            d.total[own], d.total_e[own] = v, e
            k1, k2 = s.sums[x, 4], s.sums[x, 5]
            d.key1[own], d.key2[own] = k1, k2
            d.slots[-1 - find(d.slots, d.key1, d.key2, k1, k2)] = own
            found = own
            nn += 1
            mode = _BACK
        if mode == _BACK:
            y = c.parent[x]
            if y < 0:
                mode, reason = _DONE, SOLVED
                break
            q = s.frame[y, 1]
            s.kids[c.kid_off[y] + s.frame[y, 0] * c.n_kids[y] + q] = found + bottom
            s.number[y, 1], s.number_e[y, 1] = times(
                s.number[y, 1], s.number_e[y, 1], d.total[found], np.int64(d.total_e[found])
            )
            s.frame[y, 1] = q + 1
            x, mode = np.int64(y), _BELOW
            continue
        if mode == _DONE:
            reason = SOLVED
            break
    now[X], now[MODE], now[NODES], now[EDGES], now[KIDS], now[FOUND] = x, mode, nn, ne, nc, found
    now[VISITS] += budget - left
    return reason


@jit
def walk(c, s, f, r, n_walks, seed, keys):
    """Random ways down: each decides all variables in order, values drawn evenly among those that
    are not seen to be zero, and leaves the keys it meets in ``keys`` (n, n_walks), 0: none. Returns
    how many came to the end."""
    n = c.card.size
    rng = np.uint64(seed) * np.uint64(2654435769) + np.uint64(88172645463325252)
    done = 0
    for w in range(n_walks):
        x, dead = 0, False
        while x < n and not dead:
            y = c.parent[x]
            if y < 0:
                s.sums[x, 0], s.sums[x, 1] = np.uint64(0), np.uint64(0)
            elif c.below_ptr[y + 1] - c.below_ptr[y] == 1:
                s.sums[x, 0], s.sums[x, 1] = s.sums[y, 2], s.sums[y, 3]
            else:
                _sum_over(c, s, f, x)
            keys[x, w] = c.salt1[x] + s.sums[x, 0]
            rng = rng * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            a = np.int64((rng >> np.uint64(33)) % np.uint64(c.card[x]))
            tried = 0
            while tried < c.card[x]:
                narrow = c.card[x] <= 62
                if not narrow or (s.left[x] >> np.uint64(a)) & _ONE:
                    if _decide(c, s, f, r, x, a):
                        break
                a += 1
                if a == c.card[x]:
                    a = 0
                tried += 1
            if tried == c.card[x]:
                dead = True
            else:
                x += 1
        if not dead:
            done += 1
        while x > 0:
            x -= 1
            _undo(c, s, x)
    return done
