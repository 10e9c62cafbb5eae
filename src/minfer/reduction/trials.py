"""Answers timed and held against a reference, beside the baselines they have to beat.

Errors are absolute differences of probabilities from the reference, mean and largest over all
states. Times are CPU seconds of the whole call, preparation included: the median of some runs. A
run for which a kernel was compiled or loaded is not timed but done again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from math import inf
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.limits import compiled
from minfer.notebook import Face, Faced, Right
from minfer.solvers.auto import Auto
from minfer.solvers.bp import BeliefPropagation
from minfer.solvers.status import Status
from minfer.words import counted, duration

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.reduction.result import Result
    from minfer.solvers.base import Solver

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


class Outcome(NamedTuple):
    """What is measured of an answer, and the answer itself for who wants more of it."""

    probs: NDArray[np.float64]  # of the reference's shape
    converged: bool
    kept_share: float = 1.0
    answer: Any = None

    @classmethod
    def of(cls, result: Result) -> Outcome:
        """Of a reduced model."""
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

    probs: NDArray[np.float64]  # (sum of states,)
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


def find_reference(model: FactorGraph) -> Reference:
    """Exact marginals where :class:`minfer.Auto` finds them cheap, else those of full BP."""
    answer = Auto()(model)
    name = "full belief propagation, converged"
    if answer.status is Status.EXACT:
        name = "exact marginals"
    elif not answer.converged:
        name = "full belief propagation, which did not converge"
    return Reference(np.asarray(answer.probs), name)


def baselines() -> list[tuple[str, str, BeliefPropagation]]:
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

    def run(solver: Solver) -> Outcome:
        m = solver(model)
        return Outcome(m.probs, m.converged)

    for method, setting, solver in baselines():
        yield Trial(method, setting, True, partial(run, solver))


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
    off = np.abs(np.asarray(found.probs) - reference.probs)
    point = Point(
        trial.method,
        trial.setting,
        trial.baseline,
        found.kept_share,
        median(times),
        float(off.mean()) if len(off) else 0.0,
        float(off.max(initial=0.0)),
        found.converged,
    )
    return point, found.answer
