"""pgmpy: Markov networks, factor graphs and Bayesian networks of discrete variables.

A conditional distribution is a factor over the variable and its parents. Latent variables are
variables like all others. pgmpy's tables are potentials, the last variable fastest, as ours.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import combinations
from typing import Any

import numpy as np

from minfer.basics.checks import check_graph
from minfer.errors import ModelError
from minfer.graph import FactorGraph
from minfer.interop._shared import (
    StateNames,
    as_names,
    conditionals_of,
    factors_of,
    load,
    log_of,
    names_of,
    states_of,
)
from minfer.model.directed import with_conditionals


def from_pgmpy(model: Any) -> FactorGraph:
    """A pgmpy ``DiscreteMarkovNetwork``, ``FactorGraph`` or ``DiscreteBayesianNetwork``.

    Factors keep their order, variables are numbered as the model's nodes, and states have the names
    (``str`` of them) that they have there. The scopes of a Bayesian network's tables are
    (parents..., child).
    """
    nodes, factors = _parts(model)
    number = {node: v for v, node in enumerate(nodes)}
    states = _states(nodes, factors)
    graph = FactorGraph.empty([len(s) for s in states.values()], names_of(nodes))
    graph = graph.with_state_names([as_names(s) for s in states.values()])
    scopes = [[number[v] for v in phi.variables] for phi in factors]
    if isinstance(model, load("pgmpy.models").DiscreteBayesianNetwork):
        children = [scope[0] for scope in scopes]
        parents = [scope[1:] for scope in scopes]
        tables = [np.moveaxis(phi.values, 0, -1) for phi in factors]
        return with_conditionals(graph, children, parents, tables)
    logs = []
    for i, phi in enumerate(factors):
        text = ", ".join(str(v) for v in phi.variables)
        logs.append(log_of(phi.values, f"factor {i} over ({text})"))
    return graph.add_tables(scopes, logs)


def to_pgmpy(graph: FactorGraph, state_names: StateNames | None = None) -> Any:
    """A pgmpy ``DiscreteBayesianNetwork`` or ``DiscreteMarkovNetwork``, factors in their order.

    Parameters
    ----------
    graph : FactorGraph
        Without global factors. A model that is not a Bayesian network, or has evidence or
        corrections, becomes a Markov network; these are unary factors at the end.
    state_names : {variable: names}, optional
        By default states are called as in the model, by their numbers where it has no names.
    """
    discrete, models = load("pgmpy.factors.discrete"), load("pgmpy.models")
    check_graph(graph, "to_pgmpy")
    names = [graph.name(v) for v in range(graph.n_variables)]
    states = [list(own) for own in states_of(graph, state_names)]
    conditionals = conditionals_of(graph)
    if conditionals is not None:
        network = models.DiscreteBayesianNetwork()
        network.add_nodes_from(names)
        for scope, table in conditionals:
            *parents, child = scope
            network.add_edges_from((names[p], names[child]) for p in parents)
            cpd = discrete.TabularCPD(
                names[child], table.shape[-1], table.reshape(-1, table.shape[-1]).T,
                [names[p] for p in parents] or None, list(table.shape[:-1]) or None,
                state_names={names[v]: states[v] for v in scope},
            )  # fmt: skip
            network.add_cpds(cpd)
        return network
    model = models.DiscreteMarkovNetwork()
    model.add_nodes_from(names)
    for scope, table in factors_of(graph):
        model.add_edges_from(combinations([names[v] for v in scope], 2))
        own = {names[v]: states[v] for v in scope}
        factor = discrete.DiscreteFactor([names[v] for v in scope], table.shape, table, own)
        model.add_factors(factor)
    return model


def _parts(model: Any) -> tuple[list[Hashable], list[Any]]:
    """The nodes that are variables, and the factors, after pgmpy's own check of the model."""
    models = load("pgmpy.models")
    factor_type = load("pgmpy.factors.discrete").DiscreteFactor
    kinds = (models.DiscreteMarkovNetwork, models.FactorGraph, models.DiscreteBayesianNetwork)
    if not isinstance(model, kinds):
        raise ModelError(
            f"from_pgmpy takes {', '.join(k.__name__ for k in kinds)}, not {type(model).__name__}: "
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
