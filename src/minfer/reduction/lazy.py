"""Factors that are never built: which of them can matter, found without looking at the others.

A factor that is on with probability mu under independent variables and has the weight theta then
gains g(mu, theta) = log(1 - mu + mu e^theta) - mu theta when it is added. The gain is concave in
mu, zero at 0 and at 1, with its peak at mu*(theta) = 1/theta - 1/(e^theta - 1); at a given mu it
grows with |theta| from 0 on. So the factors whose gains reach gamma lie in an interval of mu
(:func:`reach`), and the lowest and the highest weight of many factors decide for all of them.

Where mu is a product over a factor's variables, q_a q_b, what reaches the interval is met by a join
in order of rank (:class:`Ranks`, :func:`joined`): for each a the partners b in order of falling q,
until q_a q_b is too small. Pairs of a factor source (:mod:`minfer.reduction.sources`) use it, and
groundings of rules (:mod:`minfer.rules.selection`), where mu is the chance that a clause is false
and theta = -weight; the parser uses the interval alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from minfer.kernels.scores.ranked import Lookups, Sides, Tests

CHUNK = 1 << 14  # candidates that are found before something is done with them


def least_mean(gamma: float, theta_low: float, theta_high: float) -> float:
    """Smallest mean at which a gain with such weights can reach gamma; infinite if none can."""
    return min(_rising_root(gamma, theta_low), _rising_root(gamma, theta_high))


def reach(gamma: float, theta: float) -> tuple[float, float] | None:
    """Between which means the gain at a weight reaches gamma; None where nowhere."""
    low = _rising_root(gamma, theta)
    return None if low == math.inf else (low, 1.0 - _rising_root(gamma, -theta))


@lru_cache(maxsize=1000)
def _rising_root(gamma: float, theta: float) -> float:
    """The mean at which the gain first reaches gamma, from below; infinite if it never does."""
    from minfer.kernels.scores.gains import feature_gain

    if gamma <= 0:
        return 0.0
    high = _peak(theta)
    if feature_gain(high, 1 - high, theta) < gamma:
        return math.inf
    low = math.ulp(0.0)  # at a mean of 0 the gain is 0, however large the weight
    low_log, high_log = -745.0, math.log(high)
    while high_log - low_log > 1e-12:
        middle = (low_log + high_log) / 2
        mu = math.exp(middle)
        if feature_gain(mu, 1 - mu, theta) < gamma:
            low, low_log = mu, middle
        else:
            high_log = middle
    return low


def _peak(theta: float) -> float:
    """The mean at which the gain is largest: 1/theta - 1/(e^theta - 1)."""
    if abs(theta) < 1e-3:
        return 0.5 - theta / 12
    return 1 / theta - (1 / math.expm1(theta) if theta < 700 else 0.0)


class Ranks(NamedTuple):
    """Rows of the second side of a join, by group, those of a group in order of falling q."""

    rows: NDArray[np.int32]  # (B,) where each was
    q: NDArray[np.float64]  # (B,)
    start: NDArray[np.int64]  # (groups + 1,)
    best: NDArray[np.float64]  # (groups,) the largest q, 0 where there is none

    @classmethod
    def of(cls, q: NDArray[np.float64], group: NDArray[np.int32], groups: int) -> Ranks:
        from minfer.kernels.scores.ranked import sort_rows

        start = np.zeros(groups + 1, np.int64)
        rows = np.empty(len(q), np.int32)
        sort_rows(np.argsort(q), group, start, rows)
        q = q[rows]
        best = np.zeros(groups)
        some = np.flatnonzero(start[1:] > start[:-1])
        best[some] = q[start[some]]
        return cls(rows, q, start, best)


def joined(
    sides: Sides,
    p: NDArray[np.float64],
    within: tuple[float, float],
    tests: Tests,
    lookups: Lookups,
    out: NDArray[np.int32],
) -> Iterator[NDArray[np.int32]]:
    """Ids of the candidates whose product of all q is within bounds, as parts of ``out``."""
    from minfer.kernels.scores.ranked import candidates

    at: Any = np.array([0, -1], dtype=np.int64)
    while at[0] < len(sides.a_id):
        n = candidates(at, sides, p, *within, tests, lookups, out)
        if n:
            yield out[:n]
