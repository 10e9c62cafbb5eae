"""How walks from a variable are made deeper: by smaller and smaller thresholds, as work is left.

A walk is made anew for every threshold. So each is to cost several times the one before (what is
repeated is then a fraction), and the last one most of the work there is: a forecast, by the power
of 1 / threshold with which the work of this variable's walks has grown so far. It starts at 1.
"""

from typing import NamedTuple

import numpy as np

from minfer.kernels.compiling.jit import jit

#: Thresholds below are not tried.
LEAST = 1e-15
#: Work of a walk over that of the one before: at most, aimed at; and at least, or it is not made.
GROWTH = 5.0
WORTH = 1.5
#: Of what is left, for the next walk: forecasts err, and one that is cut short says little.
SHARE = 0.7


class Depths(NamedTuple):
    """Of each variable (V,), its last walk."""

    eps: np.ndarray  # f8 its threshold
    cost: np.ndarray  # i8 its work
    rate: np.ndarray  # f8 the power of 1 / eps by which that grows
    done: np.ndarray  # b1 no threshold cuts it any more


@jit
def next_threshold(threshold, cost, rate, left):
    """The threshold after one that cost ``cost`` (0: none yet), or 0 if ``left`` is too little."""
    if cost <= 0:
        return threshold
    aim = min(SHARE * left, GROWTH * cost)
    return threshold * (cost / aim) ** (1.0 / rate) if aim >= WORTH * cost else 0.0


@jit
def rate_seen(before, cost_before, after, cost_after):
    """The power of 1 / threshold by which work grew; within reason, as it grows in steps."""
    return min(max(np.log(cost_after / cost_before) / np.log(before / after), 0.6), 4.0)
