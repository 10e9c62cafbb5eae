"""Both passes over a clique tree in numbers without a range
(:mod:`minfer.kernels.arithmetic.ranged`).

With the inputs f of a clique (fields, tables, messages of its children) and s its separator,

    up(s) = sum_r b(s, r),    b(x) = prod_f f(x)                        towards the roots
    p(x)  = b(x) top(s) / up(s),    top_f(.) = sum_{x ~ .} p(x)         back

where ``top`` of a root is 1. Cliques are not stored. Their cells are walked like the leaves of a
tree with a level for each variable, the separator's first; an input is multiplied in at the last
of its variables, and sums are handed up level by level, so that a cell costs only the inputs that
have the last variable. Sums, products and quotients only: nothing is ever subtracted.

``tree`` is :class:`minfer.solvers.clique_passes.Inputs`. Values (m, e) are laid out as there:
fields, tables, messages; what is found about fields and messages lies at the same places in
(om, oe).
"""

from __future__ import annotations

import numpy as np

from minfer.kernels.arithmetic.ranged import BACK, HIGH, LOW, STEP, over, plus, times
from minfer.kernels.compiling.jit import jit

CHUNK = 2048  # cells visited together
WORTH_PLAIN = 64.0  # cells of a clique for which that pays


@jit
def _levels(tree, c, place):
    """A clique's variables as levels, the separator's first, and its inputs, own message last:
    their sizes (k,), how many are the separator's; inputs whose last variable is that of level d-1
    are order[ptr[d]:ptr[d+1]] (d = 0: those without variables); those that move with level d, and
    by how much, are at[d]:at[d+1] of ``who`` and ``step``."""
    lo, hi, n_res = tree.clique_ptr[c], tree.clique_ptr[c + 1], tree.n_res[c]
    k = hi - lo
    n_sep = k - n_res
    dims = np.empty(k, np.int64)
    for d in range(k):
        v = tree.clique_var[lo + (d + n_res if d < n_sep else d - n_sep)]
        place[v] = d
        dims[d] = tree.card[v]
    first, n = tree.in_ptr[c], tree.in_ptr[c + 1] - tree.in_ptr[c]
    last = np.zeros(n + 1, np.int64)
    ptr = np.zeros(k + 2, np.int64)
    at = np.zeros(k + 1, np.int64)
    for i in range(n + 1):
        begin, arity = tree.n_scope + lo + n_res, n_sep
        if i < n:
            begin, arity = tree.in_scope[first + i], tree.in_arity[first + i]
        for p in range(arity):
            d = place[tree.scope[begin + p]]
            last[i] = max(last[i], d + 1)
            at[d + 1] += 1
        ptr[last[i] + 1] += 1
    for d in range(k + 1):
        ptr[d + 1] += ptr[d]
    for d in range(k):
        at[d + 1] += at[d]
    order = np.empty(n + 1, np.int64)
    who, step = np.empty(at[k], np.int64), np.empty(at[k], np.int64)
    fill, fill_at = ptr.copy(), at.copy()
    for i in range(n + 1):
        order[fill[last[i]]] = i
        fill[last[i]] += 1
        begin, arity = tree.n_scope + lo + n_res, n_sep
        if i < n:
            begin, arity = tree.in_scope[first + i], tree.in_arity[first + i]
        stride = 1
        for p in range(arity - 1, -1, -1):
            v = tree.scope[begin + p]
            d = place[v]
            who[fill_at[d]], step[fill_at[d]] = i, stride
            fill_at[d] += 1
            stride *= tree.card[v]
    return dims, n_sep, order, ptr, who, step, at


