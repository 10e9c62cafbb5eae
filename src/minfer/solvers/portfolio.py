"""Several methods for one model, in the time there is: what ``Auto(time_limit=...)`` runs.

Where an exact answer does not fit, belief propagation comes first, then, with what is left,

* join graphs of growing clusters (:class:`~minfer.JoinGraph`): they hold short loops and zeros;
  they go on in the second half of the time if tempering's copies made no round trip by then and
  there is hope for them: the model has zeros, or the last of them converged,
* windows of growing size (:class:`~minfer.Windows`): models that are large and whose correlations
  decay; they, too, go on in the second half if there was no round trip,
* clamping (:class:`~minfer.Clamped`), where runs from other starts disagree: a few modes,
* parallel tempering (:class:`~minfer.Tempering`) for the rest of the time: soft strong couplings,
* certified intervals and bounds of log Z (:func:`minfer.intervals`): answers that they prove to be
  further off than another are out, and the one that is taken is clipped into them.

Tempering is the referee, because it alone knows its error: the standard error s over independent
ensembles. With enough round trips, a message passing answer further off than about s is wrong, and
one within s is taken, since it carries no noise. (Where s is large it takes several s to outvote an
answer that converged; behind zeros, samples far off from what belief propagation and join graphs of
several sizes agree on are not taken.) Without round trips s counts ``NO_TRIPS`` times, and the
smallest doubt is taken: of join graphs and windows how far the last step moved them, of samples, in
models without zeros, their s. The error estimate is the samples' own, or how far the answer lies
from the next best method.
"""

from __future__ import annotations

import math
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from minfer.basics.limits import clock
from minfer.basics.words import upwards
from minfer.engine.conditioning import Conditioned, condition
from minfer.engine.decomposition import only_tables
from minfer.engine.elimination import adjacency
from minfer.engine.message_state import MessageState
from minfer.errors import MinferError, RefusedError
from minfer.graph import FactorGraph
from minfer.solvers.base import LogZ, Marginals, Plain, Status
from minfer.solvers.bp import BeliefPropagation
from minfer.solvers.clamped import Clamped, MixtureState
from minfer.solvers.join_graph import Clusters, JoinGraph, clusters, order_of
from minfer.solvers.tempering import Ensembles, Tempering, refusal
from minfer.solvers.windows import Rounds, Windows

if TYPE_CHECKING:
    from minfer.certified.result import Intervals

#: Shares of the time for join graphs, windows, clamping and intervals; tempering has the rest.
FOR_JOINS, FOR_WINDOWS, FOR_CLAMPING, FOR_INTERVALS = 0.2, 0.25, 0.08, 0.08
#: Intervals are made where there are at least so many seconds in all.
LEAST_FOR_INTERVALS = 4.0
#: Round trips of each ensemble from which on its samples are a referee: with fewer, how heavy a
#: mode is has been decided by a handful of visits.
ENOUGH_TRIPS = 10
#: Standard errors of ensembles without round trips count so many times.
NO_TRIPS = 4.0
#: A message passing answer this many standard errors from the samples, on average, is within them.
WITHIN = 1.2
#: Samples with a larger mean standard error cannot tell message passing answers apart, and outvote
#: one that converged only from so many standard errors on.
COARSE, OUTVOTED = 0.01, 5.0
#: Mean distance within which message passing answers are one, and from which on samples that differ
#: are taken to have missed modes, where there are zeros between them.
UNITED, WALLED = 0.005, 0.05
#: A join graph whose last iteration still moved a probability by more is far from a fixed point.
FAR = 0.03
#: Samples stop early once no marginal's standard error is above this.
GOOD_ENOUGH = 5e-4
#: Exchanges below this share: twice the copies; below that one: no copy will ever come round.
FEW_EXCHANGES, NO_EXCHANGES = 0.2, 0.03
#: Certified intervals that are all narrower are the answer; wider ones than this say nothing.
CLOSED, VACUOUS = 1e-6, 0.99
#: Cells of all clusters of a join graph, or of a window, at most.
MOST_CELLS = 1 << 22
#: Methods of intervals, and the kernel of each: it takes a minute to compile, which an answer does
#: not wait for.
_ENTRIES = {
    "monotone": ("intervals.frontier", "sweep"),
    "walks": ("intervals.walks", "walks"),
    "boxes": ("intervals.boxes", "boxes"),
    "buckets": ("buckets.search", "advance"),
}
_SIZES = tuple(1 << b for b in (4, 6, 8, 9, 10, 11, 12, 14, 16, 18))


