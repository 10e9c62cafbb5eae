"""Answers timed and held against others: :func:`tradeoff`, reports, and the full inference.

Errors are absolute differences of probabilities from a reference, mean and largest over all states.
Times are CPU seconds of the whole call, the median of some runs, none of which compiled a kernel.
Baselines are belief propagation stopped after k sweeps, active-set belief propagation with a coarse
tolerance, and both to the end. The verdict asks whether any reduced answer is better than every
baseline that takes no longer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from statistics import median
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from minfer.basics.checks import check_choice, check_graph, check_number, check_type, check_whole
from minfer.basics.limits import compiled
from minfer.basics.notebook import Face, Faced, Right
from minfer.basics.words import counted, duration
from minfer.errors import ModelError, RefusedError
from minfer.factors.group import Floats
from minfer.reduction import seeds
from minfer.reduction.objectives import MinDivergence, MinJoint, MinSize, SelectionObjective
from minfer.reduction.parts_of_infer import Seed, seed_mask
from minfer.reduction.recipes import AnyRecipe, Compensated, Paper, check_recipe
from minfer.say.intervals import REFUTED
from minfer.solvers.auto import Auto
from minfer.solvers.base import LogZ, Status
from minfer.solvers.bp import BeliefPropagation
from minfer.solvers.exact import Exact

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.reduction.result import Result
    from minfer.solvers.base import Marginals, Solver

SWEEPS = (1, 2, 3, 5, 10)
TOLERANCES = (0.3, 0.1, 0.03)

REPEATS = 5
_ENOUGH = 0.5  # seconds of timing after which a call is not repeated
#: Times differ by about this factor from run to run; less is no victory.
NOISE = 1.1
TIMED_AGAIN = 30.0  # seconds; what took less is timed once more, with all kernels loaded

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


# ---------------------------------------------------------------------- trials


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


class Outcome(NamedTuple):
    """What is measured of an answer, and the answer itself for who wants more of it."""

    probs: Floats  # of the reference's shape
    converged: bool
    kept_share: float = 1.0
    answer: Any = None

    @classmethod
    def of(cls, result: Result) -> Outcome:
        m = result.marginals
        return cls(m.probs, m.converged, result.kept_share, result)


class Trial(NamedTuple):
    """A point that is still to be measured."""

    method: str
    setting: str
    baseline: bool
    run: Callable[[], Outcome]


class Reference(NamedTuple):
    """What errors are measured against."""

    probs: Floats  # (sum of states,)
    name: str


@dataclass(frozen=True, repr=False)
class Tradeoff(Faced):
    """All points of a sweep, fastest first; :attr:`verdict` is the conclusion."""

    points: tuple[Point, ...]
    reference: str
    n_factors: int
    n_outside: int

    @classmethod
    def of(
        cls, points: Iterable[Point], reference: Reference, n_factors: int, n_outside: int
    ) -> Tradeoff:
        ordered = sorted(points, key=lambda p: (p.seconds, p.mean_error))
        return cls(tuple(ordered), reference.name, n_factors, n_outside)

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
        """Reduced answers ahead of the fastest baseline as accurate by more than timing noise.

        Only those count that are as accurate as one sweep of belief propagation: less is sooner.
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


def find_reference(model: FactorGraph) -> Reference:
    """Exact marginals where :class:`minfer.Auto` finds them cheap, else those of full BP."""
    answer = Auto()(model)
    name = "full belief propagation, converged"
    if answer.status is Status.EXACT:
        name = "exact marginals"
    elif not answer.converged:
        name = "full belief propagation, which did not converge"
    return Reference(np.asarray(answer.probs), name)


def baseline_trials(model: FactorGraph) -> list[Trial]:
    """Full belief propagation, stopped early or not, and active-set belief propagation."""

    def trial(method: str, setting: str, solver: Solver) -> Trial:
        def run() -> Outcome:
            m = solver(model)
            return Outcome(m.probs, m.converged)

        return Trial(method, setting, True, run)

    whole = BeliefPropagation()
    early = [(counted(k, "sweep"), BeliefPropagation(max_iters=k)) for k in SWEEPS]
    active = [BeliefPropagation(schedule="residual", tol=tol) for tol in (*TOLERANCES, whole.tol)]
    return [
        *(trial("full BP", setting, solver) for setting, solver in early),
        trial("full BP", "to the end", whole),
        *(trial("active-set BP", f"tolerance {solver.tol:g}", solver) for solver in active),
    ]


def load_baselines(model: FactorGraph) -> None:
    """Compile and load the kernels of the baselines, so that this is not timed."""
    for schedule in ("sequential", "residual"):
        BeliefPropagation(max_iters=1, schedule=schedule)(model)


