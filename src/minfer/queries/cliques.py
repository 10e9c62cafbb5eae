"""A clique tree for questions that need it once, but in other ways than the solver does.

Messages towards the roots are those of the solver's own pass
(:mod:`minfer.kernels.cliques.streamed`), sums or maxima. Here are: a clique's table at given states
of its separator, and *cavities*, the sum over everything else of all factors but one. All numbers
are logarithms, and nothing is ever divided by a message, so zeros cost nothing but care. Where some
variables are maximised after all others were summed, no clique eliminates both kinds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.basics.limits import clock
from minfer.engine.conditioning import Conditioned
from minfer.engine.elimination import Adjacency, CliqueTree, adjacency
from minfer.engine.layout import Flat, ends
from minfer.errors import RefusedError
from minfer.graph import FactorGraph
from minfer.solvers.clique_passes import collect_messages
from minfer.solvers.exact import Exact, within_limits
from minfer.solvers.plans import tree_for

if TYPE_CHECKING:
    from minfer.solvers.circuit import Circuit

_JUDGED = 0.05  # of the time there is: then its pace tells whether a pass will end in time,
_ROUGHLY = 1.25  # or so much later
Table = NDArray[np.float64]
Factor = tuple[tuple[int, ...], Table]  # scope, and logarithms of that shape


def factors_of(model: Conditioned) -> list[Factor]:
    """The tables of a model over its free variables, then the free variables' fields."""
    out: list[Factor] = [
        (tuple(scope), np.asarray(table).reshape(g.shape))
        for g in model.groups
        for scope, table in zip(g._scope.tolist(), g.log_tables())
    ]
    fields = np.split(model.field, model.graph._offsets[1:-1])
    return out + [((v,), fields[v]) for v in np.flatnonzero(model.fixed < 0).tolist()]


def constant_of(model: Conditioned) -> float:
    return model.constant + float(model.field[model.fixed_at].sum())


def check_fits(
    tree: CliqueTree, who: str, advice: str, max_gib: float, time_limit: float | None
) -> None:
    """Raise RefusedError, with an estimate, where a tree is beyond the limits."""
    limits = Exact(max_gib=max_gib, time_limit=time_limit)
    try:
        limits.check(tree)
    except RefusedError as error:
        text = str(error).removeprefix("Exact: ").partition(" BeliefPropagation")[0]
        raise RefusedError(f"{who}: {text} {advice}") from None


def planned(
    home: FactorGraph,
    model: Conditioned,
    who: str,
    advice: str,
    max_gib: float,
    time_limit: float | None = None,
    deadline: float = math.inf,
    *,
    shape: Adjacency | None = None,
    last: NDArray[np.bool_] | None = None,
    seconds: float = math.inf,
) -> Cliques:
    """The tables of a model with evidence, in a tree that is kept with ``home``, the one without;
    refused beyond the limits."""
    graph = model.graph
    tree = tree_for(home, shape or adjacency(model), graph.n_variables, last, seconds)
    check_fits(tree, who, advice, max_gib, time_limit)
    return Cliques(graph._n_states, factors_of(model), tree, deadline)


def circuit_for(
    graph: FactorGraph, refusal: RefusedError, max_gib: float, time_limit: float | None = None
) -> Circuit:
    """A circuit in place of a tree that was refused: at hand, or made within limits of work."""
    from minfer.solvers.circuit import Circuit, kept_circuit

    known = kept_circuit(graph)
    if known is not None:
        return known
    if time_limit is not None and time_limit <= 0.0:
        raise refusal
    solver = Exact(max_gib=max_gib, time_limit=time_limit)
    return within_limits(solver, graph, refusal, lambda s: Circuit(s, graph, ()))


