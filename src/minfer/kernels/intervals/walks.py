"""Self-avoiding walks from a binary variable, in odds (:mod:`minfer.certified.walks` has the why).

Depth first with an explicit stack, two products (lower and upper end) at every node. All odds are
products of fields, pins, leaves and messages

    (u + C) / (1 + u C)  for w >= 0,  (1 + u C) / (u + C)  for w < 0,      u = e^(-|w| / 2) <= 1.

Rounding: a child costs at most seven roundings on any path into its parent's product,

    u C, 1 + u C, u + C, the quotient, the product                  (5)
    1 / C, u / C, 1 + u / C, u + 1 / C, quotient, product           (7, where C is large)

(ten if 1 / C is so small that it has lost two bits), leaves and pins one. ``fields`` come with room
for that in them already, and for what u may be wrong by; so an end is at most, or at least, what
exact arithmetic makes of the ends of its children, and the loop itself rounds to nearest. Lower
ends are kept in {0} and [TINY, HUGE], upper ends in [TINY, inf]: whatever leaves these ranges moves
outwards, so nothing underflows unseen and no 0 * inf comes up, as every factor of a lower end is
finite and every factor of an upper end is positive. A u below LEAST is 0 here, which changes a
message of a C in [TINY, HUGE] by 1e-20 of itself and makes those of 0 and of infinity wider.
"""

from typing import NamedTuple

import numpy as np

from minfer.kernels.compiling.jit import jit
from minfer.kernels.intervals.deepening import LEAST as LEAST_THRESHOLD
from minfer.kernels.intervals.deepening import next_threshold, rate_seen

HUGE = 1e270
TINY = 1e-270
LEAST = 1e-290
#: Odds from which the message is computed by their inverse.
LARGE = 1e150
#: Columns of an edge: log-width of its leaf, largest slope, leaf, u, 1 / u, whether w is negative;
#: padded to a cache line.
SPAN, SLOPE, LEAF_LO, LEAF_HI, NEAR, FAR, NEGATIVE, EDGE = 0, 1, 2, 3, 4, 5, 6, 8
#: What a node costs beside its edges, in visits of edges.
NODE = 4


class WalkGraph(NamedTuple):
    """V variables, E pairs from both ends."""

    ptr: np.ndarray  # u8 (V+1,)
    ends: np.ndarray  # u4 (2E, 2) the neighbour, and one plus the place of this edge in its row
    edges: np.ndarray  # f8 (2E, EDGE)
    fields: np.ndarray  # f8 (V, 2)


class WalkScratch(NamedTuple):
    """Of walks of at most D steps."""

    out: np.ndarray  # u4 (V,) zeros, and left so: one plus the edge by which the walk leaves
    stack_e: np.ndarray  # u8 (D,)
    stack: np.ndarray  # f8 (D, 3)


@jit
def _times(lo, hi, by_lo, by_hi):
    lo *= by_lo
    hi *= by_hi
    if lo < TINY:
        lo = 0.0
    return min(lo, HUGE), max(hi, TINY)


@jit
def _ratio(u, c, negative):
    """A message."""
    if c < LARGE:
        a, b = u + c, 1.0 + u * c
    else:
        c = 1.0 / c
        a, b = 1.0 + u * c, u + c
    return b / a if negative else a / b


@jit
def walk(root, eps, most, graph, scratch):
    """The odds of ``root``: lower and upper end, visits, whether an ``eps`` cut the walk."""
    ptr, ends, edges, fields = graph
    out, stack_e, stack = scratch
    limit = len(stack_e)
    d = 0
    v = np.uint64(root)
    e, end = ptr[v], ptr[v + np.uint64(1)]
    lo, hi = fields[v, 0], fields[v, 1]
    influence = 1.0
    cost = NODE + np.int64(end - e)
    cut = False
    one = np.uint64(1)
    while True:
        if e < end:
            k = np.uint64(ends[e, 0])
            o = out[k]
            if o != 0:  # on the walk: its parent (equal), or a cycle closes
                if ends[e, 1] != o:
                    if (ends[e, 1] < o) == (edges[e, NEGATIVE] > 0.0):
                        lo, hi = _times(lo, hi, edges[e, NEAR], max(edges[e, NEAR], TINY))
                    else:
                        lo, hi = _times(lo, hi, min(edges[e, FAR], HUGE), edges[e, FAR])
                e += one
                continue
            span = edges[e, SPAN]
            if influence * span < eps or cost >= most or d == limit:
                lo, hi = _times(lo, hi, edges[e, LEAF_LO], edges[e, LEAF_HI])
                cut |= span > 0.0
                e += one
                continue
            out[v] = np.uint32(e + one)
            stack_e[d] = e
            stack[d, 0], stack[d, 1], stack[d, 2] = lo, hi, influence
            d += 1
            influence *= edges[e, SLOPE]
            v = k
            e, end = ptr[v], ptr[v + one]
            lo, hi = fields[v, 0], fields[v, 1]
            cost += NODE + np.int64(end - e)
            continue
        if d == 0:
            break
        d -= 1
        e = stack_e[d]
        u, negative = edges[e, NEAR], edges[e, NEGATIVE] > 0.0
        if negative:
            lo, hi = hi, lo
        lo, hi = _ratio(u, lo, negative), _ratio(u, hi, negative)
        lo, hi = _times(stack[d, 0], stack[d, 1], lo, hi)
        influence = stack[d, 2]
        v = np.uint64(ends[np.uint64(ends[e, 1]) - one, 0])
        out[v] = 0
        end = ptr[v + one]
        e += one
    return lo, hi, cost, cut


@jit
def walks(roots, most, depths, lo, hi, graph, scratch):
    """Deeper and deeper walks from each of ``roots``, for at most about ``most`` visits each.

    Best ends go to ``lo``, ``hi`` (n,). Gives the visits made.
    """
    eps, cost, rate, done = depths
    total = 0
    for r in range(len(roots)):
        v = roots[r]
        lo[r], hi[r] = 0.0, np.inf
        left = most
        while not done[v]:
            threshold = next_threshold(eps[v], cost[v], rate[v], left)
            if threshold == 0.0:
                break
            a, b, visits, cut = walk(v, threshold, left, graph, scratch)
            total += visits
            left -= visits
            lo[r], hi[r] = max(lo[r], a), min(hi[r], b)
            if not cut or threshold < LEAST_THRESHOLD:
                done[v] = True
            if cost[v] > 0:
                rate[v] = rate_seen(eps[v], cost[v], threshold, visits)
            if left <= 0:  # it was cut by the budget as well: not one to go on from
                break
            eps[v], cost[v] = threshold, visits
    return total
