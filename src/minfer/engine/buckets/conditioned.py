"""Bounds with one variable known: only the mini-buckets above it are summed again.

With x_v = s the messages below the bucket of v stay as they are. Those on the way to the root
change, and the way can be left anywhere: sums of products with non-negative numbers are monotone
and homogeneous, so where messages m go over into m',

    log Z' <= log U + sum_m max(log m' - log m),    log Z' >= log L + sum_m min(log m' - log m)

with the sums over changed messages that nobody has read again. So a budget of cells says how far up
it goes. In all mini-buckets of v the other states are excluded, with negative weights by what is
infinitely large there.

Marginals follow by P(v = s) = Z_s / (Z_s + Z_other), with Z_other between the sums of the other
states' bounds, and between the bounds of Z less those of Z_s.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.engine.conditioning import U

if TYPE_CHECKING:
    from minfer.engine.buckets.bounds import Side
    from minfer.engine.buckets.plan import BucketPlan

Floats = NDArray[np.float64]


class KnownVariable:
    """One side's bounds of the log of what is left with x_v = s. K mini-buckets."""

    def __init__(self, side: Side) -> None:
        self.side, self.plan = side, side.plan
        self.holder = holders(self.plan)
        b = self.plan.buckets
        card = self.plan.flat.card[self.plan.order].tolist()
        self.rest = np.array(
            [math.prod(card[u] for u in s[1:]) for s in self.plan.scopes], dtype=np.int64
        )
        self.cells = self.rest * b.dims[b.dptr[:-1]]
        self.error = side.error()
        self._states = np.diff(b.iptr)

    def way(self, v: int, budget: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The mini-buckets to be summed again, and those of them whose message is compared."""
        b = self.plan.buckets
        todo = set(range(int(b.bptr[v]), int(b.bptr[v + 1])))
        way: list[int] = []
        spent = 0.0
        waiting: set[int] = set()
        while todo:
            k = min(todo)
            todo.discard(k)
            if len(way) and int(b.bptr[v + 1]) <= k and spent + self.cells[k] > budget:
                waiting.add(k)
                continue
            spent += float(self.cells[k])
            way.append(k)
            if self.holder[k] >= 0 and int(self.holder[k]) not in waiting:
                todo.add(int(self.holder[k]))
        read = set(way)
        ends_at = [k for k in way if int(self.holder[k]) not in read]
        return np.array(way, dtype=np.int64), np.array(ends_at, dtype=np.int64)

    def bounds(self, v: int, budget: float) -> tuple[Floats, Floats]:
        """Bounds for each state of the ``v``-th variable of the order, and what rounding may have
        cost them."""
        side, b, val = self.side, self.plan.buckets, self.side.val
        way, last = self.way(v, budget)
        size = int(self.plan.flat.card[self.plan.order[v]])
        out = [slice(int(b.out[k]), int(b.out[k] + self.rest[k])) for k in way.tolist()]
        before = [val[o].copy() for o in out]
        place = self._places(v, size)
        kept = [val[at].copy() for at, _ in place]
        found, error = np.full(size, -np.inf), np.zeros(size)
        is_last = np.isin(way, last)
        for s in range(size):
            for (at, sign), own in zip(place, kept):
                other = np.arange(size) != s
                now = own.reshape(size, -1).copy()
                now[other] = -np.inf if sign >= 0.0 else np.inf
                val[at] = now.ravel()
            side.collect(way)
            found[s], error[s] = self._compared(out, before, is_last)
            for o, old in zip(out, before):
                val[o] = old
        for (at, _), own in zip(place, kept):
            val[at] = own
        return found, error

    def _places(self, v: int, size: int) -> list[tuple[slice, float]]:
        """Numbers by which states of ``v`` are excluded, state by state, and signs of weights."""
        b, plan = self.plan.buckets, self.plan
        first, stop = int(b.bptr[v]), int(b.bptr[v + 1])
        if stop - first == 1:
            at = int(plan.field_at[v])
            return [(slice(at, at + size), 1.0)]
        found = []
        at = int(b.src[b.shift[first]])
        cells = int(b.src[b.shift[first + 1]]) - at
        for r in range(stop - first):
            own = slice(at + r * cells, at + (r + 1) * cells)
            found.append((own, float(self.side.weight[first + r])))
        return found

    def _compared(
        self, out: list[slice], before: list[Floats], is_last: NDArray[np.bool_]
    ) -> tuple[float, float]:
        """The bound that the messages come to, and a bound on its rounding."""
        side = self.side
        total, sizes = side.bound, 0.0
        for o, old, ends_here in zip(out, before, is_last.tolist()):
            now = side.val[o]
            finite = now[np.isfinite(now)]
            sizes += float(np.abs(finite).max(initial=0.0))
            if not ends_here:
                continue
            there = old > -np.inf
            if not there.any():
                continue
            moved = now[there] - old[there]
            total += float(moved.max() if side.sign > 0 else moved.min())
        if not math.isfinite(total):
            return (np.inf if total > 0.0 else -np.inf), 0.0
        width = int(np.diff(self.plan.buckets.iptr).max(initial=0)) + 60
        error = 2 * self.error + 2 * U * width * (sizes + len(out)) * 2 + 8 * U * abs(total)
        return total, error


def holders(plan: BucketPlan) -> NDArray[np.int64]:
    """The mini-bucket that reads each message, (K,), -1: none."""
    n_tables = len(plan.table)
    holder = np.full(len(plan.scopes), -1, dtype=np.int64)
    for k, members in enumerate(plan.pieces):
        for p in members:
            if p.source >= n_tables:
                holder[p.source - n_tables] = k
    return holder


def marginal_ends(low: Floats, high: Floats, lower: float, upper: float) -> tuple[Floats, Floats]:
    """Intervals of P(v = s) from bounds of log Z_s (S,) and of log Z."""
    top = max(upper, float(high.max(initial=-np.inf))) if len(high) else upper
    with np.errstate(under="ignore", over="ignore", divide="ignore", invalid="ignore"):
        l, h = np.exp(low - top) * (1 - 1e-14), np.exp(high - top) * (1 + 1e-14) + 1e-300
        l = np.where(l > 1e-290, l, 0.0)  # numbers near the end of the range are not accurate
        whole_l, whole_h = math.exp(lower - top) * (1 - 1e-14), math.exp(upper - top) * (1 + 1e-14)
        other_l = np.maximum(l.sum() - l - len(l) * 1e-15 * l.sum(), whole_l - h)
        other_l = np.maximum(other_l * (1 - 1e-15), 0.0)
        other_h = np.minimum((h.sum() - h) * (1 + 1e-13) + len(h) * 1e-15 * h.sum(), whole_h - l)
        other_h = np.maximum(other_h * (1 + 1e-15) + 1e-300, 0.0)
        p_low = np.where(l > 0.0, l / (l + other_h), 0.0) * (1 - 1e-15)
        p_high = np.where(other_l > 0.0, h / (h + other_l), 1.0) * (1 + 1e-15)
    return np.maximum(p_low, 0.0), np.minimum(p_high, 1.0)
