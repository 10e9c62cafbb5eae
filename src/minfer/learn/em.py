"""EM, for all that learns tables from cases of which something is missing.

**What is maximised.** log P(data) + sum over cells of alpha log theta, where alpha are the prior's
pseudo-counts. Each step of EM raises it (Dempster, Laird & Rubin 1977); that is checked at every
step, with the objective computed at the tables that are reported. The estimate
(n + alpha) / (N + sum of alpha) is its maximum, and the posterior mean under a Dirichlet prior with
parameters alpha.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_choice, check_number, check_type, check_whole
from minfer.learn.estimator import Estimator

Floats = NDArray[np.float64]
T = TypeVar("T")  # tables, and counts, in whatever form they lie

STARTS = ("counts", "random", "structure")
ROUNDING = 1e-9  # of the objective: what a step may seem to lose

ADVICE = {
    "counted": "",
    "converged": "",
    "out of iterations": "raise max_iterations, or tol if this is near enough",
    "fell": "a step lowered the objective by more than rounding: please report it",
}


class Expected(NamedTuple, Generic[T]):
    """Under some tables."""

    counts: T
    likelihood: float
    objective: float


class LearnedTables(NamedTuple, Generic[T]):
    """Tables, and the counts that they were made from or would be made of next."""

    theta: T
    counts: T
    likelihood: float
    trace: list[float]  # the objective, at the tables of each step
    status: str

    @property
    def objective(self) -> float:
        return self.trace[-1]


class TablesByEM(Estimator):
    """What estimators by EM have in common: their settings, climbs, and what they say of them."""

    strength: float
    start: str
    restarts: int
    max_iterations: int
    tol: float
    random_state: int | None
    missing: Sequence[str]
    workers: int

    def _check_settings(self) -> None:
        who = type(self).__name__
        check_choice(f"{who}: start", self.start, STARTS)
        check_number(f"{who}: strength", self.strength, 0.0)
        for name in ("restarts", "max_iterations", "workers"):
            check_whole(f"{who}: {name}", getattr(self, name), 1)
        check_number(f"{who}: tol", self.tol, 0.0)
        check_type(self.missing, Iterable, f"{who}: missing must be a list of texts")
        if self.random_state is not None:
            check_whole(f"{who}: random_state", self.random_state)

    def _best_climb(
        self,
        begin: Callable[[str], T],
        expect: Callable[[T], Expected[T]],
        improved: Callable[[T, T], T],
        say: Callable[[int, int, float], None] | None = None,
    ) -> LearnedTables[T]:
        """The best of some climbs, each from the tables that ``begin`` makes for a kind of start.

        ``improved``: tables from expected counts and the tables before them; ``say`` hears of each
        step: run, step, objective.
        """
        found = []
        for run in range(self.restarts):
            trace: list[float] = []
            theta, status = begin("random" if run else self.start), ""
            while True:
                now = expect(theta)
                size = max(abs(now.objective), 1.0)
                gain = (now.objective - trace[-1]) / size if trace else np.inf
                trace.append(now.objective)
                if say is not None:
                    say(run, len(trace) - 1, now.objective)
                if gain <= self.tol:
                    status = "fell" if gain < -ROUNDING else "converged"
                elif len(trace) > self.max_iterations:
                    status = "out of iterations"
                if status:
                    break
                theta = improved(now.counts, theta)
            found.append(LearnedTables(theta, now.counts, now.likelihood, trace, status))
        return max(found, key=lambda one: one.objective)

    def _say(self, found: LearnedTables[Any]) -> None:
        """What was found, as attributes."""
        self.objective_, self.log_likelihood_ = found.objective, found.likelihood
        self.trace_, self.n_iter_ = found.trace, max(len(found.trace) - 1, 1)
        self.status_, self.advice_ = found.status, ADVICE[found.status]
        self.converged_ = found.status in ("counted", "converged")


def drawn_weights(rng: np.random.Generator, size: Any) -> Floats:
    """Positive weights of random tables, before they are normalised."""
    return rng.gamma(1.0, size=size) + 1e-3


def dot_logs(counts: Floats, theta: Floats) -> float:
    """Sum of counts times log theta, where there are counts."""
    some = counts > 0.0
    with np.errstate(divide="ignore"):
        return float(counts[some] @ np.log(theta[some]))
