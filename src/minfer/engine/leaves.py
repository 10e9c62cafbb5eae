"""Leaves that say nothing: what evidence does not reach, taken off and put back.

A variable v in one factor psi(v, o) alone says nothing of the others o where

    sum_v psi(v, o) e^field(v) = e^c,    the same for all o,

as in a network of conditional probabilities nothing says anything that has no evidence below it
(Shachter, Operations Research 1986). Without psi the sum over all the rest is e^-c of what it was,
and another variable may have become such a leaf. Back on its place, v has

    p(v) = sum_o theta(v | o) p(o),    theta(v | o) = psi(v, o) e^field(v) - c.

**From intervals.** Where only intervals of each other variable are known, any u_i with
sum_i u_i(o_i) >= theta(s | o) for all o gives

    p(v = s) <= sum_i max_r sum_a u_i(a) r(a),

the maxima over all r within the i-th intervals that add up to one. These are feasible points of the
dual of a linear program; good ones are found by letting one u_i after the other be the least it
may.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.engine.conditioning import Conditioned, U, rounding_slack
from minfer.engine.layout import part

Floats = NDArray[np.float64]

#: Cells of the factor of a leaf, at most.
MOST_CELLS = 4096
#: Variables of a model that is looked at.
MOST_VARIABLES = 20_000
#: What a sum may differ by and still be the same; what rounding may do to it.
SAME = 1e-11
#: Rounds of making one function after the other smaller; what rounding may cost a bound.
ROUNDS, SLIP = 3, 1e-13


class Leaf(NamedTuple):
    """One that was taken off."""

    variable: int
    others: tuple[int, ...]
    theta: Floats  # (states, those of the others)


class Peeled(NamedTuple):
    """A model without its leaves. They are fixed in it, to whatever state."""

    model: Conditioned
    leaves: tuple[Leaf, ...]  # in the order they went
    error: float  # of log Z, absolute

    def core(self, lo: Floats, hi: Floats) -> tuple[Floats, Floats]:
        """Intervals (sum S,) of what is left, as those of the whole, of leaves nothing."""
        off = self.model.graph._offsets
        wide = np.exp(min(2.0 * self.error, 1.0)) + SLIP if self.leaves else 1.0
        lo, hi = lo / wide, np.minimum(hi * wide, 1.0)
        for leaf in self.leaves:
            own = slice(int(off[leaf.variable]), int(off[leaf.variable + 1]))
            lo[own], hi[own] = 0.0, 1.0
        return lo, hi

    def ends(self, lo: Floats, hi: Floats) -> tuple[Floats, Floats]:
        """Intervals (sum S,) of all variables, from these."""
        off = self.model.graph._offsets
        lo, hi = lo.copy(), hi.copy()
        pad = 2.0 * self.error + SLIP
        for v, others, theta in reversed(self.leaves):
            own = slice(int(off[v]), int(off[v + 1]))
            boxes = [(lo[off[u] : off[u + 1]], hi[off[u] : off[u + 1]]) for u in others]
            most = _largest_mean(theta, boxes)
            least = -_largest_mean(-theta, boxes)
            lo[own] = np.maximum(lo[own], np.clip(least * (1.0 - pad) - pad, 0.0, 1.0))
            hi[own] = np.minimum(hi[own], np.clip(most * (1.0 + pad) + pad, 0.0, 1.0))
        return lo, hi


def peel(model: Conditioned) -> Peeled:
    """Take off all leaves, one after the other."""
    n = len(model.fixed)
    if n > MOST_VARIABLES:
        return Peeled(model, (), 0.0)
    where: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    for k, g in enumerate(model.groups):
        for row, scope in enumerate(g._scope.tolist()):
            for v in set(scope):
                where[v].append((k, row))
    todo = [v for v in range(n - 1, -1, -1) if len(where[v]) == 1]
    keep = [np.ones(len(g), dtype=bool) for g in model.groups]
    leaves: list[Leaf] = []
    error = total = 0.0
    field, fixed = model.field.copy(), model.fixed.copy()
    off = model.graph._offsets
    slack = rounding_slack(model.graph)
    while todo:
        v = todo.pop()
        if len(where[v]) != 1 or fixed[v] >= 0:
            continue
        k, row = where[v][0]
        found = _alone(model, k, row, v, 2 * float(slack[v]))
        if found is None:
            continue
        leaf, constant, wrong = found
        leaves.append(leaf)
        total, error = total + constant, error + wrong
        keep[k][row] = False
        own = slice(int(off[v]), int(off[v + 1]))
        field[own] = -np.inf
        field[off[v]] = 0.0
        fixed[v] = 0
        where[v] = []
        for u in leaf.others:
            where[u].remove((k, row))
            if len(where[u]) == 1:
                todo.append(u)
    if not leaves:
        return Peeled(model, (), 0.0)
    groups = tuple(part(g, which) for g, which in zip(model.groups, keep) if which.any())
    error += 2 * U * len(leaves) * (abs(total) + abs(model.constant))
    left = replace(
        model, constant=model.constant + total, field=field, fixed=fixed, groups=groups,
        _arrays=None,
    )  # fmt: skip
    return Peeled(left, tuple(leaves), error)


def _alone(
    model: Conditioned, k: int, row: int, v: int, slack: float
) -> tuple[Leaf, float, float] | None:
    """A leaf, the log of its sum and what that may be wrong by; None where it says something."""
    g = model.groups[k]
    if g.form == "messages" or not g.has_tables or g.n_cells > MOST_CELLS:
        return None
    scope = g._scope[row].tolist()
    if scope.count(v) != 1 or len(set(scope)) != len(scope):
        return None
    off = model.graph._offsets
    axis = scope.index(v)
    logs = np.moveaxis(np.asarray(g.log_tables(np.array([row]))).reshape(g.shape), axis, 0)
    own = model.field[off[v] : off[v + 1]]
    logs = logs + own.reshape([-1] + [1] * (logs.ndim - 1))
    finite = np.where(np.isfinite(logs), np.abs(logs), 0.0)
    top = logs.max(axis=0)
    if np.isneginf(top).any():
        return None
    weight = np.exp(logs - top)
    whole = weight.sum(axis=0)
    sums = top + np.log(whole)
    size = float(finite.max(initial=0.0)) + float(np.abs(own[np.isfinite(own)]).max(initial=0.0))
    low, high = float(sums.min()), float(sums.max())
    wrong = high - low + U * (8 * size + len(own) + 40) + slack
    if not wrong < SAME:
        return None
    others = tuple(u for u in scope if u != v)
    return Leaf(v, others, weight / whole), 0.5 * (low + high), wrong


def _largest_mean(theta: Floats, boxes: list[tuple[Floats, Floats]]) -> Floats:
    """(S,) a bound of sum_o theta(s, o) p(o) over all p with each variable's share in its box."""
    n = len(boxes)
    shapes = [(-1, *(-1 if k == i else 1 for k in range(n))) for i in range(n)]
    middle = [_normal(0.5 * (lo + hi)) for lo, hi in boxes]
    best = np.full(len(theta), np.inf)
    effects = []
    for i in range(n):
        mean = theta
        for k in range(n - 1, -1, -1):
            if k != i:
                mean = np.tensordot(mean, middle[k], axes=([k + 1], [0]))
        effects.append(mean)
    for begin in (None, effects):
        for first in range(n):
            own = [
                np.zeros((len(theta), theta.shape[i + 1]))
                if begin is None
                else begin[i] - begin[i].mean(axis=1, keepdims=True)
                for i in range(n)
            ]
            for turn in range(ROUNDS * n):
                i = (first + turn) % n
                rest = theta
                for k in range(n):
                    if k != i:
                        rest = rest - own[k].reshape([len(theta), *shapes[k][1:]])
                own[i] = rest.max(axis=tuple(k + 1 for k in range(n) if k != i))
            value = sum(_fullest(u, *box) for u, box in zip(own, boxes))
            best = np.minimum(best, value)
    return best


def _normal(p: Floats) -> Floats:
    whole = p.sum()
    return p / whole if whole > 0.0 else np.full(len(p), 1.0 / len(p))


def _fullest(u: Floats, lo: Floats, hi: Floats) -> Floats:
    """(S,) the largest sum_a u(s, a) r(a) over r between ``lo`` and ``hi`` that add up to one."""
    order = np.argsort(-u, axis=1, kind="stable")
    room = (hi - lo)[order]
    before = np.cumsum(room, axis=1) - room
    left = max(1.0 - float(lo.sum()), 0.0)
    put = np.clip(left - before, 0.0, room)
    rest = np.maximum(left - put.sum(axis=1), 0.0)
    sorted_u = np.take_along_axis(u, order, axis=1)
    return (u * lo).sum(axis=1) + (sorted_u * put).sum(axis=1) + rest * np.abs(u).max(axis=1)
