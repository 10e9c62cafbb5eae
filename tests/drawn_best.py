"""Drawn models for the search for the best assignment, and its promises against all assignments.

``check(number)`` repeats one; ``benchmarks/map.py drawn`` runs as many as one likes.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

import asking
import minfer
import naive
from minfer import ContradictionError, FactorGraph, RefusedError
from minfer.parsing.trees import NonProjectiveTree, ProjectiveTree, all_arcs

#: So little memory that no clique tree fits.
NO_TREE = 1e-12
KINDS = (
    "network",
    "markov",
    "mixed",
    "signs",
    "balanced",
    "labels",
    "logical",
    "long",
    "global",
    "huge",
)


class Most:
    """A global factor: at most so many of its binary variables are on."""

    def __init__(self, count: int) -> None:
        self.count = count

    def score(self, assignments):
        return np.where(np.asarray(assignments).sum(axis=1) <= self.count, 0.0, -np.inf)

    def messages(self, incoming, out):
        return self._ask(incoming, out, np.logaddexp.reduce)

    def max_messages(self, incoming, out):
        return self._ask(incoming, out, np.max)

    def _ask(self, incoming, out, over):
        """By all assignments: slow and obvious."""
        n = incoming.shape[1] // 2
        cells = np.indices([2] * n).reshape(n, -1).T
        cells = cells[cells.sum(axis=1) <= self.count]
        tops = np.empty(len(incoming))
        for i, row in enumerate(incoming):
            q = row.reshape(n, 2)
            each = q[np.arange(n), cells]
            tops[i] = over(each.sum(axis=1))
            for a in range(n):
                rest = np.delete(each, a, axis=1).sum(axis=1)
                for s in (0, 1):
                    some = rest[cells[:, a] == s]
                    out[i, 2 * a + s] = over(some) if len(some) else -np.inf
        return tops


def _pairs(rng: np.random.Generator, n: int) -> list[list[int]]:
    every = [[a, b] for a in range(n) for b in range(a + 1, n)]
    m = int(rng.integers(0, len(every) + 1))
    return [every[k] for k in rng.choice(len(every), m, replace=False)] if m else []


def _numbers(rng: np.random.Generator, shape) -> np.ndarray:
    """Reals of some size, or small integers, which tie."""
    if rng.random() < 0.4:
        return rng.integers(-2, 3, shape).astype(float)
    return rng.normal(size=shape) * float(rng.choice([0.1, 1.0, 10.0]))


def draw(number: int) -> tuple[str, FactorGraph, dict]:
    """The model of a number, and evidence."""
    rng = np.random.default_rng([21, number])
    kind = KINDS[number % len(KINDS)]
    zeros = float(rng.choice([0.0, 0.0, 0.2, 0.5]))
    if kind in asking.MODELS:
        graph = asking.MODELS[kind](rng, zeros=zeros)
        return kind, graph, asking.evidence(rng, graph)
    if kind in ("signs", "balanced"):
        n = int(rng.integers(1, 9))
        pairs = _pairs(rng, n)
        w = _numbers(rng, len(pairs))
        if kind == "balanced":
            side = rng.integers(0, 2, n)
            w = np.abs(w) * [1 if side[a] == side[b] else -1 for a, b in pairs]
        graph = (
            FactorGraph.pairwise(_numbers(rng, n), pairs, w)
            if pairs
            else FactorGraph.empty([2] * n)
        )
        for pair in _pairs(rng, n)[:2]:
            table = np.where(rng.random((2, 2)) < zeros, -np.inf, _numbers(rng, (2, 2)))
            graph = graph.add_tables([pair], [table])
    elif kind == "labels":
        n, k = int(rng.integers(2, 6)), int(rng.integers(2, 6))
        graph = FactorGraph.empty([k] * n)
        graph = graph.add_tables([[v] for v in range(n)], [_numbers(rng, k) for _ in range(n)])
        for pair in _pairs(rng, n):
            how = int(rng.integers(0, 4))
            w = float(_numbers(rng, ()))
            if how == 0:
                graph = graph.add_potts([pair], w)
            elif how == 1:
                graph = graph.add_truncated_linear([pair], abs(w), int(rng.integers(1, k + 1)))
            elif how == 2:
                graph = graph.add_truncated_quadratic([pair], abs(w), int(rng.integers(1, 2 * k)))
            else:
                taps = _numbers(rng, int(rng.integers(1, k + 1)))
                taps = np.where(rng.random(len(taps)) < zeros, -np.inf, taps)
                graph = graph.add_label_distances([pair], taps)
    elif kind in ("logical", "long"):
        n = int(rng.integers(3, 7)) if kind == "logical" else int(rng.integers(9, 12))
        graph = FactorGraph.pairwise(_numbers(rng, n), [[0, 1]], _numbers(rng, 1))
        for _ in range(int(rng.integers(1, 4))):
            least = 2 if kind == "logical" else 9
            scope = rng.choice(n, int(rng.integers(least, n + 1)), replace=False).tolist()
            how = int(rng.integers(0, 5))
            if how == 0:
                graph = graph.add_exactly_one([scope], signs=[rng.choice([-1, 1], len(scope))])
            elif how == 1:
                graph = graph.add_at_most_one([scope])
            elif how == 2:
                graph = graph.add_cardinality([scope], _numbers(rng, len(scope) + 1))
            elif how == 3:
                graph = graph.add_parity([scope], odd=bool(rng.integers(0, 2)))
            else:
                graph = graph.add_clauses([scope], float(rng.choice([np.inf, 1.5])))
    elif kind == "global":
        projective = bool(rng.integers(0, 2))
        tree = (ProjectiveTree if projective else NonProjectiveTree)(*all_arcs(3), 3)
        graph = FactorGraph.pairwise(_numbers(rng, 11), [[8, 9]], _numbers(rng, 1))
        if rng.random() < 0.8:
            graph = graph.add_global(np.arange(9), tree)
        if rng.random() < 0.5:
            scope = rng.choice(11, 9, replace=False)
            graph = graph.add_global(scope, Most(int(rng.integers(2, 6))))
    else:  # huge
        n = int(rng.integers(1, 6))
        sizes = rng.choice([1, 2, 3], n)
        size = float(10.0 ** rng.choice([5, 12, 80, 250]))
        graph = FactorGraph.empty(sizes)
        for pair in _pairs(rng, n):
            table = rng.normal(size=sizes[pair]) * (size if rng.random() < 0.5 else 1.0)
            table = np.where(rng.random(table.shape) < zeros / 2, -np.inf, table)
            graph = graph.add_tables([pair], [table])
    return kind, graph, asking.evidence(rng, graph, soft=kind != "huge")


def log_scores(graph: FactorGraph, seen: dict) -> np.ndarray:
    """log of the unnormalised probability of every assignment, (S_0, ..., S_V-1)."""
    sizes = tuple(graph.n_states.tolist())
    total = naive.log_weights(sizes, naive.factors_of(graph))
    bare = dataclasses.replace(graph, groups=(), _field=None)
    one = asking.weights(bare, seen)
    with np.errstate(divide="ignore"):
        return total + np.log(one)


def check(number: int, **settings) -> str:
    """Whether a search keeps its promises on one drawn model; its status."""
    kind, graph, seen = draw(number)
    scores = log_scores(graph, seen)
    top = float(scores.max())
    try:
        best = minfer.mpe(graph, seen, max_gib=NO_TREE, **settings)
    except ContradictionError:
        assert top == -math.inf, f"drawn model {number}: called impossible"
        return "impossible"
    except RefusedError:  # global factors that contradict each other, or nearly
        assert kind == "global", f"drawn model {number}: nothing found"
        return "nothing found"
    assert best.steps != ("clique tree",)
    at = float(scores[tuple(best.numbers)])
    size = max(abs(top), float(np.abs(scores[np.isfinite(scores)]).max(initial=0.0)), 1.0)
    same = abs(best.log_score - at) <= 1e-12 * size
    assert same, f"drawn model {number}: says {best.log_score}, has {at}"
    # naive's own sum errs by some ulps of its terms
    valid = best.upper >= top - 1e-15 * size
    assert valid, f"drawn model {number}: bound {best.upper!r}, best {top!r}"
    assert best.gap == max(best.upper - best.log_score, 0.0)
    assert best.proven == (best.status == "optimal")
    if best.proven:
        near = top - at <= 2e-8 + 1e-11 * size
        assert near, f"drawn model {number}: optimal {at!r}, best {top!r}"
    return best.status
