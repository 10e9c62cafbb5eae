"""pgmpy: Markov networks, factor graphs and Bayesian networks of discrete variables.

A conditional distribution is a factor over the variable and its parents. Latent variables are
variables like all others. pgmpy's tables are potentials, the last variable fastest, as ours.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import combinations
from typing import Any

from minfer.errors import ModelError
from minfer.graph import FactorGraph, check_graph
from minfer.interop._shared import (
    StateNames,
    checked_state_names,
    factors_of,
    load,
    log_of,
    names_of,
)


def from_pgmpy(model: Any) -> FactorGraph:
    """A pgmpy ``DiscreteMarkovNetwork``, ``FactorGraph`` or ``DiscreteBayesianNetwork``.

    Factors keep their order; variables are numbered as the model's nodes. See
    :func:`minfer.interop.state_names` for the states.
    """
    nodes, factors = _parts(model)
    number = {node: v for v, node in enumerate(nodes)}
    states = _states(nodes, factors)
    scopes, tables = [], []
    for i, phi in enumerate(factors):
        text = ", ".join(str(v) for v in phi.variables)
        scopes.append([number[v] for v in phi.variables])
        tables.append(log_of(phi.values, f"factor {i} over ({text})"))
    return FactorGraph.from_tables(
        [len(s) for s in states.values()], scopes, tables, names_of(nodes)
    )


def to_pgmpy(graph: FactorGraph, state_names: StateNames | None = None) -> Any:
    """A pgmpy ``DiscreteMarkovNetwork`` with a factor for each of ours, in their order.

    Parameters
    ----------
    graph : FactorGraph
        Without global factors. Evidence and corrections become unary factors at the end.
    state_names : {variable: names}, optional
        By default states are called by their numbers.
    """
    make = load("pgmpy.factors.discrete").DiscreteFactor
    model = load("pgmpy.models").DiscreteMarkovNetwork()
    check_graph(graph, "to_pgmpy")
    names = [graph.name(v) for v in range(graph.n_variables)]
    states = checked_state_names(graph, state_names)
    model.add_nodes_from(names)
    for scope, table in factors_of(graph):
        model.add_edges_from(combinations([names[v] for v in scope], 2))
        own = {names[v]: list(states[v]) for v in scope} if states else {}
        model.add_factors(make([names[v] for v in scope], table.shape, table, state_names=own))
    return model


def pgmpy_states(model: Any) -> dict[str, tuple[Hashable, ...]]:
    """See :func:`minfer.interop.state_names`."""
    nodes, factors = _parts(model)
    return dict(zip(names_of(nodes), _states(nodes, factors).values()))


def _parts(model: Any) -> tuple[list[Hashable], list[Any]]:
    """The nodes that are variables, and the factors, after pgmpy's own check of the model."""
    models = load("pgmpy.models")
    factor_type = load("pgmpy.factors.discrete").DiscreteFactor
    kinds = (models.DiscreteMarkovNetwork, models.FactorGraph, models.DiscreteBayesianNetwork)
    if not isinstance(model, kinds):
        raise ModelError(
            f"from pgmpy come {', '.join(k.__name__ for k in kinds)}, not {type(model).__name__}: "
            "all variables must be discrete and all factors tables"
        )
    factors = list(model.cpds if isinstance(model, kinds[2]) else model.factors)
    strange = [f for f in factors if not isinstance(f, factor_type)]
    if strange:
        raise ModelError(f"a factor of type {type(strange[0]).__name__} is not a discrete table")
    try:
        model.check_model()
    except ValueError as error:
        raise ModelError(f"pgmpy finds a fault in its model: {error}") from None
    return [n for n in model.nodes() if not isinstance(n, factor_type)], factors


def _states(nodes: list[Hashable], factors: list[Any]) -> dict[Hashable, tuple[Hashable, ...]]:
    """Each variable's states in order; names win over pgmpy's default, the numbers from 0."""
    found: dict[Hashable, tuple[Hashable, ...]] = {}
    for phi in factors:
        for v, size in zip(phi.variables, phi.cardinality):
            numbers = tuple(range(int(size)))
            own = tuple(phi.state_names.get(v, numbers))
            known = found.setdefault(v, own)
            if known == own or own == numbers:
                continue
            if len(known) != len(own) or known != numbers:
                raise ModelError(
                    f"factors disagree on the states of {v}: {list(known)} and {list(own)}"
                )
            found[v] = own
    for node in nodes:
        if node not in found:
            raise ModelError(f"no factor says how many states {node} has; give it one of ones")
    return {node: found[node] for node in nodes}