class Contender(NamedTuple):
    """An answer of one method."""

    name: str
    answer: Marginals
    doubt: float = math.inf  # mean distance from the answer before, where it is one of a sequence

    @property
    def is_join(self) -> bool:
        return self.name.startswith("JoinGraph")


class JudgedSamples(NamedTuple):
    """What tempering found, and how far it is to be trusted."""

    answer: Marginals
    error: float  # mean standard error of a marginal, larger where there were no round trips
    trusted: bool


def best_of(
    graph: FactorGraph, first: Marginals, deadline: float, seconds: float, exact_cells: float
) -> tuple[Marginals, str]:
    """The best answer there is by ``deadline`` (:func:`clock`), and in words what was run and why;
    ``first`` is belief propagation's, ``seconds`` the time for everything."""
    found = [Contender("BeliefPropagation", first)]
    model = condition(graph)
    intervals_at = deadline
    if seconds >= LEAST_FOR_INTERVALS:
        intervals_at -= FOR_INTERVALS * seconds
    joins = _Joins(graph, model, exact_cells, first)
    found += joins.until(min(intervals_at, clock() + FOR_JOINS * seconds))
    if found[-1].answer.status is Status.EXACT:
        exact = found[-1].answer
        return exact, f"{found[-1].name} is exact: {exact.note}"
    windows = _Windows(graph, model, exact_cells, first)
    found += windows.until(min(intervals_at, clock() + FOR_WINDOWS * seconds))
    until = min(intervals_at, clock() + FOR_CLAMPING * seconds)
    found += _clamped(graph, until)
    soft = not any(g.has_zeros for g in model.groups)
    hope = not soft or any(c.is_join and c.answer.converged for c in found)
    sequences = (joins, windows) if hope else (windows,)
    samples, why_not, more = _sampled(graph, model, intervals_at, sequences, _best(found).answer)
    if more and more[-1].answer.status is Status.EXACT:
        return more[-1].answer, f"{more[-1].name} is exact: {more[-1].answer.note}"
    found = [c for c in found if c.name not in [m.name for m in more]] + more
    ran = [c.name for c in found] + ["Tempering"] * (samples is not None)
    proven, missing = None, ""
    if seconds >= LEAST_FOR_INTERVALS:
        proven, missing = _prove(graph, max(deadline - clock(), 0.05))
    found, refuted = _unrefuted(proven, found)
    chosen, why = _choose(found, samples, soft)
    chosen, clipped = _clip(proven, chosen)
    told = [why, f"ran {', '.join(ran)}", why_not, refuted, clipped, missing]
    return chosen, "; ".join(filter(None, told))


class _Joins:
    """Join graphs of growing clusters, as far as time and cells allow; can be gone on with."""

    def __init__(
        self, graph: FactorGraph, model: Conditioned, exact_cells: float, first: Marginals
    ) -> None:
        self.graph, self.most, self.last = graph, min(exact_cells, MOST_CELLS), first
        self.sizes = list(_SIZES)
        self.order: list[int] | None = None
        self.before = 0
        try:
            self.model = only_tables(model)
        except RefusedError:
            self.sizes = []

    @property
    def can_go_on(self) -> bool:
        return bool(self.sizes)

    def until(self, then: float) -> list[Contender]:
        """What can be had by then; one that was cut short is run again when gone on with."""
        out: list[Contender] = []
        if self.sizes and self.order is None:
            self.order = order_of(adjacency(self.model), max(then - clock(), 0.0))
        while self.sizes and clock() < then:
            size = self.sizes[0]
            try:
                joined = clusters(self.model, size, self.order, then)
            except RefusedError:
                if clock() < then:
                    self.sizes = []
                return out
            if joined.cells > self.most:
                self.sizes = []
                return out
            if joined.cells != self.before:
                answer = self._run(size, joined, then)
                if answer is None:
                    return out
                doubt = _apart(answer, self.last)
                self.last = answer
                out.append(Contender(f"JoinGraph(max_cells={size})", answer, doubt))
                if answer.status is Status.TIME_LIMIT:
                    return out
                if answer.status is Status.EXACT:
                    self.sizes = []
                    return out
            self.before = joined.cells
            self.sizes.pop(0)
        return out

    def _run(self, size: int, joined: Clusters, then: float) -> Marginals | None:
        """Plain, and damped where that does not converge; None without time."""
        answer = None
        for damping in (0.0, 0.5):
            left = then - clock()
            if left < 0.01:
                break
            solver = JoinGraph(
                max_cells=size, max_iters=100, tol=1e-5, damping=damping, time_limit=left
            )
            answer = solver.run(self.graph, self.model, joined, clock())
            if answer.converged or answer.status is Status.EXACT:
                break
        return answer


