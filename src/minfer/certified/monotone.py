"""Monotone regions: exact sums inside, everything that comes in from outside at its extremes.

**Theorem** (Holley 1974, by single-site conditionals). Let q be a positive distribution over binary
variables whose pairs have weights >= 0, and p one over the same variables such that at each site
the log-odds given the others are at most those of q, whatever the others are. Then
q(x_i = 1) >= p(x_i = 1) for all i.

Proof: since q's pairs are positive its conditional odds rise with the others, so that odds of p
given y are at most odds of q given z wherever y <= z; Holley's condition.

Condition the model on any state of everything outside a *region*. Inside, keep pairs that are
positive after flipping some variables; replace each other factor, of any sign, arity or number of
states outside, by the largest log-odds it can give to each of its ends. The result is such a q, the
same for every state outside; with the smallest log-odds it is dominated instead. So two runs of
exact inference bound all marginals of the region. Where a region has no outside and nothing was
replaced, the run is exact, whatever the signs.

**Zeros.** A factor that can forbid state 0 of a variable has an upper end of infinity there; q has
that variable pinned at 1 (:func:`minfer.kernels.intervals.regions.region_numbers`), and tells
nothing of its own upper end. Holley's condition q(x v y) p(x ^ y) >= q(x) p(y) still holds: from y
with p(y) > 0 one gets to x ^ y by lowering variables that are not pinned, one after the other. None
of these steps leaves the support of p, since a 1 whose lowering is impossible has an upper end of
infinity, so the ratio p(y) / p(x ^ y) is a product of conditional odds, each at most q's. Likewise
below.

**Regions.** On a grid (found by how pairs are numbered), rectangles: strips of h rows, cut to the
columns around variables that are still wanted, all with one plan, four abreast, both ends of each.
Elsewhere, balls around variables, as large as their frontier allows. :class:`ExactFrontier` takes
whole components of binary pairs: several times faster than clique trees with numbers of unlimited
range (:mod:`minfer.certified.exact_cliques`), which have what its numbers or frontier cannot hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.certified.bounds import Bounds, Effort, Refining
from minfer.certified.local import LocalBounds
from minfer.certified.rounding import EXP, down, gamma, up
from minfer.engine.layout import ends
from minfer.factors.group import components
from minfer.kernels.intervals import frontier
from minfer.kernels.intervals.frontier import MOST, L, frontier_sizes
from minfer.kernels.intervals.regions import grow, inside, narrow_order, region_numbers

#: Log-odds up to which fields are taken as they are: beyond, outward (e^-40 is 4e-18).
FIELD = (40.0, 24.0, 14.0, 8.0)
#: Largest frontier: 2^18 states, eight lanes; a run takes some 300 MiB then.
WIDEST = 18
#: Numbers that a run may keep for its way back.
KEPT = 1 << 23
#: Balls in a portion, and their cells.
PORTION, PORTION_CELLS = 16, 1 << 20
#: Rows of a strip that take their intervals from it: its middle.
CORE = 2
#: Cells that a step of a run visits, in both passes, for each state of its frontier and run.
PASSES = 3
#: A component of fewer variables is not worth a run of its own: clique trees take many at once.
SMALLEST = 8
#: What ordering a variable costs.
ORDERING = 256


class FrontierPlan(NamedTuple):
    """A structure that runs share: see :mod:`minfer.kernels.intervals.frontier`."""

    pairs: NDArray[np.int64]  # (m, 2) places
    order: NDArray[np.int64]
    ptr: NDArray[np.int64]
    nbr: NDArray[np.int64]
    steps: frontier.FrontierSteps
    widest: int
    slips: float  # roundings on a path

    @property
    def cells(self) -> float:
        """Work of one run."""
        return PASSES * float((2.0 ** self.steps.steps[:, frontier.K]).sum())

    @classmethod
    def make(
        cls, order: NDArray, ptr: NDArray, nbr: NDArray, edge: NDArray, pairs: NDArray
    ) -> FrontierPlan:
        steps, widest = frontier.plan(order, ptr, nbr, edge)
        slips = float(frontier.roundings(steps.steps, steps.xbit, EXP)) if len(steps.steps) else 0.0
        return cls(pairs, order, ptr, nbr, steps, widest, slips)


class Region(NamedTuple):
    """Some variables (-1: a place without one) under a plan."""

    plan: FrontierPlan
    vertices: NDArray[np.int64]  # (n,)
    whole: bool  # nothing outside, nothing but pairs inside


class RegionOdds(NamedTuple):
    """Intervals of odds of the variables of one region."""

    variables: NDArray[np.int64]
    lo: NDArray[np.float64]
    hi: NDArray[np.float64]
    whole: bool


def run(local: LocalBounds, regions: list[Region], stop: NDArray[np.uint8]) -> list[RegionOdds]:
    """Up to four regions of one plan, abreast; given up where ``stop[0]`` becomes 1."""
    plan = regions[0].plan
    n, m = len(plan.order), len(plan.pairs)
    fields, weights = np.zeros(n * L), np.zeros(m * L)
    mark = np.zeros(len(local.nbr), dtype=bool)
    flips = np.zeros((len(regions), n), dtype=np.int64)
    good, spread = np.zeros(len(regions), dtype=bool), np.zeros(len(regions))
    size = np.empty(n)
    for k, region in enumerate(regions):
        for most in FIELD:
            spread[k] = region_numbers(
                region.vertices, plan.pairs, region.whole, local.pairs, most, 2 * k, mark, fields,
                weights, flips[k], size,
            )  # fmt: skip
            good[k] = frontier_sizes(plan.order, plan.ptr, plan.nbr, size, 64)[1] <= MOST
            if good[k] or region.whole:
                break
        if not good[k]:
            fields.reshape(n, L)[:, 2 * k : 2 * k + 2] = 0.0
            weights.reshape(m, L)[:, 2 * k : 2 * k + 2] = 0.0
    if not good.any():
        return []
    room = L << plan.widest
    n_checks = len(plan.steps.check)
    stretch = max(1, n_checks)
    while stretch > 1 and (stretch + -(-n_checks // stretch)) * room > KEPT:
        if stretch * stretch <= n_checks:
            break
        stretch = (stretch + 1) // 2
    a, b, c = (np.empty(room) for _ in range(3))
    kept = np.empty((stretch + -(-n_checks // stretch)) * room)
    odds = np.ones(n * L)
    frontier.sweep(plan.steps, fields, weights, stretch, a, b, c, kept, odds, stop)
    if stop[0]:
        return []
    by_lane = odds.reshape(n, L)
    out = []
    for k in np.flatnonzero(good).tolist():
        pair = by_lane[:, 2 * k : 2 * k + 2]
        if not (np.isfinite(pair) & (pair > 0)).all():
            continue  # a number left the range of floats
        slip = float(gamma(2 * plan.slips + 2)) + np.expm1(1.01 * spread[k])
        lo = down(by_lane[:, 2 * k] / (1 + slip) * (1 - 4e-16))
        hi = up(by_lane[:, 2 * k + 1] * (1 + slip))
        lo[(flips[k] & 2) > 0] = 0.0
        hi[(flips[k] & 4) > 0] = np.inf
        turn = (flips[k] & 1) > 0
        with np.errstate(divide="ignore"):
            lo[turn], hi[turn] = np.maximum(down(1 / hi[turn]), 0.0), up(1 / lo[turn])
        real = regions[k].vertices >= 0
        out.append(RegionOdds(regions[k].vertices[real], lo[real], hi[real], regions[k].whole))
    return out


# ---------------------------------------------------------------- grids


class Grid(NamedTuple):
    """Variables numbered row by row, pairs between neighbours (also diagonal ones)."""

    rows: int
    columns: int
    diagonal: bool


def find_grid(local: LocalBounds) -> Grid | None:
    """The grid that the pairs' numbers show, if they do."""
    ahead = local.nbr > local.row
    i, j = local.row[ahead], local.nbr[ahead]
    if len(i) < 4:
        return None
    far = int((j - i).max())
    for columns in (far, far - 1):
        if columns < 2:
            continue
        across = np.abs(i % columns - j % columns)
        below = j // columns - i // columns
        if (across <= 1).all() and (below <= 1).all() and below.any() and (below == 0).any():
            rows = -(-local.n_variables // columns)
            return Grid(rows, columns, bool(((across == 1) & (below == 1)).any()))
    return None


def rectangle_plan(short: int, long: int, diagonal: bool) -> FrontierPlan:
    """A rectangle swept along its longer side; place = long * ``short`` + short."""
    at = np.arange(short * long).reshape(long, short)
    parts = [(at[:, :-1], at[:, 1:]), (at[:-1], at[1:])]
    if diagonal:
        parts += [(at[:-1, :-1], at[1:, 1:]), (at[:-1, 1:], at[1:, :-1])]
    pairs = np.concatenate([np.stack([x.ravel(), y.ravel()], axis=1) for x, y in parts])
    n = short * long
    both = np.concatenate([pairs, pairs[:, ::-1]])
    edge = np.tile(np.arange(len(pairs)), 2)
    order = np.lexsort((both[:, 1], both[:, 0]))
    ptr = ends(np.bincount(both[:, 0], minlength=n))
    nbr = np.ascontiguousarray(both[order, 1])
    return FrontierPlan.make(np.arange(n), ptr, nbr, np.ascontiguousarray(edge[order]), pairs)


# ---------------------------------------------------------------- the method


@dataclass(eq=False)
class Monotone:
    """See the module."""

    name: str = "monotone"
    gradual: bool = True
    _grid: Grid | str | None = "unknown"
    _calls: int = 0
    _plans: dict[tuple[int, int], FrontierPlan] = field(default_factory=dict)
    _last: int = 0  # rows of the last strips
    _sizes: dict[int, int] = field(default_factory=dict)  # of the last ball around each variable

    def refine(self, now: Refining) -> bool:
        now = now._replace(wanted=now.wanted & now.local.binary)
        if not now.wanted.any():
            return False
        if self._grid == "unknown":
            self._grid = find_grid(now.local)
        return self._strips(self._grid, now) if isinstance(self._grid, Grid) else self._balls(now)

    def _offer(self, bounds: Bounds, answers: list[RegionOdds]) -> None:
        for a in answers:
            bounds.offer_odds("exact" if a.whole else self.name, a.variables, a.lo, a.hi)

    # ------------------------------------------------------------------ grids

    def _strips(self, grid: Grid, now: Refining) -> bool:
        local, bounds, wanted, budget, effort = now
        height = 2
        extra = int(grid.diagonal)
        most = CORE * budget / PASSES
        while height < WIDEST and 2.0 ** (height + 3 + extra) * (height + 2) <= most:
            height += 2
        shorter = min(grid.rows, grid.columns)
        if height + 2 >= shorter and shorter + extra <= WIDEST:
            whole_cost = PASSES * 2.0 ** (shorter + extra) * 2
            if whole_cost * local.n_variables <= 1.5 * budget * wanted.sum():
                height = shorter
        height = min(height, WIDEST - extra, max(grid.rows, grid.columns))
        if height <= self._last:
            return height < min(WIDEST - extra, shorter)
        self._last = height
        self._calls += 1
        upright = self._calls % 2 == 0 and min(grid.rows, grid.columns) > height
        groups = list(self._rectangles(grid, local, wanted, height, upright))
        for answers in effort.each(lambda g: (g, run(local, g, effort.flag)), groups):
            effort.spend(2 * len(answers[0]) * answers[0][0].plan.cells)
            self._offer(bounds, answers[1])
        self._plans.clear()
        return height < min(WIDEST - extra, shorter)

    def _rectangles(
        self, grid: Grid, local: LocalBounds, wanted: NDArray[np.bool_], height: int, upright: bool
    ) -> Iterator[list[Region]]:
        """Rectangles around wanted variables, four of one size at a time."""
        cells = grid.rows * grid.columns
        flat = np.full(cells, -1, dtype=np.int64)
        flat[: local.n_variables] = np.where(local.binary, np.arange(local.n_variables), -1)
        ask = np.zeros(cells, dtype=bool)
        ask[: local.n_variables] = wanted
        at, want = flat.reshape(grid.rows, grid.columns), ask.reshape(grid.rows, grid.columns)
        if upright:
            at, want = at.T, want.T
        rows, columns = at.shape
        height = min(height, rows)
        found: list[tuple[int, int, int]] = []
        margin = max(height, 4)
        core = CORE if height < rows else rows
        for first in range(0, rows, core):
            top = max(0, min(first - (height - core) // 2, rows - height))
            need = np.flatnonzero(want[first : first + core].any(axis=0))
            if not len(need):
                continue
            cut = np.flatnonzero(np.diff(need) > 2 * margin)
            for a, b in zip([need[0], *need[cut + 1]], [*need[cut], need[-1]]):
                begin, end = max(0, a - margin), min(columns, b + margin + 1)
                found.append((int(end - begin), top, int(begin)))
        found.sort(key=lambda f: -f[0])
        whole_possible = height == rows and not local.other[local.binary].any()
        for k in range(0, len(found), 4):
            length = min(columns, max(found[k][0], height))
            short, long = sorted((height, length))
            if (short, long) not in self._plans:
                self._plans[short, long] = rectangle_plan(short, long, grid.diagonal)
            plan, group = self._plans[short, long], []
            for _, top, begin in found[k : k + 4]:
                begin = min(begin, columns - length)
                part = at[top : top + height, begin : begin + length]
                part = part.T if height <= length else part
                whole = whole_possible and length == columns
                group.append(Region(plan, np.ascontiguousarray(part).ravel(), whole))
            yield group

    # ------------------------------------------------------------------ balls

    def _balls(self, now: Refining) -> bool:
        """Balls around wanted variables; those in the core of one need none of their own."""
        local, bounds, wanted, budget, effort = now
        n = local.n_variables
        reach = np.abs(local.reach).max(axis=1)
        # beyond the largest field a variable is cut or pinned: its partners' pairs remain
        pull = np.bincount(local.row, np.abs(local.weight).max(axis=1, initial=0.0), n)
        reach = np.minimum(reach, FIELD[-1] + 2 * pull)
        where, vertices = np.full(n, -1, dtype=np.int64), np.empty(n + 1, dtype=np.int64)
        todo = wanted.copy()
        pure = not local.other[local.binary].any()
        more = False

        def portions() -> Iterator[list[Region]]:
            nonlocal more
            some: list[Region] = []
            cells = 0.0
            for v in np.flatnonzero(wanted & (np.diff(local.ptr) > 0)).tolist():
                if not todo[v]:
                    continue
                size, core, whole = grow(
                    v, local.pairs, local.binary, reach, budget, 2.0 * PASSES, WIDEST, MOST, 24,
                    where, vertices, todo,
                )  # fmt: skip
                effort.spend(64 * size)
                more |= not whole
                if size <= self._sizes.get(v, 1) and not whole:
                    continue
                self._sizes[v] = size
                todo[vertices[:core]] = False
                some.append(region_of(local, vertices[:size].copy(), where, whole and pure))
                cells += some[-1].plan.cells
                if len(some) == PORTION or cells > PORTION_CELLS:
                    yield some
                    some, cells = [], 0.0
            if some:
                yield some

        def answer(regions: list[Region]) -> tuple[float, list[RegionOdds]]:
            answers = [a for r in regions for a in run(local, [r], effort.flag)]
            return 2 * sum(r.plan.cells for r in regions), answers

        for cost, answers in effort.each(answer, portions()):
            effort.spend(cost)
            self._offer(bounds, answers)
        return more


def region_of(
    local: LocalBounds, vertices: NDArray[np.int64], where: NDArray[np.int64], whole: bool
) -> Region:
    """A region of any graph, in a narrow order; ``where`` (V,) is scratch, all -1."""
    where[vertices] = np.arange(len(vertices))
    ptr, nbr, edge, pairs = inside(vertices, where, local.ptr, local.nbr)
    where[vertices] = -1
    return Region(FrontierPlan.make(narrow_order(ptr, nbr), ptr, nbr, edge, pairs), vertices, whole)


class ExactFrontier:
    """ExactCliques components of binary pairs: exact but for rounding."""

    name = "exact"
    gradual = False

    def __init__(self) -> None:
        self._of: LocalBounds | None = None

    def refine(self, now: Refining) -> bool:
        local, bounds, wanted, budget, effort = now
        if local is not self._of:
            self._prepare(local, effort)
        due = [
            k
            for k, (vertices, cells) in self._left.items()
            if 2 * cells <= budget * wanted[vertices].sum()
        ]

        def answer(k: int) -> tuple[int, list[RegionOdds]]:
            return k, run(local, [self._region(local, self._left[k][0])], effort.flag)

        for k, answers in effort.each(answer, due):
            effort.spend(2 * self._left.pop(k)[1])
            for a in answers:
                bounds.offer_odds(self.name, a.variables, a.lo, a.hi)
        return bool(self._left)

    def _prepare(self, local: LocalBounds, effort: Effort) -> None:
        #: Of each component to be swept its variables, and what a run costs.
        self._left: dict[int, tuple[NDArray[np.int64], float]] = {}
        self._of, self._grid = local, find_grid(local)
        n = local.n_variables
        label = components(n, local.row, local.nbr)
        size = np.bincount(label)
        bad = np.zeros(len(size), dtype=bool)
        bad[label[~local.binary | local.other.any(axis=1)]] = True
        order = np.argsort(label, kind="stable")
        begin = np.cumsum(size) - size
        where = np.full(n, -1, dtype=np.int64)
        for k in np.flatnonzero(~bad & (size >= SMALLEST)).tolist():
            vertices = order[begin[k] : begin[k] + size[k]]
            if self._grid is not None and size[k] == n:
                widest = min(self._grid.rows, self._grid.columns) + self._grid.diagonal
                cells = float(n) * 2.0 ** min(widest, 1000)
            else:
                where[vertices] = np.arange(len(vertices))
                ptr, nbr, _, _ = inside(vertices, where, local.ptr, local.nbr)
                where[vertices] = -1
                effort.spend(ORDERING * len(vertices))
                widest, _, cells = frontier_sizes(
                    narrow_order(ptr, nbr), ptr, nbr, np.zeros(len(vertices)), WIDEST
                )
            if widest <= WIDEST:
                self._left[k] = vertices, PASSES * cells

    def _region(self, local: LocalBounds, vertices: NDArray[np.int64]) -> Region:
        n, grid = local.n_variables, self._grid
        if grid is None or len(vertices) < n:
            return region_of(local, vertices, np.full(n, -1, dtype=np.int64), True)
        at = np.full(grid.rows * grid.columns, -1, dtype=np.int64)
        at[:n] = np.arange(n)
        table = at.reshape(grid.rows, grid.columns)
        table = table.T if grid.rows <= grid.columns else table
        long, short = table.shape
        plan = rectangle_plan(short, long, grid.diagonal)
        return Region(plan, np.ascontiguousarray(table).ravel(), True)
