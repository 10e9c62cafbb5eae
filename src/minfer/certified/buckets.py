"""Buckets: bounds of log Z by mini-buckets and by search, and what they say of each marginal.

With bounds L_s <= Z_s <= U_s of what the assignments with x_v = s add up to,

    L_s / (L_s + sum_{q != s} U_q)  <=  p(x_v = s)  <=  U_s / (U_s + sum_{q != s} L_q).

Weighted mini-buckets (:mod:`minfer.engine.buckets.bounds`) give them for all variables in a few
passes; the larger the mini-buckets, the nearer. Best-first search (:mod:`.search` there) opens what
is left between the two, and ends with the exact answer. log Z is bounded on the way.

**When.** Mini-buckets grow with the budget, up to what memory allows; what they leave of it is the
search's, which begins anew with larger ones and else goes on where it was. Nothing is planned
before the budget is worth the plan, which takes about n^2 for n variables.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from minfer.certified.bounds import Refining
from minfer.errors import RefusedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from minfer.certified.bounds import Bounds, Effort
    from minfer.certified.local import LocalBounds
    from minfer.engine.buckets.search import BoundedSearch

#: Planning n variables takes about so many units times n squared, or times n and this many.
PLANNING, PACK = 40.0, 820
#: Cells of the largest mini-bucket, for each unit of the budget of a variable.
CELLS = 1.0 / 8.0
#: Bytes that messages and nodes may fill.
MOST_MEMORY = 2.0**30
#: Cells of all mini-buckets, at most: a pass takes about half a second.
MOST_CELLS = 3e7
#: Steps of tightening; units that a cell takes in each, and in the passes for all marginals.
SWEEPS, PER_CELL = 6, 16.0
#: Between the bounds of log Z, from which on each state is bounded by itself: before, that says
#: next to nothing of a marginal and takes as long as all else.
WORTH = 3.0
#: Cells that are summed again for a state, at least; units that this takes beside the cells.
LEAST_CELLS, PER_WAY = 4096.0, 50_000.0
#: Units that opening a leaf takes, and leaves between two looks at the clock.
PER_LEAF, LOOK = 20_000.0, 256


class BoundedBuckets:
    """See the module."""

    name = "buckets"
    gradual = False

    def __init__(self) -> None:
        self._of: LocalBounds | None = None
        self._search: BoundedSearch | None = None
        self._largest = False  # mini-buckets cannot grow
        self._known_of: BoundedSearch | None = None  # whose bounds with a state known these are:
        self._known: dict[int, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}

    def refine(self, now: Refining) -> bool:
        local, bounds, wanted, budget, effort = now
        if local is not self._of:
            self._of, self._search, self._largest = local, None, False
        n = max(len(wanted), 1)
        each = budget * int(wanted.sum()) / n
        cost = PLANNING * min(n, PACK)
        if each < cost:
            return True
        try:
            self._grow(local, max(int(math.log2(each * CELLS)), 2), cost * n, effort)
        except RefusedError:
            self._largest = True
        if self._search is None:
            return False
        search = self._search
        self._offer_log_z(bounds)
        self._condition(bounds, wanted, each, effort)
        leaves, chunk = max(int(each * n / PER_LEAF), LOOK), LOOK
        while leaves > 0 and not search.exact and not search.full:
            if not self._open(chunk, bounds, effort):
                return True
            leaves, chunk = leaves - chunk, min(2 * chunk, leaves - chunk)
        self._offer(bounds)
        return not search.exact and not (self._largest and search.full)

    def _open(self, leaves: int, bounds: Bounds, effort: Effort) -> bool:
        """So many leaves. What a search says of marginals is only offered where a longer run would
        offer it, too: False where this one ends before."""
        search = self._search
        assert search is not None
        done = 0
        while done < leaves and not search.exact and not search.full:
            if not effort.go_on():
                return False
            before = search.nodes
            search.run(work=min(LOOK, leaves - done))
            effort.spend(PER_LEAF * max(search.nodes - before, 1))
            self._offer_log_z(bounds)
            done += LOOK
        self._offer(bounds)
        return True

    def _offer(self, bounds: Bounds) -> None:
        """What was explored, and what is known with each state."""
        assert self._search is not None
        assert self._of is not None
        bounds.offer_all(self.name, *self._of.peeled.core(*self._search.intervals()))
        self._offer_conditioned(bounds)

    def _offer_log_z(self, bounds: Bounds) -> None:
        assert self._of is not None
        assert self._search is not None
        error = 1.01 * self._of.peeled.error
        bounds.offer_log_z(self._search.lower - error, self._search.upper + error)

    def _condition(
        self, bounds: Bounds, wanted: NDArray[np.bool_], each: float, effort: Effort
    ) -> None:
        """Bounds with each state of each wanted variable, by the mini-buckets as they are now."""
        search = self._search
        assert search is not None
        if self._known_of is search or not search.upper - search.lower < WORTH:
            return
        self._known_of, self._known = search, {}
        assert self._of is not None
        leaves = {leaf.variable for leaf in self._of.peeled.leaves}
        for v in np.flatnonzero(wanted & (bounds.width > 0.0)).tolist():
            if v in leaves:
                continue
            if not effort.go_on():
                break
            states = int(bounds.graph._n_states[v])
            budget = each / (2.0 * PER_CELL * states)
            self._known[v] = search.buckets.conditioned(v, max(budget, LEAST_CELLS))
            effort.spend(2.0 * states * PER_WAY + each)
        self._offer_conditioned(bounds)

    def _offer_conditioned(self, bounds: Bounds) -> None:
        from minfer.engine.buckets.conditioned import marginal_ends

        off = bounds.graph._offsets
        lo, hi = np.zeros(len(bounds.lo)), np.ones(len(bounds.lo))
        assert self._of is not None
        peeled = self._of.peeled
        lower, upper = bounds.log_z[0] - 1.01 * peeled.error, bounds.log_z[1] + 1.01 * peeled.error
        for v, ends in self._known.items():
            own = slice(int(off[v]), int(off[v + 1]))
            lo[own], hi[own] = marginal_ends(*ends, lower, upper)
        bounds.offer_all(self.name, *peeled.core(lo, hi))

    def _grow(self, local: LocalBounds, i_bound: int, cost: float, effort: Effort) -> None:
        """Larger mini-buckets, tightened, and a search on them."""
        from minfer.engine.buckets.search import BoundedSearch

        old = self._search
        if self._largest or (old is not None and (old.exact or i_bound <= old.buckets.i_bound)):
            return
        new = BoundedSearch(local.peeled.model, memory_limit=MOST_MEMORY, i_bound=i_bound)
        effort.spend(cost)
        cells = _cells(new)
        if old is not None and cells > MOST_CELLS:
            self._largest = True
            return
        self._largest = new.buckets.exact
        for _ in range(0 if new.exact else SWEEPS):
            if not effort.go_on():
                return  # a longer run would search on tighter ones
            new.buckets.tighten(sweeps=1)
            effort.spend(PER_CELL * cells)
        self._search = new


def _cells(search: BoundedSearch) -> float:
    """Of all mini-buckets together."""
    b = search.buckets.plan.buckets
    if not len(b.out):
        return 0.0
    logs = np.add.reduceat(np.log2(b.dims), b.dptr[:-1])
    return float(np.exp2(logs).sum())
