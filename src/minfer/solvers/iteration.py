"""The loop that belief propagation and tree-reweighted propagation share.

Kernels make several sweeps per call; between calls the loop looks at the clock and lets Ctrl-C in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from minfer.basics.limits import clock
from minfer.solvers.status import Status

#: How long a kernel may run before the loop looks at the clock again, in seconds.
_GLANCE = 0.05
#: How far, relative to its logarithm, a message in logs may move in the last sweep of a run.
DRIFT = 1e-3


def iterate(
    sweeps: Callable[[int, NDArray[np.float64]], int],
    converged: Callable[[], bool],
    max_iters: int,
    time_limit: float | None,
    sweep_cost: float,
    max_chunk: int = 4096,
) -> tuple[Status, NDArray[np.float64]]:
    """Run ``sweeps(n, residuals)`` until converged, out of iterations or out of time.

    ``sweeps`` makes up to n sweeps, writes their residuals and returns how many it made; fewer
    than n means that it has converged or wants to be called again.
    ``sweep_cost`` guesses the seconds of a sweep, for the first call.
    """
    begin = clock()
    trace: list[NDArray[np.float64]] = []
    done, chunk = 0, _chunk(sweep_cost, time_limit, min(64, max_chunk))
    while done < max_iters:
        residuals = np.zeros(min(chunk, max_iters - done))
        made = sweeps(len(residuals), residuals)
        done += made
        trace.append(residuals[:made])
        if converged():
            return Status.CONVERGED, np.concatenate(trace)
        spent = clock() - begin
        if time_limit is not None and spent >= time_limit:
            return Status.TIME_LIMIT, np.concatenate(trace)
        left = None if time_limit is None else time_limit - spent
        chunk = _chunk(spent / max(done, 1), left, max_chunk)
    return Status.MAX_ITERS, np.concatenate(trace) if trace else np.zeros(0)


def drifts(before: NDArray[np.float64], after: NDArray[np.float64]) -> bool:
    """Whether messages in logs still moved while no probability showed it.

    Where weights are huge, a message of e^-500 and one of e^-900 are the same probability, but not
    to a belief in which another message of e^700 stands against them.
    """
    both = np.isfinite(before) & np.isfinite(after)
    moved = np.abs(after[both] - before[both])
    return bool((moved > DRIFT * (1.0 + np.abs(after[both]))).any())


def still_to_move(residuals: Sequence[float], stride: int) -> float | None:
    """What further iteration would still move, were the residuals to go on shrinking as they do.

    With R and R' the last residual and the one before, r = R / R', it is R r / (1 - r): a geometric
    series, an estimate. ``stride`` sweeps together (one in each direction) count as one, by the
    larger of their residuals. None where there are not two, or where they hardly shrink: no
    probability moves by more than one.
    """
    if len(residuals) < 2 * stride:
        return None
    last = max(residuals[-stride:])
    before = max(residuals[-2 * stride : -stride])
    if last == 0.0:
        return 0.0
    if last >= before:
        return None
    r = last / before
    further = last * r / (1.0 - r)
    return further if further <= 1.0 else None


def _chunk(sweep_cost: float, time_left: float | None, most: int) -> int:
    """How many sweeps fit between two looks at the clock."""
    glance = _GLANCE if time_left is None else min(_GLANCE, time_left)
    return int(min(max(glance / max(sweep_cost, 1e-7), 1), most))
