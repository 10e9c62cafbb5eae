"""Boxes of ratios: intervals for variables with any number of states among tables of any kind.

**The recursion** (Mooij & Kappen 2008, "Bounds on marginal probability distributions"). Change v
from s to q in one of its factors after the other. In the model where v is so taken apart, a factor
psi(v, t) contributes to p(s) / p(q) the quotient of the averages of psi(s, t) and of psi(q, t) over
the states t of its other variables, where v is gone. If the probabilities of these lie in a box,
all P with P(t) <= R[t, t'] P(t'), the largest quotient in the box is a bound; and the box of a
variable is made in the same way, from its other factors. A factor that leads back to a variable on
the walk is left open: the largest psi(s, t) / psi(q, t) at all, its *range*. So a box holds
whatever the variables on the walk are pinned to.

**More than two variables.** P(a, b) / P(a', b') = P(a | b) / P(a' | b) P(b | a') / P(b' | a'): the
box of several others is the product of theirs, each with the rest of them counted as on the walk.

**Zeros.** p(s) <= R[s, q] p(q) says nothing where R is infinite and is true where p(s) = 0. Begin
with all factors at s, where the weight is p(s) > 0: at the first change that leaves no weight, the
average of psi(q, .) is 0 and that of psi(s, .) is not; the box holds this P, so the bound is
infinite, and an infinite number stays infinite in a product, also with 0. States that the field
forbids are out of all tables.

A walk is cut as those of :mod:`minfer.certified.walks` are; leaves are messages from all that a
variable's ratios can be at all. Cycles stay open however deep it goes, so a box has a floor.

Rounding: :mod:`minfer.kernels.intervals.boxes`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.certified.bounds import Bounds, Effort, OutOfWork, Scratch
from minfer.certified.local import LocalBounds, odds_ranges, ratios
from minfer.certified.rounding import EXP, U, gamma, up
from minfer.engine.layout import join
from minfer.factors.group import FactorGroup

#: States of a variable, and joint states of a factor's others, up to which messages are made.
MAX_STATES = 64
#: Cells of a group's tables, and of all orders of one shape, up to which messages are made.
MAX_CELLS = 1 << 26
#: Of more binary variables with pairs alone, walks, which close cycles, say more in less memory.
MOST_VARIABLES = 100_000
#: Variables in a portion, and its work, at most; the work of one variable.
PORTION_WORK, MOST_WORK = float(1 << 24), float(1 << 28)
PORTION = 64
#: Depth of a walk, and numbers of all boxes on it.
MAX_DEPTH = 1 << 10
BUFFER = 1 << 17
#: Cells of orders that are sorted together.
_CHUNK = 1 << 22
_FIRST = 1.0
#: Logarithm below which an entry of a table counts as no more than BIG.
_LEAST_LOG = -160.0


class Boxes:
    """Boxes of ratios up trees of walks, one for each variable, deeper with every call."""

    name = "boxes"
    gradual = True

    def __init__(self) -> None:
        self._of: LocalBounds | None = None

    def refine(
        self,
        local: LocalBounds,
        bounds: Bounds,
        wanted: NDArray[np.bool_],
        budget: float,
        meter: Effort,
    ) -> bool:
        if local.pairs_only and local.n_variables > MOST_VARIABLES:
            return False
        if local is not self._of:
            try:
                self._prepare(local, meter.check)
            except OutOfWork:
                return True
        roots = np.flatnonzero(wanted & ~self._done)
        sizes = bounds.graph._n_states[roots]
        budget = min(budget, MOST_WORK)
        size = int(min(max(PORTION_WORK / budget, 1), PORTION))
        portions = [
            part[i : i + size]
            for part in (roots[sizes == s] for s in np.unique(sizes))
            for i in range(0, len(part), size)
        ]

        def run(part: NDArray[np.int64]) -> tuple[NDArray, NDArray, NDArray, int]:
            from minfer.kernels.intervals.boxes import boxes

            shape = len(part), int(bounds.graph._n_states[part[0]])
            low, high = np.empty(shape), np.empty(shape)
            with self._scratch.lent() as scratch:
                work = boxes(
                    part, int(budget), self._eps, self._cost, self._rate, self._done, low, high,
                    *self._arrays, *scratch,
                )  # fmt: skip
            return part, low, high, work

        for part, low, high, work in meter.each(run, portions):
            meter.spend(work)
            bounds.offer(self.name, part, low, high)
        return bool((wanted & ~self._done).any())

    def _prepare(self, local: LocalBounds, check: Callable[[], None]) -> None:
        n = local.n_variables
        self._arrays, self._joint = prepare(local, check)
        card, offset, own = self._arrays[-3:]
        unknown = np.add.reduceat(np.isinf(own), offset[:-1]) if n else np.zeros(0)
        self._known = (unknown < card**2 - card) | (card == 1)
        graph = local.model.graph
        self._done = (local.model.fixed >= 0) | (graph._n_states > MAX_STATES) | ~self._known
        self._eps, self._rate = np.full(n, _FIRST), np.ones(n)
        self._cost = np.zeros(n, dtype=np.int64)
        self._scratch = Scratch(self._new_scratch)
        self._of = local

    def _new_scratch(self) -> tuple[NDArray, ...]:
        n = len(self._done)
        depth = min(n + 1, MAX_DEPTH)
        largest = int(self._arrays[-3].max(initial=1))
        room = max(BUFFER, 16 * largest**2)
        return (
            np.zeros(n, np.int32),
            np.empty((depth, 5), np.int64),
            np.empty(depth),
            np.empty(room),
            *np.empty((3, MAX_STATES), np.int64),
            *np.empty((2, self._joint)),
            np.empty(self._joint + largest),
        )


def prepare(
    local: LocalBounds, check: Callable[[], None] = lambda: None
) -> tuple[tuple[NDArray, ...], int]:
    """The arrays of the kernel, and the most joint states; ``check`` may raise in between."""
    from minfer.kernels.intervals.boxes import prepare as leaves_of

    model, graph = local.model, local.model.graph
    n = graph.n_variables
    card = graph._n_states.astype(np.int64)
    card[card > MAX_STATES] = 1  # no box is made of these
    offset = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(card**2, out=offset[1:])
    total, size = _fields(local, card, offset)
    whole, times = [], np.zeros(n)
    for g in model.groups:
        if g.form != "messages" and g.has_tables and len(g) * g.n_cells <= MAX_CELLS:
            whole.append(g)
        else:
            _add_range(g, total, size, times, offset)
    slots = _Slots()
    for shape, (scope, tables, error) in _merged(whole, model.field, graph._offsets).items():
        slots.add(shape, scope, tables, error, check)
    check()
    arrays, variables, logs, where = slots.join(card)
    # all that ratios can be: finite logarithms added up, the infinite ones counted
    flat = offset[variables[where.owner]] + where.cell
    n_open = np.isposinf(total).astype(np.int64)
    n_zero = np.isneginf(total).astype(np.int64)
    finite = np.where(np.isfinite(total), total, 0.0)
    reach = finite + np.bincount(flat, np.where(np.isfinite(logs), logs, 0.0), minlength=len(total))
    n_open += np.bincount(flat, np.isposinf(logs), minlength=len(total)).astype(np.int64)
    n_zero += np.bincount(flat, np.isneginf(logs), minlength=len(total)).astype(np.int64)
    spread = np.bincount(flat, np.where(np.isfinite(logs), np.abs(logs), 0.0), minlength=len(total))
    degree = np.bincount(variables, minlength=n)
    largest = np.maximum.reduceat(spread, offset[:-1]) if n else np.zeros(0)
    error = 8 * U * (degree + 4) * (largest + size)
    own = _box(total + np.repeat(4 * U * (1 + times) * size, card**2))
    vptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(degree, out=vptr[1:])
    (table, tables_a, tables_b, orders, pads, members, siblings) = arrays
    ranges = _box(logs)
    leaves, spans, slopes = np.empty(len(logs)), np.zeros(len(table)), np.zeros(len(table))
    leaves_of(
        table, tables_a, tables_b, orders, ranges, pads, members, siblings, card, offset,
        reach, n_open, n_zero, error, logs, leaves, spans, slopes,
    )  # fmt: skip
    joint = int(table[:, 1].max(initial=1))
    return (
        vptr, table, tables_a, tables_b, orders, ranges, pads, members, leaves, spans, slopes,
        card, offset, own,
    ), joint  # fmt: skip


def _box(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Exponentials, outward, as boxes hold them."""
    from minfer.kernels.intervals.boxes import BIG

    with np.errstate(over="ignore"):
        x = up(np.exp(logs)) * (1 + float(gamma(EXP + 2)))
    x = np.where(x > BIG, np.inf, np.maximum(x, 1 / BIG))
    return np.where(np.isneginf(logs), 0.0, x)


