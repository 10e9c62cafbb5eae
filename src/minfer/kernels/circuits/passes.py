"""Passes over a circuit: values upward, flows downward, maxima, the best ones, draws, derivatives.

The value of node i is a sum over its edges e, each about one state of one variable (a *leaf* l):

    value[i] = sum_e weight[e] likely[leaf[e]] prod_{c below e} value[c].

``climb`` computes them as pairs (:mod:`minfer.kernels.arithmetic.ranged`) and leaves each edge's
``share`` of its node, a probability. A product of variables' shares along any choice of an edge at
each node that is reached is then the probability of an assignment, so that all other passes are in
plain numbers: flows are marginals (Darwiche 2003), maxima of sums of log shares best assignments.

Rows of other evidence go eight abreast on the shares, with likelihoods of at most 1 on top. All
values are at most 1 then, and so is each derivative of the root's by a node's: what underflows adds
up to less than 2^-1074 for each edge. A row whose root is above ``SAFE`` has lost nothing that
counts; others are for ``climb``. Nodes with no leaf below them that a row changes have value 1, and
are not visited.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.kernels.arithmetic.lanes import load, splat, store
from minfer.kernels.arithmetic.ranged import BACK, HIGH, LOW, STEP, over, plus, times
from minfer.kernels.compiling.jit import jit

L = 8  # lanes of a vector of doubles
PAIR = 2 * L  # values of a node in eight rows, and derivatives
#: Values of a root above which a row in plain numbers is exact: N 2^-1074 is nothing beside it.
SAFE = 1e-290
#: Sums of scopes are taken modulo this prime, 2^61 - 1.
PRIME = (1 << 61) - 1


class CircuitFrame(NamedTuple):
    """What the passes read. N nodes, children before parents; E edges."""

    variable: NDArray[np.int32]  # (N,)
    eptr: NDArray[np.int64]  # (N+1,)
    leaf: NDArray[np.int32]  # (E,) the last leaf is of what has none
    cptr: NDArray[np.int64]  # (E+1,)
    child: NDArray[np.int32]


@jit
def climb(frame, weight, likely, power, value, exponent, share):
    """Values of all nodes, value 2^(512 exponent), and the shares of edges in their nodes."""
    eptr, leaf, cptr, child = frame.eptr, frame.leaf, frame.cptr, frame.child
    most = 1
    for i in range(len(value)):
        most = max(most, eptr[i + 1] - eptr[i])
    own = np.empty(most, np.int64)
    for i in range(len(value)):
        total, scale = 0.0, 0
        first = eptr[i]
        for e in range(first, eptr[i + 1]):
            x, y = weight[e], 0
            if x < LOW:
                x, y = x * STEP, -1
            elif x >= HIGH:
                x, y = x * BACK, 1
            x, y = times(x, y, likely[leaf[e]], power[leaf[e]])
            for k in range(cptr[e], cptr[e + 1]):
                if x == 0.0:
                    break
                x, y = times(x, y, value[child[k]], exponent[child[k]])
            share[e] = x
            own[e - first] = y
            total, scale = plus(total, scale, x, y)
        value[i], exponent[i] = total, scale
        for e in range(first, eptr[i + 1]):
            x, y = over(share[e], own[e - first], total, scale)
            if y < 0:
                x = x * BACK if y == -1 else 0.0
            share[e] = x


@jit
def flow(frame, share, down, out):
    """Flows: ``down`` (N,) has 1 at the roots and 0 elsewhere; they are added to the leaves'."""
    eptr, leaf, cptr, child = frame.eptr, frame.leaf, frame.cptr, frame.child
    for i in range(len(down) - 1, -1, -1):
        f = down[i]
        if f == 0.0:
            continue
        for e in range(eptr[i], eptr[i + 1]):
            t = f * share[e]
            out[leaf[e]] += t
            for k in range(cptr[e], cptr[e + 1]):
                down[child[k]] += t


