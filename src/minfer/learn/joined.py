"""Instances as solvers and objectives want them: joined, with labels counted.

A *block* is several instances as one graph: their union, with X stacked. A solver is prepared for
it once and then runs on other numbers at every step. An instance with several observations (N, V)
is a block of its own, since one free run answers for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.engine.conditioning import condition
from minfer.errors import ContradictionError, ModelError
from minfer.graph import FactorGraph

if TYPE_CHECKING:
    from minfer.factors.group import FactorGroup
    from minfer.learn.model import Instance, Matrix
    from minfer.solvers.base import Marginals

Floats = NDArray[np.float64]

#: Variables of a union, beyond which another begins.
MOST_VARIABLES = 1 << 14
#: Numbers of factors beyond which weights have run away; graphs take 1e300.
MOST_THETA = 1e290
#: States of factors' scopes that are looked at together.
AT_ONCE = 1 << 22


class Evaluation(NamedTuple):
    """The sum of a loss over some instances, not divided by their labels, and what it took."""

    value: float
    gradient: Floats
    converged: bool = True  # whether all runs of the solver did
    seconds: float = 0.0  # CPU seconds of inference


class JoinedBlock:
    """Several instances as one graph, with X stacked, theta_0 and labels (N, V)."""

    def __init__(self, instances: Sequence[Instance]) -> None:
        self.instances = list(instances)
        if len(self.instances) == 1:
            self.graph = self.instances[0].graph
            self.x = self.instances[0].features
            self.labels = self.instances[0].labels
        else:
            counts = sorted({len(one.labels) for one in self.instances})
            if len(counts) > 1:
                raise ModelError(
                    f"instances with {counts[0]} and {counts[-1]} observations cannot be one "
                    "block: evaluate them apart and add up, as fit does"
                )
            self.graph = union([one.graph for one in self.instances])
            self.x = stacked([one.features for one in self.instances])
            self.labels = np.concatenate([one.labels for one in self.instances], axis=1)
        self.theta = self.graph.weights
        self.x_t = (
            np.ascontiguousarray(self.x.T) if isinstance(self.x, np.ndarray) else self.x.T.tocsr()
        )
        self.n_labels = int((self.labels >= 0).sum())
        self.hidden = bool((self.labels < 0).any())

    @property
    def n_weights(self) -> int:
        return int(self.x.shape[1])

    def numbers(self, w: Floats) -> Floats:
        """theta_0 + X w."""
        return self.theta + self.x @ w

    def weigh(self, statistics: Floats) -> Floats:
        """X' s: what statistics of the graph's numbers are in terms of the weights."""
        return np.asarray(self.x_t @ statistics)

    def counts(self) -> Floats:
        """How often each state of each variable is a label, flat (sum of states,)."""
        offsets = self.graph._offsets
        at = (offsets[:-1] + self.labels)[self.labels >= 0]
        return np.bincount(at, minlength=int(offsets[-1])).astype(np.float64)

    def at_labels(self, labels: NDArray[np.int32] | None = None) -> tuple[float, Floats]:
        """log-score of labels of all variables at w = 0, and X' phi(labels), over observations."""
        labels = self.labels if labels is None else labels
        scores = self.graph.log_score(labels)
        if not np.isfinite(scores).all():
            raise self.contradiction()
        s = np.zeros(len(self.theta))
        for g in self.graph.groups:
            places = self._places(g)
            for _, rows, states in _occurrences(g, labels):
                f, column, value = g._statistics_at(rows, states)
                s += np.bincount(places[rows[f], column], value, len(s))
        return float(scores.sum()), self.weigh(s)

    def _places(self, group: FactorGroup) -> NDArray[np.int64]:
        """Where the numbers of a group's factors are in theta, shape (F, k)."""
        every = np.arange(len(self.theta))[self.graph._weight_places(group)]
        return every.reshape(len(group), group.n_weights)

    def bounded(self, w: Floats) -> bool:
        """Whether theta is within what a graph takes (minus infinity in theta_0 stays)."""
        moved = self.x @ w
        return bool(np.isfinite(moved).all()) and np.abs(moved).max(initial=0.0) < MOST_THETA

    def check_labels(self) -> None:
        """Find labels that a hard factor forbids, as far as conditioning on them shows it."""
        graph = self.graph
        soft = graph._field is None or np.isfinite(graph._field).all()
        if (not soft or any(g.has_zeros for g in graph.groups)) and self._forbidden():
            raise self.contradiction()

    def contradiction(self, error: ContradictionError | None = None) -> ContradictionError:
        """The error about an instance whose labels a hard factor forbids."""
        where = self._forbidden()
        if where:
            return ContradictionError(
                f"{where}: a hard factor forbids its labels: change the labels or the factor"
            )
        return error or ContradictionError("a hard factor forbids the labels of an instance")

    def _forbidden(self) -> str:
        """The first instance whose labels a hard factor forbids; empty if none is found."""
        for k, one in enumerate(self.instances):
            where = one.name or f"instance {k}"
            full = (one.labels >= 0).all(axis=1)
            if full.any() and not np.isfinite(one.graph.log_score(one.labels[full])).all():
                return where
            for labels in np.unique(one.labels[~full], axis=0):
                try:
                    condition(clamped(one.graph, labels))
                except ContradictionError:
                    return where
        return ""

    def conditionals(self) -> tuple[Floats, Matrix]:
        """c (N * sum of states,) and C (N * sum of states, W): scores of every state of every
        variable are c + C w, all others at their labels."""
        from scipy import sparse

        graph, n = self.graph, len(self.labels)
        size = int(graph._offsets[-1])
        base = np.zeros(n * size) if graph._field is None else np.tile(graph._field, n)
        rows, columns, values = [], [], []
        for g in graph.groups:
            places = self._places(g)
            for observation, factors, states in _occurrences(g, self.labels):
                for k, s in ((k, s) for k, size in enumerate(g.shape) for s in range(size)):
                    moved = states.copy()
                    moved[:, k] = s
                    place = graph._offsets[g._scope[factors, k]] + s + observation * size
                    base += np.bincount(place, g.score(factors, moved), len(base))
                    f, column, value = g._statistics_at(factors, moved)
                    rows.append(place[f])
                    columns.append(places[factors[f], column])
                    values.append(value)
        if not rows:
            return base, sparse.csr_array((n * size, self.n_weights))
        c = sparse.csr_array(
            (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
            shape=(n * size, len(self.theta)),
        )
        out = c @ self.x
        return base, out if isinstance(out, np.ndarray) else sparse.csr_array(out)


def clamped(graph: FactorGraph, labels: NDArray[np.int32]) -> FactorGraph:
    """The graph with its labels known."""
    log_field = graph.field.copy()
    known = np.flatnonzero(labels >= 0)
    at = graph._offsets[:-1][known] + labels[known]
    kept = log_field[at]
    excluded = np.repeat(labels >= 0, graph._n_states)
    log_field[excluded] = -np.inf
    log_field[at] = kept
    return graph._renumbered(_field=log_field)


def _occurrences(
    group: FactorGroup, labels: NDArray[np.int32]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """A group's factors in all observations, in portions: observation, factor, states (n, A)."""
    if not len(group) or not group.arity:
        return
    portion = max(1, AT_ONCE // (len(group) * group.arity))
    for begin in range(0, len(labels), portion):
        some = labels[begin : begin + portion]
        states = some[:, group._scope].astype(np.int64).reshape(-1, group.arity)
        observation = np.repeat(np.arange(begin, begin + len(some)), len(group))
        yield observation, np.tile(np.arange(len(group)), len(some)), states


def stacked(parts: Sequence[Matrix]) -> Matrix:
    """Matrices one above the other: dense if all are."""
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    from scipy import sparse

    return sparse.csr_array(sparse.vstack([sparse.csr_array(part) for part in parts], format="csr"))


def union(graphs: Sequence[FactorGraph]) -> FactorGraph:
    """Graphs side by side as one; its numbers are theirs, one graph's after the other's."""
    n_states = np.concatenate([g._n_states for g in graphs])
    alike: dict[Any, list[FactorGroup]] = {}
    variables = factors = 0
    for graph in graphs:
        for g in graph.groups:
            moved = g.replace(_ids=g._ids + factors, _scope=(g._scope + variables).astype(np.int32))
            key = g._alike()
            alike.setdefault(len(alike) if key is None else key, []).append(moved)
        variables += graph.n_variables
        factors += graph.n_factors
    field = None
    if any(g._field is not None for g in graphs):
        field = np.concatenate([g.field for g in graphs])
    return FactorGraph(n_states, tuple(g[0]._joined(g) for g in alike.values()), _field=field)


class JoinedInference:
    """A solver on one structure, with other numbers at every call; a tree-reweighted one has the
    edge weights that it would have on each instance alone, of which it will be asked later."""

    def __init__(self, solver: Any, graph: FactorGraph, parts: Sequence[FactorGraph]) -> None:
        lends = hasattr(solver, "lending") and isinstance(solver.weights, str)
        if lends and len(parts) > 1:
            seen: dict[Any, Floats] = {}
            rho = []
            for part in parts:
                fixed = b"" if part._field is None else np.isneginf(part._field).tobytes()
                key = (part.n_variables, *(g._scope.tobytes() for g in part.groups), fixed)
                if key not in seen:
                    seen[key] = solver.appearance(part)
                rho.append(seen[key])
            solver = solver.lending(graph, np.concatenate(rho))
        self.solver = solver
        self.graph = graph
        self.run = solver.prepare(graph) if hasattr(solver, "prepare") else None
        self._short: dict[int, Any] = {}

    def __call__(
        self, theta: Floats, start: Marginals | None = None, sweeps: int | None = None
    ) -> Marginals:
        """The answer for these numbers; after so many sweeps at most."""
        if self.run is None:
            return self.solver(self.graph.with_weights(theta), start)
        if sweeps is None or not hasattr(self.solver, "max_iters"):
            return self.run(weights=theta, start=start)
        if sweeps not in self._short:
            self._short[sweeps] = copy(self.run)
            self._short[sweeps].solver = replace(self.solver, max_iters=sweeps)
        return self._short[sweeps](weights=theta, start=start)


def blocks_of(instances: Sequence[Instance], size: int | None = None) -> list[list[Instance]]:
    """Instances in portions that become one block each: at most ``size`` of them."""
    out: list[list[Instance]] = []
    room = 0
    for one in instances:
        n = one.graph.n_variables
        alone = len(one.labels) > 1
        if not out or alone or room < n or (size is not None and len(out[-1]) >= size):
            out.append([])
            room = MOST_VARIABLES
        out[-1].append(one)
        room = 0 if alone else room - n
    return out
