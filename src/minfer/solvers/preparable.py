"""Solvers that have nothing to prepare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.solvers.prepared import Prepared


class Preparable:
    """A solver that has nothing to prepare: each call of what it gives is a run like any other."""

    def prepare(self: Any, graph: FactorGraph) -> Prepared:
        """The same interface as other solvers'."""
        from minfer.solvers.prepared import Prepared

        return Prepared(self, graph)
