"""From a graph to the arrays message passing runs on.

:func:`wire` sorts the factors by counting: binary pairwise ones with positive tables into odds
slots, everything else into general slots (see :mod:`minfer.kernels.messages.wiring`; what it shares
with other solvers is :mod:`minfer.engine.layout`). :func:`refill` puts other numbers into the same
wiring. What a run leaves is :mod:`minfer.engine.message_state`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.engine.layout import (
    BinaryPairs,
    automata,
    cells,
    join,
    places,
    ranges,
    scopes,
    split_pairs,
)
from minfer.errors import ContradictionError
from minfer.factors.group import FactorGroup, interaction

if TYPE_CHECKING:
    from minfer.engine.conditioning import Conditioned
    from minfer.graph import FactorGraph
    from minfer.kernels.messages.wiring import Machines, Wiring

_NONE = np.zeros(0)
_NO_ORDER = np.zeros(0, dtype=np.int64)
PAIR, TABLE, MACHINE, SPEAKS = 1, 2, 3, 4  # how a factor takes part; 0: absorbed
#: Beyond these log-odds (1e200) a pair message equals its limit to the last bit.
_CERTAIN = 461.0
#: Products of a field and of messages that sweeps over vector pairs may meet, 1e-143.
_VECTOR_RANGE = -330.0
#: Slots that are looked at at a time where a look takes memory.
SOME = 1 << 20
#: Linear tables and fields must not fall below e^-345 = 1e-150 of their maximum.
MAX_RANGE = 345.0


@dataclass(eq=False)  # nobody changes it; frozen ones take 5 us longer to make
class Wired:
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
    python_factors: tuple[PythonFactors, ...]  # groups that compute their own messages
    machines: Machines  # factors that are automata, all of them in the core
    weighed: PairNumbers
    left_over: float  # of the constant, what the factors contributed
    trees: Trees | None  # None: no part of the model is a tree
    roles: Roles
    odds: tuple[int, ...]  # which of the model's groups are in odds form, in the order of the slots
    whole: bool  # no group is partly in odds form: other numbers fit the same wiring
    known: NDArray[np.int32] | None = None  # (V,) state that evidence of a run leaves, or -1
    lent: NDArray[np.float64] | None = None  # the weights of a larger graph that these are from
    lowest: float = -np.inf  # of all entries of log-tables, their largest being 0
    bottom: float = 0.0  # the same of the field of general variables, zeros apart
    meets: int = 0  # most general factors of a variable, where they are pairs all; else 0
    found: dict[Any, Any] = field(default_factory=dict)  # once, for all runs over the structure

    def changed(self, **changes: Any) -> Wired:
        """The same with other fields; ``dataclasses.replace`` would take ten times as long."""
        new = object.__new__(Wired)
        new.__dict__.update(self.__dict__)
        new.__dict__.update(changes)
        return new

    def __getstate__(self) -> dict:
        return {**self.__dict__, "found": {}}  # what is on a device stays there

    def for_a_run(self, kept: Wired) -> Wired:
        """The mesh with messages and scratch of its own, so that ``kept`` stays as it is."""
        ma = self.machines
        if len(ma.code):
            ma = ma._replace(work=ma.work.copy(), logs=np.zeros_like(ma.logs), one=ma.one.copy())
        elif self.first is not kept.first:
            return self
        first = self.first.copy() if self.first is kept.first else self.first
        return self.changed(first=first, machines=ma)

    def kinds(self) -> tuple[bool | None, ...]:
        """Whether messages are reweighted, and the markers ``log`` and ``vectors`` of
        :func:`minfer.kernels.messages.sweeps.sweeps`: each combination is compiled apart."""
        return self.reweighted, True if self.log else None, True if self.fits_vector_pairs else None

    @property
    def is_forest(self) -> bool:
        return self.trees is not None and self.trees.whole

    @property
    def fits_vector_pairs(self) -> bool:
        """Whether sweeps over :mod:`~minfer.kernels.messages.vector_pairs` are for this: pairs
        with positive tables, whose messages, of at least the smallest entry, multiply safely."""
        w, ma = self.wiring, self.machines
        if self.log or self.reweighted or len(w.rev) or len(ma.code) or self.python_factors:
            return False
        if not self.meets or self.lowest == -np.inf:
            return False
        return self.bottom + self.meets * self.lowest >= _VECTOR_RANGE

    @property
    def vector_room(self) -> NDArray[np.float64]:
        """Scratch for such sweeps; empty where they are not for this."""
        if not self.fits_vector_pairs:
            return _NONE
        w = self.wiring
        widest = int(w.card.max())
        # in eighths: zeros, a cavity, zeros, a cavity, zeros; products in the other half
        size = max(widest + 2 * int(w.fac[:, 4].max()) + 8, widest * (self.meets + 5) // 4 + 8)
        return np.zeros(8 * size)

    @property
    def owner(self) -> NDArray[np.int32]:
        """The variable of each pair slot, (E,)."""
        w = self.wiring
        return np.repeat(np.arange(len(w.card), dtype=np.int32), np.diff(w.ptr).view(np.int64))

    def by_colour(self, whole: bool = False) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The variables of the core, colour after colour, and where each colour begins (C + 1,);
        of the ``whole`` model if trees are to be swept too.

        No two of a colour share a pair or a table: their messages read only what others sent.
        """
        from minfer.kernels.messages.wiring import ASLEEP, colour

        if "colours" not in self.found:
            n = len(self.wiring.card)
            colours = np.empty(n, np.int32)
            colour(self.wiring, self.owner, self.gowner, np.zeros(n + 1, np.int64), colours)
            self.found["colours"] = colours
        awake = np.flatnonzero((self.wiring if whole else self.core).kind != ASLEEP)
        kept = self.found.get(("order", whole))
        if kept is None or not np.array_equal(kept[0], awake):
            colours = self.found["colours"][awake]
            first = np.append(0, np.cumsum(np.bincount(colours)))
            kept = awake, awake[np.argsort(colours, kind="stable")], first
            self.found["order", whole] = kept
        return kept[1:]

    @property
    def core(self) -> Wiring:
        """The wiring with the variables of trees asleep."""
        if self.trees is None:
            return self.wiring
        from minfer.kernels.messages.wiring import ASLEEP

        kind = np.where(self.trees.asleep, np.uint8(ASLEEP), self.wiring.kind)
        return self.wiring._replace(kind=kind)

    @property
    def core_machines(self) -> Machines:
        """The machines with those left out that answer on the way through the trees."""
        ma, w = self.machines, self.wiring
        if not len(ma.code):
            return ma
        if self.trees is not None:
            rest = np.ones(len(ma.code), dtype=bool)
            answer = self.trees.answering - ma.base
            rest[answer[(answer >= 0) & (answer < len(rest))]] = False
            ma = ma._replace(mine=np.flatnonzero(rest).astype(np.int32))
        first, arity = (w.fac[ma.base : ma.base + len(ma.code), k] for k in (1, 2))
        slots = w.fslot[first[0] : first[-1] + arity[-1]]  # one factor's after the other's
        mine = np.zeros(len(ma.code), dtype=bool)
        mine[ma.mine] = True
        mine = np.repeat(mine, arity)
        literals, seen = np.zeros(len(w.card), np.int64), np.zeros(len(w.card), dtype=bool)
        for k in range(0, len(slots), SOME):
            owner = self.gowner[slots[k : k + SOME]]
            literals += np.bincount(owner, minlength=len(w.card))
            seen[owner[mine[k : k + SOME]]] = True
        alone = (literals > 0) & (literals == np.diff(w.gptr)) & (np.diff(w.ptr) == 0)
        if self.trees is not None:
            alone &= ~self.trees.asleep
        return ma._replace(
            vars=np.flatnonzero(seen).astype(np.int32), alone=np.flatnonzero(alone).astype(np.int32)
        )


