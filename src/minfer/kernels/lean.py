"""Lean sweeps of models of pairs with positive tables, most of all of variables of many states.

What :mod:`minfer.kernels.general` does for everything is done here for less: with positive tables
that are moderate (:attr:`minfer.wiring.Mesh.lean_room`) no number comes near underflow, no
message has a zero, and a cavity is the product of the field and the *other* messages, without a
division. And nothing is kept but the messages:

    b_v ∝ field_v prod_u M_{u→v},   q_{v→u} ∝ field_v prod_{w != u} M_{w→v},   M_{v→u} = psi q_{v→u}

A visit multiplies what stands at a variable and sends on at once, ahead only: the neighbour that is
still to be visited in this sweep would compute the same message at its visit from the same cavity.
The neighbours behind were sent to in the sweep before and will be in the next, before they read.
So after every sweep the messages are those of the general engine, which pulls all of them, and
beliefs and messages are the same bits whether those behind are sent to or not (``ahead``).

Messages of pairs of labels are O(K) (:mod:`minfer.kernels.labels`), of tables O(K^2), rows or
columns of the table some at a time.
"""

import numpy as np

from minfer.kernels._jit import jit
from minfer.kernels.addresses import (
    SPAN,
    L,
    address,
    get,
    load,
    most,
    put,
    spread,
    store,
    total,
)
from minfer.kernels.labels import FEW, RISE, band_message, few_taps
from minfer.kernels.lanes import larger, magnitude
from minfer.kernels.wiring import ASLEEP, CODE, FACTOR, FIRST, OFFSET, POSITION, SIZE, TABLE, WIDTH

#: Columns of :func:`lean_ways`: where the opposite of a slot's message begins, where the numbers
#: of the pair; code + 4 position + 8 width + 2^32 states of the other end; which that is.
THERE, PSI, KIND, FROM = 0, 1, 2, 3
_STATES = 2**32


