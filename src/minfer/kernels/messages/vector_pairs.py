"""Lean sweeps of models of pairs with positive tables, most of all of variables of many states.

What :mod:`minfer.kernels.messages.vectors` does for everything is done here for less: with positive
tables that are moderate (:attr:`minfer.engine.wiring.Wired.vector_room`) no number comes near
underflow, no message has a zero, and a cavity is the product of the field and the *other* messages,
without a division. And nothing is kept but the messages:

    b_v ∝ field_v prod_u M_{u→v},   q_{v→u} ∝ field_v prod_{w != u} M_{w→v},   M_{v→u} = psi q_{v→u}

A visit multiplies what stands at a variable and sends on at once, ahead only: the neighbour that is
still to be visited in this sweep would compute the same message at its visit from the same cavity.
The neighbours behind were sent to in the sweep before and will be in the next, before they read.
So after every sweep the messages are those of the general engine, which pulls all of them.

Variables of many states are too large for a cache, so what is read and written lies in the order of
the sweep: messages from later variables in one half, those from earlier ones in the other
(:func:`minfer.kernels.messages.wiring.general_slots`), and a sweep backwards goes through vectors
backwards too (``step``). Each half is then one stream for whoever fetches memory ahead.

Messages of pairs of labels are O(K) (:mod:`minfer.kernels.messages.labels`), of tables O(K^2), rows
or columns of the table some at a time.
"""

import numpy as np

from minfer.kernels.arithmetic.addresses import (
    SPAN,
    L,
    address,
    get,
    greater,
    load,
    most,
    put,
    spread,
    store,
    total,
)
from minfer.kernels.arithmetic.lanes import magnitude
from minfer.kernels.compiling.jit import jit
from minfer.kernels.messages.labels import FEW, RISE, band_message, few_taps
from minfer.kernels.messages.wiring import ASLEEP, CODE, FIRST, OFFSET, SIZE, TABLE, WIDTH

#: Columns of :func:`slot_table`: where the opposite of a slot's message begins, where the numbers
#: of the pair; code + 4 position + 8 width + 2^32 states of the other end; which that is.
THERE, PSI, KIND, FROM = 0, 1, 2, 3
_STATES = 2**32


@jit
def by_neighbour(scope, gptr, order, owner, position):
    """The places 0, 1, ... of pairs (F, 2) by variable, those of a variable by neighbour; the
    factor and position of each, and where variables begin."""
    flat, n = scope.ravel(), gptr.shape[0] - 1
    places = np.uint64(flat.shape[0])
    gptr[:] = 0
    for v in flat:
        gptr[v + 1] += 1
    for v in range(n):
        gptr[v + 1] += gptr[v]
    first, count = np.empty(flat.shape[0], np.uint32), gptr[:n].copy()
    one, p = np.uint64(1), np.uint64(0)
    while p < places:  # by counting, first by neighbour, then by variable: it is stable
        v = np.uint64(flat[p ^ one])
        first[np.uint64(count[v])] = p
        count[v] += 1
        p += one
    for v in range(n):  # a slice would compile 3 s of error texts
        count[v] = gptr[v]
    for q in first:
        v = np.uint64(flat[q])
        at = np.uint64(count[v])
        order[at], owner[at], position[at] = q, q >> np.uint32(1), q & np.uint32(1)
        count[v] += 1


# ---------------------------------------------------------------------- vectors, by address