@jit
def _clique(tree, c, place, down, m, e, om, oe):
    """One clique in one of the two directions; returns False where nothing is left at a root."""
    dims, n_sep, order, ptr, who, step, at = _levels(tree, c, place)
    k = dims.size
    first, n = tree.in_ptr[c], tree.in_ptr[c + 1] - tree.in_ptr[c]
    message = tree.message[c]
    pos = np.empty(n + 1, np.int64)
    for i in range(n):
        pos[i] = tree.in_src[first + i]
    pos[n] = message
    # levels: products so far, sums of what lies below
    pm, pe = np.ones(k + 1), np.zeros(k + 1, np.int64)
    sm, se = np.zeros(k + 1), np.zeros(k + 1, np.int64)
    digit = np.zeros(k, np.int64)
    d = 0  # the levels from d on are to be entered
    while True:
        # down the levels, to a leaf
        while True:
            x, y = (pm[d - 1], pe[d - 1]) if d else (1.0, 0)
            for q in range(ptr[d], ptr[d + 1]):
                i = order[q]
                if i < n:
                    x, y = times(x, y, m[pos[i]], e[pos[i]])
                elif down:
                    x, y = times(x, y, om[pos[i]], oe[pos[i]])
            pm[d], pe[d] = x, y
            sm[d], se[d] = 0.0, 0
            if d == k or x == 0.0:
                break
            d += 1
        if d == k:
            sm[k], se[k] = pm[k], pe[k]  # else nothing is below
        # up again, as far as blocks are complete
        while True:
            if down and sm[d] > 0.0:
                for q in range(ptr[d], ptr[d + 1]):
                    i = order[q]
                    if i < n and tree.in_out[first + i] >= 0:
                        t = pos[i]
                        om[t], oe[t] = plus(om[t], oe[t], sm[d], se[d])
            if not down and d == n_sep:
                m[pos[n]], e[pos[n]] = sm[d], se[d]
            if d == 0:
                return sm[0] > 0.0 or down or n_sep > 0
            if down or d > n_sep:
                sm[d - 1], se[d - 1] = plus(sm[d - 1], se[d - 1], sm[d], se[d])
            digit[d - 1] += 1
            if digit[d - 1] < dims[d - 1]:
                for q in range(at[d - 1], at[d]):
                    pos[who[q]] += step[q]
                break
            for q in range(at[d - 1], at[d]):
                pos[who[q]] -= step[q] * (dims[d - 1] - 1)
            digit[d - 1] = 0
            d -= 1


@jit
def _measure(m, e, first, length):
    """Of the positive numbers among some: e and k with the largest in [1, 2) 2^(512 e + k), and
    log2 of largest over smallest; negative where there are none."""
    top, least = 0.0, 0.0
    e_top, e_least = 0, 0
    for t in range(first, first + length):
        x, y = m[t], e[t]
        if x > 0.0:
            if top == 0.0 or y > e_top or (y == e_top and x > top):
                top, e_top = x, y
            if least == 0.0 or y < e_least or (y == e_least and x < least):
                least, e_least = x, y
    if top == 0.0:
        return 0, 0, -1.0
    k = np.int64(np.floor(np.log2(top)))
    return e_top, k, np.log2(top) - np.log2(least) + 512.0 * (e_top - e_least) + 1e-3


@jit
def _plain_copy(m, e, first, length, e_top, k, out):
    """The numbers divided by 2^(512 e_top + k): exact, given that the spread is below 900."""
    factor = 2.0**-k
    for j in range(length):
        x = m[first + j] * factor
        for _ in range(e_top - e[first + j] if x > 0.0 else 0):
            x *= BACK
        out[j] = x


@jit
def _ranged(x, power):
    """x 2^power, x > 0, as a number without a range."""
    y = power // 512
    rest = power - 512 * y
    while x >= HIGH:
        x *= BACK
        y += 1
    x *= 2.0**rest
    while x >= HIGH:
        x *= BACK
        y += 1
    while x < LOW:
        x *= STEP
        y -= 1
    return x, y


@jit
def _shifted(x, power):
    """x 2^power as a float, 0 if it is too small for one."""
    while power < -512:
        x *= BACK
        power += 512
    while power > 512:
        x *= STEP
        power -= 512
    return x * 2.0**power


