"""Oracles one can check by eye: sums over all assignments. Slow and obvious on purpose.

They share no arithmetic with the package. A model is its scopes and log-tables as plain numpy
(:func:`factors_of`), added up over one array of all assignments (:func:`log_weights`); that a graph
hands out the very scopes and tables it was built from is a test of its own (``test_graph.py``).
"""

from __future__ import annotations

import math
from weakref import WeakKeyDictionary

import numpy as np

from minfer import FactorGraph, Globals

Factor = tuple[tuple[int, ...], np.ndarray]  # scope (A,) and log-table (S_1, ..., S_A)

#: What :func:`log_scores` has found of graphs that are still there: many solvers are held to one.
_SCORES: WeakKeyDictionary[FactorGraph, np.ndarray] = WeakKeyDictionary()


def logsumexp(x: np.ndarray | list[float], axis: int | None = None) -> np.ndarray:
    """log of the sum of e^x; scipy's takes a quarter of a millisecond a call."""
    top = np.max(x, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        found = np.log(np.exp(x - top).sum(axis=axis, keepdims=True)) + top
    return np.squeeze(found, axis)[()]


def log_weights(n_states: tuple[int, ...], factors: list[Factor]) -> np.ndarray:
    """log of the unnormalised probability of every assignment, shape (S_0, ..., S_V-1)."""
    total = np.zeros(n_states)
    for scope, table in factors:
        by_variable = np.transpose(table, np.argsort(scope))
        shape = [s if v in scope else 1 for v, s in enumerate(n_states)]
        total = total + by_variable.reshape(shape)
    return total


def factors_of(graph: FactorGraph) -> list[Factor]:
    """Every factor in turn, then the field as one table per variable."""
    objects = {
        int(i): factor
        for group in graph.groups
        if isinstance(group, Globals)
        for i, factor in zip(group.ids, [group.factor] * len(group))
    }
    found = []
    for i in range(graph.n_factors):
        scope = tuple(graph.scope(i).tolist())
        table = global_table(graph, scope, objects[i]) if i in objects else graph.log_table(i)
        found.append((scope, table))
    starts = np.cumsum([0, *graph.n_states.tolist()])
    for v in range(graph.n_variables):
        found.append(((v,), graph.field[starts[v] : starts[v + 1]]))
    return found


def global_table(graph: FactorGraph, scope: tuple[int, ...], factor) -> np.ndarray:
    """A global factor by its definition, ``score``, at every assignment of its scope."""
    table = np.empty([int(graph.n_states[v]) for v in scope])
    for cell in np.ndindex(table.shape):
        table[cell] = factor.score(np.array([cell], dtype=np.int64))[0]
    return table


def assignments(graph: FactorGraph) -> np.ndarray:
    """Every assignment, shape (N, V)."""
    shape = tuple(graph.n_states.tolist())
    return np.indices(shape).reshape(len(shape), math.prod(shape)).T


def log_scores(graph: FactorGraph) -> np.ndarray:
    """log of the unnormalised probability, shape (N,), in the order of :func:`assignments`."""
    if graph not in _SCORES:
        found = log_weights(tuple(graph.n_states.tolist()), factors_of(graph)).ravel()
        found.flags.writeable = False
        _SCORES[graph] = found
    return _SCORES[graph]


def log_z(graph: FactorGraph) -> float:
    return float(logsumexp(log_scores(graph)))


def joint(graph: FactorGraph) -> tuple[np.ndarray, np.ndarray]:
    """All assignments and their probabilities."""
    score = log_scores(graph)
    return assignments(graph), np.exp(score - logsumexp(score))


def marginals(graph: FactorGraph) -> np.ndarray:
    """Flat marginals (sum of states,)."""
    x, p = joint(graph)
    return np.concatenate(
        [np.bincount(x[:, v], p, minlength=s) for v, s in enumerate(graph.n_states)] or [[]]
    )


def factor_marginal(graph: FactorGraph, factor: int) -> np.ndarray:
    _, p = joint(graph)
    scope = graph.scope(factor).tolist()
    others = tuple(v for v in range(graph.n_variables) if v not in scope)
    by_variable = p.reshape(graph.n_states).sum(axis=others)
    return np.transpose(by_variable, np.argsort(np.argsort(scope)))


def covariances(
    graph: FactorGraph, cotangent: np.ndarray
) -> tuple[np.ndarray, list[np.ndarray], float]:
    """How exact marginals, and those of every factor, move along a cotangent: Cov(1[s], T).

    In long double, and from differences to the likeliest assignment, so that nothing cancels where
    one has almost all of the probability. Also the sum of E|t_v - E t_v|: what may be rounded.
    """
    shape = tuple(graph.n_states.tolist())
    total = np.zeros(shape, dtype=np.longdouble)
    for scope, table in factors_of(graph):
        table = np.transpose(np.asarray(table, dtype=np.longdouble), np.argsort(scope))
        total = total + table.reshape([s if v in scope else 1 for v, s in enumerate(shape)])
    p = np.exp(total - total.max())
    p /= p.sum()
    top = np.unravel_index(np.argmax(p), shape)
    t, size, start = np.zeros(shape, dtype=np.longdouble), 0.0, 0
    for v, s in enumerate(shape):
        mine = cotangent[start : start + s].reshape([-1] + [1] * (len(shape) - 1 - v))
        mine = mine - np.longdouble(cotangent[start + top[v]])
        mine = mine - (p * mine).sum()
        t, size, start = t + mine, size + float((p * np.abs(mine)).sum()), start + s
    moved = p * (t - (p * t).sum())

    def of(scope: list[int]) -> np.ndarray:
        others = tuple(v for v in range(len(shape)) if v not in scope)
        return np.transpose(moved.sum(axis=others), np.argsort(np.argsort(scope))).astype(float)

    field = np.concatenate([of([v]) for v in range(len(shape))])
    return field, [of(graph.scope(i).tolist()) for i in range(graph.n_factors)], size
