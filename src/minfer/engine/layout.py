"""The factors of a model as arrays, once for all who read them.

:class:`FactorArrays` has every part that somebody reads, made when it is first asked for: scopes
end to end and where variables occur in them, tables end to end, binary pairs apart from the rest,
and what mean field and sampling run on (:class:`minfer.kernels.messages.layout.SiteLayout`), binary
pairs in quadratic form. Message passing shares :func:`split_pairs`, :func:`scopes`, :func:`places`
and :func:`automata`, and adds odds and message slots of its own (:mod:`minfer.engine.wiring`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from minfer.engine.conditioning import Conditioned
    from minfer.factors import FactorGroup, Machine
    from minfer.kernels.messages.layout import SiteLayout

#: Larger entries keep their table: in w = t11 - t10 - t01 + t00 they would swallow small ones.
MAX_QUADRATIC = 1e5
_Machines = tuple[NDArray, NDArray, NDArray, NDArray, NDArray]


class BinaryPairs(NamedTuple):
    """Factors over two binary variables that go on as quadratic forms."""

    group: FactorGroup
    values: NDArray[np.float64]  # (F or 1, k); log-tables are values @ basis
    basis: NDArray[np.float64]  # (k, 4)


class Scopes(NamedTuple):
    """Scopes of F factors end to end, E places."""

    ids: NDArray[np.int64]  # (F,) the factors' numbers in the graph
    fptr: NDArray[np.int64]  # (F+1,)
    scope: NDArray[np.int32]  # (E,)


class Places(NamedTuple):
    """The places of each variable in scopes that lie end to end."""

    order: NDArray[np.int64]  # (E,) all places, by variable
    vptr: NDArray[np.int64]  # (V+1,)
    vfac: NDArray[np.int32]  # (E,) factor
    vpos: NDArray[np.int32]  # (E,) position in its scope


def split_pairs(
    groups: Sequence[FactorGroup],
    fits: Callable[[BinaryPairs], NDArray[np.bool_]],
) -> tuple[list[BinaryPairs], list[FactorGroup]]:
    """Tables over two binary variables that fit a quadratic form, as ``fits(pairs)`` says of each
    factor of a group, (F,) or (1,) for all; and everything else."""
    pairs: list[BinaryPairs] = []
    others: list[FactorGroup] = []
    for g in groups:
        if g.form != "table" or g.shape != (2, 2):
            others.append(g)
            continue
        found = BinaryPairs(g, *g.pair_values())
        which = fits(found)
        if which.all():
            pairs.append(found)
            continue
        which = np.broadcast_to(which, len(g))
        if which.any():
            some = part(g, which)
            pairs.append(BinaryPairs(some, *some.pair_values()))
        others.append(part(g, ~which))
    return pairs, others


def scopes(groups: Sequence[FactorGroup], given: Sequence[NDArray] | None = None) -> Scopes:
    """All scopes end to end; ``given``: those to take instead of the groups' own."""
    counts = [len(g) for g in groups]
    fptr = np.zeros(sum(counts) + 1, dtype=np.int64)
    np.cumsum(np.repeat(np.array([g.arity for g in groups], np.int64), counts), out=fptr[1:])
    parts = [g._scope for g in groups] if given is None else given
    return Scopes(
        join([g._ids for g in groups], np.int64), fptr, join([s.ravel() for s in parts], np.int32)
    )


def places(flat: Scopes, n_variables: int) -> Places:
    """Where each variable occurs, factors in order."""
    order = np.argsort(flat.scope, kind="stable")
    vptr = np.zeros(n_variables + 1, dtype=np.int64)
    np.cumsum(np.bincount(flat.scope, minlength=n_variables), out=vptr[1:])
    owner = np.repeat(np.arange(len(flat.ids), dtype=np.int32), np.diff(flat.fptr))[order]
    return Places(order, vptr, owner, (order - flat.fptr[owner]).astype(np.int32))


