"""Sums of products of tables, two at a time: the exact answer of what is too wide for clique trees.

A *contraction tree* has the tables as leaves. A node multiplies what its two children have come to
and sums out the variables that nothing outside of it has; written as matrices, one for each state
of the variables that stay on both sides, this is a product of matrices. What a node costs are the
joint states of its children's variables. All marginals follow by going back: a child's derivative
is that of its parent times its sibling (Darwiche, J. ACM 2003), a product of matrices, too.

**The tree.** From an order of elimination, and then by exchanging: ((a, b), c) becomes ((a, c), b)
where that is cheaper, and sometimes where it is not (simulated annealing; Gray & Kourtis, Quantum
2021). On models with long cycles that saves a factor of 100 and more.

**Slices.** Where the memory does not suffice, some variables are known, one joint state after the
other, and the answers are added up.

**Rounding.** Nothing is ever negative, and numbers are scaled by powers of two, the largest of each
table below one. So a number is off by (1 + u)^n for n roundings on a path to it, which are counted,
and by what underflow has cost: at most ``least`` for a product of two. If a number of one child is
off by a and one of the other by b in that way, a sum of k products is by k (a + b + least), and
factors of two multiply it. Each table carries its own bound of that. In single precision, which
takes half of the time and memory, it is the same with a larger u.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Matrices = NDArray[np.float64]  # (states of what stays, own states, states of what is summed)

#: Of numbers of each kind: unit roundoff, what a product of two below one can lose to underflow,
#: however floats treat that, and the power of two from which on a table's largest entry is lost.
KINDS: dict[type, tuple[float, float, int]] = {
    np.float64: (2.0**-53, 2.0**-1021, 1000), np.float32: (2.0**-24, 2.0**-125, 100)
}  # fmt: skip
#: Entries that lie together in a tile of a table, on each side; in rows that are added up.
TILE, SIDE = 81, 1024
#: Numbers that are worth keeping room for.
SPARE = 1 << 16
#: Cells that writing one entry of a table is worth.
WRITE = 24.0
#: Joint states from which on a product of two matrices is one; smaller ones are made side by side.
AS_MATRICES = 512
#: Temperatures of the exchanges, first and last.
HOT, COLD = 1.0, 0.01
#: Numbers that are held at a time beside the tables: so many times the largest.
AT_ONCE = 5.0
#: Roundings of an exponential, by which the numbers of a leaf were made.
EXP = 8


class ContractionTree(NamedTuple):
    """A tree of N nodes, leaves first. Sets of variables are bits of whole numbers."""

    scopes: list[tuple[int, ...]]  # of the leaves
    card: list[int]
    kids: list[tuple[int, int]]  # (-1, -1) of a leaf
    out: list[int]  # (N,) what is left at each node
    root: int
    sliced: tuple[int, ...]
    cells: float  # of one slice, the way up
    entries: float  # of all tables of a slice together
    largest: float

    @property
    def slices(self) -> int:
        return math.prod(self.card[v] for v in self.sliced)

    @property
    def memory(self) -> float:
        """Bytes."""
        return 8.0 * (self.entries + AT_ONCE * self.largest)

    @property
    def work(self) -> float:
        """Cells of both passes over all slices, writing counted."""
        return 3.0 * self.slices * (self.cells + WRITE * self.entries + 2e4 * len(self.kids))


class _Sizes:
    """Logs of joint states of sets of variables."""

    def __init__(self, card: Sequence[int]) -> None:
        by: dict[int, int] = {}
        for v, c in enumerate(card):
            by[c] = by.get(c, 0) | 1 << v
        self.kinds = [(math.log2(c), mask) for c, mask in by.items() if c > 1]

    def __call__(self, mask: int) -> float:
        return sum(log * (mask & kind).bit_count() for log, kind in self.kinds)


def _members(mask: int) -> list[int]:
    found = []
    while mask:
        bit = mask & -mask
        found.append(bit.bit_length() - 1)
        mask ^= bit
    return found


class Planner:
    """Looks for a cheap tree, as long as it is asked to."""

    def __init__(
        self, scopes: Sequence[tuple[int, ...]], card: Sequence[int], order: Sequence[int]
    ) -> None:
        self.scopes, self.card = [tuple(s) for s in scopes], list(card)
        self.size = _Sizes(card)
        n = -(-max(len(self.card), 1) // 8)
        each = np.log2(np.array([*self.card, *[1] * (8 * n - len(self.card))], dtype=np.float64))
        bits = np.arange(256)[:, None] >> np.arange(8) & 1
        self._logs = np.ascontiguousarray((bits @ each.reshape(n, 8).T).T)
        self._seed = 1
        self._begin(order)
        self._cost = [self._of(i) for i in range(len(self._kids))]
        self._total = sum(self._cost)
        self._keep()

    def _begin(self, order: Sequence[int]) -> None:
        """Variables go in turn, the smallest tables that have one first."""
        size = self.size
        holders: list[set[int]] = [set() for _ in self.card]
        for i, scope in enumerate(self.scopes):
            for v in scope:
                holders[v].add(i)
        self._kids: list[tuple[int, int]] = [(-1, -1)] * len(self.scopes)
        self._out = [sum(1 << v for v in s if len(holders[v]) > 1) for s in self.scopes]
        left = set(range(len(self.scopes)))

        def merge(a: int, b: int) -> int:
            i, out = len(self._out), self._out[a] | self._out[b]
            both = {a, b}
            for v in _members(out):
                if holders[v] <= both:
                    out ^= 1 << v
                else:
                    holders[v].add(i)
                holders[v] -= both
            self._out.append(out)
            self._kids.append((a, b))
            left.difference_update(both)
            left.add(i)
            return i

        for v in order:
            while len(holders[v]) > 1:
                merge(*heapq.nsmallest(2, holders[v], key=lambda i: (size(self._out[i]), i)))
        last = sorted(left)
        while len(last) > 1:
            last.append(merge(last.pop(), last.pop()))
        self._root = last[0]
        self._inner = [i for i, (a, _) in enumerate(self._kids) if a >= 0]

    def _of(self, i: int) -> float:
        a, b = self._kids[i]
        if a < 0:
            return 0.0
        size, out = self.size, self._out
        return float(2.0 ** size(out[a] | out[b]) + WRITE * 2.0 ** size(out[i]))

    def _keep(self) -> None:
        self._best = self._total, list(self._kids), list(self._out)

    def improve(self, moves: int) -> None:
        """So many exchanges, from hot to cold, on from the best tree so far."""
        from minfer.kernels.cliques.exchanges import exchange

        if not self._inner:
            return
        _, kids, out = self._best
        now, best = np.array(kids, dtype=np.int64), np.empty((len(kids), 2), dtype=np.int64)
        sets = self._as_bytes(out)
        best_sets = np.empty_like(sets)
        self._seed = self._seed * 48271 % 2147483647
        total = exchange(
            now, sets, np.array(self._inner, dtype=np.int64), self._logs, WRITE, moves, HOT, COLD,
            self._seed, best, best_sets,
        )  # fmt: skip
        if total < self._best[0]:
            self._best = (
                float(total), [(int(x), int(y)) for x, y in best],
                [int.from_bytes(row.tobytes(), "little") for row in best_sets],
            )  # fmt: skip

    def _as_bytes(self, sets: Sequence[int]) -> NDArray[np.uint8]:
        n = len(self._logs)
        return (
            np.frombuffer(b"".join(s.to_bytes(n, "little") for s in sets), np.uint8)
            .reshape(-1, n)
            .copy()
        )

    def tree(self, memory: float, slices: int, moves: int) -> ContractionTree | None:
        """The best tree so far, in slices that fit the memory (bytes), but not in more than so
        many; None where there is no such. Each variable that is known is followed by ``moves``
        exchanges."""
        whole = self._best
        found: list[int] = []
        while True:
            _, kids, out = self._best
            cells, entries, largest, where = self._sum(kids, out)
            tree = ContractionTree(
                self.scopes, self.card, kids, out, self._root, tuple(found), cells, entries, largest
            )
            if tree.memory <= memory:
                break
            tries = []
            for v in _members(out[where]):
                now = [o & ~(1 << v) for o in out]
                one = self._sum(kids, now)
                tries.append(((one[0] + WRITE * one[1]) * self.card[v], v))
            if not tries or math.prod(self.card[v] for v in found) > slices:
                self._best = whole
                return None
            v = min(tries)[1]
            found.append(v)
            self._out = [o & ~(1 << v) for o in out]
            self._kids = kids
            self._total = sum(self._of(i) for i in range(len(kids)))
            self._keep()
            self.improve(moves)
        self._best = whole
        return tree

    def _sum(self, kids: list[tuple[int, int]], out: list[int]) -> tuple[float, float, float, int]:
        """Cells, entries, the largest table and where it is."""
        size, cells, entries, largest, where = self.size, 0.0, 0.0, 0.0, self._root
        for i, (a, b) in enumerate(kids):
            own = 2.0 ** size(out[i])
            entries += own
            if own > largest:
                largest, where = own, i
            if a >= 0:
                cells += 2.0 ** size(out[a] | out[b])
        return cells, entries, largest, where


class _Product(NamedTuple):
    """How the tables of two children are multiplied."""

    kids: tuple[int, int]
    shape: tuple[int, int, int, int]  # states of what stays on both sides, of a's, b's, the sum's
    last: bool  # what stays on both sides lies last
    gone: list[int]  # what is summed
    first: bool  # that is read at the first child


class Scaled(NamedTuple):
    """A number m 2^e, wrong by at most ``lost`` 2^e beside its roundings."""

    m: float
    e: int
    lost: float


class _Table(NamedTuple):
    """The same of a table whose largest entry is below one, in the way its parent needs it."""

    values: Floats
    e: int
    lost: float


class SliceAnswer(NamedTuple):
    """What one slice comes to, and shares of it (sum S,) with a bound on what they have lost."""

    whole: Scaled
    shares: Floats | None
    lost: float

    @property
    def size(self) -> float:
        """A logarithm."""
        return math.log2(self.whole.m) + self.whole.e if self.whole.m > 0.0 else -math.inf


class _Turn(NamedTuple):
    """Where the entries of a table go whose variables get another order."""

    starts: NDArray[np.uint32]  # (tiles, 2) old and new
    runs: NDArray[np.uint32]  # (runs of a tile, 2) old and new
    inner: NDArray[np.uint32]  # old places of a run, which lies together in the new table

    @classmethod
    def of(cls, have: Sequence[int], want: Sequence[int], card: Sequence[int]) -> _Turn:
        old, new = _strides(have, card), _strides(want, card)
        run, tile = (_last(order, card) for order in (want, have))
        inside = [v for v in want if v in tile and v not in run]
        outside = [v for v in want if v not in tile and v not in run]
        starts, runs = (
            np.stack([_places(of, by, card) for by in (old, new)], axis=1)
            for of in (outside, inside)
        )
        return cls(starts, runs, _places([v for v in want if v in run], old, card))


def _strides(order: Sequence[int], card: Sequence[int]) -> dict[int, int]:
    found, step = {}, 1
    for v in reversed(order):
        found[v] = step
        step *= card[v]
    return found


def _last(order: Sequence[int], card: Sequence[int]) -> set[int]:
    """So many at the end that they make a tile's side."""
    found, size = set(), 1
    for v in reversed(order):
        if size >= TILE:
            break
        found.add(v)
        size *= card[v]
    return found


