"""Where the intervals stand, and what is left to spend: what every method works on.

:class:`Bounds` holds the best interval of every state so far. Methods *offer* intervals; what is
offered is intersected with what is known, so that no offer ever widens one.

:class:`Effort` counts work (nodes and cells, the same on every machine) and looks at the clock and
at Ctrl-C. A method works in portions, in an order that depends on the model alone, and asks
``effort.go_on()`` before each.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from minfer.basics.limits import clock as wall_clock
from minfer.certified.local import LocalBounds
from minfer.certified.result import METHODS
from minfer.certified.rounding import down, probability_from_odds, up
from minfer.errors import ContradictionError
from minfer.graph import FactorGraph

CODE = {name: np.uint8(k) for k, name in enumerate(METHODS)}
#: An offer that shrinks no interval by this much, relatively, does not count as one.
WORTH = 1e-3
#: Portions that run side by side, whatever the number of cores: so that work is the same on all.
WAVE = 8
#: Work of a portion of walks, and of one variable, at most.
PORTION_WORK, MOST_WORK = float(1 << 24), float(1 << 28)

Answer = TypeVar("Answer")
Portion = TypeVar("Portion")


@dataclass(eq=False)
class Bounds:
    """The best intervals so far."""

    graph: FactorGraph
    lo: NDArray[np.float64]  # (sum S,)
    hi: NDArray[np.float64]
    codes: NDArray[np.uint8]  # (V,)
    log_z: tuple[float, float] = (-math.inf, math.inf)

    @classmethod
    def vacuous(cls, graph: FactorGraph) -> Bounds:
        n = int(graph._offsets[-1])
        return cls(graph, np.zeros(n), np.ones(n), np.zeros(graph.n_variables, dtype=np.uint8))

    @property
    def width(self) -> NDArray[np.float64]:
        """(V,)"""
        if not self.graph.n_variables:
            return np.zeros(0)
        return np.maximum.reduceat(self.hi - self.lo, self.graph._offsets[:-1])

    def offer_log_z(self, lower: float, upper: float) -> None:
        """Bounds of log Z, rigorous as they are."""
        self.log_z = max(self.log_z[0], lower), min(self.log_z[1], upper)

    def offer_odds(self, method: str, variables: NDArray, lo: NDArray, hi: NDArray) -> None:
        """Intervals of the odds p(1) / p(0) of different binary variables (n,)."""
        low, high = probability_from_odds(lo, hi)
        with np.errstate(divide="ignore", over="ignore"):
            other_low, other_high = probability_from_odds(np.maximum(down(1 / hi), 0.0), up(1 / lo))
        ends = (np.stack(both, axis=1) for both in ((other_low, low), (other_high, high)))
        self.offer(method, variables, *ends)

    def offer_all(self, method: str, lo: NDArray, hi: NDArray) -> None:
        """Intervals (sum S,) of all variables, rigorous as they are."""
        sizes = self.graph._n_states
        for s in np.unique(sizes):
            mine = np.flatnonzero((sizes == s) & (self.width > 0.0))
            at = self.graph._offsets[mine][:, None] + np.arange(s)
            self.offer(method, mine, lo[at], hi[at])

    def offer(self, method: str, variables: NDArray, lo: NDArray, hi: NDArray) -> None:
        """Intervals (n, S) of different variables with S states each, rigorous as they are."""
        if not len(variables):
            return
        at = self.graph._offsets[variables][:, None] + np.arange(lo.shape[1])
        old_lo, old_hi = self.lo[at], self.hi[at]
        new_lo, new_hi = np.fmax(old_lo, lo), np.fmin(old_hi, hi)  # deaf to NaN
        # what the other states leave: 1 - their sum, rounded outward
        n = lo.shape[1]
        slip = 4 * n * 2.0**-53
        rest_hi, rest_lo = sum_of_others(new_hi), sum_of_others(new_lo)
        if n > 1:
            new_lo, new_hi = (
                np.maximum(new_lo, 1.0 - rest_hi - slip * (1 + rest_hi)),
                np.minimum(new_hi, 1.0 - rest_lo + slip * (1 + rest_lo)),
            )
        if (new_lo > new_hi).any():
            bad = int(variables[int(np.argmax((new_lo > new_hi).any(axis=1)))])
            raise ContradictionError(
                f"every assignment has probability zero: what is known of {self.graph.name(bad)} "
                f"leaves it no probability (found by {method}); check the evidence against the "
                "model's zeros. If some assignment is possible, this is a bug in minfer: "
                "please report it"
            )
        gain = ((old_hi - old_lo) - (new_hi - new_lo)).max(axis=1)
        better = gain > WORTH * (old_hi - old_lo).max(axis=1)
        self.lo[at], self.hi[at] = new_lo, new_hi
        self.codes[variables[better]] = CODE[method]


def sum_of_others(x: NDArray) -> NDArray:
    """Of each column, the sum of all others (n, S); it grows with each of them, rounded too.

    The sum of all minus one's own does not: tighter intervals would give wider ones by a last bit.
    """
    rest = np.zeros_like(x)
    rest[:, 1:] = np.cumsum(x[:, :-1], axis=1)
    rest[:, :-1] += np.cumsum(x[:, :0:-1], axis=1)[:, ::-1]
    return rest


class OutOfWork(Exception):
    """The effort stopped in the middle of a method's preparation."""


