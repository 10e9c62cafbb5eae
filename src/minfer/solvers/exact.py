"""Exact marginals and log Z: a clique tree, a small model's joint table, or plain enumeration.

A clique tree (:mod:`minfer.engine.elimination`) is a tree of overlapping sets of variables, each
factor inside one of them. Two passes of messages (:mod:`minfer.solvers.clique_passes`) give all
marginals. Time and memory grow with the cells of the cliques, so the solver refuses models that are
too wide rather than trying. Where a tree is expensive the model is simplified first
(:mod:`minfer.engine.simplify`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import by_name, check_choice, check_graph, check_number, check_seconds
from minfer.basics.limits import clock, deadline_of, start_clock
from minfer.basics.words import power
from minfer.engine.conditioning import condition
from minfer.engine.elimination import CliqueTree
from minfer.errors import ContradictionError, RefusedError
from minfer.solvers.base import LogZ, Marginals, Status
from minfer.solvers.clique_passes import check_clock, check_tree, expected_seconds
from minfer.solvers.joint_table import LOWEST, JointTable
from minfer.solvers.prepared import Prepared, PreparedExact
from minfer.solvers.simplified import solvable

if TYPE_CHECKING:
    from minfer.engine.conditioning import Conditioned
    from minfer.graph import FactorGraph

T = TypeVar("T")
MAX_ASSIGNMENTS = 1 << 24  # enumeration refuses beyond
MAX_KEPT = 1 << 20  # and beyond this adds scores up anew at every question


@by_name
@dataclass(frozen=True, kw_only=True)
class Exact:
    """Exact inference.

    Parameters
    ----------
    max_gib : float
        Refuse a model whose largest clique, or whose messages together, would fill more than this
        many GiB at 8 bytes a cell. Clique tables are not stored; only the messages take memory.
    time_limit : float, optional
        Seconds. A run expected to take four times as long is refused at once; one that does not
        finish in time raises RefusedError, since there is no partial exact answer.
    method : "auto", "clique-tree", "circuit" or "enumerate"
        The default makes a small model's whole joint table (up to 16 variables, 256 factors and
        4,096 cells, nothing but tables), which compiles nothing, and a clique tree of others; where
        no tree fits and the model has zeros, a circuit (:func:`minfer.compile`), within some ten
        seconds of work. Prepared runs use a tree or a circuit. Enumeration sums over all
        assignments (up to 2**24): slow, obvious, a check of the others.

    Examples
    --------
    >>> from minfer import Exact, FactorGraph
    >>> graph = FactorGraph.pairwise([0.0, 0.0], [[0, 1]], [1.0])
    >>> Exact()(graph)[0].round(4).tolist()
    [0.3498, 0.6502]
    """

    max_gib: float = 4.0
    time_limit: float | None = None
    method: str = "auto"

    def __post_init__(self) -> None:
        check_number("max_gib", self.max_gib, 0.0, infinite=True)
        check_seconds("time_limit", self.time_limit)
        check_choice("method", self.method, ("auto", "clique-tree", "circuit", "enumerate"))

    def __call__(self, graph: FactorGraph, start: Marginals | None = None) -> Marginals:
        """Marginals of every variable; ``start`` is ignored."""
        check_graph(graph)
        try:
            return self._solved(graph)
        except ContradictionError as error:
            from minfer.solvers.conflicts import located

            raise located(error, graph) from None

    def _solved(self, graph: FactorGraph) -> Marginals:
        if self.method == "enumerate":
            return _enumerate(self, graph)
        began = start_clock(self.time_limit)
        if self.method == "circuit":
            return by_circuit(self, graph)
        if self.method == "auto":
            if (small := tabulated(self, graph)) is not None:
                return small
            if (known := compiled_answer(self, graph)) is not None:
                return known
        deadline = deadline_of(self.time_limit, began)
        try:
            found = solvable(
                condition(graph), seconds=deadline - clock(), memory=2.0**30 * self.max_gib
            )
            self.check(found.tree)
        except RefusedError as refusal:
            if self.method != "auto":
                raise
            return instead_of_tree(self, graph, refusal, began)
        if self.method == "auto" and (cheaper := before_tree(self, graph, found.tree, began)):
            return cheaper
        return found.solve(self, graph, began, deadline)

    def prepare(self, graph: FactorGraph) -> Prepared:
        """Everything that depends on the structure alone, done once; see :class:`Prepared`."""
        if self.method == "circuit":
            from minfer.solvers.circuit import Circuit

            return Circuit(self, graph)
        try:
            return PreparedExact(self, graph)
        except RefusedError as refusal:
            if self.method != "auto":
                raise
            from minfer.solvers.circuit import Circuit

            return within_limits(self, graph, refusal, lambda s: Circuit(s, graph))

    def check(self, tree: CliqueTree) -> None:
        """Raise RefusedError where the tree is beyond the limits."""
        check_tree(tree, self.max_gib, self.time_limit)


def tabulated(solver: Exact, graph: FactorGraph) -> Marginals | None:
    """The answer of a small model by its joint table; None of others."""
    began = clock()
    table = JointTable.of(graph)
    if table is None:
        return None
    return Marginals(
        graph, table.marginals(), solver, Status.EXACT, LogZ.EXACT,
        timings={"table": clock() - began}, state=table,
    )  # fmt: skip


# ---------------------------------------------------------------- circuits

#: Memory for the search of a circuit that nobody asked for, which bounds its work where no time
#: limit does: about ten seconds.
CIRCUIT_GIB = 0.5
#: Seconds of a tree beside which a circuit is tried, the part of them that it may take, and its
#: steps a second.
LONG_TREE, PART_OF_TREE, STEPS_A_SECOND = 2.0, 0.6, 1.5e6


def compiled_answer(solver: Exact, graph: FactorGraph) -> Marginals | None:
    """The answer by the circuit that was compiled of a model's factors, if there is one that knows
    its field."""
    check_graph(graph)
    if "circuit" not in graph._conditioning:  # most models
        return None
    from minfer.solvers.circuit import kept_circuit

    found = kept_circuit(graph)
    return None if found is None else replace(found._at(graph), solver=solver)


def by_circuit(solver: Exact, graph: FactorGraph, most_steps: float = math.inf) -> Marginals:
    """The answer by a circuit, made for it or at hand."""
    from minfer.solvers.circuit import Circuit, CircuitState
    from minfer.solvers.loose_ends import LooseState, loose_ends, without

    began = clock()
    known = compiled_answer(solver, graph)
    if known is not None:
        return known
    ends = loose_ends(condition(graph))
    rest = without(graph, ends) if ends else graph
    answer = Circuit(solver, rest, (), most_steps=most_steps)._at(rest)
    timings = {"search": clock() - began - answer.seconds, **answer.timings}
    if ends and isinstance(answer.state, CircuitState):
        state = LooseState.of(graph, answer.state, ends)
        answer = replace(answer, graph=graph, probs=state.probs(), state=state)
        timings["rows"] = clock() - began - sum(timings.values())
    return replace(answer, timings=timings)


def promising(model: Conditioned) -> bool:
    """Whether a circuit may be much smaller than a tree: a model with zeros or wide loose ends,
    not too large."""
    if int((model.fixed < 0).sum()) > 20_000 or any(g.form == "messages" for g in model.groups):
        return False
    if any(g.has_zeros for g in model.groups):
        return True
    from minfer.solvers.loose_ends import loose_ends

    return bool(loose_ends(model))


def within_limits(
    solver: Exact, graph: FactorGraph, refusal: RefusedError, make: Callable[[Exact], T]
) -> T:
    """What is made by a solver of circuits whose work is limited; the refusal where that is not
    promising, or is refused too."""
    if not promising(condition(graph)):
        raise refusal
    try:
        gib = solver.max_gib if solver.time_limit is not None else min(solver.max_gib, CIRCUIT_GIB)
        return make(replace(solver, method="circuit", max_gib=gib))
    except RefusedError as second:
        raise RefusedError(f"{refusal}. No small circuit either ({second})") from None


def before_tree(
    solver: Exact, graph: FactorGraph, tree: CliqueTree, began: float
) -> Marginals | None:
    """The answer by a circuit where a tree fits but takes long, if a part of its time is enough;
    counted in steps, so that the same model goes the same way again."""
    seconds = expected_seconds(tree)
    if seconds < LONG_TREE or not promising(condition(graph)):
        return None
    left = _left(solver, began)
    gib = min(solver.max_gib, CIRCUIT_GIB)
    limited = replace(solver, method="circuit", max_gib=gib, time_limit=left)
    try:
        answer = by_circuit(limited, graph, PART_OF_TREE * seconds * STEPS_A_SECOND)
    except RefusedError:
        return None
    return _noted(answer, solver, "by a circuit, which takes less work than a clique tree")


def _left(solver: Exact, began: float) -> float | None:
    limit = solver.time_limit
    return limit if limit is None else max(limit - (clock() - began), 1e-3)


def _noted(answer: Marginals, solver: Exact, note: str) -> Marginals:
    return replace(answer, solver=solver, note=f"{note}; {answer.note}" if answer.note else note)


def instead_of_tree(
    solver: Exact, graph: FactorGraph, refusal: RefusedError, began: float
) -> Marginals:
    """The answer by a circuit where no clique tree fits."""
    limited = replace(solver, time_limit=_left(solver, began))
    answer = within_limits(limited, graph, refusal, lambda s: by_circuit(s, graph))
    return _noted(answer, solver, "by a circuit, since no clique tree fits")


# ---------------------------------------------------------------- enumeration


def _enumerate(solver: Exact, graph: FactorGraph) -> Marginals:
    """p(x_v = s) = sum of p(x) over all assignments x with x_v = s."""
    began = clock()
    deadline = deadline_of(solver.time_limit, began)
    log_z, n, scores = -math.inf, 0, []
    for x in assignments(graph, deadline):
        score = graph.log_score(x)
        log_z = float(np.logaddexp(log_z, np.logaddexp.reduce(score)))
        n += len(score)
        if n <= MAX_KEPT:
            scores.append(score)
    if log_z == -math.inf:
        raise ContradictionError("every assignment has probability zero")
    state = EnumeratedState(graph, log_z, scores if n <= MAX_KEPT else None)
    probs = np.zeros(int(graph._offsets[-1]))
    for x, p in state.probabilities(deadline):
        cells = graph._offsets[:-1] + x  # (N, V)
        weights = np.repeat(p, graph.n_variables)
        probs += np.bincount(cells.ravel(), weights, minlength=len(probs))
    if graph.n_variables:  # rounding of huge scores must not unbalance them
        sums = np.add.reduceat(probs, graph._offsets[:-1])
        probs /= np.repeat(sums, graph._n_states)
    return Marginals(
        graph, probs, solver, Status.EXACT, LogZ.EXACT,
        timings={"enumerate": clock() - began}, state=state,
    )  # fmt: skip


def _allowed(graph: FactorGraph) -> list[NDArray[np.int64]]:
    """The states of each variable that evidence allows."""
    field, offsets = graph.field, graph._offsets
    return [
        np.flatnonzero(field[offsets[v] : offsets[v + 1]] > -np.inf)
        for v in range(graph.n_variables)
    ]


def count_assignments(graph: FactorGraph) -> int:
    """How many assignments evidence allows; counted no further than 2^64."""
    if graph.n_variables > 64 and int((graph.n_states > 1).sum()) - graph.n_observed > 64:
        return 1 << 64
    return math.prod(len(s) for s in _allowed(graph))


def adds_up(graph: FactorGraph) -> bool:
    """Whether the score of an assignment keeps its digits, however large single weights are."""
    sizes = [float(g.magnitude().sum()) for g in graph.groups]
    if graph._field is not None:
        sizes.append(float(np.abs(graph._field[graph._field > -np.inf]).sum()))
    return sum(sizes) <= -LOWEST


def assignments(graph: FactorGraph, deadline: float = math.inf) -> Iterator[NDArray[np.int64]]:
    """All assignments that the evidence allows, (N, V), in chunks."""
    states = _allowed(graph)
    counts = [len(s) for s in states]
    n = math.prod(counts)
    if n > MAX_ASSIGNMENTS:
        raise RefusedError(
            f"Exact(method='enumerate'): {power(math.log2(n))} assignments, but the limit is 2^24; "
            "use Exact() or BeliefPropagation"
        )
    step = max(1, (1 << 20) // max(graph.n_variables, graph.n_factors, 1))
    for first in range(0, n, step):
        check_clock(deadline)
        number = np.arange(first, min(first + step, n))
        x = np.empty((len(number), graph.n_variables), dtype=np.int64)
        for v in range(graph.n_variables - 1, -1, -1):  # the last variable fastest
            x[:, v] = states[v][number % counts[v]]
            number //= counts[v]
        yield x


@dataclass(frozen=True, eq=False)
class EnumeratedState:
    graph: FactorGraph
    value: float
    scores: list[NDArray[np.float64]] | None  # of all assignments, in chunks, unless too many

    def log_z(self) -> float:
        return self.value

    def probabilities(
        self, deadline: float = math.inf
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        for k, x in enumerate(assignments(self.graph, deadline)):
            score = self.graph.log_score(x) if self.scores is None else self.scores[k]
            yield x, np.exp(score - self.value)

    def factor(self, factor: int) -> NDArray[np.float64]:
        return self.joint(self.graph.scope(factor).tolist())

    def joint(self, scope: list[int]) -> NDArray[np.float64]:
        """Joint marginal of any variables."""
        shape = tuple(int(s) for s in self.graph._n_states[scope])
        out = np.zeros(math.prod(shape))
        for x, p in self.probabilities():
            cell = np.zeros(len(x), dtype=np.int64)
            for v, size in zip(scope, shape):
                cell = cell * size + x[:, v]
            out += np.bincount(cell, p, minlength=len(out))
        return (out / out.sum()).reshape(shape)  # as the marginals are