def _places(of: Sequence[int], by: dict[int, int], card: Sequence[int]) -> NDArray[np.uint32]:
    found = np.zeros(1, dtype=np.uint32)
    for v in of:
        found = (found[:, None] + np.arange(card[v], dtype=np.uint32) * by[v]).reshape(-1)
    return found.astype(np.uint32)


class Contraction:
    """The passes over a tree. ``tables``: of the leaves, as numbers up to one, ``lost`` of each;
    in numbers of this ``kind``."""

    def __init__(
        self, tree: ContractionTree, tables: Sequence[Floats], lost: Sequence[float],
        kind: type[np.floating] = np.float64,
    ) -> None:  # fmt: skip
        self.tree, self.tables, self.kind = tree, list(tables), kind
        self.u, self.least, self.far = KINDS[kind]
        self.lost = [x + self.least for x in lost]
        self._spare: dict[int, list[Floats]] = {}
        self._lay_out()

    def _fresh(self, size: int) -> Floats:
        """Room for so many numbers. What was used before is: new memory costs as much as a copy."""
        spare = self._spare.get(size)
        return spare.pop() if spare else np.empty(size, dtype=self.kind)

    def _used(self, *tables: Floats) -> None:
        """These are not needed any more."""
        for values in tables:
            if values.size >= SPARE:
                self._spare.setdefault(values.size, []).append(values)

    def _lay_out(self) -> None:
        tree = self.tree
        kids, out, card = tree.kids, tree.out, tree.card
        self._post: list[int] = []
        depth = {tree.root: 0}
        todo = [tree.root]
        while todo:
            i = todo.pop()
            self._post.append(i)
            a, b = kids[i]
            if a >= 0:
                depth[a] = depth[b] = depth[i] + 1
                todo += [a, b]
        self._post.reverse()
        gone = [0] * len(card)  # how deep a variable is summed
        for i in self._post:
            a, b = kids[i]
            if a >= 0:
                for v in _members((out[a] | out[b]) & ~out[i]):
                    gone[v] = depth[i]
        axes: dict[int, list[int]] = {}  # as a node makes its table
        wanted: dict[int, list[int]] = {tree.root: []}  # as its parent needs it
        self._nodes: dict[int, _Product] = {}
        #: Whether variables are summed at a node or below, and so are read there.
        self._needed: dict[int, bool] = {}
        known = set(tree.sliced)
        forward = 8.0
        for i in self._post:
            a, b = kids[i]
            if a < 0:
                axes[i] = [v for v in tree.scopes[i] if out[i] >> v & 1 and v not in known]
                alone = [v for v in tree.scopes[i] if not out[i] >> v & 1]
                self._needed[i] = bool(set(alone) - known)
                forward += EXP + 4 + math.prod(card[v] for v in alone)
                continue
            A, B, C = out[a], out[b], out[i]
            stay, mine, other, gone_here = (
                sorted(_members(m), key=lambda v: (gone[v], v))
                for m in (A & B & C, A & ~B, B & ~A, A & B & ~C)
            )
            n_stay, n_mine, n_other, n_gone = (
                math.prod(card[v] for v in s) for s in (stay, mine, other, gone_here)
            )
            last = n_stay > 1 and n_mine * n_other * n_gone < AS_MATRICES
            if last:
                wanted[a] = mine + gone_here + stay
                wanted[b] = other + gone_here + stay
                axes[i] = mine + other + stay
            else:
                wanted[a] = stay + mine + gone_here
                wanted[b] = stay + other + gone_here
                axes[i] = stay + mine + other
            x, y = self._needed[a], self._needed[b]
            shape = n_stay, n_mine, n_other, n_gone
            first = n_mine <= n_other if x == y else x
            self._nodes[i] = _Product((a, b), shape, last, gone_here, first)
            self._needed[i] = x or y or bool(gone_here)
            forward += n_gone + 4
        self._there = {i: _turn_of(axes[i], wanted[i], card) for i in self._post}
        self._again = {i: _turn_of(wanted[i], axes[i], card) for i in self._post if self._needed[i]}
        #: Roundings on the longest way to the sum of all, and to a share.
        self.roundings = self._counted(forward)

    def _counted(self, forward: float) -> tuple[float, float]:
        """Roundings on the longest way to the sum of all, and to a share."""
        back, longest = {self.tree.root: 0.0}, 0.0
        for i in reversed(self._post):
            if i not in back:
                continue
            if i not in self._nodes:
                longest = max(longest, back[i] + self.tables[i].size)
                continue
            kids, (stay, mine, other, gone), _, summed, first = self._nodes[i]
            for child, own, theirs, here in (
                (kids[0], mine, other, first),
                (kids[1], other, mine, not first),
            ):
                way = back[i] + theirs + 4
                if self._needed[child]:
                    back[child] = way
                if summed and here:  # in doubles
                    wide = _width(stay * own * gone, gone)
                    read = stay * own * gone / wide + wide / gone + stay + own + gone
                    longest = max(longest, way + 4 + read * 2.0**-53 / self.u)
        return forward, forward + longest + 8.0

    def _leaf(self, i: int, states: dict[int, int]) -> tuple[Floats, Floats]:
        """The table in its slice, over what is left of its scope; and summed."""
        scope = self.tree.scopes[i]
        table = self.tables[i][tuple(states.get(v, slice(None)) for v in scope)]
        left = [v for v in scope if v not in states]
        alone = tuple(k for k, v in enumerate(left) if not self.tree.out[i] >> v & 1)
        return table, table.sum(axis=alone) if alone else table

    def slice(
        self, states: dict[int, int], backward: bool, go_on: Callable[[], bool]
    ) -> SliceAnswer | None:
        """One slice; None: told to stop."""
        tables: dict[int, _Table] = {}
        tree = self.tree
        for i in self._post:
            before = 0
            if i not in self._nodes:
                values = self._leaf(i, states)[1].astype(self.kind, order="C").reshape(-1)
                lost = self.lost[i] * math.prod(self.tables[i].shape) / max(values.size, 1)
            else:
                if not go_on():
                    return None
                values, lost = self._product(i, tables)
                a, b = self._nodes[i].kids
                before = tables[a].e + tables[b].e
                if not backward:
                    self._used(tables.pop(a).values, tables.pop(b).values)
            made = self._made(values, lost, self._there[i])
            tables[i] = made._replace(e=made.e + before)
        top = tables[tree.root]
        whole = Scaled(float(top.values[0]), top.e, top.lost)
        if not backward or whole.m == 0.0:
            return SliceAnswer(whole, None, whole.lost)
        return self._back(whole, tables, states, go_on)

    def _product(self, i: int, tables: dict[int, _Table]) -> tuple[Floats, float]:
        (a, b), (stay, mine, other, gone), last, *_ = self._nodes[i]
        x, y = tables[a], tables[b]
        lost = 1.01 * gone * (x.lost + y.lost + self.least)
        if last:
            return _side_by_side(
                x.values.reshape(mine, gone, stay), y.values.reshape(other, gone, stay)
            ).reshape(-1), lost
        values = self._fresh(stay * mine * other)
        np.matmul(
            x.values.reshape(stay, mine, gone),
            y.values.reshape(stay, other, gone).transpose(0, 2, 1),
            out=values.reshape(stay, mine, other),
        )
        return values, lost

    def _back(
        self, whole: Scaled, tables: dict[int, _Table], states: dict[int, int],
        go_on: Callable[[], bool],
    ) -> SliceAnswer | None:  # fmt: skip
        tree = self.tree
        off = np.concatenate([[0], np.cumsum(tree.card)])
        shares = np.zeros(int(off[-1]))
        lost = 0.0
        derivative = {tree.root: _Table(np.ones(1, dtype=self.kind), 0, 0.0)}
        for i in reversed(self._post):
            own = derivative.pop(i, None)
            if i not in self._nodes:
                if own is not None:
                    lost = max(lost, self._read_leaf(i, own, states, shares, off))
                continue
            if not go_on():
                return None
            node = self._nodes[i]
            (a, b), (_, mine, other, _) = node.kids, node.shape
            x, y = tables.pop(a), tables.pop(b)
            if own is None:
                self._used(x.values, y.values)
                continue
            for child, of, sibling, n in ((a, x, y, other), (b, y, x, mine)):
                first = child == a
                read = bool(node.gone) and node.first == first
                if not read and not self._needed[child]:
                    continue
                d = self._derivative(own.values, sibling.values, node, first)
                wrong = 1.01 * n * (own.lost + sibling.lost + self.least)
                if read:
                    d_lost = 1.01 * (wrong + n * of.lost + self.least)
                    lost = max(lost, self._read(node, of.values, d, d_lost, shares, off))
                if self._needed[child]:
                    derivative[child] = self._made(d, wrong, self._again[child])
                else:
                    self._used(d)
            self._used(own.values, x.values, y.values)
        for v in tree.sliced:
            shares[off[v] + states[v]] = 1.0
        return SliceAnswer(whole, shares, lost)

    def _derivative(self, own: Floats, sibling: Floats, node: _Product, first: bool) -> Floats:
        _, (stay, mine, other, gone), last, *_ = node
        theirs = other if first else mine
        if last:
            d = own.reshape(mine, other, stay)
            d = d if first else d.transpose(1, 0, 2)
            # (own states, theirs, stay) and (theirs, gone, stay)
            s = sibling.reshape(theirs, gone, stay).transpose(1, 0, 2)
            return _side_by_side(d, s).reshape(-1)
        d = own.reshape(stay, mine, other)
        d = d if first else d.transpose(0, 2, 1)
        values = self._fresh(stay * d.shape[1] * gone)
        np.matmul(
            d, sibling.reshape(stay, theirs, gone), out=values.reshape(stay, d.shape[1], gone)
        )
        return values

    def _read(
        self, node: _Product, values: Floats, d: Floats, lost: float, shares: Floats,
        off: NDArray[np.int64],
    ) -> float:  # fmt: skip
        """The shares of what is summed at a node, from a child's table and its derivative; what
        they may have lost."""
        stay, gone = node.shape[0], node.shape[3]
        joint = np.multiply(values, d, out=self._fresh(d.size))
        size = joint.size
        if node.last:
            by_state = joint.reshape(-1, gone, stay).sum(axis=2, dtype=np.float64).sum(axis=0)
        else:
            by_state = _sum_of_rows(joint, gone)
        self._used(joint)
        whole = float(by_state.sum())
        if not whole > 0.0:
            return math.inf
        card = [self.tree.card[v] for v in node.gone]
        by_state = by_state.reshape(card)
        for k, v in enumerate(node.gone):
            others = tuple(j for j in range(len(card)) if j != k)
            shares[off[v] : off[v + 1]] = by_state.sum(axis=others) / whole
        return size * lost / whole

    def _read_leaf(
        self, i: int, own: _Table, states: dict[int, int], shares: Floats, off: NDArray[np.int64]
    ) -> float:
        """The shares of what only this leaf has; what they may have lost."""
        tree = self.tree
        scope = [v for v in tree.scopes[i] if v not in states]
        table = self._leaf(i, states)[0]
        shape = [tree.card[v] if tree.out[i] >> v & 1 else 1 for v in scope]
        joint = table * own.values.reshape(shape)
        whole = float(joint.sum())
        if not whole > 0.0:
            return math.inf
        for k, v in enumerate(scope):
            if not tree.out[i] >> v & 1:
                axes = tuple(j for j in range(len(scope)) if j != k)
                shares[off[v] : off[v + 1]] = joint.sum(axis=axes) / whole
        return 1.01 * joint.size * (own.lost + self.lost[i] + self.least) / whole

    def _made(self, values: Floats, lost: float, turn: _Turn | None) -> _Table:
        """With the largest entry between a half and one, in another order; ``values`` are used
        up."""
        from minfer.kernels.cliques.turning import turn as turned

        top = float(values.max(initial=0.0))
        e = math.frexp(top)[1] if top > 0.0 else 0
        if abs(e) > self.far:  # numbers that get lost
            values, lost, e = np.zeros_like(values), math.inf, 0
        factor = self.kind(2.0**-e)
        if turn is not None:
            out = self._fresh(values.size)
            turned(values, *turn, factor, out)
            self._used(values)
            values = out
        elif e:
            values *= factor
        return _Table(values, e, lost * 2.0**-e + self.least if e else lost)