class Flat(NamedTuple):
    """A model in tables, end to end. V variables, F factors."""

    card: NDArray[np.int32]  # (V,) number of states
    off: NDArray[np.int64]  # (V+1,) where a variable's states begin
    field: NDArray[np.float64]  # (sum S,)
    ids: NDArray[np.int64]  # (F,) the factors' numbers in the graph
    fptr: NDArray[np.int64]  # (F+1,) where a factor's scope begins
    scope: NDArray[np.int32]
    toff: NDArray[np.int64]  # (F,) where its table begins; shared tables share it
    log_psi: NDArray[np.float64]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Cells of each table, (F,)."""
        return table_sizes(self.card, self.fptr, self.scope)

    def part(self, variables: NDArray[np.int64], kept: NDArray[np.int64]) -> Flat:
        """Some tables over some of the variables (both increasing), all numbered anew."""
        if len(variables) == len(self.card) and len(kept) == len(self.ids):
            return self
        number = np.full(len(self.card), -1, dtype=np.int32)
        number[variables] = np.arange(len(variables), dtype=np.int32)
        card = self.card[variables]
        arity = self.fptr[kept + 1] - self.fptr[kept]
        fptr, scope = ends(arity), number[self.scope[ranges(self.fptr[kept], arity)]]
        toff, first, which = np.unique(self.toff[kept], return_index=True, return_inverse=True)
        size = table_sizes(card, fptr, scope)[first]
        return Flat(
            card, ends(card), self.field[ranges(self.off[variables], card)], self.ids[kept], fptr,
            scope, (np.cumsum(size) - size)[which.ravel()], self.log_psi[ranges(toff, size)],
        )  # fmt: skip


def flatten(model: Conditioned) -> Flat:
    """A model of tables only, end to end."""
    graph, arrays = model.graph, model.arrays
    return Flat(graph._n_states, graph._offsets, model.field, *arrays.scopes, *arrays.cells)


class FactorArrays:
    """F factors over V variables, whatever the field."""

    def __init__(
        self,
        n_states: NDArray[np.int32],
        offsets: NDArray[np.int64],
        groups: tuple[FactorGroup, ...],
    ) -> None:
        self.n_states, self.offsets, self.groups = n_states, offsets, groups

    @cached_property
    def scopes(self) -> Scopes:
        """Of all groups in their order."""
        return scopes(self.groups)

    @cached_property
    def places(self) -> Places:
        """Where each variable is in ``scopes``."""
        return places(self.scopes, len(self.n_states))

    @cached_property
    def degree(self) -> NDArray[np.int64]:
        """Factors of each variable, (V,)."""
        return np.bincount(self.scopes.scope, minlength=len(self.n_states))

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Cells of each factor's table, (F,). Not kept."""
        return table_sizes(self.n_states, self.scopes.fptr, self.scopes.scope)

    @property
    def cells(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Where each table begins (F,), and all of them end to end; for tables only. Not kept."""
        return cells(self.groups)

    @cached_property
    def pairs(self) -> tuple[list[BinaryPairs], list[FactorGroup]]:
        """Binary pairs of moderate size, which quadratic forms hold, and everything else."""
        return split_pairs(self.groups, _moderate)

    @cached_property
    def hard(self) -> list[tuple[FactorGroup, NDArray[np.int64]]]:
        """Groups with factors that forbid something, and which of their rows do."""
        return [(g, rows) for g in self.groups if len(rows := np.flatnonzero(g.forbids()))]

    @cached_property
    def sites(self) -> SiteLayout:
        """As mean field and sampling read them; ``bias`` and ``constant`` are the pairs' alone."""
        from minfer.kernels.messages.layout import SiteLayout, fill_pairs

        off, n = self.offsets, len(self.n_states)
        pairs, others = self.pairs
        tables = [g for g in others if g.form == "table"]
        machines = [g for g in others if g.form == "machine"]
        ordered = [in_order(g) for g in machines]
        bias, constant = np.zeros(int(off[-1])), np.zeros(1)
        pair_ptr = np.zeros(n + 1, dtype=np.int64)
        for p in pairs:
            pair_ptr[1:] += np.bincount(p.group._scope.ravel(), minlength=n)
        np.cumsum(pair_ptr, out=pair_ptr)
        qvar, qweight = np.empty(int(pair_ptr[-1]), dtype=np.int32), np.empty(int(pair_ptr[-1]))
        nxt = pair_ptr[:-1].copy()
        for p in pairs:
            fill_pairs(p.group._scope, p.values, p.basis, off, nxt, bias, qvar, qweight, constant)
        flat = scopes([*tables, *machines], [g._scope for g in tables] + [s for _, s in ordered])
        where = places(flat, n)
        taps = [g.label_taps() for g in tables]
        stored = [g.stored_tables() if t is None else t for g, t in zip(tables, taps)]
        toff, log_psi = cells(tables, stored)
        width = np.zeros(len(flat.ids), dtype=np.int32)
        sizes = [0 if t is None else t.shape[1] for t in taps]
        width[: len(toff)] = np.repeat(np.array(sizes, dtype=np.int32), [len(g) for g in tables])
        auto = _machines(ordered, len(flat.scope))
        toff = np.concatenate([toff, np.full(len(auto[3]), -1, dtype=np.int64)])
        return SiteLayout(
            self.n_states, off, bias, np.empty(n, dtype=np.int8), pair_ptr, qvar, qweight, *flat,
            *where[1:], np.empty_like(where.vfac), np.empty_like(where.vfac), toff, log_psi, width,
            *auto, constant,
        )  # fmt: skip


def lay_out(model: Conditioned) -> SiteLayout:
    """A model as mean field and sampling read it: ``FactorArrays.sites`` with its field."""
    from minfer.kernels.messages.layout import finish

    sites = model.arrays.sites
    s = sites._replace(bias=sites.bias + model.field, kind=sites.kind.copy())
    return s._replace(constant=s.constant + finish(s))


def _moderate(pairs: BinaryPairs) -> NDArray[np.bool_]:
    """Numbers that a float can still tell apart in sums; no zeros."""
    _, values, basis = pairs
    tables = values if len(basis) == 4 else values * np.abs(basis).max()
    return np.asarray((np.abs(tables) <= MAX_QUADRATIC).all(axis=1))


def part(group: FactorGroup, which: NDArray[np.bool_]) -> FactorGroup:
    """The factors of a mask (F,); itself where that is all."""
    if which.all():
        return group
    rows = np.flatnonzero(which)
    return group.take(rows, group._ids[rows])


def cells(
    groups: Sequence[FactorGroup], stored: Sequence[NDArray] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Where each factor's table begins, and all tables end to end; ``stored``: tables (F or 1,
    cells) of the groups to take instead of their own."""
    tables = [g.stored_tables() for g in groups] if stored is None else stored
    counts, first, step, start, n = [], [], [], 0, 0
    for g, values in zip(groups, tables):
        size = 0 if len(values) == 1 else values.shape[1]
        counts.append(len(g))
        first.append(start - n * size)
        step.append(size)
        start += values.size
        n += len(g)
    toff = np.repeat(np.array(first, np.int64), counts)
    toff += np.arange(n) * np.repeat(np.array(step, np.int64), counts)
    return toff, join([values.ravel() for values in tables], np.float64)


class AutomatonArrays(NamedTuple):
    """M machines end to end, over E places."""

    literal: NDArray[np.int32]  # (E,)
    step_at: NDArray[np.int64]  # (E,) where the steps of a place begin
    step: NDArray[np.int32]  # (K, 2) each, those that are alike once
    start: NDArray[np.int32]  # (M,)
    n_states: NDArray[np.int32]  # (M,)
    final_at: NDArray[np.int64]  # (M,) where the log-weights of its end states begin
    final: NDArray[np.float64]


def automata(machines: Sequence[Machine]) -> AutomatonArrays:
    """Groups of machines one after the other."""
    known: dict[bytes, int] = {}
    steps: list[NDArray] = []
    step_at, final_at = [], []
    n_steps = n_final = 0
    for m in machines:
        where = np.empty(len(m.step), dtype=np.int64)
        for begin, end, _ in same_steps(m.step):
            key = m.step[begin].tobytes()
            if key not in known:
                known[key] = n_steps
                steps.append(m.step[begin].ravel())
                n_steps += steps[-1].size
            where[begin:end] = known[key]
        n = len(m.start)
        step_at.append(np.tile(where, n))
        final_at.append(n_final + np.arange(n) * (m.final.shape[1] if len(m.final) > 1 else 0))
        n_final += m.final.size
    return AutomatonArrays(
        join([m.literal.ravel() for m in machines], np.int32),
        join(step_at, np.int64),
        join(steps, np.int32),
        join([m.start for m in machines], np.int32),
        join([np.full(len(m.start), m.final.shape[1]) for m in machines], np.int32),
        join(final_at, np.int64),
        join([m.final.ravel() for m in machines], np.float64),
    )


def _machines(ordered: list[tuple[Machine, NDArray]], n_places: int) -> _Machines:
    """The machines' arrays of a ``SiteLayout``, places of tables included."""
    auto = automata([m for m, _ in ordered])
    is_sorted = join([np.all(s[:, 1:] > s[:, :-1], axis=1) for _, s in ordered], np.int64)
    machine = np.stack([auto.n_states, auto.start, auto.final_at, is_sorted], axis=1)
    none = np.zeros(n_places - len(auto.literal), dtype=np.int64)
    return (
        np.concatenate([none.astype(np.int32), auto.literal]),
        np.concatenate([none, auto.step_at]),
        auto.step,
        machine.astype(np.int64),
        auto.final,
    )


def in_order(group: FactorGroup) -> tuple[Machine, NDArray[np.int32]]:
    """A group's automata and scopes, positions that commute in the order of their variables:
    neighbours that share their step, commute (reading 0, 1 leads where 1, 0 does) and have equally
    many states. In a scope that is sorted, sweeps over the variables need not read it anew for
    each."""
    m = group.machine()
    scope, literal = group._scope, m.literal
    if not (scope[:, 1:] < scope[:, :-1]).any():
        return m, scope
    scope, literal = scope.copy(), literal.copy()
    for begin, end, commute in same_steps(m.step):
        if commute and len(set(group.shape[begin:end])) == 1:
            by = np.argsort(scope[:, begin:end], axis=1, kind="stable")
            for array in (scope, literal):
                array[:, begin:end] = np.take_along_axis(array[:, begin:end], by, axis=1)
    return m._replace(literal=literal), scope


def same_steps(step: NDArray[np.int32]) -> list[tuple[int, int, bool]]:
    """Runs of positions with the same step, as (first, stop, whether the positions commute)."""
    new = np.flatnonzero((step[1:] != step[:-1]).any(axis=(1, 2))) + 1
    runs = []
    for begin, end in zip([0, *new.tolist()], [*new.tolist(), len(step)]):
        one = np.concatenate([step[begin], [[-1, -1]]])  # what follows -1 is -1
        runs.append((begin, end, np.array_equal(one[one[:, 0], 1], one[one[:, 1], 0])))
    return runs


def join(parts: list[NDArray], dtype: type) -> NDArray:
    """One array after the other, contiguous and writable; a single one may be itself."""
    if len(parts) == 1 and parts[0].dtype == dtype and parts[0].flags.carray:
        return parts[0]
    return np.concatenate(parts).astype(dtype, copy=False) if parts else np.zeros(0, dtype=dtype)


def table_sizes(
    n_states: NDArray[np.int32], fptr: NDArray[np.int64], scope: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Cells of the tables over scopes that lie end to end, (F,)."""
    if len(fptr) < 2:
        return np.zeros(0, dtype=np.int64)
    return np.multiply.reduceat(n_states[scope].astype(np.int64), fptr[:-1])


def ends(sizes: ArrayLike) -> NDArray[np.int64]:
    """Where parts of these sizes begin, and where the last one ends."""
    out = np.zeros(len(np.asarray(sizes)) + 1, dtype=np.int64)
    np.cumsum(sizes, out=out[1:])
    return out


def ranges(starts: NDArray, sizes: NDArray) -> NDArray[np.int64]:
    """The ranges start..start+size one after the other."""
    past = np.cumsum(sizes, dtype=np.int64)
    return np.arange(int(past[-1]) if len(past) else 0) + np.repeat(starts - past + sizes, sizes)


def normalised(weights: NDArray[np.float64], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Every segment scaled to sum to one; the last axis holds them all."""
    if len(offsets) < 2:
        return weights
    totals = np.add.reduceat(weights, offsets[:-1], axis=-1)
    return weights / np.repeat(totals, np.diff(offsets), axis=-1)