@jit
def by_neighbour(scope, gptr, order, owner, position):
    """The places 0, 1, ... of pairs (F, 2) by variable, and those of a variable by neighbour.

    With the factor and the position in its scope that each is, and where variables begin.
    """
    places, n = scope.shape[0] * 2, gptr.shape[0] - 1
    gptr[:] = 0
    for f in range(scope.shape[0]):
        gptr[scope[f, 0] + 1] += 1
        gptr[scope[f, 1] + 1] += 1
    for v in range(n):
        gptr[v + 1] += gptr[v]
    first, count = np.empty(places, np.int64), gptr.copy()
    for p in range(places):  # by counting, first by neighbour, then by variable: it is stable
        v = scope[p // 2, 1 - p % 2]
        first[count[v]] = p
        count[v] += 1
    count[:] = gptr
    for p in first:
        v = scope[p // 2, p % 2]
        order[count[v]], owner[count[v]], position[count[v]] = p, p // 2, p % 2
        count[v] += 1


# ---------------------------------------------------------------------- vectors, by address


@jit
def _copy(out, a, n):
    """out = a; the sum."""
    lanes, rest = spread(0.0), 0.0
    for _ in range(n // L):
        x = load(a)
        store(out, x)
        lanes = lanes + x
        out, a = out + SPAN, a + SPAN
    for _ in range(n % L):
        put(out, get(a))
        rest += get(a)
        out, a = out + 8, a + 8
    return total(lanes) + rest


@jit
def _fill(out, x, n):
    """out = x."""
    lanes = spread(x)
    for _ in range(n // L):
        store(out, lanes)
        out += SPAN
    for _ in range(n % L):
        put(out, x)
        out += 8


@jit
def _multiply(out, a, b, n):
    """out = a b; the sum."""
    lanes, rest = spread(0.0), 0.0
    for _ in range(n // L):
        x = load(a) * load(b)
        store(out, x)
        lanes = lanes + x
        out, a, b = out + SPAN, a + SPAN, b + SPAN
    for _ in range(n % L):
        x = get(a) * get(b)
        put(out, x)
        rest += x
        out, a, b = out + 8, a + 8, b + 8
    return total(lanes) + rest


@jit
def _multiply_three(out, a, b, c, n):
    """out = a b c."""
    for _ in range(n // L):
        store(out, load(a) * load(b) * load(c))
        out, a, b, c = out + SPAN, a + SPAN, b + SPAN, c + SPAN
    for _ in range(n % L):
        put(out, get(a) * get(b) * get(c))
        out, a, b, c = out + 8, a + 8, b + 8, c + 8


@jit(forceinline=True)
def _multiply_all(first, second, belief, a, b, c, d, e, n):
    """With x = a b c: first = x e, second = x d and belief = second e; their sums.

    A visit on a grid, in one go: what the functions above do, and the same bits.
    """
    l0 = l1 = l2 = spread(0.0)
    t0 = t1 = t2 = 0.0
    for _ in range(n // L):
        x = load(a) * load(b) * load(c)
        right = load(e)
        y, z = x * right, x * load(d)
        store(first, y)
        store(second, z)
        l0, l1 = l0 + y, l1 + z
        y = z * right
        store(belief, y)
        l2 = l2 + y
        first, second, belief = first + SPAN, second + SPAN, belief + SPAN
        a, b, c, d, e = a + SPAN, b + SPAN, c + SPAN, d + SPAN, e + SPAN
    for _ in range(n % L):
        x = get(a) * get(b) * get(c)
        y, z = x * get(e), x * get(d)
        put(first, y)
        put(second, z)
        t0 += y
        t1 += z
        y = z * get(e)
        put(belief, y)
        t2 += y
        first, second, belief = first + 8, second + 8, belief + 8
        a, b, c, d, e = a + 8, b + 8, c + 8, d + 8, e + 8
    return total(l0) + t0, total(l1) + t1, total(l2) + t2


@jit(forceinline=True)
def _renew(bel, a, scale, n, biggest):
    """bel = a scale; the largest change, or ``biggest`` if that is more."""
    lanes = spread(biggest)
    for _ in range(n // L):
        p = load(a) * scale
        lanes = larger(magnitude(p - load(bel)), lanes)
        store(bel, p)
        bel, a = bel + SPAN, a + SPAN
    for _ in range(n % L):
        p = get(a) * scale
        biggest = max(biggest, abs(p - get(bel)))
        put(bel, p)
        bel, a = bel + 8, a + 8
    return max(most(lanes), biggest)


@jit(forceinline=True)
def _line(out, c, slope, a, n):
    """out = c + slope a."""
    base = spread(c)
    for _ in range(n // L):
        store(out, load(a) * slope + base)
        out, a = out + SPAN, a + SPAN
    for _ in range(n % L):
        put(out, get(a) * slope + c)
        out, a = out + 8, a + 8


@jit
def _by_columns(psi, h, scale, size, mine, out):
    """out[j] = sum_i h[i] psi[i, j] scale, of a table of ``size`` rows of ``mine``."""
    step = 8 * mine
    for _ in range(mine // L):
        even = odd = spread(0.0)
        row, x = psi, h
        for _ in range(size // 2):
            even = even + load(row) * get(x)
            odd = odd + load(row + step) * get(x + 8)
            row, x = row + 2 * step, x + 16
        if size % 2:
            even = even + load(row) * get(x)
        store(out, (even + odd) * scale)
        out, psi = out + SPAN, psi + SPAN
    for _ in range(mine % L):
        y, row, x = 0.0, psi, h
        for _ in range(size):
            y += get(x) * get(row)
            row, x = row + step, x + 8
        put(out, y * scale)
        out, psi = out + 8, psi + 8


@jit
def _by_rows(psi, h, scale, size, mine, out):
    """out[i] = sum_j psi[i, j] h[j] scale, of a table of ``mine`` rows of ``size``."""
    step = 8 * size
    for _ in range(mine // 4):
        l0 = l1 = l2 = l3 = spread(0.0)
        x, row = h, psi
        for _ in range(size // L):
            y = load(x)
            l0 = l0 + load(row) * y
            l1 = l1 + load(row + step) * y
            l2 = l2 + load(row + 2 * step) * y
            l3 = l3 + load(row + 3 * step) * y
            x, row = x + SPAN, row + SPAN
        t0, t1, t2, t3 = total(l0), total(l1), total(l2), total(l3)
        for _ in range(size % L):
            y = get(x)
            t0 += get(row) * y
            t1 += get(row + step) * y
            t2 += get(row + 2 * step) * y
            t3 += get(row + 3 * step) * y
            x, row = x + 8, row + 8
        put(out, t0 * scale)
        put(out + 8, t1 * scale)
        put(out + 16, t2 * scale)
        put(out + 24, t3 * scale)
        out, psi = out + 32, psi + 4 * step
    for _ in range(mine % 4):
        t0, x, row = 0.0, h, psi
        for _ in range(size):
            t0 += get(x) * get(row)
            x, row = x + 8, row + 8
        put(out, t0 * scale)
        out, psi = out + 8, psi + step


@jit
def _moved(new, old, n):
    """The largest difference of two vectors, both taken to sum 1."""
    x = y = 0.0
    for i in range(n):
        x += get(new + 8 * i)
        y += get(old + 8 * i)
    x, y = 1.0 / x, 1.0 / y
    worst = 0.0
    for i in range(n):
        worst = max(worst, abs(get(new + 8 * i) * x - get(old + 8 * i) * y))
    return worst


# ---------------------------------------------------------------------- sweeps


@jit
def _send(numbers, code, width, position, cavity, mass, n, size, out):
    """The message from a cavity, which sums to ``mass``, to the other end, of ``size`` states.

    The sender is at ``position`` of the scope. There are zeros on both sides of the cavity, as many
    as pairs of labels are wide.
    """
    scale = 1.0 / mass
    if code == RISE and width <= 1:  # Potts
        _line(out, get(numbers), get(numbers + 8) * scale if width > 0 else 0.0, cavity, n)
    elif code == RISE and width == FEW:
        store(cavity + 8 * n, spread(0.0))
        few_taps(numbers, cavity, mass, scale, n, out)
    elif code > 0:
        for i in range(width):  # a wider variable may have been here before
            put(cavity + 8 * (n + i), 0.0)
        band_message(numbers, code, width, cavity, mass, scale, n, out)
    elif position == 0:
        _by_columns(numbers, cavity, scale, n, size, out)
    else:
        _by_rows(numbers, cavity, scale, n, size, out)


@jit
def _greet(numbers, ways, gptr, off, fields, messages, mine, lo, hi, n, room):
    """What the fields of the neighbours of slots lo..hi, all later ones, say to a variable.

    A run that starts afresh hears it first: as if a sweep backwards had come from nothing. Earlier
    neighbours are heard in the first sweep, before it comes to those whom they speak to.
    """
    for g in range(lo, hi):
        kind = ways[g, KIND] & (_STATES - 1)
        size = ways[g, KIND] >> 32
        u = ways[g, FROM]
        first = gptr[u]
        same = ways[first, PSI] == ways[g, PSI] and (kind & 3) > 0
        if same and ways[first, KIND] & 3 == kind & 3 and messages + 8 * ways[first, THERE] < mine:
            _copy(mine, messages + 8 * ways[first, THERE], n)  # what it told its first neighbour
            mine += 8 * n
            continue
        mass = _copy(room, fields + 8 * off[u], size)
        _send(
            numbers + 8 * ways[g, PSI], kind & 3, kind >> 3, 1 - (kind >> 2 & 1), room, mass, size,
            n, mine,
        )  # fmt: skip
        mine += 8 * n


@jit
def lean_ways(w):
    """All that a visit asks about a general slot in one row; every factor is a pair. (G, 4)."""
    card, off, cls, prior, field, ptr, rev, W, gptr, gslot, fac, fslot, tab, rho, grho = w
    ways = np.empty((gslot.shape[0], 4), np.int64)
    for v in range(card.shape[0]):
        for g in range(gptr[v], gptr[v + 1]):
            f, k = gslot[g, FACTOR], gslot[g, POSITION]
            other = fslot[fac[f, FIRST] + 1 - k]
            ways[g, THERE] = gslot[other, OFFSET]
            ways[g, PSI] = fac[f, TABLE]
            kind = fac[f, CODE] + 4 * k + 8 * fac[f, WIDTH]
            ways[g, KIND] = kind + _STATES * gslot[other, SIZE]
            ways[other, FROM] = v
    return ways


@jit
def sweep_lean(w, ways, gm, out, bel, work, begin, end, forward, ahead, watching, fresh):
    """Visit the variables begin..end; returns the largest changes of a belief and of a message.

    Ahead: ``out`` is ``gm``. Else all neighbours are sent to, into ``out``, and each variable takes
    over what stands there for it when it is visited. ``fresh``: the first sweep of a run, forwards,
    which needs neither messages nor beliefs.
    ``work`` (:attr:`minfer.wiring.Mesh.lean_room`): in its first half two cavities between zeros,
    in the other products.
    """
    card, off, cls, prior, field, ptr, rev, W, gptr, gslot, fac, fslot, tab, rho, grho = w
    messages, sent, numbers = address(gm), address(out), address(tab)
    fields, beliefs = address(field), address(bel)
    cavity = address(work) + 8 * (work.shape[0] // 4)
    front = address(work) + 8 * (work.shape[0] // 2)  # the field times the messages so far;
    second = address(work) + (cavity - address(work)) // 2  # another cavity
    biggest = told = 0.0  # behind it products of those to come
    for place in range(begin, end):
        v = place if forward else begin + end - 1 - place
        lo, hi = gptr[v], gptr[v + 1]
        if cls[v] == ASLEEP:
            continue
        n, start, belief = np.int64(card[v]), fields + 8 * off[v], beliefs + 8 * off[v]
        if fresh:
            _fill(belief, 0.5, n)
        if lo == hi:  # nothing to hear but its field
            mass = _copy(front, start, n)
            biggest = _renew(belief, front, 1.0 / mass, n, biggest)
            continue
        step, first = 8 * n, gslot[lo, OFFSET]  # slots lie one after the other, by neighbour
        mine = messages + 8 * first
        if not ahead:
            _copy(mine, sent + 8 * first, (hi - lo) * n)
        split = lo  # the first slot of a later neighbour
        while split < hi and ways[split, THERE] < first:
            split += 1
        if fresh:
            o = mine + (split - lo) * step
            _greet(numbers, ways, gptr, off, fields, messages, o, split, hi, n, cavity)
        for turn in range(1 if ahead else 2):
            # the field and the messages from behind, then those from ahead but for one in turn
            later = forward == (turn == 0)
            a, b = (split, hi) if later else (lo, split)
            c, d = (lo, split) if later else (split, hi)
            o = mine + (c - lo) * step
            last = mine + (b - 1 - lo) * step  # the last message from ahead
            four = d - c == 2 and b - a == 2
            before = after = whole = 0.0
            if four:
                before, after, whole = _multiply_all(
                    cavity, second, front, start, o, o + step, last - step, last, n
                )
            elif d - c >= 2:
                _multiply_three(front, start, o, o + step, n)
                for _ in range(d - c - 2):
                    _multiply(front, front, o + 2 * step, n)
                    o += step
            elif d > c:
                _multiply(front, start, o, n)
            else:
                _copy(front, start, n)
            tail = front + (b - a) * step  # of the messages after slot j: tail - (b - 3 - j) step
            for j in range(b - 3, a - 1, -1):
                o = mine + (j + 1 - lo) * step
                here = tail - (b - 3 - j) * step
                _multiply(here, last if j == b - 3 else here + step, o, n)
            mass = 0.0
            for j in range(a, b):
                o, here = mine + (j - lo) * step, cavity
                if four:
                    here, mass = (cavity, before) if j == a else (second, after)
                elif j == b - 1 and j == a:
                    mass = _copy(cavity, front, n)
                elif j == b - 1:
                    mass = _multiply(cavity, front, o - step, n)
                else:
                    if j > a:
                        _multiply(front, front, o - step, n)
                    rest = last if j == b - 2 else tail - (b - 3 - j) * step
                    mass = _multiply(cavity, front, rest, n)
                kind, size = ways[j, KIND] & (_STATES - 1), ways[j, KIND] >> 32
                to = sent + 8 * ways[j, THERE]
                if watching:
                    _copy(tail + step, to, size)
                _send(
                    numbers + 8 * ways[j, PSI], kind & 3, kind >> 3, kind >> 2 & 1, here, mass, n,
                    size, to,
                )  # fmt: skip
                if watching:
                    told = max(told, _moved(to, tail + step, size))
            if turn > 0:
                continue
            if four:
                mass = whole
            else:
                mass = _multiply(front, cavity, last, n) if a < b else _copy(front, front, n)
            biggest = _renew(belief, front, 1.0 / mass, n, biggest)
    return biggest, told
