"""The gain of a factor, and the interval of u in which it reaches a threshold.

A factor of a formula with weight w that is false with probability u under independent atoms has the
gain

    g(u, w) = log(1 + u (e^-w - 1)) + u w       hard: -log(1 - u), the reverse divergence

whatever the formula. At a given weight it rises with u, peaks and falls to 0 at u = 1, so that
"gain >= threshold" is an interval of u between two roots.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from minfer.rules.ground import Block

SOFT = 30.0  # weights of more than this are handled as logs
_SLACK = 1e-9  # of roots inside the join: rounding must not lose what the test after it keeps


def gains(u: Any, w: Any) -> NDArray[np.float64]:
    """The gain of factors that are false with probability u, of weight w; hard: -log(1 - u)."""
    u, w = np.broadcast_arrays(np.asarray(u, dtype=np.float64), np.asarray(w, dtype=np.float64))
    out = np.empty(u.shape)
    hard = np.isinf(w)
    strong = (np.abs(w) > SOFT) & ~hard
    plain = ~(hard | strong)
    x, y = u[plain], w[plain]
    out[plain] = np.log1p(x * np.expm1(-y)) + x * y
    with np.errstate(divide="ignore"):
        x, y = u[strong], w[strong]
        out[strong] = np.logaddexp(np.log1p(-x), np.log(x) - y) + x * y
        out[hard] = -np.log1p(-u[hard])
    return np.maximum(out, 0.0)


def _gain(u: float, w: float) -> float:
    """As :func:`gains`, of one factor that is not hard."""
    if abs(w) > SOFT:
        return float(gains(u, w))
    return math.log1p(u * math.expm1(-w)) + u * w


@lru_cache(maxsize=1000)
def roots(threshold: float, w: float) -> tuple[float, float] | None:
    """Between which u the gain at weight w reaches a threshold; None where nowhere."""
    if math.isinf(w):
        return -math.expm1(-threshold), 1.0
    if w == 0.0:
        return None
    if w > 0:
        peak = 1.0 / -math.expm1(-w) - 1.0 / w if w > 1e-4 else 0.5
    else:
        peak = 1.0 - (1.0 / -math.expm1(w) + 1.0 / w) if w < -1e-4 else 0.5
    peak = min(max(peak, 1e-300), 1.0)
    if _gain(peak, w) < threshold:
        return None

    def bisect(bad: float, good: float) -> float:
        for _ in range(100):
            middle = 0.5 * (bad + good)
            if _gain(middle, w) < threshold:
                bad = middle
            else:
                good = middle
        return bad

    low = math.log(1e-308)
    good = math.log(peak)
    for _ in range(100):  # on a log scale: the lower root may be tiny
        middle = 0.5 * (low + good)
        if _gain(math.exp(middle), w) < threshold:
            low = middle
        else:
            good = middle
    return math.exp(low), bisect(1.0, peak)


def widest(threshold: float, weights: Iterable[float]) -> tuple[float, float] | None:
    """An interval of u that has those of all weights in it, a little slack around."""
    found = [r for w in weights if (r := roots(threshold, w)) is not None]
    if not found:
        return None
    low, high = min(r[0] for r in found), max(r[1] for r in found)
    return low * (1 - _SLACK), 1 - (1 - high) * (1 - _SLACK) + 1e-15


def false_under(block: Block, p: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(formula is false) of each factor of a block, its atoms independent."""
    if block.positive is not None:
        return all_false(block.scope, block.positive, p)
    if block.truth is not None:
        values = block.truth.reshape(1, -1).astype(np.float64)
        values = np.broadcast_to(values, (len(block), values.shape[1]))
        for a in range(block.scope.shape[1]):
            q = p[block.scope[:, a]][:, None]
            half = values.shape[1] // 2
            values = values[:, :half] * (1 - q) + values[:, half:] * q
        return 1.0 - values[:, 0]
    assert block.automaton is not None
    step, accepting = block.automaton
    at = np.zeros((len(block), len(accepting)))
    at[:, 0] = 1.0
    for a in range(block.scope.shape[1]):
        q = p[block.scope[:, a]]
        then = np.zeros_like(at)
        for state in range(len(accepting)):
            then[:, step[a, state, 0]] += at[:, state] * (1 - q)
            then[:, step[a, state, 1]] += at[:, state] * q
        at = then
    return at[:, ~accepting].sum(axis=1)


def all_false(
    scope: NDArray[np.int32], positive: NDArray[np.bool_], p: NDArray[np.float64]
) -> NDArray[np.float64]:
    u = np.ones(len(scope))
    for a, yes in enumerate(positive.tolist()):
        q = p[scope[:, a]]
        u *= (1 - q) if yes else q
    return u
