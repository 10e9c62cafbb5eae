"""pyAgrum: Markov random fields and Bayesian networks.

The axes of ``Tensor.toarray()`` run against the order of its variables: the first is the fastest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minfer.basics.checks import check_graph
from minfer.errors import ModelError
from minfer.graph import FactorGraph
from minfer.interop._shared import (
    StateNames,
    conditionals_of,
    factors_of,
    load,
    log_of,
    states_of,
)
from minfer.model.directed import with_conditionals


def from_pyagrum(model: Any) -> FactorGraph:
    """A pyAgrum ``MarkovRandomField`` or ``BayesNet``.

    Variables are numbered by their node ids, and states have the labels that they have there.
    Discretised variables are discrete: their states are the intervals. The scopes of a Bayesian
    network's tables are (parents..., child).
    """
    gum, nodes = _parts(model)
    variables = [model.variable(n) for n in nodes]
    names = [x.name() for x in variables]
    number = {name: v for v, name in enumerate(names)}
    graph = FactorGraph.empty([x.domainSize() for x in variables], names)
    graph = graph.with_state_names([_labels(x) for x in variables])
    if isinstance(model, gum.BayesNet):
        tensors = [model.cpt(n) for n in nodes]
        children = [number[t.names[0]] for t in tensors]  # first there, and the fastest axis here
        parents = [[number[name] for name in t.names[1:]] for t in tensors]
        # from the axes (last parent, ..., first parent, child) to (first parent, ..., child)
        tables = [np.moveaxis(t.toarray().T, 0, -1) for t in tensors]
        return with_conditionals(graph, children, parents, tables)
    scopes, logs = [], []
    for tensor in (model.factor(scope) for scope in model.factors()):
        scopes.append([number[name] for name in tensor.names])
        where = f"the factor over ({', '.join(tensor.names)})"
        logs.append(log_of(tensor.toarray(), where).T)
    return graph.add_tables(scopes, logs)


def _labels(variable: Any) -> list[str] | None:
    """Its labels; None where they are numbers from 0 and so no names."""
    labels = list(variable.labels())
    return None if labels == [str(k) for k in range(len(labels))] else labels


def to_pyagrum(graph: FactorGraph, state_names: StateNames | None = None) -> Any:
    """A pyAgrum ``BayesNet`` or ``MarkovRandomField``.

    Parameters
    ----------
    graph : FactorGraph
        Without global factors. A model that is not a Bayesian network, or has evidence or
        corrections, becomes a Markov random field: these are multiplied into unary factors, and
        factors over the same variables into one.
    state_names : {variable: names}, optional
        By default states are called as in the model, by their numbers where it has no names.
    """
    gum = load("pyagrum")
    check_graph(graph, "to_pyagrum")
    states = states_of(graph, state_names)
    names = [graph.name(v) for v in range(graph.n_variables)]
    conditionals = conditionals_of(graph)
    model = gum.MarkovRandomField() if conditionals is None else gum.BayesNet()
    for v, name in enumerate(names):
        model.add(gum.LabelizedVariable(name, "", [str(s) for s in states[v]]))
    if conditionals is None:
        for scope, table in factors_of(graph, merge=True):
            tensor = model.addFactor([names[v] for v in scope])
            tensor.fillWith(table.T.ravel().tolist())
        return model
    for (*parents, child), table in conditionals:
        for p in parents:
            model.addArc(names[p], names[child])
        # its first variable, the child, runs fastest; then the parents as their arcs came
        rows = table.transpose([*range(len(parents) - 1, -1, -1), len(parents)])
        model.cpt(names[child]).fillWith(rows.ravel().tolist())
    return model


def _parts(model: Any) -> tuple[Any, list[int]]:
    """The library, and the ids of the model's variables."""
    gum = load("pyagrum")
    if not isinstance(model, gum.MarkovRandomField | gum.BayesNet):
        raise ModelError(
            f"from_pyagrum takes a MarkovRandomField or BayesNet, not {type(model).__name__}: "
            "decisions, utilities and sets of distributions are not factors"
        )
    return gum, sorted(model.nodes())
