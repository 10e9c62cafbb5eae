"""Loopy belief propagation (sum-product; Pearl 1988, Murphy et al. 1999).

    b_v(x_v) ∝ field_v(x_v) prod_{f ∋ v} M_{f→v}(x_v)
    M_{f→v}(x_v) ∝ sum_{x_f \\ x_v} psi_f(x_f) prod_{u in f \\ v} b_u(x_u) / M_{f→u}(x_u)

Exact on trees, which are solved by one pass up and one down; on graphs with cycles the fixed point
is an approximation and log Z the Bethe estimate. Schedules for the cycles: ``sequential`` (one
variable after the other, forward and backward in turn; half the sweeps of flooding on grids),
``flooding`` (all at once), ``residual`` (sequential, but only variables whose incoming messages
still move), ``coloured`` (variables of one colour at once, colour after colour, where no two of a
colour share a pair or a table: as many sweeps as in turn, and what parallel machines can do;
logical and global factors take their turn after them). What converged means is
:mod:`minfer.solvers.propagation`'s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from minfer.basics.checks import by_name, check_choice, check_device, check_settings
from minfer.basics.limits import clock
from minfer.engine.conditioning import Conditioned
from minfer.engine.message_state import wired
from minfer.engine.wiring import Wired, wire
from minfer.solvers.base import Marginals, Status
from minfer.solvers.propagation import SCHEDULES, Propagating, propagate

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from minfer.graph import FactorGraph
    from minfer.solvers.lanes import LaneAnswers

#: Of a second run where the first did not converge.
RETRY_DAMPING = 0.5
#: Their shares of a time limit (:func:`at_rest`).
FOR_FIRST, FOR_SECOND = 0.4, 0.3


@by_name
@dataclass(frozen=True, kw_only=True)
class BeliefPropagation(Propagating):
    """Sum-product belief propagation.

    Parameters
    ----------
    max_iters : int
        Maximum number of iterations. They are sweeps over the variables on cycles, of which the
        last two confirm that it has converged; trees need none.
    tol : float
        Stop once updating everything moves nothing by more than this. That is, all messages are
        recomputed, without damping, and neither a message nor a probability moves by more: a bound
        on a residual, not on the error of the answer.
        ``Marginals.still_to_move`` estimates what more sweeps would change.
    damping : float in [0, 1)
        Share of the old message kept, 0 to <1; 0.3 to 0.5 helps where it oscillates.
    schedule : "sequential", "flooding", "residual" or "coloured"
        Which messages are updated when.
    time_limit : float or None
        Time limit in seconds; then the best answer so far (exact inference refuses). Its status is
        ``time limit``.
    device : "cpu", "cuda" or "auto"
        Where it runs; "auto" takes the card for models that gain by it. On a card the default
        schedule is ``coloured``, or ``flooding`` where more than 12 colours are needed.
    dtype : "auto", "float64" or "float32"
        Numbers of a card; "auto" is float32, if it holds the model's. Processors have float64.

    Examples
    --------
    >>> from minfer import BeliefPropagation, FactorGraph
    >>> chain = FactorGraph.pairwise([1.0, 0.0], [[0, 1]], [2.0], feature="equal")
    >>> m = BeliefPropagation()(chain)
    >>> m.status.value, [round(float(p), 4) for p in m[1]]
    ('converged', [0.324, 0.676])
    """

    max_iters: int = 1000
    tol: float = 1e-6
    damping: float = 0.0
    schedule: str = "sequential"
    time_limit: float | None = None
    device: str = "cpu"
    dtype: str = "auto"

    def __post_init__(self) -> None:
        check_settings(self.max_iters, self.tol, self.damping, self.time_limit)
        check_choice("schedule", self.schedule, tuple(SCHEDULES))
        check_device(self)

    def wired(self, model: Conditioned) -> Wired:
        """A model of this structure, laid out."""
        return wire(model)

    def _wired(
        self,
        model: Conditioned,
        start: Marginals | None = None,
        kept: Wired | None = None,
        known: NDArray[np.int32] | None = None,
        rho: NDArray[np.float64] | None = None,
    ) -> Wired | None:
        """The model laid out; see :func:`minfer.engine.message_state.wired`."""
        return wired(model, wire, "wired", False, start, kept, known, rho)

    def propagate(
        self, graph: FactorGraph, mesh: Wired, start: Marginals | None, begin: float
    ) -> Marginals:
        """The answer from a mesh, which serves this run alone."""
        if self.device == "cpu":
            return propagate(self, graph, mesh, start, begin, self.schedule)
        from minfer.solvers.on_device import propagate_there

        return propagate_there(self, graph, mesh, start, begin)

    def _rows_there(self, mesh: Wired, rows: int) -> Callable[..., LaneAnswers | None] | None:
        """What runs so many rows of a structure on the device; None: they stay here."""
        from minfer.solvers.on_device import rows_there

        return rows_there(self, mesh, rows)


def at_rest(
    plain: BeliefPropagation, graph: FactorGraph, start: Marginals | None, deadline: float
) -> tuple[Marginals, str]:
    """Belief propagation, once more with damping if it does not converge; and what was done.

    Of two runs that do not, the one whose messages moved less in the end.
    """

    def share(of_it: float) -> float | None:
        return None if deadline == math.inf else max((deadline - clock()), 1e-3) * of_it

    first = replace(plain, time_limit=share(FOR_FIRST))(graph, start)
    left = share(FOR_SECOND)
    if first.converged or (left is not None and left < 0.01):
        return first, ""
    second = replace(plain, damping=RETRY_DAMPING, time_limit=left)(graph, start)
    if second.converged:
        return second, f"converged only with damping={RETRY_DAMPING}"
    better = second if _last(second) < _last(first) else first
    which = f"with damping={RETRY_DAMPING}" if better is second else "without damping"
    cut = Status.TIME_LIMIT in (first.status, second.status)
    why = " in its share of the time" if cut else ""
    return better, f"did not converge{why}, damped or not (taken {which})"


def _last(answer: Marginals) -> float:
    """The last residual."""
    return float(answer.residuals[-1]) if len(answer.residuals) else math.inf
