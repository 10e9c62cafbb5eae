"""A model as local bounds see it: what each factor can do to each of its variables.

After conditioning, a variable is free or fixed. Of the free ones with two states the log-odds have
own fields and *pairs* w x_i x_j (:mod:`minfer.kernels.messages.wiring`); every other factor, and
every pair that is *ignored*, is known by its range only: whatever the other variables do, it moves
the log-odds of an end by a number in

    [min_x log psi(1, x) / psi(0, x),  max_x log psi(1, x) / psi(0, x)]

over the states x of the others that it allows at all. All numbers are intervals that hold the true
ones, the rounding of all sums of the model's numbers included (:mod:`minfer.certified.rounding`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.certified.rounding import U, down, up
from minfer.engine.conditioning import Conditioned, rounding_slack
from minfer.engine.layout import FactorArrays, ends, join, part
from minfer.factors.group import FactorGroup

if TYPE_CHECKING:
    from minfer.engine.leaves import Peeled
    from minfer.kernels.intervals.regions import PairArrays

#: Cells of tables that are looked at together.
_CHUNK = 1 << 22


def ratios(
    tables: NDArray[np.float64],
    shape: tuple[int, ...],
    place: int,
    check: Callable[[], None] = lambda: None,
) -> NDArray[np.float64]:
    """D (n, S, S): D[s, q] = max_x log psi(s, x) / psi(q, x) over the others' states x, of tables.

    ``tables`` (n, cells) are logs. States x that allow neither s nor q say nothing; minus infinity
    where all are such. Not rounded outwards. ``check``, called now and then, may raise.
    """
    n, size = len(tables), shape[place]
    rows = np.moveaxis(tables.reshape(n, *shape), 1 + place, 1).reshape(n, size, -1)
    out = np.zeros((n, size, size))
    for s in range(size):
        check()
        for q in range(size):
            if s != q:
                with np.errstate(invalid="ignore"):
                    d = rows[:, s] - rows[:, q]
                d[np.isneginf(rows[:, s])] = -np.inf  # both: inf - inf
                out[:, s, q] = d.max(axis=1)
    return out


def odds_ranges(group: FactorGroup) -> NDArray[np.float64]:
    """(F, A, 2): the least and the largest log-odds a factor can add at each end with two states;
    NaN at others. Infinite where nothing is known."""
    out = np.full((len(group), group.arity, 2), np.nan)
    two = [a for a, s in enumerate(group.shape) if s == 2]
    out[:, two] = [-np.inf, np.inf]
    if group.form == "messages" or not two:
        return out
    if not group.has_tables:
        if group.form == "machine":
            final = group.machine().final
            top = final.max(axis=1)
            span = np.where(np.isfinite(final).all(axis=1), top - final.min(axis=1), np.inf)
            span = np.where(group.forbids(), np.inf, np.broadcast_to(span, (len(group),)))
            out[:, two, 0] = -span[:, None]
            out[:, two, 1] = span[:, None]
        return out
    step = max(1, _CHUNK // group.n_cells)
    for begin in range(0, len(group), step):
        rows = np.arange(begin, min(begin + step, len(group)))
        tables = group.log_tables(rows)
        for a in two:
            d = ratios(tables, group.shape, a)
            out[rows, a, 0], out[rows, a, 1] = -d[:, 0, 1], d[:, 1, 0]
    return out


@dataclass(frozen=True, eq=False)
class LocalBounds:
    """See the module. V variables; E pairs, each from both ends, by variable and neighbour.

    ``theta``, ``weight`` and ``other`` have a lower and an upper number in their last axis.
    """

    model: Conditioned
    #: (V,) free, two states.
    binary: NDArray[np.bool_]
    #: (V,) what rounding may have done to any sum of the model's numbers at a variable.
    slack: NDArray[np.float64]
    #: (V, 2) own log-odds, those of the pairs' unary parts included; 0 where not binary.
    theta: NDArray[np.float64]
    #: (V, 2) what all factors that are not pairs, or ignored, can add.
    other: NDArray[np.float64]
    ptr: NDArray[np.int64]  # (V+1,)
    nbr: NDArray[np.int64]  # (2E,) increasing within a variable
    weight: NDArray[np.float64]  # (2E, 2)

    @classmethod
    def of(cls, model: Conditioned, ignored: NDArray[np.bool_] | None = None) -> LocalBounds:
        """From a conditioned model; ``ignored`` (n_factors,) marks factors known by ranges only."""
        graph = model.graph
        n = graph.n_variables
        slack = rounding_slack(graph)
        binary = (graph._n_states == 2) & (model.fixed < 0)
        first = graph._offsets[:-1][binary]
        theta = np.zeros(n)
        with np.errstate(invalid="ignore"):
            theta[binary] = model.field[first + 1] - model.field[first]
        other = np.zeros((n, 2))
        left: list[FactorGroup] = []
        arrays = model.arrays
        if ignored is not None and ignored.any():
            left = [g for g in (part(g, ignored[g._ids]) for g in model.groups) if len(g)]
            kept = (part(g, ~ignored[g._ids]) for g in model.groups)
            arrays = FactorArrays(graph._n_states, graph._offsets, tuple(g for g in kept if len(g)))
        pairs, rest = arrays.pairs
        scopes, weights, errors = [], [], []
        for p in pairs:
            t = p.values @ p.basis
            scope = p.group._scope
            ua, ub = t[:, 2] - t[:, 0], t[:, 1] - t[:, 0]
            w = (t[:, 3] - t[:, 2]) - ub
            k = len(scope)
            for end, unary in ((0, ua), (1, ub)):
                theta += np.bincount(scope[:, end], weights=np.broadcast_to(unary, k), minlength=n)
            scopes.append(scope)
            weights.append(np.broadcast_to(w, k))
            errors.append(np.broadcast_to(16 * U * p.group.magnitude(), k))
        for g in [*left, *rest]:
            found = odds_ranges(g)
            known = ~np.isnan(found[:, :, 0])
            for k in range(2):
                add = np.bincount(g._scope[known], weights=found[:, :, k][known], minlength=n)
                with np.errstate(invalid="ignore"):
                    other[:, k] += add
        other[np.isnan(other).any(axis=1)] = [-np.inf, np.inf]  # one rules out what another may
        own = np.where(other.any(axis=1), slack, 0.0)  # nothing is exactly nothing
        ptr, nbr, weight = _merged(n, scopes, weights, errors)
        fields = np.stack([down(theta - slack), up(theta + slack)], axis=1)
        other = np.stack([other[:, 0] - own, other[:, 1] + own], axis=1)
        return cls(model, binary, slack, fields, other, ptr, nbr, weight)

    @property
    def n_variables(self) -> int:
        return len(self.binary)

    @property
    def pairs(self) -> PairArrays:
        """As kernels read it."""
        from minfer.kernels.intervals.regions import PairArrays

        return PairArrays(self.ptr, self.nbr, self.weight, self.theta, self.other)

    @cached_property
    def peeled(self) -> Peeled:
        """The model without the leaves that say nothing."""
        from minfer.engine.leaves import peel

        return peel(self.model)

    @cached_property
    def pairs_only(self) -> bool:
        """Whether all free variables are binary and all factors pairs, as walks like it best."""
        free = self.model.fixed < 0
        return bool((self.binary == free).all()) and not self.other.any()

    @cached_property
    def row(self) -> NDArray[np.int64]:
        """(2E,) the variable that each directed pair belongs to."""
        return np.repeat(np.arange(self.n_variables), np.diff(self.ptr))

    @cached_property
    def reach(self) -> NDArray[np.float64]:
        """(V, 2) log-odds a variable can have at all: fields, ranges, pairs by their signs."""
        low = np.bincount(self.row, np.minimum(self.weight[:, 0], 0), self.n_variables)
        high = np.bincount(self.row, np.maximum(self.weight[:, 1], 0), self.n_variables)
        out = self.theta + self.other
        out[:, 0] += low
        out[:, 1] += high
        size = np.abs(self.weight).max(axis=1, initial=0.0)
        error = 8 * U * (np.bincount(self.row, size, self.n_variables) * (2 + np.diff(self.ptr)))
        for part_of_sum in (self.theta, self.other):
            finite = np.where(np.isfinite(part_of_sum), np.abs(part_of_sum), 0.0)
            error = error + 8 * U * finite.max(axis=1)
        with np.errstate(invalid="ignore"):
            return np.stack([out[:, 0] - error, out[:, 1] + error], axis=1)


def _merged(
    n: int, scopes: list[NDArray], weights: list[NDArray], errors: list[NDArray]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Pairs from both ends, those over the same variables added up."""
    scope = np.concatenate([np.zeros((0, 2), dtype=np.int32), *scopes])
    w, e = join(weights, np.float64), join(errors, np.float64)
    key = np.concatenate([scope[:, 0].astype(np.int64) * n + scope[:, 1],
                          scope[:, 1].astype(np.int64) * n + scope[:, 0]])  # fmt: skip
    order = np.argsort(key, kind="stable")
    key = key[order]
    w, e = np.concatenate([w, w])[order], np.concatenate([e, e])[order]
    new = np.ones(len(key), dtype=bool)
    new[1:] = key[1:] != key[:-1]
    first = np.flatnonzero(new)
    if len(first) < len(key):
        times = np.diff(np.append(first, len(key)))
        e = np.add.reduceat(e, first) + 2 * U * times * np.add.reduceat(np.abs(w), first)
        w = np.add.reduceat(w, first)
        key = key[first]
    ptr = ends(np.bincount(key // max(n, 1), minlength=n))
    return ptr, key % max(n, 1), np.stack([down(w - e), up(w + e)], axis=1)
