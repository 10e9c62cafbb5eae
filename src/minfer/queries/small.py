"""All marginals of a model so small that its whole joint table is less work than a plan.

    log p(x) = sum_f log psi_f(x_f) + sum_v field_v(x_v) - log Z

over an array with an axis for each variable: a few additions with broadcasting, an exponential, and
a sum for each variable.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from minfer.graph import FactorGraph

#: Cells of the joint table, and variables, up to which this is done.
MOST_CELLS, MOST_VARIABLES = 4096, 16


def enumerated(graph: FactorGraph) -> tuple[NDArray[np.float64], float] | None:
    """Probabilities of all states (sum S,) and log Z; None where it is no small model of tables.

    None, too, where every assignment is impossible.
    """
    shape = graph._n_states.tolist()
    n = len(shape)
    if not 0 < n <= MOST_VARIABLES or math.prod(shape) > MOST_CELLS:
        return None
    total = np.zeros(shape)
    for g in graph.groups:
        if g.form != "table":
            return None
        tables, one = g.stored_tables(), g.shared
        for row, scope in enumerate(g._scope.tolist()):
            table = tables[0 if one else row].reshape(g.shape)
            if any(a > b for a, b in pairwise(scope)):
                order = sorted(range(len(scope)), key=scope.__getitem__)
                table, scope = table.transpose(order), [scope[a] for a in order]
            axes = [1] * n
            for v in scope:
                axes[v] = shape[v]
            total += table.reshape(axes)
    if graph._field is not None:
        for v, lo in enumerate(graph._offsets[:-1].tolist()):
            total += graph._field[lo : lo + shape[v]].reshape([-1] + [1] * (n - 1 - v))
    top = float(total.max())
    if top == -math.inf:
        return None
    total -= top
    weights = np.exp(total, out=total)
    z = float(weights.sum())
    probs, before = np.empty(int(graph._offsets[-1])), 1
    for v, lo in enumerate(graph._offsets[:-1].tolist()):
        probs[lo : lo + shape[v]] = weights.reshape(before, shape[v], -1).sum(axis=(0, 2))
        before *= shape[v]
    probs /= z
    return probs, top + math.log(z)
