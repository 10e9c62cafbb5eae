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

from minfer.kernels.circuits.keys import LEAST, plus, share, times
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
    salt: NDArray[np.uint64]  # (n, 2)
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
    rule: NDArray[np.int64]  # (., 3) factors that forbid something, of a variable; step and base


class SearchState(NamedTuple):
    """Where a search stands."""

    now: NDArray[np.int64]  # see the constants below
    cur: NDArray[np.int32]  # (F,) state of each factor, by decisions
    saved: NDArray[np.int32]  # by place of ``at``
    indices: NDArray[np.int32]  # (G,) of factors that forbid, by what is known
    known: NDArray[np.bool_]  # (n,)
    value: NDArray[np.int32]  # (n,) where known
    left: NDArray[np.uint64]  # (n,) values left, as bits; of the first 62
    queue: NDArray[np.int32]  # (n,) variables known, in turn
    trail: NDArray[np.uint64]  # (., 2) variables, and the values that were left to them before
    back: NDArray[np.int32]  # (., 2) factors that forbid, and their indices before
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
    key: NDArray[np.uint64]  # (N - bottom, 4) key, and the bits of the two numbers of the total
    total: NDArray[np.float64]  # the same memory
    state: NDArray[np.int32]  # (E,)
    weight: NDArray[np.float64]
    child: NDArray[np.int32]
    slots: NDArray[np.int32]


# places of SearchState.now
X, MODE, NODES, EDGES, KIDS, FOUND, N_QUEUE, N_TRAIL, N_BACK = 0, 1, 2, 3, 4, 5, 6, 7, 8
HITS, DEAD, VISITS, RAISED, BOTTOM = 9, 10, 11, 12, 13
N_NOW = 14
_ENTER, _NEXT, _BELOW, _UP, _STORE = 0, 1, 2, 3, 4
#: Why a slice ended.
PAUSED, SOLVED, NO_ROOM, NO_SLOTS = 0, 1, 2, 3
_ONE = np.uint64(1)


@jit
def _find(slots, key, k1, k2):
    """The node with a key, or minus one less the free slot where it would go."""
    last = slots.size - 1
    i = np.int64(k1 & np.uint64(last))
    while slots[i] >= 0:
        item = slots[i]
        if key[item, 0] == k1 and key[item, 1] == k2:
            return np.int64(item)
        i = (i + 1) & last
    return -1 - i


@jit
def _narrow(now, known, value, left, queue, trail, x, fewer):
    """Leave a variable fewer values; one: it is known."""
    n = now[N_TRAIL]
    trail[n, 0], trail[n, 1] = np.uint64(x), left[x]
    now[N_TRAIL] = n + 1
    left[x] = fewer
    if not known[x] and fewer & (fewer - _ONE) == np.uint64(0):
        b = 0
        while fewer > _ONE:
            fewer >>= _ONE
            b += 1
        known[x], value[x] = True, b
        queue[now[N_QUEUE]] = x
        now[N_QUEUE] += 1


@jit
def _prune(now, known, value, left, queue, trail, factor, place, masks, g, i):
    """Leave the variables of a factor what its index allows; False: one has nothing left."""
    lo, hi = factor[g, 2], factor[g, 3]
    table = place[lo, 1] > 0
    at = factor[g, 1] + i * ((hi - lo) if table else 2)
    for k in range(lo, hi):
        x = place[k, 0]
        if known[x]:
            continue
        if table:
            mask = masks[at + k - lo]
            if mask == np.uint64(0):
                continue
        else:
            bits = masks[at + (-1 - place[k, 1])]
            if bits == np.uint64(3):
                continue
            if bits == np.uint64(0):
                return False
            literal = place[k, 2]
            mask = _ONE << np.uint64(literal if literal >= 0 else -1 - literal)
            if (bits == _ONE) == (literal >= 0):
                mask = ~mask
        fewer = left[x] & mask
        if fewer == np.uint64(0):
            return False
        if fewer != left[x]:
            _narrow(now, known, value, left, queue, trail, x, fewer)
    return True


class _Known(NamedTuple):
    """Those arrays of a SearchState."""

    known: NDArray[np.bool_]
    value: NDArray[np.int32]
    left: NDArray[np.uint64]
    queue: NDArray[np.int32]
    trail: NDArray[np.uint64]


