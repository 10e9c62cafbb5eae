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

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from statistics import median
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.checks import check_choice, check_graph, check_number, check_type, check_whole
from minfer.errors import ModelError
from minfer.notebook import Face, Faced, Right
from minfer.reduction import seeds
from minfer.reduction.infer import infer
from minfer.reduction.objectives import MinDivergence, MinJoint, MinSize, Objective
from minfer.reduction.recipes import AnyRecipe, Compensated, Paper, check_recipe
from minfer.reduction.steps import Seed, seed_mask
from minfer.solvers.auto import Auto
from minfer.solvers.bp import BeliefPropagation
from minfer.solvers.status import Status
from minfer.words import counted, duration

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.solvers.base import Marginals, Solver

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
SWEEPS = (1, 2, 3, 5, 10)
TOLERANCES = (0.3, 0.1, 0.03)

REPEATS = 5
_ENOUGH = 0.5  # seconds of timing after which a call is not repeated
#: Times differ by about this factor from run to run; less is no victory.
NOISE = 1.1


class Point(NamedTuple):
    """One answer: how it was made, how large, how long it took, and how far it was off."""

    method: str
    setting: str
    baseline: bool
    kept_share: float
    seconds: float
    mean_error: float
    max_error: float
    converged: bool

    @property
    def name(self) -> str:
        between = " stopped after " if self.setting.endswith(("sweep", "sweeps")) else ", "
        return f"{self.method}{between}{self.setting}"


class Lead(NamedTuple):
    """A reduced answer, the fastest baseline as accurate, and how many times longer that takes."""

    point: Point
    rival: Point
    times: float


class Trial(NamedTuple):
    """A point that is still to be measured; ``run`` returns marginals and the kept share."""

    method: str
    setting: str
    baseline: bool
    run: Callable[[], tuple[Marginals, float]]


class Reference(NamedTuple):
    """What errors are measured against."""

    probs: NDArray[np.float64]  # (sum of states,)
    name: str


