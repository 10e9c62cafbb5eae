"""Relaxed marginal inference: score, add, infer, and again (Riedel & Smith 2010).

    repeat:  score what is ignored under the current answer
             add what the objective picks; bring the corrections of the rest up to date
             infer, starting from the last answer
    until    nothing is worth adding, the answer stands still, or time or rounds are up

Algorithm 1 (:func:`minfer.infer`) is one round of it. Under a time limit the graph grows fourfold
per round, so that there is an early answer and the last round costs most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from minfer.basics import limits
from minfer.basics.checks import told
from minfer.errors import RefusedError, SettingsError
from minfer.reduction import seeds
from minfer.reduction.compensation import Compensation
from minfer.reduction.compensation import compensate as compensation_of
from minfer.reduction.gains import factor_scores
from minfer.reduction.objectives import MinDivergence, SelectionObjective
from minfer.reduction.parts_of_infer import (
    Clock,
    Damper,
    Seed,
    check_callable,
    check_certify,
    edge_weights,
    seed_mask,
    with_edge_weights,
)
from minfer.reduction.recipes import Iterated, check_recipe, takes_recipe
from minfer.reduction.result import OUT_OF_TIME, Result, Step
from minfer.solvers.base import Solver, Status, inner
from minfer.solvers.bp import BeliefPropagation

if TYPE_CHECKING:
    from minfer.graph import FactorGraph

ITERATED = Iterated()
_SPREAD = 4  # rounds over which a budget of factors is spent, so that re-scoring has a say


@takes_recipe
def relax(
    model: FactorGraph,
    objective: SelectionObjective,
    solver: Solver | None = None,
    *,
    recipe: Iterated = ITERATED,
    seed: Seed = seeds.unary_and_globals,
    on_step: Callable[[Step], Any] | None = None,
    certify: float | None = None,
) -> Result:
    """Iterate scoring and adding; the answer so far when a limit is reached.

    Parameters
    ----------
    model, objective, solver, seed, certify
        As for :func:`minfer.infer`. ``max_factors`` of the objective is for all rounds together.
    recipe : Iterated
        Rounds and limits.
    on_step : function of a Step, optional
        Called after every round.

    Examples
    --------
    >>> import numpy as np
    >>> from minfer import FactorGraph, MinJoint, relax
    >>> model = FactorGraph.grid(2 * np.random.default_rng(0).normal(size=(16, 16)), 1.0)
    >>> result = relax(model, MinJoint(factor_cost=0.01))
    >>> result.stopped
    'the answer stands still'
    """
    check_recipe(recipe, Iterated)
    check_certify(certify)
    solver = BeliefPropagation() if solver is None else solver
    check_callable(objective, solver)
    score, rounds, compensate = recipe.score_kind, recipe.rounds, recipe.compensate
    time_limit, max_error, max_bound = recipe.time_limit, recipe.max_error, recipe.max_bound
    if on_step is not None and not callable(on_step):
        raise SettingsError(f"on_step must be a function of a Step, not {told(on_step)}")
    clock, began = Clock(), limits.clock()
    mask = seed_mask(model, seed)
    start = solver(model.keep(mask))
    clock.lap("seed")
    keep, answer, gains = mask.copy(), start, np.full(model.n_factors, np.inf)
    left: Compensation | None = None
    part, damper = model, Damper(recipe.damping)
    trace: list[Step] = []
    stopped, previous = "the rounds are used up", limits.clock()
    settled = False
    for r in range(rounds):
        scores = factor_scores(model, answer, keep, score)
        gains[~keep] = scores[~keep]
        clock.lap("scores")
        added = int((keep & ~mask & np.isfinite(gains)).sum())
        picked = _this_round(objective, added, max(1, min(_SPREAD, rounds) - r))(scores)
        if time_limit is not None:
            picked &= MinDivergence(model.n_variables * 4**r)(scores)
        bigger = keep | picked
        grown = bool((bigger & ~keep).any())
        clock.lap("select")
        if not grown and (not compensate or bigger.all()) and r:
            stopped = "every factor is kept" if bigger.all() else "nothing left is worth adding"
            settled = True
            break
        rest = left
        if bigger.all():
            rest = None  # nobody is left to leave anything behind
        elif compensate and rest is None:
            rho = edge_weights(solver, model, bigger)
            rest = compensation_of(model, answer.probs, bigger, store=True, rho=rho)
        elif rest is not None:
            rest = rest.refreshed(answer.probs, damper.share, bigger)
        clock.lap("compensate")
        part = model.keep(bigger) if grown or not r else part
        run = _limited(solver, time_limit, began)
        run = run if rest is None else with_edge_weights(run, rest.rho, model)
        try:
            new = run(part if rest is None else part.tilt(rest.field), answer)
        except RefusedError as refusal:
            stopped = f"the solver refused the next step: {refusal}"
            break
        clock.lap("infer")
        change = damper.look(answer, new)
        still = not grown and damper.largest <= max_error
        settled = still or bool(bigger.all())
        keep, left, answer = bigger, rest, new
        result = Result(model, answer, start, keep, mask, gains.copy(), score,
                        dict(clock.laps), left)  # fmt: skip
        bound = result.bound if max_bound is not None else None
        now = limits.clock()
        step = Step(now - began, result.n_added, result.divergence, change, bound)
        trace.append(step)
        if on_step is not None:
            on_step(step)
        if max_bound is not None and bound is not None and bound <= max_bound:
            stopped = "the bound is within its limit"
            break
        if still:
            stopped = "the answer stands still"
            break
        spent, last, previous = now - began, now - previous, now
        if time_limit is not None and (
            answer.status is Status.TIME_LIMIT or spent + last > time_limit
        ):
            stopped = OUT_OF_TIME
            break
    result = Result(model, answer, start, keep, mask, gains, score, clock.laps, left,
                    tuple(trace), stopped, last_change=damper.largest,
                    settled=settled)  # fmt: skip
    return result if certify is None else result.certified(certify)


def _this_round(objective: SelectionObjective, added: int, rounds_left: int) -> SelectionObjective:
    """The objective with its share of what is left of ``max_factors``, if it has that limit."""
    most = getattr(objective, "max_factors", None)
    if most is None:
        return objective
    share = -(-(int(most) - added) // rounds_left)
    return replace(objective, max_factors=max(share, 0))  # type: ignore[type-var]


def _limited(solver: Solver, time_limit: float | None, began: float) -> Solver:
    """The solver held to the time that is left, if it has a time limit of its own."""
    if time_limit is None or not is_dataclass(solver):
        return solver
    if not any(f.name == "time_limit" for f in fields(solver)):
        inside = inner(solver)
        if inside is None:
            return solver
        return replace(solver, solver=_limited(inside, time_limit, began))
    left = max(time_limit - (limits.clock() - began), 1e-3)
    own = solver.time_limit
    return replace(solver, time_limit=left if own is None else min(left, own))
