"""Weighted mini-buckets: rigorous bounds of log Z that tighten, for any number of states.

Hoelder's inequality bounds a sum of products by a product of powered sums,

    sum_x prod_r f_r(x) <= prod_r ( sum_x f_r(x)^(1 / w_r) )^w_r,     w_r > 0, sum_r w_r = 1,

and >= where one w_r is positive and all others are negative (Hardy, Littlewood & Polya 1934). With
one variable after the other summed so, every split bucket costs some width and no more memory than
its mini-buckets need (Liu & Ihler, ICML 2011). Two kinds of freedom tighten the bound: shifts d_r
of what the mini-buckets of a variable share, sum_r d_r = 0, and the weights. The derivative along
d_r is the share b_r that the passes down leave at it, so that

    d_r += step w_r (log mean b - log b_r),   w_r *= exp( -step w_r (H_r - mean H) ),

and a step that made the bound worse is taken back and halved. H_r is the conditional entropy.

**Rounding.** Messages are logs, and an error of an input moves a powered sum by no more than
itself. So errors add up: of each mini-bucket with I inputs that are at most A in sum of their
sizes and S states in its first variable, the message has (I + 12) U A and |w| (2 S + 40) U of its
own beside the errors of the messages it was made of, and all of them together are the bound's
error (U = 2^-53; the vectorised exp and log are off by less than 4 units, :mod:`~minfer.certified
.rounding`). Shifts of one variable are added up as they are: the last is minus the sum of the
others, up to R U of their sizes. What conditioning and simplifying may have lost is in
:func:`prepare`. A zero is a zero: minus infinity has no error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.limits import clock, deadline_of
from minfer.engine.buckets.conditioned import KnownVariable, marginal_ends
from minfer.engine.buckets.plan import MOST_CELLS, BucketPlan, plan_buckets
from minfer.engine.conditioning import Conditioned, U, rounding_of_sums, summed_sizes
from minfer.engine.decomposition import only_tables
from minfer.engine.simplify import CLOSEST, Simplified, simplify, untouched
from minfer.errors import NOTHING_POSSIBLE, ContradictionError

#: What a share of a share may lose to underflow.
UNDERFLOW = 1e-300
#: The least size of a weight, and steps that are given up.
LEAST_WEIGHT, LEAST_STEP = 1e-3, 1e-3

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class PreparedBuckets(NamedTuple):
    """A model as buckets take it."""

    simplified: Simplified
    tables: Conditioned  # what is left of it, perhaps with auxiliary variables
    error: float  # of log Z, absolute, by what was done to it


def prepare(model: Conditioned, maximise: Sequence[int] = ()) -> PreparedBuckets:
    """Simplify a model and write it in tables. Variables to maximise keep their states apart."""
    most = np.zeros(model.graph.n_variables, dtype=bool)
    most[list(maximise)] = True
    found = simplify(model, most) if most.any() else simplify(model)
    after = found.model
    if most.any() and found.changed:
        after = Conditioned(
            after.graph, after.constant, found.field(model.field), after.fixed, after.groups
        )
    elif not found.changed:
        after, found = model, untouched(model)
    tables = only_tables(after, "bounds")
    # by the user's numbers: what has cancelled in a field or the constant has been rounded, too
    sizes = float(summed_sizes(model.graph)[1].sum())
    done = found.merged + found.split + found.joined + found.excluded + found.fixed
    degree = int(model.arrays.degree.max(initial=0)) if found.merged else 1
    error = rounding_of_sums(model.graph) + U * (degree + 16) * sizes
    error += CLOSEST * (done + found.merged * degree)
    return PreparedBuckets(found, tables, error)


def users_ends(prepared: PreparedBuckets, lo: Floats, hi: Floats) -> tuple[Floats, Floats]:
    """Ends of intervals of the free variables of the tables, as those of all the user's states."""
    tables, found = prepared.tables, prepared.simplified
    off = tables.graph._offsets
    n = len(found.model.field)
    lo, hi = lo[:n].copy(), hi[:n].copy()
    known = np.flatnonzero(tables.fixed[: len(found.free)] >= 0)
    owner = np.repeat(tables.fixed[: len(found.free)] >= 0, np.diff(off[: len(found.free) + 1]))
    lo[owner] = hi[owner] = 0.0
    where = off[known] + tables.fixed[known]
    lo[where] = hi[where] = 1.0
    low, high = found.marginals(lo), found.marginals(hi)
    change = math.exp(min(2 * prepared.error + 32 * U, 600.0)) if found.changed else 1.0
    lost = UNDERFLOW if found.changed else 0.0  # shares of shares
    return np.maximum(low / change - lost, 0.0), np.minimum(high * change + lost, 1.0)


