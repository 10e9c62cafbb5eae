"""Parity: weight w where an even (or odd) number of literals is true (infinite: it must be)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.errors import ModelError
from minfer.factors.group import Entry, Floats, Get, Mask
from minfer.factors.logical import Weighted


@dataclass(frozen=True, eq=False)
class Parities(Weighted):
    """F parity checks over A literals: e^w if the number of true ones is even, or ``odd``."""

    _odd: Mask  # (F,)

    kind, noun = "parity", "parity check"
    per_factor = ("_literal", "_theta", "_odd")

    def automaton(self) -> tuple[NDArray, Floats]:
        final = self.end_weights()  # of wrong and right
        return np.array([[0, 1], [1, 0]]), np.where(self._odd[:, None], final, final[:, ::-1])

    def end_statistics(self, ends: Floats) -> Floats:
        return np.where(self._odd, ends[:, 1], ends[:, 0])[:, None]

    def check_numbers(self) -> None:
        super().check_numbers()
        if self._odd.shape != (len(self),) or self._odd.dtype != bool:
            raise ModelError(f"factor {int(self._ids[0])}: a parity is odd or not, by a bool each")

    def describe(self, put: Callable[[str, NDArray], None]) -> dict[str, Any]:
        put("odd", self._odd.astype("|u1"))
        return super().describe(put)

    @classmethod
    def _fields(cls, n: int, shape: tuple[int, ...], get: Get, entry: Entry) -> tuple[Any, ...]:
        odd = get("odd", "|u1", [n])
        if odd.max(initial=0) > 1:
            raise ModelError("parities are 0 (even) or 1 (odd)")
        return *super()._fields(n, shape, get, entry), odd.astype(bool)
