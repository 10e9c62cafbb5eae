"""A model or a picture as what is swept: its results, their bounds and intervals.

Three kinds of numbers, never mixed: *rigorous* (``bound``; with ``certify`` also intervals of the
full model's marginals, found once, and how every step's answer fares by them), *estimates*
(``divergence``, ``error_*``), and *measured* ones, differences from a reference that is named.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minfer.basics.words import outward, upwards
from minfer.reduction import bound
from minfer.reduction.compare import (
    Outcome,
    Reference,
    Trial,
    baseline_trials,
    find_reference,
    load_baselines,
)
from minfer.reduction.parts_of_infer import check_certify
from minfer.reduction.result import Result
from minfer.report.sweep import moved, short, shown_errors
from minfer.say.intervals import REFUTED
from minfer.say.reduced import next_move, why_no_bound
from minfer.solvers.base import Status

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.reduction.objectives import SelectionObjective
    from minfer.report.drawings import GraphDrawing, PictureDrawing
    from minfer.solvers.base import Marginals

MOST_ROWS = 100  # variables in the table
MOST_STATES = 8  # of a variable, all shown; of others the likeliest one
MOST_RESIDUALS = 120  # points of a convergence trace
MOST_BOUNDED = bound.MOST_BOUNDED // 10  # a report has a dozen steps
BOUNDING = 20.0  # seconds that all bounds of a report may take


class SweptModel:
    """A factor graph, answered by Results; the slider starts at ``objective``.

    ``draw`` makes a drawing from the first Result, ``name`` calls a variable by its number, and
    ``first`` is what ``run`` gave for the objective, where that is known.
    """

    everything = ""  # the objective chooses from all

    def __init__(
        self,
        model: FactorGraph,
        objective: SelectionObjective,
        run: Callable[[SelectionObjective], Result],
        draw: Callable[[Result], GraphDrawing | PictureDrawing],
        name: Callable[[int], str],
        no_bound: str = "",
        certify: float | None = None,
        first: Result | None = None,
    ) -> None:
        check_certify(certify)
        self.model, self.run, self.name, self.no_bound = model, run, name, no_bound
        self.first = run(objective) if first is None else first
        self.scores = self.eligible = self.first.scores
        self.drawing = draw(self.first)
        rows = moved(self.first)  # of the table: those furthest from the seed's
        self.rows = sorted(rows[:MOST_ROWS].tolist())
        self.bounding = 0.0
        self.sure = self.first.intervals
        if self.sure is None and certify is not None:
            self.sure = self.first.certified(certify).intervals

    def prepare(self, objectives: Sequence[SelectionObjective | None]) -> Reference:
        reference = find_reference(self.model)
        for objective in (objectives[0], objectives[-1]):
            self.trial("", objective).run()
        load_baselines(self.model)
        return reference

    def trial(self, setting: str, objective: SelectionObjective | None) -> Trial:
        assert objective is not None
        return Trial("reduced", setting, False, lambda: Outcome.of(self.run(objective)))

    def baselines(self) -> list[Trial]:
        return baseline_trials(self.model)

    def step(
        self, objective: SelectionObjective | None, answer: Result
    ) -> tuple[NDArray[np.bool_], dict[str, Any]]:
        m = answer.marginals
        errors = shown_errors(answer)
        bound, reason = self._rigorous(answer)
        return answer.keep, {
            "kept": answer.n_added,
            "status": answer.status.value,
            "converged": bool(answer.converged),
            "moved": None if answer.settled else short(answer.last_change),
            "exact": m.status is Status.EXACT,
            "iterations": int(m.iterations),
            "residuals": residuals(m),
            "trace": [[short(s.seconds), s.n_added, short(s.divergence)] for s in answer.trace],
            "divergence": short(answer.divergence),
            "error_mean": short(answer.mean_error_estimate),
            "error_max": None if errors is None else short(float(errors.max(initial=0.0))),
            "no_estimate": answer.no_estimate and answer.no_estimate + next_move(answer),
            "bound": short(bound),
            "no_bound": reason,
            "rows": [self._row(m, v) for v in self.rows],
            "row_errors": [None if errors is None else short(float(errors[v])) for v in self.rows],
            **self._judged(m),
            "drawing": self.drawing.step(answer),
        }

    def whole(self) -> dict[str, Any]:
        first, named = self.first, self.model._states or (None,) * self.model.n_variables
        return {
            "score": first.score_kind,
            "solver": repr(first.marginals.solver),
            "n_seed": first.n_seed,
            "n_forced": first.n_forced,
            "n_candidates": first.n_factors - first.n_seed - first.n_forced,
            "seed_residuals": residuals(first.seed_marginals),
            "rows": [
                {"name": self.name(v), "states": int(self.model.n_states[v]), "labels": named[v]}
                for v in self.rows
            ],
            "certified": self._certified(),
            "drawing": self.drawing.data,
            "notes": [*self.drawing.notes, *self._notes()],
        }

    def _rigorous(self, result: Result) -> tuple[float | None, str]:
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
        reason = why_no_bound(result)
        self.bounding += time.perf_counter() - began
        return (None, reason) if reason else (result.bound, "")

    # ------------------------------------------------------------------ intervals

    def _certified(self) -> dict[str, Any] | None:
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


def residuals(marginals: Marginals) -> list[list[float | None]]:
    """Iterations and the largest change of any probability in them, at most MOST_RESIDUALS."""
    every = marginals.residuals
    places = np.unique(np.linspace(0, max(len(every) - 1, 0), MOST_RESIDUALS).astype(int))
    return [[int(i) + 1, short(float(every[i]))] for i in places if i < len(every)]
