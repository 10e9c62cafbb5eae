"""Belief propagation whose messages are computed from lists of kept values.

A variable of K values has a list of k of them; all others are lumped into one *rest*, whose number
is K. Tables are linear and have a row and a column more than values: means over all values, which
is what a rest says and hears. So no loop knows the rest from a value, and with a rest of weight 0
messages are those of the whole model.

    belief   b_v ∝ e_v prod_w m_{w->v}, of all K values
    cavity   q_{v->u} ∝ e_v prod_{w != u} m_{w->v} on the list, sum 1 with the rest's
    message  m_{v->u} = psi q_{v->u}, to all K values and the rest

The rest has the mass that the belief leaves outside the list, less what u told it. Only the sender
is short: a message costs k K, in rows of the table, which lie one after the other. (Between lists
at both ends it would cost k l, but in cells that lie anywhere: at K = 64 that takes as long, and
nobody hears of values outside the lists.) Every visit has the beliefs of all values before it, so
it is there that values come into a list and leave it.

Sweeps send ahead only, as :mod:`minfer.kernels.lean` has it. A message that changed by no more than
a part ``eps`` of itself does not wake whom it is for, and who sleeps is not visited. A cavity is
the belief over what u told, or the product of the other messages where that is 0; a variable whose
numbers all vanish is reported. Rows of tables and messages have :func:`padded` room, so that those
of vectors do not lie across lines of a cache.
"""

from typing import NamedTuple

import numpy as np

from minfer.kernels._jit import jit
from minfer.kernels.addresses import SPAN, L, address, get, greater, load, most, put, spread, store
from minfer.kernels.addresses import total as lanes_total
from minfer.kernels.general import exp_from_top, multiply
from minfer.kernels.lanes import magnitude

_U0, _U1 = np.uint64(0), np.uint64(1)
#: Who is still to be visited, in ``awake``: in a forward sweep, in a backward one.
FORWARD, BACKWARD = np.uint8(1), np.uint8(2)
BOTH = np.uint8(3)


#: Columns of ``Net.way``: where what the slot's variable sends goes to; where the table begins; its
#: steps from value to value of this variable and of the neighbour; which that is, and its K + 1.
TO, BASE, MINE, OTHER, NBR, MANY = 0, 1, 2, 3, 4, 5


class Net(NamedTuple):
    """Pairs of variables from both ends: S slots by variable, those of a variable by neighbour."""

    sptr: np.ndarray  # i8 (V+1,)
    split: np.ndarray  # i8 (V,) how many of a variable's neighbours come before it
    rev: np.ndarray  # i8 (S,) the slot of the other end
    place: np.ndarray  # i8 (S,) where the message to a slot's variable begins, K + 1 of padded(K)
    way: np.ndarray  # i8 (S, 6)
    tab: np.ndarray  # f8 tables with means, linear
    off: np.ndarray  # i8 (V+1,) where a variable's values begin in flat arrays
    field: np.ndarray  # f8 (sum K,) linear


class Lists(NamedTuple):
    """What a run has."""

    keep: np.ndarray  # u1 (sum K,) the lists: 0 or 1
    length: np.ndarray  # i8 (V,)
    m: np.ndarray  # f8 messages
    bel: np.ndarray  # f8 (sum K,) beliefs at the last visit, of listed values
    outside: np.ndarray  # f8 (V,) belief outside the list
    awake: np.ndarray  # u1 (V,)


@jit(forceinline=True)
def padded(n):
    """Numbers from one message of n values and a rest to the next."""
    return (n + 8) // 8 * 8


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
    """Log-tables (n, rows * cols) as linear ones with means; these transposed where asked for.

    Rows may have further room.
    """
    for t in range(logs.shape[0]):
        for i in range(rows + 1):
            for j in range(out.shape[2]):
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


