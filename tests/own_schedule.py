"""A schedule of somebody's own, in one row: every other variable in every other sweep."""

from __future__ import annotations

import numpy as np

from minfer.solvers.propagation import Schedule


def every_other(active: np.ndarray, made: int) -> None:
    """Who is visited in a sweep, ``made`` sweeps after the first."""
    active[:] = (np.arange(len(active)) + made) % 2


SCHEDULE = Schedule(some=True, awake=every_other)
