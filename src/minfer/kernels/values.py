"""Belief propagation between lists of kept values, everything else of a variable lumped into one.

A variable has a list of k entries: its kept values, increasing, and one *rest*, whose number is K.
Tables are linear and have a row and a column more than values: means over all values, which is what
a rest hears and says. So no loop knows the rest from a value, and with a rest of weight 0 messages
are those of the whole model.

Lists lie end to end (``lptr``), with the messages into a variable slot by slot: slot j of variable
v has m[mptr[v] + j k : mptr[v] + (j + 1) k]. A message between lists of k and l entries costs k l;
what is read of all K values of a variable, k K a neighbour.

    cavity  q_{v->u} ∝ e_v prod_{w != u} m_{w->v}, sum 1        message  m_{v->u} = psi q_{v->u}

Lists are short: no loop over one is worth a vector, and none is asked for (no reassociation).

Sweeps send ahead only, as :mod:`minfer.kernels.lean` has it. Products are of the *other* messages,
never quotients, so zeros need no care; a variable whose numbers all vanish is reported.
"""

from typing import NamedTuple

import numpy as np

from minfer.kernels._jit import jit
from minfer.kernels.addresses import SPAN, L, address, get, load, spread, store
from minfer.kernels.addresses import total as lanes_total
from minfer.kernels.general import exp_from_top, multiply

_U0, _U1 = np.uint64(0), np.uint64(1)


class Net(NamedTuple):
    """Pairs of variables from both ends: S slots by variable, those of a variable by neighbour."""

    sptr: np.ndarray  # i8 (V+1,)
    split: np.ndarray  # i8 (V,) how many of a variable's neighbours come before it
    nbr: np.ndarray  # i8 (S,)
    rev: np.ndarray  # i8 (S,) the slot of the other end
    base: np.ndarray  # i8 (S,) where the table begins
    mine: np.ndarray  # i8 (S,) step of the table from value to value of the slot's variable
    other: np.ndarray  # i8 (S,) the same of the neighbour
    tab: np.ndarray  # f8 tables with means, linear
    off: np.ndarray  # i8 (V+1,) where a variable's values begin in flat arrays
    field: np.ndarray  # f8 (sum K,) linear, largest 1


class Lists(NamedTuple):
    """Lists of E entries in all, and the messages between them."""

    lptr: np.ndarray  # i8 (V+1,)
    mptr: np.ndarray  # i8 (V+1,)
    val: np.ndarray  # i8 (E,)
    e: np.ndarray  # f8 (E,) field; of a rest what all its values weigh
    m: np.ndarray  # f8 messages
    bel: np.ndarray  # f8 (E,) beliefs at the last visit


@jit
def linear_field(log_field, off, out):
    """e^(field - its largest) of each variable into ``out``; the sum of what was taken off."""
    total, few = 0.0, np.zeros(L)
    for v in range(off.shape[0] - 1):
        at, n = address(out) + 8 * off[v], off[v + 1] - off[v]
        top, _, _ = exp_from_top(address(log_field) + 8 * off[v], at, n, address(few))
        total += top
    return total


@jit
def softmax(log_field, off, out):
    """Probabilities of independent variables into ``out``; log of the sum over all assignments."""
    log_z, few = 0.0, np.zeros(L)
    for v in range(off.shape[0] - 1):
        at, n = address(out) + 8 * off[v], off[v + 1] - off[v]
        top, _, mass = exp_from_top(address(log_field) + 8 * off[v], at, n, address(few))
        log_z += top + np.log(mass)
        multiply(at, 1.0 / mass, n)
    return log_z


@jit
def extend(logs, rows, cols, out, turned):
    """Log-tables (n, rows * cols) as linear ones with means; these transposed where asked for."""
    for t in range(logs.shape[0]):
        for i in range(rows + 1):
            for j in range(cols + 1):
                out[t, i, j] = 0.0
        for i in range(rows):
            for j in range(cols):
                x = np.exp(logs[t, i * cols + j])
                out[t, i, j] = x
                out[t, i, cols] += x
                out[t, rows, j] += x
        for i in range(rows):
            out[t, rows, cols] += out[t, i, cols]
            out[t, i, cols] /= cols
        for j in range(cols):
            out[t, rows, j] /= rows
        out[t, rows, cols] /= rows * cols
        if turned.shape[0] > 0:
            for i in range(rows + 1):
                for j in range(cols + 1):
                    turned[t, j, i] = out[t, i, j]


# ---------------------------------------------------------------------- lists


