"""From a graph to the arrays message passing runs on, and the state it leaves.

:func:`wire` sorts the factors by counting: binary pairwise ones with positive tables into odds
slots, everything else into general slots (see :mod:`minfer.kernels.wiring`; what it shares with
other solvers is :mod:`minfer.layout`). :class:`MessageState`
keeps wiring and messages to answer later questions (log Z, joint marginals of factors) or to start
the next run: messages are found again by the factor's number in the lineage, so a warm start
survives ``keep`` and new evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.conditioning import Conditioned
from minfer.errors import ContradictionError, ModelError
from minfer.factors import FactorGroup, interaction, n_entries
from minfer.layout import automata, cells, join, places, scopes, split_pairs

if TYPE_CHECKING:
    from minfer.kernels.machines import Machines
    from minfer.kernels.wiring import Messages, Watch, Wiring
    from minfer.solvers.base import Marginals

_NONE = np.zeros(0)
_NO_ORDER = np.zeros(0, dtype=np.int64)
_PAIR, _TABLE, _MACHINE, _SPEAKS = 1, 2, 3, 4  # how a factor takes part; 0: absorbed
_NO_CLASS = np.zeros(0, dtype=np.uint8)
#: Beyond these log-odds (1e200) a pair message equals its limit to the last bit.
_CERTAIN = 461.0
#: Linear tables and fields must not fall below e^-345 = 1e-150 of their maximum.
_MAX_RANGE = 345.0


@dataclass(frozen=True, eq=False)
class Mesh:
    """A wired model: the kernels' arrays and what maps them back to factors."""

    model: Conditioned
    wiring: Wiring
    log: bool  # general tables are logs
    reweighted: bool
    constant: float
    pair_ids: NDArray[np.int64]  # (P,) factor numbers
    pair_scope: NDArray[np.int32]  # (P, 2)
    slot: NDArray[np.int32]  # (P, 2) pair slots of each pair factor
    first: NDArray[np.float64]  # (E,) pair messages to begin with; the first run changes them
    general_ids: NDArray[np.int64]  # (F,) factor numbers of the general factors
    gowner: NDArray[np.int32]  # (G,) variable of each general slot
    speakers: tuple[Speakers, ...]  # groups that compute their own messages
    machines: Machines  # factors that are automata, all of them in the core
    lean: NDArray[np.float64]  # (V,) log-odds that the pair factors' unary parts add up to
    load: NDArray[np.float64]  # (V,) sum of |w|
    left_over: float  # of the constant, what the factors contributed
    trees: Trees | None  # None: no part of the model is a tree
    roles: Roles
    odds: tuple[int, ...]  # which of the model's groups are in odds form, in the order of the slots
    whole: bool  # no group is partly in odds form: other numbers fit the same wiring
    known: NDArray[np.int32] | None = None  # (V,) state that evidence of a run leaves, or -1
    valid: bool = True  # edge weights, if reweighted, are known to give a bound

    def for_a_run(self) -> Mesh:
        """The mesh with first messages and scratch of its own, so that this one stays as it is."""
        ma = self.machines
        if len(ma.code):
            ma = ma._replace(work=ma.work.copy(), logs=ma.logs.copy(), one=ma.one.copy())
        return replace(self, first=self.first.copy(), machines=ma)

    @property
    def core(self) -> Wiring:
        """The wiring with the variables of trees asleep."""
        from minfer.kernels.wiring import ASLEEP

        if self.trees is None:
            return self.wiring
        cls = np.where(self.trees.asleep, np.uint8(ASLEEP), self.wiring.cls)
        return self.wiring._replace(cls=cls)

    @property
    def core_machines(self) -> Machines:
        """The machines with those left out that answer on the way through the trees."""
        ma, w = self.machines, self.wiring
        if not len(ma.code):
            return ma
        if self.trees is not None:
            rest = np.ones(len(ma.code), dtype=bool)
            answer = self.trees.speakers - ma.base
            rest[answer[(answer >= 0) & (answer < len(rest))]] = False
            ma = ma._replace(mine=np.flatnonzero(rest).astype(np.int32))
        first = w.fac[ma.base : ma.base + len(ma.code), 1]
        arity = w.fac[ma.base : ma.base + len(ma.code), 2]
        slots = w.fslot[_ranges(first, arity)]
        literals = np.bincount(self.gowner[slots], minlength=len(w.card))
        alone = (literals > 0) & (literals == np.diff(w.gptr)) & (np.diff(w.ptr) == 0)
        seen = np.zeros(len(w.card), dtype=bool)
        slots = w.fslot[_ranges(first[ma.mine], arity[ma.mine])]
        seen[self.gowner[slots]] = True
        if self.trees is not None:
            alone &= ~self.trees.asleep
        return ma._replace(
            vars=np.flatnonzero(seen).astype(np.int32), alone=np.flatnonzero(alone).astype(np.int32)
        )


@dataclass(frozen=True, eq=False)
class Roles:
    """Where the graph's factors are in a wiring; made when first asked for."""

    n_factors: int
    pair_ids: NDArray[np.int64]
    general_ids: NDArray[np.int64]
    general: NDArray[np.int8]  # (F general,) how these take part

    @cached_property
    def form(self) -> NDArray[np.int8]:
        """How each factor of the graph takes part, (F,)."""
        out = np.zeros(self.n_factors, dtype=np.int8)
        out[self.pair_ids] = _PAIR
        out[self.general_ids] = self.general
        return out

    @cached_property
    def row(self) -> NDArray[np.int64]:
        """Where each factor is among the pairs or the general factors, (F,)."""
        out = np.full(self.n_factors, -1, dtype=np.int64)
        out[self.pair_ids] = np.arange(len(self.pair_ids))
        out[self.general_ids] = np.arange(len(self.general_ids))
        return out


