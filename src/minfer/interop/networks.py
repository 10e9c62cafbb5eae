"""pgmpy and pyAgrum: Markov networks, factor graphs and Bayesian networks of discrete variables.

A conditional distribution is a factor over the variable and its parents. Latent variables are
variables like all others. pgmpy's tables are potentials, the last variable fastest, as ours; the
axes of pyAgrum's ``Tensor.toarray()`` run against the order of its variables: the first is the
fastest.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from minfer.basics.checks import check_graph, load
from minfer.errors import ModelError
from minfer.factors.group import Floats
from minfer.graph import FactorGraph
from minfer.model.directed import child_last, with_conditionals

StateNames = Mapping[str, Sequence[Hashable]]

#: exp of logs beyond this is not a normal float64, and a log-table would not survive.
LARGEST_LOG = 708.0


class Factor(NamedTuple):
    """A factor on its way out: a log-table, at last potentials."""

    scope: tuple[int, ...]
    table: Floats  # (S_1, ..., S_A)


def names_of(nodes: Iterable[Hashable]) -> list[str]:
    """Nodes as variable names; two that read alike would be one variable."""
    names: dict[str, Hashable] = {}
    for node in nodes:
        name = str(node)
        if name in names:
            raise ModelError(f"nodes {names[name]!r} and {node!r} have the same name; rename one")
        names[name] = node
    return list(names)


def log_of(values: ArrayLike, where: str) -> Floats:
    """Logs of the potentials of one factor."""
    table = np.asarray(values, dtype=np.float64)
    if not (table >= 0).all() or np.isinf(table).any():
        bad = table[~((table >= 0) & np.isfinite(table))].flat[0]
        raise ModelError(f"{where} has the entry {bad}; potentials must be finite and not negative")
    with np.errstate(divide="ignore"):
        return np.log(table)


def factors_of(graph: FactorGraph, merge: bool = False) -> list[Factor]:
    """The whole model as factors of at least one variable, and every variable in one of them.

    The field makes unary factors, variables without any factor get one of ones (without one other
    libraries do not know them), and constant factors are multiplied into the first. ``merge``
    multiplies factors over the same variables into one, its scope increasing.
    """
    factors: list[Factor] = []
    constant = 0.0
    for i in range(graph.n_factors):
        scope = tuple(int(v) for v in graph.scope(i))
        log_psi = graph.log_table(i)
        if not scope:
            constant += float(log_psi)
        else:
            factors.append(Factor(scope, log_psi))
    field, offsets = graph.field, graph.offsets
    touched = {v for f in factors for v in f.scope}
    for v in range(graph.n_variables):
        own = field[offsets[v] : offsets[v + 1]]
        if own.any() or v not in touched:
            factors.append(Factor((v,), own))
    if constant:
        if not factors:
            raise ModelError("a constant without variables cannot be exported")
        factors[0] = Factor(factors[0].scope, factors[0].table + constant)
    return [Factor(f.scope, _exp(f, graph)) for f in (_merged(factors) if merge else factors)]


def _merged(factors: list[Factor]) -> list[Factor]:
    """One log-table for each set of variables."""
    sums: dict[tuple[int, ...], Floats] = {}
    for scope, log_psi in factors:
        key = tuple(sorted(scope))
        sums[key] = sums.get(key, 0.0) + log_psi.transpose(np.argsort(scope))
    return [Factor(scope, log_psi) for scope, log_psi in sums.items()]


def _exp(factor: Factor, graph: FactorGraph) -> Floats:
    log_psi = factor.table
    finite = log_psi[np.isfinite(log_psi)]
    if finite.size and np.abs(finite).max() > LARGEST_LOG:
        raise ModelError(
            f"a factor over {', '.join(graph.name(v) for v in factor.scope)} has log-potentials "
            f"from {finite.min():g} to {finite.max():g}; beyond {LARGEST_LOG:g} they are no "
            "numbers outside minfer: subtract a constant, or keep the model in a minfer file"
        )
    return np.exp(log_psi)


def conditionals_of(graph: FactorGraph) -> list[Factor] | None:
    """The tables of a Bayesian network, scopes (parents..., child); None if the model is none."""
    if not graph.directed or (graph._field is not None and graph._field.any()):
        return None
    found = (Factor(tuple(scope), log_p) for scope, log_p in child_last(graph))
    return [Factor(one.scope, _exp(one, graph)) for one in found]


def states_of(graph: FactorGraph, names: StateNames | None) -> list[tuple[Hashable, ...]]:
    """What each variable's states are to be called: as given, as in the model, or by number."""
    for name in names or {}:
        graph.index(name)  # an unknown variable is an error
    out: list[tuple[Hashable, ...]] = []
    for v in range(graph.n_variables):
        n = int(graph.n_states[v])
        model_s = graph._states[v] if graph._states else None
        own: tuple[Hashable, ...] = model_s or tuple(range(n))
        if names is not None and graph.name(v) in names:
            own = tuple(names[graph.name(v)])
        if len(own) != n or len(set(own)) != n:
            raise ModelError(
                f"state names of {graph.name(v)}: {list(own)}; it needs {n} different ones"
            )
        out.append(own)
    return out


def as_names(states: Sequence[Hashable]) -> list[str] | None:
    """States as a graph names them; None where they are the numbers from 0."""
    if list(states) == list(range(len(states))) and not any(isinstance(s, bool) for s in states):
        return None
    return [str(s) for s in states]


def from_pgmpy(model: Any) -> FactorGraph:
    """A pgmpy ``DiscreteMarkovNetwork``, ``FactorGraph`` or ``DiscreteBayesianNetwork``.

    Factors keep their order, variables are numbered as the model's nodes, and states have the names
    (``str`` of them) that they have there. The scopes of a Bayesian network's tables are
    (parents..., child).
    """
    nodes, factors = _pgmpy_parts(model)
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


def _pgmpy_parts(model: Any) -> tuple[list[Hashable], list[Any]]:
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


def from_pyagrum(model: Any) -> FactorGraph:
    """A pyAgrum ``MarkovRandomField`` or ``BayesNet``.

    Variables are numbered by their node ids, and states have the labels that they have there.
    Discretised variables are discrete: their states are the intervals. The scopes of a Bayesian
    network's tables are (parents..., child).
    """
    gum, nodes = _pyagrum_parts(model)
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
    """A pyAgrum ``BayesNet`` or ``MarkovRandomField``; arguments as in :func:`to_pgmpy`.

    Of a Markov random field, evidence and corrections are multiplied into unary factors, and
    factors over the same variables into one.
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


def _pyagrum_parts(model: Any) -> tuple[Any, list[int]]:
    """The library, and the ids of the model's variables."""
    gum = load("pyagrum")
    if not isinstance(model, gum.MarkovRandomField | gum.BayesNet):
        raise ModelError(
            f"from_pyagrum takes a MarkovRandomField or BayesNet, not {type(model).__name__}: "
            "decisions, utilities and sets of distributions are not factors"
        )
    return gum, sorted(model.nodes())
