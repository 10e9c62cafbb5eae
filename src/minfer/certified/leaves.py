"""Leaves: what the evidence does not reach, by the intervals of its neighbours.

See :mod:`minfer.engine.leaves`. The other methods' intervals come first; what they narrow next time
narrows these again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minfer.certified.bounds import Refining
    from minfer.certified.local import LocalBounds

#: Units that a leaf takes.
PER_LEAF = 50_000.0


class BoundedLeaves:
    """See the module."""

    name = "leaves"
    gradual = False

    def __init__(self) -> None:
        self._of: LocalBounds | None = None
        self._last = -1.0

    def refine(self, now: Refining) -> bool:
        local, bounds, wanted, budget, effort = now
        if budget * int(wanted.sum()) < PER_LEAF:
            return True
        leaves = local.peeled.leaves
        if not leaves:
            return False
        width = float(bounds.width.sum())
        if local is self._of and width == self._last:
            return True  # what the others found is what it was
        cost = PER_LEAF * len(leaves)
        if cost > budget * int(wanted.sum()) or not effort.go_on():
            return True
        effort.spend(cost)
        bounds.offer_all(self.name, *local.peeled.ends(bounds.lo, bounds.hi))
        self._of, self._last = local, float(bounds.width.sum())
        return True
