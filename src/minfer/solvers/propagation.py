"""One run of message passing: trees up, the loopy core until confirmed, trees down.

Components that are trees, and trees that hang on a loopy core, are solved by *collecting* (towards
the core or a root) before and *distributing* (away from it) after: every message is computed once,
after those it depends on, whatever the schedule and the damping (Pearl 1988). What is left, the
*core*, is swept until it has converged, which is a definition a test can refute:

    the last thing a converged run did is to compute every message anew from the messages as they
    were, all at once and undamped, global factors answering within it (in models of more than a
    million messages: by one sweep in each direction), and no message, as a normalised vector, and
    no belief, read from the messages before and after, moved by more than ``tol``.

The kernels have the sweeps and the judgement; here is what needs Python: the clock, global factors,
the switch to log space, and whether a zero is one of the model's (:mod:`minfer.engine.support`) or
a number that lost its range. What the kernels read and write is on the backend.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.limits import clock, start_clock
from minfer.engine.conditioning import condition
from minfer.engine.message_state import NO_WAKE, MessageState, start_messages, watch_for
from minfer.engine.support import LEAST, lift, possible
from minfer.engine.wiring import PythonFactors, Wired, ranges
from minfer.kernels.backend import backend
from minfer.solvers.base import LOST_RANGE, LogZ, Marginals, Status, check_start
from minfer.solvers.independent import independent

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.kernels.messages.wiring import Confirmation, Machines, WiredMessages, Wiring
    from minfer.solvers.prepared import Prepared


class Schedule(NamedTuple):
    """What a sweep is, if not: all variables in turn, forwards and backwards, in place."""

    flooding: bool = False  # every message from those of the sweep before
    coloured: bool = False  # in place, forwards, variables of one colour after those of another
    some: bool = False  # only variables that are awake: those around which something moved
    #: Changes who is awake, (V,) of 0 and 1, before sweep number ``made``; None: nobody does.
    awake: Callable[[NDArray[np.uint8], int], None] | None = None


#: By name. What a run needs to converge is the same for all: an update of all messages confirms it.
SCHEDULES = {
    "sequential": Schedule(),
    "flooding": Schedule(flooding=True),
    "residual": Schedule(some=True),
    "coloured": Schedule(coloured=True),
}
#: The confirming update starts from a copy of the messages up to this many numbers.
KEEP = 2**20
#: The log of a message that fell to zero though its state is possible, until it is computed anew.
LOST = math.log(LEAST)
#: How long a kernel may run before the loop looks at the clock again, in seconds.
_GLANCE = 0.05
#: How far, relative to its logarithm, a message in logs may move in the last sweep of a run.
DRIFT = 1e-3
_NONE = np.zeros(0)


class Propagating:
    """A solver that wires a model and passes messages over it."""

    def __call__(self: Any, graph: FactorGraph, start: Marginals | None = None) -> Marginals:
        begin = start_clock(self.time_limit)
        model = condition(graph)
        check_start(start)
        if not model.groups:
            return independent(model, self, begin)
        mesh = self._wired(model, start)
        weighing = [clock() - begin] if mesh.reweighted else []
        return self.propagate(graph, mesh, start, begin, *weighing)

    def prepare(self: Any, graph: FactorGraph) -> Prepared:
        """Everything that depends on the structure alone, done once; see :class:`Prepared`."""
        from minfer.solvers.prepared import PreparedPropagation

        return PreparedPropagation(self, graph)


def propagate(
    solver: Any,
    graph: FactorGraph,
    mesh: Wired,
    start: Marginals | None,
    begin: float,
    schedule: str = "sequential",
    weighing: float | None = None,
    make: Callable[..., Propagation] | None = None,
) -> Marginals:
    """A solver's answer from a mesh, which serves this run alone; ``weighing`` is the seconds that
    its edge weights took, if it is tree-reweighted; ``make``: another kind of run."""
    run = (make or Propagation)(mesh, start, solver.tol, solver.damping, schedule)
    ready = clock()
    limit = None if solver.time_limit is None else max(solver.time_limit - (ready - begin), 1e-9)
    status, residuals = run.run(solver.max_iters, limit)
    if weighing is None:
        kind = LogZ.NONE if run.lost else LogZ.EXACT if mesh.is_forest else LogZ.ESTIMATE
        timings = {"plan": ready - begin}
    else:
        kind = LogZ.EXACT if mesh.is_forest and not run.lost else LogZ.UPPER
        timings = {"weights": weighing, "plan": ready - begin - weighing}
    probs = run.probs()
    timings["iterate"] = clock() - ready
    return Marginals(
        graph, probs, solver, status, kind, len(residuals), residuals, timings,
        note=run.note, still_to_move=run.still_to_move, state=run.state(weighing is not None),
    )  # fmt: skip


class Propagation:
    """The mesh, its messages (at first those of ``start``), and how they reach a fixed point.

    The mesh serves this run alone: pair messages are its own.
    """

    def __init__(
        self, mesh: Wired, start: Marginals | None, tol: float, damping: float, schedule: str
    ) -> None:
        self.on = on = backend()
        self.odds, self.names = on.kernels("messages.odds"), on.kernels("messages.wiring")
        self.mesh, self.pairs_only = mesh, not mesh.wiring.field.size
        self.tol, self.damping, self.schedule = float(tol), float(damping), SCHEDULES[schedule]
        self.made = 0  # sweeps
        self.residuals = np.zeros(0)
        self.lost = False  # whether numbers left their range, and the answer is what is left
        self.mended = False  # whether messages that had fallen to zero were put back
        ahead = self.schedule == Schedule() and not damping
        work = mesh.vector_room if ahead and not self.pairs_only else _NONE
        self.fits_vector_pairs = len(work) > 0
        self.is_fresh = start is None and mesh.trees is None and self.fits_vector_pairs
        here = start_messages(mesh, start, self.is_fresh)
        here, watch = self._with_watch(here, ahead, work)
        # what follows is the backend's
        self.wiring: Wiring = on.put(mesh.wiring)
        self.core = self.wiring
        if mesh.trees is not None:
            self.core = self.wiring._replace(kind=on.put(mesh.core.kind))
        self.messages: WiredMessages = on.put(here)
        self.watch: Confirmation = on.put(watch)
        self.machines: Machines | None = None
        self.python_factors: list[tuple[PythonFactors, NDArray[np.int64]]] = []
        if not self.pairs_only:
            self.bp = on.kernels("messages.sweeps")
            self.python_factors = self._in_core()
            if len(mesh.machines.code):
                self.machines = on.put(mesh.core_machines)
                if self.core is self.wiring:
                    self.core = self.core._replace(kind=on.put(mesh.wiring.kind.copy()))
            if self.fits_vector_pairs:
                on.kernels("messages.vector_pairs").slot_table(
                    self.wiring, on.put(mesh.gowner), self.watch.ways
                )
            if not self.is_fresh:
                self._renew_cavities(self.wiring, on.put(here.bel.copy()))
                self._look_at_flags()
        self.wake = None
        if self.schedule.some:
            n, owner = len(mesh.wiring.card), mesh.owner
            before = np.zeros(len(here.bel) if self.machines is not None else 0)
            self.wake = on.put((owner, mesh.gowner, np.ones(n, dtype=np.uint8), before))

    def run(self, max_iters: int, time_limit: float | None) -> tuple[Status, NDArray[np.float64]]:
        """Solve the trees, iterate the core; the status and the residuals.

        The residual of a sweep is the largest change of a probability between visits, that of a
        confirming update the most that it moved.
        """
        on = self.on
        self._walk(up=True)
        if self.schedule.flooding:
            on.write(self.watch.other, on.get(self.messages.m))  # of trees: no sweep writes them
        if self.mesh.is_forest:
            status, self.residuals = Status.CONVERGED, np.zeros(1)
        else:
            status, self.residuals = self._settle_core(max_iters, time_limit)
            if self.pairs_only and not self._has_passed():
                s, control = self.messages, self.watch.control
                self.odds.complete(self.core.odds, s.m, s.bel, control, self.weights)
        if self.mesh.trees is not None and not self.pairs_only:
            self._complete()
        self._walk(up=False)
        if not self.pairs_only:
            self._look_at_zeros()
        if self.lost and status.ok:
            status = Status.MAX_ITERS
        return status, unconfirmed(status, self.residuals, self.tol)

    def _settle_core(
        self, max_iters: int, time_limit: float | None
    ) -> tuple[Status, NDArray[np.float64]]:
        between = self.python_factors or self.schedule.awake is not None
        return iterate(
            self._sweeps, lambda: self._has_passed() or self.lost, max_iters, time_limit,
            self._sweep_cost, 1 if between else 4096,  # 1: something happens between sweeps
        )  # fmt: skip

    @property
    def _sweep_cost(self) -> float:
        """Seconds of a sweep, guessed."""
        mesh, w = self.mesh, self.mesh.wiring
        if mesh.reweighted:
            return 5e-8 * len(w.rev) + 2e-7 * len(w.tab)
        return 2e-8 * (len(w.rev) + len(w.tab) + len(mesh.machines.at))

    @property
    def note(self) -> str:
        return f"{LOST_RANGE}: messages grew beyond what numbers can hold" if self.lost else ""

    @property
    def still_to_move(self) -> float | None:
        """See :func:`still_to_move`; of sweeps that are alike."""
        if self.mesh.is_forest or self.lost:
            return None if self.lost else 0.0
        if self.schedule.some or self.damping:
            return None  # sweeps over some variables, or damped, tell too little
        last = self.residuals[-12:].tolist()  # a confirming update's are negative
        alike = [x for x in last if math.copysign(1.0, x) > 0.0]
        if alike and last[-1] < 0.0 and -last[-1] > alike[-1]:
            return None  # the update that confirmed moved more: nothing shrinks
        alternate = not (self.schedule.flooding or self.schedule.coloured)
        return still_to_move(alike, 2 if alternate else 1)

    def probs(self) -> NDArray[np.float64]:
        """All marginals, flat."""
        self._read_beliefs()
        probs, w, model = self.on.get(self.messages.bel), self.mesh.wiring, self.mesh.model
        for states in (model.fixed if model.has_fixed else None, self.mesh.known):
            if states is not None:  # not visited, or certain to 1e-200 so far
                told = np.flatnonzero(states >= 0)
                probs[ranges(w.off[told], w.card[told].astype(np.int64))] = 0.0
                probs[w.off[told] + states[told]] = 1.0
        if not probs.min(initial=1.0) > 0.0:
            lift(model, probs, self.mesh.known)
        self.on.write(self.messages.bel, probs)
        return probs

    def _read_beliefs(self) -> None:
        """All beliefs into ``bel``, from the messages."""
        on, s, watch = self.on, self.messages, self.watch
        if self.pairs_only:
            if self._has_passed() and len(watch.m) and self.mesh.trees is None:
                on.write(s.bel, on.get(watch.bel))  # the confirming update has read them
            else:
                self.odds.read_pairs(self.wiring.odds, s.m, self.weights, s.bel, 1)
            return
        visited = len(watch.work) and self.mesh.trees is None
        visited = visited and self._control("SENT") != 0.0
        if not visited or (self._has_passed() and len(watch.to_variable)):
            self.bp.read_beliefs(self.wiring, s, watch.bel, self.bp.WRITE, self.mesh.log)
        # else a visit has the last word on its variable

    def state(self, bound: bool = False) -> MessageState:
        kept = self._has_passed() and (len(self.watch.m) or len(self.watch.to_variable))
        before, s = self.on.get(self.watch) if kept else None, self.on.get(self.messages)
        if len(s.m) + 2 * len(s.to_variable) > KEEP:  # cavities follow from messages
            s = s._replace(to_factor=_NONE)
        return MessageState(self.mesh, s, before, bound, self.damping)

    # ------------------------------------------------------------------ sweeps over the core

    def _with_watch(
        self, s: WiredMessages, ahead: bool, work: NDArray[np.float64]
    ) -> tuple[WiredMessages, Confirmation]:
        """The messages, with room for what a watch needs of them, and the watch over the run."""
        m = to_variable = to_factor = before = other = _NONE
        room = len(s.m) + 2 * len(s.to_variable) <= KEEP
        if room:
            m = np.empty_like(s.m)
            if len(s.to_variable):
                to_variable, to_factor = np.ones_like(s.to_variable), np.ones_like(s.to_variable)
                if not len(s.to_factor):
                    s = s._replace(to_factor=np.ones_like(s.to_variable))
        if room or not self.pairs_only:
            size = len(
                s.bel
            )  # of runs over vector pairs all are awake and written before anybody reads them
            before = np.empty(size) if self.is_fresh else np.zeros(size)
        if self.schedule.flooding:
            other = np.empty_like(s.m)
        watch = watch_for(self.tol, self.damping)
        watch = watch._replace(
            m=m, to_variable=to_variable, to_factor=to_factor, bel=before, work=work, other=other
        )
        if self.schedule.coloured:
            watch = watch._replace(order=self.mesh.by_colour()[0])
        if len(work):
            watch = watch._replace(ways=np.empty((len(self.mesh.gowner), 4), np.int64))
        if not ahead:
            watch.control[self.names.SENT] = self.names.NEVER
        elif self.is_fresh:  # as if a sweep backwards had been
            watch.control[self.names.SENT], watch.control[self.names.BLANK] = -1.0, 1.0
        return s, watch

    @property
    def weights(self) -> tuple | None:
        """Of tree-reweighted pairs, as the kernels take them."""
        return (self.wiring.rho, self.messages.weighted_log, True) if self.mesh.reweighted else None

    def _control(self, name: str) -> float:
        """A number of the watch."""
        return float(self.on.get(self.watch.control)[getattr(self.names, name)])

    def _set_control(self, **numbers: float) -> None:
        control = self.on.get(self.watch.control)
        for name, x in numbers.items():
            control[getattr(self.names, name)] = x
        self.on.write(self.watch.control, control)

    def _has_passed(self) -> bool:
        return self._control("PASSED") != 0.0

    def _sweeps(self, n: int, residuals: NDArray[np.float64]) -> int:
        """Up to n sweeps; see :func:`iterate`."""
        on, s, watch, there = self.on, self.messages, self.watch, self.on.put(residuals)
        if self.schedule.awake is not None and self.wake is not None:
            active = on.get(self.wake[2])
            if not active.all():  # else after a quiet sweep: all are looked at
                self.schedule.awake(active, self.made)
                on.write(self.wake[2], active)
            self.made += 1
        if self.pairs_only:
            plain = self.schedule == Schedule() and not self.damping and not self.mesh.reweighted
            plain = plain and len(watch.m) == len(s.m)  # the first that most programs compile
            made = self.odds.sweep_pairs(
                self.core.odds, s.m, s.bel, watch.m, watch.bel, watch.control, there,
                None if plain else self.damping, self.weights,
                watch.other if self.schedule.flooding else None,
                None if self.wake is None else (self.wake[0], self.wake[2]),
                watch.order if self.schedule.coloured else None,
            )  # fmt: skip
            on.write(residuals, on.get(there))
            return made
        if self.python_factors:
            phase = self._control("PHASE")
            if phase < 0.0:
                if not self.schedule.flooding:
                    self._complete()
                self.bp.begin_watch(self.core, s, watch, self.mesh.log)
            share = 0.0 if phase != 0.0 else self.damping
            moved = max(self._answer(g, rows, share) for g, rows in self.python_factors)
            if phase != 0.0:
                self._set_control(WORST=max(self._control("WORST"), moved))
        mode = self.bp.FLOODING if self.schedule.flooding else self.bp.SEQUENTIAL
        mode = self.bp.COLOURED if self.schedule.coloured else mode
        made = self._go(self.core, watch, mode, there, self.wake)
        on.write(residuals, on.get(there))
        if self.wake is not None and self.python_factors:
            on.write(self.wake[2], np.ones(len(self.wake[2]), np.uint8))
        self._look_at_flags()
        if self._has_passed() and not self.mesh.log and self._has_false_zeros():
            self._set_control(PASSED=0.0)
            self._go_on_in_logs()
        if self._has_passed() and self.mesh.log:
            before, after = on.get((watch.to_variable, s.to_variable))
            if len(before) == len(after) and self._drifts(before, after):
                self._set_control(PASSED=0.0, PHASE=0.0)
        return made

    def _drifts(self, before: NDArray[np.float64], after: NDArray[np.float64]) -> bool:
        """Whether a message in logs moves (:func:`drifting`) so that it may yet change an answer.

        One that only sinks is on its way to a zero. Nothing hangs on how far it is, if without it,
        and without any one other message, its state has no more than ``tol`` left: beliefs and what
        the variable sends move by no more than that. Parity checks that all hold double their
        log-odds for ever.
        """
        moving = drifting(before, after)
        if not moving.any():
            return False
        w, state = self.mesh.wiring, self._state_of
        pairs = np.diff(w.ptr) > 0  # whose messages are elsewhere
        if self.mesh.reweighted or (after > before)[moving].any() or pairs[self.mesh.gowner].any():
            return True
        sinking = np.bincount(state, moving, len(w.field))
        with np.errstate(invalid="ignore"):
            belief: NDArray[np.float64] = w.field + np.bincount(state, after, len(w.field))
            sent = belief[state] - after  # by a variable to a factor
        sent[np.isneginf(after)] = -np.inf  # that factor has nothing where it is
        most = math.log(max(self.tol, LEAST))
        if (_normalised(belief, w.off[:-1])[sinking > 0] > most).any():
            return True
        by_others = sinking[state] - moving > 0
        size = w.gslot[:, 3].astype(np.int64)
        return bool((_normalised(sent, np.cumsum(size) - size)[by_others] > most).any())

    def _go(
        self,
        w: Wiring,
        watch: Confirmation,
        mode: int,
        residuals: NDArray,
        wake: tuple | None = None,
        s: WiredMessages | None = None,
    ) -> int:
        """As many sweeps as there is room for in ``residuals``."""
        return self.bp.sweeps(
            w, self.machines, self.messages if s is None else s, watch, mode, len(residuals),
            residuals, *self.mesh.kinds(), self.on.put(NO_WAKE) if wake is None else wake,
        )  # fmt: skip

    def _complete(self) -> None:
        """Cavities of the core that sweeps sending ahead have left as they were."""
        self._renew_cavities(self.core, self.messages.bel)

    def _renew_cavities(self, w: Wiring, bel: NDArray) -> None:
        """Cavities of all general variables that are awake from the messages as they are."""
        watch, residual = self.on.put((watch_for(-1.0), np.zeros(1)))
        self._go(w, watch, self.bp.START, residual, s=self.messages._replace(bel=bel))

    # ------------------------------------------------------------------ trees

    def _walk(self, up: bool) -> None:
        """Collect from the trees, or distribute to them; anew in log space if need be."""
        trees, on = self.mesh.trees, self.on
        if trees is None:
            return
        if self.pairs_only:
            s, order = self.messages, on.put(trees.order)
            self.odds.walk_pairs(self.wiring.odds, s.m, s.bel, self.weights, order, up)
            return
        every = self.mesh.machines
        asked = len(self.mesh.python_factors) > 0  # in Python, between the pieces
        pieces = trees.pieces(every.base + len(every.code)) if asked else [trees.order]
        ahead = pieces if up else pieces[::-1]
        at = 0
        while at < len(ahead):
            if self.lost:
                return
            piece, log = ahead[at], self.mesh.log
            if isinstance(piece, int):
                for group in self.mesh.python_factors:
                    rows = group.rows(np.array([piece]))
                    if len(rows):
                        self._answer(group, rows, 0.0)
            else:
                order, residual = on.put((piece, np.zeros(1)))
                mode = self.bp.UP if up else self.bp.DOWN
                self._go(self.wiring, self.watch._replace(order=order), mode, residual)
                self._look_at_flags()
            at = at + 1 if self.mesh.log == log else 0

    # ------------------------------------------------------------------ what needs Python

    def _look_at_flags(self) -> None:
        """Go on in log space if the range asks for it, or if nothing is left for no good reason."""
        flag = self.on.get(self.messages.flag)
        too_small, nothing_left = flag[0] != 0, flag[1] != 0
        if not (too_small or nothing_left):
            return
        flag[:] = 0
        self.on.write(self.messages.flag, flag)
        if nothing_left:
            self._nothing_left()
        elif not self.mesh.log:
            self._go_on_in_logs()

    def _nothing_left(self) -> None:
        """ContradictionError where zeros of the model prove it; else numbers lost their range, and
        in logs that ends the run."""
        self._possible  # noqa: B018 - it proves, or does not
        if self.mesh.log:
            self.lost = True
        else:
            self._go_on_in_logs()

    def _go_on_in_logs(self) -> None:
        """The same messages in log space; those that fell to zero on the way are put back."""
        on, w = self.on, self.mesh.wiring
        with np.errstate(divide="ignore", invalid="ignore"):
            w = w._replace(tab=np.log(w.tab), field=np.log(w.field))
            final = np.log(self.mesh.machines.final)
            for there in self._general_numbers:
                here = on.get(there)
                np.log(here, out=here)
                on.write(there, here)
        machines = self.mesh.machines._replace(final=final)
        self.mesh = self.mesh.changed(wiring=w, machines=machines, log=True)
        new = {"tab": on.put(w.tab), "field": on.put(w.field)}
        self.wiring, self.core = self.wiring._replace(**new), self.core._replace(**new)
        self.watch = self.watch._replace(work=on.put(_NONE))
        self._set_control(PHASE=0.0)  # what is confirmed is begun anew
        if self._control("SENT") <= 1.0:
            self._set_control(SENT=0.0)
        if self.machines is not None:
            self.machines = self.machines._replace(final=on.put(final))
            alone, kind = on.get((self.machines.alone, self.core.kind))
            kind[alone] = w.kind[alone]  # a sweep that broke off has left them asleep
            on.write(self.core.kind, kind)
        self._mend()
        self._complete()

    @property
    def _general_numbers(self) -> tuple[NDArray, ...]:
        return (
            self.messages.to_variable,
            self.messages.to_factor,
            self.watch.to_variable,
            self.watch.to_factor,
        )

    # ------------------------------------------------------------------ zeros

    @cached_property
    def _possible(self) -> NDArray[np.bool_]:
        """Of every entry of the general messages, whether its state is possible, by logic; or
        ContradictionError."""
        return possible(self.mesh.model, self.mesh.known)[self._state_of]

    @cached_property
    def _state_of(self) -> NDArray[np.int64]:
        """The state, among those of all variables, of every entry of the general messages."""
        w = self.mesh.wiring
        size = w.gslot[:, 3].astype(np.int64)
        out = np.empty(len(self.messages.to_variable), dtype=np.int64)
        out[ranges(w.gslot[:, 2].astype(np.int64), size)] = ranges(w.off[self.mesh.gowner], size)
        return out

    def _has_false_zeros(self) -> bool:
        """Whether a message is zero, or no number, though its state is possible."""
        to_variable = self.on.get(self.messages.to_variable)
        if self.fits_vector_pairs or not len(to_variable):  # they have tables without zeros
            return False
        zero = ~np.isfinite(to_variable) if self.mesh.log else ~(to_variable > 0.0)
        return bool(zero.any()) and bool((zero & self._possible).any())

    def _mend(self) -> None:
        """Give messages in logs, where their state is possible, a number again."""
        for there in self._general_numbers:
            x = self.on.get(there)
            bad = ~np.isfinite(x)
            if bad.any():
                may = self._possible[bad]
                x[bad] = np.where(may, LOST, -np.inf)
                self.mended |= bool(may.any())
                self.on.write(there, x)

    def _look_at_zeros(self) -> None:
        """When all is done: no message may exclude what logic does not. Trees are solved again, in
        logs; elsewhere, and where logs left their range too, the run has not converged."""
        if not self.mesh.log and self._has_false_zeros():
            self._go_on_in_logs()
            self.lost = not self.mesh.is_forest
        if self.mended and self.mesh.is_forest:
            self._walk(up=True)
            self._walk(up=False)
        if self.mesh.log:
            self.lost |= self._are_at_odds()
            if self._has_false_zeros():
                self.lost = True
                self._mend()

    def _are_at_odds(self) -> bool:
        """Whether messages that grew as far as numbers go leave some variable no state.

        They stand for zeros, to which they tend: if each variable has a state that none of them is
        against, that is a fixed point; else what the numbers say depends on where they stopped.
        """
        w, to_variable = self.mesh.wiring, self.on.get(self.messages.to_variable)
        far = to_variable <= self.on.kernels("messages.vectors").FARTHEST / 2
        if not (far & (to_variable > -np.inf)).any():
            return False
        against = np.isneginf(w.field)
        against[self._state_of[far]] = True
        return bool(np.logical_and.reduceat(against, w.off[:-1]).any())

    def _in_core(self) -> list[tuple[PythonFactors, NDArray[np.int64]]]:
        """Groups that compute their own messages, and their rows that no tree asks on the way."""
        found = []
        for group in self.mesh.python_factors:
            core = np.ones(len(group.group), dtype=bool)
            if self.mesh.trees is not None:
                core[group.rows(self.mesh.trees.answering)] = False
            if core.any():
                found.append((group, np.flatnonzero(core)))
        return found

    def _answer(self, asked: PythonFactors, rows: NDArray[np.int64], damping: float) -> float:
        """Let some factors of a group answer; how far their messages moved, undamped."""
        to_variable, to_factor = self.on.get((self.messages.to_variable, self.messages.to_factor))
        entries = asked.entries[rows]
        with np.errstate(divide="ignore"):
            incoming = to_factor[entries] if self.mesh.log else np.log(to_factor[entries])
        first, place = asked.starts, asked.places
        incoming -= np.maximum.reduceat(incoming, first, axis=1)[:, place]
        out = np.empty_like(incoming)
        log_z = asked.group.messages(rows, incoming, out)
        if (log_z == -np.inf).any():
            self._nothing_left()
            return 1.0 if self.lost else self._answer(asked, rows, damping)
        out -= np.maximum.reduceat(out, first, axis=1)[:, place]
        if not self.mesh.log and ((out < -345.0) & (out > -np.inf)).any():
            self._go_on_in_logs()
            to_variable = self.on.get(self.messages.to_variable)
        old, linear = to_variable[entries], np.exp(out)
        moved = _distance(linear, np.exp(old) if self.mesh.log else old, first, place)
        new = out if self.mesh.log else linear
        if damping:
            alive = (out > -np.inf) & np.isfinite(old)
            new[alive] += damping * (old[alive] - new[alive])
        to_variable[entries] = new
        self.on.write(self.messages.to_variable, to_variable)
        return moved


def _distance(new: NDArray, old: NDArray, first: NDArray, place: NDArray) -> float:
    """The largest difference of messages, taken to sum 1: entries from ``first`` on, by place."""
    a, b = np.add.reduceat(new, first, axis=1), np.add.reduceat(old, first, axis=1)
    return float(np.abs(new / a[:, place] - old / b[:, place]).max())


# ---------------------------------------------------------------------- the loop


def iterate(
    sweeps: Callable[[int, NDArray[np.float64]], int],
    converged: Callable[[], bool],
    max_iters: int,
    time_limit: float | None,
    sweep_cost: float,
    max_chunk: int = 4096,
) -> tuple[Status, NDArray[np.float64]]:
    """Run ``sweeps(n, residuals)`` until converged, out of iterations or out of time.

    It makes up to n sweeps, writes their residuals and returns how many it made. ``sweep_cost``
    guesses the seconds of one, for the first call.
    """
    begin = clock()
    trace: list[NDArray[np.float64]] = []
    done, chunk = 0, _chunk(sweep_cost, time_limit, min(64, max_chunk))
    while done < max_iters:
        residuals = np.zeros(min(chunk, max_iters - done))
        made = sweeps(len(residuals), residuals)
        done += made
        trace.append(residuals[:made])
        if converged():
            return Status.CONVERGED, residuals[:made] if len(trace) == 1 else np.concatenate(trace)
        spent = clock() - begin
        if time_limit is not None and spent >= time_limit:
            return Status.TIME_LIMIT, np.concatenate(trace)
        left = None if time_limit is None else time_limit - spent
        chunk = _chunk(spent / max(done, 1), left, max_chunk)
    return Status.MAX_ITERS, np.concatenate(trace) if trace else np.zeros(0)


def unconfirmed(status: Status, residuals: NDArray[np.float64], tol: float) -> NDArray[np.float64]:
    """Residuals without signs; the last one above ``tol`` where it was quiet, but not confirmed."""
    residuals = np.abs(residuals)
    if not status.ok and len(residuals) and residuals[-1] <= tol:
        residuals[-1] = np.nextafter(tol, 1.0)
    return residuals


def drifting(before: NDArray[np.float64], after: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which messages in logs still moved while no probability showed it: e^-500 and e^-900 are not
    the same to a belief in which another message of e^700 stands against them."""
    both = np.isfinite(before) & np.isfinite(after)
    with np.errstate(invalid="ignore"):
        return both & (np.abs(after - before) > DRIFT * (1.0 + np.abs(after)))


