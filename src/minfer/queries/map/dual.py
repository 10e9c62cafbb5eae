"""Dual block ascent: an upper bound on every assignment's score that never rises.

With q_ai any vector from variable i into factor a,

    max_x score(x) <= sum_i max [ theta_i - sum_a q_ai ] + sum_a max [ theta_a + sum_i q_ai ].

A visit to a variable moves all that its factors know of it into its own term, which cannot raise
the sum, and then divides that term among its factors, which leaves the sum as it is. Variables are
visited in order and against it, and what a variable has goes to the factors with a variable still
to come: on pairs that is TRW-S (Kolmogorov 2006), on larger tables SRMP's scheme (Kolmogorov 2015).
Groups that answer for themselves (:class:`~minfer.queries.map.problem.MaxBlock`) take all of their
variables at once (MPLP; Globerson & Jaakkola 2008), those without common variables together.

Two ways in which states leave the running: a factor forbids one whatever the others do; or the
bound with it is below the best score known (it is the bound less what the state is short of the
best at a visit). If a variable has none left, nothing is better than what is known.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.engine.layout import ranges
from minfer.engine.support import possible
from minfer.errors import ContradictionError
from minfer.kernels.best import dual as kernel

if TYPE_CHECKING:
    from minfer.queries.map.problem import MapProblem, MaxBlock

_EPS = 2.220446049250313e-16


class Dual:
    """The vectors of one problem, and what they prove. States leave ``theta`` for good."""

    def __init__(self, problem: MapProblem) -> None:
        self.problem = problem
        self.theta = problem.theta.copy()  # unary terms; -inf: out of the running
        n_slots = int(problem.cards[problem.wires.sv].sum())
        self.q = np.zeros(n_slots)
        self.mu = np.zeros(n_slots)
        self.given = [np.zeros(b.at.shape) for b in problem.blocks]
        self.forward, self.every = True, True
        self.sweeps = 0
        inside = [b.at[b.at >= 0] for b in problem.blocks]
        states = np.unique(np.concatenate(inside)) if inside else np.zeros(0, np.int64)
        owner = np.repeat(np.arange(problem.n), problem.cards)
        self.in_blocks = np.unique(owner[states])
        self.supported = self._support()

    @cached_property
    def _states(self) -> NDArray[np.int64]:
        """The state, among all, that each entry of the vectors is about."""
        w = self.problem.wires
        shift = np.repeat(w.off[w.sv] - w.so, self.problem.cards[w.sv])
        return shift + np.arange(len(self.q))

    # ------------------------------------------------------------ going down

    def _support(self) -> bool:
        """Whether all variables keep a state when unsupported ones go; sets their vectors."""
        p = self.problem
        try:
            alive = possible(p.model)
        except ContradictionError:
            return False
        cards = p.model.graph._n_states[p.free].astype(np.int64)
        self.theta[~alive[ranges(p.model.graph._offsets[p.free], cards)]] = -np.inf
        if not self._all_alive():
            return False
        self._bury()
        return True

    def _all_alive(self) -> bool:
        alive = (self.theta > -np.inf).astype(np.int64)
        return not len(alive) or bool(np.add.reduceat(alive, self.problem.off[:-1]).min() > 0)

    def _bury(self) -> None:
        """The vectors of states out of the running."""
        self.q[np.isneginf(self.theta[self._states])] = -np.inf
        for b, given in zip(self.problem.blocks, self.given):
            given[(b.at >= 0) & np.isneginf(self.theta[b.at])] = -np.inf

    def _own(self) -> NDArray[np.float64]:
        """theta less what blocks were given."""
        own = self.theta.copy()
        for b, given in zip(self.problem.blocks, self.given):
            use = (b.at >= 0) & (given > -np.inf)
            np.subtract.at(own, b.at[use], given[use])
        return own

    def sweep(self, cut: float = np.inf) -> bool:
        """One pass over variables, then blocks; False where a variable is left no state."""
        p = self.problem
        self.sweeps += 1
        own = self._own() if p.blocks else self.theta
        bad = kernel.sweep(p.wires, own, self.q, self.mu, self.forward, self.every, cut)
        self.forward, self.every = not self.forward, False
        if bad >= 0:
            return False
        if not p.blocks:
            return True
        self.theta[np.isneginf(own)] = -np.inf
        kernel.collect(p.wires, own, self.q, self.mu, self.in_blocks)
        self.every = True  # ``collect`` changed vectors that both directions read
        self._bury()
        return all(self._visit(b, given, cut) for b, given in zip(p.blocks, self.given))

    def _rest(self) -> NDArray[np.float64]:
        """What each variable has after all vectors, per state; -inf where out of the running."""
        use = self.q > -np.inf
        own = self._own()
        if len(own):
            own -= np.bincount(self._states[use], self.q[use], minlength=len(own))
        return own

    def _visit(self, b: MaxBlock, given: NDArray[np.float64], cut: float) -> bool:
        """The factors of a block take all that their variables have, and leave each its share."""
        for rows in b.colours:
            rest = self._rest()
            at = b.at[rows]
            is_free = at >= 0
            alive = is_free & (self.theta[at] > -np.inf)
            c = np.where(is_free, -np.inf, b.known[rows])
            c[alive] = rest[at[alive]] + given[rows][alive]
            out = np.empty(at.shape)
            top = b.group.messages(rows, c, out, best=True)
            total = c + out
            if np.isneginf(top).any():
                return False
            out_of = alive & ((total < top[:, None] - cut) | np.isneginf(total))
            self.theta[at[out_of]] = -np.inf
            alive &= ~out_of
            share = total / np.maximum(b.n_free[rows], 1)[:, None]
            new = np.where(is_free, -np.inf, 0.0)
            new[alive] = c[alive] - share[alive]
            given[rows] = new
            self._bury()
        return self._all_alive()

    # ------------------------------------------------------------ what it proves

    def bound(self) -> float:
        """An upper bound on all scores (scaled) that use no state out of the running."""
        p = self.problem
        own = self._own() if p.blocks else self.theta
        nodes, factors = np.empty(p.n), np.empty(len(p.size))
        kernel.tops(p.wires, p.size, own, self.q, nodes, factors)
        parts = [nodes.tolist(), factors.tolist()]
        sizes = 0.0
        for b, given in zip(p.blocks, self.given):
            c = np.where(b.at >= 0, given, b.known)
            out = np.empty(c.shape)
            top = b.group.messages(np.arange(len(b.group)), c, out, best=True)
            finite = np.where(np.isfinite(c), np.abs(c), 0.0)
            # as many additions as positions, in any order, and what the factor itself adds
            size = finite.sum(axis=1) + b.group.magnitude() + np.abs(top)
            sizes += float(((b.group.arity + 8) * size).sum())
            parts.append(top.tolist())
        total = math.fsum([x for part in parts for x in part] + [p.constant])
        own_size = float(np.abs(own[own > -np.inf]).sum()) if p.blocks else 0.0
        total += 4.0 * _EPS * (sizes + (len(p.blocks) + 2) * own_size)
        total += p.slack + 2.0 * _EPS * abs(total)
        return total if not math.isnan(total) else math.inf

    def rounded(self) -> NDArray[np.int32]:
        """States read off the vectors, variable by variable (:func:`kernel.round_off`)."""
        p = self.problem
        x = np.full(p.n, -1, dtype=np.int32)
        own = self._own() if p.blocks else self.theta
        for b, given in zip(p.blocks, self.given):
            self._decode(b, given, x)
        kernel.round_off(p.wires, own, self.q, self.mu, self.forward, x)
        return x

    def _decode(self, b: MaxBlock, given: NDArray[np.float64], x: NDArray[np.int32]) -> None:
        """The best states of each factor of a block, position by position; x where not known."""
        owner = np.repeat(np.arange(self.problem.n), self.problem.cards)
        rest = self._rest()
        ends = np.cumsum(b.group.shape)
        for rows in b.colours:
            at = b.at[rows]
            is_free = at >= 0
            alive = is_free & (self.theta[at] > -np.inf)
            c = np.where(is_free, -np.inf, b.known[rows])
            c[alive] = rest[at[alive]] + given[rows][alive]
            told = is_free & (x[owner[at]] >= 0)
            state = at - self.problem.off[owner[at]]
            c[told & (state != x[owner[at]])] = -np.inf
            out = np.empty(at.shape)
            for a, end in enumerate(ends.tolist()):
                lo = end - b.group.shape[a]
                b.group.messages(rows, c, out, best=True)
                best = np.argmax((c + out)[:, lo:end], axis=1)
                one = np.arange(end - lo) == best[:, None]
                c[:, lo:end] = np.where(one, 0.0, -np.inf)
                mine = is_free[:, lo]
                x[owner[at[mine, lo]]] = np.where(
                    x[owner[at[mine, lo]]] < 0, best[mine], x[owner[at[mine, lo]]]
                )
