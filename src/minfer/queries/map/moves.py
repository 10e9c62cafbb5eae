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
from minfer.queries.map.flow import Ising, by_flow, persistent

if TYPE_CHECKING:
    from minfer.kernels.best.dual import MaxWires
    from minfer.queries.map.problem import MapProblem

#: The largest tables of label distances that are written out for blocks.
_MAX_CELLS = 1 << 24
_REGION = 1000  # variables of a block


class Moves:
    """Moves in one problem; all randomness is from ``rng``."""

    def __init__(self, problem: MapProblem, rng: np.random.Generator) -> None:
        self.problem = problem
        self.rng = rng
        tab = problem.wires.tab
        self.movable = np.ones(problem.n, dtype=np.bool_)
        owner = np.repeat(np.arange(problem.n), problem.cards)
        for b in problem.blocks:  # these have a say that no table knows
            self.movable[owner[b.at[b.at >= 0]]] = False
        finite = np.abs(tab[np.isfinite(tab)])
        own = np.abs(problem.theta[np.isfinite(problem.theta)])
        largest = max(float(finite.max(initial=0.0)), float(own.max(initial=0.0)))
        self.price = 1e5 * max(largest, 1e-300)
        self.theta = np.maximum(problem.theta, -self.price)
        self.wires = problem.wires._replace(tab=np.maximum(tab, -self.price))
        self.tables: MaxWires | None = self._written_out()
        self.held = np.zeros(0, dtype=np.int64)
        self.single = np.zeros(problem.n, dtype=bool)  # with one state in the running
        self.place = np.full(problem.n, -1, dtype=np.int32)

    def _written_out(self) -> MaxWires | None:
        """The wires with label distances as tables; None where these are too large."""
        w = self.wires
        taps = np.flatnonzero(w.fw >= 0)
        if not len(taps):
            return w
        k = self.problem.cards[w.sv[w.fptr[taps]]]
        starts, first, which = np.unique(w.ft[taps], return_index=True, return_inverse=True)
        sizes = k[first] ** 2
        if int(sizes.sum()) > _MAX_CELLS:
            return None
        more, at = [w.tab], len(w.tab) + np.cumsum(sizes) - sizes
        for t, row in zip(starts.tolist(), first.tolist()):
            width, labels = int(w.fw[taps[row]]), np.arange(int(k[row]))
            apart = np.abs(labels[:, None] - labels)
            more.append(w.tab[np.where(apart < width, t + 1 + apart, t)].ravel())
        begin = w.ft.copy()
        begin[taps] = at[which.ravel()]
        return w._replace(ft=begin, fw=np.full_like(w.fw, -1), tab=np.concatenate(more))

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
        w = self.wires
        seen = np.zeros(n, dtype=bool)
        out = [int(self.rng.choice(candidates))]
        seen[out[0]] = True
        at = 0
        while at < len(out) and len(out) < _REGION:
            i = out[at]
            at += 1
            for f in w.sf[w.vs[w.vptr[i] : w.vptr[i + 1]]].tolist():
                for j in w.sv[w.fptr[f] : w.fptr[f + 1]].tolist():
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
        off, sv, ft, tab = self.tables.off, self.tables.sv, self.tables.ft, self.tables.tab
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
        both, n = differs[i] & differs[j], len(unary)
        only_i, only_j = differs[i] & ~both, differs[j] & ~both
        unary = unary + np.bincount(place[i[only_i]], (t10 - t00)[only_i], n)
        unary += np.bincount(place[j[only_j]], (t01 - t00)[only_j], n)
        scopes = place[np.stack([i, j], axis=1)[both]]
        model = Ising.of(unary, scopes, np.stack([t00, t01, t10, t11], axis=1)[both])
        flip = model.flips()
        take = by_flow(model, flip)[0] if flip is not None else persistent(model)[0]
        out = x.copy()
        out[differs] = np.where(take == 1, proposal[differs], x[differs])
        return out

    def expansions(self, x: NDArray[np.int32], deadline: float) -> NDArray[np.int32]:
        labels = int(self.problem.cards.max())
        for label in self.rng.permutation(labels).tolist():
            if clock() > deadline:
                break
            proposal = np.where(self.problem.cards > label, label, x).astype(np.int32)
            x = self.fuse(x, proposal)
        return x

    def value(self, x: NDArray[np.int32]) -> float:
        """The score with zeros at their price; blocks left out."""
        w = self.wires
        total = [float(self.theta[w.off[:-1] + x].sum())]
        arity = np.diff(w.fptr)
        for a in np.unique(arity).tolist():
            rows = np.flatnonzero(arity == a)
            slots = w.fptr[rows][:, None] + np.arange(a)
            states = x[w.sv[slots]].astype(np.int64)
            cell = np.zeros(len(rows), dtype=np.int64)
            for k in range(a):
                cell = cell * self.problem.cards[w.sv[slots[:, k]]] + states[:, k]
            if a == 2:
                apart = np.abs(states[:, 0] - states[:, 1])
                tap = np.where(apart < w.fw[rows], 1 + apart, 0)
                cell = np.where(w.fw[rows] >= 0, tap, cell)
            total.append(float(w.tab[w.ft[rows] + cell].sum()))
        return math.fsum(total)
