"""Several methods for one model, in the time there is: what ``Auto(time_limit=...)`` runs.

Where an exact answer does not fit, belief propagation comes first, then, with what is left,

* join graphs of growing clusters (:class:`~minfer.JoinGraph`): they hold short loops and zeros,
* clamping (:class:`~minfer.Clamped`), where runs from other starts disagree: a few modes,
* parallel tempering (:class:`~minfer.Tempering`) for the rest of the time: soft strong couplings,
* certified intervals (:func:`minfer.intervals`), into which the answer is clipped.

Tempering is the referee, because it alone knows its error: the standard error s over independent
ensembles. While it has seen round trips it is right within about s, so a message passing answer
that lies further off is wrong, and one within s of it is taken, since it carries no noise. Without
round trips s is not to be believed (it is multiplied by ``NO_TRIPS``), and the answer is that of
the largest join graph that converged, or of belief propagation. Whatever is taken is an estimate;
its error estimate is the samples' own, or how far it lies from the next best method.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.conditioning import Conditioned, condition
from minfer.decomposition import only_tables
from minfer.elimination import adjacency
from minfer.errors import MinferError, RefusedError
from minfer.graph import FactorGraph
from minfer.solvers.base import LogZ, Marginals, Plain, Status
from minfer.solvers.bp import BeliefPropagation
from minfer.solvers.clamped import Clamped
from minfer.solvers.iteration import clock
from minfer.solvers.join_graph import JoinGraph, clusters, order_of
from minfer.solvers.tempering import Ensembles, Tempering, refusal

#: Shares of the time for join graphs, clamping and intervals; tempering has the rest.
FOR_JOINS, FOR_CLAMPING, FOR_INTERVALS = 0.2, 0.08, 0.08
#: Intervals are made where there are at least so many seconds in all.
LEAST_FOR_INTERVALS = 4.0
#: Standard errors of ensembles without round trips count so many times.
NO_TRIPS = 4.0
#: A message passing answer this many standard errors from the samples, on average, is within them.
WITHIN = 1.2
#: Samples with a larger mean standard error cannot tell message passing answers apart.
COARSE = 0.01
#: Samples stop early once no marginal's standard error is above this.
GOOD_ENOUGH = 5e-4
#: Exchanges below this share: twice the copies.
FEW_EXCHANGES = 0.2
#: Cells of all clusters of a join graph, at most.
MOST_CELLS = 1 << 22
_SIZES = tuple(1 << b for b in (4, 6, 8, 9, 10, 11, 12, 14, 16, 18))


class Candidate(NamedTuple):
    """An answer of one method."""

    name: str
    answer: Marginals


class Samples(NamedTuple):
    """What tempering found, and how far it is to be trusted."""

    answer: Marginals
    error: float  # mean standard error of a marginal, larger where there were no round trips
    trusted: bool


def best_of(
    graph: FactorGraph, first: Marginals, deadline: float, seconds: float, exact_cells: float
) -> tuple[Marginals, str]:
    """The best answer there is by ``deadline`` (:func:`clock`), and in words what was run and why.

    ``first`` is belief propagation's, ``seconds`` the time for everything, ``exact_cells`` bounds
    the tables of join graphs, too.
    """
    found = [Candidate("BeliefPropagation", first)]
    said: list[str] = []
    model = condition(graph)
    intervals_at = deadline
    if seconds >= LEAST_FOR_INTERVALS:
        intervals_at -= FOR_INTERVALS * seconds
    found += _joins(graph, model, min(intervals_at, clock() + FOR_JOINS * seconds), exact_cells)
    if found[-1].answer.status is Status.EXACT:
        exact = found[-1].answer
        return exact, f"{found[-1].name} is exact: {exact.note}"
    until = min(intervals_at, clock() + FOR_CLAMPING * seconds)
    found += _clamped(graph, until)
    samples, why_not = _sampled(graph, model, intervals_at)
    chosen, why = _choose(found, samples)
    said.append(f"ran {', '.join([c.name for c in found] + ['Tempering'] * (samples is not None))}")
    if why_not:
        said.append(why_not)
    said.append(why)
    if seconds >= LEAST_FOR_INTERVALS:
        chosen, clipped = _clip(graph, chosen, max(deadline - clock(), 0.05))
        said += [clipped] if clipped else []
    return chosen, "; ".join(said)


def _joins(
    graph: FactorGraph, model: Conditioned, until: float, exact_cells: float
) -> list[Candidate]:
    """Join graphs of growing clusters, as far as time and cells allow."""
    try:
        model = only_tables(model)
    except RefusedError:
        return []
    order = order_of(adjacency(model))
    most = min(exact_cells, MOST_CELLS)
    out: list[Candidate] = []
    before = 0
    for size in _SIZES:
        if clock() > until:
            break
        try:
            joined = clusters(model, size, order)
        except RefusedError:
            break
        if joined.cells > most:
            break
        if joined.cells == before:
            continue
        before = joined.cells
        for damping in (0.0, 0.5):
            left = until - clock()
            if left < 0.01:
                return out
            solver = JoinGraph(size, 100, 1e-5, damping, left)
            try:
                answer = solver.run(graph, model, joined, time.perf_counter())
            except RefusedError:
                return out
            if answer.converged:
                break
        out.append(Candidate(f"JoinGraph(max_cells={size})", answer))
        if answer.status is Status.EXACT:
            break
    return out


def _clamped(graph: FactorGraph, until: float) -> list[Candidate]:
    """The best mixture over a few variables that time allows."""
    left = until - clock()
    if left < 0.02:
        return []
    plain = BeliefPropagation(200, 1e-4)
    try:
        return [Candidate("Clamped", Clamped(plain, 6, time_limit=left)(graph))]
    except MinferError:
        return []


def _sampled(graph: FactorGraph, model: Conditioned, until: float) -> tuple[Samples | None, str]:
    if why := refusal(model):
        return None, f"Tempering {why}"
    left = until - clock()
    if left < 0.05:
        return None, "no time was left for Tempering"
    settings = Tempering(n_sweeps=1 << 40, burn_in=2000, time_limit=left)
    run = Ensembles(settings, graph, model, None, clock())
    run.burn_in()
    if run.rate.min(initial=1.0) < FEW_EXCHANGES and left > 0.5:
        more = replace(settings, n_replicas=32, time_limit=until - clock())
        run = Ensembles(more, graph, model, None, clock())
        run.burn_in()
    run.forget()
    run.sample(GOOD_ENOUGH)
    try:
        answer = run.result(True)
    except RefusedError:
        return None, "Tempering met no allowed assignment"
    chains = run.chain_probs()
    each = chains.std(axis=0, ddof=1) / math.sqrt(len(chains))
    trusted = bool((run.trips >= 2).all()) or run.settled
    error = float(each.mean()) if len(each) else 0.0
    return Samples(answer, error * (1.0 if trusted else NO_TRIPS), trusted), ""


def _choose(found: list[Candidate], samples: Samples | None) -> tuple[Marginals, str]:
    """The answer, with an error estimate, and why it is taken."""
    joins = [c for c in found if c.name.startswith("JoinGraph")]
    if samples is not None and samples.trusted:
        off = [_apart(c.answer, samples.answer) for c in found]
        nearest = int(np.argmin(off))
        if off[nearest] > WITHIN * samples.error:
            apart = (
                f"{found[nearest].name}, the nearest of the others, is off by {off[nearest]:.2g}"
            )
            why = f"Tempering's answer, good to about {samples.error:.2g} on average; {apart}"
            return samples.answer, why
        best = found[nearest]
        if samples.error > COARSE:  # it cannot tell them apart: by what is known of the methods
            within = [c for c, d in zip(found, off) if d <= WITHIN * samples.error and c in joins]
            best = ([c for c in within if c.answer.converged] or within or [best])[-1]
        why = (
            f"{best.name}'s answer: it agrees with Tempering, whose own error is about "
            f"{samples.error:.2g} on average"
        )
        return _with_error(best.answer, [samples.answer]), why
    able = [c for c in joins if c.answer.converged] or joins or found[:1]
    best_join = able[-1]
    others = [c.answer for c in (*joins, found[0]) if c is not best_join]
    if samples is not None:
        if samples.error < 0.5 * _apart(best_join.answer, samples.answer) and samples.error < 0.05:
            return samples.answer, (
                "Tempering's answer, though its copies made few round trips: the others lie far off"
            )
        why = f"{best_join.name}'s answer: Tempering's copies made too few round trips to judge it"
    else:
        why = f"{best_join.name}'s answer"
    return _with_error(best_join.answer, others), why


def _apart(one: Marginals, other: Marginals) -> float:
    return float(np.abs(one.probs - other.probs).mean()) if len(one.probs) else 0.0


def _with_error(answer: Marginals, others: list[Marginals]) -> Marginals:
    """The answer with its largest distance from the nearest of some others as error estimate."""
    far = [float(np.abs(answer.probs - o.probs).max(initial=0.0)) for o in others]
    return replace(answer, error_estimate=min(far)) if far else answer


def _clip(graph: FactorGraph, answer: Marginals, seconds: float) -> tuple[Marginals, str]:
    """Moved into certified intervals where it lies outside."""
    from minfer.certified.search import intervals

    try:
        found = intervals(graph, seconds, methods=("monotone", "walks", "boxes", "hull"), workers=1)
    except MinferError:
        return answer, ""
    outside = _outside(graph, answer.probs, found.lo, found.hi)
    if not outside.any():
        return answer, ""
    probs = found.clip(answer).probs
    return (
        replace(answer, probs=probs, state=Plain(answer.log_z), log_z_kind=LogZ.ESTIMATE),
        f"{int(outside.sum()):,} of {graph.n_variables:,} marginals moved into certified intervals",
    )


def _outside(graph: FactorGraph, p: NDArray, lo: NDArray, hi: NDArray) -> NDArray[np.bool_]:
    """Variables with a state outside its interval, (V,)."""
    if not graph.n_variables:
        return np.zeros(0, dtype=bool)
    return np.logical_or.reduceat((p < lo - 1e-9) | (p > hi + 1e-9), graph._offsets[:-1])
