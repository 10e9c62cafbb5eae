"""Boxes of ratios up trees of walks, any number of states (:mod:`minfer.certified.boxes`).

A box of a variable is a matrix R of numbers in [0, inf]: p(s) <= R[s, q] p(q), row-major. Through a
factor psi(s, t), t the joint states of its other variables, goes

    max_x  (sum_t psi(s, t) x_t) / (sum_t psi(q, t) x_t),   x_z = 1,  1 / R[z, t] <= x_t <= R[t, z],

for every pivot z; the least of them counts. The best x has its upper end where psi(s, t) /
psi(q, t) is large, its lower end elsewhere, and the border is found by going through the states in
the order of that ratio, which is known in advance: as long as the next one's ratio is above the
mean so far. An infinite upper end that pays is all that counts.

Rounding: with T joint states of m variables numerator and denominator have at most 2 T + m + 4
roundings on a path each; with the quotient, ``pad`` and the product it goes into, 4 T + 2 m + 11. A
state that rounding takes, or leaves, wrongly has a ratio that is the mean to four roundings, and so
does no more than that: 4 T again. ``pad`` covers both, and what the tables may be wrong by; so
every computed R is above the one of exact arithmetic. Entries of R and of x are 0, infinite, or in
[1 / BIG, BIG], those of tables 0 or in [1 / BIG, 1] (numerators rounded up to that, denominators
down): no product of three leaves the range of floats.
"""

from typing import NamedTuple

import numpy as np

from minfer.kernels.compiling.jit import jit
from minfer.kernels.intervals.deepening import LEAST as LEAST_THRESHOLD
from minfer.kernels.intervals.deepening import next_threshold, rate_seen

BIG = 1e70
#: Joint states up to which every one is tried as a pivot; else the best FEW.
ALL = 6
FEW = 4
#: Columns of a slot's whole numbers: states, joint states of the others, where its range and leaf,
#: its table, its order, its members begin, how many these are, its factor, its work.
STATES, JOINT, AT, TABLE, ORDER, FIRST, MEMBERS, FACTOR, WORK, SLOT = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9

#: Nothing is allocated in these: numba then counts no references to arrays, which costs more than
#: the arithmetic in functions as small and as nested as these.
BARE = {"_nrt": False}

_WIDE = 2000.0
_SURE = 1e-13


class BoxModel(NamedTuple):
    """Factors as V variables see them, in slots by variable; matrices S x S end to end."""

    vptr: np.ndarray  # i8 (V+1,) the slots of each variable
    slots: np.ndarray  # i8 (E, SLOT)
    tables_a: np.ndarray  # f8 tables rounded up, for numerators
    tables_b: np.ndarray  # f8 ... and down, for denominators
    orders: np.ndarray  # u1 joint states by falling ratio, for each two states
    ranges: np.ndarray  # f8 the largest ratios at all
    pads: np.ndarray  # f8 (E,)
    members: np.ndarray  # i8 the other variables of each slot
    siblings: np.ndarray  # i8 the slot of the same factor at each of these
    leaves: np.ndarray  # f8 messages from all that members can be at all
    spans: np.ndarray  # f8 (E,) log-widths of the leaves
    slopes: np.ndarray  # f8 (E,)
    card: np.ndarray  # i8 (V,)
    offset: np.ndarray  # i8 (V+1,) where a variable's matrix begins in ``own``
    own: np.ndarray  # f8 (sum S^2,) ratios of the fields


class BoxReach(NamedTuple):
    """Logarithms of the largest ratios that variables can have (sum S^2,), in parts."""

    total: np.ndarray  # f8 the finite ones added up
    n_open: np.ndarray  # i8 how many are infinite
    n_zero: np.ndarray  # i8 ... minus infinity
    error: np.ndarray  # f8 (V,) the rounding of these sums
    logs: np.ndarray  # f8 those of the slots


class MessageScratch(NamedTuple):
    """What a message needs; T is the largest number of joint states, S of states."""

    cards: np.ndarray  # i8 (64,) states of the members,
    where: np.ndarray  # i8 (64,) where their boxes begin
    pivots: np.ndarray  # i8 (FEW,) at least
    hi: np.ndarray  # f8 (T,)
    lo: np.ndarray  # f8 (T,)
    sums: np.ndarray  # f8 (T + S,)


class BoxScratch(NamedTuple):
    """Of walks of at most D steps."""

    on_walk: np.ndarray  # i4 (V,)
    stack: np.ndarray  # i8 (D, 5) variable, slot, member, factor it came by, where its box begins
    influence: np.ndarray  # f8 (D,)
    buffer: np.ndarray  # f8 all boxes on the walk
    message: MessageScratch


