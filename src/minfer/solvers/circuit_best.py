"""The best assignments of a circuit: one pass of maxima, and a walk over what loses little.

After the pass each edge knows what it loses against the best below its node, so that a walk from
the roots that spends no more than some slack ends in an assignment whichever way it goes. The slack
that lets k assignments in is found by walks that only count; each of them tells what the next
assignment would lose, and stops at a few times k.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.basics.limits import clock
from minfer.errors import RefusedError
from minfer.model.ranked import Assignment, Best

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.solvers.circuit_passes import Weighed

Floats = NDArray[np.float64]
_MOST = 1e300  # slack for all assignments there are
_SAME = 1e-12  # losses that differ by less, relatively, are ties


def ranked(graph: FactorGraph, weighed: Weighed, k: int, began: float) -> Best:
    """The k best, or all there are, as answers; ties in the order of their states."""
    x, complete = k_best(weighed, k)
    names = tuple(graph.name(v) for v in range(graph.n_variables))
    states = tuple(graph.states(v) for v in range(graph.n_variables))
    scores = np.asarray(graph.log_score(x), dtype=np.float64)
    order = np.lexsort((*x.T[::-1], -scores))
    found = tuple(
        Assignment(names, x[j].astype(np.int64), s, min(s - weighed.log_z, 0.0), states)
        for j, s in ((int(j), float(scores[j])) for j in order)
    )
    top = found[0].log_score
    upper = float(np.nextafter(top + _rounding(graph), math.inf))
    return Best(found, True, complete, clock() - began, upper, steps=("circuit",))


def _rounding(graph: FactorGraph) -> float:
    """How far a true score may lie above the best one found, by rounding alone."""
    unit = 4.0 * (graph.n_factors + 3 * graph.n_variables + 8) * 2.0**-53
    total = float(graph.n_variables)
    for g in graph.groups:
        if g.form != "messages":
            total += float(np.asarray(g.magnitude()).sum())
    if graph._field is not None:
        total += float(np.abs(graph._field[np.isfinite(graph._field)]).sum())
    return unit * total


def k_best(weighed: Weighed, k: int) -> tuple[NDArray[np.int32], bool]:
    """States (n, V) of the k best, in no order, and whether there are no others."""
    from minfer.kernels.circuits.keys import LEAST
    from minfer.kernels.circuits.passes import climb_maxima, within

    wires, leaves = weighed.wires, weighed.wires.leaves
    if (wires.weight == LEAST).any():
        raise RefusedError(
            "circuit: some states have conditional probabilities below 1e-300, which sums can do "
            "without, but not the best assignments; use minfer.mpe"
        )
    begin, members = leaves.members
    with np.errstate(divide="ignore"):
        inner = np.append(np.log(leaves.share) + weighed.logs, 0.0)[members]  # of auxiliary ones: 0
    top = np.maximum.reduceat(np.append(inner, -np.inf), begin[:-1])
    top[np.diff(begin) == 0] = -np.inf
    gap = np.repeat(np.where(top > -np.inf, top, 0.0), np.diff(begin)) - inner
    owner = np.append(np.repeat(leaves.offsets[:-1], np.diff(leaves.offsets)), -1)
    states = members - owner[members]
    best, loss = np.empty(len(wires.frame.variable)), np.empty(len(wires.weight))
    climb_maxima(wires.frame, wires.weight, top, best, loss)
    n_variables = len(leaves.offsets) - 1

    def walk(slack: float, most: int, keep: int = 0) -> tuple[int, float, NDArray, Floats]:
        found, lost = np.empty((keep, wires.width), dtype=np.int32), np.empty(keep)
        if not len(wires.roots):
            return 1, math.inf, np.zeros((min(keep, 1), 0), dtype=np.int32), np.zeros(min(keep, 1))
        n, beyond = within(
            wires.frame, wires.roots, loss, begin, gap, states, slack, most, found, lost
        )
        return n, beyond, found[:n, :n_variables], lost[:n]

    low, n_low, high = -1.0, 0, 0.0
    step = 0.25
    while True:  # to where there are enough
        high = _more(high)
        n, beyond, _, _ = walk(high, 4 * k)
        if n >= k or beyond > _MOST:
            break
        low, n_low = high, n
        high = max(beyond, high + step)
        step *= 2.0
    if n < k or (n == k and n < 4 * k):
        _, beyond, x, _ = walk(high, n, n)
        return x, n < k or beyond > _MOST
    while n >= 4 * k and high - max(low, 0.0) > _SAME * (1.0 + high):  # to where few more are
        middle = 0.5 * (max(low, 0.0) + high)
        n_middle, _, _, _ = walk(middle, 4 * k)
        if n_middle >= k:
            high, n = middle, n_middle
        else:
            low, n_low = middle, n_middle
    _, _, x, lost = walk(high, n, n)
    if n < 4 * k:
        order = np.argsort(lost, kind="stable")[:k]
        return x[order], False
    # many with the same loss: all that lose less, and some of them
    _, _, sure, _ = walk(low, max(n_low, 1), n_low) if n_low else (0, 0.0, x[:0], lost[:0])
    ties = x[lost > low]
    return np.concatenate([sure, ties[: k - n_low]]), False


def _more(slack: float) -> float:
    """A slack that rounding keeps nobody out of."""
    return slack + _SAME * (1.0 + slack)
