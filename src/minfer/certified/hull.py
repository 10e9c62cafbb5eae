"""Hulls: exact inference in a ball, the least and the largest answer over its boundary's states.

With a ball R around v and its boundary B (:mod:`minfer.kernels.hull`), v is independent of the rest
given b, so that

    p(v = s) = sum_b P(s | b) p(b)        lies between        min_b P(s | b)  and  max_b P(s | b)

over the states b that the ball gives weight to. (The model may give some of these none: the hull is
only wider.) What is known of a boundary variable u narrows it: with M_t = max over b with b_u = t,

    p(v = s) <= max { sum_t q_t M_t : lo <= q <= hi, sum q = 1 },

a fractional knapsack; the least likewise; the best u counts. Anything goes: zeros, any arity and
number of states, auxiliary variables of logical factors.

**Rounding.** P(s | b) is a quotient of sums of products of non-negative numbers, none of which
underflows; the kernel counts the roundings N behind it. Every product is off by e^(+-A), A the sum
of ``Tabled.error`` over the ball, since every table there has a variable in it. So P is known up to
a factor e^(+-t), t = gamma(N) + 2 A, and so are all hulls, which are of degree one in the P.

**Barren variables.** A table that sums to the same number over one of its variables, whatever the
others do, is a constant once that variable is summed out, if nothing else is known of it: a
conditional probability table without evidence below. Such tables are left out one after the other.
Around a variable that is left out itself, balls are grown with what was there just before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.certified.bounds import Bounds, Meter
from minfer.certified.local import Local
from minfer.certified.rounding import EXP, U, down, gamma, up
from minfer.certified.tabled import Tabled

#: Of more variables with pairs alone, regions and walks say more for the memory that it takes.
MOST_VARIABLES = 100_000
#: Units that a cell counts for.
PER_CELL = 16
#: Cells of one ball, at most, whatever the budget.
MOST_CELLS = 1 << 24
#: A table counts as a constant over a variable if its sums differ by less, relatively: numbers in
#: files have six digits or so.
LEVEL = 2e-6
#: Work of one portion, about; and its roots at most.
_PORTION, _MOST_ROOTS = 1 << 22, 1024


class Structure(NamedTuple):
    """Which tables and which neighbours variables have."""

    aptr: NDArray[np.int64]
    anbr: NDArray[np.int32]
    atime: NDArray[np.int64]  # when the last table that links the two is left out
    vptr: NDArray[np.int64]
    vtab: NDArray[np.int32]


class Hull:
    """See the module."""

    name = "hull"
    gradual = True

    def __init__(self) -> None:
        self._local: Local | None = None

    def refine(
        self, local: Local, bounds: Bounds, wanted: NDArray[np.bool_], budget: float, meter: Meter
    ) -> bool:
        if local.pairs_only and local.n_variables > MOST_VARIABLES:
            return False
        if self._local is not local:
            self._prepare(local, meter)
        t = self._tabled
        most = min(budget / PER_CELL, MOST_CELLS)
        known = bounds.lo.copy(), bounds.hi.copy()  # of before: the order of portions is no matter
        n = len(wanted)
        able = wanted & t.free[:n] & ~t.opaque[:n]
        size = int(np.clip(_PORTION / most, 1, _MOST_ROOTS))
        roots = np.flatnonzero(able)
        portions = (roots[begin : begin + size] for begin in range(0, len(roots), size))
        for found in meter.each(lambda some: self._balls(some, most, *known), portions):
            meter.spend(PER_CELL * found.cost)
            self._offer(found, bounds)
        return bool(able.any()) and most < MOST_CELLS

    # ------------------------------------------------------------------ inside

    def _prepare(self, local: Local, meter: Meter) -> None:
        from minfer.kernels.hull import MOST_SPREAD, NEVER, barren, linear

        self._local = local
        self._tabled = t = Tabled.of(local)
        begin, first = np.unique(t.toff, return_index=True)
        self._psi = np.zeros(len(t.log_psi))
        spread = np.zeros(len(begin))
        linear(begin, t.size[first], t.log_psi, self._psi, spread)
        self._spread = spread[np.searchsorted(begin, t.toff)]
        self._field = np.zeros(len(t.field))
        self._field_spread = np.zeros(len(t.card))
        linear(t.off[:-1], t.card.astype(np.int64), t.field, self._field, self._field_spread)
        meter.spend(16 * (len(t.scope) + len(t.log_psi)))
        self._table_time = np.full(len(t.toff), NEVER)
        self._variable_time = np.full(len(t.card), NEVER)
        more = np.zeros(len(t.card))
        vptr, vtab = _tables_by_variable(t)
        lost = (self._spread < 0) | (self._spread > MOST_SPREAD)
        barren(
            t.card, t.off, t.field, t.free & ~_touched(t, lost), t.opaque, t.fptr, t.scope, vptr,
            vtab, t.toff, t.size, self._psi, t.error, LEVEL, float(2 * EXP + 8), self._table_time,
            self._variable_time, more,
        )  # fmt: skip
        self._error = t.error + more
        self._structure = Structure(*_neighbours(t, self._table_time), vptr, vtab)

    def _balls(
        self,
        roots: NDArray[np.int64],
        most: float,
        lo: NDArray[np.float64],
        hi: NDArray[np.float64],
    ) -> Found:
        from minfer.kernels.hull import balls

        t = self._tabled
        n = len(roots)
        states = int(t.card[roots].max())
        low, high = np.zeros((n, 2, states)), np.ones((n, 2, states))
        rounds, errors = np.zeros(n), np.zeros(n)
        inside, cost = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        s = self._structure
        balls(
            roots, np.log2(max(most / 8.0, 1.0)), float(most), t.n_own, t.card, t.off,
            np.log2(t.card), s.aptr, s.anbr, s.atime, t.opaque, self._error, t.fptr, t.scope,
            s.vptr, s.vtab, self._table_time, self._variable_time, t.toff, self._psi, self._spread,
            self._field, self._field_spread, float(EXP + 1), lo, hi, low, high, rounds, errors,
            inside, cost,
        )  # fmt: skip
        return Found(roots, low, high, rounds, errors, inside, int(cost.sum()))

    def _offer(self, found: Found, bounds: Bounds) -> None:
        card = self._tabled.card
        ok = found.inside > 0
        spread = 1.02 * gamma(found.rounds + 8) + 2.1 * found.errors + 8 * U
        with np.errstate(over="ignore"):
            factor = np.exp(spread)
        for s in np.unique(card[found.roots[ok]]):
            mine = np.flatnonzero(ok & (card[found.roots] == s))
            f = factor[mine, None]
            low, high = found.low[mine, 1, :s], found.high[mine, 1, :s]
            low = np.where(low > 0, down(down(low / f)), 0.0)
            high = np.where(high > 0, np.minimum(up(up(high * f)), 1.0), 0.0)
            bounds.offer(self.name, found.roots[mine], np.maximum(low, 0.0), high)


def _touched(t: Tabled, tables: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(V,) the variables of some tables."""
    out = np.zeros(len(t.card), dtype=bool)
    out[t.scope[np.repeat(tables, t.arity)]] = True
    return out


