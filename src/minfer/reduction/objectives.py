"""The three objectives: which factors to keep, given their gains (sections 3.2 to 3.4).

The surrogate divergence of a set of dropped factors R is D1 = sum_{i in R} g(i). Each objective is
optimal for it, in expected linear time:

* ``MinSize(max_divergence)``: fewest factors with D1 within the bound. Drop the smallest gains
  while their sum stays within it; the factor that would cross it is kept.
* ``MinDivergence(max_factors)``: least D1 with at most that many added factors: the largest gains.
* ``MinJoint(factor_cost)``: least D1 + factor_cost * size: keep gains >= factor_cost. One pass.

Infinite gains (the seed, and tables the seed's marginals contradict) are always kept and count in
no budget. Ties are broken by factor number, the earlier one kept. The paper sorts for the first
two, O(n log n); selection needs O(n) and leaves the kept factors in their natural order
(``paper_order=True`` in ``__call__`` takes the paper's way, for timing).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.errors import SettingsError


@runtime_checkable
class Objective(Protocol):
    """Turns gains into a mask of factors to keep."""

    def __call__(self, gains: NDArray[np.float64]) -> NDArray[np.bool_]: ...


@dataclass(frozen=True)
class MinSize:
    """Fewest factors whose dropped rest has surrogate divergence at most ``max_divergence``."""

    max_divergence: float

    def __post_init__(self) -> None:
        if not self.max_divergence >= 0:
            raise SettingsError(f"max_divergence must be 0 or more, not {self.max_divergence}")

    def __call__(self, gains: ArrayLike, paper_order: bool = False) -> NDArray[np.bool_]:
        gains = _checked(gains)
        if paper_order:
            order = np.lexsort((-np.arange(len(gains)), gains))
            dropped = int(np.searchsorted(np.cumsum(gains[order]), self.max_divergence, "right"))
            keep = np.ones(len(gains), dtype=bool)
            keep[order[:dropped]] = False
            return keep
        return _drop_smallest(gains, self.max_divergence)


@dataclass(frozen=True)
class MinDivergence:
    """Least surrogate divergence with at most ``max_factors`` added factors."""

    max_factors: int

    def __post_init__(self) -> None:
        if int(self.max_factors) != self.max_factors or self.max_factors < 0:
            raise SettingsError(f"max_factors must be a whole number >= 0, not {self.max_factors}")

    def __call__(self, gains: ArrayLike, paper_order: bool = False) -> NDArray[np.bool_]:
        gains = _checked(gains)
        finite = np.isfinite(gains)
        n = int(finite.sum())
        m = min(int(self.max_factors), n)
        if m == n:
            return np.ones(len(gains), dtype=bool)
        if paper_order:
            order = np.argsort(-np.where(finite, gains, -1.0), kind="stable")
            keep = ~finite
            keep[order[:m]] = True
            return keep
        if m == 0:
            return ~finite
        ranked = np.where(finite, gains, -1.0)
        threshold = np.partition(ranked, len(ranked) - m)[len(ranked) - m]
        keep = ~finite | (ranked > threshold)
        ties = np.flatnonzero(ranked == threshold)
        missing = m - int((keep & finite).sum())
        keep[ties[:missing]] = True
        return keep


@dataclass(frozen=True)
class MinJoint:
    """Least surrogate divergence plus ``factor_cost`` per factor: keep gains >= factor_cost."""

    factor_cost: float

    def __post_init__(self) -> None:
        if np.isnan(self.factor_cost):
            raise SettingsError("factor_cost must be a number")

    def __call__(self, gains: ArrayLike) -> NDArray[np.bool_]:
        return _checked(gains) >= self.factor_cost


def _checked(gains: ArrayLike) -> NDArray[np.float64]:
    gains = np.asarray(gains, dtype=np.float64)
    if gains.ndim != 1:
        raise SettingsError(f"gains must have shape (F,), not {gains.shape}")
    return gains


def _drop_smallest(gains: NDArray[np.float64], budget: float) -> NDArray[np.bool_]:
    """Keep mask after dropping the smallest gains while their sum stays within the budget.

    Halving by selection: if the lower half fits, drop it and go on with the upper; else look into
    the lower half. n + n/2 + ... steps. Equal gains at the threshold are dropped from the end.
    """
    candidates = gains[gains <= budget]
    threshold, spent = -np.inf, 0.0
    while len(candidates):
        middle = len(candidates) // 2
        candidates = np.partition(candidates, middle)
        lower = candidates[: middle + 1]
        total = float(lower.sum())
        if spent + total <= budget:
            spent += total
            threshold = float(candidates[middle])
            candidates = candidates[middle + 1 :]
        elif middle == 0:
            break
        else:
            candidates = lower[:-1]
    # everything below the threshold is dropped; of the ties at it, as many as were counted
    keep = gains > threshold
    at = np.flatnonzero(gains == threshold)
    if len(at):
        below = float(gains[gains < threshold].sum())
        fits = len(at) if threshold == 0 else int((budget - below) / threshold * (1 + 1e-12))
        keep[at[: max(len(at) - fits, 0)]] = True
    return keep
