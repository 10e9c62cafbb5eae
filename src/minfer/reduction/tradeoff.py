"""Error and time against size: the method on one model beside the baselines that it has to beat.

The reduced methods are swept over an objective. The baselines spend the same kinds of time on the
full model: belief propagation stopped after k sweeps, active-set belief propagation (only variables
whose messages still move are visited) with a coarse tolerance, and both to the end. Speed-ups over
*converged* belief propagation say little, because stopping it early is so cheap; so the verdict
asks whether any reduced answer is better than every baseline that takes no longer.

Errors are absolute differences of probabilities from a reference, mean and largest over all states.
Times are CPU seconds of the whole call, preparation included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from types import NoneType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.checks import check_choice, check_graph, check_number, check_type, check_whole
from minfer.errors import ModelError
from minfer.reduction import seeds
from minfer.reduction.infer import infer
from minfer.reduction.objectives import MinDivergence, MinJoint, MinSize, Objective
from minfer.reduction.recipes import AnyRecipe, Compensated, Paper, check_recipe
from minfer.reduction.steps import Seed, seed_mask
from minfer.reduction.trials import (
    REPEATS,
    Outcome,
    Point,
    Reference,
    Tradeoff,
    Trial,
    baseline_trials,
    baselines,
    find_reference,
    load_baselines,
    measured,
)
from minfer.solvers.bp import BeliefPropagation

if TYPE_CHECKING:
    from minfer.graph import FactorGraph

#: The paper's method and ours.
METHODS: dict[str, AnyRecipe] = {
    "paper": Paper(),
    "compensated": Compensated(refreshes=0),
    "refreshed": Compensated(),
}

#: Values swept by default: shares of the factors, factor costs, shares of the seed's divergence.
VALUES: dict[str, tuple[float, ...]] = {
    "min-divergence": (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
    "min-joint": (1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 1e-4, 1e-5),
    "min-size": (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.0),
}


def tradeoff(
    model: FactorGraph,
    objective: str = "min-divergence",
    values: Sequence[float] | None = None,
    *,
    recipes: Mapping[str, AnyRecipe] | None = None,
    seed: Seed = seeds.unary_and_globals,
    reference: Reference | None = None,
    repeats: int = REPEATS,
) -> Tradeoff:
    """Measure the methods and their baselines on one model.

    Parameters
    ----------
    model : FactorGraph
    objective : "min-divergence", "min-joint" or "min-size"
        What to sweep.
    values : numbers, optional
        Values to sweep: for min-divergence the shares of the factors outside the seed that may be
        added; for min-joint factor costs; for min-size shares of the divergence of the seed alone.
    recipes : dict of names and recipes, optional
        What is measured beside the baselines: the paper's method, and ours without and with
        refreshes.
    reference : Reference, optional
        True marginals. By default exact ones where they are cheap, else those of converged belief
        propagation.
    repeats : int
        Maximum number of timed calls per row; the median counts.
    """
    sweep = Measurement(model, objective, values, seed, reference, repeats, recipes)
    for _, work in sweep.steps():
        work()
    return sweep.result()


class Measurement:
    """A tradeoff in steps, for callers that show how far it is; arguments as :func:`tradeoff`."""

    def __init__(
        self,
        model: FactorGraph,
        objective: str = "min-divergence",
        values: Sequence[float] | None = None,
        seed: Seed = seeds.unary_and_globals,
        reference: Reference | None = None,
        repeats: int = REPEATS,
        recipes: Mapping[str, AnyRecipe] | None = None,
    ) -> None:
        check_graph(model, "tradeoff")
        check_whole("repeats", repeats, 1)
        check_choice("objective", objective, tuple(VALUES))
        check_type(reference, (Reference, NoneType), "reference must be a Reference or None")
        check_type(values, (Iterable, NoneType), "values must be numbers or None")
        values = VALUES[objective] if values is None else tuple(values)
        for value in values:
            most = inf if objective == "min-joint" else 1.0
            check_number("values", value, 0.0, most, what=f"numbers from 0 to {most:g}")
        if reference is not None and reference.probs.shape != (int(model._offsets[-1]),):
            raise ModelError("tradeoff: the reference has other variables or states than the model")
        self.model, self.objective, self.repeats = model, objective, repeats
        self.recipes = dict(METHODS if recipes is None else recipes)
        for recipe in self.recipes.values():
            check_recipe(recipe)
        self.values = values
        self.seed = seed_mask(model, seed)
        self.reference = reference
        self.points: list[Point] = []

    def __len__(self) -> int:
        """Number of steps."""
        return 1 + len(self.recipes) * len(self.values) + len(baselines())

    def steps(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Name and work of each step; do the work before asking for the next."""
        yield "preparing", self._prepare
        trials = [
            *_reduced_trials(self.model, self.seed, self.objective, self.values, self.recipes)
        ]
        for trial in [*trials, *baseline_trials(self.model)]:
            yield f"{trial.method}, {trial.setting}", partial(self._measure, trial)

    def result(self) -> Tradeoff:
        assert self.reference is not None
        outside = int((~self.seed).sum())
        return Tradeoff.of(self.points, self.reference, self.model.n_factors, outside)

    def _prepare(self) -> None:
        """The reference; and every kernel that is about to be timed, compiled and loaded."""
        self.reference = self.reference or find_reference(self.model)
        for recipe in self.recipes.values():
            infer(
                self.model,
                MinDivergence(1),
                BeliefPropagation(max_iters=1),
                seed=self.seed,
                recipe=recipe,
            )
        load_baselines(self.model)

    def _measure(self, trial: Trial) -> None:
        assert self.reference is not None
        self.points.append(measured(trial, self.reference, self.repeats)[0])


def _reduced_trials(
    model: FactorGraph,
    seed: NDArray[np.bool_],
    objective: str,
    values: Sequence[float],
    recipes: Mapping[str, AnyRecipe],
) -> Iterator[Trial]:
    def run(goal: Objective, recipe: AnyRecipe) -> Outcome:
        return Outcome.of(infer(model, goal, seed=seed, recipe=recipe))

    for method, recipe in recipes.items():
        for value, goal in _objectives(model, seed, objective, values, recipe).items():
            yield Trial(method, _setting(objective, value), False, partial(run, goal, recipe))


def _objectives(
    model: FactorGraph,
    seed: NDArray[np.bool_],
    objective: str,
    values: Sequence[float],
    recipe: AnyRecipe,
) -> dict[float, Objective]:
    if objective == "min-divergence":
        outside = int((~seed).sum())
        return {s: MinDivergence(round(s * outside)) for s in values}
    if objective == "min-joint":
        return {cost: MinJoint(cost) for cost in values}
    plain = Paper(score=recipe.score_kind)
    total = infer(model, MinSize(inf), seed=seed, recipe=plain).divergence
    return {s: MinSize(s * total) for s in values}


def _setting(objective: str, value: float) -> str:
    what = {"min-divergence": "keep", "min-joint": "cost", "min-size": "divergence"}[objective]
    return f"{what} {value:g}" if objective == "min-joint" else f"{what} {100 * value:g}%"
