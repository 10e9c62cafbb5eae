"""Messages between the clusters of a join graph, in logs.

A cluster's table is visited as ``outer x inner``; the place of a cell in the message over an edge
is ``a[outer] + b[inner]`` with two small arrays for each end of an edge. With B the sum of a
cluster's log-table and all messages it receives, what it sends over edge e is

    out(s) = log sum_{x ~ s} exp(B(x)) - in_e(s).

One exponential a cell serves all edges; where it underflows for some s, that edge is summed again
around the largest term of each s. A state whose message is minus infinity is impossible, and what
is sent back for it is minus infinity, too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from minfer.kernels.arithmetic.vexp import exp_in_place
from minfer.kernels.compiling.jit import jit

TINY = 1e-250  # sums below are made again
FARTHEST = -1e300  # of a message, so that sums of them are minus infinity by zeros alone
LEAST = 1e-300  # of a cell that is allowed, where its exponential underflows


class ClusterGraph(NamedTuple):
    """C clusters with N cells, E edges between them, each at two of them."""

    psi: Any  # f8 (N,) log-tables end to end
    cell_ptr: Any  # i8 (C+1,)
    inner: Any  # i8 (C,) cells of the inner loop
    inc_ptr: Any  # i8 (C+1,) the ends of edges at a cluster
    inc_edge: Any  # i8 (2E,) which edge,
    inc_side: Any  # i8 (2E,) and which of its ends
    edge: Any  # i8 (E, 2) clusters
    sep_cells: Any  # i8 (E,)
    msg_at: Any  # i8 (2E,) at 2 e what the first end receives, at 2 e + 1 what the second does
    msg: Any  # f8 in logs, sums 1
    place_ptr: Any  # i8 (2E+1,)
    place: Any  # i4 see the module


@jit
def fill_places(card, cl_ptr, cl_var, n_outer, inc_ptr, inc_edge, sep_ptr, sep_var, place_ptr, out):
    """Where each end of an edge finds a cell in the edge's message: ``a`` then ``b``, i4."""
    most = 1
    for c in range(cl_ptr.size - 1):
        most = max(most, cl_ptr[c + 1] - cl_ptr[c])
    stride = np.empty(most, np.int64)
    digit = np.empty(most, np.int64)
    for c in range(cl_ptr.size - 1):
        lo, hi = cl_ptr[c], cl_ptr[c + 1]
        cut = lo + n_outer[c]
        for i in range(inc_ptr[c], inc_ptr[c + 1]):
            e = inc_edge[i]
            for j in range(lo, hi):
                stride[j - lo] = 0
                step = 1
                for q in range(sep_ptr[e + 1] - 1, sep_ptr[e] - 1, -1):
                    if sep_var[q] == cl_var[j]:
                        stride[j - lo] = step
                    step *= card[sep_var[q]]
            at = place_ptr[i]
            for part in range(2):
                first, stop = (lo, cut) if part == 0 else (cut, hi)
                for j in range(first, stop):
                    digit[j - lo] = 0
                here, more = 0, True
                while more:
                    out[at] = here
                    at += 1
                    more = False
                    for j in range(stop - 1, first - 1, -1):
                        digit[j - lo] += 1
                        here += stride[j - lo]
                        if digit[j - lo] < card[cl_var[j]]:
                            more = True
                            break
                        here -= stride[j - lo] * card[cl_var[j]]
                        digit[j - lo] = 0


@jit
def add_table(card, cl_var, lo, hi, scope, table, psi):
    """psi += a table over ``scope``, whose variables are all among those of the cluster."""
    n = hi - lo
    stride = np.zeros(n, np.int64)
    step = 1
    for q in range(scope.size - 1, -1, -1):
        for j in range(n):
            if cl_var[lo + j] == scope[q]:
                stride[j] = step
        step *= card[scope[q]]
    digit = np.zeros(n, np.int64)
    here = 0
    for x in range(psi.size):
        psi[x] += table[here]
        for j in range(n - 1, -1, -1):
            digit[j] += 1
            here += stride[j]
            if digit[j] < card[cl_var[lo + j]]:
                break
            here -= stride[j] * card[cl_var[lo + j]]
            digit[j] = 0


@jit
def _belief(c, graph, b):
    """b <- the cluster's log-table with all its messages; returns the largest entry."""
    inc_ptr, inc_edge, inc_side = graph.inc_ptr, graph.inc_edge, graph.inc_side
    msg_at, msg, place_ptr, place = graph.msg_at, graph.msg, graph.place_ptr, graph.place
    lo, n = graph.cell_ptr[c], graph.cell_ptr[c + 1] - graph.cell_ptr[c]
    n_in = graph.inner[c]
    n_out = n // n_in
    for x in range(n):
        b[x] = graph.psi[lo + x]
    for i in range(inc_ptr[c], inc_ptr[c + 1]):
        m = msg_at[2 * inc_edge[i] + inc_side[i]]
        first, second = place_ptr[i], place_ptr[i] + n_out
        for o in range(n_out):
            base = m + place[first + o]
            for x in range(n_in):
                b[o * n_in + x] += msg[base + place[second + x]]
    top = -np.inf
    for x in range(n):
        top = max(top, b[x])
    return top