@jit
def moved_flow(frame, share, direction, mean, down, moved, out):
    """How flows move as log-likelihoods of leaves do along ``direction``. An edge's share moves by
    share (T - E T), T the sum of directions below it; E T goes into ``mean`` (N,)."""
    eptr, leaf, cptr, child = frame.eptr, frame.leaf, frame.cptr, frame.child
    for i in range(len(mean)):
        total = 0.0
        for e in range(eptr[i], eptr[i + 1]):
            if share[e] > 0.0:
                x = direction[leaf[e]]
                for k in range(cptr[e], cptr[e + 1]):
                    x += mean[child[k]]
                total += share[e] * x
        mean[i] = total
    for i in range(len(mean) - 1, -1, -1):
        f, g = down[i], moved[i]
        if f == 0.0 and g == 0.0:
            continue
        for e in range(eptr[i], eptr[i + 1]):
            if share[e] == 0.0:
                continue
            x = direction[leaf[e]] - mean[i]
            for k in range(cptr[e], cptr[e + 1]):
                x += mean[child[k]]
            s = f * share[e]
            t = g * share[e] + s * x
            out[leaf[e]] += t
            for k in range(cptr[e], cptr[e + 1]):
                down[child[k]] += s
                moved[child[k]] += t


@jit
def climb_maxima(frame, weight, top, best, loss):
    """The largest log-weight of an assignment below each node, ``top`` (leaves,) to be added, and
    what each edge loses against its node's best, infinite where it leads to none."""
    eptr, leaf, cptr, child = frame.eptr, frame.leaf, frame.cptr, frame.child
    for i in range(len(best)):
        most = -np.inf
        for e in range(eptr[i], eptr[i + 1]):
            x = -np.inf
            if weight[e] > 0.0:
                x = np.log(weight[e]) + top[leaf[e]]
                for k in range(cptr[e], cptr[e + 1]):
                    x += best[child[k]]
            loss[e] = x
            most = max(most, x)
        best[i] = most
        for e in range(eptr[i], eptr[i + 1]):
            loss[e] = most - loss[e] if loss[e] > -np.inf else np.inf


@jit
def within(frame, roots, loss, members, gap, state, slack, most, found, lost):
    """Assignments that lose no more than ``slack`` against the best, ``most`` at most: how many,
    and what the next one would lose, infinite if there is none. There is a root at least.

    A leaf stands for states state[members[l]:members[l+1]] that lose ``gap``. Assignments go into
    the rows of ``found`` (n, variables), what they lose into ``lost``, as far as there are rows.
    Each choice is known to lead to an assignment, so that nothing is tried in vain.
    """
    variable, eptr, leaf = frame.variable, frame.eptr, frame.leaf
    cptr, child = frame.cptr, frame.child
    depth = 1
    for e in range(len(roots)):
        depth = max(depth, variable[roots[e]] + 1)
    for i in range(len(variable)):
        depth = max(depth, variable[i] + 1)
    node, edge = np.empty(depth, np.int64), np.empty(depth, np.int64)
    member, rest = np.empty(depth, np.int64), np.empty(depth, np.int64)
    top, used = np.empty(depth, np.int64), np.empty(depth)
    size = len(roots) + depth + 1
    todo, after = np.empty(size, np.int64), np.empty(size, np.int64)  # lists of nodes to come
    x = np.zeros(depth, np.int64)
    n_found, beyond = 0, np.inf
    head, room = -1, 0
    for r in range(len(roots)):
        todo[room], after[room] = roots[r], head
        head = room
        room += 1
    d = 0
    node[0], rest[0], used[0], top[0] = todo[head], after[head], 0.0, room
    edge[0], member[0] = eptr[node[0]], -1
    while d >= 0:
        i, e, j = node[d], edge[d], member[d]
        spent = np.inf
        while e < eptr[i + 1]:  # the next choice that can be afforded
            spent = used[d] + loss[e]
            if spent <= slack:
                j = members[leaf[e]] if j < 0 else j + 1
                if j < members[leaf[e] + 1]:
                    spent += gap[j]
                    if spent <= slack:
                        break
                    beyond = min(beyond, spent)
                    continue
            else:
                beyond = min(beyond, spent)
            e, j = e + 1, -1
        edge[d], member[d] = e, j
        if e == eptr[i + 1]:
            d -= 1
            continue
        x[variable[i]] = state[j]
        room, head = top[d], rest[d]
        for k in range(cptr[e + 1] - 1, cptr[e] - 1, -1):
            todo[room], after[room] = child[k], head
            head = room
            room += 1
        if head >= 0:
            d += 1
            node[d], rest[d], top[d], used[d] = todo[head], after[head], room, spent
            edge[d], member[d] = eptr[node[d]], -1
            continue
        if n_found < len(found):
            for v in range(found.shape[1]):
                found[n_found, v] = x[v]
            lost[n_found] = spent
        n_found += 1
        if n_found == most:
            break
    return n_found, beyond