class Cliques:
    """A clique tree with its tables; messages of children come behind the ``factors``."""

    def __init__(
        self,
        n_states: NDArray[np.int32],
        factors: Sequence[Factor],
        tree: CliqueTree,
        deadline: float = math.inf,
    ) -> None:
        self.card = n_states.tolist()
        self.factors = list(factors)
        self.tree = tree
        self.deadline = deadline
        ptr, variables = tree.ptr.tolist(), tree.variables.tolist()
        n_eliminated = tree.n_eliminated.tolist()
        self.n = len(tree.parent)
        self.parent = tree.parent.tolist()
        self.rest = [variables[ptr[c] : ptr[c] + n_eliminated[c]] for c in range(self.n)]
        self.separator = [variables[ptr[c] + n_eliminated[c] : ptr[c + 1]] for c in range(self.n)]
        self.own: list[list[int]] = [[] for _ in range(self.n)]  # factors at home in a clique
        for i, c in enumerate(tree.homes(*self._scopes).tolist()):
            self.own[c].append(i)
        self.children: list[list[int]] = [[] for _ in range(self.n)]
        for c, p in enumerate(self.parent):
            if p >= 0:
                self.children[p].append(c)
        self.up: list[Table] = [np.zeros(())] * self.n
        self.maximal = np.zeros(self.n, dtype=np.bool_)  # cliques whose rest is maximised

    def check_clock(self) -> None:
        if clock() > self.deadline:
            raise RefusedError("the time limit passed before the answer was complete; raise it")

    def check_pace(self, began: float, done: float) -> None:
        """End a pass of which a share is done where the rest would outlast the time limit."""
        spent, there_is = clock() - began, self.deadline - began
        if spent > there_is or _JUDGED * there_is < spent > _ROUGHLY * done * there_is:
            raise RefusedError("the time limit would pass before the answer is complete; raise it")

    # ------------------------------------------------------------ towards the roots

    def collect(self, maximise: Sequence[int] = (), impossible: bool = False) -> float:
        """Messages of all cliques, ``maximise`` variables maximised; log of the whole.

        Raises ContradictionError where nothing is possible, unless ``impossible`` is on purpose.
        """
        chosen, began = set(maximise), clock()
        self.maximal = np.array([rest[0] in chosen for rest in self.rest], dtype=np.bool_)
        done = np.cumsum([0.0, *self.tree.clique_cells]) / max(self.tree.cells, 1.0)
        inputs, values, scale, _ = collect_messages(
            self._flat(), self.tree, lambda c: self.check_pace(began, float(done[c])),
            self.maximal, impossible=impossible,
        )  # fmt: skip
        ends = inputs.message.tolist()
        for c in range(self.n):  # children come first
            if self.parent[c] >= 0:
                scale[self.parent[c]] += scale[c]
            shape = [self.card[v] for v in self.separator[c]]
            self.up[c] = values[ends[c] : ends[c + 1]].reshape(shape) + scale[c]
        return sum(float(self.up[c]) for c in range(self.n) if self.parent[c] < 0)

    @property
    def _scopes(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        scopes = [f[0] for f in self.factors]
        every = np.array([v for scope in scopes for v in scope], dtype=np.int32)
        return ends([len(scope) for scope in scopes]), every

    def _flat(self) -> Flat:
        """The factors end to end; fields are among them."""
        tables, off = [f[1].ravel() for f in self.factors], ends(self.card)
        return Flat(
            np.array(self.card, dtype=np.int32), off, np.zeros(int(off[-1])),
            np.arange(len(tables)), *self._scopes, ends([len(t) for t in tables])[:-1],
            np.concatenate([np.zeros(0), *tables]),
        )  # fmt: skip

    def _inputs(self, c: int) -> list[Factor]:
        return [
            *(self.factors[i] for i in self.own[c]),
            *((tuple(self.separator[k]), self.up[k]) for k in self.children[c]),
        ]

    # ------------------------------------------------------------ from the roots

    def local(self, c: int, x: NDArray[np.int32]) -> Table:
        """A clique's table at separator states x (U, V): (U, cells of its rest)."""
        axes = self.rest[c]
        sizes = [self.card[v] for v in axes]
        parts = []
        for scope, table in self._inputs(c):
            outer = [v for v in scope if v not in axes]
            inner = [v for v in axes if v in scope]
            part = table.transpose([scope.index(v) for v in (*outer, *inner)])
            part = part[tuple(x[:, v] for v in outer)] if outer else part[None]
            shape = [size if v in scope else 1 for v, size in zip(axes, sizes)]
            parts.append(part.reshape(len(part), *shape))
        return _added(parts, [len(x), *sizes]).reshape(len(x), -1)

    def put(self, c: int, cell: NDArray[np.int64], x: NDArray[np.int32]) -> None:
        """Write cells (U,) of a clique's rest into assignments x (U, V)."""
        states = np.unravel_index(cell, [self.card[v] for v in self.rest[c]])
        for v, s in zip(self.rest[c], states):
            x[:, v] = s

    # ------------------------------------------------------------ cavities

    def cavities(self) -> list[Table]:
        """Of each factor, after a :meth:`collect` of sums: log of the sum of all others."""
        out: list[Table] = [np.zeros(())] * len(self.factors)
        down: list[Table] = [np.zeros(())] * self.n
        apart = self._roots()
        for c in range(self.n - 1, -1, -1):
            self.check_clock()
            axes = [*self.separator[c], *self.rest[c]]
            sizes = [self.card[v] for v in axes]
            inputs = [aligned(f, axes) for f in self._inputs(c)]
            above = aligned((tuple(self.separator[c]), down[c]), axes)
            if self.parent[c] < 0:
                above = np.full((1,) * len(axes), apart[c])
            n_own = len(self.own[c])
            for k, (scope, _) in enumerate(self._inputs(c)):
                others = _added([*inputs[:k], *inputs[k + 1 :], above], sizes)
                rest = tuple(a for a, v in enumerate(axes) if v not in scope)
                left = [v for v in axes if v in scope]
                table = _log_sum(others, rest).transpose([left.index(v) for v in scope])
                if k < n_own:
                    out[self.own[c][k]] = table
                else:
                    down[self.children[c][k - n_own]] = table
        return out

    def _roots(self) -> dict[int, float]:
        """For each root what the other trees sum to."""
        value = {c: float(self.up[c]) for c in range(self.n) if self.parent[c] < 0}
        return {c: sum(x for d, x in value.items() if d != c) for c in value}


def aligned(factor: Factor, axes: list[int]) -> Table:
    """A table with the axes of a clique, of size 1 where it does not depend on them."""
    scope, table = factor
    place = {v: a for a, v in enumerate(axes)}
    order = sorted(range(len(scope)), key=lambda k: place[scope[k]])
    shape = [1] * len(axes)
    for k in order:
        shape[place[scope[k]]] = table.shape[k]
    return table.transpose(order).reshape(shape)


def _added(inputs: list[Table], sizes: list[int]) -> Table:
    total: Table = np.zeros((1,) * len(sizes))
    for a in sorted(inputs, key=lambda a: a.size):
        total = total + a
    return total if list(total.shape) == sizes else np.array(np.broadcast_to(total, sizes))


def _log_sum(table: Table, axes: tuple[int, ...]) -> Table:
    """log-sum-exp over some axes; minus infinity where there is nothing."""
    if not axes:
        return table
    top = table.max(axis=axes, keepdims=True)
    top = np.where(top > -np.inf, top, 0.0)
    with np.errstate(divide="ignore"):
        total = np.log(np.exp(table - top).sum(axis=axes))
    return total + top.reshape(total.shape)
