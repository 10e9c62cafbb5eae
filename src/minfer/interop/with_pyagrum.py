"""pyAgrum: Markov random fields and Bayesian networks.

The axes of ``Tensor.toarray()`` run against the order of its variables: the first is the fastest.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from minfer.errors import ModelError
from minfer.graph import FactorGraph, check_graph
from minfer.interop._shared import (
    StateNames,
    checked_state_names,
    factors_of,
    load,
    log_of,
)


def from_pyagrum(model: Any) -> FactorGraph:
    """A pyAgrum ``MarkovRandomField`` or ``BayesNet``.

    Variables are numbered by their node ids. Discretised variables are discrete: their states are
    the intervals. See :func:`minfer.interop.state_names` for the states.
    """
    gum, nodes = _parts(model)
    names = [model.variable(n).name() for n in nodes]
    number = {name: v for v, name in enumerate(names)}
    if isinstance(model, gum.BayesNet):
        tensors = [model.cpt(n) for n in nodes]
    else:
        tensors = [model.factor(scope) for scope in model.factors()]
    scopes, tables = [], []
    for tensor in tensors:
        scopes.append([number[name] for name in tensor.names])
        where = f"the factor over ({', '.join(tensor.names)})"
        tables.append(log_of(tensor.toarray(), where).T)
    n_states = [model.variable(n).domainSize() for n in nodes]
    return FactorGraph.from_tables(n_states, scopes, tables, names)


def to_pyagrum(graph: FactorGraph, state_names: StateNames | None = None) -> Any:
    """A pyAgrum ``MarkovRandomField``; factors over the same variables are multiplied into one.

    Parameters
    ----------
    graph : FactorGraph
        Without global factors; evidence and corrections are multiplied into unary factors.
    state_names : {variable: names}, optional
        By default states are called by their numbers.
    """
    gum = load("pyagrum")
    check_graph(graph, "to_pyagrum")
    model = gum.MarkovRandomField()
    states = checked_state_names(graph, state_names)
    for v in range(graph.n_variables):
        own = states[v] if states else range(int(graph.n_states[v]))
        model.add(gum.LabelizedVariable(graph.name(v), "", [str(s) for s in own]))
    for scope, table in factors_of(graph, merge=True):
        tensor = model.addFactor([graph.name(v) for v in scope])
        tensor.fillWith(table.T.ravel().tolist())
    return model


def pyagrum_states(model: Any) -> dict[str, tuple[Hashable, ...]]:
    """See :func:`minfer.interop.state_names`."""
    _, nodes = _parts(model)
    variables = [model.variable(n) for n in nodes]
    return {x.name(): tuple(x.labels()) for x in variables}


def _parts(model: Any) -> tuple[Any, list[int]]:
    """The library, and the ids of the model's variables."""
    gum = load("pyagrum")
    if not isinstance(model, gum.MarkovRandomField | gum.BayesNet):
        raise ModelError(
            f"from pyAgrum come MarkovRandomField and BayesNet, not {type(model).__name__}: "
            "decisions, utilities and sets of distributions are no factors"
        )
    return gum, sorted(model.nodes())