@jit(forceinline=True)
def _begin(n, step):
    """Where the first eight of n numbers lie, forwards (``step`` is SPAN) or backwards (-SPAN);
    what is left over after whole vectors comes last either way."""
    return 0 if step > 0 else (n // L - 1) * SPAN


@jit
def copy(out, a, n):
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
def multiply(out, a, b, n):
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


@jit(forceinline=True)
def _multiply_all(first, second, belief, a, b, c, d, e, n, step):
    """With x = a b c: first = x e, second = x d and belief = second e; their sums. A visit on a
    grid in one go."""
    l0 = l1 = l2 = spread(0.0)
    t0 = t1 = t2 = 0.0
    at = _begin(n, step)
    for _ in range(n // L):
        x = load(a + at) * load(b + at) * load(c + at)
        right = load(e + at)
        y, z = x * right, x * load(d + at)
        store(first + at, y)
        store(second + at, z)
        l0, l1 = l0 + y, l1 + z
        y = z * right
        store(belief + at, y)
        l2 = l2 + y
        at += step
    for at in range(n // L * SPAN, 8 * n, 8):
        x = get(a + at) * get(b + at) * get(c + at)
        y, z = x * get(e + at), x * get(d + at)
        put(first + at, y)
        put(second + at, z)
        t0 += y
        t1 += z
        y = z * get(e + at)
        put(belief + at, y)
        t2 += y
    return total(l0) + t0, total(l1) + t1, total(l2) + t2


@jit(forceinline=True)
def _renew(bel, was, a, scale, n, biggest, step):
    """bel = a scale; the largest change from ``was``, or ``biggest`` if that is more."""
    lanes = spread(biggest)
    at = _begin(n, step)
    for _ in range(n // L):
        p = load(a + at) * scale
        lanes = greater(magnitude(p - load(was + at)), lanes)
        store(bel + at, p)
        at += step
    for at in range(n // L * SPAN, 8 * n, 8):
        p = get(a + at) * scale
        biggest = max(biggest, abs(p - get(was + at)))
        put(bel + at, p)
    return max(most(lanes), biggest)


@jit(forceinline=True)
def line(out, c, slope, a, n, step):
    """out = c + slope a."""
    base = spread(c)
    at = _begin(n, step)
    for _ in range(n // L):
        store(out + at, load(a + at) * slope + base)
        at += step
    for at in range(n // L * SPAN, 8 * n, 8):
        put(out + at, get(a + at) * slope + c)


@jit
def by_columns(psi, h, scale, size, mine, out):
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
def by_rows(psi, h, scale, size, mine, out):
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
def distance(new, old, n):
    """The largest difference of two vectors, both taken to sum 1; 0 where one has no mass."""
    x = y = worst = 0.0
    for i in range(n):
        x += get(new + 8 * i)
        y += get(old + 8 * i)
    if x > 0.0 and y > 0.0:
        x, y = 1.0 / x, 1.0 / y
        for i in range(n):
            worst = max(worst, abs(get(new + 8 * i) * x - get(old + 8 * i) * y))
    return worst


# ---------------------------------------------------------------------- sweeps


@jit(forceinline=True)
def _is_short(kind):
    """Whether :func:`_send_short` knows pairs of this kind."""
    width = (kind & (_STATES - 1)) >> 3
    return kind & 3 == RISE and (width <= 1 or width == FEW)


@jit(forceinline=True)
def _send_short(numbers, width, cavity, mass, scale, n, out, step):
    """The message of Potts pairs, or of pairs with FEW taps, from a cavity times scale."""
    if width <= 1:
        slope = get(numbers + 8) * scale if width > 0 else 0.0
        line(out, get(numbers), slope, cavity, n, step)
    else:
        store(cavity + 8 * n, spread(0.0))
        few_taps(numbers, cavity, mass, scale, n, out, step)


@jit
def _send(numbers, code, width, position, cavity, mass, n, size, out, step):
    """The message from a cavity, which sums to ``mass``, of a sender at ``position`` of the scope,
    to the other end, of ``size`` states. Around the cavity are as many zeros as pairs of labels are
    wide."""
    scale = 1.0 / mass
    if code == RISE and (width <= 1 or width == FEW):
        _send_short(numbers, width, cavity, mass, scale, n, out, step)
    elif code > 0:
        for i in range(width):  # a wider variable may have been here before
            put(cavity + 8 * (n + i), 0.0)
        band_message(numbers, code, width, cavity, mass, scale, n, out)
    elif position == 0:
        by_columns(numbers, cavity, scale, n, size, out)
    else:
        by_rows(numbers, cavity, scale, n, size, out)


@jit(forceinline=True)
def _first_message(numbers, ways, gptr, off, fields, messages, mine, g, n, room, own):
    """Where it stands what the field of slot g's neighbour, a later one, says to a variable of n
    states. A run that starts afresh hears it first, as if a sweep backwards had come from nothing;
    earlier neighbours are heard in the first sweep. It is written to ``mine``, unless the neighbour
    told its first neighbour the same: then it stands there, and is copied if ``mine`` is to be the
    variable's ``own``."""
    kind, u = ways[g, KIND], ways[g, FROM]
    first = gptr[u]
    told = messages + 8 * ways[first, THERE]
    same = ways[first, PSI] == ways[g, PSI] and (kind & 3) > 0
    if same and ways[first, KIND] & 3 == kind & 3 and told < mine:
        if own:
            copy(mine, told, n)
        return mine if own else told
    _say_field(numbers + 8 * ways[g, PSI], kind, fields + 8 * off[u], n, room, mine)
    return mine


@jit
def _say_field(psi, kind, field, n, room, out):
    """A message from a field alone, to a variable of n states; ``kind`` as seen from there."""
    size, kind = kind >> 32, kind & (_STATES - 1)
    mass = copy(room, field, size)
    _send(psi, kind & 3, kind >> 3, 1 - (kind >> 2 & 1), room, mass, size, n, out, SPAN)


@jit
def first_messages(w, ways, to_variable, work):
    """Write down what the first sweep of a run that starts afresh heard from later variables."""
    card, off, kinds, prior, field, ptr, rev, W, gptr, gslot, fac, fslot, tab, rho, grho = w
    messages, numbers, fields = address(to_variable), address(tab), address(field)
    room = address(work) + 8 * (work.shape[0] // 4)
    for v in range(card.shape[0]):
        n = np.int64(card[v])
        for g in range(gptr[v], gptr[v + 1]):
            if kinds[v] != ASLEEP and ways[g, FROM] > v:
                mine = messages + 8 * gslot[g, OFFSET]
                _first_message(numbers, ways, gptr, off, fields, messages, mine, g, n, room, True)


@jit
def slot_table(w, owner, ways):
    """All that a visit asks about a general slot in one row of ``ways`` (G, 4); every factor is a
    pair, ``owner`` (G,) the variable of each slot."""
    gslot, fac, fslot = w.gslot, w.fac, w.fslot
    for f in range(fac.shape[0]):
        psi, kind, first = fac[f, TABLE], fac[f, CODE] + 8 * fac[f, WIDTH], fac[f, FIRST]
        a, b = np.uint64(fslot[first]), np.uint64(fslot[first + 1])
        ways[a, THERE], ways[b, THERE] = gslot[b, OFFSET], gslot[a, OFFSET]
        ways[a, PSI] = ways[b, PSI] = psi
        ways[a, KIND] = kind + _STATES * np.int64(gslot[b, SIZE])
        ways[b, KIND] = kind + 4 + _STATES * np.int64(gslot[a, SIZE])
        ways[a, FROM], ways[b, FROM] = owner[b], owner[a]


@jit
def sweep_vector_pairs(w, ways, to_variable, bel, work, begin, end, forward, watching, fresh):
    """Visit the variables begin..end; returns the largest changes of a belief and of a message.
    ``fresh``: the first sweep of a run, forwards, which needs neither messages nor beliefs; what it
    hears from later variables stays unwritten where the next sweep writes it anew before anybody
    looks, ``first_messages`` is for others. ``work``
    (:attr:`minfer.engine.wiring.Wired.vector_room`): in its first half two cavities between zeros,
    in the other products."""
    card, off, kinds, prior, field, ptr, rev, W, gptr, gslot, fac, fslot, tab, rho, grho = w
    messages, numbers = address(to_variable), address(tab)
    fields, beliefs = address(field), address(bel)
    cavity = address(work) + 8 * (work.shape[0] // 4)
    front = address(work) + 8 * (work.shape[0] // 2)  # the field times the messages so far;
    second = address(work) + (cavity - address(work)) // 2  # another cavity
    halves = np.full(work.shape[0] // 8 if fresh else 0, 0.5)  # beliefs before a fresh run
    way = SPAN if forward else -SPAN
    biggest = told = 0.0  # behind it products of those to come
    one, two = np.uint64(1), np.uint64(2)
    known = numbers, ways, gptr, off, fields, messages
    for place in range(begin, end):
        v = np.uint64(place if forward else begin + end - 1 - place)
        lo, hi = gptr[v], gptr[v + one]
        if kinds[v] == ASLEEP:
            continue
        n, start, belief = np.int64(card[v]), fields + 8 * off[v], beliefs + 8 * off[v]
        was = address(halves) if fresh else belief
        step, split = 8 * n, lo  # the first slot of a later neighbour
        if hi - lo == 4 and not watching:  # on a grid? What is below, in one go
            slot, here = np.uint64(lo), np.int64(v)
            send = slot + two if forward else slot  # the slots ahead
            left, right = ways[send, KIND], ways[send + one, KIND]
            grid = ways[slot + one, FROM] < here < ways[slot + two, FROM]
            if grid and _is_short(left) and _is_short(right):
                early = messages + 8 * gslot[slot, OFFSET]
                late = messages + 8 * gslot[slot + two, OFFSET]
                low, high = late, late + step
                if fresh:
                    low = _first_message(*known, low, slot + two, n, cavity, False)
                    high = _first_message(*known, high, slot + two + one, n, cavity, False)
                first, other, third, last = low, high, early, early + step
                if forward:
                    first, other, third, last = third, last, first, other
                before, after, whole = _multiply_all(
                    cavity, second, front, start, first, other, third, last, n, way
                )
                # divisions wait for each other if they are apart
                by, then, mine = 1.0 / before, 1.0 / after, 1.0 / whole
                _send_short(
                    numbers + 8 * ways[send, PSI], (left & (_STATES - 1)) >> 3, cavity, before, by,
                    n, messages + 8 * ways[send, THERE], way,
                )  # fmt: skip
                _send_short(
                    numbers + 8 * ways[send + one, PSI], (right & (_STATES - 1)) >> 3, second,
                    after, then, n, messages + 8 * ways[send + one, THERE], way,
                )  # fmt: skip
                biggest = _renew(belief, was, front, mine, n, biggest, way)
                continue
        if lo == hi:  # nothing to hear but its field
            mass = copy(front, start, n)
            biggest = _renew(belief, was, front, 1.0 / mass, n, biggest, way)
            continue
        while split < hi and ways[split, FROM] < np.int64(v):
            split += 1
        # slots of earlier, and those of later neighbours, lie one after the other
        early = messages + 8 * gslot[lo, OFFSET]
        late = messages + 8 * gslot[split, OFFSET] if split < hi else early
        for g in range(split, hi if fresh else split):
            _first_message(*known, late + (g - split) * step, g, n, cavity, True)
        # the field and the messages from behind, then those from ahead but for one in turn
        a, b = (split, hi) if forward else (lo, split)
        c, d = (lo, split) if forward else (split, hi)
        o, near = (early, late) if forward else (late, early)
        last = near + (b - 1 - a) * step  # the last message from ahead
        if d > c:
            multiply(front, start, o, n)
        else:
            copy(front, start, n)
        for j in range(1, d - c):
            multiply(front, front, o + j * step, n)
        tail = front + (b - a) * step  # of the messages after slot j: tail - (b - 3 - j) step
        for j in range(b - 3, a - 1, -1):
            o = near + (j + 1 - a) * step
            here = tail - (b - 3 - j) * step
            multiply(here, last if j == b - 3 else here + step, o, n)
        mass = 0.0
        for j in range(a, b):
            o = near + (j - a) * step
            if j == b - 1 and j == a:
                mass = copy(cavity, front, n)
            elif j == b - 1:
                mass = multiply(cavity, front, o - step, n)
            else:
                if j > a:
                    multiply(front, front, o - step, n)
                rest = last if j == b - 2 else tail - (b - 3 - j) * step
                mass = multiply(cavity, front, rest, n)
            kind, size = ways[j, KIND] & (_STATES - 1), ways[j, KIND] >> 32
            to = messages + 8 * ways[j, THERE]
            if watching:
                copy(tail + step, to, size)
            _send(
                numbers + 8 * ways[j, PSI], kind & 3, kind >> 3, kind >> 2 & 1, cavity, mass,
                n, size, to, way,
            )  # fmt: skip
            if watching:
                told = max(told, distance(to, tail + step, size))
        mass = multiply(front, cavity, last, n) if a < b else copy(front, front, n)
        biggest = _renew(belief, was, front, 1.0 / mass, n, biggest, way)
    return biggest, told
