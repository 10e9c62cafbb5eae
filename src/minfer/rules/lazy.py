"""Lazy grounding: only the groundings that can matter are ever built.

A factor matters by its gain (:mod:`minfer.rules.blocks`); those that reach a threshold under given
marginals are found by :mod:`minfer.rules.selection`. Marginals begin with priors, rules about
single atoms and functional constraints, which are always kept. A second round selects with the
marginals of the first and keeps both (selecting afresh drops what it has just satisfied).

*Summed bands*: first-order messages of what is not kept but has a gain above a lower threshold are
put into the fields, the compensation of the method. With a tolerance they are summed again, from
the marginals they led to, until they move nothing; the band stays that of the kept factors alone,
or it would be empty as soon as it has done its work. Then the threshold is lowered until two
answers agree, each from a selection of its own, so that they check each other. What neither sees is
checked in the end: what is below both bands, by messages of *all* groundings (where these can be
listed), and whether belief propagation has another answer, from other starts: evidence, no proof.

A hard rule has an infinite gain unless it is sure to hold. It is judged by the reverse divergence,
-log(1 - u), and no divergence is reported then.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.basics.words import counted
from minfer.errors import RefusedError
from minfer.rules.blocks import Floats
from minfer.rules.ground import Grounder, Grounding
from minfer.rules.model import Model, build
from minfer.rules.plan import count_part
from minfer.rules.selection import Kept, Selector, union
from minfer.solvers.base import Status

THRESHOLD = 1e-3  # where lowering begins
TOLERANCE = 1e-3  # mean difference of two answers that is good enough
LOWER = 10.0  # the next threshold
BAND = 100.0  # how far below the threshold messages are summed
LEAST = 1e-9  # thresholds are not lowered further
MAX_CHECKED = 20_000_000  # groundings up to which all are summed before answers count as agreed
PULL = 6.0  # log-odds by which atoms are pulled for another start
STARTS = 8  # others that an answer is compared with,
STARTS_UP_TO = 20_000  # ... where there are no more factors than this; else
FEW_STARTS = 3  # ... with a tolerance, and none without
MAX_SUMS = 10  # times that a band is summed until it moves nothing
LEAST_STEP = 0.125  # of a sum that is made again
AUTO_FROM = 2_000_000  # groundings from which lazy grounding may pay
AUTO_RATIO = 20.0  # ... if there are so many for each row of the tables
AUTO_UP_TO = 1e11  # more are a cross product that nobody meant, and refused with their number


@dataclass
class Lazily:
    """How an answer by lazy grounding came about."""

    threshold: float  # the last one: groundings with a gain of so much are factors
    band: float  # the gain from which messages of others were summed
    kept: int = 0  # factors built, with those over one atom left out
    possible: float = 0.0  # groundings there are,
    exact: bool = True  # ... or, if this is false, at most
    rounds: list[int] = field(default_factory=list)  # kept factors after each round
    thresholds: list[float] = field(default_factory=list)
    differences: list[float] = field(default_factory=list)  # of each answer from the one before it,
    largest: list[float] = field(default_factory=list)  # mean and largest, over unknown atoms
    tolerance: float | None = None  # the mean difference asked for; None: one threshold alone
    #: Whether two answers agreed to it, sums moved the last by no more than half of it, and other
    #: starts gave the same answer (exact ones need none); None where not asked.
    agreed: bool | None = None
    untried: bool = False  # whether that is false only as no other start was tried (``starts=0``)
    checked: bool = False  # whether these were sums of all groundings: nothing was left out of them
    starts: int = 0  # from how many others belief propagation was run on the last graph
    another: float = 0.0  # how far the farthest answer from there was, on average
    several: bool = False  # whether that is more than the tolerance (1e-3 where none was given)
    moved: float = 0.0  # mean change of the probabilities by the last sums of messages
    notes: list[str] = field(default_factory=list)  # what could not be done
    grounding: Grounding = field(default_factory=Grounding)

    @property
    def mean_error_estimate(self) -> float:
        """Mean difference of the last two answers; or, if more, how far the last sums moved it."""
        return max(self.differences[-1], self.moved) if self.differences else self.moved

    def __str__(self) -> str:
        most = "" if self.exact else "at most "
        text = f"threshold {self.threshold:g}: {self.kept:,} factors of {most}"
        text += f"{self.possible:,.0f} groundings"
        if self.differences:
            text += f"; differs by {self.differences[-1]:.2g} on average from the answer before it"
        if self.agreed is False and not (self.several or self.untried):
            text += f", more than the {self.tolerance:g} asked for"
        if (self.agreed or self.untried) and not self.checked:
            text += f"; gains below {self.band:g} are in neither"
        if self.starts and not self.several:
            text += f"; {counted(self.starts, 'other start')} led to the same answer"
        if self.untried:
            text += "; no other start was tried"
        return "; ".join([text, *self.notes])


def worth_it(grounder: Grounder) -> bool:
    """Whether groundings are many, far more than the rows they come from, and not absurd."""
    rows = sum(p.n for p in grounder.store.predicates.values())
    total = 0.0
    enough = max(AUTO_FROM, AUTO_RATIO * rows)
    for part in grounder.parts:
        if part.kind == "clause":
            total += count_part(grounder, part, 0.0, enough=enough - total)[0]
    return enough < total <= AUTO_UP_TO


def infer_lazily(
    grounder: Grounder,
    solver: Callable[..., Any],
    threshold: float | None = None,
    tolerance: float | None = None,
    rounds: int = 2,
    sums: int | None = None,
    max_groundings: float = math.inf,
    rough: Callable[..., Any] | None = None,
    starts: int | None = None,
) -> tuple[Any, Lazily]:
    """See :meth:`minfer.Rules.infer`; ``rough`` solves in rounds before the last."""
    if threshold is None and tolerance is None:
        tolerance = TOLERANCE
    gamma = THRESHOLD if threshold is None else threshold
    most = sums if sums is not None else 1 if tolerance is None else MAX_SUMS
    selector = Selector(grounder, max_groundings)
    how = Lazily(
        gamma, gamma / BAND, possible=selector.possible, exact=selector.exact, tolerance=tolerance
    )
    kept: Kept = {}
    seed = build(grounder, selector.grounding(kept))
    marginals = (rough or solver)(seed.graph)
    first = _true(marginals)
    free = np.isfinite(seed.log_odds)
    del seed
    before: Floats | None = None
    everything = False  # whether sums are of all groundings
    last: Any = None
    model: Any = None
    grounding: Any = None
    while True:
        n, own = -1, first  # what kept factors say, without sums
        if tolerance is None:
            del first  # there is one threshold
        for _ in range(rounds):
            try:
                new = selector.select(own, gamma)
            except RefusedError:
                if before is None:
                    raise
                how.notes.append(f"more than {max_groundings:,.0f} factors at {gamma:g}")
                how.agreed = False
                return last, how
            kept = union(kept, new)
            now = sum(map(len, kept.values()))
            how.rounds.append(now)
            if now == n:
                break
            n = now
            # two of them at a time would be most of the memory
            marginals = model = grounding = sums_of = None
            grounding = selector.grounding(kept)
            model = build(grounder, grounding)
            marginals = (rough if rough is not None and most else solver)(model.graph)
            own = _true(marginals)
        band = 0.0 if everything else gamma / BAND
        how.moved = 0.0
        sums_of = _Sums(selector, model, solver, kept, own, marginals)
        marginals = None  # sums replace it
        p = sums_of.until_still(band, most, tolerance, free)
        if most:
            how.moved = sums_of.moved
        how.threshold, how.band = gamma, band if most else gamma
        how.kept, how.grounding = model.graph.n_factors, grounding
        how.thresholds.append(gamma)
        if selector.skipped:
            note = f"too many groundings to sum: {', '.join(dict.fromkeys(selector.skipped))}"
            how.notes = list(dict.fromkeys([*how.notes, note]))
        last = sums_of.marginals
        if before is not None:
            mean, largest = _apart(p, before, free)
            how.differences.append(mean)
            how.largest.append(largest)
        if tolerance is None:
            if last.status is Status.CONVERGED:  # others do not depend on where they start
                _compare_starts(how, sums_of, solver, rough or solver, free, starts)
            return last, how
        still = most == 0 or how.moved <= tolerance / 2
        if how.differences and how.differences[-1] <= tolerance and still:
            if most and selector.possible <= MAX_CHECKED:
                if not everything:
                    p = sums_of.until_still(0.0, 1, tolerance, free)
                    how.moved, how.band, everything = sums_of.moved, 0.0, True
                    still = how.moved <= tolerance / 2
                how.checked = still and not selector.skipped
                if not still:  # what is below the band matters: it is in all answers from now on
                    p = sums_of.until_still(0.0, most, tolerance, free)
                    how.moved = sums_of.moved
                last = sums_of.marginals
            if still:
                if last.status is not Status.EXACT:
                    _compare_starts(how, sums_of, solver, rough or solver, free, starts)
                    how.untried = not how.starts
                how.agreed = not (how.several or how.untried)
                return last, how
        if gamma / LOWER < LEAST:
            how.agreed = False
            return last, how
        before, gamma = p, gamma / LOWER


def _compare_starts(
    how: Lazily,
    found: _Sums,
    solver: Callable[..., Any],
    rough: Callable[..., Any],
    free: NDArray[np.bool_],
    starts: int | None,
) -> None:
    """Run the solver from other starts, until one of them leads elsewhere."""
    if starts is None:
        few = 0 if how.tolerance is None else FEW_STARTS
        starts = STARTS if found.graph.n_factors <= STARTS_UP_TO else few
    enough = TOLERANCE if how.tolerance is None else how.tolerance
    p = _true(found.marginals)
    rng = np.random.default_rng(0)
    for k in range(starts):  # atoms pulled to true, to false, then at random (the same always)
        signs = np.full(len(p), (1.0, -1.0)[k]) if k < 2 else rng.choice((-1.0, 1.0), len(p))
        pull = np.zeros((len(p), 2))
        pull[free, 1] = PULL * signs[free]
        pulled = rough(found.graph.tilt(pull.ravel()))
        there = solver(found.graph, start=pulled)
        away = _apart(_true(there), p, free)[0]
        how.starts += 1
        how.another = max(how.another, away)
        if away > enough:
            how.several = True
            how.notes.append(
                "belief propagation has several answers: from another start one that is "
                f"{away:.2g} away on average"
                if there.converged
                else "belief propagation does not converge from another start, and is "
                f"{away:.2g} away on average"
            )
            return


@dataclass
class _Sums:
    """An answer and the sums of messages that are in it, made again from the answer they led to."""

    selector: Selector
    model: Model
    solver: Callable[..., Any]
    kept: Kept
    own: Floats  # what kept factors say
    marginals: Any
    p: Floats | None = None  # with sums; None: there are none yet
    moved: float = 0.0

    def __post_init__(self) -> None:
        self.graph = self.model.graph

    def until_still(
        self, band: float, times: int, tolerance: float | None, free: NDArray[np.bool_]
    ) -> Floats:
        """Sum until that moves the answer by no more than half the tolerance.

        Sums may overshoot: of many weak messages against an atom each is made as if the others were
        not there. Where the answer moves by more than half of what it moved before, steps are
        halved from then on.
        """
        step, total, before = 1.0, np.zeros(len(self.own)), math.inf
        for _ in range(times):
            new = self.selector.sums(self.own, self.kept, band, self.p)
            total += step * (new - total)
            del new
            fields = np.zeros((len(total), 2))
            fields[:, 1] = np.where(np.isfinite(self.model.log_odds), total, 0.0)
            self.graph = self.model.graph.tilt(fields.ravel())
            self.marginals = self.solver(self.graph, start=self.marginals)
            then = _true(self.marginals)
            self.moved = _apart(then, self.own if self.p is None else self.p, free)[0] / step
            self.p = then
            if tolerance is not None and self.moved <= tolerance / 2:
                break
            if self.moved > before / 2:
                step = max(step / 2, LEAST_STEP)
            before = self.moved
        return self.own if self.p is None else self.p


def _apart(p: Floats, q: Floats, free: NDArray[np.bool_]) -> tuple[float, float]:
    """Mean and largest difference over atoms that are not known."""
    away = np.abs(p - q)[free]
    return (float(away.mean()), float(away.max())) if len(away) else (0.0, 0.0)


def _true(marginals: Any) -> Floats:
    return np.ascontiguousarray(marginals.probs.reshape(-1, 2)[:, 1])
