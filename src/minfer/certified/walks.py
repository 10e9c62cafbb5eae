"""Self-avoiding walks: intervals for binary variables among pairs of any sign.

**The tree.** The odds p(1) / p(0) of a variable v are its own, e^theta, times one factor for each
pair (v, k): change v from 0 to 1 in one pair after the other, with the pairs before it at 1 and
those behind it at 0 already. In the model where v is so taken apart, pair (v, k) contributes

    (1 + W B) / (1 + B),      W = e^w, B the odds of k where v is gone,

and B is found in the same way. A pair that leads back to a variable on the walk finds it pinned: it
contributes W if it comes before the pair by which the walk left that variable, 1 if behind. That is
the tree of self-avoiding walks (Weitz 2006, "Counting independent sets up to the tree threshold");
followed to its end it is exact. Half of every pair is given to the fields of its ends, so that
contributions lie between e^(-|w|/2) and e^(|w|/2): with C = B e^(w/2) and u = e^(-|w|/2),

    (u + C) / (1 + u C)  for w >= 0,  (1 + u C) / (u + C)  for w < 0,

which no weight is too large for.

**Boxes.** A message grows with C, or falls with it for w < 0, so intervals go up the tree by their
ends. An error of w/2 moves the logarithm of a message, as that of a field, by at most itself: the
fields are as much wider. The walk is cut where its influence on the root (the product of the
largest slopes of log-messages) times the width of a leaf falls below a threshold; a leaf is the
message from all that k's odds can be at all, its pair with v apart. Thresholds decide about width
alone: any would do.

**Factors that are not pairs** (and pairs that are ignored) are taken together as the last one to
change, at every node: they multiply the odds by an average of psi(1, x) / psi(0, x), a number in
their range. Below it they stay as slices, at 1 in this variable, whose ranges at other variables
lie inside those of the whole. With zeros a slice can be impossible. Then v is never 1, its odds
are 0, and its range has a lower end of 0; so the interval, a product, still holds the truth,
whatever was computed below. A variable with ranges open at both sides says nothing: a leaf.

Rounding: :mod:`minfer.kernels.intervals.walks`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from minfer.certified.bounds import Deepening
from minfer.certified.local import LocalBounds
from minfer.certified.rounding import EXP, U, gamma, odds_from_log
from minfer.kernels.intervals import walks as kernel

#: Work of one visit to an edge; a node with four of them counts as 64.
VISIT = 8
#: Depth of a walk at most.
MAX_DEPTH = 1 << 16
#: Leaves whose logarithm is known this well are never opened.
_SURE = 1e-13
_WIDE = 2000.0  # stands for an infinite width


class Walks(Deepening):
    """Trees of self-avoiding walks, one from each variable, deeper with every call."""

    name, portion, first, of_odds = "walks", 128, 0.3, True

    def _prepare(self, local: LocalBounds, check: Callable[[], None]) -> NDArray[np.bool_]:
        n = local.n_variables
        fields, edges = prepare(local)
        at = local.row * n + local.nbr
        back = np.searchsorted(at, local.nbr * n + local.row)
        ends = np.stack([local.nbr, back + 1], axis=1).astype(np.uint32)
        self._graph = kernel.WalkGraph(local.ptr.astype(np.uint64), ends, edges, fields)
        return local.binary & ((fields[:, 0] > 0) | (fields[:, 1] < np.inf))

    def _new_scratch(self) -> kernel.WalkScratch:
        n = len(self._graph.fields)
        depth = min(n, MAX_DEPTH)
        return kernel.WalkScratch(
            np.zeros(n, np.uint32), np.empty(depth, np.uint64), np.empty((depth, 3))
        )

    def _walk(
        self, roots: NDArray[np.int64], budget: float, scratch: kernel.WalkScratch
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
        lo, hi = np.empty(len(roots)), np.empty(len(roots))
        visits = kernel.walks(
            roots, int(budget / VISIT), self._depths, lo, hi, self._graph, scratch
        )
        return lo, hi, VISIT * visits


def prepare(local: LocalBounds) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Odds of all fields (V, 2), with a node's rounding in them, and the edges of the kernel."""

    def inside(lo: NDArray, hi: NDArray) -> tuple[NDArray, NDArray]:
        hi = np.where(hi > 1 / kernel.LEAST, np.inf, np.maximum(hi, kernel.TINY))
        return np.where(lo < kernel.TINY, 0.0, np.minimum(lo, kernel.HUGE)), hi

    def at_variables(values: NDArray) -> NDArray:
        return np.bincount(local.row, values, minlength=local.n_variables)

    degree = np.diff(local.ptr)
    w = local.weight.mean(axis=1)
    half = np.abs(w) / 2
    u = np.exp(-half)
    wrong = np.ptp(local.weight, axis=1)  # at most that much
    error = np.expm1(wrong) + float(gamma(EXP + 4))
    # fields: theta, ranges and half of all pairs; errors of these sums, then room for a node's own
    size = at_variables(half)
    slip = 8 * U * (degree + 4) * size + at_variables(wrong)
    with np.errstate(over="ignore", invalid="ignore"):
        own = local.theta + local.other
        own += (at_variables(w) / 2)[:, None]
        own += np.stack([-slip, slip], axis=1) + 4 * U * np.abs(own) * [-1, 1]
    own = np.where(np.isnan(own), [-np.inf, np.inf], own)
    room = 1.01 * at_variables(error) + gamma(12 * degree + 12)
    with np.errstate(over="ignore"):
        lo, hi = odds_from_log(own[:, 0], own[:, 1])
        fields = np.stack(inside(lo * (1 - room), hi * (1 + room)), axis=1)

    edges = np.zeros((len(local.nbr), kernel.EDGE))
    edges[:, kernel.NEAR] = np.where(u < kernel.LEAST, 0.0, u)
    with np.errstate(divide="ignore"):
        edges[:, kernel.FAR] = 1 / edges[:, kernel.NEAR]
    edges[:, kernel.NEGATIVE] = w < 0
    # leaves: the neighbour's field times all that its other pairs can do
    k = local.nbr
    spread = size[k] - half + 2 * slip[k]
    box = inside(*odds_from_log(own[k, 0] - spread, own[k, 1] + spread))
    slack = error + float(gamma(12))
    box_lo, box_hi = np.where(w < 0, box[::-1], box)
    leaf_lo = _message(edges[:, kernel.NEAR], box_lo, w < 0) * (1 - slack)
    leaf_hi = _message(edges[:, kernel.NEAR], box_hi, w < 0) * (1 + slack)
    leaf_lo, leaf_hi = inside(leaf_lo, leaf_hi)
    edges[:, kernel.LEAF_LO], edges[:, kernel.LEAF_HI] = leaf_lo, leaf_hi
    # slopes and widths guide the walk and bound nothing
    at = np.clip(np.clip(1.0, *box), 1e-100, 1e100)
    edges[:, kernel.SLOPE] = (1 - u**2) / ((1 + u / at) * (1 + u * at))
    with np.errstate(divide="ignore"):
        span = np.minimum(np.log(leaf_hi) - np.log(leaf_lo), _WIDE)
    shut = (fields[k, 0] <= 0) & (fields[k, 1] == np.inf)
    edges[:, kernel.SPAN] = np.where(shut | (span < _SURE + 4 * error), 0.0, span)
    return fields, edges


def _message(
    u: NDArray[np.float64], c: NDArray[np.float64], negative: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """What the kernel's messages are; c may be 0 and infinite."""
    with np.errstate(divide="ignore"):
        large = c > 1
        c = np.where(large, 1 / c, c)
        a, b = u + c, 1 + u * c
        return np.where(large == negative, a / b, b / a)
