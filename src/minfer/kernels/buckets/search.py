"""AND/OR search over a pseudo tree, with mini-bucket messages as bounds (:mod:`minfer.engine
.buckets.search`).

A node is an OR node, a variable whose ancestors have their states, or an AND node, one of its
states. With logs u and l of bounds from above and below,

    AND: u = g + sum of its children's u      g: tables that the state completes
    OR:  u = log sum of its children's e^u, or their largest where the variable is maximised

and the same for l. An OR node without children is a *leaf*; its u and l are sums of the messages
that leave the buckets of its part of the pseudo tree, and agree where none of these is split. The
leaf to open is found from the root: at an OR node the state with the largest e^u - e^l (the largest
u where one maximises), at an AND node the child with the largest u - l. Below a leaf that has no
lower bound it goes on, the likeliest state first, until there is one.

Children lie behind their parent, those of one node together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from minfer.kernels.compiling.jit import jit

#: What u and l of a node that is as good as closed may differ by, beside ten and their size.
CLOSED = 1e-13
#: Places in ``count``.
NODES, OPENED, FULL = 0, 1, 2


class SearchPlan(NamedTuple):
    """n variables by their place in the order; the pseudo tree, and where messages lie."""

    card: np.ndarray  # i8 (n,)
    is_max: np.ndarray  # bool (n,)
    child_ptr: np.ndarray  # i8 (n+2,) children of each in the pseudo tree; roots are those of n
    child: np.ndarray  # i8 (n,)
    table_ptr: np.ndarray  # i8 (n+1,) tables and the field of a variable's bucket, as rows of look
    leave_ptr: np.ndarray  # i8 (n+1,) messages that leave the part below a variable, as rows
    rows: np.ndarray  # i8 the rows of leave_ptr: which look; those of table_ptr are 0, 1, ...
    at: np.ndarray  # i8 (L,) where the numbers of a look lie
    look_ptr: np.ndarray  # i8 (L+1,) its variables
    look_var: np.ndarray  # i8
    look_step: np.ndarray  # i8


class Nodes(NamedTuple):
    """The search so far; the root is an AND node with no variable."""

    parent: np.ndarray  # i4
    first: np.ndarray  # i4 first child, -1: a leaf, or an AND node without any
    n_children: np.ndarray  # i4
    var: np.ndarray  # i4 variable of an OR node; of an AND node -1 - its own; the root: -1 - n
    state: np.ndarray  # i4 of an AND node
    upper: np.ndarray  # f8
    lower: np.ndarray  # f8
    own: np.ndarray  # f8 g of an AND node


@jit
def _look(plan, row, val, assign):
    """A number of a table or message in the states at hand."""
    at = plan.at[row]
    for i in range(plan.look_ptr[row], plan.look_ptr[row + 1]):
        at += plan.look_step[i] * assign[plan.look_var[i]]
    return val[at]


@jit
def _leaf(plan, v, val, assign):
    """The bound of the part below ``v``: all messages that leave it."""
    total = 0.0
    for i in range(plan.leave_ptr[v], plan.leave_ptr[v + 1]):
        total += _look(plan, plan.rows[i], val, assign)
        if total == -np.inf:
            break
    return total


@jit
def _refresh(nodes, x, is_max):
    """u and l of a node from its children; never wider than before."""
    first, n = nodes.first[x], nodes.n_children[x]
    v = nodes.var[x]
    if v < 0:
        u = l = nodes.own[x]
        for c in range(first, first + n):
            u += nodes.upper[c]
            l += nodes.lower[c]
    elif n == 0:
        u = l = -np.inf
    else:
        u = l = -np.inf
        for c in range(first, first + n):
            u = max(u, nodes.upper[c])
            l = max(l, nodes.lower[c])
        if not is_max[v]:
            high = low = 0.0
            for c in range(first, first + n):
                if u > -np.inf:
                    high += np.exp(nodes.upper[c] - u)
                if l > -np.inf:
                    low += np.exp(nodes.lower[c] - l)
            if u > -np.inf:
                u += np.log(high)
            if l > -np.inf:
                l += np.log(low)
    nodes.upper[x] = min(nodes.upper[x], u)
    nodes.lower[x] = max(nodes.lower[x], l)


@jit
def _closed(u, l):
    """Whether there is nothing left between two bounds."""
    return u == -np.inf or u - l <= CLOSED * (10.0 + abs(u))


@jit
def _gap(u, l):
    """log(e^u - e^l)."""
    if not u > l:
        return -np.inf
    return u + np.log(-np.expm1(l - u)) if l > -np.inf else u


@jit
def _likeliest(nodes, x, is_max, dive):
    """The child to go on with."""
    first, n = nodes.first[x], nodes.n_children[x]
    v = nodes.var[x]
    best, most = first, -np.inf
    for c in range(first, first + n):
        u, l = nodes.upper[c], nodes.lower[c]
        if v >= 0:
            key = u if dive or is_max[v] else _gap(u, l)
            if is_max[v] and _closed(u, nodes.lower[x]):
                key = -np.inf  # nothing better is left in it
        elif dive:
            key = 1.0 if l == -np.inf else -np.inf
        else:
            key = u - l if u > l else -np.inf
        if key > most:
            best, most = c, key
    return best


@jit
def _open(plan, nodes, x, exact, sure, above, below, assign, count, g, us, ls):
    """The children and grandchildren of a leaf whose ancestors' states are in ``assign``; False
    where there is no room for them."""
    v = nodes.var[x]
    size, n_below = plan.card[v], plan.child_ptr[v + 1] - plan.child_ptr[v]
    if count[NODES] + size * (1 + n_below) > nodes.parent.size:
        count[FULL] = 1
        return False
    alive = 0
    for s in range(size):
        assign[v] = s
        total = 0.0
        for row in range(plan.table_ptr[v], plan.table_ptr[v + 1]):
            total += _look(plan, row, above, assign)
            if total == -np.inf:
                break
        g[s] = total
        if total == -np.inf:
            continue
        dead = False
        for c in range(n_below):
            w = plan.child[plan.child_ptr[v] + c]
            u = _leaf(plan, w, above, assign)
            us[s * n_below + c] = u
            l = -np.inf
            if exact[w]:
                l = u
            elif sure[w]:
                l = _leaf(plan, w, below, assign)
            ls[s * n_below + c] = l
            if u == -np.inf:
                dead = True
                break
        if dead:
            g[s] = -np.inf
        else:
            alive += 1
    first = count[NODES]
    nodes.first[x] = first
    nodes.n_children[x] = alive
    grand = first + alive
    at = first
    for s in range(size):
        if g[s] == -np.inf:
            continue
        nodes.parent[at] = x
        nodes.var[at] = -1 - v
        nodes.state[at] = s
        nodes.own[at] = g[s]
        nodes.first[at] = grand if n_below else -1
        nodes.n_children[at] = n_below
        u = l = g[s]
        for c in range(n_below):
            nodes.parent[grand] = at
            nodes.first[grand] = -1
            nodes.n_children[grand] = 0
            nodes.var[grand] = plan.child[plan.child_ptr[v] + c]
            nodes.state[grand] = -1
            nodes.own[grand] = 0.0
            nodes.upper[grand] = us[s * n_below + c]
            nodes.lower[grand] = ls[s * n_below + c]
            u += us[s * n_below + c]
            l += ls[s * n_below + c]
            grand += 1
        nodes.upper[at] = u
        nodes.lower[at] = l
        at += 1
    count[NODES] = grand
    count[OPENED] += 1
    return True


@jit
def _down(nodes, x, is_max, assign, dive):
    """From a node to a leaf; states on the way into ``assign``. An AND node: nothing is left."""
    while nodes.first[x] >= 0:
        x = _likeliest(nodes, x, is_max, dive)
        v = nodes.var[x]
        if v < 0:
            assign[-1 - v] = nodes.state[x]
    return x


@jit
def advance(plan, nodes, exact, sure, above, below, assign, count, most):
    """Open leaves until ``most`` are open in all, nothing is left or there is no more room.
    ``exact`` and ``sure`` (n,): whether messages from above are exact below a variable, and whether
    those of ``below`` are bounds there."""
    is_max = plan.is_max
    size = 1
    width = 1
    for v in range(plan.card.size):
        size = max(size, plan.card[v])
        width = max(width, plan.card[v] * (plan.child_ptr[v + 1] - plan.child_ptr[v]))
    g, us, ls = np.empty(size), np.empty(width), np.empty(width)
    while count[OPENED] < most and not _closed(nodes.upper[0], nodes.lower[0]):
        x = _down(nodes, np.int64(0), is_max, assign, False)
        if nodes.var[x] < 0 or nodes.first[x] >= 0 or exact[nodes.var[x]]:
            return
        top = x
        searching = True
        while searching:
            if not _open(plan, nodes, x, exact, sure, above, below, assign, count, g, us, ls):
                searching = False
                break
            _refresh(nodes, x, is_max)
            # up to the last node that has no lower bound yet, but could have one
            while x != top and (nodes.lower[x] > -np.inf or nodes.upper[x] == -np.inf):
                x = np.int64(nodes.parent[x])
                _refresh(nodes, x, is_max)
            done = nodes.lower[x] > -np.inf or nodes.upper[x] == -np.inf
            if done or count[OPENED] >= most:
                searching = False
                break
            x = _down(nodes, x, is_max, assign, True)
        while x != 0:
            x = np.int64(nodes.parent[x])
            _refresh(nodes, x, is_max)
        if count[FULL]:
            return


@jit
def explored(plan, nodes, n_nodes, exact, base, found, bel, reach, of_upper):
    """Where the mass of the lower bounds is, as shares of the root's: of the states of variables
    with a node into ``found`` (ptr is ``card`` summed), of parts that are summed exactly at their
    messages in ``bel``, which lies like those numbers from ``base`` on. ``of_upper``: of the upper
    bounds, and of leaves that are open into ``reach`` (n,), by variable."""
    n = plan.card.size
    start = np.empty(n + 1, np.int64)
    start[0] = 0
    for v in range(n):
        start[v + 1] = start[v] + plan.card[v]
    share = np.zeros(n_nodes)
    share[0] = 1.0
    bound = nodes.upper if of_upper else nodes.lower
    assign = np.zeros(n, np.int64)
    for x in range(n_nodes):
        q = share[x]
        if q <= 0.0:
            continue
        v, first = nodes.var[x], nodes.first[x]
        if v < 0:
            if v > -1 - n:
                found[start[-1 - v] + nodes.state[x]] += q
            for c in range(first, first + nodes.n_children[x]):
                share[c] = q
        elif first >= 0:
            for c in range(first, first + nodes.n_children[x]):
                share[c] = q * np.exp(bound[c] - bound[x])
        elif exact[v]:
            up = nodes.parent[x]
            while up > 0:
                w = -1 - nodes.var[up]
                if w >= 0:
                    assign[w] = nodes.state[up]
                up = nodes.parent[up]
            for i in range(plan.leave_ptr[v], plan.leave_ptr[v + 1]):
                row = plan.rows[i]
                at = plan.at[row]
                for k in range(plan.look_ptr[row], plan.look_ptr[row + 1]):
                    at += plan.look_step[k] * assign[plan.look_var[k]]
                bel[at - base] += q
        elif of_upper:
            reach[v] += q


@jit
def weigh(nodes, n_nodes, is_max, weight):
    """What each OR node leaves between the bounds, as a share of the root's, into ``weight`` (N,),
    infinite where it has to stay open; of other nodes and leaves 0."""
    share = np.zeros(n_nodes)
    share[0] = 1.0
    for x in range(n_nodes):
        v, first = nodes.var[x], nodes.first[x]
        weight[x] = 0.0
        if first < 0:
            continue
        for c in range(first, first + nodes.n_children[x]):
            share[c] = share[x]
            if v >= 0 and nodes.upper[x] > -np.inf:
                share[c] *= np.exp(nodes.upper[c] - nodes.upper[x])
        if v >= 0:
            gap = _gap(nodes.upper[x], nodes.lower[x])
            weight[x] = share[x] * np.exp(gap - nodes.upper[x]) if gap > -np.inf else 0.0
            if is_max[v]:
                weight[x] = np.inf


@jit
def forget(nodes, count, weight, least):
    """Make leaves, with the bounds they have, of OR nodes that weigh no more than ``least``, and
    move what is left together."""
    n_nodes = count[NODES]
    new = np.full(n_nodes, -1, np.int32)
    new[0] = 0
    top = 1
    for x in range(n_nodes):
        if new[x] == -1:
            continue
        first, n = nodes.first[x], nodes.n_children[x]
        if first >= 0 and nodes.var[x] >= 0 and weight[x] <= least:
            first, n = np.int32(-1), np.int32(0)
        if n > 0:
            for c in range(first, first + n):
                new[c] = -2  # its place is found below, in the order of numbers
        nodes.first[x] = first
        nodes.n_children[x] = n
        if new[x] == -2:
            new[x] = top
            top += 1
    for x in range(n_nodes):
        y = new[x]
        if y < 0:
            continue
        first = nodes.first[x]
        nodes.first[y] = new[first] if first >= 0 and nodes.n_children[x] > 0 else first
        nodes.n_children[y] = nodes.n_children[x]
        nodes.parent[y] = new[nodes.parent[x]] if x > 0 else -1
        nodes.var[y] = nodes.var[x]
        nodes.state[y] = nodes.state[x]
        nodes.upper[y] = nodes.upper[x]
        nodes.lower[y] = nodes.lower[x]
        nodes.own[y] = nodes.own[x]
    count[NODES] = top
    count[FULL] = 0
