"""The nodes of a search, those that its roots reach, laid out as a circuit."""

from __future__ import annotations

from minfer.kernels.compiling.jit import jit


@jit
def reached(variable, n_edges, child, n_kids, n, n_children, number):
    """Nodes below those marked by 0 in ``number`` (N,), others -1; numbers them, children first.
    ``n_kids`` by variable. Returns how many nodes, edges and children there are."""
    nodes, edges, kids, at = 0, 0, 0, n_children
    for i in range(n - 1, -1, -1):
        k = n_edges[i] * n_kids[variable[i]]
        at -= k
        if number[i] < 0:
            continue
        nodes += 1
        edges += n_edges[i]
        kids += k
        for j in range(at, at + k):
            number[child[j]] = 0
    nodes = 0
    for i in range(n):
        if number[i] >= 0:
            number[i] = nodes
            nodes += 1
    return nodes, edges, kids


@jit
def lay_out(found, n_kids, n, number, out):
    """Write the numbered nodes of NodeArrays into the arrays of a circuit, which have room."""
    e, k, node, at, kid = 0, 0, 0, 0, 0
    out.eptr[0] = 0
    out.cptr[0] = 0
    for i in range(n):
        kids = n_kids[found.variable[i]]
        if number[i] < 0:
            at += found.n_edges[i]
            kid += found.n_edges[i] * kids
            continue
        out.variable[node] = found.variable[i]
        for _ in range(found.n_edges[i]):
            out.state[e], out.weight[e] = found.state[at], found.weight[at]
            for j in range(kid, kid + kids):
                out.child[k] = number[found.child[j]]
                k += 1
            kid += kids
            at += 1
            e += 1
            out.cptr[e] = k
        node += 1
        out.eptr[node] = e