def measured(trial: Trial, reference: Reference, repeats: int = REPEATS) -> tuple[Point, Any]:
    """A trial done at most so often: the median of its times, how far off its answer is, and the
    answer itself."""
    times: list[float] = []
    again = True  # kernels may be new to the first run, not to all
    while len(times) < repeats and sum(times) <= _ENOUGH:
        began, before = time.process_time(), compiled()
        found = trial.run()
        if again and compiled() > before:
            again = False
            continue
        times.append(time.process_time() - began)
    mean, largest, _ = _apart(found.probs, reference.probs)
    about = trial.method, trial.setting, trial.baseline, found.kept_share
    return Point(*about, median(times), mean, largest, found.converged), found.answer


def _apart(a: Floats, b: Floats) -> tuple[float, float, int]:
    off = np.abs(np.asarray(a) - np.asarray(b))
    if not len(off):
        return 0.0, 0.0, 0
    return float(off.mean()), float(off.max()), int(np.argmax(off))


# ---------------------------------------------------------------------- the method on one model


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
        self.values, self.reference = values, reference
        self.seed = seed_mask(model, seed)
        self.n_outside = int((~self.seed).sum())
        self.baselines = baseline_trials(model)
        self.points: list[Point] = []

    def __len__(self) -> int:
        return 1 + len(self.recipes) * len(self.values) + len(self.baselines)

    def steps(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Name and work of each step; do the work before asking for the next."""
        yield "preparing", self._prepare
        for trial in [*self._reduced(), *self.baselines]:
            yield f"{trial.method}, {trial.setting}", partial(self._measure, trial)

    def result(self) -> Tradeoff:
        assert self.reference is not None
        return Tradeoff.of(self.points, self.reference, self.model.n_factors, self.n_outside)

    def _prepare(self) -> None:
        """The reference; and every kernel that is about to be timed, compiled and loaded."""
        self.reference = self.reference or find_reference(self.model)
        once = BeliefPropagation(max_iters=1)
        for recipe in self.recipes.values():
            self._run(MinDivergence(1), recipe, once)
        load_baselines(self.model)

    def _measure(self, trial: Trial) -> None:
        assert self.reference is not None
        self.points.append(measured(trial, self.reference, self.repeats)[0])

    def _run(self, goal: SelectionObjective, recipe: AnyRecipe, *solver: Solver) -> Outcome:
        from minfer.reduction.infer import infer

        return Outcome.of(infer(self.model, goal, *solver, seed=self.seed, recipe=recipe))

    def _reduced(self) -> Iterator[Trial]:
        for method, recipe in self.recipes.items():
            total = 0.0
            if self.objective == "min-size":
                seed_alone = self._run(MinSize(inf), Paper(score=recipe.score_kind))
                total = seed_alone.answer.divergence
            for value in dict.fromkeys(self.values):
                setting, goal = self._goal(value, total)
                yield Trial(method, setting, False, partial(self._run, goal, recipe))

    def _goal(self, value: float, total: float) -> tuple[str, SelectionObjective]:
        """A value's words and its objective; ``total`` is the divergence of the seed alone."""
        if self.objective == "min-joint":
            return f"cost {value:g}", MinJoint(value)
        if self.objective == "min-divergence":
            return f"keep {100 * value:g}%", MinDivergence(round(value * self.n_outside))
        return f"divergence {100 * value:g}%", MinSize(value * total)


# ---------------------------------------------------------------------- a reduced answer and a full


class Difference(NamedTuple):
    """How far two answers for the same variables are apart."""

    mean: float
    largest: float
    where: str  # the variable of the largest difference

    @classmethod
    def between(cls, model: FactorGraph, a: Marginals, b: Marginals) -> Difference:
        mean, largest, place = _apart(a.probs, b.probs)
        if not model.n_variables:
            return cls(mean, largest, "")
        v = int(np.searchsorted(model._offsets, place, side="right")) - 1
        return cls(mean, largest, model.name(v))

    def to_dict(self) -> dict[str, Any]:
        names = ("mean_difference", "largest_difference", "largest_at")
        return dict(zip(names, self))


class Full(NamedTuple):
    """One inference in the full model."""

    marginals: Marginals
    seconds: float

    @classmethod
    def of(cls, solver: Solver, model: FactorGraph) -> Full:
        found = solver(model)
        _ = found.log_z
        seconds = found.seconds if found.seconds >= TIMED_AGAIN else solver(model).seconds
        return cls(found, seconds)


class Comparison(NamedTuple):
    """The full inference beside the reduced one: exact where that fits, else by the same solver."""

    full: Full
    reduced_seconds: float
    difference: Difference
    same: Full | None = None  # by the same solver, where ``full`` is not
    same_difference: Difference | None = None  # of that from ``full``

    @property
    def is_exact(self) -> bool:
        return self.full.marginals.status.value == "exact"

    def refuted(self, result: Result, full: Full | None = None) -> bool:
        """Whether an estimate of the full log Z, the reduced answer's or a full one's, is off."""
        if full is not None and full.marginals.log_z_kind is not LogZ.ESTIMATE:
            return False
        estimate = result.log_z_estimate if full is None else full.marginals.log_z
        if not math.isfinite(estimate):
            return False
        if self.is_exact and abs(estimate - self.full.marginals.log_z) > REFUTED:
            return True
        return result._has_certificate and result._outside_log_z_bounds(estimate)

    def speed_up(self, full: Full) -> float:
        return full.seconds / self.reduced_seconds if self.reduced_seconds > 0 else math.inf

    def to_dict(self, result: Result) -> dict[str, Any]:
        same = None
        if self.same is not None and self.same_difference is not None:
            same = {
                **self._plain(result, self.same),
                "seconds": self.same.seconds,
                "speed_up": self.speed_up(self.same),
                **self.same_difference.to_dict(),
            }
        return {
            "compared_with": repr(self.full.marginals.solver),
            "reduced_factors": int(result.keep.sum()),
            "full_factors": result.n_factors,
            "reduced_seconds": self.reduced_seconds,
            "full_seconds": self.full.seconds,
            "speed_up": self.speed_up(self.full),
            **self.difference.to_dict(),
            "full": self._plain(result, self.full),
            "same_solver": same,
        }

    def _plain(self, result: Result, full: Full) -> dict[str, Any]:
        plain = full.marginals.to_dict([])
        del plain["marginals"]
        return plain | {"log_z_refuted": self.refuted(result, full)}

    def face(self, result: Result) -> Face:
        """The reduced answer, full ones beside it, and how far they are from the last of them."""
        full = {"full, exact" if self.is_exact else "full": self.full}
        if self.same is not None:
            full = {"full, by the same solver": self.same, "full, exact": self.full}
        rows: list[tuple[object, ...]] = []

        def add(name: str, *cells: str) -> None:
            blank = [""] * (1 + len(full) - len(cells))
            rows.append((name, *map(Right, cells), *map(Right, blank)))

        def known(log_z: float, refuted: bool) -> str:
            text = f"{log_z:.6g}" if math.isfinite(log_z) else "unknown"
            return f"{text} (refuted)" if refuted else text

        each = full.values()
        add("factors", f"{int(result.keep.sum()):,}", *[f"{result.n_factors:,}"] * len(full))
        add("status", result.status.value, *(f.marginals.status.value for f in each))
        times = [self.reduced_seconds, *(f.seconds for f in each)]
        add("time, kernels loaded", *map(duration, times))
        add("speed against it", "", *(_times(self.speed_up(f)) for f in each))
        own = known(result.log_z_estimate, self.refuted(result))
        theirs = (known(f.marginals.log_z, self.refuted(result, f)) for f in each)
        add("log Z of the full model", own, *theirs)
        apart = [self.difference, *([self.same_difference] if self.same_difference else [])]
        of = "exact" if self.is_exact else "full"
        add(f"mean difference from {of}", *(f"{d.mean:.2g}" for d in apart))
        add("largest", *(f"{d.largest:.2g} at {d.where}" for d in apart))
        return Face("", ("compared", "reduced", *full), rows)


def compare(result: Result, solver: Solver, again: Callable[[], Result] | None) -> Comparison:
    """The full inference, exact where that takes seconds at most, then also by the same solver.

    Timed on a second call where the first was short; ``again`` repeats the reduced inference.
    """
    from minfer.solvers.planning import exact_seconds

    model, seconds = result.model, result.seconds
    if seconds < TIMED_AGAIN and again is not None:
        seconds = again().seconds
    exact: Full | None = None
    if not isinstance(solver, Exact) and exact_seconds(model, None) is not None:
        exact = Full.of(Exact(), model)
    same: Full | None = None
    try:
        same = Full.of(solver, model)
    except RefusedError:
        if exact is None:
            raise
    if same is not None and (exact is None or same.marginals.status.value == "exact"):
        exact, same = same, None
    assert exact is not None
    truth = exact.marginals
    found = Comparison(exact, seconds, Difference.between(model, result.marginals, truth))
    if same is None:
        return found
    off = Difference.between(model, same.marginals, truth)
    return found._replace(same=same, same_difference=off)


def _times(ratio: float) -> str:
    return f"{ratio:.3g} times as fast" if ratio >= 1 else f"{1 / ratio:.3g} times as slow"
