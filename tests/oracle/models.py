"""Drawn models: by number, by a generator, or by Hypothesis.

``draw(number)`` makes a model twice: as a :class:`minfer.FactorGraph`, and as scopes and log-tables
of plain numpy, written down here (logical factors by what they mean). :class:`Drawn` has its true
marginals in long doubles; ``judge(drawn, iv)`` says which intervals are wrong, by decimals of 50
digits where an end is too close to the truth for these. ``tests/test_certified.py`` runs as
many as it is told to (``draws.py``).
"""

from __future__ import annotations

import gzip
import importlib.util
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import strategies as st

from minfer import FactorGraph, Intervals, read
from minfer.graph import grid_edges
from minfer.parsing.trees import NonProjectiveTree, ProjectiveTree, all_arcs
from oracle.truth import EXACT, WIDE, Factor, in_digits, in_long_doubles, marginals_of

Scope = tuple[int, ...]

#: Intervals so narrow that all that is left is rounding.
NARROW = 1e-9
#: Magnitudes up to which the oracle's numbers stay within the range of WIDE.
RANGE = (
    0.4 * math.log(float(np.finfo(np.float64).max)) * (16 if np.finfo(WIDE).maxexp > 10_000 else 1)
)


@dataclass(eq=False)
class Drawn:
    """A model, as a graph and as plain tables; the tables of evidence are among them."""

    number: int
    family: str
    graph: FactorGraph
    factors: list[Factor]
    #: In which order to sum variables out, for models too large to enumerate.
    order: list[int] | None = None

    @property
    def n_states(self) -> Scope:
        return tuple(int(s) for s in self.graph.n_states)

    @cached_property
    def magnitude(self) -> float:
        """No assignment's log-weight is larger."""
        parts = [np.abs(t[np.isfinite(t)]).max(initial=0.0) for _, t in self.factors]
        return float(sum(parts)) * 2 + 1.0

    def _marginals(self, number: Callable[[np.ndarray], np.ndarray]) -> np.ndarray | None:
        return marginals_of(self.n_states, self.factors, number, self.order)

    @cached_property
    def wide(self) -> np.ndarray | None:
        """The marginals in long doubles, NaN where these have not the range."""
        if self.magnitude > RANGE:
            return np.full(sum(self.n_states), np.nan, dtype=WIDE)
        return self._marginals(in_long_doubles)

    @cached_property
    def digits(self) -> np.ndarray | None:
        """The marginals with 50 digits."""
        with localcontext(EXACT):
            return self._marginals(in_digits)

    @cached_property
    def impossible(self) -> bool:
        """Whether every assignment has probability zero."""
        return (self.digits if self.magnitude > RANGE else self.wide) is None

    @property
    def margin(self) -> float:
        """The relative error that the marginals in long doubles may have."""
        terms = 8 + len(self.factors) + sum(self.n_states)
        return float(np.finfo(WIDE).eps) * 16 * terms * (1 + self.magnitude)


def unclear(drawn: Drawn, iv: Intervals) -> np.ndarray:
    """Intervals for decimals: with an end so close to the truth that long doubles cannot tell.

    And, of every fourth model, all that are narrow.
    """
    p = drawn.wide
    if p is None or not len(p):
        return np.zeros(len(iv.lo), dtype=bool)
    fixed = _certain(drawn, p)
    with np.errstate(invalid="ignore"):
        clear_lo = (iv.lo == 0) | (iv.lo.astype(WIDE) <= p * (1 - drawn.margin)) | fixed
        clear_hi = (iv.hi == 1) | (iv.hi.astype(WIDE) >= p * (1 + drawn.margin))
    out = ~(clear_lo & clear_hi)
    if drawn.number % 4 == 0:
        out |= (iv.hi - iv.lo < NARROW) & (iv.hi > iv.lo)
    return out


def _certain(drawn: Drawn, p: np.ndarray) -> np.ndarray:
    """States whose rivals have weight zero: 1 exactly (no number is beyond the range here)."""
    out, at = np.zeros(len(p), dtype=bool), 0
    for s in drawn.n_states:
        part = p[at : at + s]
        out[at : at + s] = (part == 1) & ((part > 0).sum() == 1)
        at += s
    return out