def _normalised(logs: NDArray[np.float64], first: NDArray[np.int64]) -> NDArray[np.float64]:
    """Logs of weights as logs of probabilities, block by block from ``first`` on."""
    sizes = np.diff(first, append=len(logs))
    with np.errstate(invalid="ignore"):
        return logs - np.repeat(np.logaddexp.reduceat(logs, first), sizes)


def still_to_move(residuals: Sequence[float], stride: int) -> float | None:
    """What further iteration would still move, were the residuals to go on shrinking as they do.

    With R and R' the last residual and the one before, r = R / R', it is R r / (1 - r), a geometric
    series. ``stride`` sweeps together (one in each direction) count as one, by the larger of their
    residuals. None where there are not two, or where they hardly shrink.
    """
    if len(residuals) < 2 * stride:
        return None
    last = max(residuals[-stride:])
    before = max(residuals[-2 * stride : -stride])
    if last == 0.0:
        return 0.0
    if last >= before:
        return None
    r = last / before
    further = last * r / (1.0 - r)
    return further if further <= 1.0 else None


def _chunk(sweep_cost: float, time_left: float | None, most: int) -> int:
    """How many sweeps fit between two looks at the clock."""
    glance = _GLANCE if time_left is None else min(_GLANCE, time_left)
    return int(min(max(glance / max(sweep_cost, 1e-7), 1), most))
