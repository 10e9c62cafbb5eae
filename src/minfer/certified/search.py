"""The search for narrow intervals: all methods in turn, budgets growing, until told to stop.

Level l stands for B_l = 64 * 4^l units of work for each variable that is still open (wider than
``tol``, or, if asked, undecided). Level by level every method has its turn. One that narrowed
little for its work in its last turn, compared with the best, sits out the next turn, then the next
two, four, ..., and comes back at the level where it stopped, so that trying it again costs little;
one that pays catches up at once. (Exact answers come all at once: there the level is always the
search's.) Nothing in this schedule depends on the clock or the limits: a longer search passes
through the same intervals and goes on.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import (
    as_list,
    bool_mask,
    check_choice,
    check_flag,
    check_graph,
    check_number,
    check_seconds,
    check_whole,
    told,
)
from minfer.certified.bounds import CODE, BoundMethod, Bounds, Effort, Refining
from minfer.certified.local import LocalBounds
from minfer.certified.result import Intervals, SearchStep
from minfer.certified.rounding import odds_from_log
from minfer.engine.conditioning import Conditioned, condition
from minfer.errors import SettingsError
from minfer.graph import FactorGraph

FIRST_BUDGET, GROWTH, LEVELS = 64.0, 4.0, 22
#: A method must have narrowed at least this share of what the best one did for its work.
PAYS = 0.05

#: Variables that are known so well and still undecided are ties.
TIE = 1e-9

#: Methods that bound binary variables alone.
BINARY = ("walks", "monotone")

#: What the methods load when they first run.
LOADED = (
    "minfer.engine.buckets.search",
    "minfer.engine.contraction",
    "minfer.engine.leaves",
    "minfer.kernels.buckets.passes",
    "minfer.kernels.buckets.search",
    "minfer.kernels.cliques.elimination",
    "minfer.kernels.cliques.exchanges",
    "minfer.kernels.cliques.streamed",
    "minfer.kernels.cliques.turning",
    "scipy.sparse.csgraph",
)

#: Progress: called with a step of the trace as it happens.
Watcher = Callable[[SearchStep], None]


def all_methods() -> dict[str, tuple[Callable[[], BoundMethod], ...]]:
    """Every method by name, in the order of their turns."""
    from minfer.certified.boxes import Boxes
    from minfer.certified.buckets import BoundedBuckets
    from minfer.certified.contracted import Contracted
    from minfer.certified.exact_cliques import ExactCliques
    from minfer.certified.leaves import BoundedLeaves
    from minfer.certified.monotone import ExactFrontier, Monotone
    from minfer.certified.walks import Walks

    exact = Contracted, ExactCliques, ExactFrontier
    return {
        "exact": exact, "walks": (Walks,), "monotone": (Monotone,), "boxes": (Boxes,),
        "buckets": (BoundedBuckets,), "leaves": (BoundedLeaves,),
    }  # fmt: skip


def applicable(model: Conditioned) -> list[str]:
    """The names of the methods that have something to work on in a model."""
    binary = (model.graph._n_states == 2) & (model.fixed < 0)
    return [name for name in all_methods() if name not in BINARY or binary.any()]


def intervals(
    model: FactorGraph,
    time_limit: float | None = 10.0,
    *,
    tol: float = 0.01,
    variables: Iterable[int | str] | int | str | None = None,
    work: int | None = None,
    undecided: bool = False,
    methods: Sequence[str] | None = None,
    kept: ArrayLike | None = None,
    workers: int | None = None,
    watch: Watcher | None = None,
) -> Intervals:
    """Rigorous intervals that contain the true marginals of a model.

    Parameters
    ----------
    model : FactorGraph
        With its evidence, if any.
    time_limit : float or None
        Seconds (wall clock; compiling and loading kernels are not counted) after which the best
        intervals so far are returned; Ctrl-C does the same. None: no limit.
    tol : float
        Width at which a variable is finished.
    variables : names or numbers, optional
        Work only on these; others get intervals only as a by-product.
    work : int, optional
        A limit in nodes and cells instead of seconds (some nanoseconds each), which gives the same
        intervals on every machine, but for the last digits where ``exact`` contracts the model; the
        portions at work when it is reached are finished. In Python, ``time_limit`` still holds
        beside it, unless None.
    undecided : bool
        A variable is finished once its most probable state is certain, whatever ``tol``. A tie
        never is; such a variable is finished once its intervals are narrower than 1e-9.
    methods : names, optional
        Only these: exact, monotone, walks, boxes, buckets, leaves.
    kept : bool array (n_factors,), optional
        Factors that a reduction kept: bounds that treat the others as unknown come first.
    workers : int, optional
        Threads; all cores by default.
    watch : callable, optional
        Called with every step of the trace as it happens.

    Returns
    -------
    Intervals

    Examples
    --------
    >>> import minfer
    >>> g = minfer.FactorGraph.pairwise([0.5, -0.2, 0.1], [[0, 1], [1, 2]], [1.0, -0.5])
    >>> iv = minfer.intervals(g)
    >>> bool((iv.width < 1e-9).all()), iv.stopped
    (True, 'tolerance')
    """
    check_graph(model, "intervals")
    if time_limit is not None:
        check_seconds("time_limit", time_limit)
        time_limit = None if time_limit == np.inf else time_limit
    check_number("tol", tol, 0.0)
    check_flag("undecided", undecided)
    if work is not None:
        check_whole("work", work, 0)
    if workers is not None:
        check_whole("workers", workers, 1)
    known = all_methods()
    if methods is not None:
        methods = as_list(methods, "methods must be a list of names")
        if not methods:
            raise SettingsError("methods: name at least one, or leave it out for all")
        for name in methods:
            check_choice("methods", name, tuple(known))
    if watch is not None and not callable(watch):
        raise SettingsError(f"watch must be a function, not {told(watch)}")
    keep = None if kept is None else bool_mask(kept, model.n_factors, "kept")
    asked = np.ones(model.n_variables, dtype=bool)
    if variables is not None:
        chosen = as_list(variables, "variables must be a list of them")
        if not chosen:
            raise SettingsError("variables: name at least one, or leave it out for all")
        asked[:] = False
        asked[[model.index(v) for v in chosen]] = True
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    for name in LOADED:
        import_module(name)  # not on the clock
    effort = Effort(time_limit, work, workers or cores or 1)
    search = Search(condition(model), asked, tol, undecided, effort, watch)
    try:
        search.begin()
        if keep is not None and not keep.all():
            search.kept_part(~keep, [make() for n in ("walks", "monotone") for make in known[n]])
        chosen_methods = [n for n in known if methods is None or n in methods]
        search.run([make() for n in chosen_methods for make in known[n]])
    except KeyboardInterrupt:
        effort.stopped = "interrupted"
    return search.answer()


@dataclass(eq=False)
class Turn:
    """How a method fares."""

    method: BoundMethod
    level: int = 0  # the next
    rate: float = np.inf  # narrowing for a unit of work, in its last turn
    sits_out: int = 0  # turns still to sit out
    patience: int = 1  # turns to sit out next time
    more: bool = True  # whether a larger budget could do more


@dataclass(eq=False)
class Search:
    """One search: the model, the bounds, the effort and the trace."""

    model: Conditioned
    asked: NDArray[np.bool_]
    tol: float
    undecided: bool
    effort: Effort
    watch: Watcher | None = None

    def __post_init__(self) -> None:
        self.local = LocalBounds.of(self.model)
        self.bounds = Bounds.vacuous(self.model.graph)
        self.trace: list[SearchStep] = []

    def begin(self) -> None:
        """What is plain: fixed variables, forbidden states, what log-odds can be at all."""
        graph, bounds = self.model.graph, self.bounds
        impossible = np.isneginf(self.model.field)
        bounds.hi[impossible] = 0.0
        fixed = np.flatnonzero(self.model.fixed >= 0)
        at = graph._offsets[fixed] + self.model.fixed[fixed]
        others = np.repeat(self.model.fixed >= 0, graph._n_states)
        others[at] = False
        bounds.hi[others], bounds.lo[at] = 0.0, 1.0  # whenever Ctrl-C comes, what stands is true
        bounds.codes[fixed] = CODE["fixed"]
        two = np.flatnonzero(self.local.binary)
        lo, hi = odds_from_log(self.local.reach[two, 0], self.local.reach[two, 1])
        bounds.offer_odds("range", two, lo, hi)
        self._note("range", 0, np.ones(graph.n_variables))

    def _open(self) -> NDArray[np.bool_]:
        """(V,) asked for and not finished."""
        if self.undecided:
            return self.asked & (self.bounds.width > TIE) & ~self._result("").decided()
        return self.asked & (self.bounds.width > self.tol)

    def run(self, methods: Sequence[BoundMethod]) -> None:
        """All methods in turn, budgets growing."""
        turns = [Turn(m) for m in methods]
        for level in range(LEVELS):
            if not self._level(level, turns):
                return
        self.effort.stopped = self.effort.stopped or "exhausted"

    def _level(self, level: int, turns: list[Turn]) -> bool:
        """Everybody's turn; whether the search goes on."""
        for turn in turns:
            if turn.sits_out:
                turn.sits_out -= 1
                continue
            while turn.more and turn.level <= level and not turn.sits_out:
                wanted = self._open()
                if not wanted.any():
                    self.effort.stopped = self.effort.stopped or "tolerance"
                if not self.effort.go_on():
                    return False
                if not turn.method.gradual:
                    turn.level = level
                self._take(turn, turns, wanted)
        if not self._open().any():
            self.effort.stopped = self.effort.stopped or "tolerance"
        elif not any(t.more for t in turns):
            self.effort.stopped = self.effort.stopped or "exhausted"
        return self.effort.go_on()

    def _take(self, turn: Turn, turns: list[Turn], wanted: NDArray[np.bool_]) -> None:
        """One turn of a method."""
        before, work = self.bounds.width, self.effort.work
        budget = FIRST_BUDGET * GROWTH**turn.level
        turn.more = turn.method.refine(
            Refining(self.local, self.bounds, wanted, budget, self.effort)
        )
        spent = self.effort.work - work
        if spent:
            self._note(turn.method.name, turn.level, before)
        turn.level += 1
        if spent and turn.method.gradual:
            turn.rate = float((before - self.bounds.width)[self.asked].sum()) / spent
            best = max(t.rate for t in turns if np.isfinite(t.rate))
            if turn.rate < PAYS * best:
                turn.sits_out, turn.patience = turn.patience, 2 * turn.patience
            else:
                turn.patience = 1

    def kept_part(self, ignored: NDArray[np.bool_], methods: Sequence[BoundMethod]) -> None:
        """Bounds from a reduced model: ignored factors are ranges. Budgets up to the seventh."""
        whole, self.local = self.local, LocalBounds.of(self.model, ignored)
        turns = [Turn(m) for m in methods]
        for level in range(7):
            if not self._level(level, turns):
                break
        self.local = whole
        if self.effort.stopped in ("exhausted", "tolerance"):
            self.effort.stopped = ""

    def _note(self, name: str, level: int, before: NDArray[np.float64]) -> None:
        width = self.bounds.width
        asked = width[self.asked]
        mean = float(asked.mean()) if len(asked) else 0.0
        step = SearchStep(
            name, level, self.effort.work, self.effort.seconds, int((width < before).sum()), mean,
            float(asked.max(initial=0.0)), int(self._open().sum()),
            self.bounds.log_z[1] - self.bounds.log_z[0],
        )  # fmt: skip
        self.trace.append(step)
        if self.watch is not None:
            self.watch(step)

    def _result(self, stopped: str) -> Intervals:
        b = self.bounds
        log_z = None if b.log_z == (-math.inf, math.inf) else b.log_z
        return Intervals(
            self.model.graph, b.lo, b.hi, b.codes, self.tol, stopped, self.trace, self.effort.work,
            self.effort.seconds, log_z_bounds=log_z,
        )  # fmt: skip

    def answer(self) -> Intervals:
        """The intervals as they are."""
        return replace(self._result(self.effort.stopped), satisfiable=self._satisfiable())

    def _satisfiable(self) -> bool:
        """Whether it is proven that the model allows some assignment.

        It does without zeros, or where a network of conditional probabilities has no evidence; a
        part with zeros does where exact inference went through it; and one that is allowed proves
        it for all.
        """
        graph = self.model.graph
        if graph.directed and not np.isneginf(graph.field).any():
            return True
        exact = self.bounds.codes == CODE["exact"]
        if all(exact[g._scope[g.forbids()]].any(axis=1).all() for g in self.model.groups):
            return True
        likely = self._result("").midpoint().mpm()
        return bool(np.isfinite(graph.log_score(likely[None])).all())
