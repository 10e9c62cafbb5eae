"""Balls around variables, eliminated down to a table over the root and the ball's boundary.

A ball is a set R of variables with a root; its boundary B are the others that share a table with
it. Eliminating R without the root from the product of all tables that touch R leaves T(v, b), and
P(v | b) = T / sum_v T for every state b of the boundary that has weight at all. R and B together
have at most 63 variables, so that a set of them is the bits of one word.

Numbers are linear. A table has its largest entry in [1, 2) (a power of two is taken out)
and a *spread*, the log2 of its largest entry over its smallest positive one. Tables are multiplied
only if their spreads add up to less than ``MOST_SPREAD``, so no product of positive numbers is ever
lost; else the ball is given up. The roundings behind every entry are counted on the way.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels._jit import jit

MOST_SPREAD = 900.0
MOST_LOCAL = 63
MOST_TABLES = 2000  # of a ball, intermediate ones included
MOST_DEGREE = 128  # variables with more neighbours are not taken in
NEAR = 0.6  # bits that a step further away counts for
BEYOND = 3.0  # bits by which the boundary may be too large on the way to a ball where it is not
MOST_INSIDE = 40
NEVER = 1 << 40


@jit
def linear(first, size, logs, values, spread):
    """exp of tables, each with maximum 1, and their spreads: -1 where all is 0."""
    for t in range(first.size):
        top, least = -np.inf, np.inf
        for k in range(first[t], first[t] + size[t]):
            top = max(top, logs[k])
            if logs[k] > -np.inf:
                least = min(least, logs[k])
        spread[t] = -1.0
        if top > -np.inf:
            spread[t] = (top - least) / np.log(2.0) * (1 + 1e-9) + 1e-6
            for k in range(first[t], first[t] + size[t]):
                values[k] = np.exp(logs[k] - top)


@jit
def barren(
    card, off, log_field, free, opaque, fptr, scope, vptr, vtab, tfirst, size, psi, error, limit,
    roundings, table_time, variable_time, more,
):  # fmt: skip
    """Leave out tables that sum to one number over a variable of which nothing else is known.

    One after the other, as long as there are some; ``table_time`` and ``variable_time`` are when,
    NEVER before. What is left out may vary by a factor 1 + limit; ``more`` bounds, for each of its
    other variables, what that and rounding do to logarithms.
    """
    n = card.size
    clock = 0
    count = np.zeros(n, np.int64)
    stack = np.empty(n + scope.size, np.int64)
    top = 0
    for v in range(n):
        count[v] = vptr[v + 1] - vptr[v]
        if count[v] == 1:
            stack[top] = v
            top += 1
    while top:
        top -= 1
        x = stack[top]
        if variable_time[x] < NEVER or opaque[x] or not free[x] or count[x] != 1:
            continue
        flat = True
        for k in range(off[x], off[x + 1]):
            flat = flat and log_field[k] == log_field[off[x]]
        t = -1
        for a in range(vptr[x], vptr[x + 1]):
            if table_time[vtab[a]] == NEVER:
                t = vtab[a]
        if not flat or t < 0 or fptr[t + 1] - fptr[t] < 2:
            continue
        step = 1
        q = fptr[t + 1] - 1
        while scope[q] != x:
            step *= card[scope[q]]
            q -= 1
        least, most = np.inf, 0.0
        for j in range(size[t]):
            if (j // step) % card[x] == 0:
                total = 0.0
                for s in range(card[x]):
                    total += psi[tfirst[t] + j + s * step]
                least, most = min(least, total), max(most, total)
        if least <= 0.0 or most / least - 1.0 > limit:
            continue
        table_time[t] = variable_time[x] = clock
        clock += 1
        slack = (most / least - 1.0) + error[x] + more[x] + (2 * card[x] + roundings) * 2.0**-52
        for q in range(fptr[t], fptr[t + 1]):
            u = scope[q]
            if u != x:
                more[u] += slack
                count[u] -= 1
                if count[u] == 1:
                    stack[top] = u
                    top += 1


@jit
def _grow(v, bits, since, lc, aptr, anbr, atime, opaque, where, ball, n_ball):
    """Take variables in, those first that keep the boundary small; returns how many to keep.

    Tables left out before ``since`` are not links.
    ``where``: 0 outside, 1 in the ball, 2 + distance at the boundary; cleared again.
    """
    rim = np.empty(MOST_LOCAL + 1, np.int64)
    n_rim, n, size, keep = 0, 1, 0.0, 0
    ball[0] = v
    where[v] = 1
    for a in range(aptr[v], aptr[v + 1]):
        u = anbr[a]
        if atime[a] < since:
            continue
        if n_rim == MOST_LOCAL:
            size = np.inf
            break
        rim[n_rim] = u
        n_rim += 1
        where[u] = 3
        size += lc[u]
    while True:
        if size <= bits and n + n_rim <= MOST_LOCAL:
            keep = n
        if n_rim == 0 or n == min(MOST_INSIDE, n_ball) or size > bits + BEYOND:
            break
        best, least = -1, np.inf
        for k in range(n_rim):
            u = rim[k]
            if opaque[u] or aptr[u + 1] - aptr[u] > MOST_DEGREE:
                continue
            cost = NEAR * (where[u] - 2) - lc[u]
            for a in range(aptr[u], aptr[u + 1]):
                if where[anbr[a]] == 0 and atime[a] >= since:
                    cost += lc[anbr[a]]
            if cost < least:
                best, least = k, cost
        if best < 0:
            break
        u = rim[best]
        distance = where[u]
        n_rim -= 1
        rim[best] = rim[n_rim]
        where[u] = 1
        size -= lc[u]
        ball[n] = u
        n += 1
        full = False
        for a in range(aptr[u], aptr[u + 1]):
            x = anbr[a]
            if where[x] == 0 and atime[a] >= since:
                if n_rim == MOST_LOCAL:
                    full = True
                    break
                where[x] = distance + 1
                rim[n_rim] = x
                n_rim += 1
                size += lc[x]
        if full:
            break
    for k in range(n):
        where[ball[k]] = 0
        for a in range(aptr[ball[k]], aptr[ball[k] + 1]):
            where[anbr[a]] = 0
    return keep


@jit
def _gather(n_in, local, since, aptr, anbr, atime, place):
    """The boundary behind the n_in variables of a ball in ``local``; ``place``: their numbers.

    Returns how many there are in all.
    """
    n = n_in
    for k in range(n_in):
        place[local[k]] = k
    for k in range(n_in):
        for a in range(aptr[local[k]], aptr[local[k] + 1]):
            u = anbr[a]
            if place[u] < 0 and atime[a] >= since:
                place[u] = n
                local[n] = u
                n += 1
    return n


@jit
def _tables_of(n_in, local, since, place, fptr, scope, vptr, vtab, table_time, mask, which):
    """Masks and numbers of the tables that touch the ball; fields first, as -1 - v.

    Returns how many, or -1 where there are too many.
    """
    n = 0
    for k in range(n_in):
        mask[n] = np.int64(1) << k
        which[n] = -1 - local[k]
        n += 1
    for k in range(n_in):
        for a in range(vptr[local[k]], vptr[local[k] + 1]):
            t = vtab[a]
            if table_time[t] < since:
                continue
            bits = np.int64(0)
            lowest = MOST_LOCAL
            for q in range(fptr[t], fptr[t + 1]):
                p = place[scope[q]]
                bits |= np.int64(1) << p
                lowest = min(lowest, p)
            if lowest == k:
                if n >= MOST_TABLES // 2:
                    return -1
                mask[n] = bits
                which[n] = t
                n += 1
    return n


@jit
def _plan(n_in, n_local, size, n, mask, alive, order):
    """An order of elimination of 1..n_in-1, the smallest product first; what it costs in cells.

    ``size`` (n_local,) numbers of states. Tables behind the n given ones are the messages, one for
    each variable in ``order``. Returns the cost: over all products, cells times their inputs.
    """
    m = mask.copy()
    n_tables = n
    for t in range(n):
        alive[t] = True
    left = np.int64(0)
    for k in range(1, n_in):
        left |= np.int64(1) << k
    cost = 0.0
    for step in range(n_in - 1):
        best, least, best_inputs = -1, np.inf, 0
        for k in range(1, n_in):
            if not (left >> k) & 1:
                continue
            union, inputs = np.int64(0), 0
            for t in range(n_tables):
                if alive[t] and (m[t] >> k) & 1:
                    union |= m[t]
                    inputs += 1
            cells = 1.0
            for q in range(n_local):
                if (union >> q) & 1:
                    cells *= size[q]
            if cells < least:
                best, least, best_inputs = k, cells, inputs
        order[step] = best
        left &= ~(np.int64(1) << best)
        union = np.int64(0)
        for t in range(n_tables):
            if alive[t] and (m[t] >> best) & 1:
                union |= m[t]
                alive[t] = False
        m[n_tables] = union & ~(np.int64(1) << best)
        alive[n_tables] = True
        n_tables += 1
        cost += least * (best_inputs + 1)
        if cost > 1e15:
            return cost
    cells = size[0] * 1.0
    for q in range(n_in, n_local):
        cells *= size[q]
    inputs = 0
    for t in range(n_tables):
        inputs += alive[t]
    return cost + cells * (inputs + 2)


@jit
def _multiply(source, stride, variables, size, n_vars, buf, index, n_cells):
    """buf *= a table with a step for each variable; ``variables``: those of buf, last fastest."""
    index[0] = 0
    done = 1
    for k in range(n_vars - 1, -1, -1):
        step = stride[variables[k]]
        for x in range(1, size[variables[k]]):
            shift = np.int32(x * step)
            for j in range(done):
                index[x * done + j] = index[j] + shift
        done *= size[variables[k]]
    for j in range(n_cells):
        buf[j] *= source[index[j]]


@jit
def _normalised(values):
    """Scale by a power of two so that the largest entry is near 1; returns the spread, or -1."""
    top, least = 0.0, np.inf
    for j in range(values.size):
        x = values[j]
        top = max(top, x)
        least = min(least, x) if x > 0.0 else least
    if top == 0.0:
        return -1.0
    factor = 2.0 ** -np.floor(np.log2(top))
    for j in range(values.size):
        values[j] *= factor
    return np.log2(top / least) + 1e-6


@jit
def _simplex(worth, lo, hi, n):
    """The largest sum of p worth over distributions p with lo <= p <= hi, rounded up.

    ``worth`` in [0, 1]; negative: of a state that is impossible.
    """
    used = np.zeros(n, np.bool_)
    total, left = 0.0, 1.0
    for t in range(n):
        total += lo[t] * max(worth[t], 0.0)
        left -= lo[t]
    for _ in range(n):
        best = -1
        for t in range(n):
            if not used[t] and (best < 0 or worth[t] > worth[best]):
                best = t
        used[best] = True
        if left <= 0.0 or worth[best] <= 0.0:
            break
        more = min(left, hi[best] - lo[best])
        total += more * worth[best]
        left -= more
    if left > 0.0 and left < 1e-9:
        total += left  # what rounding left over
    return total + 8.0 * (n + 2) * 2.0**-53


@jit
def balls(
    roots, bits, most, n_own, card, off, lc, aptr, anbr, atime, opaque, error, fptr, scope,
    vptr, vtab, table_time, variable_time,
    tfirst, psi, spread, field, field_spread, exp_roundings, lo, hi, low, high, rounds, errors,
    inside, cost,
):  # fmt: skip
    """Balls of all roots. ``low``, ``high`` (n, 2, most states): P(v | b) over all b; tightened.

    ``rounds``: roundings behind them; ``errors``: of logarithms; ``inside``: variables of the ball,
    0 where none was found; ``cost``: cells.

    """
    n_vars = card.size
    where = np.zeros(n_vars, np.int32)
    place = np.full(n_vars, -1, np.int32)
    local = np.empty(MOST_LOCAL + MOST_INSIDE + 2, np.int64)
    mask = np.empty(MOST_TABLES, np.int64)
    which = np.empty(MOST_TABLES, np.int64)
    alive = np.zeros(MOST_TABLES, np.bool_)
    order = np.empty(MOST_LOCAL, np.int64)
    size = np.empty(MOST_LOCAL, np.int64)
    begin = np.zeros(MOST_TABLES, np.int64)
    wide = np.zeros(MOST_TABLES)
    counted = np.zeros(MOST_TABLES)
    pool = np.empty(1024)
    buf = np.empty(1024)
    index = np.empty(1024, np.int32)
    used = np.empty(MOST_LOCAL + 1, np.int64)
    stride = np.zeros(MOST_LOCAL, np.int64)
    for r in range(roots.size):
        v = roots[r]
        since = variable_time[v]  # what was left out while it was there
        inside[r] = 0
        n_in, n_local, n, price = 0, 0, 0, 0.0
        b = bits
        most_in = MOST_INSIDE
        while b >= 0.0:
            n_in = _grow(v, b, since, lc, aptr, anbr, atime, opaque, where, local, most_in)
            cost[r] += 4 * most_in
            if n_in == 0:
                break
            n_local = _gather(n_in, local, since, aptr, anbr, atime, place)
            for k in range(n_local):
                size[k] = card[local[k]]
            n = _tables_of(
                n_in, local, since, place, fptr, scope, vptr, vtab, table_time, mask, which
            )
            if n >= 0:
                price = _plan(n_in, n_local, size, n, mask, alive, order)
                cost[r] += n_in * n_in * n // 8
                if price <= most:
                    break
            for k in range(n_local):
                place[local[k]] = -1
            n_in = 0
            b -= 1.0
        if n_in == 0:
            continue
        cost[r] += np.int64(price)
        errors[r] = 0.0
        for k in range(n_in):
            errors[r] += error[local[k]]
        good = True
        for t in range(n):
            alive[t] = True
            counted[t] = exp_roundings
            if which[t] < 0:
                begin[t] = off[-1 - which[t]]
                wide[t] = field_spread[-1 - which[t]]
            else:
                begin[t] = tfirst[which[t]]
                wide[t] = spread[which[t]]
            good = good and wide[t] >= 0.0
        n_given, n_tables, n_pool = n, n, 0
        for step in range(n_in):  # the last one: the root's table
            union = np.int64(0)
            inputs, rounds_in, wide_in = 0, 0.0, 0.0
            k = order[step] if step < n_in - 1 else -1
            for t in range(n_tables):
                if alive[t] and (k < 0 or (mask[t] >> k) & 1):
                    union |= mask[t]
                    inputs += 1
                    rounds_in += counted[t]
                    wide_in += wide[t]
            if wide_in > MOST_SPREAD or not good:
                good = False
                break
            # the variable that is summed out, or the root, outermost
            used[0] = k if k >= 0 else 0
            n_rest = 1
            n_cells = size[used[0]]
            for q in range(n_local):
                if k < 0:
                    take = q >= n_in
                else:
                    take = q != k and (union >> q) & 1
                if take:
                    used[n_rest] = q
                    n_rest += 1
                    n_cells *= size[q]
            if n_cells > buf.size:
                buf = np.empty(2 * n_cells)
                index = np.empty(2 * n_cells, np.int32)
            buf[:n_cells] = 1.0
            for t in range(n_tables):
                if alive[t] and (k < 0 or (mask[t] >> k) & 1):
                    alive[t] = False
                    stride[:] = 0
                    last = 1
                    source = field[begin[t] :]
                    if t < n_given and which[t] >= 0:  # a table in the order of its scope
                        source = psi[begin[t] :]
                        f = which[t]
                        for q in range(fptr[f + 1] - 1, fptr[f] - 1, -1):
                            stride[place[scope[q]]] = last
                            last *= card[scope[q]]
                    else:
                        if t >= n_given:
                            source = pool[begin[t] :]
                        for q in range(n_local - 1, -1, -1):
                            if (mask[t] >> q) & 1:
                                stride[q] = last
                                last *= size[q]
                    _multiply(source, stride, used, size, n_rest, buf, index, n_cells)
            rounds[r] = rounds_in + inputs
            if k < 0:
                break
            width = n_cells // size[k]
            if n_pool + width > pool.size:
                larger = np.empty(2 * (n_pool + width))
                for j in range(n_pool):  # a slice would compile 3 s of error texts
                    larger[j] = pool[j]
                pool = larger
            target = pool[n_pool : n_pool + width]
            for j in range(width):
                target[j] = buf[j]
            for x in range(1, size[k]):
                part = buf[x * width : (x + 1) * width]
                for j in range(width):
                    target[j] += part[j]
            wide[n_tables] = _normalised(target)
            good = good and wide[n_tables] >= 0.0
            mask[n_tables] = union & ~(np.int64(1) << k)
            begin[n_tables] = n_pool
            counted[n_tables] = rounds_in + inputs + size[k]
            alive[n_tables] = True
            n_tables += 1
            n_pool += width
        for k in range(n_local):
            place[local[k]] = -1
        if not good:
            continue
        found = _read(
            v, n_in, n_local, local, size, buf, off, n_own, lo, hi, low[r], high[r], card[v]
        )
        if found:
            inside[r] = n_in
            rounds[r] = 2 * rounds[r] + card[v] + 2


@jit
def _read(v, n_in, n_local, local, size, buf, off, n_own, lo, hi, low, high, states):
    """Extremes of P(v | b) over b into low[0], high[0], with one boundary variable's interval
    taken into account into low[1], high[1]. Returns whether some b has weight."""
    n_rim = n_local - n_in
    at = np.zeros(n_rim + 1, np.int64)
    for q in range(n_rim):
        at[q + 1] = at[q] + size[n_in + q]
    top = np.full((at[n_rim], states), -1.0)
    least = np.full((at[n_rim], states), 2.0)
    width = 1
    for q in range(n_rim):
        width *= size[n_in + q]
    digit = np.zeros(n_rim, np.int64)
    low[0, :states] = 2.0
    high[0, :states] = -1.0
    some = False
    p = np.empty(states)
    for j in range(width):
        total = 0.0
        for s in range(states):
            total += buf[s * width + j]
        if total > 0.0:
            some = True
            for s in range(states):
                p[s] = buf[s * width + j] / total
                low[0, s] = min(low[0, s], p[s])
                high[0, s] = max(high[0, s], p[s])
            for q in range(n_rim):
                k = at[q] + digit[q]
                for s in range(states):
                    top[k, s] = max(top[k, s], p[s])
                    least[k, s] = min(least[k, s], p[s])
        for q in range(n_rim - 1, -1, -1):
            digit[q] += 1
            if digit[q] < size[n_in + q]:
                break
            digit[q] = 0
    if not some:
        return False
    for s in range(states):
        low[1, s] = low[0, s]
        high[1, s] = high[0, s]
    for q in range(n_rim):
        u = local[n_in + q]
        if u >= n_own:
            continue
        n = size[n_in + q]
        first = off[u]
        narrow = False
        for t in range(n):
            narrow = narrow or lo[first + t] > 0.0 or hi[first + t] < 1.0
        if not narrow:
            continue
        worth = np.empty(n)
        for s in range(states):
            for t in range(n):
                worth[t] = top[at[q] + t, s]
            x = _simplex(worth, lo[first : first + n], hi[first : first + n], n)
            high[1, s] = min(high[1, s], x)
            for t in range(n):  # the least of p(s) is what the largest of 1 - p(s) leaves
                x = least[at[q] + t, s]
                worth[t] = 1.0 - x if x <= 1.0 else -1.0
            x = 1.0 - _simplex(worth, lo[first : first + n], hi[first : first + n], n)
            low[1, s] = max(low[1, s], x)
    return True