def judge(drawn: Drawn, iv: Intervals) -> np.ndarray:
    """Which of the intervals (sum of states,) do not hold the true marginal."""
    wrong = ~((iv.lo >= 0) & (iv.hi <= 1) & (iv.lo <= iv.hi))  # NaN, too
    unsure = np.flatnonzero(unclear(drawn, iv) & ~wrong)
    if len(unsure):
        exact = drawn.digits
        with localcontext(EXACT) as context:
            slip = Decimal(10) ** (12 - context.prec)  # the oracle's own rounding
            for k in unsure:
                below = Decimal(float(iv.lo[k])) > exact[k] * (1 + slip)
                above = Decimal(float(iv.hi[k])) < exact[k] * (1 - slip)
                wrong[k] = below or above
    return wrong


class Draft:
    """A model in the making, both ways at once."""

    def __init__(self, n_states: Any) -> None:
        self.n_states = [int(s) for s in n_states]
        self.graph = FactorGraph.empty(np.array(self.n_states, dtype=np.int64))
        self.factors: list[Factor] = []

    def table(self, scope: Any, table: Any) -> None:
        scope = tuple(int(v) for v in scope)
        t = np.asarray(table, dtype=np.float64).reshape([self.n_states[v] for v in scope])
        self.graph = self.graph.add_tables([list(scope)], [t])
        self.factors.append((scope, t))

    def drawn(
        self, rng: np.random.Generator, scope: Any, scale: float = 1.0, zeros: float = 0.0
    ) -> None:
        """A table of normal numbers, some cells forbidden but never all of them."""
        t = scale * rng.normal(size=[self.n_states[v] for v in scope])
        t[rng.random(t.shape) < zeros] = -np.inf
        if np.isneginf(t).all():
            t.flat[-1] = 0.0
        self.table(scope, t)

    def feature(self, scope: Any, weight: float, truth: Any) -> None:
        """exp(weight * truth) over binary variables."""
        scope = tuple(int(v) for v in scope)
        words: dict[str, list] = {
            "and": [[0, 0], [0, 1]],
            "equal": [[1, 0], [0, 1]],
            "or": [[0, 1], [1, 1]],
            "implies": [[1, 1], [0, 1]],
        }
        t = np.array(words[truth] if isinstance(truth, str) else truth, dtype=np.float64)
        self.graph = self.graph.add_features([list(scope)], weight, truth)
        self.factors.append((scope, weight * t))

    def fields(self, values: np.ndarray) -> None:
        for v, a in enumerate(values):
            self.feature([v], float(a), [False, True])

    def tilt(self, values: np.ndarray) -> None:
        self.graph = self.graph.tilt(values)
        at = 0
        for v, s in enumerate(self.n_states):
            self.factors.append(((v,), np.array(values[at : at + s])))
            at += s

    def known(self, variable: int, state: int) -> None:
        self.graph = self.graph.with_evidence({variable: state})
        t = np.full(self.n_states[variable], -np.inf)
        t[state] = 0.0
        self.factors.append(((variable,), t))

    def logical(
        self, rng: np.random.Generator, scale: float, least: int = 3, most: int = 4
    ) -> None:
        """One of the logical kinds over some variables, and its table by its meaning."""
        n = len(self.n_states)
        free = [v for v in range(n) if self.n_states[v] > 1]
        if len(free) < least:
            return
        arity = rng.integers(least, min(len(free), most) + 1)
        scope = [int(v) for v in rng.permutation(free)[:arity]]
        states = [int(rng.integers(self.n_states[v])) for v in scope]
        signs = [int(s) for s in rng.choice([-1, 1], len(scope))]
        literal: dict[str, Any] = {"signs": [signs], "states": [states]}
        hard = rng.random() < 0.3
        weight = math.inf if hard else float(rng.normal() * scale)
        limit, odd = int(rng.integers(1, 3)), bool(rng.integers(2))
        counts, g = rng.normal(size=3) * scale, self.graph
        yes, no = (0.0, -math.inf) if hard else (weight, 0.0)
        kinds: list[tuple[Callable[[], FactorGraph], Callable[[list[bool]], float]]] = [
            (lambda: g.add_clauses([scope], weight, **literal), lambda x: yes if any(x) else no),
            (lambda: g.add_exactly_one([scope], **literal),
             lambda x: 0.0 if sum(x) == 1 else -math.inf),
            (lambda: g.add_parity([scope], weight, odd=odd, **literal),
             lambda x: yes if sum(x) % 2 == int(odd) else no),
            (lambda: g.add_cardinality([scope], at_most=limit, **literal),
             lambda x: 0.0 if sum(x) <= limit else -math.inf),
            (lambda: g.add_cardinality([scope], counts, **literal),
             lambda x: counts[min(sum(x), 2)]),
            (lambda: g.add_or([scope[:-1]], [scope[-1]], weight, **literal),
             lambda x: yes if any(x[:-1]) == x[-1] else no),
            (lambda: g.add_and([scope[:-1]], [scope[-1]], weight, **literal),
             lambda x: yes if all(x[:-1]) == x[-1] else no),
        ]  # fmt: skip
        add, meaning = kinds[int(rng.integers(len(kinds)))]
        self.graph = add()
        t = np.empty([self.n_states[v] for v in scope])
        for cell in np.ndindex(t.shape):
            t[cell] = meaning([(x == s) == (g > 0) for x, s, g in zip(cell, states, signs)])
        self.factors.append((tuple(scope), t))


