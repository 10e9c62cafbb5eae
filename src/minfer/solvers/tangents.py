"""How exact answers move: derivatives of marginals along a direction of the field, to rounding.

    d p(s) = p(s) (E[T | s] - E[T]),     T(x) = sum_v direction_v(x_v)

of every state s, and of every cell of a factor's joint marginal. The Jacobian of exact marginals is
a covariance, hence symmetric: this is the product with its transpose, too, which is what
:func:`~minfer.solvers.gradients.pull_back` needs. Joint tables are weighted with T; in a clique
tree conditional means travel with the messages (:mod:`minfer.kernels.cliques.streamed`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.solvers.clique_passes import CliqueTreeState, joint_starts, pass_means
from minfer.solvers.joint_table import JointTable

if TYPE_CHECKING:
    from minfer.engine.conditioning import Conditioned
    from minfer.engine.elimination import CliqueTree

Floats = NDArray[np.float64]

Ask = Callable[[NDArray[np.int64], tuple[int, ...]], Floats]


class Tangent(NamedTuple):
    """Derivatives of exact marginals."""

    probs: Floats  # (sum of states,)
    model: Conditioned  # of which variables are fixed
    joints: Ask  # of factors, by the shape of their free variables, (n, cells)


def tangent(state: Any, model: Conditioned, direction: Floats, joints: bool) -> Tangent | None:
    """Along a direction (sum of states,), centred by the marginals; None of what is not exact.

    ``state`` is what an answer has kept; ``joints``: whether those of factors will be asked for.
    """
    if isinstance(state, JointTable):
        return _of_table(state, model, direction)
    if isinstance(state, CliqueTreeState):
        return _of_tree(state, direction, joints)
    return None


def _of_table(state: JointTable, model: Conditioned, direction: Floats) -> Tangent:
    graph, p = state.graph, state.p
    means = np.zeros(p.shape)
    for v, lo in enumerate(graph._offsets[:-1].tolist()):
        means += direction[lo : lo + p.shape[v]].reshape([-1] + [1] * (p.ndim - 1 - v))
    moved = p * means
    moved -= p * moved.sum()

    def joint(variables: list[int]) -> Floats:
        others = tuple(v for v in range(p.ndim) if v not in variables)
        return moved.sum(axis=others).transpose(np.argsort(np.argsort(variables)))

    def ask(factors: NDArray[np.int64], shape: tuple[int, ...]) -> Floats:
        out = np.empty((len(factors), int(np.prod(shape))))
        for k, f in enumerate(factors.tolist()):
            scope = model.graph.scope(f)
            out[k] = joint(scope[model.fixed[scope] < 0].tolist()).ravel()
        return out

    return Tangent(np.concatenate([joint([v]) for v in range(p.ndim)]), model, ask)


@dataclass(eq=False)
class _MovedTree(CliqueTreeState):
    """A clique tree whose "marginals" are derivatives."""

    direction: Floats = field(default_factory=lambda: np.zeros(0))

    def _pass(self, model: Conditioned, tree: CliqueTree) -> Floats:
        return pass_means(model, tree, self.direction, joints=True).joints


def _of_tree(state: CliqueTreeState, direction: Floats, joints: bool) -> Tangent:
    model, tree = state.model, state.tree
    whole = np.zeros(len(model.field))  # auxiliary variables lie behind
    whole[: len(direction)] = direction
    moved = pass_means(model, tree, whole, joints)
    known = (moved.joints, joint_starts(model)) if joints else None
    there = _MovedTree(state.graph, model, tree, moved.probs, 0.0, known, whole)
    probs = moved.probs[: len(direction)]
    return Tangent(probs, replace(model, graph=state.graph), there._joints)