FAILED, DONE, LOSSY = 0, 1, 2


@jit
def _plain_clique(tree, c, place, down, m, e, om, oe):
    """The same in plain floats, where the inputs' spreads allow; FAILED where they do not.

    Inputs are copied with their largest number in [1, 2), about; if there are at most 900 and their
    spreads add up to less than 900, products of positive numbers stay within the range of floats,
    and all is as exact as before. The last variables make one level together, a chunk of cells. On
    the way back top(s) / up(s) is so scaled that the products are the probabilities themselves;
    those of less than 2^-800 may be lost: LOSSY. (Rows in linear numbers add logs of tables first,
    which the count of roundings does not allow for.)
    """
    dims, n_sep, order, ptr, who, step, at = _levels(tree, c, place)
    k = dims.size
    first, n = tree.in_ptr[c], tree.in_ptr[c + 1] - tree.in_ptr[c]
    message = tree.message[c]
    n_all = n + 1
    if n_all > 900:
        return FAILED
    stride = np.zeros((n_all, k), np.int64)
    length = np.ones(n_all, np.int64)
    for d in range(k):
        for q in range(at[d], at[d + 1]):
            stride[who[q], d] = step[q]
            length[who[q]] *= dims[d]
    # copies
    n_given = n + 1 if down else n
    begin = np.zeros(n_all + 1, np.int64)
    for i in range(n_all):
        begin[i + 1] = begin[i] + length[i]
    plain = np.zeros(begin[n_all])
    power, spread = 0, 0.0
    for i in range(n):
        source = tree.in_src[first + i]
        e_top, shift, wide = _measure(m, e, source, length[i])
        spread += wide
        if wide < 0.0 or spread > 900.0:
            return FAILED
        power += 512 * e_top + shift
        _plain_copy(m, e, source, length[i], e_top, shift, plain[begin[i] : begin[i + 1]])
    answer = DONE
    if down:  # so scaled that the products are probabilities
        for j in range(length[n]):
            x = om[message + j]
            if x > 0.0:
                bits = np.log2(x) + 512.0 * oe[message + j] + power
                if bits + n > 950.0:
                    return FAILED
                if bits - spread < -1000.0:
                    answer = LOSSY
                    if n > 200:
                        return FAILED
                plain[begin[n] + j] = _shifted(x, 512 * oe[message + j] + power)
        power = 0
    # chunks
    di, chunk = k, 1
    while di > 0 and chunk * dims[di - 1] <= CHUNK:
        di -= 1
        chunk *= dims[di]
    # the last outer variable of each input, and whether it has an inner one
    last = np.zeros(n_all, np.int64)
    inner = np.zeros(n_all, np.bool_)
    lptr = np.zeros(di + 2, np.int64)
    for i in range(n_all):
        for d in range(k):
            if stride[i, d]:
                if d < di:
                    last[i] = d + 1
                else:
                    inner[i] = True
        lptr[last[i] + 1] += 1
    for d in range(di + 1):
        lptr[d + 1] += lptr[d]
    fill = lptr.copy()
    for i in range(n_all):
        order[fill[last[i]]] = i
        fill[last[i]] += 1
    index = np.zeros((n_all, chunk), np.int32)
    for i in range(n_all):
        size = 1
        for d in range(k - 1, di - 1, -1):
            for x in range(1, dims[d]):
                shift32 = np.int32(x * stride[i, d])
                for j in range(size):
                    index[i, x * size + j] = index[i, j] + shift32
            size *= dims[d]
    # sums go to all inputs that are looked for, or to the clique's own message
    goal = np.zeros(n_all, np.bool_)
    for i in range(n_all):
        goal[i] = (i < n and tree.in_out[first + i] >= 0) if down else i == n
    sums = np.zeros(begin[n_all])
    products, totals = np.ones((di + 1, chunk)), np.zeros((di + 1, chunk))
    base = begin[:n_all].copy()
    digit = np.zeros(di, np.int64)
    d = 0
    while d >= 0:
        while True:  # down the levels
            row = products[d]
            constant = 1.0
            for q in range(lptr[d], lptr[d + 1]):
                i = order[q]
                if i < n_given and not inner[i]:
                    constant *= plain[base[i]]
            if d:
                above = products[d - 1]
                for j in range(chunk):
                    row[j] = above[j] * constant
            else:
                row[:] = constant
            if d < di:
                totals[d, :] = 0.0
            if constant == 0.0:
                break
            for q in range(lptr[d], lptr[d + 1]):
                i = order[q]
                if i < n_given and inner[i]:
                    source = plain[base[i] :]
                    where = index[i]
                    for j in range(chunk):
                        row[j] *= source[where[j]]
            if d == di:
                break
            d += 1
        while True:  # and up again
            row = products[d] if d == di else totals[d]
            mass = -1.0
            for q in range(lptr[d], lptr[d + 1]):
                i = order[q]
                if not goal[i]:
                    continue
                if not inner[i]:
                    if mass < 0.0:
                        mass = row.sum()
                    sums[base[i]] += mass
                else:
                    target = sums[base[i] :]
                    where = index[i]
                    for j in range(chunk):
                        target[where[j]] += row[j]
            d -= 1
            if d < 0:
                break
            below = totals[d]
            for j in range(chunk):
                below[j] += row[j]
            digit[d] += 1
            if digit[d] < dims[d]:
                for q in range(at[d], at[d + 1]):
                    base[who[q]] += step[q]
                d += 1
                break
            for q in range(at[d], at[d + 1]):
                base[who[q]] -= step[q] * (dims[d] - 1)
            digit[d] = 0
    for i in range(n_all):
        if not goal[i]:
            continue
        to = tree.in_src[first + i] if i < n else message
        for j in range(length[i]):
            x = sums[begin[i] + j]
            if x > 0.0:
                if down:
                    om[to + j], oe[to + j] = _ranged(x, power)
                else:
                    m[to + j], e[to + j] = _ranged(x, power)
    return answer if down or n_sep > 0 or m[message] > 0.0 else FAILED