def _edges(rng: np.random.Generator, n: int, share: float) -> list[tuple[int, int]]:
    every = [(a, b) if rng.random() < 0.5 else (b, a) for a in range(n) for b in range(a)]
    return [e for e in every if rng.random() < share]


def _strength(rng: np.random.Generator) -> float:
    return float(rng.choice([0.1, 0.5, 1.0, 2.0, 5.0]))


def balanced(rng: np.random.Generator) -> Draft:
    """Attractive after flipping some variables."""
    n = int(rng.integers(2, 11))
    d = Draft([2] * n)
    scale, sign = _strength(rng), rng.choice([-1, 1], n)
    d.fields(rng.normal(size=n) * rng.choice([0.0, 1.0, 3.0]))
    for a, b in _edges(rng, n, min(1.0, 3.0 / n)):
        d.feature([a, b], float(abs(rng.normal()) * scale * sign[a] * sign[b]), "equal")
    return d


def mixed_signs(rng: np.random.Generator) -> Draft:
    """Pairs of any sign and feature."""
    n = int(rng.integers(2, 11))
    d = Draft([2] * n)
    scale = _strength(rng)
    feature = str(rng.choice(["and", "equal", "or", "implies"]))
    d.fields(rng.normal(size=n) * rng.choice([0.0, 1.0, 3.0]))
    for a, b in _edges(rng, n, float(rng.choice([0.2, 0.4, 0.9]))):
        d.feature([a, b], float(rng.normal() * scale), feature)
    return d


def frustrated(rng: np.random.Generator) -> Draft:
    """Cycles whose pairs cannot all have their way, strong."""
    n = int(rng.integers(3, 10))
    d = Draft([2] * n)
    w = float(rng.choice([1.0, 3.0, 8.0]))
    d.fields(rng.normal(size=n) * 0.5)
    ring = [(i, (i + 1) % n) for i in range(n)] + _edges(rng, n, 0.15)
    for k, (a, b) in enumerate(ring):
        d.feature([a, b], -w if k == 0 or rng.random() < 0.4 else w, "equal")
    return d


def grid(rng: np.random.Generator) -> Draft:
    """Small grids; attractive, mixed, with diagonals, or with holes of evidence."""
    return _grid(rng, int(rng.integers(2, 4)), int(rng.integers(2, 5)))


def _grid(rng: np.random.Generator, rows: int, columns: int) -> Draft:
    n = rows * columns
    d = Draft([2] * n)
    at = np.arange(n).reshape(rows, columns)
    pairs = [*zip(at[:, :-1].ravel(), at[:, 1:].ravel()), *zip(at[:-1].ravel(), at[1:].ravel())]
    if rng.random() < 0.2:
        pairs += [*zip(at[:-1, :-1].ravel(), at[1:, 1:].ravel())]
    scale, signs = _strength(rng), rng.random()
    d.fields(rng.normal(size=n) * rng.choice([0.0, 1.0, 2.0, 5.0]))
    for a, b in pairs:
        w = scale * (1.0 if signs < 0.5 else float(rng.normal()))
        d.feature([a, b], w, "equal" if signs < 0.8 else "and")
    return d


