"""How the marginals of a clique tree move when its fields do: both passes, differentiated.

Along a direction t, a number for every state, let T(x) = sum_v t_v(x_v). Then

    d p(s) = p(s) (E[T | s] - E[T])

of a state, or of a cell of a table. E[T] is 0 if t is centred, which the caller sees to, and
conditional means travel through the tree like the messages of
:mod:`minfer.kernels.cliques.streamed`:

    mean(s)  = sum_{r} w(r | s) (sum of the inputs' means)            to the parent
    down(t)  = E[T | t] - mean_child(t)                               to a child

with the inputs' logs as weights. Means add up as logs do, so ``tan`` holds them in the places where
``val`` holds the logs, and the same functions read both. Nothing is divided by a difference: every
number is a weighted mean, and its error is a rounding of the largest that it is made of, times
their probability.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels.arithmetic.vexp import exp_in_place
from minfer.kernels.cliques.streamed import (
    _chunk,
    _index_rows,
    _move,
    _prepare,
    add_marginals,
    goals,
    tell_children,
)
from minfer.kernels.compiling.jit import jit


@jit
def _collect_means(tree, c, val, tan, scale, place):
    """The means that clique c sends to its parent, given its message."""
    dims, split, _, _, stride, src, role, pre = _prepare(tree, c, np.int64(0), val, place)
    more = _prepare(tree, c, np.int64(0), tan, place)[7]
    kb, ke, di, n_big, n_sep, n_k, row, row_sep = split
    index, kind, run, step = _index_rows(stride, role, dims, kb, ke, di, n_k, row)
    base = np.zeros(role.size, np.int64)
    buf, moved, mass = np.empty(n_k * row), np.empty(n_k * row), np.empty(row_sep)
    for o in range(n_sep):
        first = tree.message[c] + o * row_sep
        up, mean = val[first : first + row_sep], tan[first : first + row_sep]
        for j in range(row_sep):
            mass[j] = mean[j] = 0.0
        for b in range(n_big):
            _move(stride, role, dims, kb, ke, di, o, b, base)
            _chunk(buf, pre, n_k, row, role, base, step, val, src, index, kind, run)
            _chunk(moved, more, n_k, row, role, base, step, tan, src, index, kind, run)
            for q in range(0, buf.size, row_sep):
                for j in range(row_sep):
                    if buf[q + j] > -np.inf:
                        buf[q + j] -= scale + up[j]
            exp_in_place(buf)
            for q in range(0, buf.size, row_sep):
                for j in range(row_sep):
                    mass[j] += buf[q + j]
                    mean[j] += buf[q + j] * moved[q + j]
        for j in range(row_sep):
            mean[j] = mean[j] / mass[j] if mass[j] > 0.0 else 0.0


@jit
def collect_means(tree, first, stop, val, tan, scale):
    """Means of cliques first..stop-1 for their parents; ``val``, ``scale``: after ``collect``."""
    place = np.empty(tree.card.size, np.int64)
    for c in range(first, stop):
        _collect_means(tree, c, val, tan, scale[c], place)


@jit
def distribute_means(tree, first, stop, val, tan, scale, out, moments):
    """Marginals of cliques stop-1 down to first and how they move, and both for their children."""
    place = np.empty(tree.card.size, np.int64)
    for c in range(stop - 1, first - 1, -1):
        goal, spare = goals(tree, c)
        add_marginals(tree, c, val, tan, scale[c], moments, goal, spare, place)
        add_marginals(tree, c, val, tan[:0], scale[c], out, goal, spare, place)
        tell_children(tree, c, val, out, goal)  # leaves logs at the goals
        for i in range(goal.size - 1):
            child = tree.in_child[tree.in_ptr[c] + i]
            if child >= 0:
                at, size = tree.message[child], tree.message[child + 1] - tree.message[child]
                mean = tan[at : at + size]
                mass = out[goal[i] : goal[i] + size]
                moment = moments[goal[i] : goal[i] + size]
                exp_in_place(mass)
                for j in range(size):
                    mean[j] = moment[j] / mass[j] - mean[j] if mass[j] > 0.0 else 0.0
