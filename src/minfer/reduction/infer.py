"""Algorithm 1: ignorant inference with a black-box solver (Riedel, Smith & McCallum 2010).

    infer in the seed  ->  score what was left out  ->  keep what matters  ->  infer again

With ``compensate`` every ignored factor leaves its unary part behind, and ``refreshes`` bring these
parts up to date (:mod:`minfer.reduction.compensation`). With ``values`` the second inference is
over lists of the values that matter (:mod:`minfer.reduction.values`). What the answer may cost is
on the result.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import is_dataclass, replace
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.checks import (
    bool_mask,
    brief,
    check_choice,
    check_flag,
    check_number,
    check_seconds,
    check_solver,
    check_type,
    check_whole,
    real_numbers,
)
from minfer.errors import RefusedError, SettingsError
from minfer.graph import FactorGraph, check_graph
from minfer.reduction import seeds
from minfer.reduction.compensation import compensate as compensation_of
from minfer.reduction.gains import SCORES, binary_marginals, factor_scores
from minfer.reduction.objectives import Objective
from minfer.reduction.result import Result, Untouched
from minfer.reduction.sources import FactorSource, scan
from minfer.reduction.values import OverLists, Ready, Values, checked_values, why_dense
from minfer.solvers.base import MAX_DISAGREEMENT, Marginals, Solver, Status
from minfer.solvers.bp import BeliefPropagation

#: The recommended recipe: MinJoint at this cost on residual scores (a hundredth of a nat of mutual
#: information between a factor's variables), compensated, refreshed twice.
DEFAULT_FACTOR_COST = 0.01
REFRESHES = 2
#: Share of the old messages that a refresh keeps once refreshes move the answer more and more.
DAMPING = 0.3
#: What counts as standing still for solvers without a tolerance of their own.
TOLERANCE = 1e-6

Seed = NDArray[np.bool_] | Callable[[FactorGraph], NDArray[np.bool_]]


def infer(
    model: FactorGraph,
    objective: Objective | None,
    solver: Solver | None = None,
    seed: Seed = seeds.unary_and_globals,
    *,
    values: Objective | Values | None = None,
    compensate: bool = False,
    refreshes: int = 0,
    damping: float = DAMPING,
    score: str | None = None,
    costs: ArrayLike | None = None,
    source: FactorSource | None = None,
    certify: float | None = None,
) -> Result:
    """Infer in the part of a model that matters, and say what was ignored.

    Parameters
    ----------
    model : FactorGraph
    objective : MinSize, MinDivergence, MinJoint or Budget
        Which factors to keep. With ``values`` it may be None: all of them, and none is scored.
    solver : any solver, BeliefPropagation by default
        Called twice (once if nothing is added), and once more for each refresh.
    seed : bool array (F,), or a function of the model that returns one
    values : an objective for values, or Values, optional
        Infer over lists of the values that matter: those that the objective keeps on the seed's
        marginals (a value's gain is -log(1 - q), its cost what it costs to compute with, 1 on
        average), and what refreshes bring back. For belief propagation in pairs of variables
        with many values and tables without structure; elsewhere, and where lists get long, the
        whole model is swept: ``result.values`` says which, and what may be outside the lists.
        (Where that is known beforehand and all factors are kept, the seed is the whole model.)
    compensate : bool
        Ignored factors leave their unary part behind. False is the paper's method.
    refreshes : int
        How often these parts are brought up to date; each is another call of the solver. If the
        last one still moves a probability by more than the solver's tolerance, the result's
        status is "not converged"; its error estimate says how much that matters.
    damping : float in [0, 1)
        Share of the old messages that a refresh keeps, from the first one on that moved the
        answer more than the one before.
    score : "gain", "residual" or "reverse"
        What the objective sees; by default the gain, or the residual with ``compensate``.
    costs : float array (F,), optional
        What keeping each factor costs; 1 each by default.
    source : FactorSource, optional
        Candidate factors that are built only where they can matter. ``model`` is then the seed.
    certify : float, optional
        Seconds for rigorous intervals of the full model's marginals (:func:`minfer.intervals`):
        ``result.intervals``, and ``result.interval``, beyond which no probability of the answer
        can be off. They are no part of ``timings``. Needs all factors, so no ``source``.

    Examples
    --------
    >>> import numpy as np
    >>> from minfer import FactorGraph, MinJoint, infer
    >>> model = FactorGraph.grid(5 * np.random.default_rng(0).normal(size=(16, 16)), 1.0)
    >>> result = infer(model, MinJoint(factor_cost=0.05))
    >>> result.n_added < 480, result.marginals.converged
    (True, True)
    >>> sure = infer(model, MinJoint(0.05), compensate=True, refreshes=2, certify=5.0)
    >>> bool(sure.intervals.decided().mean() > 0.9), 0 < sure.interval < 0.05
    (True, True)
    >>> rng = np.random.default_rng(0)
    >>> model = FactorGraph.empty([64] * 30).tilt(6 * rng.normal(size=30 * 64))
    >>> pairs = np.stack([np.arange(29), np.arange(1, 30)], axis=1)
    >>> model = model.add_tables(pairs, rng.normal(size=(1, 64, 64)))
    >>> found = infer(model, None, values=MinJoint(0.02)).values
    >>> found.n_values, found.n_kept < 300, 0 < found.outside_estimate < 0.1
    (1920, True, True)
    """
    solver = BeliefPropagation() if solver is None else solver
    if objective is None and values is None:
        raise SettingsError("infer: give an objective for factors, one for values=, or both")
    check_callable(every_factor if objective is None else objective, solver)
    wanted = checked_values(values, solver)
    if wanted is not None and source is not None:
        raise SettingsError("infer: factors of a source are over binary variables: no values=")
    _check(refreshes, damping, compensate)
    score = checked_score(score, compensate)
    check_type(source, (FactorSource, NoneType), "source must be a FactorSource or None")
    check_certify(certify, source)
    if costs is not None:
        costs = np.asarray(real_numbers(costs, "costs", SettingsError), float)
    clock, still = Clock(), tolerance_of(solver)
    check_graph(model, "inference")
    whole = objective is None and wanted is not None and wanted.dense and why_dense(model.groups)
    mask = seed_mask(model, seed if source is None and not whole else _everything)
    ready = None
    if objective is None and wanted is not None and not whole:
        ready = Ready.of(model, mask, solver)
    if ready is not None:
        start = ready.seed
    else:
        start = solver(model if mask.all() else model.keep(mask))  # 1: infer in the seed
    check_type(start, Marginals, "a solver returns Marginals")
    clock.lap("seed")
    untouched = None
    if objective is None:
        objective = every_factor
        gains = np.where(mask, np.inf, np.nan)
    elif source is None:
        gains = factor_scores(model, start, mask, score)
    else:
        model, mask, gains, untouched = _touch(model, source, objective, start, score)
    clock.lap("gains")
    keep = objective(gains) if costs is None else objective(gains, costs)
    keep = bool_mask(keep, len(gains), "what the objective keeps")
    clock.lap("select")
    part, left = model, None  # 2: the factors that the objective picked
    if not keep.all():
        part = model.keep(keep)
    if compensate and not keep.all():
        rho = edge_weights(solver, model, keep)
        left = compensation_of(model, start.probs, keep, store=refreshes > 0, rho=rho)
        solver = with_edge_weights(solver, rho, model)
    clock.lap("compensate")
    answer, over = start, None
    if wanted is not None:
        solver = over = OverLists(wanted, solver, model, start, ready)
    if left is not None or (keep & ~mask).any():  # 3, 4: infer again if anything changed
        answer = solver(part if left is None else part.tilt(left.field), start)
    damper = Damper(damping)
    for _ in range(refreshes):
        if left is None:
            break
        left = left.refreshed(answer.probs, damper.share)
        before, answer = answer, solver(part.tilt(left.field), answer)
        damper.look(before, answer)
    lists = None if over is None else over.lists
    clock.lap("infer")
    if answer.status is Status.SAMPLED:
        still = max(still, MAX_DISAGREEMENT)
    result = Result(model, answer, start, keep, mask, gains, score, clock.laps, left,
                    untouched=untouched, gap=_gap(objective, gains, costs, keep),
                    last_change=damper.largest, values=lists, settled=damper.largest <= still
                    and (lists is None or lists.settled))  # fmt: skip
    return result if certify is None else result.certified(certify)


def _touch(
    base: FactorGraph, source: FactorSource, objective: Objective, start: Marginals, score: str
) -> tuple[FactorGraph, NDArray[np.bool_], NDArray[np.float64], Untouched]:
    """Build those factors of a source that can matter: model, seed mask, scores, and the rest."""
    found = scan(source, objective, binary_marginals(base, start.probs), score)
    n = base.n_factors
    ids = np.concatenate([np.arange(n), n + found.ids])
    model = base.add_features(found.scope, found.theta, "and")
    model = replace(model, lineage=base.lineage, _origin=ids)  # the seed's messages still fit
    mask = np.arange(model.n_factors) < n
    gains = np.concatenate([np.full(n, np.inf), found.scores])
    untouched = Untouched(
        found.untouched, found.ceiling, found.untouched_most, ids, source, found.parts
    )
    return model, mask, gains, untouched


def every_factor(gains: NDArray, costs: NDArray | None = None) -> NDArray[np.bool_]:
    """The objective of those who have none: keep all."""
    return np.ones(len(gains), dtype=bool)


def _everything(model: FactorGraph) -> NDArray[np.bool_]:
    return np.ones(model.n_factors, dtype=bool)


def _gap(objective: Objective, gains: NDArray, costs: ArrayLike | None, keep: NDArray) -> float:
    if costs is None or not hasattr(objective, "gap"):
        return 0.0
    return float(objective.gap(gains, costs, keep))


def _check(refreshes: int, damping: float, compensate: bool) -> None:
    check_flag("compensate", compensate)
    check_whole("refreshes", refreshes)
    if refreshes and not compensate:
        raise SettingsError("refreshes bring compensations up to date: set compensate=True")
    check_number("damping", damping, 0.0, below=1.0, what="in [0, 1)")


def check_certify(certify: float | None, source: FactorSource | None = None) -> None:
    """Seconds, or None; not for a model of which only a part is ever built."""
    check_seconds("certify", certify)
    if certify is not None and source is not None:
        raise RefusedError(
            "certify: intervals are about the full model, of which this source builds only what "
            "can matter: infer in minfer.ground(model, source), which has all factors, without "
            "source="
        )


def checked_score(score: str | None, compensate: bool) -> str:
    """What factors are scored by: as asked for, or as the method needs it."""
    if score is None:
        return "residual" if compensate else "gain"
    check_choice("score", score, SCORES)
    return score


def check_callable(objective: object, solver: object) -> None:
    """Refuse what is no objective or no solver before anything is computed."""
    if not callable(objective) or isinstance(objective, type):
        raise SettingsError(
            f"{brief(objective)} is not an objective: infer(model, MinJoint(0.01), Exact())"
        )
    check_solver(solver)


def seed_mask(model: FactorGraph, seed: Seed) -> NDArray[np.bool_]:
    """The seed as a mask (F,)."""
    check_graph(model, "inference")
    return bool_mask(seed(model) if callable(seed) else seed, model.n_factors, "seed")


def edge_weights(
    solver: Solver, model: FactorGraph, keep: NDArray[np.bool_]
) -> NDArray[np.float64] | None:
    """Edge appearance probabilities of the full model (F,), if the solver is tree-reweighted.

    That is one with methods ``appearance`` and ``lending``, or one around such a solver. Zeros of
    factors that are not kept do not count: an edge that they fix an end of is an edge of the
    reduced model all the same, and must have its weight.
    """
    while (inside := inner(solver)) is not None:
        solver = inside
    appearance = getattr(solver, "appearance", None)
    return None if appearance is None else appearance(_without_zeros(model, ~keep))


def _without_zeros(model: FactorGraph, which: NDArray[np.bool_]) -> FactorGraph:
    """The model with zeros of some factors (a mask) turned into ones; itself if there are none."""
    groups = []
    for g in model.groups:
        groups.append(g if g.form == "messages" else g.without_zeros(which[g._ids]))
    same = all(a is b for a, b in zip(groups, model.groups))
    return model if same else replace(model, groups=tuple(groups))


def with_edge_weights(
    solver: Solver, rho: NDArray[np.float64] | None, model: FactorGraph
) -> Solver:
    """The solver with the full model's edge weights on what is kept of it, so that both agree."""
    return solver if rho is None else with_inner(solver, lambda s: s.lending(model, rho))


