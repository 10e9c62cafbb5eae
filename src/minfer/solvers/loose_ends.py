"""Variables that only their own table knows, answered from a circuit of the others.

In a diagnosis network a finding that nobody looked at is such a loose end: its table over (x, v)
sums over v to a constant c, so that without it

    Z = c Z',    p(v = a, y) = p'(y) E'[psi(x, a) | y] / c,

and where psi(., a) = prod_i b_i(x_i) the expectation is a row of likelihoods b_i, one pass (Barren
variables: Shachter 1986). Of v's states all but one must be of that kind; the last is what is left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.engine.conditioning import MAX_JOINT_CELLS, Conditioned
from minfer.errors import RefusedError
from minfer.factors.group import n_entries
from minfer.solvers.circuit import CircuitState

if TYPE_CHECKING:
    from minfer.graph import FactorGraph

Floats = NDArray[np.float64]
#: Loose ends are looked for if one has a table over so many variables; then of those over fewer.
WIDE, NARROW = 6, 3
#: How far, relatively, sums may be from a constant and tables from a product.
_CLOSE = 1e-12
#: Tables with a larger logarithm are no loose ends.
_LARGEST = 600.0


@dataclass(frozen=True)
class LooseEnd:
    """A variable that only one table knows."""

    variable: int
    factor: int
    others: list[int]
    parts: dict[int, tuple[float, list[Floats]]]  # a state: p(v = a) = scale E[prod b], b at most 1
    last: int  # the state that is left
    constant: float  # c


def loose_ends(model: Conditioned) -> list[LooseEnd]:
    """Those of a model; none unless one of their tables is wide."""
    graph, off = model.graph, model.graph._offsets
    count = np.zeros(graph.n_variables, dtype=np.int64)
    for g in model.groups:
        np.add.at(count, g._scope.ravel(), 1)
    first = np.repeat(model.field[off[:-1]], graph._n_states)
    flat = np.logical_and.reduceat(model.field == first, off[:-1]) & (
        model.field[off[:-1]] > -np.inf
    )
    loose = (count == 1) & flat & (model.fixed < 0)
    found: dict[int, LooseEnd] = {}
    wide = False
    for g in model.groups:
        arity = g._scope.shape[1]
        if g.form != "table" or arity < NARROW or not loose[g._scope].any():
            continue
        logs = np.broadcast_to(g.log_tables(), (len(g), g.n_cells))
        tables = np.exp(np.where(logs.max(axis=1, keepdims=True) < _LARGEST, logs, -np.inf))
        for row, axis in np.argwhere(loose[g._scope]).tolist():
            factor = int(g._ids[row])
            if factor in found:
                continue
            end = _loose(tables[row].reshape(g.shape), g._scope[row], axis, factor)
            if end is not None:
                found[factor] = end
                wide = wide or arity >= WIDE
    return list(found.values()) if wide else []


def _loose(t: Floats, scope: NDArray, axis: int, factor: int) -> LooseEnd | None:
    """The loose end of a table, if it is one."""
    t = np.moveaxis(t, axis, 0)
    sums = t.sum(axis=0)
    c = float(sums.max())
    if not (0.0 < c < math.inf and (np.abs(sums - c) <= _CLOSE * c).all()):
        return None
    parts = {a: b for a in range(len(t)) if (b := _product(t[a])) is not None}
    left = [a for a in range(len(t)) if a not in parts]
    if len(left) > 1:
        return None
    last = left[0] if left else len(t) - 1
    parts.pop(last, None)
    parts = {a: (scale / c, b) for a, (scale, b) in parts.items()}
    others = [int(v) for k, v in enumerate(scope.tolist()) if k != axis]
    return LooseEnd(int(scope[axis]), factor, others, parts, last, c)


def _product(t: Floats) -> tuple[float, list[Floats]] | None:
    """A scale and one array of at most 1 for each axis, whose product the table is."""
    at = tuple(int(i) for i in np.unravel_index(int(t.argmax()), t.shape))
    top = float(t[at])
    if top == 0.0:
        return 0.0, [np.ones(s) for s in t.shape]
    parts = [np.moveaxis(t, k, -1)[at[:k] + at[k + 1 :]] / top for k in range(t.ndim)]
    made = np.full((), top)
    for b in parts:
        made = np.multiply.outer(made, b)
    return (top, parts) if (np.abs(made - t) <= _CLOSE * t).all() else None


def without(graph: FactorGraph, ends: list[LooseEnd]) -> FactorGraph:
    """A graph without the factors of loose ends; these have no factor there."""
    kept = np.ones(graph.n_factors, dtype=bool)
    kept[[e.factor for e in ends]] = False
    return graph.keep(kept)


@dataclass(eq=False)
class LooseState:
    """An answer put together from a circuit without loose ends, and rows on it."""

    graph: FactorGraph
    inner: CircuitState
    ends: dict[int, LooseEnd]
    constant: float  # log Z less that of the circuit

    @classmethod
    def of(cls, graph: FactorGraph, state: CircuitState, ends: list[LooseEnd]) -> LooseState:
        """Of a graph and what answers without the ends: there each of
        their states counts for as much as another, and for the constant here."""
        sizes = graph._n_states[[e.variable for e in ends]]
        constant = sum(math.log(e.constant) for e in ends) - float(np.log(sizes).sum())
        return cls(graph, state, {e.variable: e for e in ends}, constant)

    def log_z(self) -> float:
        return self.inner.log_z() + self.constant

    def probs(self) -> Floats:
        """Marginals of all states."""
        out, off = self.inner.weighed.probs.copy(), self.graph._offsets
        ends = list(self.ends.values())
        asked = [(e, a) for e in ends for a in e.parts]
        for (e, a), p in zip(asked, self._chances([([], [], {e.variable: a}) for e, a in asked])):
            out[off[e.variable] + a] = p
        for e in ends:
            own = out[off[e.variable] : off[e.variable + 1]]
            own[e.last] = 0.0
            own[e.last] = max(1.0 - float(own.sum()), 0.0)
        return out

    def _chances(self, rows: list[tuple[list[int], list[int], dict[int, int]]]) -> Floats:
        """The probabilities of states of variables of the circuit, and of loose ends' states."""
        weighed, off = self.inner.weighed, self.graph._offsets
        out = np.empty(len(rows))
        for lo in range(0, len(rows), 64):
            some = rows[lo : lo + 64]
            like, scale = np.ones((len(some), int(off[-1]))), np.ones(len(some))
            for k, (variables, states, loose) in enumerate(some):
                for v, a in loose.items():
                    size, parts = self.ends[v].parts[a]
                    scale[k] *= size
                    for u, b in zip(self.ends[v].others, parts):
                        like[k, off[u] : off[u + 1]] *= b
                for v, s in zip(variables, states):
                    own = like[k, off[v] : off[v + 1]]
                    own[np.arange(len(own)) != s] = 0.0
            found = weighed.rows(like)
            chance = np.where(found.unsafe, 0.0, np.exp(found.log_p))
            out[lo : lo + 64] = chance * scale
        return out

    def joint(self, variables: list[int]) -> Floats:
        """Exact joint marginal of any variables."""
        loose = [v for v in variables if v in self.ends]
        if not loose:
            return self.inner.joint(variables)
        others = [v for v in variables if v not in self.ends]
        shape = [int(s) for s in self.graph._n_states[others + loose]]
        if n_entries(shape) > MAX_JOINT_CELLS:
            raise RefusedError(
                f"a joint marginal over {len(variables)} variables is too large to be written out; "
                "ask for fewer at a time, or for the variables' own"
            )
        out = np.zeros(shape)
        cells = list(product(*(range(s) for s in shape[: len(others)])))
        choices = list(product(*([*self.ends[v].parts, -1] for v in loose)))
        rows = [
            (others, list(cell), {v: a for v, a in zip(loose, choice) if a >= 0})
            for cell in cells
            for choice in choices
        ]
        found = iter(self._chances(rows).tolist())
        for cell in cells:
            for choice in choices:  # -1: whatever state, for now in the place of the last
                at = (a if a >= 0 else self.ends[v].last for v, a in zip(loose, choice))
                out[(*cell, *at)] = next(found)
        for k, v in enumerate(loose):
            by_state = np.moveaxis(out, len(others) + k, 0)
            last = self.ends[v].last
            rest = by_state[last] - sum(by_state[a] for a in self.ends[v].parts)
            by_state[last] = np.maximum(rest, 0.0)
        out /= out.sum()
        order = others + loose
        return out.transpose([order.index(v) for v in variables])

    def factor(self, factor: int) -> Floats:
        """Exact joint marginal over a factor's scope."""
        scope = self.graph.scope(factor).tolist()
        return self.joint(scope)

    def factors(self, factors: NDArray[np.int64]) -> Floats:
        """Of factors of one shape, (n, cells)."""
        return np.stack([self.factor(f).ravel() for f in factors.tolist()])