@jit
def _up(x):
    """An upper bound as a box may hold it."""
    if x > BIG:
        return np.inf
    return max(x, 1.0 / BIG) if x > 0.0 else 0.0


@jit
def _product(a, b):
    if a == np.inf or b == np.inf:
        return np.inf
    x = a * b
    if x > BIG:
        return np.inf
    return max(x, 1.0 / BIG) if a > 0.0 and b > 0.0 else 0.0


@jit(**BARE)
def _ends(boxes, n_members, joint, z, scratch):
    """Ends of all joint states if state ``z`` has weight one; False where it may have none."""
    cards, where, _, hi, lo, _ = scratch
    sure = True
    if n_members == 1:
        at = where[0]
        for t in range(joint):
            down = boxes[at + z * joint + t]
            sure &= down > 0.0
            x = 1.0 / down
            hi[t] = boxes[at + t * joint + z]
            lo[t] = min(x, BIG) if x >= 1.0 / BIG else 0.0
        hi[z] = 1.0
        lo[z] = 1.0
    else:
        size, stride = 1, joint
        hi[0] = 1.0
        lo[0] = 1.0
        for i in range(n_members):
            c, at = cards[i], where[i]
            stride //= c
            pivot = (z // stride) % c
            for o in range(size - 1, -1, -1):
                h, l = hi[o], lo[o]
                for t in range(c - 1, -1, -1):
                    up, down = boxes[at + t * c + pivot], boxes[at + pivot * c + t]
                    if t == pivot:
                        up = down = 1.0
                    sure &= down > 0.0
                    hi[o * c + t] = _product(h, up) if up > 0.0 else 0.0
                    x = l / down
                    lo[o * c + t] = min(x, BIG) if x >= 1.0 / BIG else 0.0
            size *= c
    return sure


@jit(**BARE)
def _best_pivots(boxes, n_members, joint, scratch):
    """The FEW pivots whose boxes are narrowest, into ``pivots``."""
    _, _, pivots, hi, lo, sums = scratch
    for z in range(joint):
        loose = np.inf
        if _ends(boxes, n_members, joint, z, scratch):
            loose = 0.0
            for t in range(joint):
                if hi[t] > 0.0:
                    loose += 1.0 - lo[t] / hi[t]
        sums[z] = loose
    for k in range(FEW):
        best = 0
        for z in range(joint):
            if sums[z] < sums[best]:
                best = z
        pivots[k] = best
        sums[best] = np.inf


@jit(**BARE)
def _with_open(over, under, row, column, o, joint, tables_a, tables_b, orders, room):
    """The same where some upper ends are infinite: the first of these that pays is all."""
    going = True
    for i in range(o, o + joint):
        t = np.int64(orders[i])
        a, b = tables_a[row + t], tables_b[column + t]
        going &= a * under > over * b
        if going and room[t] == np.inf:
            over, under = a, b
            going = False
        elif going:
            over += a * room[t]
            under += b * room[t]
    return over, under


@jit(**BARE)
def _message(model, j, boxes, scratch, out, to):
    """The message of slot ``j`` into ``out[to:]`` (S * S), from its members' boxes."""
    slots, ranges, pad = model.slots, model.ranges, model.pads[j]
    tables_a, tables_b, orders = model.tables_a, model.tables_b, model.orders
    _, _, pivots, hi, lo, sums = scratch
    n, joint, n_members = slots[j, STATES], slots[j, JOINT], slots[j, MEMBERS]
    table, order, at = slots[j, TABLE], slots[j, ORDER], slots[j, AT]
    for i in range(n * n):
        out[to + i] = ranges[at + i]
    few = joint > ALL
    if few:
        _best_pivots(boxes, n_members, joint, scratch)
    for k in range(FEW if few else joint):
        z = pivots[k] if few else k
        if _ends(boxes, n_members, joint, z, scratch):
            finite = True
            for t in range(joint):
                finite &= hi[t] < np.inf
                hi[t] = max(hi[t] - lo[t], 0.0)  # from here on the difference
            for q in range(n):
                x = 0.0
                for t in range(joint):
                    x += tables_b[table + q * joint + t] * lo[t]
                sums[joint + q] = x
            for s in range(n):
                first = 0.0
                row = table + s * joint
                for t in range(joint):
                    first += tables_a[row + t] * lo[t]
                for q in range(n):
                    if q != s:
                        over, under = first, sums[joint + q]
                        column = table + q * joint
                        o = order + (s * n + q) * joint
                        if finite:  # where one does not pay none behind it does
                            for i in range(o, o + joint):
                                t = np.int64(orders[i])
                                a, b, d = tables_a[row + t], tables_b[column + t], hi[t]
                                d = d if a * under > over * b else 0.0
                                over += a * d
                                under += b * d
                        else:
                            over, under = _with_open(
                                over, under, row, column, o, joint, tables_a, tables_b, orders, hi
                            )
                        r = over / under * pad  # 0 / 0 says nothing
                        if r < out[to + s * n + q]:
                            out[to + s * n + q] = _up(r)


@jit
def prepare(model, reach):
    """Leaves of all slots, from all that their members can be at all; widths and slopes."""
    slots, members, siblings, card = model.slots, model.members, model.siblings, model.card
    ranges, leaves, spans, slopes = model.ranges, model.leaves, model.spans, model.slopes
    tables_a, offset = model.tables_a, model.offset
    total, n_open, n_zero, error, logs = reach
    most = states = 1
    for j in range(len(slots)):
        most = max(most, slots[j, JOINT])
        states = max(states, slots[j, STATES])
    hi, lo, x = np.empty(most), np.empty(most), np.empty(most)
    cards, where = np.empty(64, np.int64), np.empty(64, np.int64)
    scratch = MessageScratch(cards, where, np.empty(FEW, np.int64), hi, lo, np.empty(most + states))
    room = 1
    for v in range(len(card)):
        room = max(room, card[v] * card[v])
    boxes, out = np.empty(64 * room), np.empty(room)
    for j in range(len(slots)):
        slot = slots[j]
        n, joint, at = slot[STATES], slot[JOINT], slot[AT]
        if joint == 0:  # known by its range alone
            for i in range(n * n):
                leaves[at + i] = ranges[at + i]
            continue
        begin = 0
        for i in range(slot[MEMBERS]):
            k, sibling = members[slot[FIRST] + i], siblings[slot[FIRST] + i]
            c, other = card[k], slots[sibling, AT]
            cards[i], where[i] = c, begin
            for e in range(c * c):
                z = offset[k] + e
                own = logs[other + e]
                value, opened, zeros = total[z], n_open[z], n_zero[z]
                if own == np.inf:
                    opened -= 1
                elif own == -np.inf:
                    zeros -= 1
                else:
                    value -= own
                if opened > 0:
                    boxes[begin + e] = np.inf
                elif zeros > 0:
                    boxes[begin + e] = 0.0
                else:
                    value = max(min(value + error[k], 700.0), -700.0)  # 0 would mean impossible
                    boxes[begin + e] = _up(np.exp(value) * (1.0 + 4e-15))
            begin += c * c
        _message(model, j, boxes, scratch, out, np.int64(0))
        span = 0.0
        for s in range(n):
            for q in range(n):
                leaves[at + s * n + q] = 1.0 if s == q else out[s * n + q]
                if s < q:
                    both = out[s * n + q] * out[q * n + s]
                    if both > 0.0:
                        span = max(span, min(np.log(both), _WIDE))
        spans[j] = span if span > _SURE else 0.0
        # the largest slope, about: where two states' shares of x are most different
        usable = False
        for z in range(joint):
            if _ends(boxes, slot[MEMBERS], joint, z, scratch):
                usable = True
                break
        slope = 1.0
        if usable:
            slope = 0.0
            table = slot[TABLE]
            for s in range(n):
                for q in range(s):
                    w_s = w_q = 0.0
                    pivot = np.inf
                    for t in range(joint):
                        a, b = tables_a[table + s * joint + t], tables_a[table + q * joint + t]
                        x[t] = 0.0
                        if a > 0.0 and b > 0.0:
                            x[t] = 1.0 / np.sqrt(a * b)
                        if t == z:
                            pivot = x[t]
                    for t in range(joint):
                        y = x[t] / pivot if pivot > 0.0 else 1.0
                        x[t] = max(lo[t], min(hi[t], y, BIG))
                        w_s += tables_a[table + s * joint + t] * x[t]
                        w_q += tables_a[table + q * joint + t] * x[t]
                    if w_s > 0.0 and w_q > 0.0:
                        apart = 0.0
                        for t in range(joint):
                            a, b = tables_a[table + s * joint + t], tables_a[table + q * joint + t]
                            apart += max(a * x[t] / w_s - b * x[t] / w_q, 0.0)
                        slope = max(slope, apart)
        slopes[j] = slope


@jit(**BARE)
def _open(on_walk, members, first, n):
    found = False
    for i in range(n):
        found |= on_walk[members[first + i]] > 0
    return found


@jit(**BARE)
def _mark(on_walk, v, members, first, n, inside, step):
    """What the walk has left behind when it is in member ``inside`` of a slot of ``v``."""
    on_walk[v] += step
    for i in range(n):
        if i != inside:
            on_walk[members[first + i]] += step


@jit(**BARE)
def box(root, eps, most, model, scratch):
    """The box of ``root`` into ``buffer[:S * S]``; the work, and whether an ``eps`` cut it."""
    vptr, slots, members, card = model.vptr, model.slots, model.members, model.card
    ranges, leaves, spans, slopes = model.ranges, model.leaves, model.spans, model.slopes
    offset, own = model.offset, model.own
    on_walk, stack, influence, buffer, of_message = scratch
    cards, where = of_message.cards, of_message.where
    d, work, cut = 0, 0, False
    v, j, m, came, at, flow = root, vptr[root], -1, -1, 0, 1.0
    for i in range(card[v] * card[v]):
        buffer[i] = own[offset[v] + i]
    while True:
        n = card[v]
        if m < 0:
            if j < vptr[v + 1]:
                first, m_all, place = slots[j, FIRST], slots[j, MEMBERS], slots[j, AT]
                work += 15 + 4 * n * n
                if slots[j, FACTOR] == came:
                    j += 1
                    continue
                if _open(on_walk, members, first, m_all):
                    for i in range(n * n):
                        buffer[at + i] = _product(buffer[at + i], ranges[place + i])
                    j += 1
                    continue
                end, widest = at + n * n, n
                for i in range(m_all):
                    c = card[members[first + i]]
                    end += c * c
                    widest = max(widest, c)
                full = d + 1 >= len(stack) or end + widest * widest > len(buffer)
                if flow * spans[j] < eps or work >= most or full:
                    for i in range(n * n):
                        buffer[at + i] = _product(buffer[at + i], leaves[place + i])
                    cut |= spans[j] > 0.0
                    j += 1
                    continue
                m = 0
            else:
                if d == 0:
                    break
                d -= 1
                done, n_done = at, n * n
                v, j, m, came, at = stack[d, 0], stack[d, 1], stack[d, 2], stack[d, 3], stack[d, 4]
                flow = influence[d]
                n, first, m_all = card[v], slots[j, FIRST], slots[j, MEMBERS]
                _mark(on_walk, v, members, first, m_all, m, -1)
                to = at + n * n
                for i in range(m):
                    c = card[members[first + i]]
                    to += c * c
                for i in range(n_done):
                    buffer[to + i] = buffer[done + i]
                m += 1
        # behind v's box lie those of the slot's members, behind these the box that is made next
        end = at + n * n
        for i in range(m_all):
            c = card[members[first + i]]
            cards[i], where[i] = c, end
            end += c * c
        if m < m_all:
            stack[d, 0], stack[d, 1], stack[d, 2], stack[d, 3], stack[d, 4] = v, j, m, came, at
            influence[d] = flow
            _mark(on_walk, v, members, first, m_all, m, 1)
            d += 1
            flow *= slopes[j]
            v, came, at = members[first + m], slots[j, FACTOR], end
            for i in range(card[v] * card[v]):
                buffer[at + i] = own[offset[v] + i]
            j, m = vptr[v], -1
            continue
        work += slots[j, WORK]
        _message(model, j, buffer, of_message, buffer, end)
        for i in range(n * n):
            buffer[at + i] = _product(buffer[at + i], buffer[end + i])
        j, m = j + 1, -1
    return work, cut


@jit(**BARE)
def boxes(roots, most, depths, low, high, model, scratch):
    """Deeper and deeper boxes of ``roots``, all with S states; ends of their probabilities.

    ``low`` and ``high`` are (n, S); the rest as in :func:`minfer.kernels.intervals.walks.walks`.
    """
    eps, cost, rate, done = depths
    buffer = scratch.buffer
    total = 0
    for r in range(len(roots)):
        v = roots[r]
        n = model.card[v]
        for s in range(n):
            low[r, s], high[r, s] = 0.0, 1.0
        g = (2 * n + 8) * 2.0**-53
        left = most
        while not done[v]:
            threshold = next_threshold(eps[v], cost[v], rate[v], left)
            if threshold == 0.0:
                break
            work, cut = box(v, threshold, left, model, scratch)
            total += work
            left -= work
            for s in range(n):
                above = below = 1.0
                for q in range(n):
                    if q != s:
                        below += 1.0 / buffer[s * n + q]  # p(q) >= p(s) / R[s, q]
                        above += buffer[q * n + s]
                low[r, s] = max(low[r, s], 1.0 / above * (1.0 - g))
                high[r, s] = min(high[r, s], 1.0 / below * (1.0 + g))
            if not cut or threshold < LEAST_THRESHOLD:
                done[v] = True
            if cost[v] > 0:
                rate[v] = rate_seen(eps[v], cost[v], threshold, work)
            if left <= 0:
                break
            eps[v], cost[v] = threshold, work
    return total
