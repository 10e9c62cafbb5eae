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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.certified.bounds import Deepening, Refining
from minfer.certified.local import LocalBounds, odds_ranges, ratios
from minfer.certified.rounding import EXP, U, gamma, up
from minfer.engine.layout import ends, join
from minfer.factors.group import FactorGroup
from minfer.kernels.intervals import boxes as kernel

#: States of a variable, and joint states of a factor's others, up to which messages are made.
MAX_STATES = 64
#: Cells of a group's tables, and of all orders of one shape, up to which messages are made.
MAX_CELLS = 1 << 26
#: Of more binary variables with pairs alone, walks, which close cycles, say more in less memory.
MOST_VARIABLES = 100_000
#: Depth of a walk, and numbers of all boxes on it.
MAX_DEPTH = 1 << 10
BUFFER = 1 << 17
#: Cells of orders that are sorted together.
_CHUNK = 1 << 22
#: Logarithm below which an entry of a table counts as no more than BIG.
_LEAST_LOG = -160.0


class Boxes(Deepening):
    """Boxes of ratios up trees of walks, one for each variable, deeper with every call."""

    name, portion, first, of_odds = "boxes", 64, 1.0, False

    def refine(self, now: Refining) -> bool:
        if now.local.pairs_only and now.local.n_variables > MOST_VARIABLES:
            return False
        return super().refine(now)

    def _prepare(self, local: LocalBounds, check: Callable[[], None]) -> NDArray[np.bool_]:
        self._model = m = prepare(local, check)
        known = m.card == 1
        if len(known):
            known |= np.add.reduceat(np.isinf(m.own), m.offset[:-1]) < m.card**2 - m.card
        return known & (local.model.fixed < 0) & (local.model.graph._n_states <= MAX_STATES)

    def _new_scratch(self) -> kernel.BoxScratch:
        n = len(self._model.card)
        depth = min(n + 1, MAX_DEPTH)
        largest = int(self._model.card.max(initial=1))
        joint = int(self._model.slots[:, kernel.JOINT].max(initial=1))
        cards, where, pivots = np.empty((3, MAX_STATES), np.int64)
        hi, lo = np.empty((2, joint))
        message = kernel.MessageScratch(cards, where, pivots, hi, lo, np.empty(joint + largest))
        return kernel.BoxScratch(
            np.zeros(n, np.int32), np.empty((depth, 5), np.int64), np.empty(depth),
            np.empty(max(BUFFER, 16 * largest**2)), message,
        )  # fmt: skip

    def _walk(
        self, roots: NDArray[np.int64], budget: float, scratch: kernel.BoxScratch
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
        shape = len(roots), int(self._model.card[roots[0]])
        low, high = np.empty(shape), np.empty(shape)
        work = kernel.boxes(roots, int(budget), self._depths, low, high, self._model, scratch)
        return low, high, work


def prepare(local: LocalBounds, check: Callable[[], None] = lambda: None) -> kernel.BoxModel:
    """The arrays of the kernel; ``check`` may raise in between."""
    model, graph = local.model, local.model.graph
    n = graph.n_variables
    card = graph._n_states.astype(np.int64)
    card[card > MAX_STATES] = 1  # no box is made of these
    offset = ends(card**2)
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
    gathered, variables, logs, flat = slots.join(offset)
    # all that ratios can be: finite logarithms added up, the infinite ones counted
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
    table, a, b, orders, pads, members, siblings = gathered
    found = kernel.BoxModel(
        ends(degree), table, a, b, orders, _box(logs), pads, members, siblings,
        np.empty(len(logs)), np.zeros(len(table)), np.zeros(len(table)), card, offset, own,
    )  # fmt: skip
    kernel.prepare(found, kernel.BoxReach(reach, n_open, n_zero, error, logs))
    return found


def _box(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Exponentials, outward, as boxes hold them."""
    with np.errstate(over="ignore"):
        x = up(np.exp(logs)) * (1 + float(gamma(EXP + 2)))
    x = np.where(x > kernel.BIG, np.inf, np.maximum(x, 1 / kernel.BIG))
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
                "variable": scope[:, a], "factor": self._n_factors + np.arange(n), "n": s,
                "joint": joint if fits else 0, "logs": logs.reshape(n, -1),
                "members": np.delete(scope, a, axis=1), "pad": np.ones(n),
            }  # fmt: skip
            if fits:
                part |= _weights(rows, error, arity)
            self._parts.append(part)
        self._n_factors += n

    def join(
        self, offset: NDArray[np.int64]
    ) -> tuple[tuple[NDArray, ...], NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
        """All slots by variable, whose they are, and their ranges' logs, with the places of these
        among the ratios of variables. Numbers stay where they were gathered."""
        rows, variables, pads, logs, places = [], [], [], [], []
        a, b, orders, members = [], [], [], []
        at = table = order = first = 0
        for p in self._parts:
            n, s, joint = len(p["variable"]), p["n"], p["joint"]
            m = p["members"].shape[1]
            k = np.arange(n)
            pivots = joint if joint <= kernel.ALL else kernel.FEW + joint // (s * s) + 1
            work = 50 + 8 * pivots * joint * (s * s - s + 1)  # nanoseconds, about
            row = np.empty((n, kernel.SLOT), dtype=np.int64)
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
            places.append((offset[p["variable"]][:, None] + np.arange(s * s)).ravel())
            members.append(p["members"].ravel())
        every = np.concatenate(rows) if rows else np.zeros((0, kernel.SLOT), dtype=np.int64)
        owner = join(variables, np.int64)
        by = np.argsort(owner, kind="stable")
        slots, owner = every[by], owner[by]
        pad, member = join(pads, np.float64)[by], join(members, np.int64)
        # the slot of the same factor at each member
        n = len(offset)
        key = slots[:, 7] * n + owner
        sorted_by = np.argsort(key)
        wanted = np.repeat(every[:, 7], every[:, 6]) * n + member
        found = np.searchsorted(key[sorted_by], wanted)
        siblings = np.append(sorted_by, 0)[found]  # a member without slots: none asks for it
        arrays = (
            slots, join(a, np.float64), join(b, np.float64), join(orders, np.uint8), pad,
            member, siblings,
        )  # fmt: skip
        return arrays, owner, join(logs, np.float64), join(places, np.int64)


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
