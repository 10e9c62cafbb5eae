"""Drawn networks and questions, and their answers by one array of all assignments.

Shared by the tests of queries, explanations, samples and sensitivity; the arithmetic is plain
numpy over :func:`naive.log_weights`, none of the package's.
"""

from __future__ import annotations

import gzip
import importlib.util
from pathlib import Path

import numpy as np
import pytest

import naive
from minfer import FactorGraph


def network(rng: np.random.Generator, n: int = 6, zeros: float = 0.0) -> FactorGraph:
    """A Bayesian network of up to n variables, some with one state, perhaps with zeros."""
    n = int(rng.integers(1, n + 1))
    sizes = rng.choice([1, 2, 2, 2, 3, 3, 4], n)
    order = rng.permutation(n)
    names = [f"v{k}" for k in range(n)]
    states: dict = {}
    for v in range(n):
        named = rng.random() < 0.7
        states[names[v]] = [f"s{k}" for k in range(sizes[v])] if named else int(sizes[v])
    tables: dict = {}
    for k, v in enumerate(order):
        m = int(rng.integers(0, min(k, 3) + 1))
        parents = rng.choice(order[:k], m, replace=False) if m else []
        shape = [int(sizes[p]) for p in parents] + [int(sizes[v])]
        p = rng.dirichlet(np.ones(shape[-1]), int(np.prod(shape[:-1])))
        p[rng.random(p.shape) < zeros] = 0.0
        p[p.sum(axis=1) == 0.0, 0] = 1.0
        tables[names[v]] = ([names[p] for p in parents], (p / p.sum(1)[:, None]).reshape(shape))
    return FactorGraph.network(states, tables)


def markov(rng: np.random.Generator, n: int = 6, zeros: float = 0.0) -> FactorGraph:
    """A Markov network, connected or not."""
    n = int(rng.integers(1, n + 1))
    sizes = rng.choice([1, 2, 2, 3], n)
    scopes, tables = [], []
    for _ in range(int(rng.integers(0, 2 * n))):
        arity = int(rng.integers(0, min(n, 3) + 1))
        scope = rng.choice(n, arity, replace=False).tolist()
        table = rng.normal(size=[int(sizes[v]) for v in scope])
        table = np.where(rng.random(table.shape) < zeros, -np.inf, table)
        scopes.append(scope)
        tables.append(table)
    graph = FactorGraph.empty(sizes)
    return graph.add_tables(scopes, tables) if scopes else graph


def mixed(rng: np.random.Generator, n: int = 6, zeros: float = 0.0) -> FactorGraph:
    """A network with undirected factors added."""
    graph = network(rng, n, zeros)
    for _ in range(int(rng.integers(0, 3))):
        arity = int(rng.integers(1, min(graph.n_variables, 3) + 1))
        scope = rng.choice(graph.n_variables, arity, replace=False).tolist()
        table = rng.normal(size=[int(graph.n_states[v]) for v in scope])
        table = np.where(rng.random(table.shape) < zeros, -np.inf, table)
        graph = graph.add_tables([scope], [table])
    return graph


MODELS = {"network": network, "markov": markov, "mixed": mixed}


def evidence(rng: np.random.Generator, graph: FactorGraph, soft: bool = True) -> dict:
    """States by number or name, and likelihoods."""
    out: dict = {}
    for v in range(graph.n_variables):
        size = int(graph.n_states[v])
        draw = rng.random()
        if draw < 0.3:
            k = int(rng.integers(size))
            by_name = rng.random() < 0.5
            out[graph.name(v)] = graph.states(v)[k] if by_name else k
        elif draw < 0.4 and soft:
            like = rng.random(size)
            like[rng.random(size) < 0.3] = 0.0
            if like.any():
                out[v] = dict(zip(graph.states(v), like)) if rng.random() < 0.5 else like.tolist()
    return out


def weights(graph: FactorGraph, seen: dict | None = None) -> np.ndarray:
    """The unnormalised probability of every assignment with the evidence, (S_0, ..., S_V-1)."""
    sizes = tuple(graph.n_states.tolist())
    total = np.exp(naive.log_weights(sizes, naive.factors_of(graph)))
    for variable, state in (seen or {}).items():
        v = graph.index(variable)
        like = np.zeros(sizes[v])
        if isinstance(state, dict):
            for name, x in state.items():
                like[graph.states(v).index(name)] = x
        elif isinstance(state, (list, np.ndarray)):
            like[:] = state
        else:
            like[graph.states(v).index(state) if isinstance(state, str) else state] = 1.0
        total = total * like.reshape([-1 if a == v else 1 for a in range(len(sizes))])
    return total


def joint(w: np.ndarray, variables: list[int]) -> np.ndarray:
    """The normalised table over some variables, in their order."""
    rest = tuple(a for a in range(w.ndim) if a not in variables)
    left = sorted(variables)
    table = w.sum(axis=rest).transpose([left.index(v) for v in variables])
    return table / table.sum()


def repository(name: str):
    """A network of bnlearn's repository from the installed pgmpy, as pyAgrum reads it."""
    gum = pytest.importorskip("pyagrum", reason="pyAgrum is not installed")
    found = importlib.util.find_spec("pgmpy")
    if found is None:
        pytest.skip("pgmpy, which has bnlearn's networks, is not installed")
    folder = Path(found.origin).parent
    files = [p for p in folder.rglob(f"{name}.bif*") if p.suffix in (".bif", ".gz")]
    if not files:
        pytest.skip(f"the installed pgmpy has no {name}.bif")
    data = files[0].read_bytes()
    return gum, gzip.decompress(data) if files[0].suffix == ".gz" else data


def loaded(name: str, folder: Path):
    """pyAgrum, its network, and ours with the same tables."""
    gum, data = repository(name)
    (folder / f"{name}.bif").write_bytes(data)
    bn = gum.loadBN(str(folder / f"{name}.bif"))
    names = [bn.variable(k).name() for k in sorted(bn.nodes())]
    tables = {}
    for v in names:
        cpt = bn.cpt(v)
        parents = [p for p in cpt.names if p != v]
        axes = list(reversed(cpt.names))
        tables[v] = (
            parents, cpt.toarray().transpose([axes.index(x) for x in [*parents, v]]),
        )  # fmt: skip
    graph = FactorGraph.network({v: list(bn.variable(v).labels()) for v in names}, tables)
    for v in names:  # its tables sum to one only to some digits: the same numbers for both
        i = next(k for k in range(graph.n_factors) if graph.child(k) == graph.index(v))
        cpt = bn.cpt(v)
        axes = [graph.name(int(u)) for u in graph.scope(i)]
        exact = np.exp(graph.log_table(i)).transpose([axes.index(x) for x in reversed(cpt.names)])
        cpt.fillWith(exact.ravel().tolist())
    return gum, bn, graph
