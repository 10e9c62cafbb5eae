"""Belief propagation with the sweeps on a graphics card (:mod:`minfer.device`).

The run is the processor's (:mod:`minfer.solvers.propagation`): trees, the clock, statuses and
results. Only the core is swept there. What has no form there is refused, or done on the processor
under ``device="auto"``; a note of the answer says what was done.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minfer.basics.limits import clock
from minfer.device.odds import MOST_SLOTS, Device, Layout, Run
from minfer.engine.wiring import Wired
from minfer.errors import DeviceError, RefusedError
from minfer.kernels.messages.wiring import PLAIN
from minfer.solvers.base import Marginals, Status
from minfer.solvers.lanes import LaneAnswers, LaneStructure
from minfer.solvers.propagation import Propagation, iterate, propagate

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.solvers.bp import BeliefPropagation

#: Rows of a launch at most.
MOST_ROWS = 65_535
#: Messages from which "auto" takes the card: docs/reference/gpu.md has the measurement.
BREAK_EVEN = 100_000


def device() -> Device:
    """The card, or :class:`~minfer.errors.DeviceError`."""
    from minfer.device.cuda import cuda

    return cuda()


def reason_against(solver: Any, mesh: Wired) -> str:
    """Why a model, or a setting, has no form on a device; empty if it has one."""
    if mesh.reweighted or mesh.wiring.field.size or len(mesh.wiring.gslot):
        return "devices have models of binary pairs without zeros so far, and this is another"
    if solver.schedule == "residual":
        return "the schedule 'residual' has no form on a device; coloured and flooding have"
    return ""


def chosen(solver: Any, mesh: Wired, rows: int = 1) -> tuple[Device | None, str]:
    """The device that runs go to, None for the processor; and why, if it was not asked for."""
    against, size = reason_against(solver, mesh), rows * len(mesh.wiring.rev)
    if solver.device == "auto":
        if not against and size < BREAK_EVEN:
            against = f"{size:,} messages are too few for a card"
        if not against:
            try:
                return device(), ""
            except DeviceError as error:
                against = str(error)
        return None, f"on the processor: {against}"
    if against:
        raise RefusedError(f"{against}; use device='cpu', or 'auto'")
    return device(), ""


def propagate_there(
    solver: BeliefPropagation,
    graph: FactorGraph,
    mesh: Wired,
    start: Marginals | None,
    begin: float,
) -> Marginals:
    """The answer from a mesh, which serves this run alone."""
    there, note = chosen(solver, mesh)
    if there is None:
        return propagate(
            solver, graph, mesh, start, begin, solver.schedule, make=partial(Noted, note)
        )
    schedule = "flooding" if solver.schedule == "flooding" else "coloured"
    make = partial(RunThere, there, number_type(solver))
    return propagate(solver, graph, mesh, start, begin, schedule, make=make)


def number_type(solver: Any) -> Any:
    return np.float64 if solver.dtype == "float64" else np.float32


class Noted(Propagation):
    """A run on the processor, with a word on why it is there."""

    def __init__(self, why: str, *given: Any) -> None:
        super().__init__(*given)
        self.why = why

    @property
    def note(self) -> str:
        return "; ".join(filter(None, (super().note, self.why)))


class RunThere(Noted):
    """A run whose core is swept on a device."""

    def __init__(self, there: Device, dtype: Any, *given: Any) -> None:
        self.there, self.dtype = there, np.dtype(dtype)
        sweeps = f"{given[-1]} sweeps in {self.dtype.name}"
        super().__init__(f"on {there.name}, {sweeps}", *given)
        self.read = False

    def _settle_core(
        self, max_iters: int, time_limit: float | None
    ) -> tuple[Status, NDArray[np.float64]]:
        mesh = self.mesh
        layout = laid_out(self.there, mesh, *mesh.by_colour())
        run = Run(
            self.there, layout, log_prior(mesh)[None],
            weights(self.there, mesh, layout, self.dtype), np.log(self.messages.m)[None],
            self.tol, self.damping, self.schedule.flooding, max_iters, self.dtype,
        )  # fmt: skip
        status, residuals = iterate(
            run.sweeps, lambda: run.ended, max_iters, time_limit, run.seconds
        )
        run.messages(self.messages.m)
        if len(layout.at_rest):
            self._tell_trees(layout)
        probs = np.full((1, len(mesh.wiring.card)), 0.5)
        run.beliefs(probs)
        self.messages.bel[1::2], self.messages.bel[::2] = probs[0], 1.0 - probs[0]
        self.watch = self.watch._replace(m=np.zeros(0))  # what it began with stays there
        self._set_control(PASSED=float(run.passed[0]))
        if status.ok and not run.passed[0]:
            status = Status.MAX_ITERS
        self.read = mesh.trees is None
        return status, residuals

    def _tell_trees(self, layout: Layout) -> None:
        """What the core says to the trees on it, in logs as on the device."""
        mesh, m, out = self.mesh, self.messages.m, layout.at_rest
        log_m, w = np.log(m), np.log(mesh.wiring.W[out])
        odds = log_prior(mesh) + np.bincount(mesh.owner, log_m, len(mesh.wiring.card))
        c = odds[layout.told] - log_m[out]
        m[mesh.wiring.rev[out]] = np.exp(np.logaddexp(0.0, w + c) - np.logaddexp(0.0, c))

    def _read_beliefs(self) -> None:
        if not self.read:
            super()._read_beliefs()


def log_prior(mesh: Wired) -> NDArray[np.float64]:
    """Log-odds of the fields, (V,)."""
    w = mesh.wiring
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.clip(np.where(w.kind == PLAIN, np.log(w.prior), w.prior), -1e30, 1e30)


def laid_out(
    there: Device, mesh: Wired, order: NDArray[np.int64], first: NDArray[np.int64]
) -> Layout:
    """A structure on a device, for as long as it is kept."""
    key = there, len(order)
    found = mesh.found.get(key)
    if found is None or not found.swept[order].all():
        found = mesh.found[key] = Layout(there, mesh.wiring.ptr, mesh.wiring.rev, order, first)
    if found.n_slots > MOST_SLOTS:
        raise RefusedError(
            f"{found.n_slots:,} messages are more than one card's indices hold; use device='cpu'"
        )
    return found


def weights(there: Device, mesh: Wired, layout: Layout, dtype: np.dtype) -> Any:
    """The pairs' weights on a device, sent again only if they are others."""
    key, w = (layout, dtype), mesh.wiring.W
    found = mesh.found.get(key)
    if found is None or found[0] is not w:
        found = mesh.found[key] = w, there.put(layout.by_slot(np.log(w)[None], dtype))
    return found[1]


