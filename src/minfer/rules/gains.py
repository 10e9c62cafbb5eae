"""The gain of a factor, and the interval of u in which it reaches a threshold.

A factor of a formula with weight w that is false with probability u under independent atoms has the
gain

    g(u, w) = log(1 + u (e^-w - 1)) + u w       hard: -log(1 - u), the reverse divergence

whatever the formula: that of a feature with mean u and weight -w (:mod:`minfer.reduction.lazy`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from minfer.reduction.lazy import reach
from minfer.rules.blocks import Floats

if TYPE_CHECKING:
    from minfer.rules.blocks import Block

_SLACK = 1e-9  # of roots inside the join: rounding must not lose what the test after it keeps


def gains(u: Any, w: Any) -> Floats:
    """The gain of factors that are false with probability u, of weight w; hard: -log(1 - u)."""
    from minfer.kernels.scores.gains import feature_gains

    u, w = (np.array(x, dtype=np.float64) for x in np.broadcast_arrays(u, w))
    hard = np.isinf(w)
    w[hard] = 0.0
    out = np.empty(u.shape)
    feature_gains(u.ravel(), 1 - u.ravel(), -w.ravel(), out.reshape(-1))
    with np.errstate(divide="ignore"):
        out[hard] = -np.log1p(-u[hard])
    return out


def roots(threshold: float, w: float) -> tuple[float, float] | None:
    """Between which u the gain at weight w reaches a threshold; None where nowhere."""
    if math.isinf(w):
        return -math.expm1(-threshold), 1.0
    return reach(threshold, -w)


def widest(threshold: float, weights: Iterable[float]) -> tuple[float, float] | None:
    """An interval of u that has those of all weights in it, a little slack around."""
    if threshold <= 0:
        return 0.0, 1.0
    found = [r for w in weights if (r := roots(threshold, w)) is not None]
    if not found:
        return None
    low, high = min(r[0] for r in found), max(r[1] for r in found)
    return low * (1 - _SLACK), 1 - (1 - high) * (1 - _SLACK) + 1e-15


def false_under(block: Block, p: Floats) -> Floats:
    """P(formula is false) of each factor of a block, its atoms independent."""
    return false_given(block, p[block.scope])


def false_given(block: Block, chances: Floats) -> Floats:
    """P(formula is false) of each factor, by the chances that its atoms are true, (F, A)."""
    if block.positive is not None:
        u = np.ones(len(chances))
        for a, yes in enumerate(block.positive.tolist()):
            u *= (1 - chances[:, a]) if yes else chances[:, a]
        return u
    if block.truth is not None:
        values = block.truth.reshape(1, -1).astype(np.float64)
        values = np.broadcast_to(values, (len(chances), values.shape[1]))
        for a in range(chances.shape[1]):
            q = chances[:, a : a + 1]
            half = values.shape[1] // 2
            values = values[:, :half] * (1 - q) + values[:, half:] * q
        return 1.0 - values[:, 0]
    assert block.automaton is not None
    step, accepting = block.automaton
    at = np.zeros((len(chances), len(accepting)))
    at[:, 0] = 1.0
    for a, q in enumerate(chances.T):
        then = np.zeros_like(at)
        for state in range(len(accepting)):
            then[:, step[a, state, 0]] += at[:, state] * (1 - q)
            then[:, step[a, state, 1]] += at[:, state] * q
        at = then
    return at[:, ~accepting].sum(axis=1)
