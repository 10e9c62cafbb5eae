"""The sweep behind a report: one model at many values of the objective's parameter.

The values are chosen from the scores of the model itself, so that few to all of the candidate
factors are kept: rounded to two digits, on a scale that is even in the logarithm of the size.
Every step is timed as :mod:`minfer.reduction.trials` does, beside the same baselines.

Three kinds of numbers, never mixed: *rigorous* (``bound``; with ``certify`` also intervals of the
full model's marginals, found once, and how every step's answer fares by them), *estimates*
(``divergence``, ``error_*``), and *measured* ones, differences from a reference that is named.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from minfer.certified.result import REFUTED
from minfer.checks import check_whole
from minfer.reduction import bound
from minfer.reduction.result import Result, finite_or_none
from minfer.reduction.steps import check_certify
from minfer.reduction.trials import (
    Point,
    Reference,
    Tradeoff,
    Trial,
    baseline_trials,
    find_reference,
    measured,
)
from minfer.report.parts import (
    PARAMETERS,
    REPEATS,
    STEPS,
    Histogram,
    moved,
    parameter_of,
    short,
    threshold,
    tradeoff_data,
    values,
)
from minfer.solvers.bp import BeliefPropagation
from minfer.solvers.status import Status
from minfer.words import outward, upwards

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.reduction.bound import Certificate
    from minfer.reduction.objectives import Objective
    from minfer.solvers.base import Marginals

MOST_ROWS = 100  # variables in the table
MOST_STATES = 8  # of a variable, all shown; of others the likeliest one
MOST_RESIDUALS = 120  # points of a convergence trace
MOST_BOUNDED = bound.MOST_BOUNDED // 10  # a report has a dozen steps
BOUNDING = 20.0  # seconds that all bounds of a report may take


class Drawing(Protocol):
    """What is drawn of a model; the part that moves with the slider comes from ``step``."""

    data: dict[str, Any]
    notes: list[str]

    def step(self, result: Result) -> dict[str, Any]: ...


class Sweep:
    """Runs a model through the values and collects what a report shows, as JSON-able data.

    Parameters
    ----------
    model : FactorGraph
    objective : MinSize, MinDivergence, MinJoint or Budget
    run : a function of an objective that returns a Result
    draw : a function of the first Result that returns a Drawing
    name : a function of a variable's number, what it is called
    no_bound : str
        Why no bound is computed; empty if one is.
    certify : float, optional
        Seconds for intervals of the full model's marginals.
    first : Result, optional
        What ``run`` gave for the objective, where that is known.
    """

    def __init__(
        self,
        model: FactorGraph,
        objective: Objective,
        run: Callable[[Objective], Result],
        draw: Callable[[Result], Drawing],
        name: Callable[[int], str],
        no_bound: str = "",
        steps: int = STEPS,
        certify: float | None = None,
        first: Result | None = None,
    ) -> None:
        check_whole("steps", steps, 2)
        check_certify(certify)
        self.model, self.run, self.name, self.no_bound = model, run, name, no_bound
        self.parameter = parameter_of(objective)
        self.first = run(objective) if first is None else first
        self.scores = self.first.scores
        self.values = values(self.parameter, self.scores, steps)
        self.drawing = draw(self.first)
        self.rows = chosen_rows(self.first)
        self.histogram = Histogram(self.scores)
        self.bounding = 0.0
        self.sure = self.first.intervals
        if self.sure is None and certify is not None:
            self.sure = self.first.certified(certify).intervals

    def collect(self) -> dict[str, Any]:
        """Run all of it."""
        reference = find_reference(self.model)
        self._warm_up()
        points, steps = [], []
        for value in self.values:
            result, point = self._measure(value, reference)
            points.append(point)
            steps.append(self._step(value, result, point))
        baselines = [measured(trial, reference, REPEATS) for trial in baseline_trials(self.model)]
        first = self.first
        outside = first.n_factors - first.n_seed
        found = Tradeoff.of([*points, *baselines], reference, first.n_factors, outside)
        return {
            "parameter": self.parameter.name,
            "parameter_label": PARAMETERS[self.parameter.name],
            "start": self.values.index(self.parameter.value),
            "score": first.score_kind,
            "solver": repr(first.marginals.solver),
            "n_seed": first.n_seed,
            "n_forced": first.n_forced,
            "n_candidates": outside - first.n_forced,
            "steps": steps,
            "seed_residuals": residuals(first.seed_marginals),
            "histogram": self.histogram.data,
            "rows": self._rows(),
            "certified": self._certified(),
            "drawing": self.drawing.data,
            "notes": [*self.drawing.notes, *self._notes()],
            **tradeoff_data(found, baselines),
        }

    def _warm_up(self) -> None:
        """Every kernel that is about to be timed is compiled and loaded."""
        for value in {self.values[0], self.values[-1]}:
            self.run(self.parameter.make(value))
        for schedule in ("sequential", "residual"):
            BeliefPropagation(max_iters=1, schedule=schedule)(self.model)

    def _measure(self, value: float, reference: Reference) -> tuple[Result, Point]:
        kept: list[Result] = []

        def work() -> tuple[Marginals, float]:
            kept[:] = [self.run(self.parameter.make(value))]
            return kept[0].marginals, kept[0].kept_share

        label = f"{PARAMETERS[self.parameter.name]} {value:g}"
        point = measured(Trial("reduced", label, False, work), reference, REPEATS)
        return kept[0], point

    def _step(self, value: float, result: Result, point: Point) -> dict[str, Any]:
        m = result.marginals
        errors = result.error_estimates
        bound, reason = self._rigorous(result)
        return {
            "value": finite_or_none(value),
            "label": f"{value:g}",
            "kept": result.n_added,
            "seconds": short(point.seconds),
            "status": result.status.value,
            "converged": bool(result.converged),
            "moved": None if result.settled else short(result.last_change),
            "exact": m.status is Status.EXACT,
            "iterations": int(m.iterations),
            "residuals": residuals(m),
            "trace": [[short(s.seconds), s.n_added, short(s.divergence)] for s in result.trace],
            "divergence": short(result.divergence),
            "error_mean": short(result.mean_error_estimate),
            "error_max": short(float(errors.max(initial=0.0))),
            "no_estimate": result.no_estimate,
            "bound": short(bound),
            "no_bound": reason,
            "measured_mean": short(point.mean_error),
            "measured_max": short(point.max_error),
            "threshold": short(threshold(self.parameter.name, value, self.scores[result.keep])),
            "histogram": self.histogram.kept(result.keep),
            "rows": [self._row(m, v) for v in self.rows],
            "row_errors": [short(float(errors[v])) for v in self.rows],
            **self._judged(m),
            "drawing": self.drawing.step(result),
        }  # fmt: skip

    def _rigorous(self, result: Result) -> tuple[float | None, str]:
        """The bound on the divergence, and why there is none."""
        reason = self.no_bound
        if not result.n_ignored:
            return 0.0, ""
        if result.n_ignored > MOST_BOUNDED:
            reason = reason or f"not computed for more than {MOST_BOUNDED:,} ignored factors"
        elif self.bounding > BOUNDING:
            reason = reason or "not computed: the other steps' bounds took long"
        if reason:
            return None, reason
        began = time.perf_counter()
        found: Certificate = result.certificate
        self.bounding += time.perf_counter() - began
        if found.bound is None:
            return None, found.reason.replace(" in H", " in the reduced model")
        if math.isinf(found.bound):
            return None, "an ignored factor forbids what the reduced model allows"
        return found.bound, ""

    # ------------------------------------------------------------------ intervals

    def _certified(self) -> dict[str, Any] | None:
        """What is known of the full model, whatever the step."""
        if self.sure is None:
            return None
        width = self.sure.width
        return {
            "seconds": short(self.sure.seconds),
            "mean_width": short(float(width.mean()) if len(width) else 0.0),
            "decided": int(self.sure.decided().sum()),
            "vacuous": int(self.sure.vacuous.sum()),
            "variables": len(width),
        }

    def _judged(self, m: Marginals) -> dict[str, Any]:
        """How a step's answer fares: how far off it can be, and what of it is refuted."""
        if self.sure is None:
            return {"interval": None, "refuted": None, "row_ends": None, "row_refuted": None}
        least, most = self.sure.error_bounds(m)
        ends = []
        for v in self.rows:
            state = 1 if len(m[v]) == 2 else int(np.argmax(m[v]))  # the one that the table shows
            lo, hi = outward(*self.sure[v][state])
            ends.append([float(lo), float(hi)])
        return {
            "interval": float(upwards(float(most.max(initial=0.0)))),
            "refuted": int((least > REFUTED).sum()),
            "row_ends": ends,
            "row_refuted": "".join("1" if least[v] > REFUTED else "0" for v in self.rows),
        }

    # ------------------------------------------------------------------ variables

    def _rows(self) -> list[dict[str, Any]]:
        named = self.model._states or (None,) * self.model.n_variables
        return [
            {"name": self.name(v), "states": int(self.model.n_states[v]), "labels": named[v]}
            for v in self.rows
        ]

    def _row(self, marginals: Marginals, v: int) -> list[float | None]:
        """Probabilities of all states, of many-state variables the likeliest one and its own."""
        p = marginals[v]
        if len(p) <= MOST_STATES:
            return [short(float(x), 4) for x in p]
        return [int(np.argmax(p)), short(float(p.max()), 4)]

    def _notes(self) -> list[str]:
        left = self.model.n_variables - len(self.rows)
        if not left:
            return []
        return [
            f"The table shows {len(self.rows):,} of {self.model.n_variables:,} variables, those "
            "that the kept factors moved most; all variables count in every mean, maximum and sum."
        ]


def chosen_rows(result: Result) -> list[int]:
    """Variables of the table: all, or those whose marginals are furthest from the seed's."""
    n = result.model.n_variables
    if n <= MOST_ROWS:
        return list(range(n))
    return sorted(moved(result)[:MOST_ROWS].tolist())


def residuals(marginals: Marginals) -> list[list[float | None]]:
    """Iterations and the largest change of any probability in them, at most MOST_RESIDUALS."""
    every = marginals.residuals
    places = np.unique(np.linspace(0, max(len(every) - 1, 0), MOST_RESIDUALS).astype(int))
    return [[int(i) + 1, short(float(every[i]))] for i in places if i < len(every)]
