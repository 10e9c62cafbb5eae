"""The sweep behind a report: a model or a sentence at many values of the objective's parameter.

The values are chosen from the scores of what is swept, so that few to all of the candidates are
kept (:func:`minfer.report.parts.values`). Every step is timed as :mod:`minfer.reduction.compare`
does, beside baselines. What is swept, a :class:`Subject`, has its own mathematics and drawing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_whole
from minfer.basics.words import plain
from minfer.reduction.compare import Reference, Tradeoff, Trial, measured
from minfer.report.parts import STEPS, Histogram, parameter_of, short, values

if TYPE_CHECKING:
    from minfer.reduction.objectives import SelectionObjective

REPEATS = 3


class Subject(Protocol):
    """What is swept. The objective None, of a last step, sets no limit."""

    scores: NDArray[np.float64]  # (F,) of all that can be kept, infinite where it is kept anyway
    eligible: NDArray[np.float64]  # of what an objective chooses from
    everything: str  # what a last step without a limit is called; empty if there is none

    def prepare(self, objectives: Sequence[SelectionObjective | None]) -> Reference:
        """The reference; and every kernel that is about to be timed, compiled and loaded."""

    def trial(self, setting: str, objective: SelectionObjective | None) -> Trial:
        """One step, still to be measured."""

    def baselines(self) -> Iterable[Trial]:
        """What the steps have to beat."""

    def step(
        self, objective: SelectionObjective | None, answer: Any
    ) -> tuple[NDArray[np.bool_], dict[str, Any]]:
        """What of ``scores`` is kept (F,), and what is shown of a trial's answer: kept, status,
        converged, iterations, residuals, divergence, rows, drawing, and what only it has."""

    def whole(self) -> dict[str, Any]:
        """What is shown beside the steps: score, n_candidates, seed_residuals, rows, drawing,
        notes, and what only it has."""


class Sweep:
    """An objective's parameter, moved over its values in about so many steps."""

    def __init__(self, objective: SelectionObjective, steps: int = STEPS) -> None:
        check_whole("steps", steps, 2)
        self.parameter, self.steps = parameter_of(objective), steps

    def collect(self, subject: Subject) -> dict[str, Any]:
        """Run all of it: what a report shows, as JSON-able data."""
        parameter, scores = self.parameter, subject.scores
        found: list[float | None] = [*values(parameter, subject.eligible, self.steps)]
        start = found.index(parameter.value)
        if subject.everything:
            found.append(None)
        objectives = [None if value is None else parameter.make(value) for value in found]
        reference = subject.prepare(objectives)
        histogram = Histogram(scores)
        points, steps = [], []
        for value, objective in zip(found, objectives):
            label = subject.everything if value is None else f"{value:g}"
            trial = subject.trial(f"{parameter.label} {label}", objective)
            point, answer = measured(trial, reference, REPEATS)
            points.append(point)
            keep, shown = subject.step(objective, answer)
            steps.append({
                "value": plain(value),
                "label": label,
                "seconds": short(point.seconds),
                "measured_mean": short(point.mean_error),
                "measured_max": short(point.max_error),
                "threshold": short(parameter.threshold(value, scores[keep])),
                "histogram": histogram.kept(keep),
                **shown,
            })  # fmt: skip
        baselines = [measured(trial, reference, REPEATS)[0] for trial in subject.baselines()]
        n = len(scores)
        return {
            "parameter": parameter.name,
            "parameter_label": parameter.label,
            "start": start,
            "steps": steps,
            "histogram": histogram.data,
            "reference": reference.name,
            "verdict": Tradeoff.of([*points, *baselines], reference, n, n).verdict,
            "baselines": [
                {
                    "method": p.method,
                    "setting": p.setting,
                    "seconds": short(p.seconds),
                    "error": short(p.mean_error),
                    "converged": bool(p.converged),
                }
                for p in baselines
            ],
            **subject.whole(),
        }
