"""Lean sweeps of models that are pairs of variables with positive tables, most of all with many states.

What :mod:`minfer.kernels.general` does for everything is done here for less: with positive tables
that are moderate (:func:`minfer.wiring.is_lean` has the bound) no number comes near underflow, no
message has a zero, and a cavity is the product of the field and the *other* messages, without a
division. And nothing is kept but the messages:

    b_v ∝ field_v prod_u M_{u→v},   q_{v→u} ∝ field_v prod_{w != u} M_{w→v},   M_{v→u} = psi q_{v→u}

A visit multiplies what stands at a variable and sends on at once, ahead only: the neighbour that is
still to be visited in this sweep would compute the same message at its visit from the same cavity.
The neighbours behind were sent to in the sweep before and will be in the next, before they read.
So after every sweep the messages are those of the general engine, which pulls all of them, and
beliefs and messages are the same bits whether those behind are sent to or not (``ahead``).

Messages of pairs of labels are O(K) (:mod:`minfer.kernels.labels`), of tables O(K^2), rows or columns
of the table four at a time.
"""

import numpy as np

from minfer.kernels._jit import jit
from minfer.kernels.labels import RISE, band_message
from minfer.kernels.wiring import ASLEEP, CODE, FACTOR, FIRST, OFFSET, POSITION, TABLE, WIDTH

_U0, _U1, _U2, _U3, _U4 = (np.uint64(i) for i in range(5))


