"""The best assignment where no clique tree fits: what is run, in which order, and when it ends.

1. States that a factor forbids whatever the others do leave the running. Where there are hard
   factors, a depth-first search looks for a first assignment that they allow, or proves that there
   is none; it goes on between rounds until there is one.
2. A binary pairwise model is a cut: the answer, where signs are balanced; else roof duality gives a
   bound and states that some best assignment has. Left out where it would outlast the limit.
3. Dual block ascent lowers the bound; assignments are read off it, and bettered by moves on trees,
   in blocks and, of pairs with more labels, by expansions. States that the bound excludes go, so
   that both get easier. In turn, until they meet, or nothing moves, or the time is over.
4. With time left and pytoulbar2 installed, its branch and bound.

The bound counts its own rounding, so it is above every score, not only nearly so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.basics.limits import clock
from minfer.engine.support import possible
from minfer.errors import NOTHING_POSSIBLE, ContradictionError, RefusedError
from minfer.queries.map import toulbar
from minfer.queries.map.backtracking import Backtracking
from minfer.queries.map.dual import Dual
from minfer.queries.map.flow import by_flow, ising, persistent
from minfer.queries.map.moves import Moves
from minfer.queries.map.problem import MapProblem, lay_out
from minfer.solvers.exact import assignments, count_assignments
from minfer.solvers.tempering import ROUNDS, Ensembles, Tempering, refusal

if TYPE_CHECKING:
    from minfer.engine.conditioning import Conditioned

#: Scores that differ by less are not told apart.
TOLERANCE = 1e-8
_MOST_SWEEPS = 3000  # without a time limit
_QUIET_ROUNDS = 30  # without a better assignment or bound, then the search ends by itself
_SMALL = 0.02  # seconds that the moves of a round take at least
_HELD, _STILL = 2, 3  # moves that change nothing: then all may move, the walk begins elsewhere
_WIDTHS = (8.0, 12.0, 15.0)  # log2 of the cells of blocks' largest cliques
_MANY = 200  # variables from which expansions are tried
_BEFORE_DRAWS = 2  # walks that stood still: then every other begins at a drawn assignment
_DRAWN = 0.5
_FEW = 1 << 16  # assignments that are enumerated if none was found that is possible
_SEED = 20
_FIRST = 0.25  # seconds of the first go of the depth-first search; each next one is twice as long
_SECONDS_A_PAIR = 4e-5  # of a maximum flow: 1.5e-5 to 5.5e-5 measured on grids
_UPDATES = 4_000_000  # of variables between two draws: some hundredths of a second
_LEAST, _MOST = 4, 500  # sweeps between two draws


@dataclass(frozen=True, eq=False)
class BestFound:
    """An assignment (V,) with its score, a bound on all scores, and how the search ended."""

    x: NDArray[np.int64]
    score: float
    upper: float
    status: str
    steps: tuple[str, ...]


def search(
    model: Conditioned, deadline: float = math.inf, gap: float = 0.0, use_toulbar: bool = True
) -> BestFound:
    """The best assignment of a conditioned model, or a good one with a bound.

    Ends when bound and score are within ``gap``, at the ``deadline`` (of time.perf_counter), or
    when nothing moves any more. Raises RefusedError where no possible assignment was found.
    """
    return _Search(model, deadline, gap).run(use_toulbar)


class _Search:
    def __init__(self, model: Conditioned, deadline: float, gap: float) -> None:
        self.model = model
        self.problem = problem = lay_out(model)
        self.deadline = deadline
        self.gap = gap
        self.tolerance = TOLERANCE + 4.0 * problem.slack / problem.scale
        self.x = np.zeros(problem.n, dtype=np.int32)
        self.score = -math.inf
        self.upper = math.inf
        self.steps: list[str] = []
        self.rng = np.random.default_rng(_SEED)
        self.walk: NDArray[np.int32] | None = None  # of moves: where it is,
        self.patience = 4 * _STILL  # with a walk that stands still, drawn for each
        self.begun = False  # whether there was one
        self.narrow = False  # whether it keeps to states in the running
        self.level, self.still = -math.inf, 0  # its score, and how long it has been so
        self.tried = False  # to enumerate
        self.draws: Draws | None = None  # made when they are first asked for
        self.stood = 0  # how often a walk stood still
        self.depth: Backtracking | None = None  # where hard factors need one
        self.patch = _FIRST  # seconds of its next go

    # ------------------------------------------------------------ what is known

    def offer(self, x: NDArray[np.int32]) -> bool:
        score = self.problem.score(x)
        if not score > self.score:
            return False
        self.x, self.score = x.copy(), score
        return True

    def lower(self, bound: float) -> None:
        """A bound (scaled) on all assignments, or on all that are better than the best so far."""
        if self.score == -math.inf and bound < self.problem.floor:
            self.exhausted()
        if not math.isnan(bound):
            self.upper = min(self.upper, max(bound / self.problem.scale, self.score))

    def exhausted(self) -> None:
        """No assignment is better, but for rounding."""
        if self.score == -math.inf:
            raise ContradictionError(NOTHING_POSSIBLE)
        self.upper = min(self.upper, self.score + self.problem.slack / self.problem.scale)

    @property
    def done(self) -> bool:
        return self.score > -math.inf and self.upper - self.score <= max(self.tolerance, self.gap)

    @property
    def late(self) -> bool:
        return clock() > self.deadline

    @property
    def cut(self) -> float:
        """How far below the best a state may be at a visit, in scaled numbers."""
        if self.score == -math.inf or self.upper == math.inf:
            return math.inf
        p = self.problem
        return (self.upper - self.score) * p.scale + p.slack + TOLERANCE * p.scale

    # ------------------------------------------------------------ the search

    def run(self, use_toulbar: bool) -> BestFound:
        p = self.problem
        dual = Dual(p)
        if not dual.supported:
            self.exhausted()
        if p.n == 0:
            self.offer(self.x)
            self.exhausted()
            return self._found()
        if (depth := Backtracking(self.model, self.rng)).needed:
            self.depth = depth
            self._descend()
        self._cuts(dual)
        if not self.done:
            self._rounds(dual, use_toulbar and toulbar.available() and self.deadline < math.inf)
        if not self.done and not self.late and use_toulbar and self.deadline < math.inf:
            self._prove()
            if not self.done:  # it may have ended before its time
                self._rounds(dual, False)
        return self._found()

    def _found(self) -> BestFound:
        if self.score == -math.inf:
            extra = "" if toulbar.available() else (
                ", or pip install 'minfer[toulbar2]' and give a time_limit: its branch and bound "
                "then goes on")  # fmt: skip
            raise RefusedError(
                "mpe: no assignment with a positive probability was found, though none was proven "
                f"to be impossible; allow more time (time_limit), or observe more variables{extra}"
            )
        self.upper = max(self.upper, self.score)
        if self.upper - self.score <= self.tolerance:
            status = "optimal"
        else:
            status = "time limit" if self.late else "within gap"
        x = self.problem.whole(self.x)
        return BestFound(x, self.score, self.upper, status, tuple(self.steps))

    def _descend(self) -> None:
        """Go on with the depth-first search for some time, until there is an assignment."""
        if self.depth is None or self.score > -math.inf:
            return
        now = clock()
        x = self.depth.go(max(now + _FIRST, min(now + self.patch, self.deadline)))
        self.patch *= 2.0
        if self.depth.exhausted:
            self.exhausted()
        if x is not None:
            known = np.full(self.problem.model.graph.n_variables, -1, dtype=np.int32)
            known[: len(x)] = x  # then auxiliary variables have one state left
            alive, off = possible(self.problem.model, known), self.problem.model.graph._offsets
            first = [int(off[v] + np.argmax(alive[off[v] : off[v + 1]])) for v in self.problem.free]
            self.offer((np.array(first) - off[self.problem.free]).astype(np.int32))
            self.steps.append("backtracking")

    def _cuts(self, dual: Dual) -> None:
        """Binary pairwise models: all by a flow, or some states and a bound."""
        model = ising(self.problem, dual.theta)
        if model is None:
            return
        flip = model.flips()
        name = "roof duality" if flip is None else "maximum flow"
        needed = _SECONDS_A_PAIR * len(model.pairs)
        if clock() + needed > self.deadline:  # it cannot be interrupted
            self.steps.append(f"no {name}, which needs about {needed:.2g} s")
            return
        self.steps.append(name)
        if flip is not None:
            x, bound = by_flow(model, flip)
            self.offer(x)
            self.lower(bound)
            return
        known, bound = persistent(model)
        self.lower(bound)
        certain = np.flatnonzero(known >= 0)
        dual.theta[self.problem.off[certain] + 1 - known[certain]] = -np.inf
        dual._bury()

    def _rounds(self, dual: Dual, short: bool) -> None:
        """Sweeps and moves in turn. ``short``: somebody else waits to prove the rest."""
        p = self.problem
        moves = Moves(p, self.rng)
        if "dual ascent" not in self.steps:
            self.steps.append("dual ascent")
        batch, quiet, since = 1, 0, 0
        sweeping, began = True, clock()
        share = began + 0.3 * (self.deadline - began) if short else self.deadline
        while not self.done and (dual.sweeps == 0 or not self.late):  # one round at least
            before = (self.upper, self.score)
            self._descend()
            start = clock()
            if sweeping:
                for _ in range(batch):
                    if not dual.sweep(self.cut):
                        self.exhausted()
                        return
                    if self.late:
                        break
                self.lower(dual.bound())
                x = dual.rounded()
                self.offer(x)
                moves.trees(x)
                self.offer(x)
                batch = min(2 * batch, 32)
            spent = clock() - start
            if self.done or self.late:
                break
            self._moves(dual, moves, max(spent, _SMALL))
            if self.score == -math.inf and p.blocks and not self.tried:
                self.tried = True
                self._enumerate()
            better = self.score > before[1]
            if better and self.level < self.score * p.scale and not self.narrow:
                self.walk = None  # go on from there
            fell = before[0] - self.upper
            if sweeping and batch == 32 and fell <= 1e-3 * max(self.upper - self.score, 0.0):
                since += 1
                sweeping = since < 3
            elif fell > 0.0:
                since = 0
            if better:
                sweeping, quiet, since = True, 0, 0  # more states may go now
            elif not sweeping or fell <= 1e-6 * (self.upper - self.score):
                quiet += 1
            if self.deadline == math.inf and (quiet >= _QUIET_ROUNDS or dual.sweeps > _MOST_SWEEPS):
                break
            if clock() > share and quiet >= 3:
                break

    def _moves(self, dual: Dual, moves: Moves, seconds: float) -> None:
        """Go on with the walk of moves for some time; from somewhere else once it stands still."""
        p = self.problem
        until = min(clock() + seconds, self.deadline)
        if self.walk is None:
            self.walk = self.x.copy() if self.score > -math.inf and self.begun else dual.rounded()
            self.begun = True
            self.level, self.still = moves.value(self.walk), 0
        x = self.walk
        if self.narrow:
            moves.restrict(dual.theta, x)
        if moves.can_fuse and p.cards.max() > 2 and p.n > _MANY:
            x[:] = moves.expansions(x, until)
            self.offer(x)
        while True:
            if moves.block(x, float(self.rng.choice(_WIDTHS))):
                self.offer(x)
                if self.score > -math.inf or moves.value(x) + p.constant < p.floor:
                    self.exhausted()
                return
            moves.trees(x)
            level = moves.value(x)
            if level > self.level + 1e-9 * abs(level):
                self.level, self.still = level, 0
                self.offer(x)
            else:
                self.still += 1
            if self.still == _HELD:
                moves.release()
            if self.still >= self.patience:
                self._elsewhere(dual, moves, x)
            if clock() > until:
                return

    def _elsewhere(self, dual: Dual, moves: Moves, x: NDArray[np.int32]) -> None:
        """Begin the walk anew, at the best or at what the dual says, with states drawn or held."""
        p = self.problem
        self.stood += 1
        if self.stood == _BEFORE_DRAWS:
            self.draws = Draws.of(p, self.model, _SEED)
            self.steps += ["parallel tempering"] if self.draws is not None else []
        if self.draws is not None and self.rng.random() < _DRAWN:
            self.narrow = False
            moves.relax()
            x[:] = self.draws.next()
            self.patience, self.level, self.still = _STILL, -math.inf, 0
            return
        self.patience = _STILL * 2 ** min(int(self.rng.geometric(0.5)) - 1, 4)
        fewer = np.isneginf(dual.theta).sum() > np.isneginf(p.theta).sum()
        self.narrow = bool(fewer) and not self.narrow
        if self.narrow:
            x[:] = dual.rounded()
            moves.restrict(dual.theta, x)
            if self.rng.random() < 0.5:
                self.level, self.still = -math.inf, 0
                return
        else:
            moves.relax()
            near = self.score > -math.inf and self.rng.random() < 0.6
            x[:] = self.x if near else dual.rounded()
        drawn = (self.rng.random(p.n) * p.cards).astype(np.int32)
        self.level, self.still = -math.inf, 0
        candidates = np.flatnonzero(moves.movable & ~moves.single)
        if self.rng.random() < 0.7 or not len(candidates):
            anew = self.rng.random(p.n) < 2.0 ** -self.rng.uniform(0.0, 5.0)
            anew &= moves.movable & ~moves.single
            x[anew] = drawn[anew]
            return
        some = self.rng.choice(candidates, min(int(self.rng.integers(1, 4)), len(candidates)))
        x[some] = np.where(drawn[some] == x[some], (x[some] + 1) % p.cards[some], drawn[some])
        moves.hold(some)

    def _enumerate(self) -> None:
        """All assignments, where they are few: what moves did not find possible may still be."""
        graph = self.model.graph
        if count_assignments(graph) > _FEW:
            return
        self.steps.append("enumeration")
        for x in assignments(graph):
            scores = graph.log_score(x)
            at = int(np.argmax(scores))
            if scores[at] > self.score:
                self.x, self.score = x[at, self.problem.free].astype(np.int32), float(scores[at])
        self.exhausted()

    def _prove(self) -> None:
        if self.problem.blocks or not toulbar.available():
            return
        answer = toulbar.solve(self.problem, self.score, self.deadline - clock())
        self.steps.append("toulbar2")
        if answer is None:
            return
        x, bound = answer
        if x is not None:
            self.offer(x)
        if bound == -math.inf:
            self.exhausted()
        else:
            self.lower(bound)


class Draws:
    """Assignments drawn by parallel tempering, to begin moves from."""

    def __init__(self, problem: MapProblem, model: Conditioned, seed: int) -> None:
        self.free = problem.free
        settings = Tempering(rng=seed)
        self.run = Ensembles(settings, model.graph, model, None, clock())
        lanes = settings.n_replicas * settings.n_chains
        self.sweeps = int(np.clip(_UPDATES / (lanes * max(problem.n, 1)), _LEAST, _MOST))
        self.rounds = 0
        self.waiting: list[NDArray[np.int32]] = []

    @staticmethod
    def of(problem: MapProblem, model: Conditioned, seed: int) -> Draws | None:
        """None where tempering declines, or states of auxiliary variables would be missing."""
        if problem.blocks or problem.model.graph is not model.graph or refusal(model):
            return None
        return Draws(problem, model, seed)

    def next(self) -> NDArray[np.int32]:
        if not self.waiting:
            self.run.sweep(self.sweeps, False)
            if self.rounds < ROUNDS:
                self.run.move_ladder()
            self.rounds += 1
            self.waiting = list(self.run.coldest()[:, self.free])
        return self.waiting.pop()
