"""The three objectives: which factors to keep, given their gains (sections 3.2 to 3.4).

The surrogate divergence of a set of dropped factors R is D1 = sum_{i in R} g(i). Each objective is
optimal for it, in linear time:

* ``MinSize(max_divergence)``: fewest factors with D1 within the bound. Drop the smallest gains
  while their sum stays within it; the factor that would cross it is kept.
* ``MinDivergence(max_factors)``: least D1 with at most that many added factors: the largest gains.
* ``MinJoint(factor_cost)``: least D1 + factor_cost * size: keep gains >= factor_cost.

``Budget`` sets several of these limits at once. At equal size all keep the same set of one graph,
the top of one ranking; they differ over collections of graphs that share one parameter.

Infinite gains (the seed, and tables the seed's marginals contradict) are always kept and count in
no budget. Of equal gains the earlier factor is kept. The paper sorts for the first two,
O(n log n); selection needs O(n) (``paper_order=True`` takes the paper's way, for timing).

With a cost c(i) > 0 per factor, size becomes total cost. MinJoint stays optimal: keep
g(i) >= factor_cost * c(i). The other two are knapsacks, solved greedily by g(i) / c(i) and compared
with the best single factor, so that the optimum is at most twice as good; ``gap`` tells from the
linear relaxation how much better it can be.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Protocol, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import bool_mask, by_name, check_number, check_whole, real_numbers
from minfer.errors import SettingsError
from minfer.factors.group import Floats, Mask

_SMALL = 1 << 8  # gains that are sorted rather than selected from
_ROUNDS = 50  # passes of the greedy knapsack over what still fits


@runtime_checkable
class SelectionObjective(Protocol):
    """Turns gains (F,), and costs (F,) where factors differ in them, into a mask to keep (F,)."""

    def __call__(self, gains: Floats, costs: Floats | None = None) -> Mask: ...


@dataclass(frozen=True)
class MinSize:
    """Fewest factors whose dropped rest has surrogate divergence at most ``max_divergence``.

    With costs, the least total cost instead of the fewest factors (greedy; see :meth:`gap`).
    """

    max_divergence: float

    def __post_init__(self) -> None:
        check_number("max_divergence", self.max_divergence, 0.0, infinite=True)

    @property
    def _limit(self) -> float:
        return min(float(self.max_divergence), sys.float_info.max)  # infinite gains never fit

    def __call__(
        self, gains: ArrayLike, costs: ArrayLike | None = None, *, paper_order: bool = False
    ) -> Mask:
        gains, costs = _checked(gains, costs)
        if _differ(costs):
            items = _items(gains)
            order = _rising(gains[items] / costs[items])
            keep = np.ones(len(gains), dtype=bool)
            keep[items[_fill(costs[items], gains[items], order, self._limit)]] = False
            return keep
        if paper_order:
            order = _rising(gains)
            dropped = int(np.searchsorted(np.cumsum(gains[order]), self._limit, "right"))
            keep = np.ones(len(gains), dtype=bool)
            keep[order[:dropped]] = False
            return keep
        return _drop_smallest(gains, self._limit)

    def gap(self, gains: ArrayLike, costs: ArrayLike | None, keep: ArrayLike) -> float:
        """How much less total cost than ``keep`` any choice within the bound has, at most."""
        gains, costs = _checked(gains, costs)
        unit = np.ones(len(gains)) if costs is None else costs
        if _differ(costs):
            items = _items(gains)
            most = _relaxed(costs[items], gains[items], self._limit)
        else:
            most = float(unit[~self(gains)].sum())
        return max(most - float(unit[~_mask(keep, gains)].sum()), 0.0)


@dataclass(frozen=True)
class MinDivergence:
    """Least surrogate divergence with at most ``max_factors`` added factors.

    With costs, ``max_factors`` bounds the total cost of the added factors instead of their number
    (greedy; see :meth:`gap`).
    """

    max_factors: int

    def __post_init__(self) -> None:
        check_whole("max_factors", self.max_factors)

    def __call__(
        self, gains: ArrayLike, costs: ArrayLike | None = None, *, paper_order: bool = False
    ) -> Mask:
        gains, costs = _checked(gains, costs)
        if _differ(costs):
            items = _items(gains)
            order = np.argsort(-gains[items] / costs[items], kind="stable")
            keep = np.isinf(gains)
            keep[items[_fill(gains[items], costs[items], order, self.max_factors)]] = True
            return keep
        each = 1.0 if costs is None or not len(costs) else float(costs[0])
        free = len(gains) - int(np.count_nonzero(gains == np.inf))
        m = min(int(self.max_factors / each * (1 + 1e-12)), free)
        if m in (0, free):
            return gains == np.inf if m == 0 else np.ones(len(gains), dtype=bool)
        if paper_order:
            order = np.argsort(-np.where(np.isinf(gains), -1.0, gains), kind="stable")
            keep = np.isinf(gains)
            keep[order[:m]] = True
            return keep
        return _drop_smallest(gains, free - m, count=True)

    def gap(self, gains: ArrayLike, costs: ArrayLike | None, keep: ArrayLike) -> float:
        """How much less divergence than ``keep`` any choice within the limit has, at most."""
        gains, costs = _checked(gains, costs)
        items = _items(gains)
        kept = float(gains[items[_mask(keep, gains)[items]]].sum())
        if _differ(costs):
            most = _relaxed(gains[items], costs[items], self.max_factors)
        else:
            most = float(gains[items[self(gains, costs)[items]]].sum())
        return max(most - kept, 0.0)


@dataclass(frozen=True)
class MinJoint:
    """Least surrogate divergence plus ``factor_cost`` per factor: keep gains >= factor_cost.

    With costs, ``factor_cost`` is the price of a unit of cost.
    """

    factor_cost: float

    def __post_init__(self) -> None:
        check_number("factor_cost", self.factor_cost, 0.0, infinite=True)

    def __call__(self, gains: ArrayLike, costs: ArrayLike | None = None) -> Mask:
        gains, costs = _checked(gains, costs)
        return gains >= (self.factor_cost if costs is None else self.factor_cost * costs)

    def gap(self, gains: ArrayLike, costs: ArrayLike | None, keep: ArrayLike) -> float:
        """How much lower the sum could be than at ``keep``: 0.0 for this objective's own choice."""
        gains, costs = _checked(gains, costs)
        price = np.full(len(gains), self.factor_cost) if costs is None else self.factor_cost * costs
        wrong = _mask(keep, gains) != self(gains, costs)
        return float(np.abs(gains[wrong] - price[wrong]).sum())


