"""Calibration: one parameter for a collection of graphs (section 5.1 and Table 1 of the paper).

The paper sets epsilon, m and gamma so that a given share of the factors is kept on average:
``kept`` does that from the scores of one inference in each seed. ``error`` asks instead for the
largest reduction whose marginals stay within a mean error of the same solver's on the full graphs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

import numpy as np

from minfer.basics.checks import check_number
from minfer.errors import SettingsError
from minfer.factors.group import Floats
from minfer.graph import FactorGraph
from minfer.reduction import seeds
from minfer.reduction.infer import PAPER, infer
from minfer.reduction.objectives import MinDivergence, MinJoint, MinSize, SelectionObjective
from minfer.reduction.parts_of_infer import Seed
from minfer.reduction.recipes import AnyRecipe, Paper, takes_recipe
from minfer.solvers.base import Solver
from minfer.solvers.bp import BeliefPropagation

_PROBES = 12  # runs on each graph that an error target may take
_TINY = 1e-300

Counts = tuple[int, ...]
T = TypeVar("T", MinSize, MinDivergence, MinJoint)


@takes_recipe
def calibrate(
    objective: type[T],
    graphs: Iterable[FactorGraph],
    *,
    kept: float | None = None,
    error: float | None = None,
    solver: Solver | None = None,
    recipe: AnyRecipe = PAPER,
    seed: Seed = seeds.unary_and_globals,
) -> T:
    """The objective whose parameter keeps a share, or an error, over a collection of graphs.

    Parameters
    ----------
    objective : MinSize, MinDivergence or MinJoint, the class
    graphs : FactorGraphs
    kept : float in [0, 1]
        Share of the left-out factors to add: all added / all that are neither seed nor forced.
        The result comes as close as the parameter allows.
    error : float
        Largest mean absolute error of the marginals against the solver's own on the full graph,
        averaged over graphs, as measured: about 12 runs of :func:`minfer.infer` on each graph.
    solver : any solver, BeliefPropagation by default
    recipe, seed
        As for :func:`minfer.infer`.

    Examples
    --------
    >>> import numpy as np
    >>> from minfer import FactorGraph, MinJoint, infer
    >>> from minfer.reduction.calibrate import calibrate
    >>> rng = np.random.default_rng(0)
    >>> graphs = [FactorGraph.grid(a * rng.normal(size=(8, 8)), 1.0) for a in (1, 3, 5)]
    >>> half = calibrate(MinJoint, graphs, kept=0.5)
    >>> sum(infer(g, half).n_added for g in graphs), 3 * 112 // 2
    (168, 168)
    """
    if not any(objective is known for known in (MinSize, MinDivergence, MinJoint)):
        raise SettingsError("calibrate: objective is the class MinSize, MinDivergence or MinJoint")
    if (kept is None) == (error is None):
        raise SettingsError("calibrate: give exactly one of kept and error")
    if kept is not None:
        check_number("calibrate: kept", kept, 0.0, 1.0, what="a share between 0 and 1")
    if error is not None:
        check_number("calibrate: error", error, 0.0, infinite=True)
    if isinstance(graphs, FactorGraph) or not np.iterable(graphs):
        raise SettingsError("calibrate: graphs is a collection; put the one graph into a list")
    solver = BeliefPropagation() if solver is None else solver
    graphs = list(graphs)
    alone, plain = MinJoint(np.inf), Paper(score=recipe.score_kind)  # one inference in each seed
    scores = [infer(g, alone, solver, seed=seed, recipe=plain).scores for g in graphs]
    if not any(np.isfinite(s).any() for s in scores):
        raise SettingsError("calibrate: no graph has a factor to choose: all are seed or forced")
    ladder = _Ladder(objective, scores)
    if kept is not None:
        return cast(T, ladder.nearest(kept * sum(ladder.free)))
    full = [solver(g).probs for g in graphs]

    def measured(choice: SelectionObjective) -> float:
        answers = (infer(g, choice, solver, seed=seed, recipe=recipe) for g in graphs)
        return float(np.mean([np.abs(a.marginals.probs - f).mean() for a, f in zip(answers, full)]))

    return cast(T, ladder.last_within(cast(float, error), measured))


class _Ladder:
    """An objective at all values of its parameter: step 0 keeps most, step 1 keeps least."""

    def __init__(self, objective: Any, scores: list[Floats]) -> None:
        self.objective, self.scores = objective, scores
        finite = [s[np.isfinite(s)] for s in scores]
        self.free = [len(f) for f in finite]
        positive = [f[f > 0] for f in finite if (f > 0).any()]
        reach = np.max if objective is MinJoint else np.sum  # beyond it nothing is added
        low = min((float(f.min()) for f in positive), default=1.0)
        high = max((float(reach(f)) for f in positive), default=1.0)
        self.ends = math.log(max(low / 2, _TINY)), math.log(2 * high)

    def __call__(self, step: float) -> SelectionObjective:
        if self.objective is MinDivergence:
            return MinDivergence(round((1 - step) * max(self.free)))
        low, high = self.ends
        parameter = 0.0 if step == 0 else math.exp(low * (1 - step) + high * step)
        return cast(SelectionObjective, self.objective(parameter))

    def counts(self, step: float) -> Counts:
        """How many factors are added in each graph; on one graph the number names the set."""
        choice = self(step)
        return tuple(int((choice(s) & np.isfinite(s)).sum()) for s in self.scores)

    def nearest(self, target: float) -> SelectionObjective:
        """The objective whose number of added factors comes closest to a target."""
        more, fewer = 0.0, 1.0
        added = {step: sum(self.counts(step)) for step in (more, fewer)}
        while min(abs(n - target) for n in added.values()) > 0.5:
            middle = (more + fewer) / 2
            if middle in (more, fewer):
                break
            added[middle] = sum(self.counts(middle))
            if added[middle] > target:
                more = middle
            else:
                fewer = middle
        return self(min(added, key=lambda step: abs(added[step] - target)))

    def last_within(
        self, target: float, measured: Callable[[SelectionObjective], float]
    ) -> SelectionObjective:
        """The objective of the largest reduction whose measured error is within a target."""
        errors: dict[Counts, float] = {}

        def error(step: float) -> float:
            key = self.counts(step)
            if key not in errors:
                errors[key] = measured(self(step))
            return errors[key]

        good, bad = 0.0, 1.0
        if error(bad) <= target:
            return self(bad)
        while len(errors) < _PROBES and (good + bad) / 2 not in (good, bad):
            middle = (good + bad) / 2
            if error(middle) <= target:
                good = middle
            else:
                bad = middle
        if error(good) > target:
            raise SettingsError(
                f"calibrate: at the smallest reduction the error is {error(good):.3g}, more than "
                f"{target:.3g}; ask for a larger error, or use a solver that repeats itself"
            )
        return self(good)
