"""Families of a Bayesian network: where their tables lie, counts of rows, and expected counts.

A family is a variable and its parents. Where all of it is known it is counted in one pass. Where
cells are missing the clique tree is asked for the posterior of every family in every *different*
row (:mod:`minfer.solvers.row_plans`, eight rows abreast).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from minfer.errors import ContradictionError, RefusedError, visible
from minfer.graph import FactorGraph
from minfer.learn.estimator import alike
from minfer.model.directed import FlatTables, with_flat_conditionals

Floats = NDArray[np.float64]
States = NDArray[np.int32]  # -1 where nothing is known

_MOST_CELLS = 1 << 26  # of a table
_BLOCK = 1 << 19  # numbers of posteriors held at a time


class Families:
    """Variables, their parents, and where each table lies; the child runs fastest.

    Of ``fixed`` ones, by variable, nothing is learned; of those in ``start`` zeros stay zeros.
    """

    def __init__(
        self,
        graph: FactorGraph,
        parents: list[list[int]],
        fixed: Mapping[int, Floats] | None = None,
        start: Mapping[int, Floats] | None = None,
    ) -> None:
        self.graph, self.parents = graph, parents  # variables and states, no factors
        self.fixed, self.start = fixed or {}, start or {}
        self.card = card = graph._n_states.tolist()
        self.scopes = [[*own, v] for v, own in enumerate(parents)]
        self.shapes = [tuple(card[v] for v in scope) for scope in self.scopes]
        self.arity = np.array([len(scope) for scope in self.scopes], dtype=np.int64)
        self.joined = np.array([v for scope in self.scopes for v in scope], dtype=np.int64)
        self.starts = np.append(0, np.cumsum(self.arity))  # of scopes, in ``joined``
        sizes = [math.prod(shape) for shape in self.shapes]
        for v, size in enumerate(sizes):
            if size > _MOST_CELLS:
                raise RefusedError(
                    f"BayesianNetwork: the table of {visible(graph.name(v))} has {size:.3g} "
                    f"cells ({' x '.join(map(str, self.shapes[v]))}): give it fewer parents, or "
                    "columns with fewer different values"
                )
        self.ends = np.array([0, *accumulate(sizes)], dtype=np.int64)  # of tables
        self.rows = np.repeat(card, np.array(sizes, dtype=np.int64) // card)  # sizes of all rows
        self._known, self._zeros = self._said(self.fixed), self._said(self.start) == 0.0

    def _said(self, tables: Mapping[int, Floats]) -> Floats:
        """Some tables, where they lie; NaN elsewhere."""
        out = np.full(int(self.ends[-1]) if tables else 0, np.nan)
        for v, table in tables.items():
            out[self.ends[v] : self.ends[v + 1]] = table.ravel()
        return out

    def learned(self, alpha: Floats) -> Floats:
        """Pseudo-counts where something is learned."""
        if len(self._known):
            alpha = np.where(np.isnan(self._known), alpha, 0.0)
        return np.where(self._zeros, 0.0, alpha) if len(self._zeros) else alpha

    def normalised(self, counts: Floats) -> Floats:
        """Rows divided by their sums; a row of zeros becomes uniform."""
        if len(self._zeros):
            counts = np.where(self._zeros, 0.0, counts)
        out = self._divided(counts)
        if len(self._zeros) and (out[self._zeros] > 0.0).any():
            out = self._divided(np.where(self._zeros, 0.0, out))
        if len(self._known):
            out = np.where(np.isnan(self._known), out, self._known)
        return out

    def _divided(self, counts: Floats) -> Floats:
        total = np.add.reduceat(counts, np.cumsum(self.rows) - self.rows)
        empty = total <= 0.0
        out = counts / np.repeat(np.where(empty, 1.0, total), self.rows)
        return out + np.repeat(np.where(empty, 1.0 / self.rows, 0.0), self.rows)

    def counts(self, known: States, weight: Floats | None) -> Floats:
        """Counts of all families, each from the rows (V, N) in which all of it is known."""
        from minfer.kernels.learning.families import count_families

        out = np.zeros(int(self.ends[-1]))
        count_families(
            known, self.starts, self.joined.astype(np.int32),
            np.array(self.card, dtype=np.int64), self.ends,
            np.empty(0) if weight is None else weight, out,
        )  # fmt: skip
        return out


class FamilyCounts:
    """Expected counts of all families over different rows, each with a weight."""

    def __init__(
        self, families: Families, rows: States, weight: Floats, first: NDArray[np.int64]
    ) -> None:
        from minfer.engine.elimination import links, tree_over
        from minfer.engine.layout import Flat
        from minfer.solvers.row_plans import MAX_CELLS, RowPlan

        graph, scopes, ends = families.graph, families.scopes, families.ends
        self.families, self.rows, self.weight, self.first = families, rows, weight, first
        flat = Flat(
            np.ascontiguousarray(graph._n_states), graph._offsets,
            np.zeros(int(graph._offsets[-1])), np.arange(len(scopes), dtype=np.int64),
            families.starts, families.joined.astype(np.int32), ends[:-1].copy(),
            np.zeros(int(ends[-1])),
        )  # fmt: skip
        free = np.ones(graph.n_variables, dtype=bool)
        tree = tree_over(
            links(flat, free, flat.card), graph.n_variables, MAX_CELLS, max(len(rows), 1)
        )
        self.plan = RowPlan.make(flat, tree)
        if self.plan.layout is None:
            raise RefusedError(
                "BayesianNetwork: EM needs a clique tree of at most "
                f"{MAX_CELLS:,.0f} cells, and this structure has more; drop the rows with missing "
                "cells, or give variables fewer parents"
            )
        self.block = max(64, _BLOCK // max(int(ends[-1]), 1) // 8 * 8)

    def __call__(self, theta: Floats, workers: int) -> tuple[Floats, float]:
        """Expected counts, and the log-likelihood."""
        with np.errstate(divide="ignore"):
            log_psi = np.log(theta)
        self.plan.load(log_psi, np.zeros(int(self.plan.flat.off[-1])))
        counts, likelihood = np.zeros(len(theta)), 0.0
        step = self.block * workers
        for begin in range(0, len(self.rows), step):
            rows, weight = self.rows[begin : begin + step], self.weight[begin : begin + step]
            found = self.plan.run(evidence=rows, joints=True, workers=workers)
            joints, log_z = found.joints, found.log_z
            assert joints is not None
            for r in np.flatnonzero(found.unsafe).tolist():
                joints[r], log_z[r] = self._single(theta, rows[r])
            if not (log_z > -np.inf).all():
                r = int(np.flatnonzero(~(log_z > -np.inf))[0])
                raise ContradictionError(
                    f"BayesianNetwork: row {int(self.first[begin + r])} has probability zero under "
                    'the tables to begin with; start="counts", or a prior, leaves none at zero'
                )
            counts += weight @ joints
            likelihood += float(weight @ log_z)
        return counts, likelihood

    def _single(self, theta: Floats, row: States) -> tuple[Floats, float]:
        """One row by the clique tree in logarithms: linear numbers would not have held it."""
        from minfer.solvers.exact import Exact

        families = self.families
        tables = FlatTables(families.graph, families.arity, families.joined, theta)
        graph = with_flat_conditionals(families.graph, tables, normalise=False)
        known: dict[int | str, int | str] = {int(v): int(row[v]) for v in np.flatnonzero(row >= 0)}
        try:
            answer = Exact()(graph.with_evidence(known))
        except ContradictionError:
            return np.zeros(len(theta)), -np.inf
        joints = [answer.factor(f).ravel() for f in range(len(families.scopes))]
        return np.concatenate(joints), answer.log_z


def different_rows(known: States) -> tuple[States, Floats, NDArray[np.int64]]:
    """The different rows by two keys of 64 bits, how often each occurs, and where first."""
    rng = np.random.default_rng(20_010_417)
    keys = []
    for _ in range(2):
        factor = rng.integers(1, 2**64 - 1, size=len(known), dtype=np.uint64) | np.uint64(1)
        key = np.zeros(known.shape[1], dtype=np.uint64)
        for v, states in enumerate(known):
            key = (key ^ (key >> np.uint64(29))) * factor[v] + (states + 2).astype(np.uint64)
        keys.append(key)
    first, owner = alike(np.array(keys))
    weight = np.bincount(owner).astype(np.float64)
    return np.ascontiguousarray(known[:, first].T), weight, first