def _turn_of(have: list[int], want: list[int], card: Sequence[int]) -> _Turn | None:
    return None if have == want else _Turn.of(have, want, card)


def _width(size: int, width: int) -> int:
    """Of rows side by side: short ones are slow."""
    wide = width
    for factor in (2, 3, 5, 7):
        while wide < SIDE and size > wide and size // wide % factor == 0:
            wide *= factor
    return wide


def _sum_of_rows(values: Floats, width: int) -> NDArray[np.float64]:
    """(width,) in doubles."""
    rows = values.reshape(-1, _width(values.size, width)).sum(axis=0, dtype=np.float64)
    return rows.reshape(-1, width).sum(axis=0)


def _side_by_side(x: Floats, y: Floats) -> Floats:
    """sum_k x[m, k, :] y[n, k, :]"""
    (m, k, stay), n = x.shape, y.shape[0]
    if m * n * k * 64 > stay:
        return np.einsum("mkz,nkz->mnz", x, y)
    out, one = np.empty((m, n, stay), dtype=x.dtype), np.empty(stay, dtype=x.dtype)
    for p in range(m):
        for q in range(n):
            np.multiply(x[p, 0], y[q, 0], out=out[p, q])
            for r in range(1, k):
                np.multiply(x[p, r], y[q, r], out=one)
                out[p, q] += one
    return out
