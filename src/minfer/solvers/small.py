"""Questions so small that a whole joint table is less work than a plan.

Of a question about one target the table has an axis for what is observed, one for the target and
one for the rest, which is summed out: what is left is the answer to every evidence on these
variables (:class:`AnswerTable`). Questions without evidence about a small model are a matter of
:class:`~minfer.solvers.joint_table.JointTable`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minfer.solvers.joint_table import LOWEST, MOST_CELLS, MOST_VARIABLES, joint_logs

if TYPE_CHECKING:
    from minfer.solvers.pruning import PrunedPart

#: Cells of the table: more than for one answer, since a question comes with all the work of a plan.
MOST_ASKED = 8 * MOST_CELLS
#: Sums of exponentials down to here have all their digits.
SURE = 1e-200


class AnswerTable:
    """P(target | observed) for every state of what is observed: answers are looked up.

    A stand-in for a :class:`~minfer.solvers.plans.CliquePlan` of one target and hard evidence.
    """

    decided: dict[int, int] = {}  # noqa: RUF012
    target = 0

    def __init__(
        self, total: NDArray[np.float64], constant: float, order: Sequence[int], part: PrunedPart
    ) -> None:
        """``total`` has an axis for each variable of ``order``, then the target's, then others.

        log p is ``total`` plus ``constant``.
        """
        n = len(order)
        self.order, self.part, self.cells = list(order), part, total.size
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
        log_z = np.broadcast_to(np.log(z) + top + constant, z.shape)
        found = np.concatenate([weights / z, log_z, np.zeros_like(z)], axis=1)
        found.flags.writeable = False
        self._found = found

    @classmethod
    def of(cls, part: PrunedPart, target: int, observed: Sequence[int]) -> AnswerTable | None:
        """None where the question is not small, or the model has more than tables, or numbers so
        large that they lose digits."""
        graph, inside = part.of, part.variables.tolist()
        if graph._field is not None or target in observed or len(inside) > MOST_VARIABLES:
            return None
        order = [v for v in observed if v in inside]
        first = [*order, target]
        found = joint_logs(graph, first + [v for v in inside if v not in first], MOST_ASKED)
        if found is None:
            return None
        total, constant = found
        tops = total.max(axis=tuple(range(len(order), total.ndim)))
        if ((tops < LOWEST) & (tops > -np.inf)).any():
            return None
        return cls(total, constant, order, part)

    def single(self, states: Sequence[int]) -> tuple[NDArray[np.float64], bool]:
        """Probabilities, log Z, and 0, for states of the variables in ``order``."""
        k = 0
        for state, step in zip(states, self._steps):
            k = (k + state) * step
        return self._found[k], False
