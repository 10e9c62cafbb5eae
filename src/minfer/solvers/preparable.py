"""Solvers of which a preparation keeps nothing of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.solvers.prepared import Prepared


class Preparable:
    """A solver that a preparation calls again, with what it knows of the factors."""

    def prepare(self: Any, graph: FactorGraph) -> Prepared:
        """The same interface as other solvers'; calls share what the factors are laid out as."""
        from minfer.solvers.prepared import Prepared

        return Prepared(self, graph)
