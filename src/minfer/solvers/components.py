"""Connected components solved apart, in parallel: any solver on a graph that has fallen apart.

Variables in different components are independent, so with components C

    p(x) = prod_C p_C(x_C),        log Z = sum_C log Z_C.

A reduced graph is of this kind: what :func:`minfer.infer` keeps falls apart into many small
components. They are packed, in order, into parts of at least ``size`` variables and factors,
because a call of a solver costs more than a small component does; the packing does not depend on
the number of workers (threads), so neither do the answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, is_dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_solver, check_whole
from minfer.basics.limits import clock, start_clock
from minfer.basics.parallel import in_threads
from minfer.errors import MinferError
from minfer.graph import Component, FactorGraph
from minfer.solvers.base import Marginals, Solver, Status, check_start, in_parts
from minfer.solvers.batch import joint_kind
from minfer.solvers.bp import BeliefPropagation
from minfer.solvers.prepared import Preparable

SIZE = 1 << 16


@dataclass(frozen=True)
class Components(Preparable):
    """Solves the connected components of a graph independently, by another solver.

    Parameters
    ----------
    solver : any solver
    workers : int
        Threads.
    size : int
        Variables and factors of the components that are solved together, at least.

    Notes
    -----
    Answers equal those of the solver on the whole graph within its tolerance (iterative solvers
    stop part by part), and those of ``Gibbs`` in distribution. ``Auto`` chooses for each part.
    What a solver is told of variables or factors (blocks, edge weights) is in numbers of the whole.
    Started from an earlier answer of its own, each part continues from its part of it.

    Examples
    --------
    >>> import numpy as np
    >>> from minfer import Components, Exact, FactorGraph
    >>> edges = [[2 * k, 2 * k + 1] for k in range(1000)]
    >>> pairs = FactorGraph.pairwise(np.zeros(2000), edges, 1.0)
    >>> answer = Components(Exact(), size=100)(pairs)
    >>> round(answer.log_z / 1000, 4), answer.status.value
    (1.7437, 'exact')
    """

    solver: Solver = field(default_factory=BeliefPropagation)
    _: KW_ONLY
    workers: int = 1
    size: int = SIZE

    def __post_init__(self) -> None:
        check_solver(self.solver)
        check_whole("workers", self.workers, 1)
        check_whole("size", self.size, 1)

    def __call__(self, graph: FactorGraph, start: Marginals | None = None) -> Marginals:
        began = start_clock(getattr(self.solver, "time_limit", None))
        if not isinstance(graph, FactorGraph) or _is_independent(graph):
            return replace(self.solver(graph, start), solver=self)
        parts, starts, labels = self._parts(graph, start)
        if len(parts) == 1:
            return replace(self.solver(graph, start), solver=self)
        solvers = in_parts(self.solver, graph, parts)
        ready = clock()

        def solve(one: tuple[Solver, Component, Marginals | None]) -> Marginals:
            solver, part, first = one
            return self._solve(solver, graph, part, first, began)

        answers = in_threads(solve, [*zip(solvers, parts, starts)], self.workers)
        probs = np.empty(int(graph._offsets[-1]))
        for here, answer in zip(_places(graph, labels, len(parts)), answers):
            probs[here] = answer.probs
        residuals = np.zeros(max(len(a.residuals) for a in answers))
        for a in answers:
            mine = residuals[: len(a.residuals)]
            np.maximum(mine, a.residuals, out=mine)
        errors = [a.error_estimate for a in answers if a.error_estimate is not None]
        notes = {a.note for a in answers} - {""}
        more = f"; {notes.pop()}" if len(notes) == 1 else ""
        return Marginals(
            graph, probs, self, max((a.status for a in answers), key=_SEVERITY.index),
            joint_kind({a.log_z_kind for a in answers}), max(a.iterations for a in answers),
            residuals, {"split": ready - began, "solve": clock() - ready},
            max(errors, default=None), f"components in {len(parts):,} parts{more}",
            Parts(labels, tuple(parts), tuple(answers)), proven_log_z=_added(answers),
        )  # fmt: skip

    def _parts(
        self, graph: FactorGraph, start: Marginals | None
    ) -> tuple[list[Component], Sequence[Marginals | None], NDArray[np.int64]]:
        """The parts, what to start them from, and the part of each variable."""
        check_start(start)
        old = start.state if start is not None else None
        if start is not None and isinstance(old, Parts) and start.graph.groups is graph.groups:
            places = _places(graph, old.labels, len(old.parts))
            parts = [
                part._replace(graph=part.graph._renumbered(_field=graph.field[here]))
                for part, here in zip(old.parts, places)
            ]
            return parts, old.answers, old.labels
        labels = pack(graph, self.size)
        parts = graph.split(labels)
        starts: list[Marginals | None] = [None] * len(parts)
        if start is not None and len(start.probs) == graph._offsets[-1]:
            places = _places(graph, labels, len(parts))
            starts = [
                Marginals(part.graph, start.probs[here], start.solver, start.status)
                for part, here in zip(parts, places)
            ]
        return parts, starts, labels

    @staticmethod
    def _solve(
        solver: Any, graph: FactorGraph, part: Component, start: Marginals | None, began: float
    ) -> Marginals:
        limit = getattr(solver, "time_limit", None)
        if limit is not None and is_dataclass(solver):
            left = max(limit - (clock() - began), 1e-3)
            solver = replace(solver, time_limit=left)  # type: ignore[type-var]
        try:
            return solver(part.graph, start)
        except MinferError as error:
            if graph.names:
                raise
            first = error
        names = tuple(f"x{v}" for v in part.variables)  # so that it names variables of the whole
        solver(replace(part.graph, names=names), start)
        raise first


def pack(graph: FactorGraph, size: int) -> NDArray[np.int64]:
    """The part of each variable (V,): consecutive components that together have ``size`` or more
    variables and ends of factors."""
    component = graph.component_labels().astype(np.int64)
    weight = np.bincount(component)
    for g in graph.groups:
        weight += np.bincount(component[g._scope.ravel()], minlength=len(weight))
    end = np.cumsum(weight)
    labels = (end - weight) // size  # by where a component begins
    return np.unique(labels, return_inverse=True)[1].ravel()[component]


def _is_independent(graph: FactorGraph) -> bool:
    """No factor joins two variables: nothing to be gained by splitting."""
    return not any(g.form == "messages" or g.arity > 1 for g in graph.groups)


def _places(graph: FactorGraph, labels: NDArray[np.int64], n: int) -> list[NDArray[np.int64]]:
    """Where the states of each part's variables lie in a flat array."""
    by_state = np.repeat(labels, graph._n_states)
    order = np.argsort(by_state, kind="stable")
    return np.split(order, np.searchsorted(by_state[order], np.arange(1, n)))


