"""Models whose variables are independent once unary factors are absorbed: one softmax each.

Seed graphs are of this kind, so BP and TRW answer them here, without wiring anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.basics.limits import clock
from minfer.engine.support import lift
from minfer.solvers.base import LogZ, Marginals, Plain, Solver, Status

if TYPE_CHECKING:
    from minfer.engine.conditioning import Conditioned

#: States from which on a kernel is worth loading.
MANY = 1 << 16


def independent(model: Conditioned, solver: Solver, begin: float) -> Marginals:
    """The exact answer where no factor over two or more free variables is left."""
    probs, log_z = softmax(model)
    lift(model, probs)
    timings = {"iterate": clock() - begin}
    return Marginals(
        model.graph, probs, solver, Status.CONVERGED, LogZ.EXACT, timings=timings,
        state=Plain(log_z + model.constant), still_to_move=0.0,
    )  # fmt: skip


def softmax(model: Conditioned) -> tuple[NDArray[np.float64], float]:
    """Probabilities by the field alone, (sum of states,), and its log Z, constants apart."""
    graph, field = model.graph, model.field
    if len(field) == 2 * graph.n_variables and (graph._n_states == 2).all():
        low, high = field[::2], field[1::2]
        ratio = np.exp(-np.abs(high - low))  # of the smaller to the larger weight
        probs = np.empty(len(field))
        probs[::2] = np.where(low >= high, 1.0, ratio) / (1.0 + ratio)
        probs[1::2] = np.where(low >= high, ratio, 1.0) / (1.0 + ratio)
        return probs, float(np.maximum(low, high).sum() + np.log1p(ratio).sum())
    if len(field) >= MANY:
        from minfer.kernels.arithmetic.softmax import softmax as by_kernel

        probs = np.empty(len(field))
        return probs, float(by_kernel(field, graph._offsets, probs))
    first, size = graph._offsets[:-1], np.diff(graph._offsets)
    top = np.maximum.reduceat(field, first)
    probs = np.exp(field - np.repeat(top, size))
    total = np.add.reduceat(probs, first)
    probs /= np.repeat(total, size)
    return probs, float((top + np.log(total)).sum())