class Side:
    """One of the two bounds of a plan: weights, numbers and shares.

    ``sign`` is 1 for the bound from above and -1 for the one from below."""

    def __init__(self, plan: BucketPlan, weight: Floats, sign: int) -> None:
        self.plan, self.weight, self.sign = plan, weight, sign
        self.val = plan.start.copy()
        self.step, self.rounds = 1.0, 0
        self.every = np.arange(len(weight), dtype=np.int64)
        self._best: tuple[float, Floats, Floats] | None = None
        self.collect(match=True)
        self._steps = sum(1 for _ in self._split_variables())
        self.bound = self.total()

    def collect(self, which: Ints | None = None, match: bool = False) -> None:
        from minfer.kernels.buckets.passes import collect

        collect(self.plan.buckets, self.every if which is None else which, self.weight, match,
                self.val)  # fmt: skip

    def total(self) -> float:
        """The logs of all messages that have no variable left, added up."""
        roots = self.plan.target < 0
        return float(self.val[self.plan.buckets.out[roots]].sum())

    def shares(self) -> tuple[Floats, Floats]:
        """Derivatives of the bound along fields, shifts and messages; entropies (K,)."""
        from minfer.kernels.buckets.passes import spread

        b = self.plan.buckets
        bel, spare = np.zeros(len(self.val) - b.base), np.zeros(len(self.weight))
        bel[b.out[self.plan.target < 0] - b.base] = 1.0
        spread(b, self.every[::-1].copy(), self.weight, self.val, bel, spare)
        return bel, spare

    def improve(self) -> bool:
        """One step; False where there is nothing left to gain."""
        if not self._steps or self.step < LEAST_STEP or not math.isfinite(self.bound):
            return False
        bel, entropy = self.shares()
        shifts, weight = self.val.copy(), self.weight.copy()
        while self.step >= LEAST_STEP:
            self._move(bel, entropy, self.step)
            self.collect()
            now = self.total()
            if (now - self.bound) * self.sign < 0.0:
                gain = abs(now - self.bound)
                self.bound, self.step = now, min(self.step * 1.3, 4.0)
                return gain > 1e-7 * (1.0 + abs(now))
            self.val[:], self.weight[:] = shifts, weight
            self.step *= 0.5
        return False

    def _split_variables(self) -> list[tuple[int, int, int, int]]:
        """First and last mini-bucket of each split variable, where shifts lie, cells of each."""
        b = self.plan.buckets
        found = []
        for v in np.flatnonzero(self.plan.split).tolist():
            first, stop = int(b.bptr[v]), int(b.bptr[v + 1])
            at = int(b.src[b.shift[first]])
            found.append((first, stop, at, int(b.src[b.shift[first + 1]]) - at))
        return found

    def _move(self, bel: Floats, entropy: Floats, step: float) -> None:
        base = self.plan.buckets.base
        for first, stop, at, cells in self._split_variables():
            n = stop - first
            w = self.weight[first:stop]
            own = bel[at - base : at - base + n * cells].reshape(n, cells)
            shift = self.val[at : at + n * cells].reshape(n, cells)
            good = (own > 1e-300).all(axis=0) & np.isfinite(shift).all(axis=0)
            logs = np.log(own[:, good])
            size = np.abs(w) / np.abs(w).sum() if w.any() else np.full(n, 1.0 / n)
            if self.sign > 0:
                mean = size @ logs
                shift[:, good] += step * (w if w.any() else size)[:, None] * (mean - logs)
            else:
                mean = w @ logs
                shift[:, good] += step * w[:, None] * (mean - logs)
            shift[n - 1, good] = -shift[: n - 1, good].sum(axis=0)
            if w.any() and self.sign > 0:
                moved = w * np.exp(-step * w * (entropy[first:stop] - w @ entropy[first:stop]))
                moved = np.maximum(moved, LEAST_WEIGHT)
                self.weight[first:stop] = moved / moved.sum()

    def error(self) -> float:
        """What rounding may have cost the sum of all messages."""
        return rounding(self.plan, self.val, self.weight)