class _Windows:
    """Windows of growing size; can be gone on with."""

    def __init__(
        self, graph: FactorGraph, model: Conditioned, exact_cells: float, first: Marginals
    ) -> None:
        self.began = clock()
        self.rounds = None
        cells = int(min(exact_cells, MOST_CELLS))
        if cells > 0 and isinstance(first.state, MessageState):
            self.rounds = Rounds(Windows(max_cells=cells), graph, model, first)

    @property
    def can_go_on(self) -> bool:
        return self.rounds is not None and not self.rounds.finished

    def until(self, then: float) -> list[Contender]:
        if self.rounds is None or not self.can_go_on or clock() >= then:
            return []
        self.rounds.until(then)
        if not self.rounds.largest:  # no window holds a loop: belief propagation again
            return []
        answer = self.rounds.answer(self.began)
        left = _apart(answer, self.rounds.first) > UNITED  # else it says nothing of its own
        return [Contender("Windows", answer, float(self.rounds.shift.mean()) if left else math.inf)]


def _clamped(graph: FactorGraph, until: float) -> list[Contender]:
    """The best mixture over a few variables that time allows."""
    left = until - clock()
    if left < 0.02:
        return []
    plain = BeliefPropagation(max_iters=200, tol=1e-4)
    try:
        return [Contender("Clamped", Clamped(plain, k=6, time_limit=left)(graph))]
    except MinferError:
        return []


def _sampled(
    graph: FactorGraph,
    model: Conditioned,
    until: float,
    sequences: tuple[_Joins | _Windows, ...],
    start: Marginals,
) -> tuple[JudgedSamples | None, str, list[Contender]]:
    """Samples, or why there are none; and what the sequences made of the time meanwhile: they go on
    at half time if no round trip was seen, at once if copies hardly exchange."""
    if why := refusal(model):
        return None, f"Tempering {why}", _go_on(sequences, until)
    left = until - clock()
    if left < 0.05:
        return None, "no time was left for Tempering", []
    settings = Tempering(n_sweeps=1 << 40, burn_in=2000, time_limit=left)
    run = Ensembles(settings, graph, model, start, clock())
    run.burn_in()
    if run.rate.min(initial=1.0) < FEW_EXCHANGES and left > 0.5:
        more = replace(settings, n_replicas=32, time_limit=until - clock())
        run = Ensembles(more, graph, model, start, clock())
        run.burn_in()
    run.forget()
    larger: list[Contender] = []
    if run.rate.min(initial=1.0) >= NO_EXCHANGES:
        run.deadline = (clock() + until) / 2
        run.sample(GOOD_ENOUGH)
    if not run.settled:
        if not run.sums.trips.any():
            larger = _go_on(sequences, until)
        if clock() < until:
            run.deadline = until
            run.sample(GOOD_ENOUGH)
    if not run.sums.valid[:, 0].any():
        return None, "Tempering's copies hardly ever changed places", larger
    try:
        answer = run.result(True)
    except RefusedError:
        return None, "Tempering met no allowed assignment", larger
    chains = run.chain_probs()
    if len(chains) < 2:
        return None, "Tempering met allowed assignments in one ensemble only", larger
    each = chains.std(axis=0, ddof=1) / math.sqrt(len(chains))
    trusted = bool((run.sums.trips >= ENOUGH_TRIPS).all()) or run.settled
    error = max(float(each.mean()) if len(each) else 0.0, run.least_error)
    return JudgedSamples(answer, error * (1.0 if trusted else NO_TRIPS), trusted), "", larger