@jit
def _propagate(
    now, index, mine, back, rule_ptr, rule, factor, place, what, masks, after, start
):  # fmt: skip
    """What follows from the variables known from place ``start`` of the queue on; False: zero."""
    known, value, left, queue, trail = mine.known, mine.value, mine.left, mine.queue, mine.trail
    at = start
    while at < now[N_QUEUE]:
        y = queue[at]
        b = np.int64(value[y])
        at += 1
        for k in range(rule_ptr[y], rule_ptr[y + 1]):
            g = rule[k, 0]
            i = np.int64(index[g])
            n = now[N_BACK]
            back[n, 0], back[n, 1] = g, i
            now[N_BACK] = n + 1
            step = rule[k, 1]
            if step > 0:
                i += rule[k, 2] + b * step
            else:
                i = np.int64(after[4 * (factor[g, 0] + i) + 2 * (-1 - step) + reads(b, rule[k, 2])])
                if i < 0:
                    return False
            index[g] = i
            says = what[factor[g, 0] + i]
            if says == 0:
                continue
            if says == 2 or not _prune(
                now, known, value, left, queue, trail, factor, place, masks, g, i
            ):
                return False
    return True


@jit
def begin(c, s, r):
    """What follows before anything is decided; False: everything is zero."""
    now, known, value, left, queue, trail = s.now, s.known, s.value, s.left, s.queue, s.trail
    for x in range(c.card.size):
        if c.card[x] > 62:
            continue
        some, all_values = np.uint64(0), (_ONE << np.uint64(c.card[x])) - _ONE
        for a in range(c.card[x]):
            if c.own[c.off[x] + a] > 0.0:
                some |= _ONE << np.uint64(a)
        left[x] = all_values
        if some == np.uint64(0):
            return False
        if some != all_values or c.card[x] == 1:
            _narrow(now, known, value, left, queue, trail, x, some)
    for g in range(r.start.size):
        i = np.int64(s.indices[g])
        says = r.what[r.factor[g, 0] + i]
        if says == 2 or (
            says == 1
            and not _prune(now, known, value, left, queue, trail, r.factor, r.place, r.masks, g, i)
        ):
            return False
    return _propagate(
        now, s.indices, _Known(known, value, left, queue, trail), s.back, c.rule_ptr, c.rule,
        r.factor, r.place, r.what, r.masks, r.after, 0,
    )  # fmt: skip


@jit
def _undo(now, index, known, left, queue, trail, back, n_queue, n_trail, n_back):
    """Know what was known before."""
    n = now[N_BACK]
    while n > n_back:
        n -= 1
        index[back[n, 0]] = back[n, 1]
    now[N_BACK] = n
    n = now[N_TRAIL]
    while n > n_trail:
        n -= 1
        left[np.int64(trail[n, 0])] = trail[n, 1]
    now[N_TRAIL] = n
    n = now[N_QUEUE]
    while n > n_queue:
        n -= 1
        known[queue[n]] = False
    now[N_QUEUE] = n


@jit
def _over(over_ptr, over, cur, content, sums, x):
    """The sum of contents of factors that cross into the subtree of x, into ``sums[x, 0:2]``."""
    s1, s2 = np.uint64(0), np.uint64(0)
    for k in range(over_ptr[x], over_ptr[x + 1]):
        p = cur[over[k]]
        s1 += content[p, 0]
        s2 += content[p, 1]
    sums[x, 0], sums[x, 1] = s1, s2


