"""Belief propagation between lists of kept values, everything else of a variable lumped into one.

A variable has a list of k entries: its kept values, increasing, and one *rest*, whose number is K.
Tables are linear and have a row and a column more than values: means over all values, which is what
a rest hears and says. So no loop knows the rest from a value, and with a rest of weight 0 messages
are those of the whole model.

Lists lie end to end (``lptr``), with the messages into a variable slot by slot: slot j of variable v
has m[mptr[v] + j k : mptr[v] + (j + 1) k]. A message between lists of k and l entries costs k l;
what is read of all K values of a variable, k K a neighbour.

    cavity  q_{v->u} ∝ e_v prod_{w != u} m_{w->v}, sum 1        message  m_{v->u} = psi q_{v->u}

Sweeps send ahead only, as :mod:`minfer.kernels.lean` has it. Products are of the *other* messages,
never quotients, so zeros need no care; a variable whose numbers all vanish is reported.
"""

from typing import NamedTuple

import numpy as np

from minfer.kernels._jit import jit
from minfer.kernels.vexp import exp_in_place


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
    """e^(field - its largest) of each variable into ``out``.

    Returns the sum of what was taken off, and the lowest field that is left, zeros apart.
    """
    total = lowest = 0.0
    for v in range(off.shape[0] - 1):
        top = -np.inf
        for i in range(off[v], off[v + 1]):
            top = max(top, log_field[i])
        for i in range(off[v], off[v + 1]):
            x = log_field[i] - top
            out[i] = x
            lowest = min(lowest, x if x > -np.inf else 0.0)
        total += top
    exp_in_place(out)
    return total, lowest


@jit
def extend(logs, rows, cols, out, turned):
    """Log-tables (n, rows * cols) as linear ones with means, and these transposed where asked for."""
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
        best = off[v]
        for i in range(off[v], off[v + 1]):
            keep[i] = probs[i] >= limit[v]
            if probs[i] > probs[best]:
                best = i
        keep[best] = True


@jit
def choose_again(probs, off, sptr, keep, add, drop, new):
    """New values from ``add`` on, old ones unless below ``drop``; how many came and went.

    Variables without neighbours keep what they have.
    """
    came = went = 0
    for v in range(off.shape[0] - 1):
        if sptr[v] == sptr[v + 1]:
            for i in range(off[v], off[v + 1]):
                new[i] = keep[i]
            continue
        best = off[v]
        for i in range(off[v], off[v + 1]):
            new[i] = probs[i] >= (drop if keep[i] else add)
            if probs[i] > probs[best]:
                best = i
        new[best] = True
        for i in range(off[v], off[v + 1]):
            came += new[i] and not keep[i]
            went += keep[i] and not new[i]
    return came, went


@jit
def count(keep, off, sptr, lptr, mptr):
    """Where lists and messages begin."""
    lptr[0] = mptr[0] = 0
    for v in range(off.shape[0] - 1):
        k = 1
        for i in range(off[v], off[v + 1]):
            k += keep[i]
        lptr[v + 1] = lptr[v] + k
        mptr[v + 1] = mptr[v] + k * (sptr[v + 1] - sptr[v])


@jit
def fill(net, keep, lists):
    """Values of lists and what they weigh by the fields alone; messages say nothing yet."""
    sptr, split, nbr, rev, base, mine, other, tab, off, field = net
    lptr, mptr, val, e, m, bel = lists
    for v in range(off.shape[0] - 1):
        at, rest = lptr[v], 0.0
        for i in range(off[v], off[v + 1]):
            if keep[i]:
                val[at] = i - off[v]
                e[at] = field[i]
                at += 1
            else:
                rest += field[i]
        val[at] = off[v + 1] - off[v]
        e[at] = rest
    for i in range(m.shape[0]):
        m[i] = 1.0
    for i in range(bel.shape[0]):
        bel[i] = 0.0


# ---------------------------------------------------------------------- messages


