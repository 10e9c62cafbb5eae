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
and by what underflow has cost: at most ``LOST`` for a product of two. If a number of one child is
off by a and one of the other by b in that way, a sum of k products is by k (a + b + LOST), and
factors of two multiply it. Each table carries its own bound of that.
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

#: What a product of two numbers below one can lose to underflow, however floats treat that.
LOST = 2.0**-1021
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


class Contraction:
    """The passes over a tree. ``tables``: of the leaves, as numbers up to one, ``lost`` of each."""

    def __init__(
        self, tree: ContractionTree, tables: Sequence[Floats], lost: Sequence[float]
    ) -> None:
        self.tree, self.tables, self.lost = tree, list(tables), list(lost)
        self._lay_out()

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
        self._axes: dict[int, list[int]] = {}  # as a node makes its table
        self._wanted: dict[int, list[int]] = {tree.root: []}  # as its parent needs it
        self._nodes: dict[int, _Product] = {}
        self.roundings = 8.0
        for i in self._post:
            a, b = kids[i]
            if a < 0:
                known = set(tree.sliced)
                self._axes[i] = [v for v in tree.scopes[i] if out[i] >> v & 1 and v not in known]
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
                self._wanted[a] = mine + gone_here + stay
                self._wanted[b] = other + gone_here + stay
                self._axes[i] = mine + other + stay
            else:
                self._wanted[a] = stay + mine + gone_here
                self._wanted[b] = stay + other + gone_here
                self._axes[i] = stay + mine + other
            self._nodes[i] = _Product((a, b), (n_stay, n_mine, n_other, n_gone), last)
            self.roundings += n_gone + 4
        for i, scope in enumerate(tree.scopes):
            self.roundings += EXP + 4 + math.prod(card[v] for v in scope if not out[i] >> v & 1)
        #: Roundings on the way back to each node.
        self.back: dict[int, float] = {tree.root: 0.0}
        for i in reversed(self._post):
            if i in self._nodes:
                (a, b), (_, mine_n, other_n, _), _ = self._nodes[i]
                self.back[a] = self.back[i] + other_n + 4
                self.back[b] = self.back[i] + mine_n + 4
        self._reader: dict[int, int] = {}
        for i, scope in enumerate(tree.scopes):
            for v in scope:
                old = self._reader.get(v)
                if old is None or self.tables[i].size < self.tables[old].size:
                    self._reader[v] = i

    def _turned(self, values: Floats, have: list[int], want: list[int]) -> Floats:
        card = self.tree.card
        if have == want:
            return values
        shaped = values.reshape([card[v] for v in have])
        place = {v: k for k, v in enumerate(have)}
        return np.ascontiguousarray(shaped.transpose([place[v] for v in want]))

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
            if i not in self._nodes:
                values = self._leaf(i, states)[1].copy()
                n = math.prod(self.tables[i].shape) / max(values.size, 1)
                lost = self.lost[i] * n
            else:
                if not go_on():
                    return None
                values, lost = self._product(i, tables)
            made = _scaled(values, lost)
            if i in self._nodes:
                a, b = self._nodes[i].kids
                made = made._replace(e=made.e + tables[a].e + tables[b].e)
                if not backward:
                    del tables[a], tables[b]
            tables[i] = made._replace(
                values=self._turned(made.values, self._axes[i], self._wanted[i])
            )
        top = tables[tree.root]
        whole = Scaled(float(top.values.reshape(-1)[0]), top.e, top.lost)
        if not backward or whole.m == 0.0:
            return SliceAnswer(whole, None, whole.lost)
        return self._back(whole, tables, states, go_on)

    def _product(self, i: int, tables: dict[int, _Table]) -> tuple[Floats, float]:
        (a, b), (stay, mine, other, gone), last = self._nodes[i]
        x, y = tables[a], tables[b]
        lost = 1.01 * gone * (x.lost + y.lost + LOST)
        if last:
            return _side_by_side(
                x.values.reshape(mine, gone, stay), y.values.reshape(other, gone, stay)
            ), lost
        return np.matmul(
            x.values.reshape(stay, mine, gone),
            y.values.reshape(stay, other, gone).transpose(0, 2, 1),
        ), lost

    def _back(
        self, whole: Scaled, tables: dict[int, _Table], states: dict[int, int],
        go_on: Callable[[], bool],
    ) -> SliceAnswer | None:  # fmt: skip
        tree = self.tree
        off = np.concatenate([[0], np.cumsum(tree.card)])
        shares = np.zeros(int(off[-1]))
        lost = 0.0
        derivative = {tree.root: _Table(np.ones(1), 0, 0.0)}
        for i in reversed(self._post):
            own = derivative.pop(i)
            if i not in self._nodes:
                lost = max(lost, self._read(i, own, states, shares, off))
                continue
            if not go_on():
                return None
            (a, b), (_, mine, other, _), _ = self._nodes[i]
            x, y = tables.pop(a), tables.pop(b)
            for child, sibling, n, first in ((a, y, other, True), (b, x, mine, False)):
                d = self._derivative(own.values, sibling.values, self._nodes[i], first)
                made = _scaled(d, 1.01 * n * (own.lost + sibling.lost + LOST))
                derivative[child] = made._replace(
                    values=self._turned(made.values, self._wanted[child], self._axes[child])
                )
        for v in tree.sliced:
            shares[off[v] + states[v]] = 1.0
        return SliceAnswer(whole, shares, lost)

    @staticmethod
    def _derivative(own: Floats, sibling: Floats, node: _Product, first: bool) -> Floats:
        _, (stay, mine, other, gone), last = node
        theirs = other if first else mine
        if last:
            d = own.reshape(mine, other, stay)
            d = d if first else d.transpose(1, 0, 2)
            # (own states, theirs, stay) and (theirs, gone, stay)
            s = sibling.reshape(theirs, gone, stay).transpose(1, 0, 2)
            return _side_by_side(d, s)
        d = own.reshape(stay, mine, other)
        return np.matmul(d if first else d.transpose(0, 2, 1), sibling.reshape(stay, theirs, gone))

    def _read(
        self, i: int, own: _Table, states: dict[int, int], shares: Floats, off: NDArray[np.int64]
    ) -> float:
        """The shares of the variables that are read at a leaf; what they may have lost."""
        tree = self.tree
        scope = [v for v in tree.scopes[i] if v not in states]
        mine = [v for v in scope if self._reader[v] == i]
        if not mine:
            return 0.0
        table = self._leaf(i, states)[0]
        shape = [tree.card[v] if tree.out[i] >> v & 1 else 1 for v in scope]
        joint = table * own.values.reshape(shape)
        whole = float(joint.sum())
        lost = 1.01 * joint.size * (own.lost + self.lost[i] + LOST)
        for k, v in enumerate(scope):
            if v in mine:
                axes = tuple(j for j in range(len(scope)) if j != k)
                if whole > 0.0:
                    shares[off[v] : off[v + 1]] = joint.sum(axis=axes) / whole
        return lost / whole if whole > 0.0 else math.inf


def _side_by_side(x: Floats, y: Floats) -> Floats:
    """sum_k x[m, k, :] y[n, k, :]"""
    (m, k, stay), n = x.shape, y.shape[0]
    if m * n * k * 64 > stay:
        return np.einsum("mkz,nkz->mnz", x, y)
    out, one = np.empty((m, n, stay)), np.empty(stay)
    for p in range(m):
        for q in range(n):
            np.multiply(x[p, 0], y[q, 0], out=out[p, q])
            for r in range(1, k):
                np.multiply(x[p, r], y[q, r], out=one)
                out[p, q] += one
    return out


def _scaled(values: Floats, lost: float) -> _Table:
    """With the largest entry between a half and one; ``values`` are used up."""
    values = np.asarray(values)
    top = float(values.max(initial=0.0))
    if not top > 0.0:
        return _Table(values, 0, lost)
    e = math.frexp(top)[1]
    if e == 0:
        return _Table(values, 0, lost)
    if -1000 < e < 1000:
        values *= 2.0**-e
        return _Table(values, e, lost * 2.0**-e + LOST)
    return _Table(np.ldexp(values, -e), e, math.inf)
