"""Belief propagation with the sweeps on a graphics card (:mod:`minfer.device`).

The run is the processor's (:mod:`minfer.solvers.propagation`): trees, the clock, statuses and
results. Only the core is swept there; of models with many states all of it, trees that hang on the
core too. What has no form there is refused, or done on the processor under ``device="auto"``; a
note of the answer says what was done. Messages come back when somebody asks for what follows from
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minfer.basics.limits import clock
from minfer.device.odds import Layout, Run, SlotWeights
from minfer.device.runs import MOST_SLOTS, Device, DeviceRun
from minfer.device.slopes import JointsThere, PairEnds
from minfer.device.vectors import LOWEST, MOST_STATES, VectorLayout, VectorRun
from minfer.engine.message_state import MessageState, fresh_messages, start_messages, watch_for
from minfer.engine.wiring import Wired, to_log, wire
from minfer.errors import DeviceError, RefusedError
from minfer.kernels.backend import backend
from minfer.kernels.messages.wiring import PLAIN, Confirmation, WiredMessages
from minfer.solvers.base import Marginals, Status
from minfer.solvers.lanes import LaneAnswers, LaneStructure
from minfer.solvers.propagation import KEEP, SCHEDULES, Propagation, iterate, propagate, unconfirmed

if TYPE_CHECKING:
    from minfer.engine.conditioning import Conditioned
    from minfer.graph import FactorGraph
    from minfer.solvers.bp import BeliefPropagation
    from minfer.solvers.trw import TreeReweighted

#: Rows of a launch at most.
MOST_ROWS = 65_535
#: Messages from which "auto" takes the card: docs/reference/gpu.md has the measurement.
BREAK_EVEN = 40_000
#: Colours up to which sweeps are coloured where nothing is asked for: each is launched by itself.
MOST_COLOURS = 12
#: Bytes of a run up to which it stays there for the next call over its structure.
KEPT = 1 << 30


def device() -> Device:
    """The card, or :class:`~minfer.errors.DeviceError`."""
    from minfer.device.cuda import cuda

    return cuda()


def of_pairs(mesh: Wired) -> bool:
    """Whether a model is one of binary pairs, all in odds form."""
    return not (mesh.wiring.field.size or len(mesh.wiring.gslot))


def reason_against(solver: Any, mesh: Wired) -> str:
    """Why a model, or a setting, has no form on a device; empty if it has one."""
    if solver.schedule == "residual":
        return "the schedule 'residual' has no form on a device; coloured and flooding have"
    if of_pairs(mesh):
        return ""
    return _against_vectors(solver, mesh)


def _against_vectors(solver: Any, mesh: Wired) -> str:
    """The same of a model that is not all binary pairs."""
    w = mesh.wiring
    have = "devices have models of pairs without zeros so far"
    if len(mesh.machines.code) or mesh.python_factors or not mesh.meets:
        return f"{have}, and this has factors over three or more variables, or logical ones"
    if len(w.rev):
        return "devices have binary pairs alone, or pairs of more states alone, and this has both"
    if mesh.lowest == -np.inf:
        return f"{have}, and this has zeros"
    if w.card.max() > MOST_STATES:
        return f"devices have variables of up to {MOST_STATES} states, not {int(w.card.max())}"
    least = LOWEST["float32" if solver.dtype == "float32" else "float64"]
    if mesh.lowest < least:
        return (
            f"the numbers of a table are e^{-mesh.lowest:.0f} apart, more than e^{-least:.0f}: "
            "ask for dtype='float64' if that is less than e^600"
        )
    return ""


def prospect(solver: BeliefPropagation, model: Conditioned) -> str:
    """Whether a card would pay for belief propagation on a model, as plans tell it."""
    binary = all(g.shape == (2, 2) for g in model.groups)
    size = sum(len(g) * (2 if binary else sum(g.shape)) for g in model.groups)
    told = f"{size:,} messages, and a card pays from {BREAK_EVEN:,} on"
    if size < BREAK_EVEN:
        return f"no: {told}"
    against = reason_against(solver, wire(model))
    return f"no: {against}" if against else f"yes: {told} (device='auto')"


def chosen(solver: Any, mesh: Wired, rows: int = 1) -> tuple[Device | None, str]:
    """The device that runs go to, None for the processor; and why, if it was not asked for."""
    size = rows * (len(mesh.wiring.rev) + int(mesh.wiring.gslot[:, 3].sum()))
    return taken(solver.device, reason_against(solver, mesh), size)


def taken(asked: str, against: str, size: int) -> tuple[Device | None, str]:
    """The same, where there is something ``against`` it or nothing, and so many messages."""
    if asked == "auto":
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
    solver: BeliefPropagation | TreeReweighted,
    graph: FactorGraph,
    mesh: Wired,
    start: Marginals | None,
    begin: float,
    weighing: float | None = None,
) -> Marginals:
    """The answer from a mesh, which serves this run alone; ``weighing`` as in
    :func:`~minfer.solvers.propagation.propagate`."""
    there, note = chosen(solver, mesh)
    if there is not None and mesh.is_forest and not of_pairs(mesh):
        there, note = None, "on the processor: the model is a tree"
    if there is not None:
        schedule = schedule_there(solver, mesh)
        kind = RunThere if of_pairs(mesh) else VectorsThere
        make = partial(kind, there, number_type(solver, mesh))
        try:
            return propagate(solver, graph, mesh, start, begin, schedule, weighing, make)
        except DeviceError as error:
            note = failed(solver, error)
    return propagate(
        solver, graph, mesh, start, begin, solver.schedule, weighing, partial(Noted, note)
    )


def failed(solver: Any, error: DeviceError) -> str:
    """Why a run goes on here, where a device that was not asked for has failed; else the error."""
    if solver.device != "auto":
        raise error
    return f"on the processor: {error}"


def rows_there(solver: Any, mesh: Wired, rows: int) -> Callable[..., LaneAnswers | None] | None:
    """What runs so many rows of a structure on the device; None: they stay here. It answers None
    where the device fails, and was not asked for."""
    there, _ = chosen(solver, mesh, rows)
    if there is None:
        return None
    run = partial(run_rows if of_pairs(mesh) else vector_rows, there, solver, mesh)

    def tried(*given: Any) -> LaneAnswers | None:
        try:
            return run(*given)
        except DeviceError as error:
            failed(solver, error)
            return None

    return tried


def schedule_there(solver: Any, mesh: Wired) -> str:
    """What is asked for, if devices have it; else coloured, or flooding where there are many
    colours."""
    if solver.schedule in ("coloured", "flooding"):
        return str(solver.schedule)
    colours = len(mesh.by_colour(whole=True)[1]) - 1
    return "coloured" if colours <= MOST_COLOURS else "flooding"


def number_type(solver: Any, mesh: Wired) -> Any:
    """What numbers are stored as: under "auto" float32, where it holds all of them."""
    wide = not of_pairs(mesh) and mesh.lowest < LOWEST["float32"]
    return np.float64 if solver.dtype == "float64" or wide else np.float32


@contextmanager
def lent(mesh: Wired, key: tuple[Any, ...], make: Callable[[], Any]) -> Iterator[Any]:
    """A run over a structure, one that was left by an earlier call or a new one."""
    run = mesh.found.pop(key, None)
    run = make() if run is None else run
    yield run
    if 20 * run.rows * run.numbers <= KEPT:
        mesh.found[key] = run


class Noted(Propagation):
    """A run on the processor, with a word on why it is there."""

    def __init__(self, why: str, *given: Any) -> None:
        super().__init__(*given)
        self.why = why

    @property
    def note(self) -> str:
        return "; ".join(filter(None, (super().note, self.why)))


class StateThere(MessageState):
    """Messages that are on a device until somebody asks."""

    def __init__(
        self,
        mesh: Wired,
        fetch: Callable[[Any], WiredMessages],
        copies: tuple[Any, Any],
        bound: bool,
        damping: float,
    ) -> None:
        self.mesh, self._fetch, self._copies = mesh, fetch, copies
        self.bound, self.damping = bound, damping

    @cached_property
    def messages(self) -> WiredMessages:  # type: ignore[override]
        return self._fetch(self._copies[0])

    @cached_property
    def before(self) -> Confirmation | None:  # type: ignore[override]
        if self._copies[1] is None:
            return None
        old = self._fetch(self._copies[1])
        return watch_for(0.0)._replace(m=old.m, to_variable=old.to_variable, bel=old.bel)

    def __getstate__(self) -> dict:
        self.messages, self.before  # noqa: B018 - fetched
        return super().__getstate__()


class RunThere(Noted):
    """A run whose core is swept on a device."""

    def __init__(self, there: Device, dtype: Any, *given: Any) -> None:
        self.there, self.dtype = there, np.dtype(dtype)
        super().__init__(_where(there, self.dtype, given[-1]), *given)
        self.copy: Any = None  # of messages, there
        self.old: Any = None  # and of those that the update which confirmed them began with

    def _settle_core(
        self, max_iters: int, time_limit: float | None
    ) -> tuple[Status, NDArray[np.float64]]:
        mesh, there, flooding = self.mesh, self.there, self.schedule.flooding
        layout = laid_out(there, mesh, *mesh.by_colour())
        m, begin = self.messages.m, None
        if not (m == 1.0).all():
            begin = np.log(m)[None]
        key = layout, self.dtype, 1, flooding, False
        new = partial(Run, there, layout, 1, False, flooding, self.dtype, mesh.reweighted)
        with lent(mesh, key, new) as run:
            w, rho = weights(there, mesh, layout, self.dtype), edge_weights(mesh, layout)
            run.start(log_prior(mesh)[None], w, begin, self.tol, self.damping, max_iters, rho)
            status, residuals = sweep_there(run, max_iters, time_limit)
            self._copy(run)
            probs, swept = run.beliefs()
        which = slice(None) if swept.all() else swept
        self.messages.bel[1::2][which] = probs[0, which]
        self.messages.bel[::2][which] = 1.0 - probs[0, which].astype(float)
        self.layout = layout
        if mesh.trees is not None:
            if self.old is not None:
                self.watch = self.watch._replace(m=self._fetch(self.old).m)
            self.messages = self._fetch(self.copy)
            if len(layout.at_rest):
                self._tell_trees(layout)
            self.copy = None
        if mesh.trees is None or self.old is None:
            self.watch = self.watch._replace(m=np.zeros(0))  # what it began with stays there
        self._set_control(PASSED=float(run.passed[0]))
        return status, residuals

    def _copy(self, run: Run | VectorRun) -> None:
        """Messages that outlive a run; of small models those before its last update, too."""
        self.copy = run.messages()
        if run.passed[0] and run.numbers <= KEEP:
            self.old = run.messages(before=True)

    def _fetch(self, copy: Any) -> WiredMessages:
        layout, s = self.layout, self.messages
        log_m = self.there.get(copy)[0].astype(float)
        s = s._replace(m=s.m.copy(), weighted_log=s.weighted_log.copy())
        s.m[layout.slots] = np.exp(log_m)
        if len(s.weighted_log):
            s.weighted_log[layout.slots] = log_m * self.mesh.wiring.rho[layout.slots]
        return s

    def state(self, bound: bool = False) -> MessageState:
        if self.copy is None:
            return super().state(bound)
        return StateThere(self.mesh, self._fetch, (self.copy, self.old), bound, self.damping)

    def _tell_trees(self, layout: Layout) -> None:
        """What the core says to the trees on it, in logs as on the device."""
        mesh, s, out = self.mesh, self.messages, layout.at_rest
        log_m, w, to = np.log(s.m), np.log(mesh.wiring.W[out]), mesh.wiring.rev[out]
        said = s.weighted_log if mesh.reweighted else log_m
        odds = log_prior(mesh) + np.bincount(mesh.owner, said, len(mesh.wiring.card))
        c = odds[layout.told] - log_m[out]
        new = np.logaddexp(0.0, w + c) - np.logaddexp(0.0, c)
        s.m[to] = np.exp(new)
        if mesh.reweighted:
            s.weighted_log[to] = new * mesh.wiring.rho[to]

    def _read_beliefs(self) -> None:
        if self.copy is None:
            super()._read_beliefs()


class VectorsThere(RunThere):
    """The same of pairs of many states, all of which are swept there."""

    def __init__(
        self,
        there: Device,
        dtype: Any,
        mesh: Wired,
        start: Marginals | None,
        tol: float,
        damping: float,
        schedule: str,
    ) -> None:  # nothing of what sweeps on the processor need
        self.on, self.mesh, self.there, self.dtype = backend(), mesh, there, np.dtype(dtype)
        self.tol, self.damping, self.schedule = float(tol), float(damping), SCHEDULES[schedule]
        self.lost, self.residuals, self.old = False, np.zeros(0), None
        self.why = _where(there, dtype, schedule)
        self.begin = None if start is None else start_messages(mesh, start)
        none = np.zeros(0)
        bel = np.full(int(mesh.wiring.off[-1]), 0.5)
        self.messages = WiredMessages(none, none, none, none, bel, none, none, np.zeros(2, int))

    def run(self, max_iters: int, time_limit: float | None) -> tuple[Status, NDArray[np.float64]]:
        mesh, there, flooding = self.mesh, self.there, self.schedule.flooding
        self.vectors = layout = vectors_laid_out(there, mesh)
        begin = None
        if self.begin is not None:
            begin = self.begin.to_variable
            begin = begin if mesh.log else to_log(begin)
        known = None if mesh.known is None else mesh.known[None]
        field, _ = fields_there(mesh, mesh.model.field[None], known)
        key = layout, self.dtype, 1, flooding
        new = partial(VectorRun, there, layout, 1, flooding, self.dtype, mesh.reweighted)
        with lent(mesh, key, new) as run:
            tab, rho = tables_there(there, mesh, layout, self.dtype), edge_weights(mesh, layout)
            told = None if rho is None else rho[1]
            run.start(field, tab, begin, self.tol, self.damping, max_iters, told)
            status, self.residuals = sweep_there(run, max_iters, time_limit)
            self._copy(run)
            probs, swept = run.beliefs()
        which = slice(None) if len(swept) == len(self.messages.bel) else swept
        self.messages.bel[which] = probs[0]
        return status, unconfirmed(status, self.residuals, self.tol)

    def _fetch(self, copy: Any) -> WiredMessages:
        here, there = self.vectors.entries()
        logs = self.there.get(copy)[0, there].astype(float)
        out = np.empty(len(here))
        out[here] = logs if self.mesh.log else np.exp(logs)
        fresh = fresh_messages(self.mesh, blank=True)
        return fresh._replace(to_variable=out, bel=self.messages.bel)

    def state(self, bound: bool = False) -> MessageState:
        return StateThere(self.mesh, self._fetch, (self.copy, self.old), bound, self.damping)

    def _read_beliefs(self) -> None:
        pass


def _where(there: Device, dtype: Any, schedule: str) -> str:
    return f"on {there.name}, {schedule} sweeps in {np.dtype(dtype).name}"


def sweep_there(
    run: DeviceRun, max_iters: int, time_limit: float | None
) -> tuple[Status, NDArray[np.float64]]:
    """Sweeps of a single row, or of many, until all have converged or time is up."""
    status, residuals = iterate(run.sweeps, lambda: run.ended, max_iters, time_limit, run.seconds)
    if status.ok and not run.passed.all():
        status = Status.MAX_ITERS
    return status, residuals


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
    _check_size(found.n_slots)
    return found


def vectors_laid_out(there: Device, mesh: Wired) -> VectorLayout:
    """The same of pairs of many states."""
    key = there, "vectors"
    found = mesh.found.get(key)
    if found is None:
        order = mesh.by_colour(whole=True)
        found = mesh.found[key] = VectorLayout(there, mesh.wiring, mesh.gowner, *order)
    _check_size(max(found.n_numbers, found.n_fields))
    return found


def _check_size(numbers: int) -> None:
    if numbers > MOST_SLOTS:
        raise RefusedError(
            f"{numbers:,} numbers of messages are more than one card's indices hold; use "
            "device='cpu'"
        )


def weights(there: Device, mesh: Wired, layout: Layout, dtype: np.dtype) -> SlotWeights:
    """The pairs' weights on a device, sent again only if they are others."""
    key, w = (layout, dtype), mesh.wiring.W
    found = mesh.found.get(key)
    if found is None or found[0] is not w:
        room = there.empty((1, layout.n_slots), dtype)
        found = mesh.found[key] = w, layout.weights(np.log(w)[None], room)
    return found[1]


