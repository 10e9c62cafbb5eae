"""Which observations contradict each other: a set that the model gives probability zero.

Each of them is needed: they are left out one after the other, as long as the rest stays impossible.
That is done when the error's text is asked for, not when it is raised.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from minfer.basics.words import listed
from minfer.errors import ContradictionError, RefusedError, visible
from minfer.graph import FactorGraph
from minfer.model.evidence import Evidence, log_field, numbered
from minfer.solvers.plans import plan_for

#: Seconds after which what has not been left out yet is named too.
MOST_SECONDS = 2.0
_SHOWN = 12

Hard = Mapping[int, int]
Soft = Mapping[int, NDArray[np.float64]]
P = ParamSpec("P")
T = TypeVar("T")


def located(
    error: ContradictionError, graph: FactorGraph, hard: Hard, soft: Soft
) -> ContradictionError:
    """The same error, whose text names the observations."""
    if error.ask is not None:
        return error
    return ContradictionError(error.args[0], lambda: words(graph, hard, soft))


def locates(function: Callable[P, T]) -> Callable[P, T]:
    """Contradictions of a function of ``model`` and ``evidence`` name the observations."""

    @wraps(function)
    def located_function(*args: P.args, **kwargs: P.kwargs) -> T:
        given = signature(function).bind(*args, **kwargs).arguments
        with locating(given["model"], given.get("evidence")):
            return function(*args, **kwargs)

    return located_function


@contextmanager
def locating(model: FactorGraph, evidence: Evidence | None) -> Iterator[None]:
    """Contradictions in the block name the observations among ``evidence``."""
    try:
        yield
    except ContradictionError as error:
        found = numbered(model, {} if evidence is None else evidence)
        raise located(error, model, *found) from None


def words(graph: FactorGraph, hard: Hard, soft: Soft) -> str | None:
    """What is wrong, in words; None where it cannot be found."""
    graph, stored = _without_evidence(graph)
    left: dict[int, int | NDArray[np.float64]] = {**stored, **hard, **soft}
    try:
        if possible(graph, left):
            return None  # a contradiction of another kind
        if not possible(graph, {}):
            return "every assignment of the model has probability zero, without any evidence"
        until = time.perf_counter() + MOST_SECONDS  # kernels are loaded by now
        for v in list(left):
            rest = {u: x for u, x in left.items() if u != v}
            if not possible(graph, rest):
                left = rest
            if time.perf_counter() > until:
                break
    except RefusedError:
        return None
    said = [_said(graph, v, x) for v, x in left.items()]
    if len(said) == 1:
        return f"{said[0]} has probability zero under this model"
    if len(said) > _SHOWN:
        said = [*said[:_SHOWN], f"{len(said) - _SHOWN} more"]
    return f"{listed(said)} together have probability zero under this model"


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


def possible(graph: FactorGraph, given: Mapping[int, int | NDArray[np.float64]]) -> bool:
    """Whether evidence has a positive probability."""
    hard = {v: x for v, x in given.items() if not isinstance(x, np.ndarray)}
    soft = {v: x for v, x in given.items() if isinstance(x, np.ndarray)}
    try:
        plan = plan_for(graph, (), tuple(sorted(hard)), tuple(sorted(soft)))
        field = log_field(plan.part.graph, plan.place, soft)[None] if soft else None
        return bool(plan.run(plan.row(hard), field)[1][0] > -np.inf)
    except ContradictionError:
        return False