@jit
def wire(scope, ends, off, sptr, order, slot, split, rev, place, way):
    """The last five from pairs (F, 2) and what each end knows of its table, (3, F, 2).

    ``sptr`` and ``order`` are :func:`minfer.kernels.lean.by_neighbour`'s. Messages from earlier
    variables lie in one half, those from later ones in the other, each a stream for sweeps.
    Returns how many numbers they have.
    """
    flat, base = scope.ravel(), ends[0].ravel()
    mine, other = ends[1].ravel(), ends[2].ravel()
    early = late = 0
    for v in range(split.shape[0]):
        size = padded(off[v + 1] - off[v])
        split[v] = 0
        for s in range(sptr[v], sptr[v + 1]):
            p = order[s]
            slot[p] = s
            if flat[p ^ 1] < v:
                split[v] += 1
                place[s] = early
                early += size
            else:
                place[s] = late
                late += size
    for v in range(split.shape[0]):
        for s in range(sptr[v] + split[v], sptr[v + 1]):
            place[s] += early
    for s in range(order.shape[0]):
        p = order[s]
        rev[s], u = slot[p ^ 1], flat[p ^ 1]
        way[s, TO], way[s, BASE], way[s, MINE] = place[rev[s]], base[p], mine[p]
        way[s, OTHER], way[s, NBR], way[s, MANY] = other[p], u, off[u + 1] - off[u] + 1
    return early + late


# ---------------------------------------------------------------------- lists


@jit
def choose(probs, off, limit, keep):
    """Keep values of probability ``limit`` (V,) or more, and each variable's best."""
    for v in range(off.shape[0] - 1):
        begin, end, least = np.uint64(off[v]), np.uint64(off[v + 1]), limit[v]
        some = False
        for i in range(begin, end):
            keep[i] = probs[i] >= least
            some |= keep[i]
        if not some:
            best, top = begin, -1.0
            for i in range(begin, end):
                if probs[i] > top:
                    best, top = i, probs[i]
            keep[best] = True


@jit(fastmath={"reassoc"})
def count(probs, off, keep, length):
    """How many values of each variable are kept, into ``length``; the sum of their numbers."""
    total = 0.0
    for v in range(off.shape[0] - 1):
        some, inside = _U0, 0.0
        for i in range(np.uint64(off[v]), np.uint64(off[v + 1])):
            inside += probs[i] if keep[i] else 0.0
        for i in range(np.uint64(off[v]), np.uint64(off[v + 1])):
            some += np.uint64(keep[i])
        length[v] = np.int64(some)
        total += inside
    return total


# ---------------------------------------------------------------------- messages


@jit(forceinline=True)
def _product(out, field, early, before, late, after, wide, n):
    """out = field times so many early and late messages, ``wide`` bytes apart; the sum of n."""
    lanes, rest, done = spread(0.0), 0.0, 0
    if before == 2 and after == 2:
        early_, late_ = early + wide, late + wide
        while done + L <= n:
            p = 8 * done
            x = load(field + p) * (load(early + p) * load(early_ + p))
            x = x * (load(late + p) * load(late_ + p))
            store(out + p, x)
            lanes = lanes + x
            done += L
    else:
        while done + L <= n:
            p = 8 * done
            x = load(field + p)
            for j in range(before):
                x = x * load(early + (j * wide + p))
            for j in range(after):
                x = x * load(late + (j * wide + p))
            store(out + p, x)
            lanes = lanes + x
            done += L
    for i in range(done, n):
        y = get(field + 8 * i)
        for j in range(before):
            y *= get(early + (j * wide + 8 * i))
        for j in range(after):
            y *= get(late + (j * wide + 8 * i))
        put(out + 8 * i, y)
        rest += y
    return lanes_total(lanes) + rest


@jit(forceinline=True)
def _say(out, psi, mine, other, val, q, k, n, eps):
    """out[y] = sum_i q[i] psi[val[i], y] of n values y; whether that is a change by ``eps``."""
    done, changed = 0, False
    if other == 1:
        worst, step = spread(-1.0), 8 * mine
        while done + 4 * L <= n:
            y0 = y1 = y2 = y3 = spread(0.0)
            p = psi + 8 * done
            for i in range(k):
                a, weight = p + val[i] * step, q[i]
                y0 = y0 + load(a) * weight
                y1 = y1 + load(a + SPAN) * weight
                y2 = y2 + load(a + 2 * SPAN) * weight
                y3 = y3 + load(a + 3 * SPAN) * weight
            o = out + 8 * done
            if eps > 0.0:
                worst = greater(magnitude(y0 - load(o)) - y0 * eps, worst)
                worst = greater(magnitude(y1 - load(o + SPAN)) - y1 * eps, worst)
                worst = greater(magnitude(y2 - load(o + 2 * SPAN)) - y2 * eps, worst)
                worst = greater(magnitude(y3 - load(o + 3 * SPAN)) - y3 * eps, worst)
            store(o, y0)
            store(o + SPAN, y1)
            store(o + 2 * SPAN, y2)
            store(o + 3 * SPAN, y3)
            done += 4 * L
        while done + L <= n:
            y0, p, o = spread(0.0), psi + 8 * done, out + 8 * done
            for i in range(k):
                y0 = y0 + load(p + val[i] * step) * q[i]
            if eps > 0.0:
                worst = greater(magnitude(y0 - load(o)) - y0 * eps, worst)
            store(o, y0)
            done += L
        changed = most(worst) > 0.0
    for y in range(done, n):
        x = 0.0
        for i in range(k):
            x += q[i] * get(psi + 8 * (val[i] * mine + y * other))
        if eps > 0.0:
            changed = changed or abs(x - get(out + 8 * y)) > x * eps
        put(out + 8 * y, x)
    return changed or not eps > 0.0


