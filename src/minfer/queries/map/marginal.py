"""Marginal MAP where no constrained clique tree fits: a search that opens what may still be better.

    max over m of sum over s of p~(m, s)

by best-first AND/OR search with the variables m first, whose parts not yet opened are bounded by
weighted mini-buckets (Lou, Dechter & Ihler, AAAI 2018; :mod:`minfer.engine.buckets`). What is found
has a *score* that is proven from below, and nothing has one above the bound; both sides count their
rounding.

The next best come as those of a clique tree do (Lawler 1972): all assignments of m but the best are
divided by the first variable in which they differ from it, each part is a model with fewer states,
and has a search of its own. The part with the best found is opened next; an order is proven only
where no other part's bound is above it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.basics.limits import clock
from minfer.engine.conditioning import condition
from minfer.errors import NOTHING_POSSIBLE, ContradictionError, RefusedError
from minfer.queries.map.search import TOLERANCE
from minfer.queries.map.search import search as search_all

if TYPE_CHECKING:
    from minfer.engine.buckets.search import BoundedSearch
    from minfer.graph import FactorGraph

#: Nodes of the first round; each next one has twice as many.
FIRST = 512
#: Without a time limit a search ends after so many rounds that closed less than this share of the
#: gap, each as long as all before it.
QUIET, CLOSED = 3, 0.02
#: What messages and leaves may fill in any case.
LEAST_GIB = 0.25
#: Of the time, for the best assignment, where more are asked for.
FOR_BEST = 0.5
#: Of the time, for a first assignment where the search has not come to one.
FOR_FIRST = 0.1


@dataclass(frozen=True, eq=False)
class MarginalBest:
    """Assignments of m (n, M) by their proven scores, a bound on all scores, and how it ended."""

    found: list[tuple[float, NDArray[np.int64]]]
    upper: float
    status: str
    complete: bool
    steps: tuple[str, ...]


def marginal_map(
    graph: FactorGraph, wanted: Sequence[int], k: int, deadline: float, gap: float, max_gib: float
) -> MarginalBest:
    """The k best states of some variables, all others summed; see the module.

    Raises RefusedError where the model cannot be written in tables, or no assignment was found.
    """
    whole = _Division(graph, list(wanted), max(max_gib, LEAST_GIB))
    late = deadline if k == 1 else clock() + FOR_BEST * (deadline - clock())
    whole.run(late, gap)
    if whole.upper == -math.inf:
        raise ContradictionError(NOTHING_POSSIBLE)
    steps = ["best-first search"]
    if whole.best is None:
        steps.append(whole.anything(deadline))
    if whole.best is None:
        raise RefusedError(
            "mpe: no assignment of these variables with a positive probability was found, though "
            "none was proven to be impossible; allow more time (time_limit), or observe more "
            "variables"
        )
    parts = [whole]
    found: list[tuple[float, NDArray[np.int64]]] = []
    upper, proven, complete = whole.upper, True, False
    while len(found) < k:
        able = [p for p in parts if p.best is not None]
        complete = not any(p.upper > -math.inf for p in parts)
        if complete or not able or (found and clock() >= deadline):
            break
        first = max(able, key=lambda p: p.lower)
        others = max((p.upper for p in parts if p is not first), default=-math.inf)
        proven &= first.closed(gap) and others <= first.lower + _slack(first.lower)
        assert first.best is not None
        found.append((first.lower, first.best))
        parts.remove(first)
        if len(found) == k:
            complete = not parts and not first.open
            break
        n = max(first.open, 1)
        for i, part in enumerate(first.without_best()):
            left = (deadline - clock()) / max(2.0 * (k - len(found)) * (n - i), 1.0)
            part.run(clock() + left if deadline < math.inf else deadline, gap)
            if part.upper > -math.inf:
                parts.append(part)
            if clock() >= deadline:
                proven = complete = False  # of the others nothing is known
                break
    tight = upper - found[0][0] <= _slack(found[0][0])
    if tight and proven:
        status = "optimal"
    else:
        status = "time limit" if clock() >= deadline else "within gap"
    return MarginalBest(found, max(upper, found[0][0]), status, complete, tuple(steps))


def _slack(score: float) -> float:
    """Scores that differ by less are not told apart."""
    return TOLERANCE * max(1.0, abs(score) * 1e-3)


class _Division:
    """A model whose best assignment is looked for; some states of m may be excluded."""

    def __init__(self, graph: FactorGraph, wanted: list[int], max_gib: float) -> None:
        from minfer.engine.buckets.search import BoundedSearch

        self.graph, self.wanted, self.max_gib = graph, wanted, max_gib
        self.lower, self.upper = -math.inf, math.inf
        self.best: NDArray[np.int64] | None = None
        self.search: BoundedSearch | None = None
        try:
            self.model = condition(graph)
            self.search = BoundedSearch(self.model, maximise=wanted, memory_limit=max_gib * 2.0**30)
        except ContradictionError:
            self.upper = -math.inf
        else:
            self._note()

    def _note(self) -> None:
        if self.search is None:
            return
        self.upper = min(self.upper, self.search.upper)
        if self.search.best is not None and self.search.lower > self.lower:
            self.lower, self.best = self.search.lower, np.asarray(self.search.best, dtype=np.int64)

    def closed(self, gap: float) -> bool:
        """Whether nothing better is left, up to a gap."""
        return self.best is not None and self.upper - self.lower <= max(gap, _slack(self.lower))

    @property
    def open(self) -> int:
        """How many of the variables have more than one state left."""
        return int((self.model.fixed[self.wanted] < 0).sum())

    def run(self, deadline: float, gap: float) -> None:
        """Search until it is closed, out of time, or, without a limit, stands still."""
        if self.search is None:
            return
        work, quiet = FIRST, 0
        while not self.closed(gap) and not self.search.exact:
            before = self.upper - self.lower
            left = None if deadline == math.inf else deadline - clock()
            if left is not None and left <= 0.0:
                break
            try:
                self.search.run(time_limit=left, work=work)
            except ContradictionError:
                self.upper = -math.inf
                return
            self._note()
            now = self.upper - self.lower
            quiet = quiet + 1 if not now < (1.0 - CLOSED) * before else 0
            if deadline == math.inf and quiet >= QUIET:
                break
            work *= 2

    def anything(self, deadline: float) -> str:
        """Some assignment: what the best of all variables says of m; its score is a lower bound."""
        left = (deadline - clock()) if deadline < math.inf else 10.0
        best = search_all(self.model, clock() + max(FOR_FIRST * left, 0.2))
        self.best, self.lower = best.x[self.wanted].astype(np.int64), best.score
        known = dict(zip(self.wanted, self.best.tolist()))
        rest = _Division(self.graph._observing(known), [], self.max_gib)
        rest.run(clock() + max(FOR_FIRST * left, 0.2), 0.0)
        if rest.search is not None:
            self.lower = max(self.lower, rest.search.lower)
        return "best of all variables"

    def without_best(self) -> Iterator[_Division]:
        """All assignments but the best, divided by the first variable that differs from it."""
        assert self.best is not None
        known: dict[int, int] = {}
        for v, s in zip(self.wanted, self.best.tolist()):
            n = int(self.graph.n_states[v])
            if n > 1 and self.model.fixed[v] < 0:
                like = np.ones(n)
                like[s] = 0.0
                try:
                    graph = self.graph._observing(known, {v: like})
                except ContradictionError:
                    continue
                yield _Division(graph, self.wanted, self.max_gib)
            known[v] = s
