"""Exact inference in windows: around each few variables, with messages for what lies outside.

The free variables are parted into small *cores*. The *window* W of a core is it and what lies
around it, as many layers of factors as a clique tree of bounded size can hold. There

    p(x_W) ~ prod_{v in W} field_v(x_v) prod_{i inside} Psi_i(x_i)
                 prod_{i cut, v in W} m_{i->v}(x_v),

with belief propagation's message m of every factor that the window cuts; the core's marginals are
read off. A window that is all of the model is exact, one that is a single variable is belief
propagation, and on a forest every window is exact. Between these, what the messages got wrong
reaches the core through the window only, and where correlations decay it decays with the layers.
(Compare Weitz 2006, "Counting independent sets up to the tree threshold", STOC; and regions with
messages between them: Yedidia, Freeman & Weiss 2005, IEEE Trans. Inf. Theory 51:2282-2312. Here no
message comes back, so nothing has to converge.)

Windows grow in rounds, each with four times the cells. A core that a round moved by less than
``tol`` is left alone from then on. How far its last larger window moved a variable is its error
estimate. A window without a loop is belief propagation again: from it nothing is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import by_name, check_number, check_seconds, check_whole
from minfer.basics.limits import clock, deadline_of, start_clock
from minfer.basics.words import counted
from minfer.engine.conditioning import Conditioned, condition
from minfer.engine.decomposition import only_tables
from minfer.engine.elimination import CliqueTree, clique_tree
from minfer.engine.message_state import MessageState
from minfer.engine.support import lift
from minfer.engine.wiring import ranges
from minfer.errors import ContradictionError, RefusedError
from minfer.factors.group import FactorGroup, components
from minfer.graph import FactorGraph
from minfer.solvers.base import Marginals, check_start
from minfer.solvers.bp import BeliefPropagation, at_rest
from minfer.solvers.clique_passes import check_tree, pass_messages
from minfer.solvers.prepared import Preparable
from minfer.solvers.simplified import solvable
from minfer.solvers.status import LOST_RANGE, LogZ, Status

#: Cells of a window in the first round, and how much more in each further one.
FIRST_CELLS, GROWTH = 1 << 12, 4
#: Rounds of fitting a factor's belief to its variables' marginals.
FITTING = 20
_NO_TIME = "no window was finished in time: this is belief propagation's answer"
_NO_LOOP = "no window holds a loop: this is belief propagation's answer"


@by_name
@dataclass(frozen=True, kw_only=True)
class Windows(Preparable):
    """Exact inference in a window around each few variables, messages at its border.

    Parameters
    ----------
    max_cells : int
        Cells of all cliques of a window, at most.
    core : int
        Variables whose marginals are read off one window, at most.
    tol : float
        A core that four times the cells moved by less is done.
    max_iters : int
        Of belief propagation, which comes first.
    time_limit : float or None
        Seconds after which the answer so far is returned with status ``time limit``.

    Notes
    -----
    For large models with strong couplings whose correlations decay: grids, images, lattices.
    Answers with status ``exact`` where all of the model fits into one window. The error estimate
    is how far a marginal was moved by the last window that was larger than the one before, the
    largest of all variables; 1 where some have no window with a loop. log Z, and status and
    iterations of an answer that is not exact, are belief propagation's.

    Examples
    --------
    >>> import numpy as np
    >>> from minfer import BeliefPropagation, Exact, FactorGraph, Windows
    >>> rng = np.random.default_rng(0)
    >>> field, weights = 0.5 * rng.normal(size=(14, 14)), 2.0 * rng.normal(size=364)
    >>> spins = FactorGraph.grid(field, weights, feature="equal")
    >>> truth = Exact()(spins).probs
    >>> solvers = BeliefPropagation(damping=0.5), Windows(max_cells=2**16)
    >>> plain, windows = (float(abs(s(spins).probs - truth).mean()) for s in solvers)
    >>> windows < plain / 3  # 0.02 and 0.13
    True
    """

    max_cells: int = 1 << 20
    core: int = 16
    tol: float = 1e-4
    max_iters: int = 1000
    time_limit: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_cells", "core", "max_iters"):
            check_whole(name, getattr(self, name), 1)
        check_number("tol", self.tol, 0.0)
        check_seconds("time_limit", self.time_limit)

    def __call__(self, graph: FactorGraph, start: Marginals | None = None) -> Marginals:
        began = start_clock(self.time_limit)
        check_start(start)
        deadline = deadline_of(self.time_limit, began)
        model = condition(graph)
        try:
            found = solvable(model, float(self.max_cells), (deadline - clock()) / 4)
            tree = found.tree
            if tree.complete and tree.cells <= self.max_cells:
                check_tree(tree)
                return found.solve(self, graph, began, deadline)
        except RefusedError:
            pass
        plain = BeliefPropagation(max_iters=self.max_iters)
        first, _ = at_rest(plain, graph, start, deadline)
        return self.around(graph, model, first, began, deadline)

    def around(
        self, graph: FactorGraph, model: Conditioned, first: Marginals, began: float,
        deadline: float = math.inf,
    ) -> Marginals:  # fmt: skip
        """The answer from what belief propagation left."""
        if not isinstance(first.state, MessageState) or first.state.is_forest:
            return replace(first, solver=self)
        if clock() >= deadline:  # rounds of a large model take a while to be set up
            return replace(
                first, solver=self, status=Status.TIME_LIMIT, error_estimate=1.0, note=_NO_TIME
            )
        run = Rounds(self, graph, model, first)
        run.until(deadline)
        return run.answer(began)


class _Core(NamedTuple):
    """Variables read off one window, and how far it reaches."""

    members: NDArray[np.int64]
    window: NDArray[np.int64]
    is_read: bool = False  # off that window; False: the answer is still belief propagation's


class Rounds:
    """The cores of one call and their answers, from what belief propagation left."""

    def __init__(
        self, settings: Windows, graph: FactorGraph, model: Conditioned, first: Marginals
    ) -> None:
        assert isinstance(first.state, MessageState)
        self.settings, self.graph, self.model, self.first = settings, graph, model, first
        self.off = model.graph._offsets
        self.flat, self.at = model.arrays.scopes, model.arrays.places
        self.begin = np.cumsum([0, *(len(g) for g in model.groups)])  # of each group's factors
        self.whole = np.repeat([g.form != "messages" for g in model.groups], np.diff(self.begin))
        told, place = first.state.told(), np.argsort(self.flat.ids, kind="stable")
        at = np.searchsorted(self.flat.ids[place], told.factor)
        self.told = told._replace(factor=place[at])  # its place in the model's groups
        self.number = np.full(model.graph.n_variables, -1, dtype=np.int32)
        self.probs = np.array(first.probs)
        self.todo: list[_Core] = []  # of this round; in the first, as far as they are made
        self.left: list[_Core] = []  # for the next one
        self.cells = min(FIRST_CELLS, settings.max_cells)
        self.took = 0.0  # seconds of this round
        self.moved = [0.0]  # the furthest of any marginal, round by round
        #: How far its last larger window moved each variable; 1 where none held a loop.
        self.shift = np.ones(model.graph.n_variables)
        self.shift[~self._is_tied] = 0.0
        self.n_cores, self.most, self.largest = 0, 0.0, 0
        self._unmade = self._cores()
        self._make()

    @property
    def _is_tied(self) -> NDArray[np.bool_]:
        """Free variables with factors; the others' marginals are known."""
        return (self.model.fixed < 0) & (np.diff(self.at.vptr) > 0)

    def _cores(self) -> Iterator[NDArray[np.int64]]:
        """Free variables with factors in connected parts of at most ``core``."""
        taken = ~self._is_tied
        for v in np.flatnonzero(~taken).tolist():
            if taken[v]:
                continue
            part = np.array([v])
            taken[v] = True
            edge = part
            while len(part) < self.settings.core:
                near = self._neighbours(edge)
                edge = near[~taken[near]][: self.settings.core - len(part)]
                if not len(edge):
                    break
                taken[edge] = True
                part = np.concatenate([part, edge])
            yield np.sort(part)

    def _make(self) -> None:
        """One more core of the first round: all at once they take as long as many sweeps."""
        for members in self._unmade:
            self.todo.append(_Core(members, members))
            self.n_cores += 1
            return

    def take(self) -> _Core:
        """The next core of this round."""
        core = self.todo.pop()
        if not self.todo:
            self._make()
        return core

    def _factors(self, variables: NDArray[np.int64]) -> NDArray[np.int64]:
        lo = self.at.vptr[variables]
        every = self.at.vfac[ranges(lo, self.at.vptr[variables + 1] - lo)]
        return np.unique(every).astype(np.int64)

    def _scopes(self, factors: NDArray[np.int64]) -> NDArray[np.int32]:
        lo = self.flat.fptr[factors]
        return self.flat.scope[ranges(lo, self.flat.fptr[factors + 1] - lo)]

    def _neighbours(self, variables: NDArray[np.int64]) -> NDArray[np.int64]:
        """Variables of the factors over some, those with a machine or table; sorted."""
        factors = self._factors(variables)
        return np.unique(self._scopes(factors[self.whole[factors]])).astype(np.int64)

    def until(self, deadline: float) -> bool:
        """Round after round; whether all were finished in time. Can be gone on with."""
        while self.todo or self.left:
            if not self.todo:
                if self.cells >= self.settings.max_cells:
                    break
                if clock() + GROWTH / 2 * self.took > deadline:
                    return False
                self.todo, self.left, self.took = self.left, [], 0.0
                self.cells = min(self.cells * GROWTH, self.settings.max_cells)
                self.moved.append(0.0)
            began = clock()
            while self.todo:
                if clock() > deadline:
                    return False
                self._answer(self.take())
            self.took += clock() - began
        return True

    def _answer(self, core: _Core) -> None:
        """Exact marginals of a core in as large a window as this round allows."""
        grown = self._grow(core, self.cells)
        if grown is None:  # the core itself is too wide
            half = len(core.members) // 2
            if half:
                self.todo += [_Core(c, c) for c in (core.members[half:], core.members[:half])]
            else:
                self.left.append(core)
            return
        window, model, tree = grown
        if core.is_read and len(window) == len(core.window):
            self.left.append(core)  # no further layer fits
            return
        try:
            found = pass_messages(model, tree).probs
        except ContradictionError:  # more than messages tell: their answer stays
            self.left.append(core)
            return
        far = self._read(core.members, window, found)
        if self._is_plain(window):
            self.shift[core.members] = 1.0
            self.left.append(_Core(core.members, window, True))
            return
        self.moved[-1] = max(self.moved[-1], far)
        self.most = max(self.most, tree.cells)
        self.largest = max(self.largest, len(window))
        if far > self.settings.tol:
            self.left.append(_Core(core.members, window, True))

    def _is_plain(self, window: NDArray[np.int64]) -> bool:
        """Whether it is belief propagation: a tree, cut out of something larger."""
        n = len(window)
        _, size, local, inside = self._touching(window)
        if inside.all():
            return False
        variable = local[np.repeat(inside, size)].astype(np.int64)
        factor = np.repeat(np.arange(int(inside.sum())), size[inside])
        nodes = n + int(inside.sum())
        parts = len(np.unique(components(nodes, variable, factor + n)))
        return len(variable) == nodes - parts

    def _grow(
        self, core: _Core, cells: int
    ) -> tuple[NDArray[np.int64], Conditioned, CliqueTree] | None:
        """The largest window of whole layers; None if not even the core fits."""
        best = None
        window = core.window
        while True:
            model = self._part(window)
            try:
                model = only_tables(model)
                tree = clique_tree(model, float(cells))
                if not tree.complete or tree.cells > cells:
                    break
                check_tree(tree)
            except RefusedError:
                break
            best = window, model, tree
            wider = np.union1d(window, self._neighbours(window))
            if len(wider) == len(window) or self.model.graph._n_states[wider].sum() > cells:
                break  # its cliques have at least as many cells as it has states
            window = wider
        if best is None and len(core.window) > len(core.members):
            return self._grow(_Core(core.members, core.members), cells)
        return best

    def _touching(
        self, window: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32], NDArray[np.bool_]]:
        """Factors over variables of a window, arities, scopes by place in it, and who is inside."""
        self.number[window] = np.arange(len(window), dtype=np.int32)
        factors = self._factors(window)
        size = self.flat.fptr[factors + 1] - self.flat.fptr[factors]
        local = self.number[self._scopes(factors)]
        self.number[window] = -1
        inside = self.whole[factors]
        inside &= np.logical_and.reduceat(local >= 0, np.cumsum(size) - size)
        return factors, size, local, inside

    def _part(self, window: NDArray[np.int64]) -> Conditioned:
        """The model of a window: factors inside it, fields with the messages of those it cuts."""
        factors, _, _, mask = self._touching(window)
        inside = factors[mask]
        number = self.number
        number[window] = np.arange(len(window), dtype=np.int32)
        groups: list[FactorGroup] = []
        for k in np.unique(np.searchsorted(self.begin, inside, side="right") - 1):
            rows = inside[(inside >= self.begin[k]) & (inside < self.begin[k + 1])] - self.begin[k]
            part = self.model.groups[k].take(rows, np.arange(len(rows)))
            groups.append(part.replace(_scope=np.ascontiguousarray(number[part._scope])))
        states = self.model.graph._n_states[window]
        field = self.model.field[ranges(self.off[window], states)].copy()
        told = self.told  # the messages of factors that are not inside
        lo = told.vptr[window]
        which = ranges(lo, told.vptr[window + 1] - lo)
        owner = np.repeat(np.arange(len(window)), told.vptr[window + 1] - lo)
        cut = ~np.isin(told.factor[which], inside)
        which, owner = which[cut], owner[cut]
        size = states[owner].astype(np.int64)
        first = np.cumsum(states) - states
        np.add.at(field, ranges(first[owner], size), told.log[ranges(told.ptr[which], size)])
        number[window] = -1
        return Conditioned(
            FactorGraph.empty(states), 0.0, field, np.full(len(window), -1, np.int32), tuple(groups)
        )

    def _read(self, members: NDArray, window: NDArray, found: NDArray[np.float64]) -> float:
        """Take over a core's marginals; how far the furthest moved."""
        states = self.model.graph._n_states[window].astype(np.int64)
        first = np.cumsum(states) - states
        mine = np.searchsorted(window, members)
        new = found[ranges(first[mine], states[mine])]
        here = ranges(self.off[members], states[mine])
        off = np.abs(new - self.probs[here])
        self.probs[here] = new
        self.shift[members] = np.maximum.reduceat(off, np.cumsum(states[mine]) - states[mine])
        return float(off.max())

    @property
    def finished(self) -> bool:
        """Whether no larger window is allowed or needed."""
        return not self.todo and (not self.left or self.cells >= self.settings.max_cells)

    def answer(self, began: float) -> Marginals:
        """From the windows so far; status and iterations are belief propagation's."""
        probs, first = self.probs.copy(), self.first
        lift(self.model, probs)
        if self.largest:
            note = (
                f"{counted(self.n_cores, 'window')} of up to {self.largest:,} variables and "
                f"{self.most:,.0f} cells; round by round a marginal moved by up to "
                + ", ".join(f"{x:.2g}" for x in self.moved)
            )
        else:
            note = _NO_LOOP if self.finished else _NO_TIME
        if LOST_RANGE in first.note:
            note = f"belief propagation {first.note}; {note}"
        return Marginals(
            self.graph, probs, self.settings,
            first.status if self.finished else Status.TIME_LIMIT, LogZ.ESTIMATE,
            first.iterations, first.residuals, {"solve": clock() - began},
            error_estimate=float(self.shift.max(initial=0.0)), note=note,
            state=WindowsState(first, probs),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class WindowsState:
    """What belief propagation left, and the marginals."""

    first: Marginals
    probs: NDArray[np.float64]

    def log_z(self) -> float:
        return self.first.log_z

    def factor(self, factor: int) -> NDArray[np.float64] | None:
        """Belief propagation's belief, fitted to the variables' marginals as far as zeros allow."""
        assert self.first.state is not None
        joint = self.first.state.factor(factor)
        if joint is None:
            return None
        graph = self.first.graph
        out = np.array(joint)
        for _ in range(FITTING):
            for a, v in enumerate(graph.scope(factor)):
                now = out.sum(axis=tuple(b for b in range(out.ndim) if b != a))
                want = self.probs[graph._offsets[v] : graph._offsets[v + 1]]
                ratio = np.divide(want, now, out=np.zeros_like(now), where=now > 0)
                out *= ratio.reshape([-1 if b == a else 1 for b in range(out.ndim)])
        total = out.sum()
        return out / total if total > 0 else np.array(joint)
