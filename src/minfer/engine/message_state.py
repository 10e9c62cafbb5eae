"""What message passing starts from and leaves behind: messages, and the answers they hold.

:class:`MessageState` keeps wiring and messages to answer later questions (log Z, joint marginals of
factors) or to start the next run: messages are found again by the factor's number in the lineage,
so a warm start survives ``keep``, new evidence and new weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.engine.wiring import (
    MACHINE,
    MAX_RANGE,
    PAIR,
    SOME,
    SPEAKS,
    TABLE,
    Wired,
    ranges,
    refill,
    to_log,
)
from minfer.factors.group import FactorGroup, n_entries
from minfer.kernels.backend import backend

if TYPE_CHECKING:
    from minfer.engine.conditioning import Conditioned
    from minfer.kernels.messages.wiring import Confirmation, WiredMessages, Wiring
    from minfer.solvers.base import Marginals

_NONE = np.zeros(0)
_NO_ORDER = np.zeros(0, dtype=np.int64)
_NO_WAYS = np.zeros((0, 4), dtype=np.int64)
#: Numbers of a wiring up to which it is kept for the next run on the same graph.
KEPT = 1 << 20
#: What schedules other than the residual one have for sweeps to wake.
NO_WAKE = np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.uint8), np.zeros(0)


class _WiredModel(NamedTuple):
    """What a wiring that is kept needs to know of its model, which would keep its graph alive."""

    groups: tuple[FactorGroup, ...]
    fixed: NDArray[np.int32]
    field: NDArray[np.float64]


def wired(
    model: Conditioned,
    make: Callable[[Conditioned], Wired],
    name: str | None,
    reweighted: bool,
    start: Marginals | None = None,
    kept: Wired | None = None,
    known: NDArray[np.int32] | None = None,
    rho: NDArray[np.float64] | None = None,
) -> Wired | None:
    """The model laid out for a run: the wiring of the run it starts from, one that was ``kept``, or
    that of the graph or of one that differs in the field (``name`` in
    :attr:`FactorGraph._conditioning`, None: not kept), with other numbers
    (:func:`minfer.engine.wiring.refill`, which says what ``known`` and ``rho`` are); where none
    fits, ``make(model)``, or None if there are ``known`` states."""
    at_hand = model.graph._conditioning
    last: Wired | None = None  # of the run that it starts from
    if start is not None and start.graph.lineage == model.graph.lineage:
        last = start.state.mesh if isinstance(start.state, MessageState) else None
    for old in (last, kept, at_hand.get(name or "")):
        if old is None or old.reweighted != reweighted or old.known is not None:
            continue
        told = last is not None and last.slot is old.slot  # then all pair messages are there
        mesh = refill(old, model, known, not told, rho)
        if mesh is not None:
            return mesh.for_a_run(old)
    if known is not None:
        return None
    mesh = make(model)
    w = mesh.wiring
    if name is None or len(w.rev) + w.gslot.size + len(w.tab) > KEPT:
        return mesh
    at_hand[name] = mesh.changed(model=_WiredModel(model.groups, model.fixed, model.field))
    return mesh.for_a_run(at_hand[name])


def fresh_messages(mesh: Wired, blank: bool = False) -> WiredMessages:
    """Messages that say nothing yet: uniform, seen from the tables as they were given.

    ``blank``: the caller writes general ones, and beliefs, before anybody reads them, and makes
    room for cavities if it needs them. Pair messages are ``mesh.first`` itself
    (:meth:`Wired.for_a_run`); what tree-reweighted runs keep beside them is the caller's.
    """
    from minfer.kernels.messages.wiring import WiredMessages

    w = mesh.wiring
    states, flag = int(w.off[-1]), np.zeros(2, dtype=np.int64)
    bel = np.empty(states) if blank else np.full(states, 0.5)
    if not w.field.size:  # pairs alone need no room but this
        return WiredMessages(
            mesh.first, np.empty(len(w.rho)), _NONE, _NONE, bel, np.zeros(2), np.zeros(2), flag
        )
    size = int(w.gslot[:, 3].sum())
    to_variable, to_factor = np.empty(size), np.empty(0 if blank else size)
    if not blank:
        to_variable[:] = to_factor[:] = 0.0 if mesh.log else 1.0
    widest = int(w.card.max(initial=2))
    starts = np.append(w.fac[w.fac[:, 0] >= 0, 0], len(w.tab))  # in order; some share one
    most = max(int(np.diff(starts).max(initial=1)), widest)
    if w.fac[:, 3].any():  # room for messages by distance
        most = max(most, 3 * widest, 2 * widest + 2 * int(w.fac[:, 4].max()) + 24)
    return WiredMessages(
        mesh.first, np.empty(len(w.rho)), to_variable, to_factor, bel,
        np.zeros(max(widest, 2)), np.zeros(most), flag,
    )  # fmt: skip


def start_messages(mesh: Wired, start: Marginals | None, blank: bool = False) -> WiredMessages:
    """Messages of an earlier run where its factors are still there, fresh ones elsewhere; none with
    a zero is taken over: the factor or evidence behind it may be gone."""
    s, w = fresh_messages(mesh, blank), mesh.wiring
    old = start.state if start is not None else None
    done = False
    if isinstance(old, MessageState) and start is not None:
        graph, before = mesh.model.graph, start.graph
        if before.lineage == graph.lineage and old.mesh.reweighted == mesh.reweighted:
            now, then = graph.origin, before.origin
            same = mesh.slot is old.mesh.slot
            if same:
                s.m[:] = old.messages.m
            else:
                i, j = _match(now[mesh.pair_ids], then[old.mesh.pair_ids])
                s.m[mesh.slot[i].ravel()] = old.messages.m[old.mesh.slot[j].ravel()]
            if w.W is not old.mesh.wiring.W:  # messages of other weights, to between 1 and W
                np.clip(s.m, np.minimum(w.W, 1.0), np.maximum(w.W, 1.0), out=s.m)
            done = same and mesh.known is None and w.rho is old.mesh.wiring.rho
            if done and len(s.weighted_log):
                moved = s.m != old.messages.m
                s.weighted_log[:] = old.messages.weighted_log
                s.weighted_log[moved] = w.rho[moved] * np.log(s.m[moved])
            _copy_general(mesh, s, old, now, then)
    if mesh.known is not None:  # known variables of pairs say 1 or W from the beginning
        told = np.flatnonzero(mesh.known >= 0)
        slots, degree = _slots(w, told)
        s.m[w.rev[slots]] = np.where(np.repeat(mesh.known[told] == 1, degree), w.W[slots], 1.0)
    if len(s.weighted_log) and not done:
        np.log(s.m, out=s.weighted_log)
        s.weighted_log[:] *= w.rho
    return s


def _slots(w: Wiring, variables: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pair slots of some variables, and how many each has."""
    first = w.ptr[variables].astype(np.int64)
    degree = w.ptr[variables + 1].astype(np.int64) - first
    return ranges(first, degree), degree