def edge_weights(
    mesh: Wired, layout: Layout | VectorLayout
) -> tuple[NDArray[np.float64], Any] | None:
    """Of tree-reweighted messages: the weights of slots, here and on a device; else None."""
    if not mesh.reweighted:
        return None
    key, w = (layout, "rho"), mesh.wiring
    rho = w.rho if isinstance(layout, Layout) else w.grho
    found = mesh.found.get(key)
    if found is None or found[0] is not rho:
        if isinstance(layout, Layout):
            sent = layout.by_slot(rho[None], np.dtype("float64"))
        else:
            sent = layout.ties(rho)
        found = mesh.found[key] = rho, sent
    return found


def tables_there(there: Device, mesh: Wired, layout: VectorLayout, dtype: np.dtype) -> Any:
    """Tables on a device, sent again only if they are others."""
    key, tab = (layout, dtype), mesh.wiring.tab
    found = mesh.found.get(key)
    if found is None or found[0] is not tab:
        sent = layout.tables(np.exp(tab) if mesh.log else tab, dtype)
        found = mesh.found[key] = tab, sent
    return found[1]


def fields_there(
    mesh: Wired, log_field: NDArray[np.float64], known: NDArray | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Fields of rows (N, sum S), states that are not the ``known`` ones (N, V) excluded, each
    variable's largest taken off; and the sum (N,) of what was: minus infinity where a variable has
    no state left."""
    off, card = mesh.wiring.off, mesh.wiring.card.astype(np.int64)
    field = log_field
    if known is not None:
        field = np.array(np.broadcast_to(field, (len(known), field.shape[1])))
        state = np.arange(field.shape[1]) - np.repeat(off[:-1], card)
        told = np.repeat(known, card, axis=1)
        field[(told >= 0) & (told != state)] = -np.inf
    if (card == card[0]).all():  # sooner
        by_variable = field.reshape(len(field), len(card), -1)
        top = by_variable.max(axis=2)
        least = np.where(np.isfinite(top), top, 0.0)
        return (by_variable - least[:, :, None]).reshape(field.shape), top.sum(axis=1)
    top = np.maximum.reduceat(field, off[:-1], axis=1)
    least = np.where(np.isfinite(top), top, 0.0)
    return field - np.repeat(least, card, axis=1), top.sum(axis=1)


def room_for(there: Device, each: int) -> int:
    """Rows of so many bytes that go there at once."""
    return int(min(max(there.room // 2 // max(each, 1), 1), MOST_ROWS))


def run_rows(
    there: Device,
    solver: Any,
    mesh: Wired,
    lanes: LaneStructure,
    log_odds: NDArray[np.float64],
    w: NDArray[np.float64] | None,
    first: NDArray[np.float64] | None,
    log_z: bool,
    pairs: bool = False,
) -> LaneAnswers:
    """Many rows of a loopy structure, on a device: what :func:`minfer.solvers.lanes.run_in_lanes`
    answers, and takes; trees are swept like the rest. As many at once as there is room for. Beliefs
    of ``pairs`` stay there."""
    n, began, dtype = len(log_odds), clock(), np.dtype(number_type(solver, mesh))
    flooding = schedule_there(solver, mesh) == "flooding"
    layout = laid_out(there, mesh, *mesh.by_colour(whole=True))
    own = w is not None and len(w) > 1
    shared = weights(there, mesh, layout, dtype) if w is None else None
    if w is not None and not own:
        shared = layout.weights(w[:, lanes.pair], there.empty((1, layout.n_slots), dtype))
    logs = lanes.first[None] if w is None and lanes.first.any() else first
    if logs is not None and not logs.any():
        logs = None
    found = LaneAnswers(
        np.empty(log_odds.shape), np.zeros(n, np.int64), np.zeros(n, bool), np.full(n, np.nan),
        np.full(n if log_z else 0, np.nan), np.zeros((0, len(lanes.slot), 4)),
        np.asarray(np.isnan(log_odds).any(axis=1)), np.zeros(1, np.int64),
    )  # fmt: skip
    each = dtype.itemsize * ((4 if own else 3) * layout.n_slots + 4 * layout.n_places)
    each += 8 * layout.n_places
    if pairs:
        ends = mesh.found.get((layout, "ends"))
        if ends is None:
            ends = mesh.found[layout, "ends"] = PairEnds.of(layout, lanes.slot, lanes.scope)
        joints = JointsThere(layout, ends)
        found = found._replace(pairs=joints)
        each += 32 * ends.n_pairs + 16 * layout.n_slots  # and what a gradient takes
    most = room_for(there, each)
    for begin in range(0, n, most):
        rows = slice(begin, min(begin + most, n))
        mine = shared if w is None or not own else w[rows][:, lanes.pair]
        start = logs[rows] if logs is not None and len(logs) > 1 else logs
        prior = np.where(found.unsafe[rows, None], 0.0, log_odds[rows])
        key = layout, dtype, len(prior), flooding, own
        make = partial(Run, there, layout, len(prior), own, flooding, dtype)
        with lent(mesh, key, make) as run:
            run.start(prior, mine, start, solver.tol, solver.damping, solver.max_iters)
            _go_on(run, solver, began, found.stop)
            probs, swept = run.beliefs()
            found.probs[rows] = probs if swept.all() else np.where(swept, probs, 0.5)
            found.converged[rows], found.iterations[rows] = run.passed, run.made
            found.residual[rows] = run.last
            if log_z:
                found.log_z[rows] = run.log_z()
            if pairs:
                joints.add(run)
    return found


def _go_on(run: DeviceRun, solver: Any, began: float, stop: NDArray[np.int64]) -> None:
    """Sweep rows until all are done, or the time of a batch is up, which ``stop`` is told."""
    limit = None if solver.time_limit is None else solver.time_limit - (clock() - began)
    status, _ = sweep_there(run, solver.max_iters, None if limit is None else max(limit, 1e-9))
    if status is Status.TIME_LIMIT:
        stop[0] = 1


def vector_rows(
    there: Device,
    solver: Any,
    mesh: Wired,
    log_field: NDArray[np.float64],
    known: NDArray | None,
    n: int,
    log_z: bool,
) -> LaneAnswers:
    """Rows of pairs of many states: their fields (N or 1, sum S) and states that are known (N, V),
    or -1. Probabilities are (N, sum S), log Z relative to tables of largest number 1."""
    began, dtype = clock(), np.dtype(number_type(solver, mesh))
    layout, flooding = vectors_laid_out(there, mesh), schedule_there(solver, mesh) == "flooding"
    tab = tables_there(there, mesh, layout, dtype)
    found = LaneAnswers(
        np.empty((n, int(mesh.wiring.off[-1]))), np.zeros(n, np.int64), np.zeros(n, bool),
        np.full(n, np.nan), np.full(n if log_z else 0, np.nan), np.zeros((0, 0, 4)),
        np.zeros(n, bool), np.zeros(1, np.int64),
    )  # fmt: skip
    each = dtype.itemsize * (3 * layout.n_numbers + 4 * layout.n_fields) + 8 * layout.n_places
    most = room_for(there, each)
    for begin in range(0, n, most):
        rows = slice(begin, min(begin + most, n))
        mine = log_field[rows] if len(log_field) > 1 else log_field
        field, total = fields_there(mesh, mine, None if known is None else known[rows])
        size = rows.stop - rows.start
        impossible = np.broadcast_to(total == -np.inf, size)
        found.unsafe[rows] = impossible
        if impossible.any():
            field = np.array(np.broadcast_to(field, (size, field.shape[1])))
            field[impossible] = 0.0
        key = layout, dtype, size, flooding
        with lent(mesh, key, partial(VectorRun, there, layout, size, flooding, dtype)) as run:
            run.start(field, tab, None, solver.tol, solver.damping, solver.max_iters)
            _go_on(run, solver, began, found.stop)
            probs, swept = run.beliefs()
            found.probs[rows] = np.nan
            found.probs[rows][:, swept] = probs
            found.converged[rows], found.iterations[rows] = run.passed, run.made
            found.residual[rows] = run.last
            if log_z:
                found.log_z[rows] = run.log_z() + total
    return found
