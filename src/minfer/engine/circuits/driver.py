"""From a conditioned model to a circuit, within limits of memory and time.

What is small is eliminated densely (:mod:`minfer.kernels.circuits.bottom`), the core that is left
is searched (:mod:`minfer.kernels.circuits.search`), and what the roots reach is laid out. Contents
are known by 128-bit keys; that some two of N which differ share one has probability at most
:func:`collision_bound`, about N^2 / 2^129.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.limits import clock
from minfer.engine.circuits.arrays import CircuitArrays, grown
from minfer.engine.circuits.clauses import ClauseSearch, clause_model
from minfer.engine.circuits.core import SMALL, Bottom, Core, Ready, eliminate_bottom, ready
from minfer.engine.circuits.orders import WalkEstimate, begun, chosen
from minfer.engine.conditioning import Conditioned
from minfer.errors import NOTHING_POSSIBLE, ContradictionError, RefusedError
from minfer.kernels.circuits import search as k
from minfer.kernels.circuits.finish import lay_out, reached
from minfer.kernels.circuits.keys import fill_slots
from minfer.kernels.circuits.search import NodeArrays, SearchState

#: Visits of a slice; between slices the clock, memory and Ctrl-C are looked at.
SLICE = 100_000
#: Steps beyond which a search is not begun: so many for each node of its forecast.
STEPS_A_NODE = 4.0
#: Clauses have a search of their own, whose first steps are a forecast. After some more of them the
#: one in a fixed order is tried, for so many nodes, if walks say that these are enough and so large
#: a share of walks ends.
FORECAST_STEPS, FIRST_STEPS, TENTATIVE, ARRIVING = 500_000, 30_000_000, 2e7, 0.05
#: Circuits to be compiled whose forecast has no more nodes are searched in the best few orders, and
#: the smallest is taken; without a time limit, or the circuit would depend on the clock.
TRIED = 300_000
_NODE_BYTES = 150.0  # of a search, about
_RANGE = 256.0 * math.log(2.0)
_BOTTOM_BYTES = 150.0  # a node of the dense stage, while it is made and copied
_TRY = "allow more time, observe more variables, or use Auto()"
_NONE = np.zeros((0, 0), np.uint64)


class SearchProgress(NamedTuple):
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
    progress: Callable[[SearchProgress], object] | None = None,
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
    lent = free is not None and bool(free.any())
    watch = _Watch(max_gib * 2.0**30, deadline, progress, most_steps)
    start = ready(model, free)
    watch.room -= _held(start.tables)
    clauses = clause_model(start)
    if clauses is None:
        found = _by_order(start, watch, small, lent)
        assert found is not None
        return found
    search = ClauseSearch(start, clauses, watch.room, watch.ordered)
    circuit = search.run(watch.searched, FIRST_STEPS)
    if circuit is None:
        other = replace(watch)
        with suppress(RefusedError):  # the search of clauses goes on, within what is left
            circuit = _by_order(start, other, small, lent, TENTATIVE)
        if circuit is not None:
            return circuit
        watch.most_steps -= other.steps
        circuit = search.run(watch.searched)
        assert circuit is not None
    _check_raised(lent, search.raised)
    return circuit


def _by_order(
    start: Ready, watch: _Watch, small: int, lent: bool, most: float = math.inf
) -> CircuitArrays | None:
    """A circuit in a fixed order; None where it would take, or takes, more than so many nodes."""
    bottom, cores, guess = _begun(start, watch, small)
    if most < math.inf and not _promising(guess):
        return None
    if guess is not None and STEPS_A_NODE * guess.nodes > watch.most_steps:
        raise RefusedError(
            f"circuit: some {guess.nodes:.1e} nodes or more, by an estimate, which takes more "
            f"than the {watch.most_steps:.1e} steps allowed; {_TRY}"
        )
    watch.room -= _held(bottom.arrays, bottom.tables)
    for core in cores:
        watch.room -= _held(core.arrays, core.folded, core.rules)
    several = lent and watch.deadline == math.inf and guess is not None and guess.nodes <= TRIED
    best: _Finished | None = None
    for core in cores if several else cores[:1]:
        if best is not None and 3.0 * _NODE_BYTES * best.n_nodes > watch.room:
            break
        found = _searched(core, bottom, watch, most if best is None else best.n_nodes)
        best = best if found is None else found
    if best is None:
        return None
    _check_raised(lent, bool(best.state.now[k.RAISED]) or bottom.raised)
    return _laid_out(best, bottom)


def _check_raised(lent: bool, raised: bool) -> None:
    if lent and raised:
        raise RefusedError(
            "circuit: some states have conditional probabilities below 1e-300, which evidence that "
            'comes later could bring up again; use Exact(method="clique-tree")'
        )


class _Finished(NamedTuple):
    """The end of a search."""

    core: Core
    nodes: NodeArrays
    state: SearchState
    roots: NDArray[np.int32]
    log_scale: float

    @property
    def n_nodes(self) -> float:
        return float(self.state.now[k.NODES])


def _searched(core: Core, bottom: Bottom, watch: _Watch, most: float) -> _Finished | None:
    """All of a core; None where it takes more than so many nodes."""
    log_scale = bottom.log_scale + core.log_scale
    nodes, state, possible = begun(bottom, core)
    if not possible:
        raise ContradictionError(NOTHING_POSSIBLE)
    roots = bottom.arrays.roots.tolist()
    tops = np.flatnonzero(core.arrays.parent < 0).tolist()
    for done, root in enumerate(tops):
        state.now[k.X], state.now[k.MODE] = root, 0
        state.sums[root, :2] = 0
        nodes = _search(core, state, nodes, watch, done / len(tops), 1.0 / len(tops), most)
        if int(state.now[k.NODES]) > most:
            return None
        found = int(state.now[k.FOUND])
        if nodes.total[found, 2] == 0.0:
            raise ContradictionError(NOTHING_POSSIBLE)
        log_scale += math.log(nodes.total[found, 2]) + _RANGE * int(nodes.total[found, 3])
        roots.append(found + int(state.now[k.BOTTOM]))
    return _Finished(core, nodes, state, np.array(roots, dtype=np.int32), log_scale)


def _begun(
    start: Ready, watch: _Watch, small: int
) -> tuple[Bottom, list[Core], WalkEstimate | None]:
    """What comes before the search."""
    bottom = eliminate_bottom(start, small, int(max(watch.room, 0.0) / _BOTTOM_BYTES))
    cores, found = chosen(start, bottom, watch.room / 4.0, watch.ordered)
    return bottom, cores, found


def _promising(guess: WalkEstimate | None) -> bool:
    """Whether a search of clauses may be ended sooner by one in a fixed order."""
    return guess is None or (guess.nodes <= TENTATIVE / UNSEEN and guess.arrived >= ARRIVING)


class Forecast(NamedTuple):
    """How many nodes a circuit may have.

    ``likely`` is an estimate from random walks (:mod:`minfer.engine.circuits.orders`): a lower one
    as a rule, and no bound. ``most`` is a bound for each variable's context, of the dense stage and
    of the search; log2.
    """

    likely: float
    most: float
    by: str = "random walks"

    @property
    def likely_bytes(self) -> float:
        """With two edges a node, and a child for each."""
        return _bytes(*(int(self.likely * k) for k in (1, 1, 2, 3, 3)))

    def __str__(self) -> str:
        low, high = (math.log10(max(self.likely * k, 1.0)) for k in (1.0, UNSEEN))
        most = math.log10(2.0) * self.most
        if low >= most - 0.05:
            return f"at most 10^{most:.1f} nodes"
        return (
            f"about 10^{low:.1f} to 10^{min(high, most):.1f} nodes, an estimate from {self.by} "
            f"and no bound; at most 10^{most:.1f}"
        )


#: Nodes of a circuit for one of its forecast, about the most: 1.2 to 12.2 in 13 models measured.
UNSEEN = 10.0


def forecast(model: Conditioned, max_gib: float = 1.0) -> Forecast:
    """How many nodes a model's circuit may have, after a second or so."""
    watch = _Watch(max_gib * 2.0**30, math.inf, None, math.inf)
    start = ready(model)
    watch.room -= _held(start.tables)
    clauses = clause_model(start)
    search: ClauseSearch | None = None
    if clauses is not None:
        search = ClauseSearch(start, clauses, watch.room, watch.ordered)
        done = search.run(watch.searched, FORECAST_STEPS)
        if done is not None:
            n = len(done.variable)
            return Forecast(float(n), math.log2(n + 1.0))
    bottom, (core, *_), found = _begun(start, watch, SMALL)
    dense = float(len(bottom.arrays.variable))
    most = float(np.logaddexp2.reduce(np.append(core.contexts, np.log2(dense + 1.0))))
    likely = 2.0**most if found is None else dense + found.nodes
    if search is not None:
        free = float(start.free.sum())  # that search keeps to no order
        most = max(most, free + math.log2(free + 1.0))
        if not _promising(found):
            likely = search.n_nodes / max(search.share, 1e-12)
            return Forecast(min(likely, 2.0 ** min(most, 1000.0)), most, "its first steps")
    return Forecast(min(likely, 2.0 ** min(most, 1000.0)), most)