@dataclass(eq=False)
class Roles:
    """Where the graph's factors are in a wiring; made when first asked for."""

    n_factors: int
    pair_ids: NDArray[np.int64]
    general_ids: NDArray[np.int64]
    fac: NDArray[np.int64]  # (F general, 5), see :class:`minfer.kernels.messages.wiring.Wiring`
    machines: Machines

    @cached_property
    def form(self) -> NDArray[np.int8]:
        """How each factor of the graph takes part, (F,)."""
        out = np.zeros(self.n_factors, dtype=np.int8)
        out[self.pair_ids] = PAIR
        general = np.where(self.fac[:, 0] < 0, SPEAKS, TABLE)
        general[self.machines.base : self.machines.base + len(self.machines.code)] = MACHINE
        out[self.general_ids] = general
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

    order: NDArray[np.int64]  # collecting order; see :func:`minfer.kernels.messages.wiring.peel`
    asleep: NDArray[np.bool_]  # (V,)
    whole: bool  # nothing is left: the model is a forest

    @property
    def answering(self) -> NDArray[np.int64]:
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
class PythonFactors:
    """A group of factors that compute their own messages, as general factors ``first`` and on."""

    group: FactorGroup
    first: int
    entries: NDArray[np.int64]  # (F, sum S) where the entries of their messages lie

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each variable's states begin in a row of messages, (A,)."""
        sizes = np.array(self.group.shape, dtype=np.int64)
        return np.cumsum(sizes) - sizes

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """Of which of their variables each entry of a row of messages is, (sum S,)."""
        return np.repeat(np.arange(self.group.arity), self.group.shape)

    def rows(self, factors: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which of some general factors are of this group, as its rows."""
        mine = (factors >= self.first) & (factors < self.first + len(self.group))
        return factors[mine] - self.first


def find_trees(w: Wiring, slot: NDArray, scope: NDArray, gowner: NDArray) -> Trees | None:
    """Everything that leaves can be peeled off to; None where there is no leaf."""
    from minfer.kernels.messages import wiring as k

    if not (np.diff(w.ptr).view(np.int64) + np.diff(w.gptr) == 1).any():
        return None
    order = np.empty(len(w.card) + len(w.fac), dtype=np.int64)
    asleep = np.zeros(len(w.card), dtype=np.uint8)
    count, slots = k.peel(w, slot, scope, gowner, order, asleep)
    return Trees(order[:count].copy(), asleep.astype(bool), slots == 0) if count else None


def wire(model: Conditioned, rho: NDArray[np.float64] | None = None, log: bool = False) -> Wired:
    """Lay a conditioned model out for message passing; with edge appearance probabilities ``rho``
    (F of the graph,) for tree-reweighted messages. ``log``: keep general tables in log space
    (forced where their range needs it)."""
    from minfer.kernels.messages import wiring as k

    graph = model.graph
    n = graph.n_variables

    def fits(p: BinaryPairs) -> NDArray[np.bool_]:
        return np.abs(pair_weight(p, rho)) <= k.MAX_PAIR_WEIGHT  # not where NaN: zeros

    pairs, general = split_pairs(model.groups, fits)
    number = {id(g): i for i, g in enumerate(model.groups)}
    odds = tuple(number.get(id(p.group), -1) for p in pairs)
    ptr = np.zeros(n + 1, dtype=np.uint64)
    for p in pairs:
        ptr[1:] += np.bincount(p.group._scope.ravel(), minlength=n).view(np.uint64)
    np.cumsum(ptr, out=ptr)
    slots = int(ptr[-1])
    rev = np.empty(slots, dtype=np.uint32)
    slot = np.empty((slots // 2, 2), dtype=np.int32)
    ends, done = np.zeros((n, 4), np.int32), 0
    for p in pairs:
        k.pair_slots(p.group._scope, ptr, done, ends, rev, slot)
        done += len(p.group)
    del ends
    pair_ids = join([p.group._ids for p in pairs], np.int64)
    pair_scope = join([p.group._scope for p in pairs], np.int32).reshape(-1, 2)
    slot_rho = _NONE
    if rho is not None:
        slot_rho = np.empty(slots)
        slot_rho[slot.ravel()] = np.repeat(rho[pair_ids], 2)
    parts = _general(model, general, rho, log or rho is not None)
    weighed = _weigh(pairs, slot, n, rho)
    left_over = parts.constant + weighed.constant
    tables = parts.tab, parts.machines, parts.log
    seen = _absorb(model, weighed, left_over, parts.gptr, rho is not None, tables, None)
    wiring = k.Wiring(
        graph._n_states, graph._offsets, seen.kind, seen.prior, seen.field, ptr, rev, weighed.W,
        parts.gptr, parts.gslot, parts.fac, parts.fslot, seen.tab, slot_rho, parts.grho,
    )  # fmt: skip
    return Wired(
        model, wiring, seen.log, rho is not None, seen.constant, pair_ids, pair_scope, slot,
        weighed.first, parts.ids, parts.gowner, parts.python_factors, seen.machines, weighed,
        left_over, find_trees(wiring, slot, pair_scope, parts.gowner),
        Roles(graph.n_factors, pair_ids, parts.ids, parts.fac, parts.machines),
        odds, -1 not in odds, lowest=parts.lowest, bottom=seen.bottom, meets=parts.meets,
    )  # fmt: skip


def refill(
    mesh: Wired,
    model: Conditioned,
    known: NDArray[np.int32] | None = None,
    first: bool = True,
    rho: NDArray[np.float64] | None = None,
) -> Wired | None:
    """The same wiring with other numbers: weights, field, evidence; only what changed is made anew.

    None where it does not fit: it needs the same groups over the same variables, each in the form
    it was; what is fixed, or beyond odds, must not have changed. ``known`` (V,): states that
    evidence leaves to variables, else -1; their slots stay, their messages are what they tell the
    others. Not ``first``: all first messages are taken over from an earlier run. ``rho`` (F of the
    graph,): other edge appearance probabilities than those it was wired with.
    """
    old = mesh.model
    if not mesh.whole or len(old.groups) != len(model.groups):
        return None
    card, states, fixed = mesh.wiring.card, model.graph._n_states, model.fixed
    if card is not states and not np.array_equal(card, states):
        return None
    if old.fixed is not fixed and not np.array_equal(old.fixed, fixed):
        return None
    moved = [a is not b for a, b in zip(old.groups, model.groups)]
    same = zip(old.groups, model.groups, moved)
    if not all(a.has_structure_of(b) for a, b, new in same if new):
        return None
    roles, n_factors = mesh.roles, model.graph.n_factors
    if roles.n_factors != n_factors:  # others have unary factors more, or fewer
        roles = replace(roles, n_factors=n_factors)
    if not any(moved) and model.field is old.field and known is mesh.known is rho is None:
        return mesh if model is old else mesh.changed(model=model, roles=roles)
    w, weighed, left_over = mesh.wiring, mesh.weighed, mesh.left_over
    tab, machines, python_factors, log = w.tab, mesh.machines, mesh.python_factors, mesh.log
    begin, lowest, reweighted = mesh.first, mesh.lowest, mesh.reweighted
    slot_rho, grho = w.rho, w.grho
    if rho is not None:
        slot_rho, grho = np.empty(len(w.rho)), rho[mesh.general_ids[w.gslot[:, 0]]]
        slot_rho[mesh.slot.ravel()] = np.repeat(rho[mesh.pair_ids], 2)
    elif reweighted and any(moved):
        rho = np.ones(n_factors)
        rho[mesh.pair_ids] = w.rho[mesh.slot[:, 0]]
        rho[mesh.general_ids[w.gslot[:, 0]]] = w.grho
    if any(moved) or slot_rho is not w.rho:
        from minfer.kernels.messages.wiring import MAX_PAIR_WEIGHT

        pairs = [BinaryPairs(model.groups[i], *model.groups[i].pair_values()) for i in mesh.odds]
        if not all((np.abs(pair_weight(p, rho)) <= MAX_PAIR_WEIGHT).all() for p in pairs):
            return None
        weighed = _weigh(pairs, mesh.slot, len(w.card), rho, first)
        begin = weighed.first if first else np.empty(len(w.rev))
        left_over, log, lowest = weighed.constant, reweighted, 0.0
        general = [g for i, g in enumerate(model.groups) if i not in mesh.odds]
        if general:
            new = _numbers(general, rho, reweighted)
            final = join([e.ravel() for e in new.ends], np.float64)
            if len(new.tab) != len(tab) or len(final) != len(machines.final):
                return None
            if not np.array_equal(new.codes, w.fac[: len(new.codes), 3:]):
                return None
            speaking = [g for g in general if g.form == "messages"]
            python_factors = tuple(replace(s, group=g) for s, g in zip(python_factors, speaking))
            tab, log, lowest = new.tab, new.log, new.lowest
            machines, left_over = machines._replace(final=final), left_over + new.scale
    seen = _absorb(model, weighed, left_over, w.gptr, reweighted, (tab, machines, log), known)
    wiring = w._replace(
        kind=seen.kind, prior=seen.prior, field=seen.field, W=weighed.W, tab=seen.tab, rho=slot_rho,
        grho=grho,
    )  # fmt: skip
    return mesh.changed(
        model=model, wiring=wiring, log=seen.log, constant=seen.constant, first=begin,
        python_factors=python_factors, machines=seen.machines, weighed=weighed, left_over=left_over,
        known=known, lowest=lowest, bottom=seen.bottom, roles=roles,
    )  # fmt: skip


class PairNumbers(NamedTuple):
    """The numbers of pair factors in odds form. E slots, V variables."""

    W: NDArray[np.float64]  # (E,)
    first: NDArray[np.float64]  # (E,) messages to begin with, or empty
    lean: NDArray[np.float64]  # (V,) log-odds that their unary parts add up to
    load: NDArray[np.float64]  # (V,) sum of |w|
    constant: float


class _Fields(NamedTuple):
    """What the field says of variables, in the form sweeps read; and tables, in logs where it
    needs them."""

    kind: NDArray[np.uint8]
    prior: NDArray[np.float64]
    field: NDArray[np.float64]
    constant: float
    tab: NDArray[np.float64]
    machines: Machines
    log: bool
    bottom: float = 0.0  # the lowest logarithm of the field, its largest being 0; zeros apart


def _weigh(
    pairs: list[BinaryPairs], slot: NDArray, n: int, rho: NDArray | None, first: bool = True
) -> PairNumbers:
    """W, unary parts and, if wanted, ``first`` messages of pair factors with slots (P, 2)."""
    from minfer.kernels.messages.wiring import pair_fill

    W, lean, load = np.empty(slot.size), np.zeros(n), np.zeros(n)
    messages = np.empty(slot.size if first else 0)
    constant, done = 0.0, 0
    for g, values, basis in pairs:
        weights = _NONE if rho is None else rho[g._ids]
        here = slot[done : done + len(g)]
        constant += pair_fill(g._scope, values, basis, weights, here, W, messages, lean, load)
        done += len(g)
    return PairNumbers(W, messages, lean, load, constant)


def _absorb(
    model: Conditioned,
    weighed: PairNumbers,
    left_over: float,
    gptr: NDArray,
    reweighted: bool,
    tables: tuple[NDArray[np.float64], Machines, bool],
    known: NDArray[np.int32] | None,
) -> _Fields:
    """The model's field (and evidence of this run) as classes and priors; ``tables``: the numbers
    of general factors, and whether they are logs."""
    from minfer.kernels.messages import wiring as k

    graph = model.graph
    n, off = graph.n_variables, graph._offsets
    log_field, told, lean = model.field, _NO_ORDER, weighed.lean
    if known is not None:
        told = np.flatnonzero(known >= 0)
        log_field = _with_known(graph, gptr, log_field, known, told)
        lean = lean.copy()  # below, that of the state that is known is added
        lean[told[(gptr[told + 1] == gptr[told]) & (graph._n_states[told] == 2)]] = 0.0
    if len(weighed.W):
        log_field = log_field.copy()  # general variables' lean is added to it
    kind, prior = np.empty(n, dtype=np.uint8), np.empty(n)
    n_general, zero_state = k.classify(
        graph._n_states, off, log_field, model.fixed, lean, weighed.load, gptr, reweighted,
        kind, prior,
    )  # fmt: skip
    constant = model.constant + left_over + zero_state
    if known is not None:
        pair = told[kind[told] < k.GENERAL]
        up = known[pair] == 1
        kind[pair] = k.SCALED
        prior[pair] = np.where(up, 1.0, -1.0) * (_CERTAIN + weighed.load[pair])
        constant += float(weighed.lean[pair[up]].sum())
    if not n_general:
        return _Fields(kind, prior, _NONE, constant, *tables)
    from minfer.kernels.messages.vectors import scale_field

    (tab, machines, log), field = tables, np.empty(len(log_field))
    tops, bottom = scale_field(log_field, off, kind, not log, field)
    if not log and bottom < -MAX_RANGE:
        tab, machines, log = to_log(tab), machines._replace(final=to_log(machines.final)), True
        scale_field(log_field, off, kind, False, field)
    return _Fields(kind, prior, field, constant + tops, tab, machines, log, bottom)


def _with_known(
    graph: FactorGraph,
    gptr: NDArray,
    log_field: NDArray,
    known: NDArray[np.int32],
    told: NDArray[np.int64],
) -> NDArray[np.float64]:
    """The field once evidence has spoken: elsewhere than in variables of pairs alone, which get
    their state's number in both places (their prior says how certain it is), other states are
    excluded."""
    first, size = graph._offsets[told], graph._n_states[told].astype(np.int64)
    own = log_field[first + known[told]]
    if (own == -np.inf).any():
        v = int(told[np.argmin(own)])
        raise ContradictionError(
            f"variable {graph.name(v)} has no state left: the model excludes the state "
            f"{known[v]} that was observed"
        )
    pairs = (gptr[told + 1] == gptr[told]) & (size == 2)
    out = log_field.copy()
    out[ranges(first, size)] = np.repeat(np.where(pairs, own, -np.inf), size)
    out[first + known[told]] = own
    return out


def pair_weight(pairs: BinaryPairs, rho: NDArray | None) -> NDArray[np.float64]:
    """w (over rho) of 2x2 tables, shape (F,) or (1,); NaN or infinite where there are zeros."""
    group, values, basis = pairs
    with np.errstate(invalid="ignore"):
        if len(basis) == 1:
            weight = values[:, 0] * interaction(basis[0])
        else:
            weight = interaction(values @ basis if len(basis) != 4 else values)
    return weight if rho is None else weight / rho[group._ids]


class _General(NamedTuple):
    """Everything about general factors, of which there may be none; see
    :class:`minfer.kernels.messages.wiring.Wiring` and :class:`Wired`."""

    gptr: NDArray[np.int64]
    machines: Machines
    log: bool
    gslot: NDArray[Any] = np.zeros((0, 4), np.int32)
    fac: NDArray[np.int64] = np.zeros((0, 5), np.int64)
    fslot: NDArray[np.int64] = _NO_ORDER
    tab: NDArray[np.float64] = _NONE
    grho: NDArray[np.float64] = _NONE
    ids: NDArray[np.int64] = _NO_ORDER
    gowner: NDArray[np.int32] = np.zeros(0, np.int32)
    python_factors: tuple[PythonFactors, ...] = ()
    constant: float = 0.0
    lowest: float = 0.0
    meets: int = 0


def _general(
    model: Conditioned, groups: list[FactorGroup], rho: NDArray | None, log: bool
) -> _General:
    """Slots of all factors that are not in odds form: tables, automata, then global factors."""
    from minfer.kernels.messages.wiring import general_slots

    n, i8 = model.graph.n_variables, np.int64
    if not groups:
        return _General(np.zeros(n + 1, i8), no_machines(), log)
    tables = [g for g in groups if g.form == "table"]
    readers = [g for g in groups if g.form == "machine"]
    speaking = [g for g in groups if g.form == "messages"]
    every = [*tables, *readers, *speaking]
    flat = scopes(every)
    pairs = all(g.arity == 2 for g in every)
    if pairs:  # those of a variable in the order of their other ends
        from minfer.kernels.messages.vector_pairs import by_neighbour

        order, gptr = np.empty(len(flat.scope), i8), np.empty(n + 1, i8)
        owner, position = np.empty(len(order), np.int32), np.empty(len(order), np.int32)
        by_neighbour(flat.scope.reshape(-1, 2), gptr, order, owner, position)
    else:
        order, gptr, owner, position = places(flat, n)
    numbers = _numbers(every, rho, log)
    fac = np.zeros((len(flat.ids), 5), i8)
    base = len(numbers.toff)
    fac[:base, 0], fac[base:, 0] = numbers.toff, -1
    fac[:, 1], fac[:, 2] = flat.fptr[:-1], np.diff(flat.fptr)
    fac[:base, 3:] = numbers.codes
    widest = int(model.graph._n_states.max(initial=1))
    slot_kind = np.int32 if len(order) * widest < 2**31 else np.int64
    gslot: NDArray[Any] = np.empty((len(order), 4), slot_kind)
    fslot = np.empty(len(order), i8)
    general_slots(order, owner, position, flat.scope, model.graph._n_states, pairs, gslot, fslot)
    n_readers = sum(map(len, readers))
    if n_readers:  # their messages lie in the order of their literals, after all others
        literals = fslot[flat.fptr[base] : flat.fptr[base + n_readers]]
        is_literal = np.zeros(len(gslot), dtype=bool)
        is_literal[literals] = True
        others = np.flatnonzero(~is_literal)
        gslot[others, 2] = np.cumsum(gslot[others, 3]) - gslot[others, 3]
        sizes = gslot[literals, 3]
        gslot[literals, 2] = gslot[others, 3].sum() + np.cumsum(sizes) - sizes
    python_factors, begin = [], base + n_readers
    for g in speaking:
        slots = fslot[flat.fptr[begin] : flat.fptr[begin + len(g)]]
        entries = ranges(gslot[slots, 2], gslot[slots, 3]).reshape(len(g), -1)
        python_factors.append(PythonFactors(g, begin, entries))
        begin += len(g)
    machines = no_machines()
    if n_readers:
        machines = _machines(model, readers, numbers.ends, base, int(gslot[literals[0], 2]))
    return _General(
        gptr, machines, numbers.log, gslot, fac, fslot, numbers.tab,
        _NONE if rho is None else rho[flat.ids][owner], flat.ids, flat.scope[order],
        tuple(python_factors), numbers.scale, numbers.lowest,
        int(np.diff(gptr).max()) if pairs and n else 0,
    )  # fmt: skip


@cache
def no_machines() -> Machines:
    """For models without automata."""
    from minfer.kernels.messages.wiring import Machines

    i4, i8 = np.zeros(0, np.int32), np.zeros(0, np.int64)
    return Machines(
        0, i4, i4, i4, i4, np.zeros(0, np.uint8), i8, i8, i4, i4, i4, i8, i4, i4, i4, i8, _NONE,
        _NONE, _NONE,
    )  # fmt: skip


class GeneralNumbers(NamedTuple):
    """The numbers of general factors, linear or logs, each factor's largest being 1."""

    toff: NDArray[np.int64]  # (T,) where a table begins
    tab: NDArray[np.float64]
    codes: NDArray[np.int64]  # (T, 2) code and width of pairs of labels, else 0
    ends: list[NDArray[np.float64]]  # (F or 1, K) of each group of automata
    scale: float  # the sum of what was taken off their logs
    log: bool
    lowest: float  # of all entries of log-tables, zeros included


def _numbers(groups: list[FactorGroup], rho: NDArray | None, log: bool) -> GeneralNumbers:
    """Tables and automata among groups; in logs, if their range asks for it."""
    tables = [g for g in groups if g.form == "table"]
    codes, stored, ends = np.zeros((sum(map(len, tables)), 2), np.int64), [], []
    scale, lowest, done = 0.0, 0.0, 0
    for g in tables:
        taps = g.label_taps()
        values, more, low = _scaled(g, g.stored_tables() if taps is None else taps, rho)
        if taps is not None:
            values, code = encoded(values)
            codes[done : done + len(g), 0] = code
            codes[done : done + len(g), 1] = taps.shape[1] - 1
        stored.append(values)
        scale, lowest, done = scale + more, min(lowest, low), done + len(g)
    deepest = lowest
    for g in groups:
        if g.form == "machine":
            values, more, low = _scaled(g, g.machine().final, None)
            ends.append(values)
            scale, deepest = scale + more, min(deepest, low)
    log = log or deepest < -MAX_RANGE
    toff, tab = cells(tables, stored)
    if not log:
        tab, ends = np.exp(tab), [np.exp(e) for e in ends]
    lowest = -np.inf if any(g.has_zeros for g in tables) else lowest
    return GeneralNumbers(toff, tab, codes, ends, scale, log, lowest)


def _scaled(
    group: FactorGroup, values: NDArray[np.float64], rho: NDArray | None
) -> tuple[NDArray[np.float64], float, float]:
    """Logs (F or 1, n) of factors to the power 1/rho, scaled to maximum 0; the sum of what was
    taken off, and the lowest that is no zero."""
    weight = np.ones(1) if rho is None else rho[group._ids]
    if rho is not None:
        values = values / weight[:, None]
    tops = values.max(axis=1, initial=-np.inf)
    if (tops == -np.inf).any():
        if group.form == "table":
            raise ContradictionError("a table is zero everywhere: every assignment is forbidden")
        number = int(group._ids[int(np.argmin(tops)) if len(tops) > 1 else 0])
        raise ContradictionError(
            f"factor {number}, {group._a_noun}, forbids every assignment that is left"
        )
    values = values - tops[:, None]
    lowest = float(values.min(initial=0.0))
    if lowest == -np.inf:
        lowest = float(values.min(where=values > -np.inf, initial=0.0))
    return values, float((tops * weight).sum()) * (len(group) if len(values) == 1 else 1), lowest


def _machines(
    model: Conditioned, groups: list[FactorGroup], ends: list[NDArray], base: int, place: int
) -> Machines:
    """Automata one after the other; their messages begin at ``place``."""
    from minfer.kernels.messages.wiring import Machines

    graph, flat = model.graph, scopes(groups)
    machines = [g.machine()._replace(final=final) for g, final in zip(groups, ends)]
    auto = automata(machines)
    code = [_code(m.step, g.shape) for g, m in zip(groups, machines)]
    most = max((g.arity + 3) * (e.shape[1] + 1) + 2 * g.arity for g, e in zip(groups, ends))
    card = graph._n_states[flat.scope]
    begin = np.concatenate([[0], np.cumsum(card, dtype=np.int64)])
    none = np.zeros(0, np.int32)
    return Machines(
        base, np.arange(len(flat.ids), dtype=np.int32), none, none, np.zeros(1, np.int32),
        np.repeat(np.array(code, dtype=np.uint8), [len(g) for g in groups]), flat.fptr,
        place + begin[flat.fptr[:-1]], graph._offsets[flat.scope].astype(np.int32), card,
        *auto, np.zeros(max(most, 64)), np.zeros(int(graph._offsets[-1])),
    )  # fmt: skip


def _code(step: NDArray[np.int32], shape: tuple[int, ...]) -> int:
    """Which of the automata that kernels write out these are, or OTHER."""
    from minfer.kernels.messages import automata as k

    if not (step == step[:1]).all():
        return k.OTHER
    n, flat = step.shape[1], step[0].ravel()
    if n == 2 and all(s == 2 for s in shape) and flat[:3].tolist() == [0, 1, 1]:
        return {1: k.STAY, 0: k.BACK, -1: k.DEAD}[int(flat[3])]
    if np.array_equal(flat[::2], np.arange(n)) and np.array_equal(flat[1:-1:2], np.arange(1, n)):
        return {-1: k.LIMIT, n - 1: k.CAP}.get(int(flat[-1]), k.OTHER)
    return k.OTHER


def encoded(taps: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Log-taps (n, T) as the logs of what messages are made of, and by which code of
    :mod:`minfer.kernels.messages.labels`, (n,). Filters stand for taps that fall by one ratio to
    the last digits; their rounding is no more than that of a table's entries."""
    from minfer.kernels.messages.labels import BAND, CHAIN, CHAIN_FROM, RISE

    end, inner = taps[:, -1:], taps[:, :-1]
    numbers = np.concatenate([end, inner], axis=1)
    codes = np.where((inner >= end).all(axis=1), RISE, BAND).astype(np.int64)
    width = inner.shape[1]
    if width >= CHAIN_FROM:
        with np.errstate(invalid="ignore"):
            fall = (inner[:, -1:] - inner[:, :1]) / (width - 1)
            line = inner[:, :1] + fall * np.arange(width)
            exact = (np.abs(line - inner) <= 2e-15 * (1.0 + np.abs(inner))).all(axis=1)
        codes[exact & (fall[:, 0] < 0.0)] = CHAIN
    rise = codes == RISE
    with np.errstate(divide="ignore", invalid="ignore"):
        above = inner[rise] + np.log(-np.expm1(end[rise] - inner[rise]))
    numbers[rise, 1:] = np.where(inner[rise] > end[rise], above, -np.inf)
    return numbers, codes


def to_log(values: NDArray) -> NDArray:
    with np.errstate(divide="ignore"):
        return np.log(values)