@dataclass(frozen=True, eq=False)
class Trees:
    """The parts of a model that are trees: whole components, and what hangs on a loopy core."""

    order: NDArray[np.int64]  # collecting order; see :func:`minfer.kernels.wiring.peel`
    asleep: NDArray[np.bool_]  # (V,)
    whole: bool  # nothing is left: the model is a forest

    @property
    def speakers(self) -> NDArray[np.int64]:
        """General factors that answer on the way, once up and once down."""
        return -1 - self.order[self.order < 0]

    def pieces(self, first: int) -> list[int | NDArray[np.int64]]:
        """The order as runs with factors number ``first`` and on, which Python asks, in between."""
        out: list[int | NDArray[np.int64]] = []
        begin = 0
        for cut in [*np.flatnonzero(-1 - self.order >= first).tolist(), len(self.order)]:
            if cut > begin:
                out.append(self.order[begin:cut])
            if cut < len(self.order):
                out.append(int(-1 - self.order[cut]))
            begin = cut + 1
        return out


@dataclass(frozen=True, eq=False)
class Speakers:
    """A group of factors that compute their own messages, as general factors ``first`` and on."""

    group: FactorGroup
    first: int
    entries: NDArray[np.int64]  # (F, sum S) where the entries of their messages lie

    @property
    def sizes(self) -> NDArray[np.int64]:
        """States of each variable, (A,)."""
        return np.array(self.group.shape, dtype=np.int64)

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each variable's states begin in a row of messages, (A,)."""
        return np.cumsum(self.sizes) - self.sizes

    def rows(self, factors: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which of some general factors are of this group, as its rows."""
        mine = (factors >= self.first) & (factors < self.first + len(self.group))
        return factors[mine] - self.first


def find_trees(w: Wiring, slot: NDArray, scope: NDArray, gowner: NDArray) -> Trees | None:
    """Everything that leaves can be peeled off to; None where there is no leaf."""
    from minfer.kernels import wiring as k

    if not k.leaves(w.ptr, w.gptr):
        return None
    order = np.empty(len(w.card) + len(w.fac), dtype=np.int64)
    asleep = np.zeros(len(w.card), dtype=np.uint8)
    count, slots = k.peel(w, slot, scope, gowner, order, asleep)
    return Trees(order[:count].copy(), asleep.astype(bool), slots == 0) if count else None


def wire(model: Conditioned, rho: NDArray[np.float64] | None = None, log: bool = False) -> Mesh:
    """Lay a conditioned model out for message passing.

    Parameters
    ----------
    rho : float array (F of the graph,), optional
        Edge appearance probabilities by factor number, for tree-reweighted messages.
    log : bool
        Keep general tables in log space (forced where their range needs it).
    """
    from minfer.kernels import wiring as k

    n = model.graph.n_variables
    split, general = split_pairs(model.groups, _fits_odds(rho))
    pairs = [p.group for p in split]
    number = {id(g): i for i, g in enumerate(model.groups)}
    whole = all(id(g) in number for g in pairs)
    ptr = np.zeros(n + 1, dtype=np.uint64)
    for g in pairs:
        k.pair_degrees(g._scope, ptr)
    np.cumsum(ptr, out=ptr)
    slots = int(ptr[-1])
    rev = np.empty(slots, dtype=np.uint32)
    slot = np.empty((slots // 2, 2), dtype=np.int32)
    nxt, done = ptr[:-1].copy(), 0
    for g in pairs:
        k.pair_slots(g._scope, nxt, rev, slot[done : done + len(g)])
        done += len(g)
    del nxt
    pair_ids = join([g._ids for g in pairs], np.int64)
    pair_scope = join([g._scope for g in pairs], np.int32).reshape(-1, 2)
    slot_rho = _NONE
    if rho is not None:
        slot_rho = np.empty(slots)
        slot_rho[slot.ravel()] = np.repeat(rho[pair_ids], 2)
    parts = _general(model, general, rho, log or rho is not None)
    wiring = k.Wiring(
        model.graph._n_states, model.graph._offsets, _NO_CLASS, _NONE, _NONE, ptr, rev, _NONE,
        parts.gptr, parts.gslot, parts.fac, parts.fslot, parts.tab, slot_rho, parts.grho,
    )  # fmt: skip
    mesh = Mesh(
        model, wiring, parts.log, rho is not None, 0.0, pair_ids, pair_scope, slot, _NONE,
        parts.ids, parts.gowner, parts.speakers, parts.machines, _NONE, _NONE, parts.constant,
        find_trees(wiring, slot, pair_scope, parts.gowner),
        Roles(model.graph.n_factors, pair_ids, parts.ids, parts.roles()),
        tuple(number.get(id(g), -1) for g in pairs), whole,
    )  # fmt: skip
    return _absorb(_weigh(mesh, pairs, rho), None)


def refill(
    mesh: Mesh,
    model: Conditioned,
    known: NDArray[np.int32] | None = None,
    start: Marginals | None = None,
) -> Mesh | None:
    """The same wiring with other numbers: weights, field, evidence. None where it does not fit.

    It fits if the model has the same groups over the same variables, and each is in the form it
    was: what is fixed, or beyond odds, must not have changed. Nothing but numbers is made anew,
    and of these only what changed.

    Parameters
    ----------
    known : int array (V,), optional
        States that evidence leaves to variables, -1 elsewhere. Their slots stay: their messages are
        what they tell the others.
    start : Marginals, optional
        What the run starts from: no first messages are made where all are taken over from it.
    """
    from minfer.kernels.wiring import MAX_PAIR_WEIGHT

    old = mesh.model
    if not mesh.whole or len(old.groups) != len(model.groups):
        return None
    if not np.array_equal(old.graph._n_states, model.graph._n_states):
        return None
    moved = [a is not b for a, b in zip(old.groups, model.groups)]
    same = zip(old.groups, model.groups, moved)
    if not all(a.has_structure_of(b) for a, b, new in same if new):
        return None
    mesh = replace(mesh, model=model, known=known)
    if any(moved):
        rho = _rho_by_factor(mesh) if mesh.reweighted else None
        pairs = [model.groups[i] for i in mesh.odds]
        for g in pairs:
            weight = pair_weight(g, rho)
            if not (np.abs(weight) <= MAX_PAIR_WEIGHT).all():
                return None
        general = [g for i, g in enumerate(model.groups) if i not in set(mesh.odds)]
        again = _retabled(mesh, general, rho)
        if again is None:
            return None
        mesh = _weigh(again, pairs, rho, first=not _gives_all(start, mesh))
    return _absorb(mesh, known)


def _gives_all(start: Marginals | None, mesh: Mesh) -> bool:
    """Whether every pair message is taken over from an earlier run on the same wiring."""
    old = start.state if start is not None else None
    return (
        isinstance(old, MessageState)
        and start is not None
        and old.mesh.slot is mesh.slot
        and old.mesh.reweighted == mesh.reweighted
        and start.graph.lineage == mesh.model.graph.lineage
    )


def rewire(model: Conditioned, start: Marginals | None, reweighted: bool) -> Mesh | None:
    """The wiring of an earlier run where it fits this model, which shares its lineage, too."""
    old = start.state if start is not None else None
    if not isinstance(old, MessageState) or old.mesh.reweighted != reweighted or start is None:
        return None
    if start.graph.lineage != model.graph.lineage or old.mesh.known is not None:
        return None
    mesh = refill(old.mesh, model, None, start)
    return mesh if mesh is None or mesh.first is not old.mesh.first else mesh.for_a_run()


def _rho_by_factor(mesh: Mesh) -> NDArray[np.float64]:
    """Edge appearance probabilities by factor number (1 where there is no edge)."""
    w = mesh.wiring
    rho = np.ones(mesh.model.graph.n_factors)
    rho[mesh.pair_ids] = w.rho[mesh.slot[:, 0]]
    rho[mesh.general_ids[w.gslot[:, 0]]] = w.grho
    return rho


def _weigh(mesh: Mesh, pairs: list[FactorGroup], rho: NDArray | None, first: bool = True) -> Mesh:
    """The mesh with the numbers of its pair factors: W, their unary parts, ``first`` messages."""
    from minfer.kernels import wiring as k

    n, slots = mesh.model.graph.n_variables, len(mesh.wiring.rev)
    W, lean, load = np.empty(slots), np.zeros(n), np.zeros(n)
    messages = np.empty(slots if first else 0)
    left_over, done = 0.0, 0
    for g in pairs:
        values, basis = g.pair_values()
        weights = _NONE if rho is None else rho[g._ids]
        here = mesh.slot[done : done + len(g)]
        left_over += k.pair_fill(g._scope, values, basis, weights, here, W, messages, lean, load)
        done += len(g)
    return replace(
        mesh,
        wiring=mesh.wiring._replace(W=W),
        first=messages if first else np.empty(slots),
        lean=lean,
        load=load,
        left_over=mesh.left_over + left_over,
    )


def _retabled(mesh: Mesh, general: list[FactorGroup], rho: NDArray | None) -> Mesh | None:
    """The mesh with the numbers of its general factors; None if tables lie differently."""
    tables = [g for g in general if g.form == "table"]
    parts = [_scaled_tables(g, rho) for g in tables]
    if sum(v.size for v, _, _ in parts) != len(mesh.wiring.tab):
        return None
    tab = join([v.ravel() for v, _, _ in parts], np.float64)
    ends, scale, lowest = _scaled_ends([g for g in general if g.form == "machine"])
    final = join([e.ravel() for e in ends], np.float64)
    if len(final) != len(mesh.machines.final):
        return None
    log = mesh.reweighted or lowest < -_MAX_RANGE
    log = log or any(low < -_MAX_RANGE for _, _, low in parts)
    speaking = [g for g in general if g.form == "messages"]
    return replace(
        mesh,
        wiring=mesh.wiring._replace(tab=tab if log else np.exp(tab)),
        log=log,
        left_over=scale + sum(scale for _, scale, _ in parts),
        machines=mesh.machines._replace(final=final if log else np.exp(final)),
        speakers=tuple(replace(s, group=g) for s, g in zip(mesh.speakers, speaking)),
    )


def _absorb(mesh: Mesh, known: NDArray[np.int32] | None) -> Mesh:
    """The mesh with the model's field (and evidence of this run) in its priors and classes."""
    from minfer.kernels import wiring as k

    model, w = mesh.model, mesh.wiring
    n, off = model.graph.n_variables, model.graph._offsets
    log_field, told = model.field, np.zeros(0, dtype=np.int64)
    if known is not None:
        told = np.flatnonzero(known >= 0)
        log_field = _with_known(mesh, log_field, known, told)
    log_field = log_field.copy()  # general variables' lean is added to it
    cls, prior = np.empty(n, dtype=np.uint8), np.empty(n)
    n_general, zero_state = k.classify(
        model.graph._n_states, off, log_field, mesh.lean, mesh.load, w.gptr, mesh.reweighted,
        cls, prior,
    )  # fmt: skip
    constant = model.constant + mesh.left_over + zero_state
    if known is not None:
        pair = told[cls[told] != k.GENERAL]
        up = known[pair] == 1
        cls[pair] = k.SCALED
        prior[pair] = np.where(up, 1.0, -1.0) * (_CERTAIN + mesh.load[pair])
        constant += float(mesh.lean[pair[up]].sum())
    field, top, in_log = _NONE, 0.0, mesh.log
    if n_general:
        field, top, in_log = _scaled_field(model, log_field, cls == k.GENERAL, mesh.log)
    tab, machines = w.tab, mesh.machines
    if in_log != mesh.log:
        tab, machines = _log(tab), machines._replace(final=_log(machines.final))
    return replace(
        mesh,
        wiring=w._replace(cls=cls, prior=prior, field=field, tab=tab),
        machines=machines,
        log=in_log,
        constant=constant + top,
    )


def _with_known(
    mesh: Mesh, log_field: NDArray, known: NDArray[np.int32], told: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The field once evidence has spoken.

    A variable of pairs alone gets its state's number in both places: how certain it is goes into
    its prior. Elsewhere the other states are excluded.
    """
    graph = mesh.model.graph
    own = log_field[graph._offsets[told] + known[told]]
    if (own == -np.inf).any():
        v = int(told[np.argmin(own)])
        raise ContradictionError(
            f"variable {graph.name(v)} has no state left: the model excludes the state "
            f"{known[v]} that was observed"
        )
    pairs = np.diff(mesh.wiring.gptr)[told] == 0
    pairs &= graph._n_states[told] == 2
    out = log_field.copy()
    places = _ranges(graph._offsets[told], graph._n_states[told].astype(np.int64))
    out[places] = np.where(np.repeat(pairs, graph._n_states[told]), 0.0, -np.inf)
    out[graph._offsets[told] + known[told]] = own
    other = graph._offsets[told[pairs]] + 1 - known[told[pairs]]
    out[other] = own[pairs]
    return out


def pair_weight(group: FactorGroup, rho: NDArray | None) -> NDArray[np.float64]:
    """w (over rho) of 2x2 tables, shape (F,) or (1,); NaN or infinite where there are zeros."""
    values, basis = group.pair_values()
    with np.errstate(invalid="ignore"):
        if len(basis) == 1:
            weight = values[:, 0] * interaction(basis[0])
        else:
            weight = interaction(values @ basis if len(basis) != 4 else values)
    return weight if rho is None else weight / rho[group._ids]


def _fits_odds(
    rho: NDArray | None,
) -> Callable[[FactorGroup, NDArray, NDArray], NDArray[np.bool_]]:
    """Whether a 2x2 table may be in odds form: no zeros, and |w| not too large."""
    from minfer.kernels.wiring import MAX_PAIR_WEIGHT

    def fits(group: FactorGroup, values: NDArray, basis: NDArray) -> NDArray[np.bool_]:
        return np.abs(pair_weight(group, rho)) <= MAX_PAIR_WEIGHT  # not where NaN: zeros

    return fits


@dataclass(frozen=True, eq=False)
class _General:
    """Everything about general factors; see :class:`minfer.kernels.wiring.Wiring`."""

    gptr: NDArray[np.int64]
    gslot: NDArray[np.int64]
    fac: NDArray[np.int64]
    fslot: NDArray[np.int64]
    tab: NDArray[np.float64]
    grho: NDArray[np.float64]
    ids: NDArray[np.int64]
    gowner: NDArray[np.int32]
    speakers: tuple[Speakers, ...]
    machines: Machines
    constant: float
    log: bool

    def roles(self) -> NDArray[np.int8]:
        """How each of them takes part, (F,)."""
        out = np.where(self.fac[:, 0] < 0, _SPEAKS, _TABLE).astype(np.int8)
        out[self.machines.base : self.machines.base + len(self.machines.code)] = _MACHINE
        return out


def _general(
    model: Conditioned, groups: list[FactorGroup], rho: NDArray | None, log: bool
) -> _General:
    """Slots of all factors that are not in odds form: tables, automata, then global factors."""
    n, i8 = model.graph.n_variables, np.int64
    gptr = np.zeros(n + 1, i8)
    if not groups:
        none, slots, fac = np.zeros(0, i8), np.zeros((0, 4), i8), np.zeros((0, 3), i8)
        owner, ma = np.zeros(0, np.int32), no_machines()
        return _General(gptr, slots, fac, none, _NONE, _NONE, none, owner, (), ma, 0.0, log)
    tables = [g for g in groups if g.form == "table"]
    readers = [g for g in groups if g.form == "machine"]
    speaking = [g for g in groups if g.form == "messages"]
    every = [*tables, *readers, *speaking]
    flat = scopes(every)
    order, gptr, owner, position = places(flat, n)
    parts = [_scaled_tables(g, rho) for g in tables]
    ends, scale, lowest = _scaled_ends(readers)
    log = log or lowest < -_MAX_RANGE or any(low < -_MAX_RANGE for _, _, low in parts)
    fac = np.full((len(flat.ids), 3), -1, i8)
    toff, tab = cells(tables, [values for values, _, _ in parts])
    fac[: len(toff), 0], fac[:, 1], fac[:, 2] = toff, flat.fptr[:-1], np.diff(flat.fptr)
    gslot = np.empty((len(order), 4), i8)
    gslot[:, 0], gslot[:, 1] = owner, position
    gslot[:, 3] = model.graph._n_states[flat.scope[order]]
    gslot[:, 2] = np.cumsum(gslot[:, 3]) - gslot[:, 3]
    fslot = np.empty(len(order), i8)
    fslot[order] = np.arange(len(order))
    base, n_readers = sum(map(len, tables)), sum(map(len, readers))
    if n_readers:  # their messages lie in the order of their literals, after all others
        literals = fslot[flat.fptr[base] : flat.fptr[base + n_readers]]
        is_literal = np.zeros(len(gslot), dtype=bool)
        is_literal[literals] = True
        others = np.flatnonzero(~is_literal)
        gslot[others, 2] = np.cumsum(gslot[others, 3]) - gslot[others, 3]
        sizes = gslot[literals, 3]
        gslot[literals, 2] = gslot[others, 3].sum() + np.cumsum(sizes) - sizes
    if not log:
        np.exp(tab, out=tab)
        ends = [np.exp(e) for e in ends]
    speakers = []
    for g, begin in zip(speaking, _starts(every)[len(tables) + len(readers) :]):
        slots = fslot[flat.fptr[begin] : flat.fptr[begin + len(g)]]
        entries = _ranges(gslot[slots, 2], gslot[slots, 3]).reshape(len(g), -1)
        speakers.append(Speakers(g, begin, entries))
    machines = no_machines()
    if n_readers:
        machines = _machines(model, readers, ends, base, int(gslot[literals[0], 2]))
    return _General(
        gptr, gslot, fac, fslot, tab,
        _NONE if rho is None else rho[flat.ids][owner], flat.ids, flat.scope[order],
        tuple(speakers), machines, scale + sum(scale for _, scale, _ in parts), log,
    )  # fmt: skip


@cache
def no_machines() -> Machines:
    """For models without automata."""
    from minfer.kernels.machines import Machines

    i4, i8 = np.zeros(0, np.int32), np.zeros(0, np.int64)
    return Machines(
        0, i4, i4, i4, i4, np.zeros(0, np.uint8), i8, i8, i4, i4, i4, i8, i4, i4, i4, i8, _NONE,
        _NONE, _NONE,
    )  # fmt: skip


def _scaled_ends(groups: list[FactorGroup]) -> tuple[list[NDArray], float, float]:
    """Log-weights of end states (F or 1, K) scaled to maximum 0, the sum of scales, the lowest."""
    out, scale, lowest = [], 0.0, 0.0
    for g in groups:
        final = g.machine().final
        tops = final.max(axis=1, initial=-np.inf)
        if (tops == -np.inf).any():
            number = int(g._ids[int(np.argmin(tops)) if len(tops) > 1 else 0])
            raise ContradictionError(
                f"factor {number}, a {g.noun}, forbids every assignment that is left"
            )
        final = final - tops[:, None]
        out.append(final)
        scale += float(tops.sum()) * (len(g) if len(final) == 1 else 1)
        lowest = min(lowest, float(final.min(where=final > -np.inf, initial=0.0)))
    return out, scale, lowest


def _machines(
    model: Conditioned, groups: list[FactorGroup], ends: list[NDArray], base: int, place: int
) -> Machines:
    """Automata one after the other; their messages begin at ``place``."""
    from minfer.kernels import machines as k

    graph, flat = model.graph, scopes(groups)
    machines = [g.machine()._replace(final=final) for g, final in zip(groups, ends)]
    auto = automata(machines)
    code = [_code(m.step, g.shape) for g, m in zip(groups, machines)]
    most = max((g.arity + 3) * (e.shape[1] + 1) + 2 * g.arity for g, e in zip(groups, ends))
    card = graph._n_states[flat.scope]
    begin = np.concatenate([[0], np.cumsum(card, dtype=np.int64)])
    none = np.zeros(0, np.int32)
    return k.Machines(
        base, np.arange(len(flat.ids), dtype=np.int32), none, none, np.zeros(1, np.int32),
        np.repeat(np.array(code, dtype=np.uint8), [len(g) for g in groups]), flat.fptr,
        place + begin[flat.fptr[:-1]], graph._offsets[flat.scope].astype(np.int32), card,
        *auto, np.zeros(max(most, 64)), np.zeros(int(graph._offsets[-1])),
    )  # fmt: skip


def _code(step: NDArray[np.int32], shape: tuple[int, ...]) -> int:
    """Which of the automata that kernels write out these are, or OTHER."""
    from minfer.kernels import machines as k

    if not (step == step[:1]).all():
        return k.OTHER
    n, flat = step.shape[1], step[0].ravel()
    if n == 2 and all(s == 2 for s in shape) and flat[:3].tolist() == [0, 1, 1]:
        return {1: k.STAY, 0: k.BACK, -1: k.DEAD}[int(flat[3])]
    if np.array_equal(flat[::2], np.arange(n)) and np.array_equal(flat[1:-1:2], np.arange(1, n)):
        return {-1: k.LIMIT, n - 1: k.CAP}.get(int(flat[-1]), k.OTHER)
    return k.OTHER


def _starts(groups: list) -> list[int]:
    """Where each group's factors begin among those of all groups."""
    return [0, *np.cumsum([len(g) for g in groups]).tolist()][: len(groups)]


def _scaled_tables(
    group: FactorGroup, rho: NDArray | None
) -> tuple[NDArray[np.float64], float, float]:
    """A group's log-tables (psi^{1/rho}) scaled to maximum 0, the sum of scales, the lowest."""
    values = group.stored_tables()
    weight = np.ones(1) if rho is None else rho[group._ids]
    if rho is not None:
        values = values / weight[:, None]
    tops = values.max(axis=1)
    if (tops == -np.inf).any():
        raise ContradictionError("a table is zero everywhere: every assignment is forbidden")
    values = values - tops[:, None]
    lowest = float(values.min())
    if lowest == -np.inf:
        lowest = float(values.min(where=values > -np.inf, initial=0.0))
    scale = float((tops * weight).sum()) * (len(group) if len(values) == 1 else 1)
    return values, scale, lowest


def _scaled_field(
    model: Conditioned, log_field: NDArray, general: NDArray[np.bool_], log: bool
) -> tuple[NDArray, float, bool]:
    """The field of general variables scaled to maximum 1 (or log 0), and the sum of the scales."""
    offsets = model.graph._offsets
    tops = np.maximum.reduceat(log_field, offsets[:-1])
    scaled = log_field - np.repeat(tops, np.diff(offsets))
    mine = np.repeat(general, np.diff(offsets))
    finite = scaled[mine & (scaled > -np.inf)]
    log = log or bool(finite.min(initial=0.0) < -_MAX_RANGE)
    scaled[~mine] = 0.0
    return scaled if log else np.exp(scaled), float(tops[general].sum()), log


def _log(values: NDArray) -> NDArray:
    with np.errstate(divide="ignore"):
        return np.log(values)


def fresh_messages(mesh: Mesh) -> Messages:
    """Messages that say nothing yet: uniform, seen from the tables as they were given.

    A mesh serves one run: pair messages are ``mesh.first`` itself (:meth:`Mesh.for_a_run`). What
    tree-reweighted runs keep beside them is the caller's.
    """
    from minfer.kernels.wiring import Messages

    w = mesh.wiring
    size = int(w.gslot[:, 3].sum())
    start = 0.0 if mesh.log else 1.0
    widest = int(w.card.max(initial=2))
    return Messages(
        mesh.first, np.empty(len(w.rho)), np.full(size, start), np.full(size, start),
        np.full(int(w.off[-1]), 0.5), np.zeros(max(widest, 2)),
        np.zeros(max(_largest_table(w), widest)), np.zeros(2, dtype=np.int64),
    )  # fmt: skip


def _largest_table(w: Wiring) -> int:
    if not len(w.tab):
        return 1
    starts = np.unique(w.fac[w.fac[:, 0] >= 0, 0])
    return int(np.diff(np.append(starts, len(w.tab))).max(initial=1))


def start_messages(mesh: Mesh, start: Marginals | None) -> Messages:
    """Messages of an earlier run where its factors are still there, fresh ones elsewhere.

    A message with a zero is not taken over: the factor or evidence behind it may be gone.
    """
    from minfer.kernels import wiring as k

    s, w = fresh_messages(mesh), mesh.wiring
    old = start.state if start is not None else None
    done = False
    if isinstance(old, MessageState) and start is not None:
        graph, before = mesh.model.graph, start.graph
        if before.lineage == graph.lineage and old.mesh.reweighted == mesh.reweighted:
            if mesh.slot is old.mesh.slot:
                k.take_over(old.messages.m, old.messages.rl, w.W, w.rho, s.m, s.rl)
                done = mesh.known is None
            else:
                _copy_pairs(mesh, s, old, graph.origin, before.origin)
            _copy_general(mesh, s, old, graph.origin, before.origin)
    if mesh.known is not None:
        _speak_of_known(mesh, s.m)
    if len(s.rl) and not done:
        np.log(s.m, out=s.rl)
        s.rl[:] *= w.rho
    return s


def _speak_of_known(mesh: Mesh, m: NDArray[np.float64]) -> None:
    """What known variables of pairs tell the others: 1 or W, from the beginning."""
    assert mesh.known is not None
    w = mesh.wiring
    told = np.flatnonzero(mesh.known >= 0)
    degree = np.diff(w.ptr).astype(np.int64)[told]
    mine = _ranges(w.ptr.astype(np.int64)[told], degree)
    m[w.rev[mine]] = np.where(np.repeat(mesh.known[told] == 1, degree), w.W[mine], 1.0)


def _match(new: NDArray, old: NDArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of equal keys in two arrays without duplicates."""
    _, i, j = np.intersect1d(new, old, assume_unique=True, return_indices=True)
    return i, j


def _copy_pairs(mesh: Mesh, s: Messages, old: MessageState, now: NDArray, then: NDArray) -> None:
    i, j = _match(now[mesh.pair_ids], then[old.mesh.pair_ids])
    s.m[mesh.slot[i].ravel()] = old.messages.m[old.mesh.slot[j].ravel()]
    W = mesh.wiring.W
    np.clip(s.m, np.minimum(W, 1.0), np.maximum(W, 1.0), out=s.m)


def _copy_general(mesh: Mesh, s: Messages, old: MessageState, now: NDArray, then: NDArray) -> None:
    new, before = mesh.wiring.gslot, old.mesh.wiring.gslot
    if not len(new) or not len(before):
        return
    width = int(max(new[:, 1].max(), before[:, 1].max())) + 1
    i, j = _match(
        now[mesh.general_ids][new[:, 0]] * width + new[:, 1],
        then[old.mesh.general_ids][before[:, 0]] * width + before[:, 1],
    )
    same = new[i, 3] == before[j, 3]
    i, j, sizes = i[same], j[same], new[i[same], 3]
    if not len(i):
        return
    values = old.messages.gm[_ranges(before[j, 2], sizes)]
    if mesh.log != old.mesh.log:
        values = _log(values) if mesh.log else np.exp(values)
    floor = -_MAX_RANGE / 2 if mesh.log else np.exp(-_MAX_RANGE / 2)
    usable = np.minimum.reduceat(values, np.cumsum(sizes) - sizes) > floor
    s.gm[_ranges(new[i[usable], 2], sizes[usable])] = values[np.repeat(usable, sizes)]


def _ranges(starts: NDArray, sizes: NDArray) -> NDArray[np.int64]:
    """The ranges start..start+size one after the other."""
    within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.repeat(starts, sizes) + within


@dataclass(frozen=True, eq=False)
class Vectors:
    """Messages by (factor number, variable), each of one entry per state, summing to 1.

    Into a variable from ``pair`` factors (two binary variables, no zeros) and from ``general``
    ones, which also remember what the variable last said to them, its ``cavity``.
    """

    pair: dict[tuple[int, int], NDArray[np.float64]]
    general: dict[tuple[int, int], NDArray[np.float64]]
    cavity: dict[tuple[int, int], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class MessageState:
    """What BP and TRW leave: wiring and messages, enough for log Z, factor beliefs, a new start.

    Where a run has converged on a loopy core, ``before`` has the messages that the last update
    began with (None in models of more than a million of them): computed anew from there, all at
    once and undamped, no message and no belief moves by more than ``tol``.
    """

    mesh: Mesh
    messages: Messages
    before: Watch | None = None
    bound: bool = False  # tree-reweighted with valid weights: log Z is an upper bound

    def log_z(self) -> float:
        value = self.bethe()
        return value + self._allowance() if self.bound and not self.is_forest else value

    def vectors(self, before: bool = False) -> Vectors:
        """All messages as normalised vectors, as the model's own tables define them.

        ``before``: those that the confirming update began with. It renews the messages of the core;
        those into trees are then still the ones of collecting.
        """
        mesh, w, s = self.mesh, self.mesh.wiring, self.before if before else self.messages
        if s is None:
            raise ModelError("this run kept no messages: it has not converged, or is too large")
        out = Vectors({}, {}, {})
        for g in mesh.model.groups:  # a pair's unary parts were absorbed: give them back
            if g.form != "table" or g.shape != (2, 2):
                continue
            for i, t in zip(g._ids.tolist(), g.log_tables()):
                for f in np.flatnonzero(mesh.pair_ids == i):
                    for k, lean in enumerate((t[2] - t[0], t[1] - t[0])):
                        e = int(mesh.slot[f, k])
                        x = np.log(s.m[e]) + lean / (w.rho[e] if len(w.rho) else 1.0)
                        key = i, int(mesh.pair_scope[f, k])
                        out.pair[key] = _normalised(np.array([0.0, x]))
        for v, (f, _, o, n) in zip(mesh.gowner.tolist(), w.gslot.tolist()):
            for kind, x in ((out.general, s.gm), (out.cavity, s.gq)):
                x = x[o : o + n] if mesh.log else _log(x[o : o + n])
                kind[int(mesh.general_ids[f]), v] = _normalised(x)
        return out

    @property
    def is_forest(self) -> bool:
        return self.mesh.trees is not None and self.mesh.trees.whole

    def _allowance(self) -> float:
        """What makes the reweighted Bethe value a bound at any messages, rounding included."""
        from minfer.kernels import bethe

        mesh, w = self.mesh, self.mesh.wiring
        if w.gslot.size:
            refresh_cavities(mesh, self.messages)
        slack, size = bethe.tree_slack(
            w, self.messages, mesh.slot, mesh.pair_scope, self._log_odds, self._odds
        )  # fmt: skip
        given, most = _given(mesh.model)
        return slack + np.finfo(float).eps * (16 * size + (64 + most) * given)

    def bethe(self) -> float:
        """The (reweighted) Bethe value of the messages as they are."""
        from minfer.kernels import bethe

        mesh, w, s = self.mesh, self.mesh.wiring, self.messages
        odds = self._log_odds
        total = mesh.constant
        if mesh.known is not None:  # a known variable says its state's part of each message
            pair = self._known_pairs
            odds = odds.copy()
            odds[pair] = -np.inf  # log(1 + 0): nothing more
            up = pair[mesh.known[pair] == 1]
            degree = np.diff(w.ptr).astype(np.int64)[up]
            slots = _ranges(w.ptr.astype(np.int64)[up], degree)
            total += float((s.rl[slots] if len(s.rl) else np.log(s.m[slots])).sum())
        total += bethe.variable_terms(w, s, odds, mesh.log)
        total += bethe.pair_terms(w, s, mesh.slot, mesh.pair_scope, self._log_odds, self._odds)
        if len(w.gslot):
            refresh_cavities(mesh, s)
            total += bethe.general_terms(w, s, mesh.log)
        if len(mesh.machines.code):
            from minfer.kernels import machines

            total += machines.partitions(mesh.machines, s, mesh.log, _NONE)
        for speakers in mesh.speakers:
            incoming = s.gq[speakers.entries]
            incoming = incoming if mesh.log else _log(incoming)
            every = np.arange(len(speakers.group))
            total += float(speakers.group.messages(every, incoming, np.empty_like(incoming)).sum())
        return total

    @property
    def _log_odds(self) -> NDArray[np.float64]:
        """Belief log-odds of binary variables, (V,); infinite where evidence knows."""
        return self._both_odds[0]

    @property
    def _odds(self) -> NDArray[np.float64]:
        """The odds themselves where they multiply safely, NaN elsewhere, (V,)."""
        return self._both_odds[1]

    @cached_property
    def _both_odds(self) -> NDArray[np.float64]:
        from minfer.kernels import bethe

        out = np.zeros((2, self.mesh.model.graph.n_variables))
        bethe.log_odds(self.mesh.wiring, self.messages, out[0], out[1])
        if self.mesh.known is not None:
            pair = self._known_pairs
            out[0, pair] = np.where(self.mesh.known[pair] == 1, np.inf, -np.inf)
            out[1, pair] = np.nan
        return out

    @property
    def _known_pairs(self) -> NDArray[np.int64]:
        """Variables in odds form that evidence of this run has fixed."""
        from minfer.kernels.wiring import GENERAL

        known, w = self.mesh.known, self.mesh.wiring
        assert known is not None
        return np.flatnonzero((known >= 0) & (w.cls != GENERAL))

    def factor(self, factor: int) -> NDArray[np.float64] | None:
        """The factor's belief: its table times the cavities, normalised."""
        graph = self.mesh.model.graph
        shape = tuple(int(s) for s in graph._n_states[graph.scope(factor)])
        found = self.factors(np.array([factor]))
        return None if found is None else found[0].reshape(shape)

    def factors(self, factors: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """Beliefs of factors of one shape, (n, cells); None if one has no table."""
        graph, form = self.mesh.model.graph, self.mesh.roles.form
        if not len(factors) or (form[factors] == _SPEAKS).any():
            return None
        if graph.arity[factors[0]] == 0:
            return np.ones((len(factors), 1))
        if (form[factors] == _MACHINE).any() and not graph._locate(int(factors[0]))[0].has_tables:
            return None
        return self.mesh.model.joints(factors, self.messages.bel, self._joints)

    def _joints(self, factors: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Beliefs of factors over two or more free variables, of one shape, (n, cells)."""
        from minfer.kernels import beliefs

        mesh, w, s = self.mesh, self.mesh.wiring, self.messages
        out = np.empty((len(factors), n_entries(shape)))
        form, row = mesh.roles.form[factors], mesh.roles.row[factors]
        if (form != _PAIR).any():
            refresh_cavities(mesh, s)
        for kind in np.unique(form):
            rows = row[form == kind]
            found = out if len(rows) == len(out) else np.empty((len(rows), out.shape[1]))
            if kind == _PAIR:
                beliefs.pair_beliefs(
                    rows, mesh.slot, mesh.pair_scope, w.off, s.bel, s.m, w.W, found
                )
            elif kind == _TABLE:
                beliefs.table_beliefs(w, s.gq, rows, mesh.log, found)
            else:
                beliefs.table_beliefs(
                    self._written_out(factors[form == kind], rows), s.gq, rows, mesh.log, found
                )
            if found is not out:
                out[form == kind] = found
        return out

    def _written_out(self, factors: NDArray[np.int64], rows: NDArray[np.int64]) -> Wiring:
        """The wiring with some automata, of one shape, as tables."""
        w, fac, start, parts = self.mesh.wiring, self.mesh.wiring.fac.copy(), 0, []
        for g in self.mesh.model.groups:
            mine = np.isin(factors, g._ids) if g.form == "machine" else np.zeros(0, dtype=bool)
            if mine.any():
                tables = g.log_tables(np.searchsorted(g._ids, factors[mine]))
                fac[rows[mine], 0] = start + np.arange(len(tables)) * tables.shape[1]
                start += tables.size
                parts.append(tables.ravel())
        tab = np.concatenate(parts)
        return w._replace(fac=fac, tab=tab if self.mesh.log else np.exp(tab))

    def ends(self, group: FactorGroup) -> NDArray[np.float64] | None:
        """Beliefs over the end states of a group of automata of the graph, (F, K).

        None where evidence has left something else of them.
        """
        found = [(g, ends) for g, ends in self.end_beliefs() if np.isin(g._ids, group._ids).all()]
        ids = np.concatenate([np.zeros(0, dtype=np.int64), *(g._ids for g, _ in found)])
        if len(ids) != len(group) or any(type(g) is not type(group) for g, _ in found):
            return None
        return np.concatenate([ends for _, ends in found])[np.argsort(ids)]

    def end_beliefs(self) -> list[tuple[FactorGroup, NDArray[np.float64]]]:
        """For every group of automata, as conditioned, the beliefs over its end states (F, K).

        With :meth:`minfer.factors.Logical.end_statistics` they are the expected statistics.
        """
        from minfer.kernels import machines

        mesh, out = self.mesh, []
        if not len(mesh.machines.code):
            return []
        refresh_cavities(mesh, self.messages)
        ends = np.empty(int(mesh.machines.n_ends.sum()))
        machines.partitions(mesh.machines, self.messages, mesh.log, ends)
        done = 0
        for g in mesh.model.groups:
            if g.form == "machine":
                size = len(g) * g.machine().final.shape[1]
                out.append((g, ends[done : done + size].reshape(len(g), -1)))
                done += size
        return out

    def __getstate__(self) -> dict:
        return {k: v for k, v in self.__dict__.items() if not k.startswith("_")}


def _given(model: Conditioned) -> tuple[float, int]:
    """The size of all numbers that a model was given by, and how many meet in one variable."""
    field = model.field
    total, degree = float(np.abs(field[field > -np.inf]).sum()), np.zeros(len(model.fixed), int)
    for g in model.graph.groups:
        total += float(g.magnitude().sum())
        degree += np.bincount(g._scope.ravel(), minlength=len(degree))
    return total, int(degree.max(initial=0))


def refresh_cavities(mesh: Mesh, s: Messages) -> None:
    """Cavities of all general variables from the messages as they are."""
    from minfer.kernels import bp

    bp.sweeps(
        mesh.wiring, mesh.machines, s, s.m, watch_for(-1.0), bp.START, 1, -1.0, 0.0, mesh.log,
        np.zeros(1),
    )  # fmt: skip


def watch_for(tol: float, *kept: NDArray[np.float64]) -> Watch:
    """A watch over a run to come, with room for messages and beliefs before its last update."""
    from minfer.kernels.bp import LAST, TRIGGER
    from minfer.kernels.wiring import Watch

    control = np.zeros(6)
    control[TRIGGER], control[LAST] = tol, np.inf
    m, gm, gq, bel = kept or (_NONE, _NONE, _NONE, _NONE)
    return Watch(_NO_ORDER, control, m, gm, gq, bel)


def _normalised(log_table: NDArray) -> NDArray[np.float64]:
    table = np.exp(log_table - log_table.max())
    return table / table.sum()
