"""Bayesian networks: tables that are conditional distributions know their child.

A factor over (parents..., child) whose rows over the child sum to one is a conditional distribution
P(child | parents); :attr:`FactorGraph.directed` says whether a model consists of one for each
variable, without a cycle. Pruning, sampling, counting and sensitivity need to know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.checks import integer, real_numbers, told
from minfer.errors import ModelError
from minfer.graph import FactorGraph
from minfer.words import visible

#: How far a row of probabilities may be from one.
ROW_SUM = 1e-4


def build_network(states: Any, tables: Any) -> FactorGraph:
    """See :meth:`FactorGraph.network`."""
    if not isinstance(states, Mapping) or not isinstance(tables, Mapping):
        raise ModelError("network: states and tables are mappings {variable: ...}")
    names = list(states)
    sizes, state_names = [], []
    for name, own in states.items():
        number = None if isinstance(own, str) else integer(own)
        if number is None and (isinstance(own, str) or not isinstance(own, (Sequence, np.ndarray))):
            raise ModelError(
                f"network: the states of {name} are a list of names, or how many there are, not "
                f"{told(own)}"
            )
        sizes.append(number if number is not None else len(own))
        state_names.append(None if number is not None else [str(s) for s in own])
    graph = FactorGraph.empty(sizes, names).with_state_names(state_names)
    children, parents, cpts = [], [], []
    for name, entry in tables.items():
        own_parents: Any = []
        table = entry
        if isinstance(entry, tuple) and len(entry) == 2 and _is_names(entry[0]):
            own_parents, table = entry
            own_parents = [own_parents] if isinstance(own_parents, str) else list(own_parents)
        children.append(graph.index(name))
        parents.append([graph.index(p) for p in own_parents])
        cpts.append(table)
    missing = set(range(graph.n_variables)) - set(children)
    if missing:
        raise ModelError(f"network: there is no table for {graph.name(min(missing))}")
    return with_conditionals(graph, children, parents, cpts)


def _is_names(value: Any) -> bool:
    if isinstance(value, str):
        return True
    return isinstance(value, (list, tuple)) and all(isinstance(x, str) for x in value)


def with_conditionals(
    graph: FactorGraph,
    children: Sequence[int],
    parents: Sequence[Sequence[int]],
    tables: Sequence[ArrayLike],
    row_sum: float = ROW_SUM,
    normalise: bool = True,
) -> FactorGraph:
    """A graph with conditional distributions added; scopes are (parents..., child).

    Rows that sum to one within ``row_sum`` are accepted, and divided by their sum (files round to a
    few digits, and what is left out by pruning must then sum to one); others are an error.
    """
    scopes, logs = [], []
    for child, own, table in zip(children, parents, tables):
        name = visible(graph.name(child))
        scope = [*own, child]
        if len(set(scope)) < len(scope):
            raise ModelError(f"network: {name} is its own parent, or has a parent twice")
        shape = tuple(int(graph._n_states[v]) for v in scope)
        p = real_numbers(table, f"network: the table of {name}").astype(np.float64)
        if p.size != np.prod(shape, dtype=np.float64):
            raise ModelError(
                f"network: the table of {name} has {p.size} numbers, but its parents and itself "
                f"have {' x '.join(map(str, shape))} states"
            )
        p = p.reshape(shape)
        check_probabilities(graph, scope, p, row_sum)
        if normalise:
            total = p.sum(axis=-1, keepdims=True)
            p = p / total
        with np.errstate(divide="ignore"):
            logs.append(np.log(p))
        scopes.append(scope)
    first = graph.n_factors
    check_acyclic(graph, list(children), [list(p) for p in parents])
    grown = graph.add_tables(scopes, logs) if scopes else graph
    child_of = np.full(grown.n_factors, -1, dtype=np.int32)
    if graph._child is not None:
        child_of[:first] = graph._child
    child_of[first:] = children
    return grown._renumbered(_child=child_of)


def check_probabilities(
    graph: FactorGraph, scope: Sequence[int], p: NDArray[np.float64], row_sum: float
) -> None:
    """Not negative, and every row over the last axis sums to one; says which does not."""
    name = visible(graph.name(scope[-1]))
    if not np.isfinite(p).all() or (p < 0).any():
        raise ModelError(
            f"network: the table of {name} has a number that is negative or not finite"
        )
    off = np.abs(p.sum(axis=-1) - 1.0)
    if off.size and off.max() > row_sum:
        bad = np.unravel_index(int(np.argmax(off)), off.shape)
        given = ", ".join(
            f"{visible(graph.name(v))}={visible(graph.states(v)[int(k)])}"
            for v, k in zip(scope[:-1], bad)
        )
        raise ModelError(
            f"network: the probabilities of {name}{f' given {given}' if given else ''} sum to "
            f"{p.sum(axis=-1)[bad]:.6g}, not 1"
        )


def check_acyclic(
    graph: FactorGraph, children: Sequence[int], parents: Sequence[Sequence[int]]
) -> NDArray[np.int64]:
    """Variables in an order that puts parents first; a cycle is an error that shows it."""
    of: dict[int, list[int]] = {}
    for child, own in zip(children, parents):
        if child in of:
            raise ModelError(f"network: {visible(graph.name(child))} has two tables")
        of[child] = list(own)
    order: list[int] = []
    state: dict[int, int] = {}
    for begin in of:
        path: list[tuple[int, int]] = [(begin, 0)]
        if state.get(begin):
            continue
        state[begin] = 1
        while path:
            v, k = path[-1]
            own = of.get(v, [])
            if k == len(own):
                state[v] = 2
                order.append(v)
                path.pop()
                continue
            path[-1] = (v, k + 1)
            p = own[k]
            if state.get(p) == 1:
                walk = [x for x, _ in path]
                loop = [*walk[walk.index(p) :], p]
                shown = " <- ".join(visible(graph.name(x)) for x in loop[:8])
                raise ModelError(f"network: the parents form a cycle: {shown}")
            if not state.get(p):
                state[p] = 1
                path.append((p, 0))
    return np.array(order, dtype=np.int64)
