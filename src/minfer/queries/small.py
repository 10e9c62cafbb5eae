"""Questions so small that a whole joint table is less work than a plan.

Of a question about one target the table has an axis for what is observed, one for the target and
one for the rest, which is summed out: what is left is the answer to every evidence on these
variables (:class:`Tabled`). Questions without evidence about a small model are a matter of
:class:`~minfer.solvers.joint_table.JointTable`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.graph import FactorGraph
from minfer.solvers.joint_table import LOWEST, MOST_CELLS, MOST_VARIABLES, joint_logs

#: Cells of the table: more than for one answer, since a question comes with all the work of a plan.
MOST_ASKED = 8 * MOST_CELLS
#: Sums of exponentials down to here have all their digits.
SURE = 1e-200


class Tabled:
    """P(target | observed) for every state of what is observed: answers are looked up.

    A stand-in for a :class:`~minfer.queries.plans.Plan` of one target and hard evidence.
    """

    known_states: dict[int, int] = {}  # noqa: RUF012
    place: dict[int, int] = {}  # noqa: RUF012
    target = 0

    def __init__(
        self, total: NDArray[np.float64], constant: float, order: Sequence[int], whole: bool
    ) -> None:
        """``total`` has an axis for each variable of ``order``, then the target's, then others.

        log p is ``total`` plus ``constant``. ``whole``: these are all variables, so that log Z is
        that of the model given evidence.
        """
        n = len(order)
        self.order, self.part, self.whole = list(order), self, whole
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
        found = np.concatenate([weights / z, np.log(z) + top + constant], axis=1)
        found.flags.writeable = False
        self._found = found

    @classmethod
    def of(cls, graph: FactorGraph, target: int, observed: Sequence[int]) -> Tabled | None:
        """None where the question is not small, or the model has more than tables, or numbers so
        large that they lose digits."""
        if graph._field is not None or target in observed:
            return None
        about: Iterable[int] = range(graph.n_variables)
        if math.prod(graph._n_states.tolist()) > MOST_CELLS:  # else it is not worth a look
            about = _ancestors(graph, [target, *observed])
        first = [*observed, target]
        variables = first + [v for v in about if v not in first]
        few = len(variables) <= MOST_VARIABLES
        found = joint_logs(graph, variables, MOST_ASKED) if few else None
        if found is None:
            return None
        total, constant = found
        tops = total.max(axis=tuple(range(len(observed), total.ndim)))
        if ((tops < LOWEST) & (tops > -np.inf)).any():
            return None
        return cls(total, constant, observed, len(variables) == graph.n_variables)

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
