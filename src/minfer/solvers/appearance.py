r"""Edge appearance probabilities for tree-reweighted belief propagation.

Tree-reweighted belief propagation (Wainwright, Jaakkola and Willsky, "A new class of upper bounds
on the log partition function", IEEE Transactions on Information Theory 51(7), 2005) bounds log Z
from above by averaging over trees. All it needs to know about the average is, for every edge e, the
probability rho_e that a random spanning tree T of the graph holds e. The bound is proven for rho in
the spanning tree polytope,

    rho >= 0,   rho(E) = n - 1 per component,   rho(E[S]) <= |S| - 1 for every set S of vertices,

where E[S] are the edges with both ends in S, and for nothing beyond it. ``edge_appearance`` takes
the weights from actual trees, so they are valid by construction, and draws nothing at random:

``spanning-tree``
    All spanning trees alike. Then rho_e is the effective resistance between the two ends of e when
    every edge is a unit resistor (Kirchhoff); n x (bandwidth)^2 operations for each biconnected
    block, vertices numbered breadth first. The network is eliminated vertex by vertex with
    additions only, and resistances are filled in backwards from

        R(v, x) = 1/d + sum_k p_k R(k, x) - (1/2) sum_kl p_k p_l R(k, l),

    d the total weight at v when it was eliminated and p_k the share of neighbour k in it.
``forests``
    The average over K spanning forests that together hold every edge, each made to prefer the edges
    held least so far; rho_e is a multiple of 1/K and at least 1/K. Nearly linear time.
``auto``
    Blocks that are single edges or cycles in closed form (1, and (n - 1)/n), other blocks as in
    ``spanning-tree`` where that costs little next to the message passing, and the rest by forests.

The graph may have parallel edges (two factors over the same two variables): each is an edge of its
own. A tree holds one edge at most of a parallel bundle.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from minfer.errors import RefusedError

#: Ways to find edge weights.
METHODS = ("auto", "spanning-tree", "forests")

# Effort of "auto", in multiply-adds (about 0.4 ns each): per edge (more where
# there are many to a vertex: there forests are slow to cover them all), and in all besides.
_WORK_PER_EDGE = (500.0, 3000.0)
_DENSE = 10.0
_WORK_FREE = 1.2e7
# Entries (8 bytes each) the banded arrays of one block may have.
_ENTRIES_AUTO = 1 << 25
_ENTRIES_ASKED = 1 << 28
# Kruskal rounds: more on small graphs, where they are cheap; the cap bounds the time.
_ROUNDS_LEAST = 8
_ROUNDS_CHEAP = 32
_ROUNDS_MOST = 24
_ROUNDS_EDGES = 1 << 18


def edge_appearance(
    n_variables: int, edges: npt.ArrayLike, method: str = "auto"
) -> npt.NDArray[np.float64]:
    """Probability of every edge under a distribution over spanning trees of the graph.

    ``edges`` is (E, 2), integers, each row a pair of distinct variables. The result lies in the
    spanning tree polytope of every connected component: all entries are positive, a bridge has
    exactly 1, and the sum over a component is its number of variables less one, to rounding.

    ``spanning-tree`` raises ``RefusedError`` where its arrays would exceed about 2 GB.
    """
    pairs = np.require(edges, np.int32, ["C", "W"])
    if len(pairs) == 0:
        return np.empty(0)
    if method == "forests":
        return _forests(n_variables, pairs)

    from minfer.kernels.messages import spanning

    block_of, sizes = spanning.blocks(n_variables, pairs)
    start, members = spanning.group_by_block(block_of, len(sizes))
    rho = np.empty(len(pairs))
    exact = method == "spanning-tree"
    limits = ((np.inf, np.inf), _DENSE, np.inf, _ENTRIES_ASKED)
    if not exact:
        limits = (_WORK_PER_EDGE, _DENSE, _WORK_FREE, _ENTRIES_AUTO)
    left_out = spanning.resistances(n_variables, pairs, start, members, sizes, *limits, rho)
    if left_out and exact:
        raise RefusedError(
            f"spanning-tree weights need too much memory for a block of {sizes.max()} variables: "
            "use method 'auto' or 'forests'"
        )
    if left_out == len(pairs):
        return _forests(n_variables, pairs)
    if left_out:
        rest = np.flatnonzero(rho < 0.0)
        rho[rest] = _forests(n_variables, pairs[rest])
    return rho


def _forests(n_variables: int, pairs: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
    from minfer.kernels.messages import spanning

    least = min(max(_ROUNDS_LEAST, _ROUNDS_EDGES // len(pairs)), _ROUNDS_CHEAP)
    count = np.empty(len(pairs), np.int32)
    rounds = spanning.cover_with_forests(
        n_variables, np.ascontiguousarray(pairs), least, max(least, _ROUNDS_MOST), count
    )
    return count / float(rounds)