@jit(fastmath={"reassoc", "contract"})
def sweep(net, lists, forward, work, rows):
    """Visit all variables and send ahead; the largest changes of a belief and of a message.

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
                work[new + i] = x
                now += x
                was += m[to + i]
            if not now > 0.0:
                return moved, told, u + 1
            was, now = 1.0 / was, 1.0 / now
            for i in range(size):
                x = work[new + i]
                told = max(told, abs(x * now - m[to + i] * was))
                m[to + i] = x
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


@jit(fastmath={"reassoc", "contract"})
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
        d, k = sptr[v + 1] - lo, lptr[v + 1] - lptr[v]
        stand = mptr[v]
        for i in range(k):
            work[d * k + i] = 1.0
        for i in range(k):  # after it: without neighbours they are the same
            work[i] = e[lptr[v] + i]
        for j in range(d - 1, 0, -1):
            for i in range(k):
                work[j * k + i] = work[(j + 1) * k + i] * m[stand + j * k + i]
        for j in range(d):
            total = both = 0.0
            o = stand + j * k
            for i in range(k):
                x = work[i] * work[(j + 1) * k + i]
                q[o + i] = x
                total += x
                both += x * m[o + i]
                work[i] *= m[o + i]
            if not both > 0.0:
                return log_z, v + 1
            for i in range(k):
                q[o + i] /= total
            if rev[lo + j] > lo + j:  # each pair once
                log_z -= np.log(both / total)
        total = 0.0
        for i in range(k):
            total += work[i]
        log_z += np.log(total)
    return log_z, 0


@jit(fastmath={"reassoc", "contract"})
def _listen(tab, start, apart, step, val, first, k, q, at, n, out):
    """out[x] = sum_j q[at + j] psi(val_j, x) for x < n: rows of the table, four at a time."""
    n, one = np.uint64(n), np.uint64(step)
    for x in range(n):
        out[x] = 0.0
    j = 0
    while j + 4 <= k:
        r0 = np.uint64(start + val[first + j] * apart)
        r1 = np.uint64(start + val[first + j + 1] * apart)
        r2 = np.uint64(start + val[first + j + 2] * apart)
        r3 = np.uint64(start + val[first + j + 3] * apart)
        h0, h1, h2, h3 = q[at + j], q[at + j + 1], q[at + j + 2], q[at + j + 3]
        if step == 1:
            for x in range(n):
                out[x] += (h0 * tab[r0 + x] + h1 * tab[r1 + x]) + (
                    h2 * tab[r2 + x] + h3 * tab[r3 + x]
                )
        else:
            for x in range(n):
                o = x * one
                out[x] += (h0 * tab[r0 + o] + h1 * tab[r1 + o]) + (
                    h2 * tab[r2 + o] + h3 * tab[r3 + o]
                )
        j += 4
    while j < k:
        r0, h0 = np.uint64(start + val[first + j] * apart), q[at + j]
        if step == 1:
            for x in range(n):
                out[x] += h0 * tab[r0 + x]
        else:
            for x in range(n):
                out[x] += h0 * tab[r0 + x * one]
        j += 1


@jit(fastmath={"reassoc", "contract"})
def read_all(net, lists, q, probs, work):
    """Beliefs of all values, listed or not, from what the neighbours' lists send.

    0, or one more than a variable whose numbers vanished.
    """
    sptr, split, nbr, rev, base, mine, other, tab, off, field = net
    lptr, mptr, val, e, m, bel = lists
    for v in range(off.shape[0] - 1):
        n, o = off[v + 1] - off[v], off[v]
        for x in range(n):
            probs[o + x] = field[o + x]
        for s in range(sptr[v], sptr[v + 1]):
            u, r = nbr[s], rev[s]
            k = lptr[u + 1] - lptr[u]
            at = mptr[u] + (r - sptr[u]) * k
            _listen(tab, base[r], mine[r], other[r], val, lptr[u], k, q, at, n, work)
            for x in range(n):
                probs[o + x] *= work[x]
        total = 0.0
        for x in range(n):
            total += probs[o + x]
        if not total > 0.0:
            return v + 1
        total = 1.0 / total
        for x in range(n):
            probs[o + x] *= total
    return 0


@jit(fastmath={"reassoc", "contract"})
def carry(net, lists, q, probs, keep, new):
    """Fill new lists: messages from the old lists, rests such that beliefs are ``probs``.

    A rest weighs what its values' probability asks for, given the messages that it hears.
    """
    sptr, split, nbr, rev, base, mine, other, tab, off, field = net
    lptr, mptr, val, e, m, bel = lists
    lptr_, mptr_, val_, e_, m_, bel_ = new
    for v in range(off.shape[0] - 1):
        o, first = off[v], lptr_[v]
        k = lptr_[v + 1] - first
        at, outside, inside = first, 0.0, 0.0
        for i in range(o, off[v + 1]):
            if keep[i]:
                val_[at] = i - o
                e_[at] = field[i]
                bel_[at] = probs[i]
                inside += probs[i]
                at += 1
            else:
                outside += probs[i]
        val_[at] = off[v + 1] - o
        bel_[at] = outside
        for s in range(sptr[v], sptr[v + 1]):
            u, r = nbr[s], rev[s]
            size = lptr[u + 1] - lptr[u]
            from_ = mptr[u] + (r - sptr[u]) * size
            to = mptr_[v] + (s - sptr[v]) * k
            start, apart, step = base[r], mine[r], other[r]
            for i in range(k):
                z = start + val_[first + i] * step
                x = 0.0
                for h in range(size):
                    x += q[from_ + h] * tab[z + val[lptr[u] + h] * apart]
                m_[to + i] = x
        rest, total = 1.0, 0.0
        for i in range(k):
            x = 1.0 if i == k - 1 else e_[first + i]
            for j in range(sptr[v + 1] - sptr[v]):
                x *= m_[mptr_[v] + j * k + i]
            if i == k - 1:
                rest = x
            else:
                total += x
        if rest > 0.0 and inside > 0.0:
            e_[at] = outside / inside * total / rest
        else:
            e_[at] = 0.0
