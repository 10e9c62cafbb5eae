"""Bounds that close: best-first AND/OR search over the pseudo tree of a plan of mini-buckets.

What is opened is the leaf that leaves the most between the bounds of log Z, so that the search can
be stopped at any time and resumed (Lou, Dechter & Ihler, AAAI 2017; with variables to maximise,
AAAI 2018). Where no bucket is split in the part below a variable, its messages are exact and
nothing is opened. From below, a leaf has the bound of mini-buckets where all numbers are positive;
else that of one assignment after the other, since a sum over some of them is one.

**Intervals of marginals.** The lower bound is a sum over assignments. N(v, s) is its part with
x_v = s: of variables that were opened from the tree, of those below, which are summed exactly, from
a pass down. M(v, s) is the same part of the upper bound, leaves that are open counted for every
state of what is below them. With both as shares of the lower bound, and r = upper / lower,

    P(v = s) >= N(s) / (N(s) + min(r - N(s), sum of the others' M)),
    P(v = s) <= m / (m + sum of the others' N),    m = min(M(s), r - sum of the others' N).

**Memory.** When there is no room for another node, the parts that leave the least between the
bounds become leaves again that keep their bounds, and closed ones stay so.

**Rounding.** A node's bound is a sum of its children's or the log of a sum, wrong by no more than
(c + 6) U A + (3 c + 20) U for c children and numbers of at most A, and what they are made of passes
on no more than its own error. On each path from the root there is a variable once, and parts beside
each other have different ones: so n times that, for n variables, and the messages' own error cover
all (:mod:`minfer.engine.buckets.bounds`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.basics.limits import clock, deadline_of, start_clock
from minfer.engine.buckets.bounds import BucketBounds, Side, U, users_ends
from minfer.engine.buckets.plan import BYTES, BYTES_EXACT
from minfer.engine.conditioning import Conditioned
from minfer.engine.layout import ends
from minfer.errors import NOTHING_POSSIBLE, ContradictionError, SettingsError

if TYPE_CHECKING:
    from minfer.kernels.buckets.search import SearchPlan

#: The share of the memory that messages may take; what they leave is for nodes.
FOR_MESSAGES = 0.75
#: The share of a time limit that one pass over what is not split at all may take, and that one over
#: mini-buckets should, of which there are some thirty while they are tightened.
WHOLE_PASS, ONE_PASS = 0.45, 0.01
#: The share of the first time limit that goes into tighter messages, at most, and their steps.
TIGHTENING, TIGHTENING_STEPS = 0.3, 6
#: Leaves that are opened between two looks at the clock, at first; seconds a look is aimed at.
FEW, LOOK = 64, 0.05
#: Logs of bounds of which nothing is said of shares; what a share may have lost to underflow: in
#: plain numbers a cell of next to nothing beside sums of 1e-250 or more, in each mini-bucket.
MOST_APART, LEAST_SHARE = 600.0, 1e-40
#: Logs of bounds so close that parts of the upper one are not looked at.
NEARLY = 1e-6
#: What bounds may differ by, beside ten and their size, where all leaves are closed.
NOISE = 1e-10
#: Bytes of a node.
NODE_BYTES = 44

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class BoundedSearch:
    """Bounds of log Z, or of the best marginal assignment, that close with time.

    Parameters
    ----------
    model : Conditioned
        What is bounded; answers are in the states and with the constant of its graph.
    maximise : list of int
        Variables to maximise over; all others are summed.
    memory_limit : float
        Bytes of messages and nodes.
    i_bound : int, optional
        The largest mini-bucket has 2^i_bound cells; None: what fits.
    marginals : bool
        Whether intervals of marginals are what is wanted: then leaves count as explored only where
        they are summed exactly, so that the states of all variables are known there.

    Examples
    --------
    >>> from minfer.engine.buckets.search import BoundedSearch
    >>> from minfer.engine.conditioning import condition
    >>> from minfer.examples import sprinkler
    >>> search = BoundedSearch(condition(sprinkler().with_evidence({"wet_grass": 1})))
    >>> search.run(work=100)
    >>> search.exact, round(search.lower, 3), round(search.upper, 3)
    (True, -0.734, -0.734)
    """

    def __init__(
        self,
        model: Conditioned,
        *,
        maximise: Sequence[int] = (),
        memory_limit: float = 2.0**30,
        i_bound: int | None = None,
        marginals: bool = False,
    ) -> None:
        start_clock(0.0)
        self.model, self._marginals = model, marginals
        self.buckets = BucketBounds(
            model, maximise=maximise, memory_limit=memory_limit * FOR_MESSAGES, i_bound=i_bound
        )
        self.history: list[tuple[float, int, float, float]] = []
        self._memory, self._free = memory_limit, i_bound is None
        self._tree: _Tree | None = None
        self._upper, self._lower = self.buckets.upper, -math.inf
        if not len(self.buckets.maximise) or self.buckets.exact:
            self._lower = self.buckets.lower
        self._spent = 0.0
        self._note()

    @property
    def lower(self) -> float:
        """A rigorous lower bound."""
        return self._lower

    @property
    def upper(self) -> float:
        """A rigorous upper bound."""
        return self._upper

    @property
    def exact(self) -> bool:
        """Whether nothing but rounding is left between the bounds."""
        return self.buckets.exact or (self._tree is not None and self._tree.closed)

    @property
    def full(self) -> bool:
        """Whether the memory allowed is used up."""
        return self._tree is not None and bool(self._tree.count[2])

    @property
    def nodes(self) -> int:
        """Leaves that were opened."""
        return 0 if self._tree is None else int(self._tree.count[1])

    def run(self, *, time_limit: float | None = None, work: int | None = None) -> None:
        """Go on for so many seconds or leaves, or until the bounds have met."""
        began = clock()
        until = deadline_of(time_limit)
        most = math.inf if work is None else self.nodes + work
        if not self.nodes and not self.exact:
            if self._free and time_limit is not None:
                self._widen(time_limit)
            share = None if time_limit is None else TIGHTENING * time_limit
            self.buckets.tighten(
                time_limit=share, sweeps=TIGHTENING_STEPS if share is None else None
            )
            self._take(self.buckets.lower if not len(self.buckets.maximise) else -math.inf,
                       self.buckets.upper)  # fmt: skip
            self._tree = None
            self._look(clock() - began)
        step = FEW
        while not (self.exact or self.full) and self.nodes < most and clock() < until:
            at = clock()
            before = self.nodes
            self._planted().advance(int(min(before + step, most)))
            if self.nodes == before:
                break
            took = max(clock() - at, 1e-6)
            step = int(min(max(step * min(LOOK / took, 4.0), 1), 1 << 20))
            self._look(clock() - began)
        self._spent += clock() - began

    def _widen(self, seconds: float) -> None:
        """Larger mini-buckets where there is the time for them."""
        old, plan = self.buckets, self.buckets.plan
        memory, cells = self._memory * FOR_MESSAGES, old.rate * seconds
        if plan.whole_cells <= WHOLE_PASS * cells and plan.whole_memory <= self._memory:
            most, memory = plan.whole_cells, self._memory
        elif ONE_PASS * cells > 2.0 * plan.cells and plan.message_cells * BYTES < 0.5 * memory:
            most = ONE_PASS * cells
        else:
            return
        self.buckets = BucketBounds(
            self.model, maximise=old.maximise.tolist(), memory_limit=memory, most_cells=most,
            prepared=old.prepared,
        )  # fmt: skip
        self._free = False
        sums = not len(old.maximise) or self.buckets.exact
        self._take(self.buckets.lower if sums else -math.inf, self.buckets.upper)

    def _planted(self) -> _Tree:
        """The tree of the search, which begins with this."""
        if self._tree is None:
            plan = self.buckets.plan
            used = plan.message_cells * (BYTES_EXACT if plan.exact else BYTES)
            room = max(self._memory - used, 0.1 * self._memory)
            self._tree = _Tree(self.buckets, room, self._marginals)
            self._take(*self._tree.bounds())
        return self._tree

    def _look(self, now: float) -> None:
        """Take over what the tree says."""
        tree = self._planted()
        if tree.nodes.upper[0] == -np.inf:
            raise ContradictionError(NOTHING_POSSIBLE)
        low, high = tree.bounds()
        self._take(low, high)
        self._note(now)

    def _take(self, low: float, high: float) -> None:
        self._lower, self._upper = max(self._lower, low), min(self._upper, high)

    def _note(self, now: float = 0.0) -> None:
        entry = (self._spent + now, self.nodes, self._lower, self._upper)
        if not self.history or self.history[-1][2:] != entry[2:]:
            self.history.append(entry)

    @property
    def best(self) -> Ints | None:
        """States of the variables to maximise, in their order, of the best assignment found."""
        if not len(self.buckets.maximise):
            return None
        states = self._planted().best()
        if states is None:
            return None
        whole = np.zeros(len(self.model.fixed), dtype=np.int64)
        tables = self.buckets.prepared.tables
        known = tables.fixed[: len(whole)]
        whole[known >= 0] = known[known >= 0]
        order = self.buckets.plan.order
        own = order < len(whole)
        whole[order[own]] = states[own]
        return self.buckets.prepared.simplified.best_states(whole)[self.buckets.maximise]

    def intervals(self, *, time_limit: float | None = 0.0) -> tuple[Floats, Floats]:
        """Where the marginals of all variables lie, (sum S,) each: by what was explored, and, with
        a time limit in seconds or None for no limit, by the mini-buckets with each state known."""
        if len(self.buckets.maximise):
            raise SettingsError(
                "intervals are of marginals: start a search without variables to maximise"
            )
        slack = math.expm1(min(2 * self.buckets.prepared.error + 1e-12, MOST_APART))
        low, high = to_users_states(self.buckets, *self._planted().intervals(slack))
        if time_limit is None or time_limit > 0.0 or self.buckets._ends:
            other_low, other_high = self.buckets.intervals(
                time_limit=time_limit, lower=self._lower, upper=self._upper
            )
            low, high = np.maximum(low, other_low), np.minimum(high, other_high)
        return low, high


def to_users_states(buckets: BucketBounds, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Ends of the intervals of the plan's variables, in its order, in the user's states."""
    plan, tables = buckets.plan, buckets.prepared.tables
    off = tables.graph._offsets
    lo, hi = np.zeros(int(off[-1])), np.zeros(int(off[-1]))
    at = 0
    for x in plan.order.tolist():
        size = int(tables.graph._n_states[x])
        lo[off[x] : off[x] + size] = low[at : at + size]
        hi[off[x] : off[x] + size] = high[at : at + size]
        at += size
    return users_ends(buckets.prepared, lo, hi)


