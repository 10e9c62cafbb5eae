"""networkx: a pairwise model as a graph with attributes.

A node's attribute ``unary`` is its log-potentials, S numbers, or one number: the log-odds of state
1 of a binary variable. An edge's attribute ``pairwise`` is a log-table, or one number w: the model
gains w where both ends are in the same state (Ising, Potts). The rows of a table belong to the
source of a directed edge. An undirected one forgets in which order its ends were given, so its
attribute ``scope``, the two nodes, tells, and a table that is not symmetric needs it. Parallel
edges of a multigraph are factors of their own. A node's attribute ``states``, if it has one, names
its states.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minfer.basics.checks import check_graph, load
from minfer.errors import ModelError
from minfer.factors.group import Floats
from minfer.graph import FactorGraph
from minfer.interop.networks import names_of


def from_networkx(G: Any, *, unary: str = "unary", pairwise: str = "pairwise") -> FactorGraph:
    """A networkx graph with log-potentials on nodes and edges.

    Parameters
    ----------
    G : networkx graph, directed or not, multigraph or not
    unary : str
        The node attribute, as the module's text says. A node without it has no unary factor and
        the states that its edges' tables give it.
    pairwise : str
        The edge attribute; every edge needs it. ``"weight"`` reads couplings from the usual place.

    Variables are numbered as ``G.nodes``; unary factors come first, then the edges in their order.
    """
    nx = load("networkx")
    if not isinstance(G, nx.Graph):
        raise ModelError(f"a networkx graph, not {type(G).__name__}")
    number = {node: v for v, node in enumerate(G.nodes)}
    names = names_of(G.nodes)
    scopes: list[tuple[int, ...]] = []
    tables: list[Floats] = []
    states: dict[int, int] = {}
    for node, attributes in G.nodes(data=True):
        if unary in attributes:
            where = f"node {node}: {unary}"
            values = _numbers(attributes[unary], where)
            if values.ndim > 1 or not values.size:
                raise ModelError(f"{where} has shape {values.shape}; it is one number or a row")
            values = values if values.ndim else np.array([0.0, float(values)])
            _agree(states, number[node], len(values), where)
            scopes.append((number[node],))
            tables.append(values)
    edges: list[tuple[tuple[int, int], Floats]] = []
    for a, b, attributes in G.edges(data=True):
        where = f"edge {a} - {b}: {pairwise}"
        if a == b:
            raise ModelError(f"edge {a} - {b} is a loop; put it into the node's {unary}")
        if pairwise not in attributes:
            raise ModelError(f"edge {a} - {b} has no attribute {pairwise!r}")
        table = _numbers(attributes[pairwise], where)
        if table.ndim not in (0, 2):
            raise ModelError(f"{where} has shape {table.shape}; it is one number or a table")
        if not G.is_directed() and table.ndim:
            a, b = _ends(a, b, attributes.get("scope"), table, where)
        scope = (number[a], number[b])
        for v, size in zip(scope, table.shape):
            _agree(states, v, size, where)
        edges.append((scope, table))
    for scope, table in edges:
        scopes.append(scope)
        tables.append(table if table.ndim else _same(scope, float(table), states, names))
    missing = [names[v] for v in range(len(names)) if v not in states]
    if missing:
        raise ModelError(f"nothing says how many states {missing[0]} has; give it a {unary!r}")
    graph = FactorGraph.from_tables([states[v] for v in range(len(names))], scopes, tables, names)
    graph = graph.with_state_names([G.nodes[node].get("states") for node in G.nodes])
    if constant := G.graph.get("constant", 0.0):
        graph = graph.add_tables([()], [float(constant)])
    return graph


def to_networkx(graph: FactorGraph) -> Any:
    """A networkx ``Graph`` whose nodes are the variables' names, read back by the importer.

    Factors over the same variables are added up into one attribute, evidence and corrections into
    the nodes'; constant factors into the graph attribute ``constant``. Names of states go to the
    nodes' attribute ``states``. Factors over three or more variables are an error.
    """
    nx = load("networkx")
    check_graph(graph, "to_networkx")
    large = np.flatnonzero(graph.arity > 2)
    if len(large):
        raise ModelError(
            f"factor {large[0]} has {graph.arity[large[0]]} variables; edges of a networkx graph "
            "hold two: to_pgmpy and to_pyagrum take larger factors"
        )
    names = [graph.name(v) for v in range(graph.n_variables)]
    G = nx.Graph(constant=0.0)
    for v, name in enumerate(names):
        G.add_node(name, unary=graph.field[graph.offsets[v] : graph.offsets[v + 1]].copy())
        if graph._states and graph._states[v]:
            G.nodes[name]["states"] = graph.states(v)
    for i in range(graph.n_factors):
        scope, table = [int(v) for v in graph.scope(i)], graph.log_table(i)
        if not scope:
            G.graph["constant"] += float(table)
        elif len(scope) == 1:
            G.nodes[names[scope[0]]]["unary"] += table
        else:
            if scope[0] > scope[1]:
                scope, table = scope[::-1], table.T
            a, b = names[scope[0]], names[scope[1]]
            known = G.edges[a, b]["pairwise"] if G.has_edge(a, b) else 0.0
            G.add_edge(a, b, pairwise=known + table, scope=(a, b))
    return G


def _ends(a: Any, b: Any, scope: Any, table: Floats, where: str) -> tuple[Any, Any]:
    """To which end the rows of an undirected edge's table belong, and to which the columns."""
    if scope is None:
        if not np.array_equal(table, table.T):
            raise ModelError(
                f"{where} is not symmetric, and an undirected edge has no order: give the edge "
                "scope=(node of the rows, node of the columns), or use a DiGraph"
            )
        return a, b
    if not isinstance(scope, (tuple, list)) or tuple(scope) not in ((a, b), (b, a)):
        raise ModelError(f"{where}: its scope is {scope!r}, not the edge's two nodes")
    return scope[0], scope[1]


def _numbers(value: Any, where: str) -> Floats:
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ModelError(f"{where} is {value!r}, not numbers") from None
    if not (array < np.inf).all():
        raise ModelError(f"{where} has a NaN or plus infinity; these are log-potentials")
    return array


def _agree(states: dict[int, int], v: int, size: int, where: str) -> None:
    if states.setdefault(v, size) != size:
        raise ModelError(f"{where} is for {size} states where others give {states[v]}")


def _same(
    scope: tuple[int, int], weight: float, states: dict[int, int], names: list[str]
) -> Floats:
    """w [x_a = x_b] as a table."""
    a, b = scope
    for v in scope:
        if v not in states:
            raise ModelError(f"nothing says how many states {names[v]} has; give it a unary")
    if states[a] != states[b]:
        raise ModelError(
            f"edge {names[a]} - {names[b]}: one number couples variables of the same number of "
            f"states, not {states[a]} and {states[b]}; use a table"
        )
    return weight * np.eye(states[a])
