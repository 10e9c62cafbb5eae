"""Tree-reweighted belief propagation (Wainwright, Jaakkola & Willsky 2005).

    b_v(x_v) ∝ field_v(x_v) prod_f M_{f→v}(x_v)^{rho_f}
    M_{f→v}(x_v) ∝ sum_{x_u} psi_f(x_v, x_u)^{1/rho_f} b_u(x_u) / M_{f→u}(x_u)

rho_f is the probability that edge f lies in a random spanning tree. With rho in the spanning tree
polytope the objective is convex and its optimum an upper bound on log Z; what is reported as log Z
is a bound at any messages, converged or not (:mod:`minfer.kernels.messages.bethe`), and the optimum
at convergence. The weights come from
:func:`minfer.solvers.appearance.edge_appearance`, valid by construction and without random trees;
the time they take is part of the timing. Section 5.1 of the paper runs on this solver.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import by_name, check_choice, check_device, check_settings
from minfer.engine.conditioning import Conditioned, condition
from minfer.engine.message_state import wired
from minfer.engine.wiring import Wired, wire
from minfer.errors import RefusedError, SettingsError
from minfer.solvers.appearance import METHODS, edge_appearance
from minfer.solvers.base import Marginals
from minfer.solvers.propagation import Propagating, propagate

if TYPE_CHECKING:
    from minfer.graph import FactorGraph


@dataclass(frozen=True, eq=False)
class Lent:
    """Edge weights of a graph, for what is left of it: found by factors' numbers in its lineage."""

    lineage: str
    origin: NDArray[np.int64]  # (F,) increasing
    rho: NDArray[np.float64]  # (F,)

    def of(self, graph: FactorGraph) -> NDArray[np.float64] | None:
        """The weights of a graph's factors; None if it is not made from this one."""
        if graph.lineage != self.lineage and not graph.lineage.startswith(self.lineage + "/"):
            return None
        place = np.searchsorted(self.origin, graph.origin)
        place[place == len(self.origin)] = 0
        return self.rho[place] if np.array_equal(self.origin[place], graph.origin) else None


@by_name
@dataclass(frozen=True, kw_only=True)
class TreeReweighted(Propagating):
    """Tree-reweighted BP for pairwise models.

    Parameters
    ----------
    max_iters, tol, damping, time_limit
        As in :class:`~minfer.BeliefPropagation`.
    weights : "auto", "spanning-tree" or "forests"
        Edge appearance probabilities: of uniform spanning trees (from the Laplacian), averaged over
        deterministic spanning forests, or whichever is cheap enough ("auto").
    schedule : "sequential" or "coloured"
        As in :class:`~minfer.BeliefPropagation`.
    device, dtype
        As in :class:`~minfer.BeliefPropagation`; edge weights and log Z are the processor's.
    """

    max_iters: int = 1000
    tol: float = 1e-6
    damping: float = 0.0
    weights: str = "auto"
    time_limit: float | None = None
    schedule: str = "sequential"
    device: str = "cpu"
    dtype: str = "auto"
    _lent: Lent | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_settings(self.max_iters, self.tol, self.damping, self.time_limit)
        check_choice("weights", self.weights, METHODS)
        check_choice("schedule", self.schedule, ("sequential", "coloured"))
        check_device(self)

    def appearance(self, graph: FactorGraph) -> NDArray[np.float64]:
        """Edge appearance probabilities by factor number, shape (F,); 1 where there is no edge."""
        return self._appearance(graph, *_edges(condition(graph)))

    def lending(self, graph: FactorGraph, rho: NDArray[np.float64]) -> TreeReweighted:
        """A solver that has edge weights ``rho`` (F,) on a graph and on whatever is left of it.

        That is :meth:`FactorGraph.keep`, evidence, tilts, other weights and parts
        (:meth:`FactorGraph.split`). On graphs of another lineage it has weights of its own. Those
        that are lent come from :meth:`appearance`: they are taken for valid.
        """
        if np.shape(rho) != (graph.n_factors,):
            raise SettingsError(
                f"edge weights of shape {np.shape(rho)} for {graph.n_factors} factors; give one "
                "per factor, as appearance(graph) does"
            )
        return replace(self, _lent=Lent(graph.lineage, graph.origin, rho))

    def _wired(
        self,
        model: Conditioned,
        start: Marginals | None = None,
        kept: Wired | None = None,
        known: NDArray[np.int32] | None = None,
        rho: NDArray[np.float64] | None = None,
    ) -> Wired | None:
        """The model laid out; see :func:`minfer.engine.message_state.wired`."""
        lent = self._lent and self._lent.rho
        if start is not None:
            had = getattr(getattr(start.state, "mesh", None), "lent", None)
            start = start if had is lent and repr(start.solver) == repr(self) else None
        name = f"wired, {self.weights}" if lent is None else None
        return wired(model, self.wired, name, True, start, kept, known, rho)

    def wired(self, model: Conditioned) -> Wired:
        """A model laid out anew, with edge weights of its own or those lent to it."""
        edges = _edges(model)
        rho = None if self._lent is None else self._lent.of(model.graph)
        if rho is None:
            rho = self._appearance(model.graph, *edges)
        return wire(model, rho).changed(lent=self._lent and self._lent.rho)

    def _weights_given(
        self, model: Conditioned, known: NDArray[np.int32]
    ) -> NDArray[np.float64] | None:
        """Edge weights of a model as if known variables (V,) were not there: an edge to one of them
        is a unary factor, and counts in full. None: those it has without."""
        if self._lent is not None:
            return None
        ids, edges = _edges(model)
        free = (known[edges] < 0).all(axis=1)
        if free.all():
            return None
        return self._appearance(model.graph, ids[free], np.ascontiguousarray(edges[free]))

    def propagate(
        self,
        graph: FactorGraph,
        mesh: Wired,
        start: Marginals | None,
        begin: float,
        weighing: float = 0.0,
    ) -> Marginals:
        """The answer from a mesh, which serves this run alone."""
        named = self if self._lent is None else replace(self, _lent=None)
        if self.device != "cpu":
            from minfer.solvers.on_device import propagate_there

            return propagate_there(named, graph, mesh, start, begin, weighing)
        return propagate(named, graph, mesh, start, begin, self.schedule, weighing)

    def _appearance(
        self, graph: FactorGraph, ids: NDArray[np.int64], edges: NDArray[np.int32]
    ) -> NDArray[np.float64]:
        """Appearance probabilities by factor number; 1 where there is no edge."""
        rho = np.ones(graph.n_factors)
        rho[ids] = edge_appearance(graph.n_variables, edges, self.weights)
        return rho


def _edges(model: Conditioned) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Numbers and ends of the pairwise factors that are left; anything larger is refused."""
    for g in model.groups:
        if g.form != "table" or g.arity > 2:
            what = f"factors of arity {g.arity}" if g.form == "table" else f"{g.noun}s"
            raise RefusedError(
                f"TreeReweighted handles pairwise models; this one has {what} (factor "
                f"{int(g._ids[0])}); use BeliefPropagation, or Exact where it fits"
            )
    if not model.groups:
        return np.zeros(0, dtype=np.int64), np.zeros((0, 2), dtype=np.int32)
    parts = [(g._ids, g._scope) for g in model.groups]
    return np.concatenate([i for i, _ in parts]), np.concatenate([s for _, s in parts])
