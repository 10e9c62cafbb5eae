"""Loopy belief propagation (sum-product; Pearl 1988, Murphy et al. 1999).

    b_v(x_v) ∝ field_v(x_v) prod_{f ∋ v} M_{f→v}(x_v)
    M_{f→v}(x_v) ∝ sum_{x_f \\ x_v} psi_f(x_f) prod_{u in f \\ v} b_u(x_u) / M_{f→u}(x_u)

Exact on trees; on graphs with cycles the fixed point is an approximation and log Z the Bethe
estimate. Schedules: ``sequential`` (one variable after the other, forward and backward in turn;
half the sweeps of flooding on grids), ``flooding`` (all at once), ``residual`` (sequential, but
only variables whose incoming messages still move, with a full sweep before it may stop).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from minfer.conditioning import condition
from minfer.errors import ContradictionError, ModelError, SettingsError
from minfer.graph import FactorGraph
from minfer.solvers.base import LogZ, Marginals
from minfer.solvers.independent import independent
from minfer.solvers.iteration import check_settings, iterate
from minfer.wiring import (
    Mesh,
    MessageState,
    factor_slots,
    refresh_cavities,
    rewire,
    slot_entries,
    start_messages,
    wire,
)

SCHEDULES = ("sequential", "flooding", "residual")


@dataclass(frozen=True)
class BeliefPropagation:
    """Sum-product belief propagation.

    Parameters
    ----------
    max_iters : int
        Sweeps over all variables.
    tol : float
        Stop when no probability changed by more than this between two sweeps.
    damping : float in [0, 1)
        Share of the old message kept; 0.3 to 0.5 helps where it oscillates.
    schedule : "sequential", "flooding" or "residual"
    time_limit : float or None
        Seconds after which the best answer so far is returned with status ``time limit``.

    Examples
    --------
    >>> from minfer import BeliefPropagation, FactorGraph
    >>> chain = FactorGraph.pairwise([1.0, 0.0], [[0, 1]], [2.0], feature="equal")
    >>> m = BeliefPropagation()(chain)
    >>> m.status.value, [round(float(p), 4) for p in m[1]]
    ('converged', [0.324, 0.676])
    """

    max_iters: int = 1000
    tol: float = 1e-6
    damping: float = 0.0
    schedule: str = "sequential"
    time_limit: float | None = None

    def __post_init__(self) -> None:
        check_settings(self.max_iters, self.tol, self.damping, self.time_limit)
        if self.schedule not in SCHEDULES:
            raise SettingsError(f"schedule must be one of {SCHEDULES}, not {self.schedule!r}")

    def __call__(self, graph: FactorGraph, start: Marginals | None = None) -> Marginals:
        begin = time.perf_counter()
        model = condition(graph)
        if answer := independent(model, repr(self), begin):
            return answer
        mesh = rewire(model, start)
        if mesh is None or mesh.reweighted:
            mesh = wire(model)
        run = _Run(mesh, self, start)
        ready = time.perf_counter()
        limit = None if self.time_limit is None else max(self.time_limit - (ready - begin), 1e-9)
        cost = 2e-8 * (len(run.mesh.wiring.rev) + len(run.mesh.wiring.tab))
        chunk = 1 if run.mesh.globals else 4096  # global factors answer between sweeps
        status, residuals = iterate(run.sweeps, self.max_iters, self.tol, limit, cost, chunk)
        probs = run.read()
        return Marginals(
            graph,
            probs,
            repr(self),
            status,
            LogZ.EXACT if _is_forest(run.mesh) and status.ok else LogZ.ESTIMATE,
            len(residuals),
            residuals,
            {"plan": ready - begin, "iterate": time.perf_counter() - ready},
            state=MessageState(run.mesh, run.messages),
        )


def _is_forest(mesh: Mesh) -> bool:
    """Whether the factor graph has no cycle: converged BP is exact then."""
    from minfer.kernels.wiring import FACTOR, is_forest

    n = mesh.model.graph.n_variables
    if 2 * len(mesh.pair_ids) + len(mesh.wiring.gslot) >= n + len(mesh.pair_ids) + len(
        mesh.general_ids
    ):
        return n == 0  # as many edges as nodes
    slots = mesh.wiring.gslot  # a general factor is a node of its own
    edges = np.stack([mesh.gowner, n + slots[:, FACTOR]], axis=1).astype(np.int32)
    edges = np.concatenate([mesh.pair_scope, edges]) if len(slots) else mesh.pair_scope
    return bool(is_forest(n + len(mesh.general_ids), np.require(edges, np.int32, ["C", "W"])))


class _Run:
    """One run of BP: the mesh, its messages, and how a sweep is made under the chosen schedule."""

    def __init__(self, mesh: Mesh, settings: BeliefPropagation, start: Marginals | None) -> None:
        from minfer.kernels import bp, general

        self.kernels = bp
        self.to_log = general.to_log
        self.mesh = mesh
        self.settings = settings
        self.messages = start_messages(mesh, start)
        if mesh.wiring.field.size:
            refresh_cavities(mesh, self.messages)
            self._look_at_flags()
            self.messages.flag[0] = 0
        if settings.schedule == "flooding":
            self.other = self.messages.m.copy()
        if settings.schedule == "residual":
            self.owner = np.repeat(
                np.arange(len(mesh.wiring.card), dtype=np.int32),
                np.diff(mesh.wiring.ptr).astype(np.int64),
            )
            self.active = np.ones(len(mesh.wiring.card), dtype=np.uint8)

    def sweeps(self, n: int, done: int, residuals: NDArray[np.float64]) -> int:
        """Up to n sweeps; see :func:`minfer.solvers.iteration.iterate`."""
        self._update_globals()
        k, w, s, log = self.kernels, self.mesh.wiring, self.messages, self.mesh.log
        tol, damping = float(self.settings.tol), float(self.settings.damping)
        if self.settings.schedule == "sequential":
            made = k.sweeps(w, s, s.m, k.SEQUENTIAL, n, tol, damping, log, done, residuals)
        elif self.settings.schedule == "flooding":
            made = k.sweeps(w, s, self.other, k.FLOODING, n, tol, damping, log, done, residuals)
        else:
            made = k.residual(
                w, s, n, tol, damping, log, done, residuals,
                self.owner, self.mesh.gowner, self.active,
            )  # fmt: skip
            if self.mesh.globals:
                self.active[:] = 1
        self._look_at_flags()
        if made and s.flag[0]:
            residuals[made - 1] = max(residuals[made - 1], np.nextafter(tol, 1))
            s.flag[0] = 0
        return made

    def read(self) -> NDArray[np.float64]:
        """All marginals, flat; a copy where questions to the state would still write beliefs."""
        self.kernels.read_beliefs(self.mesh.wiring, self.messages)
        bel = self.messages.bel
        return bel.copy() if self.mesh.wiring.field.size else bel

    def _look_at_flags(self) -> None:
        """Go on in log space if the range asks for it; a state set that emptied is an error."""
        w, s = self.mesh.wiring, self.messages
        if s.flag[1]:
            v = int(s.flag[1]) - 1
            raise ContradictionError(
                f"variable {self.mesh.model.graph.name(v)} has no state left: the hard "
                "constraints (and evidence) exclude them all, so every assignment has "
                "probability zero"
            )
        if s.flag[0] and not self.mesh.log:
            self.to_log(w, s)
            self.mesh = replace(self.mesh, log=True)

    def _update_globals(self) -> None:
        """Let every global factor answer the variables' messages."""
        w, s = self.mesh.wiring, self.messages
        for f, factor in self.mesh.globals:
            entries = slot_entries(w, f)
            with np.errstate(divide="ignore"):
                incoming = s.gq[entries] if self.mesh.log else np.log(s.gq[entries])
            out = np.full_like(incoming, np.nan)  # what is left unfilled shows
            log_z = factor.messages(incoming, out)
            number = int(self.mesh.general_ids[f])
            if (
                not isinstance(log_z, (int, float, np.number))
                or np.isnan(log_z)
                or not (out < np.inf).all()
            ):
                raise ModelError(
                    f"global factor {number} ({type(factor).__name__}) gave messages or a log "
                    "partition that are NaN or missing; they are finite or minus infinity"
                )
            if log_z == -np.inf:
                raise ContradictionError(
                    f"global factor {number} forbids every assignment that is left"
                )
            sizes = w.gslot[factor_slots(w, f), 3]
            top = np.maximum.reduceat(out, np.cumsum(sizes) - sizes)
            out -= np.repeat(top, sizes)
            if not self.mesh.log and (out[out > -np.inf] < -345.0).any():
                s.flag[0] = 1
                self._look_at_flags()
                s.flag[0] = 0
            new = out if self.mesh.log else np.exp(out)
            d = self.settings.damping
            if d:
                alive = out > -np.inf
                new[alive] += d * (s.gm[entries][alive] - new[alive])
            s.gm[entries] = new
