"""What a sequential sweep can cost: a bare belief propagation kernel for binary pairwise models.

Nobody ships this; it is the yardstick. Messages are odds, one float each. A variable with belief
odds B answers an incoming message m over a conjunction of weight log W by

    out = (1 + W c) / (1 + c),  c = B / m,  that is  out = (m + W B) / (m + B),

one division. Slots are in CSR order of their variable; `rev` is the slot at the other endpoint.
Indices are unsigned (no wrap-around test) and the product has two accumulators (shorter chain).
"""

from __future__ import annotations

from typing import NamedTuple

import numba as nb
import numpy as np
from numpy.typing import NDArray

ONE = np.uint64(1)
TWO = np.uint64(2)


class Slots(NamedTuple):
    odds: NDArray[np.float64]  # [V] unary odds, the features' unary parts absorbed
    ptr: NDArray[np.uint64]  # [V + 1] slots of each variable
    rev: NDArray[np.uint32]  # [2E] slot of the same edge at the other endpoint
    W: NDArray[np.float64]  # [2E] psi11 psi00 / (psi01 psi10)


def wire(
    log_odds: NDArray[np.float64],
    edges: NDArray[np.int32],
    weights: NDArray[np.float64],
    feature: str,
) -> Slots:
    """CSR slots. exp(w [a = b]) is, up to a constant, exp(2w a b - w a - w b)."""
    n, e = len(log_odds), len(edges)
    if feature == "equal":
        log_odds = log_odds - np.bincount(edges.ravel(), np.repeat(weights, 2), n)
        weights = 2 * weights
    owner = edges.T.ravel()  # edge k has slot k at its first endpoint, k + e at its second
    order = np.argsort(owner, kind="stable")
    place = np.empty(2 * e, np.uint32)
    place[order] = np.arange(2 * e, dtype=np.uint32)
    ptr = np.zeros(n + 1, np.uint64)
    ptr[1:] = np.cumsum(np.bincount(owner, minlength=n))
    return Slots(np.exp(log_odds), ptr, place[(order + e) % (2 * e)], np.exp(weights)[order % e])


@nb.njit(error_model="numpy", cache=True, nogil=True)
def _sweeps(odds, ptr, rev, W, m, prob, max_iters, tol):
    n = odds.shape[0]
    change = 0.0
    for it in range(max_iters):
        change = 0.0
        for i in range(n):
            v = i if it % 2 == 0 else n - 1 - i  # forward, then backward
            lo, hi = ptr[v], ptr[v + 1]
            B, B2, s = odds[v], 1.0, lo
            while s + TWO <= hi:
                B *= m[s]
                B2 *= m[s + ONE]
                s += TWO
            if s < hi:
                B *= m[s]
            B *= B2
            for s in range(lo, hi):
                x = m[s]
                m[rev[s]] = (x + W[s] * B) / (x + B)
            p = B / (1.0 + B)
            change = max(change, abs(p - prob[v]))
            prob[v] = p
        if change <= tol:
            return it + 1, change
    return max_iters, change


def sweep(w: Slots, max_iters: int, tol: float) -> tuple[NDArray[np.float64], int, float]:
    """Marginals p(y_v = 1), sweeps made, and the last sweep's largest change of any of them.

    It stops once no belief moved by more than `tol` between two successive visits; a negative
    `tol` makes exactly `max_iters` sweeps.
    """
    m = np.ones(len(w.W))
    prob = np.full(len(w.odds), 0.5)
    its, change = _sweeps(*w, m, prob, max_iters, tol)
    return prob, its, change
