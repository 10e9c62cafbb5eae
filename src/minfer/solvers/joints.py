"""Joint marginals of any variables, from what a solver left.

A solver that can answer by itself has ``joint`` in its state: the exact ones, through a clique tree
that holds the variables together. Message passing has the beliefs of factors. They give the joint
of variables that lie in one factor, and of variables that only a tree ties together: with T the
factors and variables on the paths between them, no two of which are connected otherwise,

    p(x_T) = b_r(x_r) prod_{f in T} b_f(x_f) / b_f(x_u),

r any variable of T, u the one of f's that is nearest to r. Each factor is divided by a sum of its
own belief, so quotients lie between 0 and 1 however unlikely a state is. Variables that nothing
connects are independent.
"""

from __future__ import annotations

import math
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.engine.conditioning import condition
from minfer.engine.decomposition import only_tables
from minfer.engine.elimination import clique_tree
from minfer.engine.message_state import MessageState
from minfer.errors import ModelError, RefusedError
from minfer.factors.group import MAX_TABLE_CELLS, components
from minfer.graph import FactorGraph
from minfer.model.joint import Joint
from minfer.solvers.clique_passes import CliqueTreeState, check_tree, pass_messages
from minfer.solvers.plans import plan_for

if TYPE_CHECKING:
    from minfer.solvers.base import Marginals


def joint(m: Marginals, which: list[int]) -> Joint:
    """The joint marginal of some variables as a table with names."""
    if not which or len(set(which)) < len(which):
        raise ModelError("joint: name at least one variable, and none twice")
    graph = m.graph
    names, states = map(graph.name, which), map(graph.states, which)
    table = joint_table(m, which)
    if m.status.value != "exact":
        return Joint(table, tuple(names), tuple(states))
    return Joint(table, tuple(names), tuple(states), _logs=partial(_logs, graph, which))


def _logs(graph: FactorGraph, which: list[int], cells: NDArray[np.int64]) -> NDArray[np.float64]:
    """log Z with some variables observed in given states (n, k), (n,)."""
    plan = plan_for(graph, (), tuple(which), whole=True)
    rows = np.repeat(plan.nothing_known, len(cells), axis=0)
    rows[:, [plan.place[v] for v in which]] = cells
    return plan.run(rows)[1]


def joint_table(m: Marginals, variables: list[int]) -> NDArray[np.float64]:
    """The joint marginal over some variables, in their order; refused where there is none."""
    graph = m.graph
    shape = [int(graph._n_states[v]) for v in variables]
    if math.prod(shape) > MAX_TABLE_CELLS:
        raise RefusedError(
            f"a joint marginal over these {len(variables)} variables has {math.prod(shape):.3g} "
            f"cells, but the limit is {MAX_TABLE_CELLS:,}; ask for fewer of them"
        )
    if len(variables) == 1:
        return np.array(m[variables[0]])
    ask = getattr(m.state, "joint", None)
    if ask is not None:
        return ask(variables)
    free = [v for v in variables if float(m[v].max()) < 1.0]
    table = _of_free(m, free)
    out = np.zeros(shape)
    out[tuple(slice(None) if v in free else int(np.argmax(m[v])) for v in variables)] = table
    return out


def _of_free(m: Marginals, free: list[int]) -> NDArray[np.float64]:
    if len(free) < 2 or getattr(m.state, "independent", False):
        return np.array(m.product(free))
    net = _Bipartite(m)
    parts: dict[int, list[int]] = {}
    for v in free:
        parts.setdefault(int(net.labels[v]), []).append(v)
    out, order = np.ones(()), [v for part in parts.values() for v in part]
    for part in parts.values():
        table = np.array(m[part[0]]) if len(part) == 1 else _tied(m, net, part)
        out = np.multiply.outer(out, table)
    return out.transpose([order.index(v) for v in free])


def _tied(m: Marginals, net: _Bipartite, part: list[int]) -> NDArray[np.float64]:
    """Of variables that are connected: in one factor, or by a tree."""
    inside = net.factor_over(part)
    if inside is not None:
        belief = _belief(m, inside)
        if belief is not None:
            return _marginal(belief, net.free_scope(inside), part)
    tree = net.tree(part)
    if tree is None or not isinstance(m.state, MessageState):
        raise _refused(m, part)
    nearest, inner = tree
    scopes, tables = [[part[0]]], [np.array(m[part[0]])]
    for f, u in sorted(nearest.items()):
        belief = _belief(m, f)
        if belief is None:
            raise _refused(m, part)
        scope = [u, *(v for v in net.free_scope(f) if v in inner and v != u)]
        table = _marginal(belief, net.free_scope(f), scope)
        total = table.sum(axis=tuple(range(1, len(scope))), keepdims=True)
        scopes.append(scope)
        tables.append(np.where(total > 0.0, table / np.where(total > 0.0, total, 1.0), 0.0))
    order = sorted(inner)
    number = {v: k for k, v in enumerate(order)}
    with np.errstate(divide="ignore"):
        graph = FactorGraph.from_tables(
            [int(m.graph._n_states[v]) for v in order],
            [[number[v] for v in scope] for scope in scopes],
            [np.log(table) for table in tables],
        )
    model = only_tables(condition(graph))
    cliques = clique_tree(model)
    check_tree(cliques)
    found = pass_messages(model, cliques)
    state = CliqueTreeState(graph, model, cliques, found.probs, found.log_z)
    return state.joint([number[v] for v in part])


