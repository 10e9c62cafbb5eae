"""One run of message passing: trees up, the loopy core until confirmed, trees down.

Components that are trees, and trees that hang on a loopy core, are solved by *collecting* (towards
the core or a root) before and *distributing* (away from it) after: every message is computed once,
after those it depends on, whatever the schedule and the damping (Pearl 1988). What is left, the
*core*, is swept until it has converged, which is a definition a test can refute:

    the last thing a converged run did is to compute every message anew from the messages as they
    were, all at once and undamped, global factors answering within it (in models of more than a
    million messages: by one sweep in each direction), and no message, as a normalised vector, and
    no belief, read from the messages before and after, moved by more than ``tol``.

:mod:`minfer.kernels.messages.odds` and :mod:`minfer.kernels.messages.sweeps` have the sweeps and
the judgement; here is what needs Python: global factors, the switch to log space, and whether a
zero is one of the model's (:mod:`minfer.engine.support`) or a number that lost its range.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.engine.message_state import (
    NO_WAKE,
    MessageState,
    refresh_cavities,
    start_messages,
    watch_for,
)
from minfer.engine.support import LEAST, lift, possible
from minfer.engine.wiring import Speakers, Wired, ranges
from minfer.solvers.iteration import drifts, iterate, still_to_move
from minfer.solvers.status import LOST_RANGE, Status

if TYPE_CHECKING:
    from minfer.kernels.messages.automata import Machines
    from minfer.kernels.messages.wiring import Confirmation
    from minfer.solvers.base import Marginals

SCHEDULES = ("sequential", "flooding", "residual")
#: The confirming update starts from a copy of the messages up to this many numbers.
KEEP = 2**20
#: The log of a message that fell to zero though its state is possible, until it is computed anew.
LOST = math.log(LEAST)
_NONE = np.zeros(0)


class Propagation:
    """The mesh, its messages, and how they are brought to a fixed point.

    Parameters
    ----------
    mesh : Mesh
        Serves this run alone: pair messages are its own.
    start : Marginals or None
        An earlier answer whose messages to begin with.
    tol, damping, schedule
        As in :class:`~minfer.BeliefPropagation`.
    """

    def __init__(
        self, mesh: Wired, start: Marginals | None, tol: float, damping: float, schedule: str
    ) -> None:
        from minfer.kernels.messages import odds

        self.odds = odds
        self.mesh, self.pairs_only = mesh, not mesh.wiring.field.size
        self.tol, self.damping, self.schedule = float(tol), float(damping), schedule
        ahead = schedule == "sequential" and not damping
        self.work = mesh.lean_room if ahead and not self.pairs_only else _NONE
        self.is_fresh = start is None and mesh.trees is None and len(self.work) > 0
        self.messages = start_messages(mesh, start, self.is_fresh)
        self.core, self.machines = mesh.core, mesh.machines
        self.speakers: list[tuple[Speakers, NDArray[np.int64]]] = []
        if not self.pairs_only:
            self.machines, self.speakers = mesh.core_machines, self._in_core()
            if len(self.machines.alone):
                self.core = self.core._replace(cls=self.core.cls.copy())  # sweeps write there
        self.watch = self._new_watch()
        if not ahead:
            self.watch.control[odds.SENT] = odds.NEVER
        self.residuals = np.zeros(0)
        self.lost = False  # whether numbers left their range, and the answer is what is left
        self.mended = False  # whether messages that had fallen to zero were put back
        if not self.pairs_only and not self.is_fresh:
            refresh_cavities(mesh, self.messages)
            self._look_at_flags()
        self.wake = None
        if schedule == "residual":
            n = len(mesh.wiring.card)
            owner = np.repeat(np.arange(n, dtype=np.int32), np.diff(mesh.wiring.ptr).view(np.int64))
            before = np.zeros(len(self.messages.bel) if len(self.machines.code) else 0)
            self.wake = owner, mesh.gowner, np.ones(n, dtype=np.uint8), before

    def run(
        self, max_iters: int, time_limit: float | None, sweep_cost: float
    ) -> tuple[Status, NDArray[np.float64]]:
        """Solve the trees, iterate the core; the status and the residuals.

        ``sweep_cost`` guesses the seconds of a sweep. The residual of a sweep is the largest change
        of a probability between visits, that of a confirming update the most that it moved.
        """
        self._walk(up=True)
        if self.is_fresh:  # as if a sweep backwards had been
            self.watch.control[self.odds.SENT] = -1.0
            self.watch.control[self.odds.BLANK] = 1.0
        if self.schedule == "flooding":
            self.watch.other[:] = self.messages.m  # of trees: no sweep writes them
        if self.is_forest:
            status, self.residuals = Status.CONVERGED, np.zeros(1)
        else:
            chunk = 1 if self.speakers else 4096  # they answer between sweeps
            status, self.residuals = iterate(
                self._sweeps, self._is_over, max_iters, time_limit, sweep_cost, chunk
            )
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
        residuals = np.abs(self.residuals)
        if not status.ok and len(residuals) and residuals[-1] <= self.tol:
            residuals[-1] = np.nextafter(self.tol, 1.0)  # quiet, but not confirmed
        return status, residuals

    @property
    def is_forest(self) -> bool:
        return self.mesh.trees is not None and self.mesh.trees.whole

    @property
    def note(self) -> str:
        return f"{LOST_RANGE}: messages grew beyond what numbers can hold" if self.lost else ""

    @property
    def still_to_move(self) -> float | None:
        """See :func:`minfer.solvers.iteration.still_to_move`; of sweeps that are alike."""
        if self.is_forest or self.lost:
            return None if self.lost else 0.0
        if self.schedule == "residual" or self.damping:
            return None  # sweeps over some variables, or damped, tell too little
        last = self.residuals[-12:].tolist()  # a confirming update's are negative
        alike = [x for x in last if math.copysign(1.0, x) > 0.0]
        if alike and last[-1] < 0.0 and -last[-1] > alike[-1]:
            return None  # the update that confirmed moved more: nothing shrinks
        return still_to_move(alike, 1 if self.schedule == "flooding" else 2)

    def probs(self) -> NDArray[np.float64]:
        """All marginals, flat."""
        probs, w, model = self._probs(), self.mesh.wiring, self.mesh.model
        for states in (model.fixed if model.has_fixed else None, self.mesh.known):
            if states is not None:  # not visited, or certain to 1e-200 so far
                told = np.flatnonzero(states >= 0)
                probs[ranges(w.off[told], w.card[told].astype(np.int64))] = 0.0
                probs[w.off[told] + states[told]] = 1.0
        lift(model, probs, self.mesh.known)
        return probs

    def _probs(self) -> NDArray[np.float64]:
        w, s, watch = self.mesh.wiring, self.messages, self.watch
        if self.pairs_only:
            if self._has_passed() and len(watch.m) and self.mesh.trees is None:
                s.bel[:] = watch.bel  # the confirming update has read them
            else:
                self.odds.read_pairs(w.odds, s.m, self.weights, s.bel, 1)
            return s.bel
        visited = len(watch.work) and self.mesh.trees is None
        visited = visited and watch.control[self.odds.SENT] != 0.0
        if visited and not (self._has_passed() and len(watch.gm)):
            return s.bel  # a visit has the last word on its variable
        from minfer.kernels.messages import sweeps as bp

        bp.read_beliefs(w, s, watch.bel, bp.WRITE, self.mesh.log)
        return s.bel

    def state(self, bound: bool = False) -> MessageState:
        kept = self._has_passed() and (len(self.watch.m) or len(self.watch.gm))
        before, s = self.watch if kept else None, self.messages
        if len(s.m) + 2 * len(s.gm) > KEEP:  # cavities follow from messages
            s = s._replace(gq=_NONE)
        return MessageState(self.mesh, s, before, bound, self.damping)

    # ------------------------------------------------------------------ sweeps over the core

    def _new_watch(self) -> Confirmation:
        s, none = self.messages, _NONE
        kept, before = (none, none, none), none
        room = len(s.m) + 2 * len(s.gm) <= KEEP
        if room:
            kept = np.empty_like(s.m), none, none
            if len(s.gm):
                kept = kept[0], np.ones_like(s.gm), np.ones_like(s.gm)
                if not len(s.gq):
                    self.messages = s._replace(gq=np.ones_like(s.gm))
        if room or not self.pairs_only:
            size = len(s.bel)  # of lean runs all are awake and written before anybody reads them
            before = np.empty(size) if self.is_fresh else np.zeros(size)
        if len(self.work):
            from minfer.kernels.messages.vector_pairs import lean_ways

            ways = lean_ways(self.mesh.wiring, self.mesh.gowner)
            return watch_for(self.tol, *kept, before, work=self.work, ways=ways)
        other = np.empty_like(s.m) if self.schedule == "flooding" else none
        return watch_for(self.tol, *kept, before, damping=self.damping, other=other)

    @property
    def weights(self) -> tuple | None:
        """Of tree-reweighted pairs, as :func:`minfer.kernels.messages.odds.visit_pairs` takes
        them.
        """
        return (self.mesh.wiring.rho, self.messages.rl, True) if self.mesh.reweighted else None

    @property
    def _machines(self) -> Machines | None:
        """None where there are none: the kernels' code for them need not be compiled then."""
        return self.machines if len(self.machines.code) else None

    def _has_passed(self) -> bool:
        return bool(self.watch.control[self.odds.PASSED])

    def _is_over(self) -> bool:
        return self._has_passed() or self.lost

    def _sweeps(self, n: int, residuals: NDArray[np.float64]) -> int:
        """Up to n sweeps; see :func:`minfer.solvers.iteration.iterate`."""
        k, s, control = self.odds, self.messages, self.watch.control
        if self.pairs_only:
            plain = self.schedule == "sequential" and not self.damping and not self.mesh.reweighted
            plain = plain and len(self.watch.m) == len(s.m)  # the first that most programs compile
            wake = None if self.wake is None else (self.wake[0], self.wake[2])
            return k.sweep_pairs(
                self.core.odds, s.m, s.bel, self.watch.m, self.watch.bel, control, n, residuals,
                None if plain else self.damping, self.weights,
                self.watch.other if self.schedule == "flooding" else None, wake,
            )  # fmt: skip
        from minfer.kernels.messages import sweeps as bp

        confirming = control[k.PHASE] != 0.0
        if self.speakers:
            if control[k.PHASE] < 0.0:
                if self.schedule != "flooding":
                    self._complete()
                bp.begin_watch(self.core, s, self.watch, self.mesh.log)
            share = 0.0 if confirming else self.damping
            moved = max(self._answer(g, rows, share) for g, rows in self.speakers)
            if confirming:
                control[k.WORST] = max(control[k.WORST], moved)
        mode = bp.FLOODING if self.schedule == "flooding" else bp.SEQUENTIAL
        made = bp.sweeps(
            self.core, self._machines, s, self.watch, mode, n, residuals, *self.mesh.kinds(),
            self.wake or NO_WAKE,
        )  # fmt: skip
        if self.wake is not None and self.speakers:
            self.wake[2][:] = 1
        self._look_at_flags()
        if self._has_passed() and not self.mesh.log and self._has_false_zeros():
            control[k.PASSED] = 0.0
            self._go_on_in_logs()
        if self._has_passed() and self._drifts():
            control[k.PASSED] = control[k.PHASE] = 0.0
        return made

    def _drifts(self) -> bool:
        """Whether messages in logs moved in the confirming update, unseen by probabilities."""
        before, after = self.watch.gm, self.messages.gm
        return self.mesh.log and len(before) == len(after) and drifts(before, after)

    def _complete(self) -> None:
        """Cavities of the core that sweeps sending ahead have left as they were."""
        from minfer.kernels.messages import sweeps as bp

        bp.sweeps(
            self.core, self._machines, self.messages, watch_for(-1.0), bp.START, 1, np.zeros(1),
            *self.mesh.kinds(), NO_WAKE,
        )  # fmt: skip

    # ------------------------------------------------------------------ trees

    def _walk(self, up: bool) -> None:
        """Collect from the trees, or distribute to them; anew in log space if need be."""
        if self.mesh.trees is None:
            return
        s = self.messages
        if self.pairs_only:
            order, parts = self.mesh.trees.order, self.mesh.wiring.odds
            self.odds.walk_pairs(parts, s.m, s.bel, self.weights, order, up)
            return
        from minfer.kernels.messages import sweeps as bp

        every, trees = self.mesh.machines, self.mesh.trees
        asked = len(self.mesh.speakers) > 0  # in Python, between the pieces
        pieces = trees.pieces(every.base + len(every.code)) if asked else [trees.order]
        ahead = pieces if up else pieces[::-1]
        at = 0
        while at < len(ahead):
            if self.lost:
                return
            piece, log = ahead[at], self.mesh.log
            if isinstance(piece, int):
                for group in self.mesh.speakers:
                    rows = group.rows(np.array([piece]))
                    if len(rows):
                        self._answer(group, rows, 0.0)
            else:
                w, watch = self.mesh.wiring, self.watch._replace(order=piece)
                ma = self.mesh.machines if len(every.code) else None
                mode = bp.UP if up else bp.DOWN
                bp.sweeps(w, ma, s, watch, mode, 1, np.zeros(1), *self.mesh.kinds(), NO_WAKE)
                self._look_at_flags()
            at = at + 1 if self.mesh.log == log else 0

    # ------------------------------------------------------------------ what needs Python

    def _look_at_flags(self) -> None:
        """Go on in log space if the range asks for it, or if nothing is left for no good reason."""
        s = self.messages
        nothing_left, too_small = s.flag[1] != 0, s.flag[0] != 0
        s.flag[:] = 0
        if nothing_left:
            self._nothing_left()
        elif too_small and not self.mesh.log:
            self._go_on_in_logs()

    def _nothing_left(self) -> None:
        """ContradictionError where zeros of the model prove it, else numbers lost their range.

        In logs, that ends the run.
        """
        self._possible  # noqa: B018 - it proves, or does not
        if self.mesh.log:
            self.lost = True
        else:
            self._go_on_in_logs()

    def _go_on_in_logs(self) -> None:
        """The same messages in log space; those that fell to zero on the way are put back."""
        w, s = self.mesh.wiring, self.messages
        with np.errstate(divide="ignore", invalid="ignore"):
            w = w._replace(tab=np.log(w.tab), field=np.log(w.field))
            final = np.log(self.mesh.machines.final)
            for x in (s.gm, s.gq, self.watch.gm, self.watch.gq):
                np.log(x, out=x)
        machines = self.mesh.machines._replace(final=final)
        self.mesh = self.mesh.changed(wiring=w, machines=machines, log=True)
        self.core = self.core._replace(tab=w.tab, field=w.field)
        self.machines = self.machines._replace(final=final)
        self.watch = self.watch._replace(work=_NONE)
        control = self.watch.control
        control[self.odds.PHASE] = 0.0  # what is confirmed is begun anew
        if control[self.odds.SENT] <= 1.0:
            control[self.odds.SENT] = 0.0
        if len(self.machines.alone):  # a sweep that broke off has left them asleep
            self.core.cls[self.machines.alone] = self.mesh.wiring.cls[self.machines.alone]
        self._mend()
        self._complete()

    # ------------------------------------------------------------------ zeros

    @cached_property
    def _possible(self) -> NDArray[np.bool_]:
        """Of every entry of the general messages, whether its state is possible, by logic.

        ContradictionError where no state is left of a variable.
        """
        return possible(self.mesh.model, self.mesh.known)[self._state_of]

    @cached_property
    def _state_of(self) -> NDArray[np.int64]:
        """The state, among those of all variables, of every entry of the general messages."""
        w = self.mesh.wiring
        size = w.gslot[:, 3].astype(np.int64)
        out = np.empty(len(self.messages.gm), dtype=np.int64)
        out[ranges(w.gslot[:, 2].astype(np.int64), size)] = ranges(w.off[self.mesh.gowner], size)
        return out

    def _has_false_zeros(self) -> bool:
        """Whether a message is zero, or no number, though its state is possible."""
        gm = self.messages.gm
        if len(self.work) or not len(gm):  # lean runs have tables without zeros
            return False
        zero = ~np.isfinite(gm) if self.mesh.log else ~(gm > 0.0)
        return bool(zero.any()) and bool((zero & self._possible).any())

    def _mend(self) -> None:
        """Give messages in logs, where their state is possible, a number again."""
        s = self.messages
        for x in (s.gm, s.gq, self.watch.gm, self.watch.gq):
            bad = ~np.isfinite(x)
            if bad.any():
                may = self._possible[bad]
                x[bad] = np.where(may, LOST, -np.inf)
                self.mended |= bool(may.any())

    def _look_at_zeros(self) -> None:
        """When all is done: no message may exclude what logic does not.

        Trees are solved again, in logs. Elsewhere, and where logs left their range too, the run has
        not converged.
        """
        if not self.mesh.log and self._has_false_zeros():
            self._go_on_in_logs()
            self.lost = not self.is_forest
        if self.mended and self.is_forest:
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
        from minfer.kernels.messages.vectors import FARTHEST

        w, gm = self.mesh.wiring, self.messages.gm
        far = gm <= FARTHEST / 2
        if not (far & (gm > -np.inf)).any():
            return False
        against = np.isneginf(w.field)
        against[self._state_of[far]] = True
        return bool(np.logical_and.reduceat(against, w.off[:-1]).any())

    def _in_core(self) -> list[tuple[Speakers, NDArray[np.int64]]]:
        """Groups that compute their own messages, and their rows that no tree asks on the way."""
        found = []
        for group in self.mesh.speakers:
            core = np.ones(len(group.group), dtype=bool)
            if self.mesh.trees is not None:
                core[group.rows(self.mesh.trees.speakers)] = False
            if core.any():
                found.append((group, np.flatnonzero(core)))
        return found

    def _answer(self, speakers: Speakers, rows: NDArray[np.int64], damping: float) -> float:
        """Let some factors of a group answer; how far their messages moved, undamped."""
        s, entries = self.messages, speakers.entries[rows]
        with np.errstate(divide="ignore"):
            incoming = s.gq[entries] if self.mesh.log else np.log(s.gq[entries])
        first, place = speakers.starts, speakers.places
        incoming -= np.maximum.reduceat(incoming, first, axis=1)[:, place]
        out = np.empty_like(incoming)
        log_z = speakers.group.messages(rows, incoming, out)
        if (log_z == -np.inf).any():
            self._nothing_left()
            return 1.0 if self.lost else self._answer(speakers, rows, damping)
        out -= np.maximum.reduceat(out, first, axis=1)[:, place]
        if not self.mesh.log and ((out < -345.0) & (out > -np.inf)).any():
            s.flag[0] = 1
            self._look_at_flags()
        old, linear = s.gm[entries], np.exp(out)
        moved = _distance(linear, np.exp(old) if self.mesh.log else old, first, place)
        new = out if self.mesh.log else linear
        if damping:
            alive = (out > -np.inf) & np.isfinite(old)
            new[alive] += damping * (old[alive] - new[alive])
        s.gm[entries] = new
        return moved


def _distance(new: NDArray, old: NDArray, first: NDArray, place: NDArray) -> float:
    """The largest difference of messages, taken to sum 1: entries from ``first`` on, by place."""
    a, b = np.add.reduceat(new, first, axis=1), np.add.reduceat(old, first, axis=1)
    return float(np.abs(new / a[:, place] - old / b[:, place]).max())