@jit
def draw(frame, roots, share, u, chosen):
    """Leaves (n, variables) of draws by the shares; ``u`` uniform numbers of the same shape."""
    variable, eptr, leaf = frame.variable, frame.eptr, frame.leaf
    cptr, child = frame.cptr, frame.child
    todo = np.empty(u.shape[1] + len(roots) + 1, np.int64)
    for row in range(len(u)):
        n = len(roots)
        for r in range(n):
            todo[r] = roots[r]
        while n > 0:
            n -= 1
            i = todo[n]
            v = variable[i]
            wanted, e = u[row, v], -1
            for k in range(eptr[i], eptr[i + 1]):
                if share[k] > 0.0:
                    e = k
                    wanted -= share[k]
                    if wanted < 0.0:
                        break
            chosen[row, v] = leaf[e]
            for k in range(cptr[e], cptr[e + 1]):
                todo[n] = child[k]
                n += 1


@jit
def reach(frame, mark, touched):
    """Nodes that have a marked leaf at or below them."""
    eptr, leaf, cptr, child = frame.eptr, frame.leaf, frame.cptr, frame.child
    for i in range(len(touched)):
        touched[i] = False
        for e in range(eptr[i], eptr[i + 1]):
            here = mark[leaf[e]]
            for k in range(cptr[e], cptr[e + 1]):
                here = here or touched[child[k]]
            if here:
                touched[i] = True
                break


@jit
def scopes(frame, salt, out):
    """The sums of the ``salt`` of all variables below nodes, modulo ``PRIME``; the first node whose
    edges differ in them, or -1."""
    variable, eptr, cptr, child = frame.variable, frame.eptr, frame.cptr, frame.child
    for i in range(len(out)):
        for e in range(eptr[i], eptr[i + 1]):
            total = salt[variable[i]]
            for k in range(cptr[e], cptr[e + 1]):
                total = (total + out[child[k]]) % PRIME
            if e > eptr[i] and total != out[i]:
                return i
            out[i] = total
    return -1


@jit
def rows_up(frame, share, touched, likely, work):
    """Values of nodes in eight rows abreast, ``likely`` (leaves * 8,) relative to that of the
    shares and at most 1. Node i has its values at work[16 i:], and of those that are not touched
    they are 1, and are there."""
    eptr, leaf, cptr, child = frame.eptr, frame.leaf, frame.cptr, frame.child
    nothing = splat(work, 0.0)
    for i in range(len(touched)):
        if not touched[i]:
            continue
        total = nothing
        for e in range(eptr[i], eptr[i + 1]):
            x = load(likely, leaf[e] * L) * share[e]
            for k in range(cptr[e], cptr[e + 1]):
                x = x * load(work, child[k] * PAIR)
            total = total + x
        store(work, i * PAIR, total)


@jit
def rows_down(frame, share, touched, likely, work, out):
    """Marginals of leaves in eight rows abreast, added to ``out`` (leaves * 8,).

    Derivatives of log Z by the nodes' values lie behind these, at work[16 i + 8:], those of roots
    in the beginning; an edge passes on its own times the values of the other children.
    """
    eptr, leaf, cptr, child = frame.eptr, frame.leaf, frame.cptr, frame.child
    for i in range(len(touched) - 1, -1, -1):
        d = load(work, i * PAIR + L)
        told = touched[i]
        for e in range(eptr[i], eptr[i + 1]):
            t = d * share[e]
            first, past = cptr[e], cptr[e + 1]
            if told:
                t = t * load(likely, leaf[e] * L)
            if not told or past == first:
                for k in range(first, past):
                    at = child[k] * PAIR + L
                    store(work, at, load(work, at) + t)
            elif past == first + 1:
                at = child[first] * PAIR
                store(work, at + L, load(work, at + L) + t)
                t = t * load(work, at)
            elif past == first + 2:
                a, b = child[first] * PAIR, child[first + 1] * PAIR
                x = t * load(work, a)
                store(work, a + L, load(work, a + L) + t * load(work, b))
                store(work, b + L, load(work, b + L) + x)
                t = x * load(work, b)
            else:
                for k in range(first, past):
                    x = t
                    for j in range(first, past):
                        if j != k:
                            x = x * load(work, child[j] * PAIR)
                    at = child[k] * PAIR + L
                    store(work, at, load(work, at) + x)
                for k in range(first, past):
                    t = t * load(work, child[k] * PAIR)
            store(out, leaf[e] * L, load(out, leaf[e] * L) + t)
