"""Models, and questions, so small that a whole joint table is less work than a plan.

    log p(x) = sum_f log psi_f(x_f) + sum_v field_v(x_v) - log Z

over an array with an axis for each variable: a few additions with broadcasting, an exponential, and
a sum for each variable (:func:`enumerated`). Of a question about one target the table has an axis
for what is observed, one for the target and one for the rest, which is summed out: what is left is
the answer to every evidence on these variables (:class:`Tabled`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.graph import FactorGraph

#: Cells of the joint table, and variables, up to which this is done; more cells for a question,
#: which comes with all the work of a plan.
MOST_CELLS, MOST_VARIABLES = 4096, 16
MOST_ASKED = 8 * MOST_CELLS
#: Sums of exponentials down to here have all their digits.
SURE = 1e-200


def enumerated(graph: FactorGraph) -> tuple[NDArray[np.float64], float] | None:
    """Probabilities of all states (sum S,) and log Z; None where it is no small model of tables.

    None, too, where every assignment is impossible.
    """
    n = graph.n_variables
    total = _joint(graph, range(n), MOST_CELLS) if 0 < n <= MOST_VARIABLES else None
    if total is None:
        return None
    shape = total.shape
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


class Tabled:
    """P(target | observed) for every state of what is observed: answers are looked up.

    A stand-in for a :class:`~minfer.queries.plans.Plan` of one target and hard evidence.
    """

    known_states: dict[int, int] = {}  # noqa: RUF012
    place: dict[int, int] = {}  # noqa: RUF012
    target = 0
    whole = False  # whether log Z is that of all evidence's say: it is asked for anew

    def __init__(self, total: NDArray[np.float64], order: Sequence[int]) -> None:
        """``total`` has an axis for each variable of ``order``, then the target's, then others."""
        n = len(order)
        self.order, self.part = list(order), self
        self.n_variables, self.cells = total.ndim, total.size
        self._steps = [*total.shape[1:n], 1] if n else []
        cells = total.reshape(math.prod(total.shape[:n]), total.shape[n], -1)
        top: Any = cells.max()
        weights = np.exp(cells - top).sum(axis=2) if top > -np.inf else np.zeros((1, 1))
        z = weights.sum(axis=1, keepdims=True)
        if z.min() < SURE:  # evidence far less likely than other, or impossible
            top = cells.max(axis=(1, 2), keepdims=True)
            top[top == -np.inf] = 0.0
            weights, top = np.exp(cells - top).sum(axis=2), top[:, 0]
            z = weights.sum(axis=1, keepdims=True)
            impossible = z == 0.0
            z[impossible], top[impossible] = 1.0, -np.inf
        found = np.concatenate([weights / z, np.log(z) + top], axis=1)
        found.flags.writeable = False
        self._found = found

    @classmethod
    def of(cls, graph: FactorGraph, target: int, observed: Sequence[int]) -> Tabled | None:
        """None where the question is not small, or the model has more than tables."""
        if graph._field is not None or target in observed:
            return None
        about: Iterable[int] = range(graph.n_variables)
        if math.prod(graph._n_states.tolist()) > MOST_CELLS:  # else it is not worth a look
            about = _ancestors(graph, [target, *observed])
        first = [*observed, target]
        variables = first + [v for v in about if v not in first]
        few = len(variables) <= MOST_VARIABLES
        total = _joint(graph, variables, MOST_ASKED) if few else None
        return None if total is None else cls(total, observed)

    def single(self, states: Sequence[int]) -> tuple[NDArray[np.float64], bool]:
        """Probabilities and log Z (S+1,), for states of the variables in ``order``."""
        k = 0
        for state, step in zip(states, self._steps):
            k = (k + state) * step
        return self._found[k], False


def _ancestors(graph: FactorGraph, variables: Sequence[int]) -> Iterable[int]:
    """What has a say in some variables of a Bayesian network; all variables of another model."""
    if not graph.directed or graph.n_variables > 4 * MOST_VARIABLES:
        return range(graph.n_variables)
    assert graph._child is not None
    child, parents = graph._child.tolist(), {}
    for g in graph.groups:
        for i, scope in zip(g._ids.tolist(), g._scope.tolist()):
            parents[child[i]] = scope
    found, todo = set(variables), list(variables)
    while todo:
        for v in parents.get(todo.pop(), ()):
            if v not in found:
                found.add(v)
                todo.append(v)
    return sorted(found)


def _joint(graph: FactorGraph, variables: Sequence[int], most: int) -> NDArray[np.float64] | None:
    """The sum of all log-tables over ``variables``, an axis each in this order.

    Factors that reach outside are left out. None where it has more than ``most`` cells, or the
    model more than tables.
    """
    states = graph._n_states.tolist()
    shape = [states[v] for v in variables]
    if math.prod(shape) > most:
        return None
    axis = {v: k for k, v in enumerate(variables)}
    n, all_of_it = len(shape), len(shape) == len(states)
    total = np.zeros(shape)
    for g in graph.groups:
        if g.form != "table":
            return None
        tables, one = g.stored_tables(), g.shared
        for row, scope in enumerate(g._scope.tolist()):
            if not all_of_it and any(v not in axis for v in scope):
                continue
            table = tables[0 if one else row].reshape(g.shape)
            places = [axis[v] for v in scope]
            if len(places) > 1 and places != sorted(places):
                order = sorted(range(len(places)), key=places.__getitem__)
                table, places = table.transpose(order), [places[a] for a in order]
            axes = [1] * n
            for k in places:
                axes[k] = shape[k]
            total += table.reshape(axes)
    return total