@jit
def choose(probs, off, limit, keep):
    """Keep values of probability ``limit`` (V,) or more, and each variable's best."""
    for v in range(off.shape[0] - 1):
        best, least, top = np.uint64(off[v]), limit[v], -1.0
        for i in range(best, np.uint64(off[v + 1])):
            keep[i] = probs[i] >= least
        for i in range(best, np.uint64(off[v + 1])):
            if probs[i] > top:
                best, top = i, probs[i]
        keep[best] = True


@jit
def fill(net, keep, lists):
    """Lists of the values to keep, which weigh what the fields say; messages say nothing yet.

    ``lists`` has room for any. Every value is written, and written over unless it is kept: few
    are, and a branch would seldom be foreseen.
    """
    sptr, split, nbr, rev, base, mine, other, tab, off, field = net
    lptr, mptr, val, e, m, bel = lists
    lptr[0] = mptr[0] = 0
    for v in range(off.shape[0] - 1):
        first, o, n = np.uint64(lptr[v]), np.uint64(off[v]), np.uint64(off[v + 1] - off[v])
        at, rest = first, 0.0
        for x in range(n):
            weight, kept = field[o + x], np.uint64(keep[o + x])
            val[at] = np.int64(x)
            e[at] = weight
            rest += 0.0 if kept else weight
            at += kept
        val[at] = np.int64(n)
        e[at] = rest
        at += _U1
        for i in range(first, at):
            bel[i] = 0.0
        to = np.uint64(mptr[v])
        end = to + (at - first) * np.uint64(sptr[v + 1] - sptr[v])
        for i in range(to, end):
            m[i] = 1.0
        lptr[v + 1], mptr[v + 1] = np.int64(at), np.int64(end)


# ---------------------------------------------------------------------- messages


@jit(fastmath={"contract"})
def sweep(net, lists, forward, work, rows, watching):
    """Visit all variables and send ahead; the largest changes of a belief and of a message.

    Messages are looked at only when ``watching``.
    ``work`` has room for degree + 3 lists, ``rows`` for one. A third number is 0, or one more than
    a variable whose numbers vanished.
    """
    sptr, split, nbr, rev, base, mine, other, tab, off, field = net
    lptr, mptr, val, e, m, bel = lists
    n = off.shape[0] - 1
    moved = told = 0.0
    for place in range(n):
        v = place if forward else n - 1 - place
        lo = sptr[v]
        d = sptr[v + 1] - lo
        if d == 0:
            continue
        first = lptr[v]
        k = np.uint64(lptr[v + 1] - first)
        here = np.uint64(first)
        stand = np.uint64(mptr[v])
        a, b = (split[v], d) if forward else (0, split[v])
        # products of the messages after slot j, from the right, in list j + 1 of work
        if a < d:
            tail = np.uint64(d) * k
            for i in range(k):
                work[tail + i] = 1.0
        for j in range(d - 1, a, -1):
            left, right = np.uint64(j) * k, np.uint64(j + 1) * k
            o = stand + np.uint64(j) * k
            for i in range(k):
                work[left + i] = work[right + i] * m[o + i]
        for i in range(k):
            work[i] = e[here + i]
        for j in range(a):
            o = stand + np.uint64(j) * k
            for i in range(k):
                work[i] *= m[o + i]
        cavity = np.uint64(d + 1) * k
        for j in range(a, b):
            right = np.uint64(j + 1) * k
            o = stand + np.uint64(j) * k
            total = 0.0
            for i in range(k):
                y = work[i]
                x = y * work[right + i]
                work[cavity + i] = x
                total += x
                work[i] = y * m[o + i]
            if not total > 0.0:
                return moved, told, v + 1
            scale = 1.0 / total
            s = lo + j
            u, step = nbr[s], other[s]
            start, apart = base[s], mine[s]
            for i in range(k):
                rows[i] = start + val[here + i] * apart
                work[cavity + i] *= scale
            begin = lptr[u]
            there = np.uint64(begin)
            size = np.uint64(lptr[u + 1] - begin)
            to = np.uint64(mptr[u]) + np.uint64(rev[s] - sptr[u]) * size
            was = now = 0.0
            new = cavity + k
            for i in range(size):
                z = val[there + i] * step
                x = 0.0
                for h in range(k):
                    x += work[cavity + h] * tab[np.uint64(rows[h] + z)]
                now += x
                if watching:
                    was += m[to + i]
                    work[new + i] = m[to + i]
                m[to + i] = x
            if not now > 0.0:
                return moved, told, u + 1
            if watching:
                was, now = 1.0 / was, 1.0 / now
                for i in range(size):
                    told = max(told, abs(m[to + i] * now - work[new + i] * was))
        total = 0.0
        if a < b:
            tail = np.uint64(b) * k  # what comes after slot b - 1
            for i in range(k):
                x = work[i] * work[tail + i]
                work[i] = x
                total += x
        else:
            for j in range(a, d):
                o = stand + np.uint64(j) * k
                for i in range(k):
                    work[i] *= m[o + i]
            for i in range(k):
                total += work[i]
        if not total > 0.0:
            return moved, told, v + 1
        scale = 1.0 / total
        for i in range(k):
            x = work[i] * scale
            moved = max(moved, abs(x - bel[here + i]))
            bel[here + i] = x
    return moved, told, 0


