"""A circuit in plain Python: an AND/OR search whose rests meet by context alone.

What stands in for :func:`minfer.engine.circuits.driver.build` in tests of passes: obvious, slow,
and laid out as promised, auxiliary variables of chains included.
"""

from __future__ import annotations

import math

import numpy as np

from minfer.engine.circuits.arrays import CircuitArrays
from minfer.engine.conditioning import Conditioned
from minfer.engine.decomposition import only_tables
from minfer.errors import ContradictionError


class _Search:
    def __init__(self, model: Conditioned, free: np.ndarray) -> None:
        n = len(model.fixed)
        self.offsets = np.concatenate([[0], np.cumsum(model.graph._n_states)])
        self.model, self.free, self.known = model, free, {}
        self.scale = model.constant + float(model.field[model.fixed_at].sum())
        self.field = model.field.copy()
        for v in np.flatnonzero(model.fixed < 0).tolist():
            own = self.field[self.offsets[v] : self.offsets[v + 1]]
            self.scale += float(own.max())
            own -= own.max()
        self.factors: list[tuple[tuple[int, ...], np.ndarray]] = []
        for g in model.groups:
            for scope, table in zip(g._scope.tolist(), g.log_tables()):
                top = max(float(table.max()), -1e300)
                self.scale += top
                with np.errstate(invalid="ignore"):
                    self.factors.append((tuple(scope), np.exp(table.reshape(g.shape) - top)))
        self.at = [[k for k, (s, _) in enumerate(self.factors) if v in s] for v in range(n)]
        self.variable: list[int] = []
        self.edges: list[list[tuple[int, float, list[int]]]] = []

    def parts(self, left: list[int], fixed: dict[int, int]) -> list[list[int]]:
        """The rest in components, first variables first."""
        out, todo = [], set(left)
        while todo:
            start = min(todo)
            part, stack = {start}, [start]
            while stack:
                for k in self.at[stack.pop()]:
                    for u in self.factors[k][0]:
                        if u in todo and u not in part:
                            part.add(u)
                            stack.append(u)
            todo -= part
            out.append(sorted(part))
        return out

    def solve(self, part: list[int], fixed: dict[int, int]) -> int:
        """The node of a component, or -1 if nothing is left of it."""
        around = {u for v in part for k in self.at[v] for u in self.factors[k][0]} & fixed.keys()
        key = tuple(part), tuple(sorted((u, fixed[u]) for u in around))
        if key in self.known:
            return self.known[key]
        v, edges = part[0], []
        for s in range(int(self.offsets[v + 1] - self.offsets[v])):
            own = float(self.field[self.offsets[v] + s])
            if own == -math.inf:
                continue
            now = {**fixed, v: s}
            weight = 1.0 if v < len(self.free) and self.free[v] else math.exp(own)
            for k in self.at[v]:
                scope, table = self.factors[k]
                if all(u in now for u in scope):
                    weight *= float(table[tuple(now[u] for u in scope)])
            children = [self.solve(p, now) for p in self.parts(part[1:], now)] if weight else []
            if weight > 0.0 and -1 not in children:
                edges.append((s, weight, children))
        found = -1
        if edges:
            found = len(self.variable)
            self.variable.append(v)
            self.edges.append(edges)
        self.known[key] = found
        return found


def build(model, *, free=None, **limits) -> CircuitArrays:
    """As ``minfer.engine.circuits.driver.build``."""
    free = np.zeros(model.graph.n_variables, dtype=bool) if free is None else free
    tables = only_tables(model)
    search = _Search(tables, free)
    left = [v for v in range(len(tables.fixed)) if tables.fixed[v] < 0]
    roots = [search.solve(part, {}) for part in search.parts(left, {})]
    if -1 in roots or search.scale == -math.inf:
        raise ContradictionError("nothing is possible")
    edges = [e for own in search.edges for e in own]
    return CircuitArrays(
        np.array(search.variable, dtype=np.int32),
        np.concatenate([[0], np.cumsum([len(own) for own in search.edges])]).astype(np.int64),
        np.array([s for s, _, _ in edges], dtype=np.int32),
        np.array([w for _, w, _ in edges], dtype=np.float64),
        np.concatenate([[0], np.cumsum([len(c) for _, _, c in edges])]).astype(np.int64),
        np.array([c for _, _, own in edges for c in own], dtype=np.int32),
        np.array(roots, dtype=np.int32),
        float(search.scale),
    )