def states(rng: np.random.Generator) -> Draft:
    """Pairs of two to five states, some of them Potts, some supermodular."""
    n = int(rng.integers(2, 6))
    d = Draft(rng.integers(2, 6, n) if rng.random() < 0.5 else [int(rng.integers(3, 5))] * n)
    scale, kind = _strength(rng), rng.random()
    for v in range(n):
        d.table([v], rng.normal(size=d.n_states[v]) * rng.choice([0.3, 2.0]))
    for a, b in _edges(rng, n, 0.6):
        shape = d.n_states[a], d.n_states[b]
        if kind < 0.4:
            t = scale * np.eye(*shape)
        elif kind < 0.6:
            t = -scale * np.abs(np.subtract.outer(np.arange(shape[0]), np.arange(shape[1])))
        else:
            t = scale * rng.normal(size=shape)
        d.table([a, b], t)
    return d


def tables(rng: np.random.Generator) -> Draft:
    """Arity up to four, two or three states."""
    n = int(rng.integers(3, 8))
    d = Draft(rng.integers(2, 3 + int(rng.random() < 0.4), n))
    scale = _strength(rng)
    d.drawn(rng, [0])
    for _ in range(int(rng.integers(1, n + 1))):
        d.drawn(rng, rng.permutation(n)[: rng.integers(2, min(n, 4) + 1)], scale)
    return d


def trees(rng: np.random.Generator) -> Draft:
    """Trees and forests of two to four states."""
    n = int(rng.integers(1, 7))
    d = Draft(rng.integers(2, 5, n))
    scale = min(_strength(rng), 2.0)
    pairs = [[v, int(rng.integers(v))] for v in range(1, n) if rng.random() < 0.9]
    for scope in [*pairs, *([v] for v in range(n))]:
        d.drawn(rng, scope, scale)
    return d


def zeros(rng: np.random.Generator) -> Draft:
    """Tables with forbidden cells, now and then a state that is forbidden."""
    d = tables(rng)
    for _ in range(int(rng.integers(1, 4))):
        d.drawn(rng, rng.permutation(len(d.n_states))[: rng.integers(1, 4)], zeros=0.35)
    if rng.random() < 0.3:
        d.table([0], [-np.inf] + [0.0] * (d.n_states[0] - 1))
    return d


def networks(rng: np.random.Generator) -> Draft:
    """Conditional tables with zeros and ones: a Bayesian network."""
    n = int(rng.integers(3, 8))
    d = Draft(rng.integers(2, 4, n))
    for v in range(n):
        parents = rng.permutation(v)[: rng.integers(0, min(v, 2) + 1)] if v else []
        shape = [*(d.n_states[u] for u in parents), d.n_states[v]]
        p = rng.random(shape) + 0.01
        if rng.random() < 0.4:  # now and then it follows from its parents
            p = (p == p.max(axis=-1, keepdims=True)).astype(np.float64)
        with np.errstate(divide="ignore"):
            d.table([*parents, v], np.log(p / p.sum(axis=-1, keepdims=True)))
    return d


def logic(rng: np.random.Generator) -> Draft:
    """Pairs or tables under some logical factors."""
    d = mixed_signs(rng) if rng.random() < 0.6 else tables(rng)
    for _ in range(int(rng.integers(1, 4))):
        d.logical(rng, _strength(rng))
    return d


