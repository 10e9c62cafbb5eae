"""Outward rounding: what floats may have cost, by three facts.

1. **Sums and products of what is not negative lose little.** Each operation rounds to (1 + d),
   |d| <= U = 2^-53, and nothing cancels; so a number made by sums, products and quotients with at
   most n roundings on any path from the inputs to it has a relative error of at most

       gamma(n) = n U / (1 - n U)                          (Higham 2002, Lemma 3.1)

   whatever the order of the sums. Factors of two are exact. Underflow is not covered: kernels keep
   numbers away from it, or say by how much it may have hurt.
2. **exp, log, log1p and expm1** of the libraries in use are wrong by less than 4 units in the last
   place (glibc states 1, numpy and SVML 4): ``EXP`` roundings each.
3. **Sums with signs** (log-odds) have an absolute error of at most gamma(n) times the sum of the
   terms' sizes. :class:`minfer.certified.local.LocalBounds` carries that bound for every variable,
   so that the true numbers of the model lie in intervals from the start.

``down`` and ``up`` step to the neighbouring float: they cover the last operation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from minfer.engine.conditioning import U as U  # unit roundoff of a double

#: Roundings that an exponential or a logarithm counts for.
EXP = 8
#: A few dozen of the smallest floats: what these functions may lose to underflow.
TINY = 1e-322


def gamma(n: float | NDArray) -> NDArray[np.float64]:
    """What n roundings on a path may cost, relatively (a little more, to cover itself)."""
    n = np.asarray(n, dtype=np.float64)
    if np.any(n * U >= 1e-3):
        raise ValueError("too many roundings on one path")  # 10^13: no pass is that long
    return n * U * 1.01


def down(x: NDArray | float) -> NDArray[np.float64]:
    """The next float below."""
    return np.nextafter(x, -np.inf)


def up(x: NDArray | float) -> NDArray[np.float64]:
    """The next float above."""
    return np.nextafter(x, np.inf)


def probability_from_odds(
    lo: NDArray[np.float64], hi: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """[lo, hi] of odds r (0 to infinity) as an interval of r / (1 + r), outward."""
    low, high = _share(lo), _share(hi)
    g = float(gamma(4))
    low, high = low * (1 - g) - TINY, high * (1 + g) + TINY
    return np.maximum(down(low), 0.0), np.minimum(up(high), 1.0)


def _share(odds: NDArray[np.float64]) -> NDArray[np.float64]:
    """r / (1 + r), also where r is infinite or next to nothing."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        return np.where(odds < 1, odds / (1.0 + odds), 1.0 / (1.0 + 1.0 / odds))


def odds_from_log(
    lo: NDArray[np.float64], hi: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """[lo, hi] of log-odds as an interval of odds, outward."""
    g = float(gamma(EXP + 2))
    with np.errstate(over="ignore", under="ignore"):
        low, high = np.exp(lo) * (1 - g) - TINY, np.exp(hi) * (1 + g) + TINY
    return np.maximum(down(low), 0.0), up(high)