@jit(fastmath={"contract"})
def cavities(net, lists, q, work):
    """What every variable would send along each slot, laid out as messages; log of the sums of all.

    Returns sum_v log Z_v - sum_pairs log Z_pair, which is the Bethe log Z up to constants, and 0 or
    one more than a variable whose numbers vanished. ``work`` has room for degree + 1 lists.
    """
    sptr, split, nbr, rev, base, mine, other, tab, off, field = net
    lptr, mptr, val, e, m, bel = lists
    log_z = 0.0
    for v in range(off.shape[0] - 1):
        lo = sptr[v]
        d, k = np.uint64(sptr[v + 1] - lo), np.uint64(lptr[v + 1] - lptr[v])
        stand, here = np.uint64(mptr[v]), np.uint64(lptr[v])
        for i in range(k):
            work[d * k + i] = 1.0
        for i in range(k):  # after it: without neighbours they are the same
            work[i] = e[here + i]
        j = d
        while j > _U1:
            j -= _U1
            o, left, right = stand + j * k, j * k, (j + _U1) * k
            for i in range(k):
                work[left + i] = work[right + i] * m[o + i]
        for j in range(d):
            total = both = 0.0
            o, right = stand + j * k, (j + _U1) * k
            for i in range(k):
                y = work[i]
                x = y * work[right + i]
                q[o + i] = x
                total += x
                both += x * m[o + i]
                work[i] = y * m[o + i]
            if not both > 0.0:
                return log_z, v + 1
            scale = 1.0 / total
            for i in range(k):
                q[o + i] *= scale
            s = lo + np.int64(j)
            if rev[s] > s:  # each pair once
                log_z -= np.log(both * scale)
        total = 0.0
        for i in range(k):
            total += work[i]
        log_z += np.log(total)
    return log_z, 0


