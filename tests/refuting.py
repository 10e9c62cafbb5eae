"""Drawn models with known marginals, and intervals held against them.

``draw(number)`` makes a model twice: as a :class:`minfer.FactorGraph`, and as scopes and log-tables
of plain numpy, written down here (logical factors by what they mean). The oracle adds the tables up
over all assignments, or, for long thin models, sums one variable after the other out of products;
it shares no code with the package. It runs in long doubles; every interval that these cannot place
for certain, because an end is too close to the truth, is judged again by decimals of 50 digits.

``judge(drawn, iv)`` says which intervals are wrong. ``tests/test_certified.py`` runs some hundred
models, ``benchmarks/certified.py --refute`` any number.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from minfer import FactorGraph, Intervals

Scope = tuple[int, ...]
Factor = tuple[Scope, np.ndarray]  # variables, and their log-table

#: Fifty digits, and no end of the exponents.
EXACT = Context(prec=50, Emin=MIN_EMIN, Emax=MAX_EMAX)
#: Intervals so narrow that all that is left is rounding.
NARROW = 1e-9
#: Long doubles, where the machine has them.
WIDE = np.longdouble
#: Magnitudes up to which the oracle's numbers stay within the range of WIDE.
RANGE = (
    0.4 * math.log(float(np.finfo(np.float64).max)) * (16 if np.finfo(WIDE).maxexp > 10_000 else 1)
)


# ------------------------------------------------------------------ the oracle


def _wide(table: np.ndarray) -> np.ndarray:
    """exp of a log-table over its largest entry, in long doubles."""
    top = table.max()
    return np.exp(table.astype(WIDE) - WIDE(top if top > -np.inf else 0.0))


def _digits(table: np.ndarray) -> np.ndarray:
    """exp of a log-table as decimals, exact but for 50 digits."""
    return np.asarray(np.frompyfunc(exponential, 1, 1)(table), dtype=object)


@lru_cache(maxsize=1 << 16)
def exponential(x: float) -> Decimal:
    """exp of a plain number, which is taken as exact."""
    return Decimal(x).exp(EXACT)


def _product(one: Factor, other: Factor) -> Factor:
    """The product of two tables over the union of their scopes, in increasing order."""
    scope = tuple(sorted({*one[0], *other[0]}))

    def spread(f: Factor) -> np.ndarray:
        by_number = np.transpose(f[1], np.argsort(f[0]))
        sizes = dict(zip(sorted(f[0]), by_number.shape))
        return by_number.reshape([sizes.get(v, 1) for v in scope])

    return scope, spread(one) * spread(other)


def eliminate(
    n_states: Scope, tables: list[Factor], one: Any, variable: int, order: list[int]
) -> np.ndarray:
    """Weights of a variable's states: all others summed out in this order."""
    left = tables
    for u in order:
        if u != variable:
            joined: Factor = ((u,), np.full(n_states[u], one))
            for f in left:
                if u in f[0]:
                    joined = _product(joined, f)
            rest = tuple(v for v in joined[0] if v != u)
            left = [f for f in left if u not in f[0]]
            left.append((rest, joined[1].sum(axis=joined[0].index(u))))
    total: Factor = ((variable,), np.full(n_states[variable], one))
    for f in left:
        total = _product(total, f)
    return total[1]


def enumerate_all(n_states: Scope, tables: list[Factor], one: Any) -> list[np.ndarray]:
    """Weights of all variables' states: the product of all tables, summed."""
    every = tuple(range(len(n_states)))
    total: Factor = (every, np.full(n_states, one))
    for f in tables:
        total = _product(total, f)
    return [total[1].sum(axis=tuple(u for u in every if u != v)) for v in every]


