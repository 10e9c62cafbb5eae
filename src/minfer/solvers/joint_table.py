"""Small models of tables by their whole joint table, which compiles nothing.

    log p(x) = sum_f log psi_f(x_f) + sum_v field_v(x_v) - log Z

over an array with an axis for each variable: a few additions with broadcasting, an exponential, and
a sum for each variable. Up to some eight binary variables that is less work than a clique tree.

Of each term the largest entry is taken off first, so that sums only fall, and what rounding takes
from one is its own size times 2^-53 for each term. Where even the largest is far below zero (large
weights against each other, or against the evidence) that may be all digits: there is no table then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.solvers.pruning import PrunedPart

#: Cells of the joint table, variables and factors (a few microseconds each) up to which it is made.
MOST_CELLS, MOST_VARIABLES, MOST_FACTORS = 4096, 16, 256
#: Sums of logarithms that are at most 0 have 12 digits after the point down to here.
LOWEST = -1e4
#: Cells of a table for every evidence: more, since a question comes with all the work of a plan.
MOST_ASKED = 8 * MOST_CELLS
#: Sums of exponentials down to here have all their digits.
SURE = 1e-200


@dataclass(frozen=True, eq=False)
class JointTable:
    """p(x), an axis for each variable, and log Z. Every marginal is a sum over the other axes."""

    graph: FactorGraph
    p: NDArray[np.float64]
    value: float

    @classmethod
    def of(cls, graph: FactorGraph) -> JointTable | None:
        """None if the model is not small, has more than tables or too large numbers, or is
        impossible."""
        n = graph.n_variables
        found = joint_logs(graph, range(n), MOST_CELLS) if 0 < n <= MOST_VARIABLES else None
        if found is None:
            return None
        total, constant = found
        shape = total.shape
        if graph._field is not None:
            for v, lo in enumerate(graph._offsets[:-1].tolist()):
                field = graph._field[lo : lo + shape[v]]
                most = float(field.max())
                if most == -math.inf:
                    return None
                total += (field - most).reshape([-1] + [1] * (n - 1 - v))
                constant += most
        top = float(total.max())
        if not top >= LOWEST:
            return None
        total -= top
        p = np.exp(total, out=total)
        z = float(p.sum())
        p /= z
        return cls(graph, p, constant + top + math.log(z))

    def log_z(self) -> float:
        return self.value

    def marginals(self) -> NDArray[np.float64]:
        """Those of all variables, (sum of states,)."""
        shape, before = self.p.shape, 1
        probs = np.empty(int(self.graph._offsets[-1]))
        for v, lo in enumerate(self.graph._offsets[:-1].tolist()):
            p = self.p.reshape(before, shape[v], -1).sum(axis=(0, 2))
            probs[lo : lo + shape[v]] = p / p.sum()  # an observed state has exactly 1
            before *= shape[v]
        return probs

    def factor(self, factor: int) -> NDArray[np.float64]:
        """Joint marginal over a factor's scope."""
        return self.joint(self.graph.scope(factor).tolist())

    def factors(self, factors: NDArray[np.int64]) -> NDArray[np.float64]:
        """Joint marginals of factors of one shape, (n, cells)."""
        return np.stack([self.factor(f).ravel() for f in factors.tolist()])

    def joint(self, variables: list[int]) -> NDArray[np.float64]:
        """Joint marginal of any variables, in the given order."""
        others = tuple(v for v in range(self.p.ndim) if v not in variables)
        table = np.array(self.p.sum(axis=others))
        table /= table.sum()  # what is certain has exactly 1
        return table.transpose(np.argsort(np.argsort(variables)))


class AnswerTable:
    """P(target | observed) for every state of what is observed: answers are looked up. A stand-in
    for a :class:`~minfer.solvers.plans.CliquePlan` of one target and hard evidence."""

    decided: dict[int, int] = {}  # noqa: RUF012
    target = 0
    fits = True

    def __init__(
        self, total: NDArray[np.float64], constant: float, order: Sequence[int], part: PrunedPart
    ) -> None:
        """log p is ``total``, an axis for each variable of ``order``, then the target's, then
        others, plus ``constant``."""
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
    def of(
        cls, part: PrunedPart, target: int, observed: Sequence[int], most: int = MOST_ASKED
    ) -> AnswerTable | None:
        """None where the question is not small, or the model has more than tables, or numbers so
        large that they lose digits."""
        graph, inside = part.of, part.variables.tolist()
        if graph._field is not None or target in observed or len(inside) > MOST_VARIABLES:
            return None
        order = [v for v in observed if v in inside]
        first = [*order, target]
        found = joint_logs(graph, first + [v for v in inside if v not in first], most)
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


def joint_logs(
    graph: FactorGraph, variables: Sequence[int], most: int
) -> tuple[NDArray[np.float64], float] | None:
    """The sum of all log-tables over ``variables``, an axis each in this order: of the tables less
    their largest entries, and of these. Factors that reach outside are left out. None where it has
    more than ``most`` cells, or the model has many factors or more than tables."""
    states = graph._n_states.tolist()
    shape = [states[v] for v in variables]
    if math.prod(shape) > most or graph.n_factors > MOST_FACTORS:
        return None
    axis = {v: k for k, v in enumerate(variables)}
    n, all_of_it = len(shape), len(shape) == len(states)
    total, constant = np.zeros(shape), 0.0
    for g in graph.groups:
        if g.form != "table":
            return None
        tables, one = g.stored_tables(), g.shared
        tops = tables.max(axis=1, keepdims=True)
        tops[tops == -np.inf] = 0.0  # nothing is possible
        tables, largest = tables - tops, tops[:, 0].tolist()
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
            constant += largest[0 if one else row]
    return total, constant
