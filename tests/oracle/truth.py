"""Oracles one can check by eye: sums over all assignments. Slow and obvious on purpose.

They share no arithmetic with the package. A model is its scopes and log-tables as plain numpy
(:func:`factors_of`), added up over one array of all assignments (:func:`log_weights`); that a graph
hands out the very scopes and tables it was built from is a test of its own (``test_graph.py``).
Where the last bit counts the same tables are multiplied in long doubles, or in decimals of 50
digits; models too large to enumerate are summed out one variable after the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from minfer import FactorGraph, Globals

Factor = tuple[tuple[int, ...], np.ndarray]  # scope (A,) and log-table (S_1, ..., S_A)

#: Fifty digits, and no end of the exponents.
EXACT = Context(prec=50, Emin=MIN_EMIN, Emax=MAX_EMAX)
#: Long doubles, where the machine has them.
WIDE = np.longdouble

#: What :func:`log_scores` has found of graphs that are still there: many solvers are held to one.
_SCORES: WeakKeyDictionary[FactorGraph, np.ndarray] = WeakKeyDictionary()


def logsumexp(x: np.ndarray | list[float], axis: int | None = None) -> np.ndarray:
    """log of the sum of e^x; scipy's takes a quarter of a millisecond a call."""
    top = np.max(x, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        found = np.log(np.exp(x - top).sum(axis=axis, keepdims=True)) + top
    return np.squeeze(found, axis)[()]


def spread(n_states: tuple[int, ...], scope: tuple[int, ...], table: np.ndarray) -> np.ndarray:
    """A table over its scope as one over all variables, of length one along the others."""
    by_variable = np.transpose(table, np.argsort(scope))
    return by_variable.reshape([s if v in scope else 1 for v, s in enumerate(n_states)])


def log_weights(
    n_states: tuple[int, ...], factors: list[Factor], dtype: type = float
) -> np.ndarray:
    """log of the unnormalised probability of every assignment, shape (S_0, ..., S_V-1)."""
    total = np.zeros(n_states, dtype=dtype)
    for scope, table in factors:
        total = total + spread(n_states, scope, np.asarray(table, dtype=dtype))
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


def divergence(p_graph: FactorGraph, q_graph: FactorGraph) -> float:
    """D(p || q); infinite where q forbids what p allows."""
    p, q = log_scores(p_graph), log_scores(q_graph)
    alive = p > -np.inf
    if (q[alive] == -np.inf).any():
        return np.inf
    p, q = p - logsumexp(p), q - logsumexp(q)
    return float((np.exp(p[alive]) * (p[alive] - q[alive])).sum())


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
    total = log_weights(shape, factors_of(graph), WIDE)
    p = np.exp(total - total.max())
    p /= p.sum()
    top = np.unravel_index(np.argmax(p), shape)
    t, size, start = np.zeros(shape, dtype=WIDE), 0.0, 0
    for v, s in enumerate(shape):
        mine = cotangent[start : start + s].reshape([-1] + [1] * (len(shape) - 1 - v))
        mine = mine - WIDE(cotangent[start + top[v]])
        mine = mine - (p * mine).sum()
        t, size, start = t + mine, size + float((p * np.abs(mine)).sum()), start + s
    moved = p * (t - (p * t).sum())

    def of(scope: list[int]) -> np.ndarray:
        others = tuple(v for v in range(len(shape)) if v not in scope)
        return np.transpose(moved.sum(axis=others), np.argsort(np.argsort(scope))).astype(float)

    field = np.concatenate([of([v]) for v in range(len(shape))])
    return field, [of(graph.scope(i).tolist()) for i in range(graph.n_factors)], size


def weights(graph: FactorGraph, seen: dict | None = None) -> np.ndarray:
    """The unnormalised probability of every assignment with the evidence, (S_0, ..., S_V-1)."""
    return np.exp(log_scores_with(graph, seen or {}))


def log_scores_with(graph: FactorGraph, seen: dict) -> np.ndarray:
    """Its logarithm; evidence is a state by number or name, or likelihoods of all states."""
    sizes = tuple(graph.n_states.tolist())
    total = log_scores(graph).reshape(sizes)
    for variable, state in seen.items():
        v = graph.index(variable)
        like = np.zeros(sizes[v])
        if isinstance(state, dict):
            for name, x in state.items():
                like[graph.states(v).index(name)] = x
        elif isinstance(state, (list, np.ndarray)):
            like[:] = state
        else:
            like[graph.states(v).index(state) if isinstance(state, str) else state] = 1.0
        with np.errstate(divide="ignore"):
            total = total + spread(sizes, (v,), np.log(like))
    return total


def table(w: np.ndarray, variables: list[int]) -> np.ndarray:
    """The normalised table over some variables of weights of all, in their order."""
    rest = tuple(a for a in range(w.ndim) if a not in variables)
    left = sorted(variables)
    found = w.sum(axis=rest).transpose([left.index(v) for v in variables])
    return found / found.sum()


def in_long_doubles(table: np.ndarray) -> np.ndarray:
    """exp of a log-table over its largest entry, in long doubles."""
    top = table.max()
    return np.exp(table.astype(WIDE) - WIDE(top if top > -np.inf else 0.0))


def in_digits(table: np.ndarray) -> np.ndarray:
    """exp of a log-table as decimals, exact but for 50 digits."""
    return np.asarray(np.frompyfunc(exponential, 1, 1)(table), dtype=object)


@lru_cache(maxsize=1 << 16)
def exponential(x: float) -> Decimal:
    """exp of a plain number, which is taken as exact."""
    return Decimal(x).exp(EXACT)


def marginals_of(
    n_states: tuple[int, ...], factors: list[Factor], number: Any, order: list[int] | None = None
) -> np.ndarray | None:
    """Marginals (sum of states,) in another arithmetic; None where everything is impossible.

    ``order`` says in which order to sum variables out, for models too large to enumerate.
    """
    if not n_states:
        return np.zeros(0)
    every = range(len(n_states))
    tables = [(scope, np.asarray(number(t))) for scope, t in factors]
    one = number(np.zeros(1))[0]
    if order is None:
        total = np.full(n_states, one)
        for scope, t in tables:
            total = np.asarray(total * spread(n_states, scope, t))
        found = [total.sum(axis=tuple(u for u in every if u != v)) for v in every]
    else:
        found = [_eliminate(n_states, tables, one, v, order) for v in every]
    if not found[0].sum() > 0:
        return None
    return np.concatenate([w / w.sum() for w in found])


def _eliminate(
    n_states: tuple[int, ...], tables: list[Factor], one: Any, variable: int, order: list[int]
) -> np.ndarray:
    """Weights of a variable's states: all others summed out in this order."""
    left = tables
    for u in [u for u in order if u != variable]:
        joined: Factor = ((u,), np.full(n_states[u], one))
        for f in left:
            joined = _product(joined, f) if u in f[0] else joined
        rest = tuple(v for v in joined[0] if v != u)
        left = [f for f in left if u not in f[0]]
        left.append((rest, joined[1].sum(axis=joined[0].index(u))))
    total: Factor = ((variable,), np.full(n_states[variable], one))
    for f in left:
        total = _product(total, f)
    return total[1]


def _product(one: Factor, other: Factor) -> Factor:
    """The product of two tables over the union of their scopes, in increasing order."""
    scope = tuple(sorted({*one[0], *other[0]}))

    def over(f: Factor) -> np.ndarray:
        by_number = np.transpose(f[1], np.argsort(f[0]))
        sizes = dict(zip(sorted(f[0]), by_number.shape))
        return by_number.reshape([sizes.get(v, 1) for v in scope])

    return scope, over(one) * over(other)


def true_marginals(graph: FactorGraph) -> np.ndarray | None:
    """Marginals (sum of states,) as decimals; None where everything is impossible."""
    with localcontext(EXACT):
        return marginals_of(tuple(graph.n_states.tolist()), factors_of(graph), in_digits)


def violations(bounds: Any, truth: Iterable[Decimal]) -> list[int]:
    """States whose true probability lies outside; not a digit is forgiven."""
    ends = zip(bounds.lo.tolist(), bounds.hi.tolist(), truth, strict=True)
    return [k for k, (lo, hi, p) in enumerate(ends) if not Decimal(lo) <= p <= Decimal(hi)]