def apart(rng: np.random.Generator) -> Draft:
    """Unconnected parts, lone variables, and variables of one state."""
    n = int(rng.integers(2, 8))
    d = Draft(rng.choice([1, 2, 2, 2, 3], n))
    for v in range(n):
        if rng.random() < 0.5:
            d.drawn(rng, [v])
    half = max(1, n // 2)
    for a, b in _edges(rng, n, 0.5):
        if (a < half) == (b < half):
            d.drawn(rng, [a, b])
    if rng.random() < 0.3:
        d.table([], [0.7])
    return d


def huge(rng: np.random.Generator, sizes: Iterable[float] = (30, 100, 700, 1e3, 1e4, 2e5)) -> Draft:
    """Weights of a thousand and more among small ones."""
    n = int(rng.integers(2, 8))
    d = Draft([2] * n)
    size = float(rng.choice([*sizes]))
    d.fields(np.where(rng.random(n) < 0.3, size, 1.0) * rng.normal(size=n))
    for a, b in _edges(rng, n, 0.5):
        w = float(rng.normal() * (size if rng.random() < 0.5 else 1.0))
        d.feature([a, b], w, str(rng.choice(["and", "equal"])))
    return d


def tiny(rng: np.random.Generator) -> Draft:
    """Probabilities at the end of the range of doubles."""
    n = int(rng.integers(1, 5))
    d = Draft([2] * n)
    d.fields(-rng.uniform(650, 780, n) * rng.choice([-1, 1], n))
    for a, b in _edges(rng, n, 0.5):
        d.feature([a, b], float(rng.normal() * 20), "equal")
    return d


def ties(rng: np.random.Generator) -> Draft:
    """No fields, equal weights: everything is a tie."""
    n = int(rng.integers(2, 9))
    d = Draft([2] * n if rng.random() < 0.7 else [3] * min(n, 5))
    n = len(d.n_states)
    w = float(rng.choice([0.0, 1.0, -1.0, 4.0]))
    for a, b in _edges(rng, n, 0.5):
        d.table([a, b], w * np.eye(d.n_states[a]))
    return d


def parallel(rng: np.random.Generator) -> Draft:
    """The same pairs several times, in both directions; some cancel."""
    d = mixed_signs(rng)
    n = len(d.n_states)
    for a, b in _edges(rng, n, 0.5):
        w = float(rng.normal())
        d.feature([a, b], w, "and")
        d.feature([b, a], -w if rng.random() < 0.3 else w, "and")
        d.drawn(rng, [a, b])
    return d


def nothing(rng: np.random.Generator) -> Draft:
    """No variables, or no factors."""
    return Draft([2] * int(rng.integers(0, 3)) + [3] * int(rng.integers(0, 2)))


def thin(rng: np.random.Generator) -> Draft:
    """Long thin grids: far more than a region holds, and yet solved."""
    short, long = int(rng.integers(2, 4)), int(rng.integers(6, 14))
    return _grid(rng, long, short)


def rope(rng: np.random.Generator) -> Draft:
    """A long chain with shortcuts, two or three states, tables of arity up to three."""
    n = int(rng.integers(12, 30))
    d = Draft([2] * n if rng.random() < 0.6 else rng.integers(2, 4, n))
    scale, hard = _strength(rng), rng.random() < 0.25
    for v in range(n):
        d.drawn(rng, [v])
    for v in range(n - 1):
        scope = [v, v + 1]
        if v + 2 < n and rng.random() < 0.3:
            scope.append(v + 2)
        elif v + 3 < n and rng.random() < 0.2:
            scope = [v, v + 3] if rng.random() < 0.5 else scope
        d.drawn(rng, scope, scale, 0.25 if hard and rng.random() < 0.3 else 0.0)
    return d


def tangle(rng: np.random.Generator) -> Draft:
    """A sparse random graph, more than walks and balls of small budgets see of it."""
    n = int(rng.integers(14, 25))
    d = Draft([2] * n if rng.random() < 0.7 else rng.choice([2, 2, 3], n))
    scale, attractive = _strength(rng), rng.random() < 0.3
    for v in range(n):
        d.drawn(rng, [v], rng.choice([0.3, 1.0, 2.0]))
    for k in range(int(1.25 * n)):
        scope = rng.permutation(n)[: 3 if rng.random() < 0.08 else 2]
        if attractive and len(scope) == 2:
            d.table(scope, abs(scale * rng.normal()) * np.eye(*(d.n_states[u] for u in scope)))
        else:
            d.drawn(rng, scope, scale, 0.2 if k % 11 == 10 and rng.random() < 0.3 else 0.0)
    return d


def min_degree(n: int, factors: list[Factor]) -> list[int]:
    """An order to sum variables out in: always one with the fewest neighbours."""
    near = {v: set[int]() for v in range(n)}
    for scope, _ in factors:
        for v in scope:
            near[v] |= set(scope) - {v}
    order = []
    while near:
        v = min(near, key=lambda u: len(near[u]))
        order.append(v)
        gone = near.pop(v)
        for u in gone:
            near[u] = (near[u] | gone) - {u, v}
    return order


FAMILIES: tuple[Callable[[np.random.Generator], Draft], ...] = (
    balanced, mixed_signs, frustrated, grid, states, tables, zeros, networks, logic, apart, huge,
    tiny, ties, parallel, nothing, thin, rope, mixed_signs, states, tangle, trees,
)  # fmt: skip
LARGE = {"thin", "rope", "tangle"}
SMALL = {f.__name__: f for f in FAMILIES if f.__name__ not in LARGE}


@lru_cache(maxsize=100)  # several methods are tried on each, and its truth takes longest
def draw(number: int) -> Drawn:
    """Model ``number``: its family by the number, the rest by a generator of its own."""
    make = FAMILIES[number % len(FAMILIES)]
    rng = np.random.default_rng([16, number])
    d = make(rng)
    n = len(d.n_states)
    if n and rng.random() < 0.3:  # what was seen
        for v in rng.permutation(n)[: rng.integers(1, max(2, n // 3))]:
            d.known(int(v), int(rng.integers(d.n_states[v])))
    if n and rng.random() < 0.2:
        d.tilt(rng.normal(size=sum(d.n_states)))
    order = min_degree(n, d.factors) if make.__name__ in LARGE else None
    return Drawn(number, make.__name__, d.graph, d.factors, order)


def possible(which: Iterable[int], most: float = math.inf) -> Iterator[Drawn]:
    """Those of the numbered models that allow anything, with at most so many assignments."""
    for number in which:
        drawn = draw(number)
        if math.prod(drawn.n_states) <= most and not drawn.impossible:
            yield drawn


def union(*graphs: FactorGraph) -> FactorGraph:
    """Graphs side by side, as one; their variables alternate as far as they go."""
    sizes = [g.n_variables for g in graphs]
    order = [(v, k) for v in range(max(sizes)) for k in range(len(graphs)) if v < sizes[k]]
    number = {place: i for i, place in enumerate(order)}
    out = FactorGraph.empty([graphs[k].n_states[v] for v, k in order])
    for k, graph in enumerate(graphs):
        scopes = [[number[int(v), k] for v in graph.scope(i)] for i in range(graph.n_factors)]
        out = out.add_tables(scopes, [graph.log_table(i) for i in range(graph.n_factors)])
    return out


def as_tables(graph: FactorGraph) -> FactorGraph:
    """The same model in plain tables, factors in order."""
    n = range(graph.n_factors)
    scopes, tables = [graph.scope(i) for i in n], [graph.log_table(i) for i in n]
    return FactorGraph.from_tables(graph.n_states, scopes, tables).tilt(graph.field)


def labels(rng: np.random.Generator) -> FactorGraph:
    """Pairs of labels by distance, attractive or not, some hard, perhaps beside a table."""
    scale = float(rng.choice([1e-3, 0.1, 1.0, 3.0, 10.0, 40.0]))
    k, n = int(rng.integers(2, 6)), int(rng.integers(2, 6))
    graph = FactorGraph.empty([k] * n).tilt(numbers(rng, n * k) * min(scale, 3.0))
    for pair in pairs(rng, n):
        w, kind = float(numbers(rng, ())) * scale, rng.integers(6)
        if kind == 0:
            graph = graph.add_potts([pair], w)
        elif kind == 1:
            graph = graph.add_truncated_linear([pair], w, float(rng.integers(1, 4)))
        elif kind == 2:
            graph = graph.add_truncated_quadratic([pair], abs(w), int(rng.integers(1, 2 * k)))
        elif kind == 3:
            graph = graph.add_label_distances([pair], numbers(rng, int(rng.integers(1, k + 1))))
        elif kind == 4:
            graph = graph.add_truncated_linear([pair], abs(w), 1, hard=True)
        else:
            graph = graph.add_potts([pair], rng.choice([-np.inf, 1.0]))
    return graph.add_tables([[0, 1]], [rng.normal(size=(k, k))]) if rng.random() < 0.2 else graph


def potts(n: int, states: int, rng: np.random.Generator, coupling: float = 0.5) -> FactorGraph:
    """A grid of labels that would rather be equal."""
    graph = FactorGraph.empty(np.full(n * n, states))
    graph = graph.add_tables(np.arange(n * n)[:, None], rng.normal(size=(n * n, states)))
    return graph.add_tables(grid_edges(n, n), coupling * np.eye(states)[None])


def pairs(rng: np.random.Generator, n: int) -> list[list[int]]:
    """Some of all pairs, from none to every one."""
    every = [[a, b] for a in range(n) for b in range(a + 1, n)]
    m = int(rng.integers(0, len(every) + 1))
    return [every[k] for k in rng.choice(len(every), m, replace=False)] if m else []


def numbers(rng: np.random.Generator, shape: Any) -> np.ndarray:
    """Reals, or small integers, which tie."""
    if rng.random() < 0.4:
        return rng.integers(-2, 3, shape) * 1.0
    return rng.normal(size=shape)


class Between:
    """A global factor: so many of its binary variables are on, at least and at most."""

    def __init__(self, most: int, least: int = 0) -> None:
        self.most, self.least = most, least

    def score(self, assignments):
        return np.where(self._holds(np.asarray(assignments)), 0.0, -np.inf)

    def _holds(self, cells):
        on = cells.sum(axis=1)
        return (self.least <= on) & (on <= self.most)

    def messages(self, incoming, out):
        return self._ask(incoming, out, np.logaddexp.reduce)

    def max_messages(self, incoming, out):
        return self._ask(incoming, out, np.max)

    def _ask(self, incoming, out, over):
        """By all assignments: slow and obvious."""
        n = incoming.shape[1] // 2
        cells = np.indices([2] * n).reshape(n, -1).T
        cells = cells[self._holds(cells)]
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


def with_global(rng: np.random.Generator) -> FactorGraph:
    """Trees over three words, counts, or both, beside a pair."""
    graph = FactorGraph.pairwise(numbers(rng, 11), [[8, 9]], numbers(rng, 1))
    if rng.random() < 0.8:
        kind = (ProjectiveTree, NonProjectiveTree)[rng.integers(2)]
        graph = graph.add_global(np.arange(9), kind(*all_arcs(3), 3))
    if rng.random() < 0.5:
        scope = rng.choice(11, 9, replace=False)
        graph = graph.add_global(scope, Between(int(rng.integers(2, 6))))
    return graph


def network(
    rng: np.random.Generator, n: int = 6, zeros: float = 0.0, exactly: bool = False
) -> FactorGraph:
    """A Bayesian network of up to n variables, some with one state, perhaps with zeros."""
    n = n if exactly else int(rng.integers(1, n + 1))
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


def _with_tables(rng: np.random.Generator, graph: FactorGraph, n: int, zeros: float) -> FactorGraph:
    """The same with n tables more, over up to three variables."""
    for _ in range(n):
        arity = int(rng.integers(0, min(graph.n_variables, 3) + 1))
        scope = rng.choice(graph.n_variables, arity, replace=False).tolist()
        table = rng.normal(size=[int(graph.n_states[v]) for v in scope])
        table = np.where(rng.random(table.shape) < zeros, -np.inf, table)
        graph = graph.add_tables([scope], [table])
    return graph


def markov(rng: np.random.Generator, n: int = 6, zeros: float = 0.0) -> FactorGraph:
    """A Markov network, connected or not."""
    n = int(rng.integers(1, n + 1))
    graph = FactorGraph.empty(rng.choice([1, 2, 2, 3], n))
    return _with_tables(rng, graph, int(rng.integers(0, 2 * n)), zeros)


def mixed(rng: np.random.Generator, n: int = 6, zeros: float = 0.0) -> FactorGraph:
    """A network with undirected factors added."""
    return _with_tables(rng, network(rng, n, zeros), int(rng.integers(0, 3)), zeros)


NETWORKS = {"network": network, "markov": markov, "mixed": mixed}


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


def repository(name: str) -> Path:
    """A network of bnlearn's repository, a file of the installed pgmpy."""
    found = importlib.util.find_spec("pgmpy")
    if found is None or found.origin is None:
        pytest.skip("pgmpy, which has bnlearn's networks, is not installed")
    folder = Path(found.origin).parent
    files = [p for p in folder.rglob(f"{name}.bif*") if p.suffix in (".bif", ".gz")]
    if not files:
        pytest.skip(f"the installed pgmpy has no {name}.bif")
    return files[0]


def bundled(name: str) -> FactorGraph:
    """A network of bnlearn's repository, read by us."""
    return read(repository(name))


def loaded(name: str, folder: Path):
    """pyAgrum, its network, and ours with the same tables."""
    gum = pytest.importorskip("pyagrum", reason="pyAgrum is not installed")
    file = repository(name)
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    (folder / f"{name}.bif").write_bytes(data)
    bn = gum.loadBN(str(folder / f"{name}.bif"))
    names = [bn.variable(k).name() for k in sorted(bn.nodes())]
    tables = {}
    for v in names:
        cpt = bn.cpt(v)
        parents = [p for p in cpt.names if p != v]
        axes = list(reversed(cpt.names))
        tables[v] = parents, cpt.toarray().transpose([axes.index(x) for x in [*parents, v]])
    graph = FactorGraph.network({v: list(bn.variable(v).labels()) for v in names}, tables)
    for v in names:  # its tables sum to one only to some digits: the same numbers for both
        i = next(k for k in range(graph.n_factors) if graph.child(k) == graph.index(v))
        cpt = bn.cpt(v)
        axes = [graph.name(int(u)) for u in graph.scope(i)]
        exact = np.exp(graph.log_table(i)).transpose([axes.index(x) for x in reversed(cpt.names)])
        cpt.fillWith(exact.ravel().tolist())
    return gum, bn, graph


SCALES = st.sampled_from([0.0, 0.1, 1.0, 3.0, 40.0, 700.0])


class AsDrawn(NamedTuple):
    """A model as it was drawn, before any code of the package has seen it."""

    n_states: list[int]
    scopes: list[list[int]]
    tables: list[np.ndarray]
    evidence: dict[int, int]

    def graph(self) -> FactorGraph:
        states = np.array(self.n_states, dtype=np.int64)
        graph = FactorGraph.from_tables(states, self.scopes, self.tables)
        return graph.with_evidence(self.evidence)


@st.composite
def drawn_tables(
    draw, max_variables=5, max_states=3, max_arity=3, zeros=True, tree=False, scale=None
):
    """Mixed states, one-state variables, ties, zeros, huge weights, disconnected, empty."""
    n = draw(st.integers(0 if not tree else 1, max_variables))
    states = draw(st.lists(st.integers(1, max_states), min_size=n, max_size=n))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = draw(SCALES) if scale is None else scale
    scopes = []
    if tree:
        for v in range(1, n):
            if rng.random() < 0.85:
                scopes.append([v, int(rng.integers(v))])
    elif n:
        for _ in range(draw(st.integers(0, 7))):
            arity = int(rng.integers(0, min(max_arity, n) + 1))
            scopes.append(rng.permutation(n)[:arity].tolist())
    scopes += [[v] for v in range(n) if rng.random() < 0.7]
    tables = []
    for scope in scopes:
        table = np.round(rng.normal(size=[states[v] for v in scope]) * 2) / 2 * scale
        if zeros and table.size > 1 and rng.random() < 0.3:
            table = np.where(rng.random(table.shape) < 0.25, -np.inf, table)
        tables.append(table)
    evidence = {}
    if n and draw(st.booleans()) and rng.random() < 0.5:
        v = int(rng.integers(n))
        evidence = {v: int(rng.integers(states[v]))}
    return AsDrawn(states, scopes, tables, evidence)


def table_graphs(**limits):
    """The graphs of :func:`drawn_tables`."""
    return drawn_tables(**limits).map(AsDrawn.graph)


@st.composite
def drawn_pairs(draw, max_variables=7, scale=None):
    """What ``FactorGraph.pairwise`` takes: bridges, tails and cycles; features of either kind."""
    n = draw(st.integers(1, max_variables))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    spread = draw(SCALES) if scale is None else scale
    density = draw(st.sampled_from([0.2, 0.5, 0.9]))
    edges = [[a, b] for a in range(n) for b in range(a) if rng.random() < density]
    edges = np.array(edges, dtype=np.int32).reshape(-1, 2)
    fields, weights = rng.normal(size=n) * spread, rng.normal(size=len(edges)) * spread
    return fields, edges, weights, draw(st.sampled_from(["and", "equal", "or", "implies"]))


def binary_graphs(**limits):
    """The graphs of :func:`drawn_pairs`."""
    return drawn_pairs(**limits).map(lambda drawn: FactorGraph.pairwise(*drawn))
