"""Which observations, and which factors, contradict each other: together they have no assignment.

Each of them is needed: they are left out one after the other, as long as the rest stays impossible.
That is done when the error's text is asked for, not when it is raised. What takes too long to be
proved impossible stays, so all that is named together is impossible, though perhaps not least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from minfer.basics.limits import clock
from minfer.basics.words import listed
from minfer.engine import support
from minfer.engine.conditioning import condition
from minfer.engine.decomposition import only_tables
from minfer.engine.elimination import clique_tree
from minfer.errors import ContradictionError, RefusedError, visible
from minfer.factors.connectives import Clauses
from minfer.model.evidence import Evidence, log_field, numbered
from minfer.solvers.clique_passes import pass_messages
from minfer.solvers.pruning import prune

if TYPE_CHECKING:
    from minfer.graph import FactorGraph

#: Seconds after which what has not been left out yet is named too.
MOST_SECONDS = 2.0
#: Cells of a clique tree, beyond which a circuit is asked, and what it may take.
MOST_CELLS = 2.0**24
MOST_GIB = 1.0
_SHOWN = 12
_FEW = 6

Seen = int | NDArray[np.float64]
Hard = Mapping[int, int]
Soft = Mapping[int, NDArray[np.float64]]
_NONE: Mapping[int, Any] = {}
P = ParamSpec("P")
T = TypeVar("T")


def located(
    error: ContradictionError, graph: FactorGraph, hard: Hard = _NONE, soft: Soft = _NONE
) -> ContradictionError:
    """The same error, whose text names observations, also the model's own, or factors."""
    if isinstance(error.ask, partial) and not any(error.ask.args[1:]):
        error.ask = None  # a solver that knew of no observations
    if error.ask is not None:
        return error
    return ContradictionError(error.args[0], partial(words, graph, hard, soft))


def locates(function: Callable[P, T]) -> Callable[P, T]:
    """Contradictions of a function of ``model`` and ``evidence`` name the observations."""

    @wraps(function)
    def located_function(*args: P.args, **kwargs: P.kwargs) -> T:
        given = signature(function).bind(*args, **kwargs).arguments
        with locating(given["model"], given.get("evidence"), given.get("do")):
            return function(*args, **kwargs)

    return located_function


@contextmanager
def locating(
    model: FactorGraph, evidence: Evidence | None, do: Evidence | None = None
) -> Iterator[None]:
    """Contradictions in the block name the observations among ``evidence``."""
    try:
        yield
    except ContradictionError as error:
        model = model if do is None else model.with_do(do)
        found = numbered(model, {} if evidence is None else evidence)
        raise located(error, model, *found) from None


def words(graph: FactorGraph, hard: Hard, soft: Soft) -> str | None:
    """What is wrong, in words; None where it cannot be found."""
    graph, stored = _without_evidence(graph)
    left: dict[int, Seen] = {**stored, **hard, **soft}
    if possible(graph, left, clock() + MOST_SECONDS) is not False:
        return None  # a contradiction of another kind, or one that takes longer
    alone = left and possible(graph, {}, clock() + MOST_SECONDS) is False
    until = clock() + MOST_SECONDS  # kernels are loaded by now
    kept = [] if alone else needed(
        list(left), lambda some: possible(graph, {v: left[v] for v in some}, until) is False, until
    )  # fmt: skip
    seen = {v: left[v] for v in kept}
    said = [_said(graph, v, x) for v, x in seen.items()]
    factors = _factors(graph, seen, clock() + MOST_SECONDS)
    if not said:
        text = "every assignment of the model has probability zero, without any evidence"
        return f"{text}: {_listed(factors)} cannot all hold" if factors else text
    together = " together have" if len(said) > 1 else " has"
    text = f"{_listed(said)}{together} probability zero under this model"
    return f"{text}: see {listed(factors)}" if 0 < len(factors) <= _FEW else text


def _listed(said: list[str]) -> str:
    more = len(said) - _SHOWN
    return listed([*said[:_SHOWN], f"{more} more"] if more > 0 else said)


def needed(
    items: list[int], impossible: Callable[[list[int]], bool], until: float = math.inf
) -> list[int]:
    """Those of items, together impossible, that are left if each in turn is left out where the
    rest stays impossible: the first that cannot go is found by bisection, then the next."""
    kept: list[int] = []
    while items and clock() < until and not (kept and impossible(kept)):
        lo, hi = 0, 1  # the first lo can go
        while hi <= len(items) and impossible(kept + items[hi:]):
            lo, hi = hi, 2 * hi
        hi = min(hi, len(items) + 1)
        while hi - lo > 1:
            middle = (lo + hi) // 2
            lo, hi = (middle, hi) if impossible(kept + items[middle:]) else (lo, middle)
        if lo == len(items):
            return kept
        kept.append(items[lo])
        items = items[lo + 1 :]
    return kept if kept and clock() < until else kept + items