def _go_on(sequences: tuple[_Joins | _Windows, ...], until: float) -> list[Contender]:
    """What they come to, each with its share of the time that is left."""
    able = [s for s in sequences if s.can_go_on]
    out: list[Contender] = []
    for k, sequence in enumerate(able):
        out += sequence.until(clock() + (until - clock()) / (len(able) - k))
        if out and out[-1].answer.status is Status.EXACT:
            break
    return out


def _choose(
    found: list[Contender], samples: JudgedSamples | None, soft: bool = False
) -> tuple[Marginals, str]:
    """The answer, with an error estimate, and why it is taken; ``soft``: a model without zeros."""
    united = None if soft else _united(found)
    if samples is not None and united and _apart(united.answer, samples.answer) > WALLED:
        return _with_error(united.answer, [samples.answer]), (
            f"{united.name}'s answer: belief propagation and join graphs of several sizes agree on "
            "it, and with zeros between modes Tempering, which is far off, may have missed some"
        )
    if samples is not None and samples.trusted:
        return _judged(found, samples)
    best = _best(found)
    others = [c.answer for c in found if c is not best and not (_plain(c) and _plain(best))]
    why = f"{best.name}'s answer"
    if samples is not None:
        far = _apart(best.answer, samples.answer)
        at_rest = best.doubt == math.inf and best.answer.converged
        if soft and not at_rest and samples.error < min(far, best.doubt):
            return _doubted(samples.answer), (
                "Tempering's answer, though its copies made few round trips: no other vouches for "
                "itself as well"
            )
        if samples.error < 0.5 * far and samples.error < 0.05:
            return _doubted(samples.answer), (
                "Tempering's answer, though its copies made few round trips: the others lie far off"
            )
        why += ": Tempering's copies made too few round trips to judge it"
    answer = replace(best.answer, error_estimate=None) if _plain(best) else best.answer
    return _with_error(answer, others), why


def _judged(found: list[Contender], samples: JudgedSamples) -> tuple[Marginals, str]:
    """The answer that samples with round trips point to, and why."""
    off = [_apart(c.answer, samples.answer) for c in found]
    nearest = int(np.argmin(off))
    coarse = samples.error > COARSE
    doubtful = coarse and any(c.answer.converged for c in found)
    within = (OUTVOTED if doubtful else WITHIN) * samples.error
    if off[nearest] > within:
        apart = f"{found[nearest].name}, the nearest of the others, is off by {off[nearest]:.2g}"
        good = f", good to about {samples.error:.2g} on average" * samples.answer.converged
        return samples.answer, f"Tempering's answer{good}; {apart}"
    best = found[nearest]
    if coarse:  # it cannot tell them apart: by what is known of the methods
        near = [c for c, d in zip(found, off) if d <= within and c.doubt < math.inf]
        best = _best(near) if near else _best(found) if doubtful else best
    says = "it agrees with Tempering, whose own error is"
    if doubtful:
        says = "Tempering is too coarse to refute it, its own error is"
    why = f"{best.name}'s answer: {says} about {samples.error:.2g} on average"
    return _with_error(best.answer, [samples.answer]), why


def _best(found: list[Contender]) -> Contender:
    """By what the methods say of themselves: the largest join graph that converged, or windows,
    whichever moved less in its last step; join graphs that still move far come after others."""
    joins = [c for c in found if c.is_join]
    settled = [c for c in joins if c.answer.converged][-1:]
    settled += [c for c in found if c.name == "Windows"]
    if settled:
        return min(settled, key=lambda c: c.doubt)
    if found[0].answer.converged:
        joins = [c for c in joins if c.answer.residuals[-1:].max(initial=0.0) < FAR]
    mixed = [c for c in found if c.name == "Clamped" and c.answer.converged]
    return (joins or mixed or found[:1])[-1]


def _united(found: list[Contender]) -> Contender | None:
    """The last join graph, if belief propagation and several of them converged to one answer."""
    settled = [c for c in found if c.is_join and c.answer.converged]
    if len(settled) < 2 or not found[0].answer.converged:
        return None
    last = settled[-1]
    near = [_apart(c.answer, last.answer) <= UNITED for c in (found[0], *settled)]
    return last if all(near) else None


def _plain(c: Contender) -> bool:
    """Whether it is belief propagation of the whole model, which agrees with itself: windows that
    never left its answer are, too."""
    state = c.answer.state
    alone = isinstance(state, MixtureState) and len(state.answers) == 1
    same = c.name == "Windows" and c.doubt == math.inf
    return c.name == "BeliefPropagation" or alone or same


