"""Oracles one can check by eye: sums over all assignments. Slow and obvious on purpose."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.special import logsumexp

from minfer import FactorGraph


def assignments(graph: FactorGraph) -> np.ndarray:
    """Every assignment, shape (N, V)."""
    every = list(itertools.product(*(range(int(s)) for s in graph.n_states)))
    return np.array(every, dtype=np.int64).reshape(len(every), graph.n_variables)


def log_z(graph: FactorGraph) -> float:
    return float(logsumexp(graph.log_score(assignments(graph))))


def joint(graph: FactorGraph) -> tuple[np.ndarray, np.ndarray]:
    """All assignments and their probabilities."""
    x = assignments(graph)
    score = graph.log_score(x)
    return x, np.exp(score - logsumexp(score))


def marginals(graph: FactorGraph) -> np.ndarray:
    """Flat marginals (sum of states,)."""
    x, p = joint(graph)
    return np.concatenate(
        [np.bincount(x[:, v], p, minlength=s) for v, s in enumerate(graph.n_states)] or [[]]
    )


def factor_marginal(graph: FactorGraph, factor: int) -> np.ndarray:
    x, p = joint(graph)
    scope = graph.scope(factor)
    out = np.zeros(tuple(int(s) for s in graph.n_states[scope]))
    for row, weight in zip(x[:, scope], p):
        out[tuple(row)] += weight
    return out
