"""Noisy gates learned from cases: a number for each cause, by EM on what the causes drew.

What each cause and the leak drew is hidden (:mod:`minfer.factors.causes`). Given a row in which a
gate's whole family is known, its posterior is a pass forward and one back over the causes,

    P(z_i = t | x, y)  ~  q_i(t | x_i) sum_s f_{i-1}(s) b_i(max(s, t)),

and normalised expected draws are the next numbers. So a gate that every row knows is learned by
itself. Other gates are written out for the clique tree of all (:class:`GateFamilies`): each draw
a hidden variable below its cause, and the highest so far a chain of hidden variables, certain
given these. A draw of probability zero stays one: a cause that has no effect in some state, and a
leak that is not there, are kept so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.errors import ContradictionError
from minfer.factors.causes import IndependentCauses
from minfer.factors.group import Mask
from minfer.graph import FactorGraph
from minfer.learn.em import Expected, Floats, dot_logs
from minfer.learn.estimator import alike
from minfer.model.causes import DrawnCauses, NoisyCauses

Draws = list[Floats]  # (states, S) of each cause, and the leak (1, S)


class Gate(NamedTuple):
    """A gate of a model: its child, parents, and distributions by the child's states."""

    child: int
    parents: list[int]
    draws: Draws
    highest: bool

    @property
    def size(self) -> int:
        return self.draws[0].shape[1]

    def entry(self, graph: FactorGraph, draws: Sequence[Floats]) -> NoisyCauses:
        """Numbers as an entry of a network."""
        names = [graph.name(v) for v in self.parents]
        return DrawnCauses(dict(zip(names, draws)), draws[-1][0], top=self.highest).named()


def gates_of(graph: FactorGraph) -> list[Gate]:
    """The noisy gates of a Bayesian network."""
    out = []
    for group in graph.groups:
        if isinstance(group, IndependentCauses):
            for row, scope in enumerate(group._scope.tolist()):
                draws = [np.array(q) for q in group.distributions(row)]
                out.append(Gate(scope[-1], scope[:-1], draws, group.highest))
    return sorted(out, key=lambda gate: gate.child)


def learning_of(
    gate: Gate, known: NDArray[np.int32], strength: Callable[[Floats], Floats]
) -> tuple[Callable[[Draws], Expected[Draws]], Callable[[Draws, Draws], Draws]]:
    """What EM needs to learn a gate from rows (V, N) that know all of its family: expected draws,
    and the next numbers from these. ``strength``: the pseudo-counts of a distribution's array."""
    mine = np.ascontiguousarray(known[[*gate.parents, gate.child]])
    first, owner = alike(mine.astype(np.uint64))
    rows = mine[:, first]
    x = np.ascontiguousarray(rows[:-1].T)
    weight = np.bincount(owner).astype(np.float64)
    y = (rows[-1] if gate.highest else gate.size - 1 - rows[-1]).astype(np.int64)
    alpha = [np.where(q > 0.0, strength(q), 0.0) for q in gate.draws]

    def expect(draws: Draws) -> Expected[Draws]:
        counts, likelihood = _expected(gate, draws, x, y, weight)
        value = likelihood + sum(dot_logs(a, q) for a, q in zip(alpha, draws))
        if value == -np.inf:
            raise ContradictionError(
                "BayesianNetwork: some row is impossible under the zeros of the causes of "
                f"gate number {gate.child}: give the gate a leak, or causes without zeros"
            )
        return Expected(counts, likelihood, value)

    def improved(counts: Draws, before: Draws) -> Draws:
        return [normalised(c + a, q) for c, a, q in zip(counts, alpha, before)]

    return expect, improved


def normalised(counts: Floats, before: Floats) -> Floats:
    """Rows divided by their sums; rows without any stay."""
    total = counts.sum(axis=1, keepdims=True)
    return np.where(total > 0.0, counts / np.where(total > 0.0, total, 1.0), before)


def _expected(
    gate: Gate, draws: Draws, x: NDArray[np.int32], y: NDArray[np.int64], weight: Floats
) -> tuple[Draws, float]:
    """Expected draws of each cause and the leak, by the child's states, and log P(y | x)."""
    from minfer.kernels.learning.draws import expected_draws

    way = slice(None, None, 1 if gate.highest else -1)
    ends = np.cumsum([len(d) for d in draws])
    q = np.ascontiguousarray(np.concatenate(draws)[:, way])
    counts = np.zeros_like(q)
    likelihood = expected_draws(x, y, weight, np.append(0, ends[:-2]), q, counts)
    return np.split(counts[:, way], ends[:-1]), float(likelihood)


class Expanded(NamedTuple):
    """A network with the draws of some gates as hidden variables, for the clique tree."""

    graph: FactorGraph  # no factors
    parents: list[list[int]]
    fixed: dict[int, Floats]  # tables that are not learned, by variable
    start: dict[int, Floats]  # where EM begins, zeros where there are to be zeros
    draws: dict[int, list[int]]  # by gate's child: the variables drawn, the leak's last


def expanded(
    graph: FactorGraph, parents: list[list[int]], gates: Sequence[Gate], apart: Mask
) -> Expanded:
    """Gates that are ``apart`` (V,) are left out: their children, always known, are roots."""
    names = [graph.name(v) for v in range(graph.n_variables)]
    card = graph._n_states.tolist()
    out = [list(own) for own in parents]
    fixed: dict[int, Floats] = {}
    start: dict[int, Floats] = {}
    drawn: dict[int, list[int]] = {}

    def hidden(child: int, what: str, size: int, own: list[int]) -> int:
        names.append(f"\x00{names[child]} {what}")
        card.append(size)
        out.append(own)
        return len(card) - 1

    for gate in gates:
        v, size = gate.child, gate.size
        if apart[v]:
            out[v] = []
            fixed[v] = np.full(size, 1.0 / size)
            continue
        levels = np.arange(size)
        meet = np.maximum if gate.highest else np.minimum
        joined = (meet(levels[:, None], levels)[..., None] == levels).astype(np.float64)
        mine = [
            hidden(v, f"draw {i}", size, [u] if u >= 0 else [])
            for i, u in enumerate([*gate.parents, -1])
        ]
        start.update(zip(mine, gate.draws))
        now = mine[-1]
        for z in mine[:-2]:
            now = hidden(v, f"after {z}", size, [now, z])
            fixed[now] = joined
        out[v], fixed[v] = [now, mine[-2]], joined
        drawn[v] = mine
    whole = FactorGraph.empty(card, names)
    return Expanded(whole, out, fixed, start, drawn)
