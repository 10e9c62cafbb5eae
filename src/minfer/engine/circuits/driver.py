"""From a conditioned model to a circuit, within limits of memory and time.

What is small is eliminated densely (:mod:`minfer.kernels.circuits.bottom`), the core that is left
is searched (:mod:`minfer.kernels.circuits.search`), and what the roots reach is laid out. Contents
are known by 128-bit keys; that some two of N which differ share one has probability at most
:func:`collision_bound`, about N^2 / 2^129.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.limits import clock
from minfer.engine.circuits.arrays import CircuitArrays, grown
from minfer.engine.circuits.core import SMALL, Bottom, Core, eliminate_bottom, ready
from minfer.engine.circuits.orders import begun, chosen
from minfer.engine.conditioning import Conditioned
from minfer.errors import NOTHING_POSSIBLE, ContradictionError, RefusedError
from minfer.kernels.circuits import search as k
from minfer.kernels.circuits.finish import lay_out, reached
from minfer.kernels.circuits.search import NodeArrays, SearchState

#: Visits of a slice; between slices the clock, memory and Ctrl-C are looked at.
SLICE = 100_000
_RANGE = 256.0 * math.log(2.0)
_BOTTOM_BYTES = 150.0  # a node of the dense stage, while it is made and copied
_TRY = "allow more time, observe more variables, or use Auto()"
_NONE = np.zeros((0, 0), np.uint64)


class Progress(NamedTuple):
    """How far a search has come."""

    nodes: int
    share: float  # of the search done, about: values of decisions, each as much as the next
    orders: int = 0  # compared, before it began


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
    most_steps: float = math.inf,
    small: int = SMALL,
) -> CircuitArrays:
    """The circuit of a model.

    ``free`` (V,): variables whose field is left out, also where they are fixed: it comes as a
    likelihood at each call. ``deadline`` by :func:`minfer.basics.limits.clock`. Arrays, those of
    a first pass over the result included, take at most ``max_gib``. ``most_steps`` of the search:
    visits of variables, and what they force. ``small``: cells up to which cliques are eliminated
    densely. ``progress`` may raise, KeyboardInterrupt for instance. ContradictionError where Z =
    0; RefusedError beyond a limit.
    """
    start = ready(model, free)
    room = max_gib * 2.0**30 - _held(start.tables)
    watch = _Watch(room, deadline, progress, most_steps, free is not None and bool(free.any()))
    bottom = eliminate_bottom(start, small, int(max(room, 0.0) / _BOTTOM_BYTES))
    core, _ = chosen(start, bottom, room / 4.0, watch.ordered)
    watch.room -= _held(bottom.arrays, bottom.tables, core.arrays, core.folded, core.rules)
    log_scale = bottom.log_scale + core.log_scale
    nodes, state, possible = begun(bottom, core)
    if not possible:
        raise ContradictionError(NOTHING_POSSIBLE)
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
    return _laid_out(core, bottom, nodes, state, np.array(roots, dtype=np.int32), log_scale)


def _held(*parts: NamedTuple) -> int:
    """Bytes of arrays."""
    return sum(a.nbytes for part in parts for a in part if isinstance(a, np.ndarray))


@dataclass
class _Watch:
    """Limits, and who is told how far the search has come."""

    room: float  # bytes
    deadline: float
    progress: Callable[[Progress], object] | None
    most_steps: float
    free: bool

    def ordered(self, orders: int) -> None:
        """While orders are compared."""
        if self.progress is not None:
            self.progress(Progress(0, 0.0, orders))
        if clock() > self.deadline:
            raise RefusedError(
                f"circuit: the time limit is over after {orders} orders were compared, before the "
                f"search; {_TRY}"
            )

    def searched(self, nodes: int, share: float, steps: int) -> None:
        """Between slices."""
        if self.progress is not None:
            self.progress(Progress(nodes, share))
        over = "the time limit is over" if clock() > self.deadline else ""
        if steps > self.most_steps:
            over = f"it takes more than the {self.most_steps:.1e} steps allowed"
        if over:
            raise RefusedError(
                f"circuit: {over}, at {nodes:,} nodes, about {100 * share:.2g} % of the search; "
                f"{_TRY}"
            )


def _search(
    core: Core, state: SearchState, nodes: NodeArrays, watch: _Watch, before: float, part: float
) -> NodeArrays:
    """Search below the root that the state stands at."""
    while True:
        why = k.search(core.arrays, state, core.folded, core.rules, nodes, SLICE, 0, 0, _NONE)
        if why == k.SOLVED:
            return nodes
        share = before + part * _share(core, state)
        if why == k.NO_ROOM or why == k.NO_SLOTS:
            nodes = _grown(core, state, nodes, watch, share)
        watch.searched(int(state.now[k.NODES]), share, int(state.now[k.VISITS]))


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
    """What arrays take at most: of the search; while, without keys, they become those of the
    circuit; and those with what a pass over them needs."""
    search = 8.0 * nodes + 32.0 * own + 12.0 * edges + 4.0 * kids + 4.0 * slots
    laid = 24.0 * nodes + 32.0 * edges + 8.0 * kids
    answer = 28.0 * nodes + 32.0 * edges + 4.0 * kids
    return max(search, laid, answer)


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
    more = min(2.0, watch.room / _bytes(nn, nn - nb, ne, nc, n_slots))
    if more < 1.02:
        raise RefusedError(
            f"circuit: {nn:,} nodes fill the {watch.room / 2**30:.3g} GiB that it has, at about "
            f"{100 * share:.2g} % of the search; raise max_gib, observe more variables, or use "
            "Auto()"
        )
    used = nn, nn - nb, ne, nc
    size = [max(w, int(u * more)) if h < w else h for w, u, h in zip(need, used, have)]

    def fit(a: NDArray, to: int) -> NDArray:
        return a if len(a) >= to else grown(a, to)

    slots, key = fit(d.slots, n_slots), fit(d.key, size[1])
    if n_slots > have[4]:
        slots[:] = -1
        k.fill(slots, key, nn - nb)
    return NodeArrays(
        fit(d.variable, size[0]), fit(d.n_edges, size[0]), key, key.view(np.float64),
        fit(d.state, size[2]), fit(d.weight, size[2]), fit(d.child, size[3]), slots,
    )  # fmt: skip


def _laid_out(
    core: Core, bottom: Bottom, nodes: NodeArrays, state: SearchState, roots: NDArray[np.int32],
    log_scale: float,
) -> CircuitArrays:  # fmt: skip
    now = state.now
    n = int(now[k.NODES])
    nodes.slots.resize(0, refcheck=False)  # keys and totals have served
    nodes.key.resize((0, 4), refcheck=False)
    nodes = nodes._replace(total=nodes.key.view(np.float64))
    n_kids = bottom.arrays.n_children.copy()
    n_kids[core.arrays.variable] = core.arrays.n_kids
    number = np.full(n, -1, dtype=np.int32)
    number[roots] = 0
    sizes = reached(nodes.variable, nodes.n_edges, nodes.child, n_kids, n, int(now[k.KIDS]), number)
    n_nodes, n_edges, n_child = (int(s) for s in sizes)
    out = CircuitArrays(
        np.empty(n_nodes, np.int32), np.empty(n_nodes + 1, np.int64), np.empty(n_edges, np.int32),
        np.empty(n_edges), np.empty(n_edges + 1, np.int64), np.empty(n_child, np.int32),
        number[roots], log_scale, n + len(core.folded.eptr),
    )  # fmt: skip
    lay_out(nodes, n_kids, n, number, out)
    return out