class _Tree:
    """The search over one plan."""

    def __init__(self, buckets: BucketBounds, memory: float, marginals: bool) -> None:
        from minfer.kernels.buckets.search import Nodes

        self.buckets, plan = buckets, buckets.plan
        n = len(plan.order)
        self.n = n
        self.card = plan.flat.card[plan.order].astype(np.int64)
        exact = ~plan.split
        sure = ~(plan.split & buckets.is_max)
        for v in range(n):  # children come before parents in the order
            p = plan.parent[v]
            if p >= 0:
                exact[p] &= exact[v]
                sure[p] &= sure[v]
        self.exact = exact
        below = None if marginals else buckets.below
        self.sure = sure if below is not None else np.zeros(n, dtype=bool)
        self.above: Side = buckets.above
        self.below: Floats = self.above.val if below is None else below.val
        self.search = self._lay_out()
        widest = int((self.card * (1 + np.diff(self.search.child_ptr[:-1]))).max(initial=1))
        room = int(min(max(memory / NODE_BYTES, 64), 2.0**31 - 1))
        room = max(room, 4 * (widest + n + 2))
        ints = [np.empty(room, dtype=np.int32) for _ in range(5)]
        self.nodes = Nodes(*ints, *(np.empty(room) for _ in range(3)))
        self.count = np.zeros(3, dtype=np.int64)
        self.assign = np.zeros(max(n, 1), dtype=np.int64)
        self.stuck = False  # all leaves are closed
        self._plant()

    def _lay_out(self) -> SearchPlan:
        """The pseudo tree and the lookups."""
        from minfer.kernels.buckets.search import SearchPlan

        plan, n = self.buckets.plan, self.n
        below: list[list[int]] = [[] for _ in range(n + 1)]
        for v in range(n - 1, -1, -1):
            p = int(plan.parent[v])
            below[p if p >= 0 else n].append(v)
        looks: list[tuple[int, tuple[int, ...]]] = []
        table_ptr = [0]
        mine: list[list[tuple[int, tuple[int, ...]]]] = [
            [(int(plan.field_at[v]), (v,))] for v in range(n)
        ]
        place = np.full(len(plan.flat.card), -1, dtype=np.int64)
        place[plan.order] = np.arange(n)
        for f in range(len(plan.table)):
            a, b = int(plan.flat.fptr[f]), int(plan.flat.fptr[f + 1])
            axes = tuple(place[plan.flat.scope[a:b]].tolist())
            mine[int(plan.table[f])].append((int(plan.table_at[f]), axes))
        for v in range(n):
            looks += mine[v]
            table_ptr.append(len(looks))
        leave: list[list[int]] = [[] for _ in range(n)]
        for v in range(n):
            for k in range(int(plan.buckets.bptr[v]), int(plan.buckets.bptr[v + 1])):
                row = len(looks)
                looks.append((int(plan.buckets.out[k]), plan.scopes[k][1:]))
                u, target = v, int(plan.target[k])
                while u >= 0 and u != target:
                    leave[u].append(row)
                    u = int(plan.parent[u])
        at = np.array([a for a, _ in looks], dtype=np.int64)
        var, step = [], []
        for _, axes in looks:
            size = 1
            back = []
            for u in reversed(axes):
                back.append((u, size))
                size *= int(self.card[u])
            var += [u for u, _ in back]
            step += [s for _, s in back]
        return SearchPlan(
            self.card, self.buckets.is_max,
            ends([len(x) for x in below]), _ints(c for x in below for c in x),
            np.array(table_ptr, dtype=np.int64), ends([len(x) for x in leave]),
            _ints(r for x in leave for r in x), at, ends([len(axes) for _, axes in looks]),
            _ints(var), _ints(step),
        )  # fmt: skip

    def _plant(self) -> None:
        """The root and the parts that have nothing to do with each other."""
        nodes, s = self.nodes, self.search
        roots = s.child[s.child_ptr[self.n] : s.child_ptr[self.n + 1]].tolist()
        nodes.parent[0], nodes.first[0], nodes.n_children[0] = -1, 1 if roots else -1, len(roots)
        nodes.var[0], nodes.state[0], nodes.own[0] = -1 - self.n, -1, 0.0
        u = l = 0.0
        for x, v in enumerate(roots, start=1):
            rows = s.rows[s.leave_ptr[v] : s.leave_ptr[v + 1]]
            high = float(sum(self.above.val[s.at[r]] for r in rows))
            low = -np.inf
            if self.exact[v]:
                low = high
            elif self.sure[v]:
                low = float(sum(self.below[s.at[r]] for r in rows))
            nodes.parent[x], nodes.first[x], nodes.n_children[x] = 0, -1, 0
            nodes.var[x], nodes.state[x], nodes.own[x] = v, -1, 0.0
            nodes.upper[x], nodes.lower[x] = high, low
            u, l = u + high, l + low
        nodes.upper[0], nodes.lower[0] = u, l
        self.count[0] = 1 + len(roots)

    def advance(self, most: int) -> None:
        from minfer.kernels.buckets.search import advance

        advance(self.search, self.nodes, self.exact, self.sure, self.above.val, self.below,
                self.assign, self.count, most)  # fmt: skip
        self.stuck = self.count[1] < most and not self.count[2]
        if self.count[2]:
            self._forget()

    def _forget(self) -> None:
        """Make room: half of the nodes, if that many may go."""
        from minfer.kernels.buckets.search import forget, weigh

        n = int(self.count[0])
        weight = np.empty(n)
        weigh(self.nodes, n, self.buckets.is_max, weight)
        opened = (self.nodes.first[:n] >= 0) & (self.nodes.var[:n] >= 0)
        least = float(np.median(weight[opened])) if opened.any() else 0.0
        if least < np.inf:
            forget(self.nodes, self.count, weight, least)
        self.count[2] = self.count[0] > 0.9 * n  # nothing to be gained any more

    @property
    def closed(self) -> bool:
        from minfer.kernels.buckets.search import CLOSED

        u, l = float(self.nodes.upper[0]), float(self.nodes.lower[0])
        least = NOISE if self.stuck else max(CLOSED, 1e-14 * self.n)
        return u - l <= least * (10.0 + abs(u))

    def bounds(self) -> tuple[float, float]:
        """Of log Z, rounding included."""
        b = self.buckets
        u, l = float(self.nodes.upper[0]), float(self.nodes.lower[0])
        high, low = u + b.constant, l + b.constant
        error = b.prepared.error + self.rounding() + 2 * U * (abs(high) + abs(b.constant))
        high = float(np.nextafter(high + error + self.above.error(), np.inf))
        if low > -np.inf:
            worst = self.above.error()
            if b.below is not None:
                worst = max(worst, b.below.error())
            low = float(np.nextafter(low - error - worst, -np.inf))
        return low, high

    def rounding(self) -> float:
        """What the nodes' own sums may have cost."""
        count = int(self.count[0])
        sizes = 1.0
        for x in (self.nodes.upper, self.nodes.lower, self.nodes.own):
            values = np.abs(x[:count])
            sizes = max(sizes, float(values[np.isfinite(values)].max(initial=0.0)))
        s = self.search
        tables, leaves, below = (np.diff(x) for x in (s.table_ptr, s.leave_ptr, s.child_ptr[:-1]))
        each = (tables + leaves + below + self.card + 12) * sizes + 3 * self.card + 20
        return 1.01 * U * float(each.sum() + 4 * sizes)

    def best(self) -> Ints | None:
        """States of the variables in the order, -1 of those that are summed; None: none yet."""
        nodes = self.nodes
        if nodes.lower[0] == -np.inf:
            return None
        states = np.full(self.n, -1, dtype=np.int64)
        todo = [0]
        while todo:
            x = todo.pop()
            v, first, count = int(nodes.var[x]), int(nodes.first[x]), int(nodes.n_children[x])
            if v < 0:
                if first >= 0:
                    todo += range(first, first + count)
                continue
            if not self.buckets.is_max[v]:
                continue
            if first >= 0:
                child = first + int(np.argmax(nodes.lower[first : first + count]))
                states[v] = nodes.state[child]
                todo.append(child)
            else:
                self._decode(v, x, states)
        return states

    def _decode(self, v: int, x: int, states: Ints) -> None:
        """The best states by what bounds a leaf from below; those of its ancestors, too."""
        s, val = self.search, self.above.val if self.exact[v] else self.below
        up = int(self.nodes.parent[x])
        while up > 0:
            w = -1 - int(self.nodes.var[up])
            if w >= 0:
                states[w] = self.nodes.state[up]
            up = int(self.nodes.parent[up])
        todo = [v]
        while todo:
            v = todo.pop()
            if not self.buckets.is_max[v]:
                continue
            below = s.child[s.child_ptr[v] : s.child_ptr[v + 1]].tolist()
            values = []
            for state in range(int(self.card[v])):
                states[v] = state
                rows = list(range(int(s.table_ptr[v]), int(s.table_ptr[v + 1])))
                for c in below:
                    rows += s.rows[s.leave_ptr[c] : s.leave_ptr[c + 1]].tolist()
                values.append(sum(self._look(r, states, val) for r in rows))
            states[v] = int(np.argmax(values))
            todo += below

    def _look(self, row: int, states: Ints, val: Floats) -> float:
        s = self.search
        own = slice(int(s.look_ptr[row]), int(s.look_ptr[row + 1]))
        return float(val[s.at[row] + s.look_step[own] @ states[s.look_var[own]]])

    def intervals(self, spread: float) -> tuple[Floats, Floats]:
        """Of all variables in the order, states end to end."""
        n_states = int(self.card.sum())
        if self.nodes.lower[0] == -np.inf:
            return np.zeros(n_states), np.ones(n_states)
        found, reach = self._shares(False)
        b = self.buckets
        extra = b.prepared.error + self.rounding() + self.above.error()
        if b.below is not None:
            extra += b.below.error()
        pad = math.expm1(min(4 * extra + 1e-12 + 8 * U * self.n, 100.0)) + spread
        apart = float(self.nodes.upper[0] - self.nodes.lower[0])
        ratio = math.exp(min(apart, MOST_APART)) * (1 + pad)
        if not (apart < MOST_APART and pad < 1.0):
            return np.zeros(n_states), np.ones(n_states)
        over = np.ones(n_states)
        if apart > NEARLY:  # else what is left between the bounds says all there is
            over, reach = self._shares(True)
        parent = b.plan.parent
        for v in range(self.n - 1, -1, -1):
            if parent[v] >= 0:
                reach[v] += reach[parent[v]]
        owner = np.repeat(np.arange(self.n), self.card)
        most = ((over + reach[owner]) * (1 + pad) + LEAST_SHARE) * ratio
        least = np.maximum(found * (1 - pad) - LEAST_SHARE, 0.0)
        total_least = np.bincount(owner, least, minlength=self.n)[owner] - least
        all_most = np.bincount(owner, most, minlength=self.n)[owner]
        total_most = all_most - most + U * (self.card[owner] + 4) * all_most
        others_most = np.minimum(np.maximum(total_most, 0.0) * (1 + 1e-14), ratio - least)
        others_most = np.maximum(others_most, 0.0)
        others_least = np.maximum(total_least - 2 * U * (self.card[owner] + 4), 0.0)
        own_most = np.minimum(most, ratio - others_least)
        with np.errstate(divide="ignore", invalid="ignore"):
            low = np.where(least > 0, least / (least + others_most), 0.0)
            high = np.where(own_most > 0, own_most / (own_most + others_least), 0.0)
        return np.maximum(low * (1 - 1e-15), 0.0), np.minimum(high * (1 + 1e-15), 1.0)

    def _shares(self, of_upper: bool) -> tuple[Floats, Floats]:
        """Of all states in the order, and of open leaves by variable."""
        from minfer.kernels.buckets.passes import spread
        from minfer.kernels.buckets.search import Nodes, explored

        plan = self.buckets.plan
        b = plan.buckets
        found, reach = np.zeros(int(self.card.sum())), np.zeros(self.n)
        bel = np.zeros(len(self.above.val) - b.base)
        made = int(self.count[0])
        nodes = Nodes(*(part[:made] for part in self.nodes))
        explored(self.search, nodes, made, self.exact, b.base, found, bel, reach, of_upper)
        which = np.array(
            [b.bptr[v] for v in range(self.n - 1, -1, -1) if self.exact[v]], dtype=np.int64
        )
        if len(which):
            spread(b, which, self.above.weight, self.above.val, bel, np.zeros(len(b.out)))
        at = ends(self.card)
        for v in np.flatnonzero(self.exact).tolist():
            where = int(plan.field_at[v]) - b.base
            found[at[v] : at[v + 1]] += bel[where : where + int(self.card[v])]
        return found, reach


def _ints(values: Iterable[int]) -> Ints:
    return np.array(list(values), dtype=np.int64)
