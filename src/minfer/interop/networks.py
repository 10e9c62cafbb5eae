"""pgmpy and pyAgrum: Markov networks, factor graphs and Bayesian networks of discrete variables.

A conditional distribution is a factor over the variable and its parents. Latent variables are
variables like all others. pgmpy's tables are potentials, the last variable fastest, as ours; the
axes of pyAgrum's ``Tensor.toarray()`` run against the order of its variables: the first is the
fastest.
"""

from __future__ import annotations

import math
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from minfer.basics.checks import check_graph, load
from minfer.errors import ModelError, RefusedError
from minfer.factors.group import MAX_TABLE_CELLS, Floats
from minfer.graph import FactorGraph
from minfer.model.causes import NoisyAnd, NoisyCauses, NoisyOr, entry_of, with_causes
from minfer.model.directed import check_acyclic, child_last_of, with_conditionals

StateNames = Mapping[str, Sequence[Hashable]]

#: States of the parents at which what was read of a gate is compared.
_TESTS = 64
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


def conditionals_of(graph: FactorGraph, but: Container[int] = ()) -> list[Factor] | None:
    """The tables of a Bayesian network, scopes (parents..., child); None if the model is none.

    Factors in ``but`` are left out.
    """
    if not graph.directed or (graph._field is not None and graph._field.any()):
        return None
    rest = (i for i in range(graph.n_factors) if i not in but)
    found = (child_last_of(graph, i) for i in rest)
    factors = (Factor(tuple(scope), log_p) for scope, log_p in found)
    return [Factor(one.scope, _exp(one, graph)) for one in factors]


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
    network's tables are (parents..., child). Its noisy ORs and ANDs, with any number of parents,
    stay what they are (`minfer.NoisyOr`, `minfer.NoisyAnd`); other aggregators become tables.
    """
    gum, nodes = _pyagrum_parts(model)
    variables = [model.variable(n) for n in nodes]
    names = [x.name() for x in variables]
    number = {name: v for v, name in enumerate(names)}
    graph = FactorGraph.empty([x.domainSize() for x in variables], names)
    graph = graph.with_state_names([_labels(x) for x in variables])
    if isinstance(model, gum.BayesNet):
        children, parents, tables = [], [], []
        gates: dict[int, tuple[list[int], NoisyCauses]] = {}
        for tensor in (model.cpt(n) for n in nodes):
            child = number[tensor.names[0]]  # first there, and the fastest axis here
            own = [number[name] for name in tensor.names[1:]]
            if tensor.memoryFootprint() < 8 * tensor.domainSize():  # computed, not stored
                gate = _gate(gum, tensor)
                if gate is not None:
                    gates[child] = own, gate
                    continue
                table = _asked(gum, tensor)
            else:
                # from the axes (last parent, ..., first parent, child) to (first, ..., child)
                table = np.moveaxis(tensor.toarray().T, 0, -1)
            children.append(child)
            parents.append(own)
            tables.append(table)
        if not gates:
            return with_conditionals(graph, children, parents, tables)
        check_acyclic(graph, [*children, *gates], [*parents, *(own for own, _ in gates.values())])
        return with_causes(with_conditionals(graph, children, parents, tables), gates)
    scopes, logs = [], []
    for tensor in (model.factor(scope) for scope in model.factors()):
        scopes.append([number[name] for name in tensor.names])
        where = f"the factor over ({', '.join(tensor.names)})"
        logs.append(log_of(tensor.toarray(), where).T)
    return graph.add_tables(scopes, logs)


def _gate(gum: Any, tensor: Any) -> NoisyCauses | None:
    """A distribution that is computed, as a noisy OR or AND; None where it is neither.

    The probability of one of the two states is a product over the parents: read with one parent at
    a time away from its state 0, and compared elsewhere.
    """
    names = tensor.names[1:]
    sizes = [tensor.variable(name).domainSize() for name in names]
    if not names or tensor.variable(0).domainSize() != 2:
        return None

    def p(away: Mapping[int, int], state: int) -> float:
        at = gum.Instantiation(tensor)
        at.chgVal(tensor.names[0], state)
        for i, s in away.items():
            at.chgVal(names[i], s)
        return float(tensor.get(at))

    rng = np.random.default_rng(0)
    tests = [{i: int(rng.integers(n)) for i, n in enumerate(sizes)} for _ in range(_TESTS)]
    tests.append({i: n - 1 for i, n in enumerate(sizes)})
    for state, kind in ((0, NoisyOr), (1, NoisyAnd)):
        first = p({}, state)
        if not first > 0.0:
            continue
        apart = [np.array([p({i: s}, state) for s in range(n)]) for i, n in enumerate(sizes)]
        top = [own.max() for own in apart]
        most = first * float(np.prod([t / first for t in top]))
        ratio = [own / t for own, t in zip(apart, top)]
        if most > 1.0 + 1e-12:
            continue
        far = [
            abs(p(x, state) - most * float(np.prod([ratio[i][s] for i, s in x.items()])))
            for x in tests
        ]
        if max(far) > 1e-12:
            continue
        plain = kind is NoisyOr and all(n == 2 and r[0] == 1.0 for n, r in zip(sizes, ratio))
        numbers = [float(1.0 - r[1]) if plain else 1.0 - r for r in ratio]
        return kind(dict(zip(names, numbers)), max(1.0 - most, 0.0))
    return None


def _asked(gum: Any, tensor: Any) -> Floats:
    """The table (parents..., child) of a distribution that is computed, entry by entry."""
    names = tensor.names
    shape = [tensor.variable(name).domainSize() for name in names]
    cells = math.prod(shape)
    if cells > MAX_TABLE_CELLS:
        raise RefusedError(
            f"from_pyagrum: the distribution of {names[0]} is computed from {len(names) - 1} "
            "parents, and neither a noisy OR nor AND: it is too large for a table"
        )
    out, at = np.empty(cells), gum.Instantiation(tensor)
    for k in range(cells):
        out[k] = tensor.get(at)  # its first variable, the child, runs fastest
        at.inc()
    return np.moveaxis(out.reshape(shape[::-1]).T, 0, -1)


def _labels(variable: Any) -> list[str] | None:
    """Its labels; None where they are numbers from 0 and so no names."""
    labels = list(variable.labels())
    return None if labels == [str(k) for k in range(len(labels))] else labels


def to_pyagrum(graph: FactorGraph, state_names: StateNames | None = None) -> Any:
    """A pyAgrum ``BayesNet`` or ``MarkovRandomField``; arguments as in :func:`to_pgmpy`.

    Of a Markov random field, evidence and corrections are multiplied into unary factors, and
    factors over the same variables into one. A noisy OR whose parents have two states, the first
    without effect, stays one; other causes that combine become tables.
    """
    gum = load("pyagrum")
    check_graph(graph, "to_pyagrum")
    states = states_of(graph, state_names)
    names = [graph.name(v) for v in range(graph.n_variables)]
    ors = _plain_ors(graph) if graph.directed else {}
    conditionals = conditionals_of(graph, ors)
    model = gum.MarkovRandomField() if conditionals is None else gum.BayesNet()
    of = {int(graph.scope(i)[-1]): gate for i, gate in ors.items() if conditionals is not None}
    for v, name in enumerate(names):
        variable = gum.LabelizedVariable(name, "", [str(s) for s in states[v]])
        if v in of:
            model.addNoisyORNet(variable, of[v].leak)
        else:
            model.add(variable)
    if conditionals is None:
        for scope, table in factors_of(graph, merge=True):
            tensor = model.addFactor([names[v] for v in scope])
            tensor.fillWith(table.T.ravel().tolist())
        return model
    for v, gate in of.items():
        for parent, weight in gate.causes.items():
            model.addWeightedArc(parent, names[v], weight)
    for (*parents, child), table in conditionals:
        for p in parents:
            model.addArc(names[p], names[child])
        # its first variable, the child, runs fastest; then the parents as their arcs came
        rows = table.transpose([*range(len(parents) - 1, -1, -1), len(parents)])
        model.cpt(names[child]).fillWith(rows.ravel().tolist())
    return model


def _plain_ors(graph: FactorGraph) -> dict[int, NoisyCauses]:
    """Factors that are noisy ORs as pyAgrum has them."""
    out: dict[int, NoisyCauses] = {}
    for i in range(graph.n_factors):
        gate = entry_of(graph, i)
        if not isinstance(gate, NoisyOr):
            continue
        if all(isinstance(p, float) and p > 0.0 for p in gate.causes.values()):
            out[i] = gate
    return out


def _pyagrum_parts(model: Any) -> tuple[Any, list[int]]:
    """The library, and the ids of the model's variables."""
    gum = load("pyagrum")
    if not isinstance(model, gum.MarkovRandomField | gum.BayesNet):
        raise ModelError(
            f"from_pyagrum takes a MarkovRandomField or BayesNet, not {type(model).__name__}: "
            "decisions, utilities and sets of distributions are not factors"
        )
    return gum, sorted(model.nodes())