def _held(*parts: NamedTuple) -> int:
    """Bytes of arrays."""
    return sum(a.nbytes for part in parts for a in part if isinstance(a, np.ndarray))


@dataclass
class _Watch:
    """Limits, and who is told how far the search has come."""

    room: float  # bytes
    deadline: float
    progress: Callable[[SearchProgress], object] | None
    most_steps: float
    steps: int = 0  # taken

    def ordered(self, orders: int) -> None:
        """While orders are compared."""
        if self.progress is not None:
            self.progress(SearchProgress(0, 0.0, orders))
        if clock() > self.deadline:
            raise RefusedError(
                f"circuit: the time limit is over after {orders} orders were compared, before the "
                f"search; {_TRY}"
            )

    def searched(self, nodes: int, share: float, steps: int) -> None:
        """Between slices."""
        self.steps = steps
        if self.progress is not None:
            self.progress(SearchProgress(nodes, share))
        over = "the time limit is over" if clock() > self.deadline else ""
        if steps > self.most_steps:
            over = f"it takes more than the {self.most_steps:.1e} steps allowed"
        if over:
            raise RefusedError(
                f"circuit: {over}, at {nodes:,} nodes, about {100 * share:.2g} % of the search; "
                f"{_TRY}"
            )


def _search(
    core: Core, state: SearchState, nodes: NodeArrays, watch: _Watch, before: float, part: float,
    most: float,
) -> NodeArrays:  # fmt: skip
    """Search below the root that the state stands at, up to so many nodes."""
    while True:
        why = k.search(core.arrays, state, core.folded, core.rules, nodes, SLICE, 0, 0, _NONE)
        if why == k.SOLVED or int(state.now[k.NODES]) > most:
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
        fill_slots(slots, np.ascontiguousarray(key[: nn - nb, 0]), nn - nb)
    return NodeArrays(
        fit(d.variable, size[0]), fit(d.n_edges, size[0]), key, key.view(np.float64),
        fit(d.state, size[2]), fit(d.weight, size[2]), fit(d.child, size[3]), slots,
    )  # fmt: skip


def _laid_out(best: _Finished, bottom: Bottom) -> CircuitArrays:
    core, nodes, state, roots, log_scale = best
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