_SEVERITY = [
    Status.EXACT, Status.CONVERGED, Status.SAMPLED, Status.BOUND, Status.GIVEN,
    Status.MAX_ITERS, Status.TIME_LIMIT,
]  # fmt: skip


def _added(answers: Sequence[Marginals]) -> tuple[float, float] | None:
    """The bounds of log Z of all parts, where each has proven some."""
    known = [a.log_z_bounds for a in answers]
    if all(a.proven_log_z is None for a in answers) or any(ends is None for ends in known):
        return None
    lower, upper = zip(*(ends for ends in known if ends is not None))
    return sum(lower), sum(upper)


@dataclass(frozen=True, eq=False)
class Parts:
    """The answers part by part: what log Z and factor marginals are read from."""

    labels: NDArray[np.int64]  # (V,) the part of each variable
    parts: tuple[Component, ...]
    answers: tuple[Marginals, ...]

    def log_z(self) -> float:
        return sum(answer.log_z for answer in self.answers)

    def factor(self, factor: int) -> NDArray[np.float64]:
        part, number = self._where
        return self.answers[part[factor]].factor(int(number[factor]))

    def factors(self, factors: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """Joint marginals of several factors of one shape."""
        part, number = self._where
        if not len(factors):
            return None
        parts = part[factors]
        pieces = {int(c): self.answers[c].factors(number[factors[parts == c]])
                  for c in np.unique(parts)}  # fmt: skip
        out = np.empty((len(factors), next(iter(pieces.values())).shape[1]))
        for c, joints in pieces.items():
            out[parts == c] = joints
        return out

    def joint(self, variables: list[int]) -> NDArray[np.float64]:
        """Joint marginal of any variables: of different parts they are independent."""
        of = self.labels[variables].tolist()
        out, order = np.ones(()), []
        for c in dict.fromkeys(of):
            mine = [v for v, part in zip(variables, of) if part == c]
            number = np.searchsorted(self.parts[c].variables, mine)
            out = np.multiply.outer(out, self.answers[c].joint(*number.tolist()).table)
            order += mine
        return out.transpose([order.index(v) for v in variables])

    @cached_property
    def _where(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Part and number there of each factor."""
        sizes = [len(part.factors) for part in self.parts]
        part, number = np.empty((2, sum(sizes)), dtype=np.int64)
        for c, component in enumerate(self.parts):
            part[component.factors] = c
            number[component.factors] = np.arange(sizes[c])
        return part, number