class Effort:
    """What is spent and what is left. Compiling kernels is not counted."""

    def __init__(
        self,
        time_limit: float | None,
        work: int | None,
        workers: int = 1,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._clock = clock or wall_clock
        self._began = self._clock()
        self._deadline = None if time_limit is None else self._began + time_limit
        self._most = work
        self._workers = workers
        self.work = 0
        self.stopped = ""
        #: Not 0 when kernels should stop: what they say is thrown away.
        self.flag = np.zeros(1, dtype=np.uint8)

    @property
    def seconds(self) -> float:
        return self._clock() - self._began

    def go_on(self) -> bool:
        """Whether there is time and work left; says why not in ``stopped``."""
        if not self.stopped:
            if self._most is not None and self.work >= self._most:
                self.stopped = "work"
            elif self._deadline is not None and self._clock() >= self._deadline:
                self.stopped = "time"
        return not self.stopped

    def has_room(self, seconds: float, work: float) -> bool:
        """Whether what takes about so much would end within the limits."""
        if self._most is not None and self.work + work > self._most:
            return False
        return self._deadline is None or self._clock() + seconds <= self._deadline

    def check(self) -> None:
        """Raise :class:`OutOfWork` where nothing is left: for long preparations, which are lost."""
        if not self.go_on():
            raise OutOfWork

    def spend(self, work: int | float) -> None:
        self.work += int(work)

    def each(
        self, run: Callable[[Portion], Answer], portions: Iterable[Portion]
    ) -> Iterator[Answer]:
        """Run all portions in waves on all cores, answers in order, until the effort stops.

        ``run`` must not write what other portions read, nor read what the caller writes: a wave is
        over before its answers come. At the deadline or at Ctrl-C the ``flag`` goes up, for kernels
        to look at; what they say then is thrown away. Work is looked at after each wave.
        """
        todo = iter(portions)

        def in_time(portion: Portion) -> tuple[bool, Answer | None]:
            if self.flag[0]:
                return False, None
            answer = run(portion)
            return not self.flag[0], answer

        with ThreadPoolExecutor(max_workers=max(1, self._workers)) as pool:
            try:
                while self.go_on():
                    wave = [pool.submit(in_time, p) for _, p in zip(range(WAVE), todo)]
                    if not wave:
                        return
                    answers = [self._wait(f) for f in wave]
                    for done, answer in answers:
                        if done:
                            yield cast(Answer, answer)
            except BaseException:
                self.flag[0] = 1  # Ctrl-C: whatever runs may stop
                raise

    def _wait(self, future: Future[Answer]) -> Answer:
        """The answer of a portion; at the deadline the flag goes up, and kernels stop early."""
        while self._deadline is not None and not self.flag[0]:
            left = self._deadline - self._clock()
            try:
                return future.result(timeout=min(max(left, 0.001), 60.0))
            except TimeoutError:
                if self._clock() >= self._deadline:
                    self.flag[0] = 1
        return future.result()


class Refining(NamedTuple):
    """What a method is asked for: better intervals of the ``wanted`` (V,) variables.

    ``budget`` is the work that may go into one variable, about; it quadruples from call to call.
    What a method does depends on the model, the bounds and the budget alone.
    """

    local: LocalBounds
    bounds: Bounds
    wanted: NDArray[np.bool_]
    budget: float
    effort: Effort


class BoundMethod(Protocol):
    """A way to bound marginals. A new one is a file with one of these."""

    #: A word of METHODS.
    name: str
    #: Whether more work narrows more; else all comes at once, and little so far says nothing.
    gradual: bool

    def refine(self, now: Refining) -> bool:
        """Offer better intervals; whether a larger budget could do more."""
        ...


class Deepening(ABC):
    """Walks from each variable by itself, deeper with every call."""

    name: str
    gradual = True
    portion: int  # variables at a time, at most
    first: float  # threshold
    of_odds: bool  # whether intervals are of odds

    def __init__(self) -> None:
        self._of: LocalBounds | None = None
        self._free: list[Any] = []  # scratch that no thread has

    @abstractmethod
    def _prepare(self, local: LocalBounds, check: Callable[[], None]) -> NDArray[np.bool_]:
        """Lay the model out; which variables (V,) walks say something of. ``check`` may raise."""

    @abstractmethod
    def _new_scratch(self) -> Any: ...

    @abstractmethod
    def _walk(
        self, roots: NDArray[np.int64], budget: float, scratch: Any
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
        """Ends of the intervals of some variables with as many states, and the work."""

    def refine(self, now: Refining) -> bool:
        from minfer.kernels.intervals.deepening import Depths

        local, bounds, wanted, budget, effort = now
        if local is not self._of:
            try:
                known = self._prepare(local, effort.check)
            except OutOfWork:
                return True
            n = local.n_variables
            self._depths = Depths(np.full(n, self.first), np.zeros(n, np.int64), np.ones(n), ~known)
            self._of, self._free = local, []
        roots = np.flatnonzero(wanted & ~self._depths.done)
        states = bounds.graph._n_states[roots]
        budget = min(budget, MOST_WORK)
        size = int(min(max(PORTION_WORK / budget, 1), self.portion))
        portions = [
            part[i : i + size]
            for part in (roots[states == s] for s in np.unique(states))
            for i in range(0, len(part), size)
        ]

        def run(part: NDArray[np.int64]) -> tuple[NDArray, tuple[NDArray, NDArray, int]]:
            try:
                scratch = self._free.pop()
            except IndexError:
                scratch = self._new_scratch()
            found = self._walk(part, budget, scratch)
            self._free.append(scratch)
            return part, found

        for part, (lo, hi, work) in effort.each(run, portions):
            effort.spend(work)
            (bounds.offer_odds if self.of_odds else bounds.offer)(self.name, part, lo, hi)
        return bool((wanted & ~self._depths.done).any())
