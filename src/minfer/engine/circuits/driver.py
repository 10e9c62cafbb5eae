"""From a conditioned model to a circuit, within limits of memory and time.

What is small is eliminated densely (:mod:`minfer.kernels.circuits.bottom`), the core that is left
is searched (:mod:`minfer.kernels.circuits.search`), and what the roots reach is laid out. Contents
are known by 128-bit keys; that some two of N which differ share one has probability at most
:func:`collision_bound`, about N^2 / 2^129.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.limits import clock
from minfer.engine.circuits.arrays import CircuitArrays
from minfer.engine.circuits.core import SMALL, Bottom, Core, eliminate_bottom, ready
from minfer.engine.circuits.orders import begun, chosen, longer
from minfer.engine.conditioning import Conditioned
from minfer.errors import NOTHING_POSSIBLE, ContradictionError, RefusedError
from minfer.kernels.circuits import search as k
from minfer.kernels.circuits.finish import lay_out, reached
from minfer.kernels.circuits.search import NodeArrays, SearchState

#: Visits of a slice; between slices the clock, memory and Ctrl-C are looked at.
SLICE = 100_000
_RANGE = 256.0 * math.log(2.0)
_NONE = np.zeros((0, 0), np.uint64)


class Progress(NamedTuple):
    """How far a search has come."""

    nodes: int
    share: float  # of the search done, about: values of decisions, each as much as the next


def collision_bound(nodes: int) -> float:
    """The probability that two different contents among so many share their key, at most, for
    keys that are as good as random."""
    return nodes * nodes / 2.0**129


def build(
    model: Conditioned,
    *,
    max_gib: float,
    deadline: float = math.inf,
    free: NDArray[np.bool_] | None = None,
    progress: Callable[[Progress], object] | None = None,
    small: int = SMALL,
) -> CircuitArrays:
    """The circuit of a model.

    ``free`` (V,): variables whose field is left out, also where they are fixed: it comes as a
    likelihood at each call. ``deadline`` by :func:`minfer.basics.limits.clock`. Arrays, those of
    the result included, take at most ``max_gib``. ``small``: cells up to which cliques are
    eliminated densely. ContradictionError where Z = 0; RefusedError beyond a limit.
    """
    start = ready(model, free)
    room = max_gib * 2.0**30
    bottom = eliminate_bottom(start, small, int(room / 60.0))
    core, _ = chosen(start, bottom)
    log_scale = bottom.log_scale + core.log_scale
    nodes, state, possible = begun(bottom, core)
    if not possible:
        raise ContradictionError(NOTHING_POSSIBLE)
    watch = _Watch(room, deadline, progress, free is not None and bool(free.any()))
    roots = bottom.arrays.roots.tolist()
    tops = np.flatnonzero(core.arrays.parent < 0).tolist()
    for done, root in enumerate(tops):
        state.now[k.X], state.now[k.MODE] = root, 0
        state.sums[root, :2] = 0
        nodes = _search(core, state, nodes, watch, done / len(tops), 1.0 / len(tops))
        found = int(state.now[k.FOUND])
        if nodes.total[found, 2] == 0.0:
            raise ContradictionError(NOTHING_POSSIBLE)
        log_scale += math.log(nodes.total[found, 2]) + _RANGE * int(nodes.total[found, 3])
        roots.append(found + int(state.now[k.BOTTOM]))
    if watch.free and (state.now[k.RAISED] or bottom.raised):
        raise RefusedError(
            "circuit: some states have conditional probabilities below 1e-300, which evidence that "
            'comes later could bring up again; use Exact(method="clique-tree")'
        )
    return _laid_out(core, bottom, nodes, state, np.array(roots, dtype=np.int32), log_scale, watch)


class _Watch(NamedTuple):
    room: float
    deadline: float
    progress: Callable[[Progress], object] | None
    free: bool


def _search(
    core: Core, state: SearchState, nodes: NodeArrays, watch: _Watch, before: float, part: float
) -> NodeArrays:
    """Search below the root that the state stands at."""
    while True:
        why = k.search(core.arrays, state, core.folded, core.rules, nodes, SLICE, 0, 0, _NONE)
        n = int(state.now[k.NODES])
        if why == k.SOLVED:
            return nodes
        share = before + part * _share(core, state)
        if why == k.NO_ROOM or why == k.NO_SLOTS:
            nodes = _grown(core, state, nodes, watch, share)
        if watch.progress is not None:
            watch.progress(Progress(n, share))
        if clock() > watch.deadline:
            raise RefusedError(
                f"circuit: the time limit is over at {n:,} nodes, about {100 * share:.2g} % of the "
                "search; allow more time, observe more variables, or use Auto()"
            )


def _share(core: Core, state: SearchState) -> float:
    """Of the search below a root, what is done: along the path under way, values of decisions."""
    parent, ptr = core.arrays.parent, core.arrays.below_ptr
    x, share = int(state.now[k.X]), 0.0
    if state.now[k.MODE] not in (0,):
        share = max(int(state.frame[x, 0]), 0) / int(core.arrays.card[x])
    while parent[x] >= 0:
        x = int(parent[x])
        children = max(int(ptr[x + 1] - ptr[x]), 1)
        share = (int(state.frame[x, 0]) + (int(state.frame[x, 1]) + share) / children) / int(
            core.arrays.card[x]
        )
    return min(share, 1.0)


def _bytes(nodes: int, own: int, edges: int, kids: int, slots: int) -> float:
    """What the arrays of a search take, and at its end, without keys, those of the circuit."""
    search = 8.0 * nodes + 32.0 * own + 12.0 * edges + 4.0 * kids + 4.0 * slots
    end = 8.0 * nodes + 12.0 * edges + 4.0 * kids
    end += 4.0 * nodes + 12.0 * nodes + 20.0 * edges + 4.0 * kids
    return max(search, end)


def _grown(
    core: Core, state: SearchState, d: NodeArrays, watch: _Watch, share: float
) -> NodeArrays:
    """The same nodes with more room in the arrays that are full; RefusedError beyond the limit."""
    now, c = state.now, core.arrays
    nn, ne, nc, nb = (int(now[i]) for i in (k.NODES, k.EDGES, k.KIDS, k.BOTTOM))
    widest, kids = int(c.card.max()), int((c.card * c.n_kids).max())
    need = nn + 1, nn - nb + 1, ne + widest, nc + kids, 2 * (nn - nb + 1)
    have = len(d.variable), len(d.key), len(d.state), len(d.child), len(d.slots)
    n_slots = 2 * have[4] if have[4] < need[4] else have[4]
    grow = min(2.0, watch.room / _bytes(nn, nn - nb, ne, nc, n_slots))
    size = [max(w, int(h * grow)) if h < w else h for w, h in zip(need, have)]
    if grow < 1.02:
        raise RefusedError(
            f"circuit: {nn:,} nodes fill the {watch.room / 2**30:.3g} GiB allowed, at about "
            f"{100 * share:.2g} % of the search; raise max_gib, observe more variables, or use "
            "Auto()"
        )
    slots = d.slots
    if n_slots > have[4]:
        slots = np.full(n_slots, -1, np.int32)
        k.fill(slots, d.key, nn - nb)

    def fit(a: NDArray, n: int, to: int) -> NDArray:
        return a if len(a) >= to else longer(a[:n], to)

    key = fit(d.key, nn - nb, size[1])
    return NodeArrays(
        fit(d.variable, nn, size[0]), fit(d.n_edges, nn, size[0]), key, key.view(np.float64),
        fit(d.state, ne, size[2]), fit(d.weight, ne, size[2]), fit(d.child, nc, size[3]), slots,
    )  # fmt: skip


def _laid_out(
    core: Core, bottom: Bottom, nodes: NodeArrays, state: SearchState, roots: NDArray[np.int32],
    log_scale: float, watch: _Watch,
) -> CircuitArrays:  # fmt: skip
    now = state.now
    n = int(now[k.NODES])
    none = np.empty((0, 4), np.uint64)
    nodes = nodes._replace(  # keys and totals have served
        key=none, total=none.view(np.float64), slots=np.empty(0, np.int32)
    )
    n_kids = bottom.arrays.n_children.copy()
    n_kids[core.arrays.variable] = core.arrays.n_kids
    number = np.full(n, -1, dtype=np.int32)
    number[roots] = 0
    sizes = reached(nodes.variable, nodes.n_edges, nodes.child, n_kids, n, int(now[k.KIDS]), number)
    n_nodes, n_edges, n_child = (int(s) for s in sizes)
    out = CircuitArrays(
        np.empty(n_nodes, np.int32), np.empty(n_nodes + 1, np.int64), np.empty(n_edges, np.int32),
        np.empty(n_edges), np.empty(n_edges + 1, np.int64), np.empty(n_child, np.int32),
        number[roots], log_scale,
    )  # fmt: skip
    lay_out(nodes, n_kids, n, number, out)
    return out
