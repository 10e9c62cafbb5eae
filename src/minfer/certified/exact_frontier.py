"""Exact where all factors of a component are pairs of binary variables, and a frontier is small.

The frontier kernel of monotone regions, over whole components: nothing is outside, so pairs of any
sign stay (:mod:`minfer.certified.monotone`), and only rounding has to be allowed for. Much sooner
than clique trees with numbers of unlimited range (:mod:`minfer.certified.exact_cliques`);
components whose numbers it cannot hold, or whose frontier is too large, are left to these.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minfer.certified.bounds import Effort, Refining
from minfer.certified.local import LocalBounds
from minfer.certified.monotone import (
    PASSES,
    WIDEST,
    Grid,
    Region,
    find_grid,
    rectangle_plan,
    region_of,
    run,
)
from minfer.factors.group import components
from minfer.kernels.intervals.frontier import frontier_sizes
from minfer.kernels.intervals.regions import inside, narrow_order

#: A component of fewer variables is not worth a run of its own: clique trees take many at once.
SMALLEST = 8
#: What ordering a variable costs.
ORDERING = 256


@dataclass(eq=False)
class PureComponent:
    """Its variables, their order, and what a run costs."""

    vertices: NDArray[np.int64]
    cells: float
    over: bool = False


class Swept:
    """See the module."""

    name = "exact"
    gradual = False

    def __init__(self) -> None:
        self._of: LocalBounds | None = None

    def refine(self, now: Refining) -> bool:
        local, bounds, wanted, budget, meter = now
        if local is not self._of:
            self._prepare(local, meter)

        def due() -> list[PureComponent]:
            return [
                c
                for c in self._components
                if not c.over and 2 * c.cells <= budget * wanted[c.vertices].sum()
            ]

        def answer(c: PureComponent) -> tuple[PureComponent, list]:
            return c, run(local, [self._region(local, c)], meter.flag)

        for c, answers in meter.each(answer, due()):
            c.over = True
            meter.spend(2 * c.cells)
            for a in answers:
                bounds.offer_odds(self.name, a.variables, a.lo, a.hi)
        return any(not c.over for c in self._components)

    def _prepare(self, local: LocalBounds, meter: Effort) -> None:
        self._of, self._components = local, []
        self._grid = find_grid(local)
        n = local.n_variables
        label = components(n, local.row, local.nbr)
        impure = ~local.binary | local.other.any(axis=1)
        size = np.bincount(label)
        bad = np.zeros(len(size), dtype=bool)
        bad[label[impure]] = True
        order = np.argsort(label, kind="stable")
        begin = np.cumsum(size) - size
        where = np.full(n, -1, dtype=np.int64)
        for k in np.flatnonzero(~bad & (size >= SMALLEST)).tolist():
            vertices = order[begin[k] : begin[k] + size[k]]
            if self._grid is not None and size[k] == n:
                short = min(self._grid.rows, self._grid.columns)
                widest = short + self._grid.diagonal
                cells = float(n) * 2.0 ** min(widest, 1000)
            else:
                where[vertices] = np.arange(len(vertices))
                ptr, nbr, _, _ = inside(vertices, where, local.ptr, local.nbr)
                where[vertices] = -1
                meter.spend(ORDERING * len(vertices))
                widest, _, cells = frontier_sizes(
                    narrow_order(ptr, nbr), ptr, nbr, np.zeros(len(vertices)), WIDEST
                )
            if widest <= WIDEST:
                self._components.append(PureComponent(vertices, PASSES * cells))

    def _region(self, local: LocalBounds, c: PureComponent) -> Region:
        if isinstance(self._grid, Grid) and len(c.vertices) == local.n_variables:
            grid = self._grid
            at = np.full(grid.rows * grid.columns, -1, dtype=np.int64)
            at[: local.n_variables] = np.arange(local.n_variables)
            table = at.reshape(grid.rows, grid.columns)
            table = table.T if grid.rows <= grid.columns else table
            long, short = table.shape
            plan = rectangle_plan(short, long, grid.diagonal)
            return Region(plan, np.ascontiguousarray(table).ravel(), True)
        where = np.full(local.n_variables, -1, dtype=np.int64)
        return region_of(local, c.vertices, where, True)
