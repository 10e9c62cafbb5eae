"""Clique trees of simplified models: which model is solved, and its answers in the user's terms.

A tree is laid over the model as it is where that is cheap, and over what
:func:`~minfer.engine.simplify.simplify` leaves of it elsewhere. States that became one are
independent of all others given that one, so a joint marginal is the one of the smaller model times
the shares; excluded states have probability zero. A derivative along T moves a state a of the
merged state A by

    d p(a) = share(a) d p(A) + p(a) (T(a) - E[T | A]).

A factor's variables need not lie in one clique of the smaller model: then a tree is laid that holds
them together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.limits import clock
from minfer.engine.conditioning import Conditioned
from minfer.engine.decomposition import only_tables
from minfer.engine.elimination import CliqueTree, clique_tree
from minfer.engine.layout import ends
from minfer.engine.simplify import Simplified, simplify
from minfer.errors import RefusedError
from minfer.factors.group import MAX_TABLE_CELLS, n_entries
from minfer.factors.tables import Tables
from minfer.solvers.base import LogZ, Marginals, Solver, Status
from minfer.solvers.clique_passes import (
    CliqueTreeState,
    MovedTree,
    check_tree,
    pass_means,
    pass_messages,
)

if TYPE_CHECKING:
    from minfer.graph import FactorGraph

#: Cells of a tree, and for each cell of a table, with zeros and without, up to which simplifying
#: is not tried: it takes about a microsecond for each of the latter, and finds little in models
#: without zeros.
SMALL_TREE, WITH_ZEROS, WITHOUT = 2.0**20, 64.0, 1024.0

Floats = NDArray[np.float64]


class Solvable(NamedTuple):
    """A model in tables, and a clique tree over it."""

    tables: Conditioned
    tree: CliqueTree
    simplified: Simplified | None  # what the tables are of, if not of the model itself

    @property
    def note(self) -> str:
        return "" if self.simplified is None else self.simplified.note

    def solve(
        self, solver: Solver, graph: FactorGraph, began: float, deadline: float = math.inf
    ) -> Marginals:
        """The exact answer."""
        if self.simplified is None:
            from minfer.solvers.prepared import solve

            return solve(solver, graph, self.tables, self.tree, began, deadline)
        planned = clock()
        answer = pass_messages(self.tables, self.tree, deadline=deadline)
        state = SimplifiedState(
            graph, self.simplified, self.tables, self.tree, answer.probs, answer.log_z
        )
        return Marginals(
            graph, state.probs, solver, Status.EXACT, LogZ.EXACT,
            timings={"order": planned - began, "messages": clock() - planned},
            note=self.note, state=state,
        )  # fmt: skip


def solvable(
    model: Conditioned, max_cells: float = math.inf, seconds: float = math.inf,
    memory: float = math.inf,
) -> Solvable:  # fmt: skip
    """The model, simplified where that may pay, with the cheapest tree found; see
    :func:`~minfer.engine.elimination.clique_tree`. RefusedError where a factor is too large."""
    tables = only_tables(model)
    until = clock() + seconds
    few, zeros = _looks_simple(model)
    # without zeros little is found, as a rule: then the tree is needed anyway
    tree = clique_tree(tables, min(few, max_cells) if zeros else max_cells, seconds, memory)
    if few >= max_cells or (tree.complete and tree.cells <= few):
        return Solvable(tables, tree, None)
    found = simplify(model)
    if found.changed:
        tables = only_tables(found.model)
    elif not zeros:
        return Solvable(tables, tree, None)
    tree = clique_tree(tables, max_cells, until - clock(), memory)
    return Solvable(tables, tree, found if found.changed else None)


def _looks_simple(model: Conditioned) -> tuple[float, bool]:
    """Cells up to which a tree is not worth simplifying the model, and whether it has zeros."""
    if any(g.form == "messages" for g in model.groups):
        return math.inf, False
    cells = sum(float(n_entries(g.shape)) * len(g) for g in model.groups if g.form == "table")
    zeros = any(g.has_zeros for g in model.groups)
    return max(SMALL_TREE, cells * (WITH_ZEROS if zeros else WITHOUT)), zeros


@dataclass(eq=False)
class SimplifiedState:
    """A clique tree over a simplified model; states are the user's."""

    graph: FactorGraph
    simplified: Simplified
    model: Conditioned  # the simplified one in tables, perhaps with auxiliary variables
    tree: CliqueTree
    simple_probs: Floats
    value: float

    def __post_init__(self) -> None:
        n = len(self.simplified.model.field)
        self.probs = self.simplified.marginals(self.simple_probs[:n])

    def log_z(self) -> float:
        return self.value

    @cached_property
    def _inner(self) -> CliqueTreeState:
        graph = self.simplified.model.graph
        return CliqueTreeState(graph, self.model, self.tree, self.simple_probs, self.value)

    def joint(self, variables: list[int]) -> Floats:
        """Exact joint marginal of any variables."""
        return self.simplified.joint(variables, self._inner.joint(variables))

    def factor(self, factor: int) -> Floats:
        """Exact joint marginal over a factor's scope."""
        factor = self.graph.factor_index(factor)
        scope = self.graph.scope(factor).tolist()
        return self.simplified.joint(scope, self._simple(factor, self._joints, self._inner))

    def factors(self, factors: NDArray[np.int64]) -> Floats:
        """Exact joint marginals of factors of one shape, (n, cells)."""
        return np.stack([self.factor(f).ravel() for f in factors.tolist()])

    def _simple(
        self, factor: int, known: dict[tuple[int, ...], Floats], other: CliqueTreeState
    ) -> Floats:
        """What is known over a factor's scope, or else told by ``other``, in states of the
        simplified model."""
        scope = self.graph.scope(factor)
        fixed = self.model.fixed[scope]
        free = scope[fixed < 0]
        shape = [int(s) for s in self.simplified.model.graph._n_states[scope]]
        out = np.zeros(shape)
        found = known.get(tuple(free.tolist()))
        if found is None:
            found = other.joint(free.tolist())
        index = tuple(int(f) if f >= 0 else slice(None) for f in fixed)
        out[index] = found.reshape([s for s, f in zip(shape, fixed) if f < 0])
        return out

    @cached_property
    def _joints(self) -> dict[tuple[int, ...], Floats]:
        """Joint marginals by variables, of all factors whose own lie in one tree that fits."""
        model, tree, parts = self._holding
        joints = pass_messages(model, tree, joints=True).joints
        return _by_scope(model, joints, parts)

    @cached_property
    def _holding(self) -> tuple[Conditioned, CliqueTree, int]:
        """The model with a table of zeros over what is left of each factor's variables, a tree that
        holds them, and how many tables the model has of its own."""
        known: set[tuple[int, ...]] = set()
        for g in self.graph.groups:
            for scope in g._scope.tolist():
                left = tuple(v for v in scope if self.model.fixed[v] < 0)
                if len(left) > 1 and n_entries(self._sizes[list(left)].tolist()) <= MAX_TABLE_CELLS:
                    known.add(left)
        inside = [s for s in sorted(known) if self._covers(s)]
        own = sum(len(g) for g in self.model.groups)
        if len(inside) < len(known):
            whole = self._with(sorted(known))
            try:
                tree = clique_tree(whole)
                check_tree(tree)
                return whole, tree, own
            except RefusedError:
                pass
        return self._with(inside), self.tree, own

    @property
    def _sizes(self) -> NDArray[np.int32]:
        return self.model.graph._n_states

    @cached_property
    def _places(self) -> set[tuple[int, int]]:
        tree = self.tree
        clique = np.repeat(np.arange(len(tree.parent)), np.diff(tree.ptr))
        return set(zip(clique.tolist(), tree.variables.tolist()))

    def _covers(self, scope: tuple[int, ...]) -> bool:
        """Whether some clique has all these variables."""
        first = min(scope, key=self.tree.position.__getitem__)
        home = int(self.tree.home[first])
        return all((home, v) in self._places for v in scope)

    def _with(self, scopes: list[tuple[int, ...]]) -> Conditioned:
        by_shape: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        for s in scopes:
            by_shape.setdefault(tuple(self._sizes[list(s)].tolist()), []).append(s)
        extra = [
            Tables(np.full(len(some), -1), np.array(some, np.int32), shape,
                   np.zeros((1, n_entries(shape))))
            for shape, some in by_shape.items()
        ]  # fmt: skip
        model = self.model
        return Conditioned(
            model.graph, model.constant, model.field, model.fixed, (*model.groups, *extra)
        )

    def moved(self, direction: Floats, joints: bool) -> tuple[Floats, MovedJoints | None]:
        """How marginals, and those of factors, move when the field moves along a direction
        (sum S,) that is centred by them."""
        s = self.simplified
        means = s.means(direction)
        model, tree, own = self._holding if joints else (self.model, self.tree, 0)
        whole = np.zeros(len(self.model.field))
        whole[: len(means)] = means
        probs, tables = pass_means(model, tree, whole, joints)
        beside = direction - means[s._where]
        out = s.marginals(probs[: len(means)]) + self.probs * beside
        if not joints:
            return out, None
        inner = MovedTree(s.model.graph, self.model, self.tree, probs, 0.0)
        inner.direction = whole
        return out, MovedJoints(self, beside, _by_scope(model, tables, own), inner)


