"""What counts against a time limit: wall-clock seconds, but for those of compiling kernels.

Compiling happens once for a version of minfer and takes from seconds to minutes: a limit that
counted it would cut the first answer short and no other. Every deadline is one of :func:`clock`.
"""

from __future__ import annotations

import math
import sys
import time
from importlib import import_module


def clock() -> float:
    """Wall-clock seconds without those that this process has spent compiling or loading kernels."""
    return time.perf_counter() - compiled()


def start_clock(time_limit: float | None) -> float:
    """The time at which a call begins. What is loaded for kernels at all does not count either."""
    if time_limit is not None:
        load_compiler()
    return clock()


def load_compiler() -> None:
    """Load numba, so that what is timed from now on does not count it."""
    import_module("minfer.kernels.compiling.jit")


def compiled() -> float:
    """Seconds that this process has spent compiling or loading kernels."""
    jit = sys.modules.get("minfer.kernels.compiling.jit")  # not imported: nothing was compiled
    return 0.0 if jit is None else float(jit.compiling())


def deadline_of(time_limit: float | None, began: float | None = None) -> float:
    """When, by :func:`clock`, a limit is over that began then, or now; infinity without one."""
    if time_limit is None:
        return math.inf
    return (clock() if began is None else began) + time_limit
