"""Gates: an output, the last literal, equals the disjunction or conjunction of the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minfer.factors.group import Floats
from minfer.factors.logical import Weighted


@dataclass(frozen=True, eq=False)
class Gates(Weighted):
    """F gates: e^w where the last literal is what the gate says of those before it, else 1.

    The inputs are read as a clause's literals; the output then compares.
    """

    def steps(self, reading: NDArray, compare: NDArray) -> NDArray:
        """One step for all inputs, one for the output."""
        inputs = np.broadcast_to(reading, (max(self.arity - 1, 0), 2, 2))
        return np.concatenate([inputs, np.asarray(compare)[None][: self.arity]])


@dataclass(frozen=True, eq=False)
class Ors(Gates):
    """The output is true if and only if some input is."""

    kind, noun = "or", "or-gate"

    def automaton(self) -> tuple[NDArray, Floats]:
        seen = np.array([[0, 1], [1, 1]])  # a true input
        return self.steps(seen, np.array([[1, 0], [0, 1]])), self.end_weights()


@dataclass(frozen=True, eq=False)
class Ands(Gates):
    """The output is true if and only if all inputs are."""

    kind, noun = "and", "and-gate"

    def automaton(self) -> tuple[NDArray, Floats]:
        missed = np.array([[1, 0], [1, 1]])  # a false input
        return self.steps(missed, np.array([[0, 1], [1, 0]])), self.end_weights()