@dataclass(eq=False)
class MovedJoints:
    """Derivatives of the joint marginals of factors."""

    state: SimplifiedState
    beside: Floats  # (sum S,) the direction less its means over merged states
    known: dict[tuple[int, ...], Floats]
    inner: MovedTree

    def __call__(self, factors: NDArray[np.int64], shape: tuple[int, ...]) -> Floats:
        """Over the variables of factors that are free in the model before, (n, cells)."""
        return np.stack([self._of(f).ravel() for f in factors.tolist()])

    def _of(self, factor: int) -> Floats:
        state = self.state
        s, graph = state.simplified, state.graph
        scope = graph.scope(factor).tolist()
        out = np.zeros(tuple(graph._n_states[scope]))
        if (state.model.fixed[scope] < 0).any():
            out = s.joint(scope, state._simple(factor, self.known, self.inner))
        joint = state.factor(factor)
        for axis, v in enumerate(scope):
            own = self.beside[int(graph._offsets[v]) : int(graph._offsets[v + 1])]
            out = out + joint * own.reshape([-1] + [1] * (len(scope) - 1 - axis))
        fixed = s.before.fixed[scope]
        return out[tuple(int(f) if f >= 0 else slice(None) for f in fixed)]


def _by_scope(model: Conditioned, joints: Floats, own: int) -> dict[tuple[int, ...], Floats]:
    """Those of the tables behind a model's own, by their variables."""
    where = model.arrays.scopes
    first = ends(model.arrays.sizes)
    return {
        tuple(where.scope[where.fptr[k] : where.fptr[k + 1]].tolist()): joints[
            first[k] : first[k + 1]
        ]
        for k in range(own, len(where.ids))
    }