def run_rows(
    there: Device,
    solver: Any,
    mesh: Wired,
    lanes: LaneStructure,
    log_odds: NDArray[np.float64],
    w: NDArray[np.float64] | None,
    first: NDArray[np.float64] | None,
    log_z: bool,
) -> LaneAnswers:
    """Many rows of a loopy structure, on a device: what :func:`minfer.solvers.lanes.run_in_lanes`
    answers, and takes; trees are swept like the rest. As many at once as there is room for."""
    n, began, dtype = len(log_odds), clock(), np.dtype(number_type(solver))
    flooding = solver.schedule == "flooding"
    layout = laid_out(there, mesh, *mesh.by_colour(whole=True))
    shared = weights(there, mesh, layout, dtype) if w is None else None
    logs = lanes.first[None] if w is None else np.zeros((1, len(lanes.rev)))
    logs = logs if first is None else first
    found = LaneAnswers(
        np.empty(log_odds.shape), np.zeros(n, np.int64), np.zeros(n, bool), np.full(n, np.nan),
        np.full(n if log_z else 0, np.nan), np.zeros((0, len(lanes.slot), 4)),
        np.asarray(np.isnan(log_odds).any(axis=1)), np.zeros(1, np.int64),
    )  # fmt: skip
    own = 3 if w is not None and len(w) > 1 else 2
    each = dtype.itemsize * (own * layout.n_slots + 2 * layout.n_places) + 8 * layout.n_places
    most = int(min(max(there.room // 2 // max(each, 1), 1), MOST_ROWS))
    for begin in range(0, n, most):
        rows = slice(begin, min(begin + most, n))
        mine = shared
        if w is not None:
            few = w[rows] if len(w) > 1 else w
            mine = there.put(layout.by_slot(few[:, lanes.pair], dtype))
        start = logs[rows] if len(logs) > 1 else logs
        prior = np.where(found.unsafe[rows, None], 0.0, log_odds[rows])
        run = Run(there, layout, prior, mine, start, solver.tol, solver.damping, flooding,
                  solver.max_iters, dtype)  # fmt: skip
        limit = None if solver.time_limit is None else solver.time_limit - (clock() - began)
        status, _ = iterate(
            run.sweeps, lambda run=run: run.ended, solver.max_iters,  # type: ignore[misc]
            None if limit is None else max(limit, 1e-9), run.seconds,
        )  # fmt: skip
        if status is Status.TIME_LIMIT:
            found.stop[0] = 1
        run.beliefs(found.probs[rows])
        found.converged[rows], found.iterations[rows] = run.passed, run.made
        found.residual[rows] = run.last
        if log_z:
            found.log_z[rows] = run.log_z()
    return found