@dataclass(eq=False)
class Drawn:
    """A model, as a graph and as plain tables; the tables of evidence are among them."""

    number: int
    family: str
    graph: FactorGraph
    factors: list[Factor]
    #: In which order to sum variables out, for models too large to enumerate.
    order: list[int] | None = None
    note: str = field(default="")

    @property
    def n_states(self) -> Scope:
        return tuple(int(s) for s in self.graph.n_states)

    @cached_property
    def magnitude(self) -> float:
        """No assignment's log-weight is larger."""
        parts = [np.abs(t[np.isfinite(t)]).max(initial=0.0) for _, t in self.factors]
        return float(sum(parts)) * 2 + 1.0

    def _marginals(self, number: Callable[[np.ndarray], np.ndarray]) -> np.ndarray | None:
        """(sum of states,), None where all assignments are impossible."""
        if not self.n_states:
            return np.zeros(0)
        tables = [(s, np.asarray(number(t))) for s, t in self.factors]
        one = number(np.zeros(1))[0]
        if self.order is None:
            found = enumerate_all(self.n_states, tables, one)
        else:
            every = range(len(self.n_states))
            found = [eliminate(self.n_states, tables, one, v, self.order) for v in every]
        if not found[0].sum() > 0:
            return None
        return np.concatenate([w / w.sum() for w in found])

    @cached_property
    def wide(self) -> np.ndarray | None:
        """The marginals in long doubles, NaN where these have not the range."""
        if self.magnitude > RANGE:
            return np.full(sum(self.n_states), np.nan, dtype=WIDE)
        return self._marginals(_wide)

    @cached_property
    def digits(self) -> np.ndarray | None:
        """The marginals with 50 digits."""
        with localcontext(EXACT):
            return self._marginals(_digits)

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


# ------------------------------------------------------------------ drawing


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

    def logical(self, rng: np.random.Generator, scale: float) -> None:
        """One of the logical kinds over some variables, and its table by its meaning."""
        n = len(self.n_states)
        free = [v for v in range(n) if self.n_states[v] > 1]
        if len(free) < 3:
            return
        scope = [int(v) for v in rng.permutation(free)[: rng.integers(3, min(len(free), 4) + 1)]]
        states = [int(rng.integers(self.n_states[v])) for v in scope]
        signs = [int(s) for s in rng.choice([-1, 1], len(scope))]
        literal: dict[str, Any] = {"signs": [signs], "states": [states]}
        hard = rng.random() < 0.3
        weight = math.inf if hard else float(rng.normal() * scale)
        most, odd = int(rng.integers(1, 3)), bool(rng.integers(2))
        counts = rng.normal(size=3) * scale
        kind = int(rng.integers(6))
        g, where = self.graph, [scope]
        if kind == 0:
            self.graph = g.add_clauses(where, weight, **literal)
        elif kind == 1:
            self.graph = g.add_exactly_one(where, **literal)
        elif kind == 2:
            self.graph = g.add_parity(where, weight, odd=odd, **literal)
        elif kind == 3:
            self.graph = g.add_cardinality(where, at_most=most, **literal)
        elif kind == 4:
            self.graph = g.add_cardinality(where, counts, **literal)
        else:
            self.graph = g.add_or([scope[:-1]], [scope[-1]], weight, **literal)
        yes = 0.0 if math.isinf(weight) else weight
        no = -math.inf if math.isinf(weight) else 0.0
        t = np.empty([self.n_states[v] for v in scope])
        for cell in itertools.product(*(range(s) for s in t.shape)):
            true = [(x == s) == (sign > 0) for x, s, sign in zip(cell, states, signs)]
            n_true = sum(true)
            if kind == 0:
                t[cell] = yes if n_true else no
            elif kind == 1:
                t[cell] = 0.0 if n_true == 1 else -math.inf
            elif kind == 2:
                t[cell] = yes if n_true % 2 == int(odd) else no
            elif kind == 3:
                t[cell] = 0.0 if n_true <= most else -math.inf
            elif kind == 4:
                t[cell] = counts[min(n_true, 2)]
            else:
                t[cell] = yes if any(true[:-1]) == true[-1] else no
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
    rows, columns = int(rng.integers(2, 4)), int(rng.integers(2, 5))
    return _grid(rng, rows, columns)


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
    d.table([0], rng.normal(size=d.n_states[0]))
    for _ in range(int(rng.integers(1, n + 1))):
        scope = rng.permutation(n)[: rng.integers(2, min(n, 4) + 1)]
        d.table(scope, scale * rng.normal(size=[d.n_states[v] for v in scope]))
    return d


