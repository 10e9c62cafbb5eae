"""Small models of every kind, drawn, with their true marginals: for certified intervals."""

from __future__ import annotations

import itertools

import numpy as np

from certifying import true_marginals
from minfer import ContradictionError, FactorGraph, read_uai
from minfer.certified.bounds import Bounds, Meter
from minfer.certified.local import Local
from minfer.conditioning import condition
from minfer.io import read_mar

KINDS = ("pairs", "states", "zeros", "arity", "huge", "logical", "apart", "evidence", "features")
MOST = 600  # assignments


def draw(rng: np.random.Generator, kind: str, most: int = MOST) -> FactorGraph:
    """A model of one kind; it may contradict itself."""
    high = 3 if kind in ("pairs", "features", "logical") else 6
    states: list[int] = []
    target = int(rng.integers(2, most))
    while True:
        s = int(rng.integers(2, high)) if rng.random() > 0.07 or high == 3 else 1
        if np.prod([*states, s]) > target or len(states) > 12:
            break
        states.append(s)
    n = len(states)
    scale = {"huge": 1000.0, "zeros": 2.0}.get(kind, float(rng.choice([0.3, 1.0, 4.0])))
    scopes, tables = [], []
    for _ in range(int(rng.integers(0, 2 * n + 2)) if n else 0):
        arity = 1 + int(rng.integers(0, min(n, 4 if kind == "arity" else 2)))
        half = slice(0, (n + 1) // 2) if rng.random() < 0.5 else slice((n + 1) // 2, n)
        among = np.arange(n)[half] if kind == "apart" else np.arange(n)
        arity = min(arity, len(among))
        if not arity:
            continue
        scope = rng.choice(among, arity, replace=False)
        table = scale * rng.normal(size=[states[v] for v in scope])
        if kind in ("zeros", "arity", "huge") and rng.random() < 0.5:
            table[rng.random(table.shape) < 0.3] = -np.inf
        scopes.append(scope.tolist())
        tables.append(table)
    graph = FactorGraph.from_tables(states, scopes, tables)
    if kind == "features" and n > 1:
        pairs = [rng.choice(n, 2, replace=False) for _ in range(n)]
        graph = graph.add_features(pairs, scale * rng.normal(size=n), "equal")
    if kind == "logical" and n > 1:
        for _ in range(int(rng.integers(1, 4))):
            graph = _with_logic(rng, graph)
    if kind == "evidence" and n:
        some = rng.choice(n, int(rng.integers(0, n + 1)), replace=False)
        graph = graph.with_evidence({int(v): int(rng.integers(states[v])) for v in some})
    return graph


def _with_logic(rng: np.random.Generator, graph: FactorGraph) -> FactorGraph:
    n = graph.n_variables
    scope = rng.choice(n, int(rng.integers(2, n + 1)), replace=False).tolist()
    weight = float(rng.choice([np.inf, 1.5, -0.7]))
    which = int(rng.integers(5))
    if which == 0:
        return graph.add_clauses([scope], weight if weight > 0 else 1.0)
    if which == 1:
        return graph.add_parity([scope], weight if np.isfinite(weight) else 2.0)
    if which == 2:
        return graph.add_exactly_one([scope])
    if which == 3:
        return graph.add_at_most_one([scope])
    return graph.add_cardinality([scope], rng.normal(size=len(scope) + 1))


def alone(method, graph: FactorGraph, levels: int = 6, start: Bounds | None = None) -> Bounds:
    """What one method finds by itself, budgets growing; known variables are the caller's."""
    model = condition(graph)
    local = Local.of(model)
    bounds = Bounds.vacuous(graph) if start is None else start
    for v in np.flatnonzero(model.fixed >= 0):
        mine = slice(graph.offsets[v], graph.offsets[v + 1])
        bounds.lo[mine] = bounds.hi[mine] = np.arange(graph.n_states[v]) == model.fixed[v]
    for level in range(levels):
        method.refine(local, bounds, bounds.width > 1e-13, 64.0 * 4**level, Meter(None, None))
    return bounds


def cases(seed: int, each: int, most: int = MOST):
    """(graph, true marginals) of models that are possible, ``each`` of every kind."""
    for number, kind in itertools.product(range(each), KINDS):
        rng = np.random.default_rng([seed, number, KINDS.index(kind)])
        graph = draw(rng, kind, most)
        try:
            condition(graph)
        except ContradictionError:
            continue
        p = true_marginals(graph)
        if p is not None:
            yield graph, p


def published(path) -> tuple[FactorGraph, np.ndarray]:
    """A model of the UAI competition and its exact marginals, which have 12 digits."""
    beside = {e: path.with_name(path.name.replace(".uai.gz", f".uai.{e}.gz"))
              for e in ("evid", "MAR")}  # fmt: skip
    return read_uai(path, evidence=beside["evid"]), np.concatenate(read_mar(beside["MAR"]))
