"""Drawn log-linear models with labels, and what enumeration says of them."""

from __future__ import annotations

import numpy as np

from minfer import FactorGraph
from minfer.learn import Instance
from oracle.truth import joint, log_scores, logsumexp


def drawn_instance(
    rng: np.random.Generator,
    n_weights: int,
    *,
    binary: bool = False,
    pairs: bool = False,
    hidden: float = 0.0,
    rows: int = 1,
    sparse: bool = False,
    n: int | None = None,
) -> Instance:
    """A loopy graph of five or so variables, random X, labels of which a share is hidden."""
    n = int(rng.integers(4, 7)) if n is None else n
    n_states = np.full(n, 2) if binary else rng.integers(2, 4, n)
    graph = FactorGraph.empty(n_states)
    scopes = [[v] for v in range(n)]
    scopes += [[i, j] for i in range(n) for j in range(i) if rng.random() < 0.6]
    if not pairs:
        scopes.append(rng.permutation(n)[:3].tolist())
    for scope in scopes:
        shape = tuple(n_states[scope])
        if set(shape) == {2} and rng.random() < 0.5 and len(scope) > 1:
            truth = rng.random(shape) < 0.5
            graph = graph.add_features([scope], rng.normal(), truth)
        else:
            graph = graph.add_tables([scope], [0.5 * rng.normal(size=shape)])
    x = rng.normal(size=(len(graph.weights), n_weights)) * (rng.random((1, n_weights)) < 0.9)
    labels = np.stack([rng.integers(0, n_states) for _ in range(rows)])
    labels[rng.random(labels.shape) < hidden] = -1
    if (labels < 0).all():
        labels[0, 0] = 0
    if sparse:
        from scipy.sparse import csr_array

        x = csr_array(x * (rng.random(x.shape) < 0.5))
    return Instance(graph, x, labels)


def log_likelihood(instance: Instance, w: np.ndarray) -> float:
    """Sum over observations of log p(labels), hidden variables summed out, by enumeration."""
    states, p = joint(instance.graph_at(w))
    total = 0.0
    for row in instance.labels:
        fits = ((states == row) | (row < 0)).all(axis=1)
        total += np.log(p[fits].sum())
    return total


def log_pseudolikelihood(instance: Instance, w: np.ndarray) -> float:
    graph, total = instance.graph_at(w), 0.0
    for row in instance.labels:
        for v in range(graph.n_variables):
            others = np.repeat(row[None], graph.n_states[v], axis=0)
            others[:, v] = np.arange(graph.n_states[v])
            scores = graph.log_score(others)
            total += scores[row[v]] - logsumexp(scores)
    return total


def hinge(instance: Instance, w: np.ndarray, margin: float) -> float:
    """Largest score plus errors, less the labels' (best completion of hidden variables)."""
    graph = instance.graph_at(w)
    from oracle.truth import assignments

    states, scores, total = assignments(graph), log_scores(graph), 0.0
    for row in instance.labels:
        errors = ((states != row) & (row >= 0)).sum(axis=1)
        fits = ((states == row) | (row < 0)).all(axis=1)
        total += (scores + margin * errors).max() - scores[fits].max()
    return total


def slopes(function, w: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """Central differences."""
    out = np.empty(len(w))
    for j in range(len(w)):
        e = np.zeros(len(w))
        e[j] = step
        out[j] = (function(w + e) - function(w - e)) / (2 * step)
    return out