def zeros(rng: np.random.Generator) -> Draft:
    """Tables with forbidden cells, now and then a whole forbidden row."""
    d = tables(rng)
    n = len(d.n_states)
    for _ in range(int(rng.integers(1, 4))):
        scope = rng.permutation(n)[: rng.integers(1, 4)]
        shape = [d.n_states[v] for v in scope]
        t = np.where(rng.random(shape) < 0.35, -np.inf, rng.normal(size=shape))
        if rng.random() < 0.2:
            t[0] = -np.inf
        if np.isneginf(t).all():
            t.flat[-1] = 0.0
        d.table(scope, t)
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
            d.table([v], rng.normal(size=d.n_states[v]))
    half = max(1, n // 2)
    for a, b in _edges(rng, n, 0.5):
        if (a < half) == (b < half):
            d.table([a, b], rng.normal(size=(d.n_states[a], d.n_states[b])))
    if rng.random() < 0.3:
        d.table([], [0.7])
    return d


def huge(rng: np.random.Generator) -> Draft:
    """Weights of a thousand and more among small ones."""
    n = int(rng.integers(2, 8))
    d = Draft([2] * n)
    size = float(rng.choice([30.0, 100.0, 700.0, 1e3, 1e4, 2e5]))
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
        d.table([a, b], rng.normal(size=(2, 2)))
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
        d.table([v], rng.normal(size=d.n_states[v]))
    for v in range(n - 1):
        scope = [v, v + 1]
        if v + 2 < n and rng.random() < 0.3:
            scope.append(v + 2)
        elif v + 3 < n and rng.random() < 0.2:
            scope = [v, v + 3] if rng.random() < 0.5 else scope
        shape = [d.n_states[u] for u in scope]
        t = scale * rng.normal(size=shape)
        if hard and rng.random() < 0.3:
            t[rng.random(shape) < 0.25] = -np.inf
            if np.isneginf(t).all():
                t.flat[0] = 0.0
        d.table(scope, t)
    return d


def tangle(rng: np.random.Generator) -> Draft:
    """A sparse random graph, more than walks and balls of small budgets see of it."""
    n = int(rng.integers(14, 25))
    d = Draft([2] * n if rng.random() < 0.7 else rng.choice([2, 2, 3], n))
    scale, attractive = _strength(rng), rng.random() < 0.3
    for v in range(n):
        d.table([v], rng.choice([0.3, 1.0, 2.0]) * rng.normal(size=d.n_states[v]))
    for k in range(int(1.25 * n)):
        scope = rng.permutation(n)[: 3 if rng.random() < 0.08 else 2]
        shape = [d.n_states[u] for u in scope]
        if attractive and len(scope) == 2:
            t = abs(scale * rng.normal()) * np.eye(*shape)
        else:
            t = scale * rng.normal(size=shape)
        if k % 11 == 10 and rng.random() < 0.3:
            t.flat[int(rng.integers(t.size))] = -np.inf
        d.table(scope, t)
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
    tiny, ties, parallel, nothing, thin, rope, mixed_signs, states, tangle,
)  # fmt: skip
LARGE = {"thin", "rope", "tangle"}


@lru_cache(maxsize=100)  # several methods are tried on each, and its truth takes longest
def draw(number: int) -> Drawn:
    """Model ``number``: its family by the number, the rest by a generator of its own."""
    make = FAMILIES[number % len(FAMILIES)]
    rng = np.random.default_rng([16, number])
    d = make(rng)
    n = len(d.n_states)
    note = ""
    if n and rng.random() < 0.3:  # what was seen
        for v in rng.permutation(n)[: rng.integers(1, max(2, n // 3))]:
            d.known(int(v), int(rng.integers(d.n_states[v])))
        note = "evidence"
    if n and rng.random() < 0.2:
        d.tilt(rng.normal(size=sum(d.n_states)))
    order = min_degree(n, d.factors) if make.__name__ in LARGE else None
    return Drawn(number, make.__name__, d.graph, d.factors, order, note)


def possible(numbers: Iterator[int] | range) -> Iterator[Drawn]:
    """Those of the numbered models that allow anything at all."""
    for number in numbers:
        drawn = draw(number)
        if not drawn.impossible:
            yield drawn
