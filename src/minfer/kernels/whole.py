"""Both passes over a clique tree in numbers without a range (:mod:`minfer.kernels.ranged`).

With the inputs f of a clique (fields, tables, messages of its children) and s its separator,

    up(s) = sum_r b(s, r),    b(x) = prod_f f(x)                        towards the roots
    p(x)  = b(x) top(s) / up(s),    top_f(.) = sum_{x ~ .} p(x)         back

where ``top`` of a root is 1. Cliques are not stored. Their cells are walked like the leaves of a
tree with a level for each variable, the separator's first; an input is multiplied in at the last
of its variables, and sums are handed up level by level, so that a cell costs only the inputs that
have the last variable. Sums, products and quotients only: nothing is ever subtracted.

``tree`` is :class:`minfer.solvers.exact.Inputs`. Values (m, e) are laid out as there: fields,
tables, messages; what is found about fields and messages lies at the same places in (om, oe).
"""

from __future__ import annotations

import numpy as np

from minfer.kernels._jit import jit
from minfer.kernels.ranged import over, plus, times


@jit
def _levels(tree, c, place):
    """A clique's variables as levels, the separator's first, and its inputs, own message last.

    Returns their sizes (k,), how many are the separator's; ``order`` and ``ptr``: inputs whose last
    variable is that of level d-1 are order[ptr[d]:ptr[d+1]] (d = 0: those without variables);
    ``who``, ``step`` and ``at``: those that move with level d, and by how much, are at[d]:at[d+1].
    """
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
def collect(tree, begin, end, m, e):
    """Messages of cliques begin..end; returns whether something is left."""
    place = np.zeros(tree.card.size, np.int64)
    for t in range(tree.message[begin], tree.message[end]):
        m[t] = 0.0
        e[t] = 0
    for c in range(begin, end):
        if not _clique(tree, c, place, False, m, e, m, e):
            return False
    return True


@jit
def distribute(tree, parent, begin, end, m, e, om, oe):
    """Marginals, cliques end-1 down to begin; ``om`` and ``oe`` are 0 where nothing was added."""
    place = np.zeros(tree.card.size, np.int64)
    for c in range(end - 1, begin - 1, -1):
        for t in range(tree.message[c], tree.message[c + 1]):
            if parent[c] < 0:
                om[t], oe[t] = over(1.0, 0, m[t], e[t])
            else:
                om[t], oe[t] = over(om[t], oe[t], m[t], e[t])
        _clique(tree, c, place, True, m, e, om, oe)
