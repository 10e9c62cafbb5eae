"""A possible assignment by depth-first search, or the proof that there is none.

Moves that better an assignment have nothing to go by where almost all assignments are impossible.
Here each variable in turn takes a state, and what hard zeros exclude then
(:mod:`minfer.engine.support`) goes before the next: for puzzles that is most of the work. The
variable with the fewest states left for its weight comes first, where its weight counts how often
it was left without any (Boussemart et al. 2004); its states come in the order of their own weights.
After some failures the search starts again with what it learned, each time for longer, so that in
the end it is complete. Numbers play no part in what it proves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.limits import clock
from minfer.engine.support import Support

if TYPE_CHECKING:
    from minfer.engine.conditioning import Conditioned

_FAILURES, _MORE = 50, 1.5  # before a start anew, and how many times as many the next time


class Frame(NamedTuple):
    """A variable, what was alive before it took a state, and the states that it has not taken."""

    variable: int
    alive: NDArray[np.uint8]
    left: list[int]


class Backtracking:
    """The search over a conditioned model; it goes on where it stopped."""

    def __init__(self, model: Conditioned, rng: np.random.Generator) -> None:
        self.support = Support(model, None)
        self.off = model.graph._offsets
        self.root = self.support.settled().view(np.uint8).copy()
        self.needed = self.support.excludes
        self.field, self.rng = model.field, rng
        self.weight = np.ones(model.graph.n_variables)
        self.limit = float(_FAILURES)
        self.exhausted = False
        self._start()

    def _start(self) -> None:
        self.failures, self.stack, self.alive = 0, list[Frame](), self.root
        self.order = -self.field + 1e-9 * self.rng.random(len(self.field))

    def go(self, until: float) -> NDArray[np.int64] | None:
        """States (V,) that nothing forbids, or None: ``exhausted``, or ``until`` is over."""
        while not self.exhausted and clock() < until:
            count = np.add.reduceat(self.alive, self.off[:-1], dtype=np.int64)
            if count.max(initial=1) == 1:
                return np.flatnonzero(self.alive) - self.off[:-1]
            v = int(np.argmin(np.where(count > 1, count / self.weight, np.inf)))
            lo, hi = int(self.off[v]), int(self.off[v + 1])
            states = lo + np.flatnonzero(self.alive[lo:hi])
            left = states[np.argsort(-self.order[states], kind="stable")].tolist()  # the best last
            self.stack.append(Frame(v, self.alive, left))
            self._next()
        return None

    def _next(self) -> None:
        """Take the next state that leaves all variables one, of the last variable that has any."""
        while self.stack:
            v, alive, left = self.stack[-1]
            if not left:
                self.stack.pop()
                continue
            trial = alive.copy()
            trial[self.off[v] : self.off[v + 1]] = 0
            trial[left.pop()] = 1
            bare = self.support.narrow(trial, v)
            if bare < 0:
                self.alive = trial
                return
            self.weight[bare] += 1.0
            self.failures += 1
            if self.failures > self.limit:
                self.limit *= _MORE
                self._start()
                return
        self.exhausted = True