def inner(solver: Any) -> Any:
    """The solver that another one calls, or None: of a dataclass, its field ``solver``."""
    return getattr(solver, "solver", None) if is_dataclass(solver) else None


def with_inner(solver: Any, change: Callable[[Any], Any]) -> Any:
    """The solver with the one that does the work, itself or inside it, replaced."""
    if inner(solver) is None:
        return change(solver)
    return replace(solver, solver=with_inner(solver.solver, change))


def tolerance_of(solver: object) -> float:
    """How far a probability may move in a step that counts as standing still.

    The solver's own, or that of the solver inside it.
    """
    own = getattr(solver, "tol", None)
    if own is not None:
        return float(own)
    inside = getattr(solver, "solver", None)
    return TOLERANCE if inside is None else tolerance_of(inside)


class Damper:
    """No damping until a step is larger than the one before."""

    def __init__(self, damping: float) -> None:
        self.damping, self.share, self.step = damping, 0.0, np.inf
        self.largest = 0.0  # change of any probability in the last step

    def look(self, before: Marginals, after: Marginals) -> float:
        """The mean change of the marginals, which decides how the next refresh is damped."""
        change = np.abs(after.probs - before.probs)
        step = float(change.mean()) if len(change) else 0.0
        self.largest = float(change.max(initial=0.0))
        if step > self.step:
            self.share = self.damping
        self.step = step
        return step


class Clock:
    """Wall-clock seconds of each step."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self.last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + now - self.last
        self.last = now
