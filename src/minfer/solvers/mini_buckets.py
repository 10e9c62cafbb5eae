"""Weighted mini-buckets as a solver: log Z from both sides, marginals by conditioning.

Variables are eliminated one after the other, each from *mini-buckets* that fit into memory, by
Hoelder's inequality in place of the sum (Liu & Ihler, ICML 2011): a bound from above with positive
weights, from below with one positive weight and negative ones
(:mod:`minfer.engine.buckets.bounds`). With Z_s what the assignments with x_v = s add up to,

    Z_s / (Z_s + sum of the others') is in [L_s / (L_s + U_others), U_s / (U_s + L_others)],

and the answer is the middle of these intervals. Where no bucket is split it is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import by_name, check_number, check_seconds, check_whole
from minfer.basics.limits import clock, start_clock
from minfer.basics.words import upwards
from minfer.engine.conditioning import condition
from minfer.solvers.base import LogZ, Marginals, Status, between, check_start
from minfer.solvers.prepared import Preparable

if TYPE_CHECKING:
    from minfer.graph import FactorGraph

#: Of the time, for the bounds of log Z; the rest is for those of the marginals.
FOR_LOG_Z = 0.6
#: Sweeps of tightening without a time limit.
SWEEPS = 30


@by_name
@dataclass(frozen=True, kw_only=True)
class MiniBuckets(Preparable):
    """Rigorous bounds of log Z by weighted mini-buckets; marginals are middles of intervals.

    Parameters
    ----------
    i_bound : int, optional
        The largest mini-bucket has 2^i_bound cells. None: as large as ``max_gib`` allows.
    max_gib : float
        What the tables of all mini-buckets together may fill.
    time_limit : float, optional
        Seconds for tightening the bounds and for the marginals. Without it the bounds are tightened
        by some sweeps, and all marginals are bounded.

    Notes
    -----
    The status is ``bound``, or ``exact`` where no bucket had to be split. log Z is the upper bound
    (:attr:`Marginals.log_z_bounds` has both, rounding included). :func:`minfer.intervals` has the
    intervals, and goes on where this ends, by search.

    Examples
    --------
    >>> import numpy as np
    >>> from minfer import FactorGraph, MiniBuckets
    >>> grid = FactorGraph.grid(np.linspace(-1, 1, 25).reshape(5, 5), 0.5)
    >>> MiniBuckets()(grid).status.value, MiniBuckets(i_bound=3)(grid).status.value
    ('exact', 'bound')
    """

    i_bound: int | None = None
    max_gib: float = 1.0
    time_limit: float | None = None

    def __post_init__(self) -> None:
        if self.i_bound is not None:
            check_whole("i_bound", self.i_bound, 1)
        check_number("max_gib", self.max_gib, above=0.0)
        check_seconds("time_limit", self.time_limit)

    def __call__(self, graph: FactorGraph, start: Marginals | None = None) -> Marginals:
        from minfer.engine.buckets.bounds import BucketBounds

        begin = start_clock(self.time_limit)
        check_start(start)
        model = condition(graph)
        found = BucketBounds(model, memory_limit=self.max_gib * 2.0**30, i_bound=self.i_bound)
        planned = clock()
        sweeps = SWEEPS if self.time_limit is None else None
        found.tighten(time_limit=self._left(begin, FOR_LOG_Z), sweeps=sweeps)
        tightened = clock()
        low, high = found.intervals(time_limit=self._left(begin, 1.0))
        probs = between(low, high, graph._n_states)
        off = float(np.maximum(high - probs, probs - low).max(initial=0.0))
        status = Status.EXACT if found.exact else Status.BOUND
        largest = f"mini-buckets of up to 2^{found.i_bound} cells"
        note = f"{largest}; no probability is off by more than {upwards(off)} (rigorous)"
        middle = 0.5 * (found.lower + found.upper)
        state = BucketState(low, high, middle if found.exact else found.upper)
        return Marginals(
            graph, probs, self, status,
            LogZ.EXACT if found.exact else LogZ.UPPER,
            timings={"plan": planned - begin, "tighten": tightened - planned,
                     "marginals": clock() - tightened},
            note="no bucket is split" if found.exact else note, state=state,
            proven_log_z=(found.lower, found.upper),
        )  # fmt: skip

    def _left(self, begin: float, share: float) -> float | None:
        if self.time_limit is None:
            return None
        return max(share * self.time_limit - (clock() - begin), 1e-3)


@dataclass(frozen=True, eq=False)
class BucketState:
    """What :class:`MiniBuckets` leaves: the ends of all intervals (sum of states,), and log Z."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    value: float = math.nan

    def log_z(self) -> float:
        return self.value

    def factor(self, factor: int) -> None:
        return None