def rounding(plan: BucketPlan, val: Floats, weight: Floats) -> float:
    """A bound on the rounding of all messages together; see the module."""
    b = plan.buckets
    if not len(weight):
        return 0.0
    sizes = np.where(np.isfinite(val), np.abs(val), 0.0)
    starts = np.unique(np.concatenate([b.src, b.out]))
    largest = np.maximum.reduceat(sizes, np.minimum(starts, len(val) - 1))
    of_input = largest[np.searchsorted(starts, b.src)]
    of_out = largest[np.searchsorted(starts, b.out)]
    n_inputs = np.diff(b.iptr)
    total = np.add.reduceat(of_input, b.iptr[:-1]) + of_out
    states = b.dims[b.dptr[:-1]]
    own = (n_inputs + 12) * U * total + np.abs(weight) * (2 * states + 40) * U
    shifts = 0.0
    if (b.shift >= 0).any():
        most = int(np.diff(b.bptr).max())
        shifts = (most + 2) * U * float(of_input[b.shift[b.shift >= 0]].sum())
    slack = 4 * U * (float(of_out.sum()) + 1.0)
    return 1.01 * (float(own.sum()) + shifts + slack) + len(weight) * 1e-17


class BucketBounds:
    """Bounds of log Z of a conditioned model, by weighted mini-buckets.

    Parameters
    ----------
    model : Conditioned
        What is bounded; answers are in the states and with the constant of its graph.
    maximise : list of int
        Variables over which the largest sum of the others is meant.
    memory_limit : float
        Bytes of messages.
    i_bound : int, optional
        The largest mini-bucket has 2^i_bound cells; None: what fits.
    most_cells : float
        Cells of all mini-buckets together where nobody says how large they are.
    prepared : PreparedBuckets, optional
        Of the same model, where it is known.

    Examples
    --------
    >>> from minfer.engine.buckets.bounds import BucketBounds
    >>> from minfer.engine.conditioning import condition
    >>> from minfer.examples import sprinkler
    >>> found = BucketBounds(condition(sprinkler().with_evidence({"wet_grass": 1})))
    >>> found.exact, round(found.lower, 3), round(found.upper, 3)
    (True, -0.734, -0.734)
    """

    def __init__(
        self,
        model: Conditioned,
        *,
        maximise: Sequence[int] = (),
        memory_limit: float = 2.0**30,
        i_bound: int | None = None,
        most_cells: float = MOST_CELLS,
        prepared: PreparedBuckets | None = None,
    ) -> None:
        self.model = model
        self.maximise = np.array(list(maximise), dtype=np.int64)
        self.prepared = prepare(model, maximise) if prepared is None else prepared
        tables = self.prepared.tables
        last = np.zeros(len(tables.fixed), dtype=bool)
        last[self.maximise] = True
        self.plan = plan = plan_buckets(
            tables, last if len(self.maximise) else None, memory_limit, i_bound, most_cells
        )
        self.i_bound, self.exact = plan.levels, plan.exact
        self.is_max = last[plan.order]
        began = clock()
        self.above = Side(plan, self._weights(1), 1)
        #: Cells a second, of the first pass.
        self.rate = plan.cells / max(clock() - began, 1e-4)
        self.below: Side | None = None
        finite = bool(np.isfinite(plan.start).all())
        if not plan.exact and finite and self.above.bound > -np.inf:
            self.below = Side(plan, self._weights(-1), -1)
        self._upper, self._lower = math.inf, -math.inf
        self._known: tuple[KnownVariable, KnownVariable | None] | None = None
        self._ends: dict[int, tuple[Floats, Floats]] = {}
        self._note()
        if self._upper == -np.inf:
            raise ContradictionError(NOTHING_POSSIBLE)

    def _weights(self, sign: int) -> Floats:
        """Even ones; below, one positive and the others minus one."""
        b = self.plan.buckets
        weight = np.ones(len(b.out))
        for v in range(len(b.bptr) - 1):
            first, stop = int(b.bptr[v]), int(b.bptr[v + 1])
            if self.is_max[v]:
                weight[first:stop] = 0.0
            elif sign > 0:
                weight[first:stop] = 1.0 / (stop - first)
            elif stop - first > 1:
                weight[first:stop] = -1.0
                weight[first] = stop - first
        return weight

    @property
    def constant(self) -> float:
        """What variables with one state left, and tables over none, come to."""
        tables = self.prepared.tables
        return tables.constant + float(tables.field[tables.fixed_at].sum())

    def _note(self) -> None:
        """What both sides prove now."""
        high = self.above.bound + self.constant
        error = self.prepared.error + self.above.error() + 2 * U * abs(high)
        self._upper = min(self._upper, float(np.nextafter(high + error, np.inf)))
        if self.exact:
            self._lower = max(self._lower, float(np.nextafter(high - error, -np.inf)))
        elif self.below is not None and not len(self.maximise):
            low = self.below.bound + self.constant
            if not math.isnan(low):
                error = self.prepared.error + self.below.error() + 2 * U * abs(low)
                self._lower = max(self._lower, float(np.nextafter(low - error, -np.inf)))

    @property
    def upper(self) -> float:
        """A rigorous upper bound of log Z."""
        return self._upper

    @property
    def lower(self) -> float:
        """A rigorous lower bound of log Z; minus infinity where nothing is known."""
        return self._lower

    def tighten(self, *, time_limit: float | None = None, sweeps: int | None = None) -> None:
        """Move shifts and weights, on until nothing is gained, or so many times or seconds."""
        until = deadline_of(time_limit)
        done, going = 0, not self.exact
        while going and (sweeps is None or done < sweeps) and clock() < until:
            going = self.above.improve()
            if self.below is not None and clock() < until:
                going |= self.below.improve()
            done += 1
        self._known = None
        self._note()

    def conditioned(self, variable: int, budget: float = math.inf) -> tuple[Floats, Floats]:
        """Bounds of the log of the sum over what is left with x_v = s, for each state, (S,) each.

        Parameters
        ----------
        variable : int
            Of the model's graph.
        budget : float
            Cells of mini-buckets that are summed again for a state, about.
        """
        found, tables = self.prepared.simplified, self.prepared.tables
        off = found.before.graph._offsets
        own = slice(int(off[variable]), int(off[variable + 1]))
        into, share = found.state[own], found.share[own]
        if tables.fixed[variable] >= 0:
            there = into == tables.fixed[variable]
            low = np.where(there, self._lower, -np.inf)
            high = np.where(there, self._upper, -np.inf)
        else:
            below, above = self._with(int(np.flatnonzero(self.plan.order == variable)[0]), budget)
            low = np.where(into >= 0, below[np.maximum(into, 0)], -np.inf)
            high = np.where(into >= 0, above[np.maximum(into, 0)], -np.inf)
        with np.errstate(divide="ignore"):
            logs = np.log(share)
        slack = 2 * self.prepared.error + 8 * U * np.where(np.isfinite(logs), np.abs(logs), 0.0)
        high = np.minimum(high, self._upper)
        return low + logs - slack - 1e-15, high + logs + slack + 1e-15

    def intervals(
        self, *, time_limit: float | None = None, lower: float = -math.inf, upper: float = math.inf
    ) -> tuple[Floats, Floats]:
        """Where the marginals of all variables lie, (sum S,) each, by conditioning.

        Variables that were looked at before are not looked at again; those that the time limit
        leaves out have [0, 1]. ``lower`` and ``upper``: what else is known of log Z.
        """
        graph = self.model.graph
        off = graph._offsets
        free = np.flatnonzero(self.prepared.tables.fixed[: graph.n_variables] < 0)
        until = deadline_of(time_limit)
        budget = math.inf
        if time_limit is not None:
            sides = 1 if self.below is None else 2
            states = float(graph._n_states[free].sum())
            budget = self.rate * time_limit / max(states * sides, 1.0)
        low, high = np.zeros(int(off[-1])), np.ones(int(off[-1]))
        lower, upper = max(lower, self._lower), min(upper, self._upper)
        for v in range(graph.n_variables):
            if v not in self._ends:
                if self.prepared.tables.fixed[v] < 0 and clock() >= until:
                    continue
                self._ends[v] = self.conditioned(v, budget)
            own = slice(int(off[v]), int(off[v + 1]))
            low[own], high[own] = marginal_ends(*self._ends[v], lower, upper)
        return low, high

    def _with(self, v: int, budget: float) -> tuple[Floats, Floats]:
        """Bounds with each state of the ``v``-th variable of the order."""
        if self._known is None:
            low_side = None if self.below is None else KnownVariable(self.below)
            self._known = KnownVariable(self.above), low_side
        above, below = self._known
        error = self.prepared.error + 4 * U * abs(self.constant)
        value, rounding = above.bounds(v, budget)
        high = value + self.constant + error + rounding
        low = np.full(len(high), -np.inf)
        if self.exact and budget == math.inf:
            low = value + self.constant - error - rounding
        elif below is not None:
            value, rounding = below.bounds(v, budget)
            low = value + self.constant - error - rounding
        return low, high
