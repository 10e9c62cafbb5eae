"""Clamping: a few variables are set to each of their states, and the runs are mixed.

With c the clamped variables,

    p(x) = sum_s p(c = s) p(x | c = s),        p(c = s) proportional to Z(c = s),

an identity; with a solver's answers and its estimates of log Z it is an approximation whose errors
shrink as what is clamped splits the modes that the solver cannot hold in one answer (Eaton &
Ghahramani 2009, "Choosing a variable to clamp", AISTATS; Weller & Jebara 2014, "Clamping variables
and approximate inference", NIPS). Bounds stay bounds: a sum of lower (upper) bounds on Z(c = s) is
one on Z, and from exact answers the mixture is exact.

Which variables: the solver is run again from a few other starts, in the branch of the largest
weight. The variable in which these answers differ the most, times its number of factors, is clamped
next; where they agree, it is the least certain one with many factors.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, is_dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_graph, check_seconds, check_solver, check_whole
from minfer.basics.limits import clock, deadline_of, start_clock
from minfer.basics.words import counted
from minfer.engine.conditioning import condition
from minfer.engine.support import lift
from minfer.errors import NOTHING_POSSIBLE, ContradictionError, RefusedError
from minfer.solvers.base import Marginals, Solver, Status, check_start, normalised
from minfer.solvers.batch import joint_kind
from minfer.solvers.bp import RETRY_DAMPING, BeliefPropagation
from minfer.solvers.components import _SEVERITY
from minfer.solvers.prepared import Preparable

if TYPE_CHECKING:
    from minfer.graph import FactorGraph

#: Runs of one mixture, at most, whatever k and the numbers of states.
MAX_RUNS = 1024
#: A branch with less than this share of the largest one's weight is not split further.
NEGLIGIBLE = 1e-12
#: How far other starts are pushed: standard deviation of the field of the runs they begin with.
PUSH = 3.0
_AGREE = 0.02  # answers of different starts that differ by less count as the same


@dataclass(frozen=True)
class Clamped(Preparable):
    """Runs a solver with k variables clamped to all their states, and mixes the answers.

    Parameters
    ----------
    solver : any solver with a log Z
    k : int
        Variables to clamp. Fewer where the mixture would have more than 1,024 runs.
    restarts : int
        Runs from other starts, used to choose each variable; with 0 only its entropy and degree
        count.
    rng : int
        Seed of the other starts.
    time_limit : float or None
        Seconds; no further variable is clamped, and no further run begun, when they have passed.

    Notes
    -----
    For models with a few modes. The error estimate is how far the last variable moved a marginal.
    ``start`` is handed to the first run.

    Examples
    --------
    >>> import numpy as np
    >>> from minfer import BeliefPropagation, Clamped, Exact, FactorGraph
    >>> two_modes = FactorGraph.grid(np.full((4, 4), 0.05), 3.0, feature="equal")
    >>> [round(float(s(two_modes)[0][1]), 2) for s in (BeliefPropagation(), Clamped(), Exact())]
    [1.0, 0.69, 0.69]
    """

    solver: Solver = field(default_factory=BeliefPropagation)
    _: KW_ONLY
    k: int = 3
    restarts: int = 4
    rng: int = 0
    time_limit: float | None = None

    def __post_init__(self) -> None:
        check_solver(self.solver)
        for name in ("k", "restarts", "rng"):
            check_whole(name, getattr(self, name), 0)
        check_seconds("time_limit", self.time_limit)

    def __call__(self, graph: FactorGraph, start: Marginals | None = None) -> Marginals:
        check_graph(graph)
        check_start(start)
        return _Mixture(self, graph, start).answer()


class _Branch(NamedTuple):
    """One assignment of the clamped variables, as evidence, and its answer."""

    graph: FactorGraph
    answer: Marginals


class _Mixture:
    """The branches of one call."""

    def __init__(self, settings: Clamped, graph: FactorGraph, start: Marginals | None) -> None:
        self.settings, self.graph = settings, graph
        self.begin = start_clock(settings.time_limit)
        self.deadline = deadline_of(settings.time_limit, clock())
        self.rng = np.random.default_rng(settings.rng)
        self.model = model = condition(graph)
        self.free = model.fixed < 0
        self.allowed = model.field > -np.inf
        self.degree = model.arrays.degree
        self.clamped: list[int] = []
        first = self._solve(graph, start)
        if math.isnan(first.log_z):
            raise RefusedError(
                f"Clamped: {first.solver} has no log Z to weigh its answers by; use one that has, "
                "such as BeliefPropagation, TreeReweighted or JoinGraph"
            )
        self.branches = [_Branch(graph, first)]
        self.probs = self.mixed()
        self.moved: float | None = None
        self.cut_short = False

    def _solve(self, graph: FactorGraph, start: Marginals | None = None) -> Marginals:
        solver: Any = self.settings.solver
        if self.deadline < math.inf and is_dataclass(solver) and hasattr(solver, "time_limit"):
            left = max(self.deadline - clock(), 1e-3)
            own = solver.time_limit
            solver = replace(solver, time_limit=left if own is None else min(own, left))  # type: ignore[type-var]
        found = solver(graph, start)
        if found.converged or getattr(solver, "damping", None) != 0.0 or self.out_of_time:
            return found
        again = replace(solver, damping=RETRY_DAMPING)(graph, start)
        return again if again.converged else found

    @property
    def out_of_time(self) -> bool:
        return clock() > self.deadline

    def answer(self) -> Marginals:
        for _ in range(self.settings.k):
            v = self._next()
            if v < 0:
                break
            if self.out_of_time or not self._clamp(v):
                self.cut_short = True
                break
        answers = [b.answer for b in self.branches]
        if self.log_z() == -math.inf:
            raise self._lost()
        w = self.weights()
        status = max((a.status for a, x in zip(answers, w) if x > 0), key=_SEVERITY.index)
        if status is Status.EXACT and any(a.status is not Status.EXACT for a in answers):
            status = Status.CONVERGED  # what a bound makes light may be heavy
        if status is Status.GIVEN:
            status = Status.CONVERGED
        if self.cut_short and status is not Status.EXACT:
            status = Status.TIME_LIMIT
        if status is not Status.EXACT:
            lift(self.model, self.probs)
        names = ", ".join(self.graph.name(v) for v in self.clamped) or "nothing"
        return Marginals(
            self.graph, self.probs, self.settings, status,
            joint_kind({a.log_z_kind for a in answers}),
            iterations=sum(a.iterations for a in answers),
            residuals=answers[int(np.argmax(w))].residuals,
            timings={"solve": clock() - self.begin},
            error_estimate=None if status is Status.EXACT else self.moved,
            note=f"clamped {names}: {counted(len(answers), 'run')}, the largest weight "
            f"{w.max():.3g}",
            state=MixtureState(tuple(answers), w, self.log_z()),
        )  # fmt: skip

    def weights(self) -> NDArray[np.float64]:
        """By log Z, (B,); equal where no run has mass on anything allowed."""
        z = np.array([b.answer.log_z for b in self.branches])
        w = np.ones(len(z)) if z.max() == -np.inf else np.exp(z - z.max())
        return w / w.sum()

    def log_z(self) -> float:
        return float(np.logaddexp.reduce([b.answer.log_z for b in self.branches]))

    def _lost(self) -> RefusedError:
        return RefusedError(
            f"Clamped: no run of {self.settings.solver!r} has mass on anything allowed (its log Z "
            "is minus infinity), though that is no proof; use it over BeliefPropagation or "
            "JoinGraph, or clamp more variables (k)"
        )

    def mixed(self) -> NDArray[np.float64]:
        out = np.zeros(len(self.branches[0].answer.probs))
        for w, b in zip(self.weights(), self.branches):
            out += w * b.answer.probs
        return normalised(out, self.graph._offsets)

    def _next(self) -> int:
        """The variable to clamp, or -1 where there is none left that another depends on."""
        able = self.free & (self.degree > 0)
        able[self.clamped] = False
        if not able.any():
            return -1
        off = self.graph._offsets
        heaviest = self.branches[int(np.argmax(self.weights()))]
        differ = np.zeros(len(self.probs))
        for _ in range(self.settings.restarts):
            if self.out_of_time:
                break
            pushed = heaviest.graph.tilt(PUSH * self.rng.normal(size=len(self.probs)))
            with suppress(ContradictionError, RefusedError):
                other = self._solve(heaviest.graph, self.settings.solver(pushed, None))
                differ = np.maximum(differ, np.abs(other.probs - heaviest.answer.probs))
        by_variable = np.maximum.reduceat(differ, off[:-1])
        if by_variable[able].max() < _AGREE:
            each = -self.probs * np.log(np.maximum(self.probs, 1e-300))
            by_variable = np.add.reduceat(each, off[:-1])
        score = np.where(able, by_variable * np.log1p(self.degree), -1.0)
        return int(np.argmax(score))

    def _clamp(self, v: int) -> bool:
        """Split every branch by variable v; False if time or the number of runs does not allow."""
        off = self.graph._offsets
        states = np.flatnonzero(self.allowed[off[v] : off[v + 1]]).tolist()
        if len(self.branches) * len(states) > MAX_RUNS:
            return False
        top = max(b.answer.log_z for b in self.branches)
        new: list[_Branch] = []
        lost = 0
        for branch, s in product(self.branches, states):
            if branch.answer.log_z < top + math.log(NEGLIGIBLE):
                if s == states[0]:
                    new.append(branch)
                continue
            if self.out_of_time:
                return False
            graph = branch.graph.with_evidence({v: s})
            try:
                found = self._solve(graph)
            except ContradictionError:
                continue
            if not math.isnan(found.log_z) and found.log_z > -math.inf:
                new.append(_Branch(graph, found))
            else:
                lost += 1
        if not new and lost:
            raise self._lost()
        if not new:
            raise ContradictionError(NOTHING_POSSIBLE)
        self.branches = new
        self.clamped.append(v)
        before, self.probs = self.probs, self.mixed()
        self.moved = float(np.abs(before - self.probs).max(initial=0.0))
        return True


@dataclass(frozen=True, eq=False)
class MixtureState:
    """The runs and their weights."""

    answers: tuple[Marginals, ...]
    weights: NDArray[np.float64]
    value: float

    def log_z(self) -> float:
        return self.value

    def factor(self, factor: int) -> NDArray[np.float64]:
        """The mixture of the runs' joint marginals."""
        weighed = zip(self.weights, self.answers)
        joint = np.asarray(sum(w * a.factor(factor) for w, a in weighed if w > 0))
        return np.asarray(joint / joint.sum())