def _factors(graph: FactorGraph, seen: Mapping[int, Seen], until: float) -> list[str]:
    """Factors that suffice for the contradiction, in words; none where there are many."""
    part = np.zeros(graph.n_factors, dtype=bool)
    for g in graph.groups:
        part[g._ids] = g.form == "messages" or g.forbids()
    every = np.flatnonzero(part).tolist()

    def by_logic(some: list[int]) -> bool:
        return _contradicts(_with(graph.keep(np.array(some, dtype=np.int64)), seen))

    def by_any(some: list[int]) -> bool:
        return possible(graph.keep(np.array(some, dtype=np.int64)), seen, until) is False

    if by_logic(every):
        every = needed(every, by_logic, until)
    if len(every) > 1 and clock() < until:
        every = needed(every, by_any, until)
    return (
        [_named(graph, i) for i in sorted(every)] if clock() < until or len(every) <= _FEW else []
    )


def _named(graph: FactorGraph, factor: int) -> str:
    """A factor as messages call it; a clause by its literals."""
    group = next(g for g in graph.groups if factor in g._ids)
    row = int(np.searchsorted(group._ids, factor))
    scope = group._scope[row].tolist()
    if isinstance(group, Clauses):
        parts = []
        for v, state, flip in zip(scope, group._literal[row].tolist(), group.flip.tolist()):
            name, true = visible(graph.name(v)), (state == 1) != flip
            if graph._n_states[v] == 2:
                parts.append(name if true else f"not {name}")
            else:
                parts.append(f"{name}{'!=' if flip else '='}{visible(graph.states(v)[state])}")
        joined = " or ".join(parts)
    else:
        joined = ", ".join(visible(graph.name(v)) for v in scope)
    if len(scope) > _SHOWN:
        joined = f"{len(scope)} variables"
    return f"{group.noun} {factor} ({joined})"


def _without_evidence(graph: FactorGraph) -> tuple[FactorGraph, dict[int, int]]:
    """The model without the states that it was given, and which those are."""
    if graph._field is None or not graph.n_variables:
        return graph, {}
    allowed = graph.field > -np.inf
    count = np.add.reduceat(allowed, graph._offsets[:-1])
    seen = np.flatnonzero((count == 1) & (graph._n_states > 1))
    if not len(seen):
        return graph, {}
    free = graph.field.copy()
    stored = {}
    for v in seen.tolist():
        own = slice(int(graph._offsets[v]), int(graph._offsets[v + 1]))
        stored[v] = int(np.argmax(allowed[own]))
        free[own] = 0.0
    return graph._renumbered(_field=free), stored


def _said(graph: FactorGraph, v: int, state: int | NDArray[np.float64]) -> str:
    name = visible(graph.name(v))
    if isinstance(state, np.ndarray):
        return f"soft evidence on {name}"
    return f"{name}={visible(graph.states(v)[state])}"


def _with(graph: FactorGraph, given: Mapping[int, Seen]) -> FactorGraph:
    """A model with evidence; ContradictionError where it contradicts the model's own."""
    hard: dict[int | str, int | str]
    hard = {v: x for v, x in given.items() if not isinstance(x, np.ndarray)}
    soft = {v: x for v, x in given.items() if isinstance(x, np.ndarray)}
    if soft:
        graph = graph.tilt(log_field(graph, None, soft))
    return graph.with_evidence(hard) if hard else graph


def _contradicts(graph: FactorGraph) -> bool:
    """Whether logic alone shows that a model is impossible."""
    try:
        support.possible(condition(graph))
    except ContradictionError:
        return True
    return False


def possible(graph: FactorGraph, given: Mapping[int, Seen], until: float = math.inf) -> bool | None:
    """Whether evidence has a positive probability; None where to know would take too long.

    Logic is asked first, then a clique tree of what the evidence can contradict, then a circuit.
    """
    hard = tuple(sorted(v for v, x in given.items() if not isinstance(x, np.ndarray)))
    soft = tuple(sorted(v for v, x in given.items() if isinstance(x, np.ndarray)))
    try:
        seen = _with(graph, given)
        if _contradicts(seen):
            return False
        part = prune(graph, (), hard, soft)
        if not len(part.variables):
            return True
        place = {v: k for k, v in enumerate(part.variables.tolist())}
        mine = _with(part.graph, {place[v]: x for v, x in given.items() if v in place})
        model = condition(mine)
        tables = only_tables(model)
        tree = clique_tree(tables, MOST_CELLS, max(until - clock(), 0.1))
        if tree.complete and tree.cells <= MOST_CELLS:
            pass_messages(tables, tree)
        else:
            from minfer.engine.circuits.driver import build
            from minfer.engine.simplify import simplify

            build(simplify(model).model, max_gib=MOST_GIB, deadline=until)
        return True
    except ContradictionError:
        return False
    except RefusedError:
        return None