@jit
def by_neighbour(scope, n, order):
    """The places 0, 1, ... of pairs (F, 2) by variable, and those of a variable by neighbour."""
    places = scope.shape[0] * 2
    first, count = np.empty(places, np.int64), np.zeros(n + 1, np.int64)
    for turn in range(2):  # by counting, first by neighbour, then by variable: it is stable
        count[:] = 0
        for f in range(scope.shape[0]):
            count[scope[f, 0] + 1] += 1
            count[scope[f, 1] + 1] += 1
        for v in range(n):
            count[v + 1] += count[v]
        for i in range(places):
            p = i if turn == 0 else first[i]
            v = scope[p // 2, 1 - p % 2 if turn == 0 else p % 2]
            if turn == 0:
                first[count[v]] = p
            else:
                order[count[v]] = p
            count[v] += 1


@jit(fastmath={"reassoc", "contract"})
def _by_columns(tab, t, h, at, scale, size, mine, out, o):
    """out[j] = sum_i h[i] psi[i, j] scale, of a table with rows of ``mine``."""
    for j in range(mine):
        out[o + j] = 0.0
    i, row = _U0, t
    while i + _U4 <= size:
        x0, x1 = h[at + i] * scale, h[at + i + _U1] * scale
        x2, x3 = h[at + i + _U2] * scale, h[at + i + _U3] * scale
        r1, r2, r3 = row + mine, row + _U2 * mine, row + _U3 * mine
        for j in range(mine):
            y = x0 * tab[row + j] + x1 * tab[r1 + j]
            out[o + j] += y + (x2 * tab[r2 + j] + x3 * tab[r3 + j])
        i += _U4
        row += _U4 * mine
    while i < size:
        x0 = h[at + i] * scale
        for j in range(mine):
            out[o + j] += x0 * tab[row + j]
        i += _U1
        row += mine


@jit(fastmath={"reassoc", "contract"})
def _by_rows(tab, t, h, at, scale, size, mine, out, o):
    """out[i] = sum_j psi[i, j] h[j] scale, of a table with rows of ``size``."""
    i, row = _U0, t
    while i + _U4 <= mine:
        r1, r2, r3 = row + size, row + _U2 * size, row + _U3 * size
        t0 = t1 = t2 = t3 = 0.0
        for j in range(size):
            x = h[at + j]
            t0 += x * tab[row + j]
            t1 += x * tab[r1 + j]
            t2 += x * tab[r2 + j]
            t3 += x * tab[r3 + j]
        out[o + i] = t0 * scale
        out[o + i + _U1] = t1 * scale
        out[o + i + _U2] = t2 * scale
        out[o + i + _U3] = t3 * scale
        i += _U4
        row += _U4 * size
    while i < mine:
        t0 = 0.0
        for j in range(size):
            t0 += h[at + j] * tab[row + j]
        out[o + i] = t0 * scale
        i += _U1
        row += size


@jit(fastmath={"reassoc", "contract"})
def _send(tab, t, code, width, position, work, at, total, n, size, out, o):
    """The message from the cavity work[at:at+n], which sums to ``total``, to the other end.

    That has ``size`` states; the sender is at ``position`` of the scope. ``work`` has zeros on both
    sides of the cavity, as many as pairs of labels are wide.
    """
    scale = 1.0 / total
    if code == RISE and width <= _U1:  # Potts
        c, v0 = tab[t], tab[t + _U1] * scale if width > _U0 else 0.0
        for i in range(n):
            out[o + i] = c + v0 * work[at + i]
    elif code > 0:
        band_message(tab, t, code, width, work, at, total, scale, n, out, o)
    elif position == 0:
        _by_columns(tab, t, work, at, scale, n, size, out, o)
    else:
        _by_rows(tab, t, work, at, scale, n, size, out, o)


@jit
def _moved(new, a, old, b, n):
    """The largest difference of two vectors, both taken to sum 1."""
    x = y = 0.0
    for i in range(n):
        x += new[a + i]
        y += old[b + i]
    x, y = 1.0 / x, 1.0 / y
    worst = 0.0
    for i in range(n):
        worst = max(worst, abs(new[a + i] * x - old[b + i] * y))
    return worst


@jit(fastmath={"reassoc", "contract"})
def begin_lean(w, gm, work):
    """All messages that the fields alone send: what a run that starts afresh hears first."""
    card, off, cls, prior, field, ptr, rev, W, gptr, gslot, fac, fslot, tab, rho, grho = w
    at = np.uint64(work.shape[0] // 4)
    for v in range(card.shape[0]):
        n, base = np.uint64(card[v]), np.uint64(off[v])
        total = 0.0
        for i in range(n):
            x = field[base + i]
            work[at + i] = x
            total += x
        for g in range(gptr[v], gptr[v + 1]):
            f, k = gslot[g, FACTOR], gslot[g, POSITION]
            other = fslot[fac[f, FIRST] + 1 - k]
            width = np.uint64(fac[f, WIDTH])
            for i in range(width):  # a wider variable may have been here before
                work[at + n + i] = 0.0
            _send(
                tab, np.uint64(fac[f, TABLE]), fac[f, CODE], width, k, work, at, total, n,
                np.uint64(gslot[other, 3]), gm, np.uint64(gslot[other, OFFSET]),
            )  # fmt: skip


@jit(fastmath={"reassoc", "contract"})
def sweep_lean(w, gm, out, bel, work, begin, end, forward, ahead, watching):
    """Visit the variables begin..end; returns the largest changes of a belief and of a message.

    Ahead: ``out`` is ``gm``. Else all neighbours are sent to, into ``out``, which has all messages
    when a run begins, and each variable takes over what stands there for it when it is visited.
    ``work``: a quarter of it each for a cavity between zeros and for products (see
    :func:`minfer.wiring.lean_room`).
    """
    card, off, cls, prior, field, ptr, rev, W, gptr, gslot, fac, fslot, tab, rho, grho = w
    at = np.uint64(work.shape[0] // 4)
    front = np.uint64(work.shape[0] // 2)  # the products before a slot; then those after each slot
    biggest = told = 0.0
    for place in range(begin, end):
        v = place if forward else begin + end - 1 - place
        if cls[v] == ASLEEP or gptr[v] == gptr[v + 1]:
            continue
        n, base = np.uint64(card[v]), np.uint64(off[v])
        lo, hi = gptr[v], gptr[v + 1]
        mine = np.uint64(gslot[lo, OFFSET])  # slots lie one after the other
        degree = np.uint64(hi - lo)
        if not ahead:
            for i in range(degree * n):
                gm[mine + i] = out[mine + i]
        split = _U0  # neighbours before this variable
        for g in range(lo, hi):
            split += np.uint64(fslot[fac[gslot[g, FACTOR], FIRST] + 1 - gslot[g, POSITION]] < g)
        for turn in range(1 if ahead else 2):
            later = forward == (turn == 0)
            a, b = (split, degree) if later else (_U0, split)
            if a == b:  # nobody to send to
                a = b = degree
            # products after each slot that is sent to, from the right
            if b < degree:
                tail = front + b * n
                o = mine + b * n
                for i in range(n):
                    work[tail + i] = gm[o + i]
                for j in range(b + _U1, degree):
                    o += n
                    for i in range(n):
                        work[tail + i] *= gm[o + i]
            j = b
            while j > a + _U1:  # those after slot j - 2 are those after j - 1 times its message
                j -= _U1
                o, left, right = mine + j * n, front + j * n, front + (j + _U1) * n
                if j + _U1 == b and b == degree:
                    for i in range(n):
                        work[left + i] = gm[o + i]
                else:
                    for i in range(n):
                        work[left + i] = work[right + i] * gm[o + i]
            for i in range(n):
                work[front + i] = field[base + i]
            for j in range(a):
                o = mine + j * n
                for i in range(n):
                    work[front + i] *= gm[o + i]
            for j in range(a, b):
                o, right = mine + j * n, front + (j + _U1) * n
                total = 0.0
                if j + _U1 == degree:
                    for i in range(n):
                        x = work[front + i]
                        work[at + i] = x
                        total += x
                        work[front + i] = x * gm[o + i]
                else:
                    for i in range(n):
                        y = work[front + i]
                        x = y * work[right + i]
                        work[at + i] = x
                        total += x
                        work[front + i] = y * gm[o + i]
                g = lo + np.int64(j)
                f, k = gslot[g, FACTOR], gslot[g, POSITION]
                other = fslot[fac[f, FIRST] + 1 - k]
                size, to = np.uint64(gslot[other, 3]), np.uint64(gslot[other, OFFSET])
                width = np.uint64(fac[f, WIDTH])
                for i in range(width):
                    work[at + n + i] = 0.0
                if watching:
                    keep = front + (degree + _U1) * n
                    for i in range(size):
                        work[keep + i] = out[to + i]
                _send(
                    tab, np.uint64(fac[f, TABLE]), fac[f, CODE], width, k, work, at, total, n,
                    size, out, to,
                )  # fmt: skip
                if watching:
                    told = max(told, _moved(out, to, work, keep, size))
            if turn > 0:
                continue
            total = 0.0
            if b < degree:
                tail = front + b * n
                for i in range(n):
                    x = work[front + i] * work[tail + i]
                    work[front + i] = x
                    total += x
            else:
                for i in range(n):
                    total += work[front + i]
            scale = 1.0 / total
            worst = 0.0
            for i in range(n):
                p = work[front + i] * scale
                worst = max(worst, abs(p - bel[base + i]))
                bel[base + i] = p
            biggest = max(biggest, worst)
    return biggest, told
