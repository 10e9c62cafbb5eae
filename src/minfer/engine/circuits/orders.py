"""Orders for the search, found by comparing forecasts.

Greedy eliminations of the core differ in their cells, and by far more in how many different
residual problems a search meets. So the best few by cells are walked down at random
(:func:`minfer.kernels.circuits.search.search`): n walks meet at a variable some keys once (f1),
some twice (f2), u different ones in all, and a lower estimate of how many there are is

    u + f1 (f1 - 1) / (2 (f2 + 1))      (Chao 1984),

at most the cells of the variable's context. Their sum over variables ranks orders. It is no bound:
what it is worth as a forecast is at :data:`minfer.engine.circuits.driver.UNSEEN`. Work is counted
in steps, so runs repeat.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.engine.circuits.core import Bottom, Core, Ready, core_of, links_of
from minfer.engine.elimination import Adjacency, cuthill_mckee, eliminate_by
from minfer.kernels.circuits import search as k
from minfer.kernels.circuits.search import NodeArrays, SearchState

#: Cores of fewer cells than this are searched in the first order found.
EASY = 2.0**14
#: Eliminations tried at most; steps they may take, in all.
MOST_ORDERS, ORDER_STEPS = 150, 60_000_000
#: Orders that are walked; walks of each, and of the best of them.
WALKED, WALKS, FINALISTS, MORE_WALKS = 16, 250, 3, 2000
#: Steps of walks (a variable decided) for one order, about.
WALK_STEPS = 300_000


Look = Callable[[int], object]


class WalkEstimate(NamedTuple):
    """What random walks say of a search."""

    nodes: float  # keys there are, estimated from those seen; a lower estimate as a rule
    arrived: float  # share of the walks that met no zero


def begun(bottom: Bottom, core: Core) -> tuple[NodeArrays, SearchState, bool]:
    """Arrays for a search that has not begun; and whether zeros leave anything."""
    b, c, r = bottom.arrays, core.arrays, core.rules
    n, s = len(c.card), int(c.off[-1])
    now = np.zeros(k.N_NOW, dtype=np.int64)
    nb, eb, cb = len(b.variable), len(b.state), len(b.child)
    now[k.NODES], now[k.EDGES], now[k.KIDS], now[k.BOTTOM] = nb, eb, cb, nb
    state = SearchState(
        now, core.folded.first.copy(), np.zeros(len(c.at), np.int32), r.start.copy(),
        np.zeros(n, np.bool_), np.zeros(n, np.int32), np.zeros(n, np.uint64),
        np.zeros(n + 1, np.int32), np.zeros((s + n + 1, 2), np.uint64),
        np.zeros((len(c.rule) + 1, 2), np.int32), np.zeros((n, 6), np.int32),
        np.zeros((n, 6), np.uint64), np.zeros((n, 2)), np.zeros((n, 2), np.int64), np.zeros(s),
        np.zeros(s, np.int64), np.zeros(int((c.card * c.n_kids).sum()), np.int32),
    )  # fmt: skip
    more = 1024 if n else 0
    widest = int(c.card.max(initial=0))
    kids = int((c.card * c.n_kids).max(initial=0))
    key = np.empty((more, 4), np.uint64)
    nodes = NodeArrays(
        _longer(b.variable, nb + more), _longer(b.n_edges, nb + more), key, key.view(np.float64),
        _longer(b.state, eb + more * 2 + widest), _longer(b.weight, eb + more * 2 + widest),
        _longer(b.child, cb + more * 2 + kids), np.full(4 * more or 1, -1, np.int32),
    )  # fmt: skip
    return nodes, state, bool(k.begin(c, state, r))


def _longer(array: NDArray, size: int) -> NDArray:
    """A copy with room behind."""
    out = np.empty(size, dtype=array.dtype)
    out[: len(array)] = array
    return out


def walked(bottom: Bottom, core: Core, walks: int, seed: int = 1) -> WalkEstimate:
    """An estimate of the nodes of a search from so many walks."""
    n = len(core.arrays.card)
    nodes, state, possible = begun(bottom, core)
    walks = min(walks, max(WALK_STEPS // max(n, 1), 20))
    if not n or not possible:
        return WalkEstimate(0.0, 1.0)
    seen = np.zeros((n, walks), dtype=np.uint64)
    done = k.search(
        core.arrays, state, core.folded, core.rules, nodes, 1, walks, seed, seen
    )  # fmt: skip
    seen.sort(axis=1)
    return WalkEstimate(float(np.minimum(_different(seen), 2.0**core.contexts).sum()), done / walks)


def _different(seen: NDArray[np.uint64]) -> NDArray[np.float64]:
    """How many keys there are, estimated from sorted samples, (n,); 0 is none."""
    n, walks = seen.shape
    first = np.ones((n, walks + 1), dtype=bool)  # of a run of equal ones
    first[:, 1:-1] = seen[:, 1:] != seen[:, :-1]
    begin = np.flatnonzero(first[:, :-1])
    of, at = begin // walks, begin % walks
    length = np.diff(np.append(begin, n * walks))
    real = seen[of, at] != 0
    once, twice, all_ = (
        np.bincount(of[real & which], minlength=n).astype(np.float64)
        for which in (length == 1, length == 2, length > 0)
    )
    return all_ + once * (once - 1.0) / (2.0 * (twice + 1.0))


def candidates(links: Adjacency, look: Look) -> list[tuple[float, NDArray]]:
    """Greedy eliminations, different ones, as cells and the order; the fewest cells first."""
    n = len(links.variables)
    found: list[tuple[float, NDArray]] = []
    known: set[bytes] = set()
    spent = 0.0
    for trial in range(MOST_ORDERS):
        kind, seed, rank = (0, 3, 1)[trial % 3], trial // 3, None
        if n and trial in (3, 4):  # what is laid out on a grid, in one direction
            kind, rank = 2, cuthill_mckee(links) if trial == 3 else np.arange(n, dtype=float)
        order = eliminate_by(links, kind, seed, math.inf, "circuit", rank, math.inf, 1e300)
        spent += order.work + 20.0 * n
        key = order.order.tobytes()
        if key not in known:
            known.add(key)
            found = sorted([*found, (order.cells, order.order)], key=lambda o: o[0])[:WALKED]
        look(trial + 1)
        if spent > ORDER_STEPS or spent > found[0][0] / 8.0 + 1000.0:
            break
    return found


def chosen(
    start: Ready, bottom: Bottom, room: float, look: Look
) -> tuple[list[Core], WalkEstimate | None]:
    """Cores in the orders that walks say are best, the best first; and what they said of it, None
    where none were. ``room``: bytes that a core may take, about. ``look`` is told how many orders
    were tried."""
    left = bottom.arrays.left & start.free
    links = links_of(bottom.tables, [g.scope for g in start.machines], left)
    orders = candidates(links, look)

    def core(order: NDArray) -> Core:
        rank = np.zeros(len(left), dtype=np.int64)
        rank[links.variables[order[::-1]]] = np.arange(len(links.variables))
        return core_of(start, bottom, rank, room)

    best = core(orders[0][1])
    if orders[0][0] < EASY or len(orders) == 1:
        return [best], None
    ranked = []
    for i, (_, order) in enumerate(orders):
        c = core(order) if i else best
        ranked.append((walked(bottom, c, WALKS).nodes, i, c))
        ranked = sorted(ranked)[:FINALISTS]
        look(i + 1)
    final = []
    for _, i, c in ranked:
        final.append((walked(bottom, c, MORE_WALKS, 2), i, c))
        look(len(orders))
    final.sort()
    return [c for _, _, c in final], final[0][0]
