"""Models whose variables are independent once unary factors are absorbed: one softmax each.

Seed graphs are of this kind, so BP and TRW answer them here, without wiring anything.
"""

from __future__ import annotations

import time

import numpy as np

from minfer.conditioning import Conditioned
from minfer.solvers.base import LogZ, Marginals, Plain, Status


def independent(model: Conditioned, solver: str, begin: float) -> Marginals | None:
    """The exact answer if no factor over two or more free variables is left, else None."""
    if model.groups:
        return None
    graph = model.graph
    first, size = graph._offsets[:-1], np.diff(graph._offsets)
    if graph.n_variables:
        top = np.maximum.reduceat(model.field, first)
        probs = np.exp(model.field - np.repeat(top, size))
        total = np.add.reduceat(probs, first)
        probs /= np.repeat(total, size)
        log_z = model.constant + float((top + np.log(total)).sum())
    else:
        probs, log_z = np.zeros(0), model.constant
    timings = {"iterate": time.perf_counter() - begin}
    return Marginals(
        graph, probs, solver, Status.CONVERGED, LogZ.EXACT, timings=timings, state=Plain(log_z)
    )
