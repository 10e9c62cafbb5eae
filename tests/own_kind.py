"""A factor kind of somebody's own, in one file: at least half of the literals agree with the first.

psi = e^1.5 if they do. The automaton's state is the first literal and how many agreed with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minfer.factors import Logical


@dataclass(frozen=True, eq=False)
class Followers(Logical):
    """F factors: at least half of the A literals are as the first one is."""

    kind = "followers"

    def automaton(self):
        arity = self.arity
        side = arity + 1  # states: agreed so far if the first is false, then if it is true
        step = np.zeros((arity, 2 * side, 2), dtype=np.int64)
        for k in range(2 * side):
            first, agreed = divmod(k, side)
            for value in (0, 1):
                more = min(agreed + (value == first), arity)
                step[:, k, value] = first * side + more
        if arity:
            step[0, :, 0], step[0, :, 1] = 1, side + 1
        agreed = np.arange(2 * side) % side
        return step, np.where(2 * agreed >= arity, 1.5, 0.0)[None]


def add(graph, scopes, **literals):
    """Append such factors."""
    return graph.add_logical(Followers, scopes, **literals)


def log_psi(literals: tuple[bool, ...]) -> float:
    """The definition."""
    return 1.5 if 2 * sum(x == literals[0] for x in literals) >= len(literals) else 0.0
