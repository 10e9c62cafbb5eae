"""Moves that never make an assignment worse: trees, large blocks, expansions.

* *Trees*: the best states of all variables of a random forest together, the others as they are.
* *Blocks*: the same of a block of bounded width, by elimination; it may be most of the model.
* *Expansions* (Boykov, Veksler & Zabih 2001) and, in general, *fusions*: each variable of a
  pairwise model keeps its state or takes that of a proposal, all at once, by a cut. Where the
  choice is not balanced, roof duality decides on some, and the others stay: still never worse.

Zeros are a high price here, so that an impossible assignment can be mended.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.basics.limits import clock
from minfer.queries.map.flow import Ising, by_flow
from minfer.queries.map.persistency import persistent

if TYPE_CHECKING:
    from minfer.queries.map.problem import MapProblem

#: The largest tables of label distances that are written out for blocks.
_MAX_CELLS = 1 << 24
_REGION = 1000  # variables of a block


class Moves:
    """Moves in one problem; all randomness is from ``rng``."""

    def __init__(self, problem: MapProblem, rng: np.random.Generator) -> None:
        self.problem = problem
        self.rng = rng
        wires = problem.wires
        self.movable = np.ones(problem.n, dtype=np.bool_)
        owner = np.repeat(np.arange(problem.n), problem.cards)
        for b in problem.blocks:  # these have a say that no table knows
            self.movable[owner[b.at[b.at >= 0]]] = False
        tab = wires[11]
        finite = np.abs(tab[np.isfinite(tab)])
        own = np.abs(problem.theta[np.isfinite(problem.theta)])
        largest = max(float(finite.max(initial=0.0)), float(own.max(initial=0.0)))
        self.price = 1e5 * max(largest, 1e-300)
        self.theta = np.maximum(problem.theta, -self.price)
        self.wires = (*wires[:11], np.maximum(tab, -self.price))
        self.tables: tuple[NDArray, ...] | None = self._written_out()
        self.held = np.zeros(0, dtype=np.int64)
        self.single = np.zeros(problem.n, dtype=bool)  # with one state in the running
        self.place = np.full(problem.n, -1, dtype=np.int32)

    def _written_out(self) -> tuple[NDArray, ...] | None:
        """The wires with label distances as tables; None where these are too large."""
        fptr, sv, ft, fw, tab = (self.wires[i] for i in (3, 4, 9, 10, 11))
        taps = np.flatnonzero(fw >= 0)
        if not len(taps):
            return self.wires
        k = self.problem.cards[sv[fptr[taps]]]
        starts, first, which = np.unique(ft[taps], return_index=True, return_inverse=True)
        sizes = k[first] ** 2
        if int(sizes.sum()) > _MAX_CELLS:
            return None
        more, at = [tab], len(tab) + np.concatenate([[0], np.cumsum(sizes)[:-1]])
        for t, row in zip(starts.tolist(), first.tolist()):
            width, labels = int(fw[taps[row]]), np.arange(int(k[row]))
            apart = np.abs(labels[:, None] - labels)
            more.append(tab[np.where(apart < width, t + 1 + apart, t)].ravel())
        begin = ft.copy()
        begin[taps] = at[which.ravel()]
        return (*self.wires[:9], begin, np.full_like(fw, -1), np.concatenate(more))

    def restrict(self, theta: NDArray[np.float64], x: NDArray[np.int32]) -> None:
        """Only states in the running from now on; x takes those of variables with no other."""
        p = self.problem
        self.theta = np.maximum(theta, -self.price)
        alive = theta > -np.inf
        n_alive = np.add.reduceat(alive.astype(np.int64), p.off[:-1])
        self.single = n_alive == 1
        where = np.flatnonzero(alive)
        owner = np.repeat(np.arange(p.n), p.cards)[where]
        state = np.zeros(p.n, dtype=np.int32)
        state[owner] = where - p.off[owner]
        x[self.single] = state[self.single]

    def relax(self) -> None:
        """All possible states again."""
        self.theta = np.maximum(self.problem.theta, -self.price)
        self.single[:] = False

    def hold(self, some: NDArray[np.int64]) -> None:
        """These stay as they are until the release."""
        self.held = some[self.movable[some]]
        self.movable[self.held] = False

    def release(self) -> None:
        self.movable[self.held] = True
        self.held = self.held[:0]

    def trees(self, x: NDArray[np.int32]) -> int:
        """The best states of a random forest; how many changed."""
        from minfer.kernels.best.dual import tree_moves

        order = self.rng.permutation(self.problem.n)
        return int(tree_moves(self.wires, self.theta, x, order, self.movable))

    def block(self, x: NDArray[np.int32], width: float) -> bool:
        """The best states of a block; whether it was all: nothing in the running is better."""
        from minfer.kernels.best.blocks import best_block

        if self.tables is None:
            return False
        region = self._region()
        if not len(region):
            return bool(self.single.all())
        noise = 0.2 + self.rng.random(len(region))
        shift = int(self.rng.integers(0, 4))
        left = best_block(self.tables, self.theta, x, region, noise, width, shift, self.place)
        return bool(left == 0 and len(region) + int(self.single.sum()) == self.problem.n)

    def _region(self) -> NDArray[np.int64]:
        """Movable variables around a random one, or all where there are not too many."""
        n = self.problem.n
        candidates = np.flatnonzero(self.movable & ~self.single)
        if len(candidates) <= _REGION:
            return candidates
        vptr, vs, fptr, sv, sf = (self.wires[i] for i in (1, 2, 3, 4, 6))
        seen = np.zeros(n, dtype=bool)
        out = [int(self.rng.choice(candidates))]
        seen[out[0]] = True
        at = 0
        while at < len(out) and len(out) < _REGION:
            i = out[at]
            at += 1
            for s in vs[vptr[i] : vptr[i + 1]].tolist():
                f = int(sf[s])
                for j in sv[fptr[f] : fptr[f + 1]].tolist():
                    if not seen[j] and self.movable[j] and not self.single[j]:
                        seen[j] = True
                        out.append(j)
        return np.array(out[:_REGION], dtype=np.int64)

    # ------------------------------------------------------------ fusions

    @property
    def can_fuse(self) -> bool:
        return self.problem.pairwise and self.tables is not None

    def fuse(self, x: NDArray[np.int32], proposal: NDArray[np.int32]) -> NDArray[np.int32]:
        """The best, or a better, choice between two assignments at each variable."""
        assert self.tables is not None
        off, sv, ft, tab = (self.tables[i] for i in (0, 4, 9, 11))
        differs = proposal != x
        if not differs.any():
            return x
        place = np.cumsum(differs) - 1
        unary = (self.theta[off[:-1] + proposal] - self.theta[off[:-1] + x])[differs]
        i, j = sv.reshape(-1, 2).T
        m = self.problem.cards[j]

        def cell(a: NDArray, b: NDArray) -> NDArray[np.float64]:
            return tab[ft + a[i] * m + b[j]]

        t00, t01 = cell(x, x), cell(x, proposal)
        t10, t11 = cell(proposal, x), cell(proposal, proposal)
        n = len(unary)
        both, only_i, only_j = (
            differs[i] & differs[j],
            differs[i] & ~differs[j],
            ~differs[i] & differs[j],
        )
        price = (((t00 - t01) + (t11 - t10)) / 2.0)[both]
        b = (((t11 - t01) + (t10 - t00)) / 2.0)[both]
        c = (((t11 - t10) + (t01 - t00)) / 2.0)[both]
        unary = unary + np.bincount(place[i[both]], b, n) + np.bincount(place[j[both]], c, n)
        unary += np.bincount(place[i[only_i]], (t10 - t00)[only_i], n)
        unary += np.bincount(place[j[only_j]], (t01 - t00)[only_j], n)
        low = np.minimum(place[i[both]], place[j[both]])
        high = np.maximum(place[i[both]], place[j[both]])
        keys, which = np.unique(low * n + high, return_inverse=True)
        model = Ising(
            0.0, unary, np.stack([keys // n, keys % n], axis=1),
            np.bincount(which.ravel(), price, len(keys)).astype(np.float64), 0.0,
        )  # fmt: skip
        flip = model.flips()
        take = by_flow(model, flip)[0] if flip is not None else persistent(model)[0]
        out = x.copy()
        out[differs] = np.where(take == 1, proposal[differs], x[differs])
        return out

    def expansions(self, x: NDArray[np.int32], deadline: float) -> NDArray[np.int32]:
        """One round of expansions, each label in turn."""
        labels = int(self.problem.cards.max())
        for label in self.rng.permutation(labels).tolist():
            if clock() > deadline:
                break
            proposal = np.where(self.problem.cards > label, label, x).astype(np.int32)
            x = self.fuse(x, proposal)
        return x

    def value(self, x: NDArray[np.int32]) -> float:
        """The score with zeros at their price; blocks left out."""
        off, fptr, sv, ft, fw, tab = (self.wires[i] for i in (0, 3, 4, 9, 10, 11))
        total = [float(self.theta[off[:-1] + x].sum())]
        arity = np.diff(fptr)
        for a in np.unique(arity).tolist():
            rows = np.flatnonzero(arity == a)
            slots = fptr[rows][:, None] + np.arange(a)
            states = x[sv[slots]].astype(np.int64)
            cell = np.zeros(len(rows), dtype=np.int64)
            for k in range(a):
                cell = cell * self.problem.cards[sv[slots[:, k]]] + states[:, k]
            if a == 2:
                apart = np.abs(states[:, 0] - states[:, 1])
                tap = np.where(apart < fw[rows], 1 + apart, 0)
                cell = np.where(fw[rows] >= 0, tap, cell)
            total.append(float(tab[ft[rows] + cell].sum()))
        return math.fsum(total)
