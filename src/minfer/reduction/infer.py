"""Algorithm 1: ignorant inference with a black-box solver (Riedel, Smith & McCallum 2010).

    infer in the seed  ->  score what was left out  ->  keep what matters  ->  infer again

What the answer may cost is on the result: the surrogate divergence D1 of the ignored factors, an
estimate from the seed's marginals.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minfer.errors import ModelError
from minfer.graph import FactorGraph
from minfer.reduction import seeds
from minfer.reduction.gains import factor_gains
from minfer.reduction.objectives import Objective
from minfer.solvers.base import Marginals, Solver

Seed = NDArray[np.bool_] | Callable[[FactorGraph], NDArray[np.bool_]]


def infer(
    model: FactorGraph,
    objective: Objective,
    solver: Solver,
    seed: Seed = seeds.unary_and_globals,
) -> Result:
    """Infer in the part of a model that matters, and say what was ignored.

    Parameters
    ----------
    model : FactorGraph
    objective : MinSize, MinDivergence or MinJoint
    solver : any solver; called twice (once if nothing is added)
    seed : bool array (F,), or a function of the model that returns one

    Examples
    --------
    >>> import numpy as np
    >>> from minfer import BeliefPropagation, FactorGraph, MinJoint, infer
    >>> model = FactorGraph.grid(5 * np.random.default_rng(0).normal(size=(16, 16)), 1.0)
    >>> result = infer(model, MinJoint(factor_cost=0.05), BeliefPropagation())
    >>> result.n_added < 480, result.marginals.converged
    (True, True)
    """
    clock = _Clock()
    mask = _seed_mask(model, seed)
    start = solver(model.keep(mask))  # 1: infer in the seed
    clock.lap("seed")
    gains = factor_gains(model, start, mask)
    clock.lap("gains")
    keep = objective(gains)  # 2: pick factors by objective and bound
    clock.lap("select")
    added = keep & ~mask
    answer = solver(model.keep(keep), start) if added.any() else start  # 3, 4: infer if changed
    clock.lap("infer")
    return Result(model, answer, start, keep, mask, gains, clock.laps)


def _seed_mask(model: FactorGraph, seed: Seed) -> NDArray[np.bool_]:
    mask = np.asarray(seed(model) if callable(seed) else seed)
    if mask.dtype != bool or mask.shape != (model.n_factors,):
        raise ModelError(f"seed: a bool mask of shape ({model.n_factors},) is needed")
    return mask


class _Clock:
    """Wall-clock seconds of each step."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self.last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = now - self.last
        self.last = now


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """The answer of :func:`infer`, and what it left out.

    Attributes
    ----------
    marginals : Marginals
        Of the reduced model H.
    seed_marginals : Marginals
    keep : bool array (F,)
        Factors of H; ``kept`` are their numbers.
    seed : bool array (F,)
    gains : float array (F,)
        Infinite on the seed and on factors that must be kept.
    timings : dict
        Wall-clock seconds of seed, gains, select, infer.
    """

    model: FactorGraph
    marginals: Marginals
    seed_marginals: Marginals
    keep: NDArray[np.bool_]
    seed: NDArray[np.bool_]
    gains: NDArray[np.float64]
    timings: Mapping[str, float]

    @property
    def kept(self) -> NDArray[np.int64]:
        """Numbers of the kept factors, increasing."""
        return np.flatnonzero(self.keep)

    @property
    def n_seed(self) -> int:
        return int(self.seed.sum())

    @property
    def n_forced(self) -> int:
        """Factors outside the seed with an infinite gain: kept whatever the objective."""
        return int((np.isinf(self.gains) & ~self.seed).sum())

    @property
    def n_added(self) -> int:
        """Factors that the objective chose to add: neither seed nor forced."""
        return int(self.keep.sum()) - self.n_seed - self.n_forced

    @property
    def divergence(self) -> float:
        """The surrogate D1 = sum of the ignored factors' gains: an estimate of D(p_H || p_F)."""
        return float(self.gains[~self.keep].sum())

    @property
    def seconds(self) -> float:
        return sum(self.timings.values())

    def __repr__(self) -> str:
        n = self.model.n_factors - self.n_seed
        share = (int(self.keep.sum()) - self.n_seed) / n if n else 1.0
        return (
            f"Result(kept {share:.1%} of {n:,} factors outside the seed; divergence about "
            f"{self.divergence:.3g}; {self.marginals.status.value}; {self.seconds * 1e3:.3g} ms)"
        )