@jit(fastmath={"reassoc", "contract"})
def refresh(net, lists, q, keep, add, drop, probs, outside, new_keep, new, work, rows, said):
    """Beliefs of all values, listed or not, from what the neighbours' lists send; lists by them.

    New values from ``add`` on, listed ones unless below ``drop``, and always the best; variables
    without neighbours keep what they have. Messages are carried over: those that the beliefs were
    read from. A rest weighs what its values' beliefs ask for, given the messages that it hears.

    ``work`` has room for degree + 1 variables with all their values and the rest, ``rows`` and
    ``said`` for degree lists; ``new`` for any lists, or for none: then beliefs are read, and
    nothing else; ``probs`` may be empty where they are not wanted, else ``outside`` (V,) gets what
    of them is outside the lists as they were. ``new_keep`` is false everywhere. Returns how many
    values came, and 0 or one more than a variable whose numbers vanished.
    """
    sptr, split, nbr, rev, base, mine, other, tab, off, field = net
    lptr, mptr, val, e, m, bel = lists
    lptr_, mptr_, val_, e_, m_, bel_ = new
    numbers, fields, room = address(tab), address(field), address(work)
    reading, came = val_.shape[0] == 0, 0
    if not reading:
        lptr_[0] = mptr_[0] = 0
    for v in range(off.shape[0] - 1):
        size, o = off[v + 1] - off[v], np.uint64(off[v])
        n = np.uint64(size)
        wide = n + _U1  # of work: the product first, then a message after the other
        degree = np.uint64(sptr[v + 1] - sptr[v])
        heard, one = _U0, True
        for s in range(sptr[v], sptr[v + 1]):
            u, r = nbr[s], rev[s]
            k, first = np.uint64(lptr[u + 1] - lptr[u]), np.uint64(lptr[u])
            at = np.uint64(mptr[u]) + np.uint64(r - sptr[u]) * k
            start, apart = base[r], mine[r]
            one = one and other[r] == 1
            for j in range(k):
                rows[heard] = numbers + 8 * (start + val[first + j] * apart)
                said[heard] = q[at + j]
                heard += _U1
        done, lanes = 0, spread(0.0)
        while one and degree > _U0 and done + 4 * L <= size:  # of the tables' rows as many values
            a, j, place = fields + 8 * (np.int64(o) + done), _U0, room + 8 * done
            x0, x1, x2, x3 = load(a), load(a + SPAN), load(a + 2 * SPAN), load(a + 3 * SPAN)
            for s in range(sptr[v], sptr[v + 1]):
                u = nbr[s]
                end = j + np.uint64(lptr[u + 1] - lptr[u])
                y0 = y1 = y2 = y3 = spread(0.0)
                while j < end:
                    a, weight = rows[j] + 8 * done, said[j]
                    y0 = y0 + load(a) * weight
                    y1 = y1 + load(a + SPAN) * weight
                    y2 = y2 + load(a + 2 * SPAN) * weight
                    y3 = y3 + load(a + 3 * SPAN) * weight
                    j += _U1
                if not reading:
                    place += 8 * (size + 1)
                    store(place, y0)
                    store(place + SPAN, y1)
                    store(place + 2 * SPAN, y2)
                    store(place + 3 * SPAN, y3)
                x0, x1, x2, x3 = x0 * y0, x1 * y1, x2 * y2, x3 * y3
            a = room + 8 * done
            store(a, x0)
            store(a + SPAN, x1)
            store(a + 2 * SPAN, x2)
            store(a + 3 * SPAN, x3)
            lanes = lanes + ((x0 + x1) + (x2 + x3))
            done += 4 * L
        if one:  # eight at a time
            while done + L <= size:
                place = room + 8 * done
                x, j = load(fields + 8 * (np.int64(o) + done)), _U0
                for s in range(sptr[v], sptr[v + 1]):
                    u = nbr[s]
                    end = j + np.uint64(lptr[u + 1] - lptr[u])
                    y = spread(0.0)
                    while j < end:
                        y = y + load(rows[j] + 8 * done) * said[j]
                        j += _U1
                    place += 8 * (size + 1)
                    store(place, y)
                    x = x * y
                store(room + 8 * done, x)
                lanes = lanes + x
                done += L
        total = lanes_total(lanes)
        for i in range(done, size + 1):
            z, j, row = field[o + np.uint64(i)] if i < size else 1.0, _U0, np.uint64(i)
            for s in range(sptr[v], sptr[v + 1]):
                u = nbr[s]
                end, step = j + np.uint64(lptr[u + 1] - lptr[u]), 8 * other[rev[s]]
                y_ = 0.0
                while j < end:
                    y_ += get(rows[j] + step * i) * said[j]
                    j += _U1
                row += wide
                work[row] = y_
                z *= y_
            work[np.uint64(i)] = z
            if i < size:
                total += z
        if not total > 0.0:
            return came, v + 1
        scale = 1.0 / total
        if probs.shape[0] > 0:
            for x in range(n):
                probs[o + x] = work[x] * scale
            listed, last = 0.0, np.uint64(lptr[v + 1] - 1)
            for i in range(np.uint64(lptr[v]), last):
                listed += work[np.uint64(val[i])]
            some = last - np.uint64(lptr[v]) < n
            outside[v] = max(1.0 - listed * scale, 0.0) if some else 0.0
        if reading:
            continue
        best, top, low, high = n, -1.0, drop * total, add * total
        here, left, inside = np.uint64(lptr_[v]), 0.0, 0.0
        at = here
        some = _U0
        for x in range(n if degree > _U0 else _U0):  # without a branch, as in ``fill``
            rows[some] = np.int64(x)
            some += np.uint64(work[x] >= low)
        for i in range(some):
            x = np.uint64(rows[i])
            p, old = work[x], keep[o + x]
            if p > top:
                best, top = x, p
            if old or p >= high:
                new_keep[o + x] = True
                val_[at] = np.int64(x)
                e_[at] = field[o + x]
                bel_[at] = p * scale
                inside += p
                came += not old
                at += _U1
        if degree == _U0 or best == n or not new_keep[o + best]:  # seldom: the list once more
            for x in range(n):
                if work[x] > top:
                    best, top = x, work[x]
            at, inside = here, 0.0
            for x in range(n):
                if degree == _U0:
                    new_keep[o + x] = keep[o + x]
                elif x == best:
                    new_keep[o + x] = True
                    came += not keep[o + x]
                if new_keep[o + x]:
                    val_[at] = np.int64(x)
                    e_[at] = field[o + x]
                    bel_[at] = work[x] * scale
                    inside += work[x]
                    at += _U1
        k = at - here + _U1
        if k <= n:
            left = max(total - inside, 0.0)
        rest, to = 1.0, np.uint64(mptr_[v])
        for j in range(degree):
            row = (j + _U1) * wide
            for i in range(k - _U1):
                m_[to + i] = work[row + np.uint64(val_[here + i])]
            m_[to + k - _U1] = work[row + n]
            rest *= work[row + n]
            to += k
        val_[at] = size
        bel_[at] = left * scale
        e_[at] = left / rest if rest > 0.0 else 0.0
        lptr_[v + 1] = np.int64(at + _U1)
        mptr_[v + 1] = np.int64(to)
    return came, 0