@jit
def search(c, s, f, r, d, budget, n_walks, seed, seen):
    """Search on, for so many steps: visits of variables, and what they force. The state is in
    ``s``, nodes go to ``d``. Returns why the slice ended.

    ``n_walks`` > 0: instead walk down so often, each time deciding all variables in order, values
    drawn evenly among those that are not seen to be zero. The keys met go to ``seen`` (n, n_walks),
    0: none. Returns how many walks came to the end."""
    now, cur, saved, index, known, value, left = (
        s.now, s.cur, s.saved, s.indices, s.known, s.value, s.left,
    )  # fmt: skip
    queue, trail, back, frame, sums = s.queue, s.trail, s.back, s.frame, s.sums
    number, number_e, term, term_e, kids = s.number, s.number_e, s.term, s.term_e, s.kids
    variable, card, off, own, own_e = c.variable, c.card, c.off, c.own, c.own_e
    own_node, has_node, salt, parent = c.own_node, c.has_node, c.salt, c.parent
    below_ptr, below, at_ptr, at = c.below_ptr, c.below, c.at_ptr, c.at
    over_ptr, over, end_ptr, end = c.over_ptr, c.over, c.end_ptr, c.end
    n_kids, kid_off, rule_ptr, rule = c.n_kids, c.kid_off, c.rule_ptr, c.rule
    eptr, content, node, to, weight, weight_e = (
        f.eptr,
        f.content,
        f.node,
        f.to,
        f.weight,
        f.weight_e,
    )
    factor, place, what, masks, after = r.factor, r.place, r.what, r.masks, r.after
    key, total, slots = d.key, d.total, d.slots
    d_variable, d_edges, d_state, d_weight, d_child = (
        d.variable, d.n_edges, d.state, d.weight, d.child,
    )  # fmt: skip
    mine = _Known(known, value, left, queue, trail)
    x, mode, nn, ne, nc, found = now[X], now[MODE], now[NODES], now[EDGES], now[KIDS], now[FOUND]
    bottom, n = now[BOTTOM], card.size
    spare, reason, a, tried = budget, PAUSED, 0, 0
    walks, done = n_walks, 0
    rng = np.uint64(seed) * np.uint64(2654435769) + np.uint64(88172645463325252)
    if walks > 0:
        x, mode = 0, _ENTER
    while True:
        if mode == _ENTER:
            k1, k2 = salt[x, 0] + sums[x, 0], salt[x, 1] + sums[x, 1]
            if walks == 0:
                t = _find(slots, key, k1, k2)
                spare -= 1
                if t >= 0:
                    now[HITS] += 1
                    found, mode = t, _UP
                    continue
                sums[x, 4], sums[x, 5] = k1, k2
                number[x, 0], number_e[x, 0] = 0.0, 0
                a = -1
            else:
                seen[x, walks - 1] = k1
                rng = rng * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
                a = np.int64((rng >> np.uint64(33)) % np.uint64(card[x])) - 1
                tried = 0
            frame[x, 0] = a
            mode = _NEXT
            if spare <= 0:
                break
        if mode == _NEXT:
            a = frame[x, 0] + 1
            many, fine, lo, hi = card[x] > 62, False, at_ptr[x], at_ptr[x + 1]
            while True:
                if walks == 0:
                    if a == card[x]:
                        break
                else:
                    if tried == card[x]:
                        break
                    tried += 1
                    if a == card[x]:
                        a = 0
                i = off[x] + a
                w, e = own[i], np.int64(own_e[i])
                fine = w != 0.0 and (many or (left[x] >> np.uint64(a)) & _ONE == _ONE)
                if fine:
                    for k in range(lo, hi):
                        if to[eptr[cur[at[k]]] + a] < 0:
                            fine = False
                            break
                if fine:  # decide
                    s1, s2 = sums[x, 0], sums[x, 1]
                    for k in range(lo, hi):
                        g = at[k]
                        p = cur[g]
                        t = eptr[p] + a
                        q = to[t]
                        saved[k], cur[g] = p, q
                        if weight[t] != 1.0 or weight_e[t] != 0:
                            w, e = times(w, e, weight[t], np.int64(weight_e[t]))
                        s1 += content[q, 0] - content[p, 0]
                        s2 += content[q, 1] - content[p, 1]
                    sums[x, 2], sums[x, 3] = s1, s2
                    number[x, 1], number_e[x, 1] = w, e
                    frame[x, 2], frame[x, 3] = now[N_QUEUE], now[N_TRAIL]
                    frame[x, 4] = now[N_BACK]
                    if not known[x] and rule_ptr[x + 1] > rule_ptr[x]:
                        known[x], value[x] = True, a
                        k = now[N_QUEUE]
                        queue[k] = x
                        now[N_QUEUE] = k + 1
                        fine = _propagate(
                            now, index, mine, back, rule_ptr, rule, factor, place, what, masks,
                            after, k,
                        )  # fmt: skip
                        if walks == 0:
                            spare -= now[N_QUEUE] - k
                        if not fine:
                            for k in range(lo, hi):
                                cur[at[k]] = saved[k]
                            _undo(
                                now, index, known, left, queue, trail, back, frame[x, 2],
                                frame[x, 3], frame[x, 4],
                            )  # fmt: skip
                if fine:
                    break
                now[DEAD] += 1
                term[i] = 0.0
                a += 1
            frame[x, 0] = a
            if walks > 0:
                if fine:
                    x += 1
                if x == n or not fine:
                    done += x == n
                    while x > 0:
                        x -= 1
                        for k in range(at_ptr[x], at_ptr[x + 1]):
                            cur[at[k]] = saved[k]
                        _undo(
                            now, index, known, left, queue, trail, back, frame[x, 2], frame[x, 3],
                            frame[x, 4],
                        )  # fmt: skip
                    walks -= 1
                    if walks == 0:
                        return done
                y = parent[x]
                if y < 0:
                    sums[x, 0], sums[x, 1] = np.uint64(0), np.uint64(0)
                elif below_ptr[y + 1] - below_ptr[y] == 1:
                    sums[x, 0], sums[x, 1] = sums[y, 2], sums[y, 3]
                else:
                    _over(over_ptr, over, cur, content, sums, x)
                mode = _ENTER
                continue
            if not fine:
                mode = _STORE
            else:
                i = kid_off[x] + a * n_kids[x] + below_ptr[x + 1] - below_ptr[x]
                for k in range(end_ptr[x], end_ptr[x + 1]):
                    kids[i] = node[cur[end[k]]]
                    i += 1
                if has_node[x]:
                    kids[i] = own_node[off[x] + a]
                frame[x, 1] = 0
                mode = _BELOW
        if mode == _BELOW:
            b = below_ptr[x] + frame[x, 1]
            if number[x, 1] != 0.0 and b < below_ptr[x + 1]:
                y = below[b]
                if below_ptr[x + 1] - below_ptr[x] == 1:
                    sums[y, 0], sums[y, 1] = sums[x, 2], sums[x, 3]
                else:
                    _over(over_ptr, over, cur, content, sums, y)
                x, mode = np.int64(y), _ENTER
                continue
            i = off[x] + frame[x, 0]
            w, e = number[x, 1], number_e[x, 1]
            term[i], term_e[i] = w, e
            number[x, 0], number_e[x, 0] = plus(number[x, 0], number_e[x, 0], w, e)
            for k in range(at_ptr[x], at_ptr[x + 1]):
                cur[at[k]] = saved[k]
            if now[N_QUEUE] > frame[x, 2]:
                _undo(
                    now, index, known, left, queue, trail, back, frame[x, 2], frame[x, 3],
                    frame[x, 4],
                )  # fmt: skip
            mode = _NEXT
            continue
        if mode == _STORE:
            if (
                nn >= d_variable.size or nn - bottom >= key.shape[0]
                or ne + card[x] > d_state.size or nc + card[x] * n_kids[x] > d_child.size
            ):  # fmt: skip
                reason = NO_ROOM
                break
            if 2 * (nn - bottom + 1) > slots.size:
                reason = NO_SLOTS
                break
            w, e, first = number[x, 0], number_e[x, 0], ne
            if w > 0.0:
                for a in range(card[x]):
                    i = off[x] + a
                    if term[i] > 0.0:
                        p = share(term[i], term_e[i], w, e)
                        if p == LEAST:
                            now[RAISED] += 1
                        d_state[ne], d_weight[ne] = a, p
                        ne += 1
                        for k in range(
                            kid_off[x] + a * n_kids[x], kid_off[x] + (a + 1) * n_kids[x]
                        ):
                            d_child[nc] = kids[k]
                            nc += 1
            found = nn - bottom
            d_variable[nn], d_edges[nn] = variable[x], ne - first
            k1, k2 = sums[x, 4], sums[x, 5]
            slots[-1 - _find(slots, key, k1, k2)] = found
            key[found, 0], key[found, 1] = k1, k2
            total[found, 2], total[found, 3] = w, e
            nn += 1
            mode = _UP
        if mode == _UP:
            y = np.int64(parent[x])
            if y < 0:
                reason = SOLVED
                break
            kids[kid_off[y] + frame[y, 0] * n_kids[y] + frame[y, 1]] = found + bottom
            number[y, 1], number_e[y, 1] = times(
                number[y, 1], number_e[y, 1], total[found, 2], np.int64(total[found, 3])
            )
            frame[y, 1] += 1
            x, mode = y, _BELOW
    now[X], now[MODE], now[NODES], now[EDGES], now[KIDS], now[FOUND] = x, mode, nn, ne, nc, found
    now[VISITS] += budget - spare
    return reason