@jit(forceinline=True)
def _listed(flag, words, n, val):
    """The places of n flags that are 1, increasing, into ``val``; how many."""
    some, last = _U0, np.uint64((n + 7) // 8)
    for w in range(last):
        if words[w] != _U0:  # few are
            x = np.uint64(w) << np.uint64(3)
            for i in range(x, x + np.uint64(8)):
                val[some] = np.int64(i)
                some += np.uint64(flag[i])
    return some


@jit(fastmath={"reassoc", "contract"})
def greet(net, lists, val, q, flag, words):
    """What the lists of later variables say by their fields alone, to earlier ones."""
    sptr, split, rev, place, way, tab, off, field = net
    keep, length, m, bel, outside, awake = lists
    numbers, messages = address(tab), address(m)
    for v in range(np.uint64(off.shape[0] - 1)):
        o, n = np.uint64(off[v]), np.uint64(off[v + 1] - off[v])
        lo = np.uint64(sptr[v])
        if split[v] == 0:
            continue
        mass = inside = 0.0
        for x in range(n):
            flag[x] = keep[o + x]
        for x in range(n, (n + np.uint64(7)) & ~np.uint64(7)):
            flag[x] = 0
        some = _listed(flag, words, np.int64(n), val)
        for x in range(o, o + n):
            mass += field[x]
        for i in range(some):
            q[i] = field[o + np.uint64(val[i])]
            inside += q[i]
        val[some] = np.int64(n)
        q[some] = max(mass - inside, 0.0) if some < n else 0.0
        for i in range(some + _U1):
            q[i] /= mass
        for s in range(lo, lo + np.uint64(split[v])):
            to, start = messages + 8 * way[s, TO], numbers + 8 * way[s, BASE]
            _say(to, start, way[s, MINE], way[s, OTHER], val, q, some + _U1, way[s, MANY], 0.0)


@jit(fastmath={"reassoc", "contract"})
def sweep(
    net, lists, forward, fresh, writing, add, drop, still, eps, room, work, val, q, flag, words
):
    """Visit who is awake, look through its list, and send ahead.

    A list takes in values whose belief is ``add`` or more, keeps those of ``drop`` or more, and
    always the best. Whom a variable speaks to is woken if its belief moved by more than ``still``
    or its list changed, and only if the message changed by more than a part ``eps``, unless that is
    0. ``fresh``: the first sweep, before which there are no beliefs. ``writing``: beliefs of all
    values are written, and of those who sleep, too. It ends early if lists have more than
    ``room`` entries, each counted once a neighbour. ``work``, ``val`` and ``q`` have room for
    the largest variable and 8 more; ``words`` are the bytes of ``flag``, as many and all 0.

    Returns the largest change of a belief in a list, how many values came, and 0, or one more than
    a variable whose numbers vanished, or -1 if there was no room.
    """
    sptr, split, rev, place, way, tab, off, field = net
    keep, length, m, bel, outside, awake = lists
    numbers, fields, messages, here = address(tab), address(field), address(m), address(work)
    beliefs = address(bel)
    n_variables = off.shape[0] - 1
    moved, came, used = 0.0, 0, 0
    bit = FORWARD if forward else BACKWARD
    for step in range(n_variables):
        v = np.uint64(step if forward else n_variables - 1 - step)
        woken = awake[v] & bit != 0
        if not woken and not writing:
            continue
        first, size = off[v], off[v + _U1] - off[v]
        o, n = np.uint64(first), np.uint64(size)
        lo, wide, before = np.uint64(sptr[v]), 8 * padded(size), split[v]
        d = sptr[v + _U1] - sptr[v]
        early = late = messages
        if before > 0:
            early = messages + 8 * place[lo]
        if before < d:
            late = messages + 8 * place[lo + np.uint64(before)]
        total = _product(here, fields + 8 * first, early, before, late, d - before, wide, size)
        if not total > 0.0:
            return moved, came, np.int64(v) + 1
        scale = 1.0 / total
        awake[v] &= BOTH - bit
        woken = woken and d > 0  # else its list is for nobody
        if woken:
            low, high, top = drop * total, add * total, -1.0
            for x in range(n):
                p = work[x]
                flag[x] = np.uint8(p >= high) | (keep[o + x] & np.uint8(p >= low))
            for x in range(n, (n + np.uint64(7)) & ~np.uint64(7)):
                flag[x] = 0
            some = _listed(flag, words, size, val)
            for i in range(some):
                top = max(top, work[np.uint64(val[i])])
            if not top >= high:  # seldom: is the best among them?
                best = _U0
                for x in range(n):
                    if work[x] > work[best]:
                        best = np.uint64(x)
                flag[best] = 1
                some = _listed(flag, words, size, val)
            inside = change = 0.0
            for i in range(some):
                x = o + np.uint64(val[i])
                p = work[np.uint64(val[i])]
                inside += p
                p *= scale
                was = 0.0
                if keep[x] and not fresh:
                    was = bel[x]
                else:
                    came += 1
                change = max(change, abs(p - was))
                bel[x] = p
            turned = np.uint8(0)
            for x in range(n):
                turned |= keep[o + x] ^ flag[x]
                keep[o + x] = flag[x]
            moved = max(moved, change)
            news = change > still or turned != 0
            k = np.int64(some)
            left = max(total - inside, 0.0) if k < size else 0.0
            outside[v], length[v] = left * scale, k
            used += k * d
            if used > room:
                return moved, came, -1
            val[some] = size
            begin, end = (before, d) if forward else (0, before)
            for j in range(begin, end):
                told = early + j * wide if j < before else late + (j - before) * wide
                mass = 0.0
                for i in range(some):
                    x = val[i]
                    y = get(told + 8 * x)
                    if y > 0.0:
                        y = work[np.uint64(x)] / y
                    else:
                        y = field[o + np.uint64(x)]
                        for h in range(before):
                            if h != j:
                                y *= get(early + (h * wide + 8 * x))
                        for h in range(before, d):
                            if h != j:
                                y *= get(late + ((h - before) * wide + 8 * x))
                    q[i] = y
                    mass += y
                mean = get(told + 8 * size)
                q[some] = left / mean if mean > 0.0 else 0.0
                mass += q[some]
                if not mass > 0.0:
                    return moved, came, np.int64(v) + 1
                mass = 1.0 / mass
                for i in range(some + _U1):
                    q[i] *= mass
                s = lo + np.uint64(j)
                to, start = messages + 8 * way[s, TO], numbers + 8 * way[s, BASE]
                mine, other, many = way[s, MINE], way[s, OTHER], way[s, MANY]
                new = _say(to, start, mine, other, val, q, some + _U1, many, eps)
                if news and new:
                    awake[np.uint64(way[s, NBR])] = BOTH
        if not writing:
            continue
        listed, done = 0.0, 0
        if not woken:
            for x in range(n):
                listed += work[x] if keep[o + x] else 0.0
            outside[v] = max(1.0 - listed * scale, 0.0) if length[v] < size else 0.0
        while done + L <= size:
            store(beliefs + 8 * (first + done), load(here + 8 * done) * scale)
            done += L
        for i in range(done, size):
            bel[np.uint64(first + i)] = work[np.uint64(i)] * scale
    return moved, came, 0


@jit
def bethe(net, m):
    """sum_v log Z_v - sum_pairs log Z_pair: the Bethe log Z, constants apart.

    And 0, or one more than a variable whose numbers vanished.
    """
    sptr, split, rev, place, way, tab, off, field = net
    log_z = 0.0
    for v in range(off.shape[0] - 1):
        size = off[v + 1] - off[v]
        lo, d = sptr[v], sptr[v + 1] - sptr[v]
        for j in range(d + 1):  # all but the message of slot j; then all
            cavity = both = 0.0
            if j < d and rev[lo + j] < lo + j:  # each pair once
                continue
            for x in range(size):
                y = field[off[v] + x]
                for h in range(d):
                    if h != j:
                        y *= m[place[lo + h] + x]
                cavity += y
                both += y * m[place[lo + j] + x] if j < d else 0.0
            if not cavity > 0.0 or (j < d and not both > 0.0):
                return log_z, v + 1
            log_z += np.log(cavity) if j == d else -np.log(both / cavity)
    return log_z, 0