@jit
def _any_clique(tree, c, place, down, m, e, om, oe):
    """The faster way where it pays and holds; FAILED where nothing is left at a root."""
    cells = 1.0
    for q in range(tree.clique_ptr[c], tree.clique_ptr[c + 1]):
        cells *= tree.card[tree.clique_var[q]]
    if cells >= WORTH_PLAIN:
        answer = _plain_clique(tree, c, place, down, m, e, om, oe)
        if answer != FAILED:
            return answer
    return DONE if _clique(tree, c, place, down, m, e, om, oe) else FAILED


@jit
def collect(tree, begin, end, m, e):
    """Messages of cliques begin..end; returns whether something is left."""
    place = np.zeros(tree.card.size, np.int64)
    for t in range(tree.message[begin], tree.message[end]):
        m[t] = 0.0
        e[t] = 0
    left = True
    for c in range(begin, end):
        left = left and _any_clique(tree, c, place, np.bool_(False), m, e, m, e) != FAILED
    return left


@jit
def distribute(tree, parent, begin, end, m, e, om, oe):
    """Marginals, cliques end-1 down to begin; ``om`` and ``oe`` are 0 where nothing was added.
    Returns whether something was lost: less than 2^-800 of probability in a cell."""
    place = np.zeros(tree.card.size, np.int64)
    lossy = False
    for c in range(end - 1, begin - 1, -1):
        for t in range(tree.message[c], tree.message[c + 1]):
            if parent[c] < 0:
                om[t], oe[t] = over(1.0, 0, m[t], e[t])
            else:
                om[t], oe[t] = over(om[t], oe[t], m[t], e[t])
        answer = _any_clique(tree, c, place, np.bool_(True), m, e, om, oe)
        lossy = lossy or answer == LOSSY
    return lossy
