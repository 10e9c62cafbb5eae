"""What the bridges share: names, tables from logs to numbers and back, and states' names."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import load as load
from minfer.errors import ModelError
from minfer.graph import FactorGraph
from minfer.model.directed import child_last

StateNames = Mapping[str, Sequence[Hashable]]

#: exp of logs beyond this is not a normal float64, and a log-table would not survive.
LARGEST_LOG = 708.0


class Factor(NamedTuple):
    """A factor on its way out: a log-table, at last potentials."""

    scope: tuple[int, ...]
    table: NDArray[np.float64]  # (S_1, ..., S_A)


def names_of(nodes: Iterable[Hashable]) -> list[str]:
    """Nodes as variable names; two that read alike would be one variable."""
    names: dict[str, Hashable] = {}
    for node in nodes:
        name = str(node)
        if name in names:
            raise ModelError(f"nodes {names[name]!r} and {node!r} have the same name; rename one")
        names[name] = node
    return list(names)


def log_of(values: ArrayLike, where: str) -> NDArray[np.float64]:
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
    sums: dict[tuple[int, ...], NDArray[np.float64]] = {}
    for scope, log_psi in factors:
        key = tuple(sorted(scope))
        sums[key] = sums.get(key, 0.0) + log_psi.transpose(np.argsort(scope))
    return [Factor(scope, log_psi) for scope, log_psi in sums.items()]


def _exp(factor: Factor, graph: FactorGraph) -> NDArray[np.float64]:
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