def _match(new: NDArray, old: NDArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of equal keys in two arrays without duplicates."""
    _, i, j = np.intersect1d(new, old, assume_unique=True, return_indices=True)
    return i, j


def _copy_general(
    mesh: Wired, s: WiredMessages, old: MessageState, now: NDArray, then: NDArray
) -> None:
    new, before = mesh.wiring.gslot, old.mesh.wiring.gslot
    if not len(new) or not len(before):
        return
    floor = -MAX_RANGE / 2 if mesh.log else np.exp(-MAX_RANGE / 2)
    size, mine, theirs = int(new[0, 3]), now[mesh.general_ids], then[old.mesh.general_ids]
    alike = new is before and mesh.log == old.mesh.log and len(s.to_variable) == size * len(new)
    some = [slice(k, k + SOME) for k in range(0, len(new), SOME)]
    alike = alike and all((new[k, 3] == size).all() and not (new[k, 2] % size).any() for k in some)
    if alike and np.array_equal(mine, theirs):  # all where they were, one after the other
        rows, out = old.messages.to_variable.reshape(-1, size), s.to_variable.reshape(-1, size)
        for k in some:
            np.copyto(out[k], rows[k], where=rows[k].min(axis=1, keepdims=True) > floor)
        return
    width = int(max(new[:, 1].max(), before[:, 1].max())) + 1
    i, j = _match(mine[new[:, 0]] * width + new[:, 1], theirs[before[:, 0]] * width + before[:, 1])
    same = new[i, 3] == before[j, 3]
    i, j, sizes = i[same], j[same], new[i[same], 3]
    if not len(i):
        return
    values = old.messages.to_variable[ranges(before[j, 2], sizes)]
    if mesh.log != old.mesh.log:
        values = to_log(values) if mesh.log else np.exp(values)
    usable = np.minimum.reduceat(values, np.cumsum(sizes) - sizes) > floor
    s.to_variable[ranges(new[i[usable], 2], sizes[usable])] = values[np.repeat(usable, sizes)]


class FactorMessages(NamedTuple):
    """What factors tell variables, M messages, those of a variable together; in logs, of which only
    differences count."""

    vptr: NDArray[np.int64]  # (V+1,) messages of a variable
    factor: NDArray[np.int64]  # (M,) its number
    ptr: NDArray[np.int64]  # (M+1,) entries of a message
    log: NDArray[np.float64]


@dataclass(eq=False)
class MessageState:
    """What BP and TRW leave: wiring and messages, enough for log Z, factor beliefs, a new start.

    Where a run has converged on a loopy core, ``before`` has the messages that the last update
    began with: computed anew from there, undamped, nothing moves by more than ``tol``. Models of
    more than a million messages keep neither these nor cavities.
    """

    mesh: Wired
    messages: WiredMessages
    before: Confirmation | None = None
    bound: bool = False  # tree-reweighted: log Z is an upper bound
    damping: float = 0.0  # of the run that left them

    def log_z(self) -> float:
        value = self.bethe()
        return value + self._allowance() if self.bound and not self.is_forest else value

    def told(self) -> FactorMessages:
        """All messages into variables, as the model's own tables define them; not reweighted."""
        mesh, w, s = self.mesh, self.mesh.wiring, self.messages
        pairs = self._pair_odds(s.m).ravel()
        log = np.stack([np.zeros(len(pairs)), pairs], axis=1).ravel()
        log = np.concatenate([log, s.to_variable if mesh.log else to_log(s.to_variable)])
        first = np.concatenate([2 * np.arange(len(pairs)), 2 * len(pairs) + w.gslot[:, 2]])
        size = np.concatenate([np.full(len(pairs), 2), w.gslot[:, 3]])
        factor = np.concatenate([np.repeat(mesh.pair_ids, 2), mesh.general_ids[w.gslot[:, 0]]])
        variable = np.concatenate([mesh.pair_scope.ravel(), mesh.gowner])
        order = np.argsort(variable, kind="stable")
        vptr = np.searchsorted(variable[order], np.arange(len(w.card) + 1))
        ptr = np.concatenate([[0], np.cumsum(size[order])])
        return FactorMessages(vptr, factor[order], ptr, log[ranges(first[order], size[order])])

    def _pair_odds(self, m: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log-odds (P, 2) that pairs tell their variables: the unary parts of their tables, which
        were absorbed, given back."""
        mesh, rho = self.mesh, self.mesh.wiring.rho
        lean = np.zeros((len(mesh.pair_ids), 2))
        for g in mesh.model.groups:
            if g.form == "table" and g.shape == (2, 2) and len(mesh.pair_ids):
                order = np.argsort(g._ids, kind="stable")
                at = np.searchsorted(g._ids[order], mesh.pair_ids)
                row = order[np.minimum(at, len(order) - 1)]
                mine = g._ids[row] == mesh.pair_ids
                t = g.log_tables()[row[mine]]
                lean[mine] = np.stack([t[:, 2] - t[:, 0], t[:, 1] - t[:, 0]], axis=1)
        return np.log(m[mesh.slot]) + (lean / rho[mesh.slot] if len(rho) else lean)

    @property
    def is_forest(self) -> bool:
        return self.mesh.is_forest

    def _allowance(self) -> float:
        """What makes the reweighted Bethe value a bound at any messages, rounding included."""
        mesh, s, on = self.mesh, self.messages, backend()
        if mesh.wiring.gslot.size:
            s = refresh_cavities(mesh, s)
        slack, size = on.kernels("messages.bethe").tree_slack(
            *on.put((mesh.wiring, s, mesh.slot, mesh.pair_scope, *self._odds))
        )
        given, most = _given(mesh.model)
        return slack + np.finfo(float).eps * (16 * size + (64 + most) * given)

    def bethe(self) -> float:
        """The (reweighted) Bethe value of the messages as they are."""
        mesh, w, s, on = self.mesh, self.mesh.wiring, self.messages, backend()
        bethe = on.kernels("messages.bethe")
        odds, linear = self._odds
        total = mesh.constant
        if mesh.known is not None:  # a known variable says its state's part of each message
            pair = self._known_pairs
            odds, linear = odds.copy(), linear.copy()
            odds[pair], linear[pair] = -np.inf, np.nan  # log(1 + 0): nothing more
            slots, _ = _slots(w, pair[mesh.known[pair] == 1])
            total += float(
                (s.weighted_log[slots] if len(s.weighted_log) else np.log(s.m[slots])).sum()
            )
        total += bethe.variable_terms(*on.put((w, s, odds, linear)), mesh.log)
        pairs = w.W, w.rho, s.m, mesh.slot, mesh.pair_scope, *self._odds
        total += bethe.pair_terms(*on.put(pairs))
        if len(w.gslot):
            s = refresh_cavities(mesh, s)
            total += bethe.general_terms(*on.put((w, s)), mesh.log)
        if len(mesh.machines.code):
            total += self._partitions(s, _NONE)
        for asked in mesh.python_factors:
            incoming = s.to_factor[asked.entries]
            incoming = incoming if mesh.log else to_log(incoming)
            every = np.arange(len(asked.group))
            total += float(asked.group.messages(every, incoming, np.empty_like(incoming)).sum())
        return total

    @cached_property
    def _odds(self) -> NDArray[np.float64]:
        """Belief log-odds of binary variables, infinite where evidence knows; and the odds
        themselves where they multiply safely, NaN elsewhere. (2, V)."""
        on = backend()
        w, s, out = on.put(
            (self.mesh.wiring, self.messages, np.zeros((2, len(self.mesh.wiring.card))))
        )
        on.kernels("messages.bethe").log_odds(w, s, out)
        out = on.get(out)
        if self.mesh.known is not None:
            pair = self._known_pairs
            out[0, pair] = np.where(self.mesh.known[pair] == 1, np.inf, -np.inf)
            out[1, pair] = np.nan
        return out

    @property
    def _known_pairs(self) -> NDArray[np.int64]:
        """Variables in odds form that evidence of this run has fixed."""
        from minfer.kernels.messages.wiring import GENERAL

        known, w = self.mesh.known, self.mesh.wiring
        assert known is not None
        return np.flatnonzero((known >= 0) & (w.kind < GENERAL))

    def factor(self, factor: int) -> NDArray[np.float64] | None:
        """The factor's belief: its table times the cavities, normalised."""
        graph = self.mesh.model.graph
        shape = tuple(int(s) for s in graph._n_states[graph.scope(factor)])
        found = self.factors(np.array([factor]))
        return None if found is None else found[0].reshape(shape)

    def factors(self, factors: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """Beliefs of factors of one shape, (n, cells); None if one has no table."""
        graph, form = self.mesh.model.graph, self.mesh.roles.form
        if not len(factors) or (form[factors] == SPEAKS).any():
            return None
        if graph.arity[factors[0]] == 0:
            return np.ones((len(factors), 1))
        if (form[factors] == MACHINE).any() and not graph._locate(int(factors[0]))[0].has_tables:
            return None
        return self.mesh.model.joints(factors, self.messages.bel, self._joints)

    def _joints(self, factors: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Beliefs of factors over two or more free variables, of one shape, (n, cells)."""
        mesh, w, s = self.mesh, self.mesh.wiring, self.messages
        out = np.empty((len(factors), n_entries(shape)))
        form, row = mesh.roles.form[factors], mesh.roles.row[factors]
        if (form != PAIR).any():
            s = refresh_cavities(mesh, s)
        on = backend()
        k = on.kernels("messages.bethe")
        for kind in [form[0]] if (form == form[0]).all() else np.unique(form):
            mine = form == kind
            rows = row[mine]
            if kind == 0:  # constant by now: nothing ties its variables but others
                scope = mesh.model.graph.scopes(factors[mine])
                scope = scope[mesh.model.fixed[scope] < 0].reshape(-1, len(shape))
                out[mine] = mesh.model.products(scope, shape, s.bel)
                continue
            found = on.put(out if len(rows) == len(out) else np.empty((len(rows), out.shape[1])))
            if kind == PAIR:
                pairs = rows, mesh.slot, mesh.pair_scope, w.off, s.bel, s.m, w.W
                k.pair_beliefs(*on.put(pairs), found)
            else:
                plain = kind == TABLE and not w.fac[rows, 3].any()
                parts = w if plain else self._written_out(factors[mine], rows)
                k.table_beliefs(*on.put((parts, s.to_factor, rows)), mesh.log, found)
            found = on.get(found)
            if found is not out:
                out[mine] = found
        return out

    def _written_out(self, factors: NDArray[np.int64], rows: NDArray[np.int64]) -> Wiring:
        """The wiring with some factors of one form and shape as tables (psi^{1/rho})."""
        w, fac, start, parts = self.mesh.wiring, self.mesh.wiring.fac.copy(), 0, []
        for g in self.mesh.model.groups:
            mine = np.isin(factors, g._ids) if g.arity > 1 else np.zeros(0, dtype=bool)
            if mine.any():
                tables = g.log_tables(np.searchsorted(g._ids, factors[mine]))
                if len(w.grho):
                    tables = tables / w.grho[w.fslot[fac[rows[mine], 1]]][:, None]
                tables = tables - tables.max(axis=1, keepdims=True)
                fac[rows[mine], 0] = start + np.arange(len(tables)) * tables.shape[1]
                start += tables.size
                parts.append(tables.ravel())
        tab = np.concatenate(parts)
        fac[:, 3:] = 0
        return w._replace(fac=fac, tab=tab if self.mesh.log else np.exp(tab))

    def means(self, group: FactorGroup) -> NDArray[np.float64] | None:
        """Expected statistics of a group of the graph, (F, k), if all are pairs as wired: of two
        binary variables, in odds, or of labels by their distance, without their joints."""
        mesh, basis = self.mesh, group.basis()
        if mesh.model.has_fixed:
            return None
        found = self._distance_means(group)
        if found is not None:
            return found
        if basis is None or group.shape != (2, 2):
            return None
        if not (mesh.roles.form[group._ids] == PAIR).all():
            return None
        return self._joints(group._ids, group.shape) @ basis.T

    def _distance_means(self, group: FactorGroup) -> NDArray[np.float64] | None:
        """Expected statistics of pairs of labels, (F, k); None where some are wired otherwise."""
        mesh, w, s = self.mesh, self.mesh.wiring, self.messages
        rows, taps = mesh.roles.row[group._ids], group.label_taps()
        if taps is None or mesh.log or not (mesh.roles.form[group._ids] == TABLE).all():
            return None
        if not w.fac[rows, 3].all():
            return None
        s = refresh_cavities(mesh, s)
        taps = np.exp(taps - taps.max(axis=1, keepdims=True))
        which = np.arange(len(group)) if len(taps) > 1 else np.zeros(len(group), dtype=np.int64)
        on = backend()
        mass = on.put(np.empty((len(group), taps.shape[1])))
        on.kernels("messages.labels").belief_masses(
            *on.put((w, rows, s.to_factor, taps, which)), group.shape[0], mass
        )
        return group.distance_statistics(on.get(mass))

    def ends(self, group: FactorGroup) -> NDArray[np.float64] | None:
        """Beliefs over the end states of a group of automata of the graph, (F, K), which
        :meth:`minfer.factors.Logical.end_statistics` takes; None where evidence has left something
        else of them."""
        mesh, done, ids, found = self.mesh, 0, [_NO_ORDER], []
        if not len(mesh.machines.code):
            return None
        ends = np.empty(int(mesh.machines.n_ends.sum()))
        self._partitions(refresh_cavities(mesh, self.messages), ends)
        for g in mesh.model.groups:
            if g.form == "machine":
                size = len(g) * g.machine().final.shape[1]
                if np.isin(g._ids, group._ids).all():
                    if type(g) is not type(group):
                        return None
                    ids.append(g._ids)
                    found.append(ends[done : done + size].reshape(len(g), -1))
                done += size
        order = np.argsort(np.concatenate(ids))
        return np.concatenate(found)[order] if len(order) == len(group) else None

    def _partitions(self, s: WiredMessages, ends: NDArray[np.float64]) -> float:
        """The sum of log Z_f of automata; ``ends`` gets beliefs over end states, or is empty."""
        on, there = backend(), backend().put(ends)
        value = on.kernels("messages.automata").partitions(
            *on.put((self.mesh.machines, s)), self.mesh.log, there
        )
        on.write(ends, on.get(there))
        return value

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


def refresh_cavities(mesh: Wired, s: WiredMessages) -> WiredMessages:
    """Cavities of all general variables from the messages as they are; beliefs stay. Runs that need
    none have no room for them; what is returned has."""
    if len(s.to_factor) < len(s.to_variable):
        s = s._replace(to_factor=np.empty_like(s.to_variable))
    on, ma = backend(), mesh.machines if len(mesh.machines.code) else None
    w, there, watch, residual, wake = on.put(
        (mesh.wiring, s._replace(bel=s.bel.copy()), watch_for(-1.0), np.zeros(1), NO_WAKE)
    )
    bp = on.kernels("messages.sweeps")
    ma = None if ma is None else on.put(ma)
    bp.sweeps(w, ma, there, watch, bp.START, 1, residual, *mesh.kinds(), wake)
    on.write(s.to_factor, on.get(there.to_factor))
    return s


def watch_for(tol: float, damping: float = 0.0) -> Confirmation:
    """A watch over a run to come, without room for anything yet."""
    from minfer.kernels.messages import wiring as k

    control = np.zeros(12)
    control[k.TRIGGER] = control[k.TOL] = tol
    control[k.LAST], control[k.DAMPING] = np.inf, damping
    none = _NONE
    return k.Confirmation(_NO_ORDER, control, none, none, none, none, none, _NO_WAYS, none)