@by_name
@dataclass(frozen=True, kw_only=True)
class Budget:
    """Several limits at once: factors are added, the largest gains first, until one is reached.

    Each limit alone is the objective of that name; together they keep what all of them keep.
    Adding stops as soon as the divergence of the rest is within ``max_divergence``, or
    ``max_factors`` are added, or no gain reaches ``factor_cost``. At least one must be given.

    Parameters
    ----------
    max_divergence : keep factors until the gains of the others sum to this or less (MinSize)
    max_factors : keep at most so many factors, the highest gains first (MinDivergence)
    factor_cost : keep factors whose gain is at least this (MinJoint)

    Examples
    --------
    >>> from minfer.reduction.objectives import Budget
    >>> Budget(max_factors=2, factor_cost=0.3)([0.1, 0.9, 0.2, 0.4, 0.5]).tolist()
    [False, True, False, False, True]
    """

    max_divergence: float | None = None
    max_factors: int | None = None
    factor_cost: float | None = None

    def __post_init__(self) -> None:
        if not self.parts:  # made here once, so that bad limits are found early
            raise SettingsError(
                "Budget: give at least one of max_divergence, max_factors and factor_cost"
            )

    @property
    def parts(self) -> tuple[MinSize | MinDivergence | MinJoint, ...]:
        """The objectives of the limits that are set."""
        out: list[MinSize | MinDivergence | MinJoint] = []
        if self.max_divergence is not None:
            out.append(MinSize(self.max_divergence))
        if self.max_factors is not None:
            out.append(MinDivergence(self.max_factors))
        if self.factor_cost is not None:
            out.append(MinJoint(self.factor_cost))
        return tuple(out)

    def __call__(self, gains: ArrayLike, costs: ArrayLike | None = None) -> Mask:
        first, *others = (part(gains, costs) for part in self.parts)
        for mask in others:
            first &= mask
        return first

    def gap(self, gains: ArrayLike, costs: ArrayLike | None, keep: ArrayLike) -> float:
        """The gap of the limit that is reached first, the one that alone keeps least."""
        gains, costs = _checked(gains, costs)
        unit = np.ones(len(gains)) if costs is None else costs
        first = min(self.parts, key=lambda part: float(unit[part(gains, costs)].sum()))
        return first.gap(gains, costs, keep)