def _fields(
    local: LocalBounds, card: NDArray[np.int64], offset: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Logarithms of the fields' ratios (sum S^2,), outward, and the largest of each variable."""
    graph = local.model.graph
    field = local.model.field
    out, size = np.zeros(int(offset[-1])), np.zeros(len(card))
    for s in np.unique(card):
        v = np.flatnonzero(card == s)
        f = field[graph._offsets[v][:, None] + np.arange(s)]
        with np.errstate(invalid="ignore"):
            d = f[:, :, None] - f[:, None, :]
        d += local.slack[v][:, None, None] + 2 * U * np.where(np.isfinite(d), np.abs(d), 0.0)
        d[np.isneginf(f)] = -np.inf
        d[:, np.arange(s), np.arange(s)] = 0.0
        size[v] = np.where(np.isfinite(d), np.abs(d), 0.0).max(axis=(1, 2))
        out[offset[v][:, None] + np.arange(s * s)] = d.reshape(len(v), -1)
    return out, size


def _add_range(
    group: FactorGroup,
    total: NDArray[np.float64],
    size: NDArray[np.float64],
    times: NDArray[np.float64],
    offset: NDArray[np.int64],
) -> None:
    """Factors without tables, or with too large ones: what is known of their ranges, in place."""
    found = odds_ranges(group)
    add = np.zeros(len(total))
    for a, s in enumerate(group.shape):
        if s > MAX_STATES:
            continue
        v = group._scope[:, a]
        np.add.at(times, v, 1)
        if s == 2:
            found_a = np.stack([-found[:, a, 0], found[:, a, 1]])  # of states 0 : 1 and 1 : 0
            np.add.at(
                add, offset[v] + np.array([[1], [2]]), np.where(found_a > -np.inf, found_a, 0)
            )
            np.add.at(size, v, np.where(np.isfinite(found_a), np.abs(found_a), 0.0).max(axis=0))
        else:
            off_diagonal = np.flatnonzero(~np.eye(s, dtype=bool).ravel())
            add[offset[v][:, None] + off_diagonal] = np.inf
    known = total > -np.inf
    total[known] += add[known]


def _merged(
    groups: list[FactorGroup], field: NDArray[np.float64], offsets: NDArray[np.int64]
) -> dict[tuple[int, ...], tuple[NDArray, NDArray, NDArray]]:
    """By shape: scopes (F, A) in the order of variables, log-tables (F, cells), their errors (F,).

    Factors over the same variables are added up; forbidden states of the field are out.
    """
    parts: dict[tuple[int, ...], list[tuple[NDArray, NDArray, NDArray]]] = {}
    tables: NDArray[np.float64]
    size: NDArray[np.float64]
    for g in groups:
        tables, size = np.asarray(g.log_tables()), np.asarray(g.magnitude())
        by = np.argsort(g._scope, axis=1, kind="stable")
        patterns, which = np.unique(by, axis=0, return_inverse=True)
        for p, pattern in enumerate(patterns):
            rows = np.flatnonzero(which.ravel() == p)
            t = tables[rows].reshape(len(rows), *g.shape)
            t = np.transpose(t, (0, *(1 + pattern))).reshape(len(rows), -1)
            shape = tuple(g.shape[a] for a in pattern)
            scope = g._scope[rows][:, pattern].astype(np.int64)
            parts.setdefault(shape, []).append((scope, t, size[rows]))
    out = {}
    for shape, some in parts.items():
        scope = np.concatenate([p[0] for p in some])
        tables = np.concatenate([p[1] for p in some])
        size = np.concatenate([p[2] for p in some])
        error = 2 * U * size
        alone, which, times = np.unique(scope, axis=0, return_inverse=True, return_counts=True)
        if len(alone) < len(scope):
            summed = np.zeros((len(alone), tables.shape[1]))
            np.add.at(summed, which.ravel(), tables)
            size = np.bincount(which.ravel(), weights=size).astype(np.float64)
            scope, tables, error = alone, summed, 2 * U * times * size
        else:
            tables = tables.copy()
        view = tables.reshape(-1, *shape)
        for a, s in enumerate(shape):
            f = field[offsets[scope[:, a]][:, None] + np.arange(s)]
            out_of = np.where(np.isneginf(f), -np.inf, 0.0)
            view += out_of.reshape(len(f), *(s if b == a else 1 for b in range(len(shape))))
        out[shape] = (scope, tables, error)
    return out


@dataclass
class _Where:
    owner: NDArray[np.int64]  # the slot of every number of all ranges
    cell: NDArray[np.int64]


class _Slots:
    """Factors as their variables see them, gathered shape by shape."""

    def __init__(self) -> None:
        self._n_factors = 0
        self._parts: list[dict[str, Any]] = []

    def add(
        self,
        shape: tuple[int, ...],
        scope: NDArray[np.int64],
        tables: NDArray[np.float64],
        error: NDArray[np.float64],
        check: Callable[[], None],
    ) -> None:
        """The slots of factors of one shape, end by end."""
        n, arity = scope.shape
        for a, s in enumerate(shape):
            if s > MAX_STATES:
                continue
            joint = tables.shape[1] // s
            fits = joint <= MAX_STATES and n * s * s * joint <= MAX_CELLS
            rows = np.moveaxis(tables.reshape(n, *shape), 1 + a, 1).reshape(n, s, joint)
            logs = ratios(tables, shape, a, check)
            finite = np.isfinite(logs)
            slack = (2 * error)[:, None, None] + 2 * U * np.where(finite, np.abs(logs), 0.0)
            logs = np.where(finite, logs + slack, logs)
            logs[:, np.arange(s), np.arange(s)] = 0.0
            part: dict[str, Any] = {
                "variable": scope[:, a],
                "factor": self._n_factors + np.arange(n),
                "n": s,
                "joint": joint if fits else 0,
                "logs": logs.reshape(n, -1),
                "members": np.delete(scope, a, axis=1),
                "pad": np.ones(n),
            }
            if fits:
                part |= _weights(rows, error, arity)
            self._parts.append(part)
        self._n_factors += n

    def join(
        self, card: NDArray[np.int64]
    ) -> tuple[tuple[NDArray, ...], NDArray[np.int64], NDArray[np.float64], _Where]:
        """All slots by variable; numbers stay where they were gathered."""
        from minfer.kernels.intervals.boxes import ALL, FEW, SLOT

        rows, variables, pads = [], [], []
        logs, a, b, orders, members = [], [], [], [], []
        at = table = order = first = 0
        for p in self._parts:
            n, s, joint = len(p["variable"]), p["n"], p["joint"]
            m = p["members"].shape[1]
            k = np.arange(n)
            pivots = joint if joint <= ALL else FEW + joint // (s * s) + 1
            work = 50 + 8 * pivots * joint * (s * s - s + 1)  # nanoseconds, about
            row = np.empty((n, SLOT), dtype=np.int64)
            row[:] = [s, joint, at, table, order, first, m, 0, work]
            row[:, 2] += k * s * s
            row[:, 5] += k * m
            row[:, 7] = p["factor"]
            if joint:
                row[:, 3] += k * s * joint
                row[:, 4] += k * s * s * joint
                a.append(p["a"].ravel())
                b.append(p["b"].ravel())
                orders.append(p["orders"].ravel())
                table, order = table + a[-1].size, order + orders[-1].size
            at, first = at + n * s * s, first + n * m
            rows.append(row)
            variables.append(p["variable"])
            pads.append(p["pad"])
            logs.append(p["logs"].ravel())
            members.append(p["members"].ravel())
        every = np.concatenate(rows) if rows else np.zeros((0, SLOT), dtype=np.int64)
        owner = join(variables, np.int64)
        by = np.argsort(owner, kind="stable")
        slots, owner = every[by], owner[by]
        pad, member = join(pads, np.float64)[by], join(members, np.int64)
        # the slot of the same factor at each member
        n = max(len(card), 1)
        key = slots[:, 7] * n + owner
        sorted_by = np.argsort(key)
        wanted = np.repeat(every[:, 7], every[:, 6]) * n + member
        found = np.searchsorted(key[sorted_by], wanted)
        siblings = np.append(sorted_by, 0)[found]  # a member without slots: none asks for it
        values = join(logs, np.float64)
        cells = slots[:, 0] ** 2
        where = _Where(np.empty(len(values), np.int64), np.empty(len(values), np.int64))
        spot = np.repeat(slots[:, 2] - np.cumsum(cells) + cells, cells) + np.arange(len(values))
        where.owner[spot] = np.repeat(np.arange(len(slots)), cells)
        where.cell[spot] = spot - slots[where.owner[spot], 2]
        arrays = (
            slots, join(a, np.float64), join(b, np.float64), join(orders, np.uint8), pad,
            member, siblings,
        )  # fmt: skip
        return arrays, owner, values, where


def _weights(
    rows: NDArray[np.float64], error: NDArray[np.float64], arity: int
) -> dict[str, NDArray]:
    """Tables (F, S, T) as plain numbers, up and down, in which order to go through them; pads."""
    n, s, joint = rows.shape
    top = rows.max(axis=(1, 2), keepdims=True)
    logs = rows - np.where(np.isfinite(top), top, 0.0)
    small = logs < _LEAST_LOG
    x = np.exp(np.where(small, 0.0, logs))
    a = np.where(small, np.where(np.isneginf(logs), 0.0, 2.0 * np.exp(_LEAST_LOG)), x)
    b = np.where(small, 0.0, x)
    orders = np.empty((n, s, s, joint), dtype=np.uint8)
    step = max(1, _CHUNK // (s * s * joint))
    for i in range(0, n, step):
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = a[i : i + step, :, None, :] / b[i : i + step, None, :, :]
        ratio = np.where(np.isnan(ratio), 0.0, ratio)
        orders[i : i + step] = np.argsort(-ratio, axis=-1, kind="stable")
    pad = np.exp(np.minimum(2 * error, 700.0) - _LEAST_LOG * 4 * U)
    pad = up(pad * (1 + float(gamma(3 * EXP + 8 * (joint + arity + 4)))))
    return {"a": a, "b": b, "orders": orders, "pad": pad}