def _refused(m: Marginals, part: list[int]) -> RefusedError:
    names = ", ".join(m.graph.name(v) for v in part[:6]) + (", ..." if len(part) > 6 else "")
    who = repr(m.solver).partition("(")[0]
    return RefusedError(
        f"{who} has no joint marginal of {names}: no single factor contains them, and "
        "they lie on loops. Ask Exact(), minfer.query(model, targets), or add a factor of zeros "
        "(log-weights) over them before solving"
    )


def _belief(m: Marginals, factor: int) -> NDArray[np.float64] | None:
    """A factor's belief over its free variables."""
    found = m.state.factor(factor) if m.state is not None else None
    if found is None:
        return None
    known = [float(m[int(v)].max()) >= 1.0 for v in m.graph.scope(factor)]
    index = [
        int(np.argmax(m[int(v)])) if k else slice(None)
        for v, k in zip(m.graph.scope(factor), known)
    ]
    return np.asarray(found)[tuple(index)]


def _marginal(belief: NDArray, scope: list[int], wanted: list[int]) -> NDArray[np.float64]:
    rest = tuple(a for a, v in enumerate(scope) if v not in wanted)
    left = [v for v in scope if v in wanted]
    table = belief.sum(axis=rest)
    table = table / table.sum()
    return table.transpose([left.index(v) for v in wanted])


class _Bipartite:
    """Free variables and the factors over two of them at least, as a graph."""

    def __init__(self, m: Marginals) -> None:
        graph = m.graph
        self.graph = graph
        top = m.max_prob()
        self.is_free = top < 1.0
        factors, members = [], []
        for g in graph.groups:
            if g.arity < 2:
                continue
            here = self.is_free[g._scope]
            rows, columns = np.nonzero(here & (here.sum(axis=1) > 1)[:, None])
            factors.append(g._ids[rows])
            members.append(g._scope[rows, columns].astype(np.int64))
        self.f = np.concatenate([np.zeros(0, np.int64), *factors])
        self.v = np.concatenate([np.zeros(0, np.int64), *members])
        n, total = graph.n_variables, graph.n_variables + graph.n_factors
        self.labels = components(total, self.v, self.f + n)
        order = np.argsort(self.v, kind="stable")
        self.ptr = np.searchsorted(self.v[order], np.arange(n + 1))
        self.of_variable = self.f[order]

    def free_scope(self, factor: int) -> list[int]:
        return [int(v) for v in self.graph.scope(factor) if self.is_free[v]]

    def factors_of(self, v: int) -> list[int]:
        return self.of_variable[self.ptr[v] : self.ptr[v + 1]].tolist()

    def factor_over(self, part: list[int]) -> int | None:
        """The smallest factor over all of some variables, the first of equal ones."""
        common = set(self.factors_of(part[0]))
        for v in part[1:]:
            common &= set(self.factors_of(v))
        return min(common, key=lambda f: (len(self.free_scope(f)), f)) if common else None

    def tree(self, part: list[int]) -> tuple[dict[int, int], set[int]] | None:
        """Factors and variables between some variables; None if there are other ways round.

        Of each factor the variable that is nearest to the first of ``part``.
        """
        came: dict[int, tuple[int, int]] = {part[0]: (-1, -1)}
        todo, left = deque([part[0]]), set(part[1:])
        met: set[int] = set()
        while todo and left:
            v = todo.popleft()
            for f in self.factors_of(v):
                if f in met:
                    continue
                met.add(f)
                for u in self.free_scope(f):
                    if u not in came:
                        came[u] = v, f
                        left.discard(u)
                        todo.append(u)
        inner, nearest = {part[0]}, {}
        edges: set[tuple[int, int]] = set()
        for v in part[1:]:
            while v not in inner:
                u, f = came[v]
                inner.add(v)
                nearest[f] = u
                edges |= {(v, f), (u, f)}
                v = u
        n = self.graph.n_variables
        cut = np.array([v * (1 << 32) + f for v, f in edges], dtype=np.int64)
        rest = ~np.isin(self.v * (1 << 32) + self.f, cut)
        labels = components(len(self.labels), self.v[rest], self.f[rest] + n)
        ends = labels[[*inner, *(f + n for f in nearest)]]
        return (nearest, inner) if len(np.unique(ends)) == len(ends) else None