# ---------------------------------------------------------------------- equal costs: selection


def _drop_smallest(gains: Floats, limit: float, count: bool = False) -> Mask:
    """Drop the smallest gains, of equal ones the later, while their sum (or number) is within."""
    from minfer.kernels.scores.select import drop_smallest

    keep = np.ones(len(gains), dtype=bool)
    gains = np.require(gains, requirements=["C", "W"])
    drop_smallest(gains, float(limit), count, _SMALL, keep)
    return keep


# ---------------------------------------------------------------------- unequal costs: knapsacks


def _items(gains: Floats) -> NDArray[np.int64]:
    """Factors the objective decides on: those whose gain is finite."""
    return np.flatnonzero(np.isfinite(gains))


def _rising(values: Floats) -> NDArray[np.int64]:
    """Order of increasing value; of equal ones the later first."""
    return len(values) - 1 - np.argsort(values[::-1], kind="stable")


def _fill(value: Floats, weight: Floats, order: NDArray[np.int64], room: float) -> Mask:
    """Greedy knapsack in the given order, or the best single item and then the rest."""

    def greedy(taken: Mask, room: float) -> Mask:
        left = order[~taken[order]]
        for _ in range(_ROUNDS):
            left = left[weight[left] <= room]
            if not len(left):
                break
            total = np.cumsum(weight[left])
            n = int(np.searchsorted(total, room, "right"))
            taken[left[:n]] = True
            room -= float(total[n - 1])
            left = left[n + 1 :]  # item n does not fit
        return taken

    best = greedy(np.zeros(len(value), dtype=bool), room)
    fits = np.flatnonzero(weight <= room)
    if len(fits):
        single = np.zeros(len(value), dtype=bool)
        single[fits[np.argmax(value[fits])]] = True
        if value[single].sum() > value[best].sum():
            best = greedy(single, room - float(weight[single].sum()))
    return best


def _relaxed(value: Floats, weight: Floats, room: float) -> float:
    """Upper bound on the value of a knapsack: the last item that fits may be cut."""
    fits = weight <= room
    value, weight = value[fits], weight[fits]
    with np.errstate(divide="ignore"):
        order = np.argsort(-value / weight, kind="stable")
    value, weight = value[order], weight[order]
    total = np.cumsum(weight)
    n = int(np.searchsorted(total, room, "right"))
    bound = float(value[:n].sum())
    if n < len(value):
        used = float(total[n - 1]) if n else 0.0
        bound += float(value[n] * ((room - used) / weight[n]))
    return bound


# ---------------------------------------------------------------------- input


def _checked(gains: ArrayLike, costs: ArrayLike | None) -> tuple[Floats, Floats | None]:
    gains = np.asarray(real_numbers(gains, "gains", SettingsError), dtype=np.float64)
    if gains.ndim != 1:
        raise SettingsError(f"gains must have shape (F,), not {gains.shape}")
    if costs is None:
        return gains, None
    costs = np.asarray(real_numbers(costs, "costs", SettingsError), dtype=np.float64)
    if costs.shape != gains.shape:
        raise SettingsError(f"costs must have the gains' shape {gains.shape}, not {costs.shape}")
    good = (costs > 0) & (costs < np.inf)
    if not good.all():
        bad = int(np.flatnonzero(~good)[0])
        raise SettingsError(f"costs must be positive and finite, but cost {bad} is {costs[bad]}")
    return gains, costs


def _differ(costs: Floats | None) -> TypeGuard[Floats]:
    return costs is not None and len(costs) > 0 and bool(costs.min() < costs.max())


def _mask(keep: ArrayLike, gains: Floats) -> Mask:
    return bool_mask(keep, len(gains), "keep", SettingsError)