def _apart(one: Marginals, other: Marginals) -> float:
    return float(np.abs(one.probs - other.probs).mean()) if len(one.probs) else 0.0


def _doubted(answer: Marginals) -> Marginals:
    """Samples without enough round trips, and so with a larger error estimate than their own."""
    own = answer.error_estimate
    return answer if own is None else replace(answer, error_estimate=min(NO_TRIPS * own, 1.0))


def _with_error(answer: Marginals, others: list[Marginals]) -> Marginals:
    """The answer with its largest distance from the nearest of some others as error estimate; from
    the farthest where it has not converged: then that another is near says little."""
    far = [float(np.abs(answer.probs - o.probs).max(initial=0.0)) for o in others]
    pick = min if answer.converged or answer.status is Status.EXACT else max
    return replace(answer, error_estimate=pick(far)) if far else answer


def _prove(graph: FactorGraph, seconds: float) -> tuple[Intervals | None, str]:
    """Certified intervals and bounds of log Z by methods that are compiled; and which are not."""
    from minfer.certified.search import applicable, intervals
    from minfer.kernels.compiling.jit import ready

    able = applicable(condition(graph))
    wanted = [name for name in _ENTRIES if name in able]
    kernels = {name: import_module(f"minfer.kernels.{_ENTRIES[name][0]}") for name in wanted}
    methods = [name for name in wanted if ready(getattr(kernels[name], _ENTRIES[name][1]))]
    missing = [name for name in wanted if name not in methods]
    about = ""
    if missing:
        about = (
            f"not clipped to certified intervals by {', '.join(missing)}, whose kernels are not "
            "compiled yet (`minfer warmup intervals`)"
        )
    if not methods:
        return None, about
    try:
        return intervals(graph, seconds, methods=methods, workers=1), about
    except MinferError:
        return None, about


def _unrefuted(proven: Intervals | None, found: list[Contender]) -> tuple[list[Contender], str]:
    """Those that may be the best: without answers that are off by more, on average and at least,
    than another is at most."""
    if proven is None or len(found) < 2:
        return found, ""
    errors = [[float(e.mean()) for e in proven.error_bounds(c.answer)] for c in found]
    most = min(most for _, most in errors)
    left = [c for c, (least, _) in zip(found, errors) if least <= most]
    gone = ", ".join(c.name for c in found if c not in left)
    return left, f"{gone} refuted by certified intervals" if gone else ""


def _clip(proven: Intervals | None, answer: Marginals) -> tuple[Marginals, str]:
    """The answer moved into certified intervals where it lies outside, log Z too, and how far off
    it can be; where nothing is left open, the intervals' own answer."""
    if proven is None:
        return answer, ""
    width, bounds = proven.width, proven.log_z_bounds
    off = float(proven.error_bounds(proven.clip(answer))[1].max(initial=0.0))
    said = f"no probability is off by more than {upwards(off)} (rigorous)" if off < VACUOUS else ""
    if len(width) and width.max() <= CLOSED:
        middle = proven.midpoint()
        state = Plain(bounds[1] if bounds else math.nan)
        kind = LogZ.UPPER if bounds else LogZ.NONE
        answer = replace(middle, status=Status.BOUND, state=state, log_z_kind=kind)
        return answer, f"certified intervals close around it: {said}"
    log_z = answer.log_z
    if bounds is not None:
        answer = replace(answer, proven_log_z=bounds)
    p = answer.probs
    outside = (p < proven.lo - 1e-9) | (p > proven.hi + 1e-9)
    wrong_z = bounds is not None and not bounds[0] <= log_z <= bounds[1] and math.isfinite(log_z)
    if not outside.any() and not wrong_z:
        return answer, said
    if wrong_z and bounds is not None:
        log_z = min(max(log_z, bounds[0]), bounds[1])
        said = f"log Z, which they refute, moved into its bounds; {said}".rstrip("; ")
    if outside.any():
        moved = int(np.logical_or.reduceat(outside, proven.graph._offsets[:-1]).sum())
        answer = replace(answer, probs=proven.clip(answer).probs)
        told = f"{moved:,} of {len(proven):,} marginals moved into certified intervals"
        said = f"{told}; {said}" if said else told
    return replace(answer, state=Plain(log_z), log_z_kind=LogZ.ESTIMATE), said