@jit
def sweep(graph, damping, forward, residual):
    """All clusters send to those after them, or, backward, to those before; ``residual`` (1,) takes
    the largest change of an entry of a message, undamped. Returns a cluster that allows nothing, or
    -1."""
    cell_ptr, inner, inc_ptr, inc_edge = graph.cell_ptr, graph.inner, graph.inc_ptr, graph.inc_edge
    inc_side, edge, sep_cells, msg_at = graph.inc_side, graph.edge, graph.sep_cells, graph.msg_at
    msg, place_ptr, place = graph.msg, graph.place_ptr, graph.place
    n_clusters = inner.size
    most, widest = 1, 1
    for c in range(cell_ptr.size - 1):
        most = max(most, cell_ptr[c + 1] - cell_ptr[c])
    for e in range(sep_cells.size):
        widest = max(widest, sep_cells[e])
    b, t = np.empty(most), np.empty(most)
    s, peak = np.empty(widest), np.empty(widest)
    for k in range(n_clusters):
        c = k if forward else n_clusters - 1 - k
        n = cell_ptr[c + 1] - cell_ptr[c]
        n_in = inner[c]
        n_out = n // n_in
        ready = False
        for i in range(inc_ptr[c], inc_ptr[c + 1]):
            e = inc_edge[i]
            other = edge[e, 1 - inc_side[i]]
            if (other > c) != forward:
                continue
            if not ready:
                top = _belief(c, graph, b)
                if top == -np.inf:
                    return c
                for x in range(n):
                    t[x] = b[x] - top
                exp_in_place(t[:n])
                ready = True
            n_sep = sep_cells[e]
            came, sent = msg_at[2 * e + inc_side[i]], msg_at[2 * e + 1 - inc_side[i]]
            one, two = place_ptr[i], place_ptr[i] + n_out
            for q in range(n_sep):
                s[q] = 0.0
            for o in range(n_out):
                base = place[one + o]
                for x in range(n_in):
                    s[base + place[two + x]] += t[o * n_in + x]
            again = False
            for q in range(n_sep):
                if s[q] < TINY and msg[came + q] > -np.inf:
                    again = True
            if again:
                for q in range(n_sep):
                    peak[q] = -np.inf
                    s[q] = 0.0
                for o in range(n_out):
                    base = place[one + o]
                    for x in range(n_in):
                        q = base + place[two + x]
                        peak[q] = max(peak[q], b[o * n_in + x])
                for o in range(n_out):
                    base = place[one + o]
                    for x in range(n_in):
                        q = base + place[two + x]
                        if b[o * n_in + x] > -np.inf:
                            s[q] += np.exp(b[o * n_in + x] - peak[q])
            high = -np.inf
            for q in range(n_sep):
                if msg[came + q] == -np.inf or s[q] == 0.0:
                    s[q] = -np.inf
                else:
                    s[q] = np.log(s[q]) + (peak[q] if again else top) - msg[came + q]
                high = max(high, s[q])
            if high == -np.inf:
                return c
            z = 0.0
            for q in range(n_sep):
                z += np.exp(s[q] - high)
            z = high + np.log(z)
            for q in range(n_sep):
                old, new = msg[sent + q], s[q] - z
                if new < FARTHEST and new > -np.inf:
                    new = FARTHEST
                moved = abs(np.exp(new) - np.exp(old))
                if moved > residual[0]:
                    residual[0] = moved
                if damping > 0.0 and new > -np.inf and old > -np.inf:
                    new = damping * old + (1.0 - damping) * new
                msg[sent + q] = new
    return -1


@jit
def _exp(x):
    """e^x, positive unless x is minus infinity."""
    return max(np.exp(x), LEAST) if x > -np.inf else 0.0


@jit
def read(graph, card, cl_ptr, cl_var, home, off, probs):
    """Marginals of all variables that have a ``home`` cluster, and the Bethe log Z of the graph.

    log Z = sum_c log sum exp(B_c) - sum_e log sum_s exp(the two messages of e).
    """
    cell_ptr, sep_cells, msg_at, msg = graph.cell_ptr, graph.sep_cells, graph.msg_at, graph.msg
    most = 1
    for c in range(cell_ptr.size - 1):
        most = max(most, cell_ptr[c + 1] - cell_ptr[c])
    b = np.empty(most)
    log_z = 0.0
    for c in range(cell_ptr.size - 1):
        top = _belief(c, graph, b)
        if top == -np.inf:
            return -np.inf
        n = cell_ptr[c + 1] - cell_ptr[c]
        z = 0.0
        for x in range(n):
            b[x] = _exp(b[x] - top)
            z += b[x]
        log_z += top + np.log(z)
        step = 1
        for j in range(cl_ptr[c + 1] - 1, cl_ptr[c] - 1, -1):
            v = cl_var[j]
            if home[v] == c:
                for x in range(n):
                    probs[off[v] + (x // step) % card[v]] += b[x] / z
            step *= card[v]
    for e in range(sep_cells.size):
        one, two = msg_at[2 * e], msg_at[2 * e + 1]
        top = -np.inf
        for q in range(sep_cells[e]):
            top = max(top, msg[one + q] + msg[two + q])
        if top == -np.inf:
            return -np.inf
        z = 0.0
        for q in range(sep_cells[e]):
            z += np.exp(msg[one + q] + msg[two + q] - top)
        log_z -= top + np.log(z)
    return log_z


@jit
def belief_of(c, graph):
    """A cluster's distribution, cell by cell."""
    b = np.empty(graph.cell_ptr[c + 1] - graph.cell_ptr[c])
    top = _belief(c, graph, b)
    for x in range(b.size):
        b[x] = _exp(b[x] - top)
    return b / b.sum()
