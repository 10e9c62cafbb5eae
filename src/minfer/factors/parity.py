"""Parity: weight w where an even (or odd) number of literals is true (infinite: it must be)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.errors import ModelError
from minfer.factors.logical import Weighted, restored_literals


@dataclass(frozen=True, eq=False)
class Parities(Weighted):
    """F parity checks over A literals: e^w if the number of true ones is even, or ``odd``."""

    _odd: NDArray[np.bool_]  # (F,)

    kind = "parity"
    per_factor = ("_literal", "_theta", "_odd")

    @property
    def noun(self) -> str:
        return "parity check"

    def automaton(self) -> tuple[NDArray, NDArray[np.float64]]:
        final = self.end_weights()  # of wrong and right
        return np.array([[0, 1], [1, 0]]), np.where(self._odd[:, None], final, final[:, ::-1])

    def end_statistics(self, ends: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(self._odd, ends[:, 1], ends[:, 0])[:, None]

    def check_numbers(self) -> None:
        super().check_numbers()
        if self._odd.shape != (len(self),) or self._odd.dtype != bool:
            raise ModelError(f"factor {int(self._ids[0])}: a parity is odd or not, by a bool each")

    def describe(self, put: Callable[[str, NDArray], None]) -> dict[str, Any]:
        put("odd", self._odd.astype("|u1"))
        return super().describe(put)

    @classmethod
    def restore(
        cls,
        ids: NDArray[np.int64],
        scope: NDArray[np.int32],
        shape: tuple[int, ...],
        get: Callable[[str, str, list[int]], NDArray],
        entry: dict[str, Any],
    ) -> Parities:
        literal, flip = restored_literals(ids, shape, get)
        odd = get("odd", "|u1", [len(ids)])
        if odd.max(initial=0) > 1:
            raise ModelError("parities are 0 (even) or 1 (odd)")
        theta = get("theta", "<f8", [len(ids)])
        return cls(ids, scope, shape, literal, flip, theta, odd.astype(bool))
