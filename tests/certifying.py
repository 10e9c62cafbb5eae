"""What every certifying method is held to: drawn models, and marginals to fifty digits."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal, localcontext

import numpy as np

import naive
from minfer import ContradictionError, FactorGraph, Intervals
from minfer.certified.bounds import BoundMethod, Bounds, Meter
from minfer.certified.local import Local
from minfer.conditioning import condition
from refuting import EXACT, exponential


def true_marginals(graph: FactorGraph) -> np.ndarray | None:
    """Marginals (sum of states,) as decimals; None where everything is impossible.

    The weights of all assignments are multiplied up from scopes and log-tables as plain numbers
    (:mod:`naive`): no arithmetic is shared with the package.
    """
    with localcontext(EXACT):
        exp = np.frompyfunc(exponential, 1, 1)
        shape = tuple(graph.n_states.tolist())
        weight = np.full(shape, Decimal(1), dtype=object)
        for scope, table in naive.factors_of(graph):
            by_variable = np.transpose(np.asarray(exp(table), dtype=object), np.argsort(scope))
            spread = by_variable.reshape([s if v in scope else 1 for v, s in enumerate(shape)])
            weight = np.asarray(weight * spread, dtype=object)
        if not weight.any():
            return None
        parts = [np.zeros(0, dtype=object)]
        for v in range(len(shape)):
            rest = tuple(u for u in range(len(shape)) if u != v)
            mine = weight.sum(axis=rest) if rest else weight
            parts.append(mine / mine.sum())
        return np.concatenate(parts)


def alone(
    method: BoundMethod,
    graph: FactorGraph,
    budgets: tuple[float, ...],
    ignored: np.ndarray | None = None,
) -> list[Bounds]:
    """The bounds after each call of a method that works alone, from nothing."""
    local = Local.of(condition(graph), ignored)
    bounds = Bounds.vacuous(graph)
    wanted = np.ones(graph.n_variables, dtype=bool)
    found = []
    for budget in budgets:
        method.refine(local, bounds, wanted, budget, Meter(None, None))
        found.append(Bounds(graph, bounds.lo.copy(), bounds.hi.copy(), bounds.codes.copy()))
    return found


def violations(bounds: Bounds | Intervals, truth: Iterable[Decimal]) -> list[int]:
    """States whose true probability lies outside; not a digit is forgiven."""
    ends = zip(bounds.lo.tolist(), bounds.hi.tolist(), truth, strict=True)
    return [k for k, (lo, hi, p) in enumerate(ends) if not Decimal(lo) <= p <= Decimal(hi)]


def drawn_edges(rng: np.random.Generator, n: int, tree: bool) -> np.ndarray:
    """Edges of a tree, a forest, or a graph with cycles, some twice, some variables alone."""
    if tree:
        edges = [(int(rng.integers(v)), v) for v in range(1, n) if rng.random() < 0.9]
    else:
        edges = [(i, j) for i in range(n) for j in range(i) if rng.random() < 2.5 / n]
        edges += [edges[k] for k in range(len(edges)) if rng.random() < 0.1]
    flip = rng.random(len(edges)) < 0.5
    return np.array([(b, a) if f else (a, b) for (a, b), f in zip(edges, flip)], int).reshape(-1, 2)


def drawn_weights(rng: np.random.Generator, n: int) -> np.ndarray:
    """Weak, middling, strong, huge, or zero; one sign, the other, or both."""
    scale = rng.choice([0.01, 0.3, 1.0, 3.0, 30.0, 1e3])
    w = scale * rng.standard_normal(n)
    w = [w, np.abs(w), -np.abs(w)][rng.integers(3)]
    return np.where(rng.random(n) < 0.1, 0.0, w)


def drawn_binary(rng: np.random.Generator, tree: bool = False, others: bool = False) -> FactorGraph:
    """Binary variables, pairs of any sign; ``others``: factors of three and four, with zeros."""
    while True:
        n = int(rng.integers(1, 9))
        edges = drawn_edges(rng, n, tree)
        fields = rng.choice([0.1, 1.0, 5.0, 200.0]) * rng.standard_normal(n)
        feature = ["and", "equal"][rng.integers(2)]
        graph = FactorGraph.pairwise(fields, edges, drawn_weights(rng, len(edges)), feature=feature)
        for _ in range(rng.integers(1, 4) if others else 0):
            arity = min(n, int(rng.integers(2, 5)))
            scope = rng.permutation(n)[:arity]
            table = rng.choice([0.3, 2.0]) * rng.standard_normal((2,) * arity)
            table[rng.random(table.shape) < rng.choice([0.0, 0.1, 0.4])] = -np.inf
            graph = graph.add_tables([scope], [table])
        if rng.random() < 0.3:
            graph = graph.with_evidence({int(rng.integers(n)): int(rng.integers(2))})
        if possible(graph):
            return graph


def drawn_tables(
    rng: np.random.Generator, tree: bool = False, zeros: bool = True, most: int = 1500
) -> FactorGraph:
    """Two to five states, tables over two to four variables, fields, evidence."""
    while True:
        n = int(rng.integers(1, 7))
        sizes = rng.integers(2, 6, n)
        while np.prod(sizes) > most:
            sizes = np.maximum(sizes - 1, 2)
        scale = rng.choice([0.1, 1.0, 3.0, 300.0], p=[0.3, 0.4, 0.2, 0.1])
        scopes = [list(e) for e in drawn_edges(rng, n, tree)] + [[v] for v in range(n)]
        if not tree and n > 2:
            scopes += [
                list(rng.permutation(n)[: rng.integers(3, 5)]) for _ in range(rng.integers(3))
            ]
        graph = FactorGraph.empty(sizes)
        share = rng.choice([0.0, 0.05, 0.3]) if zeros else 0.0
        for scope in scopes:
            table = scale * rng.standard_normal(tuple(sizes[scope]))
            table[rng.random(table.shape) < share] = -np.inf
            graph = graph.add_tables([scope], [table])
        if rng.random() < 0.3:
            v = int(rng.integers(n))
            graph = graph.with_evidence({v: int(rng.integers(sizes[v]))})
        if possible(graph):
            return graph


def possible(graph: FactorGraph) -> bool:
    """Whether any assignment is."""
    try:
        condition(graph)
    except ContradictionError:
        return False
    return bool(naive.log_z(graph) > -np.inf)
