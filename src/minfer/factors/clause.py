"""Clauses: weight w where at least one literal is true (infinite: one must be)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minfer.factors.group import Floats
from minfer.factors.logical import Weighted


@dataclass(frozen=True, eq=False)
class Clauses(Weighted):
    """F disjunctions of A literals: psi = e^w if some literal is true, else 1.

    The automaton's state is whether a true literal has been seen.
    """

    kind = "clause"

    def automaton(self) -> tuple[NDArray, Floats]:
        return np.array([[0, 1], [1, 1]]), self.end_weights()
