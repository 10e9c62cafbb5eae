"""What :func:`minfer.infer` and :func:`minfer.relax` share: seed, weights, damping, clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from minfer.basics.checks import bool_mask, brief, check_graph, check_seconds, check_solver
from minfer.basics.limits import clock
from minfer.errors import RefusedError, SettingsError
from minfer.factors.group import Floats, Mask
from minfer.graph import FactorGraph
from minfer.solvers.base import inner, with_inner

if TYPE_CHECKING:
    from minfer.reduction.sources import FactorSource
    from minfer.solvers.base import Marginals, Solver

#: What counts as standing still for solvers without a tolerance of their own.
TOLERANCE = 1e-6

Seed = Mask | Callable[[FactorGraph], Mask]


def check_certify(certify: float | None, source: FactorSource | None = None) -> None:
    """Seconds, or None; not for a model of which only a part is ever built."""
    check_seconds("certify", certify)
    if certify is not None and source is not None:
        raise RefusedError(
            "certify: intervals are about the full model, of which this source builds only what "
            "can matter: infer in minfer.ground(model, source), which has all factors, without "
            "source="
        )


def check_callable(objective: object, solver: object) -> None:
    if not callable(objective) or isinstance(objective, type):
        raise SettingsError(
            f"{brief(objective)} is not an objective: infer(model, MinJoint(0.01), Exact())"
        )
    check_solver(solver)


def seed_mask(model: FactorGraph, seed: Seed) -> Mask:
    check_graph(model, "inference")
    return bool_mask(seed(model) if callable(seed) else seed, model.n_factors, "seed")


def edge_weights(solver: Solver, model: FactorGraph, keep: Mask) -> Floats | None:
    """Edge appearance probabilities of the full model (F,), if the solver is tree-reweighted.

    Zeros of factors that are not kept do not count: an edge that they fix an end of is an edge of
    the reduced model all the same, and must have its weight.
    """
    while (inside := inner(solver)) is not None:
        solver = inside
    appearance = getattr(solver, "appearance", None)
    return None if appearance is None else appearance(_without_zeros(model, ~keep))


def _without_zeros(model: FactorGraph, which: Mask) -> FactorGraph:
    """The model with zeros of some factors (a mask) turned into ones; itself if there are none."""
    groups = []
    for g in model.groups:
        groups.append(g if g.form == "messages" else g.without_zeros(which[g._ids]))
    same = all(a is b for a, b in zip(groups, model.groups))
    return model if same else replace(model, groups=tuple(groups))


def with_edge_weights(solver: Solver, rho: Floats | None, model: FactorGraph) -> Solver:
    """The solver with the full model's edge weights on what is kept of it, so that both agree."""
    return solver if rho is None else with_inner(solver, lambda s: s.lending(model, rho))


def tolerance_of(solver: object) -> float:
    """How far a probability may move in a step that counts as standing still."""
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
    """Wall-clock seconds of each step, without those of compiling and loading kernels."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self.last = clock()

    def lap(self, name: str) -> None:
        now = clock()
        self.laps[name] = self.laps.get(name, 0.0) + now - self.last
        self.last = now