@dataclass(frozen=True, repr=False)
class Tradeoff(Faced):
    """All points of a sweep, fastest first; :attr:`verdict` is the conclusion."""

    points: tuple[Point, ...]
    reference: str
    n_factors: int
    n_outside: int

    @property
    def best(self) -> tuple[bool, ...]:
        """For every point whether no faster one is as accurate (on average)."""
        out, least = [], inf
        for p in self.points:
            out.append(p.mean_error < least)
            least = min(least, p.mean_error)
        return tuple(out)

    @property
    def ahead(self) -> list[Lead]:
        """Reduced answers that are ahead of every baseline by more than timing noise.

        Each is compared with the fastest baseline that is at least as accurate. Only those count
        that are as accurate as one sweep of belief propagation: less is always sooner.
        """
        rivals = [p for p in self.points if p.baseline]
        worst = max((p.mean_error for p in rivals), default=-inf)
        out = []
        for p in self.points:
            as_good = [b for b in rivals if b.mean_error <= p.mean_error <= worst]
            if p.baseline or p.kept_share >= 1 or not as_good:
                continue
            rival = min(as_good, key=lambda b: b.seconds)
            times = rival.seconds / p.seconds if p.seconds > 0 else inf
            if times > NOISE:
                out.append(Lead(p, rival, times))
        return out

    @property
    def verdict(self) -> str:
        """Who wins at equal time, in a sentence or two."""
        if ahead := self.ahead:
            p, rival, times = max(ahead, key=lambda lead: lead.times)
            least = min(lead.point.mean_error for lead in ahead)
            return (
                f"{p.name} is ahead: mean error {p.mean_error:.2g} in {duration(p.seconds)}; the "
                f"fastest baseline as accurate ({rival.name}) takes {duration(rival.seconds)}, "
                f"{times:.1f} times as long. Below a mean error of {least:.2g} no reduced answer "
                "is ahead"
            )
        rivals = [p for p in self.points if p.baseline]
        reduced = [p for p in self.points if not p.baseline and p.kept_share < 1]
        if not rivals or not reduced:
            return "nothing to compare: no answer ignores any factor"
        ours = min(reduced, key=lambda p: (p.mean_error, p.seconds))
        if ours.mean_error < min(b.mean_error for b in rivals):
            best = min(rivals, key=lambda b: (b.mean_error, b.seconds))
            text = (
                f"{ours.name} is the most accurate, mean error {ours.mean_error:.2g} in "
                f"{duration(ours.seconds)}; full BP gets no closer than {best.mean_error:.2g} "
                f"({best.name}, {duration(best.seconds)})"
            )
            return text if best.converged else f"{text}, and does not converge"
        in_time = [b for b in rivals if b.seconds <= ours.seconds * NOISE] or rivals
        rival = min(in_time, key=lambda b: (b.mean_error, b.seconds))
        return (
            f"nothing here beats {rival.name}: mean error {rival.mean_error:.2g} in "
            f"{duration(rival.seconds)}; the most accurate reduced answer ({ours.name}) has "
            f"{ours.mean_error:.2g} after {duration(ours.seconds)}"
        )

    def face(self) -> Face:
        """The verdict, then every point with a star where no faster one is as accurate."""
        rows = [
            ("*" if best else "", p.method, p.setting, Right(f"{p.kept_share:.1%}"),
             Right(duration(p.seconds)), Right(f"{p.mean_error:.1e}"), Right(f"{p.max_error:.1e}"))
            for p, best in zip(self.points, self.best)
        ]  # fmt: skip
        truth = self.reference
        if truth.startswith("full belief"):
            truth += " (so its own rows are right by definition)"
        notes = {"errors": f"against {truth}", "best": "* no row above is as accurate on average"}
        head = ("", "method", "setting", "kept", "CPU time", "mean error", "largest")
        ours = frozenset(k for k, p in enumerate(self.points) if not p.baseline)
        return Face(self.verdict, head, rows, notes, ours)

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per point."""
        return [{**p._asdict(), "best": b} for p, b in zip(self.points, self.best)]

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values, ready for JSON."""
        return {
            "reference": self.reference,
            "factors": self.n_factors,
            "factors_outside_seed": self.n_outside,
            "verdict": self.verdict,
            "reduced_wins": bool(self.ahead),
            "points": self.rows(),
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
    values : numbers, optional
        For min-divergence the shares of the factors outside the seed that may be added; for
        min-joint factor costs; for min-size shares of the divergence of the seed alone.
    recipes : dict of names and recipes, optional
        What is measured beside the baselines: the paper's method, and ours without and with
        refreshes.
    reference : Reference, optional
        By default exact marginals where they are cheap, else those of full belief propagation.
    repeats : int
        Calls timed for each point, at most; the median counts.
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
        return 1 + len(self.recipes) * len(self.values) + len(_baselines())

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
        points = sorted(self.points, key=lambda p: (p.seconds, p.mean_error))
        outside = int((~self.seed).sum())
        return Tradeoff(tuple(points), self.reference.name, self.model.n_factors, outside)

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
        for schedule in ("sequential", "residual"):
            BeliefPropagation(max_iters=1, schedule=schedule)(self.model)

    def _measure(self, trial: Trial) -> None:
        assert self.reference is not None
        self.points.append(measured(trial, self.reference, self.repeats))


def find_reference(model: FactorGraph) -> Reference:
    """Exact marginals where :class:`minfer.Auto` finds them cheap, else those of full BP."""
    answer = Auto()(model)
    name = "full belief propagation, converged"
    if answer.status is Status.EXACT:
        name = "exact marginals"
    elif not answer.converged:
        name = "full belief propagation, which did not converge"
    return Reference(np.asarray(answer.probs), name)


def _reduced_trials(
    model: FactorGraph,
    seed: NDArray[np.bool_],
    objective: str,
    values: Sequence[float],
    recipes: Mapping[str, AnyRecipe],
) -> Iterator[Trial]:
    outside = int((~seed).sum())
    for method, recipe in recipes.items():
        for value, goal in _objectives(model, seed, objective, values, recipe).items():
            yield Trial(method, _setting(objective, value), False,
                      _reduced(model, goal, seed, recipe, outside))  # fmt: skip


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


def _reduced(
    model: FactorGraph,
    objective: Objective,
    seed: NDArray[np.bool_],
    recipe: AnyRecipe,
    outside: int,
) -> Callable[[], tuple[Marginals, float]]:
    def run() -> tuple[Marginals, float]:
        result = infer(model, objective, seed=seed, recipe=recipe)
        return result.marginals, result.kept_share if outside else 1.0

    return run


def _baselines() -> list[tuple[str, str, BeliefPropagation]]:
    """Method, setting and solver of every baseline."""
    whole = BeliefPropagation()
    return [
        *(("full BP", counted(k, "sweep"), BeliefPropagation(max_iters=k)) for k in SWEEPS),
        ("full BP", "to the end", whole),
        *(
            ("active-set BP", f"tolerance {tol:g}", BeliefPropagation(schedule="residual", tol=tol))
            for tol in (*TOLERANCES, whole.tol)
        ),
    ]


def baseline_trials(model: FactorGraph) -> Iterator[Trial]:
    """Full belief propagation, stopped early or not, and active-set belief propagation."""

    def run(solver: Solver) -> Callable[[], tuple[Marginals, float]]:
        return lambda: (solver(model), 1.0)

    for method, setting, solver in _baselines():
        yield Trial(method, setting, True, run(solver))


def measured(trial: Trial, reference: Reference, repeats: int = REPEATS) -> Point:
    """A trial done at most so often: the median of its times, and how far off its answer is."""
    times: list[float] = []
    while len(times) < repeats and sum(times) <= _ENOUGH:
        began = time.process_time()
        answer, kept_share = trial.run()
        times.append(time.process_time() - began)
    off = np.abs(np.asarray(answer.probs) - reference.probs)
    return Point(
        trial.method,
        trial.setting,
        trial.baseline,
        kept_share,
        median(times),
        float(off.mean()) if len(off) else 0.0,
        float(off.max(initial=0.0)),
        answer.converged,
    )
