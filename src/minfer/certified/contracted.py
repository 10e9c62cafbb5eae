"""Exact: the whole model by contraction, where clique trees are too wide.

What the evidence does not reach is taken off first (:mod:`minfer.engine.leaves`), what is left
simplified, and contracted (:mod:`minfer.engine.contraction`) within the memory allowed. That gives
log Z and every marginal up to rounding; what was taken off gets intervals from those of its
neighbours.

**When.** A tree is looked for once the budget is worth it, a better one at every level, and it is
used once its work is at most ``PAYS`` times the level's, since it leaves nothing to do. It is not
begun where its forecast says that it will not end within what is left of the time, or of the work,
in doubles or else in single precision, which takes half of both and comes to intervals of some
1e-3. Where it takes longer after all, the slices left are only summed, and the heaviest of them
gone back through while there is time: what is left then is what every interval is wider by.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from minfer.certified.rounding import U
from minfer.errors import RefusedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from minfer.certified.bounds import Bounds, Effort, Refining
    from minfer.certified.local import LocalBounds
    from minfer.engine.buckets.bounds import PreparedBuckets
    from minfer.engine.contraction import Contraction, ContractionTree, Planner, SliceAnswer

    Floats = NDArray[np.float64]

#: Units of a level from which on a tree is looked for; exchanges for each table in the first look,
#: with four times as many in each that follows; looks.
WORTH, EXCHANGES, LOOKS = 2.0**24, 6000, 3
#: Work for each exchange and variable of the next look, below which none is made any more.
LOOK_WORK = 4.0
#: So many times the units of a level may go into a contraction.
PAYS = 3072.0
#: Variables of a model that is contracted, and joint states of one table.
MOST_VARIABLES, MOST_CELLS = 3000, 2.0**22
#: Bytes, and slices.
MEMORY, SLICES = 2.0**30, 1000
#: Units and seconds of a cell in doubles, and what part of both singles take; units and seconds of
#: an exchange, by the variable.
PER_CELL, SECONDS, SINGLE = 0.125, 0.11e-9, 0.5
#: The part of a slice that its own sum takes; the part of a contraction that must fit the time,
#: since the heaviest slices, and the sums of all, say much of every marginal.
FORWARD, MOST_OF_IT = 0.45, 0.8
PER_EXCHANGE, EXCHANGE_SECONDS = 0.2, 1.5e-9
#: Units and seconds of tables and a first order, for each variable.
PREPARED, PREPARED_SECONDS = 50_000.0, 5e-4
#: Rounding that is not worth it: of the tables, in log Z; of the passes, in doubles and in singles.
MOST_ERROR = 0.01
MOST_LOST = {np.float64: 1e-4, np.float32: 0.02}


class Contracted:
    """See the module."""

    name = "exact"
    gradual = False

    def __init__(self) -> None:
        self._of: LocalBounds | None = None
        self._over = False

    def refine(self, now: Refining) -> bool:
        local, bounds, wanted, budget, effort = now
        if local is not self._of:
            self._of, self._over, self._looks = local, False, 0
            self._planner: Planner | None = None
            self._tree: ContractionTree | None = None
        level = budget * int(wanted.sum())
        if self._over or not (bounds.width[wanted] > MOST_ERROR * 1e-6).any():
            return False
        if level < WORTH:
            return True
        if self._planner is None:
            if not effort.has_room(PREPARED_SECONDS * len(wanted), PREPARED * len(wanted)):
                return True
            if not self._prepare(local, effort):
                self._over = True
                return False
        tree = self._look(level, effort)
        if tree is None or tree.work > PAYS * level:
            return self._looks < LOOKS or tree is not None
        kind: type[np.floating] = np.float64
        if not effort.has_room(tree.work * SECONDS, tree.work * PER_CELL):
            kind, work = np.float32, SINGLE * tree.work
            if not effort.has_room(MOST_OF_IT * work * SECONDS, work * PER_CELL):
                return self._looks < LOOKS
        self._over = True
        self._contract(tree, kind, bounds, effort)
        return False

    def _look(self, level: float, effort: Effort) -> ContractionTree | None:
        """A better tree, as long as that may pay now."""
        planner = self._planner
        assert planner is not None
        while self._looks < LOOKS and effort.go_on():
            moves = EXCHANGES * len(self._scopes) << 2 * self._looks
            tree = self._tree
            steps = moves * len(self._card)
            if tree is not None and tree.work < LOOK_WORK * steps:
                break
            after = 0.0 if tree is None else SINGLE * tree.work * SECONDS
            if not effort.has_room(after, 0.0):
                after = 0.0  # hopeless without a better one
            if not effort.has_room(steps * EXCHANGE_SECONDS + after, steps * PER_EXCHANGE):
                break
            self._looks += 1
            planner.improve(moves)
            found = planner.tree(MEMORY, SLICES, moves // 8)
            if found is not None and (tree is None or found.work < tree.work):
                self._tree = found
            effort.spend(PER_EXCHANGE * steps)
            if self._tree is None or self._tree.work > 8.0 * PAYS * level:
                break
        return self._tree

    def _prepare(self, local: LocalBounds, effort: Effort) -> bool:
        """Tables and a first tree; whether there can be one."""
        from minfer.engine.buckets.bounds import prepare
        from minfer.engine.buckets.plan import find_order
        from minfer.engine.contraction import Planner
        from minfer.engine.elimination import adjacency

        if not 0 < int((local.model.fixed < 0).sum()) <= MOST_VARIABLES:
            return False
        self._peeled = local.peeled
        try:
            self._prepared = prepare(self._peeled.model)
        except RefusedError:
            return False
        if not self._lay_out(self._prepared):
            return False
        links = adjacency(self._prepared.tables)
        order = links.variables[find_order(links, None).order].tolist()
        place = {v: i for i, v in enumerate(self._variables)}
        order = [place[v] for v in order if v in place]
        self._planner = Planner(self._scopes, self._card, order)
        effort.spend(PREPARED * len(links.variables))
        return True

    def _lay_out(self, prepared: PreparedBuckets) -> bool:
        """The leaves of the tree: tables whose variables no other has all of, fields in them."""
        from minfer.engine.layout import flatten

        tables = prepared.tables
        flat = flatten(tables)
        card = flat.card.tolist()
        logs: dict[tuple[int, ...], Floats] = {}
        sizes: dict[tuple[int, ...], float] = {}

        def add(scope: tuple[int, ...], into: tuple[int, ...], table: Floats) -> None:
            shape = [card[v] if v in scope else 1 for v in into]
            logs[into] = logs[into] + table.reshape(shape)
            most = np.abs(table[np.isfinite(table)]).max(initial=0.0)
            sizes[into] = sizes.get(into, 0.0) + float(most)
            times[into] = times.get(into, 0) + 1

        times: dict[tuple[int, ...], int] = {}
        found: list[tuple[tuple[int, ...], Floats]] = []
        for k in range(len(flat.toff)):
            scope = flat.scope[flat.fptr[k] : flat.fptr[k + 1]].tolist()
            shape = [card[v] for v in scope]
            if math.prod(shape) > MOST_CELLS or len(set(scope)) < len(scope):
                return False
            at = int(flat.toff[k])
            table = flat.log_psi[at : at + math.prod(shape)].reshape(shape)
            by = np.argsort(scope)
            found.append((tuple(sorted(scope)), table.transpose(by)))
        for v in np.flatnonzero(tables.fixed < 0).tolist():
            found.append(((v,), flat.field[flat.off[v] : flat.off[v + 1]]))
        holders: dict[int, list[tuple[int, ...]]] = {}
        for scope, table in sorted(found, key=lambda one: (-len(one[0]), one[0])):
            into = (
                next((s for s in holders.get(scope[0], ()) if set(scope) <= set(s)), None)
                if scope
                else None
            )
            if into is None:
                into = scope
                logs[into] = np.zeros([card[v] for v in scope])
                for v in scope:
                    holders.setdefault(v, []).append(into)
            add(scope, into, table)
        #: Those that any table has, the numbers of which are places here from now on.
        self._variables = sorted({v for scope in logs for v in scope})
        place = {v: i for i, v in enumerate(self._variables)}
        self._scopes = [tuple(place[v] for v in scope) for scope in logs]
        self._card = [card[v] for v in self._variables]
        self._states = np.repeat(np.isin(np.arange(len(card)), self._variables), card)
        self._error = sum((times[s] + 4) * 2 * U * sizes[s] for s in logs)
        tops = [float(t.max()) for t in logs.values()]
        if not all(math.isfinite(t) for t in tops) or not self._error < MOST_ERROR:
            return False
        self._tables = [np.exp(t - top) for t, top in zip(logs.values(), tops)]
        self._top = math.fsum([*tops, tables.constant, *tables.field[tables.fixed_at].tolist()])
        self._error += 4 * U * (abs(self._top) + len(tops))
        return bool(self._scopes)

    def _contract(
        self, tree: ContractionTree, kind: type[np.floating], bounds: Bounds, effort: Effort
    ) -> None:
        from minfer.engine.contraction import Contraction

        passes = Contraction(tree, self._tables, [0.0] * len(self._tables), kind)
        slices = [
            dict(zip(tree.sliced, states))
            for states in np.ndindex(*(self._card[v] for v in tree.sliced))
        ]
        answers: list[SliceAnswer] = []
        cells = tree.work / tree.slices * (1.0 if kind is np.float64 else SINGLE)

        def one(k: int, whole: bool) -> SliceAnswer | None:
            effort.spend(cells * PER_CELL * (1.0 if whole else FORWARD))
            return passes.slice(slices[k], whole, effort.go_on)

        whole, began, each = True, effort.seconds, 0.0
        for k in range(len(slices)):
            found = one(k, whole)
            if found is None:
                return
            answers.append(found)
            if k == 0:
                began = effort.seconds  # the first takes longer
                continue
            each = (effort.seconds - began) / k if whole else each
            left = each * (len(slices) - k - 1)
            whole = whole and effort.has_room(left, 0.0)
            if not whole and not effort.has_room(FORWARD * left, 0.0):
                return  # the forecast was wrong
        heavy = sorted(range(len(slices)), key=lambda k: answers[k].size, reverse=True)
        for k in heavy:
            if answers[k].shares is None and answers[k].whole.m > 0.0:
                if not effort.has_room(1.5 * each, 0.0):
                    break
                answers[k] = one(k, True) or answers[k]
        self._offer(passes, answers, bounds)

    def _offer(self, passes: Contraction, answers: list[SliceAnswer], bounds: Bounds) -> None:
        some = [a for a in answers if a.whole.m > 0.0]
        if not some:
            return  # nothing is possible, or underflow
        e = max(a.whole.e for a in some)
        weight = [math.ldexp(a.whole.m, max(a.whole.e - e, -3000)) for a in some]
        whole = math.fsum(weight)
        lost = sum(_shifted(a.whole.lost, a.whole.e - e) for a in answers)
        most = MOST_LOST[passes.kind]
        off_by = [(n + 64.0) * passes.u + len(some) * U for n in passes.roundings]
        if not (max(off_by) < most and lost < most * whole):
            return
        error = self._peeled.error + self._prepared.error + self._error
        loose, of_share = (x / (1.0 - x) * 1.01 + 2.0 * lost / whole for x in off_by)
        log_z = math.log(whole) + e * math.log(2.0) + self._top
        slack = 1.1 * loose + error + 8 * U * (abs(log_z) + abs(self._top) + abs(e) + 1.0)
        bounds.offer_log_z(log_z - slack, log_z + slack)
        known = [(w * a.shares, a.lost) for w, a in zip(weight, some) if a.shares is not None]
        if not known:
            return
        lo, hi = np.zeros(len(self._states)), np.zeros(len(self._states))
        lo[self._states] = np.sum([part for part, _ in known], axis=0) / whole
        hi[self._states] = math.fsum(w for w, a in zip(weight, some) if a.shares is None) / whole
        hi += lo
        wide = math.expm1(min(4.0 * of_share + 4.0 * error, 50.0)) + 1e-15
        pad = 4.0 * (max(lost_here for _, lost_here in known) + lost / whole) + 1e-300
        if not pad < 1.0:
            return
        self._offer_shares(np.maximum(lo * (1 - wide) - pad, 0.0), hi * (1 + wide) + pad, bounds)

    def _offer_shares(self, lo: Floats, hi: Floats, bounds: Bounds) -> None:
        """Ends of the tables' variables, as the user's."""
        from minfer.engine.buckets.bounds import users_ends

        low, high = self._peeled.core(*users_ends(self._prepared, lo, np.minimum(hi, 1.0)))
        bounds.offer_all(self.name, low, high)
        if self._peeled.leaves:
            bounds.offer_all("leaves", *self._peeled.ends(bounds.lo, bounds.hi))


def _shifted(x: float, e: int) -> float:
    try:
        return math.ldexp(x, e)
    except OverflowError:
        return math.inf