class Found(NamedTuple):
    """Of a portion of roots."""

    roots: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    rounds: NDArray[np.float64]
    errors: NDArray[np.float64]
    inside: NDArray[np.int64]
    cost: int


def _tables_by_variable(t: Tabled) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    vptr = np.zeros(len(t.card) + 1, dtype=np.int64)
    np.cumsum(np.bincount(t.scope, minlength=len(t.card)), out=vptr[1:])
    return vptr, t.owner[np.argsort(t.scope, kind="stable")].astype(np.int32)


def _neighbours(
    t: Tabled, time: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Neighbours of each variable, and the latest time of the tables that link the two."""
    n, arity = len(t.card), t.arity
    keys, times = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for a in range(int(arity.max(initial=0))):
        for b in range(a + 1, int(arity.max())):
            which = arity > b
            first = t.fptr[:-1][which]
            u, v = t.scope[first + a].astype(np.int64), t.scope[first + b].astype(np.int64)
            keys += [u * n + v, v * n + u]
            times += [time[which], time[which]]
    key, when = np.concatenate(keys), np.concatenate(times)
    order = np.lexsort((when, key))
    key, when = key[order], when[order]
    last = np.ones(len(key), dtype=bool)
    last[:-1] = key[1:] != key[:-1]
    key = key[last]
    ptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(key // max(n, 1), minlength=n), out=ptr[1:])
    return ptr, (key % max(n, 1)).astype(np.int32), when[last]
