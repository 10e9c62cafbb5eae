"""Algorithm 1: ignorant inference with a black-box solver (Riedel, Smith & McCallum 2010).

    infer in the seed  ->  score what was left out  ->  keep what matters  ->  infer again

The recipe says what becomes of what is left out (:mod:`minfer.reduction.recipes`).
"""

from __future__ import annotations

from dataclasses import replace
from types import NoneType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import bool_mask, check_graph, check_type, real_numbers
from minfer.errors import SettingsError
from minfer.factors.features import binary_pairs
from minfer.reduction import seeds
from minfer.reduction.compensation import compensate as compensation_of
from minfer.reduction.gains import factor_scores
from minfer.reduction.parts_of_infer import (
    Clock,
    Damper,
    Seed,
    check_callable,
    check_certify,
    edge_weights,
    seed_mask,
    tolerance_of,
    with_edge_weights,
)
from minfer.reduction.recipes import AnyRecipe, Iterated, Paper, check_recipe, takes_recipe
from minfer.reduction.relax import relax
from minfer.reduction.result import Result
from minfer.reduction.sources import FactorSource, Scan, scan
from minfer.solvers.base import MAX_DISAGREEMENT, Marginals, Solver, Status
from minfer.solvers.bp import BeliefPropagation

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.reduction.objectives import SelectionObjective

#: The recommended objective: MinJoint at this cost on residual scores (a hundredth of a nat of
#: mutual information between a factor's variables), with ``Compensated()``.
DEFAULT_FACTOR_COST = 0.01
PAPER = Paper()


@takes_recipe
def infer(
    model: FactorGraph,
    objective: SelectionObjective,
    solver: Solver | None = None,
    *,
    recipe: AnyRecipe = PAPER,
    seed: Seed = seeds.unary_and_globals,
    costs: ArrayLike | None = None,
    source: FactorSource | None = None,
    certify: float | None = None,
) -> Result:
    """Infer in the part of a model that matters, and say what was ignored.

    Parameters
    ----------
    model : FactorGraph
    objective : MinSize, MinDivergence, MinJoint or Budget
        Which factors to keep.
    solver : any solver, BeliefPropagation by default
        Called twice (once if nothing is added), and once more for each refresh.
    recipe : Paper, Compensated or Iterated
        What becomes of ignored factors: nothing in the paper's method, the default.
    seed : bool array (F,), or a function of the model that returns one
    costs : float array (F,), optional
        What keeping each factor costs; 1 each by default.
    source : FactorSource, optional
        Candidate factors that are built only where they can matter. ``model`` is then the seed.
    certify : float, optional
        Seconds for rigorous intervals of the full model's marginals (:func:`minfer.intervals`):
        ``result.intervals``, and ``result.interval``, beyond which no probability of the answer
        can be off. They are not part of ``timings``. Needs all factors, so no ``source``.

    Examples
    --------
    >>> import numpy as np
    >>> from minfer import Compensated, FactorGraph, MinJoint, infer
    >>> model = FactorGraph.grid(5 * np.random.default_rng(0).normal(size=(16, 16)), 1.0)
    >>> result = infer(model, MinJoint(factor_cost=0.05))
    >>> result.n_added < 480, result.marginals.converged
    (True, True)
    >>> sure = infer(model, MinJoint(0.05), recipe=Compensated(), certify=5.0)
    >>> bool(sure.intervals.decided().mean() > 0.9), 0 < sure.interval < 0.05
    (True, True)
    """
    solver = BeliefPropagation() if solver is None else solver
    check_callable(objective, solver)
    check_recipe(recipe)
    if isinstance(recipe, Iterated):
        for name, given in (("costs", costs), ("source", source)):
            if given is not None:
                raise SettingsError(f"infer: {name}= goes with one inference, not with Iterated()")
        return relax(model, objective, solver, recipe=recipe, seed=seed, certify=certify)
    score, refreshes = recipe.score_kind, recipe.refreshes
    check_type(source, (FactorSource, NoneType), "source must be a FactorSource or None")
    check_certify(certify, source)
    if costs is not None:
        costs = np.asarray(real_numbers(costs, "costs", SettingsError), float)
    clock, still = Clock(), tolerance_of(solver)
    check_graph(model, "inference")
    mask = seed_mask(model, seed if source is None else np.ones(model.n_factors, dtype=bool))
    start = solver(model if mask.all() else model.keep(mask))  # 1: infer in the seed
    check_type(start, Marginals, "a solver returns Marginals")
    clock.lap("seed")
    untouched = None
    if source is None:
        gains = factor_scores(model, start, mask, score)
    else:
        untouched = scan(source, objective, binary_pairs(start.probs, model._offsets), score)
        model, n = _touch(model, untouched), model.n_factors
        mask = np.arange(model.n_factors) < n
        gains = np.concatenate([np.full(n, np.inf), untouched.scores])
    clock.lap("scores")
    keep = objective(gains) if costs is None else objective(gains, costs)
    keep = bool_mask(keep, len(gains), "what the objective keeps")
    clock.lap("select")
    part, left = model, None  # 2: the factors that the objective picked
    if not keep.all():
        part = model.keep(keep)
    if recipe.compensate and not keep.all():
        rho = edge_weights(solver, model, keep)
        left = compensation_of(model, start.probs, keep, store=refreshes > 0, rho=rho)
        solver = with_edge_weights(solver, rho, model)
    clock.lap("compensate")
    answer = start
    if left is not None or (keep & ~mask).any():  # 3, 4: infer again if anything changed
        answer = solver(part if left is None else part.tilt(left.field), start)
    damper = Damper(recipe.damping)
    for _ in range(refreshes):
        if left is None:
            break
        left = left.refreshed(answer.probs, damper.share)
        before, answer = answer, solver(part.tilt(left.field), answer)
        damper.look(before, answer)
    clock.lap("infer")
    if answer.status is Status.SAMPLED:
        still = max(still, MAX_DISAGREEMENT)
    result = Result(model, answer, start, keep, mask, gains, score, clock.laps, left,
                    untouched=untouched, gap=_gap(objective, gains, costs, keep),
                    last_change=damper.largest, settled=damper.largest <= still)  # fmt: skip
    return result if certify is None else result.certified(certify)


def _touch(base: FactorGraph, found: Scan) -> FactorGraph:
    """The model with those factors of a source that a scan has touched, after its own."""
    ids = np.concatenate([np.arange(base.n_factors), base.n_factors + found.ids])
    model = base.add_features(found.scope, found.theta, "and")
    return replace(model, lineage=base.lineage, _origin=ids)  # the seed's messages still fit


def _gap(
    objective: SelectionObjective, gains: NDArray, costs: ArrayLike | None, keep: NDArray
) -> float:
    if costs is None or not hasattr(objective, "gap"):
        return 0.0
    return float(objective.gap(gains, costs, keep))
