"""The sweep behind a report: a model or a sentence at many values of the objective's parameter.

The values are chosen from the scores of what is swept, so that few to all of the candidates are
kept (:func:`values`). Every step is timed as :mod:`minfer.reduction.compare`
does, beside baselines. What is swept, a :class:`Subject`, has its own mathematics and drawing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_whole
from minfer.basics.words import plain
from minfer.errors import SettingsError
from minfer.reduction.objectives import Budget, MinDivergence, MinJoint, MinSize, SelectionObjective

if TYPE_CHECKING:
    from minfer.reduction.compare import Reference, Trial
    from minfer.reduction.result import Result

REPEATS = 3
STEPS = 16
BINS = 36

PARAMETERS = {
    "factor_cost": "factor cost",
    "max_divergence": "largest divergence",
    "max_factors": "most factors added",
}


class Parameter(NamedTuple):
    """The number that the slider moves, and the objective at a value of it."""

    name: str
    value: float
    make: Callable[[float], SelectionObjective]

    @property
    def label(self) -> str:
        return PARAMETERS[self.name]

    def threshold(self, value: float | None, kept: NDArray[np.float64]) -> float | None:
        """The score below which factors are ignored: the cost itself, or the least one kept."""
        if value is None or self.name == "factor_cost":
            return value
        chosen = kept[np.isfinite(kept)]
        return float(chosen.min()) if len(chosen) else None


def parameter_of(objective: SelectionObjective) -> Parameter:
    """Of a budget the first limit that is set; the others stay as they are."""
    if not isinstance(objective, (MinSize, MinDivergence, MinJoint, Budget)):
        raise SettingsError(
            f"report: the slider moves the parameter of MinSize, MinDivergence, MinJoint or "
            f"Budget; {objective!r} has none"
        )
    given = [f.name for f in fields(objective) if getattr(objective, f.name) is not None]
    name = next(name for name in PARAMETERS if name in given)

    def make(value: float) -> SelectionObjective:
        changed: dict[str, Any] = {name: value}
        return replace(objective, **changed)

    return Parameter(name, getattr(objective, name), make)


def values(parameter: Parameter, scores: NDArray[np.float64], steps: int = STEPS) -> list[float]:
    """Values of a parameter, the fewest kept factors first, its own among them; ``scores`` (F,)."""
    ranked = -np.sort(-scores[np.isfinite(scores)])
    n = len(ranked)
    own = parameter.value
    if not n:
        return [own]
    between = np.geomspace(max(1, n // 300), n, max(steps - 1, 2))
    sizes = [0, *between.round().astype(int).tolist()]
    proposed = [own]
    for k in dict.fromkeys(sizes):
        if parameter.name == "max_factors":
            proposed.append(k)
        elif parameter.name == "factor_cost":
            proposed.append(_up(2 * ranked[0]) if k == 0 else -_up(-ranked[k - 1]) * (k < n))
        else:
            proposed.append(_up(float(ranked[k:].sum())))
    by_size: dict[int, float] = {}
    for value in proposed:  # the first of a size stays: the given one where it is one of them
        by_size.setdefault(int(parameter.make(value)(scores).sum()), value)
    return [by_size[size] for size in sorted(by_size)]


def _up(x: float) -> float:
    """At least x, with two digits."""
    y = float(f"{x:.1e}")
    return y if y >= x else float(f"{y + 10.0 ** (math.floor(math.log10(abs(x))) - 1):.1e}")


class Histogram:
    """Finite positive scores in bins that are even in their logarithm; zeros are counted apart."""

    def __init__(self, scores: NDArray[np.float64]) -> None:
        free = np.isfinite(scores)
        self.positive = free & (scores > 0)
        logs = np.log10(scores[self.positive])
        low, high = (float(logs.min()), float(logs.max())) if len(logs) else (-1.0, 0.0)
        low = max(low, high - 12.0)
        narrow = max(0.5 - (high - low) / 2, 0.0)  # at least a decade
        self.edges = np.linspace(low - narrow, high + narrow, BINS + 1)
        self.bin = np.clip(np.searchsorted(self.edges, logs, side="right") - 1, 0, BINS - 1)
        self.data: dict[str, Any] = {
            "edges": [short(10.0**e) for e in self.edges],
            "counts": np.bincount(self.bin, minlength=BINS).tolist(),
            "zeros": int((free & (scores <= 0)).sum()),
        }

    def kept(self, keep: NDArray[np.bool_]) -> list[int]:
        return np.bincount(self.bin[keep[self.positive]], minlength=BINS).tolist()


def moved(result: Result) -> NDArray[np.int64]:
    """Variables by how far their marginals are from the seed's, the furthest first, (V,)."""
    off = np.abs(result.marginals.probs - result.seed_marginals.probs)
    if not len(off):
        return np.zeros(0, dtype=np.int64)
    return np.argsort(-np.maximum.reduceat(off, result.model.offsets[:-1]), kind="stable")


def shown_errors(result: Result) -> NDArray[np.float64] | None:
    """Estimated errors (V,) that may stand beside an answer; None where there are none."""
    return None if result.no_estimate else result.error_estimates


def short(x: float | None, digits: int = 5) -> float | None:
    """A number with few digits; None for what JSON cannot hold."""
    if x is None or not math.isfinite(x):
        return None
    return float(f"{x:.{digits}g}")


# ---------------------------------------------------------------------- the sweep


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
        from minfer.reduction.compare import Tradeoff, measured

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
