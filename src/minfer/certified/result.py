"""Rigorous intervals: the answer of :func:`minfer.intervals`, and what one asks of it.

The true marginal p(x_v = s) of the model lies in [lo, hi], rounding included: a theorem, not an
estimate. An interval of [0, 1] says that nothing is known; it is called *vacuous*.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_number, check_type
from minfer.basics.words import counted, plain
from minfer.errors import ModelError
from minfer.factors.group import read_only
from minfer.graph import FactorGraph
from minfer.model.states import Probabilities
from minfer.say.intervals import REFUTED
from minfer.solvers.base import SHOWN, Given, LogZ, Marginals, Status, between, first_argmax

#: What can have made an interval. The order is that of the codes.
METHODS = ("none", "fixed", "exact", "monotone", "walks", "boxes", "range", "buckets", "leaves")
#: Wider intervals are called vacuous.
VACUOUS = 0.999


class SearchStep(NamedTuple):
    """A line of the trace: what was tried, and where the intervals stood after it."""

    method: str
    level: int
    work: int  # since the beginning
    seconds: float  # since the beginning, wall clock
    improved: int  # variables whose interval shrank
    mean_width: float  # over the variables asked for
    max_width: float
    open: int  # variables asked for that are not finished
    log_z_width: float = math.inf  # between the bounds of log Z

    def told(self, n: int) -> str:
        """How far the intervals of n variables are."""
        return (
            f"{n - self.open:,} of {n:,} finished; width {self.mean_width:.2g} on average, "
            f"{self.max_width:.2g} at most; {self.method}"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Intervals:
    """Intervals that contain the true marginals.

    Attributes
    ----------
    graph : FactorGraph
    lo, hi : float arrays (sum of states,)
        Laid out like :attr:`Marginals.probs`; ``iv[v]`` is (S_v, 2).
    codes : uint8 array (V,)
        Which method gave the interval, an index into :data:`METHODS`; :attr:`method` has the words.
    tol : float
        The width that was asked for.
    stopped : str
        ``tolerance`` (all asked for are at most ``tol`` wide, or decided if that was asked),
        ``time``, ``work``, ``interrupted``, or ``exhausted`` (nothing left to try).
    trace : list of Step
    work : int
        Nodes and cells visited.
    seconds : float
    satisfiable : bool
        Whether it is proven that the model allows some assignment. If it allows none there are no
        marginals, and intervals say nothing: a search that ends early may not find that out.
    log_z_bounds : (float, float) or None
        log Z lies between these two, rounding included; None where nothing is known. Only
        ``buckets`` finds them, so that a search which ends before its turn has none.
    """

    graph: FactorGraph
    lo: NDArray[np.float64]
    hi: NDArray[np.float64]
    codes: NDArray[np.uint8]
    tol: float
    stopped: str
    trace: list[SearchStep] = field(default_factory=list)
    work: int = 0
    seconds: float = 0.0
    satisfiable: bool = True
    log_z_bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        for name in ("lo", "hi", "codes"):
            object.__setattr__(self, name, read_only(getattr(self, name)))

    def __getitem__(self, variable: int | str) -> Probabilities:
        """Lower and upper ends of every state of a variable, shape (S_v, 2).

        A state's name is an index too, as in ``found["CVP"]["LOW"]``.
        """
        v = self.graph.index(variable)
        part = slice(self.graph._offsets[v], self.graph._offsets[v + 1])
        ends = np.stack([self.lo[part], self.hi[part]], axis=1)
        own = self.graph._states[v] if self.graph._states else None
        return Probabilities.of(ends, self.graph.name(v), own)

    def __len__(self) -> int:
        return self.graph.n_variables

    def __iter__(self) -> Iterator[Probabilities]:
        return (self[v] for v in range(self.graph.n_variables))

    def items(self) -> Iterator[tuple[str, Probabilities]]:
        """Name and interval of every variable in turn."""
        return ((self.graph.name(v), self[v]) for v in range(self.graph.n_variables))

    @property
    def width(self) -> NDArray[np.float64]:
        """The widest interval of each variable's states, shape (V,)."""
        return self._most(self.hi - self.lo)

    @property
    def method(self) -> NDArray[np.str_]:
        """What gave each variable's interval, shape (V,): a word of :data:`METHODS`."""
        return np.array(METHODS)[self.codes]

    @property
    def vacuous(self) -> NDArray[np.bool_]:
        """Variables of which nothing is known: [0, 1] to within a thousandth, shape (V,)."""
        return self.width > VACUOUS

    def decided(self) -> NDArray[np.bool_]:
        """Variables of which one state's lower end is above all others' upper ends, shape (V,)."""
        if not len(self):
            return np.zeros(0, dtype=bool)
        starts, sizes = self.graph._offsets[:-1], self.graph._n_states
        top = np.repeat(np.maximum.reduceat(self.lo, starts), sizes)
        rivals = np.add.reduceat(self.hi >= top, starts)  # the state itself is one of them
        return rivals == 1

    def states(self) -> NDArray[np.int64]:
        """The certain most probable state of each variable, -1 where undecided, shape (V,)."""
        return np.where(self.decided(), first_argmax(self.lo, self.graph._offsets), -1)

    def refuted(self, marginals: Marginals, by: float = REFUTED) -> NDArray[np.bool_]:
        """Variables of which an estimate is provably off by more than ``by``, shape (V,)."""
        check_number("by", by, 0.0)
        return self.error_bounds(marginals)[0] > by

    def error_bounds(self, marginals: Marginals) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The least and the largest error that an estimate can have, each shape (V,).

        An error is the largest difference over a variable's states.
        """
        p = self._probs_of(marginals)
        least = np.maximum(np.maximum(self.lo - p, p - self.hi), 0.0)
        most = np.maximum(self.hi - p, p - self.lo)
        return self._most(least), self._most(most)

    def midpoint(self) -> Marginals:
        """The middle of every interval (so scaled that they add up to one), as an estimate.

        lo + t (hi - lo), one t for each variable: half for two states.
        """
        p = between(self.lo, self.hi, self.graph._n_states)
        return self._estimate(p, "midpoints of intervals")

    def clip(self, marginals: Marginals) -> Marginals:
        """An estimate moved into the intervals where it lies outside, and nowhere else."""
        p = np.clip(self._probs_of(marginals), self.lo, self.hi)
        total = self._sums(p)
        sizes = self.graph._n_states
        short = np.repeat(1.0 - total, sizes)
        room = np.where(short > 0, self.hi - p, p - self.lo)
        whole = np.repeat(self._sums(room), sizes)
        p = p + np.where(whole > 0, short * room / np.where(whole > 0, whole, 1.0), 0.0)
        return self._estimate(np.clip(p, self.lo, self.hi), f"{marginals.solver}, clipped")

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values, ready for JSON."""
        width, bounds = self.width, self.log_z_bounds
        return {
            "stopped": self.stopped,
            "satisfiable": True if self.satisfiable else None,
            "log_z_bounds": None if bounds is None else [plain(end) for end in bounds],
            "tol": self.tol,
            "work": self.work,
            "seconds": self.seconds,
            "mean_width": float(width.mean()) if len(width) else 0.0,
            "max_width": float(width.max()) if len(width) else 0.0,
            "decided": int(self.decided().sum()),
            "vacuous": int(self.vacuous.sum()),
            "intervals": {
                name: {
                    **({"states": list(iv.states)} if iv.states else {}),
                    "lo": iv[:, 0].tolist(),
                    "hi": iv[:, 1].tolist(),
                    "method": str(m),
                }
                for (name, iv), m in zip(self.items(), self.method)
            },
            "trace": [
                {**step._asdict(), "log_z_width": plain(step.log_z_width)} for step in self.trace
            ],
        }

    def __repr__(self) -> str:
        width = self.width
        if not len(width):
            return "Intervals(no variables)"
        text = (
            f"Intervals({counted(len(self), 'variable')}; mean width {width.mean():.2g}, largest "
            f"{width.max():.2g}; {int(self.decided().sum()):,} decided; stopped by {self.stopped} "
            f"after {self.seconds:.3g} s"
        )
        return f"{text})" if self.satisfiable else f"{text}; if the model allows anything at all)"

    def _repr_html_(self) -> str:
        """The widest intervals."""
        from minfer.say.tables import interval_table

        about = repr(self)[len("Intervals(") : -1]
        return interval_table(self, None, SHOWN)._replace(conclusion=about).html("Intervals")

    def _most(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.maximum.reduceat(values, self.graph._offsets[:-1]) if len(self) else np.zeros(0)

    def _sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.add.reduceat(values, self.graph._offsets[:-1]) if len(self) else np.zeros(0)

    def _probs_of(self, marginals: Marginals) -> NDArray[np.float64]:
        check_type(marginals, Marginals, "intervals judge Marginals", ModelError)
        if not np.array_equal(marginals.graph._n_states, self.graph._n_states):
            raise ModelError(
                "these marginals belong to another model: their variables or states differ from "
                "those of the intervals"
            )
        return marginals.probs

    def _estimate(self, p: NDArray[np.float64], name: str) -> Marginals:
        total = np.repeat(self._sums(p), self.graph._n_states)
        p = np.clip(p / total, self.lo, self.hi)
        return Marginals(
            self.graph, p, Given(name), Status.GIVEN, LogZ.NONE, proven_log_z=self.log_z_bounds
        )
